//! Which requests run together, and when: a state machine without clock, thread or device. Whoever drives it passes the time
//! and does what [`Scheduler::next`] says; [`Batcher`](crate::Batcher) does, on threads.
//!
//! **Buckets.** A request of `n` tokens waits in the first bucket whose length `b` is at least `n`, and is padded to `b`. A batch
//! is of one bucket: it takes `batch size × b` tokens, and no request of it is padded by more than `b − a` tokens, where `a` is
//! the length of the bucket below (0 below the first).
//!
//! **When.** A bucket may run when a batch of it is full, when a request in it is *due*, or when the scheduler is stopping.
//! A request is due when it has waited for `wait_max`, or for half of its `begin_within` if that is less. A batch is full
//! with `min(batch_count_max, batch_tokens_max / b)` requests.
//!
//! **Which.** A request of [`Priority`] `p` is treated as if it had come `(High − p) × head_start` later than it did. The batch
//! takes the first of its bucket in this order, and of the buckets that may run, that goes first whose first request does.
//! *Nobody starves*: whoever is run before a request that is due came at most `head_start` later a level of priority,
//! so that those who may overtake are finitely many.
//!
//! **What becomes of a request.** One that is accepted is handed out exactly once: in a batch, as expired, or by
//! [`Scheduler::cancel`]. One that has expired is never in a batch.
//!
//! Every step is at most logarithmic in the number of requests that wait, times those that it hands out, plus the buckets.

#[cfg(all(test, not(loom)))]
mod tests;

use crate::{OptionsError, Rejected};
use raddle_sync::fault;
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

/// Each step looks at all buckets (guess).
const BUCKET_COUNT_MAX: usize = 256;
/// In a batch, and in the queue (guess: some hundred megabytes of requests).
const REQUEST_COUNT_MAX: usize = 1 << 20;
/// Each has a thread (guess: more than any device runs at once).
const RUNNING_COUNT_MAX: usize = 256;

/// How requests are put together. All limits are inclusive: what they name is still allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The lengths that requests are padded to, growing; 1 to 256 of them. No request may be longer than the last.
    pub buckets_tokens: Vec<usize>,
    /// Tokens in a batch, with padding: batch size × length of its bucket. At least the last bucket.
    pub batch_tokens_max: usize,
    /// Requests in a batch, 1 to 2^20.
    pub batch_count_max: usize,
    /// How long a request waits for others to fill its batch while a batch could run. 0: for nobody.
    pub wait_max: Duration,
    /// Requests that wait, 1 to 2^20. One more is refused with [`Rejected::Full`].
    pub waiting_count_max: usize,
    /// Batches that run at once, 1 to 256.
    pub running_count_max: usize,
    /// How much later a request may come and still go before one of the next lower priority.
    pub head_start: Duration,
}

impl Default for Options {
    /// For a sentence encoder of 256 tokens: one batch at a time, which waits 1 ms to be filled. All numbers are guesses.
    fn default() -> Options {
        Options {
            buckets_tokens: vec![16, 32, 48, 64, 96, 128, 192, 256],
            batch_tokens_max: 16 * 1024,
            batch_count_max: 256,
            wait_max: Duration::from_millis(1),
            waiting_count_max: 4096,
            running_count_max: 1,
            head_start: Duration::from_millis(100),
        }
    }
}

/// Who goes first; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Work that can wait: filling an index.
    Low,
    /// Everything else.
    #[default]
    Normal,
    /// Somebody is looking at a screen.
    High,
}

/// What the scheduler has to know of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its length in tokens. Where there is no such thing: 1, and one bucket of 1.
    pub length_tokens: usize,
    /// Who goes first.
    pub priority: Priority,
    /// It must begin sooner than so long after it was submitted, or is not run at all; `None`: whenever.
    pub begin_within: Option<Duration>,
}

impl Request {
    /// A request of that length, of normal priority and with time.
    pub fn new(length_tokens: usize) -> Request {
        Request { length_tokens, ..Request::default() }
    }
}

/// Names an accepted request, one after the other. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Requests to run together. To be given back to [`Scheduler::finished`].
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the next batch may have to wait until this one is finished"]
pub struct Planned {
    /// At least one, in order.
    pub tickets: Vec<Ticket>,
    /// The length to pad to, that of the bucket.
    pub length_tokens: usize,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Run these, and ask again.
    Run(Planned),
    /// Tell these that their time is over, and ask again.
    Expired(Vec<Ticket>),
    /// Ask again at that time, or when something has been submitted, finished, resumed or stopped.
    WaitUntil(Duration),
    /// Ask again when something has been submitted, finished, resumed or stopped.
    Idle,
    /// The scheduler was stopped and no request waits. Batches may still run.
    Stopped,
}

/// What a scheduler holds and has done. `accepted_count` is the sum of `waiting_count`, `cancelled_count`, `expired_count` and
/// `run_count`. All but the first two only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that wait.
    pub waiting_count: u64,
    /// Batches that run.
    pub running_count: u64,
    /// Requests that were accepted.
    pub accepted_count: u64,
    /// Requests that were refused.
    pub rejected_count: u64,
    /// Requests that were taken back before they began.
    pub cancelled_count: u64,
    /// Requests whose time was over before they began.
    pub expired_count: u64,
    /// Batches that have begun.
    pub batch_count: u64,
    /// Requests in them.
    pub run_count: u64,
    /// Requests that would have been in them, had they been full.
    pub room_count: u64,
    /// Tokens of the requests in them.
    pub run_tokens: u64,
    /// The same with padding to the length of the bucket.
    pub padded_tokens: u64,
    /// How long those that were run have waited, in all.
    pub waited_total: Duration,
    /// The longest such wait.
    pub waited_max: Duration,
}

impl Counts {
    /// How full batches are: `run_count / room_count`, from 0 to 1; 0 before the first.
    pub fn fill(&self) -> f64 {
        self.run_count as f64 / self.room_count.max(1) as f64
    }

    /// The part of the work that is padding: `1 − run_tokens / padded_tokens`, from 0 to 1; 0 before the first.
    pub fn padding(&self) -> f64 {
        (self.padded_tokens - self.run_tokens) as f64 / self.padded_tokens.max(1) as f64
    }
}

/// The state machine; see the module. Times are those of a clock of whoever drives it; one that goes back stands still.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    buckets: Vec<Bucket>,
    waiting: HashMap<Ticket, Waiting>,
    /// When requests expire.
    ends: BTreeSet<(Duration, Ticket)>,
    now: Duration,
    is_paused: bool,
    is_stopping: bool,
    counts: Counts,
}

#[derive(Debug)]
struct Bucket {
    length_tokens: usize,
    /// Requests in a full batch.
    count_max: usize,
    /// The order; see [`Waiting::place`].
    order: BTreeSet<(Duration, Ticket)>,
    /// When requests are due.
    due: BTreeSet<(Duration, Ticket)>,
}

#[derive(Debug)]
struct Waiting {
    bucket: usize,
    length_tokens: usize,
    arrival: Duration,
    /// When it came, as far as the order is concerned.
    place: Duration,
    due: Duration,
    /// It must begin before.
    end: Duration,
}

impl Scheduler {
    /// A scheduler in which nothing waits.
    ///
    /// Errors: [`OptionsError`], if there are requests that would be accepted and could never run, or nothing could.
    pub fn new(options: Options) -> Result<Scheduler, OptionsError> {
        let Options { buckets_tokens, batch_tokens_max, .. } = &options;
        for (what, found_count, count_max) in [
            ("buckets_tokens", buckets_tokens.len(), BUCKET_COUNT_MAX),
            ("batch_count_max", options.batch_count_max, REQUEST_COUNT_MAX),
            ("waiting_count_max", options.waiting_count_max, REQUEST_COUNT_MAX),
            ("running_count_max", options.running_count_max, RUNNING_COUNT_MAX),
        ] {
            if !(1..=count_max).contains(&found_count) {
                return Err(OptionsError::Count { what, count_max, found_count });
            }
        }
        let mut buckets = Vec::new();
        let mut below = 0;
        for (index, &length_tokens) in buckets_tokens.iter().enumerate() {
            if length_tokens <= below {
                return Err(OptionsError::Buckets { index, expected_above: below, found: length_tokens });
            }
            if length_tokens > *batch_tokens_max {
                let (bucket_tokens, batch_tokens_max) = (length_tokens, *batch_tokens_max);
                return Err(OptionsError::BatchTooSmall { bucket_tokens, batch_tokens_max });
            }
            below = length_tokens;
            let count_max = options.batch_count_max.min(batch_tokens_max / length_tokens);
            buckets.push(Bucket { length_tokens, count_max, order: BTreeSet::new(), due: BTreeSet::new() });
        }
        Ok(Scheduler {
            options,
            buckets,
            waiting: HashMap::new(),
            ends: BTreeSet::new(),
            now: Duration::ZERO,
            is_paused: false,
            is_stopping: false,
            counts: Counts::default(),
        })
    }

    /// Takes a request in, or refuses it at once.
    pub fn submit(&mut self, now: Duration, request: Request) -> Result<Ticket, Rejected> {
        self.now = self.now.max(now);
        let accepted = self.accept(request);
        match accepted {
            Ok(_) => self.counts.accepted_count += 1,
            Err(_) => self.counts.rejected_count += 1,
        }
        accepted
    }

    fn accept(&mut self, request: Request) -> Result<Ticket, Rejected> {
        let Request { length_tokens, priority, begin_within } = request;
        let mut is_late = self.is_stopping;
        fault!(accepted_after_stop => is_late = false);
        if is_late {
            return Err(Rejected::Stopped);
        }
        let bucket = match fault!(padding_without_end) {
            false => self.buckets.partition_point(|bucket| bucket.length_tokens < length_tokens),
            true => self.buckets.len() - 1,
        };
        let Some(fitting) = self.buckets.get_mut(bucket) else {
            let length_tokens_max = self.options.buckets_tokens.last().copied().unwrap_or(0);
            return Err(Rejected::TooLong { length_tokens, length_tokens_max });
        };
        if begin_within == Some(Duration::ZERO) {
            return Err(Rejected::Late);
        }
        let waiting_count_max = self.options.waiting_count_max;
        let mut is_full = self.waiting.len() >= waiting_count_max;
        fault!(queue_without_end => is_full = false);
        if is_full {
            return Err(Rejected::Full { waiting_count_max });
        }
        let ticket = Ticket(self.counts.accepted_count);
        let levels = Priority::High as u32 - priority as u32;
        let behind = match fault!(priority_starves) {
            false => self.options.head_start.saturating_mul(levels),
            true => Duration::from_secs(1 << 30) * levels,
        };
        let patience = begin_within.map_or(Duration::MAX, |within| within / 2);
        let waiting = Waiting {
            bucket,
            length_tokens,
            arrival: self.now,
            place: self.now.saturating_add(behind),
            due: self.now.saturating_add(self.options.wait_max.min(patience)),
            end: self.now.saturating_add(begin_within.unwrap_or(Duration::MAX)),
        };
        fitting.order.insert((waiting.place, ticket));
        fitting.due.insert((waiting.due, ticket));
        if begin_within.is_some() {
            self.ends.insert((waiting.end, ticket));
        }
        self.waiting.insert(ticket, waiting);
        Ok(ticket)
    }

    /// Takes a request back, and makes its room free. False if it doesn't wait any more: it was in a batch, or had expired.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let waited = self.remove(ticket).is_some();
        self.counts.cancelled_count += u64::from(waited);
        waited
    }

    /// What to do now; see the module.
    pub fn next(&mut self, now: Duration) -> Decision {
        self.now = self.now.max(now);
        let expired = self.expired();
        if !expired.is_empty() {
            return Decision::Expired(expired);
        }
        let may_run = |&bucket: &usize| self.may_run_at(&self.buckets[bucket]) <= self.now;
        let first = |&bucket: &usize| self.buckets[bucket].order.first();
        if let Some(bucket) = (0..self.buckets.len()).filter(may_run).min_by_key(first) {
            return Decision::Run(self.plan(bucket));
        }
        match self.next_at() {
            Duration::MAX if self.is_stopping && self.waiting.is_empty() => Decision::Stopped,
            Duration::MAX => Decision::Idle,
            at => Decision::WaitUntil(at),
        }
    }

    /// When there is something to do next, if nothing happens before: a time that is past if it is now, [`Duration::MAX`] if
    /// it is never.
    pub fn next_at(&self) -> Duration {
        let ends = self.ends.first().map_or(Duration::MAX, |(end, _)| *end);
        self.buckets.iter().map(|bucket| self.may_run_at(bucket)).fold(ends, Duration::min)
    }

    /// A batch has been run. Gives room to the next.
    pub fn finished(&mut self, _batch: Planned) {
        self.counts.running_count = self.counts.running_count.saturating_sub(1);
    }

    /// Lets no batch begin until it is resumed or stopped. Requests are still accepted, and expire.
    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// The end of a pause.
    pub fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Accepts no more, for good. What waits may run at once, also in a pause.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Was it stopped?
    pub fn is_stopped(&self) -> bool {
        self.is_stopping
    }

    /// What it holds and has done.
    pub fn counts(&self) -> Counts {
        Counts { waiting_count: self.waiting.len() as u64, ..self.counts }
    }

    /// When a batch of the bucket may begin, as [`Scheduler::next_at`].
    fn may_run_at(&self, bucket: &Bucket) -> Duration {
        let is_held = self.is_paused && !self.is_stopping;
        let Some((due, _)) = bucket.due.first() else { return Duration::MAX };
        if is_held || self.counts.running_count >= self.options.running_count_max as u64 {
            return Duration::MAX;
        }
        if self.is_stopping || bucket.order.len() >= bucket.count_max { Duration::ZERO } else { *due }
    }

    fn expired(&mut self) -> Vec<Ticket> {
        let mut expired = Vec::new();
        while let Some(&(end, ticket)) = self.ends.first()
            && end <= self.now
        {
            fault!(expired_is_run => break);
            self.remove(ticket);
            expired.push(ticket);
        }
        self.counts.expired_count += expired.len() as u64;
        expired
    }

    fn plan(&mut self, bucket: usize) -> Planned {
        let Bucket { length_tokens, count_max, ref order, .. } = self.buckets[bucket];
        let tickets: Vec<Ticket> = order.iter().take(count_max).map(|(_, ticket)| *ticket).collect();
        for ticket in &tickets {
            let request = self.remove(*ticket).expect("what is in a bucket waits");
            let waited = self.now - request.arrival;
            self.counts.run_tokens = self.counts.run_tokens.saturating_add(request.length_tokens as u64);
            self.counts.waited_total = self.counts.waited_total.saturating_add(waited);
            self.counts.waited_max = self.counts.waited_max.max(waited);
        }
        self.counts.running_count += 1;
        self.counts.batch_count += 1;
        self.counts.run_count += tickets.len() as u64;
        self.counts.room_count += count_max as u64;
        let padded_tokens = (tickets.len() * length_tokens) as u64;
        self.counts.padded_tokens = self.counts.padded_tokens.saturating_add(padded_tokens);
        Planned { tickets, length_tokens }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        let bucket = &mut self.buckets[waiting.bucket];
        bucket.order.remove(&(waiting.place, ticket));
        bucket.due.remove(&(waiting.due, ticket));
        self.ends.remove(&(waiting.end, ticket));
        Some(waiting)
    }
}
