//! `cargo xtask soak`: random programs on the simulator, compared with running them in sequence, until the time is up; or
//! many threads on one device, whose memory must stay flat.

use crate::{Failure, Options, Outcome, command, failed};
use std::{
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

pub const HELP: &str = "\
Random programs until the time is up, in processes of some hundred seeds; prints seeds per second and failing seeds.

Usage: cargo xtask soak --minutes M [OPTIONS]

  --minutes M    how long (default 1)
  --seeds N      stop after so many instead
  --first SEED   where to start (default: the clock, so that every run sees new ones)
  --batch N      seeds a process (default 250)
  --large        also the ignored tests, which need gigabytes
  --device NAME  instead: threads on this device, each result checked, memory flat; one line at the end
  --threads N    so many, with --device (default 32)

Example: cargo xtask soak --minutes 30
         cargo xtask soak --minutes 8 --device cuda:0
";

/// A batch that takes longer than this hangs: it takes seconds.
const BATCH_TIME_MAX: Duration = Duration::from_secs(600);

/// Optimized.
fn build(name: &str) -> Result<PathBuf, Failure> {
    command::stream(command::cargo().args([
        "build",
        "--release",
        "-p",
        "raddle-conformance",
        "--bin",
        name,
    ]))?;
    Ok(command::target_dir("release").join(name))
}

/// Builds the programs as they ship, but able to plant faults and with the ranks of locks checked.
pub fn build_checked() -> Result<PathBuf, Failure> {
    let folder = command::target_dir("faults");
    let mut cargo = command::cargo();
    cargo
        .args([
            "build",
            "--release",
            "-p",
            "raddle-conformance",
            "--no-default-features",
            "--bin",
            "programs",
        ])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", "--cfg raddle_faults");
    command::stream(&mut cargo)?;
    Ok(folder.join("release/programs"))
}

/// Threads on one device.
fn on_device(device: &str, minutes: u64, threads: u64) -> Outcome {
    let mut soak = command::program(build("soak")?);
    let numbers = [minutes, threads].map(|number| number.to_string());
    soak.args(["--device", device, "--minutes", &numbers[0], "--threads", &numbers[1]]);
    command::stream(&mut soak)
}

/// Runs until the time is up. All failing batches are told; the run goes on after one.
pub fn run(mut options: Options) -> Outcome {
    let minutes = options.number("--minutes", 1)?;
    let seeds = options.number("--seeds", 0)?;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut first = options.number("--first", clock * 1000)?;
    let batch = options.number("--batch", 250)?.max(1);
    let large = options.flag("--large");
    let device = options.text("--device")?;
    let threads = options.number("--threads", 32)?;
    options.finish()?;
    if let Some(device) = device {
        return on_device(&device, minutes, threads);
    }

    let programs = build("programs")?;
    let log = command::target_dir("soak");
    std::fs::create_dir_all(&log).map_err(|error| command::io(&log, &error))?;
    let start = Instant::now();
    let (mut done, mut failures) = (0, Vec::new());
    println!("from seed {first}");
    while if seeds > 0 { done < seeds } else { start.elapsed() < Duration::from_secs(60 * minutes) } {
        let count = if seeds > 0 { batch.min(seeds - done) } else { batch };
        let mut command = command::program(&programs);
        command.args(["--first", &first.to_string(), "--count", &count.to_string()]);
        let finished = command::capture_within(&mut command, BATCH_TIME_MAX, &log.join("batch"))?;
        match finished {
            Some(finished) if finished.is_good() => {}
            Some(finished) => {
                println!("{}", finished.output().trim_end());
                failures.push(format!(
                    "seeds {first} to {}: exit code {:?}",
                    first + count - 1,
                    finished.code
                ));
            }
            None => failures
                .push(format!("seeds {first} to {}: no end after {BATCH_TIME_MAX:?}", first + count - 1)),
        }
        done += count;
        first += count;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{done} seeds in {seconds:.0} s, {:.1} seeds/s, failing batches: {}",
        done as f64 / seconds,
        failures.len()
    );
    if large {
        let ignored =
            ["test", "--release", "-p", "raddle-conformance", "--", "--ignored", "--test-threads=1"];
        command::stream(command::cargo().args(ignored))?;
    }
    if failures.is_empty() { Ok(()) } else { failed(failures.join("\n")) }
}
