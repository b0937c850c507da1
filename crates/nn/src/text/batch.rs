//! Which texts are computed together, and how: rows of tokens, one text after the other, texts of one padded length side by
//! side. Pure, but for the tensors made at the end.

use super::{BertConfig, Tokens};
use raddle_sync::fault;
use raddle_tensor::{Device, Result, Tensor};

/// Texts in the order in which they are computed: by padded length, then as they came.
pub struct Order {
    /// Indices into the caller's list.
    pub texts: Vec<usize>,
    /// How many of them each pass takes.
    pub passes: Vec<usize>,
}

/// Sorts texts of these (padded) lengths, and cuts them into passes of at most `tokens_max` tokens, or one text.
pub fn order(lengths: &[usize], tokens_max: usize) -> Order {
    let mut texts: Vec<usize> = (0..lengths.len()).collect();
    texts.sort_by_key(|&text| lengths[text]);
    let (mut passes, mut tokens) = (Vec::new(), 0);
    for &text in &texts {
        tokens += lengths[text];
        match passes.last_mut() {
            Some(count) if tokens <= tokens_max => *count += 1,
            _ => {
                passes.push(1);
                tokens = lengths[text];
            }
        }
    }
    Order { texts, passes }
}

impl Order {
    /// Where in [`texts`](Order::texts) each text of the caller's list stands; nothing if they are in order.
    pub fn places(&self) -> Option<Vec<i64>> {
        if self.texts.is_sorted() || fault!(rows_stay_sorted) {
            return None;
        }
        let mut places = vec![0; self.texts.len()];
        for (place, &text) in self.texts.iter().enumerate() {
            places[text] = place as i64;
        }
        Some(places)
    }
}

/// Texts of one padded length, side by side.
pub struct Group {
    /// The row of the first token of the first.
    pub first: usize,
    /// How many.
    pub texts: usize,
    /// Tokens of each, with padding.
    pub length: usize,
    /// If texts of this model are padded: [texts, length], true for tokens.
    pub mask: Option<Tensor>,
}

/// One pass through the model.
pub struct Batch {
    /// For each row the token.
    pub ids: Tensor,
    /// For each row its row in the table of positions and types.
    pub places: Tensor,
    /// All rows, group by group.
    pub groups: Vec<Group>,
}

impl Batch {
    /// Of texts sorted by padded length. Padding rows are token 0 at position 0; nothing looks at them.
    pub fn new(texts: &[&Tokens], pad_to: usize, config: &BertConfig, device: &Device) -> Result<Batch> {
        let (mut ids, mut places, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let padded = |text: &Tokens| text.ids.len().next_multiple_of(pad_to);
        for members in texts.chunk_by(|a, b| padded(a) == padded(b)) {
            let (first, length) = (ids.len(), padded(members[0]));
            let mut mask = Vec::new();
            for (index, text) in members.iter().enumerate() {
                ids.extend(text.ids.iter().map(|&id| i64::from(id)));
                let place = |(position, &kind): (usize, &u32)| {
                    kind as i64 * config.positions as i64 + position as i64
                };
                places.extend(text.types.iter().enumerate().map(place));
                mask.resize(index * length + text.ids.len(), true);
                mask.resize((index + 1) * length, false);
                ids.resize(first + mask.len(), 0);
                places.resize(first + mask.len(), 0);
            }
            let shape = [members.len(), length];
            let mask = (pad_to > 1).then(|| Tensor::from_slice(&mask, shape, device)).transpose()?;
            groups.push(Group { first, texts: members.len(), length, mask });
        }
        let rows = [ids.len()];
        Ok(Batch {
            ids: Tensor::from_vec(ids, rows, device)?,
            places: Tensor::from_vec(places, rows, device)?,
            groups,
        })
    }
}

impl Group {
    /// Which keys take part in attention's scores, [texts, 1, 1, length]: all but padding.
    pub fn scores_mask(&self) -> Result<Option<Tensor>> {
        let Some(mask) = &self.mask else { return Ok(None) };
        if fault!(unmasked_padding) {
            return Ok(None);
        }
        Ok(Some(mask.view([self.texts, 1, 1, self.length])?))
    }

    /// The rows of this group, [texts, length, width].
    pub fn rows(&self, all: &Tensor) -> Result<Tensor> {
        all.narrow(0, self.first, self.texts * self.length)?.view([self.texts, self.length, all.shape()[1]])
    }
}
