//! Matrix products, by cuBLASLt: descriptions of what it can read and write as it lies, copies of what it can't, and what
//! follows the product.
//!
//! Products of a few rows have a kernel of our own, which takes everything that follows along: they are bound by reading
//! the right side. So have products of some rows of 16-bit floats: the library's kernels of such are as fast, but one block of
//! them fills a multiprocessor, so that streams wait for each other, and they know no exact gelu. Of all others, a bias of
//! one row and `relu` go along with the product, and so does an addend that nothing
//! else stands before. What is left (the exact gelu, a bias by rows) is a program over the elements of the product.

use super::build::Builder;
use super::geometry::{Array, is_aligned};
use super::pointwise;
use super::source::{Name, Text, Unit};
use super::steps::{Args, BIAS_ALIGNMENT_BYTES, MatMulStep, Matrix, Place, Step};
use raddle_base::{DType, Dims, Scalar};
use raddle_hal::Operand;
use raddle_op::{Activation, Expr, Program, ProgramRef};
use raddle_sync::{RaceOnce, fault};

/// Memory for cuBLASLt: what NVIDIA recommends for Hopper, where the product is large enough to use it.
const WORKSPACE_BYTES: usize = 32 << 20;
/// For small products.
const SMALL_WORKSPACE_BYTES: usize = 4 << 20;
/// Multiplications below which a product is small (guess).
const SMALL_COUNT: usize = 1 << 30;

/// The most rows that the kernel for few rows takes (guess: beyond, tensor cores win).
const FEW_ROWS_MAX: usize = 8;

/// The most rows that the kernel for some rows takes (guess: beyond, its blocks read the right side too often).
const SOME_ROWS_MAX: usize = 64;
/// The most factors of the right side that it takes (guess: what the second-level cache holds beside others).
const SOME_ROWS_FACTORS_MAX: usize = 4 << 20;
/// Rows of a block of it, and its warps.
const SOME_ROWS_SIDE: usize = 32;
const SOME_ROWS_WARPS: usize = 8;
/// The most columns of a right side whose blocks have 16 columns and look further ahead: so they are more. With 32, a left side
/// is read by half as many.
const NARROW_COLUMNS_MAX: usize = 512;

/// Plans `Kernel::MatMul`.
pub fn plan(
    builder: &mut Builder,
    [alpha, beta]: [f64; 2],
    bias: bool,
    accumulate: bool,
    activation: Activation,
    operands: &[Operand],
) {
    let array = |index: usize| Array::from(operands[index].view());
    let (out, a, b) = (array(0), array(1), array(2));
    if out.shape.contains(&0) {
        return;
    }
    let bias = bias.then(|| array(3));
    let addend = accumulate.then(|| array(3 + usize::from(bias.is_some())));
    debug_assert!(a.shape[2] > 0, "cuda: a product of nothing");
    let own =
        Own { sides: [&out, &a, &b], alpha, beta, activation, bias: bias.as_ref(), addend: addend.as_ref() };
    if own.few_rows(builder) || own.some_rows(builder) {
        return;
    }
    let alone = addend.is_none() && activation != Activation::Gelu;
    let row = bias.as_ref().filter(|_| alone).and_then(|bias| row_of(builder, bias));
    // What the product itself can do. A bias that isn't one row is an addend to it.
    let relu = activation == Activation::Relu;
    let whole = match (&bias, &addend, activation) {
        (_, _, Activation::Gelu) => None,
        (None, None, _) => Some((None, None)),
        (Some(_), None, _) if row.is_some() => Some((None, row)),
        (Some(bias), None, Activation::None) => Some((Some((1.0, bias)), None)),
        (None, Some(addend), Activation::None) => Some((Some((beta, addend)), None)),
        _ => None,
    };
    if let Some((addend, row)) = whole {
        return product(builder, &out, &a, &b, alpha, addend, row, relu);
    }
    // The addend may be the output's own view, which then has to stand until it is read.
    // What follows takes sums of 16-bit floats in `f32`, so that a result is rounded once.
    let wide = out.dtype.size_bytes() == 2;
    let direct = !wide && addend.is_none() && matrix(&out).is_some_and(|matrix| !matrix.transposed);
    let dtype = if wide { DType::F32 } else { out.dtype };
    let sums = if direct { out } else { builder.scratch_array(dtype, out.shape) };
    product(builder, &sums, &a, &b, 1.0, None, None, false);
    let program = follow_up(bias.is_some(), addend.is_some(), activation);
    let mut arrays = vec![out, sums];
    arrays.extend(bias);
    arrays.extend(addend);
    let params = [Scalar::Float(alpha), Scalar::Float(beta)];
    pointwise::program(builder, &ProgramRef::Static(program), out.dtype.compute(), &params, &arrays);
}

/// A product by a kernel of ours.
struct Own<'a> {
    /// The output, the left and the right side.
    sides: [&'a Array; 3],
    alpha: f64,
    beta: f64,
    activation: Activation,
    bias: Option<&'a Array>,
    addend: Option<&'a Array>,
}

/// How the lines of a right side lie.
struct Lines {
    /// Are columns contiguous? Otherwise rows are.
    turned: bool,
    /// From one to the next; 0 if there is one.
    step: usize,
}

impl Own<'_> {
    /// Rows, columns, and what is summed over, of one matrix.
    fn sizes(&self) -> Option<[usize; 3]> {
        let [out, a, _] = self.sides;
        (out.shape[0] == 1).then(|| [out.shape[1], out.shape[2], a.shape[2]])
    }

    /// None if neither rows nor columns are contiguous.
    fn lines(&self, n: usize, k: usize) -> Option<Lines> {
        let b = self.sides[2];
        let turned = b.strides[1] == 1 || k == 1;
        if !turned && b.strides[2] != 1 && n != 1 {
            return None;
        }
        let (step, count) = if turned { (b.strides[2], n) } else { (b.strides[1], k) };
        Some(Lines { turned, step: if count == 1 { 0 } else { step } })
    }

    /// The left side with contiguous rows, and from one to the next. A few rows are copied in no time.
    fn left(&self, builder: &mut Builder) -> (Array, usize) {
        let a = self.sides[1];
        let a = if a.strides[2] == 1 || a.shape[2] == 1 { *a } else { builder.packed(a) };
        (a, if a.shape[1] == 1 { 0 } else { a.strides[1] })
    }

    /// By the kernel for few rows; false if it isn't such a product, or its operands don't lie as the kernel takes them.
    fn few_rows(&self, builder: &mut Builder) -> bool {
        let Some([m, n, k]) = self.sizes().filter(|[m, ..]| *m <= FEW_ROWS_MAX) else { return false };
        let Some(lines) = self.lines(n, k) else { return false };
        let (a, a_row) = self.left(builder);
        let size_bytes = a.dtype.size_bytes();
        let (most, length) = if lines.turned { (16 / size_bytes, k) } else { ((4 / size_bytes).max(1), n) };
        let allows = |vector: usize| {
            length.is_multiple_of(vector)
                && lines.step.is_multiple_of(vector)
                && is_aligned(self.sides[2].place, vector * size_bytes)
                && (!lines.turned || a_row.is_multiple_of(vector) && is_aligned(a.place, vector * size_bytes))
        };
        let mut vector = most;
        while vector > 1 && !allows(vector) {
            vector /= 2;
        }
        let text = Text::new(Unit::FewRows, true).number(Name::M, m).number(Name::V, vector);
        let (blocks, threads) =
            if lines.turned { (n.div_ceil(4), 128) } else { (n.div_ceil(32 * vector), 512) };
        self.launch(builder, text, (blocks, threads), &a, a_row, &lines);
        true
    }

    /// By the kernel for some rows of 16-bit floats; false as above.
    fn some_rows(&self, builder: &mut Builder) -> bool {
        const VECTOR: usize = 8;
        let [_, a, b] = self.sides;
        let Some([m, n, k]) = self.sizes().filter(|[m, n, k]| {
            *m <= SOME_ROWS_MAX && n.saturating_mul(*k) <= SOME_ROWS_FACTORS_MAX && a.dtype.size_bytes() == 2
        }) else {
            return false;
        };
        let Some(lines) = self.lines(n, k) else { return false };
        let is_even = |length: usize| length.is_multiple_of(VECTOR);
        let along = if lines.turned { k } else { n };
        let aligned = |array: &Array| is_aligned(array.place, VECTOR * 2);
        if !is_even(k) || !is_even(along) || !is_even(lines.step) || !aligned(b) {
            return false;
        }
        let is_copied = a.strides[2] != 1; // and then it lies well
        if !is_copied && !(aligned(a) && (m == 1 || is_even(a.strides[1]))) {
            return false;
        }
        let (a, a_row) = self.left(builder);
        let (columns, ahead) = if n <= NARROW_COLUMNS_MAX { (16, 3) } else { (32, 1) };
        let text = Text::new(Unit::SomeRows, true)
            .number(Name::WARPS, SOME_ROWS_WARPS)
            .number(Name::COLUMNS, columns)
            .number(Name::AHEAD, ahead);
        let blocks = m.div_ceil(SOME_ROWS_SIDE) * n.div_ceil(columns);
        self.launch(builder, text, (blocks, 32 * SOME_ROWS_WARPS), &a, a_row, &lines);
        true
    }

    fn launch(
        &self,
        builder: &mut Builder,
        text: Text,
        (blocks, threads): (usize, usize),
        a: &Array,
        a_row: usize,
        lines: &Lines,
    ) {
        let &Own { sides: [out, _, b], bias, addend, .. } = self;
        let text = text
            .element(Name::ELEMENT, out.dtype)
            .element(Name::ACC, out.dtype.compute())
            .number(Name::ACT, self.activation as usize)
            .flag(Name::BIAS, bias.is_some())
            .flag(Name::ADDEND, addend.is_some())
            .flag(Name::TURNED, lines.turned);
        let mut args = Args::default();
        args.place(out.place).place(a.place).place(b.place);
        for operand in [bias, addend] {
            args.place(operand.map_or(Place::At(0), |array| array.place));
        }
        args.push(self.alpha.to_ne_bytes()).push(self.beta.to_ne_bytes());
        let mut push = |value: usize| _ = args.push((value as u64).to_ne_bytes());
        [out.shape[1], out.shape[2], a.shape[2], a_row, lines.step].into_iter().for_each(&mut push);
        for operand in [out, bias.unwrap_or(out), addend.unwrap_or(out)] {
            operand.strides[1..].iter().copied().for_each(&mut push);
        }
        builder.launch(text, blocks, threads as u32, args);
    }
}

/// `act(alpha · x + bias) + beta · c` for a sum `x`; takes beta if there is a `c`.
fn follow_up(bias: bool, addend: bool, activation: Activation) -> &'static Program {
    static PROGRAMS: [RaceOnce<Program>; 12] = [const { RaceOnce::new() }; 12];
    fn act<'r>(x: Expr<'r>, activation: Activation) -> Expr<'r> {
        match activation {
            Activation::None => x,
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
        }
    }
    let index = activation as usize * 4 + usize::from(bias) * 2 + usize::from(addend);
    PROGRAMS[index].get_or_init(|| match (bias, addend) {
        (false, false) => Program::record_many(|[x], [alpha]| [act(alpha * x, activation)]),
        (true, false) => Program::record_many(|[x, bias], [alpha]| [act(alpha * x + bias, activation)]),
        (false, true) => {
            Program::record_many(|[x, c], [alpha, beta]| [act(alpha * x, activation) + beta * c])
        }
        (true, true) => {
            Program::record_many(|[x, bias, c], [alpha, beta]| [act(alpha * x + bias, activation) + beta * c])
        }
    })
}

/// The one row that a bias consists of, where it lies or copied to where the library can read it; none if its rows differ.
fn row_of(builder: &mut Builder, bias: &Array) -> Option<Place> {
    let still = |axis: usize| bias.shape[axis] == 1 || bias.strides[axis] == 0;
    let row = Array {
        shape: Dims::new(&bias.shape[2..]).expect("one axis"),
        strides: Dims::new(&bias.strides[2..]).expect("one axis"),
        ..*bias
    };
    if !(still(0) && still(1)) {
        return None;
    }
    let packed = builder.packed(&row);
    let mut lies_well = is_aligned(packed.place, BIAS_ALIGNMENT_BYTES);
    fault!(bias_where_it_lies => lies_well = true);
    if lies_well {
        return Some(packed.place);
    }
    let copy = builder.scratch_array(row.dtype, row.shape);
    builder.copy(&copy, &packed);
    Some(copy.place)
}

/// A tensor [batch, rows, columns] as cuBLASLt takes it.
fn matrix(array: &Array) -> Option<Matrix> {
    let [batch, rows, columns] = [0, 1, 2].map(|axis| array.shape[axis]);
    let [batch_stride, row_stride, column_stride] = [0, 1, 2].map(|axis| array.strides[axis]);
    let batch_stride = if batch == 1 { 0 } else { batch_stride };
    let lies = |count: usize, step: usize, length: usize, along: usize| {
        // One line may lie anywhere; several may not overlap.
        let leading = if count == 1 { length } else { step };
        ((length == 1 || along == 1) && leading >= length).then_some(leading)
    };
    let matrix = |leading, transposed| Matrix { place: array.place, leading, batch_stride, transposed };
    lies(rows, row_stride, columns, column_stride)
        .map(|leading| matrix(leading, false))
        .or_else(|| lies(columns, column_stride, rows, row_stride).map(|leading| matrix(leading, true)))
}

/// A product as one step, with copies of what cuBLASLt can't take.
#[expect(clippy::too_many_arguments, reason = "what a product consists of")]
fn product(
    builder: &mut Builder,
    out: &Array,
    a: &Array,
    b: &Array,
    alpha: f64,
    addend: Option<(f64, &Array)>,
    bias: Option<Place>,
    relu: bool,
) {
    let [batch, m, n] = [0, 1, 2].map(|axis| out.shape[axis]);
    let k = a.shape[2];
    let input = |builder: &mut Builder, array: &Array| {
        matrix(array).unwrap_or_else(|| {
            let copy = builder.packed(array);
            matrix(&copy).expect("a row-major tensor is a matrix")
        })
    };
    let straight = |array: &Array| matrix(array).filter(|matrix| !matrix.transposed);
    let (dtype, a, b) = (a.dtype, input(builder, a), input(builder, b));
    let (target, d) = match straight(out) {
        Some(matrix) if batch == 1 || matrix.batch_stride != 0 => (*out, matrix),
        _ => {
            let target = builder.scratch_array(out.dtype, out.shape);
            (target, straight(&target).expect("a row-major tensor is a matrix"))
        }
    };
    let (beta, c) = match addend {
        None => (0.0, d),
        Some((beta, addend)) => match straight(addend) {
            Some(c) => (beta, c),
            None => {
                let copy = builder.packed(addend);
                (beta, straight(&copy).expect("a row-major tensor is a matrix"))
            }
        },
    };
    let workspace_bytes = match batch.saturating_mul(m).saturating_mul(n).saturating_mul(k) {
        count if count < SMALL_COUNT => SMALL_WORKSPACE_BYTES,
        _ => WORKSPACE_BYTES,
    };
    let workspace = builder.scratch(workspace_bytes);
    let mut step = MatMulStep {
        dtype,
        result: out.dtype,
        batch,
        m,
        n,
        k,
        a,
        b,
        c,
        d,
        alpha,
        beta,
        bias,
        relu,
        workspace,
        workspace_bytes,
    };
    merge_batch(&mut step);
    builder.step(Step::MatMul(step));
    builder.unpack(out, &target);
}

/// Products with one right side are one product with more rows, where the rows go on evenly.
fn merge_batch(step: &mut MatMulStep) {
    let goes_on = |matrix: &Matrix| {
        !matrix.transposed && matrix.batch_stride == step.m * matrix.leading
            // A single row may be as long as the next one is far away.
            || !matrix.transposed && step.m == 1 && matrix.batch_stride >= matrix.leading
    };
    if step.batch == 1 || step.b.batch_stride != 0 {
        return;
    }
    if [&step.a, &step.c, &step.d].into_iter().all(goes_on) {
        for matrix in [&mut step.a, &mut step.c, &mut step.d] {
            if step.m == 1 {
                matrix.leading = matrix.batch_stride;
            }
            matrix.batch_stride = 0;
        }
        step.m *= step.batch;
        step.batch = 1;
    }
}
