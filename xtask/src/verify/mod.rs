//! `cargo xtask verify`: runs the catalogue of properties on the code that ships, plants every fault, and prints one table.
//!
//! | module | duty |
//! |---|---|
//! | `catalogue` | the rows: what holds, where in the code, what checks it, which faults it must show |
//! | `anchors` | that the places in the code exist |
//! | `programs` | the builds of the programs that check |
//! | `checkers` | these programs: started, read |
//! | `report` | the table, the JSON, `docs/verification.md` |
//!
//! A check or a planted fault that several properties share runs once. A property holds if its anchor exists, none of its
//! checks fails, at least one of them ran, and every fault of it is caught: what needs a GPU is skipped where there is none
//! and says nothing then.

pub mod anchors;
mod catalogue;
mod checkers;
mod programs;
mod report;

use crate::{Failure, Options, Outcome, command, failed, spec};
use catalogue::{Check, Kind, PROPERTIES, Property};
use checkers::{Checkers, Ran, Unit, Verdict};
use programs::Build;
use raddle_sync::faults::Fault;
use report::Results;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

pub const HELP: &str = "\
Checks every property of docs/verification.md on the code that ships, plants every fault, and prints one table.

Usage: cargo xtask verify [OPTIONS]

  --quick        fewer random programs: less than 3 minutes on 2 cores, without building
  --faults       only plants the faults, and shows what catches each
  --only ID      only the properties whose ids start so, e.g. T2 or T2.3
  --json FILE    also writes what was found as JSON; - is standard output, and then there is no table
  --docs         writes docs/verification.md from the catalogue, and checks nothing

Example: cargo xtask verify --quick
         cargo xtask verify --only T2 --json -
";

/// Seeds of one process: each leaves the frame of a device behind.
const SHORT_BATCH: u64 = 5000;
const LONG_BATCH: u64 = 200;

/// Something to run. The first seed names a batch of random programs.
#[derive(Clone, Copy)]
enum Job<'a> {
    Check(Check),
    Planted {
        fault: Fault,
        kind: Build,
        test: &'a str,
    },
    /// A faulty variant of a specification.
    Specified {
        fault: Fault,
        variant: &'static spec::Variant,
    },
    Short(u64),
    Long(u64),
}

pub fn run(mut options: Options) -> Outcome {
    let (quick, only_faults, docs) =
        (options.flag("--quick"), options.flag("--faults"), options.flag("--docs"));
    let (only, json) = (options.text("--only")?.unwrap_or_default(), options.text("--json")?);
    options.finish()?;
    let root = command::root();
    if docs {
        if quick || only_faults || !only.is_empty() || json.is_some() {
            return Err(Failure::Usage("--docs: expected no other option beside it".into()));
        }
        return command::write(&root.join("docs/verification.md"), &report::docs());
    }
    let is_wanted = |row: &&Property| {
        row.id == only || row.id.starts_with(&only) && !row.id[only.len()..].starts_with(char::is_numeric)
    };
    let mut rows: Vec<&Property> =
        PROPERTIES.iter().filter(|row| only.is_empty() || is_wanted(row)).collect();
    if rows.is_empty() {
        return Err(Failure::Usage(format!(
            "--only: no id starts with {only:?}, expected T1 to T10 or such as T2.3"
        )));
    }
    if only_faults {
        // Of the others nothing would be seen.
        rows.retain(|row| !row.faults.is_empty());
        if rows.is_empty() {
            return Err(Failure::Usage(format!("--faults: no fault breaks {only}")));
        }
    }
    let mut checks: Vec<Check> = Vec::new();
    let mut faults: Vec<Fault> = Vec::new();
    for row in &rows {
        checks.extend(row.checks.iter().filter(|_| !only_faults));
        faults.extend(row.faults);
    }
    in_order(&mut checks);
    in_order(&mut faults);

    let with_programs = checks.iter().any(|check| check.kind == Kind::Programs);
    let kinds = [Build::Models, Build::Tests, Build::Programs];
    let checkers = Checkers::build(if with_programs { &kinds } else { &kinds[..2] })?;
    let start = Instant::now();
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for &fault in &faults {
        let test = format!("fault_{}", fault.name());
        for kind in [Build::Models, Build::Tests] {
            let tests = checkers.tests(kind, |name| name.rsplit("::").next() == Some(&test));
            jobs.extend(tests.map(|test| Job::Planted { fault, kind, test }));
        }
        let variants = spec::VARIANTS.iter().filter(|variant| variant.fault() == Some(fault.name()));
        jobs.extend(variants.map(|variant| Job::Specified { fault, variant }));
    }
    jobs.extend(checks.iter().filter(|check| check.kind != Kind::Programs).map(|check| Job::Check(*check)));
    if with_programs {
        let (short, long) = if quick { (100_000, 400) } else { (1_000_000, 10_000) };
        jobs.extend((0..long).step_by(LONG_BATCH as usize).map(Job::Long));
        jobs.extend((0..short).step_by(SHORT_BATCH as usize).map(Job::Short));
    }
    let ran = run_all(&checkers, &jobs);

    let mut results = Results { seconds: start.elapsed().as_secs_f64(), ..Results::default() };
    results.lost_anchors = rows.iter().filter_map(|row| anchors::find(root, row.anchor).err()).collect();
    results.caught.extend(faults.iter().map(|fault| (*fault, Vec::new())));
    for (job, ran) in jobs.iter().zip(ran) {
        match *job {
            Job::Check(check) => results.checks.push((check, ran)),
            Job::Planted { fault, test, .. } => results.add_caught(fault, test.to_string(), ran),
            Job::Specified { fault, variant } => results.add_caught(fault, variant.id.to_string(), ran),
            Job::Short(_) | Job::Long(_) => results.add_programs(ran),
        }
    }
    let text = format!("{:#}\n", report::json(&rows, &results));
    match json.as_deref() {
        Some("-") => print!("{text}"),
        Some(path) => command::write(path.as_ref(), &text)?,
        None => {}
    }
    if json.as_deref() != Some("-") {
        print!("{}", report::table(&rows, &results));
    }
    match results.broken(&rows) {
        0 => Ok(()),
        count => failed(format!("verify: {count} of {} properties do not hold", rows.len())),
    }
}

/// Each once, in the order in which they come.
fn in_order<T: Copy + PartialEq>(list: &mut Vec<T>) {
    let mut seen = Vec::new();
    list.retain(|entry| {
        let fresh = !seen.contains(entry);
        seen.push(*entry);
        fresh
    });
}

/// Checks a variant of a specification.
fn specified(variant: &spec::Variant) -> Ran {
    let ran = |verdict, count, seconds, said, story| Ran {
        verdict,
        count,
        unit: Unit::States,
        seconds,
        said,
        story,
    };
    match variant.check() {
        Ok(None) => ran(Verdict::Skipped, 0, 0.0, String::new(), Vec::new()),
        Ok(Some(found)) if variant.is_expected(&found) => {
            let story = found.violation.map(|(_, story)| story).unwrap_or_default();
            ran(Verdict::Holds, found.states, found.seconds, String::new(), story)
        }
        Ok(Some(found)) => {
            let said = format!("expected {:?} to be broken, found {:?}", variant.breaks, found.violation);
            ran(Verdict::Fails, found.states, found.seconds, said, Vec::new())
        }
        Err(Failure::Check(said) | Failure::Usage(said)) => ran(Verdict::Fails, 0, 0.0, said, Vec::new()),
    }
}

/// Runs the jobs on all cores, one process a job, and tells of each on standard error.
fn run_all(checkers: &Checkers, jobs: &[Job<'_>]) -> Vec<Ran> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Ran)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&job) = jobs.get(at) else { break };
            let (name, ran) = match job {
                Job::Check(check) => match check.kind.build() {
                    Some(build) => (check.to_string(), checkers.test(build, check.name)),
                    None => (check.to_string(), specified(spec::find(check.name))),
                },
                Job::Specified { fault, variant } => {
                    (format!("planted {}: {}", fault.name(), variant.id), specified(variant))
                }
                Job::Planted { fault, kind, test } => {
                    (format!("planted {}: {test}", fault.name()), checkers.test(kind, test))
                }
                Job::Short(first) => {
                    let ran = checkers.programs(first, SHORT_BATCH, true);
                    (format!("short random programs from seed {first}"), ran)
                }
                Job::Long(first) => {
                    let ran = checkers.programs(first, LONG_BATCH, false);
                    (format!("random programs from seed {first}"), ran)
                }
            };
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            let Ran { count, unit, seconds, .. } = ran;
            let (verdict, unit, all) = (report::word(ran.verdict), unit.name(), jobs.len());
            eprintln!(
                "{:>4} of {all}  {verdict:<7} {count:>7} {unit:<10} {seconds:>6.1} s  {name}",
                done.len() + 1
            );
            if ran.verdict == Verdict::Fails {
                eprintln!("{}", ran.said.trim_end());
            }
            done.push((at, ran));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| _ = scope.spawn(work)));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, ran)| ran).collect()
}
