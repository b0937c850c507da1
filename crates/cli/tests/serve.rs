//! `raddle serve` as a process: its first line, its log, its signals, its report.
#![cfg(unix)]

mod shared;

use raddle_sync::faults::{Fault, assert_caught};
use serde_json::{Value, json};
use shared::{assert_refused, form::assert_form};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A server over a random model, in a folder that is gone at the end.
struct Server {
    folder: PathBuf,
    child: Child,
    address: String,
}

impl Server {
    fn start(name: &str, more: &[&str]) -> Server {
        let folder = Server::write(name);
        let model = folder.join("model");
        Server::start_of(folder, &model, more)
    }

    /// The folder of a model, in another.
    fn write(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("raddle-{}-serve-{name}", std::process::id()));
        let config = raddle::nn::text::BertConfig::tiny(8);
        let words = ["a", "thread", "waits", "stream"];
        let device = raddle::Device::new("cpu").unwrap();
        raddle::nn::text::write_random_model(folder.join("model"), &config, &words, 16, 2, &device).unwrap();
        folder
    }

    fn start_of(folder: PathBuf, model: &Path, more: &[&str]) -> Server {
        Server::start_with(folder, model, more, None)
    }

    fn start_with(folder: PathBuf, model: &Path, more: &[&str], fault: Option<Fault>) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
        command
            .args(["serve", "--port", "0", "--log-format", "json"])
            .args(more)
            .env("HF_HOME", folder.join("cache"))
            .env("HF_HUB_OFFLINE", "1")
            .envs(fault.map(|fault| ("RADDLE_FAULT", fault.name())))
            .arg("--model")
            .arg(model)
            .arg("--json")
            .arg(folder.join("report.json"));
        Server::of(folder, command)
    }

    /// What a command starts, when it listens.
    fn of(folder: PathBuf, mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").unwrap().to_string();
        Server { folder, child, address }
    }

    fn model(&self) -> String {
        self.folder.join("model").to_str().unwrap().to_string()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Sends a request and reads the answer to its end.
    fn embed(&self, headers: &str, body: &str) -> String {
        let mut stream = self.connect();
        let head =
            "POST /embed HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n";
        write!(stream, "{head}{headers}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends a head, and no body, and comes back when the server waits for that: it says so.
    fn begin(&self) -> TcpStream {
        let mut stream = self.connect();
        let head =
            "POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 99\r\n";
        write!(stream, "{head}expect: 100-continue\r\n\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
        stream
    }

    fn tell(&self) {
        self.signal("TERM");
    }

    fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Until nobody listens any more: it has heard that it is to end.
    fn until_it_drains(&self) {
        while TcpStream::connect(&self.address).is_ok() {}
    }

    /// Waits for its end: the exit code, and what it has logged.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

fn signal(child: &Child, name: &str) {
    let told = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(told.success());
}

/// Sends the body of a request that has begun, and reads the answer.
fn finish(mut stream: TcpStream) -> String {
    let body = format!("{:99}", "{\"inputs\": \"a thread\"}");
    write!(stream, "{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// Started on a free port, asked, told to stop, and its report.
#[test]
fn answers_and_ends_when_it_is_told_to() {
    let mut server = Server::start("whole", &[]);
    let answer = server.embed("x-request-id: its-id\r\n", "{\"inputs\": \"a thread\"}");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\r\n\r\n[["), "{answer}");
    // Of a port that is in use the first line says so.
    let (model, port) = (server.model(), server.address.rsplit(':').next().unwrap());
    assert_refused(&["serve", "--model", &model, "--port", port], &server.address);
    assert_refused(&["serve", "--model", &model, "--dtype", "f64"], "expected a dtype of f32, f16, bf16");
    assert_refused(&["serve", "--model", &model, "--payload-limit", "0"], "--payload-limit");
    assert_refused(&["serve", "--model", "/nowhere", "--port", "0"], "/nowhere/config.json");
    let limits = ["--max-queue", "8", "--max-client-batch-size", "9"];
    let message = "--max-client-batch-size is wrong, expected at most --max-queue, 8, found 9";
    assert_refused(&[&["serve", "--model", &model][..], &limits].concat(), message);
    server.tell();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let request = lines.iter().find(|line| line["id"] == "its-id").unwrap();
    assert_eq!(
        (&request["status"], &request["texts"], &request["tokens"]),
        (&json!(200), &json!(1), &json!(4))
    );
    let form = json!({
        "address": "", "model": "", "device": "", "dtype": "", "seconds": 0.5, "seconds_to_listen": 0.5,
        "accepted": 0, "cancelled": 0, "given_up": 0, "texts": 0, "tokens": 0, "batches": 0,
    });
    let report: Value =
        serde_json::from_slice(&fs::read(server.folder.join("report.json")).unwrap()).unwrap();
    assert_form(&report, &form, "serve");
    assert_eq!(
        (&report["accepted"], &report["given_up"], &report["tokens"]),
        (&json!(1), &json!(0), &json!(4))
    );
}

/// A body that never comes would hold it up for a day.
#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start("twice", &["--body-timeout", "86400", "--drain-timeout", "86400"]);
    let _waiting = server.begin();
    server.tell();
    server.until_it_drains();
    assert_eq!(server.child.try_wait().unwrap(), None);
    server.tell();
    let (code, log) = server.end();
    assert_eq!((code, log.lines().last()), (Some(1), Some("raddle: serve: told to stop again")), "{log}");
}

/// Any of those that ask a program to end, while a request is there. What comes behind it isn't a second one if it only says
/// that a terminal or a reader has gone.
#[test]
fn signals_drain() {
    for name in ["TERM", "INT", "HUP"] {
        let mut server = Server::start(&format!("drain-{name}"), &[]);
        // Of a pipe that nobody reads: it has no meaning here.
        server.signal("PIPE");
        let waiting = server.begin();
        server.signal(name);
        server.until_it_drains();
        server.signal("HUP");
        server.signal("PIPE");
        assert_eq!(server.child.try_wait().unwrap(), None, "{name}");
        let answer = finish(waiting);
        assert!(answer.contains("HTTP/1.1 200 OK\r\n") && answer.contains("[["), "{name}: {answer}");
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{name}: {log}");
    }
}

/// As `nohup` starts it: the end of a terminal isn't that of the server.
#[test]
#[cfg(target_os = "linux")]
fn a_hangup_that_was_ignored_stays_so() {
    let folder = Server::write("nohup");
    let model = folder.join("model");
    let mut command = Command::new("sh");
    let script = format!("trap '' HUP; exec {} serve --port 0 --model \"$0\"", env!("CARGO_BIN_EXE_raddle"));
    command.args(["-c", &script]).arg(&model);
    let mut server = Server::of(folder, command);
    server.signal("HUP");
    assert!(server.embed("", "{\"inputs\": \"a\"}").starts_with("HTTP/1.1 200 "));
    server.tell();
    assert_eq!(server.end().0, Some(0));
}

/// It is told to end before it listens. A file that never comes holds it up for ever.
#[test]
fn a_signal_while_it_loads_ends_it() {
    for name in ["TERM", "INT", "HUP"] {
        let folder = std::env::temp_dir().join(format!("raddle-{}-serve-loads-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("config.json");
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        let mut child = Command::new(env!("CARGO_BIN_EXE_raddle"))
            .args(["serve", "--port", "0", "--model"])
            .arg(&folder)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Open when the other side is: it reads the model's settings.
        let _settings = fs::OpenOptions::new().write(true).open(&file).unwrap();
        signal(&child, name);
        let mut log = String::new();
        child.stderr.as_mut().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}: {log}");
        assert_eq!(log.lines().last(), Some("raddle: serve: told to stop before it listened"), "{name}");
        fs::remove_dir_all(folder).unwrap();
    }
}

/// Readers of its output that have gone, as of a pipe to a program that has seen enough.
#[test]
fn nobody_has_to_read_what_it_says() {
    let folder = Server::write("unread");
    let model = folder.join("model");
    let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
    command.args(["serve", "--port", "0", "--model"]).arg(&model);
    let mut server = Server::of(folder, command);
    drop((server.child.stdout.take(), server.child.stderr.take()));
    for _ in 0..3 {
        assert!(server.embed("", "{\"inputs\": \"a\"}").starts_with("HTTP/1.1 200 "));
    }
    server.tell();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// A limit that can't be kept is told, and a short queue lowers what one request may ask for.
#[test]
fn limits_fit_each_other() {
    let mut server = Server::start("limits", &["--max-batch-tokens", "1", "--max-queue", "2"]);
    assert!(server.embed("", "{\"inputs\": [\"a\", \"a\"]}").starts_with("HTTP/1.1 200 "));
    assert!(server.embed("", "{\"inputs\": [\"a\", \"a\", \"a\"]}").starts_with("HTTP/1.1 413 "));
    server.tell();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let warning =
        "\"level\":\"WARN\",\"message\":\"--max-batch-tokens is below the limit of the model's texts";
    assert!(log.lines().any(|line| line.contains(warning) && line.contains("\"batch_tokens\":16")), "{log}");
}

/// From the hub's cache, as `raddle embed` takes it, and called so.
#[test]
fn models_have_names_on_the_hub() {
    let folder = Server::write("hub");
    let repo = folder.join("cache/hub/models--someone--tiny");
    fs::create_dir_all(repo.join("refs")).unwrap();
    fs::create_dir_all(repo.join("snapshots")).unwrap();
    fs::write(repo.join("refs/main"), "c0ffee").unwrap();
    fs::rename(folder.join("model"), repo.join("snapshots/c0ffee")).unwrap();
    let mut server = Server::start_of(folder, Path::new("someone/tiny"), &[]);
    let mut stream = server.connect();
    write!(stream, "GET /v1/models HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"id\":\"someone/tiny\""), "{answer}");
    server.tell();
    assert_eq!(server.end().0, Some(0));
    let report: Value =
        serde_json::from_slice(&fs::read(server.folder.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["model"], "someone/tiny");
}

/// What isn't answered in time is told, with the report and the whole log.
#[test]
fn what_was_given_up_is_told() {
    let mut server = Server::start("given-up", &["--body-timeout", "86400", "--drain-timeout", "0"]);
    let _waiting = server.begin();
    server.tell();
    let (code, log) = server.end();
    let last = "raddle: serve: 1 requests were not answered within 0 s of the signal";
    assert_eq!((code, log.lines().last()), (Some(1), Some(last)), "{log}");
    assert!(log.contains("\"message\":\"stopped\""), "{log}");
    let report: Value =
        serde_json::from_slice(&fs::read(server.folder.join("report.json")).unwrap()).unwrap();
    assert_eq!((&report["accepted"], &report["given_up"]), (&json!(1), &json!(1)));
}

/// Nobody waits for what may never end: neither for the batch, nor for the thread that does.
#[test]
fn fault_batch_never_ends() {
    let folder = Server::write("hung");
    let model = folder.join("model");
    let mut server =
        Server::start_with(folder, &model, &["--drain-timeout", "0"], Some(Fault::batch_never_ends));
    let mut stream = server.connect();
    let body = "{\"inputs\": \"a\"}";
    let head = "POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let is_running = || {
        let mut other = server.connect();
        write!(other, "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        answer.contains("raddle_batches_running 1\n")
    };
    while !is_running() {}
    server.tell();
    let (code, log) = server.end();
    let last = "raddle: serve: 1 requests were not answered within 0 s of the signal";
    assert_eq!((code, log.lines().last()), (Some(1), Some(last)), "{log}");
    assert!(log.contains("\"message\":\"stopped\""), "{log}");
    assert!(server.folder.join("report.json").exists());
}

/// Neither does it run without one, nor with one that nobody can show, and it doesn't tell it.
#[test]
fn a_key_that_no_client_can_send_is_refused() {
    for (key, found) in [
        ("", "found none; leave it out for a server without a key"),
        ("sesame\n", "found others, which a client can't send"),
        ("open sesame", "found others, which a client can't send"),
        ("s\u{e9}same", "found others, which a client can't send"),
    ] {
        for place in ["--api-key", "RADDLE_API_KEY"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_raddle"));
            command.args(["serve", "--model", "/nowhere", "--port", "0"]);
            let command = match place {
                "--api-key" => command.args([place, key]),
                _ => command.env(place, key),
            };
            let output = command.output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            let expected = "expected printable ASCII characters without spaces";
            assert_eq!(
                stderr.lines().next(),
                Some(&*format!("raddle: serve: {place} is wrong, {expected}, {found}"))
            );
            assert_eq!(output.status.code(), Some(2));
        }
    }
}

/// Neither texts nor keys, whatever comes of the request and however much is logged.
#[test]
fn logs_hold_nothing_of_what_clients_send() {
    let mut server = Server::start("log", &["--log-level", "debug", "--api-key", "sesame-0"]);
    let key = "authorization: Bearer sesame-0\r\n";
    for (key, body, status) in [
        (key, "{\"inputs\": \"a secret thread\"}", "200"),
        (key, "{\"inputs\": [\"secret\", 7]}", "422"),
        (key, "{\"secret\": \"secret", "400"),
        (key, "{\"inputs\": \"a\", \"prompt_name\": \"secret\"}", "422"),
        ("authorization: Bearer sesame-1\r\n", "{\"inputs\": \"secret\"}", "401"),
    ] {
        let answer = server.embed(key, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{body}: {answer}");
    }
    server.tell();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("\"route\":\"/embed\"")).count(), 5, "{log}");
    assert!(!log.contains("secret") && !log.contains("sesame"), "{log}");
}

#[test]
fn fault_body_in_log() {
    assert_caught(Fault::body_in_log, "logs_hold_nothing_of_what_clients_send");
}
