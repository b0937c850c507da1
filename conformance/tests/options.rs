//! What can be chosen of a device, on every device. Where there is no GPU its tests are ignored.

use libtest_mimic::{Arguments, Trial};
use raddle::{Limits, cuda::CudaOptions, prelude::*};
use raddle_conformance::Backend;
use std::process::ExitCode;

/// More kernels than stay loaded, from many threads, while the caches are cleared: each runs to its end, in order.
fn few_kernels_stay_and_all_of_them_run(name: &str) {
    let limits = Limits {
        kernel_count: Some(2),
        algorithm_count: Some(1),
        kernel_bytes: Some(1 << 20),
        ..Limits::default()
    };
    let device = Device::with_limits(name, &limits).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let device = &device;
            scope.spawn(move || {
                let ones = Tensor::ones([32, 32], DType::F32, device).unwrap();
                for step in thread..thread + 12 {
                    let x = match step % 4 {
                        0 => ones.add(1),
                        1 => ones.mul(3),
                        2 => ones.matmul(&ones),
                        _ => ones.sum(1, false),
                    };
                    let expected = [2.0, 3.0, 32.0, 32.0][step % 4];
                    let found = x.unwrap().sub(1).unwrap().to_vec::<f32>().unwrap();
                    assert!(found.iter().all(|found| *found == expected - 1.0), "{name}, step {step}");
                }
            });
        }
        (0..10).for_each(|_| device.clear_caches().unwrap());
    });
    let stats = device.cache_stats().device;
    assert!(stats.kernels.cached_count <= 2 && stats.kernels.cached_bytes <= 1 << 20, "{stats:?}");
    assert!(stats.algorithms.cached_count <= 1, "{stats:?}");
    if name == "cuda:0" {
        assert!(
            stats.kernels.evictions > 0 && stats.own.get("compiles").unwrap() <= stats.kernels.misses,
            "{stats:?}"
        );
        device.synchronize().unwrap();
        device.clear_current_thread_caches();
        device.clear_caches().unwrap();
        let stats = device.cache_stats().device;
        let left = (stats.kernels.cached_count, stats.thread_count, stats.pinned_bytes);
        assert_eq!(left, (0, 0, 0), "{stats:?}");
    }
}

/// TF32 keeps 11 bits of a factor. 1 + 2⁻¹² needs 13: as it is the products are exact, without its last bit they are 1.
fn factors_are_rounded_on_request_only() {
    const SIZE: usize = 256;
    for (tf32, expected) in [(false, 1.0 + 1.0 / 4096.0), (true, 1.0)] {
        let device = Device::cuda(0, CudaOptions { tf32, ..CudaOptions::default() }).unwrap();
        let a = Tensor::full([SIZE, SIZE], 1.0 + 1.0 / 4096.0, DType::F32, &device).unwrap();
        let eye = Tensor::eye(SIZE, SIZE, DType::F32, &device).unwrap();
        let found = a.matmul(&eye).unwrap().to_vec::<f32>().unwrap();
        assert!(found.iter().all(|&found| found == expected), "tf32 {tf32}: {} and others", found[0]);
        // Of whole numbers that need fewer bits all products are exact.
        let small = Tensor::full([SIZE, SIZE], 3, DType::F32, &device).unwrap();
        let found = small.matmul(&small).unwrap().to_vec::<f32>().unwrap();
        assert!(found.iter().all(|&found| found == 9.0 * SIZE as f32), "tf32 {tf32}");
    }
}

fn main() -> ExitCode {
    let absent = Backend::Cuda.absent();
    if let Some(absent) = absent {
        println!("skipped: {absent}");
    }
    let trial = |name: &str, body: Box<dyn FnOnce() + Send>| {
        let ignored = absent.is_some() && name.starts_with("cuda");
        let run = move || {
            body();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    let mut trials: Vec<Trial> = [("cpu", "cpu"), ("sim", "sim:4"), ("cuda", "cuda:0")]
        .map(|(backend, device)| {
            let name = format!("{backend}::few_kernels_stay_and_all_of_them_run");
            trial(&name, Box::new(|| few_kernels_stay_and_all_of_them_run(device)))
        })
        .into();
    let rounded = Box::new(factors_are_rounded_on_request_only);
    trials.push(trial("cuda::factors_are_rounded_on_request_only", rounded));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
