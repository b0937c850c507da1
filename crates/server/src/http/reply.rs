//! Answers: JSON, and pages.

use super::{
    counts::Cost,
    failure::{Failure, Kind},
    work::Room,
};
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use bytes::Bytes;
use serde::Serialize;
use std::hash::{BuildHasher, RandomState};

/// What handlers give.
pub type Answer = Result<Response<Body>, Failure>;

/// An answer in JSON. `capacity` is a guess of its length.
pub fn answer(value: &impl Serialize, capacity: usize) -> Answer {
    Ok(json_response(Body::from(json_of(value, capacity)?)))
}

fn json_of(value: &impl Serialize, capacity: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut bytes, value).map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Backend, format!("answer: {error}"))
    })?;
    Ok(bytes)
}

fn json_response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Bytes of a number in JSON.
const NUMBER_BYTES: usize = 14;

/// An answer, and what it has cost.
pub fn answer_of(room: Room, cost: Cost, value: &impl Serialize, numbers: usize) -> Answer {
    let mut response = answer_holding(room, value, 64 + numbers * NUMBER_BYTES)?;
    response.extensions_mut().insert(cost);
    Ok(response)
}

/// Bytes of an answer that a connection may hold anyway (a guess: as many as of a head).
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// An answer that keeps the room of its request until it has been sent, unless it is small: of large ones there are as many as
/// requests at once, however many clients don't take theirs.
pub fn answer_holding(room: impl Send + 'static, value: &impl Serialize, capacity: usize) -> Answer {
    let bytes = json_of(value, capacity)?;
    Ok(json_response(match bytes.len() {
        0..=SMALL_BYTES_MAX => Body::from(bytes),
        _ => Body::from(Bytes::from_owner(Held { bytes, _room: room })),
    }))
}

struct Held<R> {
    bytes: Vec<u8>,
    _room: R,
}

impl<R> AsRef<[u8]> for Held<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A page. It runs nothing but its own script, which it names by a number that nobody could have known, and asks nobody but this
/// server.
pub fn html(text: String) -> Response<Body> {
    let random = || RandomState::new().hash_one(0);
    let nonce = format!("{:016x}{:016x}", random(), random());
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = Response::new(Body::from(text.replace("\"NONCE\"", &format!("\"{nonce}\""))));
    let headers = response.headers_mut();
    let policy = HeaderValue::from_str(&policy).expect("a policy is plain text");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
