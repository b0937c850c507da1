//! What HTTP costs: the CPU time of a server for a request, without the model.
//!
//! ```sh
//! cargo run --profile dist -p raddle-benches --bin http_overhead -- --json -
//! ```
//!
//! A process of its own serves an engine whose model gives a constant vector of 384 numbers. Clients send the same text of 32
//! tokens over connections that stay open. Counted is all CPU time of that process as the system tells it: sockets, HTTP,
//! JSON, the batcher with its hand-over to another thread and back, the log's line. `text` is tokenized as well, `tokens` is the
//! same text as numbers, `base64` the same with the answer in base64, and `health` computes nothing.

use raddle::{
    Device,
    nn::text::{BertConfig, ModelOptions, Tokens, write_random_model},
};
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::{App, Options, listen},
};
use serde_json::json;
use std::{
    error::Error,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::Instant,
};

const WIDTH: usize = 384;
const REQUESTS: usize = 20_000;
const WORDS: [&str; 6] = ["a", "thread", "waits", "for", "the", "stream"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, folder] = &arguments[..]
        && role == "serve"
    {
        return serve(folder);
    }
    let folder = std::env::temp_dir().join(format!("raddle-{}-overhead", std::process::id()));
    let config = BertConfig { hidden: WIDTH, layers: 1, inner: WIDTH, ..BertConfig::tiny(WORDS.len() + 4) };
    let device = Device::new("cpu")?;
    write_random_model(&folder, &config, &WORDS, 64, 1, &device)?;
    let mut server = Command::new(std::env::current_exe()?)
        .args(["serve".as_ref(), folder.as_os_str()])
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut address)?;
    let rows: Vec<_> =
        [("text", 1), ("tokens", 1), ("tokens", 8), ("base64", 1), ("base64", 8), ("health", 1)]
            .into_iter()
            .map(|(route, clients)| measure(server.id(), address.trim(), route, clients))
            .collect::<Result<_, _>>()?;
    drop(server.stdin.take());
    server.wait()?;
    std::fs::remove_dir_all(&folder)?;
    if arguments.iter().any(|argument| argument == "--json") {
        println!("{}", serde_json::to_string_pretty(&json!({ "rows": rows }))?);
    } else {
        rows.iter().for_each(|row| println!("{row}"));
    }
    Ok(())
}

/// Until its standard input ends.
fn serve(folder: &str) -> Result<(), Box<dyn Error>> {
    // As `raddle serve` logs, a line a request.
    let (lines, _guard) = tracing_appender::non_blocking(std::io::stderr());
    tracing_subscriber::fmt().with_writer(lines).with_target(false).with_ansi(false).init();
    let device = Device::new("cpu")?;
    let model = Model::load(folder, &device, &ModelOptions::default())?;
    let row: Vec<f32> = (0..WIDTH).map(|index| (index as f32 + 0.1).sin()).collect();
    let compute = move |_: &Model, texts: &[Tokens]| Ok(texts.iter().map(|_| row.clone()).collect());
    let engine = Engine::start_with(
        model,
        EngineOptions { running_count_max: Some(1), ..Default::default() },
        compute,
    )?;
    let app = App::new(engine, Options::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let (told, stop) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(told);
        });
        listen::serve(app, listener, async { _ = stop.await }).await;
        Ok(())
    })
}

/// User and system time of a process, in µs.
fn cpu_micros(process: u32) -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = text.rsplit(") ").next().ok_or("no fields")?.split(' ').collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) * 10_000.0)
}

/// Sends a request and reads the whole answer.
fn call(stream: &mut TcpStream, request: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    stream.write_all(request)?;
    let (mut answer, mut length) = (Vec::new(), usize::MAX);
    let mut chunk = [0; 16384];
    while answer.len() < length {
        let count = stream.read(&mut chunk)?;
        answer.extend_from_slice(&chunk[..count]);
        if count == 0 {
            return Err("the server closed the connection".into());
        }
        if length == usize::MAX
            && let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")
        {
            let head = std::str::from_utf8(&answer[..end])?;
            if !head.starts_with("HTTP/1.1 200") {
                return Err(head.to_string().into());
            }
            let body = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            length = end + 4 + body.ok_or("no length")?.parse::<usize>()?;
        }
    }
    Ok(answer)
}

fn measure(
    process: u32,
    address: &str,
    route: &str,
    clients: usize,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let text: Vec<&str> = (0..30).map(|index| WORDS[index % WORDS.len()]).collect();
    // The same, with nothing to tokenize.
    let tokens: Vec<usize> = (0..30).map(|index| 4 + index % WORDS.len()).collect();
    let (path, body) = match route {
        "text" => ("POST /embed", json!({ "inputs": text.join(" ") }).to_string()),
        "tokens" => ("POST /embed", json!({ "inputs": tokens }).to_string()),
        "base64" => {
            ("POST /v1/embeddings", json!({ "input": tokens, "encoding_format": "base64" }).to_string())
        }
        _ => ("GET /health", String::new()),
    };
    let head = format!(
        "{path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}",
        body.len()
    );
    let request = format!("{head}\r\n\r\n{body}").into_bytes();
    let send = |count: usize| -> Result<(), String> {
        let failed = |error: Box<dyn Error>| error.to_string();
        let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        (0..count).try_for_each(|_| call(&mut stream, &request).map(drop).map_err(failed))
    };
    send(500)?;
    let (cpu, start) = (cpu_micros(process)?, Instant::now());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(|| send(REQUESTS / clients))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it doesn't panic"))
    })?;
    let (seconds, count) = (start.elapsed().as_secs_f64(), (REQUESTS / clients * clients) as f64);
    let cpu = (cpu_micros(process)? - cpu) / count;
    let round = |number: f64| (number * 10.0).round() / 10.0;
    let requests_per_s = (count / seconds).round();
    Ok(json!({ "route": route, "clients": clients, "cpu_us": round(cpu), "requests_per_s": requests_per_s }))
}
