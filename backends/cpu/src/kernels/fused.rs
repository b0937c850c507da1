//! Several instructions in one loop: what lies between them never leaves the processor.
//!
//! A loop of one instruction stores a block that the next one loads again, and of a program of cheap instructions most of the
//! time goes into that. So the expressions over floats that programs are full of ([`Shape`]) have loops of their own. Such a
//! loop reads a cache line of each operand, computes, and writes a line; therefore, unlike other loops, it may write where
//! it reads. Each instruction is rounded as if it were alone: the bits are the same.
//!
//! Values on the way may be outputs as well ([`Tree::Stored`]): an optimizer's step then passes over its memory once, which the
//! processor's prefetching likes better than turns of loops with a stream or two each.

use super::block::LINE_BYTES;
use super::level::Level;
use raddle_base::DType;
use raddle_op::{Binary, Id, Inst, Unary};
use std::ops::{Add, Div, Mul, Sub};

/// Operands of a shape at most.
pub const LEAVES_MAX: usize = 11;
/// Results of a shape at most: its value, and those on the way that are outputs.
pub const RESULTS_MAX: usize = 3;
/// Values on the way at most.
const INNER_MAX: usize = 12;

/// Names a piece of memory: an index into the pointers of a block.
pub type Slot = u32;

/// A loop: the pointers of all slots, which of them it takes, how many elements.
pub type FusedFn = unsafe fn(pointers: &[*mut u8], of: &Slots, count: usize);

/// What a loop takes.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// What it writes.
    pub results: [Slot; RESULTS_MAX],
    /// What it reads.
    pub operands: [Slot; LEAVES_MAX],
    /// Which operands are a line for all elements: by bits, from the lowest.
    pub lines: u32,
}

/// An expression.
#[derive(Debug)]
pub enum Tree {
    /// An operand: the same one wherever this number stands.
    Leaf(usize),
    /// A value on the way that is an output, too: the result of this number.
    Stored(usize, &'static Tree),
    /// Of one value.
    Unary(Unary, &'static Tree),
    /// Of two.
    Binary(Binary, &'static Tree, &'static Tree),
}

/// An expression with its loops.
#[derive(Debug)]
pub struct Shape {
    /// The expression.
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
                const RESULTS: usize = shapes!(@results $tree);
                #[inline(always)]
                #[allow(unused_variables, reason = "shapes of fewer operands")]
                fn of<T: Float>(shapes!(@names $names): [T; LEAVES_MAX]) -> [T; RESULTS_MAX] {
                    let mut results = [T::ONE; RESULTS_MAX];
                    results[0] = shapes!(@code results $tree);
                    results
                }
            }
            Shape { tree: shapes!(@tree $tree), f32: at::<Body, f32, 16>, f64: at::<Body, f64, 8> }
        }),*];
    };
    (@names [$($name:ident)*]) => { [$($name),*] };
    (@code $to:ident (add $x:tt $y:tt)) => { shapes!(@code $to $x) + shapes!(@code $to $y) };
    (@code $to:ident (sub $x:tt $y:tt)) => { shapes!(@code $to $x) - shapes!(@code $to $y) };
    (@code $to:ident (mul $x:tt $y:tt)) => { shapes!(@code $to $x) * shapes!(@code $to $y) };
    (@code $to:ident (div $x:tt $y:tt)) => { shapes!(@code $to $x) / shapes!(@code $to $y) };
    (@code $to:ident (sqrt $x:tt)) => { shapes!(@code $to $x).root() };
    (@code $to:ident (store $number:literal $x:tt)) => {{
        let value = shapes!(@code $to $x);
        $to[$number] = value;
        value
    }};
    (@code $to:ident $leaf:ident) => { $leaf };
    (@results (store $number:literal $x:tt)) => { 1 + shapes!(@results $x) };
    (@results (sqrt $x:tt)) => { shapes!(@results $x) };
    (@results ($op:ident $x:tt $y:tt)) => { shapes!(@results $x) + shapes!(@results $y) - 1 };
    (@results $leaf:ident) => { 1 };
    (@tree (store $number:literal $x:tt)) => { &Tree::Stored($number, shapes!(@tree $x)) };
    (@tree (sqrt $x:tt)) => { &Tree::Unary(Unary::Sqrt, shapes!(@tree $x)) };
    (@tree ($op:ident $x:tt $y:tt)) => { &Tree::Binary(shapes!(@op $op), shapes!(@tree $x), shapes!(@tree $y)) };
    (@tree a) => { &Tree::Leaf(0) };
    (@tree b) => { &Tree::Leaf(1) };
    (@tree c) => { &Tree::Leaf(2) };
    (@tree d) => { &Tree::Leaf(3) };
    (@tree e) => { &Tree::Leaf(4) };
    (@tree f) => { &Tree::Leaf(5) };
    (@tree g) => { &Tree::Leaf(6) };
    (@tree h) => { &Tree::Leaf(7) };
    (@tree i) => { &Tree::Leaf(8) };
    (@tree j) => { &Tree::Leaf(9) };
    (@tree k) => { &Tree::Leaf(10) };
    (@op add) => { Binary::Add };
    (@op sub) => { Binary::Sub };
    (@op mul) => { Binary::Mul };
    (@op div) => { Binary::Div };
}

shapes! { [a b c d e f g h i j k]
    // A step of Adam: means of the gradient and of its square, and what they make of the parameter.
    11 (sub a (div (mul b (store 1 (add (mul c d) (mul e f))))
        (add (mul (sqrt (store 2 (add (mul g h) (mul i (mul f f))))) j) k)))
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
    /// Results that there are.
    const RESULTS: usize;
    /// The value, and those on the way that are stored.
    fn of<T: Float>(operands: [T; LEAVES_MAX]) -> [T; RESULTS_MAX];
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
/// - The results are `count` elements long, and so are the operands that there are, but those that are a line for all: these are
///   [`LINE_BYTES`] long. All are aligned to their elements.
/// - An operand that meets a result is that result; results don't meet.
#[inline(always)]
unsafe fn run<E: Expression, T: Float, const N: usize>(pointers: &[*mut u8], of: &Slots, count: usize) {
    const { assert!(N * size_of::<T>() == LINE_BYTES) };
    let mut operands = [std::ptr::null(); LEAVES_MAX];
    let mut steps = [0; LEAVES_MAX];
    for leaf in 0..E::LEAVES {
        operands[leaf] = pointers[of.operands[leaf] as usize].cast::<T>().cast_const();
        steps[leaf] = if of.lines >> leaf & 1 == 1 { 0 } else { N };
    }
    let mut results = [std::ptr::null_mut(); RESULTS_MAX];
    for number in 0..E::RESULTS {
        results[number] = pointers[of.results[number] as usize].cast::<T>();
    }
    for line in 0..count / N {
        let mut read = [[T::ONE; N]; LEAVES_MAX];
        for leaf in 0..E::LEAVES {
            // SAFETY: as of this function; a whole line is left of what isn't one for all.
            read[leaf] = unsafe { operands[leaf].add(line * steps[leaf]).cast::<[T; N]>().read() };
        }
        let values = line_of::<E, T, N>(read);
        for number in 0..E::RESULTS {
            // SAFETY: as of this function; what of the operands lies here has been read.
            unsafe { results[number].add(line * N).cast::<[T; N]>().write(values[number]) };
        }
    }
    let (done, left) = (count / N, count % N);
    if left > 0 {
        let mut read = [[T::ONE; N]; LEAVES_MAX];
        for leaf in 0..E::LEAVES {
            // SAFETY: as of this function; so many are left, and a line has no fewer.
            unsafe {
                let from = operands[leaf].add(done * steps[leaf]);
                read[leaf].as_mut_ptr().copy_from_nonoverlapping(from, left);
            }
        }
        let values = line_of::<E, T, N>(read);
        for number in 0..E::RESULTS {
            // SAFETY: as of this function.
            unsafe { results[number].add(done * N).copy_from_nonoverlapping(values[number].as_ptr(), left) };
        }
    }
}

/// Written as the compiler makes one instruction of a level of it, and not sixteen.
#[inline(always)]
fn line_of<E: Expression, T: Float, const N: usize>(lines: [[T; N]; LEAVES_MAX]) -> [[T; N]; RESULTS_MAX] {
    let mut results = [[T::ONE; N]; RESULTS_MAX];
    for lane in 0..N {
        let mut operands = [T::ONE; LEAVES_MAX];
        for leaf in 0..E::LEAVES {
            operands[leaf] = lines[leaf][lane];
        }
        let values = E::of(operands);
        for number in 0..E::RESULTS {
            results[number][lane] = values[number];
        }
    }
    results
}

fn at<E: Expression, T: Float, const N: usize>(level: Level) -> FusedFn {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt")]
    unsafe fn v3<E: Expression, T: Float, const N: usize>(pointers: &[*mut u8], of: &Slots, count: usize) {
        // SAFETY: as of `run`.
        unsafe { run::<E, T, N>(pointers, of, count) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
    )]
    unsafe fn v4<E: Expression, T: Float, const N: usize>(pointers: &[*mut u8], of: &Slots, count: usize) {
        // SAFETY: as of `run`.
        unsafe { run::<E, T, N>(pointers, of, count) }
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
    /// The values on the way that are stored; none in the place of the value itself.
    pub stored: [Option<Id>; RESULTS_MAX],
}

/// What may become of a value on the way to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Others need it.
    Apart,
    /// Nobody else needs it.
    Inner,
    /// Nobody else needs it, but it is an output.
    Stored,
}

/// The first shape that the value of `root` has, given what may become of those on the way, which are given to `left_out`.
pub fn find(
    insts: &[Inst],
    root: Id,
    role: impl Fn(Id) -> Role,
    mut left_out: impl FnMut(Id),
) -> Option<Match> {
    // Plans aren't kept: most shapes are told apart by their last instruction, before anything is made.
    let ends_alike = |shape: &&Shape| match (insts[root.0 as usize], shape.tree) {
        (Inst::Unary(op, _), Tree::Unary(wanted, _)) => op == *wanted,
        (Inst::Binary(op, ..), Tree::Binary(wanted, ..)) => op == *wanted,
        _ => false,
    };
    SHAPES.iter().filter(ends_alike).find_map(|shape| {
        let mut found = Found {
            insts,
            role: &role,
            leaves: [None; LEAVES_MAX],
            stored: [None; RESULTS_MAX],
            inner: [None; INNER_MAX],
        };
        if !found.has(root, shape.tree, Role::Apart) {
            return None;
        }
        found.inner.into_iter().flatten().for_each(&mut left_out);
        Some(Match { shape, leaves: found.leaves, stored: found.stored })
    })
}

/// How far a tree has been found in a program.
struct Found<'a, F> {
    insts: &'a [Inst],
    role: &'a F,
    leaves: [Option<Id>; LEAVES_MAX],
    stored: [Option<Id>; RESULTS_MAX],
    inner: [Option<Id>; INNER_MAX],
}

impl<F: Fn(Id) -> Role> Found<'_, F> {
    /// `wanted` is what the value has to be, if it isn't an operand; the root may be anything.
    fn has(&mut self, id: Id, tree: &Tree, wanted: Role) -> bool {
        match *tree {
            Tree::Leaf(leaf) => return *self.leaves[leaf].get_or_insert(id) == id,
            Tree::Stored(number, tree) => {
                self.stored[number] = Some(id);
                return self.has(id, tree, Role::Stored);
            }
            _ => {}
        }
        if wanted != Role::Apart {
            if (self.role)(id) != wanted {
                return false;
            }
            let free = self.inner.iter_mut().find(|inner| inner.is_none());
            *free.expect("cpu: a shape of more values than that") = Some(id);
        }
        match (self.insts[id.0 as usize], tree) {
            (Inst::Unary(op, a), Tree::Unary(wanted, x)) => op == *wanted && self.has(a, x, Role::Inner),
            (Inst::Binary(op, a, b), Tree::Binary(wanted, x, y)) => {
                if op != *wanted {
                    return false;
                }
                let before = (self.leaves, self.stored, self.inner);
                if self.has(a, x, Role::Inner) && self.has(b, y, Role::Inner) {
                    return true;
                }
                // A sum and a product are the same the other way round.
                (self.leaves, self.stored, self.inner) = before;
                matches!(op, Binary::Add | Binary::Mul)
                    && self.has(b, x, Role::Inner)
                    && self.has(a, y, Role::Inner)
            }
            _ => false,
        }
    }
}
