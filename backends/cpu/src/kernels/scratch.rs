//! Scratch memory of kernels, of two kinds.
//!
//! - Blocks of the thread's own ([`scratch`]): quick to have, kept for the next kernel, at most [`SCRATCH_BYTES_MAX`] each,
//!   whatever the operands are.
//! - A launch's last operand ([`Room`]), for what grows with the operands: [`Need`] says at `Device::prepare` how much, the
//!   runtime takes it from the allocator, and where there is none the launch is refused before it has written anything.
//!
//! So no kernel allocates what grows with its operands (`xtask tidy` looks for it): memory stays within its limit, and
//! where there is too little there is an error, not an abort.

use crate::threads::{Threads, for_each_range};
use raddle_hal::Operand;
use raddle_sync::{Mutex, Rank};
use std::{cell::RefCell, ops::Range};

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<u128>>> = const { RefCell::new(Vec::new()) };
}

/// The most scratch that a thread keeps: buffers, and bytes in each (T9).
pub const SCRATCH_COUNT_MAX: usize = 8;
pub const SCRATCH_BYTES_MAX: usize = 16 << 20;
/// What needs more for each thread, and more with larger operands, asks the device for it (guess: the more there is of it, the
/// less it matters what asking costs). Little in tests, so that they see both ways.
const OWN_BYTES_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// Fewer threads take part where together they would want more than so many bytes, and more than the operands have.
const SHARES_BYTES_MAX: usize = 64 << 20;

pub fn kept_bytes() -> usize {
    SCRATCH.with_borrow(|free| free.iter().map(|memory| memory.len() * size_of::<u128>()).sum())
}

pub fn let_go() {
    SCRATCH.take();
}

/// Lends scratch of this thread, with any content. Calls may nest.
pub fn scratch<T: Plain, R>(count: usize, body: impl FnOnce(&mut [T]) -> R) -> R {
    words(count * size_of::<T>(), |words| {
        // SAFETY: there are enough initialized bytes, aligned to more than `T` needs, and any bytes are a `T`.
        body(unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<T>(), count) })
    })
}

fn words<R>(size_bytes: usize, body: impl FnOnce(&mut [u128]) -> R) -> R {
    debug_assert!(size_bytes <= SCRATCH_BYTES_MAX, "cpu: {size_bytes} bytes of scratch for one thread");
    let count = size_bytes.div_ceil(size_of::<u128>());
    let kept = SCRATCH.try_with(|free| {
        let mut free = free.borrow_mut();
        let best = free.iter().position(|memory| memory.len() >= count);
        best.or(free.len().checked_sub(1)).map(|position| free.swap_remove(position))
    });
    // A thread that ends keeps nothing any more.
    let mut memory = kept.ok().flatten().unwrap_or_default();
    if memory.len() < count {
        memory.resize(count, 0); // Bounded: `SCRATCH_BYTES_MAX`
    }
    let result = body(&mut memory[..count]);
    if memory.len() * size_of::<u128>() <= SCRATCH_BYTES_MAX {
        _ = SCRATCH.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < SCRATCH_COUNT_MAX {
                free.push(memory); // Bounded: `SCRATCH_COUNT_MAX`
            }
        });
    }
    result
}

/// A number of which any bytes are a value.
///
/// # Safety
/// - They are, and it wants no more alignment than `u128`.
pub unsafe trait Plain: Copy + Send + Sync {}
// SAFETY: numbers.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for u128 {}
// SAFETY: two numbers, and perhaps a gap, which nobody reads.
unsafe impl<A: Plain, B: Plain> Plain for (A, B) {}
// SAFETY: a number.
unsafe impl Plain for u32 {}

/// The bytes that [`Memory::take`] uses up.
pub fn bytes_of<T: Plain>(count: usize) -> usize {
    count.saturating_mul(size_of::<T>()).saturating_add(15) / 16 * 16
}

/// Scratch that is dealt out in slices of any content.
pub struct Memory<'a>(&'a mut [u128]);

impl<'a> Memory<'a> {
    /// Of these.
    #[cfg(test)]
    pub fn of(words: &'a mut [u128]) -> Memory<'a> {
        Memory(words)
    }

    /// All of it, as long as it isn't taken from here.
    pub fn again(&mut self) -> Memory<'_> {
        Memory(self.0)
    }

    /// The next elements.
    pub fn take<T: Plain>(&mut self, count: usize) -> &'a mut [T] {
        let words = bytes_of::<T>(count) / size_of::<u128>();
        let (head, rest) = std::mem::take(&mut self.0).split_at_mut(words);
        self.0 = rest;
        // SAFETY: there are enough bytes, aligned to as much as `T` needs; any bytes are a `T`.
        unsafe { std::slice::from_raw_parts_mut(head.as_mut_ptr().cast::<T>(), count) }
    }
}

/// Scratch that a launch needs: shares of equal size, one for each thread that takes part.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    shares: usize,
    each_bytes: usize,
}

impl Need {
    /// None.
    pub const NOTHING: Need = Need { shares: 0, each_bytes: 0 };

    /// One piece for the launch.
    pub fn one(size_bytes: usize) -> Need {
        Need { shares: 1, each_bytes: size_bytes.div_ceil(16) * 16 }
    }

    /// A share of so many bytes for each thread, where there are so many units of work on these operands.
    pub fn each(each_bytes: usize, units: usize, operands: &[Operand], threads: Threads) -> Need {
        let bytes =
            |operand: &Operand| operand.shape().product().saturating_mul(operand.view().dtype.size_bytes());
        let most = operands.iter().map(bytes).fold(SHARES_BYTES_MAX, usize::max);
        let each_bytes = each_bytes.div_ceil(16) * 16;
        let shares = threads.0.min(units).min(most / each_bytes.max(1)).max(1);
        Need { shares, each_bytes }
    }

    /// What the device is asked for.
    pub fn device_bytes(self) -> usize {
        if self.is_own() { 0 } else { self.each_bytes.saturating_mul(self.shares) }
    }

    fn is_own(self) -> bool {
        self.each_bytes <= OWN_BYTES_MAX
    }
}

/// The scratch of a launch.
pub struct Room {
    need: Need,
    /// Of what the device gave; 0 if the threads have their own.
    start: usize,
}

impl Room {
    /// As `prepare` has asked for it; `operand` is the one behind those of the kernel. (There may be more than this launch
    /// needs, if it is a piece of what was prepared.)
    pub fn new(need: Need, operand: Option<&Operand>) -> Room {
        if need.is_own() {
            return Room { need, start: 0 };
        }
        let view = operand.expect("the launch was prepared, and there is what it asked for").view();
        debug_assert!(view.layout.element_count() >= need.device_bytes(), "cpu: too little scratch");
        Room { need, start: super::view::start_bytes(view) }
    }

    /// The one share.
    pub fn with<R>(&self, body: impl FnOnce(Memory<'_>) -> R) -> R {
        // SAFETY: it is the only one.
        unsafe { self.with_share(0, body) }
    }

    /// # Safety
    /// - Nobody else has this share meanwhile.
    unsafe fn with_share<R>(&self, share: usize, body: impl FnOnce(Memory<'_>) -> R) -> R {
        let Need { each_bytes, .. } = self.need;
        if self.need.is_own() {
            return words(each_bytes, |words| body(Memory(words)));
        }
        let start = (self.start + share * each_bytes) as *mut u128;
        // SAFETY: the device gave so much, aligned to a cache line, for this launch; by contract the share is the caller's.
        body(Memory(unsafe { std::slice::from_raw_parts_mut(start, each_bytes / size_of::<u128>()) }))
    }

    /// As [`for_each_range`], with a share for each part.
    pub fn for_each_range(
        &self,
        threads: Threads,
        units: usize,
        unit_cost: usize,
        body: impl Fn(Memory<'_>, Range<usize>) + Sync,
    ) {
        if self.need.is_own() {
            return for_each_range(threads, units, unit_cost, |range| {
                // SAFETY: it is this thread's own.
                unsafe { self.with_share(0, |memory| body(memory, range)) }
            });
        }
        let threads = Threads(threads.0.min(self.need.shares));
        // Bounded: one for each thread.
        let free = Mutex::new(Rank::Leaf, (0..self.need.shares).collect::<Vec<usize>>());
        for_each_range(threads, units, unit_cost, |range| {
            let share = free.lock().pop().expect("there are as many as threads");
            // SAFETY: it is in nobody else's hand until it is back.
            unsafe { self.with_share(share, |memory| body(memory, range)) };
            free.lock().push(share); // Bounded: as above
        });
    }
}
