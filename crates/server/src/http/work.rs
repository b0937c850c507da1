//! From bytes to rows: what all routes that compute have in common.

use super::{
    App,
    counts::Cost,
    failure::{Failure, Kind},
};
use crate::{
    engine::{self, About, EngineError, Row, scale_to_unit},
    request::{Direction, Input, Inputs},
};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use raddle_nn::text::{Tokens, TooLong};
use raddle_serve::{Priority, Request};
use raddle_sync::{Arc, fault};
use std::time::{Duration, Instant};
use tokio::{sync::OwnedSemaphorePermit, task::JoinHandle};

/// Larger bodies are read and tokenized on a thread that may take its time (a guess: MiniLM's tokenizer takes about 1 ms).
const INLINE_BYTES_MAX: usize = 4096;

/// Room for one request: free again when no job of it is left, and a large answer has been sent or given up.
pub type Permit = Arc<OwnedSemaphorePermit>;

pub fn permit(app: &App) -> Result<Permit, Failure> {
    app.permits.clone().try_acquire_owned().map(Arc::new).map_err(|_| {
        let most = app.options.concurrent_request_count_max;
        Failure::overloaded(format!("the server is busy, expected less than {most} requests at once"))
    })
}

/// What runs beside its request, and need not begin when the request is dropped.
struct Job<T>(JoinHandle<T>);

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads a body and makes tokens of it: here if that is quick, else where it holds up nobody.
pub async fn prepare<T: Send + 'static>(
    app: &Arc<App>,
    permit: &Permit,
    bytes: Bytes,
    body: impl FnOnce(&App, &[u8]) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let start = Instant::now();
    if fault!(body_in_log) {
        tracing::info!(body = %String::from_utf8_lossy(&bytes), "prepare");
    }
    assert!(!fault!(panic_in_handler), "planted");
    let prepared = if bytes.len() <= INLINE_BYTES_MAX {
        body(app, &bytes)
    } else {
        // A job that waits or runs outlives a client that goes. Without its room they would be a queue without an end.
        let (own, mut room) = (app.clone(), Some(permit.clone()));
        fault!(left_jobs_hold_nothing => room = None);
        let body = move || {
            assert!(!fault!(panic_in_tokenizer_thread), "planted");
            let prepared = body(&own, &bytes);
            drop((bytes, room));
            prepared
        };
        let mut job = Job(tokio::task::spawn_blocking(body));
        match (&mut job.0).await {
            Ok(prepared) => prepared,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The executor ends.
                Err(_) => {
                    let message = "the server has been stopped";
                    Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Unhealthy, message))
                }
            },
        }
    };
    app.metrics.tokenization_micros.record(start.elapsed().as_micros() as u64);
    prepared
}

/// What is done with texts that are too long.
pub fn too_long(truncate: Option<bool>, direction: Option<Direction>) -> TooLong {
    match (truncate.unwrap_or(true), direction) {
        (true, Some(Direction::Left)) => TooLong::TruncateLeft,
        (true, Some(Direction::Right)) => TooLong::TruncateRight,
        (true, None) => TooLong::Truncate,
        (false, _) => TooLong::Refuse,
    }
}

/// Errors: none of them, or too many; `name` is what the body calls them.
pub fn count(name: &str, inputs: &Inputs<'_>, most: usize) -> Result<(), Failure> {
    count_of(name, inputs.items.len(), most)
}

/// [`count`] of so many.
pub fn count_of(name: &str, count: usize, most: usize) -> Result<(), Failure> {
    match count {
        0 => Err(Failure::new(StatusCode::BAD_REQUEST, Kind::Empty, format!("{name}: the list is empty"))),
        found if found > most => Err(Failure::too_large(format!(
            "{name}: too many of them, expected at most {most}, found {found}"
        ))),
        _ => Ok(()),
    }
}

/// What a route has of its request when it is computed.
pub struct Asked<T> {
    /// A row for each text.
    pub rows: Vec<Row>,
    pub cost: Cost,
    /// To be kept until the answer is sent.
    pub room: Room,
    /// What else the body says.
    pub rest: T,
}

/// What a request holds: one permit, and more of them if its answer is larger than that of most.
pub struct Room {
    _one: Permit,
    _more: Option<OwnedSemaphorePermit>,
}

/// Numbers of an answer for which one permit is enough: as many as there are in 2048 vectors of 1024 elements, which is the most
/// that clients of OpenAI's routes ask for.
const PERMIT_NUMBERS: usize = 1 << 21;

/// Permits besides the first for an answer of so many numbers, of so many that there are.
fn more_permits(numbers: usize, most: usize) -> u32 {
    numbers.div_ceil(PERMIT_NUMBERS).min(most).saturating_sub(1) as u32
}

/// Takes a request from its head to its rows: `body` makes tokens of texts of it, and says what else it says.
pub async fn ask<T: Send + 'static>(
    app: &Arc<App>,
    request: axum::extract::Request,
    each_token: bool,
    body: impl FnOnce(&App, &[u8]) -> Result<(Vec<Tokens>, T), Failure> + Send + 'static,
) -> Result<Asked<T>, Failure> {
    let permit = permit(app)?;
    let batching = batching(app, request.headers())?;
    let bytes = super::body::read(app, request).await?;
    let (tokens, rest) = prepare(app, &permit, bytes, body).await?;
    let rows: usize = match each_token {
        true => tokens.iter().map(|text| text.ids.len()).sum(),
        false => tokens.len(),
    };
    let numbers = rows * app.engine.about().width(each_token);
    let more = match more_permits(numbers, app.options.concurrent_request_count_max) {
        0 => None,
        count => Some(app.permits.clone().try_acquire_many_owned(count).map_err(|_| {
            let message = format!("the server is busy, expected room for an answer of {numbers} numbers");
            Failure::overloaded(message)
        })?),
    };
    let (rows, cost) = self::rows(app, tokens, each_token, batching).await?;
    Ok(Asked { rows, cost, room: Room { _one: permit, _more: more }, rest })
}

/// Only strings.
pub fn texts<'a>(name: &str, inputs: &'a Inputs<'_>) -> Result<Vec<&'a str>, Failure> {
    inputs.texts().ok_or_else(|| Failure::form(format!("{name}: expected strings, found token numbers")))
}

/// What is put in front of texts; empty if nothing is.
pub fn prompt<'a>(app: &'a App, name: Option<&str>) -> Result<&'a str, Failure> {
    let prompts = &app.engine.about().prompts;
    prompts.get(name).ok_or_else(|| {
        let known: Vec<_> = prompts.by_name.keys().map(String::as_str).collect();
        Failure::form(format!("prompt_name is wrong, expected one of [{}]", known.join(", ")))
    })
}

/// The tokens of each input, which are counted already.
pub fn tokens(
    app: &App,
    inputs: Inputs<'_>,
    prompt_name: Option<&str>,
    too_long: TooLong,
) -> Result<Vec<Tokens>, Failure> {
    let engine = &app.engine;
    let prompt = prompt(app, prompt_name)?;
    let has_tokens = inputs.items.iter().any(|input| matches!(input, Input::Tokens(_)));
    let prompt_ids: Vec<u32> = match has_tokens && !prompt.is_empty() {
        true => engine.tokenizer().spell(prompt, false)?.iter().map(|piece| piece.id).collect(),
        false => Vec::new(),
    };
    let one = |index: usize, input: Input<'_>| -> Result<Tokens, raddle_nn::text::ModelError> {
        let made = match input {
            Input::Tokens(ids) => engine.complete_behind(&prompt_ids, ids, too_long),
            Input::Text(text) => engine.tokenizer().tokenize_behind(prompt, &[text], too_long).map(only),
        };
        made.map_err(|error| error.at(index))
    };
    Ok(inputs
        .items
        .into_iter()
        .enumerate()
        .map(|(index, input)| one(index, input))
        .collect::<Result<_, _>>()?)
}

/// The one that there is.
pub fn only(mut tokens: Vec<Tokens>) -> Tokens {
    tokens.pop().unwrap_or_default()
}

/// How a request is to be batched, from its headers: `x-priority: low | normal | high`, `x-begin-within-ms: N`.
fn batching(app: &App, headers: &HeaderMap) -> Result<Request, Failure> {
    let priority = match headers.get("x-priority").map(|value| value.as_bytes()) {
        None | Some(b"normal") => Priority::Normal,
        Some(b"low") => Priority::Low,
        Some(b"high") => Priority::High,
        Some(_) => return Err(Failure::form("x-priority is wrong, expected low, normal or high")),
    };
    let begin_within = match headers.get("x-begin-within-ms") {
        None => app.options.begin_within,
        Some(value) => {
            let millis =
                value.to_str().ok().and_then(|value| value.parse().ok()).filter(|millis| *millis > 0);
            let wrong = || Failure::form("x-begin-within-ms is wrong, expected a whole number above 0");
            Some(Duration::from_millis(millis.ok_or_else(wrong)?))
        }
    };
    Ok(Request { length_tokens: 0, priority, begin_within })
}

/// Rows of tokens. If one fails, or the caller goes, the others are taken back.
async fn rows(
    app: &App,
    tokens: Vec<Tokens>,
    each_token: bool,
    request: Request,
) -> Result<(Vec<Row>, Cost), Failure> {
    let mut cost = Cost { texts: tokens.len(), tokens: 0 };
    // Rather than that it is told to come later, for ever.
    let most = app.engine.about().waiting_count_max;
    if cost.texts > most {
        let found = cost.texts;
        let message = format!("inputs: more than the queue holds, expected at most {most}, found {found}");
        return Err(Failure::too_large(message));
    }
    let mut pending = Vec::with_capacity(tokens.len());
    for (index, tokens) in tokens.into_iter().enumerate() {
        cost.tokens += tokens.ids.len();
        app.metrics.input_tokens.record(tokens.ids.len() as u64);
        let answer = match each_token {
            true => app.engine.submit_for_tokens(tokens, request),
            false => app.engine.submit(tokens, request),
        };
        let answer = answer.map_err(|error| match error {
            EngineError::Model(error) => EngineError::Model(error.at(index)),
            error => error,
        })?;
        pending.push(answer);
    }
    let rows = async {
        let mut rows = Vec::with_capacity(pending.len());
        for (index, answer) in pending.into_iter().enumerate() {
            let row = answer.await.map_err(EngineError::from)?;
            check_finite(index, &row)?;
            rows.push(row);
        }
        Ok(rows)
    };
    let rows =
        if fault!(gone_keep_room) { tokio::spawn(rows).await.expect("nobody ends it") } else { rows.await };
    rows.map(|rows| (rows, cost))
}

/// JSON has no other numbers: they would be `null`, of which a client makes anything.
fn check_finite(index: usize, row: &Row) -> Result<(), Failure> {
    match row.iter().enumerate().find(|(_, element)| !element.is_finite()) {
        None => Ok(()),
        Some((place, element)) => {
            let message =
                format!("text {index}: element {place} is wrong, expected a finite number, found {element}");
            Err(Failure::new(StatusCode::FAILED_DEPENDENCY, Kind::Backend, message))
        }
    }
}

/// The width of vectors, which only a sentence encoder has.
pub fn width(about: &About, route: &str) -> Result<usize, Failure> {
    match about.kind {
        engine::Kind::Encoder { width, .. } => Ok(width),
        _ => Err(elsewhere(about, route, "a sentence encoder")),
    }
}

/// The model that there is isn't the one that a route needs; others serve it.
pub fn elsewhere(about: &About, route: &str, expected: &str) -> Failure {
    let (found, routes) = match &about.kind {
        engine::Kind::Encoder { .. } => {
            ("a sentence encoder", "/embed, /embed_all, /similarity and /v1/embeddings")
        }
        engine::Kind::Sparse { .. } => ("a sparse encoder", "/embed_sparse"),
        engine::Kind::Reranker { labels, .. } if labels.len() == 1 => {
            ("a reranker", "/rerank, /v1/rerank and /predict")
        }
        engine::Kind::Reranker { .. } => ("a classifier", "/predict"),
    };
    Failure::other_model(format!(
        "{route}: expected {expected} as the model of this server, found {found}, which is for {routes}"
    ))
}

/// A part of a vector as it is asked for. The part is normalized, not the whole: as those who train such models compare them.
pub fn shape(row: &mut Row, dimensions: Option<usize>, normalize: bool) {
    row.truncate(dimensions.unwrap_or(row.len()));
    if normalize {
        scale_to_unit(row);
    }
}

/// Errors: a part that is none.
pub fn check_dimensions(dimensions: Option<usize>, width: usize) -> Result<(), Failure> {
    match dimensions {
        Some(found) if !(1..=width).contains(&found) => {
            Err(Failure::form(format!("dimensions is wrong, expected 1 to {width}, found {found}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{Engine, EngineOptions, Model},
        http::Options,
    };
    use futures_util::FutureExt;
    use raddle_nn::text::{BertConfig, ModelOptions, write_random_model};
    use raddle_sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        faults::{Fault, assert_caught},
    };
    use std::sync::mpsc;

    fn app(concurrent_request_count_max: usize) -> Arc<App> {
        let device = raddle_tensor::Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
        let folder = std::env::temp_dir().join(format!("raddle-{}-work", std::process::id()));
        write_random_model(&folder, &BertConfig::tiny(5), &["a"], 16, 3, &device).unwrap();
        let model = Model::load(&folder, &device, &ModelOptions::default()).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let engine = Engine::start(model, EngineOptions::default()).unwrap();
        App::new(engine, Options { concurrent_request_count_max, ..Options::default() })
    }

    /// A client that sends much and goes, again and again.
    #[test]
    fn what_a_client_leaves_behind_keeps_its_room() {
        let app = app(1);
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (end, ended) = mpsc::channel();
            let other = tokio::task::spawn_blocking(move || ended.recv());
            let begun = Arc::new(AtomicBool::new(false));
            let noted = begun.clone();
            let room = permit(&app).unwrap();
            let large = Bytes::from(vec![b' '; INLINE_BYTES_MAX + 1]);
            let mut prepared = Box::pin(prepare(&app, &room, large, move |_, _| {
                noted.store(true, SeqCst);
                Ok(())
            }));
            assert!(prepared.as_mut().now_or_never().is_none());
            drop(prepared);
            drop(room);
            assert!(permit(&app).is_err(), "its job is still there");
            end.send(()).unwrap();
            other.await.unwrap().unwrap();
            while permit(&app).is_err() {
                tokio::task::yield_now().await;
            }
            assert!(!begun.load(SeqCst), "nobody waited for it");
        });
    }

    #[test]
    fn large_answers_take_more_room() {
        assert_eq!(more_permits(0, 512), 0);
        assert_eq!(more_permits(2048 * 1024, 512), 0);
        assert_eq!(more_permits(2048 * 1024 + 1, 512), 1);
        // 32 texts of 512 tokens, vectors of 768: six times as much as one permit is for.
        assert_eq!(more_permits(32 * 512 * 768, 512), 5);
        // All of it at most, rather than that nobody ever answers.
        assert_eq!((more_permits(1 << 40, 4), more_permits(1 << 40, 1)), (3, 0));
    }

    #[test]
    fn fault_left_jobs_hold_nothing() {
        let test = "http::work::tests::what_a_client_leaves_behind_keeps_its_room";
        assert_caught(Fault::left_jobs_hold_nothing, test);
    }
}
