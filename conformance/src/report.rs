//! What a result must be, and what is said when it isn't.

use crate::array::{Array, indices, round};
use raddle::{DType, Scalar};

/// What an element must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// This, to the bit; any NaN for a NaN.
    Exactly(Scalar),
    /// This number, or what the dtype rounds it to, or one that is no farther away than the tolerance.
    Near {
        /// The exact value.
        value: f64,
        /// How far away the result may be.
        tolerance: f64,
    },
    /// Anything: the definition leaves it open.
    Open,
}

/// One unit in the last place of a float dtype at a value.
pub fn ulp_size(dtype: DType, value: f64) -> f64 {
    dtype.format().unwrap_or_else(|| unreachable!("{dtype} has no last place")).ulp(value)
}

impl Expected {
    /// Within so many units in the last place of the dtype.
    pub fn ulp(dtype: DType, value: f64, ulp: f64) -> Expected {
        Expected::Near { value, tolerance: ulp * ulp_size(dtype, value) }
    }

    /// Is the result good?
    pub fn is_met_by(self, dtype: DType, found: Scalar) -> bool {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        match self {
            Expected::Open => true,
            Expected::Exactly(Scalar::Float(value)) => same(value, found.to_f64()),
            Expected::Exactly(value) => value == found,
            Expected::Near { value, tolerance } => {
                let (rounded, found) = (round(dtype, Scalar::Float(value)).to_f64(), found.to_f64());
                same(rounded, found) || rounded == found || (value - found).abs() <= tolerance
            }
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Open => write!(f, "anything"),
            Expected::Exactly(value) => write!(f, "{value:?}"),
            Expected::Near { value, tolerance } => write!(f, "{value:e} ± {tolerance:.2e}"),
        }
    }
}

/// Exactly these.
pub fn exactly(array: &Array) -> Vec<Expected> {
    array.data.iter().map(|&value| Expected::Exactly(value)).collect()
}

/// Panics unless a result has the shape and every element is as expected: op and layout, index, expected, found.
pub fn check(what: &str, shape: &[usize], expected: &[Expected], found: &Array) {
    assert_eq!(found.shape, shape, "{what}: the result has the wrong shape");
    assert_eq!(expected.len(), found.count(), "{what}: the test expects as many elements as the shape has");
    let bad = |position: &usize| !expected[*position].is_met_by(found.dtype, found.data[*position]);
    let wrong: Vec<usize> = (0..expected.len()).filter(bad).collect();
    if wrong.is_empty() {
        return;
    }
    let all = indices(shape);
    let line = |&position: &usize| {
        format!(
            "\n  at {:?}: expected {}, found {:?}",
            all[position], expected[position], found.data[position]
        )
    };
    let lines: String = wrong.iter().take(5).map(line).collect();
    panic!("{what}, {}: {} of {} elements are wrong{lines}", found.dtype, wrong.len(), expected.len());
}

/// Panics unless two results are the same to the bit.
pub fn check_same(what: &str, first: &Array, second: &Array) {
    check(what, &first.shape, &exactly(first), second);
    assert_eq!(first.dtype, second.dtype, "{what}: the dtypes differ");
}
