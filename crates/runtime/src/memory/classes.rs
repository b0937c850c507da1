//! Size classes of small blocks.

/// Blocks are multiples of it: large enough for any device's alignment.
pub(crate) const UNIT_BYTES: usize = 256;
/// Four classes for each doubling from 1 KiB to 256 KiB, and four below.
pub(crate) const CLASS_COUNT: usize = 36;
/// The class of blocks past those.
pub(crate) const LARGE: u8 = u8::MAX;
/// Of blocks of no bytes, which are in no list: they come and go by themselves, and take nothing of the device.
pub(crate) const EMPTY: u8 = LARGE - 1;
/// Of [memory of others](super::foreign).
pub(crate) const FOREIGN: u8 = LARGE - 2;
/// Of memory of others that no op may write.
pub(crate) const READ_ONLY: u8 = LARGE - 3;

/// Has the device no list for it?
#[inline]
pub(crate) fn is_unlisted(class: u8) -> bool {
    (READ_ONLY..=EMPTY).contains(&class)
}

/// The class that holds `size_bytes`.
#[inline]
pub(crate) fn class_of(size_bytes: usize) -> u8 {
    let last_unit = size_bytes.saturating_sub(1) / UNIT_BYTES;
    if last_unit < 4 {
        return last_unit as u8;
    }
    let shift = last_unit.ilog2() as usize - 2;
    let class = 4 * shift + (last_unit >> shift);
    if class < CLASS_COUNT { class as u8 } else { LARGE }
}

/// The size of a class's blocks.
#[inline]
pub(crate) const fn class_size_bytes(class: usize) -> usize {
    let units = if class < 4 { class + 1 } else { (class % 4 + 5) << (class / 4 - 1) };
    units * UNIT_BYTES
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for_and_waste_at_most_a_quarter() {
        for size_bytes in 0..300_000 {
            let class = class_of(size_bytes);
            if class == LARGE {
                assert!(size_bytes > 256 << 10);
                continue;
            }
            let held = class_size_bytes(class as usize);
            assert!(held >= size_bytes, "{size_bytes} in a block of {held}");
            assert!(
                size_bytes <= 1024 || held * 4 <= size_bytes * 5 + 4 * UNIT_BYTES,
                "{size_bytes} in {held}"
            );
            assert!(class == 0 || class_size_bytes(class as usize - 1) < size_bytes.max(1));
        }
    }
}
