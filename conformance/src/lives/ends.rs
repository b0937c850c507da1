//! Exits with work in flight, and what is destroyed when.

use super::process::{LIFE, TIME_MAX, do_something, keep_busy};
use crate::{
    child::{self, Ended},
    training::Outcome,
};
use raddle::{
    DType, Device, Event, Graph, Limits, Priority, Stream, Tensor,
    grad::Autograd,
    runtime::{self, Allocation, DeviceMemory, MemoryResource},
};
use raddle_runtime::process;
use serde_json::Value;
use std::{
    cell::RefCell,
    process::Command,
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// Puts work on streams that nobody waits for: more than a life has time for.
fn leave_work(device: &Device) -> Outcome {
    keep_busy(device, 4);
    let x = Tensor::ones([700, 700], DType::F32, device)?;
    for _ in 0..8 {
        let _guard = Stream::from_pool(device, Priority::Normal)?.enter();
        x.add_(1.0)?;
    }
    let device = *device;
    thread::spawn(move || while x.matmul(&x).and_then(|product| x.copy_(&product).map(drop)).is_ok() {});
    device.synchronize()?;
    Ok(())
}

pub fn main_returns(device: &str) -> Outcome {
    let device = Device::new(device)?;
    leave_work(&device)?;
    // A guard that is never dropped, and memory that is never given back.
    std::mem::forget(Stream::from_pool(&device, Priority::High)?.enter());
    std::mem::forget(Tensor::ones([100], DType::F32, &device)?);
    println!("main returns");
    Ok(())
}

pub fn another_thread_exits(device: &str) -> Outcome {
    let device = Device::new(device)?;
    leave_work(&device)?;
    thread::spawn(|| {
        println!("another thread exits");
        std::process::exit(7)
    });
    loop {
        do_something(&device, 5)?;
    }
}

pub fn main_panics(device: &str) -> Outcome {
    let device = Device::new(device)?;
    leave_work(&device)?;
    let _held =
        (Tensor::ones([100], DType::F32, &device)?, Stream::from_pool(&device, Priority::High)?.enter());
    panic!("on purpose");
}

/// Exits where the library has called code of the user's; the first thread that gets to such a place does.
fn exit_in(place: &str) -> ! {
    static EXITS: AtomicBool = AtomicBool::new(false);
    while EXITS.swap(true, Relaxed) {
        thread::park();
    }
    println!("{place} exits");
    std::process::exit(7)
}

pub fn a_callback_exits(device: &str) -> Outcome {
    let device = Device::new(device)?;
    leave_work(&device)?;
    Stream::from_pool(&device, Priority::High)?.on_complete(|_| exit_in("a callback"))?;
    loop {
        do_something(&device, 5)?;
    }
}

pub fn a_hook_exits(device: &str) -> Outcome {
    let limits = Limits { memory_bytes: Some(256 << 20), ..Limits::default() };
    let device = Device::with_limits(device, &limits)?;
    keep_busy(&device, 3);
    let _hook = device.on_out_of_memory(|_| exit_in("a hook"));
    let mut all = Vec::new();
    loop {
        all.push(Tensor::zeros([1 << 20], DType::F32, &device)?);
    }
}

/// In front of a device's memory.
struct Exits(DeviceMemory);

impl MemoryResource for Exits {
    fn allocate(&self, _size_bytes: usize) -> runtime::Result<Allocation> {
        exit_in("a resource")
    }
    fn free(&self, allocation: Allocation) {
        drop(allocation);
    }
    fn device(&self) -> runtime::Device {
        self.0.0
    }
}

pub fn a_resource_exits(device: &str) -> Outcome {
    let device = Device::new(device)?;
    leave_work(&device)?;
    device.set_memory_resource(Some(Arc::new(Exits(DeviceMemory(*device)))))?;
    loop {
        do_something(&device, 5)?;
    }
}

/// While a graph is captured, and its own kernels are noted.
pub fn a_capture_exits(device: &str) -> Outcome {
    let device = Device::new(device)?;
    leave_work(&device)?;
    let x = Tensor::ones([100], DType::F32, &device)?;
    device.capture::<Tensor, raddle::Error>(|| {
        x.add(1.0)?;
        exit_in("a capture")
    })?;
    Ok(())
}

/// One thread of a pool of the program's, whose other threads use the device.
pub fn a_thread_of_a_pool_exits(device: &str) -> Outcome {
    let device = Device::new(device)?;
    leave_work(&device)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build()?;
    let work = |thread: usize| {
        while do_something(&device, thread).is_ok() && thread > 0 {}
        exit_in("a thread of a pool")
    };
    pool.scope(|scope| (0..4).for_each(|thread| scope.spawn(move |_| work(thread))));
    Ok(())
}

// ------------------------------------------------------------ traces

const ADD_COUNT: usize = 60;

/// Some additions of three threads, each on its stream.
pub fn adds(device: &str) -> Outcome {
    let device = Device::new(device)?;
    let shared = Tensor::ones([300], DType::F32, &device)?;
    let add = || (0..ADD_COUNT / 3).try_for_each(|_| shared.add(1)?.sum(.., false).map(drop));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(add)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it doesn't panic"))
    })?;
    Ok(device.synchronize()?)
}

/// What a process has run is on the tracks of the device's streams, behind its submission, though a driver is gone when the
/// file is written.
pub fn a_trace_shows_what_ran(device: &str) -> Outcome {
    let file = format!("raddle-trace-{}-{}.json", std::process::id(), device.replace(':', "-"));
    let path = std::env::temp_dir().join(file);
    let mut command = Command::new(std::env::current_exe()?);
    command.env(LIFE, format!("adds {device}")).env("RADDLE_TRACE", &path);
    let Ended { status, err, .. } = child::run(&mut command, TIME_MAX)?;
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{err}");
    let trace: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    std::fs::remove_file(path)?;
    let events = trace["traceEvents"].as_array().expect("a trace has events");
    let additions_of = |process: &str| -> Vec<&Value> {
        let named = events.iter().find(|event| event["args"]["name"] == process).expect("it has a name");
        let is_its =
            |event: &&Value| event["pid"] == named["pid"] && event["ph"] == "X" && event["name"] == "add";
        events.iter().filter(is_its).collect()
    };
    let (submitted, ran) = (additions_of("threads"), additions_of(device));
    assert_eq!(submitted.len(), ADD_COUNT);
    // A GPU's launches are timed for a share of the thread's time, and the others counted; the simulator runs in pieces.
    let untimed = trace["otherData"]["untimed"].as_u64().expect("a count") as usize;
    assert!(ran.len() + untimed >= ADD_COUNT && ran.len() >= 10, "{} and {untimed}", ran.len());
    for ran in ran {
        let own = submitted.iter().find(|event| event["args"] == ran["args"]);
        let own = own.unwrap_or_else(|| panic!("{ran} was not submitted"));
        assert!(own["ts"].as_f64() <= ran["ts"].as_f64(), "{own} is after {ran}");
    }
    Ok(())
}

// ------------------------------------------------------------ thread-locals

pub const LOCALS: &str = "made last: Ok(594.0)\nmade first: Ok(594.0)\n";

/// Everything that a program may hold, used once more when it is dropped.
struct Things {
    name: &'static str,
    tensor: Tensor,
    graph: Graph<Tensor>,
    event: Event,
    stream: Stream,
    device: Device,
}

impl Things {
    fn new(name: &'static str, device: &Device) -> Outcome<Things> {
        let tensor = Tensor::arange(0, 9, 1, DType::F32, device)?.reshape([3, 3])?;
        let graph = device.capture(|| tensor.add(1.0))?;
        let stream = Stream::current(device)?;
        let event = stream.record();
        // Whatever libraries keep for the thread is made by now.
        tensor.matmul(&tensor)?.sort(0, false)?;
        Ok(Things { name, tensor, graph, event, stream, device: *device })
    }

    fn use_once_more(&self) -> Outcome<f32> {
        let leaf = self.tensor.copy()?;
        leaf.requires_grad_(true)?;
        let _guard = Stream::from_pool(&self.device, Priority::Normal)?.enter();
        // Large enough for the products of a library and for scratch.
        let wide = leaf.expand([40, 3, 3])?.reshape([120, 3])?;
        let product = wide.matmul(&wide.t()?)?;
        let (sorted, _) = product.sort(1, true)?;
        sorted.select(1, 0)?.narrow(0, 0, 3)?.sum(.., false)?.backward()?;
        let grad = leaf.grad().ok_or("no gradient")?.sum(.., false)?.item::<f32>()?;
        Tensor::randn([10], DType::F32, &self.device, None)?.topk(3, 0, true)?;
        self.event.record(self.stream);
        self.event.synchronize()?;
        self.stream.synchronize()?;
        Ok(product.narrow(0, 0, 3)?.narrow(1, 0, 3)?.sum(.., false)?.item::<f32>()?
            + self.graph.replay()?.sum(.., false)?.item::<f32>()?
            + grad)
    }
}

impl Drop for Things {
    fn drop(&mut self) {
        println!("{}: {:?}", self.name, self.use_once_more());
    }
}

thread_local! {
    /// Used before anything of ours is, and so destroyed after it.
    static FIRST: RefCell<Option<Things>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<Things>> = const { RefCell::new(None) };
}

fn hold_locals(device: &str) -> Outcome {
    FIRST.with(|_| ());
    let device = Device::new(device)?;
    FIRST.set(Some(Things::new("made first", &device)?));
    LAST.set(Some(Things::new("made last", &device)?));
    Ok(())
}

pub fn locals_of_main(device: &str) -> Outcome {
    hold_locals(device)
}

pub fn locals_of_a_thread(device: &str) -> Outcome {
    thread::scope(|scope| {
        let hold = || hold_locals(device).map_err(|error| error.to_string());
        scope.spawn(hold).join().expect("it doesn't panic")
    })?;
    // The device is as good as before.
    let device = Device::new(device)?;
    let ones = Tensor::ones([4], DType::F32, &device)?;
    assert_eq!(ones.add(1.0)?.to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}

pub fn locals_of_a_foreign_thread(device: &str) -> Outcome {
    let device = device.to_string();
    process::on_foreign_thread(move || hold_locals(&device).expect("the device works"))?;
    Ok(())
}

// ------------------------------------------------------------ statics, exit handlers

static SHARED: OnceLock<Tensor> = OnceLock::new();

pub const HANDLERS: &str = "main returns\nhandler\nhandler\n";

/// Registered before the device is opened and after that. A driver that is about to shut down by then is an error, and not more.
extern "C" fn handler() {
    println!("handler");
    let Some(shared) = SHARED.get() else { return };
    match shared.add(1.0).and_then(|sum| sum.to_vec::<f32>()) {
        Ok(sum) => assert_eq!(sum, [2.0; 2]),
        Err(error) => {
            assert!(shared.device().name().starts_with("cuda"), "{error}");
            assert!(error.to_string().contains("the process is ending"), "{error}");
        }
    }
}

pub fn exit_handlers(device: &str) -> Outcome {
    process::at_exit(handler)?;
    let device = Device::new(device)?;
    SHARED.set(Tensor::ones([2], DType::F32, &device)?).expect("once");
    process::at_exit(handler)?;
    keep_busy(&device, 3);
    println!("main returns");
    Ok(())
}

/// Everything in statics, of which main's and other threads' have all to do with the device.
pub fn statics_outlive_all(device: &str) -> Outcome {
    static STREAM: OnceLock<Stream> = OnceLock::new();
    static EVENT: LazyLock<Event> = LazyLock::new(Event::new);
    static GRAPH: OnceLock<Graph<Tensor>> = OnceLock::new();
    static OPENED: OnceLock<Device> = OnceLock::new();
    let device = *OPENED.get_or_init(|| Device::new(device).expect("the device works"));
    let shared = SHARED.get_or_init(|| Tensor::ones([2], DType::F32, &device).expect("it has memory"));
    let stream = *STREAM.get_or_init(|| Stream::from_pool(&device, Priority::High).expect("it has streams"));
    let graph = match GRAPH.get() {
        Some(graph) => graph,
        None => GRAPH.get_or_init(|| device.capture(|| shared.add(1.0)).expect("it can be captured")),
    };
    let use_all = move || -> raddle::Result<Vec<f32>> {
        let _guard = stream.enter();
        EVENT.record(stream);
        stream.wait_event(&EVENT)?;
        graph.replay()?.to_vec::<f32>()
    };
    for _ in 0..4 {
        thread::spawn(move || while use_all().is_ok() {});
    }
    println!("main: {:?}", use_all()?);
    Ok(())
}
