//! What a backend is asked to launch. Coarse on purpose: a program over elements, or one of a few structured kernels.
//!
//! Each kernel says which operands it takes, outputs first, and what has been checked before it is launched: shapes agree
//! as stated, dtypes are as stated, outputs don't overlap themselves or any input but as stated. Strides are free
//! everywhere: a backend that needs packed operands stages them, and copies back what it staged for an output.

use crate::{Pointwise, Program};
use raddle_base::{DType, Scalar};
use std::sync::Arc;

/// A program of the op table (lives for ever) or one made at run time (shared).
#[derive(Clone, Debug)]
pub enum ProgramRef {
    /// Of a row of the table.
    Static(&'static Program),
    /// Of a fused closure.
    Shared(Arc<Program>),
}

impl std::ops::Deref for ProgramRef {
    type Target = Program;
    fn deref(&self) -> &Program {
        match self {
            ProgramRef::Static(program) => program,
            ProgramRef::Shared(program) => program,
        }
    }
}

impl From<Pointwise> for ProgramRef {
    fn from(op: Pointwise) -> ProgramRef {
        ProgramRef::Static(op.program())
    }
}

/// The most scalar parameters that a launch carries.
pub const PARAM_COUNT_MAX: usize = 8;

/// How a reduction combines elements. NaN wins in `Max` and `Min`; -0 is below 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the usual ones")]
pub enum ReduceOp {
    Sum,
    /// Σ x, the divisor being their number. Of `f64` corrected by the mean of the distances to it, if that is finite; of all others
    /// summed in `f64`. So that of equal elements is what they are, and only sums of `f64` overflow.
    Mean,
    Prod,
    Max,
    Min,
    /// Are all non-zero?
    All,
    /// Is one non-zero?
    Any,
    /// Σ (x − mean)², the [`Mean`](ReduceOp::Mean) of the same elements, never Σx² − (Σx)². Of equal elements 0.
    SquaredDeviations,
    /// √ Σ (x − mean)², as [`SquaredDeviations`](ReduceOp::SquaredDeviations).
    Deviation,
    /// √ Σ x², the squares in f64.
    Norm2,
}

/// What is done to the sums of a matrix product before they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the usual ones; gelu is the exact one")]
pub enum Activation {
    None,
    Relu,
    Gelu,
}

/// How a scan folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOp {
    /// `a + b`; integers wrap.
    Sum,
    /// `a · b`; integers wrap.
    Prod,
    /// The larger; NaN if one is.
    Max,
    /// The smaller; NaN if one is.
    Min,
    /// `ln(eᵃ + eᵇ)`, of floats.
    LogSumExp,
}

/// What a scatter does where an element is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterMode {
    /// The last one in index order stands.
    Overwrite,
    /// Added in index order; sums of 16-bit floats are rounded once.
    Add,
    /// Multiplied in index order; not of 16-bit floats. Integers wrap.
    Multiply,
    /// The larger stands; NaN if one is.
    Max,
    /// The smaller stands; NaN if one is.
    Min,
}

/// What numbers are drawn; see [`Kernel::Random`] for how.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the parameters are named in the formulas")]
pub enum Distribution {
    /// `low + (high − low) · u`, `u` in [0, 1); never `high`. The range may be wider than the largest number.
    Uniform { low: f64, high: f64 },
    /// Box–Muller.
    Normal { mean: f64, std: f64 },
    /// `−ln(1 − u) / rate`; of half a step of `u` where that is 0, and at least [`least_positive`].
    Exponential { rate: f64 },
    /// 1 with probability `p`, else 0.
    Bernoulli { p: f64 },
    /// Integers of [low, high), without bias that 2^64 draws could show: a 64-bit draw and a wide multiply or, where
    /// [`takes_more_bits`] says so, one of 128 bits.
    Integer { low: i64, high: i64 },
}

/// The largest number of a dtype below `high`, or `low` if that is less: what `Uniform` never exceeds, on any device.
pub fn last_below(low: f64, high: f64, dtype: DType) -> f64 {
    use half::{bf16, f16};
    macro_rules! last {
        ($t:ident, $to:expr, $from:expr) => {{
            let mut last: $t = $to;
            // A step down in value is one down in the bits of a positive number, one up in those of a negative.
            while $from(last) >= high {
                let bits = last.to_bits();
                last = if $from(last) > 0.0 {
                    $t::from_bits(bits - 1)
                } else if $from(last) == 0.0 {
                    -$t::from_bits(1)
                } else {
                    $t::from_bits(bits + 1)
                };
            }
            $from(last)
        }};
    }
    let last = match dtype {
        DType::F64 => last!(f64, high, |x: f64| x),
        DType::F16 => last!(f16, f16::from_f64(high), f16::to_f64),
        DType::BF16 => last!(bf16, bf16::from_f64(high), bf16::to_f64),
        _ => last!(f32, high as f32, f64::from),
    };
    last.max(low)
}

/// Is a range of integers so wide that 64 bits dealt to it would show that they don't go round? Of 3 · 2^62 integers every
/// third would be drawn twice as often as the others.
pub fn takes_more_bits(low: i64, high: i64) -> bool {
    high.wrapping_sub(low) as u64 > 1 << 32
}

/// The smallest positive number of a dtype: what `Exponential` is at least, on any device.
pub fn least_positive(dtype: DType) -> f64 {
    use half::{bf16, f16};
    match dtype {
        DType::F64 => f64::from_bits(1),
        DType::F16 => f16::MIN_POSITIVE_SUBNORMAL.to_f64(),
        DType::BF16 => bf16::MIN_POSITIVE_SUBNORMAL.to_f64(),
        _ => f64::from(f32::from_bits(1)),
    }
}

/// One launch, apart from its operands.
#[derive(Clone, Debug)]
pub enum Kernel {
    /// Outputs, then inputs, `groups` times over: a multi-tensor launch is one launch. In a group all operands have one
    /// shape (inputs expanded to it); an input may be exactly the same view as an output of its group.
    Pointwise {
        /// What to compute.
        program: ProgramRef,
        /// The dtype to compute in.
        compute: DType,
        /// The program's scalar parameters, the same for each group.
        params: [Scalar; PARAM_COUNT_MAX],
        /// How often the operands repeat.
        groups: usize,
    },
    /// `start + i · step` for the `i`-th element in row-major order, computed in `f64` (integers: in `i64`). Out: any.
    Iota {
        /// The first.
        start: Scalar,
        /// The difference.
        step: Scalar,
    },
    /// Out: any float (integers for `Integer`, anything for `Bernoulli`). With a probability operand (In, float, the
    /// output's shape) `Bernoulli` takes `p` from it.
    ///
    /// Element `i` (in row-major order of the output's shape) is made from Philox4x32-10:
    ///
    /// - Of `f64`, and for `Integer`, from two words: `w` = words `2(i % 2)` (low) and `2(i % 2) + 1` (high) of block
    ///   `counter + i / 2`. `u` = upper 53 bits of `w` / 2^53. Normal: `r = √(−2 ln(1 − u₁))`, `θ = 2π u₂`, value `r cos θ`,
    ///   with `u₁` = low word and `u₂` = high word / 2^32, half a step added.
    /// - Of all others from one: word `i % 4` of block `counter + i / 4`. `u` = its upper 24 bits / 2^24; for `Bernoulli` all
    ///   32 / 2^32, and where `p` lies within this step, the word that the block's second part has there decides. Normal: elements
    ///   `2j` and `2j + 1` share their words `a` and `b`: `r = ±√(−2 ln u)`, `u` = (upper 23 bits of `a` + ½) / 2^23, negative
    ///   if the uppermost bit of `b` is set; `θ = π (v − ½)`, `v` = the next 23 bits of `b` / 2^23; values `r cos θ` and
    ///   `r sin θ`.
    Random {
        /// The distribution.
        distribution: Distribution,
        /// Philox's key.
        key: u64,
        /// The first block.
        counter: u64,
    },
    /// Out like In [.., m, n]: copies where the index is inside the triangle, 0 elsewhere. Same view allowed.
    Triangle {
        /// Keep `j − i ≥ diagonal` (upper) or `j − i ≤ diagonal` (lower).
        upper: bool,
        /// Which diagonal.
        diagonal: i64,
    },
    /// Out of rank r with size 1 in each reduced axis; In. `axes` has bit `i` set for a reduced axis. Sums of f16, bf16
    /// and f32 are pairwise or in f32 with blocks, whatever the strides; splits depend on the shape only (T8). The
    /// result is divided by `divisor` (mean: n; 1 else). Out of `All`/`Any`: bool. Integers: sum and prod in i64.
    Reduce {
        /// How.
        op: ReduceOp,
        /// Which axes, as bits.
        axes: u8,
        /// What the result is divided by.
        divisor: f64,
    },
    /// Out values (dtype of In), Out indices (i64), both with size 1 at `axis`; In. The first of equal elements wins (-0
    /// and 0 are equal), the first NaN before all.
    ArgReduce {
        /// `Max` or `Min`.
        largest: bool,
        /// The axis, not empty.
        axis: usize,
    },
    /// What has been folded of an axis up to each element. Out, In; both i64 or both of one float, which is folded in f64.
    Scan {
        /// How.
        op: ScanOp,
        /// The axis.
        axis: usize,
    },
    /// Out [b, m, n], In [b, m, k], In [b, k, n], then, if `bias`, In expanded to [b, m, n]; then, if `accumulate`, In
    /// [b, m, n] (may be the output's own view), multiplied by `beta` and added. `out = act(alpha · a b + bias) + beta · c`.
    /// Floats of one dtype; 16-bit floats sum in f32. Neither `k` nor `alpha`, nor `beta` if `accumulate`, is 0, the factors as
    /// rounded to the compute dtype.
    MatMul {
        /// Factor of the product.
        alpha: f64,
        /// Factor of the addend.
        beta: f64,
        /// Is there a bias?
        bias: bool,
        /// Is there an addend?
        accumulate: bool,
        /// Applied last but for the addend.
        activation: Activation,
    },
    /// Out, In: `exp(x − max) / Σ` along the axis; or the logarithm of it.
    Softmax {
        /// The axis.
        axis: usize,
        /// The logarithm?
        log: bool,
    },
    /// Out dx, In y (softmax's result), In dy.
    SoftmaxBackward {
        /// The axis.
        axis: usize,
        /// Of the logarithm?
        log: bool,
    },
    /// Out [b, h, n, dv], In query [b, h, n, d], In key [b, h, m, d], In value [b, h, m, dv], then, if `mask`, In bool or
    /// float expanded to [b, h, n, m]. Floats of one dtype; of 16-bit floats scores, weights and sums are `f32`, and the
    /// result is rounded once. `n`, `m`, `dv` are not 0.
    ///
    /// A score is `scale · q·k`, plus the mask if that is a float; it is −∞ where a mask of bools is false, and with `causal`
    /// where the key's index is above the query's. A row of the result is the mean of the values with weights
    /// `exp(score − max)`; 0 if all scores are −∞. A value of weight 0 counts or not if it isn't finite. Nothing in a
    /// result depends on other batches or heads (T8).
    Attention {
        /// Factor of the products of query and key.
        scale: f64,
        /// Does a query see only keys up to its own index?
        causal: bool,
        /// Is there a mask?
        mask: bool,
    },
    /// Over the last `axes` axes: Out y, Out mean, Out rstd (compute dtype, with the normalized axes of size 1); In x,
    /// then weight and bias if there are any (shape of the normalized axes), then an addend, of x's shape, that is added to x
    /// first, in the compute dtype.
    LayerNorm {
        /// How many axes, from the last.
        axes: usize,
        /// Added to the variance.
        eps: f64,
        /// Is there a weight?
        weight: bool,
        /// Is there a bias?
        bias: bool,
        /// Is there an addend?
        addend: bool,
    },
    /// Out dx, then Out dweight and Out dbias if `weight` / `bias`; In dy, In x, In mean, In rstd, then In weight if
    /// `weight`.
    LayerNormBackward {
        /// How many axes, from the last.
        axes: usize,
        /// Is there a weight?
        weight: bool,
        /// Is there a bias?
        bias: bool,
    },
    /// Out values, Out indices (i64), In. Stable; NaN counts as the largest.
    Sort {
        /// The axis.
        axis: usize,
        /// Largest first?
        descending: bool,
    },
    /// Out values and Out indices with size `k` at the axis; In. In order (largest or smallest first); among equals the
    /// lower index wins; NaN counts as the largest.
    TopK {
        /// The axis.
        axis: usize,
        /// How many, at most the size of the axis.
        k: usize,
        /// The largest, or the smallest?
        largest: bool,
    },
    /// Out (shape of the index), In source, In index (i64 or i32): `out[.., i, ..] = source[.., index[.., i, ..], ..]`. The
    /// index is at most as large as the source in every other axis. Fallible: an index out of range is a [`KernelError`].
    Gather {
        /// The axis.
        axis: usize,
        /// How many neighbours in row-major order are one index of the user's, expanded. Errors count those.
        repeats: usize,
    },
    /// Out target (read and written), In index, In values (at least the index's shape):
    /// `target[.., index[.., i, ..], ..] = or += values[.., i, ..]`. All indices are checked before anything is written.
    Scatter {
        /// The axis.
        axis: usize,
        /// Overwrite or add.
        mode: ScatterMode,
        /// As of [`Kernel::Gather`].
        repeats: usize,
    },
    /// Out indices [count, rank] (i64), In. The caller has counted with `Reduce`.
    NonZero,
    /// Out [b, n]: `Σ_j values[b, j] · weight[:, index[b, j]]` + bias. In values [b, k], In index [b, k] (i64), In weight
    /// [n, h], then In bias expanded to [b, n] if `bias`: the product of a sparse row with few entries and a matrix.
    SparseMatMul {
        /// Is there a bias?
        bias: bool,
    },
    /// Of [`Kernel::SparseMatMul`] the gradient by the values. Out dvalues [b, k]; In dy [b, n], In index [b, k], In weight
    /// [n, h].
    SparseMatMulByValues,
    /// Of [`Kernel::SparseMatMul`] the gradient by the weight. Out dweight [n, h] (added to); In dy [b, n], In values [b, k],
    /// In index [b, k].
    SparseMatMulByWeight,
}

/// What can go wrong inside a kernel although its launch was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelError {
    /// An index is outside its axis; the first one in row-major order.
    IndexOutOfRange {
        /// The index found.
        index: i64,
        /// Which it is of the indices that the user gave, in row-major order.
        position: usize,
        /// The size of the axis that it points into.
        size: usize,
    },
}

impl std::fmt::Display for KernelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KernelError::IndexOutOfRange { index, position, size } => {
                write!(
                    f,
                    "index {index} (element {position} of the indices) is out of bounds, the axis has size {size}"
                )
            }
        }
    }
}

/// Along which axis a launch may be cut into several, of which each is the launch of a part, so that no bit changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Not at all.
    Whole,
    /// Any: each element is by itself.
    Anywhere,
    /// Any but this one, whose lines belong together. All operands have the axes of the first, but for scratch memory, which has
    /// one, and is for all parts.
    AcrossLines(usize),
    /// The first, which all operands have.
    Batch,
}

/// What is known of a kernel apart from what it computes.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    cut: Cut,
    reads_outputs: bool,
    is_fallible: bool,
}

impl Row {
    const fn new(name: &'static str, cut: Cut) -> Row {
        Row { name, cut, reads_outputs: false, is_fallible: false }
    }
    const fn reads_outputs(self) -> Row {
        Row { reads_outputs: true, ..self }
    }
    const fn fallible(self) -> Row {
        Row { is_fallible: true, ..self }
    }
}

impl Kernel {
    #[rustfmt::skip]
    #[inline]
    fn row(&self) -> Row {
        use Cut::*;
        match *self {
            Kernel::Pointwise { .. } => Row::new("pointwise", Anywhere),
            Kernel::Iota { .. } => Row::new("iota", Whole),
            Kernel::Random { .. } => Row::new("random", Whole),
            Kernel::Triangle { .. } => Row::new("triangle", Whole),
            Kernel::Reduce { .. } => Row::new("reduce", Whole),
            Kernel::ArgReduce { axis, .. } => Row::new("argreduce", AcrossLines(axis)),
            Kernel::Scan { axis, .. } => Row::new("scan", AcrossLines(axis)),
            Kernel::MatMul { .. } => Row::new("matmul", Batch),
            Kernel::Softmax { axis, .. } => Row::new("softmax", AcrossLines(axis)),
            Kernel::SoftmaxBackward { axis, .. } => Row::new("softmax_backward", AcrossLines(axis)),
            Kernel::Attention { .. } => Row::new("attention", Batch),
            Kernel::LayerNorm { .. } => Row::new("layer_norm", Whole),
            Kernel::LayerNormBackward { .. } => Row::new("layer_norm_backward", Whole),
            Kernel::Sort { axis, .. } => Row::new("sort", AcrossLines(axis)),
            Kernel::TopK { axis, .. } => Row::new("topk", AcrossLines(axis)),
            Kernel::Gather { .. } => Row::new("gather", Whole).fallible(),
            Kernel::Scatter { .. } => Row::new("scatter", Whole).fallible().reads_outputs(),
            Kernel::NonZero => Row::new("nonzero", Whole),
            Kernel::SparseMatMul { .. } => Row::new("sparse_matmul", Whole).fallible(),
            Kernel::SparseMatMulByValues => Row::new("sparse_matmul_by_values", Whole).fallible(),
            Kernel::SparseMatMulByWeight => Row::new("sparse_matmul_by_weight", Whole).fallible().reads_outputs(),
        }
    }

    /// The name under which it appears in errors and traces.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// How a launch of it may be cut.
    pub fn cut(&self) -> Cut {
        self.row().cut
    }

    /// Does it read what it writes, apart from inputs that are the same view?
    pub fn reads_outputs(&self) -> bool {
        self.row().reads_outputs
    }

    /// Can it fail on the device with a [`KernelError`]?
    pub fn is_fallible(&self) -> bool {
        self.row().is_fallible
    }
}
