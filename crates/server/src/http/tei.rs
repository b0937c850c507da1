//! The routes of text-embeddings-inference, but for reranking.

use super::{
    App, body,
    failure::{Failure, Kind as FailureKind},
    predict,
    reply::{Answer, answer, answer_holding, answer_of},
    rerank,
    work::{self, Asked, check_dimensions, elsewhere, shape, width},
};
use crate::{
    engine::{Kind, Row, scale_to_unit},
    request::{self, Decode, Embed, Input, Object, Similarity, SimilarityParameters, Tokenize},
};
use axum::{
    extract::{Request, State},
    http::StatusCode,
};
use raddle_nn::text::Tokens;
use raddle_sync::Arc;
use serde::Serialize;
use serde_json::{Value, json};

/// What the model is for.
pub async fn root(state: State<Arc<App>>, request: Request) -> Answer {
    match &state.engine.about().kind {
        Kind::Encoder { .. } => embed(state, request).await,
        Kind::Sparse { .. } => embed_sparse(state, request).await,
        Kind::Reranker { labels, .. } if labels.len() == 1 => rerank::rerank(state, request).await,
        Kind::Reranker { .. } => predict::predict(state, request).await,
    }
}

pub async fn embed(State(app): State<Arc<App>>, request: Request) -> Answer {
    let width = width(app.engine.about(), "/embed")?;
    let asked = work::ask(&app, request, false, move |app, bytes| {
        let body: Embed<'_> = request::read(bytes)?;
        check_dimensions(body.dimensions, width)?;
        let (dimensions, normalize) = (body.dimensions, body.normalize.unwrap_or(true));
        Ok((tokens_of(app, body)?, (dimensions, normalize)))
    });
    let Asked { mut rows, cost, room, rest: (dimensions, normalize) } = asked.await?;
    rows.iter_mut().for_each(|row| shape(row, dimensions, normalize));
    answer_of(room, cost, &rows, rows.len() * dimensions.unwrap_or(width))
}

fn tokens_of(app: &App, body: Embed<'_>) -> Result<Vec<Tokens>, Failure> {
    let too_long = work::too_long(body.truncate, body.truncation_direction);
    work::count("inputs", &body.inputs, app.options.input_count_max)?;
    work::tokens(app, body.inputs, body.prompt_name.as_deref(), too_long)
}

/// The vectors of tokens, special ones included, as the encoder has them.
pub async fn embed_all(State(app): State<Arc<App>>, request: Request) -> Answer {
    let about = app.engine.about();
    width(about, "/embed_all")?;
    let asked = work::ask(&app, request, true, |app, bytes| Ok((tokens_of(app, request::read(bytes)?)?, ())));
    let Asked { rows, cost, room, .. } = asked.await?;
    let width = about.width(true);
    let rows: Vec<Vec<&[f32]>> = rows.iter().map(|row| row.chunks(width).collect()).collect();
    answer_of(room, cost, &rows, cost.tokens * width)
}

#[derive(Serialize)]
struct SparseValue {
    index: usize,
    value: f32,
}

/// What isn't 0 of vectors over the vocabulary.
pub async fn embed_sparse(State(app): State<Arc<App>>, request: Request) -> Answer {
    let about = app.engine.about();
    if !matches!(about.kind, Kind::Sparse { .. }) {
        let expected = "a sparse encoder (a masked language model is one with --pooling splade)";
        return Err(elsewhere(about, "/embed_sparse", expected));
    }
    let asked =
        work::ask(&app, request, false, |app, bytes| Ok((tokens_of(app, request::read(bytes)?)?, ())));
    let Asked { rows, cost, room, .. } = asked.await?;
    let sparse = |row: &Row| -> Vec<SparseValue> {
        let values = row.iter().enumerate().filter(|(_, value)| **value != 0.0);
        values.map(|(index, &value)| SparseValue { index, value }).collect()
    };
    let rows: Vec<_> = rows.iter().map(sparse).collect();
    // An object has some 30 bytes.
    answer_of(room, cost, &rows, 2 * rows.iter().map(Vec::len).sum::<usize>())
}

pub async fn similarity(State(app): State<Arc<App>>, request: Request) -> Answer {
    width(app.engine.about(), "/similarity")?;
    let asked = work::ask(&app, request, false, |app, bytes| {
        let Similarity { inputs: Object(inputs), parameters } = request::read(bytes)?;
        let Object(SimilarityParameters { truncate, truncation_direction, prompt_name }) =
            parameters.unwrap_or_default();
        let too_long = work::too_long(truncate, truncation_direction);
        work::count("sentences", &inputs.sentences, app.options.input_count_max)?;
        // In front of the others, as which it isn't counted.
        let mut all = inputs.sentences;
        all.items.insert(0, Input::Text(inputs.source_sentence));
        Ok((work::tokens(app, all, prompt_name.as_deref(), too_long)?, ()))
    });
    let Asked { mut rows, cost, room, .. } = asked.await?;
    rows.iter_mut().for_each(|row| scale_to_unit(row));
    let (one, others) = rows.split_first().expect("there is a row for the source and each sentence");
    let dot = |row: &Row| row.iter().zip(one).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32;
    let scores: Vec<f32> = others.iter().map(dot).collect();
    answer_of(room, cost, &scores, scores.len())
}

#[derive(Serialize)]
struct Spelled {
    id: u32,
    text: String,
    special: bool,
    start: Option<usize>,
    stop: Option<usize>,
}

pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Answer {
    let permit = work::permit(&app)?;
    let bytes = body::read(&app, request).await?;
    let spelled = work::prepare(&app, &permit, bytes, |app, bytes| {
        let body: Tokenize<'_> = request::read(bytes)?;
        work::count("inputs", &body.inputs, app.options.input_count_max)?;
        let prompt = work::prompt(app, body.prompt_name.as_deref())?;
        let spell = |text: &&str| {
            let pieces = app
                .engine
                .tokenizer()
                .spell(&format!("{prompt}{text}"), body.add_special_tokens.unwrap_or(true))?;
            let spelled = |piece: raddle_nn::text::Piece| Spelled {
                id: piece.id,
                text: piece.text,
                special: piece.special,
                start: piece.place.as_ref().map(|place| place.start),
                stop: piece.place.as_ref().map(|place| place.end),
            };
            Ok(pieces.into_iter().map(spelled).collect::<Vec<_>>())
        };
        work::texts("inputs", &body.inputs)?.iter().map(spell).collect::<Result<Vec<_>, Failure>>()
    });
    let spelled = spelled.await?;
    answer_holding(permit, &spelled, 64 * spelled.iter().map(Vec::len).sum::<usize>())
}

pub async fn decode(State(app): State<Arc<App>>, request: Request) -> Answer {
    let permit = work::permit(&app)?;
    let bytes = body::read(&app, request).await?;
    let texts = work::prepare(&app, &permit, bytes, |app, bytes| {
        let Decode { ids, skip_special_tokens } = request::read(bytes)?;
        work::count("ids", &ids, app.options.input_count_max)?;
        let decode = |input: &Input<'_>| match input {
            Input::Tokens(ids) => {
                Ok(app.engine.tokenizer().unspell(ids, skip_special_tokens.unwrap_or(true))?)
            }
            Input::Text(_) => Err(Failure::form("ids: expected token numbers, found a string")),
        };
        ids.items.iter().map(decode).collect::<Result<Vec<_>, Failure>>()
    });
    let texts = texts.await?;
    answer_holding(permit, &texts, 256)
}

pub async fn health(State(app): State<Arc<App>>) -> Answer {
    if app.is_stopping() {
        let message = "the server has been told to stop";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, FailureKind::Unhealthy, message));
    }
    let unhealthy = |why| Failure::new(StatusCode::SERVICE_UNAVAILABLE, FailureKind::Unhealthy, why);
    app.engine.check_health().map_err(unhealthy)?;
    answer(&json!({ "status": "ok" }), 32)
}

pub async fn info(State(app): State<Arc<App>>) -> Answer {
    let about = app.engine.about();
    let model_type = match &about.kind {
        Kind::Encoder { pooling, .. } => {
            let names: Vec<&str> = pooling.iter().map(|mode| mode.name()).collect();
            json!({ "embedding": { "pooling": names.join("+") } })
        }
        Kind::Sparse { .. } => json!({ "embedding": { "pooling": "splade" } }),
        Kind::Reranker { labels, .. } => {
            let by_id: serde_json::Map<String, Value> =
                labels.iter().enumerate().map(|(id, label)| (id.to_string(), json!(label))).collect();
            let by_label: serde_json::Map<String, Value> =
                labels.iter().enumerate().map(|(id, label)| (label.clone(), json!(id))).collect();
            let kind = if labels.len() == 1 { "reranker" } else { "classifier" };
            json!({ kind: { "id2label": by_id, "label2id": by_label } })
        }
    };
    let info = json!({
        "model_id": app.name(),
        "model_sha": null,
        "model_dtype": match about.dtype.to_string().as_str() {
            "f32" => "float32".to_string(),
            "f16" => "float16".to_string(),
            "bf16" => "bfloat16".to_string(),
            other => other.to_string(),
        },
        "model_type": model_type,
        "max_concurrent_requests": app.options.concurrent_request_count_max,
        "max_input_length": about.tokens_max,
        "max_batch_tokens": about.batch_tokens_max,
        "max_batch_requests": about.batch_count_max,
        "max_client_batch_size": app.options.input_count_max,
        "auto_truncate": true,
        "tokenization_workers": std::thread::available_parallelism().map_or(1, usize::from),
        "version": env!("CARGO_PKG_VERSION"),
        "sha": null,
        "docker_label": null,
        "device": about.device,
    });
    answer(&info, 512)
}
