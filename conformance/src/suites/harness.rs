//! How structured ops are run: on inputs of every layout, fresh and into outputs of every layout.

use crate::{
    array::Array,
    layouts::{Placed, Placement, fitted},
    report::{Expected, check},
};
use raddle::{DType, Device, Result, Scalar, Tensor};

/// One result of an op.
pub struct Answer {
    /// Type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements in row-major order.
    pub expected: Vec<Expected>,
}

impl Answer {
    /// Exactly this array.
    pub fn exactly(array: &Array) -> Answer {
        Answer { dtype: array.dtype, shape: array.shape.clone(), expected: crate::report::exactly(array) }
    }

    /// Indices, exactly.
    pub fn indices(shape: &[usize], values: impl IntoIterator<Item = usize>) -> Answer {
        let expected = values.into_iter().map(|value| Expected::Exactly(Scalar::Int(value as i64))).collect();
        Answer { dtype: DType::I64, shape: shape.to_vec(), expected }
    }
}

type Oracle<'a> = &'a dyn Fn(&[Array]) -> Vec<Answer>;
type Fresh<'a> = &'a dyn Fn(&[&Tensor]) -> Result<Vec<Tensor>>;
type Into<'a> = &'a dyn Fn(&[&Tensor], &[&Tensor]) -> Result<()>;

/// An op with its oracle.
pub struct Op<'a> {
    /// Which, of what.
    pub what: &'a str,
    /// What the results must be.
    pub oracle: Oracle<'a>,
    /// Calls it.
    pub fresh: Fresh<'a>,
    /// Calls it with outputs, if it has such a form.
    pub into: Option<Into<'a>>,
}

impl Op<'_> {
    /// Runs it on these inputs in every layout.
    pub fn run(&self, inputs: &[Array], device: &Device) {
        for (at, placement) in Placement::INPUTS.into_iter().enumerate() {
            let what = format!(
                "{}, inputs {placement:?} {:?}",
                self.what,
                inputs.iter().map(|input| &input.shape).collect::<Vec<_>>()
            );
            let inputs: Vec<Array> = inputs.iter().map(|input| fitted(input, placement)).collect();
            let answers = (self.oracle)(&inputs);
            let placed: Vec<Placed> =
                inputs.iter().map(|input| Placed::new(input, placement, device)).collect();
            let views: Vec<&Tensor> = placed.iter().map(|input| &input.view).collect();
            let results = (self.fresh)(&views).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(results.len(), answers.len(), "{what}: the number of results");
            for (number, (answer, result)) in answers.iter().zip(&results).enumerate() {
                assert_eq!(result.dtype(), answer.dtype, "{what}: dtype of result {number}");
                check(
                    &format!("{what}, result {number}"),
                    &answer.shape,
                    &answer.expected,
                    &Array::read(result),
                );
            }
            if let Some(into) = self.into {
                // Each layout of inputs meets another one of outputs.
                let out_placement = Placement::OUTPUTS[(at + 1) % Placement::OUTPUTS.len()];
                let what = format!("{what}, into {out_placement:?}");
                let outputs: Vec<Placed> = answers
                    .iter()
                    .map(|answer| Placed::output(answer.dtype, &answer.shape, out_placement, device))
                    .collect();
                let views_out: Vec<&Tensor> = outputs.iter().map(|output| &output.view).collect();
                into(&views, &views_out).unwrap_or_else(|error| panic!("{what}: {error}"));
                for (answer, output) in answers.iter().zip(&outputs) {
                    check(&what, &answer.shape, &answer.expected, &Array::read(&output.view));
                    output.check_guards(&what);
                }
            }
            placed.iter().for_each(|input| input.check_untouched(&what));
        }
    }
}

/// The float dtypes.
pub const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// The axes of a list as the methods take them.
pub fn signed(axes: &[usize]) -> Vec<isize> {
    axes.iter().map(|&axis| axis as isize).collect()
}
