use crate::{counted, device, tensor, values};
use raddle_tensor::{DType, Tensor};

#[test]
fn outputs_that_overlap_themselves_are_refused() {
    let base = counted(&[4]);
    let windows = base.unfold(0, 2, 1).unwrap();
    let expanded = base.select(0, 0).unwrap().expand([3]).unwrap();
    for bad in [&windows, &expanded] {
        assert!(bad.add_(1.0).is_err());
        assert!(bad.fill_(1.0).is_err());
        assert!(bad.normal_(0.0, 1.0, None).is_err());
        assert!(bad.copy_(&bad.copy().unwrap()).is_err());
    }
    assert_eq!(values(&base), [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn inputs_may_be_the_output_but_not_half_of_it() {
    let base = counted(&[6]);
    let (head, tail) = (base.narrow(0, 0, 4).unwrap(), base.narrow(0, 2, 4).unwrap());
    let error = head.add_(&tail).unwrap_err().to_string();
    assert_eq!(error, "add: the output overlaps an input without being the same view, use copy() first");
    assert_eq!(values(&base), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let same = base.narrow(0, 0, 4).unwrap();
    head.add_(&same).unwrap();
    assert_eq!(values(&base), [0.0, 2.0, 4.0, 6.0, 4.0, 5.0]);
    // Columns of one matrix interleave without touching.
    let matrix = counted(&[2, 2]);
    matrix.select(1, 0).unwrap().add_(&matrix.select(1, 1).unwrap()).unwrap();
    assert_eq!(values(&matrix), [1.0, 1.0, 5.0, 3.0]);
    assert!(matrix.add_(&matrix.t().unwrap()).is_err());
    assert!(matrix.sum_out(0, false, &matrix.select(0, 0).unwrap()).is_err());
}

#[test]
fn strided_outputs_are_written_whole_and_nothing_else() {
    let rows =
        tensor(&[1.0f32, 2., 3., 4., 5., 10., 20., 30., 40., 50., 100., 200., 300., 400., 500.], &[3, 5]);
    let target = Tensor::zeros([5, 3], DType::F32, &rows.device()).unwrap();
    rows.sum_out(0, false, &target.select(1, 1).unwrap()).unwrap();
    let expected: Vec<f32> = (1..=5).flat_map(|i| [0.0, 111.0 * i as f32, 0.0]).collect();
    assert_eq!(values(&target), expected);
    rows.copy().unwrap().relu_out(&target.t().unwrap()).unwrap();
    assert_eq!(values(&target.t().unwrap()), values(&rows));
}

#[test]
fn triangles_in_place_write_through_the_view() {
    let base = counted(&[3, 3]);
    base.t().unwrap().tril_(0).unwrap();
    assert_eq!(values(&base), [0.0, 1.0, 2.0, 0.0, 4.0, 5.0, 0.0, 0.0, 8.0]);
}

/// At any size: blocks of columns, as queries and keys that lie side by side.
#[test]
fn halves_of_a_large_matrix_may_be_combined() {
    let matrix = Tensor::ones([1000, 1000], DType::F32, device()).unwrap();
    let (left, right) = (matrix.narrow(1, 0, 500).unwrap(), matrix.narrow(1, 500, 500).unwrap());
    left.add_(&right).unwrap();
    right.copy_(&left).unwrap();
    assert_eq!(matrix.sum(.., false).unwrap().item::<f32>().unwrap(), 2e6);
    assert!(left.add_(&matrix.narrow(1, 499, 500).unwrap()).is_err());
}
