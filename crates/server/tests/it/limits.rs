//! What a client can hold, and how it gets it back.

use crate::server::{Client, Server, engine_of};
use raddle_server::{engine::EngineOptions, http::Options};
use raddle_sync::faults::{Fault, assert_caught};
use serde_json::json;
use std::{
    io::{Read, Write},
    time::Duration,
};

const JSON: (&str, &str) = ("content-type", "application/json");
const BODY: &[u8] = b"{\"inputs\": \"a thread\"}";

fn with(options: Options) -> Server {
    Server::start(engine_of(false, EngineOptions::default()), options)
}

fn send(server: &Server) -> Client {
    let mut client = server.client();
    client.send("POST", "/embed", &[JSON], BODY);
    client
}

#[test]
fn bodies_are_bounded() {
    let server = with(Options { body_bytes_max: 100, ..Options::default() });
    let body = |bytes: usize| format!("{{\"inputs\": \"{}\"}}", "a".repeat(bytes - 14));
    let call = |bytes| server.client().call("POST", "/embed", &[JSON], body(bytes).as_bytes());
    assert_eq!(call(100).status, 200);
    let refused =
        (413, "validation".to_string(), "body: it is too large, expected at most 100 bytes".to_string());
    for bytes in [101, 400, 1 << 22] {
        assert_eq!(call(bytes).error(), refused);
    }
    // Without a length that says so.
    let mut client = server.client();
    let head = "POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("32\r\n{}\r\n", "a".repeat(50));
    client.0.get_mut().write_all(format!("{head}{}", chunk.repeat(3)).as_bytes()).unwrap();
    client.0.get_mut().write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(client.receive().unwrap().error(), refused);
}

#[test]
fn a_full_queue_is_told_and_who_goes_frees_his_room() {
    let options = EngineOptions { waiting_count_max: 2, ..EngineOptions::default() };
    let server = Server::start(engine_of(false, options), Options::default());
    let engine = server.app.engine();
    engine.pause();
    let (first, mut second) = (send(&server), send(&server));
    server.until(|app| app.engine().counts().waiting_count == 2);
    let full = send(&server).receive().unwrap();
    assert_eq!((full.status, &full.headers["retry-after"][..]), (429, "1"));
    assert!(full.error().2.starts_with("submit: the queue is full"), "{full:?}");
    // A request of two texts, of which none fits, leaves nothing behind.
    drop(first);
    server.until(|app| app.served().1 == 2);
    assert_eq!(engine.counts().waiting_count, 1);
    let two = server.post("/embed", &json!({ "inputs": ["a", "thread"] }));
    assert_eq!(two.status, 429);
    assert_eq!(engine.counts().waiting_count, 1);
    let mut third = send(&server);
    server.until(|app| app.engine().counts().waiting_count == 2);
    engine.resume();
    let (second, third) = (second.receive().unwrap().good(), third.receive().unwrap().good());
    assert_eq!(second, third);
    server.until(|app| app.served().0 == app.served().1);
    assert_eq!(engine.counts().cancelled_count, 2);
}

#[test]
fn requests_at_once_are_bounded() {
    let server = with(Options { concurrent_request_count_max: 1, ..Options::default() });
    server.app.engine().pause();
    let mut first = send(&server);
    server.until(|app| app.engine().counts().waiting_count == 1);
    let refused = send(&server).receive().unwrap();
    let message = "the server is busy, expected less than 1 requests at once".to_string();
    assert_eq!(refused.error(), (429, "overloaded".into(), message));
    // What computes nothing is still answered.
    assert_eq!(server.get("/health").status, 200);
    server.app.engine().resume();
    first.receive().unwrap().good();
    send(&server).receive().unwrap().good();
}

#[test]
fn a_request_may_expire() {
    let server = with(Options { begin_within: Some(Duration::from_millis(1)), ..Options::default() });
    server.app.engine().pause();
    let expired = send(&server).receive().unwrap().error();
    assert_eq!(expired, (504, "overloaded".into(), "batch: the request has not begun within 1ms".into()));
    let own = server.client().call("POST", "/embed", &[JSON, ("x-begin-within-ms", "2")], BODY).error();
    assert_eq!(own.2, "batch: the request has not begun within 2ms");
    server.app.engine().resume();
    let patient = server.client().call("POST", "/embed", &[JSON, ("x-begin-within-ms", "60000")], BODY);
    assert_eq!(patient.status, 200);
}

#[test]
fn heads_and_bodies_that_dont_come_are_given_up() {
    let short = Duration::from_millis(20);
    let server = with(Options { head_within: short, body_within: short, ..Options::default() });
    let mut silent = server.client();
    assert!(silent.receive().is_none());
    let mut slow = server.client();
    slow.0.get_mut().write_all(b"POST /embed HT").unwrap();
    let mut rest = Vec::new();
    // A word of goodbye or none; the connection ends.
    _ = slow.0.read_to_end(&mut rest);
    let mut body = server.client();
    let head =
        b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    body.0.get_mut().write_all(head).unwrap();
    assert_eq!(
        body.receive().unwrap().error(),
        (408, "validation".into(), "body: it took longer than 20ms to come".into())
    );
}

#[test]
fn who_reads_nothing_is_left() {
    let server = with(Options { send_within: Duration::from_millis(20), ..Options::default() });
    let mut client = server.client();
    const COUNT: usize = 5000;
    let requests = "GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(COUNT);
    // The server doesn't read to the end either: it has to write first.
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let writing = std::thread::spawn(move || _ = writer.write_all(requests.as_bytes()));
    // Its own end of the connection is gone: nobody is being answered, and yet not all has been.
    let connection_ended = |app: &raddle_server::http::App| app.connection_count() == 0;
    server.until(|app| app.served().0 > 0);
    server.until(connection_ended);
    let mut count = 0;
    while client.receive().is_some() {
        count += 1;
    }
    writing.join().unwrap();
    assert!(count < COUNT, "all {COUNT} were answered");
}

/// What waits to be taken is memory, too. A million tokens are some 70 MB of JSON.
#[test]
fn answers_that_nobody_takes_keep_their_room() {
    let server = with(Options { concurrent_request_count_max: 1, ..Options::default() });
    // More than the system holds for a client that doesn't read.
    let body = json!({ "inputs": "a ".repeat(200_000) }).to_string();
    let status = || send(&server).receive().unwrap().status;
    for is_taken in [true, false] {
        let mut first = server.client();
        let (accepted, done) = server.app.served();
        first.send("POST", "/tokenize", &[JSON], body.as_bytes());
        server.until(|app| app.served() == (accepted + 1, done + 1));
        assert_eq!(status(), 429);
        if is_taken {
            let tokens = first.receive().unwrap().good();
            assert_eq!(tokens[0].as_array().unwrap().len(), 200_002);
        }
        drop(first);
        server.until(|_| status() == 200);
    }
}

#[test]
fn connections_are_bounded() {
    let server = with(Options { connection_count_max: 1, ..Options::default() });
    let mut first = server.client();
    assert_eq!(first.call("GET", "/health", &[], b"").status, 200);
    let mut second = server.client();
    second.send("GET", "/health", &[], b"");
    for _ in 0..20 {
        assert_eq!(first.call("GET", "/health", &[], b"").status, 200);
    }
    assert_eq!((server.app.served().0, server.app.connection_count()), (21, 1));
    drop(first);
    assert_eq!(second.receive().unwrap().status, 200);
}

#[test]
fn heads_are_bounded() {
    let server = Server::encoder();
    let long = "x".repeat(100_000);
    let mut client = server.client();
    client.send("GET", "/health", &[("x-long", &long)], b"");
    // A word of goodbye, or none if the server was quicker.
    assert!(client.receive().is_none_or(|reply| reply.status == 431));
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn fault_body_without_end() {
    assert_caught(Fault::body_without_end, "limits::bodies_are_bounded");
}

#[test]
fn fault_gone_keep_room() {
    let test = "limits::a_full_queue_is_told_and_who_goes_frees_his_room";
    assert_caught(Fault::gone_keep_room, test);
}
