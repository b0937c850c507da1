//! Submission: the only caller of queues.
//!
//! Guarantees: an op is enqueued behind everything that its operands have to wait for (T2), on ticks that have been
//! enqueued already, so waits can't circle (T5); it owns its operands' memory through the ticks that it stamps (T3: a
//! block is not given back to the device before its ticks are complete).
//!
//! The life of an op: wait for room on the stream, holding nothing; lock the stream; claim the operands in the order of
//! their blocks; compute the waits; hand the launch to the device, which doesn't block; publish `enqueued`; stamp and
//! release; unlock. If the device says `Inline`, run it then, outside of all locks: a long GEMM freezes nobody. Stream
//! locks never nest. The stamp is made by `Drop`, so a launch that panics counts as enqueued and holds nothing.

use crate::{
    Access, Error, Result,
    block::Block,
    device::DeviceInner,
    marks::Claim,
    memory_trace,
    stream::StreamInner,
    tick::{Clock, SLOT_COUNT, Tick, merge},
};
use raddle_hal::{DeviceError, Launch, QueueId, Submitted, Wait, trace};
use raddle_sync::{MutexGuard, atomic::Ordering::*, fault};
use smallvec::SmallVec;

/// Versions of its clock that a stream remembers. A wait for an older tick is still right: it only teaches less.
const HISTORY_COUNT_MAX: usize = 16; // guess

/// Behind a stream's lock.
pub(crate) struct State {
    pub(crate) sequence: u64,
    /// For each other stream the sequence number that the next op here is ordered behind.
    clock: Box<Clock>,
    pub(crate) inserted: u64,
    pub(crate) elided: u64,
}

impl State {
    pub(crate) fn new() -> State {
        State { sequence: 0, clock: Box::new([0; SLOT_COUNT]), inserted: 0, elided: 0 }
    }
}

/// A block that an op touches.
#[derive(Clone, Copy)]
pub(crate) struct Touch<'a> {
    pub(crate) block: &'a Block,
    pub(crate) access: Access,
    /// Is every byte of it written, and none read?
    pub(crate) whole: bool,
}

/// The waits that one op needs.
pub(crate) struct Order<'a> {
    stream: &'a StreamInner,
    clock: &'a mut Clock,
    waits: Waits,
    elided: u64,
}

/// Few in nearly all cases: moving them costs what they hold inline.
type Waits = SmallVec<[Wait; 4]>;

impl Order<'_> {
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.stream.slot
    }

    /// Free if the tick is of this stream, in its clock, or complete; one wait otherwise.
    #[inline]
    pub(crate) fn behind(&mut self, tick: Tick) {
        if tick.slot() == self.stream.slot || tick == Tick::NONE {
            return;
        }
        if self.is_behind(tick) {
            self.elided += 1;
        } else {
            self.wait(tick);
        }
    }

    #[inline]
    pub(crate) fn is_behind(&mut self, tick: Tick) -> bool {
        let (slot, sequence) = (tick.slot(), tick.sequence());
        if slot == self.stream.slot || sequence <= self.clock[slot] {
            return true;
        }
        let producer = self.stream.device.opened(slot);
        if producer.is_complete(sequence) {
            self.clock[slot] = self.clock[slot].max(producer.completed.load(Acquire).max(sequence));
            return true;
        }
        false
    }

    #[cold]
    fn wait(&mut self, tick: Tick) {
        // Only what the producer knew *at the tick*: what it has learnt since is not ordered before the tick.
        let history = self.stream.device.opened(tick.slot()).history.lock();
        let mut versions = history.iter().rev();
        let known = if fault!(current_clock) {
            versions.next()
        } else {
            versions.find(|(from, _)| *from <= tick.sequence())
        };
        if let Some((_, clock)) = known {
            merge(self.clock, clock);
        }
        drop(history);
        self.clock[tick.slot()] = tick.sequence();
        let wait = Wait { queue: QueueId(tick.slot() as u8), sequence: tick.sequence() };
        match self.waits.iter_mut().find(|known| known.queue == wait.queue) {
            Some(earlier) => *earlier = wait,
            None => self.waits.push(wait),
        }
    }
}

/// Publishes, stamps and releases when dropped.
struct Enqueued<'a> {
    tick: Tick,
    stream: &'a StreamInner,
    claims: SmallVec<[Claim<'a>; 4]>,
    state: MutexGuard<'a, State>,
}

impl Drop for Enqueued<'_> {
    fn drop(&mut self) {
        // Before the marks: nobody can wait for what is not enqueued.
        self.stream.enqueued.store(self.tick.sequence(), Release);
        self.claims.drain(..).for_each(|claim| claim.stamp(self.tick));
    }
}

/// So many touches are sorted by insertion (guess).
const FEW_TOUCHES: usize = 16;

/// In the order of ids, in which they are claimed, and each block once: one that is read and written is written.
/// By insertion if there are few, as there nearly always are.
#[inline]
fn sorted<'a, 'b>(touches: &'b mut [Touch<'a>]) -> &'b mut [Touch<'a>] {
    let key = |touch: &Touch<'_>| (touch.block.id, touch.access == Access::Read);
    if touches.len() > FEW_TOUCHES {
        touches.sort_unstable_by_key(key);
    }
    for end in 1..touches.len() {
        let mut place = end;
        while place > 0 && key(&touches[place]) < key(&touches[place - 1]) {
            touches.swap(place, place - 1);
            place -= 1;
        }
    }
    let mut count = touches.len().min(1);
    for next in 1..touches.len() {
        if std::ptr::eq(touches[next].block, touches[count - 1].block) {
            touches[count - 1].whole = false;
        } else {
            touches[count] = touches[next];
            count += 1;
        }
    }
    &mut touches[..count]
}

impl StreamInner {
    /// Puts a launch on this stream, behind what its blocks and `after` have to wait for. Blocks only while the stream is
    /// full or, on a device that says `Inline`, while the launch runs.
    #[inline]
    pub(crate) fn submit(
        &'static self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [Touch<'_>],
        after: &[Tick],
    ) -> Result<()> {
        self.wait_for_room()?;
        self.enqueue(op, launch, touches, after)
    }

    /// Marks a block that is being freed as used by all that is on this stream. Doesn't block, so it may take one more
    /// place than the stream has room for.
    pub(crate) fn fence(&'static self, block: &Block) {
        let touch = Touch { block, access: Access::Read, whole: false };
        // A lost device uses nothing any more.
        _ = self.enqueue("fence", &Launch::Nothing, &mut [touch], &[]);
    }

    /// As [`StreamInner::submit`], when there is room.
    #[inline]
    pub(crate) fn enqueue(
        &'static self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [Touch<'_>],
        after: &[Tick],
    ) -> Result<()> {
        let hal = &*self.device.hal;
        let trace = trace::start();

        let touches = &*sorted(touches);

        let state = self.state.lock();
        if state.sequence == Tick::SEQUENCE_MAX {
            return Err(Error::StreamExhausted {
                device: self.device.name().into(),
                stream: crate::Stream(self).id().0,
            });
        }
        let sequence = state.sequence + 1;
        let mut enqueued =
            Enqueued { tick: self.tick(sequence), stream: self, claims: SmallVec::new(), state };
        let Enqueued { tick, claims, state, .. } = &mut enqueued;
        let state = &mut **state;
        let mut order = Order { stream: self, clock: &mut state.clock, waits: Waits::new(), elided: 0 };
        after.iter().for_each(|tick| order.behind(*tick));
        for touch in touches {
            claims.push(match touch.access {
                Access::Read => touch.block.marks.claim_read(&mut order),
                Access::Write => touch.block.marks.claim_write(&mut order),
            });
        }
        let (waits, tick) = (order.waits, *tick);
        state.sequence = sequence;
        state.elided += order.elided;
        if !waits.is_empty() {
            state.inserted += waits.len() as u64;
            self.remember(sequence, &state.clock);
        }
        // SAFETY: the queue is open since the stream was made; its lock makes sequences gapless and calls exclusive;
        // waits name ticks found in marks, stamped after their submission returned; the caller has checked the
        // operands; blocks stay allocated while their ticks are incomplete (`alloc`), and downloads are waited for.
        let submitted = unsafe { hal.submit(self.queue(), sequence, &waits, launch) };
        let submitted = match submitted {
            Ok(submitted) => submitted,
            Err(error) => {
                self.skip(sequence, &waits);
                drop(enqueued);
                return Err(self.device.error(error));
            }
        };
        let fallible = launch.is_fallible();
        let taint = self.taint(fallible.then_some((op, tick, submitted == Submitted::Inline)), touches);
        drop(enqueued);
        if memory_trace::is_on(self.device) {
            memory_trace::used(self, touches);
        }
        if let Some(start) = trace {
            let queue = (self.device.index, self.slot as u8);
            trace::enqueued(
                queue,
                sequence,
                op,
                start,
                waits.iter().map(|wait| (wait.queue.0, wait.sequence)),
            );
        }

        match submitted {
            Submitted::Queued => Ok(()),
            Submitted::Inline => {
                // SAFETY: it is what `submit` has just been asked, for this queue and sequence, once.
                let result = unsafe { hal.run(self.queue(), sequence, launch) };
                if fallible {
                    self.device.taints.settle(taint, result.as_ref().err().cloned());
                }
                result.map_err(|error| {
                    // Nothing was written and the caller knows: the outputs are as good as before. Of a graph only the kernel
                    // that failed has written nothing.
                    let written = |touch: &&Touch<'_>| touch.access == Access::Write;
                    let is_graph = matches!(launch, Launch::Graph { .. });
                    for touch in touches.iter().filter(|touch| !is_graph && written(touch)) {
                        _ = touch.block.taint.compare_exchange(taint, 0, Relaxed, Relaxed);
                    }
                    Error::Kernel { op, error, stream: crate::Stream(self).id().0, sequence }
                })
            }
        }
    }

    /// Which failed, or perhaps failing, op the outputs depend on; 0 for none. Called while the operands are claimed.
    #[inline]
    fn taint(&self, fallible: Option<(&'static str, Tick, bool)>, touches: &[Touch<'_>]) -> u64 {
        let mut taint = 0;
        for touch in touches {
            let own = touch.block.taint.load(Relaxed); // ordered by the claim
            if own != 0 && !touch.whole {
                taint = self.device.taints.join(taint, own);
            }
        }
        if let Some((op, tick, inline)) = fallible {
            taint = self.device.taints.add(op, tick, inline, taint);
        }
        for touch in touches.iter().filter(|touch| touch.access == Access::Write) {
            if touch.block.taint.load(Relaxed) != taint {
                touch.block.taint.store(taint, Relaxed);
            }
        }
        taint
    }

    /// Uses a sequence number up for nothing, after the device has refused a launch: marks that were claimed for it may
    /// be stamped with it, since it is behind the same waits. If the device refuses that as well, it is lost, and then
    /// everything counts as complete.
    #[cold]
    fn skip(&self, sequence: u64, waits: &[Wait]) {
        let hal = &*self.device.hal;
        // SAFETY: as for the launch that was refused, which has used no number.
        match unsafe { hal.submit(self.queue(), sequence, waits, &Launch::Nothing) } {
            // SAFETY: it was just asked, and has no operands.
            Ok(Submitted::Inline) => _ = unsafe { hal.run(self.queue(), sequence, &Launch::Nothing) },
            Ok(Submitted::Queued) => (),
            Err(_) => self.device.lost.store(true, Release), // pairs with the Acquire in `is_complete`
        }
    }

    #[cold]
    fn remember(&self, sequence: u64, clock: &Clock) {
        let mut history = self.history.lock();
        let oldest = if history.len() == HISTORY_COUNT_MAX { history.pop_front() } else { None };
        let mut copy = oldest.map_or_else(|| Box::new([0; SLOT_COUNT]), |(_, clock)| clock);
        copy.copy_from_slice(clock);
        history.push_back((sequence, copy));
    }

    /// Blocks while the stream has as much in flight as its queue holds. Nothing is held meanwhile.
    #[inline]
    pub(crate) fn wait_for_room(&'static self) -> Result<()> {
        let in_flight_max = self.device.in_flight_count_max;
        let enqueued = self.enqueued.load(Relaxed);
        if enqueued.saturating_sub(self.completed.load(Relaxed)) < in_flight_max
            || enqueued.saturating_sub(self.poll()) < in_flight_max
        {
            return Ok(());
        }
        let _held = fault!(wait_under_lock).then(|| self.state.lock());
        self.synchronize(enqueued - in_flight_max / 2)
    }
}

impl DeviceInner {
    pub(crate) fn is_complete(&self, tick: Tick) -> bool {
        tick == Tick::NONE || self.opened(tick.slot()).is_complete(tick.sequence()) || self.lost.load(Acquire)
    }

    pub(crate) fn error(&self, error: DeviceError) -> Error {
        Error::Device { device: self.name().into(), error }
    }
}
