//! What a classifier says of texts and of pairs of them.

use super::{
    App,
    reply::{Answer, answer_of},
    work::{self, Asked, elsewhere},
};
use crate::{
    engine::{Function, Kind, Row},
    request::{self, Predict},
};
use axum::extract::{Request, State};
use raddle_sync::Arc;
use serde::Serialize;

#[derive(Serialize)]
struct Prediction<'a> {
    score: f32,
    label: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Predictions<'a> {
    Batch(Vec<Vec<Prediction<'a>>>),
    Single(Vec<Prediction<'a>>),
}

pub async fn predict(State(app): State<Arc<App>>, request: Request) -> Answer {
    let about = app.engine.about();
    let Kind::Reranker { labels, function } = &about.kind else {
        return Err(elsewhere(about, "/predict", "a classifier or reranker"));
    };
    let asked = work::ask(&app, request, false, |app, bytes| {
        let Predict { inputs, truncate, truncation_direction, raw_scores } = request::read(bytes)?;
        work::count_of("inputs", inputs.items.len(), app.options.input_count_max)?;
        let too_long = work::too_long(truncate, truncation_direction);
        let tokenizer = app.engine.tokenizer();
        let mut all = Vec::with_capacity(inputs.items.len());
        for (index, (first, second)) in inputs.items.iter().enumerate() {
            let tokens = match second {
                Some(second) => tokenizer.tokenize_pairs(first, &[second], too_long),
                None => tokenizer.tokenize(&[first], too_long),
            };
            all.push(tokens.map(work::only).map_err(|error| error.at(index))?);
        }
        Ok((all, (inputs.is_list, raw_scores.unwrap_or(false))))
    });
    let Asked { rows, cost, room, rest: (is_list, raw) } = asked.await?;
    let function = if raw { Function::Identity } else { *function };
    let mut all: Vec<_> = rows.iter().map(|row| predictions(row, labels, function)).collect();
    let numbers = 4 * all.len() * labels.len();
    let predictions = match all.pop() {
        Some(one) if !is_list => Predictions::Single(one),
        last => {
            all.extend(last);
            Predictions::Batch(all)
        }
    };
    answer_of(room, cost, &predictions, numbers)
}

/// The best first, by what the head says: of its probabilities many may be one number. Stable.
fn predictions<'a>(row: &Row, labels: &'a [String], function: Function) -> Vec<Prediction<'a>> {
    let scores = function.apply(row);
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| (row[b] + 0.0).total_cmp(&(row[a] + 0.0)));
    order.into_iter().map(|index| Prediction { score: scores[index], label: &labels[index] }).collect()
}
