//! Which instructions a loop may use, chosen once at run time.
//!
//! A loop is written once, in plain Rust, as an `#[inline(always)]` body, and instantiated for each level; the compiler
//! vectorizes each for its level. All give the same bits: Rust never contracts `a * b + c` into one rounding, and where
//! `mul_add` asks for that, it is rounded once at each level. So a machine's age can't change a result (T8).
//!
//! Bounded: lists of levels are as long as there are levels.

use raddle_sync::RaceOnce;
use std::{marker::PhantomData, mem::MaybeUninit, slice};

/// A set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What every machine of the architecture has.
    Baseline,
    /// x86-64-v3: AVX2.
    #[cfg(target_arch = "x86_64")]
    V3,
    /// x86-64-v4: AVX-512.
    #[cfg(target_arch = "x86_64")]
    V4,
}

impl Level {
    /// Has it 32 registers of 512 bits?
    pub fn is_widest(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Level::V4 => true,
            _ => false,
        }
    }

    /// The highest level of this machine.
    pub fn best() -> Level {
        static BEST: RaceOnce<Level> = RaceOnce::new();
        *BEST.get_or_init(|| *Level::all().last().expect("the baseline is always there"))
    }

    /// The levels of this machine, lowest first.
    pub fn all() -> Vec<Level> {
        #[allow(unused_mut, reason = "other architectures have the baseline only")]
        let mut levels = vec![Level::Baseline];
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! all { ($($feature:tt),*) => { $(is_x86_feature_detected!($feature))&&* }; }
            if all!("avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt") {
                levels.push(Level::V3);
                if all!("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl") {
                    levels.push(Level::V4);
                }
            }
        }
        levels
    }
}

/// Makes, of an `#[inline(always)]` body, a function that runs it at a level:
/// `leveled! { /// doc
/// pub unsafe fn sum<T: Number>(x: *const T, n: usize) -> T = sum_body; }` is called as `sum::<T>(level, x, n)`.
/// Besides the body's own contract its caller answers for the machine having the level.
macro_rules! leveled {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident $(<$($g:ident: $bound:path),*>)? ($($arg:ident: $t:ty),* $(,)?)
        $(-> $r:ty)? = $body:path;) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// - As of the body.
        /// - The machine has the level.
        #[inline]
        $vis unsafe fn $name $(<$($g: $bound),*>)? (level: $crate::kernels::level::Level, $($arg: $t),*) $(-> $r)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt")]
            unsafe fn v3 $(<$($g: $bound),*>)? ($($arg: $t),*) $(-> $r)? {
                // SAFETY: as of the function around it.
                unsafe { $body($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
            unsafe fn v4 $(<$($g: $bound),*>)? ($($arg: $t),*) $(-> $r)? {
                // SAFETY: as of the function around it.
                unsafe { $body($($arg),*) }
            }
            // SAFETY: as of this function; the level is the machine's.
            unsafe {
                match level {
                    $crate::kernels::level::Level::Baseline => $body($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::level::Level::V3 => v3 $(::<$($g),*>)? ($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::level::Level::V4 => v4 $(::<$($g),*>)? ($($arg),*),
                }
            }
        }
    };
}
pub(crate) use leveled;

/// Makes a function of a body that is compiled for each [`Level`] and run at the machine's best.
/// (Unlike `leveled!` it makes safe functions, and takes type parameters that no argument names.)
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$($g:ident $(: $b0:path)?),*>($($arg:ident: $t:ty),* $(,)?) $(-> $r:ty)? $body:block) => {
        $(#[$meta])*
        #[inline]
        $vis fn $name<$($g $(: $b0)?),*>($($arg: $t),*) $(-> $r)? {
            #[inline(always)]
            fn body<$($g $(: $b0)?),*>($($arg: $t),*) $(-> $r)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt")]
            fn v3<$($g $(: $b0)?),*>($($arg: $t),*) $(-> $r)? {
                body::<$($g),*>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
            fn v4<$($g $(: $b0)?),*>($($arg: $t),*) $(-> $r)? {
                body::<$($g),*>($($arg),*)
            }
            match $crate::kernels::level::Level::best() {
                $crate::kernels::level::Level::Baseline => body::<$($g),*>($($arg),*),
                // SAFETY: the level is one of this machine.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::level::Level::V3 => unsafe { v3::<$($g),*>($($arg),*) },
                // SAFETY: the level is one of this machine.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::level::Level::V4 => unsafe { v4::<$($g),*>($($arg),*) },
            }
        }
    };
}
pub(crate) use multiversion;

/// A loop over elements: `out`, then up to three operands, then how many elements. What they point to is the loop's.
pub type LoopFn = unsafe fn(out: *mut u8, a: *const u8, b: *const u8, c: *const u8, count: usize);

/// The body of a [`LoopFn`].
pub trait Loop {
    /// Runs it.
    ///
    /// # Safety
    /// - `out` is `count` elements long, `a`, `b` and `c` are as the loop says, all aligned to their elements.
    /// - `out` meets none of them.
    unsafe fn run(out: *mut u8, a: *const u8, b: *const u8, c: *const u8, count: usize);
}

/// The loop at a level of this machine.
pub fn at<L: Loop>(level: Level) -> LoopFn {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt")]
    unsafe fn v3<L: Loop>(out: *mut u8, a: *const u8, b: *const u8, c: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`.
        unsafe { L::run(out, a, b, c, count) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt,movbe,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
    )]
    unsafe fn v4<L: Loop>(out: *mut u8, a: *const u8, b: *const u8, c: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`.
        unsafe { L::run(out, a, b, c, count) }
    }
    match level {
        Level::Baseline => L::run,
        #[cfg(target_arch = "x86_64")]
        Level::V3 => v3::<L>,
        #[cfg(target_arch = "x86_64")]
        Level::V4 => v4::<L>,
    }
}

/// Element from an element.
pub trait Map1 {
    /// Of the operand.
    type A: Copy;
    /// Of the result.
    type R: Copy;
    /// The function.
    fn f(a: Self::A) -> Self::R;
}

/// The loop of a [`Map1`].
pub struct Loop1<F>(PhantomData<F>);

/// # Safety
/// - `count` elements at `data` may be written.
#[inline(always)]
pub unsafe fn out_slice<'a, T>(data: *mut u8, count: usize) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: as of this function; uninitialized elements are fine.
    unsafe { slice::from_raw_parts_mut(data.cast(), count) }
}

/// # Safety
/// - `count` elements at `data` may be read, or one if `single`.
#[inline(always)]
pub unsafe fn in_slice<'a, T>(data: *const u8, count: usize, single: bool) -> &'a [T] {
    // SAFETY: as of this function.
    unsafe { slice::from_raw_parts(data.cast(), if single { 1 } else { count }) }
}

impl<F: Map1> Loop for Loop1<F> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, _: *const u8, _: *const u8, count: usize) {
        // SAFETY: as of `Loop::run`.
        let (out, a) = unsafe { (out_slice::<F::R>(out, count), in_slice::<F::A>(a, count, false)) };
        for (out, a) in out.iter_mut().zip(a) {
            out.write(F::f(*a));
        }
    }
}

/// The loop of a function of one operand, written in place.
macro_rules! map1 {
    ($level:expr, $a:ty => $r:ty, |$x:ident| $body:expr) => {{
        struct F;
        impl $crate::kernels::level::Map1 for F {
            type A = $a;
            type R = $r;
            #[inline(always)]
            fn f($x: $a) -> $r {
                $body
            }
        }
        $crate::kernels::level::at::<$crate::kernels::level::Loop1<F>>($level)
    }};
}
pub(crate) use map1;
