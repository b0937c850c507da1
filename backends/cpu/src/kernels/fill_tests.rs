//! Counters and triangles in any layout and dtype.

use super::*;
use crate::kernels::testing::{Rng, Tensor, normalized, same};
use raddle_hal::Operand;

#[test]
fn counters_count_in_row_major_order_whatever_the_layout() {
    for seed in 0..200 {
        let rng = &mut Rng(seed);
        let (dtype, shape) = (
            rng.pick(DType::ALL),
            if seed == 0 { Dims::new(&[300, 401]).expect("two axes") } else { rng.shape() },
        );
        let mut out = Tensor::random(rng, dtype, shape, false);
        let (start, step) = (Scalar::Int(rng.below(50) as i64 - 20), Scalar::Int(rng.below(9) as i64 - 4));
        if shape.contains(&0) {
            continue;
        }
        let view = *out.output().view();
        // SAFETY: a live view.
        unsafe { iota(&view, start, step, Threads(2)) };
        assert!(out.guards_hold());
        for (i, found) in out.read().into_iter().enumerate() {
            let expected = Scalar::Int(start.to_i64() + i as i64 * step.to_i64());
            assert!(
                same(found, normalized(expected, dtype)),
                "{dtype} {i}: {found:?}, {expected:?} expected"
            );
        }
    }
}

#[test]
fn triangles_keep_their_side_and_clear_the_other() {
    for seed in 0..400 {
        let rng = &mut Rng(seed);
        let dtype = rng.pick(DType::ALL);
        let mut shape: Dims = (0..2 + rng.below(3)).map(|_| 1 + rng.below(9)).collect();
        if seed == 0 {
            shape = Dims::new(&[310, 290]).expect("two axes");
        }
        let (upper, diagonal) = (rng.chance(50), rng.below(15) as i64 - 7);
        let diagonal = rng.pick(&[diagonal, diagonal, diagonal, i64::MIN, i64::MAX]);
        let mut out = Tensor::random(rng, dtype, shape, false);
        let expanded = rng.chance(30);
        let mut input = Tensor::random(rng, dtype, shape, expanded);
        out.randomize(rng);
        input.randomize(rng);
        let in_place = rng.chance(40);
        let before = if in_place { out.read() } else { input.read() };
        let to = *out.output().view();
        let from = if in_place { Operand::In(to) } else { input.input() };
        // SAFETY: live views.
        unsafe { triangle(&to, from.view(), upper, diagonal, Threads(2)) };
        assert!(out.guards_hold());
        let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        for (i, (found, before)) in out.read().into_iter().zip(before).enumerate() {
            let distance = (i % columns) as i128 - (i / columns % rows) as i128;
            let kept = if upper { distance >= diagonal.into() } else { distance <= diagonal.into() };
            let expected = if kept { before } else { normalized(Scalar::Int(0), dtype) };
            assert!(
                same(found, expected),
                "{upper} {diagonal} {shape:?} {i}: {found:?}, {expected:?} expected"
            );
        }
    }
}
