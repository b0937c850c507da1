//! The programs that check: started one by one, read for what they counted.

use super::programs::{Build, Program};
use crate::{Failure, command};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// A check that takes longer hangs: the longest takes tens of seconds.
const TIME_MAX: Duration = Duration::from_secs(300);

/// A test of a program.
struct Test {
    /// E.g. `raddle_runtime::models::model_replays`: the program's name and the test's in it.
    name: String,
    /// The index of its program.
    program: usize,
}

/// What has been built, and every test in it.
pub struct Checkers {
    programs: Vec<Program>,
    /// By name.
    tests: Vec<Test>,
    /// For what programs say.
    log: PathBuf,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    Fails,
    /// What it needs is not there.
    Skipped,
}

/// What a check did.
#[derive(Clone, Debug)]
pub struct Ran {
    pub verdict: Verdict,
    pub count: u64,
    pub unit: Unit,
    pub seconds: f64,
    /// What it said, if it fails.
    pub said: String,
    /// The steps of a counterexample that it has told: one that a broken variant must have.
    pub story: Vec<String>,
}

/// What a check counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Programs × seeds.
    Schedules,
    /// Of a model, by loom.
    Executions,
    /// Of an explicit model.
    States,
    /// Of checks that count nothing else.
    Tests,
}

impl Unit {
    pub const ALL: [Unit; 4] = [Unit::Schedules, Unit::Executions, Unit::States, Unit::Tests];

    pub fn name(self) -> &'static str {
        match self {
            Unit::Schedules => "schedules",
            Unit::Executions => "executions",
            Unit::States => "states",
            Unit::Tests => "tests",
        }
    }
}

impl Checkers {
    /// Builds these kinds. What cargo says goes to standard error.
    pub fn build(kinds: &[Build]) -> Result<Checkers, Failure> {
        let log = command::target_dir("verify");
        fs::create_dir_all(&log).map_err(|error| command::io(&log, &error))?;
        let mut checkers = Checkers { programs: Vec::new(), tests: Vec::new(), log };
        for kind in kinds {
            checkers.programs.extend(kind.run()?);
        }
        for (index, program) in checkers.programs.iter().enumerate() {
            if program.kind != Build::Programs {
                let tests = list(program)?.into_iter();
                checkers.tests.extend(
                    tests.map(|test| Test { name: format!("{}::{test}", program.name), program: index }),
                );
            }
        }
        checkers.tests.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(checkers)
    }

    /// The tests of a kind whose names pass.
    pub fn tests(&self, kind: Build, passes: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        let is_meant = move |test: &&Test| self.programs[test.program].kind == kind && passes(&test.name);
        self.tests.iter().filter(is_meant).map(|test| test.name.as_str())
    }

    /// Runs one test, or all whose names start as one that ends with `*`.
    pub fn test(&self, kind: Build, name: &str) -> Ran {
        let (start, exact) = name.strip_suffix('*').map_or((name, true), |start| (start, false));
        let is_meant = |test: &&Test| {
            self.programs[test.program].kind == kind
                && if exact { test.name == start } else { test.name.starts_with(start) }
        };
        let Some(found) = self.tests.iter().find(is_meant) else {
            return Ran::failed(format!("there is no test {name}"));
        };
        let program = &self.programs[found.program];
        let test = &start[program.name.len() + 2..];
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).arg(test).arg("--nocapture");
        if exact {
            command.args(["--exact", "--test-threads=1"]);
        }
        let ran = self.run(command, &format!("{}-{name}", kind.name()));
        read_test(ran)
    }

    /// Runs the random programs of these seeds.
    pub fn programs(&self, first: u64, count: u64, short: bool) -> Ran {
        let Some(program) = self.programs.iter().find(|program| program.kind == Build::Programs) else {
            return Ran::failed("there are no programs".into());
        };
        let mut command = Command::new(&program.path);
        command.args(["--first", &first.to_string(), "--count", &count.to_string()]);
        command.args(short.then_some("--short"));
        let kind = if short { "short" } else { "long" };
        let (ran, _) = self.run(command, &format!("programs-{kind}-{first}"));
        Ran { count, unit: Unit::Schedules, ..ran }
    }

    /// Runs a program to its end, or to the end of our patience. Its output goes to a file, which can't fill up as a pipe
    /// does.
    fn run(&self, mut command: Command, name: &str) -> (Ran, String) {
        let log = self.log.join(name.replace([':', '*'], "-"));
        let start = Instant::now();
        let ended = (|| {
            let file = fs::File::create(&log)?;
            let error_file = file.try_clone()?;
            command.env_remove("RADDLE_FAULT").env("RUST_BACKTRACE", "0").stdin(Stdio::null());
            let mut child = command.stdout(file).stderr(error_file).spawn()?;
            loop {
                if let Some(status) = child.try_wait()? {
                    return Ok(Some(status.success()));
                }
                if start.elapsed() > TIME_MAX {
                    child.kill()?;
                    child.wait()?;
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        })();
        let mut text =
            fs::read(&log).map_or(String::new(), |text| String::from_utf8_lossy(&text).into_owned());
        let verdict = match ended {
            Ok(Some(true)) => Verdict::Holds,
            Ok(Some(false)) => Verdict::Fails,
            Ok(None) => {
                text += &format!("no end after {TIME_MAX:?}\n");
                Verdict::Fails
            }
            Err(error) => {
                let error: std::io::Error = error;
                text += &format!("{error}\n");
                Verdict::Fails
            }
        };
        let said = if verdict == Verdict::Fails { text.clone() } else { String::new() };
        let seconds = start.elapsed().as_secs_f64();
        (Ran { verdict, count: 1, unit: Unit::Tests, seconds, said, story: Vec::new() }, text)
    }
}

impl Drop for Checkers {
    fn drop(&mut self) {
        // What is left behind harms nobody.
        _ = fs::remove_dir_all(&self.log);
    }
}

impl Ran {
    fn failed(said: String) -> Ran {
        let (verdict, unit, story) = (Verdict::Fails, Unit::Tests, Vec::new());
        Ran { verdict, count: 0, unit, seconds: 0.0, said, story }
    }
}

/// The tests of a program.
fn list(program: &Program) -> Result<Vec<String>, Failure> {
    let mut command = Command::new(&program.path);
    let command = command.current_dir(&program.folder).args(["--list", "--format", "terse"]);
    let name = |line: &str| line.trim_end().strip_suffix(": test").map(str::to_string);
    Ok(command::capture(command)?.stdout.lines().filter_map(name).collect())
}

/// What a run of tests counted: what it says it has counted (the last number before a unit of each line), or else the tests
/// that passed. Tests that are ignored where something is missing were skipped.
fn read_test((ran, text): (Ran, String)) -> Ran {
    let passed = number_before(&text, "passed;").unwrap_or(0);
    let verdict = match ran.verdict {
        Verdict::Holds if passed == 0 => Verdict::Skipped,
        verdict => verdict,
    };
    let ran = Ran { verdict, story: story(&text), ..ran };
    // Of tests it says how many are run, not how many passed.
    for unit in Unit::ALL.into_iter().filter(|unit| *unit != Unit::Tests) {
        let count: u64 = text.lines().filter_map(|line| number_before(line, unit.name())).sum();
        if count > 0 {
            return Ran { count, unit, ..ran };
        }
    }
    Ran { count: passed, unit: Unit::Tests, ..ran }
}

/// The steps of a story that a test tells: lines numbered from 1 on.
fn story(text: &str) -> Vec<String> {
    let mut steps = Vec::new();
    for line in text.lines() {
        if let Some(step) = line.strip_prefix(&format!("{}. ", steps.len() + 1)) {
            steps.push(step.to_string());
        }
    }
    steps
}

/// The number that stands before the first such word.
fn number_before(text: &str, word: &str) -> Option<u64> {
    let mut words = text.split_whitespace().map(|found| found.trim_end_matches([',', ':']));
    let mut last = None;
    let word = word.trim_end_matches([',', ':']);
    words.find_map(|found| {
        let number = last.take().filter(|_| found == word);
        last = found.parse().ok();
        number
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(text: &str) -> Ran {
        let (verdict, unit) = (Verdict::Holds, Unit::Tests);
        let ran = Ran { verdict, count: 1, unit, seconds: 0.0, said: String::new(), story: Vec::new() };
        read_test((ran, text.to_string()))
    }

    fn read(text: &str) -> (Verdict, u64, Unit) {
        let Ran { verdict, count, unit, .. } = ran(text);
        (verdict, count, unit)
    }

    #[test]
    fn counts_are_read() {
        let end = "running 1 test\ntest result: ok. 3 passed; 0 failed; 0 ignored";
        assert_eq!(read(end), (Verdict::Holds, 3, Unit::Tests));
        let model = format!("two readers, no fault: 5943 executions, 3 preemptions: holds\n{end}");
        assert_eq!(read(&model), (Verdict::Holds, 5943, Unit::Executions));
        let caught = format!("caught after 17 schedules\n{end}");
        assert_eq!(read(&caught), (Verdict::Holds, 17, Unit::Schedules));
        let skipped = "running 3 tests\ntest result: ok. 0 passed; 0 failed; 1 ignored";
        assert_eq!(read(skipped), (Verdict::Skipped, 0, Unit::Tests));
    }

    #[test]
    fn stories_are_read() {
        let text = "running 1 test\n30 states\n1. create\n2. the end\ntest a ... ok\n\n3 more\n1. again\n";
        assert_eq!(ran(text).story, ["create", "the end"]);
        assert!(ran("2. no beginning\n").story.is_empty());
    }
}
