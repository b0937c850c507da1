//! What a thread has made ready for the launch that it submits next, and the kernels that it has used last.
//!
//! `prepare` plans, compiles, loads, pins: all that may block. `submit`, under a stream's lock, finds the result here and
//! only calls the driver. If there is none of this launch (the thread-locals are gone), `submit` does it all.

use crate::{
    cache::{Held, Local},
    driver::{Function, Module},
    kernels::Key,
    matmul::{Algorithm, Shape},
    plan::Plan,
    staging::Block,
};
use raddle_hal::Launch;
use smallvec::SmallVec;
use std::{cell::RefCell, rc::Rc};

/// A kernel that the driver has loaded. Unloaded when it was evicted and nothing uses it any more.
pub struct Loaded {
    pub module: Module,
    pub function: Function,
}

/// What a step of a plan calls.
pub enum Call {
    Kernel(Rc<Held<Loaded>>),
    MatMul(Rc<Held<Algorithm>>),
    Fill,
}

/// All that a launch needs.
#[expect(clippy::large_enum_variant, reason = "a box would cost each launch an allocation")]
pub enum Prepared {
    Kernel {
        plan: Plan,
        calls: SmallVec<[Call; 2]>,
    },
    /// The block that the bytes go through; a copy without one isn't pinned. Of a graph: for what its nodes tell.
    Copy(Option<Block>),
}

impl Prepared {
    /// Is it of such a launch? The contract says that it is of this one, if it is of any.
    fn fits(&self, launch: &Launch<'_>) -> bool {
        match self {
            Prepared::Kernel { .. } => matches!(launch, Launch::Kernel { .. }),
            Prepared::Copy(_) => {
                matches!(launch, Launch::Upload { .. } | Launch::Download { .. } | Launch::Graph { .. })
            }
        }
    }
}

/// The things of one thread.
pub struct Here {
    /// For which device, and what.
    prepared: Option<(u64, Prepared)>,
    pub kernels: Local<Key, Loaded>,
    pub algorithms: Local<Shape, Algorithm>,
}

thread_local! {
    static HERE: RefCell<Here> =
        RefCell::new(Here { prepared: None, kernels: Local::new(), algorithms: Local::new() });
}

/// The things of this thread; none while its thread-locals are being destroyed. Nothing in their destructors calls the
/// driver: blocks go back to their cache, and kernels are held by others, too.
pub fn with<R>(body: impl FnOnce(Option<&mut Here>) -> R) -> R {
    match HERE.try_with(|_| ()) {
        Ok(()) => HERE.with_borrow_mut(|here| body(Some(here))),
        Err(_) => body(None),
    }
}

impl Here {
    pub fn put(&mut self, device: u64, prepared: Prepared) {
        self.prepared = Some((device, prepared));
    }

    /// What was prepared for this launch of this device.
    pub fn take(&mut self, device: u64, launch: &Launch<'_>) -> Option<Prepared> {
        // Between preparing and submitting there may be launches that need no preparation: those leave it.
        let is_its = |(other, prepared): &mut (u64, Prepared)| *other == device && prepared.fits(launch);
        self.prepared.take_if(is_its).map(|(_, prepared)| prepared)
    }
}
