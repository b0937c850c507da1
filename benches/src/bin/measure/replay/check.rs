//! Do the policies written here decide as the real libraries do?
//!
//! `benches/peers/allocator.py` replays a trace through a library, in order, on one thread, every work complete at once, and
//! counts at some events. Here the same trace is replayed in the same way, with slabs at the addresses where the library
//! got them, since among equal fits the lowest address is taken; every count has to be the same.

use super::{
    file,
    policy::{Counts, Policy, Slabs},
    pytorch::PyTorch,
    rmm::Rmm,
};
use raddle::{
    Completion,
    runtime::{MemoryTrace, TraceOp},
};
use raddle_cli::output::{Failure, Outcome, is_stdout, say, write_json};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

#[derive(Deserialize)]
struct Counted {
    traces: Vec<CountedTrace>,
}

#[derive(Deserialize)]
struct CountedTrace {
    /// The name of its file.
    trace: String,
    events: usize,
    libraries: Vec<Library>,
}

#[derive(Deserialize)]
struct Library {
    /// Which policy it is: pytorch or rmm.
    policy: String,
    /// Its version, in words.
    library: String,
    /// Where its slabs are, in the order in which it asked for them.
    slab_addresses: Vec<u64>,
    checkpoints: Vec<Checkpoint>,
}

/// What was counted after so many events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Checkpoint {
    events: usize,
    /// As the library rounds; none if it doesn't say.
    allocated_bytes: Option<u64>,
    allocated_peak_bytes: Option<u64>,
    reserved_bytes: u64,
    reserved_peak_bytes: u64,
    slab_calls: u64,
}

#[derive(Serialize)]
struct Report {
    compared: Vec<Compared>,
    same: bool,
}

#[derive(Serialize)]
struct Compared {
    trace: String,
    policy: String,
    library: String,
    checkpoints: usize,
    /// Where all counts agree.
    same: usize,
    /// The first that doesn't, as the library counted and as the policy did.
    first_difference: Option<[Checkpoint; 2]>,
}

pub fn run(traces: &[(&Path, MemoryTrace)], counts: &Path, json: Option<&Path>) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Failure::Input(format!("{}: {error}", counts.display()));
    let text = fs::read_to_string(counts).map_err(|error| failed(&error))?;
    let counted: Counted = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let mut compared = Vec::new();
    for (path, trace) in traces {
        let (name, expected) = (file::name(path), trace.events().len());
        let Some(counted) = counted.traces.iter().find(|counted| counted.trace == name) else {
            return Err(failed(&format!("no counts of {name}")));
        };
        if counted.events != expected {
            return Err(failed(&format!(
                "{name}: expected counts of {expected} events, found {}",
                counted.events
            )));
        }
        for library in &counted.libraries {
            let slabs = Slabs::recorded(library.slab_addresses.iter().copied());
            let found = match library.policy.as_str() {
                "pytorch" => serial(&PyTorch::new(slabs, Completion::AtOnce), trace, &library.checkpoints),
                "rmm" => serial(&Rmm::new(slabs), trace, &library.checkpoints),
                unknown => Err(failed(&format!("expected the policy pytorch or rmm, found {unknown:?}"))),
            }?;
            let pairs = || library.checkpoints.iter().copied().zip(found.iter().copied());
            compared.push(Compared {
                trace: name.clone(),
                policy: library.policy.clone(),
                library: library.library.clone(),
                checkpoints: library.checkpoints.len(),
                same: pairs().filter(|(library, own)| library == own).count(),
                first_difference: pairs().find(|(library, own)| library != own).map(<[Checkpoint; 2]>::from),
            });
        }
    }
    let same = !compared.is_empty()
        && compared.iter().all(|compared| compared.checkpoints > 0 && compared.same == compared.checkpoints);
    let report = Report { compared, same };
    write_json(json, &report)?;
    let shown = if is_stdout(json) { Ok(()) } else { show(&report) };
    if same {
        shown
    } else {
        Err(Failure::Other("replay: a policy doesn't decide as the library does".into()))
    }
}

fn show(report: &Report) -> Outcome {
    for Compared { trace, policy, library, checkpoints, same, first_difference } in &report.compared {
        say(format_args!("{trace}: {policy} is as {library} at {same} of {checkpoints} checkpoints"))?;
        if let Some([library, own]) = first_difference {
            say(format_args!(
                "  first difference: the library has {library:?}\n  the policy here has {own:?}"
            ))?;
        }
    }
    Ok(())
}

/// Replays in order, on this thread; what a policy has counted where the library was asked, in the same form.
fn serial<P: Policy>(policy: &P, trace: &MemoryTrace, asked: &[Checkpoint]) -> Outcome<Vec<Checkpoint>> {
    let (mut blocks, mut found, mut asked) = (Vec::new(), Vec::new(), asked.iter().peekable());
    for (index, event) in trace.events().iter().enumerate() {
        match event.op {
            TraceOp::Allocate { size_bytes } => blocks.push(Some(policy.allocate(size_bytes, event.stream)?)),
            TraceOp::Use { allocation } => {
                if let Some(block) = &blocks[allocation as usize] {
                    policy.note_use(block, event.stream)?;
                }
            }
            TraceOp::Free { allocation } => {
                blocks[allocation as usize].take().into_iter().for_each(|b| policy.free(b))
            }
            TraceOp::Synchronize => policy.synchronize(event.stream)?,
        }
        while let Some(at) = asked.next_if(|at| at.events == index + 1) {
            let Counts {
                allocated_bytes,
                allocated_peak_bytes,
                reserved_bytes,
                reserved_peak_bytes,
                slab_calls,
            } = policy.counts();
            found.push(Checkpoint {
                events: at.events,
                allocated_bytes: at.allocated_bytes.map(|_| allocated_bytes),
                allocated_peak_bytes: at.allocated_peak_bytes.map(|_| allocated_peak_bytes),
                reserved_bytes,
                reserved_peak_bytes,
                slab_calls,
            });
        }
    }
    Ok(found)
}
