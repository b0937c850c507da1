//! More elements than 31, and than 32, bits count (case B-05 of the reported faults): rows at both ends and on both sides of
//! the bounds are what they must be. On the GPU only, where it takes 17 GB; on the CPU `cases` has one of minutes.

use libtest_mimic::{Arguments, Trial};
use raddle::{DType, Device, Tensor};
use raddle_conformance::Backend;
use std::process::ExitCode;

const COLUMNS: usize = 1024;
/// Of the larger operands, and room for what a kernel needs.
const NEEDED_BYTES: usize = 20 << 30;

/// Rows of `s · [1, −1, 1, −1, …]`, `s = 1 + row % 3`, and an output full of sevens.
struct Rows {
    count: usize,
    x: Tensor,
    out: Tensor,
}

impl Rows {
    fn new(count: usize, device: &Device) -> Rows {
        let sign =
            Tensor::from_slice(&[1.0f32, -1.0], [2], device).unwrap().expand([COLUMNS / 2, 2]).unwrap();
        let sign = sign.reshape([1, COLUMNS]).unwrap().to(DType::F16).unwrap();
        let scale =
            Tensor::arange(0, count as i64, 1, DType::I64, device).unwrap().rem(3).unwrap().add(1).unwrap();
        let x = scale.to(DType::F16).unwrap().unsqueeze(1).unwrap().mul(&sign).unwrap();
        let out = Tensor::full([count, COLUMNS], 7, DType::F16, device).unwrap();
        Rows { count, x, out }
    }

    /// Rows of the output at the ends, and where a number of 31 or 32 bits is used up.
    fn check(&self, expected: impl Fn(f32, f32) -> f32) {
        let bounds = [1 << 21, 1 << 22].into_iter().flat_map(|row| [row - 1, row, row + 1]);
        let rows = [0, 1, self.count - 2, self.count - 1].into_iter().chain(bounds);
        for row in rows.filter(|row| *row < self.count) {
            let found = self.out.select(0, row as isize).unwrap().to(DType::F32).unwrap();
            for (column, found) in found.to_vec::<f32>().unwrap().into_iter().enumerate() {
                let (scale, sign) = ((1 + row % 3) as f32, if column % 2 == 0 { 1.0 } else { -1.0 });
                let expected = expected(scale, sign);
                let error = (found - expected).abs();
                assert!(
                    error <= expected.abs() / 1024.0,
                    "row {row} column {column}: {found}, expected {expected}"
                );
            }
        }
    }
}

fn copy(rows: &Rows) {
    rows.out.copy_(&rows.x).unwrap();
    rows.check(|scale, sign| scale * sign);
}

fn add(rows: &Rows) {
    rows.x.add_out(&rows.x, &rows.out).unwrap();
    rows.check(|scale, sign| 2.0 * scale * sign);
}

fn softmax(rows: &Rows) {
    rows.x.softmax_out(1, &rows.out).unwrap();
    let half = COLUMNS as f32 / 2.0;
    rows.check(|scale, sign| (scale * sign).exp() / (half * (scale.exp() + (-scale).exp())));
}

fn layer_norm(rows: &Rows) {
    rows.x.layer_norm_out(1, None, None, 1e-5, &rows.out).unwrap();
    rows.check(|_, sign| sign);
}

/// All, and each row.
fn sum(rows: &Rows) {
    let squares = rows.x.square_out(&rows.out).map(|()| &rows.out).unwrap();
    let each = squares.sum(1, false).unwrap();
    let all = each.to(DType::F64).unwrap().sum(.., false).unwrap().item::<f64>().unwrap();
    let expected: f64 = (0..rows.count).map(|row| ((1 + row % 3).pow(2) * COLUMNS) as f64).sum();
    assert_eq!(all, expected);
    let ones = Tensor::ones([rows.count, COLUMNS], DType::U8, &Device::from(rows.x.device())).unwrap();
    assert_eq!(ones.sum(.., false).unwrap().item::<i64>().unwrap(), (rows.count * COLUMNS) as i64);
}

fn main() -> ExitCode {
    let absent = Backend::Cuda.absent().or_else(|| {
        let memory_bytes = Device::new("cuda:0").ok().and_then(|device| device.info().memory_bytes);
        memory_bytes.is_some_and(|bytes| bytes < NEEDED_BYTES).then_some("a GPU with less than 20 GiB")
    });
    if let Some(absent) = absent {
        println!("skipped: {absent}");
    }
    let mut trials = Vec::new();
    for (bits, count) in [(31, (1usize << 21) + 1), (32, (1 << 22) + 1)] {
        type Body = fn(&Rows);
        let bodies: [(&str, Body); 5] =
            [("copy", copy), ("add", add), ("sum", sum), ("softmax", softmax), ("layer_norm", layer_norm)];
        for (name, body) in bodies {
            let trial = Trial::test(format!("cuda::{name}_past_{bits}_bits"), move || {
                let device = Device::new("cuda:0").unwrap();
                body(&Rows::new(count, &device));
                device.empty_cache();
                Ok(())
            });
            trials.push(trial.with_ignored_flag(absent.is_some()));
        }
    }
    // One at a time: each takes a good part of the memory.
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}
