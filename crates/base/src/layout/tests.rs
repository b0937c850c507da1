//! Views against the definition, element by element; refusals by their text.

use super::*;

fn dims(values: &[usize]) -> Dims {
    Dims::new(values).unwrap()
}
fn layout(shape: &[usize]) -> Layout {
    Layout::contiguous(dims(shape))
}

#[test]
fn views_address_what_they_should() {
    let matrix = layout(&[3, 4]);
    let offsets = |view: Layout| view.offsets().collect::<Vec<_>>();
    assert_eq!(offsets(matrix.transpose(0, 1).unwrap())[..4], [0, 4, 8, 1]);
    assert_eq!(offsets(matrix.slice(1, -3, 100, 2).unwrap()), [1, 3, 5, 7, 9, 11]);
    assert_eq!(offsets(matrix.select(0, -1).unwrap()), [8, 9, 10, 11]);
    assert_eq!(offsets(matrix.diagonal(1, 0, 1).unwrap()), [1, 6, 11]);
    assert_eq!(offsets(matrix.diagonal(-2, 0, 1).unwrap()), [8]);
    assert_eq!(offsets(layout(&[5]).unfold(0, 3, 2).unwrap()), [0, 1, 2, 2, 3, 4]);
    assert_eq!(offsets(layout(&[2, 1]).broadcast_to("expand", &dims(&[2, 2])).unwrap()), [0, 0, 1, 1]);
}

#[test]
fn view_splits_and_merges_runs_only() {
    let view = layout(&[2, 3, 4]).permute(&[1, 2, 0]).unwrap();
    assert!(view.view(&dims(&[24])).is_err_and(|e| e.to_string().contains("use reshape")));
    let kept = layout(&[2, 3, 4]).transpose(0, 1).unwrap().view(&dims(&[3, 2, 2, 2])).unwrap();
    assert_eq!(kept.strides(), &dims(&[4, 12, 2, 1]));
    let kept = layout(&[2, 12]).slice(0, 0, 1, 1).unwrap().view(&dims(&[1, 3, 1, 4])).unwrap();
    assert!(kept.is_contiguous());
    assert!(layout(&[4]).view(&dims(&[5])).is_err());
}

#[test]
fn view_agrees_with_row_major_order() {
    // Every view that is allowed must list the same offsets in the same order.
    let bases = [
        layout(&[2, 3, 4]),
        layout(&[2, 3, 4]).transpose(0, 2).unwrap(),
        layout(&[2, 3, 4]).transpose(0, 1).unwrap(),
        layout(&[4, 6]).slice(1, 0, 6, 2).unwrap(),
        layout(&[4, 6]).slice(0, 1, 4, 2).unwrap(),
        layout(&[1, 6]).broadcast_to("expand", &dims(&[4, 6])).unwrap(),
    ];
    for base in bases {
        let n = base.element_count();
        for a in (1..=n).filter(|a| n % a == 0) {
            for b in (1..=n / a).filter(|b| n / a % b == 0) {
                if let Ok(view) = base.view(&dims(&[a, b, n / a / b])) {
                    assert!(view.offsets().eq(base.offsets()), "{base:?} as {view:?}");
                }
            }
        }
    }
}

#[test]
fn overlap_is_told() {
    assert!(layout(&[4]).unfold(0, 2, 1).unwrap().self_overlap());
    assert!(!layout(&[4]).unfold(0, 2, 2).unwrap().self_overlap());
    assert!(layout(&[1]).broadcast_to("expand", &dims(&[3])).unwrap().self_overlap());
    assert!(!layout(&[3, 4]).transpose(0, 1).unwrap().self_overlap());
    let matrix = layout(&[4, 6]);
    let (even, odd) = (matrix.slice(1, 0, 6, 2).unwrap(), matrix.slice(1, 1, 6, 2).unwrap());
    assert_eq!(even.overlap(&odd), Overlap::None);
    assert_eq!(even.overlap(&even), Overlap::Same);
    assert_eq!(matrix.narrow(0, 0, 2).unwrap().overlap(&matrix.narrow(0, 1, 2).unwrap()), Overlap::Partial);
    assert_eq!(matrix.narrow(1, 0, 2).unwrap().overlap(&matrix.narrow(1, 2, 2).unwrap()), Overlap::None);
}

#[test]
fn copies_keep_the_order_of_axes() {
    let transposed = layout(&[3, 4]).transpose(0, 1).unwrap();
    assert_eq!(transposed.preserved().strides(), &dims(&[1, 4]));
    assert_eq!(layout(&[3, 4]).slice(1, 0, 4, 2).unwrap().preserved().strides(), &dims(&[2, 1]));
    let expanded = layout(&[1, 4]).broadcast_to("expand", &dims(&[3, 4])).unwrap();
    assert_eq!(expanded.preserved().strides(), &dims(&[4, 1]));
}

#[test]
fn errors_say_where_what_expected_found() {
    let text = |result: Result<Layout>| result.unwrap_err().to_string();
    assert_eq!(
        text(layout(&[2, 3]).transpose(0, 2)),
        "transpose: axis 2 is out of range, expected -2 to 1, rank is 2"
    );
    assert_eq!(
        text(layout(&[2, 3]).narrow(1, 2, 2)),
        "narrow: range 2..4 is out of bounds, axis 1 has size 3"
    );
    assert_eq!(
        text(Layout::as_strided(6, &[2, 3], &[3, 2], 0)),
        "as_strided: the view reaches element 7, the storage has 6 elements"
    );
    assert_eq!(
        text(layout(&[2, 3]).broadcast_to("expand", &dims(&[2, 4]))),
        "expand: shape [2, 3] can't be broadcast to [2, 4]"
    );
}

/// Of any size, as when queries, keys and values lie side by side.
#[test]
fn blocks_of_columns_are_apart() {
    let matrix = layout(&[1000, 1000]);
    let columns = |start, count| matrix.narrow(1, start, count).unwrap();
    assert_eq!(columns(0, 500).overlap(&columns(500, 500)), Overlap::None);
    assert_eq!(columns(500, 500).overlap(&columns(0, 500)), Overlap::None);
    assert_eq!(columns(0, 501).overlap(&columns(500, 500)), Overlap::Partial);
    let rows = matrix.narrow(0, 0, 500).unwrap().transpose(0, 1).unwrap();
    assert_eq!(rows.overlap(&matrix.narrow(0, 500, 500).unwrap()), Overlap::None);
    let packed = layout(&[64, 128, 3, 8, 32]);
    let part = |part| packed.select(2, part).unwrap().transpose(1, 2).unwrap();
    assert_eq!(part(0).overlap(&part(1)), Overlap::None);
    assert_eq!(part(2).overlap(&part(1)), Overlap::None);
    assert_eq!(part(2).overlap(&packed.narrow(2, 1, 2).unwrap()), Overlap::Partial);
}

#[test]
fn what_is_empty_ends_nowhere() {
    let wide = Layout::new(dims(&[5, 0]), dims(&[usize::MAX / 2, 1]), 3);
    assert_eq!((wide.end(), layout(&[2, 3]).end(), layout(&[]).end()), (0, 6, 1));
}

/// Views of views at random: whatever is said to be apart has no element in common.
#[test]
fn boxes_that_are_apart_share_no_element() {
    let mut state = 1u64;
    let mut below = move |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let (mut apart, mut known) = (0, 0);
    for _ in 0..20_000 {
        let base = layout(&[1 + below(6), 1 + below(6), 1 + below(6)]);
        let mut view = || {
            let mut view = base;
            for axis in 0..3 {
                let size = view.shape()[axis];
                let start = below(size);
                let (end, step) = (start + 1 + below(size - start), 1 + below(3));
                view = view.slice(axis as isize, start as isize, end as isize, step).unwrap();
            }
            view.transpose(below(3) as isize, below(3) as isize).unwrap()
        };
        let (a, b) = (view(), view());
        let common = a.offsets().any(|offset| b.offsets().any(|other| other == offset));
        assert!(!common || !a.boxes_are_apart(&b), "{a:?} and {b:?}");
        apart += usize::from(!common);
        known += usize::from(a.boxes_are_apart(&b));
    }
    assert!(known > apart / 2, "{known} of {apart}");
}
