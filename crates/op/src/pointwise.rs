//! What the rows of the op table are made into: the enum [`Pointwise`], a function in [`rows`] and a method of [`Expr`]
//! each, their programs and their gradients.
//!
//! Everything that other crates make of an op, tensor methods, kernels, tests, docs, they make from the same rows, by
//! [`for_each_pointwise!`](crate::for_each_pointwise), or from [`Pointwise::ALL`].

use crate::{
    Program,
    expr::{Expr, IntoExpr, Mask, Recorded, Recorder},
};
use raddle_base::DType;
use raddle_sync::{RaceOnce, fault};

/// Which dtypes an op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// Every dtype.
    All,
    /// Every dtype but bool.
    Number,
    /// Every dtype; bools are converted to i64.
    Counted,
    /// Integers and bool.
    Bits,
    /// Integers.
    Int,
    /// Floats; others are converted to f32.
    Float,
    /// Numbers of elements.
    Index,
}

impl Types {
    /// Is the dtype among them?
    pub fn take(self, dtype: DType) -> bool {
        match self {
            Types::All => true,
            Types::Number | Types::Counted => dtype != DType::Bool,
            Types::Bits => !dtype.is_float(),
            Types::Int => dtype.is_int(),
            Types::Float => dtype.is_float(),
            Types::Index => dtype == DType::I64,
        }
    }
}

/// The dtype of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// The promoted dtype of the inputs.
    Same,
    /// Truth values.
    Bool,
}

/// What the row says, apart from the body.
#[derive(Debug)]
pub struct Row {
    /// PyTorch's name, with an underscore behind it where Rust has that word for itself.
    pub name: &'static str,
    /// The doc of the row.
    pub doc: &'static str,
    /// Names of the inputs.
    pub inputs: &'static [&'static str],
    /// Names of the scalar parameters.
    pub params: &'static [&'static str],
    /// Which dtypes it takes.
    pub types: Types,
    /// The dtype of the result.
    pub result: ResultType,
    /// Largest error in f32 and f64, in units of the last place.
    pub ulp: f64,
    /// Where it is tested.
    pub domain: (f64, f64),
    /// Has it a gradient?
    pub differentiable: bool,
}

/// The most inputs that a row has.
const INPUT_COUNT_MAX: usize = 3;

/// How many sets of inputs there are, each as bits.
const SETS: usize = 1 << INPUT_COUNT_MAX;

/// The programs of a row, each made when it is first asked for.
pub(crate) struct Programs {
    /// By the inputs that are scalars.
    forward: [RaceOnce<Program>; SETS],
    /// By the inputs that are scalars and those whose gradients are wanted.
    pub(crate) gradients: [[RaceOnce<Program>; SETS]; SETS],
}

impl Programs {
    const fn new() -> Programs {
        Programs {
            forward: [const { RaceOnce::new() }; SETS],
            gradients: [const { [const { RaceOnce::new() }; SETS] }; SETS],
        }
    }
}

macro_rules! define {
    ($($(#[doc = $doc:literal])* $name:ident($($input:ident),*; $($param:ident),*) {
        types: $types:ident, result: $result:ident, ulp: $ulp:literal, domain: $low:literal..$high:literal,
        derivative: $derivative:tt, body: $body:expr
    })*) => {
        /// A pointwise op: a row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(non_camel_case_types, reason = "named as the row")]
        pub enum Pointwise { $($(#[doc = $doc])* $name),* }

        impl Pointwise {
            /// Every row.
            pub const ALL: &[Pointwise] = &[$(Pointwise::$name),*];

            /// The row.
            pub fn row(self) -> &'static Row {
                match self { $(Pointwise::$name => &const {
                    Row {
                        name: stringify!($name),
                        doc: concat!($($doc, "\n"),*),
                        inputs: &[$(stringify!($input)),*],
                        params: &[$(stringify!($param)),*],
                        types: Types::$types,
                        result: ResultType::$result,
                        ulp: $ulp,
                        domain: ($low, $high),
                        differentiable: define!(@differentiable $derivative),
                    }
                }),* }
            }

            pub(crate) fn programs(self) -> &'static Programs {
                match self { $(Pointwise::$name => {
                    static PROGRAMS: Programs = Programs::new();
                    &PROGRAMS
                }),* }
            }

            fn record(self) -> Program {
                let recorder = Recorder::default();
                match self { $(Pointwise::$name => {
                    define!(@operands recorder inputs $($input)*; params $($param)*);
                    let id = rows::$name($($input,)* $($param),*).id();
                    recorder.finish(inputs, params, &[id])
                }),* }
            }

            /// The gradient as the row states it, by all inputs; none if it is to be derived.
            pub(crate) fn record_stated_gradient(self) -> Option<Program> {
                let recorder = Recorder::default();
                match self { $(Pointwise::$name => define!(
                    @gradient recorder $derivative [$($input)*] [$($param)*]
                )),* }
            }

            /// The gradient by the first input where all others are numbers, if the row states another one for that.
            pub(crate) fn record_gradient_beside_numbers(self) -> Option<Program> {
                let recorder = Recorder::default();
                match self { $(Pointwise::$name => define!(
                    @beside_numbers recorder $derivative [$($input)*] [$($param)*]
                )),* }
            }
        }

        /// The rows as functions of expressions, for the bodies of other rows and of fused closures.
        #[allow(clippy::too_many_arguments, reason = "as many as the row has operands")]
        pub mod rows {
            use super::{Expr, Mask};
            use crate::program::{Binary::*, Compare::*, Unary::*};

            $($(#[doc = $doc])*
            pub fn $name<'r>($($input: Expr<'r>,)* $($param: Expr<'r>),*) -> define!(@value $result) { $body })*
        }

        /// The rows as methods; operands are numbers or literals.
        #[expect(clippy::should_implement_trait, reason = "the operators are implemented too")]
        impl<'r> Expr<'r> { $(
            define!(@method $(#[doc = $doc])* $name [$($input)*] [$($param)*] $result);
        )* }
    };
    (@differentiable none) => { false };
    (@differentiable $other:tt) => { true };
    (@value Same) => { Expr<'r> };
    (@value Bool) => { Mask<'r> };
    (@operands $recorder:ident $inputs:ident $($input:ident)*; $params:ident $($param:ident)*) => {
        let $inputs = 0;
        $(let ($input, $inputs) = ($recorder.input($inputs), $inputs + 1);)*
        let $params = 0;
        $(let ($param, $params) = ($recorder.param($params), $params + 1);)*
    };
    (@gradient $recorder:ident [$g:ident => $($gradient:expr),* $(; numbers: $_numbers:expr)?] [$($input:ident)*] [$($param:ident)*]) => {{
        define!(@operands $recorder inputs $g $($input)*; params $($param)*);
        let ids = [$($gradient.id()),*];
        Some($recorder.finish(inputs, params, &ids))
    }};
    (@gradient $recorder:ident $other:tt $inputs:tt $params:tt) => { None };
    (@beside_numbers $recorder:ident [$g:ident => $($_gradient:expr),*; numbers: $gradient:expr] [$($input:ident)*] [$($param:ident)*]) => {{
        define!(@operands $recorder inputs $g $($input)*; params $($param)*);
        let id = $gradient.id();
        Some($recorder.finish(inputs, params, &[id]))
    }};
    (@beside_numbers $recorder:ident $other:tt $inputs:tt $params:tt) => { None };
    (@method $(#[$doc:meta])* $name:ident [] $params:tt $result:ident) => {};
    (@method $(#[$doc:meta])* $name:ident [$first:ident $($input:ident)*] [$($param:ident)*] $result:ident) => {
        $(#[$doc])*
        pub fn $name(
            self $(, $input: impl IntoExpr<'r>)* $(, $param: impl IntoExpr<'r>)*
        ) -> define!(@value $result) {
            rows::$name(self $(, $input.into_expr(self.recorder()))* $(, $param.into_expr(self.recorder()))*)
        }
    };
}
crate::for_each_pointwise!(define);

/// Are bounds in order? Where they are equal they still have a side each.
fn in_order<'r>(min: Expr<'r>, max: Expr<'r>) -> Mask<'r> {
    if fault!(equal_bounds_are_nobodys) {
        return min.lt(max);
    }
    min.le(max)
}

impl Pointwise {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        self.row().name.trim_end_matches('_')
    }

    /// The op of that name (PyTorch's).
    pub fn from_name(name: &str) -> Option<Pointwise> {
        Pointwise::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Does it take this dtype without conversion?
    pub fn takes(self, dtype: DType) -> bool {
        self.row().types.take(dtype)
    }

    /// The dtype that inputs are converted to whose promoted dtype is `promoted`; none if the op refuses it.
    ///
    /// ```
    /// use raddle_base::DType::*;
    /// use raddle_op::Pointwise;
    /// assert_eq!(Pointwise::exp.operand_dtype(I64), Some(F32));
    /// assert_eq!(Pointwise::sub.operand_dtype(Bool), None);
    /// ```
    pub fn operand_dtype(self, promoted: DType) -> Option<DType> {
        let converted = match self.row().types {
            Types::Float if !promoted.is_float() => DType::F32,
            Types::Counted if promoted == DType::Bool => DType::I64,
            _ => promoted,
        };
        self.takes(converted).then_some(converted)
    }

    /// The dtype of the result for inputs whose promoted dtype is `promoted`; none if the op refuses it.
    pub fn result_dtype(self, promoted: DType) -> Option<DType> {
        let operand = self.operand_dtype(promoted)?;
        Some(match self.row().result {
            ResultType::Same => operand,
            ResultType::Bool => DType::Bool,
        })
    }

    /// Is the input a truth value, which has no part in promotion and no gradient?
    pub fn is_condition(self, input: usize) -> bool {
        self.row().inputs[input] == "condition"
    }

    /// Where [`Row::domain`] holds, for this input: a weight is between 0 and 1, for outside of that the result is a
    /// difference of large numbers.
    pub fn domain_of(self, input: usize) -> (f64, f64) {
        if self.row().inputs[input] == "weight" { (0.0, 1.0) } else { self.row().domain }
    }

    /// Has the result a gradient by this input?
    pub fn is_differentiable_by(self, input: usize) -> bool {
        self.row().differentiable && !self.is_condition(input)
    }

    /// The recorded body.
    pub fn program(self) -> &'static Program {
        self.program_with(0)
    }

    /// The body where some inputs are scalars: see [`Program::with_scalars`].
    ///
    /// ```
    /// use raddle_op::{Pointwise, Program};
    /// let halve = Pointwise::div.program_with(0b10);
    /// assert_eq!(*halve, Program::record_many(|[x], [y]| [x / y]));
    /// ```
    pub fn program_with(self, scalars: usize) -> &'static Program {
        self.programs().forward[scalars].get_or_init(|| match scalars {
            0 => self.record(),
            scalars => self.program().with_scalars(scalars),
        })
    }
}
