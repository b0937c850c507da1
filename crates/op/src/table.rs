//! The op table: one row a pointwise op. To add an op, add a row; nothing else.
//!
//! A row reads `name(inputs; scalar parameters) { types, result, ulp, domain, derivative, body }`:
//! - the name is PyTorch's, with an underscore behind it where Rust has that word for itself;
//! - an input called `condition` is taken as a truth value: it has no part in promotion and no gradient;
//! - `types`: a [`Types`](crate::pointwise::Types), which dtypes it takes;
//! - `result`: a [`ResultType`](crate::pointwise::ResultType), `Same` as the inputs or `Bool`;
//! - `ulp`: the largest error in units of the last place of the result, in f32 and f64, for operands within the domain,
//!   against the exact value of the formula. It assumes primitives that are good to 2 ulp. (An f16 or bf16 result adds
//!   half a unit of its own.);
//! - `domain`: where operands are drawn from in tests; parameters too, unless a test knows better;
//! - `derivative`: `derived` from the body, `none`, or `[g => ..]`: for each input (but a condition) the gradient, given
//!   the output's gradient `g`; behind `; numbers:` that by the first input where all others are numbers, if it is another;
//! - `body`: the formula, in the language of [`expr`](crate::expr); other rows may be called.
//!
//! A row's body decides what happens to NaN, infinities, ties and integers, on every device alike. They follow PyTorch,
//! and where the formula in the doc leaves doubt, the doc says what it does. Arithmetic of integers wraps.

/// Hands all rows to a macro.
#[macro_export]
macro_rules! for_each_pointwise {
    ($callback:path) => { $callback! {
        // Arithmetic

        /// `x + y`. Of bools: or.
        add(x, y;) { types: All, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x + y }
        /// `x - y`. A bool beside a number counts as 0 or 1; PyTorch refuses it.
        sub(x, y;) { types: Number, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x - y }
        /// `x * y`. Of bools: and.
        mul(x, y;) { types: All, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x * y }
        /// `x / y`; integers are converted to f32 first.
        div(x, y;) { types: Float, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x / y }
        /// The largest integer not above `x / y`. By zero: of floats as `x / y`, of integers 0. The derivative
        /// is 0.
        floor_divide(x, y;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [_g => x.literal(0.0), y.literal(0.0)], body: {
            // From the exact remainder: rounding x / y first could step over the integer.
            let m = x.fmod(y);
            let q = (x - m) / y;
            let q = (m.ne(0.0) & (m.lt(0.0) ^ y.lt(0.0))).select(q - 1.0, q).round();
            // A zero has the sign of the quotient.
            y.eq(0.0).select(x / y, q.eq(0.0).select(x / y * 0.0, q))
        } }
        /// `x / y` without its fraction, from the exact quotient. By zero and of infinities: of floats as `x / y`, of integers 0.
        /// The derivative is 0.
        trunc_divide(x, y;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [_g => x.literal(0.0), y.literal(0.0)], body: {
            let m = x.fmod(y);
            let q = ((x - m) / y).round();
            // A zero has the sign of the quotient.
            m.ne(m).select(x / y, q.eq(0.0).select(x / y * 0.0, q))
        } }
        /// `x - floor(x / y) * y`, Python's `%`: zero or of the sign of `y`. PyTorch's `remainder`. By zero: NaN, of
        /// integers 0.
        rem(x, y;) { types: Number, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: {
            let m = x.fmod(y);
            (m.ne(0.0) & (m.lt(0.0) ^ y.lt(0.0))).select(m + y, m)
        } }
        /// `x - trunc(x / y) * y`, C's `fmod`: zero or of the sign of `x`. By zero: NaN, of integers 0.
        fmod(x, y;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.binary(Rem, y) }
        /// `xʸ`. Of integers by repeated multiplication; a negative power of one is what truncation leaves: 1, -1 or 0.
        /// The derivative by `x` is 0 where `y` is 0, the one by `y` is 0 where `x` is 0 and `y` isn't negative.
        pow(x, y;) { types: Number, result: Same, ulp: 2.0, domain: 0.1..10.0, derivative: derived, body: x.binary(Pow, y) }
        /// `x²`; bools are converted to i64 first.
        square(x;) { types: Counted, result: Same, ulp: 0.5, domain: -100.0..100.0, derivative: derived, body: x * x }
        /// `-x`.
        neg(x;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.unary(Neg) }
        /// `|x|`; of the least integer itself. The derivative at 0 is 0.
        abs(x;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.unary(Abs) }
        /// 1, -1 or 0 as `x` is above, below or neither; so 0 of NaN, as in PyTorch. The derivative is 0.
        sign(x;) { types: All, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.gt(0.0).select(1.0, x.lt(0.0).select(-1.0, 0.0)) }
        /// `1 / x`.
        reciprocal(x;) { types: Float, result: Same, ulp: 0.5, domain: 0.01..100.0, derivative: derived, body: 1.0 / x }
        /// `√x`. The derivative at 0 is infinite.
        sqrt(x;) { types: Float, result: Same, ulp: 0.5, domain: 0.001..10000.0, derivative: derived, body: x.unary(Sqrt) }
        /// `1 / √x`.
        rsqrt(x;) { types: Float, result: Same, ulp: 1.5, domain: 0.001..10000.0, derivative: derived, body: 1.0 / x.sqrt() }
        /// `x + value · a · b`.
        addcmul(x, a, b; value) { types: Number, result: Same, ulp: 2.0, domain: 0.1..10.0, derivative: derived, body: x + value * a * b }
        /// `x + value · a / b`.
        addcdiv(x, a, b; value) { types: Float, result: Same, ulp: 2.0, domain: 0.1..10.0, derivative: derived, body: x + value * a / b }
        /// `x + weight · (y - x)`; exactly `y` at weight 1.
        lerp(x, y, weight;) { types: Float, result: Same, ulp: 4.0, domain: 0.1..10.0, derivative: derived, body: {
            weight.lt(0.5).select(x + weight * (y - x), y - (1.0 - weight) * (y - x))
        } }
        /// `√(x² + y²)`, without squares that overflow or vanish; infinite if one is, even beside NaN. The derivative at the origin is 0.
        hypot(x, y;) { types: Float, result: Same, ulp: 3.0, domain: -100.0..100.0, derivative: [g =>
            x.hypot(y).eq(0.0).select(0.0, g * (x / x.hypot(y))), x.hypot(y).eq(0.0).select(0.0, g * (y / x.hypot(y)))
        ], body: {
            let (a, b) = (x.abs(), y.abs());
            let most = a.maximum(b);
            let ratio = a.minimum(b) / most;
            let size = most.eq(0.0).select(0.0, most * (1.0 + ratio * ratio).sqrt());
            (a.eq(f64::INFINITY) | b.eq(f64::INFINITY)).select(f64::INFINITY, size)
        } }
        /// `|x|` with the sign of `y`, that of -0 too. A NaN counts as positive, whatever its bit; PyTorch looks at the bit. The derivative
        /// by `x` is 0 at 0, the one by `y` is 0.
        copysign(x, y;) { types: Float, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [g => x.eq(0.0).select(0.0, (x.lt(0.0) ^ y.signbit()).select(-g, g)), y.literal(0.0)], body: y.signbit().select(-x.abs(), x.abs()) }
        /// 0, `values` or 1 as `x` is below 0, is 0 or is above; 0 of NaN.
        heaviside(x, values;) { types: All, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.eq(0.0).select(values, x.gt(0.0).select(1.0, 0.0)) }
        /// `x · 2ʸ`.
        ldexp(x, y;) { types: Float, result: Same, ulp: 4.0, domain: -10.0..10.0, derivative: [g => g * y.exp2(), g * (x.ldexp(y) * std::f64::consts::LN_2)], body: {
            // In three steps, so that a power beyond the largest number is none in between.
            let third = (y / 3.0).round();
            let part = third.exp2();
            y.abs().gt(1000.0).select(x * y.exp2(), x * part * part * (y - 2.0 * third).exp2())
        } }
        /// `x` in radians.
        deg2rad(x;) { types: Float, result: Same, ulp: 1.5, domain: -360.0..360.0, derivative: derived, body: x * (std::f64::consts::PI / 180.0) }
        /// `x` in degrees.
        rad2deg(x;) { types: Float, result: Same, ulp: 1.5, domain: -7.0..7.0, derivative: derived, body: x * (180.0 / std::f64::consts::PI) }

        // Exponentials and logarithms

        /// `eˣ`.
        exp(x;) { types: Float, result: Same, ulp: 2.0, domain: -80.0..80.0, derivative: derived, body: x.unary(Exp) }
        /// `eˣ - 1`, exact near 0.
        expm1(x;) { types: Float, result: Same, ulp: 2.0, domain: -20.0..80.0, derivative: derived, body: x.unary(Expm1) }
        /// `ln x`.
        log(x;) { types: Float, result: Same, ulp: 2.0, domain: 0.000001..1000000.0, derivative: derived, body: x.unary(Log) }
        /// `ln(1 + x)`, exact near 0.
        log1p(x;) { types: Float, result: Same, ulp: 2.0, domain: -0.9..1000.0, derivative: derived, body: x.unary(Log1p) }
        /// `log₂ x`.
        log2(x;) { types: Float, result: Same, ulp: 2.0, domain: 0.000001..1000000.0, derivative: derived, body: x.unary(Log2) }
        /// `log₁₀ x`.
        log10(x;) { types: Float, result: Same, ulp: 2.0, domain: 0.000001..1000000.0, derivative: derived, body: x.unary(Log10) }
        /// `2ˣ`.
        exp2(x;) { types: Float, result: Same, ulp: 2.0, domain: -80.0..80.0, derivative: derived, body: x.literal(2.0).pow(x) }
        /// `ln(eˣ + eʸ)`, without powers that overflow.
        logaddexp(x, y;) { types: Float, result: Same, ulp: 4.0, domain: 1.0..10.0, derivative: [g =>
            x.eq(y).select(0.5 * g, g * (x - y).sigmoid()), x.eq(y).select(0.5 * g, g * (y - x).sigmoid())
        ], body: x.eq(y).select(x + std::f64::consts::LN_2, x.maximum(y) + (-(x - y).abs()).exp().log1p()) }
        /// `log₂(2ˣ + 2ʸ)`, without powers that overflow.
        logaddexp2(x, y;) { types: Float, result: Same, ulp: 4.0, domain: 1.0..10.0, derivative: [g =>
            x.eq(y).select(0.5 * g, g * ((x - y) * std::f64::consts::LN_2).sigmoid()),
            x.eq(y).select(0.5 * g, g * ((y - x) * std::f64::consts::LN_2).sigmoid())
        ], body: x.eq(y).select(x + 1.0, x.maximum(y) + (-(x - y).abs()).exp2().log1p() / std::f64::consts::LN_2) }
        /// `x · ln y`; 0 where `x` is 0, unless `y` is NaN. The derivative by `x` is 0 where `x` is 0 and `y` isn't above 0.
        xlogy(x, y;) { types: Float, result: Same, ulp: 4.0, domain: 1.5..10.0, derivative: [g => (g.eq(0.0) | (x.eq(0.0) & y.le(0.0))).select(0.0, g * y.log()), g * (x / y)], body: (x.eq(0.0) & !y.isnan()).select(0.0, x * y.log()) }
        /// `x · ln(1 + y)`; 0 where `x` is 0, unless `y` is NaN. The derivative by `x` is 0 where `x` is 0 and `y` isn't above -1.
        xlog1py(x, y;) { types: Float, result: Same, ulp: 4.0, domain: 0.5..10.0, derivative: [g => (g.eq(0.0) | (x.eq(0.0) & y.le(-1.0))).select(0.0, g * y.log1p()), g * (x / (1.0 + y))], body: (x.eq(0.0) & !y.isnan()).select(0.0, x * y.log1p()) }
        /// `-x · ln x`, the entropy; 0 at 0, -∞ below.
        entr(x;) { types: Float, result: Same, ulp: 4.0, domain: 1.5..10.0, derivative: [g => g * (-x.log() - 1.0)], body: x.eq(0.0).select(0.0, x.lt(0.0).select(-f64::INFINITY, -x * x.log())) }
        /// `ln(z / (1 - z))` of `z = min(max(x, eps), 1 - eps)`; of `x` itself if `eps` is negative, which is NaN outside of 0 to 1. The
        /// derivative is 0 beyond `eps`, and NaN outside of 0 to 1 without it.
        logit(x; eps) { types: Float, result: Same, ulp: 6.0, domain: 0.01..0.3, derivative: [g => eps.lt(0.0).select(
            (x.lt(0.0) | x.gt(1.0)).select(f64::NAN, g / (x * (1.0 - x))),
            (x.lt(eps) | x.gt(1.0 - eps)).select(0.0, g / (x * (1.0 - x)))
        )], body: {
            let z = eps.lt(0.0).select(x, x.lt(eps).select(eps, x.gt(1.0 - eps).select(1.0 - eps, x)));
            (z / (1.0 - z)).log()
        } }

        // Trigonometry

        /// Sine.
        sin(x;) { types: Float, result: Same, ulp: 2.0, domain: -10.0..10.0, derivative: derived, body: x.unary(Sin) }
        /// Cosine.
        cos(x;) { types: Float, result: Same, ulp: 2.0, domain: -10.0..10.0, derivative: derived, body: x.unary(Cos) }
        /// Tangent.
        tan(x;) { types: Float, result: Same, ulp: 4.0, domain: -1.5..1.5, derivative: derived, body: x.unary(Tan) }
        /// Arc sine.
        asin(x;) { types: Float, result: Same, ulp: 2.0, domain: -0.99..0.99, derivative: derived, body: x.unary(Asin) }
        /// Arc cosine.
        acos(x;) { types: Float, result: Same, ulp: 2.0, domain: -0.99..0.99, derivative: derived, body: x.unary(Acos) }
        /// Arc tangent.
        atan(x;) { types: Float, result: Same, ulp: 2.0, domain: -100.0..100.0, derivative: derived, body: x.unary(Atan) }
        /// Angle of the point (`y`, `x`): the arc tangent of `x / y` in the right quadrant. The derivative at the origin is 0.
        atan2(x, y;) { types: Float, result: Same, ulp: 2.0, domain: -100.0..100.0, derivative: derived, body: x.binary(Atan2, y) }
        /// Hyperbolic sine, exact near 0; infinite only where the result is.
        sinh(x;) { types: Float, result: Same, ulp: 6.0, domain: -88.0..88.0, derivative: [g => g * x.cosh()], body: {
            let a = x.abs();
            let e = a.expm1();
            let h = (a * 0.5).exp();
            let y = a.lt(80.0).select(0.5 * (e + e / (e + 1.0)), 0.5 * h * h);
            x.gt(0.0).select(y, x.lt(0.0).select(-y, x))
        } }
        /// Hyperbolic cosine; infinite only where the result is.
        cosh(x;) { types: Float, result: Same, ulp: 6.0, domain: -88.0..88.0, derivative: [g => g * x.sinh()], body: {
            let a = x.abs();
            let e = a.exp();
            let h = (a * 0.5).exp();
            a.lt(80.0).select(0.5 * e + 0.5 / e, 0.5 * h * h)
        } }
        /// Hyperbolic tangent.
        tanh(x;) { types: Float, result: Same, ulp: 2.0, domain: -20.0..20.0, derivative: derived, body: x.unary(Tanh) }
        /// Inverse hyperbolic sine, exact near 0.
        asinh(x;) { types: Float, result: Same, ulp: 6.0, domain: -100.0..100.0, derivative: [g => x.abs().gt(1e8).select(g / x.abs(), g / (1.0 + x * x).sqrt())], body: {
            let a = x.abs();
            let y = a.gt(1e8).select(a.log() + std::f64::consts::LN_2, (a + a * a / (1.0 + (1.0 + a * a).sqrt())).log1p());
            x.eq(0.0).select(x, x.lt(0.0).select(-y, y))
        } }
        /// Inverse hyperbolic cosine, exact near 1; NaN below 1.
        acosh(x;) { types: Float, result: Same, ulp: 6.0, domain: 1.5..100.0, derivative: [g => g / ((x - 1.0).sqrt() * (x + 1.0).sqrt())], body: {
            let t = x - 1.0;
            let y = x.gt(1e8).select(x.log() + std::f64::consts::LN_2, (t + (2.0 * t + t * t).sqrt()).log1p());
            x.lt(1.0).select(f64::NAN, y)
        } }
        /// Inverse hyperbolic tangent, exact near 0; infinite at 1 and -1, NaN beyond.
        atanh(x;) { types: Float, result: Same, ulp: 6.0, domain: -0.9..0.9, derivative: [g => g / ((1.0 - x) * (1.0 + x))], body: {
            let a = x.abs();
            let y = 0.5 * (2.0 * a / (1.0 - a)).log1p();
            x.eq(0.0).select(x, x.lt(0.0).select(-y, y))
        } }
        /// `sin(πx) / (πx)`, 1 at 0; exactly 0 at other integers. Of infinities NaN.
        sinc(x;) { types: Float, result: Same, ulp: 8.0, domain: -0.7..0.7, derivative: [g => {
            use std::f64::consts::PI;
            let a = PI * x;
            let q = a * a;
            let whole = x.round();
            let c = (PI * (0.5 - (x - whole).abs())).sin(); // the cosine, exact where it is 0
            let c = whole.fmod(2.0).eq(0.0).select(c, -c);
            // Near 0 the difference has no digits: its series.
            g * q.lt(0.0025).select(-PI / 3.0 * a * (1.0 - 0.1 * q + q * q / 280.0), (c - x.sinc()) / x)
        }], body: {
            let whole = x.round();
            let s = (std::f64::consts::PI * (x - whole)).sin();
            let s = whole.fmod(2.0).eq(0.0).select(s, -s);
            x.eq(0.0).select(1.0, s.eq(0.0).select(0.0, s / (std::f64::consts::PI * x)))
        } }

        // Error function and activations

        /// Error function: `2/√π ∫₀ˣ e^(-t²) dt`.
        erf(x;) { types: Float, result: Same, ulp: 3.0, domain: -4.0..4.0, derivative: derived, body: x.unary(Erf) }
        /// `1 - erf(x)`, exact where that is small.
        erfc(x;) { types: Float, result: Same, ulp: 4.0, domain: -4.0..5.0, derivative: derived, body: x.unary(Erfc) }
        /// The `y` with `erf(y) = x`; infinite at 1 and -1, NaN beyond. A rational approximation and two steps of Newton's.
        erfinv(x;) { types: Float, result: Same, ulp: 16.0, domain: -0.7..0.7, derivative: [g => g * (0.5 * std::f64::consts::PI.sqrt()) * (x.erfinv() * x.erfinv()).exp()], body: {
            let a = x.abs();
            let z = x * x;
            let inner = x * (((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899)
                / ((((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1.0);
            let t = (-(0.5 * (1.0 - a)).log()).sqrt();
            let outer = (((1.641345311 * t + 3.429567803) * t - 1.624906493) * t - 1.970840454)
                / ((1.637067800 * t + 3.543889200) * t + 1.0);
            let y = a.le(0.7).select(inner, x.lt(0.0).select(-outer, outer));
            let step = |y: Expr<'r>| y - (y.erf() - x) / (std::f64::consts::FRAC_2_SQRT_PI * (-(y * y)).exp());
            // Near 0 its series: there erf has no digits below the smallest numbers.
            let (c1, c2) = (std::f64::consts::PI / 12.0, 7.0 * std::f64::consts::PI.powi(2) / 480.0);
            let near = 0.5 * std::f64::consts::PI.sqrt() * x * (1.0 + z * (c1 + z * c2));
            let y = a.lt(1e-3).select(near, step(step(y)));
            a.eq(1.0).select(x * f64::INFINITY, a.gt(1.0).select(f64::NAN, y))
        } }
        /// `Φ(x)`, the distribution of the standard normal; the lower tail keeps its digits.
        ndtr(x;) { types: Float, result: Same, ulp: 32.0, domain: -4.0..5.0, derivative: derived, body: 0.5 * (-std::f64::consts::FRAC_1_SQRT_2 * x).erfc() }
        /// `1 / (1 + e⁻ˣ)`.
        sigmoid(x;) { types: Float, result: Same, ulp: 4.0, domain: -80.0..80.0, derivative: derived, body: {
            // With e⁻ˣ the derivative would be 0 · ∞ where that overflows. A select instead of |x|, whose derivative at 0
            // is 0.
            let e = x.lt(0.0).select(x, -x).exp();
            x.lt(0.0).select(e, 1.0) / (1.0 + e)
        } }
        /// `max(x, 0)`; NaN stays. The derivative at 0 is 0.
        relu(x;) { types: Number, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: x.le(0.0).select(0.0, x) }
        /// `x > 0 ? x : negative_slope · x`. The derivative at 0 is the slope.
        leaky_relu(x; negative_slope) { types: Float, result: Same, ulp: 0.5, domain: -10.0..10.0, derivative: derived, body: x.gt(0.0).select(x, x * negative_slope) }
        /// `x > 0 ? x : alpha · (eˣ - 1)`. The derivative at 0 is `alpha`.
        elu(x; alpha) { types: Float, result: Same, ulp: 3.0, domain: -10.0..10.0, derivative: derived, body: x.gt(0.0).select(x, alpha * x.expm1()) }
        /// `x · Φ(x)`, Φ the distribution of the standard normal: PyTorch's `gelu` of approximation "none". Unlike
        /// there the lower tail keeps its digits. NaN at -∞, as there.
        gelu(x;) { types: Float, result: Same, ulp: 32.0, domain: -5.0..10.0, derivative: derived, body: 0.5 * x * (-std::f64::consts::FRAC_1_SQRT_2 * x).erfc() }
        /// `x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`: PyTorch's `gelu` of approximation "tanh". Unlike there the
        /// lower tail keeps its digits.
        gelu_tanh(x;) { types: Float, result: Same, ulp: 32.0, domain: -4.0..10.0, derivative: derived, body: {
            // (1 + tanh u) / 2 is sigmoid(2u), without the cancellation. The constant is 2 √(2/π). Beyond the bounds that is 0
            // or 1, whatever u is: a square that overflows would make the derivative 0 · ∞.
            let near = x.maximum(-64.0).minimum(64.0);
            x * (1.5957691216057308 * near * (1.0 + 0.044715 * near * near)).sigmoid()
        } }
        /// `x / (1 + e⁻ˣ)`. NaN at -∞, as in PyTorch.
        silu(x;) { types: Float, result: Same, ulp: 6.0, domain: -80.0..80.0, derivative: derived, body: x * x.sigmoid() }
        /// `ln(1 + e^(beta · x)) / beta`; `x` itself where `beta · x > threshold`.
        softplus(x; beta, threshold) { types: Float, result: Same, ulp: 4.0, domain: 0.1..10.0, derivative: derived, body: {
            let z = x * beta;
            // The part that grows apart, so that no exponential overflows below a large threshold.
            let (most, rest) = (z.lt(0.0).select(0.0, z), z.lt(0.0).select(z, -z));
            z.gt(threshold).select(x, (most + rest.exp().log1p()) / beta)
        } }
        /// `x` between `min_val` and `max_val`, else the nearer; NaN stays. The derivative at a bound is 0.
        hardtanh(x; min_val, max_val) { types: Number, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: x.le(min_val).select(min_val, x.ge(max_val).select(max_val, x)) }
        /// `min(max(x + 3, 0), 6) / 6`. The derivative at -3 and 3 is 0.
        hardsigmoid(x;) { types: Float, result: Same, ulp: 2.0, domain: -2.0..10.0, derivative: derived, body: x.le(-3.0).select(0.0, x.ge(3.0).select(1.0, (x + 3.0) / 6.0)) }
        /// `x · hardsigmoid(x)`. The derivative at -3 is 0, at 3 it is 1.
        hardswish(x;) { types: Float, result: Same, ulp: 3.0, domain: -2.0..10.0, derivative: derived, body: x.le(-3.0).select(0.0, x.ge(3.0).select(x, x * (x + 3.0) / 6.0)) }
        /// `x` beyond `lambd` and `-lambd`, else 0; NaN stays.
        hardshrink(x; lambd) { types: Float, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: (x.ge(-lambd) & x.le(lambd)).select(0.0, x) }
        /// `x` nearer to 0 by `lambd`, and 0 within; NaN stays.
        softshrink(x; lambd) { types: Float, result: Same, ulp: 0.5, domain: -10.0..10.0, derivative: derived, body: x.gt(lambd).select(x - lambd, x.lt(-lambd).select(x + lambd, x * 0.0)) }
        /// `x / (1 + |x|)`. NaN at the infinities, as in PyTorch.
        softsign(x;) { types: Float, result: Same, ulp: 1.5, domain: -10.0..10.0, derivative: [g => g / (1.0 + x.abs()) / (1.0 + x.abs())], body: x / (1.0 + x.abs()) }
        /// `x - tanh x`.
        tanhshrink(x;) { types: Float, result: Same, ulp: 6.0, domain: 2.0..10.0, derivative: [g => g * (x.tanh() * x.tanh())], body: {
            // Near 0 by Lambert's continued fraction of tanh, so that nothing cancels.
            let q = x * x;
            let c = q / (3.0 + q / (5.0 + q / (7.0 + q / (9.0 + q / (11.0 + q / (13.0 + q / 15.0))))));
            q.lt(1.0).select(x * c / (1.0 + c) + 0.0, x - x.tanh())
        } }
        /// `x > threshold ? x : value`; NaN stays. The derivative at the threshold is 0.
        threshold(x; threshold, value) { types: Number, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: x.le(threshold).select(value, x) }
        /// `ln(1 / (1 + e⁻ˣ))`, without powers that overflow.
        logsigmoid(x;) { types: Float, result: Same, ulp: 4.0, domain: -80.0..80.0, derivative: [g => g * (-x).sigmoid()], body: x.lt(0.0).select(x, 0.0) - (-x.abs()).exp().log1p() }
        /// `x · tanh(ln(1 + eˣ))`. NaN at -∞, as in PyTorch.
        mish(x;) { types: Float, result: Same, ulp: 8.0, domain: -10.0..10.0, derivative: derived, body: {
            let e = x.gt(20.0).select(0.0, x).exp();
            let n = e * (e + 2.0);
            x.gt(20.0).select(x, x * (n / (n + 2.0)))
        } }
        /// `scale · elu(x)` with the constants of self-normalizing networks. The derivative at 0 is the one from below.
        selu(x;) { types: Float, result: Same, ulp: 4.0, domain: -10.0..10.0, derivative: derived, body: 1.0507009873554805 * x.gt(0.0).select(x, 1.6732632423543772 * x.expm1()) }
        /// `x > 0 ? x : alpha · (e^(x / alpha) - 1)`.
        celu(x; alpha) { types: Float, result: Same, ulp: 6.0, domain: 0.1..10.0, derivative: derived, body: x.gt(0.0).select(x, alpha * (x / alpha).expm1()) }
        /// `x > 0 ? x : weight · x`. The derivative by `x` at 0 is the weight.
        prelu(x, weight;) { types: Float, result: Same, ulp: 0.5, domain: -10.0..10.0, derivative: derived, body: x.gt(0.0).select(x, weight * x) }

        // Rounding; integers stay

        /// The largest integer not above. The derivative is 0, as of all that round.
        floor(x;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.unary(Floor) }
        /// The smallest integer not below.
        ceil(x;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.unary(Ceil) }
        /// The nearest integer, halves to the even one.
        round(x;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.unary(Round) }
        /// The integer part.
        trunc(x;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.unary(Trunc) }
        /// `x - trunc(x)`, of the sign of `x`. Of infinities NaN.
        frac(x;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x - x.trunc() }

        // Bounds

        /// The smaller; NaN if one is; -0 is below 0. At a tie each has half of the gradient, at NaN each has all of it.
        minimum(x, y;) { types: All, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.binary(Min, y) }
        /// The larger; NaN if one is; -0 is below 0. At a tie each has half of the gradient, at NaN each has all of it.
        maximum(x, y;) { types: All, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: derived, body: x.binary(Max, y) }
        /// `minimum(maximum(x, min), max)`: `max` where `min > max`, NaN if one is. Where both bounds are numbers `x` has the
        /// gradient between them, and nothing has it at a bound, outside or at NaN. Else `min` has it where `x` is below, `max`
        /// where `x` or `min` is above, `x` between them. `x` and a bound that it is equal to have half of it each; where both
        /// bounds are equal to it `x` has all of it. At NaN, which is neither below nor above anything: `x` has it unless it is
        /// below `min` or above `max`, and a bound only if it is `max` and below `min`. (All as PyTorch 2.15.)
        clamp(x, min, max;) { types: Number, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [g =>
            (x.lt(min) | x.gt(max)).select(0.0, ((x.eq(min) | x.eq(max)) & min.lt(max)).select(0.5 * g, g)),
            (x.lt(min) & in_order(min, max)).select(g, (x.eq(min) & min.lt(max)).select(0.5 * g, 0.0)),
            ((x.gt(max) & in_order(min, max)) | min.gt(max)).select(g, (x.eq(max) & min.lt(max)).select(0.5 * g, 0.0));
            numbers: (x.gt(min) & x.lt(max)).select(g, 0.0)
        ], body: x.maximum(min).minimum(max) }
        /// `maximum(x, min)`. Where `min` is a number `x` has the gradient where it is above, and nothing has it elsewhere. Else it is
        /// that of `maximum`: at a tie each has half, at NaN each has all. (As PyTorch 2.15.)
        clamp_min(x, min;) { types: All, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [g =>
            x.eq(min).select(0.5 * g, x.lt(min).select(0.0, g)),
            x.eq(min).select(0.5 * g, x.gt(min).select(0.0, g));
            numbers: x.gt(min).select(g, 0.0)
        ], body: x.maximum(min) }
        /// `minimum(x, max)`. Where `max` is a number `x` has the gradient where it is below, and nothing has it elsewhere. Else it is
        /// that of `minimum`: at a tie each has half, at NaN each has all. (As PyTorch 2.15.)
        clamp_max(x, max;) { types: All, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [g =>
            x.eq(max).select(0.5 * g, x.gt(max).select(0.0, g)),
            x.eq(max).select(0.5 * g, x.lt(max).select(0.0, g));
            numbers: x.lt(max).select(g, 0.0)
        ], body: x.minimum(max) }
        /// The larger; of NaN the other. At a tie `x` has the gradient.
        fmax(x, y;) { types: All, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [g => (x.ge(y) | y.isnan()).select(g, 0.0), (x.ge(y) | y.isnan()).select(0.0, g)], body: x.isnan().select(y, y.isnan().select(x, x.maximum(y))) }
        /// The smaller; of NaN the other. At a tie `x` has the gradient.
        fmin(x, y;) { types: All, result: Same, ulp: 0.0, domain: -100.0..100.0, derivative: [g => (x.le(y) | y.isnan()).select(g, 0.0), (x.le(y) | y.isnan()).select(0.0, g)], body: x.isnan().select(y, y.isnan().select(x, x.minimum(y))) }
        /// `nan`, `posinf` and `neginf` for what they name. There the derivative is 0.
        nan_to_num(x; nan, posinf, neginf) { types: Number, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: {
            let none = x - x; // NaN of what is no number, also in integers, of which each is one
            x.ne(x).select(nan, none.ne(none).select(x.gt(0.0).select(posinf, neginf), x))
        } }

        // Choice and copies

        /// `condition ? x : y`. Nothing of what isn't chosen gets through, no NaN either, nor in the gradient.
        where_(condition, x, y;) { types: All, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: condition.truth().select(x, y) }
        /// `condition ? value : x`.
        masked_fill(x, condition; value) { types: All, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: condition.truth().select(value, x) }
        /// `value` everywhere.
        fill(; value) { types: All, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: value }
        /// The input, in the dtype of the result: copy and cast.
        copy(x;) { types: All, result: Same, ulp: 0.0, domain: -10.0..10.0, derivative: derived, body: x }

        // Comparisons: any with NaN is false, but `ne`

        /// `x == y`.
        eq(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.compare(Eq, y) }
        /// `x != y`.
        ne(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.compare(Ne, y) }
        /// `x < y`.
        lt(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.compare(Lt, y) }
        /// `x <= y`.
        le(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.compare(Le, y) }
        /// `x > y`.
        gt(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: y.compare(Lt, x) }
        /// `x >= y`.
        ge(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: y.compare(Le, x) }
        /// Is it NaN?
        isnan(x;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.ne(x) }
        /// Is it infinite?
        isinf(x;) { types: Float, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.abs().eq(f64::INFINITY) }
        /// Is it ∞?
        isposinf(x;) { types: Float, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.eq(f64::INFINITY) }
        /// Is it -∞?
        isneginf(x;) { types: Float, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.eq(-f64::INFINITY) }
        /// Is it negative, or -0? A NaN counts as positive, whatever its bit; PyTorch looks at the bit.
        signbit(x;) { types: Float, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.lt(0.0) | (x.eq(0.0) & (1.0 / x).lt(0.0)) }
        /// Is it neither infinite nor NaN?
        isfinite(x;) { types: Float, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.abs().lt(f64::INFINITY) }

        // Logic, of any dtype: whatever isn't zero is true, NaN too

        /// Are both true?
        logical_and(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.truth() & y.truth() }
        /// Is one true?
        logical_or(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.truth() | y.truth() }
        /// Is exactly one true?
        logical_xor(x, y;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: x.truth() ^ y.truth() }
        /// Is it zero?
        logical_not(x;) { types: All, result: Bool, ulp: 0.0, domain: -10.0..10.0, derivative: none, body: !x.truth() }

        // Bits

        /// Bits that both have.
        bitwise_and(x, y;) { types: Bits, result: Same, ulp: 0.0, domain: 0.0..100.0, derivative: none, body: x.binary(BitAnd, y) }
        /// Bits that one has.
        bitwise_or(x, y;) { types: Bits, result: Same, ulp: 0.0, domain: 0.0..100.0, derivative: none, body: x.binary(BitOr, y) }
        /// Bits that exactly one has.
        bitwise_xor(x, y;) { types: Bits, result: Same, ulp: 0.0, domain: 0.0..100.0, derivative: none, body: x.binary(BitXor, y) }
        /// All bits flipped; of bools: not.
        bitwise_not(x;) { types: Bits, result: Same, ulp: 0.0, domain: 0.0..100.0, derivative: none, body: x.unary(BitNot) }
        /// `x << y`. 0 where `y` is negative or at least the width.
        bitwise_left_shift(x, y;) { types: Int, result: Same, ulp: 0.0, domain: 0.0..100.0, derivative: none, body: x.binary(Shl, y) }
        /// `x >> y`, the sign is filled in. Where `y` is negative or at least the width: 0, or -1 of a negative `x`.
        bitwise_right_shift(x, y;) { types: Int, result: Same, ulp: 0.0, domain: 0.0..100.0, derivative: none, body: x.binary(Shr, y) }
    } };
}
