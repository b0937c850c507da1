//! Numbers for tests: a stream that depends on its seed alone.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    special: bool,
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed, special: false }
    }

    /// The stream of a seed, in which [`float`](Random::float) gives special numbers, too.
    pub fn with_special_numbers(seed: u64) -> Random {
        Random { state: seed, special: true }
    }

    /// The stream of a name, so that every test has its own.
    pub fn named(name: &str) -> Random {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Random::new(hash)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `bound`, which isn't 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// One of `count`?
    pub fn one_of(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Of [low, high).
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.bits() >> 11) as f64 * f64::powi(2.0, -53))
    }

    /// Does it give special numbers?
    pub fn is_special(&self) -> bool {
        self.special
    }

    /// Of [low, high), or now and then a special number, if the stream has such.
    pub fn float(&mut self, low: f64, high: f64) -> f64 {
        const SPECIAL: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-30];
        if self.special && self.one_of(9) { *self.pick(&SPECIAL) } else { self.uniform(low, high) }
    }

    /// An element of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
