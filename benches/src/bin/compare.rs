//! Runs `measure rows` and the same list on PyTorch in turn on this machine, row by row, and prints both side by side.

#![forbid(unsafe_code)]

use raddle_benches::{Report, table};
use raddle_cli::output::write_whole;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

const HELP: &str = "\
Runs `measure rows` and benches/peers/torch_cpu.py, or for a GPU torch_cuda.py, in turn and prints both side by side: row by
row, so that both meet the same machine. A ratio above 1 means that Raddle is better.

Usage: compare [OPTIONS]

  --device NAME    where both run (default cpu); for the peer, any cuda:N is its current GPU
  --only NAME      only the rows of this name; may be given again
  --turns N        each row so many times, for the median of the ratios with the least and the most (default 1)
  --json FILE      also write both reports there, as {raddle, peer}; - is standard output
  --raddle FILE    take Raddle's report from there instead of running it
  --peer FILE      take the peer's report from there instead of running it
  --python FILE    the Python that has PyTorch (default: target/peers/torch/bin/python, or else python3)

Example: cargo run --profile dist -p raddle-benches --bin compare -- --only gemm_1024 --turns 3
";

/// What is wrong, and whether the command line or a file is to blame.
enum Failure {
    Input(String),
    Run(String),
}

#[derive(Default)]
struct Options {
    device: Option<String>,
    only: Vec<String>,
    turns: Option<usize>,
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
            "--only" => options.only.push(value()?),
            "--turns" => {
                let text = value()?;
                let turns = text.parse().ok().filter(|&turns| turns > 0);
                options.turns = Some(turns.ok_or_else(|| {
                    Failure::Input(format!("--turns: expected a number from 1 on, found {text:?}"))
                })?);
            }
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

/// What a program says on standard output; what it says on the way goes to our standard error.
fn output_of(what: &str, mut command: Command) -> Result<String, Failure> {
    command.current_dir(root()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output =
        command.output().map_err(|error| Failure::Run(format!("{what} can't be started: {error}")))?;
    if !output.status.success() {
        return Err(Failure::Run(format!("{what} failed: {}; what it said stands above", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One of the two that are compared.
struct Side {
    what: &'static str,
    /// A program, and what comes before the options that both sides have.
    words: Vec<String>,
}

impl Side {
    fn raddle(device: &str) -> Side {
        let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let run = "run --profile dist --quiet -p raddle-benches --bin measure -- rows --device";
        let words = [&*cargo].into_iter().chain(run.split(' ')).chain([device]).map(String::from).collect();
        Side { what: "measure rows", words }
    }

    /// PyTorch, if this Python has it.
    fn peer(device: &str, python: Option<&Path>) -> Result<Side, Failure> {
        let script = script(device)?;
        let own = root().join("target/peers/torch/bin/python");
        let python = match python {
            Some(python) => python,
            None if own.exists() => &own,
            None => Path::new("python3"),
        };
        let has_torch = Command::new(python).args(["-c", "import torch"]).stdin(Stdio::null()).output();
        let output = has_torch
            .map_err(|error| Failure::Run(format!("{} can't be started: {error}", python.display())))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::Run(format!(
                "{} can't import PyTorch: {}\nbenches/README.md tells how to install it; --python names another Python",
                python.display(),
                said.lines().last().unwrap_or("it said nothing"),
            )));
        }
        let python = python
            .to_str()
            .ok_or_else(|| Failure::Input(format!("--python: expected UTF-8, found {}", python.display())))?;
        Ok(Side { what: "PyTorch", words: vec![python.into(), script.into()] })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }

    /// The names of its rows, in order.
    fn names(&self) -> Result<Vec<String>, Failure> {
        let mut command = self.command();
        command.arg("--list");
        let text = output_of(self.what, command)?;
        Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect())
    }

    fn measure(&self, name: &str) -> Result<Report, Failure> {
        eprintln!("{}", self.what);
        let mut command = self.command();
        command.args(["--only", name, "--json", "-"]);
        parse(self.what, &output_of(self.what, command)?)
    }
}

/// The script that runs the list of a device.
fn script(device: &str) -> Result<&'static str, Failure> {
    match device.split(':').next() {
        Some("cpu") => Ok("benches/peers/torch_cpu.py"),
        Some("cuda") => Ok("benches/peers/torch_cuda.py"),
        _ => Err(Failure::Input(format!("--device: expected cpu or cuda:ORDINAL, found {device:?}"))),
    }
}

/// A report of each side, of all its rows.
type Turn = (Report, Report);

/// Every row that `only` has, or else that there is, of both sides, each as often as asked.
fn measure(raddle: &Side, peer: &Side, only: &[String], turn_count: usize) -> Result<Vec<Turn>, Failure> {
    let (ours, theirs) = (raddle.names()?, peer.names()?);
    let all: Vec<&String> = ours.iter().chain(theirs.iter().filter(|name| !ours.contains(name))).collect();
    if let Some(unknown) = only.iter().find(|name| !all.contains(name)) {
        let known: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
        let known = known.join(", ");
        return Err(Failure::Input(format!("--only: no row is called {unknown:?}; known: {known}")));
    }
    let mut turns: Vec<(Vec<Report>, Vec<Report>)> = vec![Default::default(); turn_count];
    for name in all.into_iter().filter(|name| only.is_empty() || only.contains(name)) {
        for (own, other) in &mut turns {
            for (reports, side, names) in [(other, peer, &theirs), (own, raddle, &ours)] {
                if names.contains(name) {
                    reports.push(side.measure(name)?);
                }
            }
        }
    }
    let whole = |runs: Vec<Report>, side: &Side| {
        let none = || Failure::Input(format!("--only: {} has no such row: nothing to compare", side.what));
        Report::of_runs(&runs).ok_or_else(none)
    };
    turns.into_iter().map(|(ours, theirs)| Ok((whole(ours, raddle)?, whole(theirs, peer)?))).collect()
}

/// A turn of two files, or of one and of what is measured now.
fn with_files(options: &Options, device: &str) -> Result<Option<Turn>, Failure> {
    if options.raddle.is_none() && options.peer.is_none() {
        return Ok(None);
    }
    if options.turns.is_some() {
        return Err(Failure::Input("--turns: expected no --raddle and no --peer beside it".into()));
    }
    let report = |file: &Option<PathBuf>, side: &dyn Fn() -> Result<Side, Failure>| {
        let mut report = match file {
            Some(path) => {
                let name = path.display();
                let text = fs::read_to_string(path);
                parse(&name.to_string(), &text.map_err(|error| Failure::Input(format!("{name}: {error}")))?)?
            }
            None => {
                let side = side()?;
                let mut command = side.command();
                command.args(["--json", "-"]);
                command.args(options.only.iter().flat_map(|name| ["--only", name]));
                parse(side.what, &output_of(side.what, command)?)?
            }
        };
        report.rows.retain(|row| options.only.is_empty() || options.only.contains(&row.name));
        Ok(report)
    };
    // The peer first: without PyTorch it fails at once, and not after minutes of the other.
    let peer = report(&options.peer, &|| Side::peer(device, options.python.as_deref()))?;
    Ok(Some((report(&options.raddle, &|| Ok(Side::raddle(device)))?, peer)))
}

fn run(options: &Options) -> Result<(), Failure> {
    let device = options.device.as_deref().unwrap_or("cpu");
    let turns = match with_files(options, device)? {
        Some(turn) => vec![turn],
        None => {
            let peer = Side::peer(device, options.python.as_deref())?;
            measure(&Side::raddle(device), &peer, &options.only, options.turns.unwrap_or(1))?
        }
    };
    let table = table(&turns);
    let (ours, theirs): (Vec<Report>, Vec<Report>) = turns.into_iter().unzip();
    let both = serde_json::json!({"raddle": Report::of_runs(&ours), "peer": Report::of_runs(&theirs)});
    let json = format!("{both:#}\n");
    match &options.json {
        Some(path) if path.as_os_str() == "-" => {
            eprint!("{table}");
            print!("{json}");
        }
        Some(path) => {
            print!("{table}");
            write_whole(path, json.as_bytes()).map_err(|failure| Failure::Input(failure.to_string()))?;
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
