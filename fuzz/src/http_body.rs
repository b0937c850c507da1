//! Bodies of requests.

use raddle_server::request::{
    BodyError, Decode, Documents, Embed, Embeddings, ITEM_COUNT_MAX, Input, Inputs, Predict, Rerank, Similarity,
    Tokenize, read,
};

/// What is read is no larger than what was sent, whichever route it was sent to; what isn't read is told in few words.
pub fn http_body(bytes: &[u8]) {
    let embed = read::<Embed<'_>>(bytes);
    check(bytes, embed.as_ref().map(|body| &body.inputs));
    check(bytes, read::<Embeddings<'_>>(bytes).as_ref().map(|body| &body.input));
    check(bytes, read::<Rerank<'_>>(bytes).as_ref().map(|body| &body.texts));
    check(bytes, read::<Similarity<'_>>(bytes).as_ref().map(|body| &body.inputs.0.sentences));
    check(bytes, read::<Tokenize<'_>>(bytes).as_ref().map(|body| &body.inputs));
    check(bytes, read::<Decode<'_>>(bytes).as_ref().map(|body| &body.ids));
    let sizes = |texts: Vec<usize>| {
        assert!(texts.len() <= ITEM_COUNT_MAX && texts.iter().sum::<usize>() <= bytes.len(), "more than was sent");
    };
    match read::<Documents<'_>>(bytes) {
        Ok(body) => sizes(body.documents.0.iter().map(|text| text.len()).collect()),
        Err(error) => told(&error),
    }
    match read::<Predict<'_>>(bytes) {
        Ok(body) => {
            let pairs = body.inputs.items.iter();
            sizes(pairs.map(|(one, other)| one.len() + other.as_ref().map_or(0, |text| text.len())).collect());
        }
        Err(error) => told(&error),
    }
}

fn told(error: &BodyError) {
    assert!(error.to_string().chars().count() < 300, "{error}");
}

fn check(bytes: &[u8], read: Result<&Inputs<'_>, &BodyError>) {
    let inputs = match read {
        Ok(inputs) => inputs,
        Err(error) => return told(error),
    };
    assert!(inputs.items.len() <= ITEM_COUNT_MAX && (inputs.is_list || inputs.items.len() == 1));
    let sizes = inputs.items.iter().map(|item| match item {
        Input::Text(text) => text.len(),
        // A digit at least, and a comma between two.
        Input::Tokens(tokens) => {
            assert!(tokens.len() <= ITEM_COUNT_MAX);
            tokens.len()
        }
    });
    assert!(sizes.sum::<usize>() <= bytes.len(), "more than was sent");
    let all_texts = inputs.items.iter().all(|item| item.text().is_some());
    assert_eq!(inputs.texts().map(|texts| texts.len()), all_texts.then_some(inputs.items.len()));
}
