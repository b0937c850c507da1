//! What goes wrong, in the words of two protocols.

use crate::{engine::EngineError, request::BodyError};
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use raddle_nn::text::ModelError;
use raddle_serve::{Error, Rejected};
use serde_json::json;

/// A kind of failure, as text-embeddings-inference has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is nothing to compute.
    Empty,
    /// The request is wrong, or too large.
    Validation,
    /// Its texts can't be taken.
    Tokenizer,
    /// The model failed.
    Backend,
    /// Come later.
    Overloaded,
    /// The server ends.
    Unhealthy,
    /// No key, or another.
    Unauthorized,
}

impl Kind {
    /// All of them, for counts.
    pub const ALL: [Kind; 7] = [
        Kind::Empty,
        Kind::Validation,
        Kind::Tokenizer,
        Kind::Backend,
        Kind::Overloaded,
        Kind::Unhealthy,
        Kind::Unauthorized,
    ];

    /// Its name in `error_type`, and in counts.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Empty => "empty",
            Kind::Validation => "validation",
            Kind::Tokenizer => "tokenizer",
            Kind::Backend => "backend",
            Kind::Overloaded => "overloaded",
            Kind::Unhealthy => "unhealthy",
            Kind::Unauthorized => "unauthorized",
        }
    }

    /// Its `type` in OpenAI's errors.
    fn openai(self) -> &'static str {
        match self {
            Kind::Empty | Kind::Validation | Kind::Tokenizer => "invalid_request_error",
            Kind::Unauthorized => "authentication_error",
            Kind::Overloaded => "rate_limit_error",
            Kind::Backend | Kind::Unhealthy => "server_error",
        }
    }
}

/// Whose errors a path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error": {"message", "type", "param", "code"}}`
    OpenAi,
    /// `{"error", "error_type"}`
    Tei,
}

impl Dialect {
    /// That of a path.
    pub fn of(path: &str) -> Dialect {
        if path.starts_with("/v1/") || path == "/embeddings" { Dialect::OpenAi } else { Dialect::Tei }
    }
}

/// An answer that is an error. It goes through the guard, which writes it in the dialect of the path.
#[derive(Clone, Debug)]
pub struct Failure {
    pub status: StatusCode,
    pub kind: Kind,
    pub message: String,
}

impl Failure {
    pub fn new(status: StatusCode, kind: Kind, message: impl Into<String>) -> Failure {
        Failure { status, kind, message: message.into() }
    }

    /// A request that is well-formed and asks for what can't be.
    pub fn form(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Kind::Validation, message)
    }

    /// More of something than is allowed.
    pub fn too_large(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, Kind::Validation, message)
    }

    /// A route for other models: the status is text-embeddings-inference's.
    pub fn other_model(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::FAILED_DEPENDENCY, Kind::Validation, message)
    }

    /// Come later.
    pub fn overloaded(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::TOO_MANY_REQUESTS, Kind::Overloaded, message)
    }

    /// The answer in a dialect.
    pub fn into_response(self, dialect: Dialect) -> Response<Body> {
        let Failure { mut status, kind, message } = self;
        // OpenAI's servers say 400 for whatever is wrong with a request.
        let is_wrong = status == StatusCode::UNPROCESSABLE_ENTITY
            || status == StatusCode::FAILED_DEPENDENCY && kind == Kind::Validation;
        if dialect == Dialect::OpenAi && is_wrong {
            status = StatusCode::BAD_REQUEST;
        }
        let body = match dialect {
            Dialect::Tei => json!({ "error": message, "error_type": kind.name() }),
            Dialect::OpenAi => json!({ "error": {
                "message": message, "type": kind.openai(), "param": null, "code": kind.name()
            } }),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(kind, Kind::Overloaded | Kind::Unhealthy) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if kind == Kind::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(kind);
        response
    }
}

/// What handlers return: the guard, which knows the path, writes it out.
impl axum::response::IntoResponse for Failure {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Failure {
        let status = match error {
            BodyError::Syntax(_) => StatusCode::BAD_REQUEST,
            BodyError::Form(_) => StatusCode::UNPROCESSABLE_ENTITY,
            BodyError::TooMany(_) => StatusCode::PAYLOAD_TOO_LARGE,
        };
        Failure::new(status, Kind::Validation, error.to_string())
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Failure {
        let message = error.to_string();
        match error {
            // A tokenizer that puts nothing around texts makes nothing of an empty one.
            ModelError::Text { what: "the number of tokens", ref found, .. } if found != "0" => {
                Failure::too_large(message)
            }
            ModelError::Text { .. } | ModelError::Tokenizer { .. } | ModelError::NoTexts => {
                Failure::new(StatusCode::UNPROCESSABLE_ENTITY, Kind::Tokenizer, message)
            }
            ModelError::Prompt { .. } => Failure::form(message),
            // The folder's and the device's, and the hub's where there is one.
            _ => Failure::new(StatusCode::FAILED_DEPENDENCY, Kind::Backend, message),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        let message = error.to_string();
        match error {
            EngineError::Model(error) | EngineError::Failed(Error::Handler(error)) => error.into(),
            EngineError::Rejected(Rejected::Full { .. }) => Failure::overloaded(message),
            EngineError::Rejected(Rejected::TooLong { .. }) => Failure::too_large(message),
            EngineError::Rejected(Rejected::Late) => Failure::form(message),
            EngineError::Rejected(Rejected::Stopped | Rejected::Forked)
            | EngineError::Failed(Error::Stopped | Error::Forked | Error::Taken) => {
                Failure::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Unhealthy, message)
            }
            EngineError::Failed(Error::Expired { .. }) => {
                Failure::new(StatusCode::GATEWAY_TIMEOUT, Kind::Overloaded, message)
            }
            // A bug of ours or of the model; the text of a panic is for the log.
            EngineError::Failed(Error::Panicked { .. } | Error::ResultCount { .. }) => {
                tracing::error!(error = message, "the model failed");
                Failure::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Backend, "the model failed")
            }
            EngineError::NoEncoder | EngineError::NoReranker => Failure::other_model(message),
        }
    }
}
