//! Where two things meet that are right each for itself: a capture and a hook, a loss and a question, a wait and a writer.

use super::{
    external::{self, SIZE_BYTES, fresh},
    turn,
};
use crate::{
    tests::oracle::{self, op, op_of},
    *,
};
use raddle_base::{DType, Dims, Layout};
use raddle_hal::{Kernel, KernelError, QueueId};
use raddle_op::kernel::ScatterMode;
use raddle_sim::{Sim, SimOptions};
use std::{
    cell::RefCell,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Wake, Waker},
    thread,
};

/// A loss leaves numbers that the device was never given.
#[test]
fn whoever_asks_of_a_lost_device_hears_that_all_is_over() {
    let _turn = turn();
    let options = SimOptions { lose_after_count: Some(1), ..SimOptions::default() };
    let sim = Sim::new(Box::new(raddle_cpu::Cpu::new()), options).unwrap();
    let device = Device::open(Box::new(sim)).unwrap();
    let stream = fresh(&device);
    let buffer = device.allocate(SIZE_BYTES);
    assert!(device.synchronize().is_err());
    op(stream, &[], &[&buffer.unwrap()]).unwrap_err();
    let event = stream.record();
    assert!(stream.query() && event.query());
    assert!(event.synchronize().is_err() && stream.synchronize().is_err());
}

/// The fourth of four numbers, or one that isn't there, is written over.
fn scatter(device: Device, target: &Buffer, index: i64) {
    let upload = |bytes: &[u8]| {
        let buffer = device.allocate(bytes.len()).unwrap();
        device.upload(&buffer, 0, bytes).unwrap();
        buffer
    };
    let (index, value) = (upload(&index.to_le_bytes()), upload(&1_f32.to_le_bytes()));
    let [four, one] = [4, 1].map(|length| Layout::contiguous(Dims::new(&[length]).unwrap()));
    let operands = [
        Operand { buffer: target, access: Access::Write, dtype: DType::F32, layout: &four },
        Operand { buffer: &index, access: Access::Read, dtype: DType::I64, layout: &one },
        Operand { buffer: &value, access: Access::Read, dtype: DType::F32, layout: &one },
    ];
    device.submit(&Kernel::Scatter { axis: 0, mode: ScatterMode::Add, repeats: 1 }, &operands).unwrap();
}

/// While a thread waits for the bytes of a buffer another one writes it, behind that. What the download says: the buffer is
/// good, or not, and the write turns that round.
fn read_before_the_write(is_good: bool) -> Result<()> {
    let (device, others) = external::open(9);
    let (reader, writer) = (fresh(&device), fresh(&device));
    let _guard = writer.enter();
    let target = device.allocate(16).unwrap();
    device.upload(&target, 0, &[0; 16]).unwrap();
    scatter(device, &target, if is_good { 3 } else { 4 });
    let queue = QueueId(reader.0.slot as u8);
    others.hold(queue);
    let before = reader.0.latest();
    let told = thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let _guard = reader.enter();
            device.download(&target, 0, &mut [0; 16])
        });
        while reader.0.latest() == before {
            thread::yield_now();
        }
        if is_good {
            scatter(device, &target, 4);
        } else {
            device.upload(&target, 0, &[1; 16]).unwrap();
        }
        others.let_go(queue);
        reads.join().unwrap()
    });
    drop(target);
    assert!(device.close().unwrap());
    told
}

#[test]
fn a_download_tells_of_the_bytes_that_it_copied() {
    let _turn = turn();
    assert_eq!(read_before_the_write(true), Ok(()));
    let Err(Error::Kernel { error, .. }) = read_before_the_write(false) else {
        panic!("junk is told as good")
    };
    assert_eq!(error, KernelError::IndexOutOfRange { index: 4, position: 0, size: 4 });
}

/// A waker that owns memory, as that of a task does which is dropped with its last waker.
struct Owner(Device, Mutex<Option<Buffer>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.1.lock().unwrap().take());
        self.0.memory_stats(); // takes locks of all ranks
    }
}

#[test]
fn a_future_drops_wakers_under_no_lock() {
    let _turn = turn();
    let (device, others) = external::open(3);
    let stream = fresh(&device);
    let queue = QueueId(stream.0.slot as u8);
    others.hold(queue);
    let [from, to] = [0; 2].map(|_| device.allocate(64).unwrap());
    op(stream, &[&from], &[&to]).unwrap();
    drop((from, to));
    let event = stream.record();
    let mut future = pin!(event.wait());
    for _ in 0..3 {
        let waker = Waker::from(Arc::new(Owner(device, Mutex::new(Some(device.allocate(64).unwrap())))));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    others.let_go(queue);
    event.synchronize().unwrap();
    assert!(device.close().unwrap());
}

/// A callback brings one on a stream that had none when the closing began.
fn close_while_a_callback_brings_another() -> u32 {
    fn pass_the_core_on() {
        (0..100).for_each(|_| thread::yield_now());
    }
    let (device, _) = oracle::open(8);
    let [first, second] = [0; 2].map(|_| fresh(&device));
    let (closing, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (closes, counted) = (closing.clone(), count.clone());
    let brings = move |_| {
        while closes.load(Relaxed) == 0 {
            thread::yield_now();
        }
        pass_the_core_on();
        let brought = move |_| {
            pass_the_core_on();
            counted.fetch_add(1, Relaxed);
        };
        first.on_complete(brought).unwrap();
    };
    second.on_complete(brings).unwrap();
    closing.store(1, Relaxed);
    assert!(device.close().unwrap());
    count.load(Relaxed)
}

#[test]
fn closing_waits_for_callbacks_of_callbacks() {
    let _turn = turn();
    for round in 0..30 {
        assert_eq!(close_while_a_callback_brings_another(), 1, "round {round}");
    }
}

/// Threads that have seen room for one more may be many.
#[test]
fn a_stream_holds_no_more_than_it_has_room_for() {
    let _turn = turn();
    let (device, _) = oracle::open(4);
    let stream = fresh(&device);
    let kernel = oracle::copy_kernel();
    let buffer = device.allocate(64).unwrap();
    let in_flight = || stream.0.latest().sequence() - device.0.hal.completed(stream.0.queue());
    // One has looked, and others have come before it.
    (0..20).for_each(|_| {
        let after_it_has_looked = || {
            let layout = Layout::contiguous(Dims::new(&[64]).unwrap());
            let address = buffer.block().address;
            let view = raddle_hal::View { address, dtype: DType::U8, layout };
            let operands = [raddle_hal::Operand::Out(view), raddle_hal::Operand::In(view)];
            let launch = raddle_hal::Launch::Kernel { kernel: &kernel, operands: &operands };
            stream.enqueue_in_room("op", &launch, &mut [], &[]).unwrap()
        };
        after_it_has_looked();
        assert!(in_flight() <= 4, "{}", in_flight());
    });
    op_of(&kernel, stream, &[], &[&buffer]).unwrap();
}

/// A capture's memory is short, and a hook computes.
#[test]
fn what_a_hook_does_is_no_part_of_a_capture() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    let (input, kept) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let hoard = Mutex::new(Some(device.allocate(50 << 20).unwrap()));
    let stream = Stream::current(&device).unwrap();
    oracle.set_slab_bytes_left(0);
    let hook = device.on_out_of_memory(move |_| {
        op(stream, &[], &[&kept]).unwrap();
        device.synchronize().unwrap();
        match hoard.lock().unwrap().take() {
            Some(_) => AfterNeed::Retry,
            None => AfterNeed::GiveUp,
        }
    });
    let capture = Capture::begin(&device).unwrap();
    let output = device.allocate(50 << 20).unwrap();
    op(stream, &[&input], &[&output]).unwrap();
    let graph = capture.end(&[&output]).unwrap();
    assert_eq!(graph.stats().nodes, 1);
    drop(hook);
}

/// A block of a capture is written outside of it, and stands for another region then.
#[test]
fn what_a_capture_allocates_has_no_value_whatever_was_there() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    let capture = Capture::begin(&device).unwrap();
    let first = device.allocate(64).unwrap();
    uncaptured(|| device.upload(&first, 0, &[1; 64])).unwrap();
    drop(first);
    let second = device.allocate(64).unwrap();
    drop(capture);
    assert!(matches!(device.download(&second, 0, &mut [0; 64]), Err(Error::Captured { .. })));
}

/// A capture is dropped or ended where nothing is captured, also by a hook in the middle of an allocation.
#[test]
fn a_capture_may_end_where_nothing_is_captured() {
    let _turn = turn();
    let (device, oracle) = oracle::open(8);
    let stream = fresh(&device);
    let works = || {
        assert!(!device.is_capturing());
        let buffer = device.allocate(64).unwrap();
        op(stream, &[], &[&buffer]).unwrap();
        device.download(&buffer, 0, &mut [0; 64]).unwrap();
    };
    let capture = Capture::begin(&device).unwrap();
    uncaptured(|| {
        uncaptured(works);
        drop(capture);
        works();
    });
    works();
    let capture = Capture::begin(&device).unwrap();
    uncaptured(|| capture.end(&[])).unwrap();
    works();
    let capture = Mutex::new(Some(Capture::begin(&device).unwrap()));
    let other = uncaptured(|| {
        drop(capture.lock().unwrap().take());
        Capture::begin(&device).unwrap()
    });
    assert!(device.is_capturing(), "what has begun inside goes on");
    drop(other);
    works();

    thread_local! {
        static HELD: RefCell<Option<Capture>> = const { RefCell::new(None) };
    }
    let hoard = Mutex::new(Some(device.allocate(50 << 20).unwrap()));
    oracle.set_slab_bytes_left(0);
    let hook = device.on_out_of_memory(move |_| {
        HELD.take();
        hoard.lock().unwrap().take();
        AfterNeed::Retry
    });
    HELD.set(Some(Capture::begin(&device).unwrap()));
    let buffer = device.allocate(50 << 20).unwrap();
    op(stream, &[], &[&buffer]).unwrap();
    assert!(device.download(&buffer, 0, &mut [0; 64]).is_ok(), "it is memory as any other");
    works();
    drop(hook);
}
