//! The scheduler against an oracle that keeps a list and looks at all of it.

use super::*;
use proptest::prelude::*;
use raddle_sync::faults::{Fault, assert_caught};

/// A request that was accepted, as the oracle remembers it.
#[derive(Clone, Debug)]
struct Known {
    ticket: Ticket,
    request: Request,
    arrival: Duration,
    fate: Option<Fate>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Run,
    Expired,
    Cancelled,
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Request),
    Cancel(prop::sample::Index),
    Advance(Duration),
    Next,
    Finish,
    Pause,
    Resume,
    Stop,
}

struct Oracle {
    options: Options,
    known: Vec<Known>,
    now: Duration,
    running: Vec<Planned>,
    is_paused: bool,
    is_stopping: bool,
}

impl Oracle {
    /// Where in `buckets_tokens` a request belongs: the first that is long enough.
    fn bucket(&self, request: &Request) -> Option<usize> {
        self.options.buckets_tokens.iter().position(|bucket| *bucket >= request.length_tokens)
    }
    fn waiting(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().filter(|known| known.fate.is_none())
    }
    /// Those of a bucket, first to go first: a higher priority is worth `head_start` a level, equals go as they came.
    fn line(&self, bucket: usize) -> Vec<&Known> {
        let mut line: Vec<_> =
            self.waiting().filter(|known| self.bucket(&known.request) == Some(bucket)).collect();
        line.sort_by(|a, b| {
            if self.is_before(a, b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
        });
        line
    }
    fn is_before(&self, a: &Known, b: &Known) -> bool {
        let starts = |known: &Known| {
            let levels = [Priority::High, Priority::Normal, Priority::Low];
            let behind = levels.iter().position(|level| *level == known.request.priority).unwrap();
            known.arrival + self.options.head_start * behind as u32
        };
        (starts(a), a.ticket.0) < (starts(b), b.ticket.0)
    }
    fn room(&self, bucket: usize) -> usize {
        self.options.batch_count_max.min(self.options.batch_tokens_max / self.options.buckets_tokens[bucket])
    }
    fn due(&self, known: &Known) -> Duration {
        let half = known.request.begin_within.map_or(Duration::MAX, |within| within / 2);
        known.arrival.saturating_add(self.options.wait_max.min(half))
    }
    fn end(&self, known: &Known) -> Option<Duration> {
        known.request.begin_within.map(|within| known.arrival + within)
    }
    /// When a batch of the bucket may begin.
    fn begins(&self, bucket: usize) -> Option<Duration> {
        let line = self.line(bucket);
        if line.is_empty()
            || self.is_paused && !self.is_stopping
            || self.running.len() == self.options.running_count_max
        {
            return None;
        }
        if self.is_stopping || line.len() >= self.room(bucket) {
            return Some(self.now);
        }
        line.iter().map(|known| self.due(known)).min()
    }
    fn settle(&mut self, ticket: Ticket, fate: Fate) {
        let known = self.known.iter_mut().find(|known| known.ticket == ticket).unwrap();
        assert_eq!(known.fate, None, "{ticket:?} is handed out twice");
        known.fate = Some(fate);
    }

    fn check_run(&mut self, planned: Planned) {
        let bucket =
            self.options.buckets_tokens.iter().position(|bucket| *bucket == planned.length_tokens).unwrap();
        assert!(planned.tickets.len() * planned.length_tokens <= self.options.batch_tokens_max);
        assert!(planned.tickets.len() <= self.options.batch_count_max);
        assert!(self.begins(bucket).is_some_and(|at| at <= self.now), "it may begin");
        let line = self.line(bucket);
        let expected: Vec<_> = line.iter().take(self.room(bucket)).map(|known| known.ticket).collect();
        assert_eq!(planned.tickets, expected, "the first of the line, all that there is room for");
        let below = if bucket == 0 { 0 } else { self.options.buckets_tokens[bucket - 1] };
        for known in &line[..expected.len()] {
            let padding = planned.length_tokens - known.request.length_tokens;
            assert!(padding <= planned.length_tokens - below, "padding");
            assert!(self.end(known).is_none_or(|end| end > self.now), "it has expired");
        }
        // Nobody who is due was overtaken by one that came later than the difference of their priorities allows.
        let head = line[0];
        for left in self.waiting().filter(|known| !expected.contains(&known.ticket)) {
            let levels = (head.request.priority as u32).saturating_sub(left.request.priority as u32);
            let is_due = self.due(left) <= self.now || self.is_stopping;
            assert!(
                !is_due || head.arrival <= left.arrival + self.options.head_start * levels,
                "{left:?} starves behind {head:?}"
            );
        }
        for other in (0..self.options.buckets_tokens.len()).filter(|other| *other != bucket) {
            if self.begins(other).is_some_and(|at| at <= self.now) {
                assert!(self.is_before(head, self.line(other)[0]), "the bucket whose first goes first");
            }
        }
        planned.tickets.iter().for_each(|ticket| self.settle(*ticket, Fate::Run));
        self.running.push(planned);
        assert!(self.running.len() <= self.options.running_count_max);
    }

    /// What the scheduler says now is right. Returns whether there was something to do.
    fn check_next(&mut self, decision: Decision) -> bool {
        let expired: Vec<_> = self
            .waiting()
            .filter(|known| self.end(known).is_some_and(|end| end <= self.now))
            .map(|known| known.ticket)
            .collect();
        let buckets = 0..self.options.buckets_tokens.len();
        let begins = buckets.filter_map(|bucket| self.begins(bucket)).min();
        match decision {
            Decision::Expired(mut tickets) => {
                tickets.sort();
                assert_eq!(tickets, expired);
                tickets.into_iter().for_each(|ticket| self.settle(ticket, Fate::Expired));
                return true;
            }
            Decision::Run(planned) => {
                assert!(expired.is_empty(), "{expired:?} have expired");
                self.check_run(planned);
                return true;
            }
            Decision::WaitUntil(at) => {
                let ends = self.waiting().filter_map(|known| self.end(known)).min();
                let expected = begins.into_iter().chain(ends).min();
                assert!(at > self.now);
                assert_eq!(Some(at), expected);
            }
            Decision::Idle => {
                assert!(begins.is_none(), "a batch may begin at {begins:?}");
                assert!(self.waiting().all(|known| self.end(known).is_none()));
                assert!(!self.is_stopping || self.waiting().next().is_some());
            }
            Decision::Stopped => assert!(self.is_stopping && self.waiting().next().is_none()),
        }
        false
    }
}

/// Does all steps, then stops and runs what waits, checking everything that the scheduler says.
fn drive(options: Options, steps: Vec<Step>) {
    let mut scheduler = Scheduler::new(options.clone()).unwrap();
    let mut oracle = Oracle {
        options,
        known: Vec::new(),
        now: Duration::ZERO,
        running: Vec::new(),
        is_paused: false,
        is_stopping: false,
    };
    let mut rejected_count = 0;
    for step in steps.into_iter().chain([Step::Stop]) {
        match step {
            Step::Submit(request) => {
                let waiting_count_max = oracle.options.waiting_count_max;
                let length_tokens_max = *oracle.options.buckets_tokens.last().unwrap();
                let expected = if oracle.is_stopping {
                    Err(Rejected::Stopped)
                } else if request.length_tokens > length_tokens_max {
                    Err(Rejected::TooLong { length_tokens: request.length_tokens, length_tokens_max })
                } else if request.begin_within == Some(Duration::ZERO) {
                    Err(Rejected::Late)
                } else if oracle.waiting().count() == waiting_count_max {
                    Err(Rejected::Full { waiting_count_max })
                } else {
                    Ok(())
                };
                let found = scheduler.submit(oracle.now, request);
                assert_eq!(found.map(|_| ()), expected);
                match found {
                    Ok(ticket) => {
                        assert!(oracle.known.last().is_none_or(|last| last.ticket < ticket));
                        oracle.known.push(Known { ticket, request, arrival: oracle.now, fate: None });
                    }
                    Err(_) => rejected_count += 1,
                }
            }
            Step::Cancel(_) if oracle.known.is_empty() => {}
            Step::Cancel(index) => {
                let Known { ticket, fate, .. } = *index.get(&oracle.known);
                assert_eq!(scheduler.cancel(ticket), fate.is_none());
                if fate.is_none() {
                    oracle.settle(ticket, Fate::Cancelled);
                }
            }
            Step::Advance(by) => oracle.now += by,
            Step::Next => _ = oracle.check_next(scheduler.next(oracle.now)),
            Step::Finish => oracle.running.pop().into_iter().for_each(|batch| scheduler.finished(batch)),
            Step::Pause => {
                scheduler.pause();
                oracle.is_paused = true;
            }
            Step::Resume => {
                scheduler.resume();
                oracle.is_paused = false;
            }
            Step::Stop => {
                scheduler.stop();
                oracle.is_stopping = true;
            }
        }
        let waiting_count = oracle.waiting().count() as u64;
        assert_eq!(scheduler.counts().waiting_count, waiting_count);
    }
    while oracle.waiting().next().is_some() {
        let has_more = oracle.check_next(scheduler.next(oracle.now));
        assert!(has_more || !oracle.running.is_empty(), "it is stuck");
        oracle.running.pop().into_iter().for_each(|batch| scheduler.finished(batch));
    }
    assert_eq!(scheduler.next(oracle.now), Decision::Stopped);
    let counts = scheduler.counts();
    let count = |fate| oracle.known.iter().filter(|known| known.fate == Some(fate)).count() as u64;
    assert_eq!(
        (counts.accepted_count, counts.rejected_count, counts.cancelled_count),
        (oracle.known.len() as u64, rejected_count, count(Fate::Cancelled))
    );
    assert_eq!((counts.expired_count, counts.run_count), (count(Fate::Expired), count(Fate::Run)));
    let run = oracle.known.iter().filter(|known| known.fate == Some(Fate::Run));
    assert_eq!(counts.run_tokens, run.map(|known| known.request.length_tokens as u64).sum::<u64>());
    assert!((0.0..=1.0).contains(&counts.fill()) && (0.0..=1.0).contains(&counts.padding()));
}

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(vec![Priority::Low, Priority::Normal, Priority::High])
}

fn step() -> impl Strategy<Value = Step> {
    let micros = |most: u64| (0..most).prop_map(Duration::from_micros);
    let request = (0usize..70, priority(), prop::option::weighted(0.2, micros(60)));
    let submit = request.prop_map(|(length_tokens, priority, begin_within)| {
        Step::Submit(Request { length_tokens, priority, begin_within })
    });
    prop_oneof![
        12 => submit,
        2 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        6 => micros(30).prop_map(Step::Advance),
        6 => Just(Step::Next),
        4 => Just(Step::Finish),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
        1 => Just(Step::Stop),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let numbers = (64usize..300, 1usize..9, 0u64..40, 1usize..20, 1usize..3, 0u64..50);
    numbers.prop_map(
        |(batch_tokens_max, batch_count_max, wait, waiting_count_max, running_count_max, start)| Options {
            buckets_tokens: vec![8, 16, 32, 64],
            batch_tokens_max,
            batch_count_max,
            wait_max: Duration::from_micros(wait),
            waiting_count_max,
            running_count_max,
            head_start: Duration::from_micros(start),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_steps_meet_the_oracle(options in options(), steps in prop::collection::vec(step(), 0..120)) {
        drive(options, steps);
    }
}

const ORACLE: &str = "schedule::tests::any_steps_meet_the_oracle";

#[test]
fn fault_priority_starves() {
    assert_caught(Fault::priority_starves, ORACLE);
}
#[test]
fn fault_expired_is_run() {
    assert_caught(Fault::expired_is_run, ORACLE);
}
#[test]
fn fault_accepted_after_stop() {
    assert_caught(Fault::accepted_after_stop, ORACLE);
}
#[test]
fn fault_queue_without_end() {
    assert_caught(Fault::queue_without_end, ORACLE);
}
#[test]
fn fault_padding_without_end() {
    assert_caught(Fault::padding_without_end, ORACLE);
}

/// F-21, F-26: limits are inclusive, and what can never run is refused at once, with its sizes.
#[test]
fn f_21_f_26_limits_are_inclusive_and_nothing_waits_for_a_batch_that_cannot_be() {
    let options = Options {
        buckets_tokens: vec![4, 16, 1000],
        batch_tokens_max: 1000,
        wait_max: Duration::ZERO,
        ..Options::default()
    };
    let mut scheduler = Scheduler::new(options).unwrap();
    let now = Duration::ZERO;
    let error = scheduler.submit(now, Request::new(1001)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "submit: the request is too long for a batch, expected at most 1000 tokens, found 1001"
    );
    let long = scheduler.submit(now, Request::new(1000)).unwrap();
    let short: Vec<_> = (0..20).map(|_| scheduler.submit(now, Request::new(3)).unwrap()).collect();
    let Decision::Run(planned) = scheduler.next(now) else { panic!("it may begin") };
    assert_eq!(planned, Planned { tickets: vec![long], length_tokens: 1000 });
    scheduler.finished(planned);
    let Decision::Run(planned) = scheduler.next(now) else { panic!("they may begin") };
    assert_eq!(planned, Planned { tickets: short, length_tokens: 4 });
    scheduler.finished(planned);
    assert_eq!(scheduler.next(now), Decision::Idle);
    for length_tokens in 14..=16 {
        let ticket = scheduler.submit(now, Request::new(length_tokens)).unwrap();
        let Decision::Run(planned) = scheduler.next(now) else { panic!("it may begin") };
        assert_eq!(planned, Planned { tickets: vec![ticket], length_tokens: 16 });
        scheduler.finished(planned);
    }
}

#[test]
fn f_21_impossible_options_are_refused() {
    let error = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Scheduler::new(options).unwrap_err().to_string()
    };
    assert_eq!(
        error(|options| options.batch_tokens_max = 255),
        "batcher: a request of 256 tokens fits a bucket but no batch, expected batch_tokens_max of at least that, found 255"
    );
    assert_eq!(
        error(|options| options.batch_count_max = 0),
        "batcher: batch_count_max is out of range, expected from 1 to 1048576, found 0"
    );
    assert_eq!(
        error(|options| options.buckets_tokens.clear()),
        "batcher: buckets_tokens is out of range, expected from 1 to 256, found 0"
    );
    assert_eq!(
        error(|options| options.buckets_tokens = vec![8, 8]),
        "batcher: buckets_tokens must grow, expected more than 8 at index 1, found 8"
    );
    assert_eq!(
        error(|options| options.buckets_tokens = vec![0]),
        "batcher: buckets_tokens must grow, expected more than 0 at index 0, found 0"
    );
    assert_eq!(
        error(|options| options.running_count_max = 1000),
        "batcher: running_count_max is out of range, expected from 1 to 256, found 1000"
    );
    assert!(error(|options| options.waiting_count_max = 0).contains("waiting_count_max"));
}

/// Times at the end of what a clock can say overflow nothing, and one that goes back stands still.
#[test]
fn clocks_may_say_anything() {
    let options = Options { wait_max: Duration::MAX, head_start: Duration::MAX, ..Options::default() };
    let mut scheduler = Scheduler::new(options).unwrap();
    let late = Duration::MAX - Duration::from_nanos(1);
    let forever = Request { begin_within: Some(Duration::MAX), ..Request::new(1) };
    let first = scheduler.submit(late, forever).unwrap();
    let second = scheduler.submit(Duration::ZERO, Request::new(1)).unwrap();
    assert_eq!(scheduler.next(Duration::ZERO), Decision::Idle);
    scheduler.stop();
    let Decision::Run(planned) = scheduler.next(Duration::ZERO) else { panic!("it may begin") };
    assert_eq!(planned.tickets, [first, second]);
}

/// One bucket for whatever there is: what was counted stays at the largest number, where it used to overflow.
#[test]
fn lengths_may_be_any_number() {
    let options =
        Options { buckets_tokens: vec![usize::MAX], batch_tokens_max: usize::MAX, ..Options::default() };
    let mut scheduler = Scheduler::new(options).unwrap();
    for _ in 0..3 {
        let ticket = scheduler.submit(Duration::ZERO, Request::new(usize::MAX)).unwrap();
        let Decision::Run(planned) = scheduler.next(Duration::from_secs(1)) else { panic!("it may begin") };
        assert_eq!(planned.tickets, [ticket]);
        scheduler.finished(planned);
    }
    let counts = scheduler.counts();
    assert_eq!((counts.run_tokens, counts.padded_tokens, counts.padding()), (u64::MAX, u64::MAX, 0.0));
}
