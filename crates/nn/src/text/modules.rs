//! What comes after the transformer, as `modules.json` of a sentence-transformers folder lists it: pooling, linear maps,
//! normalizations.

use super::{
    ActivationKind, Pooling, Result,
    batch::Batch,
    bert::{SIZE_MAX, as_multiplied},
    rows::{join, normalize},
    settings::Settings,
    weights::Weights,
};
use crate::{LayerNorm, Linear, Module, checkpoint::CheckpointError};
use raddle_tensor::{DType, Device, Tensor};
use std::path::{Path, PathBuf};

/// What is done to a text's vector.
enum Step {
    /// A linear map, a function, and what is added then.
    Dense(Linear, ActivationKind, Residual),
    /// To mean 0 and variance 1, with weights and a bias of its own.
    LayerNorm(LayerNorm),
    /// To norm 1.
    Normalize,
}

/// What is added behind a linear map.
enum Residual {
    None,
    /// What went in.
    Input,
    /// A linear map of it.
    Linear(Linear),
}

/// More texts to a vector's end than any model has; each is read.
const STEPS_MAX: usize = 16;

const LIST: &str = "modules.json";
const ORDER: &str = "Transformer, Pooling, then any of Dense, LayerNorm, Dropout and Normalize";

/// The folder of the transformer: the model's, or the one inside of it that `modules.json` names.
pub fn transformer(folder: &Path) -> Result<PathBuf> {
    let Some(list) = Settings::read_if_there(folder.join(LIST))? else { return Ok(folder.into()) };
    match list.items()?.first() {
        Some(first) if kind(first)? == "Transformer" && !first.get("path").is_null() => first.folder("path"),
        _ => Ok(folder.into()),
    }
}

/// Of a module: the last part of the name of its class.
fn kind<'a>(module: &'a Settings) -> Result<&'a str> {
    Ok(module.text("type")?.rsplit('.').next().unwrap_or_default())
}

/// Everything after the transformer.
pub struct Modules {
    pooling: Vec<Pooling>,
    /// Are the tokens of a prompt pooled as well?
    includes_prompt: bool,
    steps: Vec<Step>,
    width: usize,
}

impl Modules {
    /// Reads `modules.json` and what it names, for a transformer of this width. Without the file it is the mean of the tokens,
    /// not normalized. Linear maps compute in f32: they see one vector a text.
    pub fn load(folder: &Path, hidden: usize, device: &Device) -> Result<Modules> {
        let Some(list) = Settings::read_if_there(folder.join(LIST))? else {
            let pooling = vec![Pooling::Mean];
            return Ok(Modules { pooling, includes_prompt: true, steps: Vec::new(), width: hidden });
        };
        let (mut pooling, mut includes_prompt) = (Vec::new(), true);
        let (mut steps, mut width) = (Vec::new(), hidden);
        for (index, module) in list.items()?.into_iter().enumerate() {
            match (kind(&module)?, index) {
                ("Transformer", 0) => {}
                ("Pooling", 1) => {
                    let settings = Settings::read(module.folder("path")?.join(CONFIG))?;
                    pooling = Pooling::read(&settings)?;
                    includes_prompt = settings.flag_or("include_prompt", true)?;
                    width *= pooling.len();
                }
                ("Dense", 2..STEPS_MAX) => {
                    let step = dense(&module.folder("path")?, width, device)?;
                    if let Step::Dense(linear, ..) = &step {
                        width = linear.weight.shape()[0];
                    }
                    steps.push(step);
                }
                ("LayerNorm", 2..STEPS_MAX) => {
                    steps.push(layer_norm(&module.folder("path")?, width, device)?)
                }
                // Only where it is trained.
                ("Dropout", 2..STEPS_MAX) => {}
                ("Normalize", 2..STEPS_MAX) => {
                    if !module.get("path").is_null()
                        && let Some(settings) = Settings::read_if_there(module.folder("path")?.join(CONFIG))?
                    {
                        of_sentences(&settings)?;
                    }
                    steps.push(Step::Normalize);
                }
                _ => return Err(module.wrong("type", ORDER)),
            }
        }
        if pooling.is_empty() {
            let (file, what) = (folder.join(LIST), "the list of modules");
            let (expected, found) = (ORDER.into(), "no Pooling".into());
            return Err(CheckpointError::Format { file, what, expected, found }.into());
        }
        Ok(Modules { pooling, includes_prompt, steps, width })
    }

    /// Elements of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How tokens become one vector, or several side by side.
    pub fn pooling(&self) -> &[Pooling] {
        &self.pooling
    }

    /// Are the tokens of a prompt pooled as well?
    pub fn includes_prompt(&self) -> bool {
        self.includes_prompt
    }

    /// Are vectors normalized at last?
    pub fn is_normalized(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Normalize))
    }

    /// The vectors of a batch's texts, [texts, width] in f32, of those of their tokens; if not `to_the_end`, before they are
    /// normalized at last.
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
                Step::Normalize => normalize(&vectors)?,
                Step::LayerNorm(norm) => norm.forward(&vectors)?,
                Step::Dense(linear, activation, residual) => {
                    let output = activation.behind(linear, &vectors)?;
                    match residual {
                        Residual::None => output,
                        Residual::Input => output.add(&vectors)?,
                        Residual::Linear(residual) => output.add(&residual.forward(&vectors)?)?,
                    }
                }
            };
        }
        Ok(vectors)
    }
}

const CONFIG: &str = "config.json";

/// Errors: a module that isn't of the vectors of texts.
fn of_sentences(settings: &Settings) -> Result<()> {
    for key in ["module_input_name", "module_output_name"] {
        if settings.text_if_there(key)?.is_some_and(|name| name != "sentence_embedding") {
            return Err(settings.wrong(key, "sentence_embedding"));
        }
    }
    Ok(())
}

/// A linear map of vectors of this width, from its folder.
fn dense(folder: &Path, width: usize, device: &Device) -> Result<Step> {
    let settings = Settings::read(folder.join(CONFIG))?;
    if settings.count("in_features", 1..=usize::MAX)? != width {
        return Err(settings.wrong("in_features", format!("{width}, what comes before it")));
    }
    let outputs = settings.count("out_features", 1..=SIZE_MAX)?;
    of_sentences(&settings)?;
    let activation = ActivationKind::read_module(&settings)?;
    let weights = Weights::open(folder, device)?;
    let linear = |name: &str, has_bias: bool| -> Result<Linear> {
        let weight = weights.take_named(format!("{name}.weight"), &[Some(outputs), Some(width)])?;
        debug_assert_eq!(weight.dtype(), DType::F32);
        let bias = has_bias.then(|| weights.take_named(format!("{name}.bias"), &[Some(outputs)]));
        Ok(Linear { weight: as_multiplied(&weight)?, bias: bias.transpose()? })
    };
    let residual = match settings.flag("use_residual")? {
        false => Residual::None,
        true if outputs == width => Residual::Input,
        true => Residual::Linear(linear("residual", false)?),
    };
    Ok(Step::Dense(linear("linear", settings.flag_or("bias", true)?)?, activation, residual))
}

/// A normalization of vectors of this width, from its folder.
fn layer_norm(folder: &Path, width: usize, device: &Device) -> Result<Step> {
    let settings = Settings::read(folder.join(CONFIG))?;
    if settings.count("dimension", 1..=usize::MAX)? != width {
        return Err(settings.wrong("dimension", format!("{width}, what comes before it")));
    }
    let weights = Weights::open(folder, device)?;
    let part = |part: &str| weights.take_named(format!("norm.{part}"), &[Some(width)]);
    // PyTorch's, which no file of it changes.
    Ok(Step::LayerNorm(LayerNorm { weight: part("weight")?, bias: part("bias")?, eps: 1e-5 }))
}
