//! What a thread may note about its ops while they hold their operands.
//!
//! An op claims all of its blocks, is given to the device, and lets go; ops on a block run in the order of those claims. Whoever
//! keeps books about the content of memory (which op made it, how often it was written) must read and write these books in the
//! same order, or another thread's op comes between the op and its entry. A [`Witness`] is called while the claims are held:
//! its entries are in the order of the ops, block by block, on every device.
//!
//! A forked child has one thread that uses a device at a time, and a capture only its own: there the witness is called
//! right before the op.

use crate::{Access, Buffer, submit::Touch};
use std::{cell::Cell, mem::transmute, ops::Range, ptr::NonNull};

/// Notes ops of this thread. See [`witnessed`].
pub trait Witness {
    /// Called once for each op that the thread puts on a stream, while the op holds its buffers: no other op on one of
    /// them is between those that came before and this. If it says no, nothing is run in the op's place, and nothing counts as
    /// written. It holds up streams and threads, so it must be short, must not wait for anything, submit, or drop what may
    /// own buffers, and must not panic.
    fn claimed(&mut self, op: &Claimed<'_>) -> bool;
}

/// An op that holds its buffers.
pub struct Claimed<'a> {
    touches: &'a [Touch<'a>],
}

impl Claimed<'_> {
    /// The [version](Buffer::version) of a buffer as the op finds it, and as it will leave it; none if it is no operand.
    pub fn versions(&self, buffer: &Buffer) -> Option<Range<u64>> {
        let is_operand = |touch: &&Touch<'_>| std::ptr::eq(touch.block, buffer.block());
        let touch = self.touches.iter().find(is_operand)?;
        let found = touch.block.version();
        Some(found..found + u64::from(touch.access == Access::Write))
    }
}

type Told = Option<NonNull<dyn Witness>>;

#[cfg(not(loom))]
std::thread_local! {
    static TOLD: Cell<Told> = const { Cell::new(None) };
}
#[cfg(loom)]
loom::thread_local! {
    static TOLD: Cell<Told> = Cell::new(None);
}

fn replace(told: Told) -> Told {
    TOLD.with(|cell| cell.replace(told))
}

/// Puts back who was told before, also after a panic.
struct Restore(Told);

impl Drop for Restore {
    fn drop(&mut self) {
        replace(self.0);
    }
}

/// Runs `body`. Ops that this thread puts on streams meanwhile, of any device, are told to the witness.
pub fn witnessed<R>(witness: &mut dyn Witness, body: impl FnOnce() -> R) -> R {
    // SAFETY: only the lifetime changes. The pointer is used by `tell` on this thread until `Restore` has run, and until then
    // the witness is borrowed here.
    let told =
        unsafe { transmute::<NonNull<dyn Witness + '_>, NonNull<dyn Witness>>(NonNull::from(witness)) };
    let _restore = Restore(replace(Some(told)));
    body()
}

/// For holders of the claims of an op: tells the thread's witness. Shall the op run?
#[inline]
pub(crate) fn tell(touches: &[Touch<'_>]) -> bool {
    match TOLD.with(Cell::get) {
        None => true,
        Some(told) => tell_it(told, touches),
    }
}

#[cold]
fn tell_it(mut told: NonNull<dyn Witness>, touches: &[Touch<'_>]) -> bool {
    let _restore = Restore(replace(None));
    // SAFETY: `witnessed` has put it there and still borrows it; nobody else uses it, since it is taken out meanwhile.
    unsafe { told.as_mut() }.claimed(&Claimed { touches })
}
