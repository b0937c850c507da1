//! Launches: kernels with their operands as the device wants them, prepared where it has to.

use super::{
    access::{Access, BlockAccess, Operand, with_scratch},
    child,
};
use crate::{
    ground::{Core, Floor, Result, fork},
    memory::Memory,
    order::Stream,
};
use raddle_hal::{self as hal, Kernel, Launch};
use raddle_sync::{atomic::Ordering::*, fault};
use smallvec::SmallVec;
use std::ptr;

/// Describes a kernel and its operands as the device and the stream want them. Few operands, the usual case, are described
/// in arrays of just their number.
#[inline]
pub(crate) fn with_launch<R>(
    op: &'static str,
    device: &'static Core,
    kernel: &Kernel,
    operands: &[Operand<'_>],
    then: impl FnOnce(&Launch<'_>, &mut [BlockAccess<'_>]) -> R,
) -> R {
    let view = |operand: &Operand<'_>| view(op, device, operand);
    macro_rules! of_length {
        ($($length:literal),*) => { match operands {
            $(operands if operands.len() == $length => {
                let views: [hal::Operand; $length] = std::array::from_fn(|index| view(&operands[index]));
                let mut touches: [BlockAccess<'_>; $length] = std::array::from_fn(|index| touch(kernel, &operands[index]));
                then(&Launch::Kernel { kernel, operands: &views }, &mut touches)
            })*
            operands => {
                let views: Vec<hal::Operand> = operands.iter().map(view).collect();
                let mut touches: Vec<BlockAccess<'_>> = operands.iter().map(|operand| touch(kernel, operand)).collect();
                then(&Launch::Kernel { kernel, operands: &views }, &mut touches)
            }
        } };
    }
    of_length!(2, 3, 4)
}

#[inline]
pub(crate) fn view(op: &'static str, device: &'static Core, operand: &Operand<'_>) -> hal::Operand {
    let block = operand.buffer.block();
    let end_bytes = operand.layout.end() * operand.dtype.size_bytes();
    if !ptr::eq(block.device, device) || end_bytes > operand.buffer.size_bytes() {
        misfit(op, device, operand);
    }
    let view = hal::View { address: block.address, dtype: operand.dtype, layout: *operand.layout };
    match operand.access {
        Access::Read => hal::Operand::In(view),
        Access::Write => hal::Operand::Out(view),
    }
}

/// Memory that isn't the operand's must not be touched, whoever is wrong.
#[cold]
#[inline(never)]
fn misfit(op: &'static str, device: &'static Core, operand: &Operand<'_>) -> ! {
    assert!(ptr::eq(operand.buffer.block().device, device), "{op}: an operand is of another device");
    let Operand { layout, dtype, buffer, .. } = operand;
    panic!("{op}: {layout:?} of {dtype} leaves its buffer of {} bytes", buffer.size_bytes())
}

#[inline]
fn touch<'a>(kernel: &Kernel, operand: &Operand<'a>) -> BlockAccess<'a> {
    let block = operand.buffer.block();
    // Only a block that carries a failure needs to know.
    let whole = operand.access == Access::Write
        && block.taint.load(Relaxed) != 0
        && !kernel.reads_outputs()
        && operand.layout.is_contiguous()
        && operand.layout.element_count() * operand.dtype.size_bytes() >= operand.buffer.size_bytes();
    BlockAccess { block, access: operand.access, whole }
}

impl Stream {
    /// Submits, after the device has prepared what it may have to.
    #[inline]
    pub(crate) fn launch(
        self,
        op: &'static str,
        launch: &Launch<'_>,
        touches: &mut [BlockAccess<'_>],
    ) -> Result<u64> {
        if self.0.device.wants_prepared(launch) {
            self.prepared(op, launch, touches)
        } else {
            self.submit(op, launch, touches, &[])
        }
    }

    fn prepared(self, op: &'static str, launch: &Launch<'_>, touches: &mut [BlockAccess<'_>]) -> Result<u64> {
        let device = self.0.device;
        // First of all, so that little is held meanwhile.
        self.0.wait_for_room()?;
        // SAFETY: the launch is one that is submitted next; who uploads holds the source until then.
        let scratch_bytes = unsafe { device.hal.prepare(launch) }.map_err(|error| device.error(error))?;
        let Launch::Kernel { kernel, operands } = *launch else {
            return self.enqueue_in_room(op, launch, touches, &[]);
        };
        if scratch_bytes == 0 {
            return self.enqueue_in_room(op, launch, touches, &[]);
        }
        if fault!(scratch_is_not_counted) {
            let slab = device.hal.allocate_slab(scratch_bytes).map_err(|error| device.error(error))?;
            let address = hal::Address { handle: slab.handle, offset_bytes: 0 };
            let operands = with_scratch(operands, address, scratch_bytes);
            return self.enqueue_in_room(op, &Launch::Kernel { kernel, operands: &operands }, touches, &[]);
        }
        let memory = Memory::of(device.core);
        let user_calls = || memory.user_calls.load(Relaxed);
        let calls_before = user_calls();
        let scratch = memory.allocate(scratch_bytes)?;
        if fork::has_forked_in(device) {
            return child::submit(device, op, launch, touches).map(|()| 0); // a child's ops have no place on a stream
        }
        if user_calls() != calls_before {
            // A hook or a resource may have prepared something else on this thread.
            // SAFETY: as above.
            let again_bytes = unsafe { device.hal.prepare(launch) }.map_err(|error| device.error(error))?;
            debug_assert_eq!(again_bytes, scratch_bytes, "{op}: it needs as much whenever it is asked");
        }
        let block = scratch.block();
        let operands = with_scratch(operands, block.address, scratch_bytes);
        let scratch = BlockAccess { block, access: Access::Write, whole: true };
        let mut touches: SmallVec<[BlockAccess<'_>; 8]> = touches.iter().copied().chain([scratch]).collect();
        self.enqueue_in_room(op, &Launch::Kernel { kernel, operands: &operands }, &mut touches, &[])
    }
}
