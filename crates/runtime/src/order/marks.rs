//! The marks of a block of memory: the tick of its last write, and of its last read *on each stream*.
//!
//! Guarantee (T2): whoever claims a block for reading is ordered behind its last write; whoever claims it for writing,
//! behind its last write and all reads; and what a claim stamps is what the next one sees.
//!
//! The marks are a reader-writer lock whose words are the data. A reader claims its own mark, a writer claims all, both
//! by read-modify-writes on the same words, so no fence is needed. While one stream reads, its mark is `home`. Once a
//! second one does (unordered with the first, or after a few ordered handovers) each stream has a mark in [`Shared`],
//! on a cache line that nobody else writes: 32 threads that read one weight don't meet. Claims last for one enqueue;
//! nothing blocks while one is held, and they are taken in the order of block ids, so they can't circle.
//!
//! | field | stored by a holder of | loaded by a holder of |
//! |---|---|---|
//! | `write` | all claims | any claim |
//! | `shared`, its bits and chunks | `home` | anybody: once set they stay until the block is owned alone |
//! | `handovers` | `home` | `home` |
//!
//! Marks stay with the memory for life: a new buffer starts with what its memory has yet to wait for, so reuse
//! is safe whatever the allocator decides; its own look at them only saves waits.

use super::{
    tick::{CLAIMED, SLOT_COUNT, Tick},
    wait_set::WaitSet,
};
use raddle_sync::{
    Padded,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*},
    fault, pause,
};
use std::ptr;

/// Ordered handovers of the read mark from stream to stream before a buffer counts as shared.
const HANDOVER_COUNT_MAX: u32 = 4; // guess
/// Marks that are allocated together, 128 bytes each.
const CHUNK_LENGTH: usize = if cfg!(loom) { SLOT_COUNT } else { 8 };
const CHUNK_COUNT: usize = SLOT_COUNT.div_ceil(CHUNK_LENGTH);
const WORD_COUNT: usize = SLOT_COUNT.div_ceil(64);

/// A tick that can be claimed. While claimed the word is `CLAIMED` and the holder has the tick.
pub(crate) struct Mark(AtomicU64);

impl Mark {
    fn new(tick: Tick) -> Mark {
        Mark(AtomicU64::new(tick.0))
    }

    /// Acquire pairs with the Release in `release`: a holder sees all that earlier holders stored.
    #[inline]
    fn claim(&self) -> Tick {
        let mut guess = self.guess();
        if guess == CLAIMED {
            guess = Tick::NONE.0;
        }
        match self.0.compare_exchange(guess, CLAIMED, Acquire, Relaxed) {
            Ok(tick) => Tick(tick),
            Err(seen) => self.claim_slow(seen),
        }
    }

    #[cold]
    fn claim_slow(&self, mut guess: u64) -> Tick {
        let mut turns = 0;
        loop {
            while guess == CLAIMED {
                pause(&mut turns);
                guess = self.guess();
            }
            match self.0.compare_exchange(guess, CLAIMED, Acquire, Relaxed) {
                Ok(tick) => return Tick(tick),
                Err(seen) => guess = seen,
            }
        }
    }

    /// Any value is right, as the exchange decides. In the models a load would only add stale values to try.
    #[inline]
    fn guess(&self) -> u64 {
        if cfg!(loom) { Tick::NONE.0 } else { self.0.load(Relaxed) }
    }

    #[inline]
    fn release(&self, tick: Tick) {
        self.0.store(tick.0, Release);
    }
}

type Chunk = [Padded<Mark>; CHUNK_LENGTH];

/// One mark a stream, in chunks made when the first stream of a chunk reads: 1 KiB for each 8 streams, so at most 16 KiB
/// a shared buffer, given back when the buffer is freed and its uses are over.
struct Shared {
    /// A bit for each slot that has read.
    readers: [AtomicU64; WORD_COUNT],
    chunks: [AtomicPtr<Chunk>; CHUNK_COUNT],
}

impl Shared {
    fn new() -> Shared {
        Shared {
            readers: std::array::from_fn(|_| AtomicU64::new(0)),
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Frees a table, if there is one.
    ///
    /// # Safety
    /// - It was made by `Box::into_raw`, nobody has it any more, and it is freed once.
    unsafe fn free(table: *mut Shared) {
        if !table.is_null() {
            // SAFETY: by the contract.
            drop(unsafe { Box::from_raw(table) });
        }
    }

    /// Has the slot a mark? Acquire pairs with the Release in `register`.
    #[inline]
    fn has(&self, slot: usize) -> bool {
        self.readers[slot / 64].load(Acquire) >> (slot % 64) & 1 == 1
    }

    /// The caller has seen the bit of the slot, or holds `home`.
    #[inline]
    fn mark(&self, slot: usize) -> &Mark {
        // SAFETY: a slot's bit is set (Release) only after its chunk is; the caller saw the bit with Acquire or under
        // `home`; chunks are freed with their table, by the block's only owner.
        unsafe { &(&*self.chunks[slot / CHUNK_LENGTH].load(Relaxed))[slot % CHUNK_LENGTH].0 }
    }

    /// Gives a slot its mark. Called under `home` or on a table nobody else has seen.
    fn register(&self, slot: usize, tick: Tick) {
        let chunk = &self.chunks[slot / CHUNK_LENGTH];
        if chunk.load(Relaxed).is_null() {
            let marks: Box<Chunk> = Box::new(std::array::from_fn(|_| Padded(Mark::new(Tick::NONE))));
            chunk.store(Box::into_raw(marks), Relaxed); // published by the bit
        }
        let word = &self.readers[slot / 64];
        if tick != Tick::NONE {
            // SAFETY: the chunk is there, see above; the bit isn't, so nobody else uses the mark.
            unsafe { &(&*chunk.load(Relaxed))[slot % CHUNK_LENGTH].0 }.release(tick);
        }
        word.store(word.load(Relaxed) | 1 << (slot % 64), Release);
    }

    /// The slots that have marks. Called under `home` or by the block's only owner.
    fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.readers.iter().enumerate().flat_map(|(word, bits)| {
            let mut bits = bits.load(Relaxed);
            std::iter::from_fn(move || {
                let slot = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + slot)
            })
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            let chunk = chunk.load(Relaxed);
            if !chunk.is_null() {
                // SAFETY: made by `Box::into_raw` in `register`, freed here only, and we own the table alone.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

pub(crate) struct Marks {
    home: Mark,
    write: AtomicU64,
    shared: AtomicPtr<Shared>,
    handovers: AtomicU32,
}

/// What a submission holds of a block, and stamps.
pub(crate) enum Claim<'a> {
    Read(&'a Mark),
    Write(&'a Marks),
}

/// What is left of the uses of a block that is owned alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    /// All complete.
    Over,
    /// Those that may not be complete are of one given stream, and so ordered before its next work.
    Ordered,
    /// Some have to be waited for.
    Pending,
}

impl Marks {
    pub(crate) fn new() -> Marks {
        Marks {
            home: Mark::new(Tick::NONE),
            write: AtomicU64::new(0),
            shared: AtomicPtr::new(ptr::null_mut()),
            handovers: AtomicU32::new(0),
        }
    }

    /// Of memory that others have written, behind a tick.
    pub(crate) fn written(tick: Tick) -> Marks {
        let marks = Marks::new();
        marks.write.store(tick.0, Relaxed); // whoever gets the block, gets it by a synchronized way
        marks
    }

    #[inline]
    fn shared(&self, order: raddle_sync::atomic::Ordering) -> Option<&Shared> {
        let shared = self.shared.load(order);
        // SAFETY: set once (Release) under `home`, to a table made by `Box::into_raw` that is freed by the block's only owner.
        (!shared.is_null()).then(|| unsafe { &*shared })
    }

    /// Claims the reader's mark and orders the op behind the last write.
    #[inline]
    pub(crate) fn claim_read(&self, waits: &mut WaitSet<'_>) -> Claim<'_> {
        let own = waits.slot();
        let mark = match self.shared(Acquire) {
            Some(shared) if shared.has(own) => {
                // Let a writer pass first, or readers that come and go would starve it. Fairness only, since the claim
                // decides; so not in the models.
                let mut turns = 0;
                while !cfg!(loom) && self.home.0.load(Relaxed) == CLAIMED {
                    pause(&mut turns);
                }
                let mark = shared.mark(own);
                mark.claim();
                mark
            }
            _ => self.claim_read_home(waits),
        };
        if !fault!(no_wait_after_write) {
            waits.behind(Tick(self.write.load(Relaxed)));
        }
        Claim::Read(mark)
    }

    fn claim_read_home(&self, waits: &mut WaitSet<'_>) -> &Mark {
        let own = waits.slot();
        let last = self.home.claim();
        let shared = match self.shared(Relaxed) {
            Some(shared) => shared,
            None => {
                if last == Tick::NONE || last.slot() == own {
                    return &self.home;
                }
                // A mark that this op is ordered behind may be replaced: who waits for this op waits for that one too.
                let handovers = self.handovers.load(Relaxed);
                let mut is_replaced = handovers < HANDOVER_COUNT_MAX && waits.is_behind(last);
                fault!(one_read_mark => is_replaced = true);
                if is_replaced {
                    self.handovers.store(handovers + 1, Relaxed);
                    return &self.home;
                }
                let shared = Box::new(Shared::new());
                shared.register(last.slot(), last);
                self.shared.store(Box::into_raw(shared), Release); // pairs with the Acquire in `claim_read`
                self.shared(Relaxed).expect("it has just been set")
            }
        };
        if !shared.has(own) {
            shared.register(own, Tick::NONE);
        }
        let mark = shared.mark(own);
        mark.claim(); // free: of this stream we hold the lock, of the writers we hold `home`
        self.home.release(Tick::NONE);
        mark
    }

    /// Claims all marks and orders the op behind the last write and all reads.
    #[inline]
    pub(crate) fn claim_write(&self, waits: &mut WaitSet<'_>) -> Claim<'_> {
        let mut wait_for_reads = true;
        fault!(no_wait_after_read => wait_for_reads = false);
        let home = self.home.claim();
        if wait_for_reads {
            waits.behind(home);
        }
        if let Some(shared) = self.shared(Relaxed) {
            for slot in shared.slots() {
                let read = shared.mark(slot).claim();
                if wait_for_reads {
                    waits.behind(read);
                }
            }
        }
        waits.behind(Tick(self.write.load(Relaxed)));
        Claim::Write(self)
    }

    /// Orders the op behind what is marked now, and claims nothing, for a planted fault.
    #[cold]
    pub(crate) fn look(&self, waits: &mut WaitSet<'_>) {
        self.ticks().filter(|tick| tick.0 != CLAIMED).for_each(|tick| waits.behind(tick));
    }

    /// The tick of the last write, if nobody is enqueuing one. For a forked child, which has no other threads.
    pub(crate) fn last_write(&self) -> Tick {
        Tick(self.write.load(Acquire))
    }

    fn ticks(&self) -> impl Iterator<Item = Tick> + '_ {
        let single = [Tick(self.home.0.load(Relaxed)), Tick(self.write.load(Relaxed))];
        let shared = self.shared(Relaxed);
        let shared = shared
            .into_iter()
            .flat_map(|shared| shared.slots().map(|slot| Tick(shared.mark(slot).0.load(Relaxed))));
        single.into_iter().chain(shared)
    }

    /// What is left of a block's uses, seen from a stream's slot. Forgets marks that are over.
    ///
    /// # Safety
    /// - The block is owned alone: nobody claims it or looks at its other marks meanwhile.
    pub(crate) unsafe fn uses(&self, own: usize, is_complete: impl Fn(Tick) -> bool) -> Uses {
        let (mut over, mut ordered) = (true, true);
        // Where nothing would be forgotten, a tick that is ordered anyway isn't worth a question.
        let asks_all = !self.shared.load(Relaxed).is_null();
        for tick in self.ticks() {
            let is_own = tick.slot() == own;
            let complete = tick == Tick::NONE || (asks_all || !is_own) && is_complete(tick);
            over &= complete;
            ordered &= complete || is_own;
        }
        if over {
            if asks_all {
                // SAFETY: by the contract.
                unsafe { self.forget() };
            }
            Uses::Over
        } else if ordered {
            Uses::Ordered
        } else {
            Uses::Pending
        }
    }

    /// Is every use complete that a submission has stamped? One that is under way may have hidden another, so then it isn't said.
    /// For anybody who has a handle.
    pub(crate) fn are_over(&self, is_complete: impl Fn(Tick) -> bool) -> bool {
        let is_over = |tick: Tick| tick == Tick::NONE || tick.0 != CLAIMED && is_complete(tick);
        let is_read_over = |shared: &Shared| {
            let mut readers = (0..SLOT_COUNT).filter(|slot| shared.has(*slot));
            readers.all(|slot| is_over(Tick(shared.mark(slot).0.load(Acquire))))
        };
        // In this order. Who finds that the mark at home was handed on to the table sees the table; and who finds that a writer has
        // taken a read over, there or here, sees its tick, which is behind that read. Acquire pairs with the Release in `release`.
        let is_write_over = || is_over(Tick(self.write.load(Relaxed)));
        let early = fault!(write_looked_at_first).then(is_write_over);
        is_over(Tick(self.home.0.load(Acquire)))
            && self.shared(Acquire).is_none_or(is_read_over)
            && early.unwrap_or_else(is_write_over)
    }

    /// The tick of a use that isn't complete, if there is one.
    ///
    /// # Safety
    /// - As for [`Marks::uses`].
    pub(crate) unsafe fn incomplete(&self, is_complete: impl Fn(Tick) -> bool) -> Option<Tick> {
        self.ticks().find(|tick| *tick != Tick::NONE && !is_complete(*tick))
    }

    /// Is there none? For the block's only owner.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.home.0.load(Relaxed) == Tick::NONE.0
            && self.write.load(Relaxed) == Tick::NONE.0
            && self.shared.load(Relaxed).is_null()
    }

    /// Forgets all marks, by atomic stores: others may be looking at the last use.
    ///
    /// # Safety
    /// - As for [`Marks::uses`].
    pub(crate) unsafe fn forget(&self) {
        self.home.release(Tick::NONE);
        self.write.store(Tick::NONE.0, Relaxed);
        self.handovers.store(0, Relaxed);
        // SAFETY: by the contract nobody else has the table.
        unsafe { Shared::free(self.shared.swap(ptr::null_mut(), Relaxed)) };
    }

    /// A tick of the last write, or else of a read; nothing if there is none or a claim is held. For whoever may look at
    /// the block at any time, to show it: nothing may depend on it.
    pub(crate) fn last_use(&self) -> Tick {
        [self.write.load(Relaxed), self.home.0.load(Relaxed)]
            .into_iter()
            .find(|&tick| tick != Tick::NONE.0 && tick != CLAIMED)
            .map_or(Tick::NONE, Tick)
    }

    /// The marks of a piece that is split off a block: it has to wait for all that the block has.
    ///
    /// # Safety
    /// - As for [`Marks::uses`].
    pub(crate) unsafe fn split(&self) -> Marks {
        let marks = Marks::new();
        marks.write.store(self.write.load(Relaxed), Relaxed);
        marks.home.release(Tick(self.home.0.load(Relaxed)));
        if let Some(shared) = self.shared(Relaxed) {
            let copy = Box::new(Shared::new());
            shared.slots().for_each(|slot| copy.register(slot, Tick(shared.mark(slot).0.load(Relaxed))));
            marks.shared.store(Box::into_raw(copy), Release);
        }
        marks
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        // SAFETY: we own the marks alone, and they are gone after this.
        unsafe { Shared::free(self.shared.load(Relaxed)) };
    }
}

impl Claim<'_> {
    #[inline]
    pub(crate) fn stamp(self, tick: Tick) {
        match self {
            Claim::Read(mark) => mark.release(tick),
            Claim::Write(marks) => {
                marks.write.store(tick.0, Relaxed); // published by the releases below
                // The write is ordered behind the reads, so it stands for them.
                if let Some(shared) = marks.shared(Relaxed) {
                    shared.slots().for_each(|slot| shared.mark(slot).release(Tick::NONE));
                }
                marks.home.release(Tick::NONE);
            }
        }
    }
}
