//! `cargo xtask fuzz`: the targets of `fuzz/`, each until its time or its number of executions is up.
//!
//! Builds them as cargo-fuzz does, but all at once, and on the stable compiler; `cargo fuzz run TARGET` works as well where
//! there is a nightly. What has been found interesting is kept in the target folder and mutated further next time; what
//! stands in `fuzz/seeds` comes first, and with it what was once a finding.

use crate::{Failure, Options, Outcome, command, failed};
use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

pub const HELP: &str = "\
Mutates what the project reads of others, under AddressSanitizer: a panic, a hang, or an allocation beyond the limit
is a finding. Builds all targets, runs them side by side, and prints a table; exits with 1 if there is a finding,
whose input is kept and can be run again. Needs a C++ compiler.

Usage: cargo xtask fuzz [OPTIONS] [TARGET]...

  --seconds N    how long each (default 60)
  --runs N       so many executions each instead, of a build that takes longer and is faster
  --jobs N       so many targets at once (default: one a core)
  --input FILE   runs one target on this file alone

Example: cargo xtask fuzz --seconds 60
         cargo xtask fuzz --runs 10000000 safetensors
         cargo xtask fuzz safetensors --input target/fuzz/artifacts/safetensors/crash-0123
";

/// One input takes milliseconds; another program may be busy beside it.
const INPUT_SECONDS_MAX: u64 = 10;
/// At once, for inputs of kilobytes.
const ALLOCATION_MIB_MAX: u64 = 64;
/// In all. The sanitizer's shadow and what it keeps of freed memory are in it.
const MEMORY_MIB_MAX: u64 = 1024;
/// Beyond the time that a target is given: it has to start, and to end its last input.
const OVERTIME: Duration = Duration::from_secs(120);

/// Where something new was reached, comparisons that guide mutations, and how deep the stack was: as cargo-fuzz has it.
const FLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
    "--cfg=fuzzing",
    "-Cdebug-assertions",
    "-Zsanitizer=address",
];

/// How long a target runs.
#[derive(Clone, Copy)]
enum Until {
    Seconds(u64),
    Runs(u64),
}

impl Until {
    /// Of `fuzz/Cargo.toml`.
    fn profile(self) -> &'static str {
        match self {
            Until::Seconds(_) => "release",
            Until::Runs(_) => "soak",
        }
    }
}

/// Builds and runs.
pub fn run(mut options: Options) -> Outcome {
    let seconds = options.number("--seconds", 60)?;
    let runs = options.number("--runs", 0)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let jobs = options.number("--jobs", cores)?.max(1);
    let input = options.text("--input")?;
    let known = targets(&command::root().join("fuzz/fuzz_targets"))?;
    let chosen = options.words()?;
    if let Some(other) = chosen.iter().find(|name| !known.contains(name)) {
        return Err(Failure::Usage(format!("expected a target of {}, found {other:?}", known.join(", "))));
    }
    let chosen = if chosen.is_empty() { known } else { chosen };
    if let Some(input) = input {
        let [target] = &chosen[..] else {
            return Err(Failure::Usage("--input: expected one target beside it".into()));
        };
        let folder = build("release")?;
        return command::stream(&mut with_limits(&folder, target, Path::new(&input)));
    }
    let until = if runs > 0 { Until::Runs(runs) } else { Until::Seconds(seconds) };
    let folder = build(until.profile())?;
    report(run_all(chosen, jobs, |target| fuzz(&folder, target, until)))
}

/// The names of the targets, sorted.
fn targets(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| command::io(folder, &error))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds all targets; where they lie.
fn build(profile: &str) -> Result<PathBuf, Failure> {
    let version = command::capture(command::program("rustc").arg("-vV"))?.stdout;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let target_dir = command::target_dir("fuzz");
    let mut cargo = command::cargo();
    // Flags don't reach build scripts and macros if a target is named.
    cargo.args([
        "build",
        "--profile",
        profile,
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        host,
        "--target-dir",
    ]);
    cargo.arg(&target_dir).env("RUSTFLAGS", FLAGS.join(" "));
    // -Z needs either a nightly or this.
    command::stream(cargo.env("RUSTC_BOOTSTRAP", "1"))?;
    Ok(target_dir.join(host).join(profile))
}

/// A target with what every run of it is held to.
fn with_limits(folder: &Path, target: &str, first: &Path) -> Command {
    let mut command = command::program(folder.join(target));
    command.arg(first).args([
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-malloc_limit_mb={ALLOCATION_MIB_MAX}"),
        format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
        // What lives as long as the process is no leak.
        "-detect_leaks=0".into(),
    ]);
    // Freed memory that is kept, to see its use, counts.
    command.env("ASAN_OPTIONS", "quarantine_size_mb=32").env("RAYON_NUM_THREADS", "1");
    command
}

/// What came of a target.
#[derive(Debug, Default, PartialEq)]
struct Done {
    target: String,
    executions: u64,
    seconds: f64,
    coverage: u64,
    memory_mib: u64,
    /// The point, the input, and the last lines.
    finding: Option<(String, Option<String>, String)>,
}

fn fuzz(folder: &Path, target: &str, until: Until) -> Result<Done, Failure> {
    let made = |kind: &str| -> Result<PathBuf, Failure> {
        let path = command::target_dir("fuzz").join(kind).join(target);
        fs::create_dir_all(&path).map_err(|error| command::io(&path, &error))?;
        Ok(path)
    };
    let (corpus, artifacts) = (made("corpus")?, made("artifacts")?);
    let mut fuzzer = with_limits(folder, target, &corpus);
    let seeds = command::root().join("fuzz/seeds").join(target);
    fuzzer.args(seeds.is_dir().then_some(&seeds));
    let words = command::root().join(format!("fuzz/dictionaries/{target}.dict"));
    fuzzer.args(words.is_file().then(|| format!("-dict={}", words.display())));
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display())).arg("-print_final_stats=1");
    let limit = match until {
        Until::Seconds(seconds) => {
            fuzzer.arg(format!("-max_total_time={seconds}"));
            Duration::from_secs(seconds) + OVERTIME
        }
        Until::Runs(runs) => {
            fuzzer.arg(format!("-runs={runs}"));
            Duration::MAX
        }
    };
    let start = std::time::Instant::now();
    let log = command::target_dir("fuzz").join(target);
    let Some(finished) = command::capture_within(&mut fuzzer, limit, &log)? else {
        return failed(format!("{target}: still running {} s after its time", OVERTIME.as_secs()));
    };
    let done = done(target, &finished.stderr, finished.is_good());
    Ok(Done { seconds: start.elapsed().as_secs_f64(), ..done })
}

/// Reads what libFuzzer prints.
fn done(target: &str, said: &str, is_good: bool) -> Done {
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let stat = |name: &str| {
        let line = said.lines().rev().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or(0, number)
    };
    let coverage =
        said.lines().rev().find_map(|line| line.split_once(" cov: ")).map_or(0, |(_, rest)| number(rest));
    let finding = (!is_good).then(|| {
        let lines: Vec<&str> = said.lines().collect();
        let is_point =
            |line: &&&str| ["panicked at", "ERROR: ", "SUMMARY: "].iter().any(|sign| line.contains(sign));
        let at = lines.iter().position(|line| is_point(&line)).unwrap_or(lines.len().saturating_sub(1));
        // A panic's text stands in the line after its place.
        let point = lines[at..].iter().take(2).map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let input =
            said.lines().find_map(|line| Some(line.split_once("Test unit written to ")?.1.trim().into()));
        (point, input, lines[lines.len().saturating_sub(40)..].join("\n"))
    });
    Done {
        target: target.into(),
        executions: stat("stat::number_of_executed_units"),
        seconds: 0.0,
        coverage,
        memory_mib: stat("stat::peak_rss_mb"),
        finding,
    }
}

/// Runs so many at once; results are in the order of the names.
fn run_all(
    targets: Vec<String>,
    jobs: u64,
    fuzz: impl Fn(&str) -> Result<Done, Failure> + Sync,
) -> Vec<Result<Done, Failure>> {
    let waiting: Mutex<VecDeque<(usize, String)>> = Mutex::new(targets.into_iter().enumerate().collect());
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let next = waiting.lock().expect("nobody panics with it").pop_front();
            let Some((index, target)) = next else { return };
            let result = fuzz(&target);
            done.lock().expect("nobody panics with it").push((index, result));
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| _ = scope.spawn(work)));
    let mut done = done.into_inner().expect("nobody panics with it");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The table, and what is wrong.
fn report(all: Vec<Result<Done, Failure>>) -> Outcome {
    let mut table = format!(
        "{:<12} {:>9} {:>12} {:>8} {:>8} {:>8}  result\n",
        "target", "seconds", "executions", "1/s", "reached", "MiB"
    );
    let (mut points, mut said) = (Vec::new(), String::new());
    for result in all {
        let done = match result {
            Ok(done) => done,
            Err(Failure::Check(text) | Failure::Usage(text)) => {
                points.push(text);
                continue;
            }
        };
        let rate = done.executions as f64 / done.seconds.max(0.001);
        table += &format!(
            "{:<12} {:>9.0} {:>12} {rate:>8.0} {:>8} {:>8}  {}\n",
            done.target,
            done.seconds,
            done.executions,
            done.coverage,
            done.memory_mib,
            if done.finding.is_some() { "FINDING" } else { "ok" }
        );
        if let Some((point, input, lines)) = done.finding {
            points.push(format!("{}: {point}", done.target));
            said += &format!("\n--- {}\n{lines}\n", done.target);
            if let Some(input) = input {
                points.push(format!("again: cargo xtask fuzz {} --input {input}", done.target));
            }
        } else if done.executions == 0 {
            points.push(format!("{}: nothing was executed", done.target));
        }
    }
    if points.is_empty() {
        print!("{table}");
        return Ok(());
    }
    failed(format!("{}\n\n{table}{}", points.join("\n"), said.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_read() {
        let said = "#2\tINITED cov: 7 ft: 7\n#99\tDONE   cov: 3160 ft: 9 corp: 8/4b\n\
                    stat::number_of_executed_units: 123456\nstat::peak_rss_mb:              98\n";
        let expected = Done {
            target: "trace".into(),
            executions: 123456,
            coverage: 3160,
            memory_mib: 98,
            ..Done::default()
        };
        assert_eq!(done("trace", said, true), expected);
    }

    #[test]
    fn a_finding_is_named_with_its_input() {
        let said = "thread '<unnamed>' (1) panicked at src/safetensors.rs:12:5:\n a name stands twice\nmore\n\
                    Test unit written to target/fuzz/artifacts/safetensors/crash-01\n";
        let found = done("safetensors", said, false);
        let Err(Failure::Check(text)) = report(vec![Ok(found)]) else { panic!("expected a finding") };
        let first: Vec<&str> = text.lines().take(2).collect();
        assert_eq!(
            first,
            [
                "safetensors: thread '<unnamed>' (1) panicked at src/safetensors.rs:12:5: a name stands twice",
                "again: cargo xtask fuzz safetensors --input target/fuzz/artifacts/safetensors/crash-01"
            ]
        );
        assert!(text.contains("FINDING") && text.contains("--- safetensors"), "{text}");
    }

    #[test]
    fn nothing_executed_is_no_success() {
        let Err(Failure::Check(text)) = report(vec![Ok(done("trace", "", true))]) else {
            panic!("it passed")
        };
        assert!(text.starts_with("trace: nothing was executed"), "{text}");
        assert!(report(vec![Ok(done("trace", "stat::number_of_executed_units: 5", true))]).is_ok());
    }

    #[test]
    fn all_targets_run_and_keep_their_order() {
        let names: Vec<String> = (0..9).map(|index| format!("target {index}")).collect();
        let run = |target: &str| Ok(Done { target: target.into(), ..Done::default() });
        let done = run_all(names.clone(), 3, run);
        let found: Vec<String> = done.into_iter().map(|done| done.ok().expect("it ran").target).collect();
        assert_eq!(found, names);
    }
}
