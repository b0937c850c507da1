//! Two threads with ops on one block, told to witnesses: what a witness sees and notes while the op holds its block is in the
//! order of the ops, and what it refuses is never run.
//!
//! The books are a cell of loom's without a lock, as whoever keeps books by a witness has none: loom says so if two witnesses
//! of ops that write are inside at once, or if one doesn't see what the one before has noted.

use super::{Model, explore};
use crate::{Buffer, Claimed, Witness, tick::Tick, witness::witnessed};
use loom::sync::Arc;
use raddle_sync::{UnsafeCell, faults::Fault};
use std::sync::Mutex;

/// An op that writes, as its witness has noted it: its stream, whether it was let pass, the version and the tick of the last
/// write claim that it has found.
#[derive(Clone, Debug, PartialEq)]
struct Noted {
    slot: usize,
    is_run: bool,
    version: u64,
    last: Tick,
}

type Books = Arc<UnsafeCell<Vec<Noted>>>;

/// Notes an op in the books if it writes, and refuses it if it finds another version than expected.
struct Clerk<'a> {
    slot: usize,
    buffer: &'a Buffer,
    books: &'a Books,
    expected: Option<u64>,
    /// The version that it has found, and how many ops of the books were run.
    found: Option<(u64, usize)>,
}

impl Witness for Clerk<'_> {
    fn claimed(&mut self, op: &Claimed<'_>) -> bool {
        let versions = op.versions(self.buffer).expect("it is an operand");
        let last = self.buffer.block().marks.last_write();
        let is_run = self.expected.is_none_or(|expected| expected == versions.start);
        let noted = Noted { slot: self.slot, is_run, version: versions.start, last };
        // SAFETY: loom checks it: an op that writes holds its block alone, one that reads holds off all that write.
        let count = self.books.with(|books| unsafe { run_count(&*books) });
        if !versions.is_empty() {
            // SAFETY: as above.
            self.books.with_mut(|books| unsafe { (*books).push(noted) });
        }
        self.found = Some((versions.start, count));
        is_run
    }
}

fn run_count(books: &[Noted]) -> usize {
    books.iter().filter(|noted| noted.is_run).count()
}

/// A block, the books about it, and its version before there was anything in them.
#[derive(Clone)]
struct Kept {
    buffer: Buffer,
    books: Books,
    version: u64,
    /// What is wrong, told when all threads are joined. std's, so that it orders nothing in the model.
    wrong: std::sync::Arc<Mutex<Vec<String>>>,
}

impl Kept {
    fn new(model: &Model) -> Kept {
        let buffer = model.written(2);
        let version = buffer.version();
        Kept { buffer, books: Arc::new(UnsafeCell::new(Vec::new())), version, wrong: Default::default() }
    }

    fn clerk(&self, slot: usize) -> Clerk<'_> {
        Clerk { slot, buffer: &self.buffer, books: &self.books, expected: None, found: None }
    }

    /// An op that writes, told to a witness; refused if the block has another version than expected. Was it run?
    fn write(&self, model: &Model, slot: usize, expected: Option<u64>) -> bool {
        let mut clerk = Clerk { expected, ..self.clerk(slot) };
        witnessed(&mut clerk, || model.op(slot, &[], &[&self.buffer]));
        let (version, _) = clerk.found.expect("it was told of its op");
        expected.is_none_or(|expected| expected == version)
    }

    /// An op that reads, told to a witness, which finds as many writes in the books as the version says.
    fn read(&self, model: &Model, slot: usize) -> u64 {
        let mut clerk = self.clerk(slot);
        witnessed(&mut clerk, || model.op(slot, &[&self.buffer], &[]));
        let (version, count) = clerk.found.expect("it was told of its op");
        if version != self.version + count as u64 {
            self.wrong.lock().unwrap().push(format!("race on a version: {version} after {count} writes"));
        }
        version
    }

    /// When all threads are joined: the books are what the device was given, in this order.
    fn check(&self, model: &Model) {
        assert!(self.wrong.lock().unwrap().is_empty(), "{:?}", self.wrong);
        // SAFETY: the threads that wrote there are joined; loom checks it.
        let books = self.books.with(|books| unsafe { (*books).clone() });
        let given = model.oracle.writes_and_nothings(&self.buffer);
        let (&(mut last, _), given) = given.split_first().expect("it was written before");
        let mut version = self.version;
        let in_order: Vec<Noted> = given
            .iter()
            .map(|&(tick, is_run)| {
                let noted = Noted { slot: tick.slot(), is_run, version, last };
                (last, version) = (tick, version + u64::from(is_run));
                noted
            })
            .collect();
        assert!(books == in_order, "race on the books: {books:?}, the device was given {in_order:?}");
        assert!(self.buffer.version() == version, "race on a version: {}", self.buffer.version());
    }
}

/// Each thread reads and writes.
fn two_witnesses(fault: Option<Fault>, preemptions: usize) {
    explore("two witnesses of one block", fault, preemptions, |model| {
        let kept = Kept::new(model);
        let other = {
            let kept = kept.clone();
            model.spawn(move |model| {
                kept.write(&model, 1, None);
                kept.read(&model, 1);
            })
        };
        kept.read(model, 0);
        kept.write(model, 0, None);
        other.join().unwrap();
        kept.write(model, 2, None);
        kept.check(model);
    });
}

/// As an op in place whose backward needs what it overwrites: a thread copies the value, and then writes if it is still what it
/// has copied; another thread writes meanwhile. What was refused counts as no write, and is tried again.
fn a_witness_refuses(fault: Option<Fault>, preemptions: usize) {
    explore("a witness refuses", fault, preemptions, |model| {
        let kept = Kept::new(model);
        let other = {
            let kept = kept.clone();
            model.spawn(move |model| _ = kept.write(&model, 1, None))
        };
        let is_run = (0..2).any(|_| {
            let copied = kept.read(model, 0);
            kept.write(model, 0, Some(copied))
        });
        other.join().unwrap();
        assert!(is_run, "race on a version: another one was found twice, of one write");
        kept.check(model);
    });
}

#[test]
fn model_two_witnesses() {
    two_witnesses(None, 6)
}
#[test]
fn model_a_witness_refuses() {
    a_witness_refuses(None, 6)
}
#[test]
fn fault_told_after_release() {
    two_witnesses(Some(Fault::told_after_release), 2)
}
#[test]
fn fault_refused_is_written() {
    a_witness_refuses(Some(Fault::refused_is_written), 2)
}
