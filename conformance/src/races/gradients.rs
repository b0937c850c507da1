//! Cases of automatic differentiation: threads that share tensors of one graph.

use super::fixture::{Fixture, filled, trials};
use raddle::{
    Device, Tensor,
    grad::{Autograd, Error, no_grad},
    runtime,
};
use std::sync::{
    Arc, Barrier,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

fn leaf(device: &Device, size: usize, value: f32) -> Tensor {
    let leaf = filled(device, size, value);
    leaf.requires_grad_(true).unwrap();
    leaf
}

fn has_gradient(leaf: &Tensor, value: f32) -> bool {
    leaf.grad().is_some_and(|gradient| gradient.to_vec::<f32>().unwrap().iter().all(|&found| found == value))
}

/// Two threads at once.
fn both(one: impl FnOnce() + Send, other: impl FnOnce() + Send) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            barrier.wait();
            one();
        });
        barrier.wait();
        other();
    });
}

/// One thread changes a tensor in place, another meanwhile asks a view for its place in the graph, reads it, or makes others.
pub(super) fn a_view_is_looked_at_while_its_base_changes(fixture: &Fixture) {
    trials(fixture.count(1500, 150), |trial| {
        let a = leaf(&fixture.device, 64, 1.0);
        let y = a.mul(1.0).unwrap();
        let view = y.narrow(0, 16, 32).unwrap();
        both(
            || {
                fixture.be_late(trial);
                y.mul_(2.0).unwrap();
            },
            || match trial % 3 {
                0 => _ = view.requires_grad(),
                1 => _ = view.exp().unwrap(),
                _ => {
                    _ = y.narrow(0, 0, 8).unwrap().requires_grad()
                        && view.narrow(0, 1, 2).unwrap().requires_grad()
                }
            },
        );
        let again = y.narrow(0, 0, 16).unwrap();
        view.sum(.., false).unwrap().add(&again.sum(.., false).unwrap()).unwrap().backward().unwrap();
        let expected: Vec<f32> = (0..64).map(|at| if at < 48 { 2.0 } else { 0.0 }).collect();
        a.grad().unwrap().to_vec::<f32>().unwrap() == expected
    });
}

/// Threads that each fill a row of a tensor, which thereby gets into the graph; some by products, for which the old value is copied.
pub(super) fn rows_are_filled_by_4_threads(fixture: &Fixture) {
    trials(fixture.count(600, 60), |trial| {
        let y = Tensor::ones([4, 16], raddle::DType::F32, &fixture.device).unwrap();
        let leaves: Vec<Tensor> = (0..4).map(|_| leaf(&fixture.device, 16, 3.0)).collect();
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for (thread, leaf) in leaves.iter().enumerate() {
                let (y, barrier) = (&y, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    fixture.be_late(trial + thread);
                    let row = y.select(0, thread as isize).unwrap();
                    row.mul_(2.0).unwrap();
                    match trial % 2 {
                        0 => row.copy_(&leaf.mul(2.0).unwrap()).unwrap(),
                        _ => row.mul_(leaf).unwrap(),
                    };
                });
            }
        });
        y.sum(.., false).unwrap().backward().unwrap();
        leaves.iter().all(|leaf| has_gradient(leaf, 2.0))
    });
}

/// One thread overwrites a tensor by a leaf, which puts it into a graph, another a part of it by a constant. Where the constant
/// stands, the leaf has no gradient, and elsewhere it has one. By the tensor itself, and not by a view, it may be an error.
pub(super) fn a_tensor_joins_while_a_part_is_filled(fixture: &Fixture) {
    trials(fixture.count(4000, 400), |trial| {
        let a = leaf(&fixture.device, 64, 1.0);
        let y = filled(&fixture.device, 64, 0.0);
        let (by_view, whole) = (trial % 4 != 3, y.clone());
        let part = if by_view { y.narrow(0, 16, 32).unwrap() } else { whole };
        both(
            || _ = y.copy_(&a).unwrap(),
            || match trial % 2 {
                0 => _ = part.fill_(3.0).unwrap(),
                // Its gradient needs what it overwrites: of 0 it is cos(0), of 1 it is cos(1).
                _ => _ = part.sin_().unwrap(),
            },
        );
        let values = y.detach().to_vec::<f32>().unwrap();
        if let Err(error) = y.sum(.., false).unwrap().backward() {
            return !by_view && matches!(error, Error::Raced { .. });
        }
        let gradients = a.grad().unwrap().to_vec::<f32>().unwrap();
        values.iter().zip(&gradients).all(|(&value, &gradient)| match value {
            1.0 => gradient == 1.0,
            3.0 => gradient == 0.0,
            sine => (sine - 1f32.sin()).abs() < 1e-6 && (gradient - 1f32.cos()).abs() < 1e-6,
        })
    });
}

/// Backward beside writers of what the forward pass has saved: an error, or the gradient of what the forward saw.
pub(super) fn a_saved_tensor_is_overwritten(fixture: &Fixture) {
    fixture.alone(|device| {
        by_a_resource(device);
        by_a_thread(device, fixture.count(2000, 100));
    });
}

/// One pass, and whether what it says can be true. Its weight is all one number in the order of ops.
fn is_consistent(
    device: &Device,
    weight: &Tensor,
    backward: impl FnOnce(&Tensor) -> Result<(), Error>,
) -> bool {
    let x = leaf(device, weight.element_count(), 1.0);
    let y = x.mul(weight).unwrap();
    match backward(&y.sum(.., false).unwrap()) {
        Err(Error::Changed { .. }) => true,
        Err(_) => false,
        Ok(()) => x.grad().unwrap().to_vec::<f32>().unwrap() == y.detach().to_vec::<f32>().unwrap(),
    }
}

/// Memory that is asked for may come with a write, at any point of a pass.
struct WritesAt {
    weight: Tensor,
    allocations_left: AtomicUsize,
}

impl runtime::MemoryResource for WritesAt {
    fn allocate(&self, size_bytes: usize) -> runtime::Result<runtime::Allocation> {
        if self.allocations_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) == Ok(1) {
            no_grad(|| self.weight.fill_(5.0).map(drop)).unwrap();
        }
        runtime::DeviceMemory(self.device()).allocate(size_bytes)
    }
    fn free(&self, allocation: runtime::Allocation) {
        runtime::DeviceMemory(self.device()).free(allocation);
    }
    fn device(&self) -> runtime::Device {
        self.weight.device()
    }
}

fn by_a_resource(device: &Device) {
    let resource =
        Arc::new(WritesAt { weight: filled(device, 64, 1.0), allocations_left: AtomicUsize::new(0) });
    device.set_memory_resource(Some(resource.clone())).unwrap();
    trials(12, |allocation| {
        resource.weight.fill_(1.0).unwrap();
        is_consistent(device, &resource.weight, |y| {
            resource.allocations_left.store(allocation, Relaxed);
            let result = y.backward();
            resource.allocations_left.store(0, Relaxed);
            result
        })
    });
    device.set_memory_resource(None).unwrap();
}

fn by_a_thread(device: &Device, count: usize) {
    let weight = filled(device, 1000, 0.0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1.. {
                if stop.load(Relaxed) {
                    break;
                }
                weight.fill_(f64::from(value % 1000)).unwrap();
                device.synchronize().unwrap();
            }
        });
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _stop = Stop(&stop);
        trials(count, |_| is_consistent(device, &weight, |y| y.backward()));
    });
}
