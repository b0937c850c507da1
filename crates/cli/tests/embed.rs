//! `raddle embed`: streams of any size, runs that end in the middle, models by their names.

mod shared;

use raddle::nn::text::{BertConfig, write_random_model};
use raddle_sync::faults::{Fault, assert_caught};
use serde_json::{Value, json};
use shared::{assert_refused, form::assert_form, raddle};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// What a command writes with `--json -`: JSON and nothing else.
fn report(arguments: &[&str]) -> Value {
    let output = raddle(&[arguments, &["--json", "-"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder with a random model, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("raddle-{}-embed-{name}", std::process::id()));
        let device = raddle::Device::new("cpu").unwrap();
        let words = ["a", "thread", "waits", "stream"];
        write_random_model(folder.join("model"), &BertConfig::tiny(8), &words, 16, 2, &device).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// `embed` of this folder's model and a file, with its report on standard output.
    fn embed(&self, input: &str, output: &str, more: &[&str]) -> Command {
        self.embed_to(Path::new("-"), input, output, more)
    }

    fn embed_to(&self, report: &Path, input: &str, output: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
        let input = if input == "-" { PathBuf::from("-") } else { self.path(input) };
        command.arg("embed").arg("--model").arg(self.path("model")).arg("--input").arg(input);
        command.arg("--output").arg(self.path(output)).args(more).arg("--json").arg(report);
        command
    }

    fn report(&self, input: &str, output: &str, more: &[&str]) -> Value {
        succeeded(self.embed(input, output, more).output().unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn succeeded(output: Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(mut command: Command, point: &str) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.lines().next().is_some_and(|line| line.contains(point)),
        "expected {point:?} in: {stderr}"
    );
}

/// Lines of all lengths, some of which can't be read.
fn lines(count: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for index in 0..count {
        match index % 17 {
            5 => text.extend(b"a \xff stream"),
            _ => text.extend(["a thread waits ", "stream "][index % 2].repeat(index % 9).into_bytes()),
        }
        text.push(b'\n');
    }
    text
}

fn count_lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

/// Feeds lines to a run, kills it as soon as it has noted some of them, and leaves what it has left.
fn kill_in_the_middle(folder: &Folder, output: &str, lines: &[u8], more: &[&str]) {
    end_in_the_middle(folder, output, lines, more, "KILL");
}

/// The same by a signal of this name.
fn end_in_the_middle(folder: &Folder, output: &str, lines: &[u8], more: &[&str], signal: &str) {
    let mut command = folder.embed("-", output, more);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Kept open: the run can't come to its end.
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines).unwrap();
    input.flush().unwrap();
    let journal = folder.path(&format!("{output}.partial.journal"));
    let start = Instant::now();
    while count_lines(&journal) < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(start.elapsed() < Duration::from_secs(300), "nothing was noted");
        std::thread::yield_now();
    }
    let told = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert_eq!(child.wait().unwrap().code(), None, "by the signal itself");
    drop(input);
    assert!(!folder.path(output).exists(), "half an output is none");
    assert!(folder.path(&format!("{output}.partial")).exists());
}

#[test]
fn a_killed_run_goes_on_to_the_same_bytes() {
    let folder = Folder::new("resume");
    fs::write(folder.path("lines.txt"), lines(300)).unwrap();
    for kind in ["npy", "safetensors", "jsonl"] {
        let (whole, resumed) = (format!("whole.{kind}"), format!("resumed.{kind}"));
        let window = ["--window", "32", "--threads", "2"];
        let expected = folder.report("lines.txt", &whole, &window);
        assert_eq!((&expected["lines"], expected["skipped"].as_array().unwrap().len()), (&json!(300), 18));
        let text = folder.read("lines.txt");
        let half = &text[..text.len() * 2 / 3];
        kill_in_the_middle(&folder, &resumed, half, &window);

        // As if it had been killed while it wrote: more rows than were noted, and half an entry. And a count that only the
        // journal knows, to see that the run goes on and doesn't start anew.
        let (partial, journal) =
            (folder.path(&format!("{resumed}.partial")), folder.path(&format!("{resumed}.partial.journal")));
        fs::OpenOptions::new().append(true).open(&partial).unwrap().write_all(b"junk").unwrap();
        let noted = fs::read_to_string(&journal).unwrap();
        let entry = noted.lines().last().unwrap();
        let mut changed: Value = serde_json::from_str(entry).unwrap();
        changed["tokens"] = json!(changed["tokens"].as_u64().unwrap() + 1_000_000);
        fs::write(
            &journal,
            format!("{}\n{{\"lines\": 9", noted.trim_end().replace(entry, &changed.to_string())),
        )
        .unwrap();

        let more = [&window[..], &["--resume"]].concat();
        let report = folder.report("lines.txt", &resumed, &more);
        assert!(folder.read(&resumed) == folder.read(&whole), "{kind}: the bytes differ");
        assert_eq!(report["tokens"].as_u64(), expected["tokens"].as_u64().map(|tokens| tokens + 1_000_000));
        assert_eq!((&report["lines"], &report["skipped"]), (&expected["lines"], &expected["skipped"]));
        assert!(!partial.exists() && !journal.exists());
        // There is nothing to go on with: from the beginning.
        let report = folder.report("lines.txt", &resumed, &more);
        assert!(folder.read(&resumed) == folder.read(&whole));
        assert_eq!(report["tokens"], expected["tokens"]);
    }
}

/// It keeps no signal: what it has noted is on the disk, and the rest is computed again.
#[test]
fn a_run_that_is_told_to_end_goes_on_to_the_same_bytes() {
    let folder = Folder::new("signals");
    fs::write(folder.path("lines.txt"), lines(300)).unwrap();
    let window = ["--window", "32", "--threads", "2"];
    folder.report("lines.txt", "whole.npy", &window);
    let text = folder.read("lines.txt");
    for signal in ["TERM", "INT", "HUP"] {
        end_in_the_middle(&folder, "resumed.npy", &text[..text.len() * 2 / 3], &window, signal);
        folder.report("lines.txt", "resumed.npy", &[&window[..], &["--resume"]].concat());
        assert!(folder.read("resumed.npy") == folder.read("whole.npy"), "{signal}: the bytes differ");
        fs::remove_file(folder.path("resumed.npy")).unwrap();
    }
}

/// Sums end at the largest number.
#[test]
fn a_journal_may_count_any_tokens() {
    let folder = Folder::new("tokens");
    let text = lines(200);
    fs::write(folder.path("lines.txt"), &text).unwrap();
    let window = ["--window", "16"];
    kill_in_the_middle(&folder, "v.npy", &text, &window);
    let journal = folder.path("v.npy.partial.journal");
    let noted = fs::read_to_string(&journal).unwrap();
    let entry = noted.lines().last().unwrap();
    let mut changed: Value = serde_json::from_str(entry).unwrap();
    (changed["tokens"], changed["padding_tokens"]) = (json!(u64::MAX), json!(u64::MAX));
    fs::write(&journal, noted.replace(entry, &changed.to_string())).unwrap();
    let report = folder.report("lines.txt", "v.npy", &[&window[..], &["--resume"]].concat());
    assert_eq!((&report["lines"], &report["tokens"]), (&json!(200), &json!(u64::MAX)));
}

#[test]
fn a_run_goes_on_only_as_it_began() {
    let folder = Folder::new("refused");
    let text = lines(200);
    fs::write(folder.path("lines.txt"), &text).unwrap();
    let window = ["--window", "16"];
    kill_in_the_middle(&folder, "v.npy", &text, &window);
    let with = |input: &str, more: &[&str]| {
        folder.embed(input, "v.npy", &[&window[..], &["--resume"], more].concat())
    };
    let mut other = text.clone();
    other[0] = b'b';
    fs::write(folder.path("other.txt"), other).unwrap();
    refused(with("other.txt", &[]), "can't go on, the input begins otherwise");
    fs::write(folder.path("short.txt"), "a\n").unwrap();
    refused(with("short.txt", &[]), "can't go on, the input begins otherwise");
    refused(with("lines.txt", &["--dtype", "bf16"]), "can't go on, --dtype was f32 and is bf16");
    refused(with("lines.txt", &["--max-length", "9"]), "can't go on, --max-length was 16 and is 9");
    refused(with("lines.txt", &["--format", "jsonl"]), "can't go on, --format was text and is jsonl");
    let weights = folder.path("model/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    refused(with("lines.txt", &[]), "can't go on, the model's fingerprint was ");
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let partial = folder.path("v.npy.partial");
    let rows = fs::read(&partial).unwrap();
    let mut damaged = rows.clone();
    damaged[200] ^= 1;
    fs::write(&partial, damaged).unwrap();
    refused(with("lines.txt", &[]), "the rows that it speaks of aren't in the partial output");
    fs::write(&partial, &rows[..rows.len().min(1000)]).unwrap();
    refused(with("lines.txt", &[]), "the rows that it speaks of aren't in the partial output");
    fs::write(&partial, rows).unwrap();
    // All of these have left it as it was.
    succeeded(with("lines.txt", &["--threads", "1", "--batch-tokens", "20"]).output().unwrap());
    let resumed = folder.read("v.npy");
    // Without the option a run starts from the beginning, whatever is there.
    kill_in_the_middle(&folder, "w.npy", &text, &window);
    folder.report("lines.txt", "w.npy", &["--dtype", "f32"]);
    assert!(folder.read("w.npy") == resumed);
}

#[test]
fn rows_dont_depend_on_threads_batches_or_windows() {
    let folder = Folder::new("deterministic");
    fs::write(folder.path("lines.txt"), lines(150)).unwrap();
    let mut all = Vec::new();
    for (index, more) in [
        &["--threads", "1", "--batch-tokens", "1"][..],
        &["--threads", "3", "--batch-tokens", "64", "--window", "7"],
        &["--threads", "2", "--batch-tokens", "4096", "--window", "150"],
        &["--device", "sim:3", "--threads", "2"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("{index}.npy");
        folder.report("lines.txt", &name, &[*more, &["--deterministic"]].concat());
        all.push(folder.read(&name));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn streams_long_lines_limits_and_prompts() {
    let folder = Folder::new("options");
    let long = "a ".repeat(100);
    fs::write(folder.path("lines.txt"), format!("a thread\n{long}\nstream")).unwrap();
    let report = folder.report("lines.txt", "v.jsonl", &["--line-bytes", "50", "--max-length", "5"]);
    assert_eq!(report["skipped"], json!([{ "line": 2, "why": "it is longer than 50 bytes" }]));
    assert_eq!((&report["lines"], &report["tokens"]), (&json!(3), &json!(4 + 3)));
    let rows: Vec<Value> = String::from_utf8(folder.read("v.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.iter().map(|row| row["line"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    assert_eq!(rows[1]["error"], "it is longer than 50 bytes");
    let cut = folder.report("lines.txt", "cut.npy", &["--max-length", "6"]);
    assert_eq!(cut["tokens"], json!(4 + 6 + 3));
    refused(
        folder.embed("lines.txt", "v.npy", &["--max-length", "65"]),
        "expected room for special tokens and one of each text",
    );

    // Nothing at all is a file without rows.
    fs::write(folder.path("none.txt"), "").unwrap();
    assert_eq!(folder.report("none.txt", "none.npy", &[])["lines"], 0);
    assert!(String::from_utf8_lossy(&folder.read("none.npy")).contains("'shape': (0, 32), }"));

    let settings = json!({ "prompts": { "query": "thread waits " }, "default_prompt_name": null });
    fs::write(folder.path("model/config_sentence_transformers.json"), settings.to_string()).unwrap();
    fs::write(folder.path("with.txt"), "thread waits a\n").unwrap();
    fs::write(folder.path("without.txt"), "a\n").unwrap();
    folder.report("with.txt", "with.npy", &[]);
    folder.report("without.txt", "without.npy", &["--prompt", "query"]);
    assert!(folder.read("with.npy") == folder.read("without.npy"));
    refused(
        folder.embed("with.txt", "v.npy", &["--prompt", "queri"]),
        "expected one of: query, found \"queri\"",
    );
}

/// What a hub answers of one model, as far as its client asks; how often files were asked for comes back.
struct Hub {
    address: String,
    asked: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Hub {
    fn new(model: PathBuf) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
        let count = asked.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (model, count) = (model.clone(), count.clone());
                std::thread::spawn(move || serve(stream, &model, &count));
            }
        });
        Hub { address, asked }
    }
}

fn serve(stream: TcpStream, model: &Path, files: &std::sync::atomic::AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let (mut request, mut range, mut token) = (String::new(), None, None);
        if reader.read_line(&mut request).ok()? == 0 {
            return None;
        }
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_lowercase().strip_prefix("authorization: bearer ") {
                token = Some(value.trim().to_string());
            }
            if let Some(value) = header.to_lowercase().strip_prefix("range: bytes=") {
                let (start, end) = value.trim().split_once('-')?;
                range = Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()));
            }
        }
        let path = request.split(' ').nth(1)?;
        // A version that only they see who say so, and a model in another form.
        let (path, is_told) = (path.replace("/v1", "/main"), token.as_deref() == Some("secret"));
        let is_hidden = request.contains("/v1") && !is_told;
        let list = |names: &[&str]| {
            let siblings: Vec<Value> = names.iter().map(|name| json!({ "rfilename": name })).collect();
            let body = json!({ "sha": "c0ffee", "siblings": siblings });
            ("200 OK", String::new(), body.to_string().into_bytes())
        };
        let (status, more, body) = if is_hidden {
            ("401 Unauthorized", String::new(), b"{}".to_vec())
        } else if path == "/api/models/someone/pickled/revision/main" {
            list(&["config.json", "tokenizer.json", "pytorch_model.bin"])
        } else if path == "/api/models/someone/tiny/revision/main" {
            list(&[
                "README.md",
                "config.json",
                "tokenizer.json",
                "model.safetensors",
                "modules.json",
                "1_Pooling/config.json",
                "sentence_bert_config.json",
                "../outside.json",
                "pytorch_model.bin",
            ])
        } else if let Some(file) = path.strip_prefix("/someone/tiny/resolve/main/") {
            files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let all = fs::read(model.join(file)).ok()?;
            let (start, end) = range.unwrap_or((0, None));
            let end = end.map_or(all.len(), |end| (end + 1).min(all.len()));
            let more = format!(
                "x-repo-commit: c0ffee\r\netag: \"{}\"\r\ncontent-range: bytes {start}-{}/{}\r\n",
                file.replace('/', "-"),
                end - 1,
                all.len()
            );
            ("206 Partial Content", more, all[start..end].to_vec())
        } else {
            ("404 Not Found", String::new(), b"{}".to_vec())
        };
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{more}\r\n").ok()?;
        stream.write_all(&body).ok()?;
    }
}

/// What variables say as others read them, through the program.
#[test]
fn versions_tokens_and_caches_are_told_by_variables() {
    let folder = Folder::new("hub-variables");
    fs::write(folder.path("lines.txt"), lines(5)).unwrap();
    folder.report("lines.txt", "folder.npy", &[]);
    let hub = Hub::new(folder.path("model"));
    let embed = |name: &str, variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
        command.args(["embed", "--model", name, "--json", "-"]);
        command.arg("--input").arg(folder.path("lines.txt")).arg("--output").arg(folder.path("v.npy"));
        for name in
            ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE"]
        {
            command.env_remove(name);
        }
        for proxy in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(proxy);
        }
        command.env("HF_HOME", folder.path("home")).env("HF_ENDPOINT", format!("{}/", hub.address));
        command.envs(variables.iter().copied());
        command
    };
    let cache = folder.path("cache");
    let cache = ("HF_HUB_CACHE", cache.to_str().unwrap());
    // No is no, and a version that isn't told needs a token.
    refused(
        embed("someone/tiny@v1", &[cache, ("HF_HUB_OFFLINE", "false")]),
        "model \"someone/tiny@v1\": the hub doesn't give it",
    );
    succeeded(embed("someone/tiny@v1", &[cache, ("HF_TOKEN", "secret")]).output().unwrap());
    assert_eq!(folder.read("v.npy"), folder.read("folder.npy"));
    assert!(folder.path("cache/models--someone--tiny/refs/v1").exists() && !folder.path("home/hub").exists());
    let asked = hub.asked.load(std::sync::atomic::Ordering::Relaxed);
    for (name, value) in
        [("HF_HUB_OFFLINE", "yes"), ("HF_HUB_OFFLINE", "True"), ("TRANSFORMERS_OFFLINE", "ON")]
    {
        succeeded(embed("someone/tiny@v1", &[cache, (name, value)]).output().unwrap());
        succeeded(embed("someone/tiny@c0ffee", &[cache, (name, value)]).output().unwrap());
        refused(
            embed("someone/tiny", &[cache, (name, value)]),
            "model \"someone/tiny\": HF_HUB_OFFLINE is set, and ",
        );
    }
    assert_eq!(hub.asked.load(std::sync::atomic::Ordering::Relaxed), asked);
    refused(
        embed("someone/pickled", &[cache]),
        "model \"someone/pickled\": its weights are only in pytorch_model.bin, expected model.safetensors: ",
    );
}

/// Either end, or the one that the model's files say.
#[test]
fn long_texts_lose_the_end_that_is_asked_for() {
    let folder = Folder::new("side");
    let words: Vec<&str> = (0..40).map(|index| ["a", "thread", "waits"][index * 7 % 5 % 3]).collect();
    let (first, last) = (words[..14].join(" "), words[26..].join(" "));
    fs::write(folder.path("long.txt"), words.join(" ")).unwrap();
    fs::write(folder.path("first.txt"), first).unwrap();
    fs::write(folder.path("last.txt"), last).unwrap();
    let vector = |input: &str, more: &[&str]| {
        folder.report(input, "v.npy", more);
        folder.read("v.npy")
    };
    let (first, last) = (vector("first.txt", &[]), vector("last.txt", &[]));
    assert_ne!(first, last);
    let side = |side| vector("long.txt", &["--truncation-side", side]);
    assert_eq!((side("left"), side("right")), (last.clone(), first.clone()));
    assert_eq!(vector("long.txt", &[]), first);
    fs::write(folder.path("model/tokenizer_config.json"), "{\"truncation_side\": \"left\"}").unwrap();
    assert_eq!(vector("long.txt", &[]), last);
    assert_eq!(side("right"), first);
}

#[test]
fn models_have_names_on_the_hub() {
    let folder = Folder::new("hub");
    fs::write(folder.path("lines.txt"), lines(20)).unwrap();
    folder.report("lines.txt", "folder.npy", &[]);
    let hub = Hub::new(folder.path("model"));
    let embed = |name: &str, output: &str, endpoint: &str, offline: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
        command.args(["embed", "--model", name, "--json", "-"]);
        command.arg("--input").arg(folder.path("lines.txt")).arg("--output").arg(folder.path(output));
        command.env("HF_HOME", folder.path("cache")).env("HF_ENDPOINT", endpoint);
        command.env_remove("HF_HUB_OFFLINE").env_remove("HF_TOKEN");
        for proxy in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(proxy);
        }
        if offline {
            command.env("HF_HUB_OFFLINE", "1");
        }
        command
    };
    let nobody = "http://127.0.0.1:1";
    // Not there yet: what to do is said, also where there is no network.
    refused(
        embed("someone/tiny", "v.npy", nobody, false),
        "model \"someone/tiny\": the hub can't be reached",
    );
    let output = embed("someone/tiny", "v.npy", nobody, true).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    for word in ["HF_HUB_OFFLINE is set", "cache", "download config.json, tokenizer.json, model.safetensors"]
    {
        assert!(stderr.lines().next().unwrap().contains(word), "expected {word:?} in {stderr}");
    }
    refused(embed("someone/else", "v.npy", &hub.address, false), "the hub doesn't give it");

    let asked = || hub.asked.load(std::sync::atomic::Ordering::Relaxed);
    succeeded(embed("someone/tiny", "v.npy", &hub.address, false).output().unwrap());
    assert!(folder.read("v.npy") == folder.read("folder.npy"));
    let first = asked();
    assert!(first > 0);
    // From the cache now: files aren't asked for, and the hub needn't be there.
    for (endpoint, offline) in [(hub.address.as_str(), false), (nobody, false), (nobody, true)] {
        fs::remove_file(folder.path("v.npy")).unwrap();
        succeeded(embed("someone/tiny", "v.npy", endpoint, offline).output().unwrap());
        assert!(folder.read("v.npy") == folder.read("folder.npy"));
    }
    assert_eq!(asked(), first);
    assert!(!folder.path("cache/outside.json").exists());
    // A part that another program has fetched isn't taken for the whole.
    fs::remove_file(folder.path("cache/hub/models--someone--tiny/snapshots/c0ffee/modules.json")).unwrap();
    refused(
        embed("someone/tiny", "v.npy", nobody, true),
        "has only a part of it, expected modules.json there",
    );
    // A folder that isn't there is no name.
    refused(embed("./someone/tiny", "v.npy", &hub.address, false), "config.json: reading failed");
}

/// A tokenizer that puts nothing around texts makes nothing of an empty one: the others have their vectors.
#[test]
fn a_text_without_tokens_is_a_skipped_line() {
    let folder = Folder::new("tokens");
    let file = folder.path("model/tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    tokenizer["post_processor"] = Value::Null;
    fs::write(file, tokenizer.to_string()).unwrap();
    fs::write(folder.path("lines.txt"), "a thread\n\nwaits\n").unwrap();
    fs::write(folder.path("whole.txt"), "a thread\nwaits\n").unwrap();
    let report = folder.report("lines.txt", "lines.npy", &[]);
    assert_eq!(report["skipped"], json!([{ "line": 2, "why": "it has no tokens" }]));
    folder.report("whole.txt", "whole.npy", &[]);
    let (found, whole) = (folder.read("lines.npy"), folder.read("whole.npy"));
    let row = 4 * 32;
    let [found, whole] = [&found[found.len() - 3 * row..], &whole[whole.len() - 2 * row..]];
    assert!(found[..row] == whole[..row] && found[2 * row..] == whole[row..]);
    assert!(
        found[row..2 * row].chunks(4).all(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()).is_nan())
    );
}

/// Under whatever name.
#[test]
fn an_input_is_never_the_output() {
    let folder = Folder::new("same");
    let text = "{\"text\": \"a thread\"}\n";
    fs::write(folder.path("a.jsonl"), text).unwrap();
    fs::hard_link(folder.path("a.jsonl"), folder.path("b.jsonl")).unwrap();
    std::os::unix::fs::symlink(folder.path("a.jsonl"), folder.path("c.jsonl")).unwrap();
    fs::hard_link(folder.path("a.jsonl"), folder.path("d.jsonl.partial")).unwrap();
    for output in ["a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"] {
        let point = "--output: expected another file than that of --input, found the same one";
        refused(folder.embed("a.jsonl", output, &[]), point);
        assert_eq!(folder.read("a.jsonl"), text.as_bytes());
    }
    folder.report("a.jsonl", "e.jsonl", &[]);
}

/// Nor does the report take the place of what is read or written.
#[test]
fn a_report_is_a_file_of_its_own() {
    let folder = Folder::new("report");
    let text = "{\"text\": \"a thread\"}\n";
    fs::write(folder.path("a.jsonl"), text).unwrap();
    std::os::unix::fs::symlink(folder.path("a.jsonl"), folder.path("link")).unwrap();
    let embed = |report: &str| {
        let mut command = folder.embed_to(Path::new(report), "a.jsonl", "v.jsonl", &[]);
        command.current_dir(&folder.0);
        command
    };
    for report in ["a.jsonl", "./link", "v.jsonl", "v.jsonl.partial", "v.jsonl.partial.journal"] {
        refused(embed(report), "--json: expected a file of its own, found that of ");
        assert_eq!(folder.read("a.jsonl"), text.as_bytes());
        assert!(!folder.path("v.jsonl").exists());
    }
    assert!(embed("report.json").output().unwrap().status.success());
    // Through a shell's redirection, too.
    let mut command = folder.embed("-", "a.jsonl", &[]);
    command.stdin(fs::File::open(folder.path("a.jsonl")).unwrap());
    refused(command, "--output: expected another file than that of --input, found the same one");
    assert_eq!(folder.read("a.jsonl"), text.as_bytes());
}

/// Of a text whose vector isn't finite there is none, and it is told: weights that are broken, or numbers beyond f16.
#[test]
fn a_vector_that_is_not_finite_is_a_skipped_line() {
    let folder = Folder::new("finite");
    fs::write(folder.path("lines.txt"), "a thread\nthread waits\nstream\n").unwrap();
    folder.report("lines.txt", "whole.npy", &[]);
    let weights = folder.path("model/model.safetensors");
    let tensors = raddle::nn::checkpoint::load(&weights, &raddle::Device::new("cpu").unwrap()).unwrap();
    let (_, words) = tensors.iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap();
    // That of the third word, behind four special ones.
    words.select(0, 6).unwrap().fill_(f32::NAN).unwrap();
    raddle::nn::checkpoint::save(&weights, &tensors).unwrap();
    let report = folder.report("lines.txt", "v.npy", &[]);
    assert_eq!(report["skipped"], json!([{ "line": 2, "why": "its vector has an element that is NaN" }]));
    let (found, whole) = (folder.read("v.npy"), folder.read("whole.npy"));
    let row = 4 * 32;
    let [found, whole] = [&found, &whole].map(|bytes| &bytes[bytes.len() - 3 * row..]);
    assert!(found[..row] == whole[..row] && found[2 * row..] == whole[2 * row..]);
    folder.report("lines.txt", "v.jsonl", &[]);
    let lines = String::from_utf8(folder.read("v.jsonl")).unwrap();
    let second: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    assert_eq!(second, json!({ "line": 2, "error": "its vector has an element that is NaN" }));
}

/// What else a folder may hold has no part in the model.
#[test]
fn what_is_no_file_of_the_model_is_not_read() {
    let folder = Folder::new("others");
    fs::write(folder.path("lines.txt"), "a thread\n").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path("model/vocab.json")).unwrap();
    fs::create_dir(folder.path("model/onnx.json")).unwrap();
    folder.report("lines.txt", "v.npy", &[]);
}

/// The output lies where the link points, also of a run that goes on; what isn't whole lies beside it until it is.
#[test]
fn an_output_goes_through_links() {
    let folder = Folder::new("links");
    fs::create_dir(folder.path("inner")).unwrap();
    fs::write(folder.path("lines.txt"), "a thread\nwaits\n").unwrap();
    fs::write(folder.path("inner/old.npy"), "old").unwrap();
    folder.report("lines.txt", "plain.npy", &[]);
    for (link, target) in [("old.npy", "inner/old.npy"), ("new.npy", "inner/new.npy")] {
        std::os::unix::fs::symlink(target, folder.path(link)).unwrap();
        for more in [&[][..], &["--resume"]] {
            folder.report("lines.txt", link, more);
            assert_eq!(fs::read_link(folder.path(link)).unwrap(), Path::new(target));
            assert!(folder.read(target) == folder.read("plain.npy"), "{link}");
        }
    }
    // What was kept from others stays so.
    let old = folder.path("inner/old.npy");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o600)).unwrap();
    folder.report("lines.txt", "old.npy", &[]);
    assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o600);
    let names = |name: &str| fs::read_dir(folder.path(name)).unwrap().count();
    assert_eq!((names(""), names("inner")), (6, 2), "something is left over");
    std::os::unix::fs::symlink("/dev/null", folder.path("null.npy")).unwrap();
    refused(
        folder.embed("lines.txt", "null.npy", &[]),
        "expected a file, found what can't be replaced by one",
    );
    std::os::unix::fs::symlink("loop.npy", folder.path("loop.npy")).unwrap();
    refused(folder.embed("lines.txt", "loop.npy", &[]), "symbolic links");
}

/// Their stacks alone have more addresses than the process may have.
#[test]
#[cfg(target_os = "linux")]
fn threads_that_do_not_start_are_an_error() {
    let folder = Folder::new("threads");
    fs::write(folder.path("lines.txt"), "a thread\nwaits\n").unwrap();
    let embed = folder.embed("lines.txt", "vectors.npy", &["--threads", "1024"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -v 1200000 && exec \"$0\" \"$@\""])
        .arg(embed.get_program())
        .args(embed.get_args());
    let output = shell.env("MALLOC_ARENA_MAX", "1").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("raddle: embed: expected 1024 threads, started "), "{stderr}");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2, "something is left over");
}

#[test]
fn fault_resumes_at_start() {
    assert_caught(Fault::resumes_at_start, "a_killed_run_goes_on_to_the_same_bytes");
}

#[test]
fn its_help_has_an_example() {
    let help = raddle(&["embed", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("Example: raddle "));
}

/// A tiny model of random weights, and lines of which some can't be read.
#[test]
fn embed_keeps_the_order_and_loses_no_line() {
    let folder = std::env::temp_dir().join(format!("raddle-{}-embed", std::process::id()));
    let model = folder.join("model");
    let config = raddle::nn::text::BertConfig::tiny(8);
    let words = ["a", "thread", "waits", "stream"];
    let device = raddle::Device::new("cpu").unwrap();
    raddle::nn::text::write_random_model(&model, &config, &words, 16, 2, &device).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_string();
    let text = |index: usize| "a thread waits ".repeat(index % 8);
    let mut lines: Vec<String> = (0..100).map(|index| format!("{{\"text\": {:?}}}", text(index))).collect();
    lines[7] = "{\"text\": 7}".into();
    lines[50] = "no JSON".into();
    std::fs::write(path("lines.jsonl"), lines.join("\n")).unwrap();
    let embed = |output: &str, more: &[&str]| {
        let (model, input, output) = (path("model"), path("lines.jsonl"), path(output));
        report(&[&["embed", "--model", &model, "--input", &input, "--output", &output], more].concat())
    };
    let form = json!({
        "lines": 0, "skipped": [{ "line": 0, "why": "" }], "tokens": 0, "padding_tokens": 0, "seconds": 0.5,
        "sentences_per_s": 0.5, "threads": 0, "device": "", "dtype": "",
    });
    let figures = embed("vectors.npy", &["--threads", "3", "--batch-tokens", "40"]);
    assert_form(&figures, &form, "embed");
    assert_eq!((&figures["lines"], &figures["padding_tokens"]), (&json!(100), &json!(0)));
    let skipped = figures["skipped"].as_array().unwrap();
    assert_eq!(skipped.iter().map(|skipped| &skipped["line"]).collect::<Vec<_>>(), [8, 51]);

    let bytes = std::fs::read(path("vectors.npy")).unwrap();
    let start = bytes.len() - 100 * 32 * 4;
    assert_eq!(start % 64, 0);
    assert!(
        String::from_utf8_lossy(&bytes[10..start])
            .contains("'<f4', 'fortran_order': False, 'shape': (100, 32)")
    );
    let rows: Vec<f32> =
        bytes[start..].chunks(4).map(|element| f32::from_le_bytes(element.try_into().unwrap())).collect();
    let encoder = raddle::nn::text::SentenceEncoder::load(&model, &device).unwrap();
    for (index, row) in rows.chunks(32).enumerate() {
        if [7, 50].contains(&index) {
            assert!(row.iter().all(|element| element.is_nan()), "line {}", index + 1);
        } else {
            assert_eq!(
                row,
                encoder.encode(&[text(index)]).unwrap().to_vec::<f32>().unwrap(),
                "line {}",
                index + 1
            );
        }
    }
    embed("vectors.safetensors", &["--device", "sim:1"]);
    let saved = raddle::nn::checkpoint::load(path("vectors.safetensors"), &device).unwrap();
    let (name, tensor) = &saved[0];
    assert_eq!((name.as_str(), &**tensor.shape()), ("embeddings", &[100, 32][..]));
    let bits = |rows: &[f32]| rows.iter().map(|element| element.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&tensor.to_vec::<f32>().unwrap()), bits(&rows));
    embed("vectors.jsonl", &["--dtype", "bf16"]);
    let text = std::fs::read_to_string(path("vectors.jsonl")).unwrap();
    let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((values.len(), &values[7]["line"]), (100, &json!(8)));
    assert_eq!(values[7]["error"], "the field \"text\" is no string");
    assert_eq!(values[8]["embedding"].as_array().unwrap().len(), 32);

    let model = path("model");
    let refused = |input: &str, output: &str, more: &[&str], point: &str| {
        assert_refused(
            &[&["embed", "--model", &model, "--input", input, "--output", output], more].concat(),
            point,
        );
    };
    refused(&path("none.txt"), &path("vectors.npy"), &[], "none.txt: ");
    refused(
        &path("lines.jsonl"),
        &path("vectors.csv"),
        &[],
        "expected a name in .npy, .safetensors or .jsonl",
    );
    refused(
        &path("lines.jsonl"),
        &path("vectors.npy"),
        &["--dtype", "f64"],
        "expected a dtype of f32, f16, bf16",
    );
    std::fs::remove_file(folder.join("model/config.json")).unwrap();
    refused(&path("lines.jsonl"), &path("vectors.npy"), &[], "config.json: reading failed");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn fault_bad_lines_have_no_rows() {
    assert_caught(Fault::bad_lines_have_no_rows, "embed_keeps_the_order_and_loses_no_line");
}
