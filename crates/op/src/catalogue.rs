//! Every op by name: what `raddle ops` prints and the docs list.
//!
//! Pointwise ops come from their rows. The structured ops and the views have no row, since each is code of its own in
//! other crates: the table here says what these offer.

use crate::{Pointwise, pointwise::Types};
use raddle_base::DType;

/// What sort of op it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Element by element: a row of the op table.
    Pointwise,
    /// Anything else that computes or copies.
    Structured,
    /// Another look at the same memory (`reshape` copies where that can't be).
    View,
}

impl Kind {
    /// `pointwise`, `structured` or `view`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Pointwise => "pointwise",
            Kind::Structured => "structured",
            Kind::View => "view",
        }
    }
}

/// An op, as a user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// PyTorch's name, without an underscore for "in place".
    pub name: &'static str,
    /// What sort of op it is.
    pub kind: Kind,
    /// The operands or, for an op that makes a tensor, the results: `(x, y; value)`, scalars behind the semicolon.
    pub signature: String,
    /// The dtypes that it takes, those that it converts first among them; for an op without operands those it makes.
    pub dtypes: Vec<DType>,
    /// Has it a gradient?
    pub gradient: bool,
    /// Is there a form that makes its result?
    pub fresh: bool,
    /// Is there a form that overwrites its first operand?
    pub in_place: bool,
    /// Is there a form that writes into a given tensor?
    pub out: bool,
}

/// Every op: the rows in their order, then the structured ops, then the views.
///
/// ```
/// let ops = raddle_op::catalogue::catalogue();
/// let softmax = ops.iter().find(|op| op.name == "softmax").unwrap();
/// assert!(softmax.gradient && softmax.out && !softmax.in_place);
/// ```
pub fn catalogue() -> Vec<Entry> {
    Pointwise::ALL.iter().map(|&op| pointwise(op)).chain(OTHERS.iter().map(Other::entry)).collect()
}

fn pointwise(op: Pointwise) -> Entry {
    let row = op.row();
    let params = if row.params.is_empty() { String::new() } else { format!("; {}", row.params.join(", ")) };
    Entry {
        name: op.name(),
        kind: Kind::Pointwise,
        signature: format!("({}{params})", row.inputs.join(", ")),
        dtypes: DType::ALL.iter().copied().filter(|&dtype| op.operand_dtype(dtype).is_some()).collect(),
        gradient: row.differentiable,
        fresh: !row.inputs.is_empty(),
        // Only what is of the result's dtype can be overwritten by it, and that isn't a condition.
        in_place: row.inputs.first().is_none_or(|&first| first != "condition"),
        // Without inputs the tensor to write into is the only operand.
        out: !row.inputs.is_empty(),
    }
}

/// An op without a row.
struct Other {
    name: &'static str,
    kind: Kind,
    signature: &'static str,
    types: Types,
    gradient: bool,
    fresh: bool,
    in_place: bool,
    out: bool,
}

impl Other {
    const fn structured(name: &'static str, signature: &'static str, types: Types) -> Other {
        let kind = Kind::Structured;
        Other { name, kind, signature, types, gradient: false, fresh: true, in_place: false, out: false }
    }
    const fn view(name: &'static str, signature: &'static str) -> Other {
        Other { kind: Kind::View, gradient: true, ..Other::structured(name, signature, Types::All) }
    }
    const fn grad(self) -> Other {
        Other { gradient: true, ..self }
    }
    const fn in_place(self) -> Other {
        Other { in_place: true, ..self }
    }
    const fn only_in_place(self) -> Other {
        Other { fresh: false, in_place: true, ..self }
    }
    const fn out(self) -> Other {
        Other { out: true, ..self }
    }

    fn entry(&self) -> Entry {
        Entry {
            name: self.name,
            kind: self.kind,
            signature: self.signature.into(),
            dtypes: DType::ALL.iter().copied().filter(|&dtype| self.types.take(dtype)).collect(),
            gradient: self.gradient,
            fresh: self.fresh,
            in_place: self.in_place,
            out: self.out,
        }
    }
}

use Types::{All, Float, Index, Number};

#[rustfmt::skip]
const OTHERS: &[Other] = &[
    // Reductions
    Other::structured("sum", "(x; axes, keepdim)", All).grad().out(),
    Other::structured("mean", "(x; axes, keepdim)", Float).grad().out(),
    Other::structured("prod", "(x; axes, keepdim)", All).grad().out(),
    Other::structured("max", "(x; axis, keepdim)", All).grad().out(),
    Other::structured("min", "(x; axis, keepdim)", All).grad().out(),
    Other::structured("amax", "(x; axes, keepdim)", All).grad().out(),
    Other::structured("amin", "(x; axes, keepdim)", All).grad().out(),
    Other::structured("argmax", "(x; axis, keepdim)", All).out(),
    Other::structured("argmin", "(x; axis, keepdim)", All).out(),
    Other::structured("var", "(x; axes, correction, keepdim)", Float).grad().out(),
    Other::structured("std", "(x; axes, correction, keepdim)", Float).grad().out(),
    Other::structured("norm", "(x; axes, keepdim)", Float).grad().out(),
    Other::structured("all", "(x; axes, keepdim)", All).out(),
    Other::structured("any", "(x; axes, keepdim)", All).out(),
    Other::structured("cumsum", "(x; axis)", All).grad().out(),
    Other::structured("cumprod", "(x; axis)", All).grad().out(),
    Other::structured("logcumsumexp", "(x; axis)", Float).grad().out(),
    // Products
    Other::structured("matmul", "(a, b)", Number).grad().out(),
    Other::structured("bmm", "(a, b)", Number).grad().out(),
    Other::structured("mm", "(a, b)", Number).grad().out(),
    Other::structured("dot", "(a, b)", Number).grad(),
    Other::structured("addmm", "(c, a, b; beta, alpha)", Number).grad().in_place().out(),
    Other::structured("linear", "(x, weight, bias)", Number).grad().out(),
    // Normalization
    Other::structured("softmax", "(x; axis)", Float).grad().out(),
    Other::structured("log_softmax", "(x; axis)", Float).grad().out(),
    Other::structured("scaled_dot_product_attention", "(query, key, value, mask; is_causal, scale)", Float).grad().out(),
    Other::structured("layer_norm_add", "(x, addend, axes, weight, bias, eps)", Float).grad(),
    Other::structured("layer_norm", "(x, weight, bias; axes, eps)", Float).grad().out(),
    Other::structured("dropout", "(x; p, generator)", Float).grad(),
    // Order and indices
    Other::structured("topk", "(x; k, axis, largest)", All).grad().out(),
    Other::structured("sort", "(x; axis, descending)", All).grad().out(),
    Other::structured("argsort", "(x; axis, descending)", All).out(),
    Other::structured("gather", "(x, index; axis)", All).grad().out(),
    Other::structured("scatter", "(x, index, values; axis)", All).grad().in_place().out(),
    Other::structured("scatter_add", "(x, index, values; axis)", Number).grad().in_place().out(),
    Other::structured("index_select", "(x, index; axis)", All).grad().out(),
    Other::structured("index_add", "(x, index, values; axis)", Number).grad().in_place().out(),
    Other::structured("embedding", "(weight, index)", Float).grad(),
    Other::structured("index", "(x, indices)", All).grad(),
    Other::structured("index_put", "(x, indices, values; accumulate)", All).grad().in_place(),
    Other::structured("masked_select", "(x, mask)", All).grad(),
    Other::structured("nonzero", "(x)", All),
    // Copies
    Other::structured("cat", "(tensors; axis)", All).grad().out(),
    Other::structured("stack", "(tensors; axis)", All).grad().out(),
    Other::structured("contiguous", "(x)", All).grad(),
    Other::structured("to", "(x; device or dtype)", All).grad(),
    Other::structured("tril", "(x; diagonal)", All).grad().in_place().out(),
    Other::structured("triu", "(x; diagonal)", All).grad().in_place().out(),
    // New tensors
    Other::structured("empty", "(; shape, dtype, device)", All),
    Other::structured("zeros", "(; shape, dtype, device)", All),
    Other::structured("ones", "(; shape, dtype, device)", All),
    Other::structured("full", "(; shape, value, dtype, device)", All),
    Other::structured("arange", "(; start, end, step, dtype, device)", Number),
    Other::structured("linspace", "(; start, end, count, dtype, device)", Float),
    Other::structured("eye", "(; rows, columns, dtype, device)", All),
    // Random numbers
    Other::structured("rand", "(; shape, dtype, generator)", Float),
    Other::structured("randn", "(; shape, dtype, generator)", Float),
    Other::structured("randint", "(; low, high, shape, generator)", Number),
    Other::structured("randperm", "(; count, generator)", Index),
    Other::structured("normal", "(x; mean, std, generator)", Float).only_in_place(),
    Other::structured("uniform", "(x; low, high, generator)", Float).only_in_place(),
    Other::structured("exponential", "(x; rate, generator)", Float).only_in_place(),
    Other::structured("random", "(x; low, high, generator)", Number).only_in_place(),
    Other::structured("bernoulli", "(x; p, generator)", All).in_place(),
    // Views
    Other::view("transpose", "(x; axis, axis)"),
    Other::view("t", "(x)"),
    Other::view("permute", "(x; axes)"),
    Other::view("narrow", "(x; axis, start, length)"),
    Other::view("slice", "(x; axis, start, end, step)"),
    Other::view("select", "(x; axis, index)"),
    Other::view("expand", "(x; shape)"),
    Other::view("reshape", "(x; shape)"),
    Other::view("view", "(x; shape)"),
    Other::view("squeeze", "(x; axis)"),
    Other::view("unsqueeze", "(x; axis)"),
    Other::view("flatten", "(x; axes)"),
    Other::view("unfold", "(x; axis, size, step)"),
    Other::view("diagonal", "(x; offset, axes)"),
    Other::view("as_strided", "(x; shape, strides, offset)"),
    Other::view("split", "(x; size, axis)"),
    Other::view("chunk", "(x; count, axis)"),
    Other::view("unbind", "(x; axis)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_op_stands_there_once() {
        let mut names: Vec<_> = catalogue().iter().map(|op| op.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn entries_say_what_the_rows_say() {
        let ops = catalogue();
        let find = |name| ops.iter().find(|op| op.name == name).expect("it is an op");
        let addcmul = find("addcmul");
        assert_eq!(addcmul.signature, "(x, a, b; value)");
        assert_eq!(addcmul.dtypes, DType::ALL[1..]);
        assert!(addcmul.gradient && addcmul.in_place && addcmul.out);
        assert!(!find("where").in_place && find("where").out);
        assert_eq!(find("fill").signature, "(; value)");
        assert!(find("fill").in_place && !find("fill").out && !find("fill").fresh);
        assert_eq!(find("bitwise_left_shift").dtypes, [DType::U8, DType::I32, DType::I64]);
        assert_eq!(find("exp").dtypes, DType::ALL);
    }
}
