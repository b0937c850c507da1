//! Automatic differentiation on a tape.
//!
//! ```
//! use raddle_grad::Autograd;
//! use raddle_tensor::{Device, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = Device::open(Box::new(raddle_cpu::Cpu::new()))?;
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3], &device)?;
//! x.requires_grad_(true)?;
//! x.mul(&x)?.sum(.., false)?.backward()?;
//! assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees:
//! - **Every op.** Each recorded [`Call`](raddle_tensor::Call) has gradients, which stand beside the op
//!   ([`gradient::Op`](raddle_tensor::gradient::Op)); pointwise ops and fused closures use the programs that `raddle-op`
//!   derives, one kernel for all their inputs. At ties and singular points gradients are PyTorch's, except that an overwriting
//!   `scatter` that names an element twice gives the gradient to the value that stands, and that of a NaN
//!   `amax` and `amin` give the gradient to the NaN alone.
//! - **No stale values.** A tensor that backward needs and that was changed in place since is an error that names the op and
//!   both versions, never a wrong number.
//! - **Any thread.** Passes may run at once on several threads, over shared leaves and graphs; the only state outside of
//!   tensors is a thread's mode ([`no_grad`]). A pass doesn't wait for the device.
//! - **Same bits.** The order of additions within a pass follows from the graph alone.
//! - **Any depth.** Running and dropping a graph takes no stack.
//! - **Layout kept.** The gradient of a leaf has the leaf's strides (if it is dense).
//!
//! A pass isn't recorded: there are no gradients of gradients. A view sees what becomes of its base: when one of the two, or
//! another view, is changed in place, whatever was made before follows. Only [`Autograd::requires_grad_`] doesn't reach
//! views that were made before it. A tensor that is overwritten with constants (`fill_`, `copy_` from one that requires no
//! grad) leaves the graph: it requires no grad any more, where PyTorch goes on with gradients of 0.
#![forbid(unsafe_code)]

mod autograd;
mod clip;
mod engine;
mod error;
mod graph;
mod mode;
mod program;
mod record;
mod rule;
mod rules;

pub use autograd::{Autograd, backward, grad};
pub use clip::{clip_grad_norm_, clip_grad_value_};
pub use error::{Error, Result};
pub use mode::{ModeGuard, enable_grad, is_grad_enabled, no_grad};

/// The bounds of differentiation that can't be set.
pub const FIXED: &[raddle_hal::Fixed] = &[raddle_hal::Fixed {
    name: "closures whose derivatives a thread remembers",
    value: program::REMEMBERED_MAX,
    says: "One more, and it begins anew: they are derived again.",
}];
