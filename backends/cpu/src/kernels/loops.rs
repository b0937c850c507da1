//! The loops of the instructions: one for each operation, compute dtype and level, over packed elements.
//!
//! A loop writes `out[i]` from `a[i]`, `b[i]`, `c[i]`; an operand may instead be one element for all `i` (see [`Single`]).
//! Truth values ("masks") are unsigned integers as wide as the numbers, all bits set or none, so that choosing is bit
//! arithmetic in lanes of one width. In `bool`, numbers are the bytes 0 and 1, and stay so: `+` is or, `*` is and.

use super::level::{Level, Loop, LoopFn, at, in_slice, map1, out_slice};
use super::math;
use raddle_base::DType;
use raddle_op::{Binary, Compare, Logic, Unary};
use std::{marker::PhantomData, mem::MaybeUninit};

/// Which of two operands is one element for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// Both are as long as the output.
    None,
    /// The first is one element.
    First,
    /// The second is one element.
    Second,
}

/// Element from two elements.
pub trait Map2 {
    /// Of the first operand.
    type A: Copy;
    /// Of the second operand.
    type B: Copy;
    /// Of the result.
    type R: Copy;
    /// The function.
    fn f(a: Self::A, b: Self::B) -> Self::R;
}

/// The loop of a [`Map2`]; `A1`, `B1`: is that operand one element?
pub struct Loop2<F, const A1: bool, const B1: bool>(PhantomData<F>);
/// `mask ? yes : no`, by the bits; `Y1`, `N1`: is that operand one element?
struct Select<M, const Y1: bool, const N1: bool>(PhantomData<M>);
/// One element to all.
struct Splat<T>(PhantomData<T>);
/// A copy; the only loop that may write what it reads.
struct Copied<T>(PhantomData<T>);

impl<F: Map2, const A1: bool, const B1: bool> Loop for Loop2<F, A1, B1> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, b: *const u8, _: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`; single operands are one element.
        let (out, a, b) = unsafe {
            (out_slice::<F::R>(out, count), in_slice::<F::A>(a, count, A1), in_slice::<F::B>(b, count, B1))
        };
        if A1 {
            let a = a[0];
            for (out, b) in out.iter_mut().zip(b) {
                out.write(F::f(a, *b));
            }
        } else if B1 {
            let b = b[0];
            for (out, a) in out.iter_mut().zip(a) {
                out.write(F::f(*a, b));
            }
        } else {
            for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
                out.write(F::f(*a, *b));
            }
        }
    }
}

impl<M: MaskBits, const Y1: bool, const N1: bool> Loop for Select<M, Y1, N1> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, mask: *const u8, yes: *const u8, no: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`; single operands are one element.
        let (out, mask, yes, no) = unsafe {
            (
                out_slice::<M>(out, count),
                in_slice::<M>(mask, count, false),
                in_slice::<M>(yes, count, Y1),
                in_slice::<M>(no, count, N1),
            )
        };
        let (yes_first, no_first) = (yes[0], no[0]);
        for (i, out) in out.iter_mut().enumerate() {
            // SAFETY: `i` is below `count`, and so inside of what isn't single.
            let (mask, yes, no) = unsafe {
                (
                    *mask.get_unchecked(i),
                    if Y1 { yes_first } else { *yes.get_unchecked(i) },
                    if N1 { no_first } else { *no.get_unchecked(i) },
                )
            };
            out.write(if mask != M::FALSE { yes } else { no });
        }
    }
}

impl<T: Copy> Loop for Splat<T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, _: *const u8, _: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`; `a` is one element.
        let (out, a) = unsafe { (out_slice::<T>(out, count), a.cast::<T>().read()) };
        out.fill(MaybeUninit::new(a));
    }
}

impl<T: Copy> Loop for Copied<T> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, _: *const u8, _: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`; it may be the same memory.
        unsafe { out.copy_from(a, count * size_of::<T>()) }
    }
}

/// The integers that masks are made of.
trait MaskBits: Copy + PartialEq {
    /// No bit set.
    const FALSE: Self;
    /// All bits set.
    const TRUE: Self;
}
macro_rules! mask_bits { ($($t:ty),*) => { $(impl MaskBits for $t { const FALSE: $t = 0; const TRUE: $t = !0; })* }; }
mask_bits!(u8, u32, u64);

/// The loop of a function of two operands, written in place; with the variants of [`Single`], or without.
macro_rules! map2 {
    (@function $a:ty => $r:ty, |$x:ident, $y:ident| $body:expr) => {
        struct F;
        impl Map2 for F {
            type A = $a;
            type B = $a;
            type R = $r;
            #[inline(always)]
            fn f($x: $a, $y: $a) -> $r {
                $body
            }
        }
    };
    ($level:expr, $single:expr, $a:ty => $r:ty, |$x:ident, $y:ident| $body:expr) => {{
        map2!(@function $a => $r, |$x, $y| $body);
        match $single {
            Single::None => at::<Loop2<F, false, false>>($level),
            Single::First => at::<Loop2<F, true, false>>($level),
            Single::Second => at::<Loop2<F, false, true>>($level),
        }
    }};
    ($level:expr, $a:ty => $r:ty, |$x:ident, $y:ident| $body:expr) => {{
        map2!(@function $a => $r, |$x, $y| $body);
        at::<Loop2<F, false, false>>($level)
    }};
}

/// Picks by the size of an element.
macro_rules! by_size {
    ($size:expr, $t:ident => $body:expr) => {
        match $size {
            1 => {
                type $t = u8;
                $body
            }
            2 => {
                type $t = u16;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            8 => {
                type $t = u64;
                $body
            }
            size => unreachable!("no dtype has elements of {size} bytes"),
        }
    };
}
pub(crate) use by_size;

/// Picks by the width of masks.
macro_rules! by_mask {
    ($compute:expr, $t:ident => $body:expr) => {
        match $compute.size_bytes() {
            1 => {
                type $t = u8;
                $body
            }
            4 => {
                type $t = u32;
                $body
            }
            _ => {
                type $t = u64;
                $body
            }
        }
    };
}

/// Copies elements of this size.
pub fn copied(size_bytes: usize, level: Level) -> LoopFn {
    by_size!(size_bytes, T => at::<Copied<T>>(level))
}

/// Writes one element of this size everywhere.
pub fn splat(size_bytes: usize, level: Level) -> LoopFn {
    by_size!(size_bytes, T => at::<Splat<T>>(level))
}

/// `a ? b : c`; `a` is a mask, `yes` and `no` tell whether `b` and `c` are one element.
pub fn select(compute: DType, yes: bool, no: bool, level: Level) -> LoopFn {
    by_mask!(compute, M => match (yes, no) {
        (false, false) => at::<Select<M, false, false>>(level),
        (false, true) => at::<Select<M, false, true>>(level),
        (true, false) => at::<Select<M, true, false>>(level),
        (true, true) => at::<Select<M, true, true>>(level),
    })
}

/// Masks from masks.
pub fn logic(op: Logic, compute: DType, level: Level) -> LoopFn {
    by_mask!(compute, M => match op {
        Logic::And => map2!(level, M => M, |a, b| a & b),
        Logic::Or => map2!(level, M => M, |a, b| a | b),
        Logic::Xor => map2!(level, M => M, |a, b| a ^ b),
    })
}

/// The other truth value.
pub fn not(compute: DType, level: Level) -> LoopFn {
    by_mask!(compute, M => map1!(level, M => M, |a| !a))
}

/// The byte 1 or 0 from a mask.
pub fn mask_to_byte(compute: DType, level: Level) -> LoopFn {
    by_mask!(compute, M => map1!(level, M => u8, |a| u8::from(a != M::FALSE)))
}

/// Picks by the compute dtype; `bool` computes in bytes.
macro_rules! by_compute {
    ($compute:expr, $t:ident => $body:expr) => {
        match $compute {
            DType::F32 => {
                type $t = f32;
                $body
            }
            DType::F64 => {
                type $t = f64;
                $body
            }
            DType::I64 => {
                type $t = i64;
                $body
            }
            DType::I32 => {
                type $t = i32;
                $body
            }
            DType::U8 | DType::Bool => {
                type $t = u8;
                $body
            }
            other => unreachable!("nothing computes in {other}"),
        }
    };
}

/// The number 1 or 0 from a mask.
pub fn from_mask(compute: DType, level: Level) -> LoopFn {
    by_mask!(compute, M => by_compute!(compute, T => map1!(level, M => T, |a| u8::from(a != M::FALSE) as T)))
}

/// Masks from numbers.
pub fn compare(op: Compare, compute: DType, single: Single, level: Level) -> LoopFn {
    macro_rules! each {
        ($t:ty, $m:ty) => {
            match op {
                Compare::Eq => map2!(level, single, $t => $m, |a, b| if a == b { <$m>::TRUE } else { <$m>::FALSE }),
                Compare::Ne => map2!(level, single, $t => $m, |a, b| if a != b { <$m>::TRUE } else { <$m>::FALSE }),
                Compare::Lt => map2!(level, single, $t => $m, |a, b| if a < b { <$m>::TRUE } else { <$m>::FALSE }),
                Compare::Le => map2!(level, single, $t => $m, |a, b| if a <= b { <$m>::TRUE } else { <$m>::FALSE }),
            }
        };
    }
    match compute {
        DType::F32 => each!(f32, u32),
        DType::F64 => each!(f64, u64),
        DType::I64 => each!(i64, u64),
        DType::I32 => each!(i32, u32),
        _ => each!(u8, u8),
    }
}

/// Can this operation take a single operand as it is? Others get it written out.
pub fn has_single(op: Binary, compute: DType) -> bool {
    use Binary::*;
    matches!(op, Add | Sub | Mul | Div | Min | Max) && compute != DType::Bool
}

/// Numbers from numbers. `single` is `None` where [`has_single`] is false.
pub fn binary(op: Binary, compute: DType, single: Single, level: Level) -> LoopFn {
    use Binary::*;
    macro_rules! float {
        ($t:ident) => {
            match op {
                Add => map2!(level, single, $t => $t, |a, b| a + b),
                Sub => map2!(level, single, $t => $t, |a, b| a - b),
                Mul => map2!(level, single, $t => $t, |a, b| a * b),
                Div => map2!(level, single, $t => $t, |a, b| a / b),
                Min => map2!(level, single, $t => $t, |a, b| math::$t::smaller(a, b)),
                Max => map2!(level, single, $t => $t, |a, b| math::$t::larger(a, b)),
                // These three are library calls or long: no level makes more of them.
                Rem => map2!(Level::Baseline, $t => $t, |a, b| a % b),
                Pow => map2!(level, $t => $t, |a, b| math::$t::pow(a, b)),
                Atan2 => map2!(level, $t => $t, |a, b| math::$t::atan2(a, b)),
                // No row has these on floats; a fused closure may: then on the integer parts.
                BitAnd => map2!(Level::Baseline, $t => $t, |a, b| (a as i64 & b as i64) as $t),
                BitOr => map2!(Level::Baseline, $t => $t, |a, b| (a as i64 | b as i64) as $t),
                BitXor => map2!(Level::Baseline, $t => $t, |a, b| (a as i64 ^ b as i64) as $t),
                Shl => map2!(Level::Baseline, $t => $t, |a, b| shift!(left i64, a as i64, b as i64) as $t),
                Shr => map2!(Level::Baseline, $t => $t, |a, b| shift!(right i64, a as i64, b as i64) as $t),
            }
        };
    }
    macro_rules! shift {
        (left $t:ty, $a:expr, $b:expr) => {{
            let (a, b) = ($a, $b);
            if (0..<$t>::BITS as i64).contains(&(b as i64)) { a << (b as u32 % <$t>::BITS) } else { 0 }
        }};
        // A shift by all bits but one leaves the sign (0 of unsigned after one more).
        (right $t:ty, $a:expr, $b:expr) => {{
            let (a, b) = ($a, $b);
            let inside = (0..<$t>::BITS as i64).contains(&(b as i64));
            let shifted = a >> (if inside { b as u32 } else { <$t>::BITS - 1 });
            if inside || <$t>::MIN != 0 { shifted } else { 0 }
        }};
    }
    macro_rules! int {
        ($t:ty) => {
            match op {
                Add => map2!(level, single, $t => $t, |a, b| a.wrapping_add(b)),
                Sub => map2!(level, single, $t => $t, |a, b| a.wrapping_sub(b)),
                Mul => map2!(level, single, $t => $t, |a, b| a.wrapping_mul(b)),
                Div => map2!(level, single, $t => $t, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
                Rem => map2!(Level::Baseline, $t => $t, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
                Min => map2!(level, single, $t => $t, |a, b| a.min(b)),
                Max => map2!(level, single, $t => $t, |a, b| a.max(b)),
                BitAnd => map2!(level, $t => $t, |a, b| a & b),
                BitOr => map2!(level, $t => $t, |a, b| a | b),
                BitXor => map2!(level, $t => $t, |a, b| a ^ b),
                Shl => map2!(level, $t => $t, |a, b| shift!(left $t, a, b)),
                Shr => map2!(level, $t => $t, |a, b| shift!(right $t, a, b)),
                Pow => map2!(Level::Baseline, $t => $t, |a, b| int_pow!($t, a, b)),
                Atan2 => map2!(Level::Baseline, $t => $t, |a, b| (a as f64).atan2(b as f64) as $t),
            }
        };
    }
    // Of a negative power only 1 and -1 have an integer part (and 0 gives 0, as a division by it does).
    macro_rules! int_pow {
        ($t:ty, $a:expr, $b:expr) => {{
            let (base, power) = ($a as i64, $b as i64);
            (match (power >= 0, base) {
                (true, _) => wrapping_pow(base, power as u64),
                (false, 1) => 1,
                (false, -1) => 1 - 2 * (power & 1),
                (false, _) => 0,
            }) as $t
        }};
    }
    match compute {
        DType::F32 => float!(f32),
        DType::F64 => float!(f64),
        DType::I64 => int!(i64),
        DType::I32 => int!(i32),
        DType::U8 => int!(u8),
        // Numbers stay 0 and 1.
        _ => match op {
            Add | Max => binary(BitOr, DType::U8, Single::None, level),
            Mul | Min => binary(BitAnd, DType::U8, Single::None, level),
            Sub => binary(BitXor, DType::U8, Single::None, level),
            Shl => map2!(level, u8 => u8, |a, b| a & !b),
            _ => binary(op, DType::U8, single, level),
        },
    }
}

/// Modulo 2^64, so that the lower bits are those of the narrower types.
fn wrapping_pow(mut base: i64, mut power: u64) -> i64 {
    let mut product = 1i64;
    while power > 0 {
        if power & 1 == 1 {
            product = product.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        power >>= 1;
    }
    product
}

/// Numbers from numbers.
pub fn unary(op: Unary, compute: DType, level: Level) -> LoopFn {
    use Unary::*;
    macro_rules! int {
        ($t:ident, |$x:ident| $abs:expr) => {
            match op {
                Neg => map1!(level, $t => $t, |x| x.wrapping_neg()),
                Abs => map1!(level, $t => $t, |$x| $abs),
                BitNot => map1!(level, $t => $t, |x| !x),
                Floor | Ceil | Round | Trunc => copied(size_of::<$t>(), level),
                // Rows convert to floats first; a fused closure may not: then through f64.
                Sqrt => map1!(Level::Baseline, $t => $t, |x| (x as f64).sqrt() as $t),
                Exp => map1!(Level::Baseline, $t => $t, |x| (x as f64).exp() as $t),
                Expm1 => map1!(Level::Baseline, $t => $t, |x| (x as f64).exp_m1() as $t),
                Log => map1!(Level::Baseline, $t => $t, |x| (x as f64).ln() as $t),
                Log1p => map1!(Level::Baseline, $t => $t, |x| (x as f64).ln_1p() as $t),
                Log2 => map1!(Level::Baseline, $t => $t, |x| (x as f64).log2() as $t),
                Log10 => map1!(Level::Baseline, $t => $t, |x| (x as f64).log10() as $t),
                Sin => map1!(Level::Baseline, $t => $t, |x| (x as f64).sin() as $t),
                Cos => map1!(Level::Baseline, $t => $t, |x| (x as f64).cos() as $t),
                Tan => map1!(Level::Baseline, $t => $t, |x| (x as f64).tan() as $t),
                Tanh => map1!(Level::Baseline, $t => $t, |x| (x as f64).tanh() as $t),
                Asin => map1!(Level::Baseline, $t => $t, |x| (x as f64).asin() as $t),
                Acos => map1!(Level::Baseline, $t => $t, |x| (x as f64).acos() as $t),
                Atan => map1!(Level::Baseline, $t => $t, |x| (x as f64).atan() as $t),
                Erf => map1!(Level::Baseline, $t => $t, |x| math::f64::erf(x as f64) as $t),
                Erfc => map1!(Level::Baseline, $t => $t, |x| math::f64::erfc(x as f64) as $t),
            }
        };
    }
    macro_rules! float {
        ($t:ident, $level:expr) => {
            match op {
                Neg => map1!(level, $t => $t, |x| -x),
                Abs => map1!(level, $t => $t, |x| x.abs()),
                Sqrt => map1!(level, $t => $t, |x| x.sqrt()),
                Floor => map1!(level, $t => $t, |x| x.floor()),
                Ceil => map1!(level, $t => $t, |x| x.ceil()),
                Round => map1!(level, $t => $t, |x| x.round_ties_even()),
                Trunc => map1!(level, $t => $t, |x| x.trunc()),
                BitNot => map1!(Level::Baseline, $t => $t, |x| !(x as i64) as $t),
                Exp => map1!($level, $t => $t, |x| math::$t::exp(x)),
                Expm1 => map1!($level, $t => $t, |x| math::$t::expm1(x)),
                Log => map1!($level, $t => $t, |x| math::$t::log(x)),
                Log1p => map1!($level, $t => $t, |x| math::$t::log1p(x)),
                Log2 => map1!($level, $t => $t, |x| math::$t::log2(x)),
                Log10 => map1!($level, $t => $t, |x| math::$t::log10(x)),
                Sin => math::$t::sin_loop($level),
                Cos => math::$t::cos_loop($level),
                Tan => math::$t::tan_loop($level),
                Tanh => map1!($level, $t => $t, |x| math::$t::tanh(x)),
                Asin => map1!($level, $t => $t, |x| math::$t::asin(x)),
                Acos => map1!($level, $t => $t, |x| math::$t::acos(x)),
                Atan => map1!($level, $t => $t, |x| math::$t::atan(x)),
                Erf => map1!($level, $t => $t, |x| math::$t::erf(x)),
                Erfc => map1!($level, $t => $t, |x| math::$t::erfc(x)),
            }
        };
    }
    match compute {
        DType::F32 => float!(f32, level),
        // Library calls: no level makes more of them.
        DType::F64 => float!(f64, Level::Baseline),
        DType::I64 => int!(i64, |x| x.wrapping_abs()),
        DType::I32 => int!(i32, |x| x.wrapping_abs()),
        DType::U8 => int!(u8, |x| x),
        _ => match op {
            BitNot => map1!(level, u8 => u8, |x| x ^ 1),
            Neg => copied(1, level),
            _ => unary(op, DType::U8, level),
        },
    }
}
