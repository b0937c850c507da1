//! Records of launches that may fail on the device, one ring a queue.
//!
//! A record is three numbers in device memory, zero until the kernel writes whether there is an error, the index, its
//! position. Behind the launch the record is copied to pinned memory, in stream order; when the launch is complete whoever
//! asks reads it there. A record that stayed zero is used again as it is; one that didn't is cleared first, in stream order.
//!
//! Bounded: the ring has more records than a queue has launches in flight, so the oldest is complete when the ring is full.
//! Its error, if nobody has asked yet, is kept among the newest [`FOUND_COUNT_MAX`]. Graphs have records of their own, of
//! which each launch leaves a copy: as many as there are launches in flight, and those that nobody has looked at since.

use crate::staging::Block;
use raddle_hal::{Checked, Kernel, KernelError, Operand};
use raddle_sync::Arc;
use std::{collections::VecDeque, ptr};

/// What the kernel writes: is there an error, the index, the position.
pub type Record = [i64; 3];
/// Its size.
pub const RECORD_BYTES: usize = size_of::<Record>();
/// Records of a queue: above `IN_FLIGHT_COUNT_MAX`.
pub const RECORD_COUNT: usize = 512;
/// Errors that wait to be asked for (guess).
pub const FOUND_COUNT_MAX: usize = 256;

/// A record in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    sequence: u64,
    record: usize,
    indices: Indices,
}

/// What a message says of a kernel's indices, besides what the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indices {
    /// The size of the axis that they point into.
    size: usize,
    /// How many neighbours count as one.
    repeats: usize,
}

/// A record for a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Which of the ring.
    pub record: usize,
    /// Does it have to be cleared?
    pub is_dirty: bool,
}

/// The records of one launch of a graph, in the order of its nodes.
pub struct Copies {
    /// Where they are once the launch is complete.
    pub block: Block,
    /// For each record.
    pub indices: Arc<Vec<Indices>>,
}

impl Copies {
    /// The error of the first node that has one. The launch is complete.
    fn error(&self) -> Option<KernelError> {
        self.indices.iter().enumerate().find_map(|(index, &indices)| {
            // SAFETY: inside the pinned block, which is ours alone; the device wrote it before the launch was complete.
            let record = unsafe { ptr::read_volatile((self.block.address as *const Record).add(index)) };
            error(record, indices)
        })
    }
}

fn error([is_error, index, position]: Record, Indices { size, repeats }: Indices) -> Option<KernelError> {
    let position = position as usize / repeats;
    (is_error != 0).then_some(KernelError::IndexOutOfRange { index, position, size })
}

/// The records of one queue.
pub struct Errors {
    /// Oldest first.
    used: VecDeque<Used>,
    free: Vec<Given>,
    found: VecDeque<(u64, KernelError)>,
    /// Of graphs, oldest first.
    copied: VecDeque<(u64, Copies)>,
}

impl Errors {
    pub fn new() -> Errors {
        let free = (0..RECORD_COUNT).map(|record| Given { record, is_dirty: false }).collect();
        Errors { used: VecDeque::new(), free, found: VecDeque::new(), copied: VecDeque::new() }
    }

    /// A record for the launch of this number; none if all are in flight. `read` reads a record of a complete launch.
    pub fn give(
        &mut self,
        sequence: u64,
        indices: Indices,
        completed: u64,
        read: impl Fn(usize) -> Record,
    ) -> Option<Given> {
        if self.free.is_empty() {
            let oldest = *self.used.front()?;
            if oldest.sequence > completed {
                return None;
            }
            self.used.pop_front();
            if let Some(error) = self.settle(oldest, &read) {
                self.find(oldest.sequence, error);
            }
        }
        let given = self.free.pop()?;
        self.used.push_back(Used { sequence, record: given.record, indices });
        Some(given)
    }

    /// The records that the launch of a graph will leave.
    pub fn add_copies(&mut self, sequence: u64, copies: Copies, completed: u64) {
        // Those that are complete have told what they had to tell.
        while self.copied.front().is_some_and(|(oldest, _)| *oldest <= completed) {
            let (oldest, copies) = self.copied.pop_front().expect("it is there");
            if let Some(error) = copies.error() {
                self.find(oldest, error);
            }
        }
        self.copied.push_back((sequence, copies));
    }

    fn find(&mut self, sequence: u64, error: KernelError) {
        if self.found.len() == FOUND_COUNT_MAX {
            self.found.pop_front();
        }
        self.found.push_back((sequence, error));
    }

    /// The launch was not put on the queue after all. What was given must be the last.
    pub fn give_back(&mut self) {
        if let Some(Used { record, .. }) = self.used.pop_back() {
            self.free.push(Given { record, is_dirty: true });
        }
    }

    /// The error of a complete launch; once.
    pub fn take(&mut self, sequence: u64, read: impl Fn(usize) -> Record) -> Option<KernelError> {
        if let Ok(at) = self.used.binary_search_by_key(&sequence, |used| used.sequence) {
            let used = self.used.remove(at)?;
            return self.settle(used, &read);
        }
        if let Ok(at) = self.copied.binary_search_by_key(&sequence, |(sequence, _)| *sequence) {
            return self.copied.remove(at)?.1.error();
        }
        let at = self.found.iter().position(|(found, _)| *found == sequence)?;
        self.found.remove(at).map(|(_, error)| error)
    }

    fn settle(&mut self, used: Used, read: &impl Fn(usize) -> Record) -> Option<KernelError> {
        let record = read(used.record);
        self.free.push(Given { record: used.record, is_dirty: record[0] != 0 });
        error(record, used.indices)
    }
}

impl Indices {
    /// What a kernel checks of its operands, if anything.
    pub fn of(kernel: &Kernel, operands: &[Operand]) -> Option<Indices> {
        let Checked { target, axis, repeats, .. } = kernel.checked()?;
        Some(Indices { size: operands[target].shape()[axis], repeats })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const NONE: Record = [0; 3];

    fn of(size: usize) -> Indices {
        Indices { size, repeats: 1 }
    }

    #[test]
    fn an_error_is_told_once_to_its_launch() {
        let mut errors = Errors::new();
        let first = errors.give(1, of(10), 0, |_| NONE).unwrap();
        let second = errors.give(4, Indices { size: 20, repeats: 5 }, 0, |_| NONE).unwrap();
        let read = |record| if record == second.record { [1, -7, 15] } else { NONE };
        assert_eq!(errors.take(1, read), None);
        let error = KernelError::IndexOutOfRange { index: -7, position: 3, size: 20 };
        assert_eq!((errors.take(4, read), errors.take(4, read)), (Some(error), None));
        let is_dirty = |record| errors.free.iter().find(|free| free.record == record).unwrap().is_dirty;
        assert_eq!([is_dirty(first.record), is_dirty(second.record)], [false, true]);
    }

    #[test]
    fn a_full_ring_keeps_the_errors_that_nobody_has_asked_for() {
        let mut errors = Errors::new();
        let failed = RefCell::new(Vec::new());
        let read = |record| if failed.borrow().contains(&record) { [1, 2, 0] } else { NONE };
        for sequence in 1..=RECORD_COUNT as u64 {
            let given = errors.give(sequence, of(2), 0, read).unwrap();
            if sequence == 1 {
                failed.borrow_mut().push(given.record);
            }
        }
        let next = RECORD_COUNT as u64 + 1;
        assert_eq!(errors.give(next, of(2), 0, read), None, "all are in flight");
        assert!(errors.give(next, of(2), 1, read).unwrap().is_dirty);
        failed.borrow_mut().clear();
        assert_eq!(
            errors.take(1, read),
            Some(KernelError::IndexOutOfRange { index: 2, position: 0, size: 2 })
        );
        for sequence in next + 1..next + 5000 {
            errors.give(sequence, of(2), sequence - 1, |_| [1, 1, 1]).unwrap();
        }
        assert_eq!(
            (errors.found.len(), errors.used.len() + errors.free.len()),
            (FOUND_COUNT_MAX, RECORD_COUNT)
        );
    }

    #[test]
    fn a_launch_that_was_refused_gives_its_record_back() {
        let mut errors = Errors::new();
        let given = errors.give(1, of(2), 0, |_| NONE).unwrap();
        errors.give_back();
        assert_eq!(errors.give(1, of(2), 0, |_| NONE), Some(Given { is_dirty: true, ..given }));
    }
}
