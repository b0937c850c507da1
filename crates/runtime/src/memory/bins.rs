//! Free pieces by size: bins of about a sixteenth of the size each, with a bit for each that isn't empty.
//!
//! Putting a piece in, taking it out and finding the first bin that may have one that fits touch a few words. Within a
//! bin pieces are in no order but that the last put in comes first.

/// Index of no piece.
pub(crate) const NONE: u32 = u32::MAX;

/// Bins for each doubling.
const PART_COUNT: usize = 16;
/// Up to the largest size there is, in units of a byte.
const WORD_COUNT: usize = PART_COUNT * (usize::BITS as usize) / 64;

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

pub(crate) struct Bins {
    unit_bytes: usize,
    /// A bit for each bin that isn't empty.
    words: [u64; WORD_COUNT],
    heads: Box<[u32]>,
    /// By index of the piece.
    links: Vec<Link>,
}

impl Bins {
    /// The finest difference that matters.
    pub(crate) fn new(unit_bytes: usize) -> Bins {
        Bins {
            unit_bytes,
            words: [0; WORD_COUNT],
            heads: vec![NONE; WORD_COUNT * 64].into(),
            links: Vec::new(),
        }
    }

    /// The bin of a size. Those of a larger bin are larger.
    #[inline]
    pub(crate) fn bin(&self, size_bytes: usize) -> usize {
        let units = size_bytes / self.unit_bytes;
        let shift = units.max(PART_COUNT).ilog2() - PART_COUNT.ilog2();
        PART_COUNT * shift as usize + (units >> shift)
    }

    /// Puts a piece in, which isn't in a bin.
    #[inline]
    pub(crate) fn insert(&mut self, index: u32, size_bytes: usize) {
        let bin = self.bin(size_bytes);
        let next = std::mem::replace(&mut self.heads[bin], index);
        self.words[bin / 64] |= 1 << (bin % 64);
        if next != NONE {
            self.links[next as usize].previous = index;
        }
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, Link { previous: NONE, next: NONE });
        }
        self.links[index as usize] = Link { previous: NONE, next };
    }

    /// Takes a piece out that was put in with that size.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32, size_bytes: usize) {
        let Link { previous, next } = self.links[index as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous != NONE {
            self.links[previous as usize].next = next;
            return;
        }
        let bin = self.bin(size_bytes);
        self.heads[bin] = next;
        if next == NONE {
            self.words[bin / 64] &= !(1 << (bin % 64));
        }
    }

    /// The first bin from one on that isn't empty.
    #[inline]
    fn bin_from(&self, bin: usize) -> Option<usize> {
        let mut word = bin / 64;
        let mut bits = self.words.get(word)? & u64::MAX << (bin % 64);
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The pieces of that size's bin, and then of all that are larger, bin by bin.
    #[inline]
    pub(crate) fn from(&self, size_bytes: usize) -> impl Iterator<Item = u32> {
        let mut bin = self.bin_from(self.bin(size_bytes));
        let mut index = bin.map_or(NONE, |bin| self.heads[bin]);
        std::iter::from_fn(move || {
            if index == NONE {
                bin = self.bin_from(bin? + 1);
                index = self.heads[bin?];
            }
            let found = index;
            index = self.links[found as usize].next;
            Some(found)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bins_grow_with_sizes_and_are_found() {
        let mut bins = Bins::new(256);
        let sizes: Vec<usize> =
            (0..55).flat_map(|shift| [256 << shift, (256 << shift) + (100 << shift)]).collect();
        assert!(sizes.is_sorted_by_key(|&size| bins.bin(size)));
        assert!(bins.bin(usize::MAX) < bins.heads.len());
        (0..).zip(&sizes).for_each(|(index, &size)| bins.insert(index, size));
        for (index, &size) in (0..).zip(&sizes) {
            assert!(bins.from(size).any(|other| other == index));
            let rest: Vec<u32> = bins.from(0).collect();
            assert_eq!(rest.len(), sizes.len() - index as usize);
            bins.remove(index, size);
            assert!(bins.from(0).all(|other| other != index));
        }
        assert!(bins.from(0).next().is_none() && bins.words == [0; WORD_COUNT]);
    }
}
