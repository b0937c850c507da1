//! What tests do with a device beside its methods: kernels of their own, streams of other code.

use crate::{
    driver::{Function, Stream},
    gates,
    shared::Shared,
};
use raddle_hal::{DeviceError, QueueId};
use raddle_sync::{Arc, atomic::Ordering::*};
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

const SPIN: &str = r#"
extern "C" __global__ void spin(unsigned long long ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < ns);
}"#;

const TRAP: &str = r#"
extern "C" __global__ void trap() {
    asm volatile("trap;");
}"#;

const ADD: &str = r#"
extern "C" __global__ void add(float* out, const float* a, const float* b, unsigned long long count) {
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (at < count) out[at] = a[at] + b[at];
}"#;

impl Shared {
    fn stress_kernel(
        &self,
        place: &OnceLock<Function>,
        name: &'static str,
        source: &str,
    ) -> Result<Function, DeviceError> {
        if let Some(function) = place.get() {
            return Ok(*function);
        }
        gates::check_none_is_closed("way to load a kernel while a stream is held")?;
        let image = self.compiler.image(name, source)?;
        let entry = std::ffi::CString::new(name).expect("names have no zeros");
        let (_, function) = self.context.enter()?.module_load(&image, &entry)?;
        Ok(*place.get_or_init(|| function))
    }

    /// Loads what [`Spin`](crate::Spin) needs, before it is needed under a lock.
    pub(crate) fn load_spin(&self) -> Result<Function, DeviceError> {
        self.stress_kernel(&self.stress.spin, "spin", SPIN)
    }

    pub(crate) fn spin(&self, queue: QueueId, ns: u64) -> Result<(), DeviceError> {
        let function = self.load_spin()?;
        // SAFETY: the parameter is one number, and the kernel touches no memory.
        unsafe {
            let stream = self.queue(queue).stream();
            self.context.enter()?.launch_kernel(function, [[1; 3]; 2], 0, stream, &ns.to_ne_bytes())
        }
    }

    /// Spins if the options say so and chance will have it.
    #[inline]
    pub(crate) fn perhaps_spin(&self, queue: QueueId) -> Result<(), DeviceError> {
        let Some(spin) = &self.options.spin else { return Ok(()) };
        match spin.ns(self.stress.drawn.fetch_add(1, Relaxed)) {
            0 => Ok(()),
            ns => self.spin(queue, ns),
        }
    }
}

/// A handle for tests, beside the device that has been handed on.
#[derive(Clone)]
pub struct Control(pub(crate) Arc<Shared>);

impl Control {
    /// Puts a kernel on an open queue that loses the device.
    pub fn plant_trap(&self, queue: QueueId) -> Result<(), DeviceError> {
        let function = self.0.stress_kernel(&self.0.stress.trap, "trap", TRAP)?;
        // SAFETY: the kernel has no parameters, and touches no memory.
        unsafe {
            let stream = self.0.queue(queue).stream();
            self.0.context.enter()?.launch_kernel(function, [[1; 3]; 2], 0, stream, &[])
        }
    }

    /// Puts so many kernels that do nothing on an open queue, by the driver alone, and waits for them: what a launch costs
    /// without us.
    pub fn launch_empty(&self, queue: QueueId, count: usize) -> Result<(), DeviceError> {
        let function = self.0.load_spin()?;
        let nothing = 0_u64.to_ne_bytes();
        // SAFETY: the parameter is one number, and the kernel touches no memory.
        unsafe { self.launch_bare(queue, count, function, 1, &nothing) }
    }

    /// The same of kernels that add 256 numbers, each to the same place.
    pub fn launch_add(&self, queue: QueueId, count: usize) -> Result<(), DeviceError> {
        const SIZE: u64 = 256;
        let function = self.0.stress_kernel(&self.0.stress.add, "add", ADD)?;
        let driver = self.0.context.enter()?;
        let array_bytes = SIZE * size_of::<f32>() as u64;
        let memory = driver.mem_alloc(3 * array_bytes as usize)?;
        let args = [memory, memory + array_bytes, memory + 2 * array_bytes, SIZE];
        let bytes: Vec<u8> = args.iter().flat_map(|arg| arg.to_ne_bytes()).collect();
        // SAFETY: three pointers to so many numbers, and the number; nobody else knows the memory, and it is given back when
        // all is over, or never.
        unsafe {
            self.launch_bare(queue, count, function, SIZE as u32, &bytes)?;
            driver.mem_free(memory)
        }
    }

    /// # Safety
    /// - `args` are laid out as the parameters of the function. What it reaches through them stays allocated until it is over.
    unsafe fn launch_bare(
        &self,
        queue: QueueId,
        count: usize,
        function: Function,
        threads: u32,
        args: &[u8],
    ) -> Result<(), DeviceError> {
        let driver = self.0.context.enter()?;
        let stream = self.0.queue(queue).stream();
        for _ in 0..count {
            // SAFETY: by the contract.
            unsafe { driver.launch_kernel(function, [[1; 3], [threads, 1, 1]], 0, stream, args) }?;
        }
        let event = driver.event_create(false)?;
        driver.event_record(event, stream)?;
        let over = driver.event_synchronize(event);
        // SAFETY: nobody else knows it.
        over.and(unsafe { driver.event_destroy(event) })
    }

    /// How long the host takes for so many kernels that do nothing, each behind the one before, in turn on open queues; by the
    /// driver alone: a launch, and if there are two queues an event recorded behind it, for which the other one waits. The device is
    /// busy with something else for `busy_ns` meanwhile. Waits for all of it.
    pub fn chain_empty(
        &self,
        queues: &[QueueId],
        count: usize,
        busy_ns: u64,
    ) -> Result<Duration, DeviceError> {
        let function = self.0.load_spin()?;
        let driver = self.0.context.enter()?;
        let streams: Vec<Stream> = queues.iter().map(|&queue| self.0.queue(queue).stream()).collect();
        let events = [driver.event_create(false)?, driver.event_create(false)?];
        let launch = |stream: Stream, ns: u64| {
            // SAFETY: the parameter is one number, and the kernel touches no memory.
            unsafe { driver.launch_kernel(function, [[1; 3]; 2], 0, stream, &ns.to_ne_bytes()) }
        };
        launch(streams[0], busy_ns)?;
        let start = Instant::now();
        for at in 0..count {
            let (here, next) = (streams[at % streams.len()], streams[(at + 1) % streams.len()]);
            launch(here, 0)?;
            if streams.len() > 1 {
                driver.event_record(events[at % 2], here)?;
                driver.stream_wait_event(next, events[at % 2])?;
            }
        }
        let taken = start.elapsed();
        for stream in streams {
            driver.event_record(events[0], stream)?;
            driver.event_synchronize(events[0])?;
        }
        for event in events {
            // SAFETY: nobody else knows it.
            unsafe { driver.event_destroy(event) }?;
        }
        Ok(taken)
    }

    /// The priority that the driver gives an open queue; less is more urgent.
    pub fn priority(&self, queue: QueueId) -> Result<i32, DeviceError> {
        self.0.context.enter()?.stream_priority(self.0.queue(queue).stream())
    }

    /// A stream as other code makes one.
    pub fn make_stream(&self) -> Result<u64, DeviceError> {
        self.0.context.enter()?.stream_create(false).map(Stream::handle)
    }

    /// Puts work on such a stream, behind the device's back: it lasts for a while, then fills memory.
    ///
    /// # Safety
    /// - The stream is one of [`Control::make_stream`] that lives.
    /// - The memory is of the device, so large, and is used by nobody else until the work is over.
    pub unsafe fn fill_late(
        &self,
        stream: u64,
        ns: u64,
        [address, size_bytes]: [u64; 2],
        value: u8,
    ) -> Result<(), DeviceError> {
        let function = self.0.load_spin()?;
        let driver = self.0.context.enter()?;
        // SAFETY: by the contract; the parameter is one number, and the kernel touches no memory.
        unsafe {
            let stream = Stream::from_handle(stream);
            driver.launch_kernel(function, [[1; 3]; 2], 0, stream, &ns.to_ne_bytes())?;
            driver.memset(address, value, size_bytes as usize, stream)
        }
    }

    /// Destroys such a stream, whatever is on it: that goes on.
    ///
    /// # Safety
    /// - It lives, and isn't wrapped.
    pub unsafe fn destroy_stream(&self, stream: u64) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        unsafe { self.0.context.enter()?.stream_destroy(Stream::from_handle(stream)) }
    }

    /// Keeps an open queue busy.
    pub fn spin(&self, queue: QueueId, ns: u64) -> Result<(), DeviceError> {
        self.0.spin(queue, ns)
    }
}
