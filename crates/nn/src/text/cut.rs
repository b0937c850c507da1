//! How much of a long text has to be looked at for its first tokens, or its last.
//!
//! A tokenizer takes some microseconds for each word, whatever is done with the words then, so that 2 MB cost seconds for the
//! 512 tokens that a model takes. Where a text may be cut in two so that the tokens of the parts, one after the other, are
//! those of the whole, a part with enough tokens will do. Such a place is between two characters a and b:
//!
//! - Words end there. The first step that cuts texts into words cuts before b, whatever stands beside it: at spaces, and
//!   BERT's at all white space, at punctuation and between Chinese characters. All later steps and the model see words one by
//!   one.
//! - The normalizer sees them apart. b is of ASCII or Chinese, a and what comes behind b are that or letters of some scripts: no
//!   accent, nothing that joins. So no form of Unicode and no table of sentencepiece's, which go by such groups, takes them
//!   together. Of those of ASCII it is tried, when a model is loaded, that they stay what they are; what becomes of other
//!   letters is seen where white space at the end of a part would count.
//! - No special token of the file crosses it. Such a token would have b inside, behind its first character: so b is none of
//!   these characters.
//!
//! For the last tokens besides nothing may depend on where the text begins: no step strips its start, and no special token
//! looks at, or takes, what is beside it.
//!
//! Texts without such places (for sentencepiece those without spaces) are tokenized whole.

use raddle_sync::fault;
use std::{collections::HashSet, ops::RangeInclusive};
use tokenizers::{
    NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
};

/// Bytes that are tried first for each token (a guess: words of English have 4 to 6).
const BYTES_A_TOKEN: usize = 12;
/// A part that is tried first has at least so many.
const BYTES_MIN: usize = 4096;
/// If a part has too few tokens the next one is so many times as long.
const GROWTH: usize = 4;

/// Where texts of a tokenizer may be cut.
#[derive(Debug, Default)]
pub struct Cuts {
    /// ASCII characters before which a word ends.
    before: HashSet<char>,
    /// ASCII characters that may stand in front of those.
    behind: HashSet<char>,
    /// Before Chinese characters, too.
    chinese: bool,
    /// Behind letters of other scripts, too.
    letters: bool,
    /// For the last tokens, too.
    from_the_end: bool,
}

/// Those that BERT's normalizer puts between spaces, of the first block. Further ones are normalized to others.
const CHINESE: RangeInclusive<char> = '\u{4e00}'..='\u{9fff}';
/// Letters, of which no one is a mark, belongs to what comes next, or is a part of a syllable: of Latin, Greek, Cyrillic and
/// Armenian, Hebrew, Arabic, Devanagari, Thai, of Japanese, and Korean syllables.
const LETTERS: [RangeInclusive<char>; 11] = [
    '\u{c0}'..='\u{2af}',
    '\u{370}'..='\u{481}',
    '\u{48a}'..='\u{556}',
    '\u{5d0}'..='\u{5ea}',
    '\u{620}'..='\u{64a}',
    '\u{904}'..='\u{939}',
    '\u{e01}'..='\u{e30}',
    '\u{1e00}'..='\u{1fff}',
    '\u{3041}'..='\u{3096}',
    '\u{30a1}'..='\u{30fa}',
    '\u{ac00}'..='\u{d7a3}',
];

fn is_letter(c: char) -> bool {
    c.is_alphabetic() && (CHINESE.contains(&c) || LETTERS.iter().any(|letters| letters.contains(&c)))
}

impl Cuts {
    /// Of a tokenizer, when no more is changed of it.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Cuts {
        // Kinds and options of steps are in what they are written as.
        let steps = |value: serde_json::Result<serde_json::Value>, list: &str| -> Vec<serde_json::Value> {
            match value.unwrap_or_default() {
                serde_json::Value::Null => Vec::new(),
                value => value[list].as_array().cloned().unwrap_or_else(|| vec![value]),
            }
        };
        let normalizers = steps(serde_json::to_value(tokenizer.get_normalizer()), "normalizers");
        let splitters = steps(serde_json::to_value(tokenizer.get_pre_tokenizer()), "pretokenizers");
        let kind = |step: &serde_json::Value| step["type"].as_str().unwrap_or_default().to_string();
        // Punctuation in front of it cuts at characters that are looked at one by one.
        let Some(first) = splitters.iter().find(|step| kind(step) != "Punctuation") else {
            return Cuts::default();
        };
        let is_bert = kind(first) == "BertPreTokenizer";
        let splits = match kind(first).as_str() {
            "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit" => true,
            "ByteLevel" => first["use_regex"] == true,
            "Metaspace" => first["split"] == true,
            _ => false,
        };
        if !splits {
            return Cuts::default();
        }
        let normalize = |text: &str| -> Option<String> {
            let mut text = NormalizedString::from(text);
            if let Some(normalizer) = tokenizer.get_normalizer() {
                normalizer.normalize(&mut text).ok()?;
            }
            Some(text.get().to_string())
        };
        let added: Vec<_> = tokenizer.get_added_tokens_decoder().into_values().collect();
        let mut inside = HashSet::new();
        for token in &added {
            let Some(normalized) = normalize(&token.content) else { return Cuts::default() };
            for content in [&token.content, &normalized] {
                inside.extend(content.chars().skip(1));
            }
        }
        if fault!(cuts_inside_of_tokens) {
            inside.clear();
        }
        let ascii = |c: &char| c.is_ascii_alphanumeric() || is_bert && c.is_ascii_punctuation();
        let stays = |c: &char| -> bool {
            normalize(&format!("{c}")).is_some_and(|found| {
                let mut chars = found.chars();
                chars.next().is_some_and(|found| found.eq_ignore_ascii_case(c)) && chars.next().is_none()
            })
        };
        let behind = (' '..='~').filter(ascii).filter(stays).collect();
        let ends = |c: &char| match c {
            ' ' => true,
            '\t' | '\n' => is_bert,
            // It counts as a letter where whole words are asked for.
            '_' => false,
            c => is_bert && c.is_ascii_punctuation(),
        };
        let ends_words = |c: &char| -> bool {
            // Seen by the steps themselves: a word, and another one with the character or behind it.
            let text = format!("a{c}a");
            let Some(normalized) = normalize(&text) else { return false };
            let mut split = PreTokenizedString::from(normalized);
            let cut = tokenizer.get_pre_tokenizer().map(|splitter| splitter.pre_tokenize(&mut split));
            let splits = split.get_splits(OffsetReferential::Original, OffsetType::Byte);
            matches!(cut, Some(Ok(()))) && splits.len() > 1 && splits[0].1.1 == 1
        };
        let before = ('\0'..='~').filter(ends).filter(|c| !inside.contains(c)).filter(ends_words).collect();
        let is_whole_word = added.iter().any(|token| token.single_word);
        let is_berts = matches!(&normalizers[..], [one] if kind(one) == "BertNormalizer" && one["handle_chinese_chars"] == true);
        Cuts {
            before,
            behind,
            chinese: is_bert && is_berts && !is_whole_word && !inside.iter().any(|c| CHINESE.contains(c)),
            // These drop white space; without a normalizer letters stay.
            letters: ["BertPreTokenizer", "Whitespace", "WhitespaceSplit"].contains(&kind(first).as_str())
                || kind(first) == "ByteLevel" && normalizers.is_empty(),
            from_the_end: !is_whole_word
                && !added.iter().any(|token| token.rstrip)
                && !normalizers.iter().any(|step| kind(step) == "Strip"),
        }
    }

    /// Is there a cut at a byte?
    fn is_cut(&self, text: &str, at: usize) -> bool {
        let Some((behind, before)) = text.split_at_checked(at) else { return false };
        let mut before = before.chars();
        let (Some(a), Some(b)) = (behind.chars().next_back(), before.next()) else { return false };
        let ends = if a.is_ascii() { self.behind.contains(&a) } else { self.letters && is_letter(a) };
        let starts = self.before.contains(&b) || self.chinese && CHINESE.contains(&b);
        ends && starts && before.next().is_none_or(|next| next.is_ascii() || is_letter(next))
    }

    /// The cut in `text` nearest to a byte, from `least` to it if that isn't less, else from it to `least`.
    fn cut(&self, text: &str, most: usize, least: usize) -> Option<usize> {
        let is_cut = |at: &usize| self.is_cut(text, *at);
        if most >= least { (least..=most).rev().find(is_cut) } else { (most..=least).find(is_cut) }
    }

    /// Parts of a text, each longer than the one before, the text itself last: `tokens` of the first that has more than that
    /// many, or of all of it; and whether it is all of it.
    pub fn enough<'t, T, E>(
        &self,
        text: &'t str,
        count: usize,
        from_the_end: bool,
        tokens: impl Fn(&'t str) -> Result<T, E>,
        len: impl Fn(&T) -> usize,
    ) -> Result<(T, bool), E> {
        let mut size = (count.saturating_mul(BYTES_A_TOKEN)).max(BYTES_MIN);
        let can = !self.before.is_empty() || self.chinese;
        while can && (!from_the_end || self.from_the_end) && size.saturating_mul(2) < text.len() {
            let part = match from_the_end {
                false => self.cut(text, size, size / 2).map(|at| &text[..at]),
                true => {
                    let (near, far) = (text.len() - size, text.len() - size / 2);
                    self.cut(text, near, far).map(|at| &text[at..])
                }
            };
            if let Some(part) = part {
                let found = tokens(part)?;
                if len(&found) > count {
                    return Ok((found, false));
                }
            }
            size *= GROWTH;
        }
        Ok((tokens(text)?, true))
    }
}
