//! One launch for many tensors: what may meet in it.

use crate::{counted, device, tensor, values};
use raddle_tensor::{DType, Program, ProgramRef, Result, Tensor, find_overlap, pointwise_groups};
use std::sync::Arc;

/// Each group's output becomes its input plus one.
fn step(groups: &[(&Tensor, &Tensor)]) -> Result<()> {
    let program = ProgramRef::Shared(Arc::new(Program::record_many(|[x], _: [_; 0]| [x + 1.0])));
    let groups: Vec<([&Tensor; 1], [&Tensor; 1])> = groups.iter().map(|(out, x)| ([*out], [*x])).collect();
    let groups: Vec<(&[&Tensor], &[&Tensor])> = groups.iter().map(|(out, x)| (&out[..], &x[..])).collect();
    pointwise_groups("step", program, DType::F32, &[], &groups)
}

fn part(of: &Tensor, start: usize, count: usize) -> Tensor {
    of.narrow(0, start, count).unwrap()
}

#[test]
fn what_a_group_writes_no_other_touches() {
    let (base, other) = (counted(&[8]), tensor(&[10.0f32, 20.0, 30.0, 40.0], &[4]));
    let (head, middle, tail) = (part(&base, 0, 4), part(&base, 2, 4), part(&base, 4, 4));
    let refused: &[[(&Tensor, &Tensor); 2]] = &[
        [(&head, &other), (&middle, &other)],
        [(&middle, &other), (&head, &other)],
        [(&head, &other), (&head, &other)],
        [(&head, &other), (&other.copy().unwrap(), &middle)],
        [(&other.copy().unwrap(), &middle), (&head, &other)],
        [(&head, &head), (&other.copy().unwrap(), &head)],
    ];
    for groups in refused {
        let error = step(groups).unwrap_err().to_string();
        assert_eq!(error, "step: an output shares memory with a tensor of another group, use copy() first");
    }
    assert_eq!(values(&base), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    step(&[(&head, &head), (&tail, &other)]).unwrap();
    assert_eq!(values(&base), [1.0, 2.0, 3.0, 4.0, 11.0, 21.0, 31.0, 41.0]);
    // What is only read may be read by all.
    let (one, two) = (other.copy().unwrap(), other.copy().unwrap());
    step(&[(&one, &other), (&two, &other)]).unwrap();
    assert_eq!((values(&one), values(&two)), (vec![11.0, 21.0, 31.0, 41.0], vec![11.0, 21.0, 31.0, 41.0]));
}

#[test]
fn one_tensor_is_not_two_outputs() {
    let x = counted(&[3]);
    let program = Arc::new(Program::record_many(|[x], _: [_; 0]| [x + 1.0, x * 2.0]));
    let base = counted(&[4]);
    let (head, tail) = (part(&base, 0, 3), part(&base, 1, 3));
    for outputs in [[&x, &x], [&head, &tail], [&head, &part(&base, 0, 3)]] {
        let program = ProgramRef::Shared(program.clone());
        let input = tensor(&[1.0f32, 2.0, 3.0], &[3]);
        let error = pointwise_groups("step", program, DType::F32, &[], &[(&outputs, &[&input])]).unwrap_err();
        assert_eq!(error.to_string(), "step: an output shares memory with another output, use copy() first");
    }
    assert_eq!((values(&x), values(&base)), (vec![0.0, 1.0, 2.0], vec![0.0, 1.0, 2.0, 3.0]));
}

/// Thousands of views of one tensor, in an order that isn't that of the memory.
#[test]
fn slices_of_one_tensor_are_told_apart_in_no_quadratic_time() {
    const COUNT: usize = 5000;
    let base = counted(&[3 * COUNT]);
    let parts: Vec<Tensor> = (0..COUNT).map(|at| part(&base, at * 7 % COUNT * 3, 3)).collect();
    let groups: Vec<(&Tensor, &Tensor)> = parts.iter().map(|part| (part, part)).collect();
    step(&groups).unwrap();
    assert_eq!(values(&base), (1..=3 * COUNT).map(|at| at as f32).collect::<Vec<_>>());
    // Columns, as many as can be told; of more it isn't tried.
    let columns = |count: usize| -> Result<()> {
        let matrix = counted(&[4, count]);
        let columns: Vec<Tensor> = (0..count).map(|at| matrix.select(1, at as isize).unwrap()).collect();
        step(&columns.iter().map(|column| (column, column)).collect::<Vec<_>>())?;
        assert_eq!(values(&matrix), (1..=4 * count).map(|at| at as f32).collect::<Vec<_>>());
        Ok(())
    };
    columns(40).unwrap();
    assert!(columns(3000).is_err());
}

#[test]
fn two_that_meet_are_found_among_many() {
    let base = counted(&[400]);
    let mut parts: Vec<Tensor> = (0..100).map(|at| part(&base, at * 37 % 100 * 4, 4)).collect();
    let found =
        |parts: &[Tensor]| find_overlap(&parts.iter().collect::<Vec<_>>()).map(|[a, b]| (a.min(b), a.max(b)));
    assert_eq!(found(&parts), None);
    parts.push(Tensor::zeros([4], DType::F32, device()).unwrap());
    parts.push(part(&base, 4 * 50 + 3, 1));
    assert_eq!(found(&parts), Some(((0..100).position(|at| at * 37 % 100 == 50).unwrap(), 101)));
}
