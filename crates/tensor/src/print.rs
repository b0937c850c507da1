//! Printing, much as PyTorch does: numbers aligned, the middle of large tensors left out, dtype and device at the end.

use crate::{DType, Result, Scalar, Tensor, record::Silence};
use std::fmt;

/// Above so many elements only the edges are shown (PyTorch's `threshold`).
const ELEMENT_COUNT_MAX: usize = 1000;
/// So many elements at each end of an axis (PyTorch's `edgeitems`).
const EDGE_COUNT: usize = 3;
/// Digits after the point (PyTorch's `precision`).
const PRECISION: usize = 4;
/// Characters in a line (PyTorch's `linewidth`).
const LINE_WIDTH: usize = 80;

/// Waits for the elements. Instead of elements that can't be read it shows why.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = "tensor(";
        match Page::of(self) {
            Ok(page) => {
                f.write_str(prefix)?;
                page.write(f, 0, 0, prefix.len())?;
            }
            Err(error) => write!(f, "{prefix}<{error}>")?,
        }
        write!(f, ", shape {:?}, {}, {})", self.shape(), self.dtype(), self.device().name())
    }
}

/// The same as `Display`.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The elements that are shown, as text of one width.
struct Page {
    texts: Vec<String>,
    /// Shape of what is shown.
    shape: Vec<usize>,
    /// Is the middle of the axis left out?
    cut: Vec<bool>,
    width: usize,
}

impl Page {
    fn of(tensor: &Tensor) -> Result<Page> {
        let _silence = Silence::new();
        let mut shown = tensor.detach();
        let mut cut = vec![false; tensor.rank()];
        if tensor.element_count() > ELEMENT_COUNT_MAX {
            for (axis, cut) in cut.iter_mut().enumerate() {
                let size = tensor.shape()[axis];
                if size > 2 * EDGE_COUNT {
                    let axis = axis as isize;
                    let head = shown.narrow(axis, 0, EDGE_COUNT)?;
                    let tail = shown.narrow(axis, size - EDGE_COUNT, EDGE_COUNT)?;
                    shown = Tensor::cat(&[&head, &tail], axis)?;
                    *cut = true;
                }
            }
        }
        let bytes = shown.to_bytes()?;
        let values: Vec<Scalar> = bytes
            .chunks_exact(tensor.dtype().size_bytes())
            .map(|element| tensor.dtype().scalar_from_bytes(element))
            .collect();
        let texts = texts(&values, tensor.dtype());
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        Ok(Page { texts, shape: shown.shape().to_vec(), cut, width })
    }

    /// Writes the block of axes from `axis` on whose first element is `start`.
    fn write(&self, f: &mut fmt::Formatter<'_>, axis: usize, start: usize, indent: usize) -> fmt::Result {
        // Any number of empty rows would say no more than the shape does.
        if self.texts.is_empty() {
            return f.write_str("[]");
        }
        let Some(&size) = self.shape.get(axis) else {
            return write!(f, "{}", self.texts[start].trim_start());
        };
        let step: usize = self.shape[axis + 1..].iter().product();
        let last = axis + 1 == self.shape.len();
        let per_line = (LINE_WIDTH.saturating_sub(indent) / (self.width + 2)).max(1);
        f.write_str("[")?;
        for index in 0..size {
            if index > 0 {
                f.write_str(",")?;
                // Rows stand on lines of their own, blocks of them are apart by empty ones.
                let lines =
                    if last { usize::from(index % per_line == 0) } else { self.shape.len() - axis - 1 };
                self.break_line(f, lines, indent + 1)?;
            }
            if self.cut[axis] && index == size / 2 {
                f.write_str("...,")?;
                self.break_line(f, if last { 0 } else { self.shape.len() - axis - 1 }, indent + 1)?;
            }
            if last {
                write!(f, "{:>width$}", self.texts[start + index], width = self.width)?;
            } else {
                self.write(f, axis + 1, start + index * step, indent + 1)?;
            }
        }
        f.write_str("]")
    }

    fn break_line(&self, f: &mut fmt::Formatter<'_>, lines: usize, indent: usize) -> fmt::Result {
        if lines == 0 {
            return f.write_str(" ");
        }
        (0..lines).try_for_each(|_| f.write_str("\n"))?;
        write!(f, "{:indent$}", "")
    }
}

/// The numbers as text, in one style for all: whole ones without digits after the point, very large or small ones or a
/// very wide range with an exponent, all others with a fixed number of digits.
fn texts(values: &[Scalar], dtype: DType) -> Vec<String> {
    if !dtype.is_float() {
        return values.iter().map(Scalar::to_string).collect();
    }
    let values: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
    let sizes = || values.iter().filter(|value| value.is_finite() && **value != 0.0).map(|value| value.abs());
    let (least, most) =
        sizes().fold((f64::INFINITY, 0.0f64), |(least, most), size| (least.min(size), most.max(size)));
    let whole = values.iter().filter(|value| value.is_finite()).all(|value| value.fract() == 0.0);
    let exponent =
        sizes().next().is_some() && (most > 1e8 || (!whole && (most / least > 1e3 || least < 1e-4)));
    values
        .iter()
        .map(|&value| match value {
            _ if value.is_nan() => "nan".into(),
            _ if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.into(),
            _ if exponent => with_exponent(value),
            _ if whole => format!("{value:.0}."),
            _ => format!("{value:.PRECISION$}"),
        })
        .collect()
}

/// As in C: two digits of exponent at least, and its sign.
fn with_exponent(value: f64) -> String {
    let text = format!("{value:.PRECISION$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let power: i32 = exponent.parse().unwrap_or(0);
            format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        None => text,
    }
}
