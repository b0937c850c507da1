//! `soak --device NAME --minutes M`: many threads on a device for a long time; prints one line. Exit code 0 if nothing went
//! wrong and memory is flat, 1 if not, 2 for wrong use.

use raddle::Device;
use raddle_conformance::soak::{Options, run};
use std::{process::ExitCode, time::Duration};

const USAGE: &str =
    "usage: soak [--device NAME] [--minutes M] [--threads N] [--seed SEED] [--json FILE]  (M may be 0.5)";

struct Arguments {
    device: String,
    json: Option<String>,
    options: Options,
}

fn arguments() -> Option<Arguments> {
    let mut device = "cpu".to_string();
    let mut json = None;
    let mut options = Options { threads: 32, time: Duration::from_secs(60), seed: 0 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--device" => device = value,
            "--json" => json = Some(value),
            "--threads" => options.threads = value.parse().ok()?,
            "--seed" => options.seed = value.parse().ok()?,
            "--minutes" => {
                let minutes: f64 = value.parse().ok()?;
                options.time = Duration::try_from_secs_f64(60.0 * minutes).ok()?;
            }
            _ => return None,
        }
    }
    Some(Arguments { device, json, options })
}

fn main() -> ExitCode {
    let Some(Arguments { device, json, options }) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let report = match Device::new(&device).and_then(|device| run(&device, options)) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("soak: {error}");
            return ExitCode::FAILURE;
        }
    };
    for error in &report.first_errors {
        println!("{error}");
    }
    println!("{report}");
    if let Some(path) = json
        && let Err(error) = std::fs::write(&path, report.json() + "\n")
    {
        eprintln!("soak: {path}: {error}");
        return ExitCode::from(2);
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
