//! What a tokenizer has made of a text, for people, and the way back.

use super::{Result, Tokenizer};

/// A token, and where in its text it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its row of the vocabulary.
    pub id: u32,
    /// That part of the text; for a special token its name.
    pub text: String,
    /// Was it put there by the tokenizer?
    pub special: bool,
    /// The characters of the text that it stands for; `None` if it is special.
    pub place: Option<std::ops::Range<usize>>,
}

impl Tokenizer {
    /// The tokens of a text with their places, all of them, however many the model takes.
    pub fn spell(&self, text: &str, with_special: bool) -> Result<Vec<Piece>> {
        let encoding =
            self.tokenizer.encode_char_offsets(text, with_special).map_err(|error| self.failed(error))?;
        // Where each character begins, and the end.
        let starts: Vec<usize> = text.char_indices().map(|(start, _)| start).chain([text.len()]).collect();
        let piece = |index: usize| {
            let special = encoding.get_special_tokens_mask()[index] == 1;
            let (start, end) = encoding.get_offsets()[index];
            let part = starts.get(start).zip(starts.get(end)).and_then(|(start, end)| text.get(*start..*end));
            Piece {
                id: encoding.get_ids()[index],
                text: match part {
                    Some(part) if !special => part.into(),
                    _ => encoding.get_tokens()[index].clone(),
                },
                special,
                place: (!special).then_some(start..end),
            }
        };
        Ok((0..encoding.len()).map(piece).collect())
    }

    /// A text that these tokens may have come from; numbers that stand for no token are left out.
    pub fn unspell(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        self.tokenizer.decode(ids, skip_special).map_err(|error| self.failed(error))
    }
}
