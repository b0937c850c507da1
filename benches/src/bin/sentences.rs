//! Sentences through Raddle, sentence-transformers and candle, in turn on this machine, side by side.

#![forbid(unsafe_code)]

use raddle::{Device, nn::text::SentenceEncoder};
use raddle_benches::Report;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

const HELP: &str = "\
Runs `raddle embed`, the encoder from Rust, benches/peers/sentences.py (sentence-transformers) and benches/peers/candle in turn,
and prints them side by side. A ratio above 1 means that Raddle is better.

Usage: sentences [OPTIONS]

  --model FOLDER   all-MiniLM-L6-v2 (default: target/models/all-MiniLM-L6-v2, which benches/peers/minilm.py makes)
  --rounds N       so often each, in turn (default 3)
  --only PART      mixed or single: all otherwise
  --without PEER   torch or candle: leave it out
  --json FILE      also write all rows there; - is standard output
  --raddle FILE    the program (default: the one beside this)
  --candle FILE    candle's peer (default: built by cargo in benches/peers/candle)
  --python FILE    the Python that has sentence-transformers (default: target/peers/torch/bin/python, or else python3)

Example: cargo run --profile dist -p raddle-benches --bin sentences -- --rounds 3 --json target/sentences.json
";

type Failure = String;
/// By name of the row, then by who: unit and values, one a round.
type Table = BTreeMap<String, BTreeMap<&'static str, (String, Vec<f64>)>>;

/// What issue and ANCHORS ask for: row, peer, ratio.
const GOALS: [(&str, &str, f64); 4] = [
    ("sentences_mixed", "torch", 1.3),
    ("sentences_mixed", "candle", 2.0),
    ("sentences_single", "torch", 2.0),
    // At most 0.6 times as long.
    ("sentence_latency", "torch", 1.0 / 0.6),
];
/// Seconds from the start of the program to its first answer.
const START_MAX: f64 = 1.0;

struct Options {
    model: PathBuf,
    rounds: usize,
    only: Option<String>,
    without: Vec<String>,
    json: Option<PathBuf>,
    raddle: PathBuf,
    candle: Option<PathBuf>,
    python: PathBuf,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("benches is a folder of the workspace")
}

fn options() -> Result<Option<Options>, Failure> {
    let own = root().join("target/peers/torch/bin/python");
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut options = Options {
        model: root().join("target/models/all-MiniLM-L6-v2"),
        rounds: 3,
        only: None,
        without: Vec::new(),
        json: None,
        raddle: program.with_file_name("raddle"),
        candle: None,
        python: if own.exists() { own } else { "python3".into() },
    };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word}: expected a value, found the end of the line"));
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--model" => options.model = value()?.into(),
            "--rounds" => {
                let text = value()?;
                let rounds = text.parse().ok().filter(|rounds| *rounds > 0);
                options.rounds =
                    rounds.ok_or(format!("--rounds: expected a number from 1, found {text:?}"))?;
            }
            "--only" => options.only = Some(value()?),
            "--without" => options.without.push(value()?),
            "--json" => options.json = Some(value()?.into()),
            "--raddle" => options.raddle = value()?.into(),
            "--candle" => options.candle = Some(value()?.into()),
            "--python" => options.python = value()?.into(),
            _ => return Err(format!("expected an option, found {word:?}")),
        }
    }
    Ok(Some(options))
}

/// What a command prints; what it says on the way goes to our standard error.
fn output(what: &str, command: &mut Command) -> Result<String, Failure> {
    eprintln!("running {what}");
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{what} can't be started: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{what} failed: {}; what it said stands above", output.status)),
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// One round of ours: name, unit, value.
fn ours(
    options: &Options,
    mixed: &Path,
    single: &Path,
) -> Result<Vec<(&'static str, &'static str, f64)>, Failure> {
    let mut rows = Vec::new();
    let wanted = |part: &str| options.only.as_deref().is_none_or(|only| only == part);
    let vectors = mixed.with_extension("npy");
    let embed = |input: &Path| {
        let mut command = Command::new(&options.raddle);
        command.arg("embed").arg("--model").arg(&options.model).arg("--input").arg(input);
        command.arg("--output").arg(&vectors).args(["--json", "-"]);
        output("raddle embed", &mut command)
    };
    if wanted("mixed") {
        let report: serde_json::Value =
            serde_json::from_str(&embed(mixed)?).map_err(|error| error.to_string())?;
        let rate = report["sentences_per_s"].as_f64().ok_or("raddle embed: no sentences_per_s")?;
        rows.push(("sentences_mixed", "1/s", rate));
    }
    if wanted("single") {
        let text = fs::read_to_string(single).map_err(|error| error.to_string())?;
        let one = single.with_extension("one");
        fs::write(&one, text.lines().next().unwrap_or_default()).map_err(|error| error.to_string())?;
        let start = Instant::now();
        embed(&one)?;
        rows.push(("start_to_answer", "s", start.elapsed().as_secs_f64()));
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let device = Device::new("cpu").map_err(|error| failed(&error))?;
        let model = SentenceEncoder::load(&options.model, &device).map_err(|error| failed(&error))?;
        let lines: Vec<&str> = text.lines().collect();
        let alone = |thread: usize, threads: usize, count: usize| -> Vec<f64> {
            let call = |index: usize| {
                let start = Instant::now();
                let text = lines[(thread + index * threads) % lines.len()];
                let vector = model.encode(&[text]).and_then(|vector| Ok(vector.to_vec::<f32>()?));
                assert_eq!(vector.map(|vector| vector.len()).ok(), Some(model.width()));
                start.elapsed().as_secs_f64()
            };
            (0..count).map(call).collect()
        };
        let together = |count: usize| {
            let start = Instant::now();
            std::thread::scope(|scope| {
                let alone = &alone;
                (0..2).for_each(|thread| _ = scope.spawn(move || alone(thread, 2, count)));
            });
            start.elapsed().as_secs_f64()
        };
        together(20);
        rows.push(("sentences_single", "1/s", 400.0 / together(200)));
        alone(0, 1, 20);
        rows.push(("sentence_latency", "ms", 1e3 * median(&alone(0, 1, 200))));
    }
    Ok(rows)
}

/// The peers' commands.
fn peers(options: &Options, mixed: &Path, single: &Path) -> Result<Vec<(&'static str, Command)>, Failure> {
    let mut peers = Vec::new();
    let wanted = |peer: &str| !options.without.iter().any(|other| other == peer);
    if wanted("torch") {
        let mut command = Command::new(&options.python);
        command.arg(root().join("benches/peers/sentences.py"));
        command.arg("--model").arg(&options.model).arg("--mixed").arg(mixed).arg("--single").arg(single);
        command.args(options.only.iter().flat_map(|only| ["--only", only]));
        peers.push(("torch", command));
    }
    if wanted("candle") {
        let mut command = match &options.candle {
            Some(program) => Command::new(program),
            None => {
                let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
                // There, so that its settings are found.
                command.current_dir(root().join("benches/peers/candle"));
                command.args(["run", "--release", "--quiet", "--target-dir"]);
                command.arg(root().join("target/peers/candle")).arg("--");
                command
            }
        };
        command.arg(&options.model).arg(mixed).arg(single).arg("1").args(&options.only);
        peers.push(("candle", command));
    }
    Ok(peers)
}

fn run(options: &Options) -> Result<bool, Failure> {
    let folder = root().join("target/sentences");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let (mixed, single) = (folder.join("mixed.txt"), folder.join("single.txt"));
    let mut make = Command::new("python3");
    make.arg(root().join("benches/peers/sentences.py")).arg("--make").arg("--model").arg(&options.model);
    output("sentences.py --make", make.arg("--mixed").arg(&mixed).arg("--single").arg(&single))?;
    let mut table = Table::new();
    let mut about = BTreeMap::new();
    for _ in 0..options.rounds {
        let mut note = |name: &str, who: &'static str, unit: &str, value: f64| {
            let row = table.entry(name.into()).or_default();
            row.entry(who).or_insert_with(|| (unit.into(), Vec::new())).1.push(value);
        };
        for (who, mut command) in peers(options, &mixed, &single)? {
            let report: Report = serde_json::from_str(&output(who, &mut command)?)
                .map_err(|error| format!("{who}: expected a report of benchmarks, found: {error}"))?;
            about.insert(who, report.device);
            for row in report.rows {
                note(&row.name, who, &row.unit, row.median);
            }
        }
        for (name, unit, value) in ours(options, &mixed, &single)? {
            note(name, "raddle", unit, value);
        }
    }
    let (text, reached) = print(&table, &about);
    match options.json.as_deref() {
        Some(path) if path == Path::new("-") => {
            eprint!("{text}");
            println!("{:#}", json(&table, &about));
        }
        Some(path) => {
            print!("{text}");
            let text = format!("{:#}\n", json(&table, &about));
            raddle_cli::output::write_whole(path, text.as_bytes()).map_err(|failure| failure.to_string())?;
        }
        None => print!("{text}"),
    }
    Ok(reached)
}

fn json(table: &Table, about: &BTreeMap<&'static str, String>) -> serde_json::Value {
    serde_json::json!({ "peers": about, "rows": table.iter().map(|(name, row)| {
        let who = |(who, (unit, values)): (&&str, &(String, Vec<f64>))| {
            (who.to_string(), serde_json::json!({ "unit": unit, "median": median(values), "values": values }))
        };
        (name.clone(), row.iter().map(who).collect::<serde_json::Map<_, _>>().into())
    }).collect::<serde_json::Map<String, serde_json::Value>>() })
}

/// The table, and whether all goals are reached.
fn print(table: &Table, about: &BTreeMap<&'static str, String>) -> (String, bool) {
    let (mut text, mut reached) = (String::new(), true);
    for (who, device) in about {
        text += &format!("{who:8} {device}\n");
    }
    text += "median (least to most) of the rounds; a ratio above 1: Raddle is better\n";
    let shown = |values: &[f64]| {
        let (least, most) =
            values.iter().fold((f64::INFINITY, 0.0f64), |(least, most), x| (least.min(*x), most.max(*x)));
        format!("{:.3} ({least:.3} to {most:.3})", median(values))
    };
    for (name, row) in table {
        for (who, (unit, values)) in row {
            text += &format!("{name:26} {who:8} {:36} {unit}", shown(values));
            let ours = row.get("raddle").map(|(_, values)| values);
            if let Some(ours) = ours.filter(|_| *who != "raddle") {
                // Round by round: what disturbs one disturbs its neighbour.
                let ratio = |(ours, theirs): (&f64, &f64)| {
                    if unit.ends_with("/s") { ours / theirs } else { theirs / ours }
                };
                let ratios: Vec<f64> = ours.iter().zip(values).map(ratio).collect();
                text += &format!("  ratio {}", shown(&ratios));
                if let Some((.., goal)) = GOALS.iter().find(|(row, peer, _)| row == name && peer == who) {
                    let missed = median(&ratios) < *goal;
                    text += &format!(", to reach {goal:.2}{}", if missed { ": missed" } else { "" });
                    reached &= !missed;
                }
            } else if name == "start_to_answer" {
                let missed = median(values) > START_MAX;
                text += &format!("  to reach ≤ {START_MAX}{}", if missed { ": missed" } else { "" });
                reached &= !missed;
            }
            text.push('\n');
        }
    }
    (text, reached)
}

fn main() -> ExitCode {
    let done = match options() {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => run(&options),
        Err(failure) => {
            eprintln!("sentences: {failure}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("sentences: a goal is missed");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("sentences: {failure}");
            ExitCode::FAILURE
        }
    }
}
