//! Tensors of random numbers, and what is drawn for them.

use crate::{
    Arg, Call, DType, Device, Error, Generator, Layout, Result, Tensor,
    create::dims,
    graph::note_draw,
    pointwise::{check_device, check_disjoint, check_float, check_out},
    record::{self, Mode},
};
use raddle_base::{FloatFormat, Scalar};
use raddle_op::{Distribution, Kernel, Program};
use smallvec::SmallVec;

/// The largest number of a dtype that is at most `value`. (Bools and integers have all that matter.)
fn floor_to(dtype: DType, value: i128) -> i128 {
    let Some(format) = dtype.format() else { return value };
    let unit = 1i128 << (i128::BITS - value.unsigned_abs().leading_zeros()).saturating_sub(format.digits);
    value.div_euclid(unit) * unit
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
        let most = self.dtype().format().map_or(0.0, FloatFormat::largest);
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
        let dtype = self.dtype();
        let (least, most) = match dtype.format().map(FloatFormat::largest) {
            Some(largest) => (-largest as i64, largest as i64),
            None => dtype.integer_range().unwrap_or((0, 1)),
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
                    note_draw(generator, blocks);
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
