//! Counts of a server, in the text form of Prometheus, with the names of text-embeddings-inference where it has them.

use super::{
    App,
    failure::{Failure, Kind},
    process::{self, Figure},
};
use crate::histogram::{Bins, Histogram, at_most};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Response, header},
};
use raddle_sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::fmt::Write;

/// The text, line by line.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn value(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.value(name, "", value);
    }

    fn summary(&mut self, name: &str, help: &str, sum: f64, count: u64) {
        self.family(name, "summary", help);
        self.value(&format!("{name}_sum"), "", sum);
        self.value(&format!("{name}_count"), "", count);
    }

    /// Bounds are powers of two of the unit in which values were recorded.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        histogram: &Histogram,
        exponents: std::ops::Range<u32>,
        unit: f64,
    ) {
        self.family(name, "histogram", help);
        let bins: Bins = histogram.bins();
        for exponent in exponents {
            let bound = ((1u64 << exponent) - 1) as f64 * unit;
            self.value(&format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), at_most(&bins, exponent));
        }
        let count: u64 = bins.iter().sum();
        self.value(&format!("{name}_bucket"), "{le=\"+Inf\"}", count);
        self.value(&format!("{name}_sum"), "", histogram.sum() as f64 * unit);
        self.value(&format!("{name}_count"), "", count);
    }
}

const MICROS: f64 = 1e-6;
/// From 255 µs to 67 s.
const TIMES: std::ops::Range<u32> = 8..27;
const COUNTS: std::ops::Range<u32> = 1..16;

pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response<Body>, Failure> {
    let mut response = Response::new(Body::from(text(&app)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn text(app: &App) -> String {
    let (metrics, counts, batches) = (&app.metrics, app.engine.counts(), app.engine.batches());
    let load = |count: &AtomicU64| count.load(Relaxed);
    let mut text = Text(String::with_capacity(8192));
    text.one("te_request_count", "counter", "Requests whose head was read.", load(&metrics.accepted));
    text.family("te_request_success", "counter", "Requests that were computed.");
    for (method, count) in ["single", "batch"].iter().zip(&metrics.computed) {
        text.value("te_request_success", &format!("{{method=\"{method}\"}}"), load(count));
    }
    text.family("te_request_failure", "counter", "Requests that were answered with an error.");
    for (kind, count) in Kind::ALL.iter().zip(&metrics.failures) {
        text.value("te_request_failure", &format!("{{err=\"{}\"}}", kind.name()), load(count));
    }
    let cancelled = load(&metrics.cancelled);
    text.one("raddle_requests_cancelled_total", "counter", "Requests whose client went.", cancelled);
    let per_text = if app.engine.about().is_encoder() { "te_embed" } else { "te_predict" };
    text.one(
        &format!("{per_text}_count"),
        "counter",
        "Texts that were put into the queue.",
        counts.accepted_count,
    );
    text.one(
        &format!("{per_text}_success"),
        "counter",
        "Texts of requests that were computed.",
        load(&metrics.texts),
    );
    let times: [(&str, &str, &Histogram); 3] = [
        ("te_request_duration", "Seconds from the head to the answer.", &metrics.request_micros),
        (
            "te_request_tokenization_duration",
            "Seconds to read a body and make tokens of it.",
            &metrics.tokenization_micros,
        ),
        ("te_batch_inference_duration", "Seconds that a batch took.", &batches.micros),
    ];
    for (name, help, histogram) in times {
        text.histogram(name, help, histogram, TIMES, MICROS);
    }
    text.histogram("te_request_input_length", "Tokens of a text.", &metrics.input_tokens, COUNTS, 1.0);
    text.histogram("te_batch_next_size", "Texts in a batch.", &batches.texts, COUNTS, 1.0);
    text.histogram("te_batch_next_tokens", "Tokens in a batch.", &batches.tokens, COUNTS, 1.0);
    text.one("raddle_connections", "gauge", "Open connections.", metrics.connections.load(Relaxed));
    text.one("te_queue_size", "gauge", "Texts that wait.", counts.waiting_count);
    text.summary(
        "te_request_queue_duration",
        "Seconds that texts have waited.",
        counts.waited_total.as_secs_f64(),
        counts.run_count,
    );
    text.summary(
        "te_request_inference_duration",
        "Seconds that the batches of texts took, counted once for each text.",
        batches.text_micros() as f64 * MICROS,
        batches.texts.sum(),
    );
    text.one("raddle_queue_limit", "gauge", "Texts that may wait.", app.engine.about().waiting_count_max);
    text.one("raddle_batches_running", "gauge", "Batches that run.", counts.running_count);
    let rejected = counts.rejected_count;
    text.one("raddle_texts_rejected_total", "counter", "Texts for which the queue was full.", rejected);
    let cancelled = counts.cancelled_count;
    text.one("raddle_texts_cancelled_total", "counter", "Texts taken back before they ran.", cancelled);
    text.one("raddle_texts_expired_total", "counter", "Texts whose time was over.", counts.expired_count);
    text.one("raddle_tokens_total", "counter", "Tokens of texts that ran.", counts.run_tokens);
    text.one(
        "raddle_padding_tokens_total",
        "counter",
        "Tokens that were computed besides, to bring texts to lengths that the device knows.",
        batches.padding_tokens(),
    );
    text.one(
        "raddle_bucket_tokens_total",
        "counter",
        "Tokens of texts that ran, each as long as its bucket: what batches are bounded by.",
        counts.padded_tokens,
    );
    text.family("raddle_stream_busy_seconds_total", "counter", "Seconds that a stream was in use.");
    for (index, stream) in app.engine.streams().iter().enumerate() {
        let labels = format!("{{stream=\"{index}\"}}");
        text.value("raddle_stream_busy_seconds_total", &labels, stream.busy.as_secs_f64());
    }
    let memory = app.engine.memory_stats();
    text.one("raddle_memory_allocated_bytes", "gauge", "Of the device, given out.", memory.allocated_bytes);
    text.one("raddle_memory_reserved_bytes", "gauge", "Of the device, held.", memory.reserved_bytes);
    about(app, &mut text);
    for Figure { name, kind, help, value } in process::figures() {
        text.one(name, kind, help, value);
    }
    text.0
}

/// What doesn't change, as labels of a value that is 1.
fn about(app: &App, text: &mut Text) {
    let about = app.engine.about();
    text.family("raddle_info", "gauge", "What is served.");
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("model", app.name()),
        ("device", &about.device),
        ("dtype", &about.dtype.to_string()),
    ];
    let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    text.value("raddle_info", &format!("{{{}}}", labels.join(",")), 1);
}

/// A label's value may hold anything.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
