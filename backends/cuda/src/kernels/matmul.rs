//! Matrix products, by cuBLASLt: descriptions of what it can read and write as it lies, copies of what it can't, and what
//! follows the product.
//!
//! A bias of one row and `relu` go along with the product, and so does an addend that nothing else stands before. All
//! else (the exact gelu, a bias by rows) is a program over the elements of the product.

use super::build::Builder;
use super::geometry::Array;
use super::pointwise;
use crate::plan::{MatMulStep, Matrix, Place, Step};
use raddle_base::{DType, Dims, Scalar};
use raddle_hal::{Kernel, Operand};
use raddle_op::{Activation, Expr, Program, ProgramRef};
use std::sync::OnceLock;

/// Memory for cuBLASLt: what NVIDIA recommends for Hopper, where the product is large enough to use it.
const WORKSPACE_BYTES: usize = 32 << 20;
/// For small products.
const SMALL_WORKSPACE_BYTES: usize = 4 << 20;
/// Multiplications below which a product is small (guess).
const SMALL_COUNT: usize = 1 << 24;

/// Plans `Kernel::MatMul`.
pub fn plan(builder: &mut Builder, kernel: &Kernel, operands: &[Operand]) {
    let &Kernel::MatMul { alpha, beta, bias, accumulate, activation } = kernel else {
        unreachable!("cuda: {} is no matrix product", kernel.name());
    };
    let array = |index: usize| Array::from(operands[index].view());
    let (out, a, b) = (array(0), array(1), array(2));
    if out.shape.contains(&0) {
        return;
    }
    let bias = bias.then(|| array(3));
    let addend = accumulate.then(|| array(operands.len() - 1));
    let row = bias.as_ref().and_then(row_of);
    let has_k = a.shape[2] > 0;
    // What the product itself can do.
    let along = bias.is_none() || row.is_some();
    let whole = match (&addend, activation) {
        (_, Activation::Gelu) => false,
        (None, _) => along,
        (Some(_), Activation::None) => bias.is_none(),
        (Some(_), Activation::Relu) => false,
    };
    if whole && has_k {
        let relu = activation == Activation::Relu;
        product(builder, &out, &a, &b, alpha, addend.as_ref().map(|addend| (beta, addend)), row, relu);
        return;
    }
    let sums = if !has_k {
        let zero = builder.scratch(16);
        builder.fill(zero, 16, 0);
        Array { place: zero, dtype: out.dtype, shape: out.shape, strides: Dims::filled(0, 3) }
    } else {
        // The addend may be the output's own view, which then has to stand until it is read.
        let direct = addend.is_none() && matrix(&out).is_some_and(|matrix| !matrix.transposed);
        let sums = if direct { out } else { builder.scratch_array(out.dtype, out.shape) };
        product(builder, &sums, &a, &b, 1.0, None, None, false);
        sums
    };
    let (program, [has_alpha, has_beta]) = follow_up(bias.is_some(), addend.is_some(), activation);
    let mut arrays = vec![out, sums];
    arrays.extend(bias);
    arrays.extend(addend);
    let mut params = Vec::new();
    params.extend(has_alpha.then_some(Scalar::Float(alpha)));
    params.extend(has_beta.then_some(Scalar::Float(beta)));
    pointwise::program(builder, &ProgramRef::Static(program), out.dtype.compute(), &params, &arrays);
}

/// `act(alpha · x + bias) + beta · c` for a sum `x`, and whether it takes alpha and beta.
fn follow_up(bias: bool, addend: bool, activation: Activation) -> (&'static Program, [bool; 2]) {
    static PROGRAMS: [OnceLock<Program>; 12] = [const { OnceLock::new() }; 12];
    fn act<'r>(x: Expr<'r>, activation: Activation) -> Expr<'r> {
        match activation {
            Activation::None => x,
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
        }
    }
    let index = activation as usize * 4 + usize::from(bias) * 2 + usize::from(addend);
    let program = PROGRAMS[index].get_or_init(|| match (bias, addend) {
        (false, false) => Program::record_many(|[x], [alpha]| [act(alpha * x, activation)]),
        (true, false) => Program::record_many(|[x, bias], [alpha]| [act(alpha * x + bias, activation)]),
        (false, true) => Program::record_many(|[x, c], [alpha, beta]| [act(alpha * x, activation) + beta * c]),
        (true, true) => {
            Program::record_many(|[x, bias, c], [alpha, beta]| [act(alpha * x + bias, activation) + beta * c])
        }
    });
    (program, [true, addend])
}

/// The one row that a bias consists of, if its elements are neighbours.
fn row_of(bias: &Array) -> Option<Place> {
    let still = |axis: usize| bias.shape[axis] == 1 || bias.strides[axis] == 0;
    let packed = bias.shape[2] == 1 || bias.strides[2] == 1;
    (still(0) && still(1) && packed).then_some(bias.place)
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
    let (a, b) = (input(builder, a), input(builder, b));
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
        dtype: out.dtype,
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

