//! How structured ops are run: on inputs of every layout, fresh and into outputs of every layout.

use crate::{
    array::Array,
    layouts::{self, Placed, Placement, fitted, fitted_to, unwritten},
    random::Random,
    report::{Expected, check, check_same},
};
use raddle::{DType, Device, Layout, Result, Scalar, Tensor};
use std::cell::RefCell;

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

/// Who runs an op on inputs: [`everywhere`], or a call of the random suite.
pub type Run<'a> = &'a dyn Fn(&Op<'_>, &[Array]);

/// In every layout.
pub fn everywhere(device: &Device) -> impl Fn(&Op<'_>, &[Array]) {
    move |op, inputs| op.run(inputs, device)
}

/// One call of the random suite: what isn't drawn by the op's own suite.
pub struct Drawing<'a> {
    /// What it runs on.
    pub device: &'a Device,
    /// Where all results must have the same bits, if anywhere.
    pub reference: Option<&'a Device>,
    /// Where results must have the same bits that are rounded once, or computed with integers, if anywhere.
    pub exact: Option<&'a Device>,
    /// Sizes, axes, factors: whatever isn't an element.
    pub random: RefCell<Random>,
    /// Elements.
    pub values: RefCell<Random>,
    /// Layouts.
    pub layouts: RefCell<Random>,
    /// The largest size of an axis.
    pub size_max: usize,
    /// Is everything contiguous?
    pub is_plain: bool,
}

impl Drawing<'_> {
    /// A number below `bound`.
    pub fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().below(bound)
    }

    /// One of `count`?
    pub fn one_of(&self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// An element of a list.
    pub fn pick<T: Copy>(&self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// The size of an axis: often one at which kernels change, at times 0 or 1.
    pub fn size(&self) -> usize {
        const SIZES: [usize; 20] = [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 32, 33, 40, 64, 65, 130];
        self.pick(&SIZES).min(self.size_max)
    }

    /// A size that isn't 0.
    pub fn size_at_least_1(&self) -> usize {
        self.size().max(1)
    }

    /// A shape of so many axes and not too many elements.
    pub fn shape(&self, rank: usize) -> Vec<usize> {
        const COUNT_MAX: usize = 3000;
        let mut shape: Vec<usize> = (0..rank).map(|_| self.size()).collect();
        // Those of 0 counted as 1, as strides do.
        while shape.iter().map(|&size| size.max(1)).product::<usize>() > COUNT_MAX {
            let largest = (0..rank).max_by_key(|&axis| shape[axis]).expect("it has axes");
            shape[largest] = shape[largest].div_ceil(3);
        }
        shape
    }

    /// A shape of 1 to 5 axes, few most often, and one of them.
    pub fn line(&self) -> (Vec<usize>, usize) {
        let rank = self.pick(&[1, 1, 2, 2, 2, 3, 3, 4, 5]);
        (self.shape(rank), self.below(rank))
    }

    /// A layout.
    pub fn layout(&self, shape: &[usize], is_input: bool) -> (Layout, usize) {
        match self.is_plain {
            true => layouts::layout(shape, Placement::Whole),
            false => layouts::drawn(shape, is_input, &mut self.layouts.borrow_mut()),
        }
    }

    /// Runs an op on inputs that lie where it is drawn, fresh and into outputs that lie elsewhere; once, and where the same
    /// bits are promised there, too.
    pub fn run(&self, op: &Op<'_>, inputs: &[Array]) {
        let layouts: Vec<_> = inputs.iter().map(|input| self.layout(&input.shape, true)).collect();
        let inputs: Vec<Array> =
            inputs.iter().zip(&layouts).map(|(input, (layout, _))| fitted_to(input, layout)).collect();
        let answers = (op.oracle)(&inputs);
        let outputs: Vec<_> = answers.iter().map(|answer| self.layout(&answer.shape, false)).collect();
        let lie = |layout: &(Layout, usize)| {
            format!("{:?} by {:?} from {}", layout.0.shape(), layout.0.strides(), layout.0.offset())
        };
        let what = format!("{}, inputs {:?}", op.what, layouts.iter().map(lie).collect::<Vec<_>>());
        let found = op.once(&what, &inputs, &layouts, &answers, &outputs, self.device);
        if let Some(reference) = self.reference {
            let expected = op.once(&what, &inputs, &layouts, &answers, &outputs, reference);
            for (expected, found) in expected.iter().zip(&found) {
                check_same(&format!("{what}, on {}", reference.name()), expected, found);
            }
        }
    }
}

impl Op<'_> {
    /// Runs it where inputs and outputs lie; what it gives, fresh, then what it writes.
    fn once(
        &self,
        what: &str,
        inputs: &[Array],
        layouts: &[(Layout, usize)],
        answers: &[Answer],
        outputs: &[(Layout, usize)],
        device: &Device,
    ) -> Vec<Array> {
        let placed: Vec<Placed> =
            inputs.iter().zip(layouts).map(|(input, &layout)| Placed::at(input, layout, device)).collect();
        let views: Vec<&Tensor> = placed.iter().map(|input| &input.view).collect();
        // What isn't written shows: results most likely get the memory that these leave.
        for answer in answers {
            drop(Placed::output(answer.dtype, &answer.shape, Placement::Whole, device));
        }
        let results = (self.fresh)(&views).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(results.len(), answers.len(), "{what}: the number of results");
        let mut found: Vec<Array> = results.iter().map(Array::read).collect();
        for (number, (answer, found)) in answers.iter().zip(&found).enumerate() {
            assert_eq!(found.dtype, answer.dtype, "{what}: dtype of result {number}");
            check(&format!("{what}, result {number}"), &answer.shape, &answer.expected, found);
        }
        if let Some(into) = self.into {
            let what =
                format!("{what}, into {:?}", outputs.iter().map(|(layout, _)| layout).collect::<Vec<_>>());
            let outputs: Vec<Placed> = answers
                .iter()
                .zip(outputs)
                .map(|(answer, &layout)| Placed::at(&unwritten(answer.dtype, &answer.shape), layout, device))
                .collect();
            let views_out: Vec<&Tensor> = outputs.iter().map(|output| &output.view).collect();
            into(&views, &views_out).unwrap_or_else(|error| panic!("{what}: {error}"));
            for (answer, output) in answers.iter().zip(&outputs) {
                let written = Array::read(&output.view);
                check(&what, &answer.shape, &answer.expected, &written);
                output.check_guards(&what);
                found.push(written);
            }
        }
        placed.iter().for_each(|input| input.check_untouched(what));
        found
    }

    /// Runs it where inputs and outputs lie.
    pub fn run_at(
        &self,
        inputs: &[Array],
        layouts: &[(Layout, usize)],
        output: &dyn Fn(&[usize]) -> (Layout, usize),
        device: &Device,
    ) {
        let answers = (self.oracle)(inputs);
        let outputs: Vec<_> = answers.iter().map(|answer| output(&answer.shape)).collect();
        let starts: Vec<usize> = layouts.iter().chain(&outputs).map(|(layout, _)| layout.offset()).collect();
        let what = format!("{}, operands from {starts:?}", self.what);
        self.once(&what, inputs, layouts, &answers, &outputs, device);
    }

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
pub const FLOATS: &[DType] = DType::FLOATS;

/// The dtypes of a list that the device has, one after the other; of the others it is said that they are skipped.
pub fn having(device: &Device, dtypes: &[DType]) -> impl Iterator<Item = DType> {
    let (has, name) = (device.dtypes(), device.name());
    let is_had = move |dtype: &DType| {
        if !has.contains(*dtype) {
            eprintln!("skipped: {dtype}, which {name} lacks");
        }
        has.contains(*dtype)
    };
    dtypes.iter().copied().filter(is_had)
}

/// The axes of a list as the methods take them.
pub fn signed(axes: &[usize]) -> Vec<isize> {
    axes.iter().map(|&axis| axis as isize).collect()
}
