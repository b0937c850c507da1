//! CUDA and Metal as devices over a driver of a few lines: the contract must fit all three before one of them is written
//! against it. One scenario runs on both.

mod cuda;
mod driver;
mod metal;

use driver::Driver;
use raddle_hal::*;
use raddle_sync::Arc;

fn info(name: &str, alignment_bytes: usize) -> Info {
    Info {
        name: name.into(),
        description: "a stub".into(),
        memory_bytes: None,
        in_flight_count_max: 1000,
        alignment_bytes,
        dtypes: raddle_hal::DTypes::ALL,
        poison: false,
        survives_fork: false,
        is_host: false,
        prepares: false,
        bounds: raddle_hal::Bounds::default(),
        source: raddle_hal::trace::Source::new(),
    }
}

fn submit(device: &dyn Device, queue: QueueId, sequence: u64, waits: &[Wait]) {
    // SAFETY: numbers grow by one, waits name what was submitted before, and there are no operands.
    let submitted = unsafe { device.submit(queue, sequence, waits, &Launch::Nothing) };
    assert_eq!(submitted, Ok(Submitted::Queued));
}

fn scenario(device: &dyn Device, driver: &Driver) {
    let (a, b) = (QueueId(0), QueueId(1));
    for queue in [a, b] {
        device.open_queue(queue, Priority::Normal).unwrap();
        assert_eq!(device.completed(queue), 0, "an idle queue is complete");
    }
    // b waits for the second of a's three launches, and nobody flushes a.
    (1..=3).for_each(|sequence| submit(device, a, sequence, &[]));
    submit(device, b, 1, &[Wait { queue: a, sequence: 2 }]);
    device.flush(b);
    let mut steps = 0;
    while device.completed(b) < 1 {
        assert!(driver.step(), "{}: a flushed launch never runs", device.info().name);
        steps += 1;
        assert!(steps < 100);
    }
    let launched = driver.launched();
    let position = |launch| launched.iter().position(|other| *other == launch);
    assert!(position((0, 2)) < position((1, 1)), "{launched:?}");
    assert!(position((0, 2)).is_some());
    device.synchronize(a, 3).unwrap();
    assert_eq!(device.completed(a), 3);

    // Both ways at once: numbers only name what has been submitted, so no circle comes of it.
    submit(device, a, 4, &[Wait { queue: b, sequence: 1 }]);
    submit(device, b, 2, &[Wait { queue: a, sequence: 4 }]);
    submit(device, a, 5, &[Wait { queue: b, sequence: 2 }]);
    device.synchronize(a, 5).unwrap();
    device.synchronize(b, 2).unwrap();
    assert_eq!((device.completed(a), device.completed(b)), (5, 2));
    while driver.step() {}
    assert_eq!(driver.launched().len(), 7, "each ran once");
}

#[test]
fn cuda_fits_the_contract() {
    let driver = Arc::new(Driver::new());
    scenario(&cuda::Cuda::new(driver.clone()), &driver);
}

#[test]
fn metal_fits_the_contract() {
    let driver = Arc::new(Driver::new());
    scenario(&metal::Metal::new(driver.clone()), &driver);
}
