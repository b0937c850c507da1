//! The op table. One row a pointwise op: doc, operands, dtypes, accuracy, test domain, derivative, body.
//!
//! `for_each_pointwise!` hands all rows to a macro, so that the enum here, the tensor methods, the tests and the table in
//! the docs are made from them. To add an op, add a row; nothing else.
//!
//! A row reads `name(inputs; scalar parameters) { types, result, ulp, domain, derivative, body }`:
//! - `types`: `All`, `Number` (no bool), `Bits` (integers and bool), `Int` (integers), `Float` (integers are converted to
//!   f32 first, as PyTorch does);
//! - `result`: `Same` (the promoted dtype) or `Bool`;
//! - `ulp`: the largest error in units of the last place against an f64 oracle, in f32 and f64 within the domain;
//! - `derivative`: `derived` from the body, `none`, or `[..]`: for each input the factor of the output's gradient `g`;
//! - an input called `condition` is bool and takes no part in promotion.

use crate::{
    Program,
    expr::{Recorded, Recorder},
};
use raddle_base::DType;
use std::sync::OnceLock;

/// Which dtypes an op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// Every dtype.
    All,
    /// Every dtype but bool.
    Number,
    /// Integers and bool.
    Bits,
    /// Integers.
    Int,
    /// Floats; others are converted to f32.
    Float,
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
    /// PyTorch's name.
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

/// Hands all rows to a macro.
#[macro_export]
macro_rules! for_each_pointwise {
    ($callback:path) => { $callback! {
        /// `x + y`. Of bools: or.
        add(x, y;) { types: All, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x + y }
        /// `x - y`.
        sub(x, y;) { types: Number, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x - y }
        /// `x * y`. Of bools: and.
        mul(x, y;) { types: All, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x * y }
        /// `x / y`; integers are converted to f32 first.
        div(x, y;) { types: Float, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x / y }
        /// `eˣ`.
        exp(x;) { types: Float, result: Same, ulp: 2.0, domain: -80.0..80.0, derivative: derived, body: x.exp() }
        /// `max(x, 0)`; NaN stays. The derivative at 0 is 0.
        relu(x;) { types: Number, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: x.le(0.0).select(0.0, x) }
        /// `x + value · a · b`.
        addcmul(x, a, b; value) { types: Number, result: Same, ulp: 2.0, domain: -10.0..10.0, derivative: derived, body: x + value * a * b }
        /// `condition ? x : y`.
        where_(condition, x, y;) { types: All, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: condition.truth().select(x, y) }
        /// `x > y`.
        gt(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.gt(y) }
        /// The first input, in the dtype of the result: copy and cast.
        copy(x;) { types: All, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: x }
    } };
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
                match self { $(Pointwise::$name => {
                    static ROW: Row = Row {
                        name: stringify!($name),
                        doc: concat!($($doc, "\n"),*),
                        inputs: &[$(stringify!($input)),*],
                        params: &[$(stringify!($param)),*],
                        types: Types::$types,
                        result: ResultType::$result,
                        ulp: $ulp,
                        domain: ($low, $high),
                        differentiable: define!(@differentiable $derivative),
                    };
                    &ROW
                }),* }
            }

            /// The recorded body.
            pub fn program(self) -> &'static Program {
                match self { $(Pointwise::$name => {
                    static PROGRAM: OnceLock<Program> = OnceLock::new();
                    PROGRAM.get_or_init(|| {
                        let recorder = Recorder::default();
                        let mut inputs = 0;
                        $(let $input = recorder.input(inputs); inputs += 1;)*
                        #[allow(unused_mut, reason = "most rows have no parameters")]
                        let mut params = 0;
                        $(let $param = recorder.param(params); params += 1;)*
                        let id = Recorded::id(&$body);
                        recorder.finish(inputs, params, &[id])
                    })
                }),* }
            }
        }
    };
    (@differentiable none) => { false };
    (@differentiable $other:tt) => { true };
}
for_each_pointwise!(define);

impl Pointwise {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        self.row().name.trim_end_matches('_')
    }

    /// Does it take this dtype without conversion?
    pub fn takes(self, dtype: DType) -> bool {
        match self.row().types {
            Types::All => true,
            Types::Number => dtype != DType::Bool,
            Types::Bits => !dtype.is_float(),
            Types::Int => dtype.is_int(),
            Types::Float => dtype.is_float(),
        }
    }
}
