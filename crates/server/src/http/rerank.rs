//! Scores of texts for a query: as text-embeddings-inference has them, and as Jina and Cohere do.

use super::{
    App,
    failure::Failure,
    openai::Usage,
    reply::{Answer, answer_of},
    work::{self, Asked, elsewhere},
};
use crate::{
    engine::{Kind, Row},
    request::{self, Documents, Rerank},
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

/// Errors: with several labels none of them says how well a text answers.
fn check_reranker(app: &App, route: &str) -> Result<(), Failure> {
    match &app.engine.about().kind {
        Kind::Reranker { labels, .. } if labels.len() == 1 => Ok(()),
        _ => Err(elsewhere(app.engine.about(), route, "a reranker")),
    }
}

/// Indices and scores of texts, the best first. By what the head says: between 0 and 1 many of its numbers are one, from 17 on
/// all of them. Stable: equal ones stay in order, also zeros of both signs.
fn ranked(rows: Vec<Row>, raw: bool) -> Vec<(usize, f32)> {
    let score = |(index, row): (usize, Row)| (index, row.first().copied().unwrap_or(f32::NAN));
    let mut ranks: Vec<_> = rows.into_iter().enumerate().map(score).collect();
    ranks.sort_by(|(_, a), (_, b)| (b + 0.0).total_cmp(&(a + 0.0)));
    if !raw {
        ranks.iter_mut().for_each(|(_, score)| *score = 1.0 / (1.0 + (-*score).exp()));
    }
    ranks
}

pub async fn rerank(State(app): State<Arc<App>>, request: Request) -> Answer {
    check_reranker(&app, "/rerank")?;
    let asked = work::ask(&app, request, false, |app, bytes| {
        let body: Rerank<'_> = request::read(bytes)?;
        work::count("texts", &body.texts, app.options.input_count_max)?;
        let too_long = work::too_long(body.truncate, body.truncation_direction);
        let texts = work::texts("texts", &body.texts)?;
        let tokens = app.engine.tokenizer().tokenize_pairs(&body.query, &texts, too_long)?;
        let returned = body.return_text.unwrap_or(false);
        let texts: Option<Vec<String>> = returned.then(|| texts.into_iter().map(str::to_string).collect());
        Ok((tokens, (texts, body.raw_scores.unwrap_or(false))))
    });
    let Asked { rows, cost, room, rest: (mut texts, raw) } = asked.await?;
    let text_bytes: usize = texts.iter().flatten().map(String::len).sum();
    let mut text = |index: usize| texts.as_mut().map(|texts| std::mem::take(&mut texts[index]));
    let rank = |(index, score)| Rank { index, score, text: text(index) };
    let ranks: Vec<Rank> = ranked(rows, raw).into_iter().map(rank).collect();
    answer_of(room, cost, &ranks, 4 * ranks.len() + text_bytes / 8)
}

#[derive(Serialize)]
struct Ranking<'a> {
    model: &'a str,
    object: &'static str,
    usage: Usage,
    results: Vec<Relevance>,
}

#[derive(Serialize)]
struct Relevance {
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document>,
}

#[derive(Serialize)]
struct Document {
    text: String,
}

pub async fn documents(State(app): State<Arc<App>>, request: Request) -> Answer {
    check_reranker(&app, "/v1/rerank")?;
    let asked = work::ask(&app, request, false, |app, bytes| {
        let Documents { query, documents, top_n, return_documents, truncate, .. } = request::read(bytes)?;
        work::count_of("documents", documents.0.len(), app.options.openai_input_count_max)?;
        if top_n == Some(0) {
            return Err(Failure::form("top_n is wrong, expected at least 1, found 0"));
        }
        let too_long = work::too_long(truncate, None);
        let tokens = app.engine.tokenizer().tokenize_pairs(&query, &documents.0, too_long)?;
        let returned = return_documents.unwrap_or(true);
        let texts: Option<Vec<String>> =
            returned.then(|| documents.0.into_iter().map(std::borrow::Cow::into_owned).collect());
        Ok((tokens, (texts, top_n.unwrap_or(usize::MAX))))
    });
    let Asked { rows, cost, room, rest: (mut texts, top_n) } = asked.await?;
    let text_bytes: usize = texts.iter().flatten().map(String::len).sum();
    let mut document =
        |index: usize| texts.as_mut().map(|texts| Document { text: std::mem::take(&mut texts[index]) });
    let result = |(index, score)| Relevance { index, relevance_score: score, document: document(index) };
    let results: Vec<_> = ranked(rows, false).into_iter().take(top_n).map(result).collect();
    let numbers = 6 * results.len() + text_bytes / 8;
    let ranking = Ranking { model: app.name(), object: "list", usage: Usage::of(cost), results };
    answer_of(room, cost, &ranking, numbers)
}
