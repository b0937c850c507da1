//! The state of a server for people: `/status`, and the page that shows it.
//!
//! A sample is taken once a second while the server listens, or when somebody asks and the latest is older. Rates and
//! quantiles are of the latest ten seconds, strips of the latest minute.

use super::{
    App,
    failure::Failure,
    reply::{Answer, html},
    samples::Sample,
};
use crate::histogram::{BIN_COUNT, quantile};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Response, header},
};
use raddle_sync::Arc;
use serde::Serialize;
use std::time::{Duration, Instant};

const PAGE: &str = include_str!("status.html");
pub const INTERVAL: Duration = Duration::from_secs(1);
/// Over which rates are taken.
const WINDOW: usize = 10;
const STRIP: usize = 60;

/// What `/status` says.
#[derive(Serialize)]
struct Status<'a> {
    model: &'a str,
    device: &'a str,
    dtype: String,
    uptime_s: u64,
    is_stopping: bool,
    requests: Requests,
    queue: Queue,
    batches: Batches,
    latency_ms: Latency,
    streams: Vec<Strip>,
}

#[derive(Serialize)]
struct Requests {
    accepted: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    per_s: f64,
    texts_per_s: f64,
    tokens_per_s: f64,
}

#[derive(Serialize)]
struct Queue {
    waiting: u64,
    limit: usize,
    running: u64,
}

#[derive(Serialize)]
struct Batches {
    count: u64,
    /// Texts in a batch, of the latest.
    texts_mean: f64,
    /// How full they were, from 0 to 1.
    fill: f64,
    padding: f64,
}

#[derive(Serialize)]
struct Latency {
    p50: Option<f64>,
    p99: Option<f64>,
}

#[derive(Serialize)]
struct Strip {
    /// The part of each second in which it was in use, the latest last.
    busy: Vec<f64>,
}

/// Takes a sample if the latest is older than the interval.
pub fn sample(app: &App) {
    let now = Instant::now();
    let mut latest = app.samples.latest.lock();
    let is_due = |sample: &Sample| now.saturating_duration_since(sample.at) >= INTERVAL;
    if !latest.back().is_none_or(is_due) {
        return;
    }
    latest.push_back(Sample {
        at: now,
        succeeded: app.metrics.succeeded(),
        failed: app.metrics.failed(),
        counts: app.engine.counts(),
        latency: Box::new(app.metrics.request_micros.bins()),
        busy: app.engine.streams().iter().map(|stream| stream.busy).collect(),
    });
    while latest.len() > STRIP + 1 {
        latest.pop_front();
    }
}

/// Rounded: a page doesn't show more.
fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

pub async fn status(State(app): State<Arc<App>>) -> Answer {
    sample(&app);
    let bytes = json(&app);
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn json(app: &App) -> Vec<u8> {
    let about = app.engine.about();
    let counts = app.engine.counts();
    let latest = app.samples.latest.lock();
    let (mut per_s, mut texts_per_s, mut tokens_per_s, mut texts_mean, mut fill, mut padding) =
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    let mut latency = Latency { p50: None, p99: None };
    let first = latest.len().saturating_sub(WINDOW + 1);
    if let (Some(old), Some(new)) = (latest.get(first), latest.back())
        && new.at > old.at
    {
        let seconds = new.at.duration_since(old.at).as_secs_f64();
        let part = |new: u64, old: u64| new.saturating_sub(old) as f64;
        let (then, now) = (&old.counts, &new.counts);
        per_s = part(new.succeeded + new.failed, old.succeeded + old.failed) / seconds;
        texts_per_s = part(now.run_count, then.run_count) / seconds;
        tokens_per_s = part(now.run_tokens, then.run_tokens) / seconds;
        texts_mean = part(now.run_count, then.run_count) / part(now.batch_count, then.batch_count).max(1.0);
        fill = part(now.run_count, then.run_count) / part(now.room_count, then.room_count).max(1.0);
        let padded = part(now.padded_tokens, then.padded_tokens);
        padding = (padded - part(now.run_tokens, then.run_tokens)) / padded.max(1.0);
        let bins: [u64; BIN_COUNT] =
            std::array::from_fn(|bin| new.latency[bin].saturating_sub(old.latency[bin]));
        let quantile = |part| quantile(&bins, part).map(|micros| round(micros as f64 / 1000.0));
        latency = Latency { p50: quantile(0.5), p99: quantile(0.99) };
    }
    let stream_count = latest.back().map_or(0, |sample| sample.busy.len());
    let pairs = || latest.iter().zip(latest.iter().skip(1));
    let strip = |stream: usize| {
        let busy = |(old, new): (&Sample, &Sample)| {
            let at = |sample: &Sample| sample.busy.get(stream).copied().unwrap_or_default();
            let used = at(new).saturating_sub(at(old)).as_secs_f64();
            round((used / new.at.duration_since(old.at).as_secs_f64().max(1e-9)).min(1.0))
        };
        Strip { busy: pairs().map(busy).collect() }
    };
    let (accepted, done) = app.metrics.served();
    let (succeeded, failed) = (app.metrics.succeeded(), app.metrics.failed());
    let status = Status {
        model: app.name(),
        device: &about.device,
        dtype: about.dtype.to_string(),
        uptime_s: app.samples.start.elapsed().as_secs(),
        is_stopping: app.is_stopping(),
        requests: Requests {
            accepted,
            succeeded,
            failed,
            cancelled: app.metrics.cancelled.load(raddle_sync::atomic::Ordering::Relaxed).min(done),
            per_s: round(per_s),
            texts_per_s: round(texts_per_s),
            tokens_per_s: round(tokens_per_s),
        },
        queue: Queue {
            waiting: counts.waiting_count,
            limit: about.waiting_count_max,
            running: counts.running_count,
        },
        batches: Batches {
            count: counts.batch_count,
            texts_mean: round(texts_mean),
            fill: round(fill),
            padding: round(padding),
        },
        latency_ms: latency,
        streams: (0..stream_count).map(strip).collect(),
    };
    serde_json::to_vec(&status).expect("names are strings and numbers are finite")
}

/// The page with the state that there is now, so that it shows that from the first. With a key it doesn't: the page asks for that.
pub async fn page(State(app): State<Arc<App>>) -> Result<Response<Body>, Failure> {
    let first = match app.options.key {
        None => {
            sample(&app);
            String::from_utf8_lossy(&json(&app)).into_owned()
        }
        Some(_) => "null".into(),
    };
    // A name may hold anything, also what would end the script that this stands in.
    Ok(html(PAGE.replace("STATE", &first.replace('<', "\\u003c"))))
}
