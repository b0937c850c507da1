//! Programs as source text, in CUDA C and in the Metal shading language.
//!
//! [`body`] writes straight-line statements, one constant an instruction, between names that the caller gives: how
//! elements are found, loaded, converted and stored is the backend's. [`prelude`] holds what the statements call and the
//! language lacks. Both depend on the compute dtype, which must be one ([`DType::compute`]).
//!
//! The text means what [`program`](crate::program) says, to the last special case: signed arithmetic goes through unsigned
//! types, for in C its overflow means nothing; integer division has no trap; shifts are bounded; `Min` and `Max` keep NaN, and -0 is
//! below 0.
//! Literals are written with all their digits. To get the CPU's bits in `a * b + c`, compile without contraction
//! (NVRTC's `--fmad=false`) and without fast math.

use crate::program::{Binary, Compare, Id, Inst, Logic, Program, Unary};
use raddle_base::{DType, Scalar};
use std::fmt::Write;

/// The language of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// CUDA C++, the part that is also C.
    Cuda,
    /// Metal shading language 3.
    Metal,
}

/// What the caller has a name for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An input: an expression of the compute type ([`type_name`]); of bool 0 or 1.
    Input(usize),
    /// A parameter, likewise.
    Param(usize),
    /// An output: something that can be assigned a number of the compute type, or 0 or 1 if it is a truth value.
    Output(usize),
}

/// The type in which a compute dtype is computed; none where the language has none (`f64` in Metal).
pub fn type_name(compute: DType, dialect: Dialect) -> Option<&'static str> {
    Types::of(compute, dialect).map(|types| types.number)
}

/// The type of the numbers of a dtype; none if the language has none.
pub fn number_type(dtype: DType, dialect: Dialect) -> Option<&'static str> {
    let [cuda, metal] = match dtype {
        DType::Bool | DType::U8 => ["unsigned char", "uchar"],
        DType::I32 => ["int"; 2],
        DType::I64 => ["long long", "long"],
        DType::F16 => ["__half", "half"],
        DType::BF16 => ["__nv_bfloat16", "bfloat"],
        DType::F32 => ["float"; 2],
        DType::F64 => ["double", ""],
    };
    let name = if dialect == Dialect::Cuda { cuda } else { metal };
    (!name.is_empty()).then_some(name)
}

#[derive(Clone, Copy)]
struct Types {
    compute: DType,
    dialect: Dialect,
    /// The type of numbers.
    number: &'static str,
    /// The type in which integers are added, so that they wrap.
    unsigned: &'static str,
}

impl Types {
    fn of(compute: DType, dialect: Dialect) -> Option<Types> {
        let number = number_type(compute, dialect)?;
        let unsigned = match (compute.size_bytes(), dialect) {
            (8, Dialect::Cuda) => "unsigned long long",
            (8, Dialect::Metal) => "ulong",
            (_, Dialect::Cuda) => "unsigned",
            (_, Dialect::Metal) => "uint",
        };
        Some(Types { compute, dialect, number, unsigned })
    }

    fn is_signed(self) -> bool {
        self.compute.integer_range().is_some_and(|(least, _)| least < 0)
    }

    fn literal(self, value: f64) -> String {
        match self.compute {
            DType::F32 if (value as f32).is_finite() => format!("{:?}f", value as f32),
            DType::F32 => {
                let bits = (value as f32).to_bits();
                match self.dialect {
                    Dialect::Cuda => format!("__int_as_float({:#x})", bits),
                    Dialect::Metal => format!("as_type<float>({bits:#x}u)"),
                }
            }
            DType::F64 if value.is_finite() => format!("{value:?}"),
            DType::F64 => format!("__longlong_as_double({:#x}ll)", value.to_bits()),
            dtype => {
                let suffix = match (dtype.size_bytes(), self.dialect) {
                    (8, Dialect::Cuda) => "ll",
                    (8, Dialect::Metal) => "l",
                    _ => "",
                };
                match dtype.round(Scalar::Float(value)).to_i64() {
                    // The least integer is an operator and a number too large.
                    least if Some(least) == dtype.integer_range().map(|(least, _)| least) && least < 0 => {
                        format!("({}{suffix} - 1)", least + 1)
                    }
                    value => format!("{value}{suffix}"),
                }
            }
        }
    }

    /// A call of a function of floats in the library.
    fn call(self, name: &str, args: &str) -> String {
        match (self.dialect, self.compute, name) {
            (Dialect::Cuda, DType::F32, _) => format!("{name}f({args})"),
            (Dialect::Cuda, ..) => format!("{name}({args})"),
            (Dialect::Metal, _, "erf" | "erfc" | "expm1" | "log1p") => format!("raddle_{name}({args})"),
            (Dialect::Metal, _, "fabs" | "floor" | "ceil" | "rint" | "trunc") => format!("{name}({args})"),
            (Dialect::Metal, ..) => format!("precise::{name}({args})"),
        }
    }

    /// Is the sign bit of a float set?
    fn is_negative(self, a: &str) -> String {
        match (self.dialect, self.compute) {
            (Dialect::Metal, _) => format!("as_type<int>({a}) < 0"),
            (Dialect::Cuda, DType::F64) => format!("__double_as_longlong({a}) < 0"),
            (Dialect::Cuda, _) => format!("__float_as_int({a}) < 0"),
        }
    }

    /// Integer arithmetic that wraps; of bool the truth of it.
    fn wrapping(self, a: &str, op: &str, b: &str) -> String {
        let Types { compute, number, unsigned, .. } = self;
        match compute {
            DType::Bool => format!("({number})((({unsigned}){a} {op} ({unsigned}){b}) != 0)"),
            _ => format!("({number})(({unsigned}){a} {op} ({unsigned}){b})"),
        }
    }

    fn unary(self, op: Unary, a: &str) -> String {
        let is_float = self.compute.is_float();
        let name = match op {
            Unary::Neg if is_float => return format!("-{a}"),
            Unary::Neg => return self.wrapping("0", "-", a),
            Unary::Abs if !is_float => {
                return match self.is_signed() {
                    true => format!("{a} < 0 ? {} : {a}", self.wrapping("0", "-", a)),
                    false => a.into(),
                };
            }
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc if !is_float => return a.into(),
            Unary::BitNot if self.compute == DType::Bool => return format!("!{a}"),
            Unary::BitNot => return format!("({})~{a}", self.number),
            Unary::Abs => "fabs",
            Unary::Sqrt => "sqrt",
            Unary::Exp => "exp",
            Unary::Expm1 => "expm1",
            Unary::Log => "log",
            Unary::Log1p => "log1p",
            Unary::Log2 => "log2",
            Unary::Log10 => "log10",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Tan => "tan",
            Unary::Tanh => "tanh",
            Unary::Asin => "asin",
            Unary::Acos => "acos",
            Unary::Atan => "atan",
            Unary::Erf => "erf",
            Unary::Erfc => "erfc",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::Round => "rint",
            Unary::Trunc => "trunc",
        };
        self.call(name, a)
    }

    fn binary(self, op: Binary, a: &str, b: &str) -> String {
        let is_float = self.compute.is_float();
        let number = self.number;
        let bits = 8 * self.compute.size_bytes();
        let operator = match op {
            Binary::Min if !is_float => return format!("{a} < {b} ? {a} : {b}"),
            Binary::Max if !is_float => return format!("{a} > {b} ? {a} : {b}"),
            // Not fmin and fmax: these drop NaN.
            Binary::Min => {
                let negative = self.is_negative(a);
                return format!("{a} < {b} || {a} != {a} || ({a} == {b} && {negative}) ? {a} : {b}");
            }
            Binary::Max => {
                let negative = self.is_negative(a);
                return format!("{a} > {b} || {a} != {a} || ({a} == {b} && !({negative})) ? {a} : {b}");
            }
            Binary::Rem if is_float => return self.call("fmod", &format!("{a}, {b}")),
            Binary::Pow if is_float => return self.call("pow", &format!("{a}, {b}")),
            Binary::Pow => return format!("raddle_pow({a}, {b})"),
            Binary::Atan2 => return self.call("atan2", &format!("{a}, {b}")),
            // The least integer by -1 overflows, which traps.
            Binary::Div if self.is_signed() => {
                let negative = self.wrapping("0", "-", a);
                return format!("{b} == 0 ? 0 : {b} == -1 ? {negative} : {a} / {b}");
            }
            Binary::Rem if self.is_signed() => return format!("{b} == 0 || {b} == -1 ? 0 : {a} % {b}"),
            Binary::Div if !is_float => return format!("{b} == 0 ? 0 : {a} / {b}"),
            Binary::Rem => return format!("{b} == 0 ? 0 : {a} % {b}"),
            Binary::Shl => return format!("{b} < 0 || {b} >= {bits} ? 0 : {}", self.wrapping(a, "<<", b)),
            Binary::Shr => {
                return format!("{b} < 0 || {b} >= {bits} ? ({number})({a} < 0 ? -1 : 0) : {a} >> {b}");
            }
            Binary::BitAnd => return format!("{a} & {b}"),
            Binary::BitOr => return format!("{a} | {b}"),
            Binary::BitXor => return format!("{a} ^ {b}"),
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
        };
        if is_float { format!("{a} {operator} {b}") } else { self.wrapping(a, operator, b) }
    }
}

/// The statements that compute `program`, one a line. None where the language has no such type.
///
/// ```
/// use raddle_op::{Pointwise, render::{Dialect, Slot, body}};
/// let name = |slot| match slot {
///     Slot::Input(index) => format!("x{index}"),
///     Slot::Param(index) => format!("p{index}"),
///     Slot::Output(index) => format!("y{index}"),
/// };
/// let text = body(Pointwise::reciprocal.program(), raddle_base::DType::F32, Dialect::Cuda, name).unwrap();
/// assert_eq!(text, "const float v0 = x0;\nconst float v1 = 1.0f;\nconst float v2 = v1 / v0;\ny0 = v2;\n");
/// ```
pub fn body(
    program: &Program,
    compute: DType,
    dialect: Dialect,
    name: impl Fn(Slot) -> String,
) -> Option<String> {
    let types = Types::of(compute, dialect)?;
    let v = |id: Id| format!("v{}", id.0);
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        text.write_fmt(arguments).expect("a string takes whatever is written to it");
    };
    for (position, inst) in program.insts().iter().enumerate() {
        let value = match *inst {
            Inst::Input(index) => name(Slot::Input(index.into())),
            Inst::Param(index) => name(Slot::Param(index.into())),
            Inst::Literal(bits) => types.literal(f64::from_bits(bits)),
            Inst::Unary(op, a) => types.unary(op, &v(a)),
            Inst::Binary(op, a, b) => types.binary(op, &v(a), &v(b)),
            Inst::Compare(op, a, b) => {
                let operator = match op {
                    Compare::Eq => "==",
                    Compare::Ne => "!=",
                    Compare::Lt => "<",
                    Compare::Le => "<=",
                };
                format!("{} {operator} {}", v(a), v(b))
            }
            Inst::Logic(op, a, b) => {
                let operator = match op {
                    Logic::And => "&&",
                    Logic::Or => "||",
                    Logic::Xor => "!=",
                };
                format!("{} {operator} {}", v(a), v(b))
            }
            Inst::Not(a) => format!("!{}", v(a)),
            Inst::Select(mask, yes, no) => format!("{} ? {} : {}", v(mask), v(yes), v(no)),
            Inst::FromMask(a) => format!("({}){}", types.number, v(a)),
        };
        let kind = if inst.is_mask() { "bool" } else { types.number };
        line(format_args!("const {kind} v{position} = {value};\n"));
    }
    for (output, &id) in program.outputs().iter().enumerate() {
        line(format_args!("{} = {};\n", name(Slot::Output(output)), v(id)));
    }
    Some(text)
}

/// What [`body`] calls and the language lacks; goes before the kernels of a source text, once for each compute dtype in it.
pub fn prelude(compute: DType, dialect: Dialect) -> String {
    match (compute, dialect) {
        (dtype, _) if dtype.is_int() => {
            let types = Types::of(compute, dialect).expect("both languages have integers");
            let qualifier = if dialect == Dialect::Cuda { "static __device__" } else { "static" };
            let negative = if types.is_signed() { NEGATIVE_POWER } else { "" };
            POW.replace("QUALIFIER", qualifier)
                .replace("NEGATIVE", negative)
                .replace("NUMBER", types.number)
                .replace("UNSIGNED", types.unsigned)
        }
        (DType::F32, Dialect::Metal) => METAL_FLOAT.into(),
        _ => String::new(),
    }
}

const POW: &str = "\
QUALIFIER NUMBER raddle_pow(NUMBER a, NUMBER b) {
NEGATIVE    UNSIGNED power = 1, square = (UNSIGNED)a;
    for (; b > 0; b >>= 1, square *= square) {
        if (b & 1) power *= square;
    }
    return (NUMBER)power;
}
";

const NEGATIVE_POWER: &str = "    if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) ? -1 : 1) : 0;\n";

/// Functions of C's math.h that Metal lacks. `expm1` and `log1p` are Kahan's, which need nothing but a good exp and log.
/// `erf` is a series without cancellation, `erfc` a continued fraction: loops, until a measurement on a device asks for
/// more. The numbers of terms are those from which f32 no longer changes at the bound, 1.
const METAL_FLOAT: &str = "\
static float raddle_expm1(float x) {
    float u = precise::exp(x);
    if (u == 1.0f) return x;
    float d = u - 1.0f;
    return d == -1.0f || isinf(u) ? d : d * (x / precise::log(u));
}
static float raddle_log1p(float x) {
    float u = 1.0f + x;
    return u == 1.0f ? x : isinf(u) ? precise::log(u) : precise::log(u) * (x / (u - 1.0f));
}
static float raddle_exp_minus_square(float x) {
    float square = x * x, rest = fma(x, x, -square);
    return isinf(square) ? 0.0f : precise::exp(-square) * (1.0f - rest);
}
static float raddle_erf_series(float x) {
    float term = x, sum = x, square = x * x;
    for (int n = 1; n < 24; n++) {
        term *= square / (n + 0.5f);
        sum += term;
    }
    return 1.1283791670955126f * raddle_exp_minus_square(x) * sum;
}
static float raddle_erfc_tail(float x) {
    float t = x;
    for (int n = 64; n > 0; n--) t = x + 0.5f * n / t;
    return 0.5641895835477563f * raddle_exp_minus_square(x) / t;
}
static float raddle_erfc(float x) {
    return x > 1.0f ? raddle_erfc_tail(x) : x < -1.0f ? 2.0f - raddle_erfc_tail(-x) : 1.0f - raddle_erf_series(x);
}
static float raddle_erf(float x) {
    return x > 1.0f ? 1.0f - raddle_erfc_tail(x) : x < -1.0f ? raddle_erfc_tail(-x) - 1.0f : raddle_erf_series(x);
}
";
