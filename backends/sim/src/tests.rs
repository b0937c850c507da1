//! Tests of the simulator over a device of a few lines that executes at once.

use crate::{
    OutOfMemory, Sim, SimOptions,
    piece::{Piece, cut},
    random::Random,
    state::Pick,
};
use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_hal::{
    Address, Device, DeviceError, HostBytes, Info, Kernel, KernelError, Launch, Operand, Priority, QueueId,
    Slab, Submitted, View, Wait,
};
use raddle_op::Pointwise;
use raddle_sync::faults::{Fault, assert_caught};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering::*},
};

const Q0: QueueId = QueueId(0);
const Q1: QueueId = QueueId(1);
const SIZE_BYTES: usize = 1000;

/// Moves bytes, and fails `Kernel::Gather`; knows no other kernel.
struct Mover {
    info: Info,
    completed: AtomicU64,
}

impl Mover {
    fn new() -> Box<Mover> {
        let info = Info {
            name: "mover".into(),
            description: String::new(),
            memory_bytes: None,
            in_flight_count_max: 1,
            alignment_bytes: 1,
            dtypes: raddle_hal::DTypes::ALL,
            poison: false,
            survives_fork: true,
            is_host: true,
            prepares: false,
            bounds: raddle_hal::Bounds::default(),
            source: raddle_hal::trace::Source::new(),
        };
        Box::new(Mover { info, completed: AtomicU64::new(0) })
    }
}

const GATHER_ERROR: KernelError = KernelError::IndexOutOfRange { index: 5, position: 0, size: 3 };

impl Device for Mover {
    fn info(&self) -> &Info {
        &self.info
    }
    fn allocate_slab(&self, size_bytes: usize) -> Result<Slab, DeviceError> {
        let memory = Box::leak(vec![0u8; size_bytes].into_boxed_slice());
        Ok(Slab { handle: memory.as_mut_ptr() as u64, size_bytes })
    }
    unsafe fn release_slab(&self, slab: Slab) {
        let memory = std::ptr::slice_from_raw_parts_mut(slab.handle as *mut u8, slab.size_bytes);
        // SAFETY: it was leaked by `allocate_slab` with this size, and is given back once.
        drop(unsafe { Box::from_raw(memory) });
    }
    fn open_queue(&self, _queue: QueueId, _priority: Priority) -> Result<(), DeviceError> {
        Ok(())
    }
    unsafe fn submit(
        &self,
        _queue: QueueId,
        sequence: u64,
        _waits: &[Wait],
        _launch: &Launch<'_>,
    ) -> Result<Submitted, DeviceError> {
        assert_eq!(sequence, self.completed.load(Relaxed) + 1);
        Ok(Submitted::Inline)
    }
    unsafe fn run(&self, _queue: QueueId, sequence: u64, launch: &Launch<'_>) -> Result<(), KernelError> {
        let copy = |from: usize, to: usize, size_bytes| {
            // SAFETY: by the contract of a launch both ranges are live and touched by nobody else.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, size_bytes) }
        };
        let pointer = |address: Address| address.handle as usize + address.offset_bytes;
        self.completed.store(sequence, Relaxed);
        match *launch {
            Launch::Upload { from, to } => copy(from.address, pointer(to), from.size_bytes),
            Launch::Download { from, to } => copy(pointer(from), to.address, to.size_bytes),
            Launch::FillBytes { to, size_bytes, value } => {
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(pointer(to) as *mut u8, value, size_bytes) }
            }
            Launch::Kernel { kernel: Kernel::Gather { .. }, .. } => return Err(GATHER_ERROR),
            Launch::Kernel { .. } | Launch::Graph { .. } => panic!("planted"),
            Launch::TimingEvent(_) | Launch::Spin(_) | Launch::Gate(_) | Launch::Nothing => {}
        }
        Ok(())
    }
    fn completed(&self, _queue: QueueId) -> u64 {
        self.completed.load(Relaxed)
    }
    fn flush(&self, _queue: QueueId) {}
    fn synchronize(&self, _queue: QueueId, _sequence: u64) -> Result<(), DeviceError> {
        Ok(())
    }
    fn take_kernel_error(&self, _queue: QueueId, _sequence: u64) -> Option<KernelError> {
        None
    }
}

/// A simulator with two queues, and a slab, which is never given back: what is queued may still name it.
struct Bench {
    sim: Sim,
    slab: Slab,
}

impl Bench {
    fn new(options: SimOptions) -> Bench {
        let sim = Sim::new(Mover::new(), options).unwrap();
        sim.open_queue(Q0, Priority::Normal).unwrap();
        sim.open_queue(Q1, Priority::Normal).unwrap();
        let slab = sim.allocate_slab(SIZE_BYTES).unwrap();
        Bench { sim, slab }
    }
    fn seed(seed: u64) -> Bench {
        Bench::new(SimOptions { seed, ..SimOptions::default() })
    }
    fn address(&self) -> Address {
        Address { handle: self.slab.handle, offset_bytes: 0 }
    }
    fn fill(&self, value: u8) -> Launch<'static> {
        Launch::FillBytes { to: self.address(), size_bytes: SIZE_BYTES, value }
    }
    fn download(&self, to: &mut [u8]) -> Launch<'static> {
        let to = HostBytes { address: to.as_mut_ptr() as usize, size_bytes: to.len() };
        Launch::Download { from: self.address(), to }
    }
    fn try_submit(
        &self,
        queue: QueueId,
        sequence: u64,
        waits: &[Wait],
        launch: &Launch<'_>,
    ) -> Result<(), DeviceError> {
        // SAFETY: numbers grow by one; memory lives as long as the bench or until the test has synchronized. Some tests
        // leave a wait out: nothing here runs two pieces at once, so that shows, and is no data race.
        unsafe { self.sim.submit(queue, sequence, waits, launch) }
            .map(|submitted| assert_eq!(submitted, Submitted::Queued))
    }
    fn submit(&self, queue: QueueId, sequence: u64, waits: &[Wait], launch: &Launch<'_>) {
        self.try_submit(queue, sequence, waits, launch).unwrap();
    }
}

#[test]
#[should_panic(expected = "sim: a slab is released that op 1 of queue 0 still names")]
fn a_slab_in_use_is_not_released() {
    let bench = Bench::new(SimOptions::default());
    let to = Address { handle: bench.slab.handle, offset_bytes: 0 };
    bench.submit(QueueId(0), 1, &[], &Launch::FillBytes { to, size_bytes: 1, value: 1 });
    // SAFETY: none: the contract is broken on purpose, and the simulator refuses before it does anything.
    unsafe { bench.sim.release_slab(bench.slab) };
}

#[test]
fn a_slab_of_a_running_piece_is_in_use() {
    let bench =
        Bench::new(SimOptions { cut_probability: 0.0, slow_probability: 0.0, ..SimOptions::default() });
    bench.submit(Q0, 1, &[], &bench.fill(1));
    let mut state = bench.sim.shared.state.lock();
    let begun = state.begin(Pick::For(Q0)).ok().flatten().expect("nothing is in its way");
    assert_eq!(state.user_of(bench.slab.handle), Some(Wait { queue: Q0, sequence: 1 }));
    drop(begun);
    state.end(Q0, Ok(Ok(())));
    assert_eq!(state.user_of(bench.slab.handle), None);
}

/// What a download on queue 1 sees of two fills on queue 0, with a wait for the second or without any.
fn observed(seed: u64, with_wait: bool) -> Vec<u8> {
    let bench = Bench::seed(seed);
    bench.submit(Q0, 1, &[], &bench.fill(1));
    bench.submit(Q0, 2, &[], &bench.fill(2));
    let waits = [Wait { queue: Q0, sequence: 2 }];
    let mut host = vec![9; SIZE_BYTES];
    bench.submit(Q1, 1, if with_wait { &waits } else { &[] }, &bench.download(&mut host));
    assert_eq!(host, [9; SIZE_BYTES], "nothing runs at submission");
    bench.sim.synchronize(Q1, 1).unwrap();
    host
}

#[test]
fn a_missing_wait_shows_as_a_swap_and_as_a_tear() {
    let all: Vec<Vec<u8>> = (0..100).map(|seed| observed(seed, false)).collect();
    let is = |value: u8| move |host: &&Vec<u8>| host.iter().all(|&byte| byte == value);
    for value in 0..3 {
        assert!(all.iter().any(|host| is(value)(&host)), "the download is never just behind fill {value}");
    }
    let torn = all.iter().filter(|host| host.iter().collect::<BTreeSet<_>>().len() > 1).count();
    assert!(torn > 5, "{torn} of 100 torn");
}

#[test]
fn with_the_wait_nothing_shows() {
    for seed in 0..200 {
        assert_eq!(observed(seed, true), [2; SIZE_BYTES], "seed {seed}");
    }
}

#[test]
fn the_same_seed_and_calls_execute_the_same() {
    let history = |seed| {
        let bench = Bench::seed(seed);
        for sequence in 1..=40 {
            bench.submit(Q0, sequence, &[], &bench.fill(sequence as u8));
            let waits = [Wait { queue: Q0, sequence: sequence / 2 }];
            bench.submit(Q1, sequence, if sequence % 3 == 0 { &waits } else { &[] }, &bench.fill(0));
            bench.sim.completed(Q1);
        }
        bench.sim.synchronize(Q1, 40).unwrap();
        bench.sim.history().to_string()
    };
    let first = history(7);
    assert!(first.starts_with("sim: seed 7, replay with sim:7; the last"), "{first}");
    assert!(first.contains("queue 1, op 40: fill_bytes, piece 1 of"), "{first}");
    assert_eq!(history(7), first);
    assert_ne!(history(8).lines().skip(1).collect::<Vec<_>>(), first.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn fault_unseeded_order() {
    assert_caught(Fault::unseeded_order, "tests::the_same_seed_and_calls_execute_the_same");
}

#[test]
fn polling_gets_there_and_an_op_is_complete_only_as_a_whole() {
    let bench =
        Bench::new(SimOptions { cut_probability: 1.0, slow_probability: 1.0, ..SimOptions::default() });
    bench.submit(Q0, 1, &[], &bench.fill(1));
    bench.submit(Q0, 2, &[], &bench.fill(2));
    let memory = || {
        // SAFETY: the slab lives, and nothing runs but in calls of this thread.
        unsafe { std::slice::from_raw_parts(bench.slab.handle as *const u8, SIZE_BYTES) }
    };
    let mut polls = 0;
    while bench.sim.completed(Q0) < 2 {
        polls += 1;
        assert!(polls < 10_000);
        let completed = bench.sim.completed(Q0);
        assert!(completed == 0 || memory().iter().all(|&byte| byte >= completed as u8));
    }
    assert!(polls > 2, "slow launches take their time");
    assert!(memory().iter().all(|&byte| byte == 2));
}

#[test]
fn a_full_queue_makes_room() {
    for needs_flush in [false, true] {
        let options = SimOptions { in_flight_count_max: 4, needs_flush, ..SimOptions::default() };
        let bench = Bench::new(options);
        assert_eq!(bench.sim.info().in_flight_count_max, 4);
        for sequence in 1..=100 {
            bench.submit(Q0, sequence, &[], &Launch::Nothing);
            assert!(bench.sim.completed(Q0) + 4 >= sequence);
        }
        bench.sim.synchronize(Q0, 100).unwrap();
    }
}

#[test]
fn what_is_not_flushed_does_not_run() {
    let bench = Bench::new(SimOptions { needs_flush: true, ..SimOptions::default() });
    bench.submit(Q0, 1, &[], &Launch::Nothing);
    bench.submit(Q0, 2, &[], &Launch::Nothing);
    (0..100).for_each(|_| assert_eq!(bench.sim.completed(Q0), 0));
    // A wait commits what it waits for, and no more.
    bench.submit(Q1, 1, &[Wait { queue: Q0, sequence: 1 }], &Launch::Nothing);
    bench.sim.synchronize(Q1, 1).unwrap();
    (0..100).for_each(|_| assert_eq!(bench.sim.completed(Q0), 1));
    bench.sim.flush(Q0);
    assert!((0..1000).any(|_| bench.sim.completed(Q0) == 2));
}

#[test]
fn memory_runs_out_when_told_to() {
    let bench = Bench::new(SimOptions { out_of_memory: OutOfMemory::At(2), ..SimOptions::default() });
    let refused = bench.sim.allocate_slab(77);
    assert_eq!(refused, Err(DeviceError::OutOfMemory { size_bytes: 77 }));
    let slab = bench.sim.allocate_slab(77).unwrap();
    // SAFETY: it came from this device, and nothing names it.
    unsafe { bench.sim.release_slab(slab) };

    let bench =
        Sim::new(Mover::new(), SimOptions { out_of_memory: OutOfMemory::Rate(0.5), ..SimOptions::default() });
    let bench = bench.unwrap();
    let slabs: Vec<Slab> = (0..200).filter_map(|_| bench.allocate_slab(1).ok()).collect();
    assert!((60..140).contains(&slabs.len()), "{} of 200", slabs.len());
    // SAFETY: as above.
    slabs.into_iter().for_each(|slab| unsafe { bench.release_slab(slab) });
}

#[test]
fn a_lost_device_stays_lost_and_everything_is_complete() {
    let bench =
        Bench::new(SimOptions { lose_after_count: Some(3), slow_probability: 0.0, ..SimOptions::default() });
    for sequence in 1..=5 {
        bench.submit(Q0, sequence, &[], &Launch::Nothing);
    }
    bench.submit(Q1, 1, &[Wait { queue: Q0, sequence: 5 }], &Launch::Nothing);
    let lost = DeviceError::Lost {
        reason: "the simulator was told to",
        suspects: vec![Wait { queue: Q0, sequence: 3 }],
    };
    assert_eq!(bench.sim.synchronize(Q1, 1), Err(lost.clone()));
    assert_eq!((bench.sim.completed(Q0), bench.sim.completed(Q1)), (5, 1));
    assert_eq!(bench.try_submit(Q0, 6, &[], &Launch::Nothing), Err(lost.clone()));
    assert_eq!(bench.sim.allocate_slab(1), Err(lost.clone()));
    assert_eq!(bench.sim.open_queue(QueueId(2), Priority::Normal), Err(lost));
}

#[test]
fn errors_of_kernels_are_told_once() {
    let bench = Bench::seed(0);
    let gather = Launch::Kernel { kernel: &Kernel::Gather { axis: 0, repeats: 1 }, operands: &[] };
    bench.submit(Q0, 1, &[], &Launch::Nothing);
    bench.submit(Q0, 2, &[], &gather);
    bench.sim.synchronize(Q0, 2).unwrap();
    assert_eq!(bench.sim.take_kernel_error(Q0, 1), None);
    assert_eq!(bench.sim.take_kernel_error(Q0, 2), Some(GATHER_ERROR));
    assert_eq!(bench.sim.take_kernel_error(Q0, 2), None);
}

#[test]
fn a_panic_of_the_wrapped_device_loses_this_one() {
    let bench = Bench::seed(0);
    bench.submit(Q0, 1, &[], &Launch::Kernel { kernel: &Kernel::NonZero, operands: &[] });
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.sim.synchronize(Q0, 1)));
    assert!(panic.is_err());
    let lost = DeviceError::Lost {
        reason: "the wrapped device panicked",
        suspects: vec![Wait { queue: Q0, sequence: 1 }],
    };
    assert_eq!(bench.sim.synchronize(Q0, 1), Err(lost));
    assert_eq!(bench.sim.completed(Q0), 1);
}

#[test]
fn other_code_is_in_order_on_its_stream_and_can_be_held() {
    for seed in 0..50 {
        let bench = Bench::seed(seed);
        let others = bench.sim.others();
        let handle = others.make_stream().unwrap();
        let (wrapped, line) = (QueueId(70), QueueId(handle as u8));
        // SAFETY: the stream is the simulator's own; what the launches name lives as long as the bench.
        let fill = |value| unsafe { others.submit(handle, &bench.fill(value)) };
        fill(1);
        // SAFETY: as above; the queue has never been opened.
        unsafe { bench.sim.open_external(wrapped, handle) }.unwrap();
        assert_eq!((bench.sim.raw_queue(wrapped), bench.sim.raw_queue(Q0)), (Some(handle), Some(0)));
        fill(2);
        others.hold(line);
        let mut host = [vec![9; SIZE_BYTES], vec![9; SIZE_BYTES]];
        bench.submit(wrapped, 1, &[], &bench.download(&mut host[0]));
        fill(3);
        bench.submit(wrapped, 2, &[], &bench.download(&mut host[1]));
        bench.submit(Q0, 1, &[], &Launch::Nothing);
        bench.sim.synchronize(Q0, 1).unwrap();
        (0..100).for_each(|_| assert_eq!(bench.sim.completed(wrapped), 0, "it is held"));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| bench.sim.synchronize(wrapped, 2).unwrap());
            others.let_go(line);
            waiter.join().unwrap();
        });
        assert_eq!(host, [vec![2; SIZE_BYTES], vec![3; SIZE_BYTES]], "seed {seed}");
        bench.sim.close_external(wrapped);
    }
}

#[test]
fn threads_that_ask_at_once_all_get_there() {
    let bench = Bench::seed(3);
    const OPS: u64 = 500;
    std::thread::scope(|scope| {
        for queue in [Q0, Q1] {
            let bench = &bench;
            scope.spawn(move || {
                for sequence in 1..=OPS {
                    bench.submit(queue, sequence, &[], &Launch::Nothing);
                    if sequence % 7 == 0 {
                        bench.sim.synchronize(queue, sequence).unwrap();
                    }
                }
                bench.sim.synchronize(queue, OPS).unwrap();
                assert_eq!(bench.sim.completed(queue), OPS);
            });
        }
    });
}

/// Every element of every operand is in one piece, in step with the other operands, and pieces are in order.
#[test]
fn pieces_cover_a_launch_exactly() {
    let view = |layout: Layout, handle| View {
        address: Address { handle, offset_bytes: 0 },
        dtype: DType::F32,
        layout,
    };
    let shape = Dims::new(&[1, 6, 4]).unwrap();
    let packed = Layout::contiguous(shape);
    let stepped = Layout::new(shape, Dims::new(&[0, 2, 20]).unwrap(), 3);
    let expanded = Layout::new(shape, Dims::new(&[0, 0, 1]).unwrap(), 0);
    let group =
        [Operand::Out(view(stepped, 1)), Operand::In(view(packed, 2)), Operand::In(view(expanded, 3))];
    let operands: Vec<Operand> = group.iter().chain(&group).copied().collect();
    let add = Kernel::Pointwise {
        program: Pointwise::add.into(),
        compute: DType::F32,
        params: [Scalar::Int(0); raddle_op::PARAM_COUNT_MAX],
        groups: 2,
    };
    let softmax = Kernel::Softmax { axis: 1, log: false };
    let rows = [Operand::Out(view(Layout::contiguous(Dims::new(&[5, 3]).unwrap()), 1)); 2];
    let mut random = Random::new(1);
    let mut most = 0;
    for (kernel, operands, groups) in [(&add, &operands[..], 2), (&softmax, &rows[..], 1)] {
        let per_group = operands.len() / groups;
        for _ in 0..50 {
            let launch = Launch::Kernel { kernel, operands };
            // SAFETY: it uploads nothing.
            let pieces = unsafe { cut(&launch, true, &mut random) };
            most = most.max(pieces.len());
            let mut offsets = vec![Vec::new(); operands.len()];
            let mut group = 0;
            for piece in &pieces {
                let Launch::Kernel { kernel, operands: narrowed } = piece.launch() else { unreachable!() };
                if let Kernel::Pointwise { groups, .. } = kernel {
                    assert_eq!(*groups, 1);
                }
                assert_eq!(narrowed.len(), per_group);
                for (index, operand) in narrowed.iter().enumerate() {
                    let original = &operands[group * per_group + index];
                    assert_eq!(operand.is_out(), original.is_out());
                    assert_eq!(operand.view().address, original.view().address);
                    offsets[group * per_group + index].extend(operand.view().layout.offsets());
                }
                if offsets[group * per_group].len() == operands[group * per_group].shape().product() {
                    group += 1;
                }
            }
            assert_eq!(group, groups);
            for (offsets, operand) in offsets.iter().zip(operands) {
                assert_eq!(*offsets, operand.view().layout.offsets().collect::<Vec<_>>());
            }
        }
    }
    assert!(most > 4, "launches are cut");
    // A reduction is not.
    let sum = Kernel::Reduce { op: raddle_op::ReduceOp::Sum, axes: 1, divisor: 1.0 };
    // SAFETY: as above.
    let whole = unsafe { cut(&Launch::Kernel { kernel: &sum, operands: &rows }, true, &mut random) };
    assert!(
        matches!(&whole.iter().collect::<Vec<_>>()[..], [Piece::Kernel { operands, .. }] if operands.len() == 2)
    );
}
