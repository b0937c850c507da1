//! Pages of other origins: what a browser asks before it lets them ask, and what it wants to see in answers (CORS, of the Fetch
//! standard).
//!
//! A browser sends no key by itself, and is told that it may send no cookies: what a page knows is all that it can use.

use axum::http::{HeaderName, HeaderValue, Method, header};
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// Pages that may read answers, by their origins: `https://example.org`, `http://localhost:3000`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// None but the server's own.
    #[default]
    None,
    /// All of them.
    Any,
    /// These.
    These(Vec<HeaderValue>),
}

/// How long a browser may remember what it was told (a guess: Chromium takes at most two hours).
const REMEMBERED: Duration = Duration::from_secs(3600);

impl Origins {
    /// Of texts, of which `*` is any.
    ///
    /// Errors: the first that is no origin.
    pub fn read<T: AsRef<str>>(texts: &[T]) -> Result<Origins, String> {
        if texts.iter().any(|text| text.as_ref() == "*") {
            return Ok(Origins::Any);
        }
        let origin = |text: &T| {
            let text = text.as_ref();
            let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ']);
            let is_origin =
                text.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
            // As browsers write them.
            let value = HeaderValue::from_str(&text.to_ascii_lowercase()).ok().filter(|_| is_origin);
            value.ok_or_else(|| text.to_string())
        };
        let origins = texts.iter().map(origin).collect::<Result<Vec<_>, _>>()?;
        Ok(if origins.is_empty() { Origins::None } else { Origins::These(origins) })
    }

    /// What is to be put around all routes. It answers the questions of browsers itself.
    pub(super) fn layer(&self) -> Option<CorsLayer> {
        let origins = match self {
            Origins::None => return None,
            Origins::Any => AllowOrigin::any(),
            Origins::These(origins) => AllowOrigin::list(origins.clone()),
        };
        let seen = [HeaderName::from_static("x-request-id"), header::RETRY_AFTER];
        let layer = CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]);
        // Clients have headers of their own, which are ignored.
        let layer = layer.allow_headers(AllowHeaders::mirror_request()).expose_headers(seen);
        Some(layer.max_age(REMEMBERED))
    }
}
