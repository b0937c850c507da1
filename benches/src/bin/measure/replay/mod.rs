//! `measure replay`: a recorded allocation trace against our allocator and against the policies of others.
//!
//! Every policy gets the same script on a device that has addresses only. Peaks come from a replay in step; rates from
//! free replays, a round of all policies after the other. What is reserved counts as it is asked of the device, with no
//! granularity of the device's own for anybody.

mod check;
mod engine;
mod file;
mod policy;
mod pytorch;
mod rmm;
mod script;
#[cfg(test)]
mod tests;

pub use file::write as write_trace;

use engine::{Pace, play};
use policy::{Counts, Ours, Policy, Slabs};
use pytorch::PyTorch;
use raddle::{Completion, runtime::MemoryTrace};
use raddle_cli::output::{Outcome, check_keeps, check_writable, is_stdout, say, write_json};
use rmm::Rmm;
use script::Script;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Rounds that are timed, and about how long a policy plays in each.
const ROUND_COUNT: usize = 7;
const ROUND_SECONDS: f64 = 0.1;
const PLAY_COUNT_MAX: usize = 1000;

/// Replays allocation traces against our allocator and the policies of others.
#[derive(clap::Args)]
#[command(
    after_help = "Example: measure replay benches/traces/training.trace.gz --policy all --json replay.json"
)]
pub struct Arguments {
    /// Traces, as `measure record` writes them.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Against what: the runtime's allocator, PyTorch's caching allocator or RMM's pool (both as written here), or all.
    #[arg(long, value_enum, default_value = "all")]
    policy: Choice,
    /// When work on the device is complete.
    #[arg(long, value_enum, default_value = "at-once")]
    completion: When,
    /// Peaks only, no rates.
    #[arg(long)]
    peaks_only: bool,
    /// Compares the policies with what `benches/peers/allocator.py` counted of the real libraries, and does nothing else.
    #[arg(long, value_name = "COUNTS", conflicts_with_all = ["policy", "completion", "peaks_only"])]
    check: Option<PathBuf>,
    /// Writes the figures as JSON (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    Ours,
    Pytorch,
    Rmm,
    All,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum When {
    /// At once, as on a device that is faster than the host.
    AtOnce,
    /// When somebody waits for it, as on a device that is slower than the host.
    AtSync,
}

/// Events a second.
#[derive(Serialize)]
struct Rate {
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Serialize)]
struct Row {
    policy: &'static str,
    allocated_peak_bytes: u64,
    reserved_peak_bytes: u64,
    slab_calls: u64,
    /// Of all events.
    events_per_s: Option<Rate>,
    /// Of allocations and frees alone, with no use and no wait between them.
    calls_per_s: Option<Rate>,
}

#[derive(Serialize)]
struct Report {
    completion: &'static str,
    traces: Vec<Replayed>,
}

#[derive(Serialize)]
struct Replayed {
    trace: String,
    events: usize,
    allocations: usize,
    threads: usize,
    streams: usize,
    asked_peak_bytes: u64,
    policies: Vec<Row>,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let read: Vec<&PathBuf> = arguments.traces.iter().chain(&arguments.check).collect();
    check_keeps(arguments.json.as_deref(), "--json", &read)?;
    let traces = arguments.traces.iter().map(|path| Ok((path.as_path(), file::read(path)?)));
    let traces = traces.collect::<Outcome<Vec<_>>>()?;
    let json = arguments.json.as_deref();
    check_writable(json)?;
    if let Some(counts) = &arguments.check {
        return check::run(&traces, counts, json);
    }
    let completion = if let When::AtOnce = arguments.completion { "at-once" } else { "at-sync" };
    let mut report = Report { completion, traces: Vec::new() };
    let mut shown = Ok(());
    for (path, trace) in &traces {
        let replayed = replay(arguments, path, trace)?;
        if !is_stdout(json) && shown.is_ok() {
            shown = show(&replayed);
        }
        report.traces.push(replayed);
    }
    write_json(json, &report).and(shown)
}

fn replay(arguments: &Arguments, path: &Path, trace: &MemoryTrace) -> Outcome<Replayed> {
    let completion = match arguments.completion {
        When::AtOnce => Completion::AtOnce,
        When::AtSync => Completion::AtSync,
    };
    let (script, calls) = (Script::new(trace, true), Script::new(trace, false));
    let chosen = |policy| arguments.policy == policy || arguments.policy == Choice::All;
    let mut players: Vec<Box<dyn Player + '_>> = Vec::new();
    if chosen(Choice::Ours) {
        let make = || Ours::new(script.stream_count, completion);
        players.push(Box::new(Contender::new("ours", &script, &calls, make, Ours::close)?));
    }
    if chosen(Choice::Pytorch) {
        let make = || Ok(PyTorch::new(Slabs::default(), completion));
        players.push(Box::new(Contender::new("pytorch", &script, &calls, make, |_| Ok(()))?));
    }
    if chosen(Choice::Rmm) {
        let make = || Ok(Rmm::new(Slabs::default()));
        players.push(Box::new(Contender::new("rmm", &script, &calls, make, |_| Ok(()))?));
    }
    if !arguments.peaks_only {
        for _ in 0..ROUND_COUNT {
            players.iter_mut().try_for_each(|player| player.round())?;
        }
    }
    Ok(Replayed {
        trace: file::name(path),
        events: trace.events().len(),
        allocations: trace.allocation_count(),
        threads: script.threads.len(),
        streams: script.stream_count,
        asked_peak_bytes: trace.allocated_peak_bytes(),
        policies: players.into_iter().map(|player| player.row()).collect::<Outcome<_>>()?,
    })
}

/// A policy whatever its type.
trait Player {
    /// Plays for a while, all events and calls alone.
    fn round(&mut self) -> Outcome;
    fn row(self: Box<Self>) -> Outcome<Row>;
}

struct Contender<'a, P, C> {
    name: &'static str,
    /// All events, and calls alone.
    scripts: [&'a Script; 2],
    /// Warm: each script has one of its own.
    policies: [P; 2],
    close: C,
    counts: Counts,
    /// Plays a round, and the seconds of one play in each round.
    play_counts: [usize; 2],
    seconds: [Vec<f64>; 2],
}

impl<'a, P: Policy, C: Fn(P) -> Outcome> Contender<'a, P, C> {
    /// Takes the peaks, and warms up.
    fn new(
        name: &'static str,
        script: &'a Script,
        calls: &'a Script,
        make: impl Fn() -> Outcome<P>,
        close: C,
    ) -> Outcome<Self> {
        let fresh = make()?;
        play(&fresh, script, Pace::InStep)?;
        let counts = fresh.counts();
        close(fresh)?;
        let (scripts, policies) = ([script, calls], [make()?, make()?]);
        let mut play_counts = [1; 2];
        for ((script, policy), play_count) in scripts.iter().zip(&policies).zip(&mut play_counts) {
            let seconds = play(policy, script, Pace::Free)?.min(play(policy, script, Pace::Free)?);
            *play_count = ((ROUND_SECONDS / seconds) as usize).clamp(1, PLAY_COUNT_MAX);
        }
        Ok(Contender { name, scripts, policies, close, counts, play_counts, seconds: Default::default() })
    }
}

impl<P: Policy, C: Fn(P) -> Outcome> Player for Contender<'_, P, C> {
    fn round(&mut self) -> Outcome {
        for kind in 0..2 {
            let mut seconds = 0.0;
            for _ in 0..self.play_counts[kind] {
                seconds += play(&self.policies[kind], self.scripts[kind], Pace::Free)?;
            }
            self.seconds[kind].push(seconds / self.play_counts[kind] as f64);
        }
        Ok(())
    }

    fn row(self: Box<Self>) -> Outcome<Row> {
        let Contender { name, scripts, policies, close, counts, seconds, .. } = *self;
        policies.into_iter().try_for_each(close)?;
        let rate = |kind: usize| {
            let event_count = scripts[kind].event_count as f64;
            let mut rates: Vec<f64> = seconds[kind].iter().map(|seconds| event_count / seconds).collect();
            rates.sort_by(f64::total_cmp);
            Some(Rate { median: *rates.get(rates.len() / 2)?, min: *rates.first()?, max: *rates.last()? })
        };
        Ok(Row {
            policy: name,
            allocated_peak_bytes: counts.allocated_peak_bytes,
            reserved_peak_bytes: counts.reserved_peak_bytes,
            slab_calls: counts.slab_calls,
            events_per_s: rate(0),
            calls_per_s: rate(1),
        })
    }
}

fn show(replayed: &Replayed) -> Outcome {
    let Replayed { trace, events, allocations, threads, streams, .. } = replayed;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    say(format_args!(
        "{trace}: {events} events, {allocations} allocations, {threads} threads, {streams} streams"
    ))?;
    say(format_args!("at most {:.1} MiB asked for at once\n", mib(replayed.asked_peak_bytes)))?;
    say(format_args!(
        "{:<8} {:>14} {:>13} {:>6}   {:>26}   {:>26}",
        "", "peak allocated", "reserved, MiB", "slabs", "events, million a second", "calls, million a second"
    ))?;
    for row in &replayed.policies {
        let rate = |rate: &Option<Rate>| match rate {
            Some(Rate { median, min, max }) => {
                format!("{:.2} ({:.2} to {:.2})", median / 1e6, min / 1e6, max / 1e6)
            }
            None => "-".into(),
        };
        say(format_args!(
            "{:<8} {:>14.1} {:>13.1} {:>6}   {:>26}   {:>26}",
            row.policy,
            mib(row.allocated_peak_bytes),
            mib(row.reserved_peak_bytes),
            row.slab_calls,
            rate(&row.events_per_s),
            rate(&row.calls_per_s)
        ))?;
    }
    say("").map(drop)
}
