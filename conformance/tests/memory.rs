//! Memory as users meet it, on kernels that run late: case C-11 where blocks are split, hooks, private pools of many threads,
//! a snapshot of a run, scratch of kernels.

use raddle::{
    DType, Device, Error, Priority, Stream, Tensor,
    runtime::{self, AfterNeed, PieceState},
};
use raddle_sync::faults::{Fault, assert_caught};
use std::sync::Arc;

fn stream(device: &Device) -> Stream {
    Stream::from_pool(device, Priority::Normal).unwrap()
}

fn full(device: &Device, count: usize, value: f32) -> Tensor {
    Tensor::full([count], value, DType::F32, device).unwrap()
}

/// Pieces of the only slab, freed while another stream reads them, make up what is asked for.
#[test]
fn c_11_pieces_in_flight_are_awaited_and_merged() {
    for seed in 0..8 {
        let device = Device::new(&format!("sim:{seed}")).unwrap();
        device.set_memory_limit(33 << 20);
        let (first, second) = (stream(&device), stream(&device));
        let guard = first.enter();
        let pieces: Vec<Tensor> = (0..8).map(|piece| full(&device, 1 << 20, piece as f32)).collect();
        drop(guard);
        let guard = second.enter();
        let heads: Vec<Tensor> =
            pieces.iter().map(|piece| piece.slice(0, 0, 8, 1).unwrap().add(1.0).unwrap()).collect();
        drop(guard);
        drop(pieces);
        let guard = first.enter();
        let whole = full(&device, 7 << 20, -1.0);
        drop(guard);
        for (piece, head) in heads.iter().enumerate() {
            assert_eq!(head.to_vec::<f32>().unwrap(), [piece as f32 + 1.0; 8], "seed {seed}");
        }
        drop((whole, heads));
        assert!(device.close().unwrap(), "seed {seed}");
    }
}

/// Tensors for which a hook of the user makes room.
#[test]
fn hooks_make_room_for_tensors() {
    let device = Device::new("sim:3").unwrap();
    device.set_memory_limit(33 << 20);
    let kept = Arc::new(std::sync::Mutex::new(vec![full(&device, 4 << 20, 1.0)]));
    let caches = kept.clone();
    let hook = device.on_out_of_memory(move |_| match caches.lock().unwrap().pop() {
        Some(_) => AfterNeed::Retry,
        None => AfterNeed::GiveUp,
    });
    let sum = full(&device, 6 << 20, 2.0).slice(0, 0, 4, 1).unwrap().add(1.0).unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), [3.0; 4]);
    assert!(kept.lock().unwrap().is_empty());
    assert_eq!(device.memory_stats().out_of_memory_retries, 1);
    drop((hook, sum));
    assert!(device.close().unwrap());
}

/// Threads with pools of their own and one in common, which hand tensors to each other.
#[test]
fn pools_of_many_threads() {
    for seed in 0..4 {
        let device = &Device::new(&format!("sim:{seed}")).unwrap();
        let common = &device.memory_pool();
        let (sender, receiver) = std::sync::mpsc::channel::<(Tensor, f32)>();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        let own = device.memory_pool();
                        for round in 0..12 {
                            let _guard = if round % 2 == 0 { own.enter() } else { common.enter() };
                            let value = (100 * thread + round) as f32;
                            let sum = full(device, 1000, value).add(1.0).unwrap();
                            sender.send((sum, value + 1.0)).unwrap();
                        }
                    })
                })
                .collect();
            drop(sender);
            for (tensor, value) in receiver {
                assert!(tensor.to_vec::<f32>().unwrap().iter().all(|&found| found == value), "seed {seed}");
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(device.memory_stats().allocated_bytes, 0, "seed {seed}");
        assert!(device.close().unwrap(), "seed {seed}");
    }
}

/// Every event of a snapshot is a block's birth or death, and what is alive is what the pieces say.
#[test]
fn a_snapshot_of_a_run_is_consistent() {
    let device = Device::new("sim:9").unwrap();
    device.set_memory_history(10_000);
    let kept: Vec<Tensor> = (1..20).map(|size| full(&device, 700 * size, 1.0).exp().unwrap()).collect();
    let snapshot = device.memory_snapshot();
    let mut alive = std::collections::BTreeSet::new();
    for event in &snapshot.events {
        match event.kind {
            runtime::MemoryEventKind::Allocate => assert!(alive.insert(event.address), "given out twice"),
            runtime::MemoryEventKind::Free => assert!(alive.remove(&event.address), "freed twice"),
        }
    }
    let pieces = snapshot.slabs.iter().flat_map(|slab| &slab.pieces);
    let allocated = pieces.filter(|piece| piece.state == PieceState::Allocated).map(|piece| piece.address);
    assert_eq!(allocated.collect::<std::collections::BTreeSet<_>>(), alive);
    assert_eq!(runtime::MemorySnapshot::from_json(&snapshot.to_json()).unwrap(), snapshot);
    drop(kept);
    device.set_memory_history(0);
    assert!(device.close().unwrap());
}

/// Kernels over long lines: what they take counts, what passes over lines takes nothing, and what sorts them is refused where
/// there is no memory, before it has written anything.
#[test]
fn scratch_is_memory_of_the_device() {
    const MIB: usize = 1 << 20;
    let device = Device::new("sim:11").unwrap();
    let count = 1usize << 20;
    let places = Tensor::arange(0, count as i64, 1, DType::I64, &device).unwrap();
    let numbers = places.mul(48_271).unwrap().rem(65_537).unwrap();
    let [f32, u8, bf16] = [DType::F32, DType::U8, DType::BF16].map(|dtype| numbers.to(dtype).unwrap());
    // Of several pieces, in any layout.
    let across = Tensor::zeros([count, 2], DType::BF16, &device).unwrap().select(1, 1).unwrap();
    across.copy_(&bf16).unwrap();
    let peak = |op: &dyn Fn() -> Vec<Tensor>| {
        device.synchronize().unwrap();
        device.empty_cache();
        let before = device.memory_stats().allocated_bytes;
        device.reset_memory_peaks();
        drop(op());
        device.synchronize().unwrap();
        // Threads count to 64 KiB by themselves.
        (device.memory_stats().allocated_peak_bytes - before + (1 << 17)) / MIB
    };
    for x in [&f32, &u8, &bf16, &across] {
        let of = |elements_bytes: usize| elements_bytes * count / MIB;
        let size = x.dtype().size_bytes();
        assert_eq!(peak(&|| vec![x.argmax(0, false).unwrap(), x.sum(0, false).unwrap()]), 0);
        assert_eq!(peak(&|| vec![x.topk(3, 0, true).unwrap().0]), 0);
        let sum_size = if x.dtype() == DType::U8 { 8 + 8 } else { size }; // which is cast first
        assert_eq!(peak(&|| vec![x.cumsum(0).unwrap()]), of(sum_size));
        if x.dtype() != DType::U8 {
            assert_eq!(peak(&|| vec![x.softmax(0).unwrap()]), of(size));
        }
        // Of f32 a word of key and index for each element; smaller ones are counted.
        let words = if x.dtype() == DType::F32 { 8 } else { 0 };
        assert_eq!(peak(&|| vec![x.sort(0, true).unwrap().0]), of(size + 8 + words), "{}", x.dtype());
    }
    let to = (full(&device, count, 7.0), Tensor::full([count], 7, DType::I64, &device).unwrap());
    let target = Tensor::full([count], 7.0, DType::BF16, &device).unwrap();
    device.synchronize().unwrap();
    device.empty_cache();
    device.set_memory_limit(device.memory_stats().reserved_bytes);
    let mut filler = Vec::new();
    while let Ok(more) = Tensor::full([1 << 16], 0.0, DType::F32, &device) {
        filler.push(more);
    }
    let refused = [f32.sort_out(0, false, (&to.0, &to.1)), target.scatter_add_(0, &places, &bf16).map(drop)];
    for refused in refused {
        let Err(Error::Runtime(runtime::Error::OutOfMemory { asked_bytes, .. })) = refused else {
            panic!("there is no memory, and it says {refused:?}")
        };
        assert_eq!(asked_bytes, 8 * count);
    }
    device.set_memory_limit(usize::MAX);
    assert!(to.0.eq(7).unwrap().all(.., false).unwrap().item::<bool>().unwrap());
    assert!(to.1.eq(7).unwrap().all(.., false).unwrap().item::<bool>().unwrap());
    assert!(target.eq(7).unwrap().all(.., false).unwrap().item::<bool>().unwrap());
    f32.sort_out(0, false, (&to.0, &to.1)).unwrap();
    target.scatter_add_(0, &places, &bf16).unwrap();
    let mut sorted = f32.to_vec::<f32>().unwrap();
    sorted.sort_by(f32::total_cmp);
    assert_eq!(to.0.to_vec::<f32>().unwrap(), sorted);
    drop((filler, to, target, f32, u8, bf16, across, places, numbers));
    assert!(device.close().unwrap());
}

/// Beside 128 MiB of numbers what searches them fits a limit of 700 MiB, and what doesn't is refused.
#[test]
fn long_lines_keep_to_the_limit() {
    const MIB: usize = 1 << 20;
    let device = Device::new("sim:12").unwrap();
    device.set_memory_limit(700 * MIB);
    let x = Tensor::zeros([128 * MIB], DType::U8, &device).unwrap();
    x.select(0, 100_000_001).unwrap().fill_(200).unwrap();
    assert_eq!(x.argmax(0, false).unwrap().item::<i64>().unwrap(), 100_000_001);
    let (values, indices) = x.topk(3, 0, true).unwrap();
    assert_eq!(values.to_vec::<u8>().unwrap(), [200, 0, 0]);
    assert_eq!(indices.to_vec::<i64>().unwrap(), [100_000_001, 0, 1]);
    let sorted = x.sort(0, true).map(drop); // the indices take 1 GiB
    assert!(matches!(sorted, Err(Error::Runtime(runtime::Error::OutOfMemory { .. }))), "{sorted:?}");
    assert!(device.memory_stats().reserved_peak_bytes <= 700 * MIB);
    drop((x, values, indices));
    assert!(device.close().unwrap());
}

#[test]
fn fault_scratch_is_not_counted() {
    assert_caught(Fault::scratch_is_not_counted, "scratch_is_memory_of_the_device");
}

#[test]
fn fault_searched_lines_are_copied() {
    for test in ["scratch_is_memory_of_the_device", "long_lines_keep_to_the_limit"] {
        assert_caught(Fault::searched_lines_are_copied, test);
    }
}
