//! Tables of characters that sentencepiece's models have (`Precompiled`), checked before the `tokenizers` crate walks them.
//!
//! A table is the bytes of a trie, their count in front, and texts that end with a zero. The trie is a double array: units of 32
//! bits; from a node one goes by a byte to the unit at the node's place with that byte's bits turned over, which is a child
//! if it bears the byte, and says where the child's children are. The crate follows all of this without looking: a place outside
//! of the trie, or a text that begins inside of a character, is a panic, and a large count an allocation.
//!
//! Guarantee: of a table that passes, each step from each node that can be reached stays inside, and what stands for some bytes is
//! whole text, at most [`GROWTH_MAX`] times as long. So any text is done in time and memory that follow from its length.

use std::collections::{HashSet, VecDeque};

/// Larger tables are none (a guess: XLM-RoBERTa's has 0.3 MB).
const TABLE_BYTES_MAX: usize = 2 << 20;
/// What stands for some bytes may be so many times as long (11 times in NFKC, the next power of two).
const GROWTH_MAX: usize = 16;

/// What the units say, by the layout of Darts.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// The byte that leads here; none if this is a value.
    fn byte(self) -> Option<u8> {
        (self.0 >> 31 == 0).then_some(self.0 as u8)
    }

    /// Does a key end here?
    fn ends(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// From this unit to the places of its children, by turning over bits.
    fn offset(self) -> usize {
        let wide = self.0 >> 9 & 1 == 1;
        ((self.0 >> 10) as usize) << if wide { 8 } else { 0 }
    }

    /// Where the text of a key begins.
    fn value(self) -> usize {
        (self.0 & (u32::MAX >> 1)) as usize
    }
}

/// Looks through a table.
///
/// Errors: what it should be.
pub fn check(table: &[u8]) -> Result<(), String> {
    if table.len() > TABLE_BYTES_MAX {
        return Err(format!("at most {TABLE_BYTES_MAX} bytes"));
    }
    let parts = table.split_first_chunk().and_then(|(count, rest)| {
        let count = u32::from_le_bytes(*count) as usize;
        rest.split_at_checked(count - count % 4)
    });
    let (trie, texts) = parts.ok_or("the bytes of a trie, their count in front")?;
    let texts = std::str::from_utf8(texts).map_err(|_| "texts in UTF-8 behind the trie")?;
    let (trie, _) = trie.as_chunks();
    let unit = |place: usize| trie.get(place).map(|bytes| Unit(u32::from_le_bytes(*bytes)));
    let root = unit(0).ok_or("a trie with a root")?.offset();
    // With the length of the shortest key that leads there.
    let mut nodes = VecDeque::from([(root, 0)]);
    let mut seen = HashSet::from([root]);
    while let Some((node, depth)) = nodes.pop_front() {
        for byte in 1..=u8::MAX {
            let Some(child) = unit(node ^ usize::from(byte)) else {
                return Err("a trie from which no byte leads out".into());
            };
            if child.byte() != Some(byte) {
                continue;
            }
            let below = node ^ usize::from(byte) ^ child.offset();
            if child.ends() {
                let text = unit(below).and_then(|unit| texts.get(unit.value()..));
                let text = text.ok_or("keys with a text each")?;
                if text.split('\0').next().unwrap_or_default().len() > GROWTH_MAX * (depth + 1) {
                    return Err(format!("texts at most {GROWTH_MAX} times as long as what they stand for"));
                }
            }
            if seen.insert(below) {
                nodes.push_back((below, depth + 1));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine, engine::general_purpose::STANDARD};
    use tokenizers::{NormalizedString, Normalizer, normalizers::Precompiled};

    /// One that sentencepiece has made.
    fn table() -> Vec<u8> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/tiny/xlm-roberta/tokenizer.json");
        let tokenizer: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        STANDARD.decode(tokenizer["normalizer"]["precompiled_charsmap"].as_str().unwrap()).unwrap()
    }

    const TEXT: &str = "a \u{fb01}ve\u{3000}\u{3316} \u{fdfa} \u{ff37}\u{ff5e} e\u{301} \u{1}x\u{200b}\u{feff} \u{bd}\u{ff} \u{1f600}";

    fn normalized(table: &[u8]) -> String {
        let mut text = NormalizedString::from(TEXT);
        Precompiled::from(table).unwrap().normalize(&mut text).unwrap();
        text.get().into()
    }

    #[test]
    fn a_table_of_sentencepiece_passes() {
        check(&table()).unwrap();
        let fdfa = "\u{635}\u{644}\u{649} \u{627}\u{644}\u{644}\u{647} \u{639}\u{644}\u{64a}\u{647} \u{648}\u{633}\u{644}\u{645}";
        let expected = format!(
            "a five \u{30ad}\u{30ed}\u{30e1}\u{30fc}\u{30c8}\u{30eb} {fdfa} W~ \u{e9} x 1\u{2044}2\u{ff} \u{1f600}"
        );
        assert_eq!(normalized(&table()), expected);
    }

    /// What passes with a byte changed is still walked without a panic, and makes no text too long.
    #[test]
    fn what_passes_can_be_walked() {
        let table = table();
        let (mut passed, mut refused) = (0, 0);
        for place in (0..table.len()).step_by(5) {
            for change in [1, 0x80, 0xff] {
                let mut table = table.clone();
                table[place] ^= change;
                match check(&table) {
                    Ok(()) => assert!(normalized(&table).len() <= GROWTH_MAX * TEXT.len()),
                    Err(_) => refused += 1,
                }
                passed += 1;
            }
        }
        assert!(refused > 20 && passed > 2 * refused, "{refused} of {passed} are refused");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let with = |units: &[u32], texts: &[u8]| {
            let count = (units.len() * 4) as u32;
            let units = [count].iter().chain(units).flat_map(|unit| unit.to_le_bytes()).collect::<Vec<_>>();
            check(&[&units[..], texts].concat()).unwrap_err()
        };
        // A root, and from it `a` to a key whose text begins at `value`.
        let key = |value: u32| {
            let mut units = vec![0; 512];
            // The children of the root are in the second block.
            units[0] = 256 << 10;
            units[256 ^ usize::from(b'a')] = u32::from(b'a') | 1 << 8 | 1 << 10;
            units[256 ^ usize::from(b'a') ^ 1] = 1 << 31 | value;
            units
        };
        let count = "the bytes of a trie, their count in front";
        assert_eq!(check(&[]).unwrap_err(), count);
        assert_eq!(check(&[255; 400]).unwrap_err(), count);
        assert_eq!(check(&vec![0; TABLE_BYTES_MAX + 1]).unwrap_err(), "at most 2097152 bytes");
        assert_eq!(with(&[], b""), "a trie with a root");
        assert_eq!(with(&[0; 255], b""), "a trie from which no byte leads out");
        assert_eq!(with(&key(0), b"\xff"), "texts in UTF-8 behind the trie");
        assert_eq!(with(&key(2), b"a"), "keys with a text each");
        assert_eq!(with(&key(1), "\u{e9}".as_bytes()), "keys with a text each");
        let long = "texts at most 16 times as long as what they stand for";
        assert_eq!(with(&key(0), &[b'b'; 17]), long);
        assert_eq!(with(&key(3), &[b'b'; 20]), long);
        let mut good = 2048u32.to_le_bytes().to_vec();
        good.extend(key(4).iter().flat_map(|unit| unit.to_le_bytes()));
        good.extend(b"bbb\0ccccddddeeeefff\0ggggggggggggggggggggg");
        check(&good).unwrap();
    }
}
