//! Copies of one queue that are under way, each with its pinned block.
//!
//! An upload holds its block until it is executed. A download is complete only when its bytes have been copied from the
//! block to where they were asked for: whoever asks copies, a piece at a time in `completed`, which is called under locks,
//! all of it in `synchronize`; until then no number at or above the download's is told.

use crate::staging::Block;
use raddle_hal::HostBytes;
use raddle_sync::{
    Mutex, Rank,
    atomic::{AtomicU64, Ordering::*},
    fault,
};
use std::{collections::VecDeque, ptr};

/// Bytes that are copied at most by somebody who only asks (guess).
const PIECE_BYTES: usize = 256 << 10;
/// No download is pending.
const NONE: u64 = u64::MAX;

struct Transfer {
    sequence: u64,
    block: Block,
    /// Of a download: where the bytes go, and how many are there already.
    to: Option<(HostBytes, usize)>,
}

/// `first_download` is stored under the lock of `list`; Release, which pairs with the Acquire of who tells a number: the
/// bytes of all downloads below are where they belong.
pub struct Transfers {
    list: Mutex<VecDeque<Transfer>>,
    first_download: AtomicU64,
}

impl Transfers {
    pub fn new() -> Transfers {
        Transfers { list: Mutex::new(Rank::Queue, VecDeque::new()), first_download: AtomicU64::new(NONE) }
    }

    /// Lists a copy that has been put on the stream, before its number is published; `to` is where a download goes.
    pub fn add(&self, sequence: u64, block: Block, to: Option<HostBytes>) {
        let mut list = self.list.lock();
        if to.is_some() {
            self.first_download.fetch_min(sequence, Release);
        }
        list.push_back(Transfer { sequence, block, to: to.map(|to| (to, 0)) });
    }

    /// The number up to which all is complete, of what is executed, after copying: all, or a piece if nobody else is at it.
    pub fn complete(&self, executed: u64, all: bool) -> u64 {
        if fault!(download_early) {
            return executed;
        }
        if self.first_download.load(Acquire) <= executed {
            if all {
                self.settle(&mut self.list.lock(), executed, usize::MAX);
            } else if let Some(mut list) = self.list.try_lock() {
                self.settle(&mut list, executed, PIECE_BYTES);
            }
        }
        executed.min(self.first_download.load(Acquire) - 1)
    }

    fn settle(&self, list: &mut VecDeque<Transfer>, executed: u64, mut bytes_max: usize) {
        while let Some(transfer) = list.front_mut()
            && transfer.sequence <= executed
        {
            if let Some((to, copied)) = &mut transfer.to {
                let piece = (to.size_bytes - *copied).min(bytes_max);
                // SAFETY: the block holds the bytes, since the copy into it is executed; the destination stays allocated
                // until the launch is told to be complete, which it isn't before; the two don't overlap.
                unsafe {
                    ptr::copy_nonoverlapping(
                        (transfer.block.address + *copied) as *const u8,
                        (to.address + *copied) as *mut u8,
                        piece,
                    );
                }
                *copied += piece;
                bytes_max -= piece;
                if *copied < to.size_bytes {
                    break;
                }
            }
            list.pop_front();
        }
        let first = list.iter().find(|transfer| transfer.to.is_some());
        self.first_download.store(first.map_or(NONE, |transfer| transfer.sequence), Release);
    }

    /// Frees the blocks of uploads that are executed.
    pub fn free_uploads(&self, executed: u64) {
        if let Some(mut list) = self.list.try_lock() {
            self.settle(&mut list, executed, 0);
        }
    }

    /// After a loss: nothing is copied to the host any more once this returns. The blocks are given up, since the device may
    /// still be at them.
    pub fn abandon(&self) {
        if self.first_download.load(Acquire) != NONE {
            let mut list = self.list.lock();
            list.drain(..).for_each(|transfer| std::mem::forget(transfer.block));
            self.first_download.store(NONE, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        staging::{Need, Staging},
        tests::{plant, quiet},
    };
    use raddle_sync::{Arc, faults::Fault};

    /// A block over memory of the test.
    fn block(staging: &Arc<Staging>, bytes: &[u8]) -> Block {
        let room = staging.room(bytes.len(), Need::May).unwrap();
        staging.adopt(bytes.as_ptr() as usize, room.size_bytes)
    }

    fn place(bytes: &mut [u8]) -> HostBytes {
        HostBytes { address: bytes.as_mut_ptr() as usize, size_bytes: bytes.len() }
    }

    /// The number told and the bytes there, when number 3 is executed, a download of number 2.
    fn told_and_there() -> (u64, [u8; 3]) {
        let (staging, transfers, source, mut there) =
            (Staging::new(1 << 20), Transfers::new(), [1, 2, 3], [0; 3]);
        transfers.add(2, block(&staging, &source), Some(place(&mut there)));
        assert_eq!(transfers.complete(1, true), 1, "not executed");
        (transfers.complete(3, false), there)
    }

    #[test]
    fn a_download_is_complete_when_its_bytes_are_there() {
        let _quiet = quiet();
        assert_eq!(told_and_there(), (3, [1, 2, 3]));
    }

    #[test]
    fn fault_download_early() {
        let _planted = plant(Fault::download_early);
        assert_ne!(told_and_there().1, [1, 2, 3], "the check sees it");
    }

    #[test]
    fn who_only_asks_copies_a_piece() {
        let _quiet = quiet();
        let (staging, transfers) = (Staging::new(1 << 20), Transfers::new());
        let (source, mut there) = (vec![7; PIECE_BYTES + 1], vec![0; PIECE_BYTES + 1]);
        transfers.add(1, block(&staging, &source), Some(place(&mut there)));
        assert_eq!([transfers.complete(1, false), transfers.complete(1, false)], [0, 1]);
        assert_eq!(there, source);
    }

    #[test]
    fn uploads_hold_nobody_up_and_free_their_blocks() {
        let (staging, transfers, source) = (Staging::new(4096), Transfers::new(), [0; 8]);
        transfers.add(1, block(&staging, &source), None);
        assert_eq!(transfers.complete(5, false), 5);
        assert!(staging.find(8).is_none(), "in use");
        transfers.free_uploads(1);
        assert!(staging.find(8).is_some());
    }

    #[test]
    fn what_is_abandoned_is_not_written() {
        let (staging, transfers, source, mut there) =
            (Staging::new(1 << 20), Transfers::new(), [1, 2, 3], [0; 3]);
        transfers.add(1, block(&staging, &source), Some(place(&mut there)));
        transfers.abandon();
        assert_eq!((transfers.complete(1, true), there), (1, [0; 3]));
    }
}
