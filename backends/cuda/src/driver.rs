//! The driver, each call checked and named after itself.
//!
//! A [`Driver`] is the proof that the context is current on this thread, so its methods may be called; most are safe, since
//! streams, events and modules are made here and streams and events, but for those that keep times, are never destroyed: a
//! device lives as long as its process, and nothing of the driver is touched while that ends, since it may be gone by then. A
//! stream of other code is named here only while it lives ([`Driver::stream_of`]).
//!
//! **Loss.** Some errors (an illegal address, a trap, …) leave the context unusable for ever. The first call that meets one
//! marks the context as lost; from then on [`Context::enter`] refuses, so the driver isn't called any more.

mod graphs;

use crate::{inside, process, setup::SetupError};
use cudarc::driver::sys::{self, CUresult};
use raddle_hal::DeviceError;
use raddle_sync::atomic::{AtomicBool, Ordering::*};
use std::{
    cell::Cell,
    ffi::{CStr, c_int, c_uint, c_void},
    marker::PhantomData,
    ptr,
    sync::OnceLock,
};

pub const LIBRARY: &str = "the CUDA driver (libcuda.so)";
pub const REMEDY: &str = "install the driver of the card, 12.0 or later (13.0 for NVRTC 13)";
/// `cuEventElapsedTime_v2` came with it; newer headers know no other.
const ELAPSED_VERSION: i32 = 12080;
/// The handle that stands for another stream on each thread, as the driver's interface has it.
const STREAM_PER_THREAD: u64 = 2;
/// `cuFuncLoad` came with it.
const FUNC_LOAD_VERSION: i32 = 12040;
/// `cuStreamGetCaptureInfo_v3` came with it.
const CAPTURE_INFO_VERSION: i32 = 12030;

thread_local! {
    /// The context that was made current here last. Who changes it behind our back changes it back.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

macro_rules! handle {
    ($(#[doc = $doc:literal])* $name:ident($raw:ty)) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name($raw);
        // SAFETY: the driver takes its handles on any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above; the driver locks for itself.
        unsafe impl Sync for $name {}
    };
}
handle! {
    /// A stream of the driver that lives: made here and never destroyed, or of other code that hasn't closed it.
    Stream(sys::CUstream)
}
handle! {
    /// An event of the driver that lives.
    Event(sys::CUevent)
}
handle! {
    /// A loaded module.
    Module(sys::CUmodule)
}
handle! {
    /// A kernel of a loaded module.
    Function(sys::CUfunction)
}
handle! {
    /// A graph that can't be launched.
    Graph(sys::CUgraph)
}
handle! {
    /// A node of such a graph, and the same of what was made of it.
    GraphNode(sys::CUgraphNode)
}
handle! {
    /// A graph that can be launched.
    GraphExec(sys::CUgraphExec)
}

/// The bytes of a kernel's parameters, as the driver takes them in `extra`.
struct Extra {
    size_bytes: usize,
    args: *mut c_void,
}

impl Extra {
    fn new(args: &[u8]) -> Extra {
        Extra { size_bytes: args.len(), args: args.as_ptr().cast_mut().cast() }
    }
    /// Points to `self`.
    fn list(&mut self) -> [*mut c_void; 5] {
        [
            sys::CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
            self.args,
            sys::CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
            ptr::from_mut(&mut self.size_bytes).cast(),
            sys::CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
        ]
    }
}

impl Stream {
    /// For other libraries of CUDA.
    pub fn raw(self) -> *mut c_void {
        self.0.cast()
    }

    /// As a number.
    pub fn handle(self) -> u64 {
        self.0 as u64
    }

    /// Back from the number.
    ///
    /// # Safety
    /// - It is that of a stream that lives.
    #[inline]
    pub unsafe fn from_handle(handle: u64) -> Stream {
        Stream(handle as sys::CUstream)
    }
}

impl Event {
    /// As a number.
    pub fn handle(self) -> u64 {
        self.0 as u64
    }

    /// Back from the number.
    ///
    /// # Safety
    /// - It is that of an event that lives.
    #[inline]
    pub unsafe fn from_handle(handle: u64) -> Event {
        Event(handle as sys::CUevent)
    }
}

/// What the hardware can do and is.
#[derive(Clone, Debug)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Compute capability, as 90 for 9.0.
    pub capability: u32,
    /// All of its memory.
    pub memory_bytes: usize,
    /// Can a stream write a number into memory, and wait for one there?
    pub writes_values: bool,
    /// The most shared memory of a block.
    shared_bytes_max: i32,
}

/// The primary context of a card.
pub struct Context {
    raw: sys::CUcontext,
    driver_version: i32,
    /// What it runs on.
    pub card: Card,
    /// Stored once, by whoever meets the error.
    lost: AtomicBool,
    reason: OnceLock<&'static str>,
}

// SAFETY: the context is a handle that any thread may make current; the rest is plain or atomic.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// The context is current on this thread.
#[derive(Clone, Copy)]
pub struct Driver<'a> {
    context: &'a Context,
    _here: PhantomData<*const ()>,
}

/// Why the context is lost, if the code says so. These stay: no later call of the process works.
fn loss(code: CUresult) -> Option<&'static str> {
    use CUresult::*;
    Some(match code {
        CUDA_ERROR_ILLEGAL_ADDRESS => "a kernel touched an illegal address",
        CUDA_ERROR_ILLEGAL_INSTRUCTION => "a kernel ran an illegal instruction",
        CUDA_ERROR_MISALIGNED_ADDRESS => "a kernel touched a misaligned address",
        CUDA_ERROR_INVALID_ADDRESS_SPACE => "a kernel touched an address of another space",
        CUDA_ERROR_INVALID_PC => "a kernel jumped astray",
        CUDA_ERROR_HARDWARE_STACK_ERROR => "a kernel broke its stack",
        CUDA_ERROR_LAUNCH_FAILED => "a kernel failed",
        CUDA_ERROR_LAUNCH_TIMEOUT => "a kernel ran for too long",
        CUDA_ERROR_ASSERT => "an assertion failed in a kernel",
        CUDA_ERROR_ECC_UNCORRECTABLE => "memory is damaged",
        CUDA_ERROR_NVLINK_UNCORRECTABLE => "the link between devices is damaged",
        CUDA_ERROR_CONTAINED => "an error of the hardware was contained",
        CUDA_ERROR_CONTEXT_IS_DESTROYED => "the context was destroyed",
        CUDA_ERROR_DEVICE_UNAVAILABLE => "the device is unavailable",
        CUDA_ERROR_DEINITIALIZED => "the driver is shutting down",
        CUDA_ERROR_MPS_CLIENT_TERMINATED | CUDA_ERROR_MPS_RPC_FAILURE => "the server of the device is gone",
        CUDA_ERROR_UNKNOWN => "the driver met an unknown error",
        _ => return None,
    })
}

/// A call that needs no context.
fn plain(call: &'static str, code: CUresult) -> Result<(), DeviceError> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(DeviceError::Driver { call, code: i64::from(code as u32) }),
    }
}

/// Calls that come before there is a context.
pub mod open {
    use super::*;

    /// Is the library of the driver installed? Everything else here panics without it.
    pub fn is_present() -> bool {
        // SAFETY: loading the driver's library runs its initializers, which are fit for that.
        unsafe { sys::is_culib_present() }
    }

    /// The newest version of CUDA that the driver supports, as 13000 for 13.0; 0 if it is no driver but a stub.
    pub fn version() -> i32 {
        let mut version = 0;
        // SAFETY: it writes one number, and needs no initialization.
        let code = unsafe { sys::cuDriverGetVersion(&mut version) };
        if code == CUresult::CUDA_SUCCESS { version } else { 0 }
    }

    /// Initializes the driver and counts its devices. Idempotent.
    pub fn device_count() -> Result<usize, DeviceError> {
        process::claim();
        // SAFETY: no preconditions.
        match unsafe { sys::cuInit(0) } {
            CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
            code => plain("cuInit", code)?,
        }
        let mut count = 0;
        // SAFETY: the driver is initialized; it writes one number.
        plain("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        Ok(count as usize)
    }

    /// What a device is. It is one of [`device_count`].
    pub fn card(ordinal: usize) -> Result<Card, DeviceError> {
        let device = device(ordinal)?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the device is one of the driver's; it writes one number.
            let code = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
            plain("cuDeviceGetAttribute", code).map(|()| value)
        };
        let mut name = [0_u8; 256];
        // SAFETY: it writes at most so many bytes, ended by a zero.
        let code = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        plain("cuDeviceGetName", code)?;
        let mut memory_bytes = 0;
        // SAFETY: as above.
        plain("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, device) })?;
        use sys::CUdevice_attribute::*;
        let capability = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? * 10
            + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(Card {
            name: CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned(),
            capability: capability as u32,
            memory_bytes,
            writes_values: attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)? != 0,
            shared_bytes_max: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        })
    }

    /// Takes the primary context, which is shared with the rest of the process, and keeps it. The end of the process is to be
    /// watched from then on.
    pub fn context(ordinal: usize, card: Card) -> Result<Context, DeviceError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the device is one of the driver's; it writes one handle.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device(ordinal)?) };
        plain("cuDevicePrimaryCtxRetain", code)?;
        let (lost, reason) = (AtomicBool::new(false), OnceLock::new());
        Ok(Context { raw, driver_version: version(), card, lost, reason })
    }

    fn device(ordinal: usize) -> Result<sys::CUdevice, DeviceError> {
        let mut device = 0;
        // SAFETY: the driver is initialized; it writes one handle.
        plain("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })?;
        Ok(device)
    }
}

impl Context {
    /// Makes the context current, unless it is lost.
    #[inline]
    pub fn enter(&self) -> Result<Driver<'_>, DeviceError> {
        if self.is_lost() {
            return Err(self.lost());
        }
        let driver = Driver { context: self, _here: PhantomData };
        if CURRENT.get() != self.raw as usize {
            // SAFETY: the context has been retained and is never released.
            driver.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.raw) })?;
            CURRENT.set(self.raw as usize);
        }
        Ok(driver)
    }

    /// As [`Context::enter`], for the handler at the end of the process, before the driver shuts down.
    pub fn enter_last(&self) -> Option<Driver<'_>> {
        let driver = Driver { context: self, _here: PhantomData };
        // SAFETY: as in `enter`.
        (!self.lost.load(Acquire) && unsafe { sys::cuCtxSetCurrent(self.raw) } == CUresult::CUDA_SUCCESS)
            .then_some(driver)
    }

    /// Acquire pairs with the Release in `fail`.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Acquire) || inside::process_ends()
    }

    /// The error of everything after the loss. Whoever knows the queues adds the suspects.
    #[cold]
    pub fn lost(&self) -> DeviceError {
        let known = if inside::process_ends() { inside::REASON } else { "it is being lost" };
        let reason = self.reason.get().copied().unwrap_or(known);
        DeviceError::Lost { reason, suspects: Vec::new() }
    }

    #[cold]
    fn fail(&self, call: &'static str, code: CUresult) -> DeviceError {
        match loss(code) {
            Some(reason) => {
                _ = self.reason.set(reason);
                self.lost.store(true, Release); // pairs with the Acquire in `is_lost`
                self.lost()
            }
            None => DeviceError::Driver { call, code: i64::from(code as u32) },
        }
    }
}

impl Driver<'_> {
    #[inline]
    fn check(self, call: &'static str, code: CUresult) -> Result<(), DeviceError> {
        if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(self.context.fail(call, code)) }
    }

    /// Memory of the device, aligned to at least 256 bytes. May wait for the device.
    pub fn mem_alloc(self, size_bytes: usize) -> Result<u64, DeviceError> {
        let mut address = 0;
        // SAFETY: it writes one address.
        match unsafe { sys::cuMemAlloc_v2(&mut address, size_bytes.max(1)) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(DeviceError::OutOfMemory { size_bytes }),
            code => self.check("cuMemAlloc", code).map(|()| address),
        }
    }

    /// Gives memory back. May wait for the device.
    ///
    /// # Safety
    /// - The address came from [`Driver::mem_alloc`], is given back once, and nothing in flight uses it.
    pub unsafe fn mem_free(self, address: u64) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        self.check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
    }

    /// Memory of the host that the device reaches by itself, at the same address. May wait for the device. Not
    /// write-combined, which would make reading it slow.
    pub fn mem_host_alloc(self, size_bytes: usize) -> Result<usize, DeviceError> {
        let mut address: *mut c_void = ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: it writes one address.
        self.check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut address, size_bytes, flags) })?;
        Ok(address as usize)
    }

    /// Gives memory of the host back. May wait for the device.
    ///
    /// # Safety
    /// - The address came from [`Driver::mem_host_alloc`], is given back once, and nobody uses it any more.
    pub unsafe fn mem_free_host(self, address: usize) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        self.check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(address as *mut c_void) })
    }

    /// Pinned memory full of zeros that the driver frees at its end: where the host and where the device finds it.
    pub fn mem_host_zeroed(self, size_bytes: usize) -> Result<[u64; 2], DeviceError> {
        let address = self.mem_host_alloc(size_bytes)?;
        // SAFETY: it was just allocated, so large.
        unsafe { ptr::write_bytes(address as *mut u8, 0, size_bytes) };
        Ok([address as u64, self.mem_host_device_pointer(address)?])
    }

    /// Where the device finds memory of [`Driver::mem_host_alloc`].
    pub fn mem_host_device_pointer(self, address: usize) -> Result<u64, DeviceError> {
        let mut device = 0;
        // SAFETY: it writes one address; a stray one is an error.
        let code = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut device, address as *mut c_void, 0) };
        self.check("cuMemHostGetDevicePointer", code).map(|()| device)
    }

    /// Free and all bytes of the card.
    pub fn mem_info(self) -> Result<(usize, usize), DeviceError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        self.check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// A stream that is not ordered with the legacy one.
    pub fn stream_create(self, is_urgent: bool) -> Result<Stream, DeviceError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: it writes two numbers.
        let code = unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) };
        self.check("cuCtxGetStreamPriorityRange", code)?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        let priority = if is_urgent { greatest } else { least };
        let mut stream = ptr::null_mut();
        // SAFETY: it writes one handle.
        let code = unsafe { sys::cuStreamCreateWithPriority(&mut stream, flags, priority) };
        self.check("cuStreamCreateWithPriority", code)?;
        Ok(Stream(stream))
    }

    /// A stream of other code, if it can be used.
    ///
    /// # Safety
    /// - The handle is that of a stream that lives, and does while the result is used.
    pub unsafe fn stream_of(self, handle: u64) -> Result<Stream, DeviceError> {
        if handle == STREAM_PER_THREAD {
            let reason =
                "the default stream of a thread is another one on each thread, make a stream instead";
            return Err(DeviceError::Refused { handle, reason });
        }
        let stream = Stream(handle as sys::CUstream);
        let mut context = ptr::null_mut();
        // SAFETY: by the contract the handle is of a stream, or of the legacy one, which is of the current context; it
        // writes one handle.
        self.check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(stream.0, &mut context) })?;
        if context != self.context.raw {
            let reason = "it is a stream of another context than the device's primary one";
            return Err(DeviceError::Refused { handle, reason });
        }
        Ok(stream)
    }

    /// The priority of a stream; less is more urgent.
    pub fn stream_priority(self, stream: Stream) -> Result<i32, DeviceError> {
        let mut priority = 0;
        // SAFETY: the handle lives; it writes one number.
        let code = unsafe { sys::cuStreamGetPriority(stream.0, &mut priority) };
        self.check("cuStreamGetPriority", code).map(|()| priority)
    }

    /// Destroys a stream that other code, that is a test, has made.
    ///
    /// # Safety
    /// - It lives, and nobody uses it any more.
    pub unsafe fn stream_destroy(self, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: by the contract; what is on it goes on.
        self.check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream.0) })
    }

    /// Puts a stream behind what an event has recorded at this moment.
    #[inline]
    pub fn stream_wait_event(self, stream: Stream, event: Event) -> Result<(), DeviceError> {
        // SAFETY: both handles live.
        self.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream.0, event.0, 0) })
    }

    /// Writes a number in stream order, behind a fence of the whole system.
    ///
    /// # Safety
    /// - `address` is a word of memory that the driver has pinned, and frees at its end.
    #[inline]
    pub unsafe fn stream_write_value(
        self,
        stream: Stream,
        address: u64,
        value: u64,
    ) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        let code = unsafe { sys::cuStreamWriteValue64_v2(stream.0, address, value, 0) };
        self.check("cuStreamWriteValue64", code)
    }

    /// Lets a stream wait until a number is at least so large.
    ///
    /// # Safety
    /// - As of [`Driver::stream_write_value`].
    pub unsafe fn stream_wait_value(
        self,
        stream: Stream,
        address: u64,
        value: u64,
    ) -> Result<(), DeviceError> {
        let flags = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as c_uint;
        // SAFETY: by the contract.
        let code = unsafe { sys::cuStreamWaitValue64_v2(stream.0, address, value, flags) };
        self.check("cuStreamWaitValue64", code)
    }

    /// An event without a time. `blocks`: whoever waits for it sleeps.
    pub fn event_create(self, blocks: bool) -> Result<Event, DeviceError> {
        use sys::CUevent_flags::*;
        let flags =
            CU_EVENT_DISABLE_TIMING as c_uint | if blocks { CU_EVENT_BLOCKING_SYNC as c_uint } else { 0 };
        let mut event = ptr::null_mut();
        // SAFETY: it writes one handle.
        self.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Event(event))
    }

    /// An event that keeps the time when it is reached.
    pub fn timing_event_create(self) -> Result<Event, DeviceError> {
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as c_uint;
        // SAFETY: it writes one handle.
        self.check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Event(event))
    }

    /// Can [`Driver::event_elapsed_ms`] be had?
    pub fn tells_times(self) -> bool {
        self.context.driver_version >= ELAPSED_VERSION
    }

    /// Milliseconds between two such events, both recorded and complete.
    pub fn event_elapsed_ms(self, start: Event, end: Event) -> Result<f32, DeviceError> {
        let version = self.context.driver_version;
        if version < ELAPSED_VERSION {
            return Err(SetupError::old_driver(version, ELAPSED_VERSION));
        }
        let mut elapsed_ms = 0.0;
        // SAFETY: both handles live; it writes one number.
        let code = unsafe { sys::cuEventElapsedTime_v2(&mut elapsed_ms, start.0, end.0) };
        self.check("cuEventElapsedTime", code).map(|()| elapsed_ms)
    }

    /// Destroys an event.
    ///
    /// # Safety
    /// - It lives, and nobody uses it any more.
    pub unsafe fn event_destroy(self, event: Event) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        self.check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event.0) })
    }

    /// Records everything that is on a stream.
    #[inline]
    pub fn event_record(self, event: Event, stream: Stream) -> Result<(), DeviceError> {
        // SAFETY: both handles live.
        self.check("cuEventRecord", unsafe { sys::cuEventRecord(event.0, stream.0) })
    }

    /// Is everything complete that the event has recorded?
    pub fn event_query(self, event: Event) -> Result<bool, DeviceError> {
        // SAFETY: the handle lives.
        match unsafe { sys::cuEventQuery(event.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Is everything complete that is on the stream, whoever has put it there?
    pub fn stream_query(self, stream: Stream) -> Result<bool, DeviceError> {
        // SAFETY: the handle lives.
        match unsafe { sys::cuStreamQuery(stream.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Blocks until everything is complete that the event has recorded.
    pub fn event_synchronize(self, event: Event) -> Result<(), DeviceError> {
        // SAFETY: the handle lives.
        self.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event.0) })
    }

    /// Loads a cubin or PTX (ended by a zero) and one kernel of it, now: left to the first launch, loading would wait for
    /// kernels that run. May wait for the device.
    pub fn module_load(self, image: &[u8], entry: &CStr) -> Result<(Module, Function), DeviceError> {
        let mut module = ptr::null_mut();
        // SAFETY: the image is what a compiler made, checked for damage when it came from a file.
        let code = unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", code)?;
        let module = Module(module);
        self.function(module, entry).map(|function| (module, function)).inspect_err(|_| {
            // SAFETY: nobody has seen it.
            _ = unsafe { self.module_unload(module) };
        })
    }

    fn function(self, module: Module, entry: &CStr) -> Result<Function, DeviceError> {
        use sys::CUfunction_attribute::*;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded; it writes one handle.
        let code = unsafe { sys::cuModuleGetFunction(&mut function, module.0, entry.as_ptr()) };
        self.check("cuModuleGetFunction", code)?;
        if self.context.driver_version >= FUNC_LOAD_VERSION {
            // SAFETY: the function is of a loaded module.
            self.check("cuFuncLoad", unsafe { sys::cuFuncLoad(function) })?;
        }
        let mut own_bytes = 0;
        // SAFETY: as above; it writes one number.
        let code =
            unsafe { sys::cuFuncGetAttribute(&mut own_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) };
        self.check("cuFuncGetAttribute", code)?;
        // More than 48 KiB has to be allowed; that it may be used costs nothing.
        let (attribute, bytes) =
            (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, self.context.card.shared_bytes_max - own_bytes);
        // SAFETY: as above.
        self.check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, bytes) })?;
        Ok(Function(function))
    }

    /// Unloads a module. May wait for the device.
    ///
    /// # Safety
    /// - It is loaded, nothing in flight is of it, and nobody launches it any more.
    pub unsafe fn module_unload(self, module: Module) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        self.check("cuModuleUnload", unsafe { sys::cuModuleUnload(module.0) })
    }

    /// Launches a kernel with the bytes of its parameters.
    ///
    /// # Safety
    /// - The function is loaded, and `args` are laid out as its parameters.
    /// - What it reaches through them stays allocated until it is complete, and is ordered as the contract of hal says.
    #[inline]
    pub unsafe fn launch_kernel(
        self,
        function: Function,
        [grid, block]: [[u32; 3]; 2],
        shared_bytes: u32,
        stream: Stream,
        args: &[u8],
    ) -> Result<(), DeviceError> {
        let mut extra = Extra::new(args);
        let mut extra = extra.list();
        // SAFETY: by the contract; the parameters are copied before the call returns, and only read.
        let code = unsafe {
            sys::cuLaunchKernel(
                function.0,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                stream.0,
                ptr::null_mut(),
                extra.as_mut_ptr(),
            )
        };
        self.check("cuLaunchKernel", code)
    }

    /// Copies to the device in stream order.
    ///
    /// # Safety
    /// - Both places are so large. The source stays as it is until the copy is complete, if it is pinned; if not, the call
    ///   returns when it has been read.
    /// - The destination is as the contract of hal says.
    pub unsafe fn memcpy_htod(
        self,
        to: u64,
        from: usize,
        size_bytes: usize,
        stream: Stream,
    ) -> Result<(), DeviceError> {
        if size_bytes == 0 {
            return Ok(()); // from and to any address
        }
        // SAFETY: by the contract.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from as *const c_void, size_bytes, stream.0) };
        self.check("cuMemcpyHtoDAsync", code)
    }

    /// Copies to the host in stream order; if the destination isn't pinned, the call returns when the bytes are there.
    ///
    /// # Safety
    /// - Both places are so large, and stay allocated until the copy is complete.
    pub unsafe fn memcpy_dtoh(
        self,
        to: usize,
        from: u64,
        size_bytes: usize,
        stream: Stream,
    ) -> Result<(), DeviceError> {
        if size_bytes == 0 {
            return Ok(()); // from and to any address
        }
        // SAFETY: by the contract.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to as *mut c_void, from, size_bytes, stream.0) };
        self.check("cuMemcpyDtoHAsync", code)
    }

    /// Sets bytes in stream order.
    ///
    /// # Safety
    /// - The region is as the contract of hal says of an output.
    pub unsafe fn memset(
        self,
        to: u64,
        value: u8,
        size_bytes: usize,
        stream: Stream,
    ) -> Result<(), DeviceError> {
        // SAFETY: by the contract.
        let code = unsafe { sys::cuMemsetD8Async(to, value, size_bytes, stream.0) };
        self.check("cuMemsetD8Async", code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_stay_are_told_from_others() {
        assert!(loss(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).is_some());
        assert!(loss(CUresult::CUDA_ERROR_LAUNCH_FAILED).is_some());
        for code in
            [CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_NOT_READY, CUresult::CUDA_ERROR_INVALID_VALUE]
        {
            assert_eq!(loss(code), None);
        }
    }
}
