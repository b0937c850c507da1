//! Reports of benchmarks side by side, of one turn or of several. The rows are those of `measure rows --json`; what each measures
//! stands in README.md beside this crate.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What `measure rows --json` and the peers write.
#[derive(Clone, Debug, Deserialize, Serialize)]
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
#[derive(Clone, Debug, Deserialize, Serialize)]
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

impl Report {
    /// Of several runs, of the same rows or of others: a row is the median of its medians, the least and the most.
    pub fn of_runs(runs: &[Report]) -> Option<Report> {
        let mut merged = runs.first()?.clone();
        merged.rows.clear();
        for row in runs.iter().flat_map(|run| &run.rows) {
            if merged.row(row).is_none() {
                let all: Vec<&Row> = runs.iter().filter_map(|run| run.row(row)).collect();
                let (median, ..) = spread(all.iter().map(|row| row.median).collect())?;
                let min = all.iter().map(|row| row.min).fold(f64::INFINITY, f64::min);
                let max = all.iter().map(|row| row.max).fold(f64::NEG_INFINITY, f64::max);
                merged.rows.push(Row { median, min, max, ..row.clone() });
            }
        }
        Some(merged)
    }

    /// The row that measures the same.
    fn row(&self, of: &Row) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == of.name && row.threads == of.threads)
    }
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

/// Median, least and most; `None` of nothing.
fn spread(mut values: Vec<f64>) -> Option<(f64, f64, f64)> {
    values.sort_by(f64::total_cmp);
    let (&least, &most) = (values.first()?, values.last()?);
    let middle = values.len() / 2;
    let median =
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
    Some((median, least, most))
}

/// Reports as a table, Raddle's and the peer's of each turn; rows that only one has are shown without a ratio. A ratio above 1
/// means that Raddle is better, whatever the unit. Of several turns it is the median of the ratios, with the least and the
/// most of them: what both had in one turn is compared, however the machine changes from one to the next.
pub fn table(turns: &[(Report, Report)]) -> String {
    let (ours, theirs): (Vec<Report>, Vec<Report>) = turns.iter().cloned().unzip();
    let (Some(raddle), Some(peer)) = (Report::of_runs(&ours), Report::of_runs(&theirs)) else {
        return String::new();
    };
    let mut text = String::new();
    let mut line = |cells: std::fmt::Arguments<'_>| {
        writeln!(text, "{}", cells.to_string().trim_end()).expect("a string takes any text")
    };
    line(format_args!("machine  {}", raddle.machine));
    if raddle.machine != peer.machine {
        line(format_args!("         {} for the peer: ratios between machines mean nothing", peer.machine));
    }
    line(format_args!("raddle   {}, {}", raddle.device, raddle.commit));
    line(format_args!("peer     {}, {}\n", peer.device, peer.commit));
    let spreads = if turns.len() > 1 { "(least to most)" } else { "" };
    line(format_args!(
        "{:<31} {:>7} {:>12} {:>12} {:<8} {:>7} {spreads}",
        "name", "threads", "raddle", "peer", "unit", "ratio"
    ));

    let (mut all, mut rates) = (Vec::new(), Vec::new());
    for row in &raddle.rows {
        let ratio_of = |(raddle, peer): &(Report, Report)| raddle.row(row)?.ratio(peer.row(row)?);
        let ratio = spread(turns.iter().filter_map(ratio_of).collect());
        if let Some((ratio, ..)) = ratio {
            all.push(ratio);
            if row.is_rate() {
                rates.push(ratio);
            }
        }
        let spreads = match ratio {
            Some((_, least, most)) if turns.len() > 1 => {
                format!("({} to {})", number(Some(least)), number(Some(most)))
            }
            _ => String::new(),
        };
        line(format_args!(
            "{:<31} {:>7} {:>12} {:>12} {:<8} {:>7} {spreads}",
            row.name,
            row.threads,
            number(Some(row.median)),
            number(peer.row(row).map(|other| other.median)),
            row.unit,
            number(ratio.map(|(ratio, ..)| ratio))
        ));
    }
    for other in peer.rows.iter().filter(|other| raddle.row(other).is_none()) {
        let (median, none) = (number(Some(other.median)), number(None));
        line(format_args!(
            "{:<31} {:>7} {none:>12} {median:>12} {:<8} {none:>7}",
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
        let text = table(&[(ours, theirs)]);
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
        let text = table(&[(ours, theirs)]);
        assert_eq!(text.lines().filter(|line| line.starts_with("a ")).count(), 2, "{text}");
        assert!(text.contains("geometric mean of 0 ratios: –"), "{text}");
    }

    #[test]
    fn what_turns_had_side_by_side_is_compared() {
        // Twice as slow a machine in the second turn, and a third without the peer.
        let turns = [
            (report(&[("a", 1, "ns", 10.0)]), report(&[("a", 1, "ns", 30.0)])),
            (report(&[("a", 1, "ns", 20.0), ("b", 1, "ns", 7.0)]), report(&[("a", 1, "ns", 100.0)])),
            (report(&[("a", 1, "ns", 60.0)]), report(&[])),
        ];
        let text = table(&turns);
        let row = |name: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().collect()
        };
        assert_eq!(row("a "), ["a", "1", "20.0", "65.0", "ns", "4.00", "(3.00", "to", "5.00)"]);
        assert_eq!(row("b "), ["b", "1", "7.00", "–", "ns", "–"]);
        let merged = Report::of_runs(&turns.map(|(raddle, _)| raddle)).unwrap();
        assert_eq!((merged.rows[0].median, merged.rows[0].min, merged.rows[0].max), (20.0, 10.0, 60.0));
        assert_eq!(merged.rows.len(), 2);
    }

    #[test]
    fn the_schema_is_that_of_measure_rows() {
        let text = r#"{"machine": "m", "device": "cpu", "commit": "c", "rows": [
            {"name": "copy", "threads": 1, "unit": "GB/s", "median": 2.5, "min": 2, "max": 3}]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.rows[0].name.as_str(), report.rows[0].median), ("copy", 2.5));
    }
}
