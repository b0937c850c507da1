//! A server on a thread of its own, and a client that knows as much of HTTP as it needs.

use raddle_nn::{
    checkpoint,
    text::{BertConfig, ModelOptions, write_random_model},
};
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::{
        App, Options,
        listen::{Drained, serve},
    },
};
use raddle_tensor::{Device, Tensor};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    sync::{Arc, OnceLock, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

const WORDS: [&str; 8] = ["a", "thread", "stream", "tick", "waits", "for", "the", "device"];
pub const TOKENS_MAX: usize = 16;
pub const WIDTH: usize = 32;

pub fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap())
}

/// The folder of a model, of an encoder or a reranker. Kept while the process lives, as its tests share it.
pub fn folder(is_reranker: bool) -> PathBuf {
    static FOLDERS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let folders = FOLDERS.get_or_init(|| {
        ["encoder", "reranker"].map(|name| {
            let folder = std::env::temp_dir().join(format!("raddle-{}-server/{name}", std::process::id()));
            let config = BertConfig::tiny(WORDS.len() + 4);
            write_random_model(&folder, &config, &WORDS, TOKENS_MAX, 5, device()).unwrap();
            if name == "reranker" {
                let file = folder.join("config.json");
                let text = fs::read_to_string(&file).unwrap();
                fs::write(file, text.replace("BertModel", "BertForSequenceClassification")).unwrap();
            } else {
                let prompts = r#"{"prompts": {"query": "for the "}, "default_prompt_name": null}"#;
                fs::write(folder.join("config_sentence_transformers.json"), prompts).unwrap();
            }
            folder
        })
    });
    folders[usize::from(is_reranker)].clone()
}

/// The folder of a sparse encoder, which has the weights of the encoder.
pub fn sparse_folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let folder = copied("sparse");
        let module =
            |path: &str, kind: &str| json!({ "path": path, "type": format!("sparse_encoder.models.{kind}") });
        let modules = json!([module("", "MLMTransformer"), module("1_SpladePooling", "SpladePooling")]);
        fs::write(folder.join("modules.json"), modules.to_string()).unwrap();
        fs::create_dir_all(folder.join("1_SpladePooling")).unwrap();
        fs::write(folder.join("1_SpladePooling/config.json"), "{\"pooling_strategy\": \"max\"}").unwrap();
        folder
    });
    made.clone()
}

/// The folder of a classifier of three labels, of which the last has no name.
pub fn classifier_folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let folder = copied("classifier");
        let config = fs::read_to_string(folder.join("config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["architectures"] = json!(["BertForSequenceClassification"]);
        config["id2label"] = json!({ "0": "good", "1": "bad" });
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let file = folder.join("model.safetensors");
        let mut weights = checkpoint::load(&file, device()).unwrap();
        for (name, tensor) in &mut weights {
            if name.starts_with("classifier.") {
                *tensor = Tensor::cat(&[tensor.clone(), tensor.neg().unwrap(), tensor.mul(0.5).unwrap()], 0)
                    .unwrap();
            }
        }
        checkpoint::save(&file, &weights).unwrap();
        folder
    });
    made.clone()
}

/// The folder of a model like the encoder, of this name.
pub fn copied(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("raddle-{}-server/{name}", std::process::id()));
    write_random_model(&folder, &BertConfig::tiny(WORDS.len() + 4), &WORDS, TOKENS_MAX, 5, device()).unwrap();
    folder
}

/// A server over the model of a folder.
pub fn serving(folder: PathBuf) -> Server {
    let model = Model::load(folder, device(), &ModelOptions::default()).unwrap();
    Server::start(Engine::start(model, EngineOptions::default()).unwrap(), Options::default())
}

pub fn model(is_reranker: bool) -> Model {
    Model::load(folder(is_reranker), device(), &ModelOptions::default()).unwrap()
}

pub fn engine_of(is_reranker: bool, options: EngineOptions) -> Engine {
    Engine::start(model(is_reranker), options).unwrap()
}

pub struct Server {
    pub app: Arc<App>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Drained>>,
}

impl Server {
    pub fn encoder() -> Server {
        Server::start(engine_of(false, EngineOptions::default()), Options::default())
    }

    pub fn start(engine: Engine, options: Options) -> Server {
        let app = App::new(engine, options);
        let (stop, told) = oneshot::channel();
        let (bound, address) = mpsc::channel();
        let own = app.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                bound.send(listener.local_addr().unwrap()).unwrap();
                serve(own, listener, async { _ = told.await }).await
            })
        });
        let address = address.recv().unwrap();
        Server { app, address, stop: Some(stop), thread: Some(thread) }
    }

    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.client().call("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.client().post(path, body)
    }

    /// Tells it to stop, without waiting for the end.
    pub fn tell(&mut self) {
        _ = self.stop.take().map(|stop| stop.send(()));
    }

    pub fn stop(mut self) -> Drained {
        self.tell();
        self.thread.take().unwrap().join().unwrap()
    }

    /// Until something holds that must come to hold.
    pub fn until(&self, holds: impl Fn(&App) -> bool) {
        let start = Instant::now();
        while !holds(&self.app) {
            assert!(start.elapsed() < Duration::from_secs(300), "it never came");
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tell();
        self.app.engine().resume();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The JSON of an answer that is good.
    pub fn good(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// Of an error as text-embeddings-inference has it.
    pub fn error(&self) -> (u16, String, String) {
        let json = self.json();
        assert_eq!(json.as_object().unwrap().len(), 2, "{json}");
        (self.status, json["error_type"].as_str().unwrap().into(), json["error"].as_str().unwrap().into())
    }
}

/// One connection.
pub struct Client(pub BufReader<TcpStream>);

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        // A server that doesn't answer fails the test rather than hangs it.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Reply {
        self.call("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    pub fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, path, headers, body);
        self.receive().expect("the server answers")
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nhost: raddle\r\ncontent-length: {}\r\n", body.len());
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        let message = [head.as_bytes(), b"\r\n", body].concat();
        // One that is refused while it is sent is answered all the same.
        _ = self.0.get_mut().write_all(&message);
    }

    /// The next answer; `None` if the connection ends before one has come whole.
    pub fn receive(&mut self) -> Option<Reply> {
        let mut line = || {
            let mut line = String::new();
            let read = self.0.read_line(&mut line);
            read.ok().filter(|bytes| *bytes > 0).map(|_| line.trim_end().to_string())
        };
        let status = line()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = HashMap::new();
        loop {
            let line = line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ")?;
            headers.insert(name.to_lowercase(), value.to_string());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some(Reply { status, headers, body })
    }
}
