//! Products that are composed of the matrix product.

use super::{axis_of, check_rank, refused};
use crate::{Dims, Error, Layout, Result, Tensor, error::shape_error};
use raddle_base::{Scalar, ViewError};

/// `beta · self + alpha · product`; what `self` holds doesn't matter where beta is 0.
fn add_product(tensor: &Tensor, product: Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    // Beside integers and bools factors are such, too: a fraction is cut off.
    let [beta, alpha] = [beta, alpha].map(|factor| match product.dtype() {
        dtype if dtype.is_float() => factor,
        crate::DType::Bool => Scalar::Bool(factor.to_bool()),
        _ => Scalar::Int(factor.to_i64()),
    });
    let one = |factor: Scalar| factor.to_f64() == 1.0;
    let product = if one(alpha) { product } else { product.mul(alpha)? };
    if beta.to_f64() == 0.0 {
        Layout::broadcast_shapes("addmm", tensor.shape(), product.shape())?;
        return Ok(product);
    }
    let sum = if one(beta) { tensor.add(&product) } else { tensor.mul(beta)?.add(&product) }?;
    if sum.shape() == product.shape() {
        Ok(sum)
    } else {
        Err(shape_error("addmm", "the addend", product.shape(), tensor.shape()))
    }
}

impl Tensor {
    /// `[n, k] × [k] → [n]`.
    pub fn mv(&self, vector: &Tensor) -> Result<Tensor> {
        check_rank("mv", self, 2..=2, "2")?;
        check_rank("mv", vector, 1..=1, "1")?;
        self.matmul(vector)
    }

    /// `[n] × [m] → [n, m]`: all products of the elements of two vectors.
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        check_rank("outer", self, 1..=1, "1")?;
        check_rank("outer", other, 1..=1, "1")?;
        self.unsqueeze(1)?.mul(other)
    }

    /// `out[i.., j..] = Σ self[i.., k] · other[j.., k]`, over the last axes; a tensor without axes is a factor.
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        self.tensordot(other, &[-1], &[-1])
    }

    /// `Σ self · other` along an axis, broadcast.
    pub fn vecdot(&self, other: &Tensor, axis: isize) -> Result<Tensor> {
        self.mul(other)?.sum(axis, false)?.to_dtype(crate::result_type(&[self.into(), other.into()]))
    }

    /// `beta · self + alpha · matrix vector`.
    pub fn addmv(
        &self,
        matrix: &Tensor,
        vector: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        add_product(self, matrix.mv(vector)?, beta.into(), alpha.into())
    }

    /// `beta · self + alpha · a bᵀ` of vectors.
    pub fn addr(
        &self,
        a: &Tensor,
        b: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        add_product(self, a.outer(b)?, beta.into(), alpha.into())
    }

    /// `beta · self + alpha · a b`, a product for each of a batch: `[b, n, k] × [b, k, m]`.
    pub fn baddbmm(
        &self,
        a: &Tensor,
        b: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        add_product(self, a.bmm(b)?, beta.into(), alpha.into())
    }

    /// `beta · self + alpha · Σ a b`, the products of a batch added up: `[b, n, k] × [b, k, m] → [n, m]`.
    pub fn addbmm(
        &self,
        a: &Tensor,
        b: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        check_rank("addbmm", a, 3..=3, "3")?;
        check_rank("addbmm", b, 3..=3, "3")?;
        let (x, y) = (a.shape(), b.shape());
        if x[0] != y[0] || x[2] != y[1] {
            return Err(shape_error("addbmm", "rhs", &[x[0], x[2], y[2]].into_iter().collect(), y));
        }
        // One product over batch and inner axis.
        let product = a.transpose(0, 1)?.reshape([x[1], x[0] * x[2]])?.mm(&b.reshape([x[0] * x[2], y[2]])?)?;
        add_product(self, product, beta.into(), alpha.into())
    }

    /// The product summed over axes of both, one with one; what is left of the first comes first. Errors: sizes that differ.
    pub fn tensordot(&self, other: &Tensor, axes: &[isize], other_axes: &[isize]) -> Result<Tensor> {
        let op = "tensordot";
        if axes.len() != other_axes.len() {
            return Err(Error::Count { op, what: "axes", expected: axes.len(), found: other_axes.len() });
        }
        let sort = |x: &Tensor, axes: &[isize]| -> Result<(Vec<usize>, Vec<usize>)> {
            let mut taken = Vec::new();
            for &axis in axes {
                let axis = x.layout().axis(op, axis)?;
                if taken.contains(&axis) {
                    return Err(ViewError::RepeatedAxis { op, axis }.into());
                }
                taken.push(axis);
            }
            Ok(((0..x.rank()).filter(|axis| !taken.contains(axis)).collect(), taken))
        };
        let ((free, summed), (other_free, other_summed)) = (sort(self, axes)?, sort(other, other_axes)?);
        let sizes = |x: &Tensor, axes: &[usize]| axes.iter().map(|&axis| x.shape()[axis]).collect::<Dims>();
        let (inner, other_inner) = (sizes(self, &summed), sizes(other, &other_summed));
        if inner != other_inner {
            return Err(shape_error(op, "the axes of rhs", &inner, &other_inner));
        }
        let matrix = |x: &Tensor, first: &[usize], second: &[usize]| -> Result<Tensor> {
            let order: Vec<isize> = first.iter().chain(second).map(|&axis| axis as isize).collect();
            x.permute(order)?
                .reshape([sizes(x, first).iter().product::<usize>(), sizes(x, second).iter().product()])
        };
        let product = matrix(self, &free, &summed)?.mm(&matrix(other, &other_summed, &other_free)?)?;
        let shape: Vec<usize> =
            sizes(self, &free).iter().chain(sizes(other, &other_free).iter()).copied().collect();
        product.reshape(shape)
    }

    /// The product of a chain of matrices (vectors at its ends), in the order that costs least.
    pub fn multi_dot(chain: &[Tensor]) -> Result<Tensor> {
        let op = "multi_dot";
        let [first, .., last] = chain else {
            return Err(Error::TensorCount { op, expected: "at least 2", found: chain.len() });
        };
        let mut matrices = chain.to_vec();
        let (is_row, is_column) = (first.rank() == 1, last.rank() == 1);
        if is_row {
            matrices[0] = first.unsqueeze(0)?;
        }
        if is_column {
            matrices[chain.len() - 1] = last.unsqueeze(1)?;
        }
        for matrix in &matrices {
            check_rank(op, matrix, 2..=2, "2, or 1 at the ends")?;
        }
        let sizes: Vec<f64> = matrices
            .iter()
            .map(|matrix| matrix.shape()[0] as f64)
            .chain([matrices[chain.len() - 1].shape()[1] as f64])
            .collect();
        // Of each part of the chain: what it costs, and behind which matrix it is cut.
        let n = matrices.len();
        let mut best = vec![vec![(0.0, 0); n]; n];
        for length in 1..n {
            for start in 0..n - length {
                let end = start + length;
                let cost = |cut: usize| {
                    best[start][cut].0 + best[cut + 1][end].0 + sizes[start] * sizes[cut + 1] * sizes[end + 1]
                };
                let cheapest = (start..end).map(|cut| (cost(cut), cut)).min_by(|a, b| a.0.total_cmp(&b.0));
                best[start][end] = cheapest.expect("a part of two has a cut");
            }
        }
        fn product(
            matrices: &[Tensor],
            best: &[Vec<(f64, usize)>],
            start: usize,
            end: usize,
        ) -> Result<Tensor> {
            if start == end {
                return Ok(matrices[start].clone());
            }
            let cut = best[start][end].1;
            product(matrices, best, start, cut)?.mm(&product(matrices, best, cut + 1, end)?)
        }
        let out = product(&matrices, &best, 0, n - 1)?;
        let out = if is_column { out.squeeze(1)? } else { out };
        if is_row { out.squeeze(0) } else { Ok(out) }
    }

    /// A square matrix times itself, `n` times in all; the identity of 0.
    pub fn matrix_power(&self, n: usize) -> Result<Tensor> {
        let op = "matrix_power";
        check_rank(op, self, 2..=8, "at least 2")?;
        let size = self.shape()[self.rank() - 1];
        if self.shape()[self.rank() - 2] != size {
            return Err(refused(op, "the last size", "that of a square", size as i64));
        }
        if n == 0 {
            return Tensor::eye(size, size, self.dtype(), &self.device())?.expand(self.shape())?.copy();
        }
        let (mut rest, mut square, mut power) = (n, self.clone(), None);
        loop {
            if rest & 1 == 1 {
                power = Some(match power {
                    None => square.clone(),
                    Some(power) => square.matmul(&power)?,
                });
            }
            rest >>= 1;
            match power {
                Some(power) if rest == 0 => return if power.is(self) { power.copy() } else { Ok(power) },
                _ => square = square.matmul(&square)?,
            }
        }
    }

    /// The cross product along an axis of size 3, broadcast.
    pub fn cross(&self, other: &Tensor, axis: isize) -> Result<Tensor> {
        let op = "cross";
        if self.rank() != other.rank() {
            return Err(Error::Rank { op, what: "rhs", expected: "as many as lhs", found: other.rank() });
        }
        let axis = axis_of(op, self, axis)?;
        let shape = Layout::broadcast_shapes(op, self.shape(), other.shape())?;
        for tensor in [self, other] {
            if tensor.shape().get(axis) != Some(&3) {
                return Err(refused(
                    op,
                    "the size of the axis",
                    "3",
                    tensor.shape().get(axis).map_or(1, |&size| size as i64),
                ));
            }
        }
        let axis = axis as isize;
        let turned = |x: &Tensor, by: i64| x.expand(shape)?.roll(&[by], &[axis]);
        turned(self, -1)?.mul(&turned(other, 1)?)?.sub(&turned(self, 1)?.mul(&turned(other, -1)?)?)
    }
}

/// An operand of a contraction: each axis has a label.
struct Labeled {
    tensor: Tensor,
    labels: Vec<u32>,
}

/// The sum of products that an equation names, as `"ij,jk->ik"`: a letter for each axis, `...` for axes that are broadcast. Letters
/// that the result lacks are summed over; without `->` it has those that stand once, in alphabetical order. Pairs are contracted one
/// after the other, those with the smallest result first.
///
/// Errors: what is no equation; a letter of two sizes; more than 8 axes at a time.
pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let op = "einsum";
    let wrong = |expected: &'static str, place: usize| refused(op, "the equation", expected, place as i64);
    let text: String = equation.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (inputs, output) = match text.split_once("->") {
        Some((inputs, output)) => (inputs, Some(output)),
        None => (&text[..], None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != operands.len() {
        return Err(Error::Count {
            op,
            what: "terms of the equation",
            expected: operands.len(),
            found: terms.len(),
        });
    }
    // Labels: letters as they are; broadcast axes from the last on as numbers below them.
    let parse = |term: &str, broadcast: usize| -> Result<Vec<u32>> {
        let (before, behind) = term.split_once("...").unwrap_or((term, ""));
        let has_dots = term.contains("...");
        let letters = |part: &str| -> Result<Vec<u32>> {
            part.chars()
                .map(|letter| {
                    if letter.is_ascii_alphabetic() {
                        Ok(letter as u32)
                    } else {
                        Err(wrong("letters, '...', ',' and one '->'", 0))
                    }
                })
                .collect()
        };
        let dots = (0..if has_dots { broadcast } else { 0 } as u32).rev();
        Ok([letters(before)?, dots.collect(), letters(behind)?].concat())
    };
    let mut parts = Vec::new();
    let mut broadcast_max = 0;
    for (place, (&term, &operand)) in terms.iter().zip(operands).enumerate() {
        let letters = parse(term, 0)?.len();
        let broadcast = match operand.rank().checked_sub(letters) {
            Some(0) => 0,
            Some(rest) if term.contains("...") => rest,
            _ => return Err(wrong("as many letters in a term as its operand has axes", place)),
        };
        broadcast_max = broadcast_max.max(broadcast);
        parts.push(Labeled { tensor: operand.clone(), labels: parse(term, broadcast)? });
    }
    let labels_of_all: Vec<u32> = parts.iter().flat_map(|part| part.labels.clone()).collect();
    let wanted = match output {
        Some(output) => parse(output, broadcast_max)?,
        None => {
            let mut once: Vec<u32> = labels_of_all.clone();
            once.retain(|label| {
                *label >= 64 && labels_of_all.iter().filter(|other| *other == label).count() == 1
            });
            once.sort_unstable();
            (0..broadcast_max as u32).rev().chain(once).collect()
        }
    };
    for (place, label) in wanted.iter().enumerate() {
        if wanted[..place].contains(label) || !labels_of_all.contains(label) {
            return Err(wrong("a result whose letters stand in the terms, each once", place));
        }
    }
    // One axis a label: the diagonal of those that stand twice in a term.
    for part in &mut parts {
        while let Some((a, b)) = (0..part.labels.len()).find_map(|b| {
            let a = part.labels[..b].iter().position(|label| *label == part.labels[b])?;
            Some((a, b))
        }) {
            let (x, y) = (part.tensor.shape()[a], part.tensor.shape()[b]);
            if x != y {
                return Err(wrong("one size for each letter", part.labels[a] as usize));
            }
            part.tensor = part.tensor.diagonal(0, a as isize, b as isize)?;
            let label = part.labels[a];
            part.labels.remove(b);
            part.labels.remove(a);
            part.labels.push(label);
        }
    }
    let mut sizes = std::collections::BTreeMap::new();
    for part in &parts {
        for (&label, &size) in part.labels.iter().zip(part.tensor.shape().iter()) {
            let known = sizes.entry(label).or_insert(size);
            if *known == 1 {
                *known = size;
            } else if size != 1 && size != *known {
                return Err(wrong("one size for each letter", label as usize));
            }
        }
    }
    while parts.len() > 1 {
        let kept = |a: usize, b: usize| -> Vec<u32> {
            let needed = |label: &u32| {
                wanted.contains(label)
                    || parts
                        .iter()
                        .enumerate()
                        .any(|(place, part)| place != a && place != b && part.labels.contains(label))
            };
            let (x, y) = (&parts[a].labels, &parts[b].labels);
            x.iter().chain(y.iter().filter(|label| !x.contains(label))).copied().filter(needed).collect()
        };
        let size = |labels: &[u32]| labels.iter().map(|label| sizes[label] as f64).product::<f64>();
        let pairs = (0..parts.len()).flat_map(|a| (a + 1..parts.len()).map(move |b| (a, b)));
        let (a, b) = pairs
            .min_by(|&(a, b), &(c, d)| size(&kept(a, b)).total_cmp(&size(&kept(c, d))))
            .expect("there are two");
        let kept = kept(a, b);
        let second = parts.remove(b);
        let first = parts.remove(a);
        parts.insert(a, contract(first, second, &kept, &sizes)?);
    }
    let part = parts.pop().ok_or(Error::TensorCount { op, expected: "at least 1", found: 0 })?;
    let part = summed(part, &wanted)?;
    let order: Vec<isize> = wanted
        .iter()
        .filter_map(|label| part.labels.iter().position(|other| other == label))
        .map(|axis| axis as isize)
        .collect();
    part.tensor.permute(order)
}

/// Without the labels that nobody needs.
fn summed(part: Labeled, needed: &[u32]) -> Result<Labeled> {
    let gone: Vec<isize> = (0..part.labels.len())
        .filter(|&axis| !needed.contains(&part.labels[axis]))
        .map(|axis| axis as isize)
        .collect();
    if gone.is_empty() {
        return Ok(part);
    }
    let labels = part.labels.iter().copied().filter(|label| needed.contains(label)).collect();
    Ok(Labeled { tensor: part.tensor.sum(&gone[..], false)?.to_dtype(part.tensor.dtype())?, labels })
}

/// With axes of size 1 broadcast to the size of their label.
fn full_size(part: Labeled, sizes: &std::collections::BTreeMap<u32, usize>) -> Result<Labeled> {
    let shape: Vec<usize> = part.labels.iter().map(|label| sizes[label]).collect();
    Ok(Labeled { tensor: part.tensor.expand(shape)?, labels: part.labels })
}

/// Two operands as one batch of matrix products.
fn contract(
    a: Labeled,
    b: Labeled,
    kept: &[u32],
    sizes: &std::collections::BTreeMap<u32, usize>,
) -> Result<Labeled> {
    let needed = |other: &[u32]| [kept, other].concat();
    let a = summed(a, &needed(&b.labels))?;
    let b = summed(b, &needed(&a.labels))?;
    let (a, b) = (full_size(a, sizes)?, full_size(b, sizes)?);
    let both = |label: &u32| a.labels.contains(label) && b.labels.contains(label);
    let pick = |labels: &[u32], keep: &dyn Fn(&u32) -> bool| {
        labels.iter().copied().filter(|label| keep(label)).collect::<Vec<_>>()
    };
    let batch = pick(&a.labels, &|label| both(label) && kept.contains(label));
    let inner = pick(&a.labels, &|label| both(label) && !kept.contains(label));
    let (rows, columns) = (pick(&a.labels, &|label| !both(label)), pick(&b.labels, &|label| !both(label)));
    let matrix = |part: &Labeled, groups: [&[u32]; 3]| -> Result<Tensor> {
        let order: Vec<isize> = groups
            .concat()
            .iter()
            .filter_map(|label| part.labels.iter().position(|other| other == label))
            .map(|axis| axis as isize)
            .collect();
        let size = |labels: &[u32]| labels.iter().map(|label| sizes[label]).product::<usize>();
        part.tensor.permute(order)?.reshape(groups.map(size))
    };
    let product = matrix(&a, [&batch, &rows, &inner])?.bmm(&matrix(&b, [&batch, &inner, &columns])?)?;
    let labels = [batch, rows, columns].concat();
    Ok(Labeled {
        tensor: product.reshape(labels.iter().map(|label| sizes[label]).collect::<Vec<_>>())?,
        labels,
    })
}
