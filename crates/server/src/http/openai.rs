//! The routes of OpenAI.

use super::{
    App,
    counts::Cost,
    failure::{Failure, Kind},
    reply::{Answer, answer, answer_of},
    work::{self, Asked, check_dimensions, shape, width},
};
use crate::request::{self, Embeddings, EncodingFormat};
use axum::{
    extract::{Path, Request, State, rejection::PathRejection},
    http::StatusCode,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use raddle_sync::Arc;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
pub struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl Usage {
    pub fn of(cost: Cost) -> Usage {
        Usage { prompt_tokens: cost.tokens, total_tokens: cost.tokens }
    }
}

/// Vectors are of norm 1, a part of one too.
pub async fn embeddings(State(app): State<Arc<App>>, request: Request) -> Answer {
    let width = width(app.engine.about(), "/v1/embeddings")?;
    let asked = work::ask(&app, request, false, move |app, bytes| {
        let body: Embeddings<'_> = request::read(bytes)?;
        check_dimensions(body.dimensions, width)?;
        let too_long = work::too_long(body.truncate, None);
        work::count("input", &body.input, app.options.openai_input_count_max)?;
        let tokens = work::tokens(app, body.input, None, too_long)?;
        Ok((tokens, (body.dimensions, body.encoding_format.unwrap_or_default())))
    });
    let Asked { rows, cost, room, rest: (dimensions, format) } = asked.await?;
    let numbers = rows.len() * dimensions.unwrap_or(width);
    let embedding = |(index, mut row): (usize, Vec<f32>)| {
        shape(&mut row, dimensions, true);
        let embedding = match format {
            EncodingFormat::Float => Vector::Float(row),
            EncodingFormat::Base64 => {
                let bytes: Vec<u8> = row.iter().flat_map(|element| element.to_le_bytes()).collect();
                Vector::Base64(STANDARD.encode(bytes))
            }
        };
        Embedding { object: "embedding", index, embedding }
    };
    let list = List {
        object: "list",
        data: rows.into_iter().enumerate().map(embedding).collect(),
        model: app.name(),
        usage: Usage::of(cost),
    };
    answer_of(room, cost, &list, numbers)
}

fn about(app: &App) -> Value {
    json!({ "id": app.name(), "object": "model", "created": app.samples.started_at(), "owned_by": "raddle" })
}

pub async fn models(State(app): State<Arc<App>>) -> Answer {
    answer(&json!({ "object": "list", "data": [about(&app)] }), 256)
}

/// The one by its name, which may have a slash in it.
pub async fn model(State(app): State<Arc<App>>, asked: Result<Path<String>, PathRejection>) -> Answer {
    // What can't be read is none.
    if !asked.is_ok_and(|Path(asked)| asked == app.name()) {
        let message = format!("there is no such model, expected {}", app.name());
        return Err(Failure::new(StatusCode::NOT_FOUND, Kind::Validation, message));
    }
    answer(&about(&app), 256)
}
