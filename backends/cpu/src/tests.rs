//! Tests of the device, and of its queues without one. A submission that was answered `Inline` and has not been run yet
//! keeps its queue busy for as long as a test likes, so no test sleeps to get an order.

use crate::{Cpu, queue::Queues};
use raddle_base::{DType, Dims, Layout};
use raddle_hal::{
    Address, Bounds, Device, DeviceError, HostBytes, Kernel, KernelError, Launch, Operand, Priority, QueueId,
    Slab, Submitted, View, Wait,
};
use raddle_sync::faults::{Fault, assert_caught};
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::*},
};

const Q0: QueueId = QueueId(0);
const Q1: QueueId = QueueId(1);

fn wait(queue: QueueId, sequence: u64) -> Wait {
    Wait { queue, sequence }
}

fn device(queue_count: u8) -> Cpu {
    let cpu = Cpu::new();
    for queue in 0..queue_count {
        cpu.open_queue(QueueId(queue), Priority::Normal).unwrap();
    }
    cpu
}

/// A slab that is given back at the end.
struct Memory<'a>(&'a Cpu, Slab);

impl<'a> Memory<'a> {
    fn new(cpu: &'a Cpu, size_bytes: usize) -> Memory<'a> {
        Memory(cpu, cpu.allocate_slab(size_bytes).unwrap())
    }
    fn address(&self) -> Address {
        Address { handle: self.1.handle, offset_bytes: 0 }
    }
    fn fill(&self, value: u8) -> Launch<'static> {
        Launch::FillBytes { to: self.address(), size_bytes: self.1.size_bytes, value }
    }
    fn download(&self, to: &mut [u8]) -> Launch<'static> {
        let to = HostBytes { address: to.as_mut_ptr() as usize, size_bytes: to.len() };
        Launch::Download { from: self.address(), to }
    }
    fn upload(&self, from: &[u8]) -> Launch<'static> {
        let from = HostBytes { address: from.as_ptr() as usize, size_bytes: from.len() };
        Launch::Upload { from, to: self.address() }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: the tests wait for what they submit.
        unsafe { self.0.release_slab(self.1) };
    }
}

fn submit(cpu: &Cpu, queue: QueueId, sequence: u64, waits: &[Wait], launch: &Launch<'_>) -> Submitted {
    // SAFETY: the tests number their launches, order them, and keep memory until they are complete.
    unsafe { cpu.submit(queue, sequence, waits, launch) }.unwrap()
}

fn run(cpu: &Cpu, queue: QueueId, sequence: u64, launch: &Launch<'_>) {
    // SAFETY: called where `submit` has answered `Inline`.
    unsafe { cpu.run(queue, sequence, launch) }.unwrap();
}

#[test]
fn an_idle_queue_runs_inline_and_a_busy_one_keeps_the_order() {
    let cpu = device(1);
    let memory = Memory::new(&cpu, 1000);
    let first = memory.fill(1);
    assert_eq!(submit(&cpu, Q0, 1, &[], &first), Submitted::Inline);
    assert_eq!(cpu.completed(Q0), 0);

    let mut host = [0; 1000];
    assert_eq!(submit(&cpu, Q0, 2, &[], &memory.download(&mut host)), Submitted::Queued);
    let mut source = [2; 1000];
    assert_eq!(submit(&cpu, Q0, 3, &[], &memory.upload(&source)), Submitted::Queued);
    source.fill(9); // It has been read.
    let mut later = [0; 1000];
    assert_eq!(submit(&cpu, Q0, 4, &[], &memory.download(&mut later)), Submitted::Queued);
    assert_eq!(cpu.completed(Q0), 0, "nothing overtakes the first");

    run(&cpu, Q0, 1, &first);
    cpu.synchronize(Q0, 4).unwrap();
    assert_eq!((cpu.completed(Q0), host, later), (4, [1; 1000], [2; 1000]));

    assert_eq!(submit(&cpu, Q0, 5, &[], &Launch::Nothing), Submitted::Inline);
    run(&cpu, Q0, 5, &Launch::Nothing);
    assert_eq!(cpu.completed(Q0), 5);
    _ = source;
}

#[test]
fn fault_upload_borrows() {
    let test = "tests::an_idle_queue_runs_inline_and_a_busy_one_keeps_the_order";
    assert_caught(Fault::upload_borrows, test);
}

/// What is uploaded to a busy queue is copied only if it isn't large: else it waits for its turn.
#[test]
fn a_large_upload_waits_for_its_turn() {
    let cpu = device(2);
    let memory = Memory::new(&cpu, 10_000);
    let fill = memory.fill(1);
    assert_eq!(submit(&cpu, Q0, 1, &[], &fill), Submitted::Inline);
    let (mut host, mut later) = ([0; 10_000], [0; 10_000]);
    assert_eq!(submit(&cpu, Q1, 1, &[wait(Q0, 1)], &memory.download(&mut host)), Submitted::Queued);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let source = vec![2; 10_000];
            let upload = memory.upload(&source);
            assert_eq!(submit(&cpu, Q0, 2, &[wait(Q1, 1)], &upload), Submitted::Inline);
            run(&cpu, Q0, 2, &upload);
        });
        assert_eq!(cpu.completed(Q1), 0);
        run(&cpu, Q0, 1, &fill);
    });
    assert_eq!(cpu.completed(Q1), 1);
    let download = memory.download(&mut later);
    assert_eq!(submit(&cpu, Q0, 3, &[], &download), Submitted::Inline);
    run(&cpu, Q0, 3, &download);
    assert_eq!((host, later), ([1; 10_000], [2; 10_000]));
}

#[test]
fn a_queue_waits_for_another() {
    let cpu = device(2);
    let memory = Memory::new(&cpu, 4096);
    let fill = memory.fill(7);
    assert_eq!(submit(&cpu, Q0, 1, &[], &fill), Submitted::Inline);
    let mut host = [0; 4096];
    assert_eq!(submit(&cpu, Q1, 1, &[wait(Q0, 1)], &memory.download(&mut host)), Submitted::Queued);
    assert_eq!(submit(&cpu, Q1, 2, &[], &Launch::Nothing), Submitted::Queued);
    assert_eq!(cpu.completed(Q1), 0);
    run(&cpu, Q0, 1, &fill);
    cpu.synchronize(Q1, 2).unwrap();
    assert_eq!(host, [7; 4096]);
    assert_eq!(submit(&cpu, Q1, 3, &[wait(Q0, 1)], &Launch::Nothing), Submitted::Inline, "the wait is over");
    run(&cpu, Q1, 3, &Launch::Nothing);
}

#[test]
fn a_panic_loses_the_device_and_hangs_nobody() {
    for queued in [false, true] {
        let cpu = device(2);
        // A kernel without the operands that it must have.
        let broken = Launch::Kernel { kernel: &Kernel::NonZero, operands: &[] };
        let mut sequence = 0;
        if queued {
            assert_eq!(submit(&cpu, Q0, 1, &[], &Launch::Nothing), Submitted::Inline);
            assert_eq!(submit(&cpu, Q0, 2, &[], &broken), Submitted::Queued);
            assert_eq!(submit(&cpu, Q0, 3, &[], &Launch::Nothing), Submitted::Queued);
            assert_eq!(submit(&cpu, Q1, 1, &[wait(Q0, 3)], &Launch::Nothing), Submitted::Queued);
            run(&cpu, Q0, 1, &Launch::Nothing);
            sequence = 1;
        } else {
            assert_eq!(submit(&cpu, Q0, 1, &[], &broken), Submitted::Inline);
            run(&cpu, Q0, 1, &broken);
        }
        let lost = DeviceError::Lost {
            reason: "a kernel panicked",
            suspects: vec![wait(Q0, if queued { 2 } else { 1 })],
        };
        assert_eq!(cpu.synchronize(Q1, sequence), Err(lost.clone()));
        // SAFETY: the launch has no operands.
        assert_eq!(unsafe { cpu.submit(Q1, sequence + 1, &[], &Launch::Nothing) }, Err(lost.clone()));
        assert_eq!(cpu.completed(Q1), sequence);
        // What was refused has used its number up, and nobody waits for it.
        assert_eq!([Q0, Q1].map(|queue| cpu.synchronize(queue, 10)), [Err(lost.clone()), Err(lost)]);
    }
}

/// The worst that a machine can do: it gives no thread at all.
#[test]
fn where_there_are_no_workers_who_submits_waits_and_runs() {
    let cpu = device(2);
    cpu.workers.set(Vec::new()).expect("none has been wanted yet");
    let memory = Memory::new(&cpu, 4096);
    let (fill, mut host) = (memory.fill(7), [0; 4096]);
    assert_eq!(submit(&cpu, Q0, 1, &[], &fill), Submitted::Inline);
    std::thread::scope(|scope| {
        let download = memory.download(&mut host);
        let cpu = &cpu;
        let waits = scope.spawn(move || {
            assert_eq!(submit(cpu, Q1, 1, &[wait(Q0, 1)], &download), Submitted::Inline);
            run(cpu, Q1, 1, &download);
        });
        while !cpu.shared.queues.is_awaited(Q0) && !waits.is_finished() {
            std::thread::yield_now();
        }
        run(cpu, Q0, 1, &fill);
        waits.join().unwrap();
    });
    cpu.synchronize(Q1, 1).unwrap();
    assert_eq!(host, [7; 4096]);
}

#[test]
fn an_error_of_a_queued_kernel_is_kept_until_asked_for() {
    let cpu = device(1);
    // Three indices into two elements, and room for the result.
    let memory = Memory::new(&cpu, 64);
    let view = |offset_bytes, dtype, count| View {
        address: Address { offset_bytes, ..memory.address() },
        dtype,
        layout: Layout::contiguous(Dims::filled(count, 1)),
    };
    let operands = [
        Operand::Out(view(48, DType::F32, 3)),
        Operand::In(view(0, DType::F32, 2)),
        Operand::In(view(16, DType::I64, 3)),
    ];
    let gather = Launch::Kernel { kernel: &Kernel::Gather { axis: 0, repeats: 1 }, operands: &operands };
    let fill = memory.fill(1); // Each index is 0x0101010101010101.
    let error = KernelError::IndexOutOfRange { index: 0x0101_0101_0101_0101, position: 0, size: 2 };
    assert_eq!(submit(&cpu, Q0, 1, &[], &fill), Submitted::Inline);
    assert_eq!(submit(&cpu, Q0, 2, &[], &gather), Submitted::Queued);
    run(&cpu, Q0, 1, &fill);
    cpu.synchronize(Q0, 2).unwrap();
    assert_eq!(cpu.take_kernel_error(Q0, 1), None);
    assert_eq!(cpu.take_kernel_error(Q0, 2), Some(error));
    assert_eq!(cpu.take_kernel_error(Q0, 2), None, "told once");
    assert_eq!(submit(&cpu, Q0, 3, &[], &gather), Submitted::Inline);
    // SAFETY: as in `run`.
    assert_eq!(unsafe { cpu.run(Q0, 3, &gather) }, Err(error), "an inline one is told at once");
    assert_eq!((cpu.take_kernel_error(Q0, 3), cpu.completed(Q0)), (None, 3));
}

#[test]
fn memory_has_a_limit() {
    let cpu = Cpu::with_bounds(Bounds { memory_bytes: 1000, ..Bounds::default() });
    assert_eq!(cpu.info().memory_bytes, Some(1000));
    let first = cpu.allocate_slab(600).unwrap();
    assert_eq!(cpu.allocate_slab(600), Err(DeviceError::OutOfMemory { size_bytes: 600 }));
    assert_eq!(cpu.allocate_slab(usize::MAX), Err(DeviceError::OutOfMemory { size_bytes: usize::MAX }));
    // SAFETY: it came from this device, and nothing was launched.
    unsafe { cpu.release_slab(first) };
    let second = cpu.allocate_slab(1000).unwrap();
    // SAFETY: as above.
    unsafe { cpu.release_slab(second) };
}

#[test]
fn a_device_can_be_dropped_with_work_queued() {
    let cpu = device(2);
    assert_eq!(submit(&cpu, Q0, 1, &[], &Launch::Nothing), Submitted::Inline);
    assert_eq!(submit(&cpu, Q0, 2, &[], &Launch::Nothing), Submitted::Queued);
    assert_eq!(submit(&cpu, Q1, 1, &[wait(Q0, 2)], &Launch::Nothing), Submitted::Queued);
}

/// A small generator of numbers (xorshift64*), so that a seed names a run.
struct Random(u64);
impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % limit
    }
}

/// What has happened to a buffer: the last write and the reads since, and the byte it holds in program order.
#[derive(Default)]
struct Marks {
    write: Option<Wait>,
    reads: Vec<Wait>,
    value: u8,
}

#[test]
fn random_programs_of_many_threads_keep_the_order_of_their_waits() {
    const THREADS: u64 = 8;
    const OPS: u64 = 300;
    const SIZE_BYTES: usize = 16 << 10;
    let cpu = device(THREADS as u8 / 2);
    let memories: Vec<Memory<'_>> = (0..5).map(|_| Memory::new(&cpu, SIZE_BYTES)).collect();
    let marks: Vec<Mutex<Marks>> = memories.iter().map(|_| Mutex::default()).collect();
    // Two threads share a queue.
    let sequences: Vec<Mutex<u64>> = (0..THREADS / 2).map(|_| Mutex::new(0)).collect();
    // Each buffer starts with known bytes.
    for memory in &memories {
        let mut sequence = sequences[0].lock().unwrap();
        *sequence += 1;
        assert_eq!(submit(&cpu, Q0, *sequence, &[], &memory.fill(0)), Submitted::Inline);
        run(&cpu, Q0, *sequence, &memory.fill(0));
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cpu, memories, marks, sequences) = (&cpu, &memories, &marks, &sequences);
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                let queue = QueueId((thread / 2) as u8);
                for _ in 0..OPS {
                    let index = random.below(memories.len() as u64) as usize;
                    let writes = random.below(3) == 0;
                    let mut host = vec![0; SIZE_BYTES];
                    let mut sequence = sequences[thread as usize / 2].lock().unwrap();
                    let mut mark = marks[index].lock().unwrap();
                    *sequence += 1;
                    let own = wait(queue, *sequence);
                    let mut waits: Vec<Wait> = mark.write.into_iter().collect();
                    let launch = if writes {
                        waits.append(&mut mark.reads);
                        mark.write = Some(own);
                        mark.value = mark.value.wrapping_add(1);
                        memories[index].fill(mark.value)
                    } else {
                        mark.reads.push(own);
                        memories[index].download(&mut host)
                    };
                    waits.retain(|wait| wait.queue != queue);
                    let expected = mark.value;
                    let submitted = submit(cpu, queue, own.sequence, &waits, &launch);
                    drop((mark, sequence));
                    if submitted == Submitted::Inline {
                        run(cpu, queue, own.sequence, &launch);
                    }
                    // Reads are waited for, since the host's memory goes; writes now and then.
                    if !writes || random.below(8) == 0 {
                        cpu.synchronize(queue, own.sequence).unwrap();
                        assert!(cpu.completed(queue) >= own.sequence);
                    }
                    if !writes {
                        assert!(host.iter().all(|&byte| byte == expected), "torn or out of order");
                    }
                }
            });
        }
    });
    for (index, sequence) in sequences.iter().enumerate() {
        let sequence = *sequence.lock().unwrap();
        cpu.synchronize(QueueId(index as u8), sequence).unwrap();
        assert_eq!(cpu.completed(QueueId(index as u8)), sequence);
    }
}

// ---------------------------------------------------------------- queues without a device

/// Without workers, only the thread that waits can have run the tasks.
#[test]
fn whoever_waits_takes_a_ready_queue_over() {
    let queues = Queues::new(2);
    queues.open(Q0, false);
    queues.open(Q1, true);
    assert!(queues.claim(Q0, 1, &[]));
    assert_eq!(queues.running_count(), 1);
    queues.push(Q0, [], 'a');
    queues.push(Q1, [wait(Q0, 2)], 'b');
    queues.push(Q1, [], 'c');
    assert_eq!(queues.running_count(), 1, "what waits doesn't run");
    queues.finish(Q0, 1);
    let order = Mutex::new(Vec::new());
    let log = |queue: QueueId, sequence, task| order.lock().unwrap().push((queue.0, sequence, task));
    queues.synchronize(Q0, 2, &log);
    queues.synchronize(Q1, 2, &log);
    assert_eq!(*order.lock().unwrap(), [(0, 2, 'a'), (1, 1, 'b'), (1, 2, 'c')]);
    assert_eq!(queues.running_count(), 0);
    assert!(queues.claim(Q1, 3, &[wait(Q0, 2)]), "idle again");
}

#[test]
fn a_long_queue_lets_others_have_their_turn() {
    let queues = Queues::new(3);
    let (busy, other) = (QueueId(0), QueueId(1));
    queues.open(busy, false);
    queues.open(other, false);
    assert!(queues.claim(busy, 1, &[]) && queues.claim(other, 1, &[]));
    for _ in 0..1000 {
        queues.push(busy, [], ());
    }
    queues.push(other, [], ());
    queues.finish(busy, 1);
    queues.finish(other, 1);
    let order = Mutex::new(Vec::new());
    queues.work(&|queue, _, ()| {
        let mut order = order.lock().unwrap();
        order.push(queue);
        if order.len() == 1000 {
            queues.stop();
        }
    });
    let turn = order.lock().unwrap().iter().position(|queue| *queue == other);
    assert!(turn.is_some_and(|turn| turn < 100), "{turn:?}");
}

/// Each task checks that its waits are over and that its number is the next.
#[test]
fn stress_of_claims_tasks_waits_and_sleepers() {
    const QUEUES: usize = 6;
    const THREADS: u64 = 8;
    const OPS: u64 = 4000;
    let queues = Queues::<Vec<Wait>>::new(QUEUES);
    let ran: Vec<AtomicU64> = (0..QUEUES).map(|_| AtomicU64::new(0)).collect();
    let sequences: Vec<Mutex<u64>> = (0..QUEUES).map(|_| Mutex::new(0)).collect();
    (0..QUEUES).for_each(|queue| queues.open(QueueId(queue as u8), queue == 0));
    let wrong = AtomicU64::new(0);
    let task = |queue: QueueId, sequence: u64, waits: Vec<Wait>| {
        let waited = waits.iter().all(|wait| ran[wait.queue.0 as usize].load(Relaxed) >= wait.sequence);
        // Relaxed, and in two steps: the queue orders its tasks, and their effects go with the numbers.
        let before = ran[queue.0 as usize].load(Relaxed);
        // Counted, and told at the end: a panic here would leave the others waiting.
        wrong.fetch_add(u64::from(!waited || before + 1 != sequence), Relaxed);
        ran[queue.0 as usize].store(sequence, Relaxed);
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| queues.work(&task))).collect();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (queues, sequences, task) = (&queues, &sequences, &task);
                scope.spawn(move || {
                    let mut random = Random(thread + 100);
                    for _ in 0..OPS {
                        let index = random.below(QUEUES as u64) as usize;
                        let queue = QueueId(index as u8);
                        let other = random.below(QUEUES as u64) as usize;
                        let mut waits = Vec::new();
                        if other != index {
                            waits.push(wait(QueueId(other as u8), *sequences[other].lock().unwrap()));
                        }
                        let mut sequence = sequences[index].lock().unwrap();
                        let own = *sequence + 1;
                        let claimed = queues.claim(queue, own, &waits);
                        if !claimed {
                            queues.push(queue, waits.iter().copied(), waits.clone());
                        }
                        *sequence = own;
                        drop(sequence);
                        if claimed {
                            task(queue, own, waits);
                            queues.finish(queue, own);
                        }
                        if random.below(16) == 0 {
                            queues.synchronize(queue, own, task);
                            assert!(queues.completed(queue) >= own);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for (index, sequence) in sequences.iter().enumerate() {
            queues.synchronize(QueueId(index as u8), *sequence.lock().unwrap(), &task);
        }
        queues.stop();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    assert_eq!(wrong.load(Relaxed), 0, "tasks before their waits, or out of order");
    assert_eq!(ran.iter().map(|ran| ran.load(Relaxed)).sum::<u64>(), THREADS * OPS);
}
