//! Texts that are much longer than a model takes: what is tokenized of them gives the tokens of the whole.

use crate::{device, text::Folder};
use raddle_nn::text::{SentenceEncoder, Tokenizer, TooLong};
use raddle_sync::faults::{Fault, assert_caught};
use std::{fs, path::Path};

/// A small generator of numbers, the same on every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most
    }
}

/// What stands beside each other in odd texts: words, runs of spaces, punctuation, special tokens and parts of them, accents
/// that belong to what is before, characters that join and that belong to what comes next, Chinese and Korean ones.
const PARTS: [&str; 46] = [
    "a",
    "thread",
    "Stream",
    "waits",
    "42",
    "x1",
    " ",
    "  ",
    "   ",
    "\n",
    "\t",
    "\r\n",
    ".",
    ",",
    "!?",
    "_",
    "'s",
    "-",
    "[SEP]",
    "[",
    "SEP]",
    "<mask>",
    "</s>",
    "<s",
    "e\u{301}",
    "\u{301}",
    "\u{f6}",
    "\u{fb01}",
    "\u{200d}",
    "\u{600}",
    "\u{3000}",
    "\u{65e5}",
    "\u{672c}\u{8a9e}",
    "\u{3002}",
    "\u{ac00}",
    "\u{1100}\u{1161}",
    "\u{2581}",
    "\u{1f600}",
    "\u{ad}",
    "\u{7f}",
    "\u{43c}\u{430}\u{43c}\u{430}",
    "\u{d55c}\u{ad6d}",
    "<",
    "=",
    "\u{338}",
    "\u{d4e}",
];

/// Of bytes that are none but spaces a text has its part.
fn texts(draw: &mut Draw) -> Vec<String> {
    let mut texts = Vec::new();
    for kind in 0..7 {
        let mut text = String::new();
        while text.len() < 40_000 {
            let part = match kind {
                0 => PARTS[draw.below(PARTS.len())],
                // Words and spaces, with something odd now and then.
                1 if draw.below(4) > 0 => PARTS[draw.below(9)],
                1 => PARTS[draw.below(PARTS.len())],
                2 => ["a ", "thread ", "waits "][draw.below(3)],
                3 => ["\u{65e5}", "\u{672c}", "\u{8a9e}", "\u{3002}"][draw.below(4)],
                4 => ["[SEP]", "<mask>", "</s>", " <mask>  ", "a"][draw.below(5)],
                // Words of others.
                5 => [
                    "\u{43c}\u{430}\u{43c}\u{430} ",
                    "\u{43c}\u{44b}\u{43b}\u{430} ",
                    "\u{440}\u{430}\u{301}\u{43c}\u{443} ",
                ][draw.below(3)],
                // A long run of one kind, then something else.
                _ if text.len() < 12_000 => " ",
                _ => PARTS[draw.below(12)],
            };
            text.push_str(part);
        }
        texts.push(text);
    }
    texts
}

/// The definition: all tokens, and of these the first or the last.
fn check(tokenizer: &Tokenizer, text: &str, what: &str) {
    let whole: Vec<u32> = tokenizer.spell(text, false).unwrap().iter().map(|piece| piece.id).collect();
    let framed = tokenizer.tokenize(&[""], TooLong::Refuse).unwrap().remove(0).ids;
    let [first, last] = framed[..] else { panic!("{what}: two special tokens") };
    let inside = tokenizer.tokens_max() - 2;
    for too_long in [TooLong::TruncateRight, TooLong::TruncateLeft] {
        let kept = match too_long {
            _ if whole.len() <= inside => &whole[..],
            TooLong::TruncateLeft => &whole[whole.len() - inside..],
            _ => &whole[..inside],
        };
        let found = tokenizer.tokenize(&[text], too_long).unwrap().remove(0).ids;
        assert_eq!(found, [&[first], kept, &[last]].concat(), "{what}, {too_long:?}");
    }
    let refused = tokenizer.tokenize(&[text], TooLong::Refuse);
    assert_eq!(refused.is_err(), whole.len() > inside, "{what}");
}

fn tiny(name: &str) -> SentenceEncoder {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/tiny")).join(name);
    SentenceEncoder::load(folder, device()).unwrap()
}

/// RoBERTa's pairs of bytes: all that one byte stands for, and some words.
fn pairs(folder: &Folder) -> SentenceEncoder {
    let spelled = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        0..=32 => char::from_u32(256 + u32::from(byte)).unwrap(),
        0x7f..=0xa0 => char::from_u32(256 + 33 + u32::from(byte) - 0x7f).unwrap(),
        0xad => '\u{143}',
    };
    let mut pieces = vec!["<s>".to_string(), "<pad>".into(), "</s>".into(), "<unk>".into()];
    pieces.extend((0..=255).map(|byte| spelled(byte).to_string()));
    let merges = [("\u{120}", "a"), ("t", "h"), ("th", "r"), ("\u{120}", "\u{120}")];
    pieces.extend(merges.map(|(a, b)| format!("{a}{b}")));
    pieces.push("<mask>".into());
    let vocabulary: serde_json::Map<_, _> =
        pieces.iter().enumerate().map(|(id, piece)| (piece.clone(), serde_json::json!(id))).collect();
    let added = |(content, lstrip): (&str, bool)| {
        serde_json::json!({ "id": vocabulary[content], "content": content, "special": true, "single_word": false,
                            "lstrip": lstrip, "rstrip": false, "normalized": false })
    };
    let added = [("<s>", false), ("</s>", false), ("<mask>", true)].map(added);
    let pairs = merges.map(|(a, b)| format!("{a} {b}"));
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": added,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "post_processor": { "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true,
                            "add_prefix_space": false },
        "model": { "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": "",
                   "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                   "vocab": vocabulary, "merges": pairs }
    });
    fs::write(folder.0.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(folder.0.join("tokenizer_config.json"), "{\"tokenizer_class\": \"RobertaTokenizer\"}").unwrap();
    folder.edit("config.json", "\"vocab_size\": 16", &format!("\"vocab_size\": {}", pieces.len()));
    let file = folder.0.join("model.safetensors");
    let grown = |(name, tensor): (String, raddle_tensor::Tensor)| match name
        .ends_with("word_embeddings.weight")
    {
        true => (name, raddle_tensor::Tensor::zeros([pieces.len(), 32], tensor.dtype(), device()).unwrap()),
        false => (name, tensor),
    };
    let weights: Vec<_> =
        raddle_nn::checkpoint::load(&file, device()).unwrap().into_iter().map(grown).collect();
    raddle_nn::checkpoint::save(&file, &weights).unwrap();
    SentenceEncoder::load(&folder.0, device()).unwrap()
}

#[test]
fn long_texts_have_the_tokens_of_the_whole() {
    let folder = Folder::new("long");
    let models = [
        ("bert", tiny("modules")),
        ("mpnet", tiny("mpnet")),
        ("xlm-roberta", tiny("xlm-roberta")),
        ("roberta", pairs(&folder)),
    ];
    let mut draw = Draw(7);
    let texts: Vec<String> = (0..3).flat_map(|_| texts(&mut draw)).collect();
    for (name, model) in &models {
        for (index, text) in texts.iter().enumerate() {
            check(model.tokenizer(), text, &format!("{name}, text {index}"));
        }
    }
    // A part is really all that is looked at, where there are words.
    for (name, model) in &models {
        let words = "a thread waits for the stream ".repeat(2000);
        let error = model.tokenizer().tokenize(&[&words], TooLong::Refuse).unwrap_err().to_string();
        let most = model.tokenizer().tokens_max();
        let expected =
            format!("text 0: the number of tokens is wrong, expected at most {most}, found at least ");
        let found = error.strip_prefix(&expected).unwrap_or_else(|| panic!("{name}: {error}"));
        assert!(found.parse::<usize>().unwrap() < 4000, "{name}: {error}");
    }
}

/// Of two texts that are both too long the longer one has the odd token, also if only a part of it was looked at.
#[test]
fn long_pairs_are_cut_as_the_whole() {
    let model = tiny("modules");
    let tokenizer = model.tokenizer();
    let word = |text: &str| tokenizer.spell(text, false).unwrap()[0].id;
    let (a, b) = (word("thread"), word("stream"));
    let text = |word: &str, count: usize| vec![word; count].join(" ");
    for (first, second) in
        [(3000, 2999), (3000, 3000), (3000, 3001), (3000, 7), (7, 3000), (30, 3000), (3000, 30)]
    {
        let pairs =
            tokenizer.tokenize_pairs(&text("thread", first), &[text("stream", second)], TooLong::Truncate);
        let pair = pairs.unwrap().remove(0).ids;
        // 20 tokens, three of them special.
        let (one, two) = match (first, second) {
            (7, _) => (7, 10),
            (_, 7) => (10, 7),
            _ if first > second => (9, 8),
            _ => (8, 9),
        };
        let expected = [&[2], &vec![a; one][..], &[3], &vec![b; two][..], &[3]].concat();
        assert_eq!(pair, expected, "{first} and {second}");
    }
}

/// A text of nothing but special tokens, each of many words if it is cut: what is tried first ends in the middle of one, has too
/// few of them, and would have enough tokens with the words of that one.
#[test]
fn no_special_token_is_cut_in_two() {
    let folder = Folder::new("special");
    let name = format!("[{}]", "x-".repeat(64));
    folder.edit("tokenizer.json", "\"content\": \"[PAD]\"", &format!("\"content\": \"{name}\""));
    folder.edit("tokenizer.json", "\"[PAD]\": 0", &format!("\"{name}\": 0"));
    folder.edit("sentence_bert_config.json", "16", "64");
    let model = SentenceEncoder::load(&folder.0, device()).unwrap();
    check(model.tokenizer(), &name.repeat(400), "special tokens");
}

#[test]
fn fault_cuts_inside_of_tokens() {
    assert_caught(Fault::cuts_inside_of_tokens, "long::no_special_token_is_cut_in_two");
}
