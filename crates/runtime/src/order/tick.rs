//! Ticks: "everything enqueued on that stream up to here", in one word.

use raddle_hal::QUEUE_COUNT_MAX;

/// Streams of a device, and so entries of a clock. Few in the models, so that loom gets through.
pub(crate) const SLOT_COUNT: usize = if cfg!(loom) { 4 } else { QUEUE_COUNT_MAX };
/// Streams of each priority.
pub(crate) const POOL_COUNT: usize = if cfg!(loom) { 1 } else { 32 };
/// The slots from here on are for wrapped streams.
pub(crate) const EXTERNAL_FIRST: usize = 1 + 2 * POOL_COUNT;

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

/// For each slot a sequence number: what the next op of a stream is ordered behind. It knows where its zeros begin, since most
/// devices use few of their slots and clocks are merged and copied for each wait.
#[derive(Clone)]
pub(crate) struct Clock {
    sequences: [u64; SLOT_COUNT],
    /// From here on they are 0.
    end: usize,
}

impl Clock {
    pub(crate) const fn new() -> Clock {
        Clock { sequences: [0; SLOT_COUNT], end: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, slot: usize) -> u64 {
        self.sequences[slot]
    }

    /// Knows of a stream up to a number at least.
    #[inline]
    pub(crate) fn raise(&mut self, slot: usize, sequence: u64) {
        self.sequences[slot] = self.sequences[slot].max(sequence);
        self.end = self.end.max(slot + 1);
    }

    /// Knows what another knows, too.
    pub(crate) fn merge(&mut self, other: &Clock) {
        let theirs = &other.sequences[..other.end];
        self.sequences.iter_mut().zip(theirs).for_each(|(own, theirs)| *own = (*own).max(*theirs));
        self.end = self.end.max(other.end);
    }

    /// Knows what another knows, and nothing else.
    pub(crate) fn copy_from(&mut self, other: &Clock) {
        let end = self.end.max(other.end);
        self.sequences[..end].copy_from_slice(&other.sequences[..end]);
        self.end = other.end;
    }
}
