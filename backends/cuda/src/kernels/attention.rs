//! Attention: one launch, whatever the strides; on tensor cores where the operands allow it.
//!
//! How queries are shared among blocks may depend on the batch, since no bit of a result does: each row is made by one
//! warp, over tiles of keys whose size follows from the number of keys and the widths.
//!
//! Measured on an H100 (2026-11-28, 12 heads, width 32, times with the launch): f16, 64 × 128 tokens, 21 µs with 2 warps a
//! block, 22 with 4, 30 with 1; 64 × 256 tokens 68, 81 and 106; f32, 64 × 128 tokens, 101 µs with 8 queries a warp, 123 with
//! 4, 160 with 2.

use super::build::Builder;
use super::geometry::{Array, is_aligned};
use super::source::{Name, Text, Unit};
use super::steps::{Args, Place};
use raddle_base::{DType, Dims};
use raddle_hal::Operand;

/// Queries of a warp on tensor cores.
const WARP_QUERIES: usize = 16;
/// The widest keys and values for tensor cores: the results of 16 queries, and the queries, stay in registers.
const WIDTH_MAX: usize = 128;
/// Warps of a block of the other kernel.
const ANY_WARPS: usize = 4;
/// Its warps take more queries each as long as blocks are enough for this many multiprocessors.
const MULTIPROCESSOR_COUNT: usize = 132;

/// Plans `Kernel::Attention`.
pub fn plan(builder: &mut Builder, scale: f64, causal: bool, mask: bool, operands: &[Operand]) {
    let array = |index: usize| Array::from(operands[index].view());
    let [out, query, key, value] = [0, 1, 2, 3].map(array);
    let mask = mask.then(|| array(4));
    if out.shape.contains(&0) {
        return;
    }
    let [batch, heads, n, dv] = [0, 1, 2, 3].map(|axis| out.shape[axis]);
    let (m, d) = (key.shape[2], key.shape[3]);
    let kind = match &mask {
        None => 0,
        Some(mask) if mask.dtype == DType::Bool => 1,
        Some(_) => 2,
    };
    let sides = [&out, &query, &key, &value];
    let fits = |width: usize| width.is_multiple_of(16) && (16..=WIDTH_MAX).contains(&width);
    let is_fast =
        out.dtype.size_bytes() == 2 && fits(d) && fits(dv) && sides.iter().all(|side| side.strides[3] == 1);
    let pairs = batch * heads;
    let (text, tiles, parts, threads) = if is_fast {
        let warps = if n > WARP_QUERIES { 2 } else { 1 };
        let keys = if m > 32 && d + dv <= 128 { 64 } else { 32 };
        let aligned = [&key, &value].iter().all(|side| lies_even(side, 8))
            && [&out, &query].iter().all(|side| lies_even(side, 2));
        let text = Text::new(Unit::Attention, true)
            .number(Name::D, d)
            .number(Name::DV, dv)
            .number(Name::KEYS, keys)
            .number(Name::WARPS, warps)
            .flag(Name::ALIGNED, aligned);
        (text, n.div_ceil(warps * WARP_QUERIES), 1, 32 * warps)
    } else {
        // As many columns as shared memory and registers hold.
        let most = if out.dtype == DType::F64 { 2 } else { 4 };
        let columns = dv.div_ceil(32).next_power_of_two().min(most);
        let parts = dv.div_ceil(32 * columns);
        let is_enough =
            n > 4 * ANY_WARPS && pairs * parts * n.div_ceil(8 * ANY_WARPS) >= MULTIPROCESSOR_COUNT;
        let own = if is_enough { 8 } else { 4 };
        let text = Text::new(Unit::AttentionAny, true).number(Name::V, columns).number(Name::OWN, own);
        (text, n.div_ceil(own * ANY_WARPS), parts, 32 * ANY_WARPS)
    };
    let text = text
        .element(Name::ELEMENT, out.dtype)
        .element(Name::ACC, out.dtype.compute())
        .element(Name::MASK, mask.map_or(DType::Bool, |mask| mask.dtype))
        .number(Name::KIND, kind)
        .flag(Name::CAUSAL, causal);
    let nothing =
        Array { place: Place::At(0), dtype: DType::Bool, shape: out.shape, strides: Dims::filled(0, 4) };
    let mut args = Args::default();
    for side in sides.into_iter().chain([&mask.unwrap_or(nothing)]) {
        args.place(side.place);
        side.strides.iter().for_each(|&stride| _ = args.push((stride as u64).to_ne_bytes()));
    }
    let blocks = pairs * tiles * parts;
    for count in [blocks, tiles, heads, n, m, d, dv] {
        args.push((count as u64).to_ne_bytes());
    }
    args.push(scale.to_ne_bytes());
    builder.launch(text, blocks, threads as u32, args);
}

/// Does each row start at a multiple of so many elements?
fn lies_even(side: &Array, elements: usize) -> bool {
    let even = |axis: usize| side.shape[axis] == 1 || side.strides[axis].is_multiple_of(elements);
    is_aligned(side.place, elements * side.dtype.size_bytes()) && (0..3).all(even)
}
