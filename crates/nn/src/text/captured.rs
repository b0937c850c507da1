//! Passes as graphs. Where a launch costs much, a pass of few tokens is bound by its hundred launches: so passes of one padded
//! length are captured, one graph for a length and a number of texts, and replayed as one op.
//!
//! - **Few graphs**: numbers of texts are rounded up to a power of two, and the texts that aren't there are one token each.
//!   Texts of unlike lengths, as a batcher's bucket has them, are padded to the longest if that adds little.
//! - **Bounded**: the least recently used graphs go when all that there are might take more than [`BYTES_MAX`] in replays.
//! - **Any thread**: a replay reads its tokens from an input of its own, which goes back when the replay is enqueued; whoever
//!   gets it next is ordered behind by its marks. A thread is given the one that it had before if it can be, as a graph replays
//!   fastest with operands that it knows.
//! - **No error of its own**: what can't be captured, for want of memory say, runs as it would without.

use super::{
    Tokens,
    batch::{Batch, Layout, Places, Shape},
};
use raddle_sync::{Cache, Mutex, Rank, thread};
use raddle_tensor::{DType, Device, Graph, Result, Tensor, capture};

/// Of all graphs (guess: a hundredth of a large GPU's memory).
pub const BYTES_MAX: usize = 1 << 30;
/// Of one graph at once: threads that ask for more line up on the device (guess).
pub const REPLAYS_MAX: usize = 8;
pub const GRAPHS_MAX: usize = 256;
/// Tokens that padding to the longest text may add, as a part of those that are there without (guess: what a launch costs
/// less is worth more).
const PADDING_PART: usize = 2;

/// An input, and the thread that used it last.
type Input = (thread::ThreadId, Tensor);

struct Pass {
    /// What was captured, from tokens to results.
    graph: Graph<Tensor>,
    /// The operand that stands for each replay's input.
    input: Tensor,
    /// Not in use.
    inputs: Mutex<Vec<Input>>,
}

/// What a pass makes of its texts: graphs of different ends are different graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Pooled,
    Vectors,
    Scores,
    Sparse,
}

/// The graphs of a model.
pub struct Captured {
    passes: Cache<(What, Layout), Pass>,
    tokens_max: usize,
}

impl Captured {
    /// For passes of at most so many tokens, with padding.
    pub fn new(tokens_max: usize) -> Captured {
        Captured { passes: Cache::new(GRAPHS_MAX, BYTES_MAX), tokens_max }
    }

    /// The results of a pass, one row for each text, if it is one to be captured. They lie in the graph's memory: whoever keeps
    /// them keeps that.
    pub fn run(
        &self,
        what: What,
        layout: &Layout,
        texts: &[&Tokens],
        table: Places,
        device: &Device,
        body: impl Fn(&Batch) -> Result<Tensor>,
    ) -> Option<Result<Tensor>> {
        let length = layout.groups.last()?.length;
        let group = Shape { texts: texts.len().next_power_of_two(), length };
        let rows = layout.rows();
        // Without masks nothing tells padding from tokens.
        let is_one = layout.groups.len() == 1
            || layout.has_masks && texts.len() * length <= rows + rows / PADDING_PART;
        if !is_one || group.rows() > self.tokens_max {
            return None;
        }
        let key = (what, Layout { groups: vec![group], ..*layout });
        let layout = &key.1;
        let (pass, _evicted) = self.passes.get(&key, || Pass::capture(layout, device, body)).ok()?;
        Some(pass.replay(&layout.numbers(texts, table), texts.len()))
    }
}

impl Pass {
    /// And the bytes that it may take.
    fn capture(
        layout: &Layout,
        device: &Device,
        body: impl Fn(&Batch) -> Result<Tensor>,
    ) -> Result<(Pass, usize)> {
        let input = Tensor::zeros([layout.number_count()], DType::I64, device)?;
        let graph = capture(device, || body(&Batch::new(layout, &input)?))?;
        graph.set_instance_count_max(REPLAYS_MAX);
        let stats = graph.stats();
        let bytes = (stats.arena_bytes + stats.output_bytes) * REPLAYS_MAX;
        Ok((Pass { graph, input, inputs: Mutex::new(Rank::Leaf, Vec::new()) }, bytes))
    }

    /// The first `count` rows.
    fn replay(&self, numbers: &[i64], count: usize) -> Result<Tensor> {
        let here = thread::current().id();
        let mut inputs = self.inputs.lock();
        let place = inputs.iter().rposition(|(thread, _)| *thread == here);
        let known = place.map(|place| inputs.swap_remove(place)).or_else(|| inputs.pop());
        drop(inputs);
        let input = match known {
            Some((_, input)) => input,
            None => self.input.empty_like()?,
        };
        input.copy_from_slice(numbers)?;
        let rows = self.graph.replay_with(&[(&self.input, &input)]);
        self.inputs.lock().push((here, input));
        rows?.narrow(0, 0, count)
    }
}
