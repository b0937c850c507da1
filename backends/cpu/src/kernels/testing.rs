//! What the tests of the kernels share: a random generator, operands of random layouts with guard bytes.

use crate::threads::Threads;
use raddle_base::{DType, Dims, Element, Layout, MAX_RANK, Scalar, by_element};
use raddle_hal::{Address, Kernel, Operand, View};

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// Below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }
    /// With this chance in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    /// A shape of up to eight axes and not too many elements.
    pub fn shape(&mut self) -> Dims {
        match self.below(8) {
            0 => Dims::EMPTY,
            1 => Dims::new(&[1 + self.below(2000)]).expect("one axis"),
            2 => Dims::new(&[1 + self.below(130), 1 + self.below(130)]).expect("two axes"),
            3 => Dims::new(&[1 + self.below(40), 1 + self.below(8), 1 + self.below(40)]).expect("three axes"),
            4 => (0..1 + self.below(MAX_RANK)).map(|_| 1 + self.below(3)).collect(),
            5 => Dims::new(&[3, 0, 2]).expect("three axes"),
            6 => Dims::new(&[1 + self.below(5), 1 + self.below(700)]).expect("two axes"),
            _ => (0..1 + self.below(5)).map(|_| 1 + self.below(7)).collect(),
        }
    }
    /// A number of this dtype; often a special one.
    pub fn scalar(&mut self, dtype: DType) -> Scalar {
        let special = self.chance(10);
        if dtype.is_float() {
            let specials =
                [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, 6e4, 3e9, 1e300];
            let value = if special {
                self.pick(&specials)
            } else {
                (self.bits() as i32 as f64) / 2f64.powi(self.below(40) as i32)
            };
            return normalized(Scalar::Float(value), dtype);
        }
        let specials = [0, 1, -1, i64::MAX, i64::MIN, i32::MAX as i64, i32::MIN as i64, 255, 256];
        let value = if special { self.pick(&specials) } else { self.bits() as i64 >> self.below(64) };
        normalized(Scalar::Int(value), dtype)
    }
}

/// The number after a cast to this dtype.
pub fn normalized(value: Scalar, dtype: DType) -> Scalar {
    use half::{bf16, f16};
    match dtype {
        DType::F16 => {
            let near = f16::from_f32(value.to_f64() as f32).to_bits();
            Scalar::Float(nearest(value.to_f64(), near, |bits| f16::from_bits(bits).to_f64()))
        }
        DType::BF16 => {
            let near = bf16::from_f32(value.to_f64() as f32).to_bits();
            Scalar::Float(nearest(value.to_f64(), near, |bits| bf16::from_bits(bits).to_f64()))
        }
        _ => dtype.round(value),
    }
}

/// The nearest number of 16 bits, halves to even, near one that was rounded twice.
fn nearest(value: f64, near: u16, decode: impl Fn(u16) -> f64) -> f64 {
    let found = decode(near);
    if found == value || !value.is_finite() {
        return found;
    }
    // What is infinite lies one step past the largest finite number, as far as rounding goes.
    let step = |a: u16, b: u16| decode(b) - decode(a);
    let place = |bits: u16| {
        let past = decode(bits).is_infinite();
        if past { decode(bits - 1) + step(bits - 2, bits - 1) } else { decode(bits) }
    };
    let candidates = [near.wrapping_sub(1), near, near.wrapping_add(1)];
    let inside = |bits: &&u16| {
        !decode(**bits).is_nan() && decode(**bits).is_sign_negative() == value.is_sign_negative()
    };
    let distance = |bits: u16| (place(bits) - value).abs();
    let best = candidates
        .iter()
        .filter(inside)
        .min_by(|a, b| distance(**a).total_cmp(&distance(**b)).then((**a & 1).cmp(&(**b & 1))));
    decode(*best.expect("a number is near itself"))
}

/// Are they the same number, all NaN being one?
pub fn same(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
        _ => a == b,
    }
}

/// A view with memory of its own, filled with a pattern.
pub struct Tensor {
    words: Vec<u64>,
    dtype: DType,
    /// Where the elements lie.
    pub layout: Layout,
}

impl Tensor {
    /// Row-major.
    pub fn packed(dtype: DType, shape: Dims) -> Tensor {
        Tensor::new(dtype, Layout::contiguous(shape))
    }
    /// Any layout.
    pub fn new(dtype: DType, layout: Layout) -> Tensor {
        let bytes = (layout.end() + 3) * dtype.size_bytes();
        Tensor { words: vec![0x5a5a_5a5a_5a5a_5a5a; bytes.div_ceil(8) + 8], dtype, layout }
    }
    /// Axes in any order, steps, an offset; `expanded`: some axes without a step.
    pub fn random(rng: &mut Rng, dtype: DType, shape: Dims, expanded: bool) -> Tensor {
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        if rng.chance(60) {
            for i in (1..axes.len()).rev() {
                axes.swap(i, rng.below(i + 1));
            }
        }
        let holes = rng.chance(30);
        let mut strides = Dims::filled(0, shape.len());
        let mut next = if holes { 1 + rng.below(3) } else { 1 };
        for &axis in axes.iter().rev() {
            if expanded && rng.chance(30) {
                continue;
            }
            strides[axis] = next;
            next *= shape[axis].max(1);
            next += if holes { rng.below(3) } else { 0 };
        }
        let offset = if rng.chance(50) { rng.below(9) } else { 0 };
        Tensor::new(dtype, Layout::new(shape, strides, offset))
    }
    /// As an operand.
    pub fn view(&self) -> View {
        let address = Address { handle: self.words.as_ptr() as u64, offset_bytes: 0 };
        View { address, dtype: self.dtype, layout: self.layout }
    }
    /// Read.
    pub fn input(&self) -> Operand {
        Operand::In(self.view())
    }
    /// Written.
    pub fn output(&mut self) -> Operand {
        self.words.as_mut_ptr(); // unique from here on
        Operand::Out(self.view())
    }
    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: words are bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * 8) }
    }
    fn at(&self, offset: usize) -> &[u8] {
        &self.bytes()[offset * self.dtype.size_bytes()..][..self.dtype.size_bytes()]
    }
    /// The elements, in row-major order.
    pub fn read(&self) -> Vec<Scalar> {
        let element = |offset| by_element!(self.dtype, T => T::from_bytes(self.at(offset)).to_scalar());
        self.layout.offsets().map(element).collect()
    }
    /// Writes the elements, in row-major order.
    pub fn write(&mut self, mut value: impl FnMut(usize) -> Scalar) {
        let (layout, dtype) = (self.layout, self.dtype);
        for (index, offset) in layout.offsets().enumerate() {
            let mut bytes = Vec::new();
            by_element!(dtype, T => T::from_scalar(value(index)).append_bytes(&mut bytes));
            let to = self.words.as_mut_ptr().cast::<u8>().wrapping_add(offset * dtype.size_bytes());
            // SAFETY: the offsets of the layout lie inside the words.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }
    /// Fills it with random numbers.
    pub fn randomize(&mut self, rng: &mut Rng) {
        let dtype = self.dtype;
        self.write(|_| rng.scalar(dtype));
    }
    /// Is every byte outside of the view still the pattern?
    pub fn guards_hold(&self) -> bool {
        let size = self.dtype.size_bytes();
        let mut inside = vec![false; self.words.len() * 8];
        self.layout.offsets().for_each(|offset| inside[offset * size..][..size].fill(true));
        self.bytes().iter().zip(inside).all(|(byte, inside)| inside || *byte == 0x5a)
    }
}

/// What a kernel asks for, with guard bytes behind it.
pub struct Scratch {
    words: Vec<u128>,
    size_bytes: usize,
}

impl Scratch {
    const GUARD: u8 = 0xa5;

    /// For a kernel on these operands.
    pub fn new(kernel: &Kernel, operands: &[Operand], threads: usize) -> Scratch {
        let size_bytes = super::scratch_bytes(kernel, operands, Threads(threads));
        Scratch { words: vec![u128::from_ne_bytes([Scratch::GUARD; 16]); size_bytes / 16 + 4], size_bytes }
    }
    /// To be put behind them, if there is any.
    pub fn operand(&mut self) -> Option<Operand> {
        let address = Address { handle: self.words.as_mut_ptr() as u64, offset_bytes: 0 };
        (self.size_bytes > 0).then(|| Operand::scratch(address, self.size_bytes))
    }
    /// Is what lies behind as it was?
    pub fn check(&self) {
        let guard = &self.words[self.size_bytes / 16..];
        assert!(
            guard.iter().all(|word| *word == u128::from_ne_bytes([Scratch::GUARD; 16])),
            "scratch was left"
        );
    }
}
