//! What a launch becomes: steps that the queue hands to the driver one after the other, with nothing left to decide.
//!
//! Plans are made by [`plan`](super::plan) from a kernel and its operands, outside of all locks; they are plain
//! numbers and keys, so that they can be checked where there is no GPU.

use super::Key;
use smallvec::SmallVec;

/// One launch of the hal. A thread fills the same one again and again: steps are half a KiB each, and moving them about was
/// a quarter of the instructions of a small launch (callgrind, with a driver that does nothing).
#[derive(Debug, Default)]
pub struct Plan {
    /// Memory that the steps share among themselves; its address is filled in later.
    pub scratch_bytes: usize,
    /// In order.
    pub steps: Vec<Step>,
}

/// A place in memory that a step uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address of the device.
    At(u64),
    /// So many bytes from the start of the plan's scratch memory, aligned to 256.
    Scratch(usize),
}

/// One call of the driver.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would cost each launch an allocation")]
pub enum Step {
    /// A kernel of ours.
    Kernel(KernelStep),
    /// A matrix product through cuBLASLt.
    MatMul(MatMulStep),
    /// Bytes set to a value.
    Fill {
        /// Where the region begins.
        at: Place,
        /// The size of the region.
        size_bytes: usize,
        /// To what.
        value: u8,
    },
}

/// A kernel of ours, with its arguments.
#[derive(Debug)]
pub struct KernelStep {
    /// Which; its source is made only when it isn't loaded yet.
    pub key: Key,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// What the kernel is given.
    pub args: Args,
}

/// The bytes of a kernel's parameters, laid out as C does: each value at a multiple of its size.
#[derive(Clone, Debug, Default)]
pub struct Args {
    bytes: SmallVec<[u8; 256]>,
    scratch: SmallVec<[(u16, usize); 2]>,
    error: Option<u16>,
}

impl Args {
    /// Adds a number.
    #[inline]
    pub fn push<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Args {
        self.align(N);
        self.bytes.extend_from_slice(&bytes);
        self
    }
    /// Fills up to a multiple of `align`, which most often it is.
    #[inline]
    pub fn align(&mut self, align: usize) {
        let start = self.bytes.len().next_multiple_of(align);
        if start != self.bytes.len() {
            self.bytes.resize(start, 0);
        }
    }
    /// Takes everything out.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.scratch.clear();
        self.error = None;
    }
    /// Adds a pointer.
    #[inline]
    pub fn place(&mut self, place: Place) -> &mut Args {
        match place {
            Place::At(address) => self.push(address.to_ne_bytes()),
            Place::Scratch(offset) => {
                self.push([0; 8]);
                self.scratch.push(((self.bytes.len() - 8) as u16, offset));
                self
            }
        }
    }
    /// Adds a pointer to the launch's error record, three `long long`: whether there is an error (0 before the first
    /// step), the index, the position; the least position must win, in whatever order threads run.
    pub fn error_record(&mut self) -> &mut Args {
        self.push([0; 8]);
        self.error = Some((self.bytes.len() - 8) as u16);
        self
    }
    /// Do they point to the error record?
    pub fn has_error_record(&self) -> bool {
        self.error.is_some()
    }
    /// The bytes, once the two addresses are known.
    pub fn resolve(&mut self, scratch: u64, error: u64) -> &[u8] {
        for &(at, offset) in &self.scratch {
            self.bytes[at as usize..][..8].copy_from_slice(&(scratch + offset as u64).to_ne_bytes());
        }
        if let Some(at) = self.error {
            self.bytes[at as usize..][..8].copy_from_slice(&error.to_ne_bytes());
        }
        &self.bytes
    }
}

/// Where a bias may lie: at multiples of it. There is no preference that says how one is aligned: algorithms take several of its
/// elements at once, up to 16 bytes, whatever the address (in f16 "misaligned address" at an odd element, which ends the context).
pub const BIAS_ALIGNMENT_BYTES: usize = 16;

/// `d = act(alpha · a b + bias) + beta · c`, row-major, for each of `batch` matrices.
#[derive(Debug)]
pub struct MatMulStep {
    /// Of all matrices, but for `result`. 16-bit floats and `f32` are summed in `f32`.
    pub dtype: raddle_base::DType,
    /// Of `c` and `d`: as `dtype`, or `f32` where `dtype` is a 16-bit float and a program follows that rounds.
    pub result: raddle_base::DType,
    /// How many products.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
    /// [m, k]
    pub a: Matrix,
    /// [k, n]
    pub b: Matrix,
    /// [m, n], the addend; the same place as `d` when there is none (`beta` is 0 then).
    pub c: Matrix,
    /// [m, n], not transposed.
    pub d: Matrix,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the addend.
    pub beta: f64,
    /// `n` contiguous elements that are added to each row, at a multiple of `BIAS_ALIGNMENT_BYTES`; only with `beta` 0.
    pub bias: Option<Place>,
    /// `relu` after the bias; only with `beta` 0.
    pub relu: bool,
    /// Scratch memory that cuBLASLt may use.
    pub workspace: Place,
    /// How much of it.
    pub workspace_bytes: usize,
}

/// A matrix whose rows or, if `transposed`, whose columns are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Its first element.
    pub place: Place,
    /// Elements from one row (column) to the next.
    pub leading: usize,
    /// Elements from one matrix of the batch to the next; 0 if all are the same.
    pub batch_stride: usize,
    /// Are the columns contiguous?
    pub transposed: bool,
}
