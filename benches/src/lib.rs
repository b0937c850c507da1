//! Two reports of benchmarks side by side. The rows are those of `raddle bench --json`; what each measures stands in
//! README.md beside this crate.

#![forbid(unsafe_code)]

use serde::Deserialize;
use std::fmt::Write;

/// What `raddle bench --json` and the peers write.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// The processor, in words.
    pub machine: String,
    /// What ran on it.
    pub device: String,
    /// The version of the program.
    pub commit: String,
    /// The measurements.
    pub rows: Vec<Row>,
}

/// One measurement.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// On how many threads.
    pub threads: u32,
    /// `ns`, `us`, `ms`, `s`: less is better; anything with `/s`: more is.
    pub unit: String,
    /// Of the repeats.
    pub median: f64,
    /// Of the repeats.
    pub min: f64,
    /// Of the repeats.
    pub max: f64,
}

impl Row {
    fn is_rate(&self) -> bool {
        self.unit.ends_with("/s")
    }

    /// How many times better this row is than the peer's. `None` where it can't be said: another unit, or nothing
    /// measured.
    pub fn ratio(&self, peer: &Row) -> Option<f64> {
        let ratio = if self.is_rate() { self.median / peer.median } else { peer.median / self.median };
        (self.unit == peer.unit && ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }
}

/// Geometric mean; `None` of nothing.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp())
}

/// Both reports as a table; rows that only one has are shown without a ratio. A ratio above 1 means that Raddle is better,
/// whatever the unit.
pub fn table(raddle: &Report, peer: &Report) -> String {
    let mut text = String::new();
    let mut line =
        |cells: std::fmt::Arguments<'_>| writeln!(text, "{cells}").expect("a string takes any text");
    line(format_args!("machine  {}", raddle.machine));
    if raddle.machine != peer.machine {
        line(format_args!("         {} for the peer: ratios between machines mean nothing", peer.machine));
    }
    line(format_args!("raddle   {}, {}", raddle.device, raddle.commit));
    line(format_args!("peer     {}, {}\n", peer.device, peer.commit));
    line(format_args!(
        "{:<24} {:>7} {:>12} {:>12} {:<8} {:>7}",
        "name", "threads", "raddle", "peer", "unit", "ratio"
    ));

    let (mut all, mut rates) = (Vec::new(), Vec::new());
    let same = |a: &Row, b: &Row| a.name == b.name && a.threads == b.threads;
    for row in &raddle.rows {
        let other = peer.rows.iter().find(|other| same(row, other));
        let ratio = other.and_then(|other| row.ratio(other));
        if let Some(ratio) = ratio {
            all.push(ratio);
            if row.is_rate() {
                rates.push(ratio);
            }
        }
        line(format_args!(
            "{:<24} {:>7} {:>12} {:>12} {:<8} {:>7}",
            row.name,
            row.threads,
            number(Some(row.median)),
            number(other.map(|other| other.median)),
            row.unit,
            number(ratio)
        ));
    }
    for other in peer.rows.iter().filter(|other| !raddle.rows.iter().any(|row| same(row, other))) {
        let (median, none) = (number(Some(other.median)), number(None));
        line(format_args!(
            "{:<24} {:>7} {none:>12} {median:>12} {:<8} {none:>7}",
            other.name, other.threads, other.unit
        ));
    }
    line(format_args!("\ngeometric mean of {} ratios: {}", all.len(), number(geometric_mean(&all))));
    line(format_args!("of the {} in GB/s and GFLOP/s: {}", rates.len(), number(geometric_mean(&rates))));
    line(format_args!("above 1: Raddle is better"));
    text
}

/// About four digits.
fn number(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value >= 1000.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: &[(&str, u32, &str, f64)]) -> Report {
        let row = |&(name, threads, unit, median): &(&str, u32, &str, f64)| Row {
            name: name.into(),
            threads,
            unit: unit.into(),
            median,
            min: median,
            max: median,
        };
        Report {
            machine: "m".into(),
            device: "d".into(),
            commit: "c".into(),
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn better_is_above_one_for_times_and_rates() {
        let (ours, theirs) = (
            report(&[("a", 1, "ns", 10.0), ("b", 1, "GB/s", 30.0)]),
            report(&[("a", 1, "ns", 40.0), ("b", 1, "GB/s", 10.0)]),
        );
        assert_eq!(ours.rows[0].ratio(&theirs.rows[0]), Some(4.0));
        assert_eq!(ours.rows[1].ratio(&theirs.rows[1]), Some(3.0));
        let text = table(&ours, &theirs);
        assert!(text.contains("geometric mean of 2 ratios: 3.46"), "{text}");
        assert!(text.contains("of the 1 in GB/s and GFLOP/s: 3.00"), "{text}");
    }

    #[test]
    fn no_ratio_without_the_same_unit_and_threads() {
        let (ours, theirs) = (
            report(&[("a", 1, "ns", 10.0), ("b", 1, "ns", 0.0)]),
            report(&[("a", 2, "ns", 40.0), ("b", 1, "ns", 10.0)]),
        );
        assert_eq!(ours.rows[0].ratio(&report(&[("a", 1, "us", 1.0)]).rows[0]), None);
        assert_eq!(ours.rows[1].ratio(&theirs.rows[1]), None);
        let text = table(&ours, &theirs);
        assert_eq!(text.lines().filter(|line| line.starts_with("a ")).count(), 2, "{text}");
        assert!(text.contains("geometric mean of 0 ratios: –"), "{text}");
    }

    #[test]
    fn the_schema_is_that_of_raddle_bench() {
        let text = r#"{"machine": "m", "device": "cpu", "commit": "c", "rows": [
            {"name": "copy", "threads": 1, "unit": "GB/s", "median": 2.5, "min": 2, "max": 3}]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.rows[0].name.as_str(), report.rows[0].median), ("copy", 2.5));
    }
}
