//! Bodies, in bounded memory and time.

use super::{
    App,
    failure::{Failure, Kind},
};
use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{StatusCode, header},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use raddle_sync::fault;

/// So many times the limit is read and thrown away before a body that is too large is answered: a client that is still
/// sending would lose the answer if the connection was closed on it.
const DISCARD_TIMES: usize = 4;

/// The whole body of a request that says it is JSON.
pub async fn read(app: &App, request: Request) -> Result<Bytes, Failure> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    // So that a page of a browser can't send anything here without asking first.
    let is_json =
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        let message = "body: expected the header Content-Type: application/json";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::Validation, message));
    }
    let bytes_max = if fault!(body_without_end) { usize::MAX } else { app.options.body_bytes_max };
    let collected = collect(request.into_body(), bytes_max);
    match tokio::time::timeout(app.options.body_within, collected).await {
        Ok(read) => read,
        Err(_) => {
            let message = format!("body: it took longer than {:?} to come", app.options.body_within);
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, Kind::Validation, message))
        }
    }
}

async fn collect(mut body: Body, bytes_max: usize) -> Result<Bytes, Failure> {
    let too_large =
        || Failure::too_large(format!("body: it is too large, expected at most {bytes_max} bytes"));
    // A client that says so before it sends is told before it does.
    if body.size_hint().lower() > bytes_max.saturating_mul(DISCARD_TIMES) as u64 {
        return Err(too_large());
    }
    let (mut whole, mut discarded) = (BytesMut::new(), 0usize);
    while let Some(frame) = body.frame().await {
        let failed = |error: axum::Error| {
            Failure::new(StatusCode::BAD_REQUEST, Kind::Validation, format!("body: it broke off, {error}"))
        };
        let Ok(data) = frame.map_err(failed)?.into_data() else { continue };
        if discarded == 0 && whole.len() + data.len() <= bytes_max {
            if whole.is_empty() && body.is_end_stream() {
                return Ok(data);
            }
            whole.extend_from_slice(&data);
        } else {
            whole.clear();
            discarded += data.len();
            if discarded > bytes_max.saturating_mul(DISCARD_TIMES) {
                break;
            }
        }
    }
    if discarded > 0 { Err(too_large()) } else { Ok(whole.freeze()) }
}
