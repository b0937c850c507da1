//! Ids of streams: numbers for other programs, which may come back as anything.

use super::tick::{EXTERNAL_FIRST, POOL_COUNT, SLOT_COUNT};
use raddle_sync::fault;

/// Names a stream for other programs: which device, which pool, which index, in 64 bits.
///
/// | bits | meaning |
/// |---|---|
/// | 0–7 | index in its pool |
/// | 8–23 | of a stream of the runtime: 0; of a wrapped one: how often its index had been used before, modulo 2^16 |
/// | 24–27 | pool: 0 default, 1 normal, 2 high, 3 wrapped |
/// | 28–31 | origin: 0 made by the runtime, 1 wrapped |
/// | 32–39 | index of the device |
/// | 40–47 | how often that index had been used by devices before, modulo 2^8 |
/// | 48–63 | 0x5244, so that a stray number isn't taken for an id |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    const MAGIC: u64 = 0x5244;

    /// `device` is its index and the uses of that. `generation` is even while the stream is open.
    pub(crate) fn encode(device: u16, slot: usize, generation: u32) -> StreamId {
        let (origin_and_pool, index) = match slot {
            0 => (0x00, 0),
            slot if slot <= POOL_COUNT => (0x01, slot - 1),
            slot if slot < EXTERNAL_FIRST => (0x02, slot - 1 - POOL_COUNT),
            slot => (0x13, slot - EXTERNAL_FIRST),
        };
        let uses = u64::from((generation / 2) as u16);
        StreamId(
            Self::MAGIC << 48 | u64::from(device) << 32 | origin_and_pool << 24 | uses << 8 | index as u64,
        )
    }

    /// The slot, if the id names a stream that the device can have. Whether it is open is for the caller to see, who
    /// compares its id.
    pub(crate) fn decode(self, device: u16) -> Option<usize> {
        let (origin_and_pool, index) = (self.0 >> 24 & 0xff, (self.0 & 0xff) as usize);
        let slot = match origin_and_pool {
            0x00 if index == 0 => 0,
            0x01 if index < POOL_COUNT => 1 + index,
            0x02 if index < POOL_COUNT => 1 + POOL_COUNT + index,
            0x13 if index < SLOT_COUNT - EXTERNAL_FIRST => EXTERNAL_FIRST + index,
            _ => return None,
        };
        let any_use = if slot < EXTERNAL_FIRST { 0 } else { 0xffff << 8 };
        let mut is_one = self.0 & !any_use == StreamId::encode(device, slot, 0).0;
        fault!(stray_id_decodes => is_one = true);
        is_one.then_some(slot)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_name_what_they_came_from_and_nothing_else() {
        for device in [0, 7, 255, 256, 0x107, 65_535] {
            for slot in 0..SLOT_COUNT {
                let generations: &[u32] =
                    if slot < EXTERNAL_FIRST { &[0] } else { &[0, 2, 4, 65_536, 131_070] };
                for (nth, &generation) in generations.iter().enumerate() {
                    let id = StreamId::encode(device, slot, generation);
                    assert_eq!(id.decode(device), Some(slot));
                    assert_eq!(id.decode(device ^ 1), None);
                    let others = generations.iter().map(|&other| StreamId::encode(device, slot, other));
                    assert_eq!(others.filter(|other| *other == id).count(), 1, "use {nth} of slot {slot}");
                }
            }
        }
    }

    #[test]
    fn stray_numbers_name_nothing() {
        let magic = StreamId::MAGIC << 48;
        let strays =
            [0, 1, u64::MAX, magic | 3 << 24, magic | 1 << 24 | 32, magic | 1 << 8, magic | 0x13 << 24 | 63];
        for stray in strays {
            assert_eq!(StreamId(stray).decode(0), None, "{stray:#x}");
        }
        // No other number has the id of a stream: each bit that is flipped leads to nothing, or to another one's id.
        let id = StreamId::encode(3, 5, 0);
        for bit in 0..64 {
            let flipped = StreamId(id.0 ^ 1 << bit);
            let found = flipped.decode(3).map(|slot| StreamId::encode(3, slot, 0));
            assert!(found.is_none_or(|found| found == flipped || found.0 >> 24 & 0xff == 0x13), "bit {bit}");
        }
    }
}
