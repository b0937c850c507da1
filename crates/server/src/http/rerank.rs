//! Scores of texts for a query.

use super::{
    App, body,
    tei::{Answer, answer_of},
    work,
};
use crate::{
    engine::{EngineError, Kind},
    request::{self, Rerank},
};
use axum::extract::{Request, State};
use raddle_sync::Arc;
use serde::Serialize;

#[derive(Serialize)]
struct Rank {
    index: usize,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

pub async fn rerank(State(app): State<Arc<App>>, request: Request) -> Answer {
    // With several labels none of them says how well a text answers.
    match &app.engine.about().kind {
        Kind::Reranker { labels } if labels.len() == 1 => {}
        _ => return Err(EngineError::NoReranker.into()),
    }
    let permit = work::permit(&app)?;
    let batching = work::request(&app, request.headers())?;
    let bytes = body::read(&app, request).await?;
    let prepared = work::prepare(&app, &permit, bytes, |app, bytes| {
        let body: Rerank<'_> = request::read(bytes)?;
        work::count("texts", &body.texts, app.options.input_count_max)?;
        let too_long = work::too_long(body.truncate, body.truncation_direction);
        let texts = work::texts("texts", &body.texts)?;
        let tokens = app.engine.tokenizer().tokenize_pairs(&body.query, &texts, too_long)?;
        let returned = body.return_text.unwrap_or(false);
        let texts: Option<Vec<String>> = returned.then(|| texts.into_iter().map(str::to_string).collect());
        Ok((tokens, texts, body.raw_scores.unwrap_or(false)))
    });
    let (tokens, texts, raw) = prepared.await?;
    let (rows, cost) = work::rows(&app, tokens, batching).await?;
    let mut texts = texts.into_iter().flatten();
    let rank = |(index, row): (usize, Vec<f32>)| Rank {
        index,
        score: row.first().copied().unwrap_or(f32::NAN),
        text: texts.next(),
    };
    let mut ranks: Vec<Rank> = rows.into_iter().enumerate().map(rank).collect();
    // By what the head says: between 0 and 1 many of its numbers are one, from 17 on all of them. Stable: equal ones stay in
    // order, also zeros of both signs.
    ranks.sort_by(|a, b| (b.score + 0.0).total_cmp(&(a.score + 0.0)));
    if !raw {
        ranks.iter_mut().for_each(|rank| rank.score = 1.0 / (1.0 + (-rank.score).exp()));
    }
    let text_bytes: usize = ranks.iter().filter_map(|rank| rank.text.as_ref()).map(String::len).sum();
    answer_of(permit, cost, &ranks, 4 * ranks.len() + text_bytes / 8)
}
