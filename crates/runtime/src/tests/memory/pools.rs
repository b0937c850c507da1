//! Private pools.

use super::*;

/// Memory of a pool is nobody else's, whoever frees it.
fn isolation() -> Verdict {
    let (device, oracle, a, b) = pair();
    let pool = device.memory_pool();
    let _guard = a.enter();
    let inside = || {
        let _inside = pool.enter();
        [300, 20_000, 1 << 20].map(|size_bytes| device.allocate(size_bytes).unwrap())
    };
    let buffers = inside();
    let addresses = buffers.each_ref().map(Buffer::address);
    buffers.iter().for_each(|buffer| op(b, &[], &[buffer]).unwrap());
    std::thread::scope(|scope| scope.spawn(move || drop(buffers)).join().unwrap());
    oracle.complete_all();
    let reserved_bytes = device.memory_stats().reserved_bytes;
    let others = [300, 20_000, 1 << 20, 1 << 20].map(|size_bytes| device.allocate(size_bytes).unwrap());
    let ranges: Vec<_> =
        device.memory_snapshot().slabs.into_iter().filter(|slab| slab.pool != PoolKind::Large).collect();
    let is_private = |buffer: &Buffer| {
        let of = |slab: &&SlabSnapshot| {
            (0..slab.size_bytes as u64).contains(&buffer.address().wrapping_sub(slab.address))
        };
        ranges.iter().filter(of).any(|slab| matches!(slab.pool, PoolKind::Private { .. }))
    };
    check(!others.iter().any(is_private), "somebody else got memory of the pool")?;
    check(device.memory_stats().reserved_bytes > reserved_bytes, "others have memory of their own")?;
    let again = inside();
    check(again.each_ref().map(Buffer::address) == addresses, "the pool keeps what it has")?;
    // A block outlives handle and guard; then all of it is everybody's.
    drop(pool);
    let kinds = || {
        device
            .memory_stats()
            .pools
            .iter()
            .filter(|pool| matches!(pool.kind, PoolKind::Private { .. }))
            .count()
    };
    check(kinds() == 1, "blocks keep their pool")?;
    drop(again);
    check(kinds() == 0, "and nothing else does")?;
    drop(others);
    device.empty_cache();
    check(device.memory_stats().reserved_bytes == 0, "all of it goes back to the device")?;
    oracle.check()
}

#[test]
fn pools_are_private() {
    let _turn = turn();
    assert_eq!(isolation(), Ok(()));
}

#[test]
fn fault_pool_leaks() {
    let _planted = planted(Fault::pool_leaks);
    assert_eq!(isolation(), Err("somebody else got memory of the pool".into()));
}

#[test]
fn pools_nest_serve_graphs_and_make_room() {
    let _turn = turn();
    let (device, oracle, a, _) = pair();
    let (outer, inner) = (device.memory_pool(), device.memory_pool());
    let private_bytes = |pool: &MemoryPool| {
        let kind = PoolKind::Private { number: pool.number() };
        let stats = device.memory_stats();
        stats.pools.iter().find(|pool| pool.kind == kind).map_or(0, |pool| pool.bytes.allocated_bytes)
    };
    let _outer = outer.enter();
    let first = device.allocate(1000).unwrap();
    let unwound = std::panic::catch_unwind(|| {
        let _inner = inner.enter();
        std::mem::forget(device.allocate(1000).unwrap());
        panic!("planted");
    });
    assert!(unwound.is_err());
    let second = device.allocate(1000).unwrap();
    assert_eq!((private_bytes(&outer), private_bytes(&inner)), (2048, 1024));
    // A graph's instances come from the pool that is current where it is replayed.
    let capture = Capture::begin(&device).unwrap();
    let output = device.allocate(5000).unwrap();
    op(a, &[&first], &[&output]).unwrap();
    let graph = capture.end(&[&output]).unwrap();
    drop(output);
    let outputs = graph.replay_on(a, &[], &[]).unwrap();
    assert_eq!(private_bytes(&outer), 2048 + 5120);
    drop((outputs, graph));
    // Threads don't share guards.
    std::thread::scope(|scope| {
        let elsewhere = || drop(device.allocate(1000).unwrap());
        scope.spawn(elsewhere).join().unwrap();
    });
    assert_eq!(private_bytes(&outer), 2048);
    // Slabs of a pool that nobody uses make room for others.
    drop((first, second));
    oracle.complete_all();
    let guard = inner.enter();
    drop(device.allocate(30 << 20).unwrap());
    drop(guard);
    device.set_memory_limit(40 << 20);
    drop(_outer);
    assert!(device.allocate(32 << 20).is_ok());
    oracle.check().unwrap();
}

/// A pool ends on one thread; another one, which finds no memory, begins to look when the pool has none any more.
fn short_while_a_pool_ends() -> Verdict {
    const SIZE_BYTES: usize = 8 << 20;
    let (device, oracle) = oracle::open(1000);
    for round in 0..50 {
        let pool = device.memory_pool();
        let guard = pool.enter();
        let buffer = device.allocate(SIZE_BYTES).unwrap();
        drop(guard);
        oracle.set_slab_bytes_left(0);
        let inner = memory_of(&device).pools()[0];
        std::thread::scope(|scope| {
            scope.spawn(move || drop((pool, buffer)));
            while inner.large.lock().slabs().next().is_some() {
                std::thread::yield_now();
            }
            device.allocate(SIZE_BYTES).map(drop).map_err(|error| format!("round {round}: {error}"))
        })?;
        oracle.set_slab_bytes_left(SIZE_BYTES);
        device.empty_cache();
        check(device.memory_stats().reserved_bytes == 0, "all of it goes back to the device")?;
    }
    oracle.check()
}

#[test]
fn memory_of_a_pool_that_ends_is_waited_for() {
    let _turn = turn();
    assert_eq!(short_while_a_pool_ends(), Ok(()));
}

#[test]
fn fault_pool_on_its_way() {
    let _planted = planted(Fault::pool_on_its_way);
    assert!(short_while_a_pool_ends().is_err_and(|error| error.contains("out of memory")));
}
