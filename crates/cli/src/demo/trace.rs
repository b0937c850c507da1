//! The trace as Chrome's and Perfetto's viewers read it: a track for each stream with what ran there, one with what was
//! enqueued, arrows for waits, and a counter for memory.

use raddle::runtime::hal::trace::{Span, SpanKind, Trace};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};

/// Tracks of one process id: streams run, streams are submitted to.
const RUN: u32 = 1;
const ENQUEUE: u32 = 2;

/// The trace as JSON.
pub fn chrome(trace: &Trace) -> Value {
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": RUN, "args": {"name": "streams: what ran"}}),
        json!({"ph": "M", "name": "process_name", "pid": ENQUEUE, "args": {"name": "streams: what was enqueued"}}),
    ];
    let streams: BTreeSet<u8> = trace.spans.iter().map(|span| span.queue.1).collect();
    for stream in streams {
        let name = if stream == 0 { "default stream".into() } else { format!("stream {stream}") };
        for pid in [RUN, ENQUEUE] {
            events.push(json!({
                "ph": "M", "name": "thread_name", "pid": pid, "tid": stream, "args": {"name": name},
            }));
        }
    }
    // Where an awaited op ended, so that an arrow can start there.
    let ends: HashMap<(u8, u64), u64> = trace
        .spans
        .iter()
        .filter(|span| span.kind == SpanKind::Run)
        .map(|span| ((span.queue.1, span.sequence), span.end_ns))
        .collect();
    let mut allocated: i64 = 0;
    let mut arrow = 0u64;
    for span in &trace.spans {
        match span.kind {
            SpanKind::Run => events.push(slice(span, RUN)),
            SpanKind::Enqueue => {
                events.push(slice(span, ENQUEUE));
                for wait in &span.waits {
                    let Some(&end_ns) = ends.get(wait) else { continue };
                    arrow += 1;
                    let flow = |phase: &str, tid: u8, ns: u64, pid: u32| {
                        json!({
                            "ph": phase, "bp": "e", "id": arrow, "name": "wait", "cat": "wait",
                            "pid": pid, "tid": tid, "ts": micros(ns),
                        })
                    };
                    events.push(flow("s", wait.0, end_ns, RUN));
                    events.push(flow("f", span.queue.1, span.end_ns.max(end_ns), ENQUEUE));
                }
            }
            SpanKind::Memory => {
                allocated += span.sequence as i64;
                events.push(json!({
                    "ph": "C", "name": "allocated bytes", "pid": RUN, "ts": micros(span.start_ns),
                    "args": {"bytes": allocated.max(0)},
                }));
            }
        }
    }
    json!({"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"dropped": trace.dropped}})
}

fn slice(span: &Span, pid: u32) -> Value {
    json!({
        "ph": "X", "name": span.name, "pid": pid, "tid": span.queue.1, "ts": micros(span.start_ns),
        "dur": micros(span.end_ns.saturating_sub(span.start_ns)),
        "args": {"sequence": span.sequence, "waits": span.waits.iter().map(|(stream, sequence)| format!("{stream}@{sequence}")).collect::<Vec<_>>()},
    })
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
