//! One answer: a [`Promise`] on the side of the batch, a [`Slot`] on the side of the caller.
//!
//! **No future is stuck.** A promise that is dropped without having answered says [`Error::Stopped`]; so whatever becomes of
//! the one who holds it, the caller is told. **Nobody is hurt by a caller that has gone**: an answer that nobody wants is
//! dropped with the last of both sides.

use crate::Error;
use raddle_sync::{Arc, Condvar, Mutex, Rank, fault};
use std::{
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

pub(crate) type Outcome<R, E> = Result<R, Error<E>>;

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

    /// Blocks until there is an answer.
    pub(crate) fn wait(&self) -> Outcome<R, E> {
        let mut state = self.state.lock();
        loop {
            match state.take() {
                Some(outcome) => return outcome,
                None => state = self.answered.wait(state),
            }
        }
    }

    /// Blocks until there is an answer, but at most for `limit`.
    pub(crate) fn wait_timeout(&self, limit: Duration) -> Option<Outcome<R, E>> {
        let start = Instant::now();
        let mut state = self.state.lock();
        loop {
            let outcome = state.take();
            match limit.checked_sub(start.elapsed()) {
                Some(left) if outcome.is_none() => {
                    state = self.answered.wait_timeout(state, left).0;
                }
                _ => return outcome,
            }
        }
    }

    /// The answer, or a call of the waker when it is there.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome<R, E>> {
        // Wakers are code of others, which isn't run under the lock.
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        if let Some(outcome) = state.take() {
            return Poll::Ready(outcome);
        }
        let before = std::mem::replace(&mut *state, State::Waiting(Some(waker)));
        drop(state);
        drop(before);
        Poll::Pending
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

/// Runs code of others, wakers and destructors, whose panics must not end a thread that others wait for.
pub(crate) fn contained(body: impl FnOnce()) {
    _ = raddle_sync::caught(body);
}
