//! Layers.

use crate::init;
use raddle_grad::Autograd;
use raddle_tensor::{DType, Device, Generator, Result, Tensor};

/// Something with parameters that maps a tensor to another.
pub trait Module: Send + Sync {
    /// Applies it. Any number of threads may do so at once.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// Its parameters with their names, in a fixed order. The tensors are handles: what is written to them, the module sees.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }

    /// The same without names, as optimizers take them.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// Turns behaviour that differs in training ([`Dropout`]) on or off. A fresh module is in training.
    fn set_training(&mut self, _training: bool) {}
}

/// A tensor as a parameter: a leaf that requires grad.
pub(crate) fn parameter(tensor: Tensor) -> Tensor {
    tensor.requires_grad_(true).expect("a fresh tensor of floats is a leaf");
    tensor
}

/// A fresh tensor of floats.
pub(crate) fn fresh(op: &'static str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    if !dtype.is_float() {
        return Err(raddle_tensor::Error::DType {
            op,
            what: "the parameters",
            expected: "a float",
            found: dtype,
        });
    }
    Tensor::empty(shape, dtype, device)
}

/// `x weightᵀ + bias`: [.., in] → [.., out].
#[derive(Clone, Debug)]
pub struct Linear {
    /// [out, in].
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// Weight and bias even in ±1 / √in, as PyTorch's.
    pub fn new<'g>(
        inputs: usize,
        outputs: usize,
        bias: bool,
        dtype: DType,
        device: &Device,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<Linear> {
        let generator = generator.into();
        let weight = fresh("linear", &[outputs, inputs], dtype, device)?;
        init::kaiming_uniform_(&weight, 5f64.sqrt(), generator)?;
        let bias = if bias {
            let bound = 1.0 / (inputs.max(1) as f64).sqrt();
            let bias = fresh("linear", &[outputs], dtype, device)?;
            init::uniform_(&bias, -bound, bound, generator)?;
            Some(parameter(bias))
        } else {
            None
        };
        Ok(Linear { weight: parameter(weight), bias })
    }
}

fn named(weight: Option<&Tensor>, bias: Option<&Tensor>) -> Vec<(String, Tensor)> {
    let name = |name: &str, tensor: Option<&Tensor>| tensor.map(|tensor| (name.to_string(), tensor.clone()));
    [name("weight", weight), name("bias", bias)].into_iter().flatten().collect()
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_ref())
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named(Some(&self.weight), self.bias.as_ref())
    }
}

/// Normalization over the last axes, with a weight and a bias for each element of them.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// Of the shape of the normalized axes.
    pub weight: Tensor,
    /// The same.
    pub bias: Tensor,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// Weight 1, bias 0, eps 1e-5.
    pub fn new(shape: &[usize], dtype: DType, device: &Device) -> Result<LayerNorm> {
        let (weight, bias) =
            (fresh("layer_norm", shape, dtype, device)?, fresh("layer_norm", shape, dtype, device)?);
        weight.fill_(1.0)?;
        bias.fill_(0.0)?;
        Ok(LayerNorm { weight: parameter(weight), bias: parameter(bias), eps: 1e-5 })
    }
}

impl LayerNorm {
    /// The normalization of `x + residual`, in one launch.
    pub fn forward_with_residual(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        x.layer_norm_add(residual, self.weight.rank(), Some(&self.weight), Some(&self.bias), self.eps)
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(self.weight.rank(), Some(&self.weight), Some(&self.bias), self.eps)
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named(Some(&self.weight), Some(&self.bias))
    }
}

/// Rows of a table: integers of any shape → that shape and the width.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// [rows, width].
    pub weight: Tensor,
}

impl Embedding {
    /// Normal with mean 0 and standard deviation 1, as PyTorch's.
    pub fn new<'g>(
        rows: usize,
        width: usize,
        dtype: DType,
        device: &Device,
        generator: impl Into<Option<&'g Generator>>,
    ) -> Result<Embedding> {
        let weight = fresh("embedding", &[rows, width], dtype, device)?;
        init::normal_(&weight, 0.0, 1.0, generator)?;
        Ok(Embedding { weight: parameter(weight) })
    }
}

impl Module for Embedding {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.weight.embedding(x)
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named(Some(&self.weight), None)
    }
}

/// In training sets elements to 0 with probability `p` and scales the others by `1 / (1 − p)`; else does nothing.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// The probability.
    pub p: f64,
    training: bool,
    generator: Option<std::sync::Arc<Generator>>,
}

impl Dropout {
    /// Draws from the generator of the thread that runs it, or from a given one (in the order of the calls).
    pub fn new(p: f64, generator: Option<std::sync::Arc<Generator>>) -> Dropout {
        Dropout { p, training: true, generator }
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.training { x.dropout(self.p, self.generator.as_deref()) } else { Ok(x.clone()) }
    }
    fn set_training(&mut self, training: bool) {
        self.training = training;
    }
}

/// A function without parameters as a module: `Function(Tensor::relu)`.
#[derive(Clone, Copy)]
pub struct Function(
    /// What it computes.
    pub fn(&Tensor) -> Result<Tensor>,
);

impl Module for Function {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0(x)
    }
}

/// Modules one after the other. Parameters are named by position: `0.weight`.
#[derive(Default)]
pub struct Sequential(
    /// The modules.
    pub Vec<Box<dyn Module>>,
);

impl Sequential {
    /// No modules yet.
    pub fn new() -> Sequential {
        Sequential::default()
    }
    /// Appends one.
    pub fn then(mut self, module: impl Module + 'static) -> Sequential {
        self.0.push(Box::new(module));
        self
    }
}

impl Module for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, module| module.forward(&x))
    }
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let mut named = Vec::new();
        for (index, module) in self.0.iter().enumerate() {
            let parameters = module.named_parameters().into_iter();
            named.extend(parameters.map(|(name, tensor)| (format!("{index}.{name}"), tensor)));
        }
        named
    }
    fn set_training(&mut self, training: bool) {
        self.0.iter_mut().for_each(|module| module.set_training(training));
    }
}
