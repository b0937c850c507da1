//! Several instructions in one loop: what lies between them never leaves the processor.
//!
//! A loop of one instruction stores a block that the next one loads again, and of a program of cheap instructions most of the
//! time goes into that. So the expressions over floats that programs are full of ([`Shape`]) have loops of their own. Such a
//! loop reads a cache line of each operand, computes, and writes a line; therefore, unlike other loops, it may write where
//! it reads. Each instruction is rounded as if it were alone: the bits are the same.

use super::block::LINE_BYTES;
use super::level::Level;
use raddle_base::DType;
use raddle_op::{Binary, Id, Inst, Unary};
use std::ops::{Add, Div, Mul, Sub};

/// Operands of a shape at most.
pub const LEAVES_MAX: usize = 6;

/// A loop: `out`, its operands, which of them are a line for all elements (by bits, from the lowest), how many elements.
pub type FusedFn = unsafe fn(out: *mut u8, operands: [*const u8; LEAVES_MAX], lines: u32, count: usize);

/// An expression.
#[derive(Debug)]
pub enum Tree {
    /// An operand.
    Leaf(usize),
    /// Of one value.
    Unary(Unary, &'static Tree),
    /// Of two.
    Binary(Binary, &'static Tree, &'static Tree),
}

/// An expression with its loops.
#[derive(Debug)]
pub struct Shape {
    /// Which.
    pub tree: &'static Tree,
    f32: fn(Level) -> FusedFn,
    f64: fn(Level) -> FusedFn,
}

impl Shape {
    /// Its loop.
    pub fn at(&self, compute: DType, level: Level) -> FusedFn {
        if compute == DType::F32 { (self.f32)(level) } else { (self.f64)(level) }
    }
}

/// The expressions, and the code that computes them.
macro_rules! shapes {
    ($names:tt $($leaves:literal $tree:tt)*) => {
        /// Those that do most in one loop come first.
        pub static SHAPES: &[Shape] = &[$({
            struct Body;
            impl Expression for Body {
                const LEAVES: usize = $leaves;
                #[inline(always)]
                #[allow(unused_variables, reason = "shapes of fewer operands")]
                fn of<T: Float>(shapes!(@names $names): [T; LEAVES_MAX]) -> T {
                    shapes!(@code $tree)
                }
            }
            Shape { tree: shapes!(@tree $tree), f32: at::<Body, f32, 16>, f64: at::<Body, f64, 8> }
        }),*];
    };
    (@names [$($name:ident)*]) => { [$($name),*] };
    (@code (add $x:tt $y:tt)) => { shapes!(@code $x) + shapes!(@code $y) };
    (@code (sub $x:tt $y:tt)) => { shapes!(@code $x) - shapes!(@code $y) };
    (@code (mul $x:tt $y:tt)) => { shapes!(@code $x) * shapes!(@code $y) };
    (@code (div $x:tt $y:tt)) => { shapes!(@code $x) / shapes!(@code $y) };
    (@code (sqrt $x:tt)) => { shapes!(@code $x).root() };
    (@code $leaf:ident) => { $leaf };
    (@tree (sqrt $x:tt)) => { &Tree::Unary(Unary::Sqrt, shapes!(@tree $x)) };
    (@tree ($op:ident $x:tt $y:tt)) => { &Tree::Binary(shapes!(@op $op), shapes!(@tree $x), shapes!(@tree $y)) };
    (@tree a) => { &Tree::Leaf(0) };
    (@tree b) => { &Tree::Leaf(1) };
    (@tree c) => { &Tree::Leaf(2) };
    (@tree d) => { &Tree::Leaf(3) };
    (@tree e) => { &Tree::Leaf(4) };
    (@tree f) => { &Tree::Leaf(5) };
    (@op add) => { Binary::Add };
    (@op sub) => { Binary::Sub };
    (@op mul) => { Binary::Mul };
    (@op div) => { Binary::Div };
}

shapes! { [a b c d e f]
    6 (sub f (div (mul a b) (add (mul (sqrt c) d) e)))
    5 (add (mul a b) (mul c (mul d e)))
    4 (add (mul a b) (mul c d))
    4 (sub (mul a b) (mul c d))
    4 (add d (mul (mul a b) c))
    4 (sub d (mul (mul a b) c))
    4 (add d (div (mul a b) c))
    4 (sub d (div (mul a b) c))
    4 (add d (mul a (sub b c)))
    4 (mul a (sub b (mul c d)))
    4 (mul (mul a b) (sub c d))
    3 (add (mul (sqrt a) b) c)
    3 (add (mul a b) c)
    3 (sub (mul a b) c)
    3 (sub c (mul a b))
    3 (mul (add a b) c)
    3 (mul (sub a b) c)
    3 (mul (mul a b) c)
    3 (div (mul a b) c)
    3 (add (add a b) c)
}

/// What a shape computes.
trait Expression {
    /// Operands that there are.
    const LEAVES: usize;
    /// The value.
    fn of<T: Float>(operands: [T; LEAVES_MAX]) -> T;
}

trait Float: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> {
    const ONE: Self;
    fn root(self) -> Self;
}
macro_rules! float { ($($t:ty),*) => { $(impl Float for $t {
    const ONE: $t = 1.0;
    #[inline(always)]
    fn root(self) -> $t { self.sqrt() }
})* }; }
float!(f32, f64);

/// # Safety
/// - `out` is `count` elements long, and so are the operands that there are, but those that are a line for all: these are
///   [`LINE_BYTES`] long. All are aligned to their elements.
/// - An operand that meets `out` is `out`.
#[inline(always)]
unsafe fn run<E: Expression, T: Float, const N: usize>(
    out: *mut u8,
    operands: [*const u8; LEAVES_MAX],
    lines: u32,
    count: usize,
) {
    const { assert!(N * size_of::<T>() == LINE_BYTES) };
    let out: *mut T = out.cast();
    let step = |operand: usize| if lines >> operand & 1 == 1 { 0 } else { N };
    for line in 0..count / N {
        // SAFETY: as of this function; a whole line is left of what isn't one for all, and what lies at `out` is read before.
        unsafe {
            let read = |operand: usize| match operand < E::LEAVES {
                true => operands[operand].cast::<T>().add(line * step(operand)).cast::<[T; N]>().read(),
                false => [T::ONE; N],
            };
            let result = line_of::<E, T, N>([read(0), read(1), read(2), read(3), read(4), read(5)]);
            out.add(line * N).cast::<[T; N]>().write(result);
        }
    }
    let (done, left) = (count / N, count % N);
    if left > 0 {
        let read = |operand: usize| {
            let mut line = [T::ONE; N];
            if operand < E::LEAVES {
                // SAFETY: as of this function; so many are left, and a line has no fewer.
                unsafe {
                    let from = operands[operand].cast::<T>().add(done * step(operand));
                    line.as_mut_ptr().copy_from_nonoverlapping(from, left);
                }
            }
            line
        };
        let result = line_of::<E, T, N>([read(0), read(1), read(2), read(3), read(4), read(5)]);
        // SAFETY: as of this function.
        unsafe { out.add(done * N).copy_from_nonoverlapping(result.as_ptr(), left) };
    }
}

/// Written as the compiler makes one instruction of a level of it, and not sixteen.
#[inline(always)]
fn line_of<E: Expression, T: Float, const N: usize>(lines: [[T; N]; LEAVES_MAX]) -> [T; N] {
    let [a, b, c, d, e, f] = lines;
    let mut result = [T::ONE; N];
    for i in 0..N {
        result[i] = E::of([a[i], b[i], c[i], d[i], e[i], f[i]]);
    }
    result
}

fn at<E: Expression, T: Float, const N: usize>(level: Level) -> FusedFn {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt")]
    unsafe fn v3<E: Expression, T: Float, const N: usize>(
        out: *mut u8,
        operands: [*const u8; LEAVES_MAX],
        lines: u32,
        count: usize,
    ) {
        // SAFETY: as of `run`.
        unsafe { run::<E, T, N>(out, operands, lines, count) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
    )]
    unsafe fn v4<E: Expression, T: Float, const N: usize>(
        out: *mut u8,
        operands: [*const u8; LEAVES_MAX],
        lines: u32,
        count: usize,
    ) {
        // SAFETY: as of `run`.
        unsafe { run::<E, T, N>(out, operands, lines, count) }
    }
    match level {
        Level::Baseline => run::<E, T, N>,
        #[cfg(target_arch = "x86_64")]
        Level::V3 => v3::<E, T, N>,
        #[cfg(target_arch = "x86_64")]
        Level::V4 => v4::<E, T, N>,
    }
}

/// A part of a program as one loop.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// As what.
    pub shape: &'static Shape,
    /// Its operands; those that there are.
    pub leaves: [Option<Id>; LEAVES_MAX],
}

/// The first shape that the value of `root` has, if what lies between may be left out where `is_inner` says so; those values are
/// given to `left_out`.
pub fn find(
    insts: &[Inst],
    root: Id,
    is_inner: impl Fn(Id) -> bool,
    mut left_out: impl FnMut(Id),
) -> Option<Match> {
    SHAPES.iter().find_map(|shape| {
        let mut found =
            Found { insts, is_inner: &is_inner, leaves: [None; LEAVES_MAX], inner: [None; LEAVES_MAX] };
        if !found.has(root, shape.tree, true) {
            return None;
        }
        found.inner.into_iter().flatten().for_each(&mut left_out);
        Some(Match { shape, leaves: found.leaves })
    })
}

/// How far a tree has been found in a program.
struct Found<'a, F> {
    insts: &'a [Inst],
    is_inner: &'a F,
    leaves: [Option<Id>; LEAVES_MAX],
    inner: [Option<Id>; LEAVES_MAX],
}

impl<F: Fn(Id) -> bool> Found<'_, F> {
    fn has(&mut self, id: Id, tree: &Tree, is_root: bool) -> bool {
        if let Tree::Leaf(leaf) = *tree {
            self.leaves[leaf] = Some(id);
            return true;
        }
        if !is_root {
            if !(self.is_inner)(id) {
                return false;
            }
            let free = self.inner.iter_mut().find(|inner| inner.is_none());
            *free.expect("cpu: a shape of more values than that") = Some(id);
        }
        match (self.insts[id.0 as usize], tree) {
            (Inst::Unary(op, a), Tree::Unary(wanted, x)) => op == *wanted && self.has(a, x, false),
            (Inst::Binary(op, a, b), Tree::Binary(wanted, x, y)) => {
                if op != *wanted {
                    return false;
                }
                let before = (self.leaves, self.inner);
                if self.has(a, x, false) && self.has(b, y, false) {
                    return true;
                }
                // A sum and a product are the same the other way round.
                (self.leaves, self.inner) = before;
                matches!(op, Binary::Add | Binary::Mul) && self.has(b, x, false) && self.has(a, y, false)
            }
            _ => false,
        }
    }
}
