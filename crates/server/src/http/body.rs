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
use hyper::body::{Frame, SizeHint};
use raddle_sync::{Arc, Mutex, Rank, fault};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

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
    // Compressed, a small body may be one of any size.
    let encoding = request.headers().get(header::CONTENT_ENCODING).map(|encoding| encoding.as_bytes());
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
        let message = "body: expected no Content-Encoding, found one: it must not be compressed";
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

/// What a handler leaves of a body. If a connection was closed on a client that is still sending, it would lose the answer.
pub struct Rest(Arc<Mutex<Option<Body>>>);

impl Rest {
    /// A request whose body is kept when it is dropped before its end.
    pub fn of(request: Request) -> (Request, Rest) {
        let rest = Arc::new(Mutex::new(Rank::Leaf, None));
        let kept = rest.clone();
        let request = request.map(|body| match body.is_end_stream() {
            true => body,
            false => Body::new(Kept { body, rest: kept }),
        });
        (request, Rest(rest))
    }

    /// Reads and throws away what is left, as much and for as long as a body may take; not if it says that it is larger.
    pub async fn discard(self, app: &App) {
        let left = self.0.lock().take();
        let Some(mut body) = left else { return };
        let mut bytes_left = app.options.body_bytes_max;
        if body.size_hint().lower() > bytes_left as u64 {
            return;
        }
        let discarded = async {
            while let Some(Ok(frame)) = body.frame().await {
                match bytes_left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(left) => bytes_left = left,
                    None => break,
                }
            }
        };
        _ = tokio::time::timeout(app.options.body_within, discarded).await;
    }
}

/// A body that is put back.
struct Kept {
    body: Body,
    rest: Arc<Mutex<Option<Body>>>,
}

impl HttpBody for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            *self.rest.lock() = Some(std::mem::take(&mut self.body));
        }
    }
}
