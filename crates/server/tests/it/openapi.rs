//! The OpenAPI document beside what the server does, and the page that is made of it.

use crate::server::{Reply, Server, classifier_folder, folder, serving, sparse_folder};
use serde_json::{Value, json};
use std::collections::BTreeSet;

struct Document(Value);

impl Document {
    fn of(server: &Server) -> Document {
        Document(server.get("/openapi.json").good())
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(place) => {
                let found = self.0.pointer(place.strip_prefix('#').unwrap());
                self.resolve(found.unwrap_or_else(|| panic!("there is no {place}")))
            }
            None => value,
        }
    }

    /// What of a schema doesn't hold, as far as ours have such: types, names, enums, bounds, alternatives. What isn't named isn't
    /// allowed.
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = self.resolve(schema);
        let wrong = || Err(format!("{value} isn't as {schema} has it"));
        if value.is_null() {
            return if schema["nullable"] == true { Ok(()) } else { wrong() };
        }
        for (key, most) in [("oneOf", 1), ("anyOf", usize::MAX)] {
            if let Some(schemas) = schema[key].as_array() {
                let held = schemas.iter().filter(|schema| self.check(schema, value).is_ok()).count();
                return if (1..=most).contains(&held) { Ok(()) } else { wrong() };
            }
        }
        if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
            return wrong();
        }
        match (schema["type"].as_str(), value) {
            (Some("string"), Value::String(_)) | (Some("boolean"), Value::Bool(_)) => Ok(()),
            (Some("number"), Value::Number(_)) => Ok(()),
            (Some("integer"), Value::Number(number)) => {
                let least = schema["minimum"].as_u64().unwrap_or(0);
                if number.as_u64().is_some_and(|number| number >= least) { Ok(()) } else { wrong() }
            }
            (Some("array"), Value::Array(items)) => {
                let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
                let most = schema["maxItems"].as_u64().map_or(usize::MAX, |most| most as usize);
                if !(least..=most).contains(&items.len()) {
                    return wrong();
                }
                items.iter().try_for_each(|item| self.check(&schema["items"], item))
            }
            (Some("object"), Value::Object(fields)) => {
                let required = schema["required"].as_array().into_iter().flatten();
                for name in required.filter_map(Value::as_str) {
                    if !fields.contains_key(name) {
                        return Err(format!("{value} lacks {name}"));
                    }
                }
                if schema["properties"].is_null() && schema["additionalProperties"].is_null() {
                    return Ok(());
                }
                fields.iter().try_for_each(|(name, value)| match &schema["properties"][name] {
                    Value::Null if schema["additionalProperties"].is_object() => {
                        self.check(&schema["additionalProperties"], value)
                    }
                    Value::Null => Err(format!("{name} isn't in {schema}")),
                    schema => self.check(schema, value).map_err(|error| format!("{name}: {error}")),
                })
            }
            _ => wrong(),
        }
    }

    /// Checks an answer of a route against what the document says of its status.
    fn check_reply(&self, path: &str, method: &str, reply: &Reply) {
        let operation = &self.0["paths"][path][method];
        let told = &operation["responses"][reply.status.to_string()];
        assert!(told.is_object(), "{method} {path}: {} isn't documented", reply.status);
        let (kind, content) = told["content"].as_object().unwrap().iter().next().unwrap();
        assert!(reply.headers["content-type"].starts_with(kind), "{method} {path}: {reply:?}");
        if kind == "application/json" {
            let checked = self.check(&content["schema"], &reply.json());
            assert_eq!(checked, Ok(()), "{method} {path}, {}", reply.status);
        }
    }
}

/// One of each kind of model.
fn servers() -> [Server; 4] {
    [Server::encoder(), serving(sparse_folder()), serving(folder(true)), serving(classifier_folder())]
}

fn methods(methods: &Value) -> BTreeSet<String> {
    methods.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect()
}

#[test]
fn methods_are_those_that_routes_have() {
    let server = Server::encoder();
    let document = Document::of(&server);
    for (path, documented) in document.0["paths"].as_object().unwrap() {
        let path = path.replace("{name}", "encoder");
        let allowed = server.client().call("DELETE", &path, &[], b"").headers["allow"].clone();
        let allowed = allowed.split(',').filter(|method| *method != "HEAD").map(str::to_string).collect();
        assert_eq!(methods(documented), allowed, "{path}");
    }
}

/// The examples, sent to each kind of model: each is answered well by one kind at least, and any answer is of its schema.
#[test]
fn answers_are_of_their_schemas() {
    let servers = servers();
    let document = Document::of(&servers[0]);
    let mut post_count = 0;
    for (path, operations) in document.0["paths"].as_object().unwrap() {
        let place = path.replace("{name}", "encoder");
        if operations["get"].is_object() {
            for server in &servers {
                document.check_reply(path, "get", &server.get(&place));
            }
        }
        let Some(body) = operations["post"]["requestBody"]["content"]["application/json"].as_object() else {
            continue;
        };
        post_count += 1;
        assert_eq!(document.check(&body["schema"], &body["example"]), Ok(()), "{path}");
        let replies: Vec<_> = servers.iter().map(|server| server.post(path, &body["example"])).collect();
        replies.iter().for_each(|reply| document.check_reply(path, "post", reply));
        assert!(replies.iter().any(|reply| reply.status == 200), "{path}: {replies:?}");
        // Errors that the request has itself.
        for wrong in [&b"{"[..], b"{\"inputs\": 7, \"input\": 7, \"ids\": 7, \"query\": 7}"] {
            for server in &servers {
                let reply =
                    server.client().call("POST", path, &[("content-type", "application/json")], wrong);
                assert!((400..500).contains(&reply.status), "{path}");
                document.check_reply(path, "post", &reply);
            }
        }
    }
    assert_eq!(post_count, 12);
    for (path, body) in [
        ("/v1/embeddings", json!({ "input": [5, 8], "encoding_format": "base64", "dimensions": 3 })),
        ("/embed", json!({ "inputs": ["a", [5, 8]], "truncation_direction": "left", "normalize": false })),
        ("/tokenize", json!({ "inputs": "a", "add_special_tokens": false })),
        (
            "/similarity",
            json!({ "inputs": { "source_sentence": "a", "sentences": ["a"] }, "parameters": { "truncate": true } }),
        ),
    ] {
        let schema =
            &document.0["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(document.check(schema, &body), Ok(()), "{path}");
        let reply = servers[0].post(path, &body);
        reply.good();
        document.check_reply(path, "post", &reply);
    }
}

/// What checks the answers sees that one is wrong.
#[test]
fn other_answers_arent_of_their_schemas() {
    let document = Document::of(&Server::encoder());
    let schema = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    for (name, right, wrong) in [
        ("Vectors", json!([[0.5]]), json!([["0.5"]])),
        ("Rank", json!({ "index": 0, "score": 1 }), json!({ "index": 0, "score": 1, "document": "a" })),
        ("Rank", json!({ "index": 0, "score": 1, "text": "a" }), json!({ "index": 0 })),
        ("SparseVectors", json!([[]]), json!([[{ "index": -1, "value": 1 }]])),
        ("Predictions", json!([{ "score": 1, "label": "a" }]), json!([{ "score": null, "label": "a" }])),
        (
            "Error",
            json!({ "error": "a", "error_type": "validation" }),
            json!({ "error": "a", "error_type": "other" }),
        ),
    ] {
        assert_eq!(document.check(&schema(name), &right), Ok(()));
        assert!(document.check(&schema(name), &wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_page_for_requests_is_one_file() {
    let server = Server::encoder();
    for path in ["/docs", "/docs/"] {
        let page = server.get(path);
        assert_eq!((page.status, &page.headers["content-type"][..]), (200, "text/html; charset=utf-8"));
        let policy = &page.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'; connect-src 'self';"), "{policy}");
        let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        let text = String::from_utf8(page.body).unwrap();
        assert_eq!(text.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
        assert!(!text.contains("://") && !text.contains("src="), "it names another place");
    }
}
