//! What each route answers when all is well.

use crate::server::{Server, TOKENS_MAX, WIDTH, device, engine_of, folder, model};
use raddle_nn::text::{CrossEncoder, SentenceEncoder, Tokens};
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::Options,
};
use serde_json::{Value, json};

fn row(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|element| element.as_f64().unwrap() as f32).collect()
}

fn rows(value: &Value) -> Vec<Vec<f32>> {
    value.as_array().unwrap().iter().map(row).collect()
}

/// What the model says by itself, of norm 1.
fn expected(texts: &[&str]) -> Vec<Vec<f32>> {
    let model = SentenceEncoder::load(folder(false), device()).unwrap();
    model.encode(texts).unwrap().to_vec::<f32>().unwrap().chunks(WIDTH).map(<[f32]>::to_vec).collect()
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance, "{found} {expected}");
    }
}

fn norm(row: &[f32]) -> f32 {
    row.iter().map(|element| element * element).sum::<f32>().sqrt()
}

#[test]
fn embed_gives_the_models_vectors() {
    let server = Server::encoder();
    let texts = ["a thread waits", "", "the device"];
    let expected = expected(&texts);
    let one = rows(&server.post("/embed", &json!({ "inputs": texts[0] })).good());
    assert_eq!(one.len(), 1);
    assert_close(&one[0], &expected[0], 1e-6);
    let all = rows(&server.post("/", &json!({ "inputs": texts, "truncate": null, "unknown": [1] })).good());
    assert_eq!(all[0], one[0]);
    for (found, expected) in all.iter().zip(&expected) {
        assert_close(found, expected, 1e-6);
    }
    // Numbers of tokens, with and without those around them.
    for tokens in [json!([5, 8]), json!([2, 5, 8, 3]), json!([[5, 8]])] {
        let found = rows(&server.post("/embed", &json!({ "inputs": tokens })).good());
        let same = rows(&server.post("/embed", &json!({ "inputs": "thread waits" })).good());
        assert_eq!(found, same, "{tokens}");
    }
    let raw = rows(&server.post("/embed", &json!({ "inputs": texts[0], "normalize": false })).good());
    assert!((norm(&raw[0]) - 1.0).abs() > 0.1, "{}", norm(&raw[0]));
    let scaled: Vec<f32> = raw[0].iter().map(|element| element / norm(&raw[0])).collect();
    assert_close(&scaled, &expected[0], 1e-6);
    let part = rows(&server.post("/embed", &json!({ "inputs": texts[0], "dimensions": 4 })).good());
    let first: Vec<f32> = raw[0][..4].iter().map(|element| element / norm(&raw[0][..4])).collect();
    assert_close(&part[0], &first, 1e-6);
    // What a prompt says is put in front, also of token numbers.
    let prompted = server.post("/embed", &json!({ "inputs": "device", "prompt_name": "query" })).good();
    assert_eq!(prompted, server.post("/embed", &json!({ "inputs": "for the device" })).good());
    let ids = server.post("/tokenize", &json!({ "inputs": "device" })).good();
    let ids: Vec<&Value> = ids[0].as_array().unwrap().iter().map(|token| &token["id"]).collect();
    for ids in [&ids[..], &ids[1..2]] {
        let body = json!({ "inputs": [ids], "prompt_name": "query" });
        assert_eq!(prompted, server.post("/embed", &body).good());
    }
}

/// `left` and `Left`, as text-embeddings-inference takes both.
#[test]
fn texts_may_lose_their_beginning() {
    let (encoder, reranker) =
        (Server::encoder(), Server::start(engine_of(true, EngineOptions::default()), Options::default()));
    let long = format!("{} device stream", "a ".repeat(20));
    for direction in ["left", "Left"] {
        let embed = |text: &str| {
            encoder.post("/embed", &json!({ "inputs": text, "truncation_direction": direction })).good()
        };
        let kept = format!("{} device stream", "a ".repeat(12));
        assert_eq!(embed(&long), embed(&kept));
        let right =
            encoder.post("/embed", &json!({ "inputs": long, "truncation_direction": "Right" })).good();
        assert_eq!(right, embed("a ".repeat(14).trim()));
        assert_ne!(right, embed(&long));
        let ids = |count: usize| [vec![4; count], vec![11, 6]].concat();
        let embed = |ids: Vec<u32>| {
            encoder.post("/embed", &json!({ "inputs": [ids], "truncation_direction": direction })).good()
        };
        assert_eq!(embed(ids(20)), embed(ids(12)));
        let rank = |text: &str| {
            let body = json!({ "query": "a", "texts": [text], "truncation_direction": direction });
            reranker.post("/rerank", &body).good()
        };
        assert_eq!(rank(&long), rank(&format!("{} device stream", "a ".repeat(10))));
    }
}

#[test]
fn texts_past_the_limit_are_cut_off() {
    let server = Server::encoder();
    let long = "a ".repeat(5 * TOKENS_MAX);
    let cut = "a ".repeat(TOKENS_MAX - 2);
    let embed = |body: Value| server.post("/embed", &body);
    assert_eq!(embed(json!({ "inputs": long })).good(), embed(json!({ "inputs": cut })).good());
    let tokens = vec![4; 3 * TOKENS_MAX];
    assert_eq!(embed(json!({ "inputs": tokens })).good(), embed(json!({ "inputs": cut })).good());
    let whole = embed(json!({ "inputs": cut, "truncate": false, "truncation_direction": "Right" }));
    assert_eq!(whole.status, 200);
}

#[test]
fn embeddings_are_openais() {
    let server = Server::encoder();
    let texts = ["a thread waits", "the device"];
    let expected = expected(&texts);
    let body = json!({ "input": texts, "model": "any", "user": "somebody" });
    let found = server.post("/v1/embeddings", &body).good();
    let names: Vec<_> = found.as_object().unwrap().keys().collect();
    assert_eq!(names, ["data", "model", "object", "usage"]);
    assert_eq!((&found["object"], &found["model"]), (&json!("list"), &json!("encoder")));
    assert_eq!(found["usage"], json!({ "prompt_tokens": 9, "total_tokens": 9 }));
    for (index, expected) in expected.iter().enumerate() {
        let embedding = &found["data"][index];
        assert_eq!((&embedding["object"], &embedding["index"]), (&json!("embedding"), &json!(index)));
        assert_close(&row(&embedding["embedding"]), expected, 1e-6);
    }
    // The same numbers to the last bit.
    let body = json!({ "input": texts, "encoding_format": "base64" });
    let coded = server.post("/v1/embeddings", &body).good();
    for index in 0..2 {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let bytes = STANDARD.decode(coded["data"][index]["embedding"].as_str().unwrap()).unwrap();
        let numbers: Vec<f32> =
            bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(numbers, row(&found["data"][index]["embedding"]));
    }
    let part = server.post("/v1/embeddings", &json!({ "input": [5, 8], "dimensions": 3 })).good();
    let part = row(&part["data"][0]["embedding"]);
    assert_eq!(part.len(), 3);
    assert!((norm(&part) - 1.0).abs() < 1e-6);
    let models = server.get("/v1/models").good();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("encoder")));
    assert_eq!(server.get("/v1/models/encoder").good(), models["data"][0]);
    for name in ["other", "encoder/other", "%ff"] {
        let lost = server.get(&format!("/v1/models/{name}"));
        let message = &lost.json()["error"]["message"];
        assert_eq!((lost.status, message), (404, &json!("there is no such model, expected encoder")));
    }
    // Names of the hub have a slash, which clients may encode.
    let options = Options { name: Some("of/two parts".into()), ..Options::default() };
    let server = Server::start(engine_of(false, EngineOptions::default()), options);
    for path in ["/v1/models/of/two%20parts", "/v1/models/of%2Ftwo%20parts"] {
        assert_eq!(server.get(path).good()["id"], "of/two parts");
    }
}

/// From 17 on a score between 0 and 1 is 1 in `f32`, and below -88 it is 0.
#[test]
fn rerank_sorts_by_what_the_head_says() {
    for (said, sorted) in [
        ([20.0, 90.0, 30.0, 17.5], [1, 2, 0, 3]),
        ([-200.0, -100.0, -300.0, -95.0], [3, 1, 0, 2]),
        ([9.0001, 9.0002, 9.0003, 9.0], [2, 1, 0, 3]),
        ([-0.0, 0.0, 5.0, 5.0], [2, 3, 0, 1]),
    ] {
        let compute = move |_: &Model, texts: &[Tokens]| {
            Ok(texts.iter().map(|text| vec![said[text.ids.len() - 5]]).collect())
        };
        let engine = Engine::start_with(model(true), EngineOptions::default(), compute).unwrap();
        let server = Server::start(engine, Options::default());
        // Special tokens and the query are 4.
        let texts = ["a", "a a", "a a a", "a a a a"];
        for raw in [false, true] {
            let body = json!({ "query": "a", "texts": texts, "raw_scores": raw });
            let found = server.post("/rerank", &body).good();
            let of = |rank: &Value| rank["index"].as_u64().unwrap();
            let indices: Vec<u64> = found.as_array().unwrap().iter().map(of).collect();
            assert_eq!(indices, sorted, "{said:?} {raw}");
        }
    }
}

#[test]
fn rerank_sorts_by_score() {
    let engine = engine_of(true, EngineOptions::default());
    let server = Server::start(engine, Options::default());
    let (query, texts) = ("a thread", ["waits", "for the device", "stream tick a", ""]);
    let model = CrossEncoder::load(folder(true), device()).unwrap();
    let scores = model.score(query, &texts).unwrap().to_vec::<f32>().unwrap();
    let found = server.post("/rerank", &json!({ "query": query, "texts": texts })).good();
    let ranks = found.as_array().unwrap();
    assert_eq!(ranks.len(), texts.len());
    let mut last = f64::INFINITY;
    for rank in ranks {
        let index = rank["index"].as_u64().unwrap() as usize;
        let score = rank["score"].as_f64().unwrap();
        assert!((score - 1.0 / (1.0 + f64::from(-scores[index]).exp())).abs() < 1e-6);
        assert!(score <= last && rank.get("text").is_none());
        last = score;
    }
    let mut indices: Vec<_> = ranks.iter().map(|rank| rank["index"].as_u64().unwrap()).collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
    let body = json!({ "query": query, "texts": texts, "raw_scores": true, "return_text": true });
    let raw = server.post("/", &body).good();
    for (raw, rank) in raw.as_array().unwrap().iter().zip(ranks) {
        let index = raw["index"].as_u64().unwrap() as usize;
        assert_eq!((&raw["index"], &raw["text"]), (&rank["index"], &json!(texts[index])));
        assert!((raw["score"].as_f64().unwrap() - f64::from(scores[index])).abs() < 1e-6);
    }
    let info = server.get("/info").good();
    assert_eq!(
        info["model_type"],
        json!({ "reranker": { "id2label": { "0": "LABEL_0" }, "label2id": { "LABEL_0": 0 } } })
    );
    for (texts, status, kind, message) in [
        (json!([]), 400, "empty", "texts: the list is empty"),
        (json!([[5]]), 422, "validation", "texts: expected strings, found token numbers"),
    ] {
        let refused = server.post("/rerank", &json!({ "query": query, "texts": texts })).error();
        assert_eq!(refused, (status, kind.into(), message.into()));
    }
}

#[test]
fn similarity_compares_one_with_others() {
    let server = Server::encoder();
    let body =
        json!({ "inputs": { "source_sentence": "a thread", "sentences": ["a thread", "the device"] } });
    let found = row(&server.post("/similarity", &body).good());
    let vectors = expected(&["a thread", "the device"]);
    let dot: f32 = vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum();
    assert_close(&found, &[1.0, dot], 1e-6);
}

#[test]
fn tokens_are_spelled_and_back() {
    let server = Server::encoder();
    let found = server.post("/tokenize", &json!({ "inputs": ["The Thread?", ""] })).good();
    let token = |id: u32, text: &str, place: Option<[usize; 2]>| {
        json!({ "id": id, "text": text, "special": place.is_none(),
                "start": place.map(|place| place[0]), "stop": place.map(|place| place[1]) })
    };
    let (start, end) = (token(2, "[CLS]", None), token(3, "[SEP]", None));
    let middle =
        [token(10, "The", Some([0, 3])), token(5, "Thread", Some([4, 10])), token(1, "?", Some([10, 11]))];
    let [the, thread, unknown] = middle.clone();
    assert_eq!(found, json!([[start, the, thread, unknown, end], [start, end]]));
    let plain = server.post("/tokenize", &json!({ "inputs": "The Thread?", "add_special_tokens": false }));
    assert_eq!(plain.good(), json!([middle]));
    let decode = |body: Value| server.post("/decode", &body).good();
    assert_eq!(decode(json!({ "ids": [2, 10, 5, 3] })), json!(["the thread"]));
    let all = decode(json!({ "ids": [[2, 10, 3], [5, 4_000_000_000u32]], "skip_special_tokens": false }));
    assert_eq!(all, json!(["[CLS] the [SEP]", "thread"]));
}

#[test]
fn the_server_tells_about_itself() {
    let server = Server::encoder();
    let info = server.get("/info").good();
    assert_eq!(info["model_id"], "encoder");
    assert_eq!(info["model_type"], json!({ "embedding": { "pooling": "mean" } }));
    assert_eq!((&info["max_input_length"], &info["model_dtype"]), (&json!(TOKENS_MAX), &json!("float32")));
    assert_eq!(server.get("/health").status, 200);
    server.post("/embed", &json!({ "inputs": ["a", "thread"] })).good();
    server.post("/embed", &json!({ "inputs": "a" })).good();
    server.post("/embed", &json!({ "inputs": [] }));
    let metrics = server.get("/metrics");
    assert!(metrics.headers["content-type"].starts_with("text/plain; version=0.0.4"));
    let text = String::from_utf8(metrics.body).unwrap();
    for line in [
        "te_request_count 6",
        "te_request_success{method=\"single\"} 1",
        "te_request_success{method=\"batch\"} 1",
        "te_request_failure{err=\"empty\"} 1",
        "te_request_duration_bucket{le=\"+Inf\"} 2",
        "te_request_input_length_sum 9",
        "te_request_input_length_bucket{le=\"3\"} 3",
        "te_queue_size 0",
        "te_request_queue_duration_count 3",
        "te_request_inference_duration_count 3",
        "te_embed_count 3",
        "te_embed_success 3",
        "raddle_tokens_total 9",
        "raddle_padding_tokens_total 0",
        "raddle_bucket_tokens_total 48",
        "raddle_info{version=\"0.1.0\",model=\"encoder\",device=\"cpu\",dtype=\"f32\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} isn't in\n{text}");
    }
    if cfg!(target_os = "linux") {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name} isn't in\n{text}")).parse::<f64>().unwrap()
        };
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let started = value("process_start_time_seconds");
        assert!((now - 3600.0..now + 1.0).contains(&started), "{started} isn't in the hour before {now}");
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_cpu_seconds_total") < 1e5);
        assert!(value("process_open_fds") < value("process_max_fds"));
        assert!(value("process_threads") >= 2.0);
        assert!(value("raddle_memory_allocated_bytes") > 1e3);
    }
    // Each family is announced once, before its values, and buckets only grow.
    let mut announced = std::collections::HashSet::new();
    let mut last = (String::new(), 0);
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            assert!(announced.insert(family.split(' ').next().unwrap().to_string()), "{line}");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = name.split('{').next().unwrap().to_string();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(announced.contains(&name) || announced.contains(family.unwrap()), "{line}");
            if name.ends_with("_bucket") {
                let value = value.parse::<u64>().unwrap();
                assert!(name != last.0 || value >= last.1, "{line}");
                last = (name, value);
            }
        }
    }
    let status = server.get("/status").good();
    assert_eq!(status["requests"]["accepted"], 7);
    assert_eq!((&status["requests"]["succeeded"], &status["requests"]["failed"]), (&json!(2), &json!(1)));
    assert_eq!((&status["queue"]["waiting"], &status["model"]), (&json!(0), &json!("encoder")));
}

#[test]
fn requests_keep_their_ids() {
    let server = Server::encoder();
    let id = |sent: Option<&str>| {
        let headers: Vec<_> = sent.map(|id| ("x-request-id", id)).into_iter().collect();
        server.client().call("GET", "/health", &headers, b"").headers["x-request-id"].clone()
    };
    assert_eq!(id(Some("abc-7")), "abc-7");
    let made = id(None);
    assert!(made.len() >= 16 && made != id(None), "{made}");
    for bad in ["with space", &"x".repeat(129)] {
        assert_ne!(id(Some(bad)), bad);
    }
}

#[test]
fn the_page_is_one_file() {
    let server = Server::encoder();
    let page = server.get("/");
    assert_eq!((page.status, &page.headers["content-type"][..]), (200, "text/html; charset=utf-8"));
    assert!(page.headers["content-security-policy"].starts_with("default-src 'none'; connect-src 'self';"));
    let nonce = page.headers["content-security-policy"].split("script-src 'nonce-").nth(1).unwrap();
    let nonce = nonce.split('\'').next().unwrap();
    let text = String::from_utf8(page.body).unwrap();
    assert_eq!(text.matches(&format!("nonce=\"{nonce}\"")).count(), 3);
    assert!(!text.contains("://") && !text.contains("src="), "it names another place");
    let other = server.get("/");
    assert!(!other.headers["content-security-policy"].contains(nonce), "the number can be known");
}

/// It has values before its script has asked for any, and of a server with a key none.
#[test]
fn the_page_shows_its_state_when_it_loads() {
    let state = |server: &Server| -> Value {
        let text = String::from_utf8(server.get("/").body).unwrap();
        let start = text.find("<script id=\"state\"").unwrap();
        let state = &text[start..];
        let state = &state[state.find('>').unwrap() + 1..state.find("</script>").unwrap()];
        serde_json::from_str(state).unwrap()
    };
    let options = |key: Option<&str>| {
        let name = Some("</script><b>\"NONCE\"".to_string());
        Options { key: key.map(str::to_string), name, ..Options::default() }
    };
    let server = Server::start(engine_of(false, EngineOptions::default()), options(None));
    server.post("/embed", &json!({ "inputs": ["a", "thread"] })).good();
    let status = server.get("/status").good();
    let shown = state(&server);
    assert_eq!(shown["model"], "</script><b>\"NONCE\"");
    assert_eq!(shown["queue"], status["queue"]);
    assert_eq!(
        (&shown["requests"]["succeeded"], &shown["batches"]["count"]),
        (&json!(1), &status["batches"]["count"])
    );
    let server = Server::start(engine_of(false, EngineOptions::default()), options(Some("a-key")));
    assert_eq!(state(&server), Value::Null);
}
