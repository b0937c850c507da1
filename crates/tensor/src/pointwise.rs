//! Pointwise ops: one funnel for all rows of the op table, and the methods made from the rows.
//!
//! An op of tensors that have one shape and are contiguous costs no allocation here but the result's; everything else that
//! it needs lives on the stack. Inputs of other dtypes are converted when the kernel loads them, never in a temporary.

use crate::{
    Arg, Call, CallArg, DType, Device, Dims, Error, Layout, Overlap, Result, Tensor, can_cast,
    error::shape_error,
    number::{Side, fit, fit_bound, is_held},
    promote,
    record::{self, Mode, TensorRefs},
    tensor::check_has,
};
use raddle_base::{Kind, MAX_RANK, Scalar, ViewError};
use raddle_op::{
    Kernel, PARAM_COUNT_MAX, Pointwise, ProgramRef, for_each_pointwise,
    pointwise::{ResultType, Types},
};
use raddle_runtime::Operand;
use raddle_sync::fault;
use smallvec::SmallVec;

/// The most inputs of a row.
const INPUT_COUNT_MAX: usize = 3;

/// What the checks of a call have found out. Filled in place: it is too large to be moved about on the hot path.
struct Plan<'a> {
    inputs: TensorRefs<'a>,
    shape: Shape<'a>,
    /// Of the result.
    dtype: DType,
    compute: DType,
    /// Bit `i` is set if input `i` of the row is a number.
    scalars: usize,
    /// An input that has to be converted beforehand, and to what.
    unfit: Option<(usize, DType)>,
    params: [Scalar; PARAM_COUNT_MAX],
}

/// The shape of a result.
enum Shape<'a> {
    /// All inputs have it.
    Same(&'a Dims),
    /// They are broadcast to it.
    Broadcast(Dims),
}

impl std::ops::Deref for Shape<'_> {
    type Target = Dims;
    #[inline]
    fn deref(&self) -> &Dims {
        match self {
            Shape::Same(shape) => shape,
            Shape::Broadcast(shape) => shape,
        }
    }
}

/// Applies a row of the op table to tensors and numbers, of which at least one is a tensor. The methods of [`Tensor`] are
/// this with a fixed row.
pub fn pointwise(op: Pointwise, args: &[Arg<'_>], params: &[Scalar]) -> Result<Tensor> {
    let mut plan = Plan::new();
    let device = plan.make(op, args, params)?;
    if let Some(unfit) = plan.unfit {
        return with_converted(args, unfit, |args| pointwise(op, args, params));
    }
    let layout = match &plan.shape {
        Shape::Same(shape) => result_layout(shape, true, &plan.inputs),
        Shape::Broadcast(shape) => result_layout(shape, false, &plan.inputs),
    };
    let out = Tensor::allocate(op.name(), layout, plan.dtype, &device)?;
    record::fresh(&plan.inputs, &[&out], || call(op, args, params), || plan.launch(op, &device, &out))?;
    Ok(out)
}

/// [`pointwise`] into `out`, which has the shape of the result and any strides.
pub fn pointwise_out(op: Pointwise, args: &[Arg<'_>], params: &[Scalar], out: &Tensor) -> Result<()> {
    pointwise_into(op, args, params, out, Mode::Out)
}

/// [`pointwise`] in place: overwrites `target` with the result for `target` and `args`. Its shape and its dtype stay.
pub fn pointwise_in_place(op: Pointwise, target: &Tensor, args: &[Arg<'_>], params: &[Scalar]) -> Result<()> {
    let args: SmallVec<[Arg<'_>; INPUT_COUNT_MAX]> =
        [Arg::Tensor(target)].into_iter().chain(args.iter().copied()).collect();
    pointwise_into(op, &args, params, target, Mode::InPlace)
}

/// The same into an existing tensor. `Mode::InPlace`: `out` is one of the inputs.
pub(crate) fn pointwise_into(
    op: Pointwise,
    args: &[Arg<'_>],
    params: &[Scalar],
    out: &Tensor,
    mode: Mode,
) -> Result<()> {
    let mut plan = Plan::new();
    let device = plan.make(op, args, params)?;
    if let Some(unfit) = plan.unfit {
        return with_converted(args, unfit, |args| pointwise_into(op, args, params, out, mode));
    }
    // A copy converts whatever it is given, as PyTorch's does.
    if op != Pointwise::copy && !can_cast(plan.dtype, out.dtype()) {
        return Err(Error::Cast { op: op.name(), from: plan.dtype, to: out.dtype() });
    }
    check_out(op.name(), out, &plan.shape, &device)?;
    check_overlap(op.name(), out, &plan.inputs)?;
    let run = || plan.launch(op, &device, out);
    record::op(mode, &plan.inputs, &[out], || call(op, args, params), run)
}

/// Is a condition still true, or not, once it is converted to the dtype to compute in? One half isn't as an integer, nor 2^32
/// as an `i32`, nor 1e-50 as an `f32`.
fn keeps_truth(condition: &Arg<'_>, compute: DType) -> bool {
    let dtype = match condition {
        Arg::Tensor(tensor) => tensor.dtype(),
        Arg::Scalar(value) => return value.kind() == Kind::Bool,
    };
    match (dtype.kind(), compute.kind()) {
        (Kind::Bool, _) | (_, Kind::Bool) | (Kind::Int, Kind::Float) => true,
        (Kind::Float, Kind::Int) => false,
        _ => dtype.size_bytes() <= compute.size_bytes(),
    }
}

/// The input of a comparison with 16-bit floats that would be compared unrounded, though it has no say in the dtype: a tensor
/// without axes. As of a number, what was rounded from it is equal to it.
#[cold]
fn unrounded(args: &[Arg<'_>], operand: DType) -> Option<(usize, DType)> {
    let is_wider = |arg: &Arg<'_>| match arg {
        Arg::Tensor(tensor) => tensor.dtype().is_float() && tensor.dtype() != operand,
        Arg::Scalar(_) => false,
    };
    args.iter().position(is_wider).map(|position| (position, operand))
}

/// The call with the input at a position converted.
#[cold]
fn with_converted<R>(
    args: &[Arg<'_>],
    (position, dtype): (usize, DType),
    run: impl FnOnce(&[Arg<'_>]) -> Result<R>,
) -> Result<R> {
    let converted;
    let mut args: SmallVec<[Arg<'_>; INPUT_COUNT_MAX]> = args.into();
    args[position] = match args[position] {
        Arg::Tensor(input) => {
            converted = input.detach().to_dtype(dtype)?;
            Arg::Tensor(&converted)
        }
        Arg::Scalar(value) => Arg::Scalar(value.to_bool().into()),
    };
    run(&args)
}

impl<'a> Plan<'a> {
    #[inline]
    fn new() -> Plan<'a> {
        Plan {
            inputs: TensorRefs::new(),
            shape: Shape::Same(&Dims::EMPTY),
            dtype: DType::F32,
            compute: DType::F32,
            scalars: 0,
            unfit: None,
            params: [Scalar::Int(0); PARAM_COUNT_MAX],
        }
    }

    /// Checks the call and fills the plan; where the operands are. If an input is [`unfit`](Plan::unfit), that is to be mended
    /// first, and the plan isn't whole.
    #[inline]
    fn make(&mut self, op: Pointwise, args: &[Arg<'a>], row_params: &[Scalar]) -> Result<Device> {
        self.params[..row_params.len()].copy_from_slice(row_params);
        let mut param_count = row_params.len();
        let mut state = promote::State::default();
        let mut condition = None;
        for (position, arg) in args.iter().enumerate() {
            match op.is_condition(position) {
                true => condition = Some(position),
                false => state.add(arg),
            }
            match arg {
                Arg::Scalar(value) => {
                    self.scalars |= 1 << position;
                    self.params[param_count] = *value;
                    param_count += 1;
                }
                Arg::Tensor(tensor) => {
                    if self.inputs.is_empty() {
                        self.shape = Shape::Same(tensor.shape());
                    } else if *self.shape != *tensor.shape() {
                        let shape = Layout::broadcast_shapes(op.name(), &self.shape, tensor.shape())?;
                        self.shape = Shape::Broadcast(shape);
                    }
                    self.inputs.push(tensor);
                }
            }
        }
        let Some(first) = self.inputs.first() else {
            return Err(Error::TensorCount { op: op.name(), expected: "at least 1", found: 0 });
        };
        let device = check_device(op.name(), first, &self.inputs[1..])?;

        let promoted = state.finish();
        let (Some(operand), Some(dtype)) = (op.operand_dtype(promoted), op.result_dtype(promoted)) else {
            return Err(refused(op, promoted));
        };
        (self.dtype, self.compute) = (dtype, operand.compute());
        if let Some(position) = condition {
            // What it holds could lose its truth in the dtype to compute in.
            self.unfit = (!keeps_truth(&args[position], self.compute)).then_some((position, DType::Bool));
        } else if operand.compute() != operand && compares(op) {
            self.unfit = unrounded(args, operand);
        }
        check_has(op.name(), self.compute, &device)?;
        if self.unfit.is_some() {
            return Ok(device);
        }
        if param_count > 0 {
            fit_params(op, &mut self.params[..row_params.len()], operand)?;
            self.fit_numbers(op, row_params.len()..param_count, operand)?;
        }
        Ok(device)
    }

    /// Makes numbers that stand for inputs ones of the tensors' dtype, where that may hold others. Comparisons have an answer
    /// for every number, and what is compared with a 16-bit float is rounded as that was. A bound that all integers of the
    /// dtype keep is none.
    fn fit_numbers(&mut self, op: Pointwise, numbers: std::ops::Range<usize>, operand: DType) -> Result<()> {
        let positions = (0..INPUT_COUNT_MAX).filter(|position| self.scalars >> position & 1 == 1);
        for (position, number) in positions.zip(&mut self.params[numbers]) {
            match (bound(op, position), operand) {
                _ if compares(op) && operand.compute() != operand => *number = operand.round(*number),
                (Some(side), _) => *number = fit_bound(op.name(), *number, side, operand)?,
                // True and false of any number, as it is.
                _ if op.row().result == ResultType::Bool => {
                    if !is_held(*number, operand) {
                        self.compute = DType::I64;
                    }
                }
                _ => *number = fit(op.name(), "the number", *number, operand)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn launch(&self, op: Pointwise, device: &Device, out: &Tensor) -> Result<()> {
        if out.layout().is_empty() {
            return Ok(());
        }
        let kernel = Kernel::Pointwise {
            program: ProgramRef::Static(op.program_with(self.scalars)),
            compute: self.compute,
            params: self.params,
            groups: 1,
        };
        if let Shape::Broadcast(shape) = &self.shape {
            return self.launch_broadcast(op, device, &kernel, shape, out);
        }
        let mut operands = [out.write(out.layout()); INPUT_COUNT_MAX + 1];
        for (operand, input) in operands[1..].iter_mut().zip(&self.inputs) {
            *operand = input.read(input.layout());
        }
        Ok(device.submit_named(op.name(), &kernel, &operands[..=self.inputs.len()])?)
    }

    fn launch_broadcast(
        &self,
        op: Pointwise,
        device: &Device,
        kernel: &Kernel,
        shape: &Dims,
        out: &Tensor,
    ) -> Result<()> {
        let expand = |input: &&Tensor| input.layout().broadcast_to(op.name(), shape);
        let layouts: SmallVec<[Layout; INPUT_COUNT_MAX]> =
            self.inputs.iter().map(expand).collect::<Result<_, _>>()?;
        let mut operands: SmallVec<[Operand<'_>; INPUT_COUNT_MAX + 1]> = SmallVec::new();
        operands.push(out.write(out.layout()));
        operands.extend(self.inputs.iter().zip(&layouts).map(|(input, layout)| input.read(layout)));
        Ok(device.submit_named(op.name(), kernel, &operands)?)
    }
}

/// Parameters of the row are numbers of the tensors' kind, made numbers of their dtype.
fn fit_params(op: Pointwise, params: &mut [Scalar], operand: DType) -> Result<()> {
    if let Some(value) = params.iter().find(|value| operand != DType::Bool && value.kind() > operand.kind()) {
        let expected = "a number of the tensor's kind (bool < integer < float)";
        return Err(Error::Argument { op: op.name(), what: "a parameter", expected, found: *value });
    }
    params.iter_mut().try_for_each(|value| {
        *value = fit(op.name(), "the number", *value, operand)?;
        Ok(())
    })
}

fn compares(op: Pointwise) -> bool {
    use Pointwise::{eq, ge, gt, le, lt, ne};
    matches!(op, eq | ne | lt | le | gt | ge)
}

/// What an input bounds, if it does.
fn bound(op: Pointwise, input: usize) -> Option<Side> {
    match (op, input) {
        (Pointwise::clamp | Pointwise::clamp_min, 1) | (Pointwise::maximum, _) => Some(Side::Below),
        (Pointwise::clamp, 2) | (Pointwise::clamp_max, 1) | (Pointwise::minimum, _) => Some(Side::Above),
        _ => None,
    }
}

fn refused(op: Pointwise, found: DType) -> Error {
    let expected = match op.row().types {
        Types::Bits => "an integer or bool",
        Types::Int => "an integer",
        _ => "a number",
    };
    Error::DType { op: op.name(), what: "the promoted input", expected, found }
}

/// All tensors are where the first is.
pub(crate) fn check_device(op: &'static str, first: &Tensor, others: &[&Tensor]) -> Result<Device> {
    let device = first.device();
    match others.iter().find(|other| other.device() != device) {
        None => Ok(device),
        Some(other) => Err(Error::Device { op, expected: device.name(), found: other.device().name() }),
    }
}

/// A given output has the result's shape, lies on the device, in memory that may be written, and has no two elements in one place.
pub(crate) fn check_out(op: &'static str, out: &Tensor, shape: &Dims, device: &Device) -> Result<()> {
    if out.shape() != shape {
        return Err(shape_error(op, "the output", shape, out.shape()));
    }
    if out.device() != *device {
        return Err(Error::Device { op, expected: device.name(), found: out.device().name() });
    }
    if !out.is_contiguous() && out.layout().self_overlap() {
        return Err(Error::SelfOverlap { op, shape: out.shape().to_vec(), strides: out.strides().to_vec() });
    }
    out.buffer().check_writable(op)?;
    Ok(())
}

/// No input shares memory with the output, unless it is the very same view.
pub(crate) fn check_overlap(op: &'static str, out: &Tensor, inputs: &[&Tensor]) -> Result<()> {
    fault!(overlap_allowed => return Ok(()));
    let meets = |input: &&&Tensor| {
        !input.is(out)
            && input.buffer().is(out.buffer())
            && out.layout().overlap(input.layout()) == Overlap::Partial
    };
    match inputs.iter().find(meets) {
        Some(_) => Err(Error::Overlap { op, what: "an input" }),
        None => Ok(()),
    }
}

/// No input shares memory with the output at all: for ops that can't work in place.
pub(crate) fn check_disjoint(op: &'static str, out: &Tensor, inputs: &[&Tensor]) -> Result<()> {
    let meets = |input: &&&Tensor| {
        input.buffer().is(out.buffer()) && out.layout().overlap(input.layout()) != Overlap::None
    };
    match inputs.iter().find(meets) {
        Some(_) => Err(Error::Overlap { op, what: "an input" }),
        None => Ok(()),
    }
}

/// The layout of a fresh result, as PyTorch's TensorIterator: dense, with its axes in the order that the inputs have them
/// in memory; the first input that tells two axes apart decides.
pub(crate) fn result_layout(shape: &Dims, same_shape: bool, inputs: &[&Tensor]) -> Layout {
    if same_shape && inputs.iter().all(|input| input.is_contiguous()) {
        return Layout::contiguous(*shape);
    }
    let views: SmallVec<[Layout; INPUT_COUNT_MAX]> =
        inputs.iter().filter_map(|input| input.layout().broadcast_to("result", shape).ok()).collect();
    // Positive: `a` is the slower axis, so it has to stand behind `b` in a list that begins with the fastest.
    let compare = |a: usize, b: usize| -> i32 {
        for view in &views {
            let (stride_a, stride_b) = (view.strides()[a], view.strides()[b]);
            if stride_a == 0 || stride_b == 0 {
                continue;
            }
            if stride_a != stride_b {
                return if stride_a < stride_b { -1 } else { 1 };
            }
            if view.shape()[a] > view.shape()[b] {
                return 1;
            }
        }
        0
    };
    let mut order: Dims = (0..shape.len()).rev().collect();
    for start in 1..order.len() {
        let mut moved = start;
        for before in (0..start).rev() {
            match compare(order[before], order[moved]) {
                1 => {
                    order.swap(before, moved);
                    moved = before;
                }
                0 => {}
                _ => break,
            }
        }
    }
    let mut strides = *shape;
    let mut next = 1usize;
    for &axis in order.iter() {
        strides[axis] = next;
        next = next.saturating_mul(shape[axis].max(1));
    }
    Layout::new(*shape, strides, 0)
}

fn call(op: Pointwise, args: &[Arg<'_>], row_params: &[Scalar]) -> Call {
    let mut params = [Scalar::Int(0); PARAM_COUNT_MAX];
    params[..row_params.len()].copy_from_slice(row_params);
    let args = args.iter().map(|arg| match arg {
        Arg::Tensor(_) => CallArg::Tensor,
        Arg::Scalar(value) => CallArg::Scalar(*value),
    });
    Call::Pointwise { op, args: args.collect(), params }
}

/// The methods of the rows, apart from those whose `self` isn't their first input.
macro_rules! methods {
    ($($(#[doc = $doc:literal])* $name:ident($($input:ident),*; $($param:ident),*) { $($rest:tt)* })*) => {
        $(methods!(@row $name [$(#[doc = $doc])*] ($($input),*; $($param),*));)*
    };
    (@row copy $($rest:tt)*) => {};
    (@row where_ $($rest:tt)*) => {};
    (@row fill $($rest:tt)*) => {};
    (@row $name:ident [$($doc:tt)*] ($first:ident $(, $input:ident)*; $($param:ident),*)) => { pastey::paste! {
        #[allow(clippy::extra_unused_lifetimes, reason = "rows of one input don't use it")]
        impl Tensor {
            $($doc)*
            ///
            #[doc = concat!("`self` is `", stringify!($first), "`. Inputs are tensors, broadcast as needed, or numbers; ")]
            /// the result is a new tensor of the promoted dtype.
            pub fn $name<'a>(&self $(, $input: impl Into<Arg<'a>>)* $(, $param: impl Into<Scalar>)*) -> Result<Tensor> {
                pointwise(Pointwise::$name, &[Arg::Tensor(self) $(, $input.into())*], &[$($param.into()),*])
            }

            #[doc = concat!("[`", stringify!($name), "`](Tensor::", stringify!($name), ") in place. The shape and the dtype of `self` ")]
            /// stay; an error if the result doesn't fit.
            pub fn [<$name _>]<'a>(&self $(, $input: impl Into<Arg<'a>>)* $(, $param: impl Into<Scalar>)*) -> Result<&Tensor> {
                let args = [Arg::Tensor(self) $(, $input.into())*];
                pointwise_into(Pointwise::$name, &args, &[$($param.into()),*], self, Mode::InPlace)?;
                Ok(self)
            }

            #[doc = concat!("[`", stringify!($name), "`](Tensor::", stringify!($name), ") into `out`, which has the shape of the result ")]
            /// and any strides. Of 16-bit floats it isn't rounded to them on its way into a wider `out`.
            pub fn [<$name _out>]<'a>(&self $(, $input: impl Into<Arg<'a>>)* $(, $param: impl Into<Scalar>)*, out: &Tensor) -> Result<()> {
                let args = [Arg::Tensor(self) $(, $input.into())*];
                pointwise_into(Pointwise::$name, &args, &[$($param.into()),*], out, Mode::Out)
            }
        }
    } };
}
for_each_pointwise!(methods);

impl Tensor {
    /// `self ? x : y`, element by element; `self` counts as true where it isn't zero. `x` and `y` are tensors or numbers and
    /// decide the dtype.
    pub fn where_<'a>(&self, x: impl Into<Arg<'a>>, y: impl Into<Arg<'a>>) -> Result<Tensor> {
        pointwise(Pointwise::where_, &[Arg::Tensor(self), x.into(), y.into()], &[])
    }

    /// [`where_`](Tensor::where_) into `out`.
    pub fn where_out<'a>(&self, x: impl Into<Arg<'a>>, y: impl Into<Arg<'a>>, out: &Tensor) -> Result<()> {
        pointwise_into(Pointwise::where_, &[Arg::Tensor(self), x.into(), y.into()], &[], out, Mode::Out)
    }

    /// A new tensor with the same elements and, if this one is dense, the same strides (PyTorch's `clone`).
    pub fn copy(&self) -> Result<Tensor> {
        pointwise(Pointwise::copy, &[Arg::Tensor(self)], &[])
    }

    /// Overwrites this tensor with another one, broadcast and converted as needed; or with a number.
    pub fn copy_<'a>(&self, from: impl Into<Arg<'a>>) -> Result<&Tensor> {
        match from.into() {
            Arg::Scalar(value) => self.fill_with(value)?,
            Arg::Tensor(from) if from.device() != self.device() => {
                self.copy_(&from.to_device(&self.device())?)?;
            }
            Arg::Tensor(from) => {
                let out_shape = self.shape();
                if from.shape() != out_shape {
                    from.layout().broadcast_to("copy", out_shape)?;
                }
                let from = if from.shape() == out_shape { from.clone() } else { from.expand(out_shape)? };
                pointwise_into(Pointwise::copy, &[Arg::Tensor(&from)], &[], self, Mode::Out)?;
            }
        }
        Ok(self)
    }

    /// [`copy`](Tensor::copy) into `out`, which has this tensor's shape, any strides and any dtype: elements are converted.
    pub fn copy_out(&self, out: &Tensor) -> Result<()> {
        pointwise_into(Pointwise::copy, &[Arg::Tensor(self)], &[], out, Mode::Out)
    }

    /// A view of this tensor if it is row-major, else a row-major copy.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.row_major_copy() }
    }

    /// A copy in row-major order.
    pub(crate) fn row_major_copy(&self) -> Result<Tensor> {
        let layout = Layout::contiguous(*self.shape());
        let out = Tensor::allocate("copy", layout, self.dtype(), &self.device())?;
        self.copy_into_fresh(&out)?;
        Ok(out)
    }

    /// Copies into a tensor that was just made, of any dtype and layout, and tells recorders.
    pub(crate) fn copy_into_fresh(&self, out: &Tensor) -> Result<()> {
        let mut plan = Plan::new();
        let device = plan.make(Pointwise::copy, &[Arg::Tensor(self)], &[])?;
        record::fresh(
            &[self],
            &[out],
            || Call::op(crate::gradient::Moved),
            || plan.launch(Pointwise::copy, &device, out),
        )
    }
}

/// The operators on references: `&a + &b`, `&a + 1.0`, `1.0 - &a`, `-&a`. They return a `Result`, since shapes may differ.
macro_rules! operators {
    ($($trait:ident $method:ident $row:ident),*) => { $(
        impl<'a, R: Into<Arg<'a>>> std::ops::$trait<R> for &'a Tensor {
            type Output = Result<Tensor>;
            fn $method(self, other: R) -> Result<Tensor> {
                pointwise(Pointwise::$row, &[Arg::Tensor(self), other.into()], &[])
            }
        }
        operators!(@numbers $trait $method $row f64 i64);
    )* };
    (@numbers $trait:ident $method:ident $row:ident $($number:ty)*) => { $(
        impl std::ops::$trait<&Tensor> for $number {
            type Output = Result<Tensor>;
            fn $method(self, other: &Tensor) -> Result<Tensor> {
                pointwise(Pointwise::$row, &[Arg::Scalar(self.into()), Arg::Tensor(other)], &[])
            }
        }
    )* };
}
operators!(Add add add, Sub sub sub, Mul mul mul, Div div div);

impl std::ops::Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        pointwise(Pointwise::neg, &[Arg::Tensor(self)], &[])
    }
}

/// The axes of a result that has `extra` axes more than `tensor`, if there may be so many.
pub(crate) fn check_rank(op: &'static str, tensor: &Tensor, extra: usize) -> Result<()> {
    let rank = tensor.rank() + extra;
    if rank > MAX_RANK { Err(ViewError::Rank { op, rank }.into()) } else { Ok(()) }
}

/// Is it a number of a float tensor's kind? For ops without a rule for integers.
pub(crate) fn check_float(op: &'static str, what: &'static str, tensor: &Tensor) -> Result<()> {
    if tensor.dtype().kind() == Kind::Float {
        Ok(())
    } else {
        Err(Error::DType { op, what, expected: "a float", found: tensor.dtype() })
    }
}
