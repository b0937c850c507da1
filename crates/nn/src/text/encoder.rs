//! Texts to vectors.

use super::{
    BertConfig, ModelError, Pooling, Result, Tokenizer, Tokens, TooLong,
    batch::{self, Batch, Layout, Order},
    bert::Bert,
    captured::{Captured, What},
    modules::{self, Modules},
    rows::join,
    settings::Settings,
    weights::Weights,
};
use raddle_tensor::{DType, Device, Error, Scalar, Tensor};
use std::{borrow::Borrow, path::Path};

/// How a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelOptions {
    /// What it computes in: f32, f16 or bf16. Results are f32.
    pub dtype: DType,
    /// Texts are padded to a multiple of so many tokens: from 1, which is no padding, to the model's number of positions. If
    /// nothing is said: 1 on a device where a small launch costs little, else 16 (a guess), since texts of one padded length
    /// share their launches.
    pub pad_to: Option<usize>,
    /// Passes of at most so many tokens, with padding, are captured as graphs if their texts are of one padded length; 0 is
    /// none. If nothing is said: 2048 (guess) where a launch costs much, else 0. All graphs together take at most 1 GiB.
    pub captured_tokens_max: Option<usize>,
}

impl Default for ModelOptions {
    fn default() -> ModelOptions {
        ModelOptions { dtype: DType::F32, pad_to: None, captured_tokens_max: None }
    }
}

/// Tokens of a pass: more of them would only take more memory, about 30 KB a token of MiniLM's. (A guess.)
pub const PASS_TOKENS_MAX: usize = 4096;

/// A tokenizer and an encoder, and how texts go through them: what sentence encoders and rerankers have in common.
pub(super) struct Reader {
    pub tokenizer: Tokenizer,
    pub bert: Bert,
    pub device: Device,
    pad_to: usize,
    captured: Option<Captured>,
    /// Are prompts left out where tokens are pooled?
    skips_prompts: bool,
}

impl Reader {
    pub fn load(folder: &Path, device: &Device, options: &ModelOptions) -> Result<(Reader, Weights)> {
        let op = "load a model";
        if !matches!(options.dtype, DType::F32 | DType::F16 | DType::BF16) {
            let (what, expected) = ("the model", "f32, f16 or bf16");
            return Err(Error::DType { op, what, expected, found: options.dtype }.into());
        }
        let folder = &modules::transformer(folder)?;
        let settings = Settings::read(folder.join("config.json"))?;
        let config = BertConfig::read(&settings)?;
        // A device that prepares launches does so for each new shape: it shall see few.
        let usual = if device.info().prepares { 16.min(config.positions) } else { 1 };
        let pad_to = options.pad_to.unwrap_or(usual);
        if pad_to == 0 || pad_to > config.positions {
            let (what, expected) = ("pad_to", "1 to the model's number of positions");
            let found = Scalar::Int(i64::try_from(pad_to).unwrap_or(i64::MAX));
            return Err(Error::Argument { op, what, expected, found }.into());
        }
        let tokenizer = Tokenizer::load(folder, &settings, config.vocabulary, config.positions)?;
        let weights = Weights::open(folder, device)?;
        let bert = Bert::take(config, &weights, options.dtype, pad_to)?;
        let usual = if device.info().prepares { 2048 } else { 0 };
        let tokens_max = options.captured_tokens_max.unwrap_or(usual);
        let captured = (tokens_max > 0).then(|| Captured::new(tokens_max));
        let reader = Reader { tokenizer, bert, device: *device, pad_to, captured, skips_prompts: false };
        Ok((reader, weights))
    }

    pub fn limit_tokens(&mut self, tokens_max: usize) -> Result<()> {
        let positions = self.bert.config.positions;
        if !(self.tokenizer.tokens_min()..=positions).contains(&tokens_max) {
            let expected = "room for special tokens and one of each text, up to the model's positions";
            let found = Scalar::Int(i64::try_from(tokens_max).unwrap_or(i64::MAX));
            return Err(
                Error::Argument { op: "limit tokens", what: "the most tokens", expected, found }.into()
            );
        }
        self.tokenizer.limit(tokens_max);
        Ok(())
    }

    /// The tokens that are computed for a text of so many.
    pub fn padded_token_count(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.pad_to).saturating_mul(self.pad_to)
    }

    fn order<T: Borrow<Tokens>>(&self, texts: &[T], tokens_max: usize) -> Order {
        let length = |text: &T| self.padded_token_count(text.borrow().ids.len());
        batch::order(&texts.iter().map(length).collect::<Vec<_>>(), tokens_max)
    }

    /// One row for each text, in their order: `finish` makes those of the texts of a pass, as they lie in it; for one `what`
    /// it always does the same.
    pub fn rows<T: Borrow<Tokens>>(
        &self,
        texts: &[T],
        what: What,
        finish: impl Fn(&Batch, &Tensor) -> raddle_tensor::Result<Tensor>,
    ) -> Result<Rows> {
        if texts.is_empty() {
            return Err(ModelError::NoTexts);
        }
        self.check_all(texts)?;
        let order = self.order(texts, PASS_TOKENS_MAX);
        let (mut results, mut rest) = (Vec::with_capacity(order.passes.len()), &order.texts[..]);
        for &count in &order.passes {
            let (now, later) = rest.split_at(count);
            rest = later;
            let now: Vec<&Tokens> = now.iter().map(|&text| texts[text].borrow()).collect();
            results.push(self.pass(&now, what, &finish)?);
        }
        let places = order.places();
        // Of several passes, or in another order, they are copies anyway.
        let in_graph = matches!(results[..], [(_, true)]) && places.is_none();
        let rows = join(&results.into_iter().map(|(rows, _)| rows).collect::<Vec<_>>())?;
        let rows = match places {
            Some(places) => rows.index_select(0, &Tensor::from_vec(places, [texts.len()], &self.device)?)?,
            None => rows,
        };
        Ok(Rows { rows, in_graph })
    }

    /// What the encoder says of each token of each text, on the host: rows of [`BertConfig::hidden`] one after the other, padding
    /// left out. Waits for them.
    fn token_rows<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>> {
        if texts.is_empty() {
            return Err(ModelError::NoTexts);
        }
        self.check_all(texts)?;
        let order = self.order(texts, PASS_TOKENS_MAX);
        let width = self.bert.config.hidden;
        let (mut all, mut rest) = (vec![Vec::new(); texts.len()], &order.texts[..]);
        for &count in &order.passes {
            let (indices, later) = rest.split_at(count);
            rest = later;
            let now: Vec<&Tokens> = indices.iter().map(|&text| texts[text].borrow()).collect();
            let layout = Layout::new(&now, self.pad_to, false);
            let rows = self.run(&layout, &now, |_, hidden| hidden.to_dtype(DType::F32))?.to_vec::<f32>()?;
            let mut rows = &rows[..];
            for (&text, tokens) in indices.iter().zip(now) {
                all[text] = rows[..tokens.ids.len() * width].to_vec();
                rows = &rows[self.padded_token_count(tokens.ids.len()) * width..];
            }
        }
        Ok(all)
    }

    /// One row for each text of a pass, which are sorted by padded length, and whether they lie in a graph's memory.
    fn pass(
        &self,
        texts: &[&Tokens],
        what: What,
        finish: impl Fn(&Batch, &Tensor) -> raddle_tensor::Result<Tensor>,
    ) -> raddle_tensor::Result<(Tensor, bool)> {
        let run = |batch: &Batch| finish(batch, &self.bert.forward(batch)?);
        let (layout, table) =
            (Layout::new(texts, self.pad_to, self.skips_prompts), self.bert.config.places());
        let captured = self.captured.as_ref();
        let captured = captured.and_then(|all| all.run(what, &layout, texts, table, &self.device, run));
        if let Some(rows) = captured {
            return Ok((rows?, true));
        }
        Ok((self.run(&layout, texts, finish)?, false))
    }

    /// A pass as it is.
    fn run(
        &self,
        layout: &Layout,
        texts: &[&Tokens],
        finish: impl Fn(&Batch, &Tensor) -> raddle_tensor::Result<Tensor>,
    ) -> raddle_tensor::Result<Tensor> {
        let numbers = layout.numbers(texts, self.bert.config.places());
        let numbers = Tensor::from_vec(numbers, [layout.number_count()], &self.device)?;
        let batch = Batch::new(layout, &numbers)?;
        finish(&batch, &self.bert.forward(&batch)?)
    }

    pub fn check_all<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<()> {
        texts.iter().enumerate().try_for_each(|(index, text)| self.check(index, text.borrow()))
    }

    /// Tokens may come from anywhere.
    fn check(&self, index: usize, text: &Tokens) -> Result<()> {
        let wrong =
            |what, expected: String, found: String| Err(ModelError::Text { index, what, expected, found });
        let (count, most) = (text.ids.len(), self.tokenizer.tokens_max());
        let BertConfig { vocabulary, types, .. } = self.bert.config;
        if count == 0 || count > most {
            return wrong("the number of tokens", format!("1 to {most}"), count.to_string());
        }
        if text.types.len() != count {
            return wrong(
                "the number of types",
                format!("{count}, one a token"),
                text.types.len().to_string(),
            );
        }
        if let Some(id) = text.ids.iter().find(|id| **id as usize >= vocabulary) {
            return wrong("a token", format!("below {vocabulary}"), id.to_string());
        }
        match text.types.iter().find(|kind| **kind as usize >= types) {
            Some(kind) => wrong("a type", format!("below {types}"), kind.to_string()),
            None => Ok(()),
        }
    }
}

/// What a model makes of texts.
pub(super) struct Rows {
    rows: Tensor,
    /// Do they lie in the memory of a graph, which has to be free for its next replay?
    in_graph: bool,
}

impl Rows {
    /// For a caller who may keep them.
    pub fn kept(self) -> Result<Tensor> {
        Ok(if self.in_graph { self.rows.copy()? } else { self.rows })
    }

    /// On the host. Waits for them.
    fn to_vec(&self) -> Result<Vec<f32>> {
        Ok(self.rows.to_vec()?)
    }
}

/// Texts by their names.
type Prompts = Vec<(String, String)>;

/// A sentence encoder: texts to vectors. See the [module](super) for what it guarantees.
pub struct SentenceEncoder {
    reader: Reader,
    modules: Modules,
    prompts: Prompts,
    default_prompt: Option<usize>,
}

impl SentenceEncoder {
    /// Loads a model in f32 from a folder: `config.json`, `tokenizer.json`, `model.safetensors`, and those of
    /// sentence-transformers if they are there: `modules.json` with what it names (pooling, linear maps, normalization),
    /// `sentence_bert_config.json`, `config_sentence_transformers.json`. Without `modules.json` it is the mean of the tokens, not
    /// normalized. Reads the files, and doesn't wait for the device.
    ///
    /// Errors: what is missing, broken or not known, with its file and place.
    pub fn load(folder: impl AsRef<Path>, device: &Device) -> Result<SentenceEncoder> {
        SentenceEncoder::load_with(folder, device, &ModelOptions::default())
    }

    /// [`load`](SentenceEncoder::load) with options.
    pub fn load_with(
        folder: impl AsRef<Path>,
        device: &Device,
        options: &ModelOptions,
    ) -> Result<SentenceEncoder> {
        let folder = folder.as_ref();
        let (mut reader, _) = Reader::load(folder, device, options)?;
        let modules = Modules::load(folder, reader.bert.config.hidden, device)?;
        reader.skips_prompts = !modules.includes_prompt();
        let (prompts, default_prompt) = prompts(folder)?;
        Ok(SentenceEncoder { reader, modules, prompts, default_prompt })
    }

    /// The vectors of texts, [texts, [`width`](SentenceEncoder::width)] in f32. Texts past
    /// [`tokens_max`](Tokenizer::tokens_max) are cut off; an empty one has a vector as well. Tokenizes on this thread, and
    /// doesn't wait for the device (on the CPU it computes on this thread, as all ops do).
    ///
    /// Errors: an empty list; those of the device.
    pub fn encode<S: AsRef<str>>(&self, texts: &[S]) -> Result<Tensor> {
        self.encode_tokens(&self.tokenizer().tokenize(texts, TooLong::Truncate)?)
    }

    /// [`encode`](SentenceEncoder::encode) of tokens.
    ///
    /// Errors: besides, tokens that the model doesn't know, none or too many, with the index of the text. Then nothing was
    /// computed.
    pub fn encode_tokens<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<Tensor> {
        self.vectors(texts, What::Vectors)?.kept()
    }

    /// [`encode_tokens`](SentenceEncoder::encode_tokens), on the host: one vector after the other. Waits for them; on a GPU this
    /// saves a launch.
    pub fn encode_tokens_to_vec<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<Vec<f32>> {
        self.vectors(texts, What::Vectors)?.to_vec()
    }

    /// [`encode_tokens`](SentenceEncoder::encode_tokens) before vectors are normalized, for those who want a part of each, or
    /// the lengths.
    pub fn pool_tokens<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<Tensor> {
        self.vectors(texts, What::Pooled)?.kept()
    }

    /// For each text the vectors of its tokens, special ones included, before they are pooled, on the host: one after the other,
    /// each of [`token_width`](SentenceEncoder::token_width). Waits for them.
    ///
    /// Errors: those of [`encode_tokens`](SentenceEncoder::encode_tokens).
    pub fn token_vectors<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>> {
        self.reader.token_rows(texts)
    }

    /// Elements of a token's vector.
    pub fn token_width(&self) -> usize {
        self.reader.bert.config.hidden
    }

    fn vectors<T: Borrow<Tokens>>(&self, texts: &[T], what: What) -> Result<Rows> {
        let end = |batch: &Batch, hidden: &Tensor| self.modules.apply(batch, hidden, what == What::Vectors);
        self.reader.rows(texts, what, end)
    }

    /// Looks at what [`encode_tokens`](SentenceEncoder::encode_tokens) would refuse, and computes nothing.
    ///
    /// Errors: tokens that the model doesn't know, none or too many, with the index of the text.
    pub fn check_tokens<T: Borrow<Tokens>>(&self, texts: &[T]) -> Result<()> {
        self.reader.check_all(texts)
    }

    /// Does the model's folder say that vectors are normalized?
    pub fn is_normalized(&self) -> bool {
        self.modules.is_normalized()
    }

    /// How a text's vector is made of those of its tokens: several are side by side.
    pub fn pooling(&self) -> &[Pooling] {
        self.modules.pooling()
    }

    /// Batches of at most so many padded tokens, or of one text, as indices into `texts`: texts of like lengths are together,
    /// the shortest first. For threads that share a long list; [`encode`](SentenceEncoder::encode) does so inside.
    pub fn batches<T: Borrow<Tokens>>(&self, texts: &[T], tokens_max: usize) -> Vec<Vec<usize>> {
        let order = self.reader.order(texts, tokens_max);
        let mut rest = order.texts.into_iter();
        order.passes.iter().map(|&count| rest.by_ref().take(count).collect()).collect()
    }

    /// What the model wants before texts of this kind, by the name that it has for it: to be put there by the caller, as the
    /// encoder adds nothing.
    ///
    /// Errors: it has none of this name.
    pub fn prompt(&self, name: &str) -> Result<&str> {
        let names = || self.prompts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        match self.prompts.iter().find(|(known, _)| known == name) {
            Some((_, text)) => Ok(text),
            None => Err(ModelError::Prompt { known: names(), found: name.into() }),
        }
    }

    /// What it wants before texts of which nothing is said; empty for most models.
    pub fn default_prompt(&self) -> &str {
        self.default_prompt.map_or("", |place| &self.prompts[place].1)
    }

    /// Takes fewer tokens of a text, or more, up to the model's positions.
    ///
    /// Errors: fewer than 5, which is what a pair of texts needs, or too many.
    pub fn limit_tokens(&mut self, tokens_max: usize) -> Result<()> {
        self.reader.limit_tokens(tokens_max)
    }

    /// What makes tokens of texts.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.reader.tokenizer
    }

    /// The tokens that are computed for a text of so many: the rest is padding.
    pub fn padded_token_count(&self, tokens: usize) -> usize {
        self.reader.padded_token_count(tokens)
    }

    /// Elements of a vector.
    pub fn width(&self) -> usize {
        self.modules.width()
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.reader.device
    }
}

/// The prompts of `config_sentence_transformers.json`, and which of them is the default.
fn prompts(folder: &Path) -> Result<(Prompts, Option<usize>)> {
    let Some(settings) = Settings::read_if_there(folder.join("config_sentence_transformers.json"))? else {
        return Ok((Vec::new(), None));
    };
    let prompts = settings.named_texts("prompts")?;
    let Some(default) = settings.text_if_there("default_prompt_name")? else { return Ok((prompts, None)) };
    match prompts.iter().position(|(name, _)| name == default) {
        Some(place) => Ok((prompts, Some(place))),
        None => Err(settings.wrong("default_prompt_name", "a name of prompts")),
    }
}
