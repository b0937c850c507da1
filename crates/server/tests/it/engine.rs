//! The engine without a server.

use crate::server::{WIDTH, device, engine_of, folder, model};
use raddle_nn::text::{
    BertConfig, CrossEncoder, ModelOptions, SETTINGS_BYTES_MAX, SentenceEncoder, TooLong, write_random_model,
};
use raddle_serve::Request;
use raddle_server::engine::{Engine, EngineError, EngineOptions, Model};
use std::fs;

fn texts() -> Vec<String> {
    (0..200)
        .map(|index| ["a thread waits ", "stream ", "for the device "][index % 3].repeat(index % 7))
        .collect()
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|element| element.to_bits()).collect()).collect()
}

/// Texts alone on one thread, and from 8 threads in batches of all sizes: the same to the last bit, with the switch and, on
/// the CPU, without.
#[test]
fn rows_are_the_same_whatever_is_beside_them() {
    let texts = texts();
    let alone = engine_of(
        false,
        EngineOptions { running_count_max: Some(1), batch_count_max: 1, ..Default::default() },
    );
    let expected: Vec<_> = texts.iter().map(|text| bits(&alone.embed(&[text]).unwrap())[0].clone()).collect();
    for deterministic in [false, true] {
        let engine = engine_of(
            false,
            EngineOptions { deterministic, running_count_max: Some(3), ..Default::default() },
        );
        for parts in [1, 3, 50, 200] {
            let found = std::thread::scope(|scope| {
                let part = |part: &'_ [String]| bits(&engine.embed(part).unwrap());
                let threads: Vec<_> =
                    texts.chunks(parts).map(|texts| scope.spawn(move || part(texts))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(found == expected, "deterministic {deterministic}, {parts} texts at a time");
        }
        let counts = engine.counts();
        assert_eq!(counts.run_count, 800);
        assert!(counts.batch_count < 700, "nothing was run together: {counts:?}");
    }
}

#[test]
fn rows_are_the_models() {
    let texts = texts();
    let engine = engine_of(false, EngineOptions::default());
    let expected = SentenceEncoder::load(folder(false), device()).unwrap().encode(&texts).unwrap();
    let expected = expected.to_vec::<f32>().unwrap();
    let found = engine.embed(&texts).unwrap();
    for (found, expected) in found.iter().flatten().zip(&expected) {
        assert!((found - expected).abs() < 1e-6);
    }
    assert_eq!(found.len() * WIDTH, expected.len());
    let reranker = engine_of(true, EngineOptions::default());
    let expected = CrossEncoder::load(folder(true), device()).unwrap().score("a thread", &texts).unwrap();
    let found = reranker.score("a thread", &texts).unwrap();
    assert_eq!(found.concat(), expected.to_vec::<f32>().unwrap());
    assert_eq!(engine.score("a", &texts), Err(EngineError::NoReranker));
    assert_eq!(reranker.embed(&texts), Err(EngineError::NoEncoder));
}

/// What one caller asks for can't fail the batch of another.
#[test]
fn wrong_tokens_dont_reach_the_batch() {
    let engine = engine_of(false, EngineOptions::default());
    engine.pause();
    let good = engine.submit(vec![2, 4, 3].into(), Request::default()).unwrap();
    for (ids, reason) in [
        (vec![2, 12, 3], "text 0: a token is wrong, expected below 12, found 12"),
        (vec![], "text 0: the number of tokens is wrong, expected 1 to 16, found 0"),
        (vec![4; 17], "text 0: the number of tokens is wrong, expected 1 to 16, found 17"),
    ] {
        assert_eq!(engine.submit(ids.into(), Request::default()).unwrap_err().to_string(), reason);
    }
    assert_eq!(engine.counts().waiting_count, 1);
    engine.resume();
    assert_eq!(good.wait().unwrap().len(), WIDTH);
}

#[test]
fn streams_are_told_by_use() {
    let engine = engine_of(false, EngineOptions { running_count_max: Some(1), ..Default::default() });
    assert!(engine.streams().is_empty());
    for _ in 0..3 {
        engine.embed(&["a thread"]).unwrap();
    }
    engine.stop();
    let streams = engine.streams();
    // Each of the two threads may have run some.
    assert_eq!(streams.iter().map(|stream| stream.batch_count).sum::<u64>(), 3);
    assert!(streams.iter().all(|stream| !stream.busy.is_zero()));
    let micros = engine.batches().micros.bins().iter().sum::<u64>();
    assert_eq!((micros, engine.batches().texts.sum(), engine.batches().tokens.sum()), (3, 3, 12));
}

#[test]
fn a_limit_below_the_models_is_raised_to_it() {
    let engine =
        Engine::start(model(false), EngineOptions { batch_tokens_max: Some(1), ..Default::default() })
            .unwrap();
    assert_eq!(engine.about().batch_tokens_max, 16);
    let tokens = engine.complete(vec![4; 40], TooLong::Truncate).unwrap();
    assert_eq!(tokens.ids.len(), 16);
    assert!(engine.submit(tokens, Request::default()).unwrap().wait().is_ok());
}

/// Also of a reranker's, whose loader doesn't look at it.
#[test]
fn no_more_of_settings_is_read_than_there_may_be() {
    let folder = std::env::temp_dir().join(format!("raddle-{}-prompts", std::process::id()));
    write_random_model(&folder, &BertConfig::tiny(5), &["a"], 16, 5, device()).unwrap();
    let config = fs::read_to_string(folder.join("config.json")).unwrap();
    fs::write(folder.join("config.json"), config.replace("BertModel", "BertForSequenceClassification"))
        .unwrap();
    let prompts = |bytes: u64| {
        let text = r#"{"prompts": {"query": "a "}}"#;
        let text = " ".repeat(bytes as usize - text.len()) + text;
        fs::write(folder.join("config_sentence_transformers.json"), text).unwrap();
        let model = Model::load(&folder, device(), &ModelOptions::default()).unwrap();
        Engine::start(model, EngineOptions::default()).unwrap().about().prompts.by_name.len()
    };
    assert_eq!((prompts(SETTINGS_BYTES_MAX), prompts(SETTINGS_BYTES_MAX + 1)), (1, 0));
    fs::remove_dir_all(folder).unwrap();
}
