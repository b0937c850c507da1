//! Collects the steps of a plan and its scratch memory.

use super::geometry::Array;
use super::key::{Key, Source};
use super::source::Text;
use super::steps::{Args, KernelStep, Place, Plan, Step};
use raddle_base::{DType, Dims};

/// Scratch pieces start at multiples of it.
const SCRATCH_ALIGN: usize = 256;
/// Blocks in x; what is more goes to y.
const GRID_X_MAX: usize = 1 << 30;
/// Every kernel takes one struct with pointers in it: its size is a multiple of theirs.
const ARGS_ALIGN: usize = 8;

fn grid_of(blocks: usize) -> [u32; 3] {
    let x = blocks.min(GRID_X_MAX);
    [x as u32, blocks.div_ceil(x) as u32, 1]
}

/// A plan in the making.
pub struct Builder {
    plan: Plan,
    /// Steps that have been made; behind them are those of the plan before, to be overwritten in place.
    made: usize,
}

impl Builder {
    /// In the memory of a plan that isn't needed any more.
    pub fn over(mut plan: Plan) -> Builder {
        plan.scratch_bytes = 0;
        Builder { plan, made: 0 }
    }

    /// The plan.
    pub fn finish(mut self) -> Plan {
        self.plan.steps.truncate(self.made);
        self.plan
    }

    /// So many bytes of scratch memory, never given out again in this plan.
    pub fn scratch(&mut self, size_bytes: usize) -> Place {
        let start = self.plan.scratch_bytes.next_multiple_of(SCRATCH_ALIGN);
        self.plan.scratch_bytes = start + size_bytes.max(1);
        Place::Scratch(start)
    }

    /// A row-major tensor in scratch memory.
    pub fn scratch_array(&mut self, dtype: DType, shape: Dims) -> Array {
        let place = self.scratch(shape.product() * dtype.size_bytes());
        Array::contiguous(place, dtype, shape)
    }

    /// A step.
    pub fn step(&mut self, step: Step) {
        match self.plan.steps.get_mut(self.made) {
            Some(old) => *old = step,
            None => self.plan.steps.push(step),
        }
        self.made += 1;
    }

    /// One of the texts.
    pub fn launch(&mut self, text: Text, blocks: usize, threads: u32, args: Args) {
        self.launch_key(Key(Source::Text(text)), blocks, threads, args);
    }

    /// A kernel over so many blocks; more than x takes go to y, so the kernel checks the number of its block.
    pub fn launch_key(&mut self, key: Key, blocks: usize, threads: u32, mut args: Args) {
        args.align(ARGS_ALIGN);
        if blocks == 0 {
            return;
        }
        let (grid, block) = (grid_of(blocks), [threads, 1, 1]);
        self.step(Step::Kernel(KernelStep { key, grid, block, shared_bytes: 0, args }));
    }

    /// The same for at least one block, with arguments that are written where they stay.
    #[inline]
    pub fn launch_with(&mut self, key: Key, blocks: usize, threads: u32, write: impl FnOnce(&mut Args)) {
        let Some(Step::Kernel(step)) = self.plan.steps.get_mut(self.made) else {
            let mut args = Args::default();
            write(&mut args);
            return self.launch_key(key, blocks, threads, args);
        };
        step.key = key;
        (step.grid, step.block, step.shared_bytes) = (grid_of(blocks), [threads, 1, 1], 0);
        step.args.clear();
        write(&mut step.args);
        step.args.align(ARGS_ALIGN);
        self.made += 1;
    }

    /// Bytes set to a value.
    pub fn fill(&mut self, at: Place, size_bytes: usize, value: u8) {
        if size_bytes > 0 {
            self.step(Step::Fill { at, size_bytes, value });
        }
    }

    /// Where an output can be made row-major: in its place, or in scratch memory. [`Builder::unpack`] brings it home.
    pub fn target(&mut self, out: &Array) -> Array {
        if out.layout().is_contiguous() {
            return Array::contiguous(out.place, out.dtype, out.shape);
        }
        self.scratch_array(out.dtype, out.shape)
    }
}
