//! `raddle serve`: a model over HTTP.
//!
//! The port is taken before the model is loaded, so that one that is in use is told at once, and it is listened on when the
//! model is there, so that a client that gets through gets an answer.

mod log;

use crate::output::{Failure, Outcome, check_writable, is_stdout, write_json};
use log::Format;
use raddle::{DType, Device, nn::text::ModelOptions};
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::{App, Options, listen},
};
use serde::Serialize;
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::net::{TcpListener, TcpSocket};

/// Serves a sentence encoder or a reranker over HTTP: POST /v1/embeddings as OpenAI's servers, POST /embed, /rerank,
/// /similarity, /tokenize, /decode, GET /info, /health, /metrics as text-embeddings-inference's, and a page with its state
/// at GET /. There is no TLS: put a proxy in front for it. SIGTERM and SIGINT end it when all that was accepted is answered;
/// a second one ends it at once.
#[derive(clap::Args)]
#[command(after_help = "Example: raddle serve --model target/models/all-MiniLM-L6-v2 --port 8080\n\n\
    curl -H 'Content-Type: application/json' -d '{\"inputs\": \"a thread waits\"}' http://127.0.0.1:8080/embed")]
pub struct Arguments {
    /// The folder of the model: a sentence encoder, or a reranker if its config.json says BertForSequenceClassification.
    #[arg(long, value_name = "FOLDER")]
    model: PathBuf,
    /// The address to listen on; 0.0.0.0 for all.
    #[arg(long, alias = "hostname", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port; 0 for one that is free. The first line on standard output says which.
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Where to run: cpu, cuda:ORDINAL or sim:SEED.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// What the model computes in: f32, f16 or bf16 (or as text-embeddings-inference calls them).
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// What clients must show as `Authorization: Bearer KEY`, but for /health, /metrics and the page. Without it: the
    /// variable RADDLE_API_KEY, which others on this machine can't see, or no key.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// The name of the model in answers. Without it: that of its folder.
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Batches that run at once, each on a thread. Without it: as many as there are cores on the CPU, else 2.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Threads that read requests, tokenize and send answers. Without it: as many as there are cores.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    tokenization_workers: Option<u16>,
    /// Tokens in a batch, with padding. Without it: 1024 on the CPU, else 16384.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_batch_tokens: Option<u32>,
    /// Texts in a batch.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    max_batch_requests: u32,
    /// How long a text waits for others to fill its batch while a thread is free.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    max_wait: u32,
    /// Requests at once; one more is told 429.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_concurrent_requests: u32,
    /// Texts that wait to be computed; a request with one more is told 429.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_queue: u32,
    /// Inputs of a request; one more is told 413.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    max_client_batch_size: u32,
    /// Bytes of a body; one more is told 413.
    #[arg(long, value_name = "BYTES", default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    payload_limit: u32,
    /// Connections at once; one more waits.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_connections: u32,
    /// A text must begin to be computed within this time, or its request is told 504. A request may say another by
    /// `x-begin-within-ms`. Without it: none.
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    begin_within: Option<u32>,
    /// How long a head may take to come, and a connection may be idle.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    head_timeout: u32,
    /// How long a body may take to come, and a client may take nothing of an answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    body_timeout: u32,
    /// After a signal: how long what was accepted may take to be answered.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=86_400))]
    drain_timeout: u32,
    /// The same numbers for a text whatever is beside it, to the last bit. So it is on the CPU anyway; elsewhere it costs the
    /// batching.
    #[arg(long)]
    deterministic: bool,
    /// How lines of the log look, which go to standard error.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// What is logged: error, warn, info (a line a request), debug.
    #[arg(long, default_value = "info", value_parser = ["off", "error", "warn", "info", "debug"])]
    log_level: String,
    /// Writes what was served as JSON at the end (- for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    address: String,
    model: String,
    device: String,
    dtype: String,
    /// From the start to the end.
    seconds: f64,
    /// From the start until it listened.
    seconds_to_listen: f64,
    accepted: u64,
    /// Left by their clients before they were answered.
    cancelled: u64,
    given_up: u64,
    texts: u64,
    tokens: u64,
    batches: u64,
}

pub fn run(arguments: &Arguments) -> Outcome {
    let start = Instant::now();
    check_writable(arguments.json.as_deref())?;
    let dtype = dtype(&arguments.dtype)?;
    let _log = log::start(arguments.log_format, &arguments.log_level)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = arguments.tokenization_workers {
        builder.worker_threads(usize::from(workers));
    }
    // For long texts. As many as tokenize on the others; more would only take turns.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    builder.max_blocking_threads(arguments.tokenization_workers.map_or(cores, usize::from));
    let runtime = builder.thread_name("raddle-http").enable_all().build().map_err(|error| failed(&error))?;
    let socket = bind(SocketAddr::new(arguments.host, arguments.port))?;
    let device = Device::new(&arguments.device)?;
    let options = ModelOptions { dtype, ..ModelOptions::default() };
    let model = Model::load(&arguments.model, &device, &options);
    let model = model.map_err(|error| Failure::Input(error.to_string()))?;
    let engine = Engine::start(model, engine_options(arguments)).map_err(|error| failed(&error))?;
    let app = App::new(engine, http_options(arguments));
    let ended = runtime.block_on(async {
        // In the system's queue; more are refused there.
        let listener = socket.listen(1024).map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let seconds_to_listen = start.elapsed().as_secs_f64();
        announce(arguments, address, &app);
        let drained = listen(&app, listener).await?;
        Ok::<_, Failure>((address, seconds_to_listen, drained))
    });
    let (address, seconds_to_listen, drained) = ended?;
    // Whatever still waits has no client any more.
    app.engine().stop_at_once();
    let (about, counts) = (app.engine().about(), app.engine().counts());
    tracing::info!(accepted = drained.accepted, given_up = drained.given_up, "stopped");
    let report = Report {
        address: address.to_string(),
        model: about.name.clone(),
        device: about.device.clone(),
        dtype: about.dtype.to_string(),
        seconds: start.elapsed().as_secs_f64(),
        seconds_to_listen,
        accepted: drained.accepted,
        cancelled: drained.cancelled,
        given_up: drained.given_up,
        texts: counts.run_count,
        tokens: counts.run_tokens,
        batches: counts.batch_count,
    };
    write_json(arguments.json.as_deref(), &report)?;
    match drained.given_up {
        0 => Ok(()),
        count => Err(Failure::Other(format!(
            "serve: {count} requests were not answered within {} s of the signal",
            arguments.drain_timeout
        ))),
    }
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::Other(format!("serve: {error}"))
}

fn dtype(name: &str) -> Outcome<DType> {
    match name {
        "f32" | "float32" => Ok(DType::F32),
        "f16" | "float16" => Ok(DType::F16),
        "bf16" | "bfloat16" => Ok(DType::BF16),
        _ => Err(Failure::Input(format!("serve: expected a dtype of f32, f16, bf16, found {name:?}"))),
    }
}

/// A socket with an address, on which nobody listens yet.
fn bind(address: SocketAddr) -> Outcome<TcpSocket> {
    let failed = |error: std::io::Error| Failure::Input(format!("serve: {address}: {error}"));
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
    // A server that is started again has its port at once.
    socket.set_reuseaddr(true).map_err(failed)?;
    socket.bind(address).map_err(failed)?;
    Ok(socket)
}

fn engine_options(arguments: &Arguments) -> EngineOptions {
    EngineOptions {
        batch_tokens_max: arguments.max_batch_tokens.map(|tokens| tokens as usize),
        batch_count_max: arguments.max_batch_requests as usize,
        waiting_count_max: arguments.max_queue as usize,
        running_count_max: arguments.threads.map(usize::from),
        wait_max: Duration::from_micros(arguments.max_wait.into()),
        deterministic: arguments.deterministic,
    }
}

fn http_options(arguments: &Arguments) -> Options {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let variable = || std::env::var("RADDLE_API_KEY").ok();
    Options {
        body_bytes_max: arguments.payload_limit as usize,
        input_count_max: arguments.max_client_batch_size as usize,
        concurrent_request_count_max: arguments.max_concurrent_requests as usize,
        connection_count_max: arguments.max_connections as usize,
        head_within: seconds(arguments.head_timeout),
        body_within: seconds(arguments.body_timeout),
        send_within: seconds(arguments.body_timeout),
        begin_within: arguments.begin_within.map(|millis| Duration::from_millis(millis.into())),
        drain_within: seconds(arguments.drain_timeout),
        key: arguments.api_key.clone().or_else(variable).filter(|key| !key.is_empty()),
        name: arguments.served_model_name.clone(),
        ..Options::default()
    }
}

/// Where it listens, for people and programs that wait for it.
fn announce(arguments: &Arguments, address: SocketAddr, app: &App) {
    let line = format!("listening on http://{address}");
    if is_stdout(arguments.json.as_deref()) {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
    let about = app.engine().about();
    tracing::info!(model = about.name, device = about.device, dtype = %about.dtype, %address, "ready");
}

/// Serves until the first signal, and ends the process at the second.
async fn listen(app: &Arc<App>, listener: TcpListener) -> Outcome<listen::Drained> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed(&error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed(&error))?;
    let (told, stop) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut next = async || tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} };
        next().await;
        tracing::info!("told to stop: what was accepted is still answered");
        _ = told.send(());
        next().await;
        eprintln!("raddle: serve: told to stop again");
        std::process::exit(1);
    });
    let stop = async move { _ = stop.await };
    Ok(listen::serve(app.clone(), listener, stop).await)
}
