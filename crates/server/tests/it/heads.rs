//! Routes for what models say besides one vector or one score, and which model has which.

use crate::server::{
    Server, WIDTH, classifier_folder, copied, device, engine_of, folder, model, serving, sparse_folder,
};
use raddle_nn::text::{CrossEncoder, SentenceEncoder, SparseEncoder, Tokens, TooLong};
use raddle_server::{
    engine::{Engine, EngineOptions, Model},
    http::Options,
};
use serde_json::{Value, json};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn sigmoid(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

#[test]
fn embed_all_gives_the_vectors_of_tokens() {
    let server = Server::encoder();
    let texts = ["a thread waits", "", "for the device"];
    let model = SentenceEncoder::load(folder(false), device()).unwrap();
    let tokens = model.tokenizer().tokenize(&texts, TooLong::Truncate).unwrap();
    let expected = model.token_vectors(&tokens).unwrap();
    let found = server.post("/embed_all", &json!({ "inputs": texts })).good();
    for ((found, tokens), expected) in found.as_array().unwrap().iter().zip(&tokens).zip(&expected) {
        let rows = found.as_array().unwrap();
        assert_eq!(rows.len(), tokens.ids.len());
        assert!(rows.iter().all(|row| row.as_array().unwrap().len() == WIDTH));
        let found: Vec<f32> =
            rows.iter().flat_map(|row| row.as_array().unwrap()).map(|x| number(x) as f32).collect();
        assert_eq!(&found, expected);
    }
    // One text is a list of it, token numbers are texts, and prompts and limits are those of `/embed`.
    let one = server.post("/embed_all", &json!({ "inputs": texts[2] })).good();
    assert_eq!(one, json!([found[2]]));
    assert_eq!(server.post("/embed_all", &json!({ "inputs": [9, 10, 11] })).good(), one);
    assert_eq!(server.post("/embed_all", &json!({ "inputs": "device", "prompt_name": "query" })).good(), one);
    let long = json!({ "inputs": "a ".repeat(20), "truncate": false });
    assert_eq!(server.post("/embed_all", &long).status, 413);
    assert_eq!(server.post("/embed_all", &json!({ "inputs": [] })).status, 400);
    assert!(server.get("/metrics").body.windows(20).any(|part| part == b"te_request_success{m"));
}

/// Both kinds of requests in one batch, and an error of one isn't the other's.
#[test]
fn vectors_of_texts_and_of_tokens_share_batches() {
    let compute = |model: &Model, texts: &[Tokens]| match texts.len() {
        2 => Err(raddle_nn::text::ModelError::NoTexts),
        _ => model.rows(texts),
    };
    let engine = Engine::start_with(model(false), EngineOptions::default(), compute).unwrap();
    let text = || engine.tokenizer().tokenize(&["a thread"], TooLong::Refuse).unwrap().remove(0);
    engine.pause();
    let whole: Vec<_> = (0..3).map(|_| engine.submit(text(), Default::default()).unwrap()).collect();
    let each: Vec<_> =
        (0..2).map(|_| engine.submit_for_tokens(text(), Default::default()).unwrap()).collect();
    engine.resume();
    assert!(whole.into_iter().all(|answer| answer.wait().unwrap().len() == WIDTH));
    assert!(each.into_iter().all(|answer| answer.wait().unwrap().len() == 4 * WIDTH));
    engine.pause();
    let whole: Vec<_> = (0..2).map(|_| engine.submit(text(), Default::default()).unwrap()).collect();
    let each = engine.submit_for_tokens(text(), Default::default()).unwrap();
    engine.resume();
    assert!(whole.into_iter().all(|answer| answer.wait().is_err()));
    assert!(each.wait().is_ok());
}

#[test]
fn embed_sparse_gives_what_isnt_0() {
    let texts = ["a thread waits", "", "for the device"];
    let model = SparseEncoder::load(sparse_folder(), device()).unwrap();
    let expected = model.encode(&texts).unwrap().to_vec::<f32>().unwrap();
    let server = serving(sparse_folder());
    let found = server.post("/embed_sparse", &json!({ "inputs": texts })).good();
    for (found, expected) in found.as_array().unwrap().iter().zip(expected.chunks(model.width())) {
        let (mut dense, mut last) = (vec![0f32; model.width()], None);
        for value in found.as_array().unwrap() {
            assert_eq!(value.as_object().unwrap().len(), 2);
            let index = value["index"].as_u64().unwrap() as usize;
            assert!(last < Some(index));
            (dense[index], last) = (number(&value["value"]) as f32, Some(index));
            assert!(dense[index] > 0.0);
        }
        assert_eq!(dense, expected);
    }
    assert_eq!(server.post("/", &json!({ "inputs": texts })).good(), found);
    assert_eq!(server.get("/info").good()["model_type"], json!({ "embedding": { "pooling": "splade" } }));
    // The same of a folder that doesn't say so.
    let bare = copied("bare");
    std::fs::remove_file(bare.join("modules.json")).unwrap();
    let model = Model::load_sparse(bare, device(), &Default::default()).unwrap();
    let engine = Engine::start(model, EngineOptions::default()).unwrap();
    let other = Server::start(engine, Options::default());
    assert_eq!(other.post("/embed_sparse", &json!({ "inputs": texts })).good(), found);
}

#[test]
fn predict_names_labels() {
    let server = serving(classifier_folder());
    let model = CrossEncoder::load(classifier_folder(), device()).unwrap();
    let tokenizer = model.tokenizer();
    let [one, pair] = [
        tokenizer.tokenize(&["a thread"], TooLong::Refuse).unwrap(),
        tokenizer.tokenize_pairs("a thread", &["waits"], TooLong::Refuse).unwrap(),
    ];
    // What a softmax makes of the head's numbers, in f64, by names, the likeliest first.
    let expected = |tokens: &[Tokens], raw: bool| -> Vec<(f64, &str)> {
        let scores: Vec<f64> =
            model.score_tokens(tokens).unwrap().to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
        let sum: f64 = scores.iter().map(|score| score.exp()).sum();
        let mut named: Vec<(f64, &str)> = scores
            .iter()
            .map(|score| if raw { *score } else { score.exp() / sum })
            .zip(["good", "bad", "LABEL_2"])
            .collect();
        named.sort_by(|a, b| b.0.total_cmp(&a.0));
        named
    };
    let check = |found: &Value, expected: &[(f64, &str)]| {
        let found = found.as_array().unwrap();
        assert_eq!(found.len(), 3);
        for (found, (score, label)) in found.iter().zip(expected) {
            assert_eq!((found.as_object().unwrap().len(), &found["label"]), (2, &json!(label)));
            assert!((number(&found["score"]) - score).abs() < 1e-6, "{found} {score}");
        }
    };
    let predict = |body: Value| server.post("/predict", &body).good();
    check(&predict(json!({ "inputs": "a thread" })), &expected(&one, false));
    check(&predict(json!({ "inputs": ["a thread"] })), &expected(&one, false));
    check(&predict(json!({ "inputs": ["a thread", "waits"], "raw_scores": true })), &expected(&pair, true));
    let all = predict(json!({ "inputs": [["a thread"], ["a thread", "waits"]] }));
    assert_eq!(all.as_array().unwrap().len(), 2);
    check(&all[0], &expected(&one, false));
    check(&all[1], &expected(&pair, false));
    check(&server.post("/", &json!({ "inputs": "a thread" })).good(), &expected(&one, false));
    assert_eq!(
        server.get("/info").good()["model_type"],
        json!({ "classifier": {
            "id2label": { "0": "good", "1": "bad", "2": "LABEL_2" },
            "label2id": { "good": 0, "bad": 1, "LABEL_2": 2 },
        } })
    );
    for (body, status, message) in [
        (json!({ "inputs": ["a", "b", "c"] }), 422, "body: expected a string, a pair of strings"),
        (json!({ "inputs": [] }), 400, "inputs: the list is empty"),
        (
            json!({ "inputs": vec![["a"]; 33] }),
            413,
            "inputs: too many of them, expected at most 32, found 33",
        ),
        (
            json!({ "inputs": [["a"], ["a ".repeat(20)]], "truncate": false }),
            413,
            "text 1: the number of tokens is wrong",
        ),
    ] {
        let (found, _, text) = server.post("/predict", &body).error();
        assert!(found == status && text.starts_with(message), "{found} {text}");
    }
}

/// As transformers' pipelines choose it: by what the model was trained for, else by the number of labels.
#[test]
fn what_a_model_was_trained_for_says_what_its_numbers_are() {
    let config = std::fs::read_to_string(classifier_folder().join("config.json")).unwrap();
    let folder = std::env::temp_dir().join(format!("raddle-{}-trained", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["tokenizer.json", "model.safetensors", "sentence_bert_config.json"] {
        std::fs::copy(classifier_folder().join(name), folder.join(name)).unwrap();
    }
    let raw = |server: &Server| server.post("/predict", &json!({ "inputs": "a", "raw_scores": true })).good();
    for (kind, function) in [
        ("single_label_classification", None),
        ("multi_label_classification", Some(sigmoid as fn(f64) -> f64)),
        ("regression", Some((|score| score) as fn(f64) -> f64)),
    ] {
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["problem_type"] = json!(kind);
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let server = serving(folder.clone());
        let found = server.post("/predict", &json!({ "inputs": "a" })).good();
        let raw = raw(&server);
        let sum: f64 = found.as_array().unwrap().iter().map(|one| number(&one["score"])).sum();
        for (found, raw) in found.as_array().unwrap().iter().zip(raw.as_array().unwrap()) {
            assert_eq!(found["label"], raw["label"], "{kind}");
            let expected = function.map(|function| function(number(&raw["score"])));
            assert!(
                expected.is_none_or(|expected| (number(&found["score"]) - expected).abs() < 1e-6),
                "{kind}"
            );
        }
        assert_eq!((sum - 1.0).abs() < 1e-6, function.is_none(), "{kind}: {sum}");
    }
    std::fs::remove_dir_all(folder).unwrap();
    // One label: a sigmoid.
    let server = Server::start(engine_of(true, EngineOptions::default()), Options::default());
    let (found, raw) = (server.post("/predict", &json!({ "inputs": "a" })).good(), raw(&server));
    let expected = sigmoid(number(&raw[0]["score"]));
    assert!((number(&found[0]["score"]) - expected).abs() < 1e-6);
    assert_eq!((found.as_array().unwrap().len(), &found[0]["label"]), (1, &json!("LABEL_0")));
}

#[test]
fn documents_are_ranked_as_jina_and_cohere_have_it() {
    let server = Server::start(engine_of(true, EngineOptions::default()), Options::default());
    let documents = json!(["waits", { "text": "for the device", "title": "ignored" }, "stream tick a"]);
    let texts = ["waits", "for the device", "stream tick a"];
    let ranks = server.post("/rerank", &json!({ "query": "a thread", "texts": texts })).good();
    let body =
        json!({ "model": "any", "query": "a thread", "documents": documents, "rank_fields": ["text"] });
    let found = server.post("/v1/rerank", &body).good();
    let names: Vec<_> = found.as_object().unwrap().keys().collect();
    assert_eq!(names, ["model", "object", "results", "usage"]);
    assert_eq!((&found["object"], &found["model"]), (&json!("list"), &json!("reranker")));
    // [CLS] a thread [SEP] and [SEP] around each.
    assert_eq!(found["usage"], json!({ "prompt_tokens": 22, "total_tokens": 22 }));
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for (result, rank) in results.iter().zip(ranks.as_array().unwrap()) {
        let index = rank["index"].as_u64().unwrap() as usize;
        let expected =
            json!({ "index": index, "relevance_score": rank["score"], "document": { "text": texts[index] } });
        assert_eq!(result, &expected);
    }
    let with = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        server.post("/v1/rerank/", &body)
    };
    assert_eq!(with("top_n", json!(2)).good()["results"], json!(results[..2]));
    assert_eq!(with("top_n", json!(9)).good()["results"], json!(results));
    let bare = with("return_documents", json!(false)).good();
    assert!(bare["results"].as_array().unwrap().iter().all(|result| result.as_object().unwrap().len() == 2));
    for (name, value, message) in [
        ("top_n", json!(0), "top_n is wrong, expected at least 1, found 0"),
        ("top_n", json!(-1), "body: invalid value: integer `-1`, expected usize"),
        ("documents", json!([]), "documents: the list is empty"),
        ("documents", json!("a"), "body: invalid type: string \"a\", expected a list of strings"),
        ("documents", json!([7]), "body: invalid type: integer `7`, expected a string, or an object"),
        ("query", Value::Null, "body: invalid type: null, expected"),
    ] {
        let reply = with(name, value);
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["type"]), (400, &json!("invalid_request_error")), "{name}");
        assert!(error["message"].as_str().unwrap().starts_with(message), "{error}");
    }
    assert_eq!(with("documents", json!(vec!["a"; 2049])).status, 413);
}

/// The model of a server is one; who asks another route is told which serve it, and that nothing has failed.
#[test]
fn routes_for_other_models_are_named() {
    let embed = json!({ "inputs": "a" });
    let rerank = json!({ "query": "a", "texts": ["a"] });
    let servers = [
        (
            "a sentence encoder, which is for /embed, /embed_all, /similarity and /v1/embeddings",
            Server::encoder(),
        ),
        ("a sparse encoder, which is for /embed_sparse", serving(sparse_folder())),
        ("a reranker, which is for /rerank, /v1/rerank and /predict", serving(folder(true))),
        ("a classifier, which is for /predict", serving(classifier_folder())),
    ];
    for (path, body, expected, served_by) in [
        ("/embed", &embed, "a sentence encoder", &[0][..]),
        ("/embed_all", &embed, "a sentence encoder", &[0]),
        (
            "/similarity",
            &json!({ "inputs": { "source_sentence": "a", "sentences": ["a"] } }),
            "a sentence encoder",
            &[0],
        ),
        (
            "/embed_sparse",
            &embed,
            "a sparse encoder (a masked language model is one with --pooling splade)",
            &[1],
        ),
        ("/rerank", &rerank, "a reranker", &[2]),
        ("/predict", &embed, "a classifier or reranker", &[2, 3]),
    ] {
        for (index, (what, server)) in servers.iter().enumerate() {
            let reply = server.post(path, body);
            if served_by.contains(&index) {
                reply.good();
                continue;
            }
            let message = format!("{path}: expected {expected} as the model of this server, found {what}");
            assert_eq!(reply.error(), (424, "validation".into(), message));
        }
    }
    for (path, body, served_by) in [
        ("/v1/embeddings", json!({ "input": "a" }), 0),
        ("/embeddings", json!({ "input": "a" }), 0),
        ("/v1/rerank", json!({ "query": "a", "documents": ["a"] }), 2),
    ] {
        for (index, (what, server)) in servers.iter().enumerate() {
            let reply = server.post(path, &body);
            if index == served_by {
                reply.good();
                continue;
            }
            let error = &reply.json()["error"];
            assert_eq!((reply.status, &error["type"]), (400, &json!("invalid_request_error")));
            assert!(error["message"].as_str().unwrap().ends_with(what), "{error}");
        }
    }
}

#[test]
fn slashes_too_many_change_nothing() {
    let server = Server::encoder();
    let embed = server.post("/embed", &json!({ "inputs": "a" })).good();
    for path in ["/embed/", "//embed", "///embed//", "/", "//"] {
        assert_eq!(server.post(path, &json!({ "inputs": "a" })).good(), embed, "{path}");
    }
    let models = server.get("/v1/models").good();
    assert_eq!(server.get("/v1//models/?a=//").good(), models);
    assert_eq!(server.get("//v1/models/encoder/").good(), models["data"][0]);
    // Errors are of the path's protocol, and what isn't there isn't.
    let lost = server.get("//v1//nowhere/");
    assert_eq!((lost.status, &lost.json()["error"]["type"]), (404, &json!("invalid_request_error")));
    assert_eq!(server.get("/embed/").error().0, 405);
    assert_eq!(server.get("/em/bed").status, 404);
}
