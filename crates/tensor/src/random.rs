//! Random numbers from a counter: what is drawn depends on the generator's seed and on how much was drawn from it before,
//! never on thread, stream, device load or the strides of the tensor.
//!
//! A [`Generator`] is a key and a counter of Philox blocks. Each draw takes a range of the counter with one atomic
//! addition, so threads that share a generator never get the same numbers (but then their order decides who gets which:
//! give each thread a generator of its own by [`Generator::split`]).
//!
//! Without a generator the one of the thread is used. The first is derived from the process's seed, which is drawn from
//! the system's randomness unless [`manual_seed`] sets it.

use crate::{
    Arg, Call, DType, Device, Error, Layout, Result, Tensor,
    create::dims,
    number::range,
    pointwise::{check_device, check_disjoint, check_float, check_out},
    record::{self, Mode},
};
use raddle_base::{Scalar, bf16, f16};
use raddle_op::{Distribution, Kernel, Program};
use raddle_sync::{
    Arc, Mutex, Rank,
    atomic::{AtomicU64, Ordering},
    fault,
};
use smallvec::SmallVec;
use std::{
    cell::RefCell,
    hash::{BuildHasher, RandomState},
};

/// Where random numbers come from. Clones share the counter.
#[derive(Clone, Debug)]
pub struct Generator(Arc<State>);

#[derive(Debug)]
struct State {
    key: u64,
    /// The next block that nobody has drawn.
    counter: AtomicU64,
}

/// SplitMix64's finaliser: a bijection in which every bit of the input reaches every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Generator {
    /// The generator of a seed. Equal seeds give equal sequences, in every process.
    pub fn new(seed: u64) -> Generator {
        Generator::from_state(mix(seed), 0)
    }

    /// `count` generators, independent of each other, of this one and of those of earlier splits: one for each thread.
    pub fn split(&self, count: usize) -> Vec<Generator> {
        let (key, first) = self.take(count as u64);
        // Children of one parent have different keys, since `mix` is a bijection.
        let child = |index: u64| Generator::from_state(mix(mix(key) ^ first.wrapping_add(index)), 0);
        (0..count as u64).map(child).collect()
    }

    /// Key and counter: all that there is to save.
    pub fn state(&self) -> (u64, u64) {
        (self.0.key, self.0.counter.load(Ordering::Acquire))
    }

    /// The generator with that [state](Generator::state).
    pub fn from_state(key: u64, counter: u64) -> Generator {
        Generator(Arc::new(State { key, counter: AtomicU64::new(counter) }))
    }

    /// The generator of this thread.
    pub fn of_thread() -> Generator {
        let epoch = EPOCH.load(Ordering::Acquire);
        let split = || {
            let mut root = ROOT.lock_global();
            let root = root.get_or_insert_with(|| Generator::new(RandomState::new().hash_one(0)));
            root.split(1).remove(0)
        };
        let kept = OF_THREAD.try_with(|own| match &mut *own.borrow_mut() {
            Some((seeded, generator)) if *seeded == epoch => generator.clone(),
            own => own.insert((epoch, split())).1.clone(),
        });
        // A thread that ends has no own one any more.
        kept.unwrap_or_else(|_| split())
    }

    /// Takes a range of blocks of a generator, or of the thread's.
    pub(crate) fn draw(generator: Option<&Generator>, blocks: u64) -> (u64, u64) {
        match generator {
            Some(generator) => generator.take(blocks),
            None => Generator::of_thread().take(blocks),
        }
    }

    /// Takes a range of blocks: the key and the first of them.
    fn take(&self, blocks: u64) -> (u64, u64) {
        // Only the numbers matter; they order nothing else.
        let count = if fault!(range_drawn_twice) { 0 } else { blocks };
        (self.0.key, self.0.counter.fetch_add(count, Ordering::Relaxed))
    }
}

/// The generator from which those of the threads are split.
static ROOT: Mutex<Option<Generator>> = Mutex::new(Rank::Leaf, None);
/// How often [`manual_seed`] was called. Pairs a release with the acquire of whoever draws next.
static EPOCH: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OF_THREAD: RefCell<Option<(u64, Generator)>> = const { RefCell::new(None) };
}

/// The largest number of a dtype that is at most `value`. (Bools and integers have all that matter.)
fn floor_to(dtype: DType, value: i128) -> i128 {
    let digits = match dtype {
        DType::BF16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        DType::F64 => 53,
        _ => return value,
    };
    let unit = 1i128 << (i128::BITS - value.unsigned_abs().leading_zeros()).saturating_sub(digits);
    value.div_euclid(unit) * unit
}

/// Seeds the process. This thread's generator is now `Generator::new(seed)`; the other threads get generators split from
/// it, in the order in which they next draw.
pub fn manual_seed(seed: u64) {
    let mut root = ROOT.lock_global();
    *root = Some(Generator::new(seed));
    let epoch = EPOCH.fetch_add(1, Ordering::AcqRel) + 1;
    drop(root);
    _ = OF_THREAD.try_with(|own| own.replace(Some((epoch, Generator::new(seed)))));
}

impl Tensor {
    /// Fills with normal numbers. Of floats.
    pub fn normal_<'g>(
        &self,
        mean: f64,
        std: f64,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<&Tensor> {
        let op = "normal_";
        check_float(op, "the tensor", self)?;
        check_range(op, "std", "a number of at least 0", std, std >= 0.0)?;
        self.draw(op, Distribution::Normal { mean, std }, generator.into())
    }

    /// Fills with numbers of [`low`, `high`), evenly. Of floats, which must hold both.
    pub fn uniform_<'g>(
        &self,
        low: f64,
        high: f64,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<&Tensor> {
        let op = "uniform_";
        check_float(op, "the tensor", self)?;
        check_range(op, "low", "a number of at most high", low, low <= high)?;
        let most = match self.dtype() {
            DType::F16 => f16::MAX.to_f64(),
            DType::BF16 => bf16::MAX.to_f64(),
            DType::F32 => f64::from(f32::MAX),
            _ => f64::MAX,
        };
        for (what, found) in [("low", low), ("high", high)] {
            check_range(op, what, "a number that the dtype holds", found, found.abs() <= most)?;
        }
        if low == high {
            return self.fill_(low);
        }
        self.draw(op, Distribution::Uniform { low, high }, generator.into())
    }

    /// Fills with exponentially distributed numbers of the given rate, never 0. Of floats.
    pub fn exponential_<'g>(
        &self,
        rate: f64,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<&Tensor> {
        let op = "exponential_";
        check_float(op, "the tensor", self)?;
        check_range(op, "rate", "a positive number", rate, rate > 0.0)?;
        self.draw(op, Distribution::Exponential { rate }, generator.into())
    }

    /// Fills with integers of [`low`, `high`), each equally likely; `high` never appears. The dtype must hold them. Of floats
    /// whose integers lie further apart than 1 at that size, those that the dtype has are drawn, by rounding others to them.
    pub fn random_<'g>(
        &self,
        low: i64,
        high: i64,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<&Tensor> {
        let op = "random_";
        let wrong =
            |what, expected, found| Err(Error::Argument { op, what, expected, found: Scalar::Int(found) });
        if low >= high {
            return wrong("high", "more than low", high);
        }
        let (least, most) = match self.dtype() {
            DType::Bool => (0, 1),
            DType::F16 => (-65_504, 65_504),
            dtype => range(dtype).unwrap_or((i64::MIN, i64::MAX)),
        };
        if low < least {
            return wrong("low", "a number that the dtype holds", low);
        }
        if high - 1 > most {
            return wrong("high", "at most one past what the dtype holds", high);
        }
        if self.dtype().is_int() {
            return self.draw(op, Distribution::Integer { low, high }, generator.into());
        }
        // Between numbers that the dtype has, so that none is rounded out of the range.
        let (first, last) =
            (-floor_to(self.dtype(), -i128::from(low)), floor_to(self.dtype(), i128::from(high) - 1));
        if first > last {
            return wrong("high", "a range with a number that the dtype has", high);
        }
        let distribution = Distribution::Integer { low: first as i64, high: (last + 1) as i64 };
        let layout = Layout::contiguous(*self.shape());
        let drawn = Tensor::allocate(op, layout, DType::I64, &self.device())?;
        drawn.draw(op, distribution, generator.into())?;
        self.copy_(&drawn)?;
        Ok(self)
    }

    /// Fills with 1 with probability `p`, else 0. `p` is a number or a tensor of floats, broadcast. Of any dtype. Probabilities
    /// are met in steps of 2^-64, of `f64` in steps of 2^-53. Numbers have to
    /// be in [0, 1]; elements of a tensor below count as 0, those above as 1, and NaN as 0: to look would be to wait for them.
    pub fn bernoulli_<'a, 'g>(
        &self,
        p: impl Into<Arg<'a>>,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<&Tensor> {
        let op = "bernoulli_";
        match p.into() {
            Arg::Scalar(p) => {
                let p = p.to_f64();
                check_range(op, "p", "a number of [0, 1]", p, (0.0..=1.0).contains(&p))?;
                self.draw(op, Distribution::Bernoulli { p }, generator.into())
            }
            Arg::Tensor(p) => {
                check_float(op, "p", p)?;
                check_device(op, self, &[p])?;
                let layout = p.layout().broadcast_to(op, self.shape())?;
                check_disjoint(op, self, &[p])?;
                let given = p.alias(layout);
                self.draw_with(op, Distribution::Bernoulli { p: 0.0 }, generator.into(), Some(&given))
            }
        }
    }

    /// 1 with the probability that this tensor holds, else 0; shape and dtype of `self`, which is of floats.
    pub fn bernoulli<'g>(&self, generator: impl Into<Option<&'g Generator>>) -> Result<Tensor> {
        let out = self.empty_like()?;
        out.bernoulli_(&self.detach(), generator)?;
        Ok(out)
    }

    fn draw(
        &self,
        op: &'static str,
        distribution: Distribution,
        generator: Option<&Generator>,
    ) -> Result<&Tensor> {
        self.draw_with(op, distribution, generator, None)
    }

    fn draw_with(
        &self,
        op: &'static str,
        distribution: Distribution,
        generator: Option<&Generator>,
        probability: Option<&Tensor>,
    ) -> Result<&Tensor> {
        check_out(op, self, self.shape(), &self.device())?;
        record::op(
            Mode::InPlace,
            &[self],
            &[self],
            || Call::Overwrite,
            || {
                // See `Kernel::Random`.
                let double =
                    self.dtype() == DType::F64 || matches!(distribution, Distribution::Integer { .. });
                let blocks = self.element_count().div_ceil(if double { 2 } else { 4 }) as u64;
                if blocks == 0 {
                    return Ok(());
                }
                let (key, counter) = if self.device().is_capturing() {
                    // Nothing is drawn now; each replay draws.
                    crate::graph::note_draw(generator, blocks);
                    (0, 0)
                } else {
                    Generator::draw(generator, blocks)
                };
                let mut operands: SmallVec<[_; 2]> = SmallVec::new();
                operands.push(self.write(self.layout()));
                operands.extend(probability.map(|p| p.read(p.layout())));
                Ok(self.device().submit_named(
                    op,
                    &Kernel::Random { distribution, key, counter },
                    &operands,
                )?)
            },
        )?;
        Ok(self)
    }

    /// Numbers of [0, 1), evenly.
    pub fn rand<'g>(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        device: &Device,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<Tensor> {
        let out = Tensor::empty(shape, dtype, device)?;
        out.uniform_(0.0, 1.0, generator)?;
        Ok(out)
    }

    /// Normal numbers with mean 0 and standard deviation 1.
    pub fn randn<'g>(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        device: &Device,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<Tensor> {
        let out = Tensor::empty(shape, dtype, device)?;
        out.normal_(0.0, 1.0, generator)?;
        Ok(out)
    }

    /// Integers of [`low`, `high`).
    pub fn randint<'g>(
        low: i64,
        high: i64,
        shape: impl AsRef<[usize]>,
        dtype: DType,
        device: &Device,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<Tensor> {
        let out = Tensor::empty(shape, dtype, device)?;
        out.random_(low, high, generator)?;
        Ok(out)
    }

    /// The numbers 0 to `count` − 1 (i64) in random order: the order of as many 64-bit draws.
    pub fn randperm<'g>(
        count: usize,
        device: &Device,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<Tensor> {
        let shape = dims("randperm", &[count])?;
        Tensor::randint(i64::MIN, i64::MAX, shape, DType::I64, device, generator)?.argsort(0, false)
    }

    /// Sets each element to 0 with probability `p` and multiplies the others by `1 / (1 − p)`. Of floats.
    pub fn dropout<'g>(&self, p: f64, generator: impl Into<Option<&'g Generator>>) -> Result<Tensor> {
        let op = "dropout";
        check_float(op, "the tensor", self)?;
        check_range(op, "p", "a number of [0, 1]", p, (0.0..=1.0).contains(&p))?;
        let kept = Tensor::allocate(op, self.layout().preserved(), DType::Bool, &self.device())?;
        kept.bernoulli_(1.0 - p, generator)?;
        let scale = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
        let program = Program::record(|[x, kept]| kept.truth().select(x * scale, 0.0));
        crate::Fused::new(program).call(&[self, &kept])
    }
}

fn check_range(
    op: &'static str,
    what: &'static str,
    expected: &'static str,
    found: f64,
    good: bool,
) -> Result<()> {
    if good { Ok(()) } else { Err(Error::Argument { op, what, expected, found: Scalar::Float(found) }) }
}
