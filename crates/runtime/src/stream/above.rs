//! What memory asks of streams.

use super::{binding, callback};
use crate::{
    ground::{Core, Floor, Result},
    memory::{Above, Block},
    order::{Streams, Tick},
    submit::{Access, BlockAccess},
};
use raddle_hal::Launch;

/// Of every device.
pub(crate) struct StreamsAbove;

impl Above for StreamsAbove {
    fn synchronize_all(&self, device: &'static Core) -> Result<()> {
        Streams::of(device).all_streams().try_for_each(|stream| {
            // Of a closed one, and if it takes no more work, what it has taken.
            let tick = stream.handle().now().unwrap_or_else(|_| stream.latest());
            stream.synchronize(tick.sequence())
        })
    }

    #[cold]
    fn poison(&self, block: &Block, value: u8) {
        let launch = Launch::FillBytes { to: block.address, size_bytes: block.capacity_bytes, value };
        // A lost device keeps nothing that junk could show; there is nobody to tell, either.
        if let Ok(stream) = binding::current(Streams::of(block.device)) {
            let all = BlockAccess { block, access: Access::Write, whole: true };
            _ = stream.submit("poison", &launch, &mut [all], &[]);
        }
    }

    fn fence(&self, block: &Block, slot: usize) {
        Streams::of(block.device).opened(slot).fence(block);
    }

    fn when_complete(&self, device: &'static Core, tick: Tick, closure: Box<dyn FnOnce(bool) + Send>) {
        let stream = Streams::of(device).opened(tick.slot()).handle();
        callback::add_unbounded(stream, tick.sequence(), Box::new(move |result| closure(result.is_ok())));
    }

    fn bound_slot(&self, device: &'static Core) -> usize {
        binding::current(Streams::of(device)).map_or(0, |stream| stream.0.slot)
    }
}
