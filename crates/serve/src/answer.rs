//! One answer: a promise on the side of the batch, an [`Answer`] on the side of the caller.
//!
//! **No future is stuck.** A promise that is dropped without having answered says [`Error::Stopped`]; so whatever becomes of
//! the one who holds it, the caller is told. **Nobody is hurt by a caller that has gone**: an answer that nobody wants is
//! dropped with the last of both sides.

use crate::{
    Error, Ticket,
    batcher::{Queue, contained},
};
use raddle_sync::{Arc, Condvar, Mutex, Rank, fault};
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

type Outcome<R, E> = Result<R, Error<E>>;

enum State<R, E> {
    Waiting(Option<Waker>),
    Answered(Outcome<R, E>),
    Taken,
}

pub(crate) struct Slot<R, E> {
    state: Mutex<State<R, E>>,
    /// Signalled when there is an answer.
    answered: Condvar,
}

impl<R, E> Slot<R, E> {
    pub(crate) fn new() -> Slot<R, E> {
        Slot { state: Mutex::new(Rank::Leaf, State::Waiting(None)), answered: Condvar::new() }
    }

    /// Answers, unless that has been done.
    fn put(&self, outcome: Outcome<R, E>) {
        let mut state = self.state.lock();
        let State::Waiting(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Answered(outcome);
        drop(state);
        self.answered.notify_one();
        if !fault!(answer_wakes_nobody) {
            contained(|| waker.into_iter().for_each(Waker::wake));
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        !matches!(*self.state.lock(), State::Waiting(_))
    }
}

impl<R, E> State<R, E> {
    /// The answer if there is one, or if there will be none.
    fn take(&mut self) -> Option<Outcome<R, E>> {
        match std::mem::replace(self, State::Taken) {
            State::Answered(outcome) => Some(outcome),
            State::Taken => Some(Err(Error::Taken)),
            waiting => {
                *self = waiting;
                None
            }
        }
    }
}

/// The duty to answer.
pub(crate) struct Promise<R, E>(pub(crate) Arc<Slot<R, E>>);

impl<R, E> Promise<R, E> {
    /// If the caller has gone, this destroys what it would have been given.
    pub(crate) fn answer(self, outcome: Outcome<R, E>) {
        contained(move || self.0.put(outcome));
    }
}

impl<R, E> Drop for Promise<R, E> {
    fn drop(&mut self) {
        self.0.put(Err(Error::Stopped));
    }
}

/// The answer to a request: a future, on any executor, or to be waited for. It is ready at the latest when the batcher has
/// stopped. Dropping it takes the request back if it has not begun, and makes its room free; else its result is dropped.
/// In a forked child it is [`Error::Forked`].
#[must_use = "dropping it takes the request back"]
pub struct Answer<T, R, E> {
    pub(crate) slot: Arc<Slot<R, E>>,
    pub(crate) queue: Arc<Queue<T, R, E>>,
    pub(crate) ticket: Ticket,
}

impl<T, R, E> Answer<T, R, E> {
    /// Blocks until there is an answer. Not to be called by the handler of the same batcher: it may wait for itself.
    pub fn wait(self) -> Outcome<R, E> {
        if self.queue.is_forked() {
            return Err(Error::Forked);
        }
        let mut state = self.slot.state.lock();
        loop {
            match state.take() {
                Some(outcome) => return outcome,
                None => state = self.slot.answered.wait(state),
            }
        }
    }

    /// Blocks until there is an answer, but at most for `limit`; `None` if there is none by then, and it can be waited for
    /// again. Once it has given the answer, it gives [`Error::Taken`]. Not for handlers, as [`Answer::wait`].
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Outcome<R, E>> {
        if self.queue.is_forked() {
            return Some(Err(Error::Forked));
        }
        let start = Instant::now();
        let mut state = self.slot.state.lock();
        loop {
            let outcome = state.take();
            match limit.checked_sub(start.elapsed()) {
                Some(left) if outcome.is_none() => {
                    state = self.slot.answered.wait_timeout(state, left).0;
                }
                _ => return outcome,
            }
        }
    }
}

impl<T, R, E> Future for Answer<T, R, E> {
    type Output = Outcome<R, E>;

    /// Polled again after it was ready, it is [`Error::Taken`].
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<R, E>> {
        if self.queue.is_forked() {
            return Poll::Ready(Err(Error::Forked));
        }
        // Wakers are code of others, which isn't run under the lock.
        let waker = context.waker().clone();
        let mut state = self.slot.state.lock();
        if let Some(outcome) = state.take() {
            return Poll::Ready(outcome);
        }
        let before = std::mem::replace(&mut *state, State::Waiting(Some(waker)));
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<T, R, E> Drop for Answer<T, R, E> {
    fn drop(&mut self) {
        if !self.queue.is_forked() && !self.slot.is_answered() {
            self.queue.withdraw(self.ticket);
        }
    }
}

impl<T, R, E> fmt::Debug for Answer<T, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({:?})", self.ticket)
    }
}
