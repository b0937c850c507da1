//! What becomes of work in flight when its thread or the process ends: it is neither dropped nor waited for. Streams stand
//! still here until somebody lets go of them, which nobody does at the end of a process: whoever waited for one then would
//! wait for ever, and is seen as soon as it does, without a clock.
#![cfg(not(loom))]

use raddle_cpu::Cpu;
use raddle_runtime::{Buffer, Device, Foreign, Priority, Ready, Stream, hal::QueueId, on_release};
use raddle_sim::{Others, Sim, SimOptions};
use raddle_sync::faults::{Fault, assert_caught};
use std::{
    env,
    process::{self, Command},
    thread,
};

const SIZE_BYTES: usize = 2048;
const SEED_COUNT: u64 = 40;
/// The queue of the default stream.
const STILL: QueueId = QueueId(0);
/// Makes the test live this life: that its process ends.
const ENDS: &str = "RADDLE_TEST_ENDS";
const EXIT_CODE: i32 = 7;

fn open(seed: u64) -> (Device, Others) {
    let options = SimOptions { seed, ..SimOptions::default() };
    let sim = Sim::new(Box::new(Cpu::new()), options).unwrap();
    let others = sim.others();
    (Device::open(Box::new(sim)).unwrap(), others)
}

/// Ends the process, badly, when so many threads wait for what stands still.
fn refuse_waits(others: Others, count: usize) {
    thread::spawn(move || {
        while others.waiting_count() < count {
            thread::yield_now();
        }
        eprintln!("a thread that ends waits for a stream");
        process::abort();
    });
}

/// Puts work on a stream from a thread that ends at once.
fn write_and_end(device: Device, stream: Stream, value: u8) -> Buffer {
    let write = move || {
        stream.set_current();
        let buffer = device.allocate(SIZE_BYTES).unwrap();
        device.upload(&buffer, 0, &[value; SIZE_BYTES]).unwrap();
        buffer
    };
    thread::spawn(write).join().unwrap()
}

fn read(device: Device, buffer: &Buffer) -> [u8; SIZE_BYTES] {
    let mut bytes = [0; SIZE_BYTES];
    device.download(buffer, 0, &mut bytes).unwrap();
    bytes
}

/// A thread's end doesn't wait for its work, however late that is.
#[test]
fn a_thread_ends_beside_a_stream_that_stands_still() {
    let (device, others) = open(1);
    let stream = Stream::default(&device).unwrap();
    others.hold(STILL);
    refuse_waits(others.clone(), 1);
    let buffer = write_and_end(device, stream, 5);
    assert!(!stream.query());
    others.let_go(STILL);
    assert_eq!(read(device, &buffer), [5; SIZE_BYTES]);
}

/// Nor does the end of the process, with work of its own thread in flight, a callback that waits, memory that was freed, also that of
/// others, and a trace to be written.
#[test]
fn a_process_ends_beside_a_stream_that_stands_still() {
    if env::var_os(ENDS).is_some() {
        let (device, others) = open(1);
        let stream = Stream::default(&device).unwrap();
        others.hold(STILL);
        stream.set_current();
        let buffer = device.allocate(SIZE_BYTES).unwrap();
        device.upload(&buffer, 0, &[3; SIZE_BYTES]).unwrap();
        stream.on_complete(|_| process::abort()).unwrap();
        // Nor is memory of others given back, whose last handle has gone and that the stream still reads.
        let owner = || on_release(|| process::abort());
        // SAFETY: the memory is never freed.
        let foreign = || unsafe {
            Foreign::new(
                &device,
                Box::leak(Box::new([0u8; SIZE_BYTES])).as_mut_ptr() as u64,
                SIZE_BYTES,
                owner(),
            )
        };
        let [read, kept] = [foreign(), foreign()].map(|foreign| device.adopt(foreign, Ready::Now).unwrap());
        device.upload(&read, 0, &[3; SIZE_BYTES]).unwrap();
        drop(read);
        std::mem::forget(kept);
        // The callback's thread waits for it, and nobody else may.
        refuse_waits(others, 2);
        drop((buffer, write_and_end(device, stream, 5)));
        process::exit(EXIT_CODE);
    }
    let trace = env::temp_dir().join(format!("raddle-exits-{}.json", process::id()));
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "a_process_ends_beside_a_stream_that_stands_still", "--nocapture"]);
    let output = command.env(ENDS, "1").env("RADDLE_TRACE", &trace).output().unwrap();
    let is_written = std::fs::remove_file(&trace).is_ok();
    assert_eq!(output.status.code(), Some(EXIT_CODE), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(is_written, "there is no trace");
}

#[test]
fn fault_exit_waits_for_work() {
    assert_caught(Fault::exit_waits_for_work, "a_thread_ends_beside_a_stream_that_stands_still");
    assert_caught(Fault::exit_waits_for_work, "a_process_ends_beside_a_stream_that_stands_still");
}

/// What a thread has put on its stream is done, and others are ordered behind it, though the thread is gone.
#[test]
fn work_outlives_its_thread() {
    for seed in 0..SEED_COUNT {
        let (device, _) = open(seed);
        let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
        let buffer = write_and_end(device, stream, 7);
        assert_eq!(read(device, &buffer), [7; SIZE_BYTES], "seed {seed}");
        drop(buffer);
        assert!(device.close().unwrap());
    }
    println!("{SEED_COUNT} schedules");
}

#[test]
fn fault_exit_drops_work() {
    assert_caught(Fault::exit_drops_work, "work_outlives_its_thread");
}
