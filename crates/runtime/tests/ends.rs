//! What is left when a process forks or a thread panics. A file of its own: a fork copies what other tests hold.
#![cfg(not(loom))]

use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_cpu::Cpu;
use raddle_op::{Distribution, Kernel, PARAM_COUNT_MAX, Pointwise, ReduceOp};
use raddle_runtime::{
    Access, AfterNeed, Allocation, Buffer, Capture, Device, DeviceMemory, Error, Event, Foreign, MemoryPool,
    MemoryResource, Operand, Priority, Ready, Recording, Result, Stream, TraceError,
    hal::{self, QueueId},
    on_release,
    process::{self, End, Leave},
    testing, trace,
};
use raddle_sync::faults::{self, Fault, assert_caught};
use std::{
    env,
    ffi::OsStr,
    future::Future,
    process::Command,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, Sender},
    },
    task::{Context, Waker},
    time::Duration,
};

/// A child that takes longer hangs.
const TIME_S_MAX: u32 = 10;
/// The same where a planted fault has to make it hang: what it does takes milliseconds.
const PLANTED_TIME_S_MAX: u32 = 2;

/// Enough for the parallel path (the report's number), and far below it.
const COUNTS: [usize; 2] = [64_000, 10];

fn layout(shape: &[usize]) -> Layout {
    Layout::contiguous(Dims::new(shape).expect("few axes"))
}

fn operand<'a>(buffer: &'a Buffer, access: Access, dtype: DType, layout: &'a Layout) -> Operand<'a> {
    Operand { buffer, access, dtype, layout }
}

/// Random numbers, converted from f64 to f32 and added up, all on the device; and added up on the host.
fn sums(device: &Device, count: usize) -> Result<(f32, f32)> {
    let (all, one) = (layout(&[count]), layout(&[1]));
    let wide = device.allocate(count * 8)?;
    let narrow = device.allocate(count * 4)?;
    let sum = device.allocate(4)?;
    let wide_out = operand(&wide, Access::Write, DType::F64, &all);
    let distribution = Distribution::Integer { low: 0, high: 8 };
    // Integers, so that the sum is exact in any order: drawn as i64 in the same memory, then converted.
    let drawn = operand(&wide, Access::Write, DType::I64, &all);
    device.submit(&Kernel::Random { distribution, key: 7, counter: 0 }, &[drawn])?;
    let convert = |compute| Kernel::Pointwise {
        program: Pointwise::copy.into(),
        compute,
        params: [Scalar::Int(0); PARAM_COUNT_MAX],
        groups: 1,
    };
    let from = operand(&wide, Access::Read, DType::I64, &all);
    device.submit(&convert(DType::F64), &[wide_out, from])?;
    let [to, from] =
        [operand(&narrow, Access::Write, DType::F32, &all), operand(&wide, Access::Read, DType::F64, &all)];
    device.submit(&convert(DType::F32), &[to, from])?;
    let reduce = Kernel::Reduce { op: ReduceOp::Sum, axes: 1, divisor: 1.0 };
    let [to, from] =
        [operand(&sum, Access::Write, DType::F32, &one), operand(&narrow, Access::Read, DType::F32, &all)];
    device.submit(&reduce, &[to, from])?;
    let (mut found, mut bytes) = ([0; 4], vec![0; count * 4]);
    device.download(&sum, 0, &mut found)?;
    device.download(&narrow, 0, &mut bytes)?;
    let values = bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().expect("four bytes")));
    Ok((f32::from_ne_bytes(found), values.sum()))
}

/// The child's exit code says which step of its body failed, 0 for none.
fn in_child(body: impl FnOnce() -> std::result::Result<(), i32>) -> End {
    in_child_within(TIME_S_MAX, body)
}

fn in_child_within(time_s_max: u32, body: impl FnOnce() -> std::result::Result<(), i32>) -> End {
    process::in_child(time_s_max, Leave::Normally, || body().err().unwrap_or(0))
        .expect("there is room for a process")
}

/// A CPU that stops, or panics, where it is told to.
#[derive(Default)]
struct Told {
    cpu: Cpu,
    /// Once.
    stops: Mutex<Option<StopAt>>,
    /// The next launch panics.
    panics: Arc<AtomicBool>,
}

/// Says there that it has begun, and goes on when the other side is gone.
type StopAt = (Stop, Sender<()>, Receiver<()>);

#[derive(Clone, Copy, PartialEq)]
enum Stop {
    /// The first stream of the pool is opened.
    Open,
    /// A launch runs.
    Run,
    /// It is asked what it is like, as whoever opens it does first.
    Info,
}

impl Told {
    fn to_stop_at(stop: Stop) -> (Told, Receiver<()>, Sender<()>) {
        let ((has_begun, begun), (go, wait)) = (mpsc::channel(), mpsc::channel());
        (Told { stops: Mutex::new(Some((stop, has_begun, wait))), ..Told::default() }, begun, go)
    }

    fn stop_at(&self, here: Stop) {
        let stop = self.stops.lock().unwrap().take_if(|(stop, ..)| *stop == here);
        if let Some((_, has_begun, wait)) = stop {
            has_begun.send(()).unwrap();
            wait.recv().unwrap_err();
        }
    }
}

impl hal::Device for Told {
    fn info(&self) -> &hal::Info {
        self.stop_at(Stop::Info);
        self.cpu.info()
    }
    fn allocate_slab(&self, size_bytes: usize) -> std::result::Result<hal::Slab, hal::DeviceError> {
        self.cpu.allocate_slab(size_bytes)
    }
    unsafe fn release_slab(&self, slab: hal::Slab) {
        // SAFETY: the contract is the same, as below.
        unsafe { self.cpu.release_slab(slab) }
    }
    fn open_queue(&self, queue: QueueId, priority: Priority) -> std::result::Result<(), hal::DeviceError> {
        if queue == QueueId(1) {
            self.stop_at(Stop::Open);
        }
        self.cpu.open_queue(queue, priority)
    }
    unsafe fn submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[hal::Wait],
        launch: &hal::Launch<'_>,
    ) -> std::result::Result<hal::Submitted, hal::DeviceError> {
        assert!(!self.panics.swap(false, Relaxed), "told to");
        // SAFETY: as above.
        unsafe { self.cpu.submit(queue, sequence, waits, launch) }
    }
    unsafe fn run(
        &self,
        queue: QueueId,
        sequence: u64,
        launch: &hal::Launch<'_>,
    ) -> std::result::Result<(), hal::KernelError> {
        self.stop_at(Stop::Run);
        // SAFETY: as above.
        unsafe { self.cpu.run(queue, sequence, launch) }
    }
    fn completed(&self, queue: QueueId) -> u64 {
        self.cpu.completed(queue)
    }
    fn flush(&self, queue: QueueId) {
        self.cpu.flush(queue);
    }
    fn synchronize(&self, queue: QueueId, sequence: u64) -> std::result::Result<(), hal::DeviceError> {
        self.cpu.synchronize(queue, sequence)
    }
    fn take_kernel_error(&self, queue: QueueId, sequence: u64) -> Option<hal::KernelError> {
        self.cpu.take_kernel_error(queue, sequence)
    }
    fn after_fork(&self) {
        self.cpu.after_fork();
    }
}

/// D-17 of the reported cases: a process that has used its devices from many threads, with a pool of workers for large ops,
/// forks. The child goes on with the CPU, by ops large enough for the workers that it doesn't have; any other device tells
/// it so at once; and the parent doesn't notice.
#[test]
fn d_17_a_forked_child_goes_on_and_the_parent_too() {
    let cpu = Device::open(Box::new(Cpu::new())).unwrap();
    let sim = raddle_sim::Sim::new(Box::new(Cpu::new()), raddle_sim::SimOptions::default());
    let sim = Device::open(Box::new(sim.unwrap())).unwrap();
    let expected = COUNTS.map(|count| sums(&cpu, count).unwrap());
    assert!(expected.iter().all(|(device, host)| device == host && *host > 0.0));
    assert_eq!(sums(&sim, COUNTS[1]).unwrap(), expected[1]);
    // Other threads have used it, too, and hold nothing that a child could wait for.
    std::thread::scope(|scope| {
        (0..4).for_each(|_| _ = scope.spawn(|| sums(&cpu, COUNTS[0]).unwrap()));
    });

    let end = in_child(|| {
        for (count, expected) in COUNTS.into_iter().zip(expected) {
            match sums(&cpu, count) {
                Ok(found) if found == expected => {}
                Ok(_) => return Err(1),
                Err(_) => return Err(2),
            }
        }
        match sums(&sim, COUNTS[1]) {
            Err(Error::Forked { .. }) => Ok(()),
            _ => Err(3),
        }
    });
    assert_eq!(end, End::Code(0), "1: wrong sums, 2: an error, 3: the simulator");
    // One that does nothing ends, too.
    assert_eq!(in_child(|| Ok(())), End::Code(0));
    assert_eq!(sums(&cpu, COUNTS[0]).unwrap(), expected[0]);
    assert_eq!(sums(&sim, COUNTS[1]).unwrap(), expected[1]);
}

#[test]
fn fault_child_is_not_refused() {
    assert_caught(Fault::child_is_not_refused, "d_17_a_forked_child_goes_on_and_the_parent_too");
}

/// Forks while another thread of the parent holds the lock under which streams are made and threads choose one. The child's
/// only thread has chosen none yet.
fn use_what_the_parent_has_locked(plant: bool) -> End {
    let (told, begun, go) = Told::to_stop_at(Stop::Open);
    let device = Device::open(Box::new(told)).unwrap();
    let kept = device.allocate(100).unwrap();
    let other = std::thread::spawn(move || Stream::from_pool(&device, Priority::Normal).unwrap());
    begun.recv().unwrap();
    let event = Event::new();
    let mut waiting = std::pin::pin!(event.wait());
    let end = in_child_within(if plant { PLANTED_TIME_S_MAX } else { TIME_S_MAX }, || {
        let _planted = plant.then(|| faults::plant(Fault::child_takes_locks));
        let stream = Stream::current(&device).map_err(|_| 1)?;
        let guard = Stream::from_pool(&device, Priority::High).map_err(|_| 2)?.enter();
        let (found, host) = sums(&device, COUNTS[1]).map_err(|_| 3)?;
        drop(guard);
        stream.synchronize().map_err(|_| 4)?;
        device.synchronize().map_err(|_| 5)?;
        stream.record().synchronize().map_err(|_| 6)?;
        event.record(stream);
        let ready = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if !ready || !event.query() || event.synchronize().is_err() {
            return Err(8);
        }
        drop(kept.clone());
        _ = (device.memory_stats(), device.stream_stats(), device.stream_users());
        device.empty_cache();
        device.release_current_thread();
        if found == host && device.close() == Ok(false) { Ok(()) } else { Err(7) }
    });
    drop(go);
    other.join().unwrap();
    end
}

/// What stands before a device's memory. Was there a resource?
fn change_what_stands_before_memory(device: &Device, parents: &MemoryPool) -> Result<bool> {
    device.set_memory_history(8);
    drop(device.on_out_of_memory(|_| AfterNeed::GiveUp));
    let resource: Arc<dyn MemoryResource> = Arc::new(DeviceMemory(*device));
    device.set_memory_resource(Some(resource))?;
    let found = device.set_memory_resource(None)?.is_some();
    let pool = device.memory_pool();
    let _guards = [pool.enter(), parents.enter()];
    drop((pool.clone(), parents.clone()));
    device.allocate(100)?;
    Ok(found)
}

/// Another thread uses an event all the time, so of many children some are born while its lock is held.
#[test]
fn a_child_waits_for_no_event_of_its_parent() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
    let (event, stop) = (Event::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                event.record(stream);
            }
        });
        let child = || {
            event.record(stream);
            let ready = std::pin::pin!(event.wait()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
            if ready && event.query() && event.synchronize().is_ok() { Ok(()) } else { Err(1) }
        };
        let bad = (0..40).map(|_| in_child(child)).find(|end| *end != End::Code(0));
        stop.store(true, Relaxed);
        assert_eq!(bad, None);
    });
}

/// Other threads change it all the time, so of many children some are born while a lock is held.
#[test]
fn a_child_doesnt_change_what_stands_before_memory() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let (pool, stop) = (device.memory_pool(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let change = || {
            while !stop.load(Relaxed) {
                change_what_stands_before_memory(&device, &pool).unwrap();
            }
        };
        (0..2).for_each(|_| _ = scope.spawn(change));
        let child = || match change_what_stands_before_memory(&device, &pool) {
            Ok(false) => Ok(()),
            Ok(true) => Err(1),
            Err(_) => Err(2),
        };
        let bad = (0..200).map(|_| in_child(child)).find(|end| *end != End::Code(0));
        stop.store(true, Relaxed);
        assert_eq!(bad, None);
    });
}

/// A test's name: the process has been started by it, to do what it looks at.
const BODY_OF: &str = "RADDLE_TEST_BODY_OF";

/// A test of a process that hasn't used a device yet: the body of the test with this name, in one of its own, which is so told.
fn in_fresh_process(test: &str, variables: &[(&str, &OsStr)], body: fn()) {
    if env::var_os(BODY_OF).is_some() {
        return body();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(BODY_OF, test).envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// As what a process opens first, by a thread that a fork waits for.
fn open_while_another_thread_forks() {
    static OPENED: OnceLock<Device> = OnceLock::new();
    unsafe extern "C" fn open() {
        let open = || {
            let sim = raddle_sim::Sim::new(Box::new(Cpu::new()), raddle_sim::SimOptions::default());
            let device = Device::open(Box::new(sim.expect("the CPU is there"))).expect("there is room");
            device.allocate(100).map(|_| device)
        };
        let opened = std::thread::spawn(open).join();
        _ = OPENED.set(opened.expect("it doesn't panic").expect("it has memory"));
    }
    process::before_forks(open).unwrap();
    let end = in_child(|| match OPENED.get().ok_or(1)?.allocate(100) {
        Err(Error::Forked { .. }) => Ok(()),
        _ => Err(2),
    });
    assert_eq!(end, End::Code(0), "2: the child takes the device for its own");
}

/// Handlers that are registered while a fork is under way aren't called for it.
#[test]
fn a_fork_that_is_under_way_makes_a_child_too() {
    in_fresh_process("a_fork_that_is_under_way_makes_a_child_too", &[], open_while_another_thread_forks);
}

#[test]
fn fault_forks_watched_late() {
    assert_caught(Fault::forks_watched_late, "a_fork_that_is_under_way_makes_a_child_too");
}

/// The thread that opens the first device is stopped in it while another one opens the second, works, and looks at the trace.
fn open_two_at_once() {
    let (told, begun, go) = Told::to_stop_at(Stop::Info);
    let first = std::thread::spawn(move || Device::open(Box::new(told)).unwrap());
    begun.recv().unwrap();
    let second = Device::open(Box::new(Cpu::new())).unwrap();
    second.upload(&second.allocate(4).unwrap(), 0, &[1; 4]).unwrap();
    let mut text = Vec::new();
    trace::write_to(&mut text).unwrap();
    assert!(
        String::from_utf8(text).unwrap().contains("\"upload\""),
        "what the second thread does is missing"
    );
    drop(go);
    first.join().unwrap();
}

#[test]
fn devices_that_are_opened_at_once_are_traced() {
    let test = "devices_that_are_opened_at_once_are_traced";
    let path = env::temp_dir().join(format!("raddle-ends-{}.json", std::process::id()));
    in_fresh_process(test, &[("RADDLE_TRACE", path.as_os_str())], open_two_at_once);
    if env::var_os(BODY_OF).is_none() {
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(text.contains("\"upload\""), "{text}");
    }
}

#[test]
fn fault_trace_starts_once() {
    assert_caught(Fault::trace_starts_once, "devices_that_are_opened_at_once_are_traced");
}

/// The child of a callback has the callback's thread, which ends: the callbacks that wait are the parent's.
#[test]
fn a_callback_may_fork() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
    let (parent, buffer) = (std::process::id(), device.allocate(4).unwrap());
    let ((go, wait), (tell, told)) = (mpsc::channel::<()>(), mpsc::channel());
    let tell_more = tell.clone();
    let fork_and_return = move |_| {
        wait.recv().unwrap();
        match process::fork(TIME_S_MAX).unwrap() {
            Some(end) => tell.send(end).unwrap(),
            // It goes on with the device.
            None if device.upload(&buffer, 0, &[5; 4]).is_ok() => {}
            None => process::leave_at_once(1),
        }
    };
    stream.on_complete(fork_and_return).unwrap();
    let next = move |_| {
        if std::process::id() != parent {
            process::leave_at_once(2);
        }
        tell_more.send(End::Code(100)).unwrap();
    };
    stream.on_complete(next).unwrap();
    go.send(()).unwrap();
    assert_eq!(told.recv(), Ok(End::Code(0)), "1: an error of the device, 2: it calls what is the parent's");
    assert_eq!(told.recv(), Ok(End::Code(100)), "the parent goes on");
}

/// A hook, or a resource, that forks when it is asked. In the child it has nothing.
#[derive(Default)]
struct ForksWhenAsked {
    end: Mutex<Option<End>>,
}

impl ForksWhenAsked {
    /// Is this the parent?
    fn fork(&self) -> bool {
        let end = process::fork(TIME_S_MAX).unwrap();
        end.inspect(|end| *self.end.lock().unwrap() = Some(*end)).is_some()
    }

    /// How the child has ended of an allocation that asks it: 0 if it got memory, and could use it.
    fn ask(&self, device: Device) -> Option<End> {
        let parent = std::process::id();
        let written = device.allocate(100).and_then(|buffer| device.upload(&buffer, 0, &[1; 100]));
        if std::process::id() != parent {
            process::leave_at_once(i32::from(written.is_err()));
        }
        *self.end.lock().unwrap()
    }
}

#[test]
fn a_hook_may_fork() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let forks = Arc::new(ForksWhenAsked::default());
    device.set_memory_history(8);
    device.set_memory_limit(0);
    let _hook = device.on_out_of_memory({
        let forks = forks.clone();
        move |_| {
            forks.fork();
            AfterNeed::GiveUp
        }
    });
    assert_eq!(forks.ask(device), Some(End::Code(0)));
}

/// As above, asked for the scratch memory of an op: the child runs the op.
#[test]
fn a_hook_may_fork_in_an_op() {
    const COUNT: usize = 300_000; // more than a thread of the CPU has scratch for
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let [input, sorted, order] = [0; 3].map(|_| device.allocate(COUNT * 8).unwrap());
    let bytes: Vec<u8> = (0..COUNT as i64).rev().flat_map(i64::to_ne_bytes).collect();
    device.upload(&input, 0, &bytes).unwrap();
    device.set_memory_limit(0);
    let forks = Arc::new(ForksWhenAsked::default());
    let _hook = device.on_out_of_memory({
        let forks = forks.clone();
        move |_| {
            forks.fork();
            AfterNeed::GiveUp
        }
    });
    let parent = std::process::id();
    let all = layout(&[COUNT]);
    let operands = [
        operand(&sorted, Access::Write, DType::I64, &all),
        operand(&order, Access::Write, DType::I64, &all),
        operand(&input, Access::Read, DType::I64, &all),
    ];
    let submitted = device.submit(&Kernel::Sort { axis: 0, descending: false }, &operands);
    if std::process::id() != parent {
        let mut bytes = vec![1; COUNT * 8];
        let read = submitted.and_then(|()| device.download(&sorted, 0, &mut bytes));
        let numbers = bytes.as_chunks::<8>().0.iter().map(|&bytes| i64::from_ne_bytes(bytes));
        process::leave_at_once(i32::from(read.is_err() || !numbers.eq(0..COUNT as i64)));
    }
    assert!(matches!(submitted, Err(Error::OutOfMemory { .. })), "{submitted:?}");
    assert_eq!(*forks.end.lock().unwrap(), Some(End::Code(0)));
}

#[test]
fn a_resource_may_fork() {
    struct Resource(Arc<ForksWhenAsked>, DeviceMemory);
    impl MemoryResource for Resource {
        fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
            if self.0.fork() {
                return self.1.allocate(size_bytes);
            }
            drop(self.1.allocate(size_bytes)?);
            Err(Error::LostAtFork { device: self.1.0.name().into() })
        }
        fn free(&self, allocation: Allocation) {
            drop(allocation);
        }
        fn device(&self) -> Device {
            self.1.0
        }
    }
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let forks = Arc::new(ForksWhenAsked::default());
    let resource = Resource(forks.clone(), DeviceMemory(device));
    device.set_memory_resource(Some(Arc::new(resource))).unwrap();
    assert_eq!(forks.ask(device), Some(End::Code(0)));
}

#[test]
fn fault_child_goes_on_as_parent() {
    for test in ["a_callback_may_fork", "a_hook_may_fork", "a_hook_may_fork_in_an_op", "a_resource_may_fork"]
    {
        assert_caught(Fault::child_goes_on_as_parent, test);
    }
}

/// A thread of the parent reads what was recorded all the time, so that many a child finds its own record locked.
#[test]
fn a_child_is_not_traced() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    trace::start();
    (0..200).for_each(|_| _ = sums(&device, COUNTS[1]).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                trace::write_to(&mut std::io::sink()).unwrap();
            }
        });
        let child = || sums(&device, COUNTS[1]).map(drop).map_err(|_| 1);
        let bad = (0..100).map(|_| in_child(child)).find(|end| *end != End::Code(0));
        stop.store(true, Relaxed);
        trace::stop();
        assert_eq!(bad, None);
    });
}

/// A thread of the parent allocates all the time, so that of many children some are born while what is recorded is locked.
#[test]
fn a_child_leaves_a_recording_to_its_parent() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let recording = Mutex::new(Some(device.record_memory().unwrap()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Few enough for the recording.
            for _ in 0..200_000 {
                if stop.load(Relaxed) {
                    break;
                }
                drop(device.allocate(100).unwrap());
            }
        });
        let finish = || match recording.lock().unwrap().take().map(Recording::finish) {
            Some(Err(TraceError::Forked)) => Ok(()),
            _ => Err(1),
        };
        let forget = || {
            drop(recording.lock().unwrap().take());
            Ok(())
        };
        let bad =
            (0..40).map(|_| [in_child(finish), in_child(forget)]).find(|ends| *ends != [End::Code(0); 2]);
        stop.store(true, Relaxed);
        assert_eq!(bad, None);
    });
    assert!(recording.lock().unwrap().take().unwrap().finish().is_ok());
}

#[test]
fn a_child_takes_no_lock_of_its_parent() {
    assert_eq!(use_what_the_parent_has_locked(false), End::Code(0), "the number of the step that failed");
}

#[test]
fn fault_child_takes_locks() {
    assert_eq!(use_what_the_parent_has_locked(true), End::Signal(libc::SIGALRM));
}

/// A child that goes on for long, in a process that may hold a few buffers only.
#[test]
fn a_child_gives_its_memory_back() {
    let bounds = raddle_hal::Bounds { memory_bytes: 64 << 20, ..Default::default() };
    let device = Device::open(Box::new(Cpu::with_bounds(bounds))).unwrap();
    let parents = device.allocate(16 << 20).unwrap();
    let end = in_child(|| {
        for _ in 0..1000 {
            let buffers = [device.allocate(1 << 20).map_err(|_| 1)?, device.allocate(100).map_err(|_| 2)?];
            device.upload(&buffers[0], 0, &[7; 100]).map_err(|_| 3)?;
        }
        // And so does its child, also with what it was given.
        let buffer = device.allocate(16 << 20).map_err(|_| 4)?;
        let end = in_child(|| {
            drop((buffer, parents));
            device.allocate(30 << 20).map(drop).map_err(|_| 1)
        });
        if end == End::Code(0) { Ok(()) } else { Err(5) }
    });
    assert_eq!(end, End::Code(0));
}

/// What was being written when the process forked is lost to the child, and it is told so; what was complete is there.
#[test]
fn a_child_is_told_what_is_lost() {
    let (told, begun, go) = Told::to_stop_at(Stop::Run);
    let device = Device::open(Box::new(told)).unwrap();
    let (done, lost) = (device.allocate(4).unwrap(), device.allocate(4).unwrap());
    let other = std::thread::spawn({
        let lost = lost.clone();
        move || device.upload(&lost, 0, &[5; 4]).unwrap()
    });
    begun.recv().unwrap();
    device.upload(&done, 0, &[1, 2, 3, 4]).unwrap();
    let mut found = [0; 4];
    let end = in_child(|| {
        device.download(&done, 0, &mut found).map_err(|_| 1)?;
        if found != [1, 2, 3, 4] {
            return Err(2);
        }
        match device.download(&lost, 0, &mut found) {
            Err(Error::LostAtFork { .. }) => Ok(()),
            Err(_) => Err(3),
            Ok(()) => Err(4),
        }
    });
    assert_eq!(end, End::Code(0));
    drop(go);
    other.join().unwrap();
    device.download(&lost, 0, &mut found).unwrap();
    assert_eq!(found, [5; 4]);
}

#[test]
fn fault_child_reads_unwritten() {
    assert_caught(Fault::child_reads_unwritten, "a_child_is_told_what_is_lost");
}

/// A launch at which the device panics: who submits it is told by the panic, and everything else goes on.
fn panic_at_a_launch() {
    let told = Told::default();
    let panics = told.panics.clone();
    let device = Device::open(Box::new(told)).unwrap();
    let (buffer, stream) = (device.allocate(4).unwrap(), Stream::current(&device).unwrap());
    device.upload(&buffer, 0, &[1; 4]).unwrap();
    panics.store(true, Relaxed);
    let panic = std::panic::catch_unwind(|| device.upload(&buffer, 0, &[2; 4]));
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "told to");
    let read = || {
        let mut found = [0; 4];
        device.download(&buffer, 0, &mut found).unwrap();
        found
    };
    // The same memory from the same stream, and from others.
    assert_eq!(read(), [1; 4]);
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            device.upload(&buffer, 0, &[3; 4]).unwrap();
            let _guard = stream.enter();
            read()
        });
        other.join().unwrap()
    });
    assert_eq!(other, [3; 4]);
    drop(buffer);
    assert!(device.close().unwrap());
}

#[test]
fn a_panic_holds_nothing() {
    panic_at_a_launch();
}

#[test]
fn fault_panic_keeps_claims() {
    let end = process::in_child(PLANTED_TIME_S_MAX, Leave::AtOnce, || {
        let _planted = faults::plant(Fault::panic_keeps_claims);
        panic_at_a_launch();
        0
    });
    assert_eq!(end.unwrap(), End::Signal(libc::SIGALRM), "whoever comes next waits for ever");
}

/// The only instance is out, since its outputs are to be made anew, and for that there is no memory.
fn replay_in_a_hook() {
    const SIZE: usize = 1 << 20;
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let (input, all) = (device.allocate(SIZE).unwrap(), layout(&[SIZE]));
    device.upload(&input, 0, &[1; SIZE]).unwrap();
    let capture = Capture::begin(&device).unwrap();
    let output = device.allocate(SIZE).unwrap();
    let operands =
        [operand(&output, Access::Write, DType::U8, &all), operand(&input, Access::Read, DType::U8, &all)];
    let copy = Kernel::Pointwise {
        program: Pointwise::copy.into(),
        compute: DType::U8,
        params: [Scalar::Int(0); PARAM_COUNT_MAX],
        groups: 1,
    };
    device.submit(&copy, &operands).unwrap();
    let graph = Arc::new(capture.end(&[&output]).unwrap());
    drop(output);
    graph.set_instance_count_max(1);
    let held = graph.replay(&[], &[]).unwrap();
    device.empty_cache();
    device.set_memory_limit(0);
    let (again, asked) = (graph.clone(), Arc::new(AtomicBool::new(false)));
    let hook = device.on_out_of_memory({
        let asked = asked.clone();
        move |_| {
            asked.store(true, Relaxed);
            assert!(matches!(again.replay(&[], &[]), Err(Error::OutOfMemory { .. })));
            AfterNeed::GiveUp
        }
    });
    assert!(matches!(graph.replay(&[], &[]), Err(Error::OutOfMemory { .. })));
    assert!(asked.load(Relaxed));
    drop((hook, held));
    graph.replay(&[], &[]).unwrap();
}

#[test]
fn a_hook_may_replay_the_graph_that_is_short() {
    replay_in_a_hook();
}

/// With a fault planted the body never comes to an end.
fn assert_waits_for_ever(fault: Fault, body: impl Fn()) {
    let end = process::in_child(PLANTED_TIME_S_MAX, Leave::AtOnce, || {
        let _planted = faults::plant(fault);
        body();
        0
    });
    assert_eq!(end.unwrap(), End::Signal(libc::SIGALRM));
}

#[test]
fn fault_hook_waits_for_itself() {
    assert_waits_for_ever(Fault::hook_waits_for_itself, replay_in_a_hook);
}

/// A capture that was begun before a fork is the parent's.
#[test]
fn a_child_ends_no_capture_of_its_parent() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let (buffer, all) = (device.allocate(4).unwrap(), layout(&[4]));
    let capture = Capture::begin(&device).unwrap();
    let output = device.allocate(4).unwrap();
    let end = in_child(|| {
        let operands = [
            operand(&output, Access::Write, DType::U8, &all),
            operand(&buffer, Access::Read, DType::U8, &all),
        ];
        let distribution = Distribution::Integer { low: 0, high: 8 };
        let kernel = Kernel::Random { distribution, key: 7, counter: 0 };
        let recorded = device.submit(&kernel, &operands[..1]);
        let ended = capture.end(&[&output]).map(drop);
        match [recorded, ended] {
            [Err(Error::Forked { .. }), Err(Error::Forked { .. })] => Ok(()),
            _ => Err(1),
        }
    });
    assert_eq!(end, End::Code(0));
}

fn cpu_and_sim() -> [Device; 2] {
    let sim = raddle_sim::Sim::new(Box::new(Cpu::new()), raddle_sim::SimOptions::default());
    [Device::open(Box::new(Cpu::new())).unwrap(), Device::open(Box::new(sim.unwrap())).unwrap()]
}

#[test]
fn what_is_behind_a_hold_waits() {
    for device in cpu_and_sim() {
        let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
        let buffer = device.allocate(4).unwrap();
        device.upload(&buffer, 0, &[1; 4]).unwrap();
        let held = testing::hold(stream).unwrap();
        let guard = stream.enter();
        device.upload(&buffer, 0, &[2; 4]).unwrap();
        drop(guard);
        // Each question is an occasion for work to go on.
        assert!((0..1000).all(|_| !stream.query()), "{device:?}");
        held.release();
        let mut found = [0; 4];
        device.download(&buffer, 0, &mut found).unwrap();
        assert_eq!(found, [2; 4]);
    }
}

#[test]
fn fault_hold_holds_nothing() {
    assert_caught(Fault::hold_holds_nothing, "what_is_behind_a_hold_waits");
}

/// Of one who lets go later, and of one who never will.
fn close_while_held() {
    for device in cpu_and_sim() {
        let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
        let held = testing::hold(stream).unwrap();
        std::mem::forget(testing::hold(stream).unwrap());
        stream.on_complete(|result| assert_eq!(result, Ok(()))).unwrap();
        assert_eq!(device.close(), Ok(true));
        assert!(stream.query());
        drop(held);
    }
}

#[test]
fn closing_lets_go_of_what_is_held() {
    close_while_held();
}

#[test]
fn fault_close_waits_for_holds() {
    assert_waits_for_ever(Fault::close_waits_for_holds, close_while_held);
}

/// Of its parent's streams none goes on or stands still by what it does; of its own work all is over when a call returns.
#[test]
fn a_child_holds_no_stream() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
    let mut held = Some(testing::hold(stream).unwrap());
    let end = in_child(|| {
        drop(held.take());
        let expected = "cpu: the device has no queue to hold in a forked child";
        match testing::hold(stream) {
            Err(error) if error.to_string() == expected => {}
            _ => return Err(1),
        }
        testing::spin(stream, Duration::from_micros(1)).map_err(|_| 2)
    });
    assert_eq!(end, End::Code(0));
    assert!(!stream.query());
    drop(held);
    stream.synchronize().unwrap();
}

/// Memory of others goes back where it was adopted: a child neither gives back what its parent has, nor keeps what it has itself.
#[test]
fn a_child_gives_back_its_own() {
    let device = Device::open(Box::new(Cpu::new())).unwrap();
    let adopt = |sender: &Sender<u8>, name: u8| {
        let (sender, mut numbers) = (sender.clone(), vec![name; 4]);
        // SAFETY: the closure owns the numbers, and is dropped when they have been given back.
        let foreign = unsafe {
            let address = numbers.as_mut_ptr() as u64;
            Foreign::new(&device, address, 4, on_release(move || sender.send(numbers[0]).unwrap()))
        };
        device.adopt(foreign, Ready::Now).unwrap()
    };
    let (sender, back) = mpsc::channel();
    let mut parents = Some(adopt(&sender, 1));
    let child = process::in_child(TIME_S_MAX, Leave::Normally, || {
        let mut bytes = [0; 4];
        let parents = parents.take().unwrap(); // of the child's own copy
        device.download(&parents, 0, &mut bytes).unwrap();
        let own = adopt(&sender, 3);
        device.upload(&own, 0, &bytes).unwrap();
        own.synchronize().unwrap();
        drop((own, parents));
        let grandchilds = adopt(&sender, 4);
        let end = process::in_child(TIME_S_MAX, Leave::AtOnce, || {
            drop(grandchilds);
            i32::from(back.try_iter().count() != 1)
        });
        let stats = device.memory_stats();
        i32::from(end.unwrap() != End::Code(0) || stats.foreign_bytes != 4 || device.close().unwrap())
    });
    assert_eq!(child.unwrap(), End::Code(0));
    assert!(back.try_recv().is_err());
    drop(parents);
    assert_eq!((back.recv().unwrap(), device.memory_stats().foreign_bytes), (1, 0));
    assert!(device.close().unwrap());
}

#[test]
fn fault_child_releases_foreign() {
    assert_caught(Fault::child_releases_foreign, "a_child_gives_back_its_own");
}
