//! Models that read text, with tiny random weights.

use crate::device;
use raddle_nn::{
    checkpoint,
    text::{BertConfig, CrossEncoder, ModelOptions, SentenceEncoder, Tokens, TooLong, write_random_model},
};
use raddle_sync::faults::{Fault, assert_caught};
use raddle_tensor::{DType, Tensor};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

const WORDS: [&str; 12] =
    ["a", "b", "thread", "stream", "tick", "waits", "for", "the", "device", "##s", ".", "memory"];
const TOKENS_MAX: usize = 16;
/// With the four special ones.
pub const VOCABULARY: usize = WORDS.len() + 4;

/// A folder with a random model, gone at the end.
pub struct Folder(pub PathBuf);
impl Folder {
    pub fn new(name: &str) -> Folder {
        let folder = Folder(std::env::temp_dir().join(format!("raddle-{}-model-{name}", std::process::id())));
        write_random_model(&folder.0, &BertConfig::tiny(VOCABULARY), &WORDS, TOKENS_MAX, 5, device())
            .unwrap();
        folder
    }
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.0.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replace(from, to)).unwrap();
    }
    /// The text of the error of loading it, from the name of the file on.
    pub fn error(&self) -> String {
        let error = SentenceEncoder::load(&self.0, device()).err().expect("it can't be loaded").to_string();
        error.replace(&format!("{}/", self.0.display()), "")
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<Folder> = OnceLock::new();
    &FOLDER.get_or_init(|| Folder::new("shared")).0
}

fn model_with(options: ModelOptions) -> SentenceEncoder {
    SentenceEncoder::load_with(folder(), device(), &options).unwrap()
}

fn model() -> &'static SentenceEncoder {
    static MODEL: OnceLock<SentenceEncoder> = OnceLock::new();
    MODEL.get_or_init(|| model_with(ModelOptions::default()))
}

fn padded() -> SentenceEncoder {
    model_with(ModelOptions { pad_to: Some(8), ..Default::default() })
}

/// Rows as bits, for comparisons to the last one.
fn bits(rows: &Tensor) -> Vec<Vec<u32>> {
    let width = rows.size(1).unwrap();
    let values = rows.to_vec::<f32>().unwrap();
    assert!(values.iter().all(|value| value.is_finite()));
    values.chunks(width).map(|row| row.iter().map(|value| value.to_bits()).collect()).collect()
}

fn encode(model: &SentenceEncoder, texts: &[&str]) -> Vec<Vec<u32>> {
    let rows = bits(&model.encode(texts).unwrap());
    assert_eq!(rows.len(), texts.len());
    rows
}

fn cosine(a: &[u32], b: &[u32]) -> f64 {
    let dot = |a: &[u32], b: &[u32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(f32::from_bits(*a)) * f64::from(f32::from_bits(*b))).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A text of so many tokens, the two special ones included.
pub fn text_of(tokens: usize) -> String {
    (2..tokens).map(|index| WORDS[2 + index % 6]).collect::<Vec<_>>().join(" ")
}

/// What the definition says of a text or pair, in f64.
pub struct Oracle {
    vector: Vec<f64>,
    scores: Vec<f64>,
    pub tokens: Vec<Vec<f64>>,
    /// Of a sparse encoder.
    pub sparse: Vec<f64>,
}

fn erf_gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))
}

/// The definition, one text or pair at a time, in f64, from the file's own parameters.
pub fn oracle(tokens: &Tokens, config: &BertConfig) -> Oracle {
    oracle_with(tokens, config, erf_gelu)
}

/// The same with another function between a layer's two linear maps.
fn oracle_with(tokens: &Tokens, config: &BertConfig, activation: fn(f64) -> f64) -> Oracle {
    let ids = &tokens.ids;
    let parameters: std::collections::HashMap<String, Vec<f64>> =
        checkpoint::load(folder().join("model.safetensors"), device())
            .unwrap()
            .into_iter()
            .map(|(name, tensor)| (name, tensor.to(DType::F64).unwrap().to_vec().unwrap()))
            .collect();
    let get = |name: &str| match parameters.get(&format!("bert.{name}")) {
        Some(parameter) => &parameter[..],
        None => &parameters[name][..],
    };
    let hidden = config.hidden;
    let linear = |x: &[Vec<f64>], name: &str| -> Vec<Vec<f64>> {
        let (weight, bias) = (get(&format!("{name}.weight")), get(&format!("{name}.bias")));
        let row = |x: &Vec<f64>| {
            let output = |(weight, bias): (&[f64], &f64)| {
                bias + weight.iter().zip(x).map(|(weight, x)| weight * x).sum::<f64>()
            };
            weight.chunks(x.len()).zip(bias).map(output).collect()
        };
        x.iter().map(row).collect()
    };
    let norm = |x: &[Vec<f64>], name: &str| -> Vec<Vec<f64>> {
        let (weight, bias) =
            (get(&format!("{name}.LayerNorm.weight")), get(&format!("{name}.LayerNorm.bias")));
        let row = |x: &Vec<f64>| {
            let mean = x.iter().sum::<f64>() / hidden as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / hidden as f64;
            let scaled = |index: usize| {
                (x[index] - mean) / (variance + config.eps).sqrt() * weight[index] + bias[index]
            };
            (0..hidden).map(scaled).collect()
        };
        x.iter().map(row).collect()
    };
    let add = |a: Vec<Vec<f64>>, b: &[Vec<f64>]| -> Vec<Vec<f64>> {
        a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
    };
    let activated = |x: Vec<Vec<f64>>, activation: fn(f64) -> f64| -> Vec<Vec<f64>> {
        x.into_iter().map(|row| row.into_iter().map(activation).collect()).collect()
    };
    let table = |name: &str, row: usize| {
        get(&format!("embeddings.{name}_embeddings.weight"))[row * hidden..][..hidden].to_vec()
    };
    let embedded: Vec<Vec<f64>> = ids.iter().map(|id| table("word", *id as usize)).collect();
    let positions: Vec<Vec<f64>> = (0..ids.len()).map(|place| table("position", place)).collect();
    let types: Vec<Vec<f64>> = tokens.types.iter().map(|kind| table("token_type", *kind as usize)).collect();
    let mut x = norm(&add(add(embedded, &positions), &types), "embeddings");
    let width = hidden / config.heads;
    for layer in 0..config.layers {
        let name = format!("encoder.layer.{layer}");
        let [query, key, value] =
            ["query", "key", "value"].map(|part| linear(&x, &format!("{name}.attention.self.{part}")));
        let mut context = vec![vec![0.0; hidden]; ids.len()];
        for head in 0..config.heads {
            let part = head * width..(head + 1) * width;
            for (row, query) in query.iter().enumerate() {
                let score = |key: &Vec<f64>| {
                    let dot: f64 = part.clone().map(|index| query[index] * key[index]).sum();
                    (dot / (width as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = key.iter().map(score).collect();
                let sum: f64 = scores.iter().sum();
                for index in part.clone() {
                    context[row][index] =
                        scores.iter().zip(&value).map(|(score, value)| score / sum * value[index]).sum();
                }
            }
        }
        let attended = linear(&context, &format!("{name}.attention.output.dense"));
        x = norm(&add(attended, &x), &format!("{name}.attention.output"));
        let inner = activated(linear(&x, &format!("{name}.intermediate.dense")), activation);
        x = norm(&add(linear(&inner, &format!("{name}.output.dense")), &x), &format!("{name}.output"));
    }
    let mean = |index: usize| x.iter().map(|row| row[index]).sum::<f64>() / ids.len() as f64;
    let mean: Vec<f64> = (0..hidden).map(mean).collect();
    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    let pooled: Vec<f64> = linear(&x[..1], "pooler.dense")[0].iter().map(|x| x.tanh()).collect();
    let head = "cls.predictions";
    let transformed = norm(
        &activated(linear(&x, &format!("{head}.transform.dense")), activation),
        &format!("{head}.transform"),
    );
    let score = |word: usize, row: &Vec<f64>| {
        let dot: f64 = table("word", word).iter().zip(row).map(|(weight, x)| weight * x).sum();
        (dot + get(&format!("{head}.bias"))[word]).max(0.0).ln_1p()
    };
    let sparse = |word: usize| transformed.iter().map(|row| score(word, row)).fold(0.0, f64::max);
    Oracle {
        vector: mean.iter().map(|x| x / length).collect(),
        scores: linear(&[pooled], "classifier").remove(0),
        sparse: (0..config.vocabulary).map(sparse).collect(),
        tokens: x,
    }
}

#[test]
fn vectors_are_those_of_the_definition() {
    let texts = ["", "A b.", "The threads WAIT for unknown streams", &text_of(TOKENS_MAX)];
    let tokens = model().tokenizer().tokenize(&texts, TooLong::Refuse).unwrap();
    assert_eq!(tokens[0].ids, [2, 3]);
    // Lower-cased, split at punctuation and into pieces; what isn't known is [UNK].
    assert_eq!(tokens[1].ids, [2, 4, 5, 14, 3]);
    assert_eq!(tokens[2].ids, [2, 11, 6, 13, 1, 10, 1, 7, 13, 3]);
    let config = BertConfig::tiny(VOCABULARY);
    let oracle: Vec<Vec<f64>> = tokens.iter().map(|tokens| oracle(tokens, &config).vector).collect();
    let check = |options: ModelOptions, tolerance: f64| {
        let vectors = model_with(options).encode(&texts).unwrap();
        assert_eq!((&**vectors.shape(), vectors.dtype()), (&[4, 32][..], DType::F32));
        let values = vectors.to_vec::<f32>().unwrap();
        for (found, expected) in values.iter().zip(oracle.iter().flatten()) {
            assert!((f64::from(*found) - expected).abs() < tolerance, "{options:?}: {found}, {expected}");
        }
    };
    for pad_to in [None, Some(1), Some(8), Some(16), Some(64)] {
        check(ModelOptions { dtype: DType::F32, pad_to, ..ModelOptions::default() }, 2e-6);
        // Of a few roundings of numbers near 1, in a vector of norm 1.
        check(ModelOptions { dtype: DType::F16, pad_to, ..ModelOptions::default() }, 4e-3);
        check(ModelOptions { dtype: DType::BF16, pad_to, ..ModelOptions::default() }, 3e-2);
    }
}

/// By their formulas, under all names that transformers has for them.
#[test]
fn activations_are_those_of_the_definition() {
    let tanh = |x: f64| {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        0.5 * x * (1.0 + u.tanh())
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    type Function = fn(f64) -> f64;
    let (silu, quick): (Function, Function) =
        (|x| x / (1.0 + (-x).exp()), |x| x / (1.0 + (-1.702 * x).exp()));
    let erf: Function = |x| 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()));
    let cases: [(&str, Function); 15] = [
        ("gelu", erf),
        ("gelu_python", erf),
        ("gelu_new", tanh),
        ("gelu_fast", tanh),
        ("gelu_accurate", tanh),
        ("gelu_pytorch_tanh", tanh),
        ("gelu_python_tanh", tanh),
        ("quick_gelu", quick),
        ("relu", |x| x.max(0.0)),
        ("silu", silu),
        ("swish", silu),
        ("mish", |x| x * x.exp().ln_1p().tanh()),
        ("tanh", f64::tanh),
        ("sigmoid", sigmoid),
        ("linear", |x| x),
    ];
    let folder = Folder::new("activations");
    let config = BertConfig::tiny(VOCABULARY);
    let texts = ["The threads WAIT", "a"];
    let written = fs::read_to_string(folder.0.join("config.json")).unwrap();
    for (name, function) in cases {
        fs::write(folder.0.join("config.json"), written.replace("\"gelu\"", &format!("\"{name}\""))).unwrap();
        for (dtype, most) in [(DType::F32, 2e-6), (DType::BF16, 4e-2)] {
            let options = ModelOptions { dtype, ..ModelOptions::default() };
            let model = SentenceEncoder::load_with(&folder.0, device(), &options).unwrap();
            let tokens = model.tokenizer().tokenize(&texts, TooLong::Refuse).unwrap();
            let expected = tokens.iter().flat_map(|tokens| oracle_with(tokens, &config, function).vector);
            let found = model.encode_tokens(&tokens).unwrap().to_vec::<f32>().unwrap();
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (f64::from(*found) - expected).abs() < most,
                    "{name} in {dtype}: {found}, {expected}"
                );
            }
        }
    }
}

/// Case F-23.
#[test]
fn vectors_dont_depend_on_neighbours() {
    let long = text_of(TOKENS_MAX);
    let (first, second) = ("a thread waits for the stream", "b streams wait for a tick");
    let copies = [first; 32];
    for model in [model(), &padded()] {
        let alone = &encode(model, &[first])[0];
        let batches: [&[&str]; 5] =
            [&[first, second], &[first, &long], &[long.as_str(), first], &["", first, "a", second], &copies];
        for batch in batches {
            let rows = encode(model, batch);
            let index = batch.iter().position(|text| *text == first).unwrap();
            assert_eq!(&rows[index], alone, "in {batch:?}");
        }
        assert!(encode(model, &copies).iter().all(|row| row == alone));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| encode(model, &[first, &long]))).collect();
            assert!(threads.into_iter().all(|thread| &thread.join().unwrap()[0] == alone));
        });
        // More tokens than a pass takes, of all lengths, in no order.
        let many: Vec<String> = (0..700).map(|index| text_of(2 + index * 7 % (TOKENS_MAX - 1))).collect();
        let rows = encode(model, &many.iter().map(String::as_str).collect::<Vec<_>>());
        let single: Vec<_> =
            (2..=TOKENS_MAX).map(|tokens| encode(model, &[&text_of(tokens)]).remove(0)).collect();
        for (index, row) in rows.iter().enumerate() {
            assert_eq!(row, &single[index * 7 % (TOKENS_MAX - 1)], "text {index}");
        }
    }
}

#[test]
fn padding_doesnt_count() {
    let texts: Vec<String> = (2..=TOKENS_MAX).map(text_of).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let exact = encode(model(), &texts);
    for pad_to in [3, 8, 16] {
        let padded = model_with(ModelOptions { pad_to: Some(pad_to), ..Default::default() });
        assert_eq!(padded.padded_token_count(4), 4usize.next_multiple_of(pad_to));
        for (padded, exact) in encode(&padded, &texts).iter().zip(&exact) {
            assert!(cosine(padded, exact) >= 0.99999);
        }
    }
}

#[test]
fn every_pooling_skips_padding() {
    let texts = ["a", "a thread waits", "the device"];
    for (mode, normalized) in [
        ("cls_token", true),
        ("max_tokens", true),
        ("mean_sqrt_len_tokens", false),
        ("weightedmean_tokens", true),
        ("lasttoken", true),
    ] {
        let folder = Folder::new(mode);
        folder.edit("1_Pooling/config.json", "mean_tokens", mode);
        if !normalized {
            let text = "[{ \"type\": \"x.Transformer\", \"path\": \"\" }, { \"type\": \"x.Pooling\", \"path\": \"1_Pooling\" }]";
            fs::write(folder.0.join("modules.json"), text).unwrap();
        }
        let load = |pad_to| {
            SentenceEncoder::load_with(&folder.0, device(), &ModelOptions { pad_to, ..Default::default() })
        };
        let exact = encode(&load(Some(1)).unwrap(), &texts);
        for (padded, exact) in encode(&load(Some(8)).unwrap(), &texts).iter().zip(&exact) {
            assert!(cosine(padded, exact) >= 0.99999, "{mode}");
        }
        let norm: f32 = exact[1].iter().map(|bits| f32::from_bits(*bits).powi(2)).sum();
        assert_eq!((norm - 1.0).abs() < 1e-5, normalized, "{mode}: {norm}");
    }
}

/// Case F-22: as many rows as texts, in order, wherever an empty one stands; an empty list is told apart.
#[test]
fn empty_texts_have_vectors_and_empty_lists_are_errors() {
    for model in [model(), &padded()] {
        let none: [&str; 0] = [];
        let error = model.encode(&none).unwrap_err();
        assert_eq!(error.to_string(), "texts: the list is empty, expected at least one text");
        let (empty, a, b) = (&encode(model, &[""])[0], &encode(model, &["a"])[0], &encode(model, &["b"])[0]);
        assert_ne!(a, b);
        assert_eq!(encode(model, &["a", "", "b"]), [a.clone(), empty.clone(), b.clone()]);
        assert_eq!(encode(model, &["a", "b", ""]), [a.clone(), b.clone(), empty.clone()]);
        assert_eq!(encode(model, &["   ", "\n"]), [empty.clone(), empty.clone()]);
    }
}

/// Cases F-22 and F-26: exactly as many tokens as the limit are taken, alone and in a list; more are cut or refused alike.
#[test]
fn limits_are_inclusive() {
    let model = model();
    assert_eq!(model.tokenizer().tokens_max(), TOKENS_MAX);
    let whole = text_of(TOKENS_MAX);
    let at_most = &encode(model, &[&whole])[0];
    for tokens in [TOKENS_MAX - 2, TOKENS_MAX - 1, TOKENS_MAX, TOKENS_MAX + 1, 2 * TOKENS_MAX] {
        let text = text_of(tokens);
        let refuse = |texts: &[&str]| model.tokenizer().tokenize(texts, TooLong::Refuse);
        for (index, list) in [vec![text.as_str()], vec!["a", &text]].iter().enumerate() {
            let cut = model.tokenizer().tokenize(list, TooLong::Truncate).unwrap();
            assert_eq!(cut[index].ids.len(), tokens.min(TOKENS_MAX));
            assert_eq!(cut[index].ids.last(), Some(&3), "a text that was cut ends with [SEP]");
            let row = &encode(model, list)[index];
            assert_eq!(row == at_most, tokens >= TOKENS_MAX);
            if tokens <= TOKENS_MAX {
                assert_eq!(refuse(list).unwrap(), cut);
            } else {
                let expected = format!(
                    "text {index}: the number of tokens is wrong, expected at most {TOKENS_MAX}, found {tokens}"
                );
                assert_eq!(refuse(list).unwrap_err().to_string(), expected);
            }
        }
    }
}

/// From either end, with the special tokens around what is left.
/// Lower-casing is a step of the tokenizer: special tokens in a text stay what they are, and places are the text's own.
#[test]
fn texts_may_be_lower_cased() {
    let folder = Folder::new("lower");
    fs::write(folder.0.join("tokenizer_config.json"), "{ \"do_lower_case\": false }").unwrap();
    let ids = |text: &str| {
        let model = SentenceEncoder::load(&folder.0, device()).unwrap();
        let tokens = model.tokenizer().tokenize(&[text], TooLong::Refuse).unwrap();
        (tokens[0].ids.clone(), model.tokenizer().spell(text, false).unwrap())
    };
    // [CLS] 2, [SEP] 3, unknown 1, a 4, thread 6.
    let text = "THREAD [SEP] \u{130} A";
    assert_eq!(ids(text).0, [2, 1, 3, 1, 1, 3]);
    folder.edit("sentence_bert_config.json", "\"do_lower_case\": false", "\"do_lower_case\": true");
    let (ids, pieces) = ids(text);
    assert_eq!(ids, [2, 6, 3, 1, 4, 3]);
    let places: Vec<_> = pieces.into_iter().map(|piece| (piece.text, piece.place.unwrap())).collect();
    let expected = [("THREAD", 0..6), ("[SEP]", 7..12), ("\u{130}", 13..14), ("A", 15..16)];
    assert_eq!(places, expected.map(|(text, place)| (text.to_string(), place)));
}

#[test]
fn what_is_too_long_is_cut_at_the_end_that_is_asked_for() {
    let tokenizer = model().tokenizer();
    let text = text_of(TOKENS_MAX + 5);
    let tokens = |too_long| tokenizer.tokenize(&[&text], too_long).unwrap().remove(0).ids;
    let whole: Vec<u32> = tokenizer.spell(&text, false).unwrap().iter().map(|piece| piece.id).collect();
    let framed = |ids: &[u32]| [&[2], ids, &[3]].concat();
    assert_eq!(tokens(TooLong::Truncate), framed(&whole[..TOKENS_MAX - 2]));
    assert_eq!(tokens(TooLong::TruncateLeft), framed(&whole[whole.len() - (TOKENS_MAX - 2)..]));
    let short = tokenizer.tokenize(&["a thread"], TooLong::TruncateLeft).unwrap();
    assert_eq!(short, tokenizer.tokenize(&["a thread"], TooLong::Refuse).unwrap());
}

/// A query is cut once for all its texts, and each pair is as if it alone had been cut: of all lengths on both sides of the
/// limit, from either end.
#[test]
fn pairs_with_a_long_query_are_cut_alike() {
    let tokenizer = model().tokenizer();
    let lengths = [0, 1, 6, 7, 12, 13, 14, 15, 16, 17, 18, 30, 31, 60];
    let text = |words: usize, from: usize| -> String {
        (0..words).map(|index| WORDS[(index * 5 + from) % 9]).collect::<Vec<_>>().join(" ")
    };
    let ids = |text: &str| -> Vec<u32> {
        tokenizer.spell(text, false).unwrap().iter().map(|piece| piece.id).collect()
    };
    for first in lengths {
        for second in lengths {
            // The definition: the longer one gives, until both have a half; an odd token is the longer one's.
            let most = TOKENS_MAX - 3;
            let (short, long) = (first.min(second), first.max(second));
            let (short, long) = match short + long {
                sum if sum <= most => (short, long),
                _ if short <= most / 2 => (short, most - short),
                _ => (most / 2, most / 2 + most % 2),
            };
            let (one, two) = if first > second { (long, short) } else { (short, long) };
            let (query, other) = (text(first, 0), text(second, 3));
            let (query_ids, other_ids) = (ids(&query), ids(&other));
            let right = [&[2], &query_ids[..one], &[3], &other_ids[..two], &[3]].concat();
            let left = [&[2], &query_ids[first - one..], &[3], &other_ids[second - two..], &[3]].concat();
            for (too_long, expected) in [(TooLong::Truncate, right), (TooLong::TruncateLeft, left)] {
                let pair = tokenizer.tokenize_pairs(&query, &[&other], too_long).unwrap().remove(0);
                assert_eq!(pair.ids, expected, "{first} and {second}, {too_long:?}");
                assert_eq!(pair.types.iter().sum::<u32>() as usize, two + 1);
            }
        }
    }
}

#[test]
fn tokens_are_checked() {
    let good = Tokens::from(vec![2, 4, 3]);
    assert_eq!(bits(&model().encode_tokens(std::slice::from_ref(&good)).unwrap()), encode(model(), &["a"]));
    let error = |tokens: Tokens| model().encode_tokens(&[good.clone(), tokens]).unwrap_err().to_string();
    for (tokens, expected) in [
        (vec![], "text 1: the number of tokens is wrong, expected 1 to 16, found 0"),
        (vec![4; 17], "text 1: the number of tokens is wrong, expected 1 to 16, found 17"),
        (vec![2, 16, 3], "text 1: a token is wrong, expected below 16, found 16"),
        (vec![u32::MAX], "text 1: a token is wrong, expected below 16, found 4294967295"),
    ] {
        assert_eq!(error(tokens.into()), expected);
    }
    assert_eq!(
        error(Tokens { ids: vec![4, 4], types: vec![0], prompt: 0 }),
        "text 1: the number of types is wrong, expected 2, one a token, found 1"
    );
    assert_eq!(
        error(Tokens { ids: vec![4], types: vec![2], prompt: 0 }),
        "text 1: a type is wrong, expected below 2, found 2"
    );
}

#[test]
fn pairs_have_scores() {
    let load = |dtype, pad_to| {
        CrossEncoder::load_with(
            folder(),
            device(),
            &ModelOptions { dtype, pad_to, ..ModelOptions::default() },
        )
        .unwrap()
    };
    let model = CrossEncoder::load(folder(), device()).unwrap();
    assert_eq!(model.labels(), 1);
    let long = text_of(30);
    let (query, texts) = ("the thread", ["a stream", "", "memory waits for the device", &long]);
    let pairs = model.tokenizer().tokenize_pairs(query, &texts, TooLong::Truncate).unwrap();
    let types = vec![0, 0, 0, 0, 1, 1, 1];
    assert_eq!(pairs[0], Tokens { ids: vec![2, 11, 6, 3, 4, 7, 3], types, prompt: 0 });
    assert_eq!(pairs[3].ids.len(), TOKENS_MAX);
    assert_eq!(pairs[3].ids[..4], pairs[0].ids[..4], "the longer text is the one that is cut");
    let scores = bits(&model.score(query, &texts).unwrap());
    for (text, score) in texts.iter().zip(&scores) {
        assert_eq!(&bits(&model.score(query, &[text]).unwrap())[0], score);
    }
    for (dtype, pad_to, tolerance) in [(DType::F32, 8, 1e-5), (DType::F16, 1, 2e-2), (DType::BF16, 8, 2e-1)] {
        let others = bits(&load(dtype, Some(pad_to)).score(query, &texts).unwrap());
        for (other, score) in others.iter().zip(&scores) {
            assert!((f32::from_bits(other[0]) - f32::from_bits(score[0])).abs() < tolerance, "{dtype}");
        }
    }
    // The types matter: the second text isn't the first.
    let one: Vec<Tokens> = pairs.into_iter().map(|pair| pair.ids.into()).collect();
    assert_ne!(bits(&model.score_tokens(&one).unwrap()), scores);
}

#[test]
fn scores_are_those_of_the_definition() {
    let long = text_of(30);
    let texts = ["a stream", "", "memory waits for the device", &long];
    let config = BertConfig::tiny(VOCABULARY);
    for pad_to in [1, 8] {
        let options = ModelOptions { pad_to: Some(pad_to), ..ModelOptions::default() };
        let model = CrossEncoder::load_with(folder(), device(), &options).unwrap();
        let pairs = model.tokenizer().tokenize_pairs("the thread", &texts, TooLong::Truncate).unwrap();
        let scores = model.score("the thread", &texts).unwrap().to_vec::<f32>().unwrap();
        let expected: Vec<f64> = pairs.iter().flat_map(|pair| oracle(pair, &config).scores).collect();
        assert_eq!(scores.len(), expected.len());
        for (found, expected) in scores.iter().zip(&expected) {
            // A few roundings, in a sum of 32 products.
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found}, {expected}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_folder_is_said() {
    let cases: [(&str, &str, &str, &str); 16] = [
        (
            "config.json",
            "\"bert\"",
            "\"roberta\", \"pad_token_id\": 18446744073709551615",
            "config.json: pad_token_id is wrong, expected 1, found 18446744073709551615",
        ),
        (
            "config.json",
            "\"bert\"",
            "\"deberta-v2\"",
            "config.json: model_type is wrong, expected bert, roberta, xlm-roberta, camembert, distilbert, mpnet or electra, found \"deberta-v2\"",
        ),
        (
            "config.json",
            "\"bert\"",
            "\"mpnet\", \"relative_attention_num_buckets\": 16",
            "config.json: relative_attention_num_buckets is wrong, expected a whole number from 32 to 32, found 16",
        ),
        // All pairs of them have a number.
        (
            "config.json",
            "\"max_position_embeddings\": 64,\n  \"model_type\": \"bert\"",
            "\"max_position_embeddings\": 10000, \"model_type\": \"mpnet\"",
            "config.json: max_position_embeddings is wrong, expected a table of all pairs of positions of at most 8388608 numbers, found 10000",
        ),
        (
            "config.json",
            "\"gelu\"",
            "\"xielu\"",
            "config.json: hidden_act is wrong, expected one of gelu, gelu_python, gelu_new, gelu_fast, gelu_accurate, gelu_pytorch_tanh, gelu_python_tanh, quick_gelu, relu, silu, swish, mish, tanh, sigmoid, linear, found \"xielu\"",
        ),
        (
            "config.json",
            "absolute",
            "relative_key",
            "config.json: position_embedding_type is wrong, expected absolute, found \"relative_key\"",
        ),
        (
            "config.json",
            "\"hidden_size\": 32",
            "\"hidden_size\": 0",
            "config.json: hidden_size is wrong, expected a whole number from 1 to 16777216, found 0",
        ),
        (
            "config.json",
            "\"hidden_size\"",
            "\"hidden\"",
            "config.json: hidden_size is wrong, expected a whole number from 1 to 16777216, found nothing",
        ),
        (
            "config.json",
            "\"num_attention_heads\": 2",
            "\"num_attention_heads\": 5",
            "config.json: num_attention_heads is wrong, expected a divisor of hidden_size, which is 32, found 5",
        ),
        (
            "config.json",
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
            "model.safetensors: tensor \"bert.encoder.layer.2.attention.self.query.weight\": the model's parameter is wrong, expected it in the file, found no such tensor",
        ),
        (
            "config.json",
            "\"intermediate_size\": 64",
            "\"intermediate_size\": 65",
            "model.safetensors: tensor \"bert.encoder.layer.0.intermediate.dense.weight\": the shape is wrong, expected [65, 32], found [64, 32]",
        ),
        (
            "config.json",
            "\"vocab_size\": 16",
            "\"vocab_size\": 15",
            "tokenizer.json: the largest token is wrong, expected below vocab_size, 15, found 15",
        ),
        (
            "modules.json",
            "models.Pooling",
            "models.Dense",
            "modules.json: type is wrong, expected Transformer, Pooling, then any of Dense, LayerNorm, Dropout and Normalize, found \"sentence_transformers.models.Dense\"",
        ),
        (
            "1_Pooling/config.json",
            "\"pooling_mode_mean_tokens\": true",
            "\"pooling_mode\": \"median\"",
            "1_Pooling/config.json: pooling_mode is wrong, expected of cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, found \"median\"",
        ),
        (
            "1_Pooling/config.json",
            "\"pooling_mode_mean_tokens\": true",
            "\"pooling_mode\": []",
            "1_Pooling/config.json: pooling_mode is wrong, expected 1 to 6 modes, found []",
        ),
        (
            "sentence_bert_config.json",
            "16",
            "4",
            "sentence_bert_config.json: max_seq_length is wrong, expected a whole number from 5 to 18446744073709551615, found 4",
        ),
    ];
    for (index, (file, from, to, expected)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("wrong-{index}"));
        folder.edit(file, from, to);
        assert_eq!(folder.error(), expected);
    }
    for file in ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"] {
        let folder = Folder::new(&format!("missing-{}", file.replace('/', "-")));
        fs::remove_file(folder.0.join(file)).unwrap();
        let action = if file.ends_with("safetensors") { "opening" } else { "reading" };
        assert_eq!(
            folder.error(),
            format!("{file}: {action} failed: No such file or directory (os error 2)")
        );
        fs::write(folder.0.join(file), "{").unwrap();
        assert!(folder.error().starts_with(&format!("{file}: ")), "{}", folder.error());
    }
    let broken = Folder::new("not-a-tokenizer");
    fs::write(broken.0.join("tokenizer.json"), "{}").unwrap();
    assert_eq!(broken.error(), "tokenizer.json: model is wrong, expected an object, found nothing");
    let error = |options: ModelOptions| {
        SentenceEncoder::load_with(folder(), device(), &options)
            .err()
            .expect("it can't be loaded")
            .to_string()
    };
    let (dtype, pad_to) = (DType::F32, None);
    assert_eq!(
        error(ModelOptions { dtype: DType::I32, pad_to, ..ModelOptions::default() }),
        "load a model: the model has the wrong dtype, expected f32, f16 or bf16, found i32"
    );
    for pad_to in [0, 65] {
        let expected =
            "load a model: pad_to is out of range, expected 1 to the model's number of positions, found ";
        assert_eq!(
            error(ModelOptions { dtype, pad_to: Some(pad_to), ..ModelOptions::default() }),
            format!("{expected}{pad_to}")
        );
    }
}

#[test]
fn names_may_be_prefixed_and_old() {
    let expected = encode(model(), &["a thread"]);
    let folder = Folder::new("names");
    let file = folder.0.join("model.safetensors");
    let rename = |name: String| {
        let name =
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
        name.strip_prefix("bert.").map(str::to_string).unwrap_or(name)
    };
    let tensors: Vec<_> = checkpoint::load(&file, device())
        .unwrap()
        .into_iter()
        .map(|(name, tensor)| (rename(name), tensor))
        .collect();
    checkpoint::save(&file, &tensors).unwrap();
    assert_eq!(encode(&SentenceEncoder::load(&folder.0, device()).unwrap(), &["a thread"]), expected);
    // Without the files of sentence-transformers: the mean, not normalized, at most as many tokens as positions.
    fs::remove_file(folder.0.join("modules.json")).unwrap();
    fs::remove_file(folder.0.join("sentence_bert_config.json")).unwrap();
    let plain = SentenceEncoder::load(&folder.0, device()).unwrap();
    assert_eq!(plain.tokenizer().tokens_max(), 64);
    let row = &encode(&plain, &["a thread"])[0];
    assert!(cosine(row, &expected[0]) > 0.999999);
    assert_ne!(row, &expected[0]);
}

#[test]
fn fault_unmasked_padding() {
    assert_caught(Fault::unmasked_padding, "text::padding_doesnt_count");
}

#[test]
fn fault_rows_stay_sorted() {
    assert_caught(Fault::rows_stay_sorted, "text::vectors_dont_depend_on_neighbours");
}
