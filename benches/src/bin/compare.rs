//! Runs `raddle bench` and the same list on PyTorch in turn on this machine, and prints both side by side.

#![forbid(unsafe_code)]

use raddle_benches::{Report, table};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

const HELP: &str = "\
Runs `raddle bench` and benches/peers/torch_cpu.py, or for a GPU torch_cuda.py, in turn and prints both side by side. A
ratio above 1 means that Raddle is better.

Usage: compare [OPTIONS]

  --device NAME    where both run (default cpu); for the peer, any cuda:N is its current GPU
  --only NAME      only the rows of this name
  --json FILE      also write both reports there, as {raddle, peer}; - is standard output
  --raddle FILE    take Raddle's report from there instead of running it
  --peer FILE      take the peer's report from there instead of running it
  --python FILE    the Python that has PyTorch (default: target/peers/torch/bin/python, or else python3)

Example: cargo run --release -p raddle-benches --bin compare -- --only gemm_1024
";

/// What is wrong, and whether the command line or a file is to blame.
enum Failure {
    Input(String),
    Run(String),
}

#[derive(Default)]
struct Options {
    device: Option<String>,
    only: Option<String>,
    json: Option<PathBuf>,
    raddle: Option<PathBuf>,
    peer: Option<PathBuf>,
    python: Option<PathBuf>,
}

/// `None`: help was asked for.
fn options(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, Failure> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .ok_or_else(|| Failure::Input(format!("{word}: expected a value, found the end of the line")))
        };
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--device" => options.device = Some(value()?),
            "--only" => options.only = Some(value()?),
            "--json" => options.json = Some(value()?.into()),
            "--raddle" => options.raddle = Some(value()?.into()),
            "--peer" => options.peer = Some(value()?.into()),
            "--python" => options.python = Some(value()?.into()),
            _ => return Err(Failure::Input(format!("expected an option, found {word:?}"))),
        }
    }
    Ok(Some(options))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("benches is a folder of the workspace")
}

fn parse(what: &str, text: &str) -> Result<Report, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Input(format!("{what}: expected a report of benchmarks, found: {error}")))
}

/// Runs a program whose standard output is a report; what it says on the way goes to our standard error.
fn measured(what: &str, command: &mut Command, only: Option<&str>) -> Result<String, Failure> {
    command.current_dir(root()).stdin(Stdio::null()).stderr(Stdio::inherit());
    command.args(only.into_iter().flat_map(|name| ["--only", name]));
    eprintln!("running {what}");
    let output =
        command.output().map_err(|error| Failure::Run(format!("{what} can't be started: {error}")))?;
    if !output.status.success() {
        return Err(Failure::Run(format!("{what} failed: {}; what it said stands above", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn raddle(device: &str, only: Option<&str>) -> Result<String, Failure> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "run",
        "--release",
        "--quiet",
        "-p",
        "raddle-cli",
        "--bin",
        "raddle",
        "--",
        "bench",
        "--device",
        device,
        "--json",
        "-",
    ]);
    measured("raddle bench", &mut command, only)
}

/// The script that runs the list of a device.
fn script(device: &str) -> Result<&'static str, Failure> {
    match device.split(':').next() {
        Some("cpu") => Ok("benches/peers/torch_cpu.py"),
        Some("cuda") => Ok("benches/peers/torch_cuda.py"),
        _ => Err(Failure::Input(format!("--device: expected cpu or cuda:ORDINAL, found {device:?}"))),
    }
}

fn peer(device: &str, python: Option<&Path>, only: Option<&str>) -> Result<String, Failure> {
    let script = script(device)?;
    let own = root().join("target/peers/torch/bin/python");
    let python = match python {
        Some(python) => python,
        None if own.exists() => &own,
        None => Path::new("python3"),
    };
    let has_torch = Command::new(python).args(["-c", "import torch"]).stdin(Stdio::null()).output();
    match has_torch {
        Err(error) => return Err(Failure::Run(format!("{} can't be started: {error}", python.display()))),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::Run(format!(
                "{} can't import PyTorch: {}\nbenches/README.md tells how to install it; --python names another Python",
                python.display(),
                said.lines().last().unwrap_or("it said nothing"),
            )));
        }
        Ok(_) => {}
    }
    let mut command = Command::new(python);
    command.args([script, "--json", "-"]);
    measured("PyTorch", &mut command, only)
}

fn run(options: &Options) -> Result<(), Failure> {
    let only = options.only.as_deref();
    let device = options.device.as_deref().unwrap_or("cpu");
    let text = |file: &Option<PathBuf>, run: &dyn Fn() -> Result<String, Failure>| match file {
        Some(path) => {
            fs::read_to_string(path).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
        }
        None => run(),
    };
    // The peer first: without PyTorch it fails at once, and not after minutes of the other.
    let peer_text = text(&options.peer, &|| peer(device, options.python.as_deref(), only))?;
    let raddle_text = text(&options.raddle, &|| raddle(device, only))?;
    let (mut peer, mut raddle) = (parse("the peer", &peer_text)?, parse("raddle", &raddle_text)?);
    if let Some(only) = only {
        for report in [&mut peer, &mut raddle] {
            report.rows.retain(|row| row.name == only);
        }
    }
    let table = table(&raddle, &peer);
    let json = format!("{{\"raddle\": {}, \"peer\": {}}}\n", raddle_text.trim(), peer_text.trim());
    match &options.json {
        Some(path) if path.as_os_str() == "-" => {
            eprint!("{table}");
            print!("{json}");
        }
        Some(path) => {
            print!("{table}");
            // Beside and renamed: never half a file.
            let partial = path.with_extension("partial");
            fs::write(&partial, json)
                .and_then(|()| fs::rename(&partial, path))
                .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        }
        None => print!("{table}"),
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = match options(env::args().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            Ok(())
        }
        Ok(Some(options)) => run(&options),
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Input(text)) => {
            eprintln!("compare: {text}");
            ExitCode::from(2)
        }
        Err(Failure::Run(text)) => {
            eprintln!("compare: {text}");
            ExitCode::from(1)
        }
    }
}
