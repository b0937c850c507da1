//! The TopK sparse autoencoder.
//!
//! `codes = TopK(x encoderᵀ + bias)`, `y = codes decoderᵀ + bias`: of the h codes of a row the k largest stay, the others are
//! 0. After Gao et al., "Scaling and evaluating sparse autoencoders" (2024): the loss is the mean squared error, plus 1/32 of
//! the squared error with which *dead* features, those that were not among any row's largest for a while, rebuild what is
//! missing; the decoder's columns have norm 1, and of their gradient the part along them is removed.
//!
//! A training step decodes and differentiates the k active features only. Everything that it does is deterministic to the
//! last bit, and it waits for the device once in [`AutoencoderOptions::dead_after`] steps, to see whether a feature is dead.
//! A step that is captured doesn't: whoever replays it calls [`TopKAutoencoder::look_for_dead`] now and then, and captures
//! anew if the answer changes.

use crate::{
    init,
    layers::{Module, fresh, parameter},
    losses::{LossReduction, mse_loss},
};
use raddle_grad::{Autograd, clip_grad_norm_, no_grad};
use raddle_sync::RaceOnce;
use raddle_tensor::{
    DType, Device, Error, Fused, Generator, Program, ProgramRef, Result, Scalar, Tensor, pointwise_groups,
};
use std::sync::Arc;

/// The sizes and options of a [`TopKAutoencoder`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AutoencoderOptions {
    /// Width of the data.
    pub inputs: usize,
    /// Number of features.
    pub features: usize,
    /// How many of them a row keeps.
    pub k: usize,
    /// After how many steps without being kept a feature is dead. 256 is a guess: the paper counts ten million tokens.
    pub dead_after: u64,
    /// Factor of the auxiliary loss; the paper's 1/32.
    pub auxiliary: f64,
    /// Largest norm of all gradients together.
    pub max_norm: f64,
}

impl AutoencoderOptions {
    /// The paper's values for these sizes; gradients are clipped to norm 1, as its code does.
    pub fn new(inputs: usize, features: usize, k: usize) -> AutoencoderOptions {
        AutoencoderOptions { inputs, features, k, dead_after: 256, auxiliary: 1.0 / 32.0, max_norm: 1.0 }
    }
}

/// The weights. Its `forward` reconstructs.
#[derive(Clone, Debug)]
pub struct TopKAutoencoder {
    /// [features, inputs], with strides [1, features]: made as the transposed copy of the decoder's.
    pub encoder_weight: Tensor,
    /// `[features]`.
    pub encoder_bias: Tensor,
    /// [inputs, features], columns of norm 1.
    pub decoder_weight: Tensor,
    /// `[inputs]`.
    pub decoder_bias: Tensor,
    options: AutoencoderOptions,
    /// For each feature how many steps ago it was kept.
    idle: Tensor,
    step: u64,
    any_dead: bool,
}

/// Rows of few codes: values and the features that they belong to, both [rows, k], largest first.
pub type Codes = (Tensor, Tensor);

macro_rules! once {
    ($body:expr) => {{
        static FUSED: RaceOnce<Fused> = RaceOnce::new();
        FUSED.get_or_init(|| Fused::new(Program::record($body)))
    }};
}

impl TopKAutoencoder {
    /// The decoder's columns are random directions, the encoder is its transposed copy, biases are 0.
    ///
    /// Errors: `k` is 0 or more than the features; a dtype that isn't a float.
    pub fn new<'g>(
        options: AutoencoderOptions,
        dtype: DType,
        device: &Device,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<TopKAutoencoder> {
        let op = "topk_autoencoder";
        let AutoencoderOptions { inputs, features, k, .. } = options;
        if k == 0 || k > features {
            let found = Scalar::Int(i64::try_from(k).unwrap_or(i64::MAX));
            return Err(Error::Argument { op, what: "k", expected: "1 to the number of features", found });
        }
        let decoder = fresh(op, &[inputs, features], dtype, device)?;
        init::normal_(&decoder, 0.0, 1.0, generator)?;
        let encoder_bias = fresh(op, &[features], dtype, device)?;
        let decoder_bias = fresh(op, &[inputs], dtype, device)?;
        encoder_bias.zero_()?;
        decoder_bias.zero_()?;
        normalize_columns(&decoder)?;
        Ok(TopKAutoencoder {
            encoder_weight: parameter(decoder.t()?.copy()?),
            encoder_bias: parameter(encoder_bias),
            decoder_weight: parameter(decoder),
            decoder_bias: parameter(decoder_bias),
            options,
            idle: Tensor::zeros([features], DType::I64, device)?,
            step: 0,
            any_dead: false,
        })
    }

    /// The options.
    pub fn options(&self) -> &AutoencoderOptions {
        &self.options
    }

    /// The codes of rows [rows, inputs].
    pub fn encode(&self, x: &Tensor) -> Result<Codes> {
        x.linear(&self.encoder_weight, Some(&self.encoder_bias))?.topk(self.options.k, 1, true)
    }

    /// Rows from their codes.
    pub fn decode(&self, (values, index): (&Tensor, &Tensor)) -> Result<Tensor> {
        values.sparse_linear(index, &self.decoder_weight, Some(&self.decoder_bias))
    }

    /// The codes as a matrix [rows, features] that is mostly 0.
    pub fn encode_dense(&self, x: &Tensor) -> Result<Tensor> {
        let (values, index) = self.encode(x)?;
        let rows = Tensor::zeros([x.size(0)?, self.options.features], x.dtype(), &x.device())?;
        rows.scatter(1, &index, &values)
    }

    /// The mean squared error over rows [rows, inputs], recorded, without the auxiliary part.
    pub fn loss(&self, x: &Tensor) -> Result<Tensor> {
        mse_loss(&self.forward(x)?, x, LossReduction::Mean)
    }

    /// One step of training on rows [rows, inputs]: gradients, the decoder's adjusted and all clipped, `update` (an
    /// optimizer's step), columns back to norm 1. The loss of these rows before the step, without the auxiliary part.
    pub fn train_step<E: From<raddle_grad::Error>>(
        &mut self,
        x: &Tensor,
        update: impl FnOnce() -> Result<(), E>,
    ) -> Result<Tensor, E> {
        let loss = self.compute_gradients(x).map_err(raddle_grad::Error::from)?;
        self.adjust_decoder_gradient().map_err(raddle_grad::Error::from)?;
        let parameters = [&self.encoder_weight, &self.encoder_bias, &self.decoder_weight, &self.decoder_bias];
        clip_grad_norm_(&parameters, self.options.max_norm)?;
        update()?;
        normalize_columns(&self.decoder_weight).map_err(raddle_grad::Error::from)?;
        Ok(loss)
    }

    /// Sets the gradients of the loss and of its auxiliary part for these rows; the loss, without that part.
    ///
    /// What the tape would compute, but for the encoder's weight: its gradient is a sum over active features only.
    pub fn compute_gradients(&mut self, x: &Tensor) -> Result<Tensor> {
        no_grad(|| {
            let x = x.detach();
            let codes = x.linear(&self.encoder_weight, Some(&self.encoder_bias))?;
            let (values, index) = codes.topk(self.options.k, 1, true)?;
            // What reads columns wants them without holes, and else moves them there at each call. One transposing copy serves all.
            // (What writes gradients writes them as the parameters lie.)
            let columns = self.decoder_weight.t()?.contiguous()?.t()?;
            let error = values.sparse_linear(&index, &columns, Some(&self.decoder_bias))?;
            // In one pass the error, its square, and d mean(e²) / de.
            let scale = 2.0 / error.element_count().max(1) as f64;
            let (square, dy) = (error.empty_like()?, error.empty_like()?);
            static ERROR: RaceOnce<Arc<Program>> = RaceOnce::new();
            let program = ERROR.get_or_init(|| {
                Arc::new(Program::record_many(|[y, x], [scale]| [y - x, (y - x).square(), (y - x) * scale]))
            });
            let (program, params) = (ProgramRef::Shared(program.clone()), [Scalar::Float(scale)]);
            let group: (&[&Tensor], &[&Tensor]) = (&[&error, &square, &dy], &[&error, &x]);
            pointwise_groups("autoencoder", program, error.dtype().compute(), &params, &[group])?;
            let loss = square.mean(.., false)?;
            let dvalues = dy.sparse_linear_by_values(&index, &columns)?;
            let ddecoder = dy.sparse_linear_by_weight(&values, &index, &self.decoder_weight.detach())?;
            let encoder = self.encoder_gradients(&x, &dvalues, &index)?;
            self.note_active(&index)?;
            if self.any_dead {
                self.add_auxiliary(&x, &codes, &error, scale, &columns, (&encoder, &ddecoder))?;
            }
            for (parameter, gradient) in [
                (&self.encoder_weight, encoder.0),
                (&self.encoder_bias, encoder.1),
                (&self.decoder_weight, ddecoder),
                (&self.decoder_bias, dy.sum(0, false)?),
            ] {
                if parameter.requires_grad() {
                    parameter.set_grad(Some(gradient)).expect("it was computed from the parameter");
                }
            }
            Ok(loss)
        })
    }

    /// The gradients of weight and bias of the encoder, given those of few codes.
    fn encoder_gradients(&self, x: &Tensor, dvalues: &Tensor, index: &Tensor) -> Result<(Tensor, Tensor)> {
        // x in the place of the gradient of a product with a matrix [inputs, features]: each active feature gets its row.
        let dweight = x.sparse_linear_by_weight(dvalues, index, &self.encoder_weight.detach().t()?)?;
        let dbias = self.encoder_bias.zeros_like()?;
        dbias.scatter_add_(0, &index.ravel()?, &dvalues.ravel()?)?;
        Ok((dweight.t()?.detach(), dbias))
    }

    /// Counts the steps since each feature was kept.
    fn note_active(&mut self, index: &Tensor) -> Result<()> {
        self.idle.add_(1)?;
        let now = Tensor::zeros([0usize; 0], DType::I64, &index.device())?.expand([index.element_count()])?;
        self.idle.scatter_(0, &index.ravel()?, &now)?;
        if self.idle.device().is_capturing() {
            return Ok(());
        }
        self.step += 1;
        if self.step.is_multiple_of(self.options.dead_after.max(1)) {
            self.look_for_dead()?;
        }
        Ok(())
    }

    /// Is a feature dead? From now on steps have an auxiliary part if so. Waits for the device.
    pub fn look_for_dead(&mut self) -> Result<bool> {
        let dead = self.idle.ge(self.dead_after())?.any(.., false)?;
        self.any_dead = dead.item::<bool>()?;
        Ok(self.any_dead)
    }

    fn dead_after(&self) -> i64 {
        i64::try_from(self.options.dead_after).unwrap_or(i64::MAX)
    }

    /// Adds the gradients of the auxiliary loss: the largest codes of dead features, decoded, against the error.
    fn add_auxiliary(
        &self,
        x: &Tensor,
        codes: &Tensor,
        error: &Tensor,
        scale: f64,
        columns: &Tensor,
        (encoder, ddecoder): (&(Tensor, Tensor), &Tensor),
    ) -> Result<()> {
        let dead = self.idle.ge(self.dead_after())?;
        let of_dead = dead.where_(codes, f64::NEG_INFINITY)?;
        let (values, index) = of_dead.topk(self.options.k, 1, true)?;
        // If fewer are dead the rest doesn't count.
        let counts = values.gt(f64::NEG_INFINITY)?;
        let values = counts.where_(&values, 0.0)?;
        // The dead are to make up for x − y, which is −error.
        let missed = values.sparse_linear(&index, columns, None)?;
        missed.add_(error)?.mul_(scale * self.options.auxiliary)?;
        let dvalues = missed.sparse_linear_by_values(&index, columns)?;
        ddecoder.add_(&missed.sparse_linear_by_weight(&values, &index, ddecoder)?)?;
        let dvalues = counts.where_(&dvalues, 0.0)?;
        let (dweight, dbias) = self.encoder_gradients(x, &dvalues, &index)?;
        encoder.0.add_(&dweight)?;
        encoder.1.add_(&dbias)?;
        Ok(())
    }

    /// Removes from the gradient of the decoder's weight what lies along its columns, which have norm 1: it would only
    /// change their norm, and that is set back.
    pub fn adjust_decoder_gradient(&self) -> Result<()> {
        no_grad(|| {
            let Some(grad) = self.decoder_weight.grad() else { return Ok(()) };
            let weight = self.decoder_weight.detach();
            let along = weight.mul(&grad)?.sum(0, true)?;
            once!(|[g, w, along]| g - along * w).call_out(&[&grad, &weight, &along], &grad)
        })
    }
}

/// Scales the columns of a matrix to norm 1; those of 0 stay.
fn normalize_columns(weight: &Tensor) -> Result<()> {
    no_grad(|| {
        let weight = weight.detach();
        let norm = weight.norm(0, true)?;
        once!(|[w, norm]| w / norm.eq(0.0).select(1.0, norm)).call_out(&[&weight, &norm], &weight)
    })
}

impl Module for TopKAutoencoder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (values, index) = self.encode(x)?;
        self.decode((&values, &index))
    }

    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let named = |name: &str, tensor: &Tensor| (name.to_string(), tensor.clone());
        vec![
            named("encoder.weight", &self.encoder_weight),
            named("encoder.bias", &self.encoder_bias),
            named("decoder.weight", &self.decoder_weight),
            named("decoder.bias", &self.decoder_bias),
        ]
    }
}
