//! The routes of OpenAI's and of text-embeddings-inference's servers over an [`Engine`](crate::engine::Engine).
//!
//! | route | as |
//! |---|---|
//! | `POST /v1/embeddings`, `/embeddings`, `GET /v1/models`, `/v1/models/NAME` | OpenAI |
//! | `POST /v1/rerank` | Jina, Cohere |
//! | `POST /embed`, `/embed_all`, `/embed_sparse`, `/predict`, `/rerank`, `/similarity`, `/tokenize`, `/decode`, `GET /info`, `/health`, `/metrics` | text-embeddings-inference |
//! | `POST /` | `/embed`, `/embed_sparse`, `/rerank` or `/predict`, whichever is the model's |
//! | `GET /`, `/status` | a page with the state of the server, and that state as JSON |
//! | `GET /docs`, `/openapi.json` | a page to try requests from, and what it is made of |
//!
//! A slash at the end of a path, or twice in a row, changes nothing.
//!
//! - **Every answer is JSON**, but for the pages and `/metrics`: also of a wrong path or method, of bytes that are no JSON, and
//!   after a panic. Errors under `/v1/`, and of `/embeddings`, are OpenAI's, others text-embeddings-inference's.
//! - **What a client can hold is bounded**: bytes of a body and the time that it takes to come, inputs of a request, requests at
//!   once, texts that wait, connections, and the time for a head ([`Options`], [`listen`]).
//! - **Who goes frees what he held.** A connection that ends drops its request, and what of it waits in the batcher is taken
//!   back.
//! - **Logs hold no text of users**: a line a request, with its id, route, status, time and counts.
//! - There is no TLS: put a proxy in front for it.

mod app;
mod body;
mod cors;
mod counts;
mod failure;
mod guard;
mod io;
pub mod listen;
mod metrics;
mod openai;
mod openapi;
mod options;
mod predict;
mod process;
mod reply;
mod rerank;
mod samples;
mod status;
mod tei;
mod work;

pub use app::App;
pub use cors::Origins;
pub use options::Options;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::Uri,
    middleware,
    routing::{MethodRouter, get, post},
};
use raddle_sync::Arc;

/// The routes, each with what is done there. `openapi.json` has the same.
fn table() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/", get(status::page).post(tei::root)),
        ("/status", get(status::status)),
        ("/docs", get(openapi::page)),
        ("/openapi.json", get(openapi::document)),
        ("/embed", post(tei::embed)),
        ("/embed_all", post(tei::embed_all)),
        ("/embed_sparse", post(tei::embed_sparse)),
        ("/predict", post(predict::predict)),
        ("/rerank", post(rerank::rerank)),
        ("/similarity", post(tei::similarity)),
        ("/tokenize", post(tei::tokenize)),
        ("/decode", post(tei::decode)),
        ("/info", get(tei::info)),
        ("/health", get(tei::health)),
        ("/ping", get(tei::health)),
        ("/metrics", get(metrics::metrics)),
        ("/v1/embeddings", post(openai::embeddings)),
        ("/embeddings", post(openai::embeddings)),
        ("/v1/rerank", post(rerank::documents)),
        ("/v1/models", get(openai::models)),
        ("/v1/models/{*name}", get(openai::model)),
    ]
}

/// The routes, with all that is around them: keys, ids, logs, panics. For those who have a listener of their own.
pub fn router(app: Arc<App>) -> Router {
    let routes =
        table().into_iter().fold(Router::new(), |routes, (path, methods)| routes.route(path, methods));
    let routes = routes.fallback(guard::no_such_path).method_not_allowed_fallback(guard::no_such_method);
    let cors = app.options.cors.layer();
    let routes = routes
        // Ours comes first, and reads no more than it allows.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app);
    // Around the guard: a browser that asks has no key, and errors are to be read, too.
    let routes = match cors {
        Some(layer) => routes.layer(layer),
        None => routes,
    };
    // Around all of it, as a path is looked up before what is around its route.
    Router::new().fallback_service(routes).layer(middleware::map_request(plain))
}

/// The same request without a slash at the end of its path or twice in a row.
async fn plain(mut request: Request) -> Request {
    let path = request.uri().path();
    if !(path.contains("//") || path.len() > 1 && path.ends_with('/')) {
        return request;
    }
    let parts = path.split('/').filter(|part| !part.is_empty());
    let mut plain: String = parts.flat_map(|part| ["/", part]).collect();
    if plain.is_empty() {
        plain.push('/');
    }
    if let Some(query) = request.uri().query() {
        plain.extend(["?", query]);
    }
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = plain.parse().ok();
    if let Ok(plain) = Uri::from_parts(parts) {
        *request.uri_mut() = plain;
    }
    request
}
