//! Every error is JSON, in the words of its path's protocol.

use crate::server::{Client, Server, TOKENS_MAX, device, engine_of, model};
use raddle_nn::text::{BertConfig, ModelOptions, write_random_model};
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::Options,
};
use raddle_sync::faults::{Fault, assert_caught};
use serde_json::{Value, json};
use std::{fs, io::Write};

const JSON: (&str, &str) = ("content-type", "application/json");

/// Status, type, and how the message begins.
fn assert_error(found: (u16, String, String), status: u16, kind: &str, message: &str) {
    assert_eq!((found.0, &found.1[..]), (status, kind), "{}", found.2);
    assert!(found.2.starts_with(message), "{}", found.2);
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    let server = Server::encoder();
    let embed = |body: Value| server.post("/embed", &body).error();
    for (body, status, kind, message) in [
        (json!({}), 422, "validation", "body: missing field `inputs`"),
        (json!({ "inputs": 7 }), 422, "validation", "body: invalid type: integer `7`, expected a string"),
        (json!([]), 422, "validation", "body: expected an object"),
        // All that an object has, without the names.
        (json!(["a", true, "right", true, null, 8]), 422, "validation", "body: expected an object"),
        (json!("a"), 422, "validation", "body: expected an object"),
        (
            json!({ "inputs": [["a", "b"]] }),
            422,
            "validation",
            "body: invalid type: string \"a\", expected a token number",
        ),
        (
            json!({ "inputs": "a", "truncation_direction": 5 }),
            422,
            "validation",
            "body: invalid type: integer `5`, expected a string",
        ),
        (json!({ "inputs": vec![""; 65537] }), 413, "validation", "body: a list is too long"),
        (json!({ "inputs": [] }), 400, "empty", "inputs: the list is empty"),
        (
            json!({ "inputs": vec!["a"; 33] }),
            413,
            "validation",
            "inputs: too many of them, expected at most 32, found 33",
        ),
        (
            json!({ "inputs": "a", "dimensions": 0 }),
            422,
            "validation",
            "dimensions is wrong, expected 1 to 32, found 0",
        ),
        (
            json!({ "inputs": "a", "dimensions": 33 }),
            422,
            "validation",
            "dimensions is wrong, expected 1 to 32, found 33",
        ),
        (
            json!({ "inputs": "a", "prompt_name": "none" }),
            422,
            "validation",
            "prompt_name is wrong, expected one of [query]",
        ),
        (
            json!({ "inputs": "a", "truncation_direction": "up" }),
            422,
            "validation",
            "body: unknown variant `up`, expected one of",
        ),
        (
            json!({ "inputs": [[5], [12]] }),
            422,
            "tokenizer",
            "text 1: a token is wrong, expected below 12, found 12",
        ),
        (
            json!({ "inputs": ["a", "a ".repeat(20)], "truncate": false }),
            413,
            "validation",
            "text 1: the number of tokens is wrong, expected at most 16, found 22",
        ),
        (
            json!({ "inputs": [[4], vec![4; 15]], "truncate": false }),
            413,
            "validation",
            "text 1: the number of tokens is wrong, expected at most 16, found 17",
        ),
    ] {
        assert_error(embed(body), status, kind, message);
    }
    assert_error(
        server.post("/tokenize", &json!({ "inputs": [[5]] })).error(),
        422,
        "validation",
        "inputs: expected strings",
    );
    assert_error(
        server.post("/decode", &json!({ "ids": "a" })).error(),
        422,
        "validation",
        "ids: expected token",
    );
    // As the body calls them.
    for (path, body, message) in [
        ("/tokenize", json!({ "inputs": [] }), "inputs: the list is empty"),
        ("/decode", json!({ "ids": [] }), "ids: the list is empty"),
        (
            "/similarity",
            json!({ "inputs": { "source_sentence": "a", "sentences": [] } }),
            "sentences: the list is empty",
        ),
    ] {
        assert_error(server.post(path, &body).error(), 400, "empty", message);
    }
    // A list in the place of an object, with an item for each name.
    for body in [
        json!({ "inputs": ["a", ["a"]] }),
        json!({ "inputs": { "source_sentence": "a", "sentences": "a" }, "parameters": [true, "left", null] }),
    ] {
        let message = "body: invalid type: sequence, expected an object";
        assert_error(server.post("/similarity", &body).error(), 422, "validation", message);
    }
    // The one that the others are compared with is text 0, whatever is wrong with one.
    let similarity = |source: &str, sentences: Value| {
        let inputs = json!({ "source_sentence": source, "sentences": sentences });
        server
            .post("/similarity", &json!({ "inputs": inputs, "parameters": { "truncate": false } }))
            .error()
            .2
    };
    let long = "a ".repeat(20);
    assert!(similarity(&long, json!(["a"])).starts_with("text 0: the number of tokens"));
    assert!(similarity("a", json!([long])).starts_with("text 1: the number of tokens"));
    assert!(similarity("a", json!([[12]])).starts_with("text 1: a token is wrong"));
    assert_error(server.get("/nowhere").error(), 404, "validation", "there is no such path");
    assert_error(server.get("/embed").error(), 405, "validation", "the path has no such method");
    for (method, path, known) in [("GET", "/embed", "POST"), ("DELETE", "/", "GET,HEAD,POST")] {
        assert_eq!(server.client().call(method, path, &[], b"").headers["allow"], known);
    }

    let raw =
        |headers: &[(&str, &str)], body: &[u8]| server.client().call("POST", "/embed", headers, body).error();
    let no_json = "body: expected JSON, found something else";
    assert_error(raw(&[JSON], b"{\"inputs\""), 400, "validation", no_json);
    assert_error(raw(&[JSON], b""), 400, "validation", no_json);
    assert_error(raw(&[JSON], b"{\"inputs\": \"\xff\"}"), 400, "validation", no_json);
    assert_error(
        raw(&[JSON], format!("{{\"x\": {}", "[".repeat(100_000)).as_bytes()),
        400,
        "validation",
        no_json,
    );
    for headers in [&[][..], &[("content-type", "text/plain")]] {
        assert_error(raw(headers, b"{}"), 415, "validation", "body: expected the header Content-Type");
    }
    let compressed = [JSON, ("content-encoding", "gzip")];
    assert_error(raw(&compressed, b"\x1f\x8b\x08"), 415, "validation", "body: expected no Content-Encoding");
    let headers = [JSON, ("content-encoding", "Identity")];
    server.client().call("POST", "/embed", &headers, b" {\"inputs\": \"a\"}\n").good();
    assert_error(raw(&[JSON], b"[1, 2"), 400, "validation", no_json);
    let priority = |name, value| raw(&[JSON, (name, value)], b"{\"inputs\": \"a\"}");
    assert_error(priority("x-priority", "highest"), 422, "validation", "x-priority is wrong");
    assert_error(priority("x-begin-within-ms", "0"), 422, "validation", "x-begin-within-ms is wrong");
}

/// Case F-26: as many inputs as are allowed, and one more, of each limit.
#[test]
fn lists_may_be_as_long_as_the_limit() {
    let server = Server::encoder();
    for (path, field, most) in [
        ("/embed", "inputs", 32),
        ("/tokenize", "inputs", 32),
        ("/v1/embeddings", "input", 2048),
        ("/embeddings", "input", 2048),
    ] {
        let status = |count: usize| server.post(path, &json!({ field: vec!["a"; count] })).status;
        assert_eq!((status(most), status(most + 1)), (200, 413), "{path}");
    }
    // What the queue never holds isn't told to come later.
    let options = EngineOptions { waiting_count_max: 4, ..EngineOptions::default() };
    let server = Server::start(engine_of(false, options), Options::default());
    let embed = |count: usize| server.post("/embed", &json!({ "inputs": vec!["a"; count] }));
    embed(4).good();
    let message = "inputs: more than the queue holds, expected at most 4, found 5";
    assert_eq!(embed(5).error(), (413, "validation".into(), message.into()));
}

/// Case F-22: a tokenizer that puts nothing around texts makes nothing of an empty one. That isn't too large.
#[test]
fn a_text_without_tokens_is_no_large_one() {
    let folder = std::env::temp_dir().join(format!("raddle-{}-bare", std::process::id()));
    write_random_model(&folder, &BertConfig::tiny(5), &["a"], TOKENS_MAX, 5, device()).unwrap();
    let file = folder.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    tokenizer["post_processor"] = Value::Null;
    fs::write(file, tokenizer.to_string()).unwrap();
    let model = Model::load(&folder, device(), &ModelOptions::default()).unwrap();
    fs::remove_dir_all(folder).unwrap();
    let engine = Engine::start(model, EngineOptions::default()).unwrap();
    let server = Server::start(engine, Options::default());
    for inputs in [json!(["a", ""]), json!(["a", "  "]), json!([[4], []])] {
        let message = "text 1: the number of tokens is wrong, expected 1 to 16, found 0";
        assert_error(server.post("/embed", &json!({ "inputs": inputs })).error(), 422, "tokenizer", message);
        assert_eq!(server.post("/v1/embeddings", &json!({ "input": inputs })).status, 400);
    }
    server.post("/embed", &json!({ "inputs": "a" })).good();
}

/// JSON has no such numbers.
#[test]
fn numbers_that_are_not_finite_are_an_error() {
    for (is_reranker, path, body, place) in [
        (false, "/embed", json!({ "inputs": ["a", "a thread waits"] }), 1),
        (false, "/v1/embeddings", json!({ "input": "a thread waits", "encoding_format": "base64" }), 0),
        (true, "/rerank", json!({ "query": "a", "texts": ["a thread"] }), 0),
    ] {
        for wrong in [f32::NAN, f32::INFINITY] {
            let compute = move |model: &Model, texts: &[raddle_nn::text::Tokens]| {
                let mut rows = model.rows(texts)?;
                let long = rows.iter_mut().zip(texts).filter(|(_, text)| text.ids.len() > 4);
                long.for_each(|(row, _)| *row.last_mut().unwrap() = wrong);
                Ok(rows)
            };
            let engine = Engine::start_with(model(is_reranker), EngineOptions::default(), compute).unwrap();
            let server = Server::start(engine, Options::default());
            let reply = server.post(path, &body);
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert_eq!(reply.status, 424, "{path}: {text}");
            assert!(text.contains(&format!("text {place}: element ")), "{text}");
            assert!(text.contains("expected a finite number") && text.contains("backend"), "{text}");
        }
    }
}

#[test]
fn openais_errors_are_of_its_form() {
    let server = Server::encoder();
    let error = |body: Value| {
        let reply = server.post("/v1/embeddings", &body);
        let json = reply.json();
        let names: Vec<_> = json["error"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["code", "message", "param", "type"]);
        (reply.status, json["error"]["type"].as_str().unwrap().to_string())
    };
    let wrong = || "invalid_request_error".to_string();
    assert_eq!(error(json!({ "input": 7 })), (400, wrong()));
    assert_eq!(error(json!({ "input": [] })), (400, wrong()));
    assert_eq!(error(json!({ "input": "a", "dimensions": 99 })), (400, wrong()));
    assert_eq!(error(json!({ "input": "a", "encoding_format": "hex" })), (400, wrong()));
    assert_eq!(error(json!({ "input": vec!["a"; 2049] })), (413, wrong()));
    assert_eq!(error(json!({ "input": "a ".repeat(20), "truncate": false })), (413, wrong()));
    for (input, message) in [
        (json!([]), "input: the list is empty"),
        (json!(vec!["a"; 2049]), "input: too many of them, expected at most 2048, found 2049"),
    ] {
        let reply = server.post("/embeddings", &json!({ "input": input }));
        assert_eq!(reply.json()["error"]["message"], json!(message));
    }
    let reply = server.post("/embeddings", &json!({ "input": 7 }));
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    let lost = server.get("/v1/nowhere");
    assert_eq!((lost.status, &lost.json()["error"]["message"]), (404, &json!("there is no such path")));
}

#[test]
fn keys_are_asked_for() {
    let key = "a-key-of-some-length";
    let options = Options { key: Some(key.into()), ..Options::default() };
    let server = Server::start(engine_of(false, EngineOptions::default()), options);
    let call = |path: &str, headers: &[(&str, &str)]| {
        let body = if path == "/embed" { &b"{\"inputs\": \"a\"}"[..] } else { b"" };
        let method = if path == "/embed" { "POST" } else { "GET" };
        server.client().call(method, path, &[&[JSON], headers].concat(), body)
    };
    let right = format!("Bearer {key}");
    for path in ["/embed", "/info", "/status", "/v1/models"] {
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer a-key-of-some-lengti",
            "Bearer a-key",
            "Basic a-key-of-some-length",
        ] {
            let headers = [("authorization", wrong)];
            let reply = call(path, if wrong.is_empty() { &[] } else { &headers });
            assert_eq!(
                (reply.status, &reply.headers["www-authenticate"][..]),
                (401, "Bearer"),
                "{path} {wrong}"
            );
            reply.json();
        }
        assert_eq!(call(path, &[("authorization", &right)]).status, 200, "{path}");
    }
    for path in ["/health", "/ping", "/metrics", "/", "//", "/health/", "/docs", "/openapi.json"] {
        assert_eq!(call(path, &[]).status, 200, "{path}");
    }
    assert_eq!(call("//info/", &[]).status, 401);
    // What isn't there isn't told to those without a key.
    assert_eq!(call("/nowhere", &[]).status, 401);
    assert_eq!(server.client().call("POST", "/", &[JSON], b"{\"inputs\": \"a\"}").status, 401);
}

/// A client that sends all of its body before it reads has its answer, and its connection for the next one.
#[test]
fn errors_before_the_body_is_read_lose_nothing() {
    let key = "a-key-of-some-length";
    let options = Options { key: Some(key.into()), ..Options::default() };
    let server = Server::start(engine_of(false, EngineOptions::default()), options);
    let body = vec![b' '; 1_000_000];
    let right = format!("authorization: Bearer {key}\r\n");
    let json = "content-type: application/json\r\n";
    let mut client = server.client();
    for (method, path, headers, status) in [
        ("POST", "/embed", format!("{json}authorization: Bearer other\r\n"), 401),
        ("POST", "/nowhere", format!("{json}{right}"), 404),
        ("PUT", "/embed", format!("{json}{right}"), 405),
        ("POST", "/embed", right.clone(), 415),
        ("POST", "/embed", format!("{json}{right}x-priority: highest\r\n"), 422),
        ("POST", "/rerank", format!("{json}{right}"), 424),
    ] {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: a\r\n{headers}content-length: {length}\r\n\r\n");
        client.0.get_mut().write_all(&[head.as_bytes(), &body].concat()).unwrap();
        assert_eq!(client.receive().expect("there is an answer").status, status, "{method} {path}");
    }
    let authorization = ("authorization", &format!("Bearer {key}")[..]);
    assert_eq!(client.call("POST", "/embed", &[JSON, authorization], b"{\"inputs\": \"a\"}").status, 200);
    // Who asks first is told before the body is sent.
    let head =
        format!("POST /embed HTTP/1.1\r\nhost: a\r\n{json}expect: 100-continue\r\ncontent-length: 9\r\n\r\n");
    client.0.get_mut().write_all(head.as_bytes()).unwrap();
    assert_eq!(client.receive().expect("there is an answer").status, 401);
}

#[test]
fn fault_any_key_is_right() {
    assert_caught(Fault::any_key_is_right, "errors::keys_are_asked_for");
}

#[test]
fn a_model_that_panics_costs_its_own_batch() {
    let compute = |model: &Model, texts: &[raddle_nn::text::Tokens]| {
        assert!(texts.iter().all(|text| text.ids.len() != 5), "three words at once");
        model.rows(texts)
    };
    let engine = Engine::start_with(model(false), EngineOptions::default(), compute).unwrap();
    let server = Server::start(engine, Options::default());
    let mut client: Client = server.client();
    for _ in 0..3 {
        let failed = client.post("/embed", &json!({ "inputs": "a thread waits" })).error();
        assert_eq!(failed, (500, "backend".into(), "the model failed".into()));
        client.post("/embed", &json!({ "inputs": "a thread" })).good();
    }
    let failed = client.post("/v1/embeddings", &json!({ "input": "a thread waits" }));
    assert_eq!((failed.status, &failed.json()["error"]["type"]), (500, &json!("server_error")));
}

#[test]
fn rows_that_are_no_rows_are_an_error() {
    let compute = |_: &Model, _: &[raddle_nn::text::Tokens]| Ok(Vec::new());
    let engine = Engine::start_with(model(false), EngineOptions::default(), compute).unwrap();
    let server = Server::start(engine, Options::default());
    let failed = server.post("/embed", &json!({ "inputs": "a thread" })).error();
    assert_eq!(failed, (500, "backend".into(), "the model failed".into()));
}
