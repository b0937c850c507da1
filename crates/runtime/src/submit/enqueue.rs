//! Submission: the only caller of queues.
//!
//! Guarantees: an op is enqueued behind everything that its operands have to wait for (T2), on ticks that have been
//! enqueued already, so waits can't circle (T5); it owns its operands' memory through the ticks that it stamps (T3: a
//! block is not given back to the device before its ticks are complete).
//!
//! The life of an op: wait for room on the stream, holding nothing; lock the stream, or wait again if others have taken the
//! room meanwhile (T9); claim the operands in the order of their blocks; compute the waits; hand the launch to the device,
//! which doesn't block; publish `enqueued`; stamp and release; unlock. If the device says `Inline`, run it then, outside of
//! all locks: a long GEMM freezes nobody. Stream locks never nest. The stamp is made by `Drop`: a launch that the device
//! refuses, or panics at, uses its number up for nothing, and holds nothing.

use super::{
    access::{Access, BlockAccess},
    witness,
};
use crate::{
    ground::{Error, Result},
    memory::{Block, report::trace as recording},
    order::{Claim, Clock, State, Stream, StreamInner, Tick, WaitSet},
};
use raddle_hal::{
    Launch, Submitted, Wait,
    trace::{self, Timestamp, Work},
};
use raddle_sync::{MutexGuard, atomic::Ordering::*, fault};
use smallvec::SmallVec;

/// Publishes, stamps and releases when dropped.
struct Enqueued<'a> {
    tick: Tick,
    stream: &'a StreamInner,
    claims: SmallVec<[Claim<'a>; 4]>,
    state: MutexGuard<'a, State>,
}

impl Enqueued<'_> {
    #[inline]
    fn stamp(&mut self) {
        if fault!(borrowed_operand) {
            // In the order of the blocks, as the bias of a `layer_norm`.
            if let Some(last) = self.claims.iter().rposition(|claim| matches!(claim, Claim::Read(_))) {
                self.claims.remove(last).stamp(Tick::NONE);
            }
        }
        self.claims.drain(..).for_each(|claim| claim.stamp(self.tick));
    }
}

impl Drop for Enqueued<'_> {
    fn drop(&mut self) {
        // Before the marks: nobody can wait for what is not enqueued.
        self.stream.enqueued.store(self.tick.sequence(), Release);
        if std::thread::panicking() {
            fault!(panic_keeps_claims => self.claims.drain(..).for_each(std::mem::forget));
        }
        self.stamp();
    }
}

/// A launch that the device hasn't taken, by an error or a panic, uses its number up for nothing: the marks that were
/// claimed for it may be stamped with it, since that is behind the same waits.
struct Refused<'a> {
    stream: &'a StreamInner,
    sequence: u64,
    waits: &'a [Wait],
}

impl Drop for Refused<'_> {
    /// If the device refuses that as well, it is lost, and then everything counts as complete.
    #[cold]
    fn drop(&mut self) {
        let Refused { stream, sequence, waits } = *self;
        let hal = &*stream.device.hal;
        // SAFETY: as for the launch that was refused, which has used no number.
        match unsafe { hal.submit(stream.queue(), sequence, waits, &Launch::Nothing) } {
            // SAFETY: it was just asked, and has no operands.
            Ok(Submitted::Inline) => _ = unsafe { hal.run(stream.queue(), sequence, &Launch::Nothing) },
            Ok(Submitted::Queued) => (),
            Err(_) => stream.device.lost.store(true, Release), // pairs with the Acquire in `is_complete`
        }
    }
}

/// So many touches are sorted by insertion (guess).
const FEW_TOUCHES: usize = 16;

/// In the order of ids, in which they are claimed, and each block once: one that is read and written is written.
/// By insertion if there are few, as there nearly always are.
#[inline]
fn sorted<'a, 'b>(touches: &'b mut [BlockAccess<'a>]) -> &'b mut [BlockAccess<'a>] {
    if fault!(claims_unsorted) {
        return touches;
    }
    let key = |touch: &BlockAccess<'_>| (touch.block.id, touch.access == Access::Read);
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

impl Stream {
    /// Puts a launch on this stream, behind what its blocks and `after` have to wait for. Blocks only while the stream is
    /// full or, on a device that says `Inline`, while the launch runs. The number of the failure that the op depends on, as
    /// its blocks had it when they were claimed; 0 for none.
    #[inline]
    pub(crate) fn submit(
        self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [BlockAccess<'_>],
        after: &[Tick],
    ) -> Result<u64> {
        self.0.wait_for_room()?;
        self.enqueue_in_room(op, launch, touches, after)
    }

    /// As [`Stream::submit`], for who has just seen room, which may be taken by now.
    #[inline]
    pub(crate) fn enqueue_in_room(
        self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [BlockAccess<'_>],
        after: &[Tick],
    ) -> Result<u64> {
        self.enqueue_if::<true>(op, launch, touches, after)
    }

    /// As [`Stream::submit`], but whether there is room or not. Doesn't block.
    pub(crate) fn enqueue(
        self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [BlockAccess<'_>],
        after: &[Tick],
    ) -> Result<u64> {
        self.enqueue_if::<false>(op, launch, touches, after)
    }

    /// `ROOM`: only in room.
    #[inline]
    fn enqueue_if<const ROOM: bool>(
        self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [BlockAccess<'_>],
        after: &[Tick],
    ) -> Result<u64> {
        let stream = self.0;
        let hal = &*stream.device.hal;
        let trace = trace::start();

        let touches = &*sorted(touches);

        let mut state = stream.state.lock();
        if ROOM && !stream.has_room() {
            state = stream.state_in_room(state)?;
        }
        let mut _nested = None;
        fault!(falling_rank => _nested = Some(stream.device.pool.lock()));
        self.check(&state)?;
        let sequence = state.sequence + 1;
        let mut enqueued = Enqueued { tick: stream.tick(sequence), stream, claims: SmallVec::new(), state };
        let Enqueued { tick, claims, state, .. } = &mut enqueued;
        let state = &mut **state;
        let mut needed = WaitSet::new(stream, &mut state.clock);
        after.iter().for_each(|tick| needed.behind(*tick));
        let mut looked = None;
        if fault!(looks_before_it_claims) {
            touches.iter().for_each(|touch| touch.block.marks.look(&mut needed));
            looked = Some(needed.waits.clone());
        }
        for touch in touches {
            claims.push(match touch.access {
                Access::Read => touch.block.marks.claim_read(&mut needed),
                Access::Write => touch.block.marks.claim_write(&mut needed),
            });
        }
        let (waits, tick) = (looked.unwrap_or(needed.waits), *tick);
        state.sequence = sequence;
        state.elided += needed.elided;
        if !waits.is_empty() {
            state.inserted += waits.len() as u64;
            stream.remember(sequence, &state.clock);
        }
        if fault!(stamp_before_submit) {
            enqueued.stamp();
        }
        let mut goes_on = true;
        if !fault!(told_after_release) {
            goes_on = witness::tell(touches);
        }
        if !goes_on {
            fault!(refused_is_written => _ = stream.note(None, touches, true));
        }
        // Marks of what won't run are stamped all the same: it is behind what it would have been behind.
        let (launch, touches) = if goes_on { (launch, touches) } else { (&Launch::Nothing, &[][..]) };
        let refused = Refused { stream, sequence, waits: &waits };
        // SAFETY: the queue is open since the stream was made; its lock makes sequences gapless and calls exclusive;
        // waits name ticks found in marks, stamped after their submission returned; the caller has checked the
        // operands; blocks stay allocated while their ticks are incomplete (`memory`), and downloads are waited for.
        let submitted = unsafe { hal.submit(stream.queue(), sequence, &waits, launch) };
        let submitted = submitted.map_err(|error| stream.device.error(error))?;
        std::mem::forget(refused);
        let fallible = launch.is_fallible();
        // What to go back to if it fails before it has written anything.
        let before: SmallVec<[u64; 4]> = if fallible {
            touches.iter().map(|touch| touch.block.taint.load(Relaxed)).collect()
        } else {
            SmallVec::new()
        };
        // What waits for a block, and does nothing, writes nothing.
        let writes = !matches!(launch, Launch::Nothing);
        let taint =
            stream.note(fallible.then_some((op, tick, submitted == Submitted::Inline)), touches, writes);
        drop(enqueued);
        if fault!(told_after_release) {
            witness::tell(touches);
        }
        if recording::is_on(stream.device) {
            recording::used(stream, touches.iter().map(|touch| touch.block));
        }
        let work = Work { source: stream.device.source, queue: stream.slot as u8, sequence };
        let awaited = || waits.iter().map(|wait| (wait.queue.0, wait.sequence));
        match submitted {
            Submitted::Queued => {
                if let Some(start) = trace {
                    trace::submitted(work, op, start, awaited());
                }
                Ok(taint)
            }
            Submitted::Inline => {
                let trace = trace.map(|start| (start, Timestamp::now()));
                // SAFETY: it is what `submit` has just been asked, for this queue and sequence, once.
                let result = unsafe { hal.run(stream.queue(), sequence, launch) };
                if let Some((start, enqueued)) = trace {
                    trace::submitted_and_ran(work, [op, launch.name()], start, enqueued, awaited());
                }
                if fallible {
                    stream.device.taints.settle(taint, result.as_ref().err().cloned(), stream.device);
                }
                result.map(|()| taint).map_err(|error| {
                    // Nothing was written and the caller knows: the outputs are as good, or as bad, as before. Of a graph
                    // only the kernel that failed has written nothing.
                    let is_graph = matches!(launch, Launch::Graph { .. });
                    let written =
                        |(touch, _): &(&BlockAccess<'_>, &u64)| !is_graph && touch.access == Access::Write;
                    for (touch, before) in touches.iter().zip(&before).filter(written) {
                        _ = touch.block.taint.compare_exchange(taint, *before, Relaxed, Relaxed);
                    }
                    Error::Kernel { op, error, stream: self.id().0, sequence }
                })
            }
        }
    }

    /// Does the stream take work by this handle?
    #[inline]
    fn check(self, state: &State) -> Result<()> {
        self.check_open()?;
        if state.sequence == Tick::SEQUENCE_MAX {
            return Err(Error::StreamExhausted { device: self.0.device.name().into(), stream: self.id().0 });
        }
        Ok(())
    }
}

impl StreamInner {
    /// Marks a block that is being freed as used by all that is on this stream. Doesn't block, so it may take more places than
    /// the stream has room for: one for each buffer that is noted on it, since `record_stream` waits for room.
    ///
    /// Where no other code has been given the stream's handle, all that is there has a tick, and the last one covers it: no
    /// place is taken. Elsewhere there may be work behind the last tick, even if that is of a fence. (A stream that has
    /// used its numbers up has none for that.)
    pub(crate) fn fence(&'static self, block: &Block) {
        let mut is_hidden = !self.is_shown.load(Relaxed);
        fault!(fences_without_end => is_hidden = false);
        if is_hidden {
            return self.stamp_last(block);
        }
        let touch = BlockAccess { block, access: Access::Read, whole: false };
        if let Err(Error::StreamClosed { .. } | Error::StreamExhausted { .. }) =
            self.handle().enqueue("fence", &Launch::Nothing, &mut [touch], &[])
        {
            self.stamp_last(block);
        } // a lost device uses nothing any more
    }

    /// As [`StreamInner::fence`], by the last tick of the stream.
    #[cold]
    fn stamp_last(&self, block: &Block) {
        let state = self.state.lock();
        // Nothing is put behind what the block has to wait for, so the stream learns nothing either.
        let mut clock = state.clock.clone();
        let mut waits = WaitSet::new(self, &mut clock);
        block.marks.claim_read(&mut waits).stamp(self.tick(state.sequence));
    }

    /// Counts the writes, and finds which failed, or perhaps failing, op the outputs depend on; 0 for none. Called while the
    /// operands are claimed.
    #[inline]
    fn note(
        &self,
        fallible: Option<(&'static str, Tick, bool)>,
        touches: &[BlockAccess<'_>],
        writes: bool,
    ) -> u64 {
        let mut taint = if fault!(error_to_the_next) { self.device.taints.newest() } else { 0 };
        for touch in touches {
            let own = touch.block.taint.load(Relaxed); // ordered by the claim
            let mut hands_on = own != 0 && !touch.whole;
            fault!(error_stops_at_op => hands_on = false);
            if hands_on {
                taint = self.device.taints.join(taint, own, self.device);
            }
        }
        if let Some((op, tick, inline)) = fallible {
            taint = self.device.taints.add(op, tick, inline, taint, self.device);
        }
        for touch in touches.iter().filter(|touch| writes && touch.access == Access::Write) {
            touch.block.count_write();
            if touch.block.taint.load(Relaxed) != taint {
                touch.block.taint.store(taint, Relaxed);
            }
        }
        taint
    }

    #[cold]
    fn remember(&self, sequence: u64, clock: &Clock) {
        let mut history = self.history.lock();
        // A wait for an older tick is still right: it only teaches less.
        let mut is_full = history.len() >= self.device.bounds().history_count;
        fault!(history_grows => is_full = false);
        let oldest = if is_full { history.pop_front() } else { None };
        let mut copy = oldest.map_or_else(|| Box::new(Clock::new()), |(_, clock)| clock);
        copy.copy_from(clock);
        history.push_back((sequence, copy));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn claims_go_up_and_each_block_is_claimed_once() {
        let (device, _) = crate::tests::oracle::open(8);
        let buffers: Vec<_> = (0..24).map(|_| device.allocate(64).unwrap()).collect();
        for count in [1, 2, 5, FEW_TOUCHES + 8] {
            let mut touches: Vec<BlockAccess<'_>> = (0..2 * count)
                .map(|index| BlockAccess {
                    block: buffers[index * 7 % count].block(),
                    access: if index < count { Access::Read } else { Access::Write },
                    whole: true,
                })
                .collect();
            let touches = sorted(&mut touches);
            assert_eq!(touches.len(), count);
            assert!(touches.is_sorted_by(|a, b| a.block.id < b.block.id));
            assert!(touches.iter().all(|touch| touch.access == Access::Write && !touch.whole));
        }
    }
}
