//! Panics of the server itself, which are planted: so these tests are a program of their own, and run one by one.

#[path = "it/server.rs"]
#[allow(dead_code, reason = "what the other tests use")]
mod server;

use raddle_sync::faults::{Fault, plant};
use serde_json::json;
use server::Server;
use std::sync::{Mutex, PoisonError};

static ONE_BY_ONE: Mutex<()> = Mutex::new(());

/// A request fails while the fault is there, on a connection that goes on, and the next one succeeds.
fn costs_its_own_request(fault: Fault, text: &str) {
    let _one = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::encoder();
    let mut client = server.client();
    for _ in 0..3 {
        let planted = plant(fault);
        let failed = client.post("/embed", &json!({ "inputs": text })).error();
        assert_eq!(failed, (500, "backend".into(), "the server failed".into()));
        let failed = client.post("/v1/embeddings", &json!({ "input": text }));
        assert_eq!((failed.status, &failed.json()["error"]["type"]), (500, &json!("server_error")));
        drop(planted);
        client.post("/embed", &json!({ "inputs": text })).good();
    }
    assert_eq!(server.stop().given_up, 0);
}

#[test]
fn fault_panic_in_handler() {
    costs_its_own_request(Fault::panic_in_handler, "a thread");
}

/// Of long texts, which are read and tokenized where they hold up nobody.
#[test]
fn fault_panic_in_tokenizer_thread() {
    costs_its_own_request(Fault::panic_in_tokenizer_thread, &"a thread ".repeat(1000));
}
