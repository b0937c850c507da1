//! The device by its contract, on the first GPU: copies, fills, waits and progress, with kernels that take their time; the
//! loss of the device in a process of its own. Where there is no GPU each test is ignored.

use libtest_mimic::{Arguments, Trial};
use raddle_cuda::{Control, Cuda, CudaOptions, DiskCache, Spin, device_count};
use raddle_hal::*;
use std::{
    collections::HashMap,
    process::{Command, ExitCode},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::*},
    },
    time::{Duration, Instant},
};

const Q: [QueueId; 4] = [QueueId(0), QueueId(1), QueueId(2), QueueId(40)];
/// For a stream of other code.
const WRAPPED: QueueId = QueueId(70);
/// Long enough to be seen, for the host and for other queues.
const LONG_NS: u64 = 20_000_000;

/// A device with its queues and their numbers.
struct Gpu {
    cuda: Cuda,
    control: Control,
    sequences: HashMap<QueueId, Mutex<u64>>,
}

impl Gpu {
    fn new(options: CudaOptions) -> Gpu {
        let cuda = Cuda::with_options(0, options).unwrap();
        for queue in Q {
            let priority = if queue.0 == 40 { Priority::High } else { Priority::Normal };
            cuda.open_queue(queue, priority).unwrap();
        }
        let control = cuda.control();
        let all = Q.into_iter().chain([WRAPPED]);
        Gpu { cuda, control, sequences: all.map(|queue| (queue, Mutex::new(0))).collect() }
    }

    fn try_submit(&self, queue: QueueId, waits: &[Wait], launch: &Launch<'_>) -> Result<u64, DeviceError> {
        // SAFETY: the test keeps what it names alive until the device has been synchronized.
        unsafe { self.cuda.prepare(launch) }?;
        let mut sequence = self.sequences[&queue].lock().unwrap();
        // SAFETY: numbers grow by one under the lock; waits name what has been submitted; the rest is the test's.
        unsafe { self.cuda.submit(queue, *sequence + 1, waits, launch) }?;
        *sequence += 1;
        Ok(*sequence)
    }

    fn submit(&self, queue: QueueId, waits: &[Wait], launch: &Launch<'_>) -> u64 {
        self.try_submit(queue, waits, launch).unwrap()
    }

    fn download(&self, queue: QueueId, waits: &[Wait], slab: Slab, bytes: &mut [u8]) -> u64 {
        self.submit(queue, waits, &Launch::Download { from: start(slab), to: host(bytes) })
    }
}

fn start(slab: Slab) -> Address {
    Address { handle: slab.handle, offset_bytes: 0 }
}

fn host(bytes: &mut [u8]) -> HostBytes {
    HostBytes { address: bytes.as_mut_ptr() as usize, size_bytes: bytes.len() }
}

fn fill(slab: Slab, value: u8) -> Launch<'static> {
    Launch::FillBytes { to: start(slab), size_bytes: slab.size_bytes, value }
}

fn plain() -> Gpu {
    Gpu::new(CudaOptions { disk_cache: DiskCache::Off, ..CudaOptions::default() })
}

fn bytes_go_there_and_back() {
    let gpu = plain();
    for size_bytes in [1, 4096, 5000, 3 << 20, 65 << 20] {
        let mut bytes: Vec<u8> = (0..size_bytes).map(|at| (at * 7 % 251) as u8).collect();
        let slab = gpu.cuda.allocate_slab(size_bytes).unwrap();
        gpu.submit(Q[0], &[], &Launch::Upload { from: host(&mut bytes), to: start(slab) });
        let expected = bytes.clone();
        bytes.fill(0); // the source has been read
        let mut back = vec![0; size_bytes];
        let sequence = gpu.download(Q[0], &[], slab, &mut back);
        gpu.cuda.synchronize(Q[0], sequence).unwrap();
        assert!(back == expected, "{size_bytes} bytes");
        assert_eq!(gpu.cuda.completed(Q[0]), sequence);
        // SAFETY: everything is complete.
        unsafe { gpu.cuda.release_slab(slab) };
    }
}

fn completion_is_seen_without_waiting() {
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(1 << 20).unwrap();
    for count in [1, 3, 8, 9, 200] {
        gpu.control.spin(Q[1], LONG_NS).unwrap();
        (0..count).for_each(|value| _ = gpu.submit(Q[1], &[], &fill(slab, value as u8)));
        let mut back = vec![0xff; 1 << 20];
        let start = Instant::now();
        let sequence = gpu.download(Q[1], &[], slab, &mut back);
        assert!(start.elapsed() < Duration::from_nanos(LONG_NS) / 2, "submit waits: {:?}", start.elapsed());
        assert!(gpu.cuda.completed(Q[1]) < sequence);
        let mut last = 0;
        loop {
            let completed = gpu.cuda.completed(Q[1]);
            assert!(completed >= last, "it falls");
            last = completed;
            if completed == sequence {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "never seen: {completed} of {sequence}");
        }
        assert!(back.iter().all(|byte| *byte == count as u8 - 1), "its bytes are there when it is complete");
    }
    let sequence = gpu.submit(Q[1], &[], &fill(slab, 0));
    gpu.cuda.flush(Q[1]);
    while gpu.cuda.completed(Q[1]) < sequence {}
    // Launches of nothing are complete at once, and stay so when work follows.
    (0..2).for_each(|_| _ = gpu.submit(Q[1], &[], &Launch::Nothing));
    assert_eq!(gpu.cuda.completed(Q[1]), sequence + 2);
    gpu.control.spin(Q[1], LONG_NS).unwrap();
    let last = gpu.submit(Q[1], &[], &fill(slab, 1));
    assert_eq!(gpu.cuda.completed(Q[1]), sequence + 2);
    gpu.cuda.synchronize(Q[1], last).unwrap();
}

fn waits_order_queues() {
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(1 << 16).unwrap();
    for value in 1..=50 {
        let (writer, reader) = (Q[value as usize % 4], Q[(value as usize + 1) % 4]);
        gpu.control.spin(writer, 2_000_000).unwrap();
        let sequence = gpu.submit(writer, &[], &fill(slab, value));
        let mut back = vec![0; 1 << 16];
        let sequence = gpu.download(reader, &[Wait { queue: writer, sequence }], slab, &mut back);
        gpu.cuda.synchronize(reader, sequence).unwrap();
        assert!(back.iter().all(|byte| *byte == value), "value {value}: {}", back[0]);
        // The next writer waits for nobody: everything is complete.
    }
}

/// What has happened to a slab.
#[derive(Default)]
struct Marks {
    write: Option<Wait>,
    reads: Vec<Wait>,
    value: u8,
}

/// Threads fill slabs and read them back, each slab under the rule of readers and writers that the runtime has.
fn random_programs_keep_the_order_of_their_waits() {
    const THREADS: u64 = 8;
    const OPS: u64 = 2000;
    const SIZE_BYTES: usize = 16 << 10;
    let spin = Spin { probability: 0.2, ns_max: 100_000, seed: 11 };
    let gpu =
        Gpu::new(CudaOptions { spin: Some(spin), disk_cache: DiskCache::Off, ..CudaOptions::default() });
    let slabs: Vec<(Slab, Mutex<Marks>)> =
        (0..6).map(|_| (gpu.cuda.allocate_slab(SIZE_BYTES).unwrap(), Mutex::new(Marks::default()))).collect();
    for (slab, marks) in &slabs {
        let sequence = gpu.submit(Q[0], &[], &fill(*slab, 0));
        marks.lock().unwrap().write = Some(Wait { queue: Q[0], sequence });
    }
    let reads = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (gpu, slabs, reads) = (&gpu, &slabs, &reads);
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut below = |limit: u64| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state % limit
                };
                for op in 0..OPS {
                    let queue = Q[below(4) as usize];
                    let (slab, marks) = &slabs[below(6) as usize];
                    let others = |waits: &mut dyn Iterator<Item = Wait>| -> Vec<Wait> {
                        waits.filter(|wait| wait.queue != queue).collect()
                    };
                    let mut marks = marks.lock().unwrap();
                    if below(3) == 0 {
                        let waits = others(&mut marks.write.into_iter().chain(marks.reads.drain(..)));
                        marks.value = marks.value.wrapping_add(1);
                        let sequence = gpu.submit(queue, &waits, &fill(*slab, marks.value));
                        marks.write = Some(Wait { queue, sequence });
                    } else {
                        let expected = marks.value;
                        let waits = others(&mut marks.write.into_iter());
                        let mut back = vec![0xee; SIZE_BYTES];
                        let sequence = gpu.download(queue, &waits, *slab, &mut back);
                        marks.reads.push(Wait { queue, sequence });
                        drop(marks);
                        if op % 2 == 0 {
                            gpu.cuda.synchronize(queue, sequence).unwrap();
                        } else {
                            while gpu.cuda.completed(queue) < sequence {
                                std::thread::yield_now();
                            }
                        }
                        assert!(back.iter().all(|byte| *byte == expected), "thread {thread}, op {op}");
                        reads.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert!(reads.load(Relaxed) > 1000);
}

fn memory_has_a_limit() {
    let options = CudaOptions {
        bounds: Bounds { memory_bytes: 10 << 20, ..Bounds::default() },
        ..CudaOptions::default()
    };
    let gpu = Gpu::new(CudaOptions { disk_cache: DiskCache::Off, ..options });
    let slab = gpu.cuda.allocate_slab(6 << 20).unwrap();
    assert_eq!(gpu.cuda.allocate_slab(6 << 20), Err(DeviceError::OutOfMemory { size_bytes: 6 << 20 }));
    // SAFETY: nothing was launched.
    unsafe { gpu.cuda.release_slab(slab) };
    gpu.cuda.allocate_slab(10 << 20).unwrap();
    let huge = 1 << 42;
    assert_eq!(plain().cuda.allocate_slab(huge), Err(DeviceError::OutOfMemory { size_bytes: huge }));
}

fn half_a_queue_is_waited_for_and_not_its_end() {
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(4096).unwrap();
    (0..128).for_each(|_| _ = gpu.submit(Q[0], &[], &fill(slab, 1)));
    gpu.control.spin(Q[0], 10 * LONG_NS).unwrap();
    (128..256).for_each(|_| _ = gpu.submit(Q[0], &[], &fill(slab, 1)));
    let start = Instant::now();
    gpu.cuda.synchronize(Q[0], 128).unwrap();
    assert!(start.elapsed() < Duration::from_nanos(5 * LONG_NS), "{:?}", start.elapsed());
    gpu.cuda.synchronize(Q[0], 256).unwrap();
    assert!(start.elapsed() > Duration::from_nanos(5 * LONG_NS), "{:?}", start.elapsed());
}

/// In a process of its own: the context of this one must stay whole.
fn a_trap_loses_the_device_and_nothing_hangs() {
    let output = Command::new(std::env::current_exe().unwrap()).env(TRAP, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// Other code works on a stream that is wrapped, and destroys it in flight when it is closed; the queue then stands for another.
fn wrapped_streams_are_ordered_and_closed_in_flight() {
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(1 << 20).unwrap();
    let region = [slab.handle, slab.size_bytes as u64];
    let mut back = vec![0; 1 << 20];
    for round in 0..4 {
        let handle = gpu.control.make_stream().unwrap();
        // SAFETY: it lives until it is closed; before that everything on the queue is complete.
        unsafe { gpu.cuda.open_external(WRAPPED, handle) }.unwrap();
        assert_eq!(gpu.cuda.raw_queue(WRAPPED), Some(handle));
        let mut read_behind = |sequence, value| {
            let waits = [Wait { queue: WRAPPED, sequence }];
            let last = gpu.download(Q[0], &waits, slab, &mut back);
            gpu.cuda.synchronize(Q[0], last).unwrap();
            assert!(back.iter().all(|byte| *byte == value), "round {round}: {} for {value}", back[0]);
        };
        let value = round * 3;
        // SAFETY: nobody else uses the slab before the download has waited.
        unsafe { gpu.control.fill_late(handle, LONG_NS, region, value) }.unwrap();
        assert_eq!(gpu.cuda.is_idle(WRAPPED), Some(false), "others have work there");
        let sequence = gpu.submit(WRAPPED, &[], &Launch::Nothing);
        assert!(gpu.cuda.completed(WRAPPED) < sequence, "an empty op is behind what others have put there");
        read_behind(sequence, value);
        gpu.cuda.flush(WRAPPED);
        assert_eq!(gpu.cuda.completed(WRAPPED), sequence);
        assert_eq!(gpu.cuda.is_idle(WRAPPED), Some(true));
        // Behind an op of ours, which the other stream waits for.
        let waits = [Wait { queue: Q[1], sequence: gpu.submit(Q[1], &[], &fill(slab, value + 1)) }];
        let sequence = gpu.submit(WRAPPED, &waits, &fill(slab, value + 2));
        read_behind(sequence, value + 2);
        // SAFETY: as above.
        unsafe { gpu.control.fill_late(handle, LONG_NS, region, value + 3) }.unwrap();
        let sequence = gpu.submit(WRAPPED, &[], &Launch::Nothing);
        gpu.cuda.close_external(WRAPPED);
        assert!(gpu.cuda.completed(WRAPPED) < sequence);
        // SAFETY: it was made here, and the device has let go of it.
        unsafe { gpu.control.destroy_stream(handle) }.unwrap();
        gpu.cuda.flush(WRAPPED);
        match round {
            0 => gpu.cuda.synchronize(WRAPPED, sequence).unwrap(),
            1 => while gpu.cuda.completed(WRAPPED) < sequence {},
            _ => {}
        }
        read_behind(sequence, value + 3);
        gpu.cuda.synchronize(WRAPPED, sequence).unwrap();
        assert_eq!(gpu.cuda.completed(WRAPPED), sequence);
    }
    // The legacy default stream is one like others.
    // SAFETY: it lives for ever.
    unsafe { gpu.cuda.open_external(WRAPPED, 0) }.unwrap();
    let sequence = gpu.submit(WRAPPED, &[], &fill(slab, 77));
    gpu.cuda.synchronize(WRAPPED, sequence).unwrap();
    gpu.cuda.close_external(WRAPPED);
    // SAFETY: none is looked at by the driver.
    let refused = unsafe { gpu.cuda.open_external(WRAPPED, 2) };
    assert!(matches!(refused, Err(DeviceError::Refused { handle: 2, .. })), "{refused:?}");
    // SAFETY: everything is complete.
    unsafe { gpu.cuda.release_slab(slab) };
}

/// Many threads ask and wait while a wrapped stream is closed and destroyed: nobody touches it any more.
fn wrapped_streams_are_closed_while_others_ask() {
    let gpu = plain();
    for _ in 0..200 {
        let handle = gpu.control.make_stream().unwrap();
        // SAFETY: it lives until it is closed; everything on the queue is complete.
        unsafe { gpu.cuda.open_external(WRAPPED, handle) }.unwrap();
        gpu.control.spin(WRAPPED, 100_000).unwrap();
        let sequence = gpu.submit(WRAPPED, &[], &Launch::Nothing);
        std::thread::scope(|scope| {
            for queue in [Q[0], Q[1]] {
                let gpu = &gpu;
                scope.spawn(move || {
                    let waits = [Wait { queue: WRAPPED, sequence }];
                    while gpu.cuda.completed(WRAPPED) < sequence {
                        gpu.cuda.flush(WRAPPED);
                        gpu.submit(queue, &waits, &Launch::Nothing);
                    }
                    gpu.cuda.synchronize(WRAPPED, sequence).unwrap();
                });
            }
            gpu.cuda.close_external(WRAPPED);
            // SAFETY: it was made here, and the device has let go of it.
            unsafe { gpu.control.destroy_stream(handle) }.unwrap();
        });
    }
}

/// C-13 of the reported cases, as far as it is about time.
fn times_are_the_devices() {
    let gpu = plain();
    let [start, end, last] = [0; 3].map(|_| gpu.cuda.make_timing_event().unwrap());
    let first = gpu.submit(Q[1], &[], &Launch::TimingEvent(start));
    gpu.control.spin(Q[1], 50_000_000).unwrap();
    let sequence = gpu.submit(Q[1], &[], &Launch::TimingEvent(end));
    assert!(gpu.cuda.completed(Q[1]) < sequence && first < sequence);
    let other = gpu.submit(Q[2], &[Wait { queue: Q[1], sequence }], &Launch::TimingEvent(last));
    gpu.cuda.synchronize(Q[2], other).unwrap();
    gpu.cuda.synchronize(Q[1], sequence).unwrap();
    // SAFETY: all are complete and live.
    let elapsed = |start, end| unsafe { gpu.cuda.elapsed_ms(start, end) }.unwrap();
    assert!(elapsed(start, end) >= 49.0, "{}", elapsed(start, end));
    assert!(elapsed(end, start) <= -49.0 && elapsed(end, last) >= 0.0);
    // SAFETY: nobody uses them any more.
    [start, end, last].into_iter().for_each(|timing| unsafe { gpu.cuda.release_timing_event(timing) });
}

fn priorities_reach_the_driver() {
    let gpu = plain();
    let [normal, urgent] = [Q[0], Q[3]].map(|queue| gpu.control.priority(queue).unwrap());
    // Less is more urgent. All cards of the last ten years have more than one priority.
    assert!(urgent < normal, "{urgent} and {normal}");
}

/// Spans of launches on a queue, in order.
fn spans_of(trace: &trace::Trace, queue: QueueId) -> Vec<(u64, [u64; 2])> {
    let of = |span: &trace::Span| match span.what {
        trace::What::Ran(work) if work.queue == queue.0 => {
            Some((work.sequence, [span.start_ns, span.end_ns]))
        }
        _ => None,
    };
    let mut spans: Vec<_> = trace.late.iter().filter_map(of).collect();
    spans.sort_unstable();
    spans
}

fn a_trace_tells_what_ran_when() {
    const BOUNDS: &str = "bounds of the test";
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(4096).unwrap();
    trace::enable();
    // Events are made, and time is saved up for the rest.
    (0..8).for_each(|_| _ = gpu.submit(Q[0], &[], &fill(slab, 1)));
    gpu.control.spin(Q[0], LONG_NS).unwrap();
    let before = gpu.submit(Q[0], &[], &fill(slab, 1));
    gpu.cuda.synchronize(Q[0], before).unwrap();
    let begun = trace::start().unwrap();
    let first = gpu.submit(Q[0], &[], &fill(slab, 1));
    gpu.cuda.synchronize(Q[0], first).unwrap();
    gpu.submit(Q[0], &[], &Launch::Nothing);
    // Three in a row, with something that takes its time before the second, and one of another queue behind the third.
    let second = gpu.submit(Q[0], &[], &fill(slab, 2));
    gpu.control.spin(Q[0], LONG_NS).unwrap();
    let third = gpu.submit(Q[0], &[], &fill(slab, 3));
    let fourth = gpu.submit(Q[0], &[], &fill(slab, 4));
    let early = spans_of(&trace::snapshot(), Q[0]);
    assert!(early.iter().all(|(sequence, _)| *sequence < third), "it doesn't wait: {early:?}");
    let other = gpu.submit(Q[1], &[Wait { queue: Q[0], sequence: fourth }], &fill(slab, 5));
    gpu.cuda.synchronize(Q[1], other).unwrap();
    trace::here(BOUNDS, begun);
    let trace = trace::snapshot();
    trace::disable();
    let bounds =
        trace.threads.iter().flat_map(|thread| &thread.spans).find(|span| span.name == BOUNDS).unwrap();
    let (mut spans, others) = (spans_of(&trace, Q[0]), spans_of(&trace, Q[1]));
    spans.retain(|(sequence, _)| *sequence > before);
    let numbers: Vec<u64> = spans.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(numbers, [first, second, third, fourth], "{spans:?}");
    let [[behind, end]] = others.iter().map(|(_, span)| *span).collect::<Vec<_>>()[..] else {
        panic!("{others:?}")
    };
    for (_, [start, end]) in spans.iter().chain(&others) {
        // Clocks are fitted to some microseconds.
        assert!(
            *start >= bounds.start_ns && *end <= bounds.end_ns + 1_000_000,
            "{bounds:?}, {spans:?}, {others:?}"
        );
        assert!(start <= end);
    }
    assert!(spans.is_sorted_by(|(_, before), (_, after)| before[1] <= after[0]), "{spans:?}");
    let long = spans[2].1;
    assert!(long[1] - long[0] >= LONG_NS * 9 / 10, "{spans:?}");
    assert!(long[1] - long[0] <= bounds.end_ns - bounds.start_ns);
    assert!(behind >= long[0] + LONG_NS * 9 / 10 && end >= behind, "{spans:?}, {others:?}");
    // SAFETY: everything is complete.
    unsafe { gpu.cuda.release_slab(slab) };
}

/// However fast launches come, each is timed or counted.
fn a_trace_counts_what_it_does_not_time() {
    const COUNT: u64 = 20_000;
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(4096).unwrap();
    trace::enable();
    for _ in 0..COUNT {
        let sequence = gpu.submit(Q[0], &[], &fill(slab, 1));
        if sequence.is_multiple_of(100) {
            gpu.cuda.synchronize(Q[0], sequence).unwrap();
        }
    }
    let last = gpu.submit(Q[0], &[], &fill(slab, 1));
    gpu.cuda.synchronize(Q[0], last).unwrap();
    let trace = trace::snapshot();
    trace::disable();
    let (timed, untimed) = (spans_of(&trace, Q[0]).len() as u64, trace.untimed_count);
    assert!(timed >= 50 && untimed > 0, "{timed} are timed, {untimed} not");
    assert!(timed + untimed >= COUNT, "{timed} are timed, {untimed} not");
    // SAFETY: everything is complete.
    unsafe { gpu.cuda.release_slab(slab) };
}

/// A queue stands still behind a closed gate, and others go on: also with kernels that are loaded and memory that is pinned
/// meanwhile. Places are used again.
fn a_gate_holds_its_queue_alone() {
    let gpu = plain();
    let slabs = [(); 2].map(|()| gpu.cuda.allocate_slab(1 << 20).unwrap());
    for size_bytes in [16, 4096, 1 << 20] {
        let gates = [(); 2].map(|()| gpu.cuda.make_gate().unwrap());
        // What would wait for all streams, and so for this thread. (What isn't loaded is of a test that runs in its own process.)
        let refused = [gpu.control.plant_trap(Q[0]), gpu.cuda.open_queue(QueueId(50), Priority::Normal)];
        assert!(refused.iter().all(|result| matches!(result, Err(DeviceError::Unsupported { .. }))));
        gpu.submit(Q[1], &[], &Launch::Gate(gates[0]));
        gpu.submit(Q[2], &[], &Launch::Gate(gates[1]));
        let held = gpu.submit(Q[1], &[], &fill(slabs[0], 1));
        let waits = [Wait { queue: Q[1], sequence: held }];
        let behind = gpu.submit(Q[2], &waits, &fill(slabs[0], 2));
        gpu.submit(Q[0], &[], &fill(slabs[1], 3));
        let mut back = vec![0; size_bytes];
        let beside = gpu.download(Q[0], &[], slabs[1], &mut back);
        gpu.cuda.synchronize(Q[0], beside).unwrap();
        assert!(back.iter().all(|byte| *byte == 3));
        assert!(gpu.cuda.completed(Q[1]) < held && gpu.cuda.completed(Q[2]) < behind);
        // SAFETY: they are of this device, closed, and lie in front of what is complete when they are given back.
        unsafe {
            gpu.cuda.open_gate(gates[0]);
            gpu.cuda.synchronize(Q[1], held).unwrap();
            assert!(gpu.cuda.completed(Q[2]) < behind);
            gpu.cuda.open_gate(gates[1]);
            gpu.cuda.synchronize(Q[2], behind).unwrap();
            gates.into_iter().for_each(|gate| gpu.cuda.release_gate(gate));
        }
    }
    let start = Instant::now();
    let spun = gpu.submit(Q[1], &[], &Launch::Spin(LONG_NS));
    gpu.cuda.synchronize(Q[1], spun).unwrap();
    assert!(start.elapsed() >= Duration::from_nanos(LONG_NS) * 9 / 10, "{:?}", start.elapsed());
    // SAFETY: everything is complete.
    slabs.into_iter().for_each(|slab| unsafe { gpu.cuda.release_slab(slab) });
}

/// In processes of their own, which end with their code: though a thread waits for a kernel that takes much longer, and for
/// what somebody holds.
fn a_process_ends_beside_a_kernel_that_does_not() {
    ends_soon("kernel");
    ends_soon("gate");
}

fn ends_soon(beside: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.env(ENDLESS, beside).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > ENDLESS_MAX / 2 => {
                child.kill().unwrap();
                panic!("it waits for the {beside}");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_eq!(status.code(), Some(7));
}

const ENDLESS: &str = "RADDLE_TEST_ENDLESS";
const ENDLESS_MAX: Duration = Duration::from_secs(120);

fn endless() -> ! {
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(4096).unwrap();
    if std::env::var(ENDLESS).is_ok_and(|beside| beside == "gate") {
        let gate = gpu.cuda.make_gate().unwrap();
        gpu.submit(Q[0], &[], &Launch::Gate(gate));
    } else {
        gpu.control.spin(Q[0], ENDLESS_MAX.as_nanos() as u64).unwrap();
    }
    let sequence = gpu.submit(Q[0], &[], &fill(slab, 1));
    let (tells, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: it has no preconditions.
        tells.send(unsafe { libc::gettid() }).unwrap();
        _ = gpu.cuda.synchronize(Q[0], sequence);
    });
    let state = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    // It sleeps in the driver, or is gone.
    let is_awake = || std::fs::read_to_string(&state).is_ok_and(|text| !text.contains(") S "));
    let begun = Instant::now();
    while is_awake() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    std::process::exit(7)
}

const TRAP: &str = "RADDLE_TEST_TRAP";

fn trap() {
    let gpu = plain();
    let slab = gpu.cuda.allocate_slab(4096).unwrap();
    let before = gpu.submit(Q[0], &[], &fill(slab, 1));
    gpu.cuda.synchronize(Q[0], before).unwrap();
    gpu.control.plant_trap(Q[0]).unwrap();
    let mut back = vec![0; 4096];
    let waits = [Wait { queue: Q[0], sequence: gpu.submit(Q[0], &[], &fill(slab, 2)) }];
    // The error may be met by any call from now on.
    let doomed = gpu.try_submit(Q[1], &waits, &Launch::Download { from: start(slab), to: host(&mut back) });
    let error = match doomed {
        Ok(sequence) => gpu.cuda.synchronize(Q[1], sequence).unwrap_err(),
        Err(error) => error,
    };
    let DeviceError::Lost { suspects, .. } = &error else { panic!("{error}") };
    assert!(suspects.contains(&waits[0]), "{error}");
    eprintln!("{error}");
    for queue in Q {
        assert_eq!(gpu.cuda.completed(queue), *gpu.sequences[&queue].lock().unwrap(), "all is complete");
        gpu.cuda.flush(queue);
    }
    assert!(matches!(gpu.try_submit(Q[2], &[], &Launch::Nothing), Err(DeviceError::Lost { .. })));
    assert!(matches!(gpu.cuda.allocate_slab(1), Err(DeviceError::Lost { .. })));
    assert_eq!(gpu.cuda.take_kernel_error(Q[0], 1), None);
    // SAFETY: everything counts as complete.
    unsafe { gpu.cuda.release_slab(slab) };
}

fn main() -> ExitCode {
    if std::env::var_os(ENDLESS).is_some() {
        endless();
    }
    if std::env::var_os(TRAP).is_some() {
        trap();
        return ExitCode::SUCCESS;
    }
    let absent = device_count() == Ok(0);
    if absent {
        println!("skipped: no CUDA device");
    }
    let test = |name: &str, body: fn()| {
        Trial::test(name, move || {
            body();
            Ok(())
        })
        .with_ignored_flag(absent)
    };
    let tests = vec![
        test("bytes_go_there_and_back", bytes_go_there_and_back),
        test("completion_is_seen_without_waiting", completion_is_seen_without_waiting),
        test("waits_order_queues", waits_order_queues),
        test("random_programs_keep_the_order_of_their_waits", random_programs_keep_the_order_of_their_waits),
        test("memory_has_a_limit", memory_has_a_limit),
        test("half_a_queue_is_waited_for_and_not_its_end", half_a_queue_is_waited_for_and_not_its_end),
        test(
            "wrapped_streams_are_ordered_and_closed_in_flight",
            wrapped_streams_are_ordered_and_closed_in_flight,
        ),
        test("wrapped_streams_are_closed_while_others_ask", wrapped_streams_are_closed_while_others_ask),
        test("times_are_the_devices", times_are_the_devices),
        test("priorities_reach_the_driver", priorities_reach_the_driver),
        test("a_trace_tells_what_ran_when", a_trace_tells_what_ran_when),
        test("a_trace_counts_what_it_does_not_time", a_trace_counts_what_it_does_not_time),
        test("a_gate_holds_its_queue_alone", a_gate_holds_its_queue_alone),
        test("a_process_ends_beside_a_kernel_that_does_not", a_process_ends_beside_a_kernel_that_does_not),
        test("a_trap_loses_the_device_and_nothing_hangs", a_trap_loses_the_device_and_nothing_hangs),
    ];
    // One at a time: they share a context, and pinning memory for one holds up the copies of another.
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests).exit_code()
}
