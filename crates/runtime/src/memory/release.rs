//! The end of [memory of others](super::foreign).
//!
//! The owner is dropped once, when the last handle has gone *and* everything that touches the memory is complete
//! (T3): at once, on the thread that drops the handle, if it is; else on a thread of the runtime, as a [callback](crate::stream) of the
//! stream that is waited for. Under no lock, never in a callback of a driver; so it may use the runtime, and a panic in it ends nothing.
//!
//! | what ends | what becomes of the owner |
//! |---|---|
//! | a thread that has the last handle | as above: its end waits for nothing |
//! | the device, by `close` | `close` waits for owners that are due; where a buffer is alive, it closes nothing |
//! | the device, by a loss | nothing is in flight any more, so it is dropped with the last handle |
//! | the process | it is never dropped, as nothing else that is alive then |
//! | a forked child | it is dropped by the process that adopted the memory, and nowhere else |

use super::{
    allocate,
    block::{FreeBlock, Owner, Source},
    policy::AllocInterceptors,
    report::history::MemoryEventKind,
    store::Memory,
};
use crate::ground::{Core, Floor, fork};
use raddle_hal::trace;
use raddle_sync::{atomic::Ordering::*, caught, fault};
use std::mem;

/// Takes back a block whose last handle is gone, and that is marked with all that was noted. Neither blocks nor fails, on any thread.
#[cold]
pub(super) fn free_foreign(mut block: FreeBlock) {
    let device = block.get().device;
    if fork::is_child(device) {
        // What a child does is complete when the call returns. SAFETY: the last handle is gone, and no list of the child has it.
        return unsafe { block.disown() }.release(device);
    }
    if device.is_watched() {
        AllocInterceptors::of(device).record(MemoryEventKind::Release, &block, block.get().capacity_bytes);
    }
    if fault!(foreign_without_fence) {
        block.forget_uses();
    }
    release(block, true);
}

/// Gives a block back, now or when what is in flight is over.
fn release(mut block: FreeBlock, may_wait: bool) {
    let memory = Memory::of(block.get().device);
    if let Some(tick) = block.incomplete(|tick| memory.is_complete(tick)) {
        // A device that can't say when it is over has the memory for ever.
        if may_wait {
            memory.above.when_complete(memory.core, tick, Box::new(move |is_well| release(block, is_well)));
        }
        return;
    }
    let Source { index, .. } = block.get().source;
    let size_bytes = block.get().capacity_bytes;
    memory.foreign.lock().take(index);
    memory.foreign_bytes.fetch_sub(size_bytes, Relaxed);
    if fault!(foreign_given_out_again) {
        block.set_source(Source { class: 0, index: 0, pool: 0 });
        return allocate::put_back(block);
    }
    // SAFETY: the last handle is gone, and the list hasn't the block any more; all its uses are complete.
    unsafe { block.disown() }.release(memory.core);
}

impl Owner {
    /// Gives the memory back; but in a child of the process that has adopted it, whose memory it isn't.
    fn release(self, device: &'static Core) {
        if self.forks != fork::count() && !fault!(child_releases_foreign) {
            return mem::forget(self);
        }
        let _held = fault!(released_under_lock).then(|| Memory::of(device).foreign.lock());
        let start = trace::start();
        // It is code of others. Of a panic there is nobody else to tell.
        _ = caught(move || {
            raddle_sync::assert_no_lock_is_held();
            drop(self.memory);
        });
        if let Some(start) = start {
            trace::here("release", start);
        }
    }
}
