//! Memory as users meet it, on kernels that run late: case C-11 where blocks are split, hooks, private pools of many threads,
//! a snapshot of a run, scratch of kernels.

use raddle::{
    DType, Device, Error, Foreign, Layout, Priority, Ready, Stream, Tensor,
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
            other => panic!("there is no memory of others, and it says {other:?}"),
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

/// What a tensor over memory of others is: a tensor, whose ops are of that memory.
#[test]
fn tensors_lie_over_memory_of_others() {
    for name in ["cpu", "sim:12"] {
        let device = Device::new(name).unwrap();
        let values: Vec<f32> = (0..12).map(|value| value as f32).collect();
        let address = values.as_ptr() as u64;
        let x = Tensor::over_vec(values, [3, 4], &device).unwrap();
        assert_eq!((x.buffer().address(), x.buffer().is_foreign()), (address, true));
        x.select(0, 1).unwrap().mul_(10).unwrap();
        assert_eq!(x.sum(1, false).unwrap().to_vec::<f32>().unwrap(), [6.0, 220.0, 38.0]);
        assert_eq!(device.memory_stats().foreign_bytes, 48);

        // Bytes that are counted: read, and never written, in place or as an output.
        let counted: Arc<[u8]> = Arc::from([0u8; 32]);
        let y = Tensor::over_bytes(counted.clone(), [4], DType::I64, &device).unwrap();
        assert_eq!(y.add(1).unwrap().to_vec::<i64>().unwrap(), [1; 4]);
        let text = |op: &str| {
            format!(
                "{op}: the output is memory of others that may only be read, 32 bytes on {name}; use copy() first"
            )
        };
        assert_eq!(y.add_(1).unwrap_err().to_string(), text("add"));
        assert_eq!(y.narrow(0, 1, 2).unwrap().fill_(1).unwrap_err().to_string(), text("fill"));
        assert_eq!(y.add_out(1, &y).unwrap_err().to_string(), text("add"));
        assert_eq!(y.copy_from_slice(&[1i64; 4]).unwrap_err().to_string(), text("copy_from_slice"));
        assert_eq!((y.version(), y.copy().unwrap().add_(1).is_ok()), (0, true));
        assert_eq!(y.to_vec::<i64>().unwrap(), [0; 4]);
        // Bytes at an odd place are copied.
        struct Odd(Arc<[u8]>);
        impl AsRef<[u8]> for Odd {
            fn as_ref(&self) -> &[u8] {
                let at = self.0.as_ptr().align_offset(8);
                &self.0[(at + 1) % 8..][..16]
            }
        }
        let odd = Tensor::over_bytes(Odd(counted.clone()), [2], DType::I64, &device).unwrap();
        assert!(!odd.buffer().is_foreign());
        let error = |tensor: raddle::Result<Tensor>| tensor.unwrap_err().to_string();
        assert_eq!(
            error(Tensor::over_bytes([2u8], [1], DType::Bool, &device)),
            "over_bytes: a bool is out of range, expected 0 or 1, found 2"
        );
        assert_eq!(
            error(Tensor::over_bytes([2u8], [2], DType::U8, &device)),
            "over_bytes: shape [2] has 2 elements, found 1"
        );
        assert_eq!(
            error(Tensor::over_vec(vec![1.0f32], [2, 0], &device)),
            "over_vec: shape [2, 0] has 0 elements, found 1"
        );
        assert_eq!(Tensor::over_vec(Vec::<f32>::new(), [2, 0], &device).unwrap().shape()[..], [2, 0]);

        // With strides, of an owner that says when the memory isn't used any more.
        struct Lent(Vec<u8>, std::ops::Range<usize>, std::sync::mpsc::Sender<()>);
        impl AsRef<[u8]> for Lent {
            fn as_ref(&self) -> &[u8] {
                &self.0[self.1.clone()]
            }
        }
        impl Drop for Lent {
            fn drop(&mut self) {
                self.2.send(()).unwrap();
            }
        }
        let (sender, back) = std::sync::mpsc::channel();
        let over = |range: std::ops::Range<usize>, shape: [usize; 2], strides: [usize; 2]| {
            let bytes: Vec<u8> = (1..10).flat_map(|value| (value as f32).to_ne_bytes()).collect();
            let mut bytes = [bytes, vec![0; 4]].concat();
            let start = bytes.as_ptr().align_offset(4);
            bytes.rotate_right(start);
            let owner = Lent(bytes, range.start + start..range.end + start, sender.clone());
            let memory = Foreign::slice(&x.device(), owner)?;
            let [shape, strides] = [shape, strides].map(|sizes| sizes.into_iter().collect());
            Tensor::from_foreign(memory, Layout::new(shape, strides, 0), DType::F32, Ready::Now)
        };
        let z = over(0..24, [3, 2], [1, 3]).unwrap();
        assert_eq!(z.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        let view = z.select(0, 1).unwrap();
        let doubled = view.mul(2).unwrap();
        drop((z, view));
        device.synchronize().unwrap();
        back.recv().unwrap();
        assert_eq!(doubled.to_vec::<f32>().unwrap(), [4.0, 10.0]);
        assert_eq!(
            error(over(0..20, [3, 2], [1, 3])),
            "from_foreign: the view reaches element 5, the storage has 5 elements"
        );
        assert!(error(over(1..17, [1, 1], [1, 1])).starts_with("from_foreign: the address is out of range"));
        assert_eq!(back.try_iter().count(), 2, "who is refused has it back");
        drop((x, y, odd, doubled));
        device.synchronize().unwrap();
        assert!(name == "cpu" || device.close().unwrap());
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
