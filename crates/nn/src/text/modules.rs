//! What comes after the transformer, as `modules.json` of a sentence-transformers folder lists it: pooling, linear maps,
//! normalisation.

use super::{
    Pooling, Result,
    batch::Batch,
    bert::as_multiplied,
    encoder::{join, normalise},
    folder::{Settings, Weights},
};
use crate::{Linear, Module, checkpoint::CheckpointError};
use raddle_tensor::{Activation, DType, Device, Tensor};
use std::path::Path;

/// What is done to a text's vector.
enum Step {
    /// A linear map, and a function.
    Dense(Linear, Function),
    /// To norm 1.
    Normalise,
}

/// Functions of linear maps by the last part of their names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Identity,
    Tanh,
    Relu,
    Gelu,
    Sigmoid,
}

const FUNCTIONS: [(&str, Function); 5] = [
    ("Identity", Function::Identity),
    ("Tanh", Function::Tanh),
    ("ReLU", Function::Relu),
    ("GELU", Function::Gelu),
    ("Sigmoid", Function::Sigmoid),
];

/// More texts to a vector's end than any model has; each is read.
const STEPS_MAX: usize = 16;

/// Everything after the transformer.
pub struct Modules {
    pooling: Vec<Pooling>,
    steps: Vec<Step>,
    width: usize,
}

impl Modules {
    /// Reads `modules.json` and what it names, for a transformer of this width. Without the file it is the mean of the tokens,
    /// not normalised. Linear maps compute in f32: they see one vector a text.
    pub fn load(folder: &Path, hidden: usize, device: &Device) -> Result<Modules> {
        let Some(list) = Settings::read_if_there(folder.join("modules.json"))? else {
            return Ok(Modules { pooling: vec![Pooling::Mean], steps: Vec::new(), width: hidden });
        };
        let order = "Transformer, Pooling, then any of Dense and Normalize";
        let (mut pooling, mut steps, mut width) = (Vec::new(), Vec::new(), hidden);
        for (index, module) in list.items()?.into_iter().enumerate() {
            match (module.text("type")?.rsplit('.').next(), index) {
                (Some("Transformer"), 0) => {}
                (Some("Pooling"), 1) => {
                    pooling = Pooling::read(&Settings::read(module.folder("path")?.join("config.json"))?)?;
                    width *= pooling.len();
                }
                (Some("Dense"), 2..STEPS_MAX) => {
                    let (linear, function) = dense(&module.folder("path")?, width, device)?;
                    width = linear.weight.shape()[0];
                    steps.push(Step::Dense(linear, function));
                }
                (Some("Normalize"), 2..STEPS_MAX) => steps.push(Step::Normalise),
                _ => return Err(module.wrong("type", order)),
            }
        }
        if pooling.is_empty() {
            let (file, what) = (folder.join("modules.json"), "the list of modules");
            return Err(CheckpointError::Format {
                file,
                what,
                expected: order.into(),
                found: "no Pooling".into(),
            }
            .into());
        }
        Ok(Modules { pooling, steps, width })
    }

    /// Elements of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How tokens become one vector, or several side by side.
    pub fn pooling(&self) -> &[Pooling] {
        &self.pooling
    }

    /// Are vectors normalised at last?
    pub fn is_normalized(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Normalise))
    }

    /// The vectors of a batch's texts, [texts, width] in f32, of those of their tokens; if not `to_the_end`, before they are
    /// normalised at last.
    pub fn apply(&self, batch: &Batch, hidden: &Tensor, to_the_end: bool) -> raddle_tensor::Result<Tensor> {
        let mut modes = Vec::with_capacity(self.pooling.len());
        for mode in &self.pooling {
            let pooled = batch.groups.iter().map(|group| mode.pool(group, hidden));
            modes.push(join(&pooled.collect::<raddle_tensor::Result<Vec<_>>>()?)?);
        }
        let mut vectors = match &modes[..] {
            [one] => one.clone(),
            several => Tensor::cat(several, 1)?,
        };
        let left_out = usize::from(!to_the_end && self.is_normalized());
        for step in &self.steps[..self.steps.len() - left_out] {
            vectors = match step {
                Step::Normalise => normalise(&vectors)?,
                Step::Dense(linear, function) => match function {
                    Function::Gelu => {
                        vectors.linear_with(&linear.weight, linear.bias.as_ref(), Activation::Gelu)?
                    }
                    Function::Relu => {
                        vectors.linear_with(&linear.weight, linear.bias.as_ref(), Activation::Relu)?
                    }
                    Function::Identity => linear.forward(&vectors)?,
                    Function::Tanh => linear.forward(&vectors)?.tanh()?,
                    Function::Sigmoid => linear.forward(&vectors)?.sigmoid()?,
                },
            };
        }
        Ok(vectors)
    }
}

/// A linear map of vectors of this width, from its folder.
fn dense(folder: &Path, width: usize, device: &Device) -> Result<(Linear, Function)> {
    let settings = Settings::read(folder.join("config.json"))?;
    if settings.count("in_features", 1..=usize::MAX)? != width {
        return Err(settings.wrong("in_features", format!("{width}, what comes before it")));
    }
    let outputs = settings.count("out_features", 1..=super::bert::SIZE_MAX)?;
    for key in ["module_input_name", "module_output_name"] {
        if settings.text(key).is_ok_and(|name| name != "sentence_embedding") {
            return Err(settings.wrong(key, "sentence_embedding"));
        }
    }
    if settings.flag("use_residual")? {
        return Err(settings.wrong("use_residual", "false"));
    }
    // Without a name it is PyTorch's default of this module.
    let name = settings.text("activation_function").unwrap_or("torch.nn.modules.activation.Tanh");
    let Some((_, function)) = FUNCTIONS.iter().find(|(known, _)| name.rsplit('.').next() == Some(known))
    else {
        let known = FUNCTIONS.map(|(name, _)| name).join(", ");
        return Err(settings.wrong("activation_function", format!("one of {known}")));
    };
    let mut weights = Weights::read(folder, device)?;
    let weight = weights.take_named("linear.weight".into(), &[Some(outputs), Some(width)])?;
    let bias = match settings.flag_or("bias", true)? {
        true => Some(weights.take_named("linear.bias".into(), &[Some(outputs)])?),
        false => None,
    };
    debug_assert_eq!(weight.dtype(), DType::F32);
    Ok((Linear { weight: as_multiplied(&weight)?, bias }, *function))
}
