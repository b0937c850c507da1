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
