//! What a trace is replayed against.

use raddle::{
    AddressSpace, Completion, Device, Priority, Stream,
    runtime::{self, Buffer},
};
use raddle_cli::output::{Failure, Outcome};

/// What a policy has given out and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// As rounded by the policy.
    pub allocated_bytes: u64,
    pub allocated_peak_bytes: u64,
    /// As asked of the device.
    pub reserved_bytes: u64,
    pub reserved_peak_bytes: u64,
    /// Calls of the device for memory.
    pub slab_calls: u64,
}

impl Counts {
    pub fn allocate(&mut self, size_bytes: u64) {
        self.allocated_bytes += size_bytes;
        self.allocated_peak_bytes = self.allocated_peak_bytes.max(self.allocated_bytes);
    }
    pub fn reserve(&mut self, size_bytes: u64) {
        self.reserved_bytes += size_bytes;
        self.reserved_peak_bytes = self.reserved_peak_bytes.max(self.reserved_bytes);
        self.slab_calls += 1;
    }
}

/// An allocator of device memory that may be used by several threads at once. The device has as much as is asked for.
pub trait Policy: Sync {
    /// A block that is given out.
    type Block: Send;

    /// Everything that this thread asks for is for this stream from now on.
    fn enter(&self, _stream: u8) {}
    /// Memory for work on a stream, which the thread has entered.
    fn allocate(&self, size_bytes: u64, stream: u8) -> Outcome<Self::Block>;
    /// Work that touches a block has been put on a stream, which the thread has entered.
    fn note_use(&self, block: &Self::Block, stream: u8) -> Outcome;
    /// Nobody but work in flight needs the block any more.
    fn free(&self, block: Self::Block);
    /// Everything on a stream is complete.
    fn synchronize(&self, stream: u8) -> Outcome;
    fn counts(&self) -> Counts;
}

/// Where a device would put its slabs: as it did when a library was recorded, or one behind the other.
#[derive(Default)]
pub struct Slabs {
    recorded: std::collections::VecDeque<u64>,
    end: u64,
}

impl Slabs {
    pub fn recorded(addresses: impl IntoIterator<Item = u64>) -> Slabs {
        Slabs { recorded: addresses.into_iter().collect(), end: 1 << 60 }
    }

    /// The address of the next slab. A hole follows each, so that no two are neighbours.
    pub fn next(&mut self, size_bytes: u64) -> u64 {
        self.recorded.pop_front().unwrap_or_else(|| {
            let address = self.end;
            self.end += size_bytes.next_multiple_of(1 << 21) + (1 << 21);
            address
        })
    }
}

/// The runtime, on a device that hands out addresses and computes nothing.
pub struct Ours {
    device: Device,
    /// By the trace's number.
    streams: Vec<Stream>,
}

impl Ours {
    /// `streams`: how many the trace has, the default one counted.
    pub fn new(streams: usize, completion: Completion) -> Outcome<Ours> {
        const POOL: usize = 32;
        if streams > 1 + 2 * POOL {
            let found = streams - 1;
            return Err(Failure::Input(format!(
                "replay: expected at most {} streams, found {found}",
                2 * POOL
            )));
        }
        let opened =
            runtime::Device::open(Box::new(AddressSpace::new(completion))).map_err(raddle::Error::from)?;
        let device = Device::from(opened);
        let stream = |index: usize| match index {
            0 => Stream::default(&device),
            index if index <= POOL => Stream::from_pool(&device, Priority::Normal),
            _ => Stream::from_pool(&device, Priority::High),
        };
        let streams = (0..streams).map(stream).collect::<Result<_, _>>().map_err(raddle::Error::from)?;
        Ok(Ours { device, streams })
    }

    /// Gives its memory back.
    pub fn close(self) -> Outcome {
        self.device.close().map(drop).map_err(|error| raddle::Error::from(error).into())
    }
}

fn failure(error: runtime::Error) -> Failure {
    raddle::Error::from(error).into()
}

impl Policy for Ours {
    type Block = Buffer;

    fn enter(&self, stream: u8) {
        self.streams[stream as usize].set_current();
    }
    fn allocate(&self, size_bytes: u64, _: u8) -> Outcome<Buffer> {
        self.device.allocate(size_bytes as usize).map_err(failure)
    }
    /// By an op that touches the block and moves nothing.
    fn note_use(&self, block: &Buffer, _: u8) -> Outcome {
        self.device.upload(block, 0, &[]).map_err(failure)
    }
    fn free(&self, block: Buffer) {
        drop(block);
    }
    fn synchronize(&self, stream: u8) -> Outcome {
        self.streams[stream as usize].synchronize().map_err(failure)
    }
    fn counts(&self) -> Counts {
        let stats = self.device.memory_stats();
        Counts {
            allocated_bytes: stats.allocated_bytes as u64,
            allocated_peak_bytes: stats.allocated_peak_bytes as u64,
            reserved_bytes: stats.reserved_bytes as u64,
            reserved_peak_bytes: stats.reserved_peak_bytes as u64,
            slab_calls: stats.slab_allocations,
        }
    }
}
