//! Who shares a stream with whom: threads bind to the least shared one, or take one for themselves.
//!
//! **Guarantees.** No two threads hold one stream as dedicated. A thread that is bound without having asked for a stream is
//! never bound to a dedicated one. A thread that waits for a stream is woken when one becomes free: no wake-up is lost.
//! A hold ends with its guard, by a panic too, and at the latest with its thread.
//!
//! **How.** `owner` of a stream names the hold; it changes under the pool's lock only. A stream can be dedicated if nobody
//! owns it and no thread has it as its current one. Threads let go without that lock, so whoever is about to sleep sets
//! [`WANTED`] in the very word that counts the users: both are read-modify-writes of one word, so either the sleeper
//! sees that the last user has gone, or the last user sees that it is wanted, takes the lock and wakes all sleepers.
//!
//! **What is left to users.** A handle of a dedicated stream can still be given to others, and a stream that another thread
//! has entered before isn't taken from it.

use crate::{
    ground::{Error, Result, fork},
    order::{StreamInner, Streams},
};
use raddle_sync::{atomic::Ordering::*, fault};
use std::time::{Duration, Instant};

/// In the count of a stream's users: somebody waits for it to become 0.
const WANTED: u32 = 1 << 31;

/// What a thread does that finds no stream for itself: 32 are dedicated or in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exhausted {
    /// It gets [`Error::StreamsTaken`].
    #[default]
    Error,
    /// It waits until there is one.
    Wait,
    /// It waits at most so long, then gets the error.
    WaitFor(Duration),
}

/// A stream that nobody owns or uses, and that takes work; made ones first, so that a device's few hardware queues aren't
/// spread thin. `wanted` is set in the count of those that are in use.
fn find_free(device: &Streams, wanted: u32) -> Option<usize> {
    let is_free = |&slot: &usize| match device.made(slot) {
        Some(stream) => {
            let mut is_owned = stream.owner.load(Relaxed) != 0;
            fault!(shared_dedicated => is_owned = false);
            // AcqRel: the last user's work on the stream comes before ours.
            let is_used = || {
                let users = stream.users.fetch_or(wanted, AcqRel);
                fault!(shared_dedicated => return false);
                users & !WANTED != 0
            };
            !is_owned && !stream.is_exhausted() && !is_used()
        }
        None => true,
    };
    (1..=device.pool_count).filter(is_free).min_by_key(|&slot| device.made(slot).is_none())
}

/// Takes a stream for one thread; what names the hold is never 0.
pub(crate) fn claim(device: &'static Streams, exhausted: Exhausted) -> Result<(&'static StreamInner, u64)> {
    let start = Instant::now();
    let mut pool = device.pool.lock();
    let mut slot = find_free(device, 0);
    if slot.is_none() && exhausted != Exhausted::Error {
        pool.waiting += 1;
        loop {
            slot = find_free(device, WANTED);
            let left = match exhausted {
                Exhausted::WaitFor(limit) => limit.checked_sub(start.elapsed()),
                _ => Some(Duration::MAX),
            };
            pool = match (slot, left) {
                (Some(_), _) | (None, None) => break,
                (None, Some(Duration::MAX)) => device.freed.wait(pool),
                (None, Some(left)) => device.freed.wait_timeout(pool, left).0,
            };
        }
        pool.waiting -= 1;
        if pool.waiting == 0 {
            let made = (1..=device.pool_count).filter_map(|slot| device.made(slot));
            made.for_each(|stream| _ = stream.users.fetch_and(!WANTED, Relaxed));
        }
    }
    let Some(slot) = slot else {
        return Err(Error::StreamsTaken { device: device.name().into(), count_max: device.pool_count });
    };
    let stream = device.stream_in_pool(slot, &pool)?;
    pool.holds += 1;
    stream.owner.store(pool.holds, Relaxed);
    Ok((stream, pool.holds))
}

/// Ends a hold, unless it has ended.
pub(crate) fn release(stream: &'static StreamInner, hold: u64) {
    if fork::is_child(stream.device) {
        return; // the lock is the parent's, and so is the hold
    }
    let _pool = stream.device.pool.lock();
    if stream.owner.load(Relaxed) == hold {
        stream.owner.store(0, Relaxed);
        wake(stream.device);
    }
}

/// One user less.
pub(crate) fn let_go(stream: &'static StreamInner) {
    // AcqRel: pairs with the like in `find_free`; see the module.
    if stream.users.fetch_sub(1, AcqRel) == WANTED | 1 && !fork::is_child(stream.device) {
        let _pool = stream.device.pool.lock();
        wake(stream.device);
    }
}

/// Under the lock of the pool, so that nobody is between looking and sleeping. All: one may be about to give up.
fn wake(device: &Streams) {
    if !fault!(lost_slot_wakeup) {
        device.freed.notify_all();
    }
}

/// How many threads use it.
pub(crate) fn users(stream: &StreamInner) -> u32 {
    stream.users.load(Relaxed) & !WANTED
}

/// The stream for a thread that has asked for none, which counts as its user from now on. None that is dedicated, or
/// that somebody waits for; one that takes no more work only if no other is left.
pub(crate) fn least_shared(device: &'static Streams) -> Result<&'static StreamInner> {
    let pool = device.pool.lock();
    let owner = |slot: usize| device.made(slot).map_or(0, |stream| stream.owner.load(Relaxed));
    let users = |slot: usize| device.made(slot).map_or(0, users);
    let all = if pool.waiting == 0 { 0..=device.pool_count } else { 0..=0 };
    let is_exhausted = |slot: usize| device.made(slot).is_some_and(StreamInner::is_exhausted);
    let least = |&slot: &usize| (is_exhausted(slot), users(slot));
    let slot = all.filter(|&slot| owner(slot) == 0).min_by_key(least).unwrap_or(0);
    let stream = device.stream_in_pool(slot, &pool)?;
    stream.users.fetch_add(1, Relaxed);
    Ok(stream)
}
