//! What was found: as a table, as JSON, and the catalogue as `docs/verification.md`.

use super::{
    Ran, Unit, Verdict,
    catalogue::{Check, Kind, PROPERTIES, Property},
};
use crate::spec;
use raddle_sync::faults::Fault;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// A test that planted a fault.
pub struct Caught {
    pub by: String,
    pub ran: Ran,
}

/// All that ran.
#[derive(Default)]
pub struct Results {
    pub checks: Vec<(Check, Ran)>,
    pub caught: Vec<(Fault, Vec<Caught>)>,
    /// What is wrong with anchors.
    pub lost_anchors: Vec<String>,
    pub seconds: f64,
}

pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails => "FAILS",
        Verdict::Skipped => "skipped",
    }
}

impl Results {
    /// What a test or a variant of a specification found that has a fault planted.
    pub fn add_caught(&mut self, fault: Fault, by: String, ran: Ran) {
        let entry = self.caught.iter_mut().find(|(other, _)| *other == fault);
        let (_, caught) = entry.expect("each fault has an entry");
        caught.push(Caught { by, ran });
    }

    /// One more batch of random programs: all of them are one check.
    pub fn add_programs(&mut self, ran: Ran) {
        let Some((_, all)) = self.checks.iter_mut().find(|(check, _)| check.kind == Kind::Programs) else {
            return self.checks.push((Check::PROGRAMS, ran));
        };
        all.count += ran.count;
        all.seconds += ran.seconds;
        if ran.verdict != Verdict::Holds {
            all.verdict = ran.verdict;
        }
    }

    fn of<'a>(&'a self, row: &'a Property) -> impl Iterator<Item = &'a Ran> {
        let is_of = |check: &Check| row.checks.contains(check);
        self.checks.iter().filter(move |(check, _)| is_of(check)).map(|(_, ran)| ran)
    }

    /// By which test: the first, if no test that plants it fails.
    fn caught(&self, fault: Fault) -> Option<&Caught> {
        let (_, tests) = self.caught.iter().find(|(other, _)| *other == fault)?;
        let survives = tests.iter().any(|test| test.ran.verdict == Verdict::Fails);
        tests.iter().find(|test| !survives && test.ran.verdict == Verdict::Holds)
    }

    fn holds(&self, row: &Property) -> bool {
        let lost = self.lost_anchors.iter().any(|lost| lost.starts_with(&format!("{}: ", row.anchor)));
        // Where only faults are planted there are no checks.
        let checked = self.checks.is_empty() || self.of(row).any(|ran| ran.verdict == Verdict::Holds);
        // Only what wants a device, or Java, may be skipped.
        let is_bad = |check: &Check, ran: &Ran| match ran.verdict {
            Verdict::Holds => false,
            Verdict::Fails => true,
            Verdict::Skipped => check.kind.is_always_there(),
        };
        let fails = self.checks.iter().any(|(check, ran)| row.checks.contains(check) && is_bad(check, ran));
        !lost && checked && !fails && row.faults.iter().all(|fault| self.caught(*fault).is_some())
    }

    /// How many properties don't hold.
    pub fn broken(&self, rows: &[&Property]) -> usize {
        rows.iter().filter(|row| !self.holds(row)).count()
    }

    /// What the checks of a row count, by unit.
    fn counts(&self, row: &Property) -> Vec<(Unit, u64)> {
        let of = |unit| self.of(row).filter(|ran| ran.unit == unit).map(|ran| ran.count).sum();
        Unit::ALL.into_iter().map(|unit| (unit, of(unit))).filter(|(_, count)| *count > 0).collect()
    }

    /// Of the first check that tells one.
    fn story<'a>(&'a self, row: &'a Property) -> &'a [String] {
        self.of(row).map(|ran| &*ran.story).find(|story| !story.is_empty()).unwrap_or_default()
    }

    /// Of the checks; where there are none, of the tests that plant.
    fn counted(&self, unit: Unit) -> u64 {
        let planted = self.caught.iter().flat_map(|(_, tests)| tests).map(|test| &test.ran);
        let planted = planted.filter(|_| self.checks.is_empty());
        let ran = self.checks.iter().map(|(_, ran)| ran).chain(planted);
        ran.filter(|ran| ran.unit == unit).map(|ran| ran.count).sum()
    }

    fn caught_count(&self) -> usize {
        self.caught.iter().filter(|(fault, _)| self.caught(*fault).is_some()).count()
    }
}

/// The report for other programs. Of a property, `cases` is the sum of all `counts`, whose units are `unit`; `story` is the
/// counterexample that a broken variant must have. A fault that survives is caught by null. Where only faults are planted,
/// `schedules` (programs × seeds) and `executions` (of models) are those that it took to catch them.
pub fn json(rows: &[&Property], results: &Results) -> Value {
    let fault = |fault: &Fault| {
        let caught = results.caught(*fault);
        json!({
            "name": fault.name(),
            "caught_by": caught.map(|caught| &caught.by),
            "after": caught.map_or(0, |caught| caught.ran.count),
            "unit": caught.map_or(Unit::Tests, |caught| caught.ran.unit).name(),
        })
    };
    let property = |row: &&Property| {
        let counts = results.counts(row);
        let by_unit: Map<String, Value> =
            counts.iter().map(|(unit, count)| (unit.name().into(), (*count).into())).collect();
        let mut property = json!({
            "id": row.id,
            "says": row.says,
            "anchor": row.anchor,
            "check": checks(row, ", "),
            "cases": results.of(row).map(|ran| ran.count).sum::<u64>(),
            "unit": units(&counts),
            "counts": by_unit,
            "seconds": results.of(row).map(|ran| ran.seconds).sum::<f64>(),
            "faults": row.faults.iter().map(fault).collect::<Vec<_>>(),
            "holds": results.holds(row),
        });
        let story = results.story(row);
        if !story.is_empty() {
            property["story"] = story.into();
        }
        property
    };
    let check = |(check, ran): &(Check, Ran)| {
        json!({
            "name": check.to_string(),
            "count": ran.count,
            "unit": ran.unit.name(),
            "seconds": ran.seconds,
            "story": ran.story,
            "result": word(ran.verdict),
        })
    };
    json!({
        "properties": rows.iter().map(property).collect::<Vec<_>>(),
        "checks": results.checks.iter().map(check).collect::<Vec<_>>(),
        "faults_planted": results.caught.len(),
        "faults_caught": results.caught_count(),
        "schedules": results.counted(Unit::Schedules),
        "executions": results.counted(Unit::Executions),
        "seconds": results.seconds,
        "holds": results.broken(rows) == 0,
    })
}

fn checks(row: &Property, between: &str) -> String {
    row.checks.iter().map(Check::to_string).collect::<Vec<_>>().join(between)
}

fn units(counts: &[(Unit, u64)]) -> String {
    counts.iter().map(|(unit, _)| unit.name()).collect::<Vec<_>>().join(" + ")
}

/// One table for people: of the properties, or of the faults where only those were planted.
pub fn table(rows: &[&Property], results: &Results) -> String {
    let mut text = String::new();
    let mut say = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string takes any text");
    if results.checks.is_empty() {
        say(format_args!("{:<5} {:<24} {:>7} {:<11} caught by", "", "fault", "after", ""));
        for (fault, tests) in &results.caught {
            let (breaks, name) = (fault.breaks(), fault.name());
            if tests.is_empty() {
                say(format_args!("{breaks:<5} {name:<24} {:>7} {:<11} NOTHING", "", ""));
            }
            for Caught { by, ran } in tests {
                let by = match ran.verdict {
                    Verdict::Holds => by.clone(),
                    Verdict::Fails => format!("NOT {by}"),
                    Verdict::Skipped => continue,
                };
                say(format_args!("{breaks:<5} {name:<24} {:>7} {:<11} {by}", ran.count, ran.unit.name()));
            }
        }
    } else {
        say(format_args!("{:<6} {:<7} {:<7} property", "", "", "faults"));
        for row in rows {
            let caught = row.faults.iter().filter(|fault| results.caught(**fault).is_some()).count();
            let result = if results.holds(row) { "holds" } else { "FAILS" };
            let faults = format!("{caught}/{}", row.faults.len());
            say(format_args!("{:<6} {result:<7} {faults:<7} {}", row.id, row.says));
            say(format_args!("{:<22} {}; {}", "", row.anchor, checks(row, ", ")));
            let counts: Vec<String> =
                results.counts(row).iter().map(|(unit, count)| format!("{count} {}", unit.name())).collect();
            say(format_args!("{:<22} {}", "", counts.join(", ")));
            for (index, step) in results.story(row).iter().enumerate() {
                say(format_args!("{:<22} {}. {step}", "", index + 1));
            }
        }
    }
    results.lost_anchors.iter().for_each(|lost| say(format_args!("anchor {lost}")));
    say(format_args!(""));
    let mut last = String::new();
    if !results.checks.is_empty() {
        let holding = rows.len() - results.broken(rows);
        last = format!("{holding} of {} properties hold; ", rows.len());
    }
    let [schedules, executions] = [Unit::Schedules, Unit::Executions].map(|unit| results.counted(unit));
    say(format_args!(
        "{last}{schedules} schedules, {executions} executions of models, {} of {} faults caught, {:.0} s",
        results.caught_count(),
        results.caught.len(),
        results.seconds
    ));
    text
}

/// `docs/verification.md`.
pub fn docs() -> String {
    let mut text = String::from(
        "# What holds, and what checks it\n\n\
         <!-- Made by `cargo xtask verify --docs` from xtask/src/verify/catalogue.rs; change that instead. -->\n\n\
         `cargo xtask verify` runs this catalogue: every check on the code that ships, and every planted fault of\n\
         `crates/sync/src/faults.rs`, which something has to catch. T1 to T10 are the invariants of the design; the\n\
         anchors are places in the code, checked to exist.\n\n\
         What a check has counted is shown with its unit: schedules (a random program with a seed), executions (of a model, by\n\
         loom), states (of an explicit model), or else tests. A planted fault is caught after so many of them. A counterexample\n\
         that a broken variant must have, such as the five steps in which a borrowed `bias` dies (T3.2), is printed below its\n\
         row as the check has found it; in the report of `--json` it is the row's `story`.\n\n\
         | check | what it is |\n|---|---|\n",
    );
    for kind in Kind::ALL {
        _ = writeln!(text, "| {} | {} |", kind.name(), kind.explained());
    }
    text += "\n## Specifications\n\nTLC checks `spec/Ticks.tla` (ticks, marks and the reuse of memory) and `spec/Lifetime.tla` (the model of the \
             lifetime of operands, TL.001 to\nTL.004) by `cargo xtask spec`. Of each faulty variant it has to find a \
             counterexample.\n\n| id | what it is | expected | properties |\n|---|---|---|---|\n";
    for variant in spec::VARIANTS {
        let is_of = |row: &&Property| {
            row.checks.iter().any(|check| check.kind == Kind::Spec && check.name == variant.id)
                || row.faults.iter().any(|fault| variant.fault() == Some(fault.name()))
        };
        let rows: Vec<&str> = PROPERTIES.iter().filter(is_of).map(|row| row.id).collect();
        let expected = variant.breaks.map_or("holds".into(), |invariant| format!("breaks `{invariant}`"));
        _ = writeln!(text, "| {} | {} | {expected} | {} |", variant.id, variant.says, rows.join(", "));
    }
    let mut group = "";
    for row in PROPERTIES {
        let invariant = row.id.split('.').next().unwrap_or_default();
        if invariant != group {
            group = invariant;
            _ = write!(
                text,
                "\n## {group} {}\n\n| id | property | where | checks | planted faults |\n|---|---|---|---|---|\n",
                row.invariant()
            );
        }
        let code = |name: &str| format!("`{name}`");
        let faults: Vec<String> = row.faults.iter().map(|fault| code(fault.name())).collect();
        let checks: Vec<String> = row.checks.iter().map(Check::markdown).collect();
        _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            row.id,
            row.says,
            code(row.anchor),
            checks.join("<br>"),
            faults.join("<br>")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKS: &[Check] =
        &[Check { kind: Kind::Test, name: "a" }, Check { kind: Kind::Device, name: "b" }];
    const ROW: Property =
        Property { id: "T1.1", says: "", anchor: "", checks: CHECKS, faults: &[Fault::forget_marks] };

    fn ran(verdict: Verdict, count: u64, unit: Unit) -> Ran {
        Ran { verdict, count, unit, seconds: 0.0, said: String::new(), story: Vec::new() }
    }

    /// A row with a test and a device's test, and no fault.
    fn holds(test: Verdict, device: Verdict) -> bool {
        let checks = CHECKS.iter().copied().zip([test, device].map(|verdict| ran(verdict, 1, Unit::Tests)));
        Results { checks: checks.collect(), ..Results::default() }.holds(&Property { faults: &[], ..ROW })
    }

    #[test]
    fn only_what_wants_a_device_may_be_skipped() {
        use Verdict::{Fails, Holds, Skipped};
        assert!(holds(Holds, Holds) && holds(Holds, Skipped));
        for (test, device) in [(Skipped, Holds), (Skipped, Skipped), (Fails, Holds), (Holds, Fails)] {
            assert!(!holds(test, device), "{test:?} {device:?}");
        }
    }

    #[test]
    fn counts_have_units_and_stories_are_told() {
        let told = Ran {
            story: vec!["create".into(), "the end".into()],
            ..ran(Verdict::Holds, 30, Unit::Schedules)
        };
        let checks = CHECKS.iter().copied().zip([told, ran(Verdict::Holds, 2, Unit::Tests)]).collect();
        let caught = |count| Caught { by: "c".into(), ran: ran(Verdict::Holds, count, Unit::Schedules) };
        let caught = vec![(Fault::forget_marks, vec![caught(4), caught(3)])];
        let mut results = Results { checks, caught, ..Results::default() };
        let value = |results: &Results| json(&[&ROW], results);
        let report = value(&results);
        let row = &report["properties"][0];
        assert_eq!(row["cases"], 32);
        assert_eq!(row["unit"], "schedules + tests");
        assert_eq!(row["counts"], serde_json::json!({ "schedules": 30, "tests": 2 }));
        assert_eq!(row["story"], serde_json::json!(["create", "the end"]));
        assert_eq!((&report["schedules"], &report["executions"]), (&30.into(), &0.into()));
        // Where only faults are planted, the schedules are those.
        results.checks.clear();
        let report = value(&results);
        assert_eq!(report["schedules"], 7);
        assert!(report["properties"][0].get("story").is_none());
    }
}
