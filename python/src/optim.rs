//! Optimizers. Unlike tensors one is of one thread at a time: what uses it while another thread does is an error, not a wait.

use crate::{arg::tensors, error::Result};
use pyo3::prelude::*;
use raddle::optim::{Adam, AdamOptions, Sgd, SgdOptions};

/// An optimizer's class: its name, what it is in Rust, its options with their defaults, and how they are made.
macro_rules! optimizers {
    ($($class:ident $name:literal $inner:ident ($($option:ident: $type:ty = $default:tt),*) $options:expr, $doc:literal;)*) => { $(
        #[doc = $doc]
        #[pyclass(name = $name, module = "raddle.optim")]
        pub struct $class($inner);

        #[pymethods]
        impl $class {
            #[new]
            #[pyo3(signature = (params, $($option=$default),*))]
            #[allow(clippy::too_many_arguments, reason = "PyTorch's signature")]
            fn new(params: &Bound<'_, PyAny>, $($option: $type),*) -> Result<$class> {
                Ok($class($inner::new(tensors($name, params)?, $options)?))
            }

            /// Changes each parameter that has a gradient, all of them in one launch.
            fn step(&mut self, py: Python<'_>) -> Result<()> {
                let inner = &mut self.0;
                Ok(py.detach(|| inner.step())?)
            }

            /// Drops the gradients.
            #[pyo3(signature = (set_to_none=true))]
            fn zero_grad(&self, set_to_none: bool) {
                let _ = set_to_none;
                self.0.zero_grad();
            }

            /// The learning rate.
            #[getter]
            fn lr(&mut self) -> Option<f64> {
                self.0.groups().first().map(|group| group.options.lr)
            }

            #[setter]
            fn set_lr(&mut self, lr: f64) {
                self.0.groups().iter_mut().for_each(|group| group.options.lr = lr);
            }
        }
    )* };
}
optimizers! {
    PyAdam "Adam" Adam (lr: f64 = 1e-3, betas: (f64, f64) = (0.9, 0.999), eps: f64 = 1e-8, weight_decay: f64 = 0.0)
        AdamOptions { lr, beta1: betas.0, beta2: betas.1, eps, weight_decay, ..AdamOptions::default() },
        "Adam; the decay of weights is part of the gradient.";
    PyAdamW "AdamW" Adam (lr: f64 = 1e-3, betas: (f64, f64) = (0.9, 0.999), eps: f64 = 1e-8, weight_decay: f64 = 0.01)
        AdamOptions { lr, beta1: betas.0, beta2: betas.1, eps, weight_decay, ..AdamOptions::adamw() },
        "Adam; weights decay by themselves.";
    PySgd "SGD" Sgd (lr: f64 = 1e-3, momentum: f64 = 0.0, dampening: f64 = 0.0, weight_decay: f64 = 0.0, nesterov: bool = false)
        SgdOptions { lr, momentum, dampening, weight_decay, nesterov },
        "Gradient descent, with momentum.";
}
