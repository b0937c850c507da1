//! SGD, Adam and AdamW. A step is one launch for a group of parameters, however many there are.
//!
//! The state of a parameter (momentum, moments) is made at its first step and has the parameter's dtype *and layout*: a
//! transposed parameter has transposed moments, and all operands of the update are walked in one order. Parameters without
//! a gradient are skipped. A step isn't recorded, doesn't wait for the device, and gives the same bits whatever thread or
//! stream it runs on. The numbers of a step (rates, bias corrections) are computed on the host in `f64`.
//!
//! A step changes parameters in place, one after another: whoever trains and serves the same tensors publishes copies
//! ([`raddle_tensor::Publisher`]).
#![forbid(unsafe_code)]

mod adam;
mod error;
mod groups;
mod sgd;

pub use adam::{Adam, AdamOptions};
pub use error::{Error, Result};
pub use groups::{Group, ParameterState, State};
pub use sgd::{Sgd, SgdOptions};

/// What both optimizers offer besides their constructors.
macro_rules! optimizer {
    ($name:ident, $options:ident) => {
        impl $name {
            /// The groups; their options may be changed between steps, and are checked at the next.
            pub fn groups(&mut self) -> &mut [$crate::Group<$options>] {
                &mut self.groups
            }

            /// Drops the gradients of all parameters.
            pub fn zero_grad(&self) {
                $crate::groups::zero_grad(&self.groups);
            }

            /// Copies of what the next step depends on besides the parameters: tensors and numbers of steps.
            pub fn state(&self) -> $crate::Result<$crate::State> {
                $crate::groups::state(&self.groups)
            }

            /// Goes on from a saved state, whatever the options were then and are now. Errors, and changes nothing, if it belongs to
            /// other parameters or to another optimizer.
            pub fn load_state(&mut self, state: &$crate::State) -> $crate::Result<()> {
                $crate::groups::load_state(&mut self.groups, state)
            }
        }
    };
}
pub(crate) use optimizer;
