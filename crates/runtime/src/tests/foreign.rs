//! Memory of others, over the simulator: owners that spoil it when they get it back, and producers that are late.

use super::{
    external::{SIZE_BYTES, bytes, fresh, open},
    planted, turn,
};
use crate::{submit::BlockAccess, tests::oracle::op, *};
use raddle_hal::{Address, Launch, QueueId};
use raddle_sync::faults::{Fault, assert_caught};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

const SEED_COUNT: u64 = 40;

/// Memory that stays when it was given back, so that whoever uses it too late meets what its owner has written then.
#[derive(Clone, Copy)]
struct Lent(u64);

impl Lent {
    fn new(value: u8) -> Lent {
        Lent(Box::leak(Box::new([value; SIZE_BYTES])).as_mut_ptr() as u64)
    }

    /// What is there. For whoever has it alone.
    fn bytes(self) -> Vec<u8> {
        // SAFETY: it is never freed, and the test uses it at times when the device doesn't.
        unsafe { std::slice::from_raw_parts(self.0 as *const u8, SIZE_BYTES) }.to_vec()
    }

    /// Lends it to a device. What is there when it comes back is sent, and spoilt.
    fn foreign(self, device: &Device, back: &mpsc::Sender<Vec<u8>>) -> Foreign {
        let back = back.clone();
        let release = move || {
            _ = back.send(self.bytes());
            // SAFETY: as above.
            unsafe { std::ptr::write_bytes(self.0 as *mut u8, 0xEE, SIZE_BYTES) };
        };
        // SAFETY: the memory is never freed; the closure runs when the device has given it back.
        unsafe { Foreign::new(device, self.0, SIZE_BYTES, on_release(release)) }
    }
}

/// Puts an op that writes a buffer on a stream.
fn touch(stream: Stream, buffer: &Buffer) {
    touch_all(stream, &[buffer]);
}

fn touch_all<'a>(stream: Stream, buffers: &[&'a Buffer]) {
    let Some(first) = buffers.first() else { return };
    let launch = Launch::FillBytes { to: first.block().address, size_bytes: first.size_bytes(), value: 1 };
    let touch =
        |buffer: &&'a Buffer| BlockAccess { block: buffer.block(), access: Access::Write, whole: true };
    let mut touches: Vec<BlockAccess<'_>> = buffers.iter().map(touch).collect();
    stream.submit("touch", &launch, &mut touches, &[]).unwrap();
}

/// Is memory of others given back before its readers and writers are through?
fn is_given_back_early(seed: u64) -> bool {
    let (device, _) = open(seed);
    let (sender, back) = mpsc::channel();
    let mut early = false;
    for round in 0..6 {
        let streams = [fresh(&device), fresh(&device)];
        let (read, written) = (Lent::new(3), Lent::new(4));
        let from = device.adopt(read.foreign(&device, &sender), Ready::Now).unwrap();
        let to = device.adopt(written.foreign(&device, &sender), Ready::Now).unwrap();
        let copies = [0; 3].map(|_| device.allocate(SIZE_BYTES).unwrap());
        op(streams[0], &[&from], &[&copies[0]]).unwrap();
        op(streams[1], &[&from], &[&copies[1]]).unwrap();
        op(streams[1], &[&from], &[&to]).unwrap();
        op(streams[0], &[&to], &[&copies[2]]).unwrap();
        if round % 2 == 0 {
            drop((from, to));
        } else {
            thread::spawn(move || drop((to, from))).join().unwrap();
        }
        let _current = streams[round % 2].enter();
        early |= copies.iter().any(|copy| bytes(&device, copy) != [3; SIZE_BYTES]);
        // Whether by this thread or another: each comes back once, with what was written last.
        early |= [(); 2].map(|()| back.recv().unwrap()).iter().any(|bytes| bytes != &[3; SIZE_BYTES]);
    }
    device.synchronize().unwrap();
    assert!(device.close().unwrap());
    assert!(back.try_recv().is_err(), "given back twice");
    early
}

#[test]
fn memory_of_others_is_given_back_when_its_work_is_over() {
    let _turn = turn();
    assert!(!(0..SEED_COUNT).any(is_given_back_early));
    println!("{SEED_COUNT} schedules");
}

#[test]
fn fault_foreign_without_fence() {
    let _planted = planted(Fault::foreign_without_fence);
    assert!((0..200).any(is_given_back_early), "not caught");
}

/// Is memory read that its producer, on a stream of its own, hasn't written yet?
fn is_read_early(seed: u64) -> bool {
    let (device, others) = open(seed);
    let handle = others.make_stream().unwrap();
    // SAFETY: streams of the simulator's other code live for ever and don't capture.
    let external = unsafe { Stream::wrap(&device, handle) }.unwrap();
    let (sender, back) = mpsc::channel();
    let mut early = false;
    for round in 0..6 {
        let lent = Lent::new(0);
        let to = Address { handle: lent.0, offset_bytes: 0 };
        for value in [1, 2] {
            let launch = Launch::FillBytes { to, size_bytes: SIZE_BYTES, value };
            // SAFETY: the memory is never freed.
            unsafe { others.submit(handle, &launch) };
        }
        let foreign = lent.foreign(&device, &sender);
        let event = external.record();
        let ready = if round % 2 == 0 { Ready::After(*external) } else { Ready::AfterEvent(&event) };
        let buffer = device.adopt(foreign, ready).unwrap();
        let stream = fresh(&device);
        let copy = device.allocate(SIZE_BYTES).unwrap();
        op(stream, &[&buffer], &[&copy]).unwrap();
        // And one that writes it, behind the same.
        device.upload(&buffer, 0, &[9; SIZE_BYTES]).unwrap();
        drop(buffer);
        early |= bytes(&device, &copy) != [2; SIZE_BYTES];
        device.synchronize().unwrap();
        early |= back.recv().unwrap() != [9; SIZE_BYTES];
    }
    drop(external);
    device.synchronize().unwrap();
    assert!(device.close().unwrap());
    early
}

#[test]
fn memory_of_others_is_used_behind_its_producer() {
    let _turn = turn();
    assert!(!(0..SEED_COUNT).any(is_read_early));
    println!("{SEED_COUNT} schedules");
}

#[test]
fn fault_adopted_without_tick() {
    let _planted = planted(Fault::adopted_without_tick);
    assert!((0..200).any(is_read_early), "not caught");
}

/// Other code goes on with a buffer behind what the runtime has put on streams: on a stream of its own, or on the host.
#[test]
fn other_code_has_a_buffer_behind_all_that_touches_it() {
    let _turn = turn();
    for seed in 0..SEED_COUNT {
        let (device, others) = open(seed);
        let handle = others.make_stream().unwrap();
        // SAFETY: as above.
        let external = unsafe { Stream::wrap(&device, handle) }.unwrap();
        let (sender, back) = mpsc::channel();
        let lent = Lent::new(0);
        let buffer = device.adopt(lent.foreign(&device, &sender), Ready::Now).unwrap();
        let (from, copies) =
            (device.allocate(SIZE_BYTES).unwrap(), [0; 2].map(|_| device.allocate(SIZE_BYTES).unwrap()));
        device.upload(&from, 0, &[5; SIZE_BYTES]).unwrap();
        let [a, b] = [fresh(&device), fresh(&device)];
        op(a, &[&from], &[&buffer]).unwrap();
        let version = buffer.version();
        for (stream, copy) in [a, b].into_iter().zip(&copies) {
            op(stream, &[&buffer], &[copy]).unwrap();
        }
        external.wait_buffer(&buffer).unwrap();
        let to = Address { handle: lent.0, offset_bytes: 0 };
        let launch = Launch::FillBytes { to, size_bytes: SIZE_BYTES, value: 6 };
        // SAFETY: the memory is never freed.
        unsafe { others.submit(handle, &launch) };
        assert!(copies.iter().all(|copy| bytes(&device, copy) == [5; SIZE_BYTES]), "seed {seed}");
        a.wait_stream(*external).unwrap();
        op(a, &[&from], &[&buffer]).unwrap();
        op(b, &[&buffer], &[&copies[0]]).unwrap();
        buffer.synchronize().unwrap();
        assert_eq!(lent.bytes(), [5; SIZE_BYTES], "seed {seed}");
        // SAFETY: nothing touches it now, as was waited for.
        unsafe { std::ptr::write_bytes(lent.0 as *mut u8, 8, SIZE_BYTES) };
        assert_eq!(bytes(&device, &copies[0]), [5; SIZE_BYTES], "seed {seed}");
        assert_eq!(buffer.version(), version + 1, "to wait is no write");
        buffer.synchronize().unwrap();
        let other = open(seed + 1).0;
        let refused = Stream::default(&other).unwrap().wait_buffer(&buffer).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!("wait_buffer: expected a stream of sim:{seed}, found one of sim:{}", seed + 1)
        );
        drop((buffer, external, from, copies));
        device.synchronize().unwrap();
        assert_eq!(back.recv().unwrap(), [8; SIZE_BYTES]);
        assert!(device.close().unwrap());
    }
}

#[test]
fn fault_waits_for_writes_only() {
    let test = "tests::foreign::other_code_has_a_buffer_behind_all_that_touches_it";
    assert_caught(Fault::waits_for_writes_only, test);
}

/// Memory goes to other code, which puts work of its own on a stream, and comes back: its users here are ordered with those that
/// it had, and behind that work.
#[test]
fn memory_that_comes_back_is_its_buffers() {
    let _turn = turn();
    for seed in 0..SEED_COUNT {
        let (device, others) = open(seed);
        let handle = others.make_stream().unwrap();
        // SAFETY: as above.
        let external = unsafe { Stream::wrap(&device, handle) }.unwrap();
        let (sender, back) = mpsc::channel();
        let lent = Lent::new(0);
        let adopted = device.adopt(lent.foreign(&device, &sender), Ready::Now).unwrap();
        let own = device.allocate(SIZE_BYTES).unwrap();
        for buffer in [adopted, own] {
            let [a, b] = [fresh(&device), fresh(&device)];
            touch(a, &buffer); // 1
            external.wait_buffer(&buffer).unwrap();
            let to = Address { handle: buffer.address(), offset_bytes: 0 };
            let launch = Launch::FillBytes { to, size_bytes: SIZE_BYTES, value: 6 };
            // SAFETY: the memory lives until everything is over.
            unsafe { others.submit(handle, &launch) };
            // SAFETY: as of the buffer.
            let again = |at: u64, size| unsafe { Foreign::new(&device, buffer.address() + at, size, ()) };
            let event = external.record();
            let ready = if seed % 2 == 0 { Ready::After(*external) } else { Ready::AfterEvent(&event) };
            let found = device.find(&again(0, SIZE_BYTES), ready).unwrap();
            let Some((found, 0)) = found else { panic!("it is found") };
            let copy = device.allocate(SIZE_BYTES).unwrap();
            op(b, &[&found], &[&copy]).unwrap();
            touch(a, &buffer);
            assert_eq!(bytes(&device, &copy), [6; SIZE_BYTES], "seed {seed}");
            assert!(found.is(&buffer));
            let part = device.find(&again(8, 16), Ready::Now).unwrap();
            assert!(part.is_some_and(|(part, at)| part.is(&buffer) && at == 8));
            let unfit = [again(8, SIZE_BYTES), again(0, 8).read_only(), again(0, 0)];
            assert!(unfit.iter().all(|memory| device.find(memory, Ready::Now).unwrap().is_none()));
        }
        drop(external);
        assert!(device.close().unwrap());
        back.recv().unwrap();
    }
}

#[test]
fn fault_adopted_twice() {
    assert_caught(Fault::adopted_twice, "tests::foreign::memory_that_comes_back_is_its_buffers");
}

/// What was memory of others is never anybody else's, however much is allocated and freed of that size.
#[test]
fn memory_of_others_is_not_given_out_again() {
    let _turn = turn();
    for size_bytes in [256, SIZE_BYTES] {
        let (device, _) = open(2);
        drop(device.allocate(size_bytes).unwrap()); // so that there is a list
        let (sender, back) = mpsc::channel();
        for _ in 0..20 {
            let lent = Lent::new(1);
            // SAFETY: as in `Lent::foreign`, of a part of it.
            let foreign =
                unsafe { Foreign::new(&device, lent.0, size_bytes, lent.foreign(&device, &sender)) };
            drop(device.adopt(foreign, Ready::Now).unwrap());
            let next: Vec<Buffer> = (0..64).map(|_| device.allocate(size_bytes).unwrap()).collect();
            let is_inside =
                |buffer: &Buffer| (lent.0..lent.0 + size_bytes as u64).contains(&buffer.address());
            assert!(!next.iter().any(is_inside));
            assert_eq!(back.recv().unwrap(), [1; SIZE_BYTES], "nor is it filled with junk");
        }
        assert_eq!(device.memory_stats().allocated_bytes, 0);
        assert!(device.close().unwrap());
    }
}

#[test]
fn fault_foreign_given_out_again() {
    assert_caught(Fault::foreign_given_out_again, "tests::foreign::memory_of_others_is_not_given_out_again");
}

#[test]
fn memory_of_others_is_found_counted_and_shown() {
    let _turn = turn();
    let (device, others) = open(4);
    device.set_memory_history(100);
    let other = device.adopt(Foreign::vec(&device, vec![0u8; 1]).unwrap(), Ready::Now).unwrap();
    device.set_memory_limit(0); // it counts against no limit
    let (sender, back) = mpsc::channel();
    let [a, b] = [fresh(&device), fresh(&device)];
    let lent = Lent::new(1);
    let buffer = device.adopt(lent.foreign(&device, &sender), Ready::Now).unwrap();
    let empty = device.adopt(Foreign::vec(&device, Vec::<f32>::new()).unwrap(), Ready::Now).unwrap();
    assert!(!empty.is_foreign() && empty.size_bytes() == 0);
    assert!(buffer.is_foreign() && !buffer.is_read_only());
    assert_eq!((buffer.address(), buffer.size_bytes()), (lent.0, SIZE_BYTES));

    let last = lent.0 + SIZE_BYTES as u64 - 1;
    assert!(!device.record_stream_raw(lent.0 - 1, a) && !device.record_stream_raw(last + 1, a));
    others.hold(a.0.queue());
    others.hold(b.0.queue());
    touch(a, &buffer);
    assert!(device.record_stream_raw(lent.0, b) && device.record_stream_raw(last, b));
    touch(b, &other);

    let piece = |state| {
        let snapshot = device.memory_snapshot();
        let slabs: Vec<_> = snapshot.slabs.iter().filter(|slab| slab.pool == PoolKind::Foreign).collect();
        let slab = slabs.iter().find(|slab| slab.address == lent.0).expect("it is shown");
        assert_eq!((slabs.len(), slab.size_bytes), (2, SIZE_BYTES));
        let [piece] = slab.pieces[..] else { panic!("it has one piece") };
        assert_eq!((piece.address, piece.size_bytes, piece.state), (lent.0, SIZE_BYTES, state));
        assert_eq!(MemorySnapshot::from_json(&snapshot.to_json()).unwrap(), snapshot);
        assert!(snapshot.to_html().contains("\"foreign\""));
        snapshot
    };
    let stats = piece(PieceState::Allocated).stats;
    assert_eq!(stats.foreign_bytes, SIZE_BYTES + 1);
    assert_eq!(
        (stats.allocated_bytes, stats.reserved_bytes, stats.pending_bytes, stats.allocations),
        (0, 0, 0, 0)
    );
    // With the last handle it waits for what is in flight; also for what was noted.
    drop(buffer);
    others.let_go(a.0.queue());
    a.synchronize().unwrap();
    let snapshot = piece(PieceState::Pending);
    assert_eq!((snapshot.stats.foreign_bytes, snapshot.stats.pending_bytes), (SIZE_BYTES + 1, 0));
    assert!(back.try_recv().is_err() && !device.record_stream_raw(lent.0, b), "it is nobody's to use");
    others.let_go(b.0.queue());
    back.recv().unwrap();
    let events = snapshot.events.iter().filter(|event| event.address == lent.0);
    let events: Vec<_> = events.map(|event| (event.kind, event.address)).collect();
    assert_eq!(events, [(MemoryEventKind::Adopt, lent.0), (MemoryEventKind::Release, lent.0)]);

    // A device with memory of others doesn't close.
    let buffer = device.adopt(lent.foreign(&device, &sender), Ready::Now).unwrap();
    drop(other);
    assert!(!device.close().unwrap());
    touch(a, &buffer);
    drop(buffer);
    assert!(device.close().unwrap(), "close waits for it");
    back.recv().unwrap();
    // Nor is it lost when it comes later.
    let buffer = device.adopt(lent.foreign(&device, &sender), Ready::Now).unwrap();
    drop(buffer);
    back.recv().unwrap();
    assert_eq!(device.memory_stats().foreign_bytes, 0);
}

/// Owners are code of others: what one does when it gets its memory back is its own affair.
#[test]
fn owners_may_do_what_they_like() {
    let _turn = turn();
    for late in [false, true] {
        let (device, others) = open(6);
        let stream = fresh(&device);
        let (sender, back) = mpsc::channel();
        let adopt = |release: Box<dyn FnOnce() + Send>| {
            let (lent, sender) = (Lent::new(0), sender.clone());
            let end = on_release(move || sender.send(thread::current().id()).unwrap());
            let owner = on_release(move || {
                let _end = end;
                release();
            });
            // SAFETY: the memory is never freed.
            let foreign = unsafe { Foreign::new(&device, lent.0, SIZE_BYTES, owner) };
            device.adopt(foreign, Ready::Now).unwrap()
        };
        let inner = adopt(Box::new(|| ()));
        let buffers = [
            adopt(Box::new(|| panic!("an owner panics"))),
            adopt(Box::new(|| std::panic::resume_unwind(Box::new(on_release(|| panic!("and once more")))))),
            adopt(Box::new(move || {
                let again = device.adopt(Foreign::vec(&device, vec![0u8; 9]).unwrap(), Ready::Now).unwrap();
                let copy = device.allocate(9).unwrap();
                op(fresh(&device), &[&again], &[&copy]).unwrap();
                device.download(&copy, 0, &mut [0; 9]).unwrap();
                device.empty_cache();
                drop((device.memory_snapshot(), again));
            })),
            adopt(Box::new(move || drop(inner))),
        ];
        if late {
            others.hold(stream.0.queue());
            buffers.iter().for_each(|buffer| touch(stream, buffer));
        }
        drop(buffers);
        others.let_go(stream.0.queue());
        let here = thread::current().id();
        for _ in 0..5 {
            assert_eq!(back.recv().unwrap() != here, late);
        }
        device.synchronize().unwrap();
        assert!(device.close().unwrap());
    }
}

#[test]
fn fault_released_under_lock() {
    assert_caught(Fault::released_under_lock, "tests::foreign::owners_may_do_what_they_like");
}

/// More of it than a stream has callbacks comes back, by the one thread.
#[test]
fn memory_of_others_in_flight_has_no_limit() {
    let _turn = turn();
    let (device, others) = open(7);
    let stream = fresh(&device);
    let count = Arc::new(AtomicUsize::new(0));
    others.hold(stream.0.queue());
    let lent: Vec<Buffer> = (0..1500)
        .map(|_| {
            let count = count.clone();
            let owner = on_release(move || _ = count.fetch_add(1, SeqCst));
            // SAFETY: the memory is never freed.
            let foreign = unsafe { Foreign::new(&device, Lent::new(0).0, SIZE_BYTES, owner) };
            device.adopt(foreign, Ready::Now).unwrap()
        })
        .collect();
    touch_all(stream, &lent.iter().collect::<Vec<_>>());
    drop(lent);
    assert_eq!((count.load(SeqCst), device.memory_stats().foreign_bytes), (0, 1500 * SIZE_BYTES));
    others.let_go(stream.0.queue());
    assert!(device.close().unwrap());
    assert_eq!((count.load(SeqCst), device.memory_stats().foreign_bytes), (1500, 0));
}

/// The last handle goes with a thread, as what a thread-local has.
#[test]
fn the_end_of_a_thread_gives_memory_back() {
    let _turn = turn();
    for late in [false, true] {
        let (device, others) = open(8);
        let stream = fresh(&device);
        let (sender, back) = mpsc::channel();
        let lent = Lent::new(2);
        if late {
            others.hold(stream.0.queue());
        }
        let body = move || {
            thread_local! { static KEPT: Mutex<Option<Buffer>> = const { Mutex::new(None) }; }
            KEPT.with(|kept| {
                let buffer = device.adopt(lent.foreign(&device, &sender), Ready::Now).unwrap();
                touch(stream, &buffer);
                if !late {
                    stream.synchronize().unwrap();
                }
                *kept.lock().unwrap() = Some(buffer);
            });
        };
        process::on_foreign_thread(body).unwrap();
        if late {
            assert!(back.try_recv().is_err());
            others.let_go(stream.0.queue());
        }
        back.recv().unwrap();
        assert!(device.close().unwrap());
    }
}

#[test]
fn read_only_memory_is_not_written() {
    let _turn = turn();
    let (device, _) = open(9);
    let numbers: Arc<[u8]> = Arc::from([4; SIZE_BYTES]);
    let buffer = device.adopt(Foreign::slice(&device, numbers.clone()).unwrap(), Ready::Now).unwrap();
    assert!(buffer.is_read_only() && buffer.address() == numbers.as_ptr() as u64);
    let copy = device.allocate(SIZE_BYTES).unwrap();
    let stream = fresh(&device);
    let refused = |op| Err(Error::ReadOnly { op, device: "sim:9".into(), size_bytes: SIZE_BYTES });
    let text =
        "op: the output is memory of others that may only be read, 2048 bytes on sim:9; use copy() first";
    assert_eq!(op(stream, &[&copy], &[&buffer]).unwrap_err().to_string(), text);
    assert_eq!(device.upload(&buffer, 0, &[1]), refused("upload"));
    op(stream, &[&buffer], &[&copy]).unwrap();
    assert_eq!(bytes(&device, &copy), [4; SIZE_BYTES]);
    assert_eq!((numbers[..].to_vec(), buffer.version()), (vec![4; SIZE_BYTES], 0));
    // In a capture, and as what takes the place of an operand.
    let other = device.allocate(SIZE_BYTES).unwrap();
    let guard = stream.enter();
    let capture = Capture::begin(&device).unwrap();
    assert_eq!(op(stream, &[&copy], &[&buffer]).unwrap_err().to_string(), text);
    op(stream, &[&copy], &[&other]).unwrap();
    let graph = capture.end(&[]).unwrap();
    let replaced = Replacement { old: &other, new: &buffer, shift_bytes: 0 };
    let misfit = Err(Error::Replacement { index: 0, reason: Misfit::ReadOnly });
    assert_eq!(graph.replay(&[replaced], &[]).map(drop), misfit);
    let replaced = Replacement { old: &copy, new: &buffer, shift_bytes: 0 };
    graph.replay(&[replaced], &[]).unwrap();
    drop(guard);
    assert_eq!(bytes(&device, &other), [4; SIZE_BYTES]);
    drop((graph, buffer, copy, other));
    device.synchronize().unwrap();
    assert_eq!(Arc::strong_count(&numbers), 1);
    assert!(device.close().unwrap());
}

#[test]
fn fault_read_only_is_written() {
    assert_caught(Fault::read_only_is_written, "tests::foreign::read_only_memory_is_not_written");
}

#[test]
fn memory_of_the_host_is_adopted_where_it_lies() {
    let _turn = turn();
    let cpu = Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
    let values: Vec<f32> = (0..100).map(|value| value as f32).collect();
    let address = values.as_ptr() as u64;
    let buffer = cpu.adopt(Foreign::vec(&cpu, values).unwrap(), Ready::Now).unwrap();
    assert_eq!((buffer.address(), buffer.size_bytes()), (address, 400));
    cpu.upload(&buffer, 4, &7f32.to_ne_bytes()).unwrap();
    let mut bytes = [0; 8];
    cpu.download(&buffer, 0, &mut bytes).unwrap();
    assert_eq!(bytes[4..], 7f32.to_ne_bytes());
    // An array inside of its owner stays where it is.
    let inline = cpu.adopt(Foreign::slice::<u8>(&cpu, [3u8; 5]).unwrap(), Ready::Now).unwrap();
    let mut five = [0; 5];
    cpu.download(&inline, 0, &mut five).unwrap();
    assert_eq!(five, [3; 5]);
    drop((buffer, inline));
    assert!(cpu.close().unwrap());

    let space = raddle_sim::AddressSpace::new(raddle_sim::Completion::AtOnce);
    let space = Device::open(Box::new(space)).unwrap();
    let counted = Arc::<[u8]>::from([1; 4]);
    let refused = Foreign::slice(&space, counted.clone()).unwrap_err();
    assert_eq!(refused.to_string(), "addresses: the device has no way to compute in memory of the host");
    assert_eq!((Foreign::vec(&space, vec![1u8]).unwrap_err(), Arc::strong_count(&counted)), (refused, 1));
    let mismatched = cpu.adopt(Foreign::slice(&open(1).0, counted.clone()).unwrap(), Ready::Now);
    assert_eq!(mismatched.unwrap_err().to_string(), "adopt: expected a buffer of cpu, found one of sim:1");
    let stream = Stream::default(&open(2).0).unwrap();
    let mismatched = cpu.adopt(Foreign::slice(&cpu, counted.clone()).unwrap(), Ready::After(stream));
    assert_eq!(mismatched.unwrap_err().to_string(), "adopt: expected a stream of cpu, found one of sim:2");
    assert_eq!(Arc::strong_count(&counted), 1, "who is refused has it back");
}

/// Threads adopt, use and drop memory at once, and nothing is lost or comes back twice.
#[test]
fn threads_adopt_at_once() {
    let _turn = turn();
    for seed in 0..10 {
        let (device, _) = open(seed);
        let back = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..50 {
                        let (lent, back) = (Lent::new(round), back.clone());
                        let owner = on_release(move || _ = back.fetch_add(1, SeqCst));
                        // SAFETY: the memory is never freed.
                        let foreign = unsafe { Foreign::new(&device, lent.0, SIZE_BYTES, owner) };
                        let buffer = device.adopt(foreign, Ready::Now).unwrap();
                        let copy = device.allocate(SIZE_BYTES).unwrap();
                        op(Stream::current(&device).unwrap(), &[&buffer], &[&copy]).unwrap();
                        device.record_stream_raw(lent.0, Stream::default(&device).unwrap());
                        drop(buffer);
                        assert_eq!(bytes(&device, &copy), [round; SIZE_BYTES]);
                    }
                    device.release_current_thread();
                });
            }
        });
        assert!(device.close().unwrap());
        assert_eq!(back.load(SeqCst), 200, "seed {seed}");
    }
}

/// What stands still when nobody waits for it isn't waited for by who drops it.
#[test]
fn a_drop_waits_for_nothing() {
    let _turn = turn();
    let (device, others) = open(11);
    let stream = fresh(&device);
    let (sender, back) = mpsc::channel();
    others.hold(QueueId(stream.0.slot as u8));
    let buffer = device.adopt(Lent::new(1).foreign(&device, &sender), Ready::Now).unwrap();
    touch(stream, &buffer);
    drop(buffer);
    assert!(back.try_recv().is_err());
    others.let_go(QueueId(stream.0.slot as u8));
    back.recv().unwrap();
    assert!(device.close().unwrap());
}
