//! Views: which element stands where, against plain index arithmetic; writing through them; what isn't a view.

use super::harness::Drawing;
use crate::{
    Case,
    array::{Array, indices, round},
    layouts::{self, Placed, Placement},
    random::Random,
    report::{check, check_same, exactly},
};
use raddle::{DType, Device, INFER, Result, Scalar, Tensor};

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases!(
        "views": transpose_and_permute, narrow_slice_select, expand, reshape, squeeze_unsqueeze_flatten, unfold, diagonal,
        as_strided, split_chunk_unbind, chains, errors
    )
}

/// Shares memory with the source, holds what the definition says, and what is written through it arrives where it should.
fn check_view(
    what: &str,
    x: &Array,
    shape: &[usize],
    source: impl Fn(&[usize]) -> Vec<usize>,
    view: impl Fn(&Tensor) -> Result<Tensor>,
    device: &Device,
) {
    let dtypes = DType::ALL.iter().flat_map(|&dtype| Placement::OUTPUTS.map(|placement| (dtype, placement)));
    for (dtype, placement) in dtypes {
        let what = format!("{what} of {dtype} {:?}, {placement:?}", x.shape);
        let x = &Array::from_fn(dtype, &x.shape, |index| x.i64(index) % 96);
        check_placed(&what, x, &Placed::new(x, placement, device), shape, &source, &view);
    }
}

/// The same of one tensor.
fn check_placed(
    what: &str,
    x: &Array,
    placed: &Placed,
    shape: &[usize],
    source: &dyn Fn(&[usize]) -> Vec<usize>,
    view: &dyn Fn(&Tensor) -> Result<Tensor>,
) {
    let made = match view(&placed.view) {
        Ok(made) => made,
        Err(error) => panic!("{what}: {error}"),
    };
    let expected = Array::from_fn(x.dtype, shape, |index| x.at(&source(index)));
    check(what, shape, &exactly(&expected), &Array::read(&made));
    if !made.shares_storage(&placed.view) {
        assert!(what.starts_with("reshape") || what.starts_with("flatten"), "{what}: it is no view");
        return;
    }
    // Overlapping windows can't be written as one.
    if made.layout().self_overlap() {
        return;
    }
    made.copy_(Scalar::Int(96)).unwrap();
    let mut after = x.clone();
    indices(shape).iter().for_each(|index| after.set(&source(index), round(x.dtype, Scalar::Int(96))));
    check(&format!("{what}, written"), &x.shape, &exactly(&after), &Array::read(&placed.view));
    placed.check_guards(what);
}

/// A call of the random suite; false if the op isn't of this file.
pub fn draw(name: &str, dtype: DType, drawing: &Drawing) -> bool {
    let (mut shape, axis) = drawing.line();
    if name == "as_strided" {
        // It counts from the start of the storage.
        shape = vec![drawing.size()];
    }
    if name == "t" {
        shape.truncate(2);
    }
    let rank = shape.len();
    let axis = axis.min(rank - 1);
    if ["select", "unbind", "unfold"].contains(&name) {
        shape[axis] = shape[axis].max(1);
    }
    let (size, count) = (shape[axis], shape.iter().product::<usize>());
    // A range along the axis, and a step.
    let start = drawing.below(size + 1);
    let length = drawing.below(size - start + 1);
    let step = 1 + drawing.below(3);
    let other = drawing.below(rank);
    let signed = axis as isize;
    let along = |index: &[usize], at: usize| {
        let mut index = index.to_vec();
        index[axis] = at;
        index
    };
    let with = |place: usize, size: usize| {
        let mut shape = shape.clone();
        shape[place] = size;
        shape
    };
    type Source<'a> = Box<dyn Fn(&[usize]) -> Vec<usize> + 'a>;
    type Viewed<'a> = Box<dyn Fn(&Tensor) -> Result<Tensor> + 'a>;
    let (to, source, view): (Vec<usize>, Source<'_>, Viewed<'_>) = match name {
        "transpose" | "permute" | "t" => {
            let mut axes: Vec<usize> = (0..rank).collect();
            match name {
                "t" => axes.reverse(),
                "transpose" => axes.swap(axis, other),
                _ => (1..rank).for_each(|at| axes.swap(at, drawing.below(at + 1))),
            }
            let to = axes.iter().map(|&axis| shape[axis]).collect();
            let given: Vec<isize> = axes.iter().map(|&axis| axis as isize).collect();
            let source = move |index: &[usize]| {
                let mut source = vec![0; rank];
                axes.iter().zip(index).for_each(|(&axis, &at)| source[axis] = at);
                source
            };
            let view: Viewed<'_> = match name {
                "t" => Box::new(|x| x.t()),
                "transpose" => Box::new(move |x| x.transpose(signed, other as isize)),
                _ => Box::new(move |x| x.permute(&given)),
            };
            (to, Box::new(source), view)
        }
        "narrow" => (
            with(axis, length),
            Box::new(move |index| along(index, start + index[axis])),
            Box::new(move |x| x.narrow(signed, start, length)),
        ),
        "slice" => (
            with(axis, length.div_ceil(step)),
            Box::new(move |index| along(index, start + step * index[axis])),
            Box::new(move |x| x.slice(signed, start as isize, (start + length) as isize, step)),
        ),
        "select" | "unbind" => {
            let at = drawing.below(size);
            let mut to = shape.clone();
            to.remove(axis);
            let source = move |index: &[usize]| {
                let mut index = index.to_vec();
                index.insert(axis, at);
                index
            };
            let view: Viewed<'_> = match name {
                "select" => Box::new(move |x| x.select(signed, at as isize)),
                _ => Box::new(move |x| Ok(x.unbind(signed)?.swap_remove(at))),
            };
            (to, Box::new(source), view)
        }
        "split" | "chunk" => {
            let each = 1 + drawing.below(size.max(1));
            let parts = 1 + drawing.below(5);
            let each = if name == "split" { each } else { size.div_ceil(parts).max(1) };
            let part = drawing.below(size.div_ceil(each).max(1));
            let first = part * each;
            (
                with(axis, each.min(size - first)),
                Box::new(move |index| along(index, first + index[axis])),
                Box::new(move |x| {
                    let mut made =
                        if name == "split" { x.split(each, signed)? } else { x.chunk(parts, signed)? };
                    Ok(made.swap_remove(part))
                }),
            )
        }
        "expand" => {
            shape[axis] = 1;
            let mut to = shape.clone();
            to[axis] = drawing.size();
            let front = drawing.below(2);
            (0..front).for_each(|_| to.insert(0, 2));
            let given = to.clone();
            let source = move |index: &[usize]| {
                let mut index = index[front..].to_vec();
                index[axis] = 0;
                index
            };
            (to, Box::new(source), Box::new(move |x| x.expand(&given)))
        }
        "reshape" | "view" | "flatten" => {
            let to = match name {
                "flatten" => vec![count],
                _ if count > 0 && count.is_multiple_of(6) && drawing.one_of(2) => vec![2, count / 6, 3],
                _ if rank > 1 && drawing.one_of(2) => [&[shape[0] * shape[1]], &shape[2..]].concat(),
                _ => vec![1, count, 1],
            };
            let (given, from, made) = (to.clone(), shape.clone(), to.clone());
            let view: Viewed<'_> = match name {
                "flatten" => Box::new(|x| x.flatten(0, -1)),
                "reshape" => Box::new(move |x| x.reshape(&given)),
                // Of what lies in rows: others may have no such view.
                _ => Box::new(move |x| x.view(&given)),
            };
            (to, Box::new(move |index| renumbered(index, &made, &from)), view)
        }
        "squeeze" => {
            shape[axis] = 1;
            let mut to = shape.clone();
            to.remove(axis);
            let source = move |index: &[usize]| {
                let mut index = index.to_vec();
                index.insert(axis, 0);
                index
            };
            (to, Box::new(source), Box::new(move |x| x.squeeze(signed)))
        }
        "unsqueeze" => {
            let mut to = shape.clone();
            to.insert(axis, 1);
            let source = move |index: &[usize]| {
                let mut index = index.to_vec();
                index.remove(axis);
                index
            };
            (to, Box::new(source), Box::new(move |x| x.unsqueeze(signed)))
        }
        "unfold" => {
            let window = 1 + drawing.below(size);
            let mut to = with(axis, (size - window) / step + 1);
            to.push(window);
            let source = move |index: &[usize]| {
                let mut index = index.to_vec();
                let within = index.pop().expect("the window's axis");
                index[axis] = index[axis] * step + within;
                index
            };
            (to, Box::new(source), Box::new(move |x| x.unfold(signed, window, step)))
        }
        "diagonal" => {
            shape.push(drawing.size());
            let last = shape.len() - 1;
            let offset = drawing.below(9) as isize - 4;
            let (down, right) = ((-offset).max(0) as usize, offset.max(0) as usize);
            let length = shape[axis].saturating_sub(down).min(shape[last].saturating_sub(right));
            let mut to: Vec<usize> =
                (0..last).filter(|&other| other != axis).map(|other| shape[other]).collect();
            to.push(length);
            let source = move |index: &[usize]| {
                let mut index = index.to_vec();
                let at = index.pop().expect("the diagonal's axis");
                index.insert(axis, at + down);
                index.push(at + right);
                index
            };
            (to, Box::new(source), Box::new(move |x| x.diagonal(offset, signed, last as isize)))
        }
        "as_strided" => {
            // Two axes that stay inside.
            let (a, b) = (drawing.below(4), drawing.below(4));
            let rows = 1 + drawing.below(if a == 0 { 3 } else { size / (2 * a) + 1 });
            let columns = 1 + drawing.below(if b == 0 { 3 } else { size / (2 * b) + 1 });
            let end = (rows - 1) * a + (columns - 1) * b;
            let to = if end < size { vec![rows, columns] } else { vec![0, columns] };
            let given = to.clone();
            let offset = if end < size { drawing.below(size - end) } else { 0 };
            (
                to,
                Box::new(move |index| vec![offset + index[0] * a + index[1] * b]),
                Box::new(move |x| x.as_strided(&given, [a, b], offset)),
            )
        }
        _ => return false,
    };
    let layout = match name {
        "as_strided" | "view" => layouts::layout(&shape, Placement::Whole),
        _ => drawing.layout(&shape, false),
    };
    let values = &mut *drawing.values.borrow_mut();
    let x = Array::from_fn(dtype, &shape, |_| values.below(96) as i64);
    let what = format!("{name} of {dtype}, {:?} to {to:?}", layout.0);
    check_placed(&what, &x, &Placed::at(&x, layout, drawing.device), &to, &source, &view);
    true
}

fn counted(shape: &[usize]) -> Array {
    let mut next = 0i64;
    Array::from_fn(DType::I32, shape, |_| {
        next += 1;
        next
    })
}

fn transpose_and_permute(device: &Device) {
    let x = counted(&[2, 3, 4]);
    check_view("transpose", &x, &[4, 3, 2], |i| vec![i[2], i[1], i[0]], |x| x.transpose(0, -1), device);
    check_view("permute", &x, &[3, 4, 2], |i| vec![i[2], i[0], i[1]], |x| x.permute([1, 2, 0]), device);
    check_view("t", &counted(&[2, 5]), &[5, 2], |i| vec![i[1], i[0]], |x| x.t(), device);
    check_view("t", &counted(&[5]), &[5], |i| i.to_vec(), |x| x.t(), device);
    let axes = [7, 0, 6, 1, 5, 2, 4, 3];
    let shape = [2, 1, 2, 1, 3, 1, 2, 1];
    let permuted: Vec<usize> = axes.iter().map(|&axis: &usize| shape[axis]).collect();
    let back = |i: &[usize]| {
        let mut source = vec![0; 8];
        axes.iter().zip(i).for_each(|(&axis, &at)| source[axis] = at);
        source
    };
    check_view(
        "permute",
        &counted(&shape),
        &permuted,
        back,
        |x| x.permute(axes.map(|axis| axis as isize)),
        device,
    );
}

fn narrow_slice_select(device: &Device) {
    let x = counted(&[4, 7, 3]);
    check_view("narrow", &x, &[4, 2, 3], |i| vec![i[0], i[1] + 3, i[2]], |x| x.narrow(1, 3, 2), device);
    check_view("narrow to nothing", &x, &[4, 0, 3], |i| i.to_vec(), |x| x.narrow(1, 7, 0), device);
    check_view("slice", &x, &[4, 2, 3], |i| vec![i[0], 1 + 3 * i[1], i[2]], |x| x.slice(1, 1, 7, 3), device);
    check_view(
        "slice from the end",
        &x,
        &[4, 2, 3],
        |i| vec![i[0], 4 + i[1], i[2]],
        |x| x.slice(1, -3, -1, 1),
        device,
    );
    check_view("slice clamped", &x, &[4, 7, 3], |i| i.to_vec(), |x| x.slice(1, -100, 100, 1), device);
    check_view("slice of one", &x, &[4, 1, 3], |i| vec![i[0], 2, i[2]], |x| x.slice(1, 2, 6, 9), device);
    check_view("select", &x, &[4, 3], |i| vec![i[0], 6, i[1]], |x| x.select(1, -1), device);
}

fn expand(device: &Device) {
    let x = counted(&[3, 1]);
    check_view("expand", &x, &[2, 3, 4], |i| vec![i[1], 0], |x| x.expand([2, 3, 4]), device);
    check_view("expand", &x, &[3, 5], |i| vec![i[0], 0], |x| x.expand([INFER, 5]), device);
    check_view("expand to nothing", &x, &[3, 0], |i| i.to_vec(), |x| x.expand([3, 0]), device);
    check_view("expand", &counted(&[]), &[2, 2], |_| vec![], |x| x.expand([2, 2]), device);
}

/// The index of the same element in row-major order.
fn renumbered(index: &[usize], from: &[usize], to: &[usize]) -> Vec<usize> {
    let mut number = index.iter().zip(from).fold(0, |number, (&at, &size)| number * size + at);
    let mut renumbered = vec![0; to.len()];
    for axis in (0..to.len()).rev() {
        renumbered[axis] = number % to[axis].max(1);
        number /= to[axis].max(1);
    }
    renumbered
}

fn reshape(device: &Device) {
    for (from, to, given) in [
        (&[2, 3, 4][..], &[6, 4][..], &[6, INFER][..]),
        (&[2, 3, 4], &[2, 2, 6], &[INFER, 2, 6]),
        (&[2, 3, 4], &[24], &[24]),
        (&[6], &[1, 6, 1], &[1, 6, 1]),
        (&[1], &[], &[]),
        (&[0, 3], &[3, 0], &[3, 0]),
        (&[2, 1, 2, 1, 3], &[4, 3], &[4, 3]),
    ] {
        check_view("reshape", &counted(from), to, |i| renumbered(i, to, from), |x| x.reshape(given), device);
    }
    let x = Tensor::arange(0, 6, 1, DType::I64, device).unwrap().view([2, 3]).unwrap();
    assert!(
        x.view([3, 2]).unwrap().shares_storage(&x)
            && !x.t().unwrap().reshape([6]).unwrap().shares_storage(&x)
    );
    assert_eq!(x.t().unwrap().reshape([6]).unwrap().to_vec::<i64>().unwrap(), [0, 3, 1, 4, 2, 5]);
}

fn squeeze_unsqueeze_flatten(device: &Device) {
    let x = counted(&[2, 1, 3]);
    check_view("squeeze", &x, &[2, 3], |i| vec![i[0], 0, i[1]], |x| x.squeeze(1), device);
    check_view("squeeze of more", &x, &[2, 1, 3], |i| i.to_vec(), |x| x.squeeze(0), device);
    check_view("unsqueeze", &x, &[2, 1, 3, 1], |i| i[..3].to_vec(), |x| x.unsqueeze(3), device);
    check_view("unsqueeze", &x, &[1, 2, 1, 3], |i| i[1..].to_vec(), |x| x.unsqueeze(0), device);
    let x = counted(&[2, 3, 4]);
    check_view("flatten", &x, &[2, 12], |i| vec![i[0], i[1] / 4, i[1] % 4], |x| x.flatten(1, -1), device);
    check_view("flatten", &counted(&[]), &[1], |_| vec![], |x| x.flatten(0, -1), device);
}

fn unfold(device: &Device) {
    let x = counted(&[2, 7]);
    check_view("unfold", &x, &[2, 3, 3], |i| vec![i[0], 2 * i[1] + i[2]], |x| x.unfold(1, 3, 2), device);
    check_view(
        "unfold apart",
        &x,
        &[2, 2, 2],
        |i| vec![i[0], 4 * i[1] + i[2]],
        |x| x.unfold(1, 2, 4),
        device,
    );
    check_view("unfold", &x, &[2, 7, 1], |i| vec![i[0], i[1]], |x| x.unfold(1, 1, 1), device);
}

fn diagonal(device: &Device) {
    let x = counted(&[3, 4, 2]);
    check_view("diagonal", &x, &[2, 3], |i| vec![i[1], i[1], i[0]], |x| x.diagonal(0, 0, 1), device);
    check_view(
        "diagonal above",
        &x,
        &[2, 3],
        |i| vec![i[1], i[1] + 1, i[0]],
        |x| x.diagonal(1, 0, 1),
        device,
    );
    check_view(
        "diagonal below",
        &x,
        &[2, 1],
        |i| vec![i[1] + 2, i[1], i[0]],
        |x| x.diagonal(-2, 0, 1),
        device,
    );
    check_view("diagonal far away", &x, &[2, 0], |i| i.to_vec(), |x| x.diagonal(9, 0, 1), device);
}

fn as_strided(device: &Device) {
    let storage = Tensor::arange(0, 20, 1, DType::I64, device).unwrap();
    let view = storage.narrow(0, 5, 10).unwrap().as_strided([2, 3], [7, 2], 1).unwrap();
    assert_eq!(view.to_vec::<i64>().unwrap(), [1, 3, 5, 8, 10, 12]);
    assert_eq!(storage.as_strided([1], [6], 19).unwrap().to_vec::<i64>().unwrap(), [19]);
    assert_eq!(
        storage.as_strided([2], [10], 10).unwrap_err().to_string(),
        "as_strided: the view reaches element 20, the storage has 20 elements"
    );
    // What would overflow on the way to the last element is no smaller for it.
    assert!(storage.as_strided([3], [usize::MAX / 2], 0).is_err());
    assert!(storage.as_strided([0], [usize::MAX], 0).unwrap().to_vec::<i64>().unwrap().is_empty());
    // Strides that lead nowhere are multiplied by nothing.
    let empty = storage.as_strided([0, 5], [1, usize::MAX / 2], 0).unwrap();
    let again = empty.slice(1, 1, 5, 3).unwrap().unsqueeze(1).unwrap().select(2, -1).unwrap();
    assert_eq!(**again.shape(), [0, 1]);
    let one = storage.as_strided([1, 2], [usize::MAX, 1], 3).unwrap();
    assert_eq!(one.unsqueeze(0).unwrap().add(1).unwrap().to_vec::<i64>().unwrap(), [4, 5]);
}

fn split_chunk_unbind(device: &Device) {
    let x = counted(&[3, 7]);
    let parts = |lengths: &[usize], view: &dyn Fn(&Tensor) -> Result<Vec<Tensor>>| {
        let mut start = 0;
        for (part, &length) in lengths.iter().enumerate() {
            let first = start;
            check_view(
                "split",
                &x,
                &[3, length],
                |i| vec![i[0], first + i[1]],
                |x| Ok(view(x)?.swap_remove(part)),
                device,
            );
            start += length;
        }
        let whole = Placed::new(&x, Placement::Whole, device);
        assert_eq!(view(&whole.view).unwrap().len(), lengths.len());
    };
    parts(&[3, 3, 1], &|x| x.split(3, 1));
    parts(&[7], &|x| x.split(100, 1));
    parts(&[2, 0, 5], &|x| x.split_sizes(&[2, 0, 5], 1));
    parts(&[3, 3, 1], &|x| x.chunk(3, 1));
    parts(&[2, 2, 2, 1], &|x| x.chunk(5, 1));
    for at in 0..3 {
        check_view("unbind", &x, &[7], |i| vec![at, i[0]], |x| Ok(x.unbind(0)?.swap_remove(at)), device);
    }
}

/// Random views of views, against the same on the host.
fn chains(device: &Device) {
    let mut random = Random::named("chains");
    for _ in 0..60 {
        let x = counted(&[4, 3, 5]);
        let placed = Placed::new(&x, *random.pick(&Placement::OUTPUTS), device);
        let (mut view, mut host) = (placed.view.clone(), x);
        for _ in 0..4 {
            let rank = host.rank();
            if rank == 0 || host.count() == 0 {
                break;
            }
            let axis = random.below(rank);
            let size = host.shape[axis];
            let along = |index: &[usize], map: &dyn Fn(usize) -> usize| {
                let mut index = index.to_vec();
                index[axis] = map(index[axis]);
                index
            };
            match random.below(4) {
                0 => {
                    let other = random.below(rank);
                    let mut axes: Vec<usize> = (0..rank).collect();
                    axes.swap(axis, other);
                    view = view.transpose(axis as isize, other as isize).unwrap();
                    host = host.permuted(&axes);
                }
                1 => {
                    let at = random.below(size);
                    view = view.select(axis as isize, at as isize).unwrap();
                    let mut shape = host.shape.clone();
                    shape.remove(axis);
                    host = Array::from_fn(host.dtype, &shape, |index| {
                        let mut index = index.to_vec();
                        index.insert(axis, at);
                        host.at(&index)
                    });
                }
                2 => {
                    let (start, step) = (random.below(size), 1 + random.below(3));
                    view = view.slice(axis as isize, start as isize, size as isize, step).unwrap();
                    let mut shape = host.shape.clone();
                    shape[axis] = (size - start).div_ceil(step);
                    host =
                        Array::from_fn(host.dtype, &shape, |i| host.at(&along(i, &|at| start + at * step)));
                }
                _ => {
                    view = view.unsqueeze(axis as isize).unwrap();
                    host.shape.insert(axis, 1);
                }
            }
        }
        check_same("a chain of views", &host, &Array::read(&view));
    }
}

fn errors(device: &Device) {
    let x = Tensor::zeros([2, 3], DType::F32, device).unwrap();
    let text = |result: Result<Tensor>| result.unwrap_err().to_string();
    let cases = [
        (x.transpose(0, 2), "transpose: axis 2 is out of range, expected -2 to 1, rank is 2"),
        (x.permute([0]), "permute: expected 2 axes, found 1"),
        (x.permute([0, 0]), "permute: axis 0 is named twice"),
        (x.narrow(1, 2, 2), "narrow: range 2..4 is out of bounds, axis 1 has size 3"),
        (x.select(0, 2), "select: index 2 is out of bounds, axis 0 has size 2"),
        (x.slice(0, 0, 2, 0), "slice: step on axis 0 must be at least 1, found 0"),
        (x.expand([2, 4]), "expand: shape [2, 3] can't be broadcast to [2, 4]"),
        (
            x.expand([INFER, 2, 3]),
            "expand: the size of a new axis is out of range, expected a size, as there is none to keep, found -1",
        ),
        (x.reshape([4]), "reshape: shape [4] has 4 elements, the tensor of shape [2, 3] has 6"),
        (
            x.t().and_then(|x| x.view([6])),
            "view: a tensor of shape [3, 2] with strides [1, 3] can't be viewed as [6] without a copy, use reshape",
        ),
        (x.unsqueeze(4), "unsqueeze: axis 4 is out of range, expected -3 to 2, rank is 3"),
    ];
    for (result, expected) in cases {
        assert_eq!(text(result), expected);
    }
    assert_eq!(
        x.split_sizes(&[1, 1], 1).unwrap_err().to_string(),
        "split: range 0..2 is out of bounds, axis 1 has size 3"
    );
}
