//! A model behind the batcher: tokens in, rows of numbers out, from any number of threads.
//!
//! - **One request harms no other.** Tokens are checked before they are put into the queue, so that what one caller asks for
//!   can't fail the batch of others.
//! - **The same answers.** On the CPU a text's row doesn't depend on the batch, the thread or the texts beside it, to the last bit:
//!   nothing is padded, and only attention looks across rows (see [`raddle_nn::text`]). A device whose launches cost much
//!   (CUDA) pads texts to multiples of 16 tokens and may sum in another order for another number of rows: rows of norm 1 then
//!   differ by at most 1e-5 in f32, 5e-3 in f16 and 3e-2 in bf16 (guesses, above what was seen). With
//!   [`EngineOptions::deterministic`] each text runs alone there, and its row is the same to the last bit as well.
//! - **No answer is lost**: see [`raddle_serve`].

mod about;
mod error;
mod model;
mod options;
mod streams;

pub use about::{About, Function, Kind, Prompts};
pub use error::EngineError;
pub use model::{Model, Row};
pub use options::EngineOptions;
pub use streams::StreamUse;

use crate::histogram::Histogram;
use raddle_nn::text::{ModelError, Tokenizer, Tokens, TooLong};
use raddle_runtime::MemoryStats;
use raddle_serve::{Answer, Batch, Batcher, Counts, Request, StartError};
use raddle_sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    fault, thread,
};
use std::{fmt, time::Instant};
use streams::Streams;

/// A row to come.
pub type Pending = Answer<Text, Row, ModelError>;

/// A text or pair in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    tokens: Tokens,
    /// Are the vectors of tokens asked for, rather than one of the text?
    each_token: bool,
}

/// What a batch is computed by.
type Compute = dyn Fn(&Model, &[Tokens]) -> Result<Vec<Row>, ModelError> + Send + Sync;

struct Shared {
    model: Model,
    streams: Streams,
    batches: Batches,
    /// Has the device failed with the last batch?
    is_failing: AtomicBool,
}

/// What batches were like.
#[derive(Default)]
pub struct Batches {
    /// Texts in each.
    pub texts: Histogram,
    /// Tokens in each.
    pub tokens: Histogram,
    /// How long each took, in µs.
    pub micros: Histogram,
    text_micros: AtomicU64,
    padding_tokens: AtomicU64,
}

impl Batches {
    /// How long each took, times its texts.
    pub fn text_micros(&self) -> u64 {
        self.text_micros.load(Relaxed)
    }

    /// Tokens that were computed besides those of texts, as each was padded to a length that the device knows; 0 on the CPU.
    pub fn padding_tokens(&self) -> u64 {
        self.padding_tokens.load(Relaxed)
    }
}

/// See the [module](self). Dropping it answers what waits, and so blocks.
pub struct Engine {
    shared: Arc<Shared>,
    about: About,
    batcher: Batcher<Text, Row, ModelError>,
}

impl Engine {
    /// Starts threads that run the model.
    ///
    /// Errors: options with which nothing can run; no threads.
    pub fn start(model: Model, options: EngineOptions) -> Result<Engine, StartError> {
        Engine::start_with(model, options, Model::rows)
    }

    /// [`start`](Engine::start) with something else that makes rows, but for those of tokens: for tests, and measurements without
    /// the model. It must make a row for each text.
    pub fn start_with(
        model: Model,
        options: EngineOptions,
        compute: impl Fn(&Model, &[Tokens]) -> Result<Vec<Row>, ModelError> + Send + Sync + 'static,
    ) -> Result<Engine, StartError> {
        let about = About::of(&model, &options);
        let batcher = options.batcher(&model);
        let (streams, batches) = (Streams::new(), Batches::default());
        let shared = Arc::new(Shared { model, streams, batches, is_failing: AtomicBool::new(false) });
        let compute: Box<Compute> = Box::new(compute);
        let running = shared.clone();
        let handler = move |batch: Batch<Text>| running.run(&*compute, batch);
        Ok(Engine { shared, about, batcher: Batcher::start(batcher, handler)? })
    }

    /// What it runs.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// What makes tokens of texts.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.shared.model.tokenizer()
    }

    /// Tokens of texts as [`submit`](Engine::submit) takes them; of numbers that may lack the special tokens, with those.
    ///
    /// Errors: too many tokens, if such texts are refused.
    pub fn complete(&self, ids: Vec<u32>, too_long: TooLong) -> Result<Tokens, ModelError> {
        self.complete_behind(&[], ids, too_long)
    }

    /// [`complete`](Engine::complete) of the tokens of a prompt, without special ones, and those of a text behind it.
    pub fn complete_behind(
        &self,
        prompt: &[u32],
        ids: Vec<u32>,
        too_long: TooLong,
    ) -> Result<Tokens, ModelError> {
        let tokenizer = self.tokenizer();
        self.about.special.complete(prompt, ids, tokenizer.tokens_max(), tokenizer.resolve(too_long))
    }

    /// Puts tokens of a text or pair into the queue. Doesn't block. Dropping the answer takes it back.
    ///
    /// Errors: tokens that the model doesn't know, none or too many; a full queue; an engine that has been stopped.
    pub fn submit(&self, tokens: Tokens, request: Request) -> Result<Pending, EngineError> {
        self.submit_text(Text { tokens, each_token: false }, request)
    }

    /// [`submit`](Engine::submit) for the vectors of all its tokens, special ones included, one after the other.
    ///
    /// Errors: besides, a model that is no sentence encoder.
    pub fn submit_for_tokens(&self, tokens: Tokens, request: Request) -> Result<Pending, EngineError> {
        let Kind::Encoder { .. } = self.about.kind else { return Err(EngineError::NoEncoder) };
        self.submit_text(Text { tokens, each_token: true }, request)
    }

    fn submit_text(&self, text: Text, request: Request) -> Result<Pending, EngineError> {
        self.shared.model.check(std::slice::from_ref(&text.tokens))?;
        let length_tokens = text.tokens.ids.len();
        Ok(self.batcher.submit(text, Request { length_tokens, ..request })?)
    }

    /// The vectors of texts, normalized if the model's folder says so; what is too long is cut off. Blocks until all have
    /// been run. For many threads with a text or a few each: what they ask for is run together.
    ///
    /// Errors: a model that makes no vectors, a full queue, and those of the device.
    pub fn embed<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Row>, EngineError> {
        let Kind::Encoder { normalize, .. } = self.about.kind else { return Err(EngineError::NoEncoder) };
        let mut rows = self.wait(self.tokenizer().tokenize(texts, TooLong::Truncate)?)?;
        if normalize {
            rows.iter_mut().for_each(|row| scale_to_unit(row));
        }
        Ok(rows)
    }

    /// How well texts answer a query, a row for each: what the model's head says, before any sigmoid. As
    /// [`embed`](Engine::embed).
    pub fn score<S: AsRef<str>>(&self, query: &str, texts: &[S]) -> Result<Vec<Row>, EngineError> {
        let Kind::Reranker { .. } = self.about.kind else { return Err(EngineError::NoReranker) };
        self.wait(self.tokenizer().tokenize_pairs(query, texts, TooLong::Truncate)?)
    }

    fn wait(&self, texts: Vec<Tokens>) -> Result<Vec<Row>, EngineError> {
        let submit = |tokens| self.submit(tokens, Request::default());
        let answers = texts.into_iter().map(submit).collect::<Result<Vec<_>, _>>()?;
        answers.into_iter().map(|answer| Ok(answer.wait()?)).collect()
    }

    /// What the batcher holds and has done. Doesn't block.
    pub fn counts(&self) -> Counts {
        self.batcher.counts()
    }

    /// Why it is none to be sent requests, if so: it has been stopped, has stopped itself, or its device has failed with the
    /// last batch. Doesn't block.
    pub fn check_health(&self) -> Result<(), &'static str> {
        if self.batcher.is_stopped() {
            return Err("the engine has been stopped");
        }
        match self.shared.is_failing.load(Relaxed) {
            true => Err("the device has failed with the last batch"),
            false => Ok(()),
        }
    }

    /// How long each stream has been in use. Doesn't block.
    pub fn streams(&self) -> Vec<StreamUse> {
        self.shared.streams.get()
    }

    /// Memory of the device.
    pub fn memory_stats(&self) -> MemoryStats {
        self.shared.model.device().memory_stats()
    }

    /// What batches were like.
    pub fn batches(&self) -> &Batches {
        &self.shared.batches
    }

    /// Accepts no more, runs what waits, and blocks until all of it is answered.
    pub fn stop(&self) {
        self.batcher.stop();
    }

    /// As [`stop`](Engine::stop), but what waits isn't run: its answers are errors.
    pub fn stop_at_once(&self) {
        self.batcher.stop_at_once();
    }

    /// Lets no batch begin until [`resume`](Engine::resume) or [`stop`](Engine::stop).
    pub fn pause(&self) {
        self.batcher.pause();
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.batcher.resume();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("about", &self.about).field("batcher", &self.batcher).finish()
    }
}

impl Shared {
    fn run(&self, compute: &Compute, batch: Batch<Text>) -> Vec<Result<Row, ModelError>> {
        let texts = batch.items.len();
        self.batches.texts.record(texts as u64);
        let lengths = batch.items.iter().map(|text| text.tokens.ids.len());
        let tokens: usize = lengths.clone().sum();
        let padded: usize = lengths.map(|length| self.model.padded_token_count(length)).sum();
        self.batches.tokens.record(tokens as u64);
        self.batches.padding_tokens.fetch_add((padded - tokens) as u64, Relaxed);
        let start = Instant::now();
        let running = self.streams.begin(&self.model.device());
        let rows = self.rows(compute, batch.items);
        while fault!(batch_never_ends) {
            thread::yield_now();
        }
        drop(running);
        let micros = start.elapsed().as_micros() as u64;
        self.batches.micros.record(micros);
        self.batches.text_micros.fetch_add(micros * texts as u64, Relaxed);
        // Tokens were checked before, so what an op says is about the device. Relaxed: it is a hint, which orders nothing.
        let failed = |row: &Result<Row, ModelError>| matches!(row, Err(ModelError::Tensor(_)));
        self.is_failing.store(rows.iter().any(failed), Relaxed);
        rows
    }

    /// The rows of texts, and those of tokens, in the order of the batch.
    fn rows(&self, compute: &Compute, texts: Vec<Text>) -> Vec<Result<Row, ModelError>> {
        let mut rows: Vec<_> = texts.iter().map(|_| Err(ModelError::NoTexts)).collect();
        let (each, whole): (Vec<_>, Vec<_>) =
            texts.into_iter().enumerate().partition(|(_, text)| text.each_token);
        for (part, each_token) in [(whole, false), (each, true)] {
            let (places, tokens): (Vec<usize>, Vec<Tokens>) =
                part.into_iter().map(|(place, text)| (place, text.tokens)).unzip();
            let made = match each_token {
                _ if places.is_empty() => continue,
                true => self.model.token_rows(&tokens),
                false => compute(&self.model, &tokens),
            };
            match made {
                // Which the batcher tells.
                Ok(made) if made.len() != places.len() => return Vec::new(),
                Ok(made) => places.iter().zip(made).for_each(|(&place, row)| rows[place] = Ok(row)),
                Err(error) => places.iter().for_each(|&place| rows[place] = Err(error.clone())),
            }
        }
        rows
    }
}

/// Makes the norm 1, as PyTorch's `normalize`: what is almost 0 isn't blown up.
pub fn scale_to_unit(row: &mut [f32]) {
    let norm = row.iter().map(|element| f64::from(*element).powi(2)).sum::<f64>().sqrt().max(1e-12);
    row.iter_mut().for_each(|element| *element = (f64::from(*element) / norm) as f32);
}
