//! The end of a server: everything that was accepted is answered.

use crate::server::{Server, engine_of, model};
use raddle_nn::text::Tokens;
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::{Options, listen::Drained},
};
use raddle_sync::faults::{Fault, assert_caught};
use serde_json::json;
use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::*},
    },
    time::Duration,
};

const BODY: &[u8] = b"{\"inputs\": \"a thread waits for the device\"}";
const JSON: (&str, &str) = ("content-type", "application/json");

/// Clients that send one request after the other, some on one connection and some on new ones. Each counts what it was
/// answered whole; the sum must be what the server has accepted.
#[test]
fn all_that_was_accepted_is_answered() {
    let mut server = Server::encoder();
    let (answered, refused) = (AtomicU64::new(0), AtomicBool::new(false));
    let address = server.address;
    std::thread::scope(|scope| {
        for client in 0..16 {
            let (answered, refused) = (&answered, &refused);
            scope.spawn(move || {
                'connections: while let Ok(stream) = std::net::TcpStream::connect(address) {
                    let mut connection = crate::server::Client(std::io::BufReader::new(stream));
                    for _ in 0..if client % 2 == 0 { usize::MAX } else { 3 } {
                        connection.send("POST", "/embed", &[JSON], BODY);
                        let Some(reply) = connection.receive() else { continue 'connections };
                        reply.good();
                        answered.fetch_add(1, SeqCst);
                        if reply.headers.get("connection").is_some_and(|value| value == "close") {
                            continue 'connections;
                        }
                    }
                }
                refused.store(true, SeqCst);
            });
        }
        server.until(|_| answered.load(SeqCst) > 200);
        server.tell();
    });
    let drained = server.stop();
    assert!(refused.load(SeqCst));
    assert_eq!(drained.given_up, 0);
    assert_eq!(drained.accepted, answered.load(SeqCst));
}

#[test]
fn what_waits_is_answered_and_health_says_no() {
    let options = Options { linger: Duration::from_secs(3600), ..Options::default() };
    let mut server = Server::start(engine_of(false, EngineOptions::default()), options);
    server.app.engine().pause();
    let mut waiting = server.client();
    waiting.send("POST", "/embed", &[JSON], BODY);
    let mut idle = server.client();
    assert_eq!(idle.call("GET", "/health", &[], b"").status, 200);
    server.until(|app| app.engine().counts().waiting_count == 1);
    server.tell();
    // The listener is closed before anything else.
    while std::net::TcpStream::connect(server.address).is_ok() {}
    let health = idle.call("GET", "/health", &[], b"");
    assert_eq!(health.error().0, 503);
    assert_eq!(health.headers["connection"], "close");
    assert!(idle.receive().is_none());
    server.app.engine().resume();
    let reply = waiting.receive().unwrap();
    reply.good();
    assert_eq!(reply.headers["connection"], "close");
    assert_eq!(server.stop().given_up, 0);
}

#[test]
fn idle_connections_dont_hold_it_up() {
    let server = Server::start(
        engine_of(false, EngineOptions::default()),
        Options {
            linger: Duration::from_millis(1),
            drain_within: Duration::from_secs(3600),
            ..Options::default()
        },
    );
    let mut idle = server.client();
    assert_eq!(idle.call("GET", "/health", &[], b"").status, 200);
    let unused = server.client();
    assert_eq!(server.stop().given_up, 0);
    assert!(idle.receive().is_none());
    drop(unused);
}

/// Nor do those of which a part of the first head has come.
#[test]
fn half_a_head_doesnt_hold_it_up() {
    let hour = Duration::from_secs(3600);
    let mut server = Server::start(
        engine_of(false, EngineOptions::default()),
        Options {
            linger: Duration::from_millis(1),
            drain_within: hour,
            head_within: hour,
            ..Options::default()
        },
    );
    let mut half = server.client();
    half.0.get_mut().write_all(b"POST /embed HT").unwrap();
    server.until(|app| app.connection_count() == 1);
    server.tell();
    // Closed, rather than that the client's own patience is over.
    let mut rest = Vec::new();
    let end = half.0.read_to_end(&mut rest).map_err(|error| error.kind());
    assert!(matches!(end, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{end:?}");
    assert_eq!(server.stop(), Drained { accepted: 0, cancelled: 0, given_up: 0 });
}

#[test]
fn what_takes_too_long_is_counted() {
    let options = Options { drain_within: Duration::from_millis(20), ..Options::default() };
    let server = Server::start(engine_of(false, EngineOptions::default()), options);
    server.app.engine().pause();
    let mut waiting = server.client();
    waiting.send("POST", "/embed", &[JSON], BODY);
    server.until(|app| app.engine().counts().waiting_count == 1);
    let app = server.app.clone();
    let drained = server.stop();
    assert_eq!((drained.accepted, drained.given_up), (1, 1));
    assert!(waiting.receive().is_none());
    // Its text was taken back.
    assert_eq!(app.engine().counts().cancelled_count, 1);
}

#[test]
fn an_engine_that_was_stopped_is_unhealthy() {
    let server = Server::encoder();
    server.get("/health").good();
    server.app.engine().stop();
    let unhealthy = (503, "unhealthy".to_string(), "the engine has been stopped".to_string());
    assert_eq!(server.get("/health").error(), unhealthy);
    let reply = server.post("/embed", &json!({ "inputs": "a" }));
    assert_eq!(reply.headers["retry-after"], "1");
    assert_eq!(reply.error(), (503, "unhealthy".into(), "submit: the batcher has been stopped".into()));
}

/// Until a batch is good again.
#[test]
fn a_device_that_fails_is_unhealthy() {
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let compute = move |model: &Model, texts: &[Tokens]| match failing.load(SeqCst) {
        true => Err(raddle_tensor::Error::NotOneElement { op: "device", found: 0 }.into()),
        false => model.rows(texts),
    };
    let engine = Engine::start_with(model(false), EngineOptions::default(), compute).unwrap();
    let server = Server::start(engine, Options::default());
    server.get("/health").good();
    assert_eq!(server.post("/embed", &json!({ "inputs": "a" })).status, 424);
    let (status, kind, message) = server.get("/health").error();
    assert_eq!(
        (status, &kind[..], &message[..]),
        (503, "unhealthy", "the device has failed with the last batch")
    );
    fails.store(false, SeqCst);
    server.post("/embed", &json!({ "inputs": "a" })).good();
    server.get("/health").good();
}

#[test]
fn fault_leaves_at_stop() {
    assert_caught(Fault::leaves_at_stop, "stopping::what_waits_is_answered_and_health_says_no");
}
