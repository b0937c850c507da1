//! `cargo xtask check`: what CI runs, cheapest first.

use crate::{
    Failure, Options, Outcome,
    command::{self, capture, cargo},
    failed, layers, tidy,
};
use std::{
    io::IsTerminal,
    process::Command,
    time::{Duration, Instant},
};

pub const HELP: &str = "\
Everything cheap that CI runs, cheapest first; stops at the first failure, whose point is the first line printed.

Usage: cargo xtask check [OPTIONS]

  --only STEP     only this step: tidy, layers, fmt, clippy, docs or tests
  --skip STEP     not this step
  --keep-going    all steps, whatever fails

Example: cargo xtask check --skip tests
";

type Step = (&'static str, fn() -> Outcome);
const STEPS: [Step; 6] = [
    ("tidy", tidy::run),
    ("layers", layers::run),
    ("fmt", || tool(cargo().args(["fmt", "--all", "--check"]))),
    ("clippy", || {
        tool(cargo().args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
    }),
    ("docs", || {
        let docs = ["doc", "--workspace", "--no-deps", "--quiet"];
        // With private items first: their links are read by whoever changes them. What stays in `target/doc` is without.
        let flags = "-D rustdoc::broken_intra_doc_links -A rustdoc::private_intra_doc_links";
        tool(cargo().args(docs).arg("--document-private-items").env("RUSTDOCFLAGS", flags))?;
        let flags = "-D rustdoc::broken_intra_doc_links -D rustdoc::private_intra_doc_links -D rustdoc::invalid_html_tags";
        tool(cargo().args(docs).env("RUSTDOCFLAGS", flags))
    }),
    ("tests", || tool(cargo().args(["test", "--workspace", "--quiet"]))),
];

/// Runs a tool; if it fails, the line with the point comes first, and all that it said after it.
fn tool(command: &mut Command) -> Outcome {
    let finished = capture(command)?;
    if finished.is_good() {
        return Ok(());
    }
    let output = finished.output();
    failed(format!("{}\n\n`{}` said:\n{}", point(&output), command::line(command), output.trim_end()))
}

/// The line that says what is wrong: the first that looks like an error, or else the first.
fn point(output: &str) -> String {
    let is_point = |line: &&str| {
        line.starts_with("error")
            || line.starts_with("Diff in")
            || line.contains("panicked at")
            || line.contains("FAILED")
    };
    let mut lines = output.lines().filter(|line| !line.trim().is_empty());
    let first = lines.clone().next().unwrap_or("it failed and said nothing");
    let Some(found) = lines.find(is_point) else { return first.into() };
    // Where it is stands in the line below; what a test says, too.
    match lines.next().map(str::trim) {
        Some(next) if next.starts_with("-->") || found.contains("panicked at") => format!("{found} {next}"),
        _ => found.into(),
    }
}

/// What became of a step.
struct Done {
    name: &'static str,
    took: Duration,
    outcome: Option<Outcome>,
}

/// Runs the steps and reports them.
pub fn run(mut options: Options) -> Outcome {
    let only = options.text("--only")?;
    let skip = options.text("--skip")?;
    let keep_going = options.flag("--keep-going");
    options.finish()?;
    for name in [&only, &skip].into_iter().flatten() {
        if !STEPS.iter().any(|(known, _)| known == name) {
            let known: Vec<_> = STEPS.iter().map(|(known, _)| *known).collect();
            return Err(Failure::Usage(format!("expected one of {}, found {name:?}", known.join(", "))));
        }
    }
    let wanted =
        |name: &str| only.as_deref().is_none_or(|only| only == name) && skip.as_deref() != Some(name);
    report(run_steps(&STEPS.map(|step| (step, wanted(step.0))), keep_going))
}

fn run_steps(steps: &[(Step, bool)], keep_going: bool) -> Vec<Done> {
    let mut broken = false;
    let mut done = Vec::new();
    for &((name, step), wanted) in steps {
        let start = Instant::now();
        let outcome = (wanted && (keep_going || !broken)).then(|| {
            let progress = std::io::stderr().is_terminal();
            if progress {
                eprint!("{name} …");
            }
            let outcome = step();
            if progress {
                eprint!("\r\x1b[K");
            }
            outcome
        });
        broken |= matches!(outcome, Some(Err(_)));
        done.push(Done { name, took: start.elapsed(), outcome });
    }
    done
}

/// The first failure's point, the table, and all that the failures said.
fn report(done: Vec<Done>) -> Outcome {
    let mut table = String::from("step      seconds  result\n");
    let mut points = Vec::new();
    let mut said = String::new();
    for Done { name, took, outcome } in done {
        let result = match outcome {
            None => "not run",
            Some(Ok(())) => "good",
            Some(Err(Failure::Check(text) | Failure::Usage(text))) => {
                points.push(format!("{name}: {}", text.lines().next().unwrap_or_default()));
                said += &format!("\n--- {name}\n{text}\n");
                "FAILED"
            }
        };
        table += &format!("{name:<8} {:>8.1}  {result}\n", took.as_secs_f64());
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
    fn the_point_is_the_first_error() {
        assert_eq!(
            point("warning: old\nerror[E0308]: mismatched types\n  --> a.rs:1:2\n"),
            "error[E0308]: mismatched types --> a.rs:1:2"
        );
        assert_eq!(
            point("running 1 test\nthread 'a' panicked at a.rs:1:2:\nleft is not right\n"),
            "thread 'a' panicked at a.rs:1:2: left is not right"
        );
        assert_eq!(point("\nwhatever\n"), "whatever");
    }

    #[test]
    fn the_first_failure_comes_first_and_ends_the_run() {
        let good: Step = ("good", || Ok(()));
        let bad: Step = ("bad", || failed("the point\nthe rest"));
        let outcome = report(run_steps(&[(good, true), (bad, true), (good, true)], false));
        let Err(Failure::Check(text)) = outcome else { panic!("expected a failure") };
        assert!(text.starts_with("bad: the point\n\nstep"), "{text}");
        assert!(text.contains("not run") && text.ends_with("--- bad\nthe point\nthe rest"), "{text}");
        assert!(report(run_steps(&[(good, true), (bad, false)], false)).is_ok());
    }

    #[test]
    fn all_failures_are_told_when_going_on() {
        let bad: Step = ("bad", || failed("the point"));
        let done = run_steps(&[(bad, true), (bad, true)], true);
        assert!(done.iter().all(|done| matches!(done.outcome, Some(Err(_)))));
    }
}
