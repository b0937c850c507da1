//! Every row of the op table: dtypes × shapes × layouts against the oracle; fresh, into an output and in place, which must
//! agree to the bit; numbers as operands; promotion; special values; gradients.

use super::harness::{Drawing, having};
use crate::{
    Case,
    array::{Array, broadcast, round},
    dispatch,
    layouts::{Placed, Placement, fitted, fitted_to, unwritten},
    oracle::pointwise::reference,
    random::Random,
    report::{Expected, check, check_same},
};
use raddle::{Arg, DType, Device, Error, Pointwise, Scalar, Tensor, can_cast, grad::Autograd};

/// Rank 0, one element, empty, odd sizes around vector widths, up to 8 axes.
const SHAPES: [&[usize]; 9] = [
    &[],
    &[1],
    &[2, 0, 3],
    &[7],
    &[3, 5],
    &[67],
    &[2, 1, 9, 3],
    &[2, 1, 3, 2, 1, 2],
    &[2, 1, 2, 1, 3, 1, 2, 1],
];
/// Larger than a block of the engine, and no multiple of anything.
const LARGE: &[usize] = &[19, 131];

/// The cases: one a row for each behaviour.
pub fn cases() -> Vec<Case> {
    type Body = fn(Pointwise, &Device);
    let suites: [(&str, Body); 4] = [
        ("pointwise", layouts),
        ("promotion", promotion),
        ("special", special_values),
        ("gradient", gradients),
    ];
    let mut cases = vec![
        Case::new("conditions", "where", |device| conditions(Pointwise::where_, device)),
        Case::new("conditions", "masked_fill", |device| conditions(Pointwise::masked_fill, device)),
    ];
    for (suite, body) in suites {
        for &op in Pointwise::ALL {
            let applies = match suite {
                "promotion" => op.row().inputs.len() > 1,
                "special" => !op.row().inputs.is_empty(),
                "gradient" => op.row().differentiable,
                _ => true,
            };
            if applies {
                cases.push(Case::new(suite, op.name(), move |device| body(op, device)));
            }
        }
    }
    cases
}

/// Numbers to test an op with.
struct Operands {
    inputs: Vec<Array>,
    params: Vec<Scalar>,
}

/// A number of the row's domain, of a dtype.
fn value_of(dtype: DType, (low, high): (f64, f64), random: &mut Random) -> Scalar {
    const EXTREMES: [i64; 9] = [i64::MIN, i64::MAX, i32::MIN as i64, i32::MAX as i64, -1, 0, 1, 31, 64];
    let value = match dtype {
        DType::Bool => Scalar::Bool(random.one_of(2)),
        dtype if dtype.is_int() && random.is_special() && random.one_of(9) => {
            Scalar::Int(*random.pick(&EXTREMES))
        }
        DType::U8 => Scalar::Int(random.uniform(low.ceil().max(0.0), high.floor() + 1.0) as i64),
        DType::I32 | DType::I64 => Scalar::Int(random.uniform(low.ceil(), high.floor() + 1.0).floor() as i64),
        _ => Scalar::Float(random.float(low, high)),
    };
    round(dtype, value)
}

/// A parameter: a number that the dtype can take.
fn draw_param(op: Pointwise, dtype: DType, random: &mut Random) -> Scalar {
    value_of(op.operand_dtype(dtype).unwrap_or(dtype).compute(), op.row().domain, random)
}

fn operands(op: Pointwise, dtype: DType, shape: &[usize], random: &mut Random) -> Operands {
    let input = |index: usize| {
        let dtype = if op.is_condition(index) { DType::Bool } else { dtype };
        (index, dtype)
    };
    let inputs = (0..op.row().inputs.len())
        .map(input)
        .map(|(input, dtype)| Array::from_fn(dtype, shape, |_| value_of(dtype, op.domain_of(input), random)))
        .collect();
    let params = op.row().params.iter().map(|_| draw_param(op, dtype, random)).collect();
    Operands { inputs, params }
}

/// What the oracle says: inputs of any dtype, broadcast, converted to `operand` first (conditions aren't).
fn expected(
    op: Pointwise,
    operand: DType,
    shape: &[usize],
    inputs: &[Array],
    params: &[Scalar],
) -> Vec<Expected> {
    let convert = |input: usize, value: Scalar| {
        if op.is_condition(input) { Scalar::Bool(value.to_bool()) } else { round(operand, value) }
    };
    let params: Vec<Scalar> = params.iter().map(|&param| round(operand.compute(), param)).collect();
    let at = |index: &Vec<usize>| {
        let values: Vec<Scalar> =
            inputs.iter().enumerate().map(|(input, array)| convert(input, array.at(index))).collect();
        reference(op, operand, &values, &params)
    };
    crate::array::indices(shape).iter().map(at).collect()
}

fn args<'a>(placed: &'a [Placed]) -> Vec<Arg<'a>> {
    placed.iter().map(|input| Arg::Tensor(&input.view)).collect()
}

/// A call of the random suite; false if the op isn't of this file. Operands are broadcast, may be of another dtype, and one may be
/// a number; fresh, into an output and in place.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let Some(&op) = Pointwise::ALL.iter().find(|op| op.name() == name) else { return false };
    let random = &mut *drawing.values.borrow_mut();
    let count = op.row().inputs.len();
    let decides = |input: &usize| !op.is_condition(*input);
    let first = (0..count).find(decides);
    let other = drawing.pick(DType::ALL);
    let is_mixed = drawing.one_of(4)
        && [other, promoted(dtype, other)].iter().all(|&dtype| op.operand_dtype(dtype).is_some());
    let dtypes: Vec<DType> = (0..count)
        .map(|input| match input {
            input if op.is_condition(input) => drawing.pick(&[DType::Bool, DType::Bool, other]),
            input if is_mixed && Some(input) != first => other,
            _ => dtype,
        })
        .collect();
    let whole = drawing.shape(drawing.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8]));
    let part = |input: usize| {
        if input == 0 && !drawing.one_of(4) {
            return whole.clone();
        }
        let kept: Vec<usize> = whole.iter().map(|&size| if drawing.one_of(6) { 1 } else { size }).collect();
        let missing = if drawing.one_of(5) { drawing.below(kept.len() + 1) } else { 0 };
        kept[missing..].to_vec()
    };
    let mut shapes: Vec<Vec<usize>> = (0..count).map(part).collect();
    // One may be a number, where a tensor with axes decides.
    let is_decided = !is_mixed && first.is_some_and(|first| !shapes[first].is_empty());
    let may = |input: &usize| is_decided && decides(input) && first != Some(*input);
    let number = (1..count).find(|input| may(input) && drawing.one_of(6));
    if let Some(number) = number {
        shapes[number].clear();
    }
    let shape = match count {
        0 => whole.clone(),
        _ => shapes.iter().fold(Vec::new(), |shape, input| broadcast(&shape, input)),
    };
    // Those without axes count only if their kind is above that of the others.
    let kind = |dtype: DType| if dtype.is_float() { 2 } else { u8::from(dtype != DType::Bool) };
    let of = |has_axes: bool| {
        let inputs = (0..count).filter(|input| decides(input) && shapes[*input].is_empty() != has_axes);
        inputs.map(|input| dtypes[input]).reduce(promoted)
    };
    let common = match (of(true), of(false)) {
        (Some(strong), Some(weak)) if kind(weak) > kind(strong) => weak,
        (strong, weak) => strong.or(weak).unwrap_or(dtype),
    };
    let operand = op.operand_dtype(common).expect("it takes what is drawn");
    let result = op.result_dtype(common).expect("it takes what is drawn");
    let usual = &mut Random::new(random.bits());
    let params: Vec<Scalar> = op.row().params.iter().map(|_| draw_param(op, common, usual)).collect();
    let layouts: Vec<_> = shapes.iter().map(|shape| drawing.layout(shape, true)).collect();
    let inputs: Vec<Array> = (0..count)
        .map(|input| {
            let domain = op.domain_of(input);
            // Integers that a 16-bit float doesn't hold are converted to what is computed with.
            let random = if is_mixed { &mut *usual } else { &mut *random };
            let array =
                Array::from_fn(dtypes[input], &shapes[input], |_| value_of(dtypes[input], domain, random));
            fitted_to(&array, &layouts[input].0)
        })
        .collect();
    let mut expected = expected(op, operand, &shape, &inputs, &params);
    if random.is_special() && operand.is_float() {
        expected.iter_mut().for_each(|expected| *expected = class_of(op, operand, *expected));
    }
    let out_layout = drawing.layout(&shape, false);
    let own_layout = drawing.layout(&shape, false);
    let what = format!(
        "{name} of {dtypes:?}, params {params:?}, number {number:?}, inputs {:?}, into {:?}",
        layouts.iter().map(|(layout, _)| layout).collect::<Vec<_>>(),
        out_layout.0
    );
    let once = |device: &Device| {
        let placed: Vec<Placed> =
            inputs.iter().zip(&layouts).map(|(input, &layout)| Placed::at(input, layout, device)).collect();
        let args = |placed: &[Placed], first: Option<&Placed>| {
            let mut tensors: Vec<Tensor> = placed.iter().map(|input| input.view.clone()).collect();
            if let (Some(first), Some(place)) = (first, tensors.first_mut()) {
                *place = first.view.clone();
            }
            tensors
        };
        let list = |tensors: &[Tensor], body: &mut dyn FnMut(&[Arg<'_>])| {
            let mut args: Vec<Arg<'_>> = tensors.iter().map(Arg::Tensor).collect();
            if let Some(number) = number {
                args[number] = Arg::Scalar(inputs[number].data[0]);
            }
            body(&args);
        };
        let mut found = Vec::new();
        let tensors = args(&placed, None);
        list(&tensors, &mut |args| {
            if count > 0 {
                drop(Placed::output(result, &shape, Placement::Whole, device));
                let fresh =
                    dispatch::fresh(op, args, &params).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(fresh.dtype(), result, "{what}: the dtype of the result");
                found.push(Array::read(&fresh));
                check(&what, &shape, &expected, &found[0]);
            }
            let out = Placed::at(&unwritten(result, &shape), out_layout, device);
            dispatch::into(op, args, &params, &out.view)
                .unwrap_or_else(|error| panic!("{what}, out: {error}"));
            found.push(Array::read(&out.view));
            check(&format!("{what}, out"), &shape, &expected, &found[found.len() - 1]);
            out.check_guards(&what);
        });
        placed.iter().for_each(|input| input.check_untouched(&what));
        let has_own =
            count > 0 && op != Pointwise::where_ && shapes[0] == shape && can_cast(result, dtypes[0]);
        if has_own {
            // Not the values that were made constant along an axis: as they are, elsewhere.
            let own = Placed::at(&inputs[0], own_layout, device);
            list(&args(&placed, Some(&own)), &mut |args| {
                dispatch::in_place(op, args, &params)
                    .unwrap_or_else(|error| panic!("{what}, in place: {error}"));
            });
            let written = Array::read(&own.view);
            check_same(&format!("{what}, in place"), &found[0].cast(dtypes[0]), &written);
            own.check_guards(&what);
        }
        found
    };
    let found = once(drawing.device);
    // What is rounded once is rounded alike everywhere.
    let reference = if op.row().ulp <= 0.5 { drawing.exact } else { drawing.reference };
    if let Some(reference) = reference {
        for (expected, found) in once(reference).iter().zip(&found) {
            check_same(&format!("{what}, on {}", reference.name()), expected, found);
        }
    }
    true
}

fn layouts(op: Pointwise, device: &Device) {
    let mut random = Random::named(op.name());
    for dtype in having(device, DType::ALL) {
        let Some(operand) = op.operand_dtype(dtype) else {
            refused(op, dtype, device);
            continue;
        };
        let result = op.result_dtype(dtype).expect("it takes the dtype");
        for shape in SHAPES.iter().chain([&LARGE]) {
            let drawn = operands(op, dtype, shape, &mut random);
            let mut first: Option<Array> = None;
            for placement in Placement::INPUTS {
                if shape.len() > 1 && *shape == LARGE && placement == Placement::Rotated {
                    continue;
                }
                let what = format!("{} of {dtype}, {placement:?} {shape:?}", op.name());
                let inputs: Vec<Array> = drawn.inputs.iter().map(|input| fitted(input, placement)).collect();
                let expected = expected(op, operand, shape, &inputs, &drawn.params);
                let placed: Vec<Placed> =
                    inputs.iter().map(|input| Placed::new(input, placement, device)).collect();
                let args = args(&placed);

                // Into an output of another layout than the inputs'.
                let outputs = Placement::OUTPUTS;
                let out_placement = outputs[random.below(outputs.len())];
                let out = Placed::output(result, shape, out_placement, device);
                let strides = *out.view.strides();
                dispatch::into(op, &args, &drawn.params, &out.view)
                    .unwrap_or_else(|error| panic!("{what} out: {error}"));
                let written = Array::read(&out.view);
                check(&format!("{what}, into {out_placement:?}"), shape, &expected, &written);
                out.check_guards(&format!("{what}, into {out_placement:?}"));
                assert_eq!(*out.view.strides(), strides);

                if !placed.is_empty() {
                    let fresh = dispatch::fresh(op, &args, &drawn.params)
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(fresh.dtype(), result, "{what}: the dtype of the result");
                    check_same(
                        &format!("{what}, fresh and into {out_placement:?}"),
                        &written,
                        &Array::read(&fresh),
                    );
                }
                placed.iter().for_each(|input| input.check_untouched(&format!("{what}: an input")));
                if placement != Placement::Expanded {
                    in_place(op, &what, &drawn, placement, &written, device);
                    match &first {
                        Some(first) => check_same(&format!("{what} and as a whole"), first, &written),
                        None => first = Some(written),
                    }
                }
            }
            numbers_as_operands(op, dtype, shape, &drawn, device);
        }
    }
}

/// In place, seen by a clone; what the other operands hold and what lies around stays.
fn in_place(
    op: Pointwise,
    what: &str,
    drawn: &Operands,
    placement: Placement,
    written: &Array,
    device: &Device,
) {
    if op == Pointwise::where_ {
        return;
    }
    let what = format!("{what}, in place");
    let first = match drawn.inputs.first() {
        Some(first) => first.clone(),
        None => Array::from_fn(written.dtype, &written.shape, |_| Scalar::Int(1)),
    };
    let mut placed = vec![Placed::new(&first, placement, device)];
    placed.extend(drawn.inputs.iter().skip(1).map(|input| Placed::new(input, placement, device)));
    let target = placed[0].view.clone();
    let result = dispatch::in_place(op, &args(&placed), &drawn.params);
    if !can_cast(written.dtype, first.dtype) {
        let expected = Error::Cast { op: op.name(), from: written.dtype, to: first.dtype };
        assert_eq!(result.unwrap_err(), expected, "{what}");
        placed[0].check_untouched(&what);
        return;
    }
    result.unwrap_or_else(|error| panic!("{what}: {error}"));
    check_same(&what, &written.cast(first.dtype), &Array::read(&target));
    placed[0].check_guards(&what);
    placed[1..].iter().for_each(|input| input.check_untouched(&what));
}

/// Each operand but one may be a number.
fn numbers_as_operands(op: Pointwise, dtype: DType, shape: &[usize], drawn: &Operands, device: &Device) {
    let operand = op.operand_dtype(dtype).expect("it takes the dtype");
    if drawn.inputs.len() < 2 || drawn.inputs[0].count() == 0 {
        return;
    }
    let decides = |input: usize| !op.is_condition(input);
    for number in 0..drawn.inputs.len() {
        // Without a tensor that decides it, the dtype would be the number's.
        if !(0..drawn.inputs.len()).any(|input| input != number && decides(input)) || shape.is_empty() {
            continue;
        }
        let what = format!("{} of {dtype} {shape:?}, operand {number} is a number", op.name());
        let value = drawn.inputs[number].data[0];
        let mut inputs = drawn.inputs.clone();
        inputs[number] = inputs[number].reshaped(shape).expanded(shape);
        inputs[number].data.fill(value);
        let expected = expected(op, operand, shape, &inputs, &drawn.params);
        let placed: Vec<Placed> =
            inputs.iter().map(|input| Placed::new(input, Placement::Offset, device)).collect();
        let mut args = args(&placed);
        args[number] = Arg::Scalar(value);
        let found =
            raddle::pointwise(op, &args, &drawn.params).unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&what, shape, &expected, &Array::read(&found));
    }
}

/// Of a dtype that the op doesn't take: an error that says so, and nothing is written.
fn refused(op: Pointwise, dtype: DType, device: &Device) {
    let drawn = Array::from_fn(dtype, &[3], |_| Scalar::Int(1));
    let input = Placed::new(&drawn, Placement::Offset, device);
    let args = vec![Arg::Tensor(&input.view); op.row().inputs.len()];
    let params = vec![Scalar::Bool(true); op.row().params.len()];
    let error = dispatch::fresh(op, &args, &params).expect_err("the op refuses the dtype");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("{}: the promoted input has the wrong dtype, expected ", op.name()))
            && text.ends_with(&format!(", found {dtype}")),
        "{text}"
    );
    assert_eq!(dispatch::in_place(op, &args, &params).unwrap_err(), error);
    input.check_untouched(op.name());
}

/// Every pair of dtypes, of operands that are broadcast against each other.
fn promotion(op: Pointwise, device: &Device) {
    let mut random = Random::named(op.name());
    let shapes: [&[usize]; 2] = [&[3, 1], &[4]];
    for &first in DType::ALL {
        for &second in DType::ALL {
            let dtypes: Vec<DType> = (0..op.row().inputs.len())
                .map(|input| match input {
                    _ if op.is_condition(input) => DType::Bool,
                    0 => first,
                    _ => second,
                })
                .collect();
            let promoted = (0..dtypes.len())
                .filter(|&input| !op.is_condition(input))
                .map(|input| dtypes[input])
                .reduce(promoted)
                .expect("an input decides");
            let Some(operand) = op.operand_dtype(promoted) else { continue };
            let inputs: Vec<Array> = dtypes
                .iter()
                .enumerate()
                .map(|(input, &dtype)| {
                    Array::from_fn(dtype, shapes[input.min(1)], |_| {
                        value_of(dtype, op.domain_of(input), &mut random)
                    })
                })
                .collect();
            let params: Vec<Scalar> =
                op.row().params.iter().map(|_| draw_param(op, promoted, &mut random)).collect();
            let shape = inputs.iter().fold(Vec::new(), |shape, input| broadcast(&shape, &input.shape));
            let what = format!("{} of {first} and {second}", op.name());
            let expected = expected(op, operand, &shape, &inputs, &params);
            let placed: Vec<Placed> =
                inputs.iter().map(|input| Placed::new(input, Placement::Stepped, device)).collect();
            let found = dispatch::fresh(op, &args(&placed), &params)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(Some(found.dtype()), op.result_dtype(promoted), "{what}: the dtype of the result");
            check(&what, &shape, &expected, &Array::read(&found));
        }
    }
}

/// A condition of any dtype beside operands of any: what isn't zero is true, also where the operands' dtype would make a zero
/// of it. As a number, too.
fn conditions(op: Pointwise, device: &Device) {
    let list = |dtype: DType| -> Vec<Scalar> {
        let values = match dtype {
            DType::F64 => vec![0.5, 0.0, -0.0, f64::NAN, 1e-50, -5e-324, 1e300, 3.0],
            dtype if dtype.is_float() => vec![0.5, 0.0, -0.0, f64::NAN, 1e-7, -0.25, f64::INFINITY, 3.0],
            _ => vec![],
        };
        let whole = [0, 1, 2, 256, 1 << 16, 1 << 32, -1, i64::MIN];
        match values.is_empty() {
            true => whole.iter().map(|&value| round(dtype, Scalar::Int(value))).collect(),
            false => values.into_iter().map(|value| round(dtype, Scalar::Float(value))).collect(),
        }
    };
    let at = (0..op.row().inputs.len()).find(|&input| op.is_condition(input)).expect("it has a condition");
    for &condition in DType::ALL {
        let truths = list(condition);
        for dtype in having(device, DType::ALL) {
            let mut next = 0;
            let inputs: Vec<Array> = (0..op.row().inputs.len())
                .map(|input| match input == at {
                    true => Array::from_fn(condition, &[truths.len()], |index| truths[index[0]]),
                    false => Array::from_fn(dtype, &[truths.len()], |_| {
                        next += 1;
                        Scalar::Int(next)
                    }),
                })
                .collect();
            let params = vec![Scalar::Bool(true); op.row().params.len()];
            let expected = expected(op, dtype, &[truths.len()], &inputs, &params);
            let placed: Vec<Placed> =
                inputs.iter().map(|input| Placed::new(input, Placement::Stepped, device)).collect();
            let what = format!("{} of {dtype}, condition of {condition}", op.name());
            let found = dispatch::fresh(op, &args(&placed), &params)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&what, &[truths.len()], &expected, &Array::read(&found));
            let out = Placed::output(dtype, &[truths.len()], Placement::Offset, device);
            dispatch::into(op, &args(&placed), &params, &out.view)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&format!("{what}, into"), &[truths.len()], &expected, &Array::read(&out.view));
            out.check_guards(&what);
            for (index, &truth) in truths.iter().enumerate() {
                let mut args = args(&placed);
                args[at] = Arg::Scalar(truth);
                let found = raddle::pointwise(op, &args, &params)
                    .unwrap_or_else(|error| panic!("{what}, {truth}: {error}"));
                let found = Array::read(&found);
                check(
                    &what,
                    &[],
                    &expected[index..=index],
                    &Array::of(dtype, &[], &found.data[index..=index]),
                );
            }
        }
    }
}

/// PyTorch's table: the kind decides, then the size; f16 and bf16 meet in f32.
fn promoted(a: DType, b: DType) -> DType {
    use DType::*;
    const ORDER: [DType; 8] = [Bool, U8, I32, I64, F16, BF16, F32, F64];
    let rank = |dtype: DType| ORDER.iter().position(|&other| other == dtype);
    match (a, b) {
        (F16, BF16) | (BF16, F16) => F32,
        _ if rank(a) < rank(b) => b,
        _ => a,
    }
}

/// NaN, infinities, zeros of both signs, the extremes of integers: all pairs of them.
fn special_values(op: Pointwise, device: &Device) {
    let mut random = Random::named(op.name());
    for dtype in having(device, DType::ALL) {
        let Some(operand) = op.operand_dtype(dtype) else { continue };
        let list: Vec<Scalar> = if dtype.is_float() {
            let floats =
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5];
            floats.map(Scalar::Float).to_vec()
        } else {
            let least =
                [i64::MIN, i64::MIN + 1, i64::from(i32::MIN), i64::from(i32::MAX), i64::MAX, i64::MAX - 1];
            let near =
                [-129, -64, -33, -32, -8, -3, -2, -1, 0, 1, 2, 3, 7, 8, 9, 31, 32, 63, 64, 65, 127, 128, 255];
            least.into_iter().chain(near).map(|value| round(dtype, Scalar::Int(value))).collect()
        };
        let count = op.row().inputs.len();
        let shape = [list.len(), if count > 1 { list.len() } else { 1 }];
        let inputs: Vec<Array> = (0..count)
            .map(|input| {
                let dtype = if op.is_condition(input) { DType::Bool } else { dtype };
                Array::from_fn(dtype, &shape, |index| list[index[input.min(1)]])
            })
            .collect();
        let params: Vec<Scalar> =
            op.row().params.iter().map(|_| draw_param(op, dtype, &mut random)).collect();
        let mut expected = expected(op, operand, &shape, &inputs, &params);
        if operand.is_float() {
            expected.iter_mut().for_each(|expected| *expected = class_of(op, operand, *expected));
        }
        let placed: Vec<Placed> =
            inputs.iter().map(|input| Placed::new(input, Placement::Stepped, device)).collect();
        let found = dispatch::fresh(op, &args(&placed), &params)
            .unwrap_or_else(|error| panic!("{} of {dtype}: {error}", op.name()));
        check(
            &format!("special values, {} of {dtype}, params {params:?}", op.name()),
            &shape,
            &expected,
            &Array::read(&found),
        );
    }
}

/// Special operands are about NaN, infinity and the sign of zero; other results get some more room, since they may lie
/// outside of the row's domain.
fn class_of(op: Pointwise, dtype: DType, expected: Expected) -> Expected {
    use Pointwise::*;
    let Expected::Near { value, .. } = expected else { return expected };
    match value {
        // Digits may cancel, and of infinite operands either form of the formula will do.
        _ if op == lerp => Expected::Open,
        _ if value == 0.0 || !value.is_finite() => Expected::Exactly(Scalar::Float(value)),
        _ => Expected::ulp(dtype, value, 64.0),
    }
}

/// The gradient by each input, in f64, of broadcast operands of different layouts, against central differences of the
/// oracle: so the derivative doesn't follow the op into a mistake.
fn gradients(op: Pointwise, device: &Device) {
    let mut random = Random::named(op.name());
    let dtype = DType::F64;
    let shapes: [&[usize]; 3] = [&[3, 4], &[4], &[3, 1]];
    let count = op.row().inputs.len();
    let inputs: Vec<Array> = (0..count)
        .map(|input| {
            let dtype = if op.is_condition(input) { DType::Bool } else { dtype };
            Array::from_fn(dtype, shapes[input], |_| value_of(dtype, op.domain_of(input), &mut random))
        })
        .collect();
    let params: Vec<Scalar> = op.row().params.iter().map(|_| draw_param(op, dtype, &mut random)).collect();
    let upstream = Array::from_fn(dtype, &[3, 4], |_| random.uniform(-1.0, 1.0));
    let placements = [Placement::Transposed, Placement::Stepped, Placement::Offset];
    let placed: Vec<Placed> = inputs
        .iter()
        .zip(placements)
        .map(|(input, placement)| Placed::new(input, placement, device))
        .collect();
    let wanted: Vec<usize> = (0..count).filter(|&input| op.is_differentiable_by(input)).collect();
    for &input in &wanted {
        placed[input].view.requires_grad_(true).expect("a float leaf");
    }
    let out = dispatch::fresh(op, &args(&placed), &params).expect("the op takes floats");
    let given = Placed::new(&upstream, Placement::Rotated, device);
    out.backward_with(&given.view).expect("the op has a gradient");

    // Σ upstream · op, by the oracle. Its values are good to a few units, so the difference is to some 1e-9.
    let loss = |inputs: &[Array]| {
        let results = expected(op, dtype, &[3, 4], inputs, &params);
        let value = |result: &Expected| match *result {
            Expected::Exactly(value) => value.to_f64(),
            Expected::Near { value, .. } => value,
            Expected::Open => unreachable!("the oracle knows"),
        };
        results
            .iter()
            .zip(&upstream.data)
            .map(|(result, weight)| value(result) * weight.to_f64())
            .sum::<f64>()
    };
    for &input in &wanted {
        let gradient =
            placed[input].view.grad().unwrap_or_else(|| panic!("{}: no gradient by {input}", op.name()));
        let found = Array::read(&gradient);
        for position in 0..inputs[input].count() {
            let at = inputs[input].data[position].to_f64();
            let step = 1e-5 * at.abs().max(1e-2);
            let moved = |by: f64| {
                let mut inputs = inputs.to_vec();
                inputs[input].data[position] = Scalar::Float(at + by);
                loss(&inputs)
            };
            let (plus, minus) = (moved(step), moved(-step));
            let expected = (plus - minus) / (2.0 * step);
            let value = found.data[position].to_f64();
            // Rounding of the loss, and the third derivative times the square of the step.
            let tolerance = 1e-13 * (plus.abs() + minus.abs() + 1.0) / step + 1e-6 * (1.0 + expected.abs());
            assert!(
                (value - expected).abs() <= tolerance,
                "{} by input {input} at {at}: expected {expected} ± {tolerance:e}, found {value}",
                op.name()
            );
        }
    }
    placed.iter().for_each(|input| input.check_untouched(op.name()));
}
