//! The language of rows and of fused closures: numbers ([`Expr`]) and truth values ([`Mask`]) with the usual operators.
//!
//! Evaluating an expression computes nothing: it records. [`Program::record`] hands a closure one [`Expr`] an input and
//! keeps what it returns. Literals are `f64` and are converted to the compute dtype. Every row of the op table is a
//! method; comparisons give a [`Mask`], which has `&`, `|`, `^`, `!` and chooses by [`Mask::select`].
//!
//! ```
//! use raddle_op::Program;
//! let softsign = Program::record(|[x]| x / (1.0 + x.abs()));
//! assert_eq!(softsign.input_count(), 1);
//! let huber = Program::record(|[x, y]| {
//!     let d = (x - y).abs();
//!     d.lt(1.0).select(0.5 * d.square(), d - 0.5)
//! });
//! assert_eq!(huber.input_count(), 2);
//! ```

use crate::program::{Binary, Compare, Id, Inst, Logic, Program, Unary};
use std::{
    cell::RefCell,
    ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub},
};

/// Where instructions are recorded; an instruction that stands there already isn't recorded again.
#[derive(Default)]
pub struct Recorder {
    insts: RefCell<Vec<Inst>>,
}

impl Recorder {
    /// Records an instruction whose operands were recorded here.
    pub fn push(&self, inst: Inst) -> Id {
        let mut insts = self.insts.borrow_mut();
        let position = insts.iter().position(|other| *other == inst).unwrap_or_else(|| {
            insts.push(inst);
            insts.len() - 1
        });
        Id(u16::try_from(position).expect("a program has at most 65,536 instructions"))
    }

    /// An input of the program.
    pub fn input(&self, index: usize) -> Expr<'_> {
        self.number(Inst::Input(u8::try_from(index).expect("a program has at most 256 inputs")))
    }

    /// A scalar parameter of the program.
    pub fn param(&self, index: usize) -> Expr<'_> {
        self.number(Inst::Param(u8::try_from(index).expect("a program has at most 256 parameters")))
    }

    /// A literal.
    pub fn literal(&self, value: f64) -> Expr<'_> {
        self.number(Inst::Literal(value.to_bits()))
    }

    /// Wraps the number that an instruction makes.
    pub fn number(&self, inst: Inst) -> Expr<'_> {
        Expr { recorder: self, id: self.push(inst) }
    }

    /// Wraps the truth value that an instruction makes.
    pub fn mask(&self, inst: Inst) -> Mask<'_> {
        Mask { recorder: self, id: self.push(inst) }
    }

    /// The number that has been recorded at `id`.
    pub fn number_at(&self, id: Id) -> Expr<'_> {
        Expr { recorder: self, id }
    }

    /// The truth value that has been recorded at `id`.
    pub fn mask_at(&self, id: Id) -> Mask<'_> {
        Mask { recorder: self, id }
    }

    /// What has been recorded so far at `id`.
    pub fn inst(&self, id: Id) -> Inst {
        self.insts.borrow()[id.0 as usize]
    }

    /// The program that stores `outputs`; what they don't need is left out.
    pub fn finish(self, inputs: usize, params: usize, outputs: &[Id]) -> Program {
        Program {
            inputs: inputs as u8,
            params: params as u8,
            insts: self.insts.into_inner(),
            outputs: outputs.to_vec(),
        }
        .pruned()
    }
}

/// What a closure may return: a number or a truth value.
pub trait Recorded {
    /// The value's place in the program.
    fn id(&self) -> Id;
}

/// A number.
#[derive(Clone, Copy)]
pub struct Expr<'r> {
    recorder: &'r Recorder,
    id: Id,
}

/// A truth value.
#[derive(Clone, Copy)]
pub struct Mask<'r> {
    recorder: &'r Recorder,
    id: Id,
}

impl Recorded for Expr<'_> {
    fn id(&self) -> Id {
        self.id
    }
}
impl Recorded for Mask<'_> {
    fn id(&self) -> Id {
        self.id
    }
}

impl Program {
    /// Records a closure of `N` inputs that returns a number.
    pub fn record<const N: usize>(body: impl for<'r> Fn([Expr<'r>; N]) -> Expr<'r>) -> Program {
        let recorder = Recorder::default();
        let id = body(std::array::from_fn(|index| recorder.input(index))).id;
        recorder.finish(N, 0, &[id])
    }

    /// Records a closure of `N` inputs and `P` scalar parameters that returns `M` numbers.
    pub fn record_many<const N: usize, const P: usize, const M: usize>(
        body: impl for<'r> Fn([Expr<'r>; N], [Expr<'r>; P]) -> [Expr<'r>; M],
    ) -> Program {
        let recorder = Recorder::default();
        let inputs = std::array::from_fn(|index| recorder.input(index));
        let params = std::array::from_fn(|index| recorder.param(index));
        let ids = body(inputs, params).map(|output| output.id);
        recorder.finish(N, P, &ids)
    }
}

impl<'r> Expr<'r> {
    /// A literal beside this number.
    pub fn literal(self, value: f64) -> Expr<'r> {
        self.recorder.literal(value)
    }

    /// The recorder that it belongs to.
    pub fn recorder(self) -> &'r Recorder {
        self.recorder
    }

    /// A primitive of one number. Rows are made of these; each has a row, so that closures need not name it.
    pub fn unary(self, op: Unary) -> Expr<'r> {
        self.recorder.number(Inst::Unary(op, self.id))
    }

    /// A primitive of two numbers.
    pub fn binary(self, op: Binary, other: Expr<'r>) -> Expr<'r> {
        self.recorder.number(Inst::Binary(op, self.id, other.id))
    }

    /// A comparison.
    pub fn compare(self, op: Compare, other: Expr<'r>) -> Mask<'r> {
        self.recorder.mask(Inst::Compare(op, self.id, other.id))
    }

    /// Is it not zero? NaN is true.
    pub fn truth(self) -> Mask<'r> {
        self.compare(Compare::Ne, self.literal(0.0))
    }
}

impl<'r> Mask<'r> {
    /// The recorder that it belongs to.
    pub fn recorder(self) -> &'r Recorder {
        self.recorder
    }

    /// `self ? yes : no`
    pub fn select(self, yes: impl IntoExpr<'r>, no: impl IntoExpr<'r>) -> Expr<'r> {
        let (yes, no) = (yes.into_expr(self.recorder), no.into_expr(self.recorder));
        self.recorder.number(Inst::Select(self.id, yes.id, no.id))
    }
    /// 1 or 0.
    pub fn number(self) -> Expr<'r> {
        self.recorder.number(Inst::FromMask(self.id))
    }
}

/// A number or a literal.
///
/// Literals are converted to the compute dtype: of integers that is exact below 2^53.
pub trait IntoExpr<'r> {
    /// As a number.
    fn into_expr(self, recorder: &'r Recorder) -> Expr<'r>;
}
impl<'r> IntoExpr<'r> for Expr<'r> {
    fn into_expr(self, _: &'r Recorder) -> Expr<'r> {
        self
    }
}
impl<'r> IntoExpr<'r> for f64 {
    fn into_expr(self, recorder: &'r Recorder) -> Expr<'r> {
        recorder.literal(self)
    }
}
impl<'r> IntoExpr<'r> for i32 {
    fn into_expr(self, recorder: &'r Recorder) -> Expr<'r> {
        recorder.literal(f64::from(self))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl<'r, T: IntoExpr<'r>> $trait<T> for Expr<'r> {
            type Output = Expr<'r>;
            fn $method(self, other: T) -> Expr<'r> { self.binary(Binary::$op, other.into_expr(self.recorder)) }
        }
        operators!(@literals $trait $method $op f64 i32);
    )* };
    (@literals $trait:ident $method:ident $op:ident $($literal:ty)*) => { $(
        impl<'r> $trait<Expr<'r>> for $literal {
            type Output = Expr<'r>;
            fn $method(self, other: Expr<'r>) -> Expr<'r> {
                self.into_expr(other.recorder).binary(Binary::$op, other)
            }
        }
    )* };
}
operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl<'r> Neg for Expr<'r> {
    type Output = Expr<'r>;
    fn neg(self) -> Expr<'r> {
        self.unary(Unary::Neg)
    }
}

macro_rules! connectives {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl<'r> $trait for Mask<'r> {
            type Output = Mask<'r>;
            fn $method(self, other: Mask<'r>) -> Mask<'r> {
                self.recorder.mask(Inst::Logic(Logic::$op, self.id, other.id))
            }
        }
    )* };
}
connectives!(BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor);

impl<'r> Not for Mask<'r> {
    type Output = Mask<'r>;
    fn not(self) -> Mask<'r> {
        self.recorder.mask(Inst::Not(self.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_instructions_are_recorded_once_and_unused_ones_not_at_all() {
        let program = Program::record(|[x, y]| {
            let _unused = y.sin();
            (x + y) * (x + y)
        });
        assert_eq!(
            program.insts(),
            [
                Inst::Input(0),
                Inst::Input(1),
                Inst::Binary(Binary::Add, Id(0), Id(1)),
                Inst::Binary(Binary::Mul, Id(2), Id(2))
            ]
        );
        assert!(Program::record(|[x]| x).is_copy());
    }
}
