//! The recorded form of a pointwise computation: straight-line code over numbers and truth values.
//!
//! A program is independent of dtype: the launch names the *compute dtype* (`f32` for the 16-bit floats). Each input is
//! converted to it when it is loaded, each output from it when it is stored, so a cast is the program that does nothing.
//! Instructions stand in an order in which each follows its operands; equal ones are recorded once.

use raddle_base::DType;

/// Names the value of the instruction at this position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u16);

/// Number → number. Of integers and bool there are `Neg`, `Abs` (both wrap), `BitNot` and the four that round; all others
/// are for floats only (see [`Program::takes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named as in C's math.h")]
pub enum Unary {
    Neg,
    Abs,
    Sqrt,
    Exp,
    Expm1,
    Log,
    Log1p,
    Log2,
    Log10,
    Sin,
    Cos,
    Tan,
    Tanh,
    Asin,
    Acos,
    Atan,
    Erf,
    /// `1 − erf(x)`, accurate where that is small.
    Erfc,
    /// Of integers the identity, as the other three.
    Floor,
    Ceil,
    /// To the nearest integer, halves to even.
    Round,
    Trunc,
    /// Bits flipped; on bool the truth value.
    BitNot,
}

/// Two numbers → number. Integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`; of integers truncated, and 0 where `b` is 0.
    Div,
    /// C's `fmod`: the sign of `a`; of integers 0 where `b` is 0.
    Rem,
    /// `a` to the power `b`. Of integers by repeated squaring; a negative power is 1, -1 or 0 as truncation gives.
    Pow,
    /// Angle of the point `(x = b, y = a)`.
    Atan2,
    /// The smaller; NaN if one is NaN. Of floats -0 is below 0, as in IEEE 754-2019's `minimum`.
    Min,
    /// The larger; NaN if one is NaN. Of floats -0 is below 0.
    Max,
    /// Bitwise, integers and bool.
    BitAnd,
    /// Bitwise, integers and bool.
    BitOr,
    /// Bitwise, integers and bool.
    BitXor,
    /// `a << b`; 0 where `b` is negative or at least the width.
    Shl,
    /// `a >> b`, arithmetic; where `b` is negative or at least the width: -1 for negative `a`, else 0.
    Shr,
}

/// Two numbers → truth value. Any comparison with NaN but `Ne` is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "==, !=, <, <=")]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
}

/// Two truth values → truth value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the usual connectives")]
pub enum Logic {
    And,
    Or,
    Xor,
}

/// One instruction. Which values are numbers and which are truth values follows from the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inst {
    /// The element of an input, as a number of the compute dtype (a bool is 0 or 1).
    Input(u8),
    /// A scalar given with the launch, as a number of the compute dtype.
    Param(u8),
    /// A literal; the bits of an `f64`, converted to the compute dtype.
    Literal(u64),
    /// Number from a number.
    Unary(Unary, Id),
    /// Number from two numbers.
    Binary(Binary, Id, Id),
    /// Truth value from two numbers.
    Compare(Compare, Id, Id),
    /// Truth value from two truth values.
    Logic(Logic, Id, Id),
    /// Truth value from a truth value.
    Not(Id),
    /// `mask ? yes : no`; only the chosen number counts, a NaN in the other doesn't.
    Select(Id, Id, Id),
    /// 1 or 0.
    FromMask(Id),
}

impl Inst {
    /// Is the value a truth value?
    pub fn is_mask(&self) -> bool {
        matches!(self, Inst::Compare(..) | Inst::Logic(..) | Inst::Not(_))
    }

    /// The values that it needs.
    pub fn operands(&self) -> impl Iterator<Item = Id> + use<> {
        let ids = match *self {
            Inst::Input(_) | Inst::Param(_) | Inst::Literal(_) => [None; 3],
            Inst::Unary(_, a) | Inst::Not(a) | Inst::FromMask(a) => [Some(a), None, None],
            Inst::Binary(_, a, b) | Inst::Compare(_, a, b) | Inst::Logic(_, a, b) => [Some(a), Some(b), None],
            Inst::Select(mask, yes, no) => [Some(mask), Some(yes), Some(no)],
        };
        ids.into_iter().flatten()
    }

    /// The same with each operand renamed.
    pub fn map(self, mut to: impl FnMut(Id) -> Id) -> Inst {
        match self {
            Inst::Input(_) | Inst::Param(_) | Inst::Literal(_) => self,
            Inst::Unary(op, a) => Inst::Unary(op, to(a)),
            Inst::Not(a) => Inst::Not(to(a)),
            Inst::FromMask(a) => Inst::FromMask(to(a)),
            Inst::Binary(op, a, b) => Inst::Binary(op, to(a), to(b)),
            Inst::Compare(op, a, b) => Inst::Compare(op, to(a), to(b)),
            Inst::Logic(op, a, b) => Inst::Logic(op, to(a), to(b)),
            Inst::Select(mask, yes, no) => Inst::Select(to(mask), to(yes), to(no)),
        }
    }
}

/// A pointwise computation: `inputs` tensors and `params` scalars → `outputs` tensors, element by element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    pub(crate) inputs: u8,
    pub(crate) params: u8,
    pub(crate) insts: Vec<Inst>,
    pub(crate) outputs: Vec<Id>,
}

impl Program {
    /// How many tensors are read.
    pub fn input_count(&self) -> usize {
        self.inputs as usize
    }
    /// How many scalars come with a launch.
    pub fn param_count(&self) -> usize {
        self.params as usize
    }
    /// The instructions, each after its operands.
    pub fn insts(&self) -> &[Inst] {
        &self.insts
    }
    /// The values that are stored.
    pub fn outputs(&self) -> &[Id] {
        &self.outputs
    }
    /// Is output `index` a truth value?
    pub fn output_is_mask(&self, index: usize) -> bool {
        self.insts[self.outputs[index].0 as usize].is_mask()
    }
    /// Does every instruction mean something in this compute dtype, and every literal what it says? Functions such as
    /// `Exp` and literals with a fraction are for floats, bits for integers and bool, shifts for integers.
    pub fn takes(&self, compute: DType) -> bool {
        self.insts.iter().all(|inst| match *inst {
            Inst::Literal(bits) => compute.is_float() || f64::from_bits(bits).fract() == 0.0,
            Inst::Unary(op, _) => match op {
                Unary::BitNot => !compute.is_float(),
                Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => true,
                _ => compute.is_float(),
            },
            Inst::Binary(op, ..) => match op {
                Binary::BitAnd | Binary::BitOr | Binary::BitXor => !compute.is_float(),
                Binary::Shl | Binary::Shr => compute.is_int(),
                Binary::Atan2 => compute.is_float(),
                _ => true,
            },
            _ => true,
        })
    }
    /// The same with some of its outputs.
    pub(crate) fn choose(mut self, outputs: impl Iterator<Item = usize>) -> Program {
        self.outputs = outputs.map(|output| self.outputs[output]).collect();
        self.pruned()
    }
    /// The same without the instructions that no output needs.
    pub(crate) fn pruned(self) -> Program {
        let mut needed = vec![false; self.insts.len()];
        let mut stack = self.outputs.clone();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut needed[id.0 as usize], true) {
                stack.extend(self.insts[id.0 as usize].operands());
            }
        }
        let mut renamed = vec![Id(0); self.insts.len()];
        let mut kept = Vec::new();
        for (position, inst) in self.insts.into_iter().enumerate().filter(|(position, _)| needed[*position]) {
            renamed[position] = Id(kept.len() as u16);
            kept.push(inst.map(|id| renamed[id.0 as usize]));
        }
        let outputs = self.outputs.iter().map(|id| renamed[id.0 as usize]).collect();
        Program { insts: kept, outputs, ..self }
    }
    /// The same with some inputs made scalars (bit `i` of `scalars` for input `i`): these become parameters behind the
    /// program's own, in their order, and the other inputs move up.
    pub fn with_scalars(&self, scalars: usize) -> Program {
        let is_scalar = |input: usize| scalars >> input & 1 == 1;
        // How many inputs of the same sort stand before it.
        let rank =
            |input: usize| (0..input).filter(|&other| is_scalar(other) == is_scalar(input)).count() as u8;
        let mut program = self.clone();
        for inst in &mut program.insts {
            match *inst {
                Inst::Input(input) if is_scalar(input.into()) => {
                    *inst = Inst::Param(self.params + rank(input.into()));
                }
                Inst::Input(input) => *inst = Inst::Input(rank(input.into())),
                _ => {}
            }
        }
        program.inputs -= scalars.count_ones() as u8;
        program.params += scalars.count_ones() as u8;
        program
    }
    /// Does it only move (and convert) its one input?
    pub fn is_copy(&self) -> bool {
        matches!((&self.insts[..], &self.outputs[..]), ([Inst::Input(0)], [Id(0)]))
    }
}
