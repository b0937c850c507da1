//! What can be set of the allocator's policy.

use super::*;
use raddle_hal::Bounds;

#[test]
fn slabs_are_no_larger_than_asked_for() {
    let _turn = turn();
    let largest = |bounds| {
        let (device, _) = oracle::open_within(64, bounds);
        let _held: Vec<Buffer> = (0..100).map(|_| device.allocate(1 << 20).unwrap()).collect();
        let pool = device.memory_pool();
        let _inside = pool.enter();
        let _private = device.allocate(1000).unwrap();
        let slabs = device.memory_snapshot().slabs;
        slabs.iter().map(|slab| slab.size_bytes).max().unwrap()
    };
    assert!(largest(Bounds::default()) > 1 << 20);
    assert_eq!(largest(Bounds { slab_bytes: 1 << 20, ..Bounds::default() }), 1 << 20);
    // What is larger than that has a slab of its own.
    let (device, _) = oracle::open_within(64, Bounds { slab_bytes: 1 << 16, ..Bounds::default() });
    drop(device.allocate(40 << 20).unwrap());
    assert_eq!(device.memory_stats().reserved_bytes, 40 << 20);
}

/// Another stream uses each block, and nothing is ever complete.
#[test]
fn so_much_is_in_flight_as_asked_for() {
    let _turn = turn();
    let reserved = |pending_ratio, size_bytes: usize| {
        let (device, _) = oracle::open_within(1000, Bounds { pending_ratio, ..Bounds::default() });
        let [a, b] = [(); 2].map(|()| Stream::from_pool(&device, Priority::Normal).unwrap());
        let _guard = a.enter();
        for _ in 0..200 {
            let buffer = device.allocate(size_bytes).unwrap();
            op(b, &[&buffer], &[]).unwrap();
        }
        device.memory_stats().reserved_bytes
    };
    let [few, as_ever, many] = [2, 8, 32].map(|ratio| reserved(ratio, 1 << 20));
    assert!(few < as_ever && as_ever < many, "{few}, {as_ever}, {many}");
}

/// What the device is asked for and doesn't give was never reserved, whoever looks meanwhile and makes the peak start again.
fn refused_memory_is_not_counted() -> Verdict {
    let (device, oracle) = oracle::open(8);
    let held = device.allocate(1 << 20).unwrap();
    let reserved_bytes = device.memory_stats().reserved_bytes;
    oracle.set_slab_bytes_left(0);
    oracle.look_when_refused(move || device.reset_memory_peaks());
    device.allocate(100 << 20).unwrap_err();
    let stats = device.memory_stats();
    drop(held);
    check(
        (stats.reserved_bytes, stats.reserved_peak_bytes) == (reserved_bytes, reserved_bytes),
        "what was refused is counted",
    )
}

#[test]
fn what_is_refused_is_not_reserved() {
    let _turn = turn();
    refused_memory_is_not_counted().unwrap();
}

#[test]
fn fault_asked_is_reserved() {
    let _planted = planted(Fault::asked_is_reserved);
    refused_memory_is_not_counted().unwrap_err();
}

/// The device has no memory, and the limit is full.
fn empty_buffers_are_there() -> Verdict {
    let (device, oracle) = oracle::open(8);
    oracle.set_slab_bytes_left(0);
    device.set_memory_limit(0);
    let stream = Stream::from_pool(&device, Priority::Normal).unwrap();
    let counts = || {
        let stats = device.memory_stats();
        (stats.allocations, stats.frees, stats.allocated_bytes, stats.reserved_bytes)
    };
    let before = counts();
    let buffers: Vec<Buffer> = (0..3).map_while(|_| device.allocate(0).ok()).collect();
    check(buffers.len() == 3, "there is no room for nothing")?;
    check(buffers[0].id() != buffers[1].id() && !buffers[0].is(&buffers[1]), "they are one")?;
    op(stream, &[&buffers[0]], &[&buffers[1]]).unwrap();
    drop(buffers); // in flight
    oracle.complete_all();
    check(counts() == before, "they are counted")
}

#[test]
fn buffers_of_no_bytes_can_always_be_had() {
    let _turn = turn();
    empty_buffers_are_there().unwrap();
}

#[test]
fn fault_empty_takes_memory() {
    let _planted = planted(Fault::empty_takes_memory);
    empty_buffers_are_there().unwrap_err();
}

/// While the device refuses one thread all that the limit leaves, another asks for less, which there is. On its own thread it
/// waits for that; with the fault it doesn't, and can ask here.
fn less_is_there(thread: bool) -> Verdict {
    let (device, oracle) = oracle::open(8);
    device.set_memory_limit(10 << 20);
    oracle.set_slab_bytes_left(2 << 20);
    let (tell, told) = std::sync::mpsc::channel();
    let ask = move || _ = tell.send(device.allocate(1 << 20).is_ok());
    oracle.look_when_refused(move || if thread { _ = std::thread::spawn(ask) } else { ask() });
    device.allocate(10 << 20).unwrap_err();
    check(told.recv() == Ok(true), "it is refused what there is")
}

#[test]
fn what_the_device_refuses_others_is_there() {
    let _turn = turn();
    less_is_there(true).unwrap();
}

#[test]
fn fault_asked_is_taken() {
    let _planted = planted(Fault::asked_is_taken);
    less_is_there(false).unwrap_err();
}
