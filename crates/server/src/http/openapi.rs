//! What the routes take and give, as an OpenAPI document, and a page to try them from.
//!
//! Written by hand: tests compare its paths with the routes, and the answers to its examples with its schemas.

use super::{
    failure::Failure,
    reply::{Answer, answer, html},
};
use axum::{body::Body, http::Response};
use serde_json::{Value, json};
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Value> = LazyLock::new(whole);

pub async fn document() -> Answer {
    answer(&*DOCUMENT, 1 << 15)
}

/// Asks this server for the document, and shows what it says.
pub async fn page() -> Result<Response<Body>, Failure> {
    Ok(html(include_str!("docs.html").into()))
}

fn whole() -> Value {
    let paths = paths().into_iter().map(|(path, operations)| (path.to_string(), operations));
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "raddle serve",
            "description": "Models that read text: for clients of OpenAI's embeddings, of text-embeddings-inference, and of \
                            Jina's and Cohere's rerankers. A server has one model: a route that needs another kind answers with \
                            an error that names the routes for it.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0" },
        },
        // Beside the document, also behind a proxy.
        "servers": [{ "url": "." }],
        "security": [{}, { "key": [] }],
        "paths": paths.collect::<serde_json::Map<_, _>>(),
        "components": {
            "schemas": schemas(),
            "parameters": parameters(),
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// Whose errors a route has.
#[derive(Clone, Copy)]
enum Errors {
    OpenAi,
    Tei,
}

fn of(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn one_of(schemas: &[Value]) -> Value {
    json!({ "oneOf": schemas })
}

/// Of these properties, of which some must be there.
fn object(required: &[&str], properties: Value) -> Value {
    match required {
        [] => json!({ "type": "object", "properties": properties }),
        _ => json!({ "type": "object", "required": required, "properties": properties }),
    }
}

fn told(kind: &str, description: &str) -> Value {
    json!({ "type": kind, "description": description })
}

/// That may be null, which is as if it wasn't there.
fn maybe(kind: &str, description: &str) -> Value {
    json!({ "type": kind, "description": description, "nullable": true })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn json_of(description: &str, schema: Value) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

/// A route that computes: what it takes, an example of that, and what it gives.
fn post(summary: &str, errors: Errors, body: Value, example: Value, given: Value) -> Value {
    let (error, wrong) = match errors {
        Errors::OpenAi => (of("OpenAiError"), &[(400, "The request is wrong")][..]),
        Errors::Tei => {
            let wrong: &[(u16, &str)] = &[
                (400, "No JSON, or an empty list"),
                (422, "JSON of a wrong form, or a text that can't be taken"),
            ];
            (of("Error"), wrong)
        }
    };
    let others = [
        (401, "No key, or another"),
        (413, "Too many bytes or inputs, or too long a text that isn't to be cut"),
        (424, "The model is of another kind, or failed"),
        (429, "Too many requests at once: come later"),
        (503, "The server ends"),
        (504, "Not begun in time"),
    ];
    let mut responses = serde_json::Map::from_iter([("200".to_string(), json_of("All went well", given))]);
    for (status, description) in wrong.iter().chain(&others) {
        responses.insert(status.to_string(), json_of(description, error.clone()));
    }
    let parameter = |name: &str| json!({ "$ref": format!("#/components/parameters/{name}") });
    let parameters = ["priority", "begin_within", "request_id"].map(parameter);
    json!({ "post": {
        "summary": summary,
        "parameters": parameters,
        "requestBody": {
            "required": true,
            "content": { "application/json": { "schema": body, "example": example } },
        },
        "responses": responses,
    } })
}

/// A route that only tells something.
fn get(summary: &str, given: Value) -> Value {
    json!({ "get": { "summary": summary, "responses": { "200": given } } })
}

fn text_of(kind: &str, description: &str) -> Value {
    json!({ "description": description, "content": { kind: { "schema": { "type": "string" } } } })
}

fn paths() -> Vec<(&'static str, Value)> {
    let health = || {
        let mut health = get("Whether requests are to be sent here", json_of("It is well", of("Health")));
        health["get"]["responses"]["503"] = json_of("It ends, or its device failed", of("Error"));
        health
    };
    // What is one of them may be another, too.
    let any_of = |schemas: &[Value]| json!({ "anyOf": schemas });
    let any_body = any_of(&["EmbedRequest", "RerankRequest", "PredictRequest"].map(of));
    let any_answer = any_of(&[of("Vectors"), of("SparseVectors"), list(of("Rank")), of("Predictions")]);
    let thread = || json!({ "inputs": "a thread waits" });
    let mut root = post(
        "What the model is for: /embed, /embed_sparse, /rerank or /predict",
        Errors::Tei,
        any_body,
        thread(),
        any_answer,
    );
    root["get"] = get("A page with the state of the server", text_of("text/html", "The page"))["get"].take();
    let mut model = get("The model, if it has this name", json_of("It has", of("Model")));
    model["get"]["parameters"] =
        json!([{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }]);
    model["get"]["responses"]["404"] = json_of("It has another", of("OpenAiError"));
    let embeddings = || {
        let example = json!({ "input": ["a thread waits", "the device"], "model": "any" });
        let summary = "Vectors of norm 1, as OpenAI has them";
        post(summary, Errors::OpenAi, of("EmbeddingsRequest"), example, of("Embeddings"))
    };
    vec![
        ("/", root),
        ("/embed", post("A vector for each text", Errors::Tei, of("EmbedRequest"), thread(), of("Vectors"))),
        (
            "/embed_all",
            post(
                "A vector for each token of each text, special ones included",
                Errors::Tei,
                of("TextsRequest"),
                thread(),
                list(of("Vectors")),
            ),
        ),
        (
            "/embed_sparse",
            post(
                "For each text what isn't 0 of a vector over the vocabulary (SPLADE)",
                Errors::Tei,
                of("TextsRequest"),
                thread(),
                of("SparseVectors"),
            ),
        ),
        (
            "/similarity",
            post(
                "A cosine of one text and each of others",
                Errors::Tei,
                of("SimilarityRequest"),
                json!({ "inputs": { "source_sentence": "a thread waits", "sentences": ["a stream waits", "the device"] } }),
                list(told("number", "From -1 to 1")),
            ),
        ),
        (
            "/rerank",
            post(
                "How well texts answer a query, the best first",
                Errors::Tei,
                of("RerankRequest"),
                json!({ "query": "who waits?", "texts": ["a thread waits", "the device"] }),
                list(of("Rank")),
            ),
        ),
        (
            "/predict",
            post(
                "Labels of texts, or of pairs of them, the likeliest first",
                Errors::Tei,
                of("PredictRequest"),
                json!({ "inputs": [["a thread waits"], ["a thread", "the device"]] }),
                of("Predictions"),
            ),
        ),
        (
            "/tokenize",
            post(
                "Tokens of texts, and where they stand",
                Errors::Tei,
                of("TokenizeRequest"),
                thread(),
                list(list(of("Token"))),
            ),
        ),
        (
            "/decode",
            post(
                "Texts of token numbers",
                Errors::Tei,
                of("DecodeRequest"),
                json!({ "ids": [2, 5, 3] }),
                list(told("string", "")),
            ),
        ),
        ("/v1/embeddings", embeddings()),
        ("/embeddings", embeddings()),
        (
            "/v1/rerank",
            post(
                "How well documents answer a query, the best first, as Jina and Cohere have it",
                Errors::OpenAi,
                of("DocumentsRequest"),
                json!({ "query": "who waits?", "documents": ["a thread waits", { "text": "the device" }], "top_n": 1 }),
                of("Ranking"),
            ),
        ),
        ("/v1/models", get("The one model", json_of("It", of("Models")))),
        ("/v1/models/{name}", model),
        ("/info", get("The model, and limits", json_of("As text-embeddings-inference has it", of("Info")))),
        ("/health", health()),
        ("/ping", health()),
        ("/metrics", get("Counts for Prometheus", text_of("text/plain", "Its text"))),
        ("/status", get("The state of the server", json_of("What the page shows", of("Status")))),
        ("/docs", get("A page to try requests from", text_of("text/html", "The page"))),
        ("/openapi.json", get("This document", json_of("It", json!({ "type": "object" })))),
    ]
}

fn parameters() -> Value {
    let header = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "header", "schema": schema, "description": description });
    let priority = json!({ "type": "string", "enum": ["low", "normal", "high"] });
    json!({
        "priority": header("x-priority", priority, "Who goes first: a level is a head start of 100 ms"),
        "begin_within": header(
            "x-begin-within-ms",
            json!({ "type": "integer", "minimum": 1 }),
            "Takes the request back if it hasn't begun to be computed by then"
        ),
        "request_id": header("x-request-id", json!({ "type": "string" }), "Sent back, and logged"),
    })
}

/// What all requests with texts may say.
fn texts(names: &[&str], more: Value) -> Value {
    let mut properties = json!({
        "inputs": of("Inputs"),
        "truncate": maybe("boolean", "Whether what is too long is cut off; true if nothing is said"),
        "truncation_direction": {
            "type": "string", "enum": ["left", "right", "Left", "Right"], "nullable": true,
            "description": "At which end; the right one if nothing is said",
        },
        "prompt_name": maybe("string", "The model's prompt to put in front"),
        "normalize": maybe("boolean", "Whether vectors have norm 1; true if nothing is said"),
        "dimensions": { "type": "integer", "minimum": 1, "nullable": true, "description": "So many of the first elements" },
    });
    let mut kept = serde_json::Map::new();
    for name in names {
        kept.insert((*name).to_string(), properties[name].take());
    }
    kept.extend(more.as_object().into_iter().flatten().map(|(name, schema)| (name.clone(), schema.clone())));
    Value::Object(kept)
}

fn schemas() -> Value {
    let mut all = serde_json::Map::new();
    for part in [requests(), answers(), about()] {
        all.extend(
            part.as_object().into_iter().flatten().map(|(name, schema)| (name.clone(), schema.clone())),
        );
    }
    Value::Object(all)
}

fn requests() -> Value {
    const CUT: [&str; 2] = ["truncate", "truncation_direction"];
    let ids = || list(json!({ "type": "integer", "minimum": 0 }));
    let string = || json!({ "type": "string" });
    let strings = || list(string());
    let pair = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 2 });
    let inputs = [string(), ids(), list(one_of(&[string(), ids()]))];
    json!({
        // An empty list is of two of them, and an error.
        "Inputs": { "anyOf": inputs, "description": "A text, token numbers, or a list of these" },
        "EmbedRequest": object(&["inputs"], texts(&["inputs", CUT[0], CUT[1], "prompt_name", "normalize", "dimensions"], json!({}))),
        "TextsRequest": object(&["inputs"], texts(&["inputs", CUT[0], CUT[1], "prompt_name"], json!({}))),
        "SimilarityRequest": object(&["inputs"], json!({
            "inputs": object(&["source_sentence", "sentences"], json!({
                "source_sentence": string(), "sentences": of("Inputs")
            })),
            "parameters": {
                "type": "object", "nullable": true, "properties": texts(&[CUT[0], CUT[1], "prompt_name"], json!({})),
            },
        })),
        "RerankRequest": object(&["query", "texts"], texts(&CUT, json!({
            "query": string(),
            "texts": strings(),
            "raw_scores": maybe("boolean", "The model's numbers rather than those between 0 and 1"),
            "return_text": maybe("boolean", "Whether texts are sent back"),
        }))),
        "PredictRequest": object(&["inputs"], texts(&CUT, json!({
            "inputs": {
                "oneOf": [string(), pair.clone(), list(pair)],
                "description": "A text, a pair of texts, or a list of these, each in a list of its own",
            },
            "raw_scores": maybe("boolean", "The model's numbers rather than probabilities"),
        }))),
        "TokenizeRequest": object(&["inputs"], texts(&["prompt_name"], json!({
            "inputs": one_of(&[string(), strings()]),
            "add_special_tokens": maybe("boolean", "True if nothing is said"),
        }))),
        "DecodeRequest": object(&["ids"], json!({
            "ids": { "anyOf": [ids(), list(ids())] },
            "skip_special_tokens": maybe("boolean", "True if nothing is said"),
        })),
        "EmbeddingsRequest": object(&["input"], texts(&["truncate", "dimensions"], json!({
            "input": of("Inputs"),
            "model": maybe("string", "Any name"),
            "encoding_format": { "type": "string", "enum": ["float", "base64"], "nullable": true },
        }))),
        "DocumentsRequest": object(&["query", "documents"], texts(&["truncate"], json!({
            "query": string(),
            "documents": list(one_of(&[string(), object(&["text"], json!({ "text": string() }))])),
            "model": maybe("string", "Any name"),
            "top_n": { "type": "integer", "minimum": 1, "nullable": true, "description": "How many of the best" },
            "return_documents": maybe("boolean", "Whether documents are sent back; true if nothing is said"),
        }))),
    })
}

fn answers() -> Value {
    let string = || json!({ "type": "string" });
    let number = || json!({ "type": "number" });
    let word = |word: &str| json!({ "type": "string", "enum": [word] });
    let predictions = || list(of("Prediction"));
    json!({
        "Vectors": list(list(number())),
        "SparseVectors": list(list(object(&["index", "value"], json!({
            "index": count("The token's number"), "value": number()
        })))),
        "Rank": object(&["index", "score"], json!({
            "index": count("Which text"), "score": number(), "text": string(),
        })),
        "Prediction": object(&["score", "label"], json!({ "score": number(), "label": string() })),
        "Predictions": {
            "anyOf": [predictions(), list(predictions())],
            "description": "Of one text or pair its labels, of a list a list of them",
        },
        "Token": object(&["id", "text", "special", "start", "stop"], json!({
            "id": count("Its number"),
            "text": string(),
            "special": told("boolean", "Put there by the tokenizer"),
            "start": { "type": "integer", "minimum": 0, "nullable": true },
            "stop": { "type": "integer", "minimum": 0, "nullable": true },
        })),
        "Usage": object(&["prompt_tokens", "total_tokens"], json!({
            "prompt_tokens": count(""), "total_tokens": count(""),
        })),
        "Embeddings": object(&["object", "data", "model", "usage"], json!({
            "object": word("list"),
            "data": list(object(&["object", "index", "embedding"], json!({
                "object": word("embedding"),
                "index": count(""),
                "embedding": one_of(&[list(number()), told("string", "Little-endian f32 in base64")]),
            }))),
            "model": string(),
            "usage": of("Usage"),
        })),
        "Ranking": object(&["model", "object", "usage", "results"], json!({
            "model": string(),
            "object": word("list"),
            "usage": of("Usage"),
            "results": list(object(&["index", "relevance_score"], json!({
                "index": count("Which document"),
                "relevance_score": told("number", "From 0 to 1"),
                "document": object(&["text"], json!({ "text": string() })),
            }))),
        })),
        "Error": object(&["error", "error_type"], json!({
            "error": string(),
            "error_type": {
                "type": "string",
                "enum": super::failure::Kind::ALL.map(super::failure::Kind::name),
            },
        })),
        "OpenAiError": object(&["error"], json!({
            "error": object(&["message", "type", "param", "code"], json!({
                "message": string(),
                "type": {
                    "type": "string",
                    "enum": ["invalid_request_error", "authentication_error", "rate_limit_error", "server_error"],
                },
                "param": { "type": "string", "nullable": true },
                "code": string(),
            })),
        })),
    })
}

fn about() -> Value {
    let string = || json!({ "type": "string" });
    let missing = || json!({ "type": "string", "nullable": true });
    let number = || json!({ "type": "number" });
    let word = |word: &str| json!({ "type": "string", "enum": [word] });
    let labels = object(
        &["id2label", "label2id"],
        json!({
            "id2label": { "type": "object", "additionalProperties": string() },
            "label2id": { "type": "object", "additionalProperties": count("") },
        }),
    );
    let embedding = object(&["pooling"], json!({ "pooling": string() }));
    let kind = |name: &str, schema: &Value| object(&[name], json!({ name: schema }));
    let counts =
        |names: &[&str]| object(names, names.iter().map(|name| ((*name).to_string(), number())).collect());
    let model = object(
        &["id", "object", "created", "owned_by"],
        json!({
            "id": string(), "object": word("model"), "created": count("Seconds since 1970"), "owned_by": string(),
        }),
    );
    let info = [
        "model_id",
        "model_dtype",
        "model_type",
        "max_concurrent_requests",
        "max_input_length",
        "max_batch_tokens",
        "max_batch_requests",
        "max_client_batch_size",
        "auto_truncate",
        "tokenization_workers",
        "version",
        "device",
    ];
    let status = [
        "model",
        "device",
        "dtype",
        "uptime_s",
        "is_stopping",
        "requests",
        "queue",
        "batches",
        "latency_ms",
        "streams",
    ];
    let quantile = || json!({ "type": "number", "nullable": true });
    json!({
        "Health": object(&["status"], json!({ "status": word("ok") })),
        "Model": model,
        "Models": object(&["object", "data"], json!({ "object": word("list"), "data": list(of("Model")) })),
        "Info": object(&info, json!({
            "model_id": string(),
            "model_sha": missing(),
            "model_dtype": string(),
            "model_type": one_of(&[
                kind("embedding", &embedding), kind("reranker", &labels), kind("classifier", &labels)
            ]),
            "max_concurrent_requests": count(""),
            "max_input_length": count("Tokens of a text"),
            "max_batch_tokens": count(""),
            "max_batch_requests": count(""),
            "max_client_batch_size": count("Inputs of a request"),
            "auto_truncate": told("boolean", ""),
            "tokenization_workers": count(""),
            "version": string(),
            "sha": missing(),
            "docker_label": missing(),
            "device": string(),
        })),
        "Status": object(&status, json!({
            "model": string(),
            "device": string(),
            "dtype": string(),
            "uptime_s": count(""),
            "is_stopping": told("boolean", ""),
            "requests": counts(&["accepted", "succeeded", "failed", "cancelled", "per_s", "texts_per_s", "tokens_per_s"]),
            "queue": counts(&["waiting", "limit", "running"]),
            "batches": counts(&["count", "texts_mean", "fill", "padding"]),
            "latency_ms": object(&["p50", "p99"], json!({ "p50": quantile(), "p99": quantile() })),
            "streams": list(object(&["busy"], json!({ "busy": list(told("number", "The part of a second")) }))),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_document_has_the_routes() {
        // What a path takes to its end is a name like any other to clients.
        let routes: BTreeSet<String> =
            super::super::table().into_iter().map(|(path, _)| path.replace("{*", "{")).collect();
        let documented: BTreeSet<String> = DOCUMENT["paths"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(documented, routes);
    }
}
