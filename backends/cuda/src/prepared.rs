//! What a thread has made ready for the launch that it submits next, and the kernels that it has used last.
//!
//! `prepare` plans, compiles, loads, pins: all that may block. `submit`, under a stream's lock, finds the result here and
//! only calls the driver. If there is none of this launch (the thread-locals are gone), `submit` does it all.
//!
//! A kernel's steps are made and launched where they lie: a thread keeps their memory, and only what they call is let go.

use crate::{
    driver::{Function, Module},
    kernels::{Key, steps::Plan},
    local::{Held, Local},
    matmul::{Algorithm, Shape},
    process,
    staging::Block,
};
use raddle_sync::fault;
use smallvec::SmallVec;
use std::{cell::RefCell, mem, rc::Rc};

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

/// What a kernel is launched by.
#[derive(Default)]
pub struct Steps {
    pub plan: Plan,
    /// Of each step.
    pub calls: SmallVec<[Call; 2]>,
}

/// What is ready, for which device.
enum Prepared {
    Nothing,
    /// The steps.
    Kernel(u64),
    /// The block that the bytes go through; a copy without one isn't pinned. Of a graph: for what its nodes tell.
    Copy(u64, Option<Block>),
}

/// What a thread has used last.
pub struct Used {
    pub kernels: Local<Key, Loaded>,
    pub algorithms: Local<Shape, Algorithm>,
}

/// The things of one thread.
pub struct Here {
    prepared: Prepared,
    pub steps: Steps,
    pub used: Used,
}

thread_local! {
    static HERE: RefCell<Here> = RefCell::new(Here::new());
}

/// The things of this thread; none while its thread-locals are being destroyed. Nothing in their destructors calls the
/// driver: blocks go back to their cache, and kernels are held by others, too.
#[inline]
pub fn with<R>(body: impl FnOnce(Option<&mut Here>) -> R) -> R {
    let mut body = Some(body);
    let mut run = |here: Option<&mut Here>| body.take().map(|body| body(here));
    match HERE.try_with(|here| run(Some(&mut here.borrow_mut()))) {
        Ok(result) => result,
        Err(_) => run(None),
    }
    .expect("it runs once")
}

impl Drop for Here {
    /// In a forked child the block stays where it is: its home may have been locked by a thread that there isn't.
    fn drop(&mut self) {
        if let Prepared::Copy(_, block @ Some(_)) = &mut self.prepared
            && process::check().is_err()
        {
            fault!(child_gives_blocks_back => return);
            mem::forget(block.take());
        }
    }
}

impl Here {
    fn new() -> Here {
        Here {
            prepared: Prepared::Nothing,
            steps: Steps::default(),
            used: Used { kernels: Local::new(), algorithms: Local::new() },
        }
    }

    /// The steps are those of the next launch.
    pub fn put_steps(&mut self, device: u64) {
        self.prepared = Prepared::Kernel(device);
    }

    /// The steps, if they are those of a kernel of this device: then it is this one, as the contract says. What they call
    /// is to be let go after the launch.
    pub fn take_steps(&mut self, device: u64) -> Option<&mut Steps> {
        if !matches!(self.prepared, Prepared::Kernel(other) if other == device) {
            return None;
        }
        self.prepared = Prepared::Nothing;
        Some(&mut self.steps)
    }

    pub fn put_block(&mut self, device: u64, block: Option<Block>) {
        self.prepared = Prepared::Copy(device, block);
    }

    /// The block of the next copy or graph of this device. Between preparing and submitting there may be launches that need
    /// no preparation: those leave what there is.
    pub fn take_block(&mut self, device: u64) -> Option<Block> {
        if !matches!(self.prepared, Prepared::Copy(other, _) if other == device) {
            return None;
        }
        match mem::replace(&mut self.prepared, Prepared::Nothing) {
            Prepared::Copy(_, block) => block,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        staging::{Need, Staging},
        tests::{in_child, quiet},
    };
    use raddle_sync::faults::{Fault, assert_caught};
    use std::{sync::mpsc, thread};

    /// A thread is forked between preparing a copy and submitting it, while another one has the home of its block.
    #[test]
    fn a_child_leaves_blocks_alone() {
        let _quiet = quiet();
        process::claim();
        let staging = Staging::new(1 << 20);
        let size_bytes = staging.room(1, Need::May).unwrap().size_bytes;
        let mut here = Some(Here::new());
        here.iter_mut().for_each(|here| here.put_block(1, Some(staging.adopt(1, size_bytes))));
        let ((holds, held), (forks, forked)) = (mpsc::channel(), mpsc::channel::<()>());
        let home = staging.clone();
        thread::scope(|scope| {
            scope.spawn(move || {
                home.while_locked(|| {
                    holds.send(()).unwrap();
                    _ = forked.recv();
                });
            });
            held.recv().unwrap();
            let is_left = in_child(|| {
                drop(here.take()); // as at the end of the thread
                true
            });
            drop(forks);
            assert!(is_left, "the child waits for the lock of a thread that there isn't");
        });
    }

    #[test]
    fn fault_child_gives_blocks_back() {
        assert_caught(Fault::child_gives_blocks_back, "prepared::tests::a_child_leaves_blocks_alone");
    }
}
