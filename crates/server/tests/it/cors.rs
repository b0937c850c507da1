//! Pages of other origins.

use crate::server::{Reply, Server, engine_of};
use raddle_server::{
    engine::EngineOptions,
    http::{Options, Origins},
};

const PAGE: &str = "https://example.org";

fn server(origins: &[&str]) -> Server {
    let options = Options {
        cors: Origins::read(origins).unwrap(),
        key: Some("a-key-of-some-length".into()),
        ..Options::default()
    };
    Server::start(engine_of(false, EngineOptions::default()), options)
}

/// What a browser asks before a page's request is sent.
fn asked(server: &Server, origin: &str) -> Reply {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-stainless-os"),
    ];
    server.client().call("OPTIONS", "/v1/embeddings", &headers, b"")
}

fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply.headers.get(&format!("access-control-{name}")).map_or("", String::as_str)
}

/// The browser has no key when it asks; the page has one.
#[test]
fn pages_that_may_ask_are_told_so() {
    for (origins, allowed) in [(&["https://other.org", PAGE][..], PAGE), (&["*"], "*")] {
        let server = server(origins);
        let reply = asked(&server, PAGE);
        assert_eq!((reply.status, header(&reply, "allow-origin")), (200, allowed));
        assert_eq!(header(&reply, "allow-methods"), "GET,POST");
        assert_eq!(header(&reply, "allow-headers"), "authorization,content-type,x-stainless-os");
        assert_eq!(
            header(&reply, "allow-credentials"),
            "",
            "a page of any origin would have the user's cookies"
        );
        let body = br#"{"input": "a thread"}"#;
        let json = ("content-type", "application/json");
        let key = ("authorization", "Bearer a-key-of-some-length");
        let call = |headers: &[_]| server.client().call("POST", "/v1/embeddings", headers, body);
        let good = call(&[("origin", PAGE), json, key]);
        assert_eq!((good.status, header(&good, "allow-origin")), (200, allowed));
        assert!(header(&good, "expose-headers").contains("x-request-id"), "{good:?}");
        // A page that can't read an error shows nothing but that there was one.
        let refused = call(&[("origin", PAGE), json]);
        assert_eq!((refused.status, header(&refused, "allow-origin")), (401, allowed));
    }
}

#[test]
fn other_pages_are_told_nothing() {
    for origins in [&[][..], &["https://other.org"]] {
        let reply = asked(&server(origins), PAGE);
        assert_eq!(header(&reply, "allow-origin"), "", "{origins:?}");
    }
    // Without the option nothing is answered but by the routes.
    assert_eq!(asked(&server(&[]), PAGE).status, 401);
}

#[test]
fn origins_are_checked() {
    for text in [
        "",
        "example.org",
        "https://",
        "https://example.org/",
        "https://*.example.org",
        "https://a b",
        "null",
    ] {
        assert_eq!(Origins::read(&[text]), Err(text.to_string()));
    }
    let found = Origins::read(&["https://Example.org:8443", "http://[::1]:3000"]).unwrap();
    let expected = ["https://example.org:8443", "http://[::1]:3000"];
    assert_eq!(found, Origins::These(expected.map(|origin| origin.parse().unwrap()).into()));
    assert_eq!(Origins::read(&["https://a.org", "*"]), Ok(Origins::Any));
}
