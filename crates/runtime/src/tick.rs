//! Ticks: "everything enqueued on that stream up to here", in one word.

use raddle_hal::QUEUE_COUNT_MAX;

/// Streams of a device, and so entries of a clock. Few in the models, so that loom gets through.
pub(crate) const SLOT_COUNT: usize = if cfg!(loom) { 4 } else { QUEUE_COUNT_MAX };

/// The bit that no tick has: a mark is claimed while an op that names it is enqueued.
pub(crate) const CLAIMED: u64 = 1 << 63;

/// A place in the work of one stream: 1 bit for claims, 8 for the device, 7 for the stream's slot, 48 for the sequence
/// number. 48 bits last nine years at a million ops a second; a stream that has used them up takes no more work.
/// Sequence 0 is complete on every stream. Ticks only grow and are never used twice, so there is no ABA.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tick(pub(crate) u64);

impl Tick {
    pub(crate) const SEQUENCE_BITS: u32 = 48;
    pub(crate) const SEQUENCE_MAX: u64 = (1 << Self::SEQUENCE_BITS) - 1;
    /// Nothing to wait for.
    pub const NONE: Tick = Tick(0);

    pub(crate) fn new(device: u8, slot: usize, sequence: u64) -> Tick {
        debug_assert!(slot < SLOT_COUNT && sequence <= Self::SEQUENCE_MAX);
        Tick((u64::from(device) << 7 | slot as u64) << Self::SEQUENCE_BITS | sequence)
    }

    /// The stream's slot on its device.
    pub fn slot(self) -> usize {
        (self.0 >> Self::SEQUENCE_BITS) as usize & 0x7f
    }
    /// The index of the device.
    pub fn device(self) -> u8 {
        (self.0 >> (Self::SEQUENCE_BITS + 7)) as u8
    }
    /// The sequence number on the stream.
    pub fn sequence(self) -> u64 {
        self.0 & Self::SEQUENCE_MAX
    }
}

impl std::fmt::Debug for Tick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}@{}", self.device(), self.slot(), self.sequence())
    }
}

/// For each slot a sequence number: what the next op of a stream is ordered behind.
pub(crate) type Clock = [u64; SLOT_COUNT];

pub(crate) fn merge(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(own, theirs)| *own = (*own).max(*theirs));
}
