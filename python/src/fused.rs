//! Functions as one kernel: `raddle.fused` traces them in Python, and here what was traced becomes a program.
//!
//! A trace is a list of steps, each of earlier ones: an input, a literal, or a row of the op table.

use crate::{
    error::{Result, wrong_type, wrong_value},
    tensor::{PyTensor, run},
};
use pyo3::{prelude::*, types::PyTuple};
use raddle::{Arg, DType, Expr, Fused, Mask, Pointwise, Tensor};
use raddle_op::expr::{Recorded, Recorder};

/// A step: what it is, the steps that it takes, and its number if it is a literal.
type Step = (String, Vec<usize>, f64);

/// The most inputs, steps and outputs; past a few dozens the compiler of the device has the word.
const INPUT_COUNT_MAX: usize = 16;
const STEP_COUNT_MAX: usize = 4096;

/// The value of a step.
#[derive(Clone, Copy)]
enum Value<'r> {
    Number(Expr<'r>),
    Truth(Mask<'r>),
}

impl<'r> From<Expr<'r>> for Value<'r> {
    fn from(number: Expr<'r>) -> Value<'r> {
        Value::Number(number)
    }
}
impl<'r> From<Mask<'r>> for Value<'r> {
    fn from(truth: Mask<'r>) -> Value<'r> {
        Value::Truth(truth)
    }
}

impl<'r> Value<'r> {
    fn number(self) -> Expr<'r> {
        match self {
            Value::Number(number) => number,
            Value::Truth(truth) => truth.number(),
        }
    }

    fn truth(self) -> Mask<'r> {
        match self {
            Value::Number(number) => number.truth(),
            Value::Truth(truth) => truth,
        }
    }
}

macro_rules! rows {
    ($($(#[doc = $doc:literal])* $name:ident($($input:ident),*; $($param:ident),*) { $($rest:tt)* })*) => {
        /// Applies a row to numbers: its inputs, then its parameters.
        fn row<'r>(op: Pointwise, operands: &[Expr<'r>]) -> Result<Value<'r>> {
            match op { $(Pointwise::$name => {
                let &[$($input,)* $($param),*] = operands else {
                    let expected = [$(stringify!($input),)* $(stringify!($param)),*].join(", ");
                    let found = operands.len();
                    return wrong_value(format!("fused: {} takes {expected}, found {found} operands", op.name()));
                };
                Ok(raddle_op::pointwise::rows::$name($($input,)* $($param),*).into())
            })* }
        }
    };
}
raddle::for_each_pointwise!(rows);

fn step<'r>(
    recorder: &'r Recorder,
    input: &mut usize,
    step: &Step,
    values: &[Value<'r>],
) -> Result<Value<'r>> {
    let (name, from, literal) = step;
    let mut operands = Vec::with_capacity(from.len());
    for &index in from {
        match values.get(index) {
            Some(&value) => operands.push(value),
            None => return wrong_value(format!("fused: step {index} comes later than where it is used")),
        }
    }
    Ok(match (name.as_str(), &operands[..]) {
        ("input", []) => {
            *input += 1;
            recorder.input(*input - 1).into()
        }
        ("literal", []) => recorder.literal(*literal).into(),
        ("bitwise_and", &[Value::Truth(a), Value::Truth(b)]) => (a & b).into(),
        ("bitwise_or", &[Value::Truth(a), Value::Truth(b)]) => (a | b).into(),
        ("bitwise_xor", &[Value::Truth(a), Value::Truth(b)]) => (a ^ b).into(),
        ("bitwise_not", &[Value::Truth(a)]) => (!a).into(),
        ("where", &[condition, yes, no]) => condition.truth().select(yes.number(), no.number()).into(),
        (name, operands) => match Pointwise::from_name(name) {
            Some(op) => row(op, &operands.iter().map(|operand| operand.number()).collect::<Vec<_>>())?,
            None => return wrong_type(format!("fused: {name} is no pointwise op")),
        },
    })
}

/// A traced function as one kernel.
#[pyclass(frozen, name = "_Kernel", module = "raddle")]
pub struct PyKernel(Fused);

#[pymethods]
impl PyKernel {
    /// Of steps, of which some are results.
    #[new]
    fn new(steps: Vec<Step>, outputs: Vec<usize>) -> Result<PyKernel> {
        let inputs = steps.iter().filter(|(name, ..)| name == "input").count();
        if inputs == 0 || inputs > INPUT_COUNT_MAX || steps.len() > STEP_COUNT_MAX {
            return wrong_value(format!(
                "fused: expected 1 to {INPUT_COUNT_MAX} inputs and at most {STEP_COUNT_MAX} steps, found {inputs} and {}",
                steps.len()
            ));
        }
        let recorder = Recorder::default();
        let mut values: Vec<Value<'_>> = Vec::with_capacity(steps.len());
        let mut input = 0;
        for each in &steps {
            values.push(step(&recorder, &mut input, each, &values)?);
        }
        let mut ids = Vec::new();
        for index in outputs {
            match values.get(index) {
                Some(Value::Number(number)) => ids.push(number.id()),
                Some(Value::Truth(truth)) => ids.push(truth.id()),
                None => return wrong_value(format!("fused: there is no step {index}")),
            }
        }
        if ids.is_empty() {
            return wrong_value("fused: expected a function with a result, found none");
        }
        drop(values);
        Ok(PyKernel(Fused::new(recorder.finish(inputs, 0, &ids))))
    }

    /// Applies it: a tensor, or one for each result.
    #[pyo3(signature = (*inputs))]
    fn __call__(&self, py: Python<'_>, inputs: Vec<Bound<'_, PyTensor>>) -> Result<Py<PyAny>> {
        let inputs: Vec<&Tensor> = inputs.iter().map(|input| &input.get().0).collect();
        let args: Vec<Arg<'_>> = inputs.iter().map(|input| Arg::Tensor(input)).collect();
        let (promoted, program) = (raddle::result_type(&args), self.0.program());
        // Integers become floats where that is asked for; floats have no bits, and bools no shifts.
        if !program.takes(promoted) && (promoted.is_float() || !program.takes(DType::F32)) {
            return wrong_type(format!("fused: bits and shifts are for integers, found {promoted}"));
        }
        let count = inputs.iter().map(|input| input.element_count()).max().unwrap_or(0);
        let results = run(py, count, || self.0.call_many(&inputs))?;
        let results: Vec<PyTensor> = results.into_iter().map(PyTensor).collect();
        let results = PyTuple::new(py, results)?;
        Ok(if results.len() == 1 { results.get_item(0)?.unbind() } else { results.into_any().unbind() })
    }

    /// How many results it has.
    #[getter]
    fn result_count(&self) -> usize {
        self.0.program().outputs().len()
    }
}
