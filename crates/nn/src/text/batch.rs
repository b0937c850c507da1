//! Which texts are computed together, and how: rows of tokens, one text after the other, texts of one padded length side by
//! side. Pure, but for the tensors made at the end.

use super::Tokens;
use raddle_sync::fault;
use raddle_tensor::{Result, Tensor};

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
        let mut is_in_order = self.texts.is_sorted();
        fault!(rows_stay_sorted => is_in_order = true);
        if is_in_order {
            return None;
        }
        let mut places = vec![0; self.texts.len()];
        for (place, &text) in self.texts.iter().enumerate() {
            places[text] = place as i64;
        }
        Some(places)
    }
}

/// So many texts of one padded length, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub texts: usize,
    pub length: usize,
}

impl Shape {
    pub fn rows(self) -> usize {
        self.texts * self.length
    }
}

/// What a pass looks like before its texts are known: from it follows every launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The lengths grow.
    pub groups: Vec<Shape>,
    /// Is a text padded in this model, so that there are masks?
    pub has_masks: bool,
    /// Are prompts left out where tokens are pooled?
    pub has_prompts: bool,
}

impl Layout {
    /// Of texts sorted by padded length.
    pub fn new(texts: &[&Tokens], pad_to: usize, has_prompts: bool) -> Layout {
        let padded = |text: &Tokens| text.ids.len().next_multiple_of(pad_to);
        let groups = texts.chunk_by(|a, b| padded(a) == padded(b));
        let shape = |group: &[&Tokens]| Shape { texts: group.len(), length: padded(group[0]) };
        Layout { groups: groups.map(shape).collect(), has_masks: pad_to > 1, has_prompts }
    }

    /// Of tokens, with padding.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(|group| group.rows()).sum()
    }

    /// Lengths of texts, those of their prompts, and the steps 0, 1, 2, … of the longest text: what masks are made of.
    fn lengths_prompts_and_steps(&self) -> [usize; 3] {
        let texts = self.groups.iter().map(|group| group.texts).sum();
        let longest = self.groups.last().map_or(0, |group| group.length);
        let if_so = |has, count| if has { count } else { 0 };
        let has_steps = self.has_masks || self.has_prompts;
        [if_so(self.has_masks, texts), if_so(self.has_prompts, texts), if_so(has_steps, longest)]
    }

    /// How many [`numbers`](Layout::numbers) there are.
    pub fn number_count(&self) -> usize {
        2 * self.rows() + self.lengths_prompts_and_steps().iter().sum::<usize>()
    }

    /// All that the device has to be told of a pass, so that it is one copy: for each row its token, then for each row its row
    /// in the table of positions and types, then lengths, prompts and steps. Padding rows are token 0 at place 0; nothing looks at
    /// them. Texts that are fewer than the layout says count as one such token each.
    pub fn numbers(&self, texts: &[&Tokens], table: Places) -> Vec<i64> {
        let rows = self.rows();
        let [lengths, prompts, steps] = self.lengths_prompts_and_steps();
        let mut numbers = vec![0; 2 * rows];
        let (ids, places) = numbers.split_at_mut(rows);
        let spans = self.groups.iter().flat_map(|group| std::iter::repeat_n(group.length, group.texts));
        let mut row = 0;
        for (text, length) in texts.iter().zip(spans) {
            let count = text.ids.len();
            for (to, &id) in ids[row..][..count].iter_mut().zip(&text.ids) {
                *to = i64::from(id);
            }
            let mut next = table.first();
            let tokens = text.ids.iter().zip(&text.types);
            for (to, (&id, &kind)) in places[row..][..count].iter_mut().zip(tokens) {
                let is_padding = table.padding == Some(id);
                *to = i64::from(kind) * table.rows as i64 + if is_padding { 0 } else { next };
                next += i64::from(!is_padding);
            }
            row += length;
        }
        let length = |text| texts.get(text).map_or(1, |text: &&Tokens| text.ids.len() as i64);
        // A token is left, as the special one at the end is, whatever is said.
        let prompt =
            |text| texts.get(text).map_or(0, |text: &&Tokens| text.prompt.min(text.ids.len() - 1) as i64);
        numbers.extend((0..lengths).map(length));
        numbers.extend((0..prompts).map(prompt));
        numbers.extend((0..steps).map(|step| step as i64));
        numbers
    }
}

/// The table of positions, which there is once for each type of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Of one type.
    pub rows: usize,
    /// The token that has the first row wherever it stands, and isn't counted, if there is one.
    pub padding: Option<u32>,
}

impl Places {
    /// The row of a text's first token.
    fn first(self) -> i64 {
        i64::from(self.padding.is_some())
    }
}

/// Texts of one padded length, side by side.
pub struct Group {
    /// The row of the first token of the first.
    pub first: usize,
    /// The number of texts.
    pub texts: usize,
    /// Tokens of each, with padding.
    pub length: usize,
    /// If texts of this model are padded.
    pub padding: Option<Padding>,
    /// Those that are pooled, if not all rows are.
    pub pooled: Option<Padding>,
    /// Is the first token of each text one of those?
    pub begins_pooled: bool,
}

/// Which rows of a group are tokens.
#[derive(Clone)]
pub struct Padding {
    /// True for tokens, [texts, length].
    pub mask: Tensor,
    /// How many tokens each text has, [texts, 1].
    pub counts: Tensor,
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
    /// Of a layout, and its numbers on the device.
    pub fn new(layout: &Layout, numbers: &Tensor) -> Result<Batch> {
        let rows = layout.rows();
        let [lengths, prompts, _] = layout.lengths_prompts_and_steps();
        let (mut groups, mut first, mut text) = (Vec::with_capacity(layout.groups.len()), 0, 0);
        for &Shape { texts, length } in &layout.groups {
            let steps = || numbers.narrow(0, 2 * rows + lengths + prompts, length);
            let column = |start: usize| numbers.narrow(0, 2 * rows + start + text, texts)?.unsqueeze(1);
            let padding = || -> Result<Padding> {
                let counts = column(0)?;
                Ok(Padding { mask: counts.gt(&steps()?)?, counts })
            };
            let padding = layout.has_masks.then(padding).transpose()?;
            // Of all rows that are tokens, those behind the prompt.
            let behind = || -> Result<Padding> {
                let prompts = column(lengths)?;
                let behind = prompts.le(&steps()?)?;
                Ok(match &padding {
                    Some(Padding { mask, counts }) => {
                        Padding { mask: mask.logical_and(&behind)?, counts: counts.sub(&prompts)? }
                    }
                    None => Padding { mask: behind, counts: prompts.neg()?.add(length as i64)? },
                })
            };
            let pooled = if layout.has_prompts { Some(behind()?) } else { padding.clone() };
            let begins_pooled = !layout.has_prompts;
            groups.push(Group { first, texts, length, padding, pooled, begins_pooled });
            first += texts * length;
            text += texts;
        }
        Ok(Batch { ids: numbers.narrow(0, 0, rows)?, places: numbers.narrow(0, rows, rows)?, groups })
    }
}

impl Group {
    /// Which keys take part in attention's scores, [texts, 1, 1, length]: all but padding.
    pub fn scores_mask(&self) -> Result<Option<Tensor>> {
        let Some(Padding { mask, .. }) = &self.padding else { return Ok(None) };
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
