//! Pinned blocks through which bytes go to the device and come back.
//!
//! Pinning is slow and may wait for the device, so blocks are kept: by size class (powers of two), in all up to a limit
//! that counts those in use, too. Who asks for more than the limit or than the largest class gets none, and copies
//! unpinned; who can't do without one ([`Need::Must`]) gets it past the limit, to which later ones come back. Blocks are made
//! and unpinned in `prepare` only, where nothing is locked.

use raddle_sync::{Arc, Mutex, Rank};
use smallvec::SmallVec;

/// A page.
const BLOCK_BYTES_MIN: usize = 4 << 10;
/// Larger copies are rare, and the driver's own staging is as fast for them (guess).
pub const BLOCK_BYTES_MAX: usize = 64 << 20;
/// Classes from the one to the other.
const CLASS_COUNT: usize = (BLOCK_BYTES_MAX / BLOCK_BYTES_MIN).ilog2() as usize + 1;

fn class(size_bytes: usize) -> usize {
    (size_bytes.max(BLOCK_BYTES_MIN).next_power_of_two() / BLOCK_BYTES_MIN).ilog2() as usize
}

struct State {
    /// By class.
    free: [Vec<usize>; CLASS_COUNT],
    /// Of all blocks, in use and free.
    total_bytes: usize,
}

/// The blocks of a device.
pub struct Staging {
    state: Mutex<State>,
    total_bytes_max: usize,
}

/// A block in use; goes back when dropped.
pub struct Block {
    /// Where it starts.
    pub address: usize,
    class: usize,
    home: Arc<Staging>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.home.state.lock().free[self.class].push(self.address);
    }
}

/// Does somebody who asks for a block go on without one?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    May,
    Must,
}

/// Room for a new block: pin so many bytes and hand them to [`Staging::adopt`] (or tell [`Staging::forget`]); first unpin
/// the others.
#[derive(Debug)]
pub struct Room {
    pub size_bytes: usize,
    pub unpin: SmallVec<[usize; 4]>,
}

impl Staging {
    pub fn new(total_bytes_max: usize) -> Arc<Staging> {
        let state = State { free: [const { Vec::new() }; CLASS_COUNT], total_bytes: 0 };
        Arc::new(Staging { state: Mutex::new(Rank::Leaf, state), total_bytes_max })
    }

    /// Of all blocks, in use and free.
    pub fn total_bytes(&self) -> usize {
        self.state.lock().total_bytes
    }

    /// Runs something while the list is locked.
    #[cfg(test)]
    pub fn while_locked(&self, body: impl FnOnce()) {
        let _state = self.state.lock();
        body();
    }

    /// Takes all free blocks away, to be unpinned.
    pub fn take_free(&self) -> Vec<usize> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        for class in 0..CLASS_COUNT {
            let free = std::mem::take(&mut state.free[class]);
            state.total_bytes -= free.len() * (BLOCK_BYTES_MIN << class);
            taken.extend(free);
        }
        taken
    }

    /// A free block of at least so many bytes.
    pub fn find(self: &Arc<Staging>, size_bytes: usize) -> Option<Block> {
        let class = class(size_bytes);
        let address = self.state.lock().free.get_mut(class)?.pop()?;
        Some(Block { address, class, home: self.clone() })
    }

    /// Room for a block of at least so many bytes; none if they are too many, or too many are in use and it isn't a must.
    pub fn room(&self, size_bytes: usize, need: Need) -> Option<Room> {
        if size_bytes > BLOCK_BYTES_MAX {
            return None;
        }
        let class = class(size_bytes);
        let mut state = self.state.lock();
        let size_bytes = BLOCK_BYTES_MIN << class;
        let free_bytes: usize =
            state.free.iter().enumerate().map(|(class, free)| free.len() * (BLOCK_BYTES_MIN << class)).sum();
        if need == Need::May && state.total_bytes - free_bytes + size_bytes > self.total_bytes_max {
            return None;
        }
        let mut unpin = SmallVec::new();
        // The largest first: fewest calls.
        for other in (0..CLASS_COUNT).rev() {
            while state.total_bytes + size_bytes > self.total_bytes_max
                && let Some(address) = state.free[other].pop()
            {
                state.total_bytes -= BLOCK_BYTES_MIN << other;
                unpin.push(address);
            }
        }
        state.total_bytes += size_bytes;
        Some(Room { size_bytes, unpin })
    }

    /// Takes the memory that [`Staging::room`] was for.
    pub fn adopt(self: &Arc<Staging>, address: usize, size_bytes: usize) -> Block {
        Block { address, class: class(size_bytes), home: self.clone() }
    }

    /// The memory that [`Staging::room`] was for could not be had.
    pub fn forget(&self, size_bytes: usize) {
        self.state.lock().total_bytes -= size_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(staging: &Arc<Staging>, size_bytes: usize, address: usize) -> (Block, usize) {
        let Room { size_bytes, unpin } = staging.room(size_bytes, Need::May).unwrap();
        (staging.adopt(address, size_bytes), unpin.len())
    }

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([class(0), class(1), class(4096), class(4097), class(8192)], [0, 0, 0, 1, 1]);
        assert_eq!(class(BLOCK_BYTES_MAX), CLASS_COUNT - 1);
    }

    #[test]
    fn blocks_come_back_and_are_found_again() {
        let staging = Staging::new(1 << 20);
        let (block, _) = make(&staging, 5000, 100);
        drop(block);
        let block = staging.find(8192).unwrap();
        assert_eq!(block.address, 100);
        assert!(staging.find(8192).is_none(), "it is in use");
        assert!(staging.find(usize::MAX / 2).is_none());
    }

    #[test]
    fn the_limit_counts_what_is_in_use_and_frees_what_is_not() {
        let staging = Staging::new(64 << 10);
        let (large, _) = make(&staging, 32 << 10, 1);
        let (other, _) = make(&staging, 32 << 10, 2);
        assert!(staging.room(4096, Need::May).is_none(), "all is in use");
        drop(large);
        let (small, unpinned) = make(&staging, 4096, 3);
        assert_eq!(unpinned, 1);
        assert!(staging.room(BLOCK_BYTES_MAX + 1, Need::May).is_none());
        drop((other, small));
        staging.forget(4096); // as if the last could not be pinned
        assert_eq!(staging.total_bytes(), 32 << 10);
    }

    #[test]
    fn what_must_be_goes_past_the_limit_and_comes_back() {
        let staging = Staging::new(32 << 10);
        let (large, _) = make(&staging, 32 << 10, 1);
        assert!(staging.room(4096, Need::May).is_none());
        let Room { size_bytes, unpin } = staging.room(4096, Need::Must).unwrap();
        assert!(unpin.is_empty(), "nothing is free");
        drop((large, staging.adopt(2, size_bytes)));
        assert_eq!(staging.total_bytes(), 36 << 10);
        let (_next, unpinned) = make(&staging, 8192, 3);
        assert_eq!((unpinned, staging.total_bytes()), (1, 12 << 10));
    }

    #[test]
    fn what_is_free_can_be_taken_away() {
        let staging = Staging::new(64 << 10);
        let ((used, _), (free, _)) = (make(&staging, 4096, 1), make(&staging, 8192, 2));
        drop(free);
        assert_eq!((staging.take_free(), staging.total_bytes()), (vec![2], 4096));
        drop(used);
        assert_eq!((staging.take_free(), staging.total_bytes()), (vec![1], 0));
    }
}
