//! Pointwise ops: three methods a row of the op table (`f`, `f_`, `out=`), and Python's operators.
//!
//! Rows whose form in PyTorch has more to it than inputs (`alpha`, `rounding_mode`, defaults) stand below the table.

use crate::{
    arg::{Operand, expect_operand, operand, scalar},
    error::{Result, wrong_type, wrong_value},
    tensor::{PyTensor, fresh_or_out, run},
};
use pyo3::{basic::CompareOp, prelude::*, types::PyDict};
use raddle::{Arg, Pointwise, Scalar, Tensor, pointwise, pointwise_in_place, pointwise_out};

fn element_count(args: &[Arg<'_>]) -> usize {
    let count = |arg: &Arg<'_>| match arg {
        Arg::Tensor(tensor) => tensor.element_count(),
        Arg::Scalar(_) => 0,
    };
    args.iter().map(count).max().unwrap_or(0)
}

/// A row applied to operands; into `out` if there is one.
#[inline]
fn call<'py>(
    py: Python<'py>,
    op: Pointwise,
    args: &[Arg<'_>],
    params: &[Scalar],
    out: Option<&Bound<'py, PyTensor>>,
) -> Result<Bound<'py, PyTensor>> {
    let fresh = || pointwise(op, args, params);
    fresh_or_out(py, element_count(args), out, fresh, |out| pointwise_out(op, args, params, out))
}

/// A row in place.
#[inline]
fn call_in_place<'py>(
    target: &Bound<'py, PyTensor>,
    op: Pointwise,
    args: &[Arg<'_>],
    params: &[Scalar],
) -> Result<Bound<'py, PyTensor>> {
    let tensor = &target.get().0;
    run(target.py(), tensor.element_count(), || pointwise_in_place(op, tensor, args, params))?;
    Ok(target.clone())
}

#[inline]
fn binary<'py>(
    op: Pointwise,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyTensor>>,
) -> Result<Bound<'py, PyTensor>> {
    let other = expect_operand(op.name(), other)?;
    call(slf.py(), op, &[Arg::Tensor(&slf.get().0), other.arg()], &[], out)
}

#[inline]
fn binary_in_place<'py>(
    op: Pointwise,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyTensor>> {
    let other = expect_operand(op.name(), other)?;
    call_in_place(slf, op, &[other.arg()], &[])
}

macro_rules! methods {
    ($($(#[doc = $doc:literal])* $name:ident($($input:ident),*; $($param:ident),*) { $($rest:tt)* })*) => {
        $(methods!(@row $name [$(#[doc = $doc])*] ($($input),*; $($param),*));)*
    };
    // Below the table.
    (@row add $($rest:tt)*) => {};
    (@row sub $($rest:tt)*) => {};
    (@row div $($rest:tt)*) => {};
    (@row clamp $($rest:tt)*) => {};
    (@row round $($rest:tt)*) => {};
    (@row lerp $($rest:tt)*) => {};
    (@row addcmul $($rest:tt)*) => {};
    (@row addcdiv $($rest:tt)*) => {};
    (@row leaky_relu $($rest:tt)*) => {};
    (@row elu $($rest:tt)*) => {};
    (@row softplus $($rest:tt)*) => {};
    (@row hardtanh $($rest:tt)*) => {};
    (@row hardshrink $($rest:tt)*) => {};
    (@row softshrink $($rest:tt)*) => {};
    (@row threshold $($rest:tt)*) => {};
    (@row celu $($rest:tt)*) => {};
    (@row logit $($rest:tt)*) => {};
    (@row nan_to_num $($rest:tt)*) => {};
    (@row gelu $($rest:tt)*) => {};
    (@row gelu_tanh $($rest:tt)*) => {};
    (@row where_ $($rest:tt)*) => {};
    (@row masked_fill $($rest:tt)*) => {};
    (@row fill $($rest:tt)*) => {};
    (@row copy $($rest:tt)*) => {};
    // What PyTorch calls otherwise.
    (@row rem $doc:tt $($rest:tt)*) => { methods!(@binary rem remainder $doc other); };
    (@row pow $doc:tt $($rest:tt)*) => { methods!(@binary pow pow $doc exponent); };
    (@row clamp_min $doc:tt $($rest:tt)*) => { methods!(@binary clamp_min clamp_min $doc min); };
    (@row clamp_max $doc:tt $($rest:tt)*) => { methods!(@binary clamp_max clamp_max $doc max); };
    (@row $name:ident $doc:tt ($x:ident;)) => { methods!(@unary $name $doc); };
    (@row $name:ident $doc:tt ($x:ident, $y:ident;)) => { methods!(@binary $name $name $doc other); };
    (@unary $name:ident [$($doc:tt)*]) => { pastey::paste! {
        #[pymethods]
        impl PyTensor {
            $($doc)*
            #[pyo3(signature = (*, out=None))]
            fn $name<'py>(slf: &Bound<'py, PyTensor>, out: Option<&Bound<'py, PyTensor>>) -> Result<Bound<'py, PyTensor>> {
                call(slf.py(), Pointwise::$name, &[Arg::Tensor(&slf.get().0)], &[], out)
            }
            #[doc = concat!("`", stringify!($name), "` in place.")]
            fn [<$name _>]<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
                call_in_place(slf, Pointwise::$name, &[], &[])
            }
        }
    } };
    (@binary $op:ident $name:ident [$($doc:tt)*] $other:ident) => { pastey::paste! {
        #[pymethods]
        impl PyTensor {
            $($doc)*
            #[pyo3(signature = ($other, *, out=None))]
            fn $name<'py>(
                slf: &Bound<'py, PyTensor>,
                $other: &Bound<'py, PyAny>,
                out: Option<&Bound<'py, PyTensor>>,
            ) -> Result<Bound<'py, PyTensor>> {
                binary(Pointwise::$op, slf, $other, out)
            }
            #[doc = concat!("`", stringify!($name), "` in place.")]
            fn [<$name _>]<'py>(slf: &Bound<'py, PyTensor>, $other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyTensor>> {
                binary_in_place(Pointwise::$op, slf, $other)
            }
        }
    } };
}
raddle::for_each_pointwise!(methods);

/// The row of a quotient, and whether what comes after cuts it off: PyTorch's `rounding_mode`.
fn quotient(mode: Option<&str>) -> Result<Option<Pointwise>> {
    match mode {
        None => Ok(None),
        Some("floor") => Ok(Some(Pointwise::floor_divide)),
        Some("trunc") => Ok(Some(Pointwise::trunc_divide)),
        Some(other) => {
            wrong_value(format!("div: expected a rounding_mode of None, 'trunc' or 'floor', found '{other}'"))
        }
    }
}

/// `x + alpha · y` as the row that does it.
fn scaled<'a>(
    op: Pointwise,
    x: Arg<'a>,
    y: Arg<'a>,
    alpha: &Bound<'_, PyAny>,
) -> Result<(Pointwise, [Arg<'a>; 3], Scalar)> {
    if raddle::result_type(&[x, y]) == raddle::DType::Bool {
        return match scalar("alpha", alpha)? {
            Scalar::Float(_) => wrong_type("alpha: expected no float, as the tensors are bools"),
            value if value.to_bool() => Ok((op, [x, y, y], value)),
            value => Ok((op, [x, Arg::Scalar(Scalar::Bool(false)), y], value)),
        };
    }
    let alpha = match (scalar("alpha", alpha)?, op) {
        (value, Pointwise::add) => value,
        (Scalar::Float(value), _) => Scalar::Float(-value),
        (value, _) => Scalar::Int(value.to_i64().wrapping_neg()),
    };
    Ok((Pointwise::addcmul, [x, y, Arg::Scalar(Scalar::Int(1))], alpha))
}

macro_rules! sums {
    ($($name:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = (other, *, alpha=None, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            other: &Bound<'py, PyAny>,
            alpha: Option<&Bound<'py, PyAny>>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let Some(alpha) = alpha else { return binary(Pointwise::$name, slf, other, out) };
            let other = expect_operand(stringify!($name), other)?;
            let (op, args, alpha) = scaled(Pointwise::$name, Arg::Tensor(&slf.get().0), other.arg(), alpha)?;
            let count = op.row().inputs.len();
            call(slf.py(), op, &args[..count], &[alpha][..op.row().params.len()], out)
        }
        #[doc = concat!("`", stringify!($name), "` in place.")]
        #[pyo3(signature = (other, *, alpha=None))]
        fn [<$name _>]<'py>(
            slf: &Bound<'py, PyTensor>,
            other: &Bound<'py, PyAny>,
            alpha: Option<&Bound<'py, PyAny>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let Some(alpha) = alpha else { return binary_in_place(Pointwise::$name, slf, other) };
            let other = expect_operand(stringify!($name), other)?;
            let (op, args, alpha) = scaled(Pointwise::$name, Arg::Tensor(&slf.get().0), other.arg(), alpha)?;
            call_in_place(slf, op, &args[1..op.row().inputs.len()], &[alpha][..op.row().params.len()])
        }
    )* } } };
}
sums! {
    add "`x + alpha · other`. Of bools: or.";
    sub "`x - alpha · other`. A bool beside a number counts as 0 or 1.";
}

/// Rows with scalar parameters and their defaults.
macro_rules! parametrized {
    ($($name:ident ($($param:ident = $default:literal),*) $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = ($($param=None),*, *, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            $($param: Option<&Bound<'py, PyAny>>,)*
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let params = [$($param.map_or(Ok(Scalar::Float($default)), |value| scalar(stringify!($param), value))?),*];
            call(slf.py(), Pointwise::$name, &[Arg::Tensor(&slf.get().0)], &params, out)
        }
        #[doc = concat!("`", stringify!($name), "` in place.")]
        #[pyo3(signature = ($($param=None),*))]
        fn [<$name _>]<'py>(
            slf: &Bound<'py, PyTensor>,
            $($param: Option<&Bound<'py, PyAny>>,)*
        ) -> Result<Bound<'py, PyTensor>> {
            let params = [$($param.map_or(Ok(Scalar::Float($default)), |value| scalar(stringify!($param), value))?),*];
            call_in_place(slf, Pointwise::$name, &[], &params)
        }
    )* } } };
}
parametrized! {
    leaky_relu(negative_slope = 0.01) "`x > 0 ? x : negative_slope · x`. The derivative at 0 is the slope.";
    elu(alpha = 1.0) "`x > 0 ? x : alpha · (eˣ - 1)`. The derivative at 0 is `alpha`.";
    hardtanh(min_val = -1.0, max_val = 1.0) "`x` between `min_val` and `max_val`, else the nearer. The derivative at a bound is 0.";
    hardshrink(lambd = 0.5) "`x` beyond `lambd` and `-lambd`, else 0.";
    softshrink(lambd = 0.5) "`x` nearer to 0 by `lambd`, and 0 within.";
    threshold(threshold = 0.0, value = 0.0) "`x > threshold ? x : value`. The derivative at the threshold is 0.";
    celu(alpha = 1.0) "`x > 0 ? x : alpha · (e^(x / alpha) - 1)`.";
    logit(eps = -1.0) "`ln(z / (1 - z))`, `z` being `x` between `eps` and `1 - eps`; `x` itself if `eps` isn't given, or negative.";
    nan_to_num(nan = 0.0, posinf = 0.0, neginf = 0.0) "Numbers for NaN and the infinities.";
    softplus(beta = 1.0, threshold = 20.0) "`ln(1 + e^(beta · x)) / beta`; `x` itself where `beta · x > threshold`.";
}

/// Rows of three inputs and a factor.
macro_rules! products {
    ($($name:ident $doc:literal;)*) => { pastey::paste! { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = (tensor1, tensor2, *, value=None, out=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            tensor1: &Bound<'py, PyAny>,
            tensor2: &Bound<'py, PyAny>,
            value: Option<&Bound<'py, PyAny>>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let value = value.map_or(Ok(Scalar::Int(1)), |value| scalar("value", value))?;
            let (a, b) = (expect_operand("tensor1", tensor1)?, expect_operand("tensor2", tensor2)?);
            call(slf.py(), Pointwise::$name, &[Arg::Tensor(&slf.get().0), a.arg(), b.arg()], &[value], out)
        }
        #[doc = concat!("`", stringify!($name), "` in place.")]
        #[pyo3(signature = (tensor1, tensor2, *, value=None))]
        fn [<$name _>]<'py>(
            slf: &Bound<'py, PyTensor>,
            tensor1: &Bound<'py, PyAny>,
            tensor2: &Bound<'py, PyAny>,
            value: Option<&Bound<'py, PyAny>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let value = value.map_or(Ok(Scalar::Int(1)), |value| scalar("value", value))?;
            let (a, b) = (expect_operand("tensor1", tensor1)?, expect_operand("tensor2", tensor2)?);
            call_in_place(slf, Pointwise::$name, &[a.arg(), b.arg()], &[value])
        }
    )* } } };
}
products! {
    addcmul "`x + value · tensor1 · tensor2`.";
    addcdiv "`x + value · tensor1 / tensor2`.";
}

/// The bounds of `clamp`: the row, and its arguments behind the tensor.
fn bounds<'a, 'py>(
    min: Option<&'a Bound<'py, PyAny>>,
    max: Option<&'a Bound<'py, PyAny>>,
) -> Result<(Pointwise, Vec<Operand<'a, 'py>>)> {
    let operand = |value| expect_operand("clamp", value);
    Ok(match (min, max) {
        (Some(min), Some(max)) => (Pointwise::clamp, vec![operand(min)?, operand(max)?]),
        (Some(min), None) => (Pointwise::clamp_min, vec![operand(min)?]),
        (None, Some(max)) => (Pointwise::clamp_max, vec![operand(max)?]),
        (None, None) => return wrong_value("clamp: expected min, max or both, found neither"),
    })
}

#[pymethods]
impl PyTensor {
    /// `x / other`; integers are converted to float32 first. `rounding_mode`: `"floor"`, `"trunc"` or none.
    #[pyo3(signature = (other, *, rounding_mode=None, out=None))]
    fn div<'py>(
        slf: &Bound<'py, PyTensor>,
        other: &Bound<'py, PyAny>,
        rounding_mode: Option<&str>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        binary(quotient(rounding_mode)?.unwrap_or(Pointwise::div), slf, other, out)
    }

    /// `div` in place.
    #[pyo3(signature = (other, *, rounding_mode=None))]
    fn div_<'py>(
        slf: &Bound<'py, PyTensor>,
        other: &Bound<'py, PyAny>,
        rounding_mode: Option<&str>,
    ) -> Result<Bound<'py, PyTensor>> {
        binary_in_place(quotient(rounding_mode)?.unwrap_or(Pointwise::div), slf, other)
    }

    /// `minimum(maximum(x, min), max)`; one of the bounds may be left out.
    #[pyo3(signature = (min=None, max=None, *, out=None))]
    fn clamp<'py>(
        slf: &Bound<'py, PyTensor>,
        min: Option<&Bound<'py, PyAny>>,
        max: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (op, operands) = bounds(min, max)?;
        let mut args = vec![Arg::Tensor(&slf.get().0)];
        args.extend(operands.iter().map(Operand::arg));
        call(slf.py(), op, &args, &[], out)
    }

    /// `clamp` in place.
    #[pyo3(signature = (min=None, max=None))]
    fn clamp_<'py>(
        slf: &Bound<'py, PyTensor>,
        min: Option<&Bound<'py, PyAny>>,
        max: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (op, operands) = bounds(min, max)?;
        let args: Vec<Arg<'_>> = operands.iter().map(Operand::arg).collect();
        call_in_place(slf, op, &args, &[])
    }

    /// The nearest integer, halves to the even one; to so many decimals.
    #[pyo3(signature = (*, decimals=0, out=None))]
    fn round<'py>(
        slf: &Bound<'py, PyTensor>,
        decimals: i32,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let tensor = &slf.get().0;
        if decimals == 0 {
            return call(slf.py(), Pointwise::round, &[Arg::Tensor(tensor)], &[], out);
        }
        let fresh = || tensor.round_to(decimals);
        let into = |out: &Tensor| tensor.round_to_out(decimals, out);
        fresh_or_out(slf.py(), tensor.element_count(), out, fresh, into)
    }

    /// `round` in place.
    #[pyo3(signature = (*, decimals=0))]
    fn round_<'py>(slf: &Bound<'py, PyTensor>, decimals: i32) -> Result<Bound<'py, PyTensor>> {
        let tensor = &slf.get().0;
        if decimals == 0 {
            return call_in_place(slf, Pointwise::round, &[], &[]);
        }
        run(slf.py(), tensor.element_count(), || tensor.round_to_(decimals).map(drop))?;
        Ok(slf.clone())
    }

    /// `x + weight · (end - x)`.
    #[pyo3(signature = (end, weight, *, out=None))]
    fn lerp<'py>(
        slf: &Bound<'py, PyTensor>,
        end: &Bound<'py, PyAny>,
        weight: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (end, weight) = (expect_operand("lerp", end)?, expect_operand("lerp", weight)?);
        call(slf.py(), Pointwise::lerp, &[Arg::Tensor(&slf.get().0), end.arg(), weight.arg()], &[], out)
    }

    /// `lerp` in place.
    fn lerp_<'py>(
        slf: &Bound<'py, PyTensor>,
        end: &Bound<'py, PyAny>,
        weight: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (end, weight) = (expect_operand("lerp", end)?, expect_operand("lerp", weight)?);
        call_in_place(slf, Pointwise::lerp, &[end.arg(), weight.arg()], &[])
    }

    /// `x · Φ(x)`; `approximate="tanh"`: by the hyperbolic tangent.
    #[pyo3(signature = (*, approximate="none", out=None))]
    fn gelu<'py>(
        slf: &Bound<'py, PyTensor>,
        approximate: &str,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let op = match approximate {
            "none" => Pointwise::gelu,
            "tanh" => Pointwise::gelu_tanh,
            other => {
                return wrong_value(format!("gelu: expected approximate 'none' or 'tanh', found '{other}'"));
            }
        };
        call(slf.py(), op, &[Arg::Tensor(&slf.get().0)], &[], out)
    }

    /// `condition ? self : other`, as PyTorch's method has it.
    #[pyo3(name = "where", signature = (condition, other))]
    fn where_<'py>(
        slf: &Bound<'py, PyTensor>,
        condition: &Bound<'py, PyTensor>,
        other: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyTensor>> {
        choose(condition, slf.as_any(), other, None)
    }

    /// `mask ? value : x`; `value` is a number, or a tensor without axes.
    fn masked_fill<'py>(
        slf: &Bound<'py, PyTensor>,
        mask: &Bound<'py, PyTensor>,
        value: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, mask) = (&slf.get().0, &mask.get().0);
        let value = expect_operand("masked_fill", value)?;
        let value = value.arg();
        Ok(Bound::new(
            slf.py(),
            PyTensor(run(slf.py(), tensor.element_count(), || tensor.masked_fill_with(mask, value))?),
        )?)
    }

    /// `masked_fill` in place.
    fn masked_fill_<'py>(
        slf: &Bound<'py, PyTensor>,
        mask: &Bound<'py, PyTensor>,
        value: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, mask) = (&slf.get().0, &mask.get().0);
        let value = expect_operand("masked_fill_", value)?;
        let value = value.arg();
        run(slf.py(), tensor.element_count(), || tensor.masked_fill_with_(mask, value).map(drop))?;
        Ok(slf.clone())
    }

    /// Overwrites all elements with a number.
    fn fill_<'py>(slf: &Bound<'py, PyTensor>, value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyTensor>> {
        let (tensor, value) = (&slf.get().0, scalar("fill_", value)?);
        run(slf.py(), tensor.element_count(), || tensor.fill_(value).map(drop))?;
        Ok(slf.clone())
    }

    /// Zeros in place.
    fn zero_<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
        let tensor = &slf.get().0;
        run(slf.py(), tensor.element_count(), || tensor.zero_().map(drop))?;
        Ok(slf.clone())
    }

    /// Overwrites the elements with those of another tensor, broadcast and converted as needed.
    #[pyo3(signature = (src, non_blocking=false))]
    fn copy_<'py>(
        slf: &Bound<'py, PyTensor>,
        src: &Bound<'py, PyAny>,
        non_blocking: bool,
    ) -> Result<Bound<'py, PyTensor>> {
        let _ = non_blocking; // nothing but copies between devices waits
        let (tensor, src) = (&slf.get().0, expect_operand("copy_", src)?);
        let src = src.arg();
        run(slf.py(), tensor.element_count(), || tensor.copy_(src).map(drop))?;
        Ok(slf.clone())
    }

    /// A new tensor with the same elements and, if this one is dense, the same strides.
    fn clone(slf: &Bound<'_, PyTensor>) -> Result<PyTensor> {
        crate::tensor::unary(slf, Tensor::copy)
    }
}

/// `condition ? x : y`, by elements; `x` and `y` are tensors or numbers.
#[pyfunction]
#[pyo3(name = "where", signature = (condition, x, y, *, out=None))]
pub fn choose<'py>(
    condition: &Bound<'py, PyTensor>,
    x: &Bound<'py, PyAny>,
    y: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyTensor>>,
) -> Result<Bound<'py, PyTensor>> {
    let (x, y) = (expect_operand("where", x)?, expect_operand("where", y)?);
    call(condition.py(), Pointwise::where_, &[Arg::Tensor(&condition.get().0), x.arg(), y.arg()], &[], out)
}

/// The operand that a function's first argument is.
macro_rules! functions {
    ($($name:ident $op:ident $other:ident;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of two tensors, or of a tensor and a number at either side.")]
        #[pyfunction]
        #[pyo3(signature = (input, $other, *, out=None))]
        pub fn $name<'py>(
            py: Python<'py>,
            input: &Bound<'py, PyAny>,
            $other: &Bound<'py, PyAny>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let (x, y) = (expect_operand(stringify!($name), input)?, expect_operand(stringify!($name), $other)?);
            call(py, Pointwise::$op, &[x.arg(), y.arg()], &[], out)
        }
    )* };
}
functions! {
    mul mul other;
    floor_divide floor_divide other;
    remainder rem other;
    pow pow exponent;
    bitwise_and bitwise_and other;
    bitwise_or bitwise_or other;
    bitwise_xor bitwise_xor other;
    bitwise_left_shift bitwise_left_shift other;
    bitwise_right_shift bitwise_right_shift other;
}

macro_rules! scaled_functions {
    ($($name:ident $doc:literal;)*) => { $(
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (input, other, *, alpha=None, out=None))]
        pub fn $name<'py>(
            py: Python<'py>,
            input: &Bound<'py, PyAny>,
            other: &Bound<'py, PyAny>,
            alpha: Option<&Bound<'py, PyAny>>,
            out: Option<&Bound<'py, PyTensor>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let (x, y) = (expect_operand(stringify!($name), input)?, expect_operand(stringify!($name), other)?);
            let Some(alpha) = alpha else { return call(py, Pointwise::$name, &[x.arg(), y.arg()], &[], out) };
            let (op, args, alpha) = scaled(Pointwise::$name, x.arg(), y.arg(), alpha)?;
            call(py, op, &args[..op.row().inputs.len()], &[alpha][..op.row().params.len()], out)
        }
    )* };
}
scaled_functions! {
    add "`input + alpha · other`. Of bools: or.";
    sub "`input - alpha · other`.";
}

/// `input / other`; integers are converted to float32 first. `rounding_mode`: `"floor"`, `"trunc"` or none.
#[pyfunction]
#[pyo3(signature = (input, other, *, rounding_mode=None, out=None))]
pub fn div<'py>(
    py: Python<'py>,
    input: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    rounding_mode: Option<&str>,
    out: Option<&Bound<'py, PyTensor>>,
) -> Result<Bound<'py, PyTensor>> {
    let (x, y) = (expect_operand("div", input)?, expect_operand("div", other)?);
    call(py, quotient(rounding_mode)?.unwrap_or(Pointwise::div), &[x.arg(), y.arg()], &[], out)
}

/// A number in front of a tensor: `2 - x`. Rows take no number alone, but one beside a tensor at any place.
fn reflected<'py>(
    op: Pointwise,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let Some(other) = operand(other)? else { return Ok(slf.py().NotImplemented().into_bound(slf.py())) };
    Ok(call(slf.py(), op, &[other.arg(), Arg::Tensor(&slf.get().0)], &[], None)?.into_any())
}

fn forward<'py>(
    op: Pointwise,
    slf: &Bound<'py, PyTensor>,
    other: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let Some(other) = operand(other)? else { return Ok(slf.py().NotImplemented().into_bound(slf.py())) };
    Ok(call(slf.py(), op, &[Arg::Tensor(&slf.get().0), other.arg()], &[], None)?.into_any())
}

/// Python's operators: a row for each, its reflected and its in-place form.
macro_rules! operators {
    ($($op:ident $forward:ident $reflected:ident $in_place:ident;)*) => { pastey::paste! {
        #[pymethods]
        impl PyTensor { $(
            fn $forward<'py>(slf: &Bound<'py, PyTensor>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
                forward(Pointwise::$op, slf, other)
            }
            fn $reflected<'py>(slf: &Bound<'py, PyTensor>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
                reflected(Pointwise::$op, slf, other)
            }
            fn $in_place<'py>(slf: &Bound<'py, PyTensor>, other: &Bound<'py, PyAny>) -> Result<()> {
                binary_in_place(Pointwise::$op, slf, other).map(drop)
            }
        )* }
    } };
}
operators! {
    add __add__ __radd__ __iadd__;
    sub __sub__ __rsub__ __isub__;
    mul __mul__ __rmul__ __imul__;
    div __truediv__ __rtruediv__ __itruediv__;
    floor_divide __floordiv__ __rfloordiv__ __ifloordiv__;
    rem __mod__ __rmod__ __imod__;
    bitwise_and __and__ __rand__ __iand__;
    bitwise_or __or__ __ror__ __ior__;
    bitwise_xor __xor__ __rxor__ __ixor__;
    bitwise_left_shift __lshift__ __rlshift__ __ilshift__;
    bitwise_right_shift __rshift__ __rrshift__ __irshift__;
}

#[pymethods]
impl PyTensor {
    fn __pow__<'py>(
        slf: &Bound<'py, PyTensor>,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        match modulo {
            None => forward(Pointwise::pow, slf, other),
            Some(_) => wrong_type("pow: expected no modulus"),
        }
    }
    fn __rpow__<'py>(
        slf: &Bound<'py, PyTensor>,
        other: &Bound<'py, PyAny>,
        _modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        reflected(Pointwise::pow, slf, other)
    }
    fn __ipow__<'py>(
        slf: &Bound<'py, PyTensor>,
        other: &Bound<'py, PyAny>,
        _modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<()> {
        binary_in_place(Pointwise::pow, slf, other).map(drop)
    }
    fn __neg__<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
        call(slf.py(), Pointwise::neg, &[Arg::Tensor(&slf.get().0)], &[], None)
    }
    fn __pos__<'py>(slf: &Bound<'py, PyTensor>) -> Bound<'py, PyTensor> {
        slf.clone()
    }
    fn __abs__<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
        call(slf.py(), Pointwise::abs, &[Arg::Tensor(&slf.get().0)], &[], None)
    }
    fn __invert__<'py>(slf: &Bound<'py, PyTensor>) -> Result<Bound<'py, PyTensor>> {
        call(slf.py(), Pointwise::bitwise_not, &[Arg::Tensor(&slf.get().0)], &[], None)
    }
    fn __richcmp__<'py>(
        slf: &Bound<'py, PyTensor>,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> Result<Bound<'py, PyAny>> {
        let op = match op {
            CompareOp::Lt => Pointwise::lt,
            CompareOp::Le => Pointwise::le,
            CompareOp::Eq => Pointwise::eq,
            CompareOp::Ne => Pointwise::ne,
            CompareOp::Gt => Pointwise::gt,
            CompareOp::Ge => Pointwise::ge,
        };
        forward(op, slf, other)
    }
    /// By identity: two tensors with the same elements are two keys.
    fn __hash__(slf: &Bound<'_, PyTensor>) -> isize {
        slf.as_ptr() as isize
    }
}

/// Every op: name, forms, dtypes and whether it has a gradient, for tests and docs.
#[pyfunction]
pub fn catalogue<'py>(py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let entry = |op: raddle::catalogue::Entry| {
        let entry = PyDict::new(py);
        entry.set_item("name", op.name)?;
        entry.set_item("signature", op.signature)?;
        entry.set_item("dtypes", op.dtypes.into_iter().map(crate::dtype::name).collect::<Vec<_>>())?;
        entry.set_item("pointwise", Pointwise::from_name(op.name).is_some())?;
        entry.set_item("gradient", op.gradient)?;
        entry.set_item("in_place", op.in_place)?;
        entry.set_item("out", op.out)?;
        Ok(entry)
    };
    raddle::catalogue::catalogue().into_iter().map(entry).collect()
}
