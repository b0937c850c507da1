//! `raddle serve`: a model over HTTP.
//!
//! The port is taken before the model is loaded, so that one that is in use is told at once, and it is listened on when the
//! model is there, so that a client that gets through gets an answer.

mod log;

use crate::output::{Failure, Outcome, check_writable, is_stdout, say, tell, write_json};
use log::Format;
use raddle::{DType, Device, nn::text::ModelOptions};
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::{App, Options, Origins, listen},
};
use serde::Serialize;
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::{
    net::TcpSocket,
    signal::unix::{Signal, SignalKind, signal},
    sync::{oneshot, watch},
};

/// Serves a sentence encoder, a sparse encoder, a reranker or a classifier over HTTP: POST /v1/embeddings (and /embeddings) as
/// OpenAI's servers, POST /v1/rerank as Jina's and Cohere's, POST /embed, /embed_all, /embed_sparse, /rerank, /predict,
/// /similarity, /tokenize, /decode, GET /info, /health, /metrics as text-embeddings-inference's, a page with its state at GET /,
/// and one to try requests from at GET /docs. There is no TLS: put a proxy in front for it. SIGTERM, SIGINT and SIGHUP end it when
/// all that was accepted is answered; a second SIGTERM or SIGINT ends it at once.
#[derive(clap::Args)]
#[command(after_help = "Example: raddle serve --model target/models/all-MiniLM-L6-v2 --port 8080\n\n\
    curl -H 'Content-Type: application/json' -d '{\"inputs\": \"a thread waits\"}' http://127.0.0.1:8080/embed")]
pub struct Arguments {
    /// The folder of the model: a sentence encoder; a reranker or classifier if its config.json names an architecture that ends
    /// with ForSequenceClassification, such as BertForSequenceClassification; a sparse encoder if its modules.json has a
    /// SpladePooling. Or a name on the Hugging Face hub, such as
    /// sentence-transformers/all-MiniLM-L6-v2: what isn't in its cache is fetched.
    #[arg(long, value_name = "FOLDER|NAME")]
    model: PathBuf,
    /// splade: a masked language model that doesn't say so is a sparse encoder. Without it: what the folder says.
    #[arg(long, value_parser = ["splade"])]
    pooling: Option<String>,
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
    /// What clients must show as `Authorization: Bearer KEY`, but for /health, /metrics and the page: printable ASCII
    /// characters without spaces. Without it: the variable RADDLE_API_KEY, which others on this machine can't see, or no key.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// An origin whose pages may ask, such as https://example.org, or * for any; may be said several times. Without it: none, so
    /// that a page of a browser gets nothing from here.
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    cors_allow_origin: Vec<String>,
    /// The name of the model in answers. Without it: that on the hub, or that of its folder.
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
    /// Requests at once, with those whose answer of more than 64 KiB is still being taken; one more is told 429.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_concurrent_requests: u32,
    /// Texts that wait to be computed; a request with one more is told 429.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_queue: u32,
    /// Inputs of a request, at most --max-queue; one more is told 413. Without it: 32, and 2048 of OpenAI's routes, as its own
    /// server has it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    max_client_batch_size: Option<u32>,
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
    /// How long a body may take to come, and a client to take an answer, or each 256 KiB of a longer one.
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
    /// Writes what was served as JSON at the end (- or no name: standard output).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

/// Where a key is if it isn't an option.
const KEY_VARIABLE: &str = "RADDLE_API_KEY";

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
    if let Some(found) = arguments.max_client_batch_size
        && found > arguments.max_queue
    {
        return Err(Failure::Input(format!(
            "serve: --max-client-batch-size is wrong, expected at most --max-queue, {}, found {found}: a request of so many \
             would never find room",
            arguments.max_queue
        )));
    }
    let key = key(arguments)?;
    let cors = Origins::read(&arguments.cors_allow_origin).map_err(|found| {
        let expected = "expected an origin such as https://example.org, or *";
        Failure::Input(format!("serve: --cors-allow-origin is wrong, {expected}, found {found:?}"))
    })?;
    let log = log::start(arguments.log_format, &arguments.log_level)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = arguments.tokenization_workers {
        builder.worker_threads(usize::from(workers));
    }
    // For long texts. As many as tokenize on the others; more would only take turns.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    builder.max_blocking_threads(arguments.tokenization_workers.map_or(cores, usize::from));
    let runtime = builder.thread_name("raddle-http").enable_all().build().map_err(|error| failed(&error))?;
    let socket = bind(SocketAddr::new(arguments.host, arguments.port))?;
    // Before the model is loaded: the first process of a container isn't ended by a signal that it doesn't ask for.
    let (is_listening, told) = watch_signals(&runtime)?;
    let device = Device::new(&arguments.device)?;
    let options = ModelOptions { dtype, ..ModelOptions::default() };
    let folder = crate::model::folder(&arguments.model)?;
    // The folder of a model of the hub is called by its version.
    let hub_name = (folder != arguments.model).then(|| arguments.model.to_string_lossy().into_owned());
    let model = match arguments.pooling {
        Some(_) => Model::load_sparse(&folder, &device, &options),
        None => Model::load(&folder, &device, &options),
    };
    let model = model.map_err(|error| Failure::Input(error.to_string()))?;
    let engine = Engine::start(model, engine_options(arguments)).map_err(|error| failed(&error))?;
    let batch_tokens = engine.about().batch_tokens_max;
    if arguments.max_batch_tokens.is_some_and(|asked| (asked as usize) < batch_tokens) {
        tracing::warn!(
            batch_tokens,
            "--max-batch-tokens is below the limit of the model's texts, and raised to it"
        );
    }
    let name = arguments.served_model_name.clone().or(hub_name);
    let model_name = name.clone().unwrap_or_else(|| engine.about().name.clone());
    let app = App::new(engine, http_options(arguments, name, key, cors));
    // From here on a signal finds somebody who drains.
    is_listening.send_replace(true);
    let ended = runtime.block_on(async {
        // In the system's queue; more are refused there.
        let listener = socket.listen(1024).map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let seconds_to_listen = start.elapsed().as_secs_f64();
        announce(arguments, address, &app, &model_name)?;
        let stop = async { _ = told.await };
        let drained = listen::serve(app.clone(), listener, stop).await;
        Ok::<_, Failure>((address, seconds_to_listen, drained))
    });
    let (address, seconds_to_listen, drained) = ended?;
    // What was given up may never end, and nobody waits for it any more: neither do we.
    if drained.given_up == 0 {
        app.engine().stop_at_once();
    }
    let (about, counts) = (app.engine().about(), app.engine().counts());
    tracing::info!(accepted = drained.accepted, given_up = drained.given_up, "stopped");
    let report = Report {
        address: address.to_string(),
        model: model_name,
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
    let written = write_json(arguments.json.as_deref(), &report);
    if drained.given_up == 0 {
        return written;
    }
    // Writes what is left of it.
    drop(log);
    if let Err(failure) = written {
        tell(format_args!("raddle: {failure}"));
    }
    let (count, within) = (drained.given_up, arguments.drain_timeout);
    tell(format_args!("raddle: serve: {count} requests were not answered within {within} s of the signal"));
    // To return is to wait for the threads of the executor and the engine.
    std::process::exit(1)
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

/// What clients must show, of the option or else of the variable.
///
/// Errors: a key that no client can show, as a line's end behind it, or an empty one: who gives that wants one, and a variable of
/// a script that isn't set must not open the server.
fn key(arguments: &Arguments) -> Outcome<Option<String>> {
    let variable = || std::env::var_os(KEY_VARIABLE).map(|key| (KEY_VARIABLE, key));
    let option = arguments.api_key.clone().map(|key| ("--api-key", key.into()));
    let Some((place, key)) = option.or_else(variable) else { return Ok(None) };
    let is_shown = |key: &String| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    let wrong = |found: &str| {
        let expected = "expected printable ASCII characters without spaces";
        Failure::Input(format!("serve: {place} is wrong, {expected}, found {found}"))
    };
    match key.into_string() {
        Ok(key) if is_shown(&key) => Ok(Some(key)),
        Ok(key) if key.is_empty() => Err(wrong("none; leave it out for a server without a key")),
        _ => Err(wrong("others, which a client can't send")),
    }
}

fn http_options(arguments: &Arguments, name: Option<String>, key: Option<String>, cors: Origins) -> Options {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let inputs =
        |usual: u32| arguments.max_client_batch_size.unwrap_or(usual).min(arguments.max_queue) as usize;
    Options {
        body_bytes_max: arguments.payload_limit as usize,
        input_count_max: inputs(32),
        openai_input_count_max: inputs(2048),
        concurrent_request_count_max: arguments.max_concurrent_requests as usize,
        connection_count_max: arguments.max_connections as usize,
        head_within: seconds(arguments.head_timeout),
        body_within: seconds(arguments.body_timeout),
        send_within: seconds(arguments.body_timeout),
        begin_within: arguments.begin_within.map(|millis| Duration::from_millis(millis.into())),
        drain_within: seconds(arguments.drain_timeout),
        key,
        name,
        cors,
        ..Options::default()
    }
}

/// Where it listens, for people and programs that wait for it.
fn announce(arguments: &Arguments, address: SocketAddr, app: &App, model: &str) -> Outcome {
    let line = format!("listening on http://{address}");
    if is_stdout(arguments.json.as_deref()) {
        tell(line);
    } else {
        say(line)?;
    }
    let about = app.engine().about();
    tracing::info!(model, device = about.device, dtype = %about.dtype, %address, "ready");
    Ok(())
}

/// What tells it to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Unless it was ignored when the program began, as `nohup` has it.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> Outcome<Signals> {
        let listen = |kind| signal(kind).map_err(|error| failed(&error));
        let hangup = (!is_hangup_ignored()).then(|| listen(SignalKind::hangup()));
        Ok(Signals {
            hangup: hangup.transpose()?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn first(&mut self) {
        let Signals { terminate, interrupt, hangup } = self;
        let hangup = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {}, _ = hangup => {} }
    }

    /// Not by a hangup: a terminal that is closed sends several, and systemd one behind its SIGTERM.
    async fn second(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {} }
    }
}

/// As Linux tells; elsewhere it isn't known, and nobody ignores it.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (SignalKind::hangup().as_raw_value() - 1) & 1 == 1
}

/// From here on signals are ours. The first one tells the receiver, once it was said that somebody listens; before, nothing was
/// accepted, and it ends the process. The second one ends it in any case.
fn watch_signals(runtime: &tokio::runtime::Runtime) -> Outcome<(watch::Sender<bool>, oneshot::Receiver<()>)> {
    let _inside = runtime.enter();
    let mut signals = Signals::new()?;
    let (is_listening, listening) = watch::channel(false);
    let (tell_end, told) = oneshot::channel();
    tokio::spawn(async move {
        signals.first().await;
        if !*listening.borrow() {
            tell("raddle: serve: told to stop before it listened");
            std::process::exit(0);
        }
        tracing::info!("told to stop: what was accepted is still answered");
        _ = tell_end.send(());
        signals.second().await;
        tell("raddle: serve: told to stop again");
        std::process::exit(1);
    });
    Ok((is_listening, told))
}
