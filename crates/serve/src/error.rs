//! What can go wrong between a request and its answer. The text reads: where, what, expected, found.

use std::time::Duration;

/// Options with which no batcher can work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum OptionsError {
    /// Too few or too many of something.
    #[error("batcher: {what} is out of range, expected from 1 to {count_max}, found {found_count}")]
    Count { what: &'static str, count_max: usize, found_count: usize },
    /// Buckets that don't grow.
    #[error(
        "batcher: buckets_tokens must grow, expected more than {expected_above} at index {index}, found {found}"
    )]
    Buckets { index: usize, expected_above: usize, found: usize },
    /// A bucket from which nothing could ever run.
    #[error(
        "batcher: a request of {bucket_tokens} tokens fits a bucket but no batch, expected batch_tokens_max of at least \
         that, found {batch_tokens_max}"
    )]
    BatchTooSmall { bucket_tokens: usize, batch_tokens_max: usize },
}

/// Why a batcher can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The options contradict each other.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The system gives no thread.
    #[error("batcher: a thread can't be started, {0}")]
    Thread(std::io::Error),
}

/// Why a request was not accepted. Nothing is kept of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Rejected {
    /// It fits no bucket, and so no batch, at any time.
    #[error(
        "submit: the request is too long for a batch, expected at most {length_tokens_max} tokens, found {length_tokens}"
    )]
    TooLong { length_tokens: usize, length_tokens_max: usize },
    /// The queue is full: try later.
    #[error(
        "submit: the queue is full, expected less than {waiting_count_max} requests waiting, found as many"
    )]
    Full { waiting_count_max: usize },
    /// It wants to begin within no time at all.
    #[error("submit: the request has no time to begin, expected begin_within of more than 0, found 0")]
    Late,
    /// The batcher has been stopped.
    #[error("submit: the batcher has been stopped")]
    Stopped,
    /// The batcher belongs to the process that started it.
    #[error("submit: used in a forked child, where the batcher has no threads; start one after the fork")]
    Forked,
}

/// Why an accepted request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the text of each")]
pub enum Error<E> {
    /// Its time was over before its batch began; it was not run.
    #[error("batch: the request has not begun within {begin_within:?}")]
    Expired { begin_within: Duration },
    /// The handler panicked with its batch.
    #[error("batch: the handler panicked, {message}")]
    Panicked { message: String },
    /// The handler didn't give one result for each item, so that none can be trusted to be whose.
    #[error(
        "batch: the handler gave the wrong number of results, expected {expected_count}, found {found_count}"
    )]
    ResultCount { expected_count: usize, found_count: usize },
    /// The batcher ended without running it.
    #[error("batch: the batcher was stopped before the request began")]
    Stopped,
    /// The answer goes to the process that submitted the request.
    #[error("answer: used in a forked child, the request is the parent's")]
    Forked,
    /// The answer was taken before.
    #[error("answer: it has been taken already")]
    Taken,
    /// The handler's own error for this item.
    #[error("{0}")]
    Handler(E),
}
