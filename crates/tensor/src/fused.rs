//! Kernels from closures.

use crate::{
    Arg, Call, DType, Device, Dims, Error, Layout, Result, Tensor, can_cast,
    number::wide_for,
    pointwise::{check_device, check_out, check_overlap, result_layout},
    record::{self, Mode, TensorRefs},
    result_type,
};
use raddle_base::Scalar;
use raddle_op::{Binary, Expr, Inst, Kernel, PARAM_COUNT_MAX, Program, ProgramRef, Unary};
use raddle_runtime::Operand;
use smallvec::SmallVec;
use std::sync::Arc;

/// A kernel made from a closure by [`fused`]: one pass over its inputs, no temporaries. It has a gradient wherever what
/// the closure does has one. Make it once and keep it: each call is as cheap as that of a row of the op table.
#[derive(Clone, Debug)]
pub struct Fused {
    program: Arc<Program>,
    /// Integers are converted to `f32` first, since it uses what they don't have.
    needs_float: bool,
    /// The least and the largest of its literals; 0 if there is none.
    literals: [f64; 2],
}

/// Builds one kernel from a closure over expressions.
///
/// Inputs are broadcast together and promoted; the result has the promoted dtype. Integers and bools are converted to
/// `f32` if the closure divides, uses a function such as `exp`, or a literal with a fraction. A literal that integers of the
/// promoted dtype lack is computed with in `i64`, and the result wraps; one that `i64` lacks is an error of the call.
///
/// ```
/// let softsign = raddle_tensor::fused(|[x]| x / (1.0 + x.abs()));
/// # let _ = softsign;
/// ```
pub fn fused<const N: usize>(body: impl for<'r> Fn([Expr<'r>; N]) -> Expr<'r>) -> Fused {
    Fused::new(Program::record(body))
}

/// [`fused`] with several results, from one pass over the inputs.
pub fn fused_many<const N: usize, const M: usize>(
    body: impl for<'r> Fn([Expr<'r>; N]) -> [Expr<'r>; M],
) -> Fused {
    Fused::new(Program::record_many(|inputs: [_; N], _: [_; 0]| body(inputs)))
}

impl Fused {
    /// Of a recorded program without scalar parameters.
    pub fn new(program: Program) -> Fused {
        let needs_float = program.insts().iter().any(|inst| match *inst {
            Inst::Unary(op, _) => !matches!(op, Unary::Neg | Unary::Abs | Unary::BitNot),
            Inst::Binary(op, ..) => matches!(op, Binary::Div | Binary::Atan2),
            Inst::Literal(bits) => f64::from_bits(bits).fract() != 0.0,
            _ => false,
        });
        let literals = program.insts().iter().fold([0.0, 0.0f64], |[least, most], inst| match *inst {
            Inst::Literal(bits) => [f64::from_bits(bits).min(least), f64::from_bits(bits).max(most)],
            _ => [least, most],
        });
        Fused { program: Arc::new(program), needs_float, literals }
    }

    /// What it computes.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Applies it; it must have one result.
    pub fn call(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let mut results = self.call_many(inputs)?;
        match results.pop() {
            Some(result) if results.is_empty() => Ok(result),
            _ => Err(Error::TensorCount {
                op: "fused",
                expected: "a closure with one result",
                found: self.program.outputs().len(),
            }),
        }
    }

    /// Applies it; one tensor for each of its results.
    pub fn call_many(&self, inputs: &[&Tensor]) -> Result<SmallVec<[Tensor; 2]>> {
        let (shape, promoted, device) = self.plan(inputs)?;
        let same_shape = inputs.iter().all(|input| *input.shape() == shape);
        let layout = result_layout(&shape, same_shape, inputs);
        let allocate = |index| Tensor::allocate("fused", layout, self.output_dtype(index, promoted), &device);
        let outputs: SmallVec<[Tensor; 2]> =
            (0..self.program.outputs().len()).map(allocate).collect::<Result<_>>()?;
        let refs: TensorRefs<'_> = outputs.iter().collect();
        let compute = self.compute(promoted)?;
        record::fresh(inputs, &refs, || self.as_call(compute), || self.launch(compute, inputs, &refs))?;
        drop(refs);
        Ok(outputs)
    }

    /// Applies it into an existing tensor of any strides; it must have one result. The output may be the very same view
    /// as an input.
    pub fn call_out(&self, inputs: &[&Tensor], out: &Tensor) -> Result<()> {
        let op = "fused";
        let (shape, promoted, device) = self.plan(inputs)?;
        let found = self.program.outputs().len();
        if found != 1 {
            return Err(Error::TensorCount { op, expected: "a closure with one result", found });
        }
        let from = self.output_dtype(0, promoted);
        if !can_cast(from, out.dtype()) {
            return Err(Error::Cast { op, from, to: out.dtype() });
        }
        check_out(op, out, &shape, &device)?;
        check_overlap(op, out, inputs)?;
        let compute = self.compute(promoted)?;
        let mode = if inputs.iter().any(|input| input.is(out)) { Mode::InPlace } else { Mode::Out };
        record::op(mode, inputs, &[out], || self.as_call(compute), || self.launch(compute, inputs, &[out]))
    }

    fn plan(&self, inputs: &[&Tensor]) -> Result<(Dims, DType, Device)> {
        let op = "fused";
        let expected = self.program.input_count();
        let Some((first, rest)) = inputs.split_first().filter(|_| inputs.len() == expected) else {
            return Err(Error::Count { op, what: "inputs", expected, found: inputs.len() });
        };
        let device = check_device(op, first, rest)?;
        let mut shape = *first.shape();
        for input in rest {
            shape = Layout::broadcast_shapes(op, &shape, input.shape())?;
        }
        let args: SmallVec<[Arg<'_>; 8]> = inputs.iter().map(|input| Arg::Tensor(input)).collect();
        let promoted = result_type(&args);
        let promoted = if self.needs_float && !promoted.is_float() { DType::F32 } else { promoted };
        Ok((shape, promoted, device))
    }

    /// The dtype to compute in. All literals are numbers of it.
    fn compute(&self, promoted: DType) -> Result<DType> {
        wide_for("fused", "a literal", &self.literals, promoted)
    }

    fn output_dtype(&self, index: usize, promoted: DType) -> DType {
        if self.program.output_is_mask(index) { DType::Bool } else { promoted }
    }

    fn as_call(&self, compute: DType) -> Call {
        Call::Fused { program: self.program.clone(), compute }
    }

    fn launch(&self, compute: DType, inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<()> {
        let Some(out) = outputs.first().filter(|out| !out.layout().is_empty()) else { return Ok(()) };
        let layouts: SmallVec<[Layout; 4]> = inputs
            .iter()
            .map(|input| input.layout().broadcast_to("fused", out.shape()))
            .collect::<Result<_, _>>()?;
        let mut operands: SmallVec<[Operand<'_>; 6]> = SmallVec::new();
        operands.extend(outputs.iter().map(|output| output.write(output.layout())));
        operands.extend(inputs.iter().zip(&layouts).map(|(input, layout)| input.read(layout)));
        let program = ProgramRef::Shared(self.program.clone());
        let params = [Scalar::Int(0); PARAM_COUNT_MAX];
        let kernel = Kernel::Pointwise { program, compute, params, groups: 1 };
        Ok(out.device().submit_named("fused", &kernel, &operands)?)
    }
}

/// A closure that is recorded once in a process.
macro_rules! once {
    ($body:expr) => {{
        static FUSED: raddle_sync::RaceOnce<$crate::Fused> = raddle_sync::RaceOnce::new();
        FUSED.get_or_init(|| $crate::Fused::new($crate::Program::record($body)))
    }};
}
pub(crate) use once;
