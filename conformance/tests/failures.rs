//! Failures on demand: no memory at each point where a training step asks the device for some, and a device that is lost.
//! Where there is no GPU its tests are ignored.

use libtest_mimic::{Arguments, Trial};
use raddle::{
    DType, Device, Error, Generator, OutOfMemory, Priority, Publisher, SimOptions, Stream, Tensor,
    cuda::Cuda,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{self, Adam, AdamOptions},
    runtime::{self, DeviceMemory, FailAt, FailingResource},
};
use raddle_conformance::Backend;
use raddle_sync::faults::{Fault, assert_caught};
use std::{
    collections::BTreeSet,
    process::{Command, ExitCode},
    sync::Arc,
};

/// What a step of training fails with, whichever part of it fails.
#[derive(Debug)]
struct StepError(Error);

impl From<Error> for StepError {
    fn from(error: Error) -> StepError {
        StepError(error)
    }
}

impl From<raddle::grad::Error> for StepError {
    fn from(error: raddle::grad::Error) -> StepError {
        match error {
            raddle::grad::Error::Tensor(error) => StepError(error),
            other => panic!("{other}"),
        }
    }
}

impl From<optim::Error> for StepError {
    fn from(error: optim::Error) -> StepError {
        match error {
            optim::Error::Tensor(error) => StepError(error),
            other => panic!("{other}"),
        }
    }
}

/// Less than the allocator would like to have at once: it then asks the device for each large block by itself.
const ROOM_BYTES: usize = 31 << 20;
/// Widths such that weights, gradients, moments and activations are large blocks.
const INPUTS: usize = 256;
const FEATURES: usize = 512;
const ROWS: usize = 384;

struct Training {
    model: TopKAutoencoder,
    adam: Adam,
    x: Tensor,
}

impl Training {
    fn new(device: &Device) -> Result<Training, StepError> {
        let generator = Generator::new(3);
        let options = AutoencoderOptions::new(INPUTS, FEATURES, 8);
        let model = TopKAutoencoder::new(options, DType::F32, device, Some(&generator))?;
        let adam = Adam::new(model.parameters(), AdamOptions::default())?;
        let x = Tensor::randn([ROWS, INPUTS], DType::F32, device, &generator)?;
        Ok(Training { model, adam, x })
    }

    /// The loss before the step.
    fn step(&mut self) -> Result<f32, StepError> {
        let Training { model, adam, x } = self;
        Ok(model.train_step(x, || adam.step().map_err(StepError::from))?.item::<f32>()?)
    }

    fn is_finite(&self) -> bool {
        let finite = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap().iter().all(|value| value.is_finite());
        self.model.parameters().iter().all(finite)
    }
}

/// The asked and the allocated bytes of an error that must be about memory.
fn asked_and_allocated(error: &StepError) -> (usize, usize) {
    match &error.0 {
        Error::Runtime(runtime::Error::OutOfMemory { asked_bytes, allocated_bytes, .. }) => {
            (*asked_bytes, *allocated_bytes)
        }
        other => panic!("expected an error about memory, found {other}"),
    }
}

/// The limit grows from what is held before a step to what the step needs: at each limit another request is the first to be
/// refused. The error says so, nothing is lost, and the step goes through as soon as there is memory.
fn no_memory_at_each_point_of_a_step(device: &Device) {
    /// The smallest slab.
    const STEP_BYTES: usize = 1 << 16;
    device.set_memory_limit(ROOM_BYTES);
    let mut reference = Training::new(device).unwrap();
    let losses = [reference.step().unwrap(), reference.step().unwrap()];
    drop(reference);
    device.synchronize().unwrap();
    device.empty_cache();
    let before = device.memory_stats().allocated_bytes;
    let mut points = BTreeSet::new();
    for step in 0.. {
        let mut training = Training::new(device).unwrap();
        device.synchronize().unwrap();
        device.empty_cache();
        device.set_memory_limit(device.memory_stats().reserved_bytes + step * STEP_BYTES);
        let first = training.step();
        device.set_memory_limit(ROOM_BYTES);
        match &first {
            Ok(first) => {
                assert_eq!(*first, losses[0], "the same bits with just enough memory");
                assert_eq!(training.step().unwrap(), losses[1]);
            }
            Err(error) => {
                points.insert(asked_and_allocated(error));
                // It may have failed before or after the update.
                let next = training.step().expect("there is memory again");
                assert!(next.is_finite() && next <= 1.01 * losses[0], "{next}, at first {}", losses[0]);
                assert!(training.is_finite());
            }
        }
        let is_over = first.is_ok();
        drop((first, training));
        device.synchronize().unwrap();
        device.empty_cache();
        assert_eq!(device.memory_stats().allocated_bytes, before, "memory is given back, limit {step}");
        if is_over {
            break;
        }
    }
    device.set_memory_limit(usize::MAX);
    println!("{}: memory was refused at {} points of a step", device.name(), points.len());
    // The rest of the blocks of a step were used before in it, or lie in the slab of a product's workspace on a GPU.
    let expected = if device.name().starts_with("cuda") { 2 } else { 8 };
    assert!(points.len() >= expected, "{points:?}");
}

/// Each single request for a slab is refused once, from the making of the model on: what is kept elsewhere serves, or the
/// error says so.
fn one_refused_request() {
    let plain = Device::sim(SimOptions { seed: 1, ..SimOptions::default() }).unwrap();
    plain.set_memory_limit(ROOM_BYTES);
    let expected = Training::new(&plain).unwrap().step().unwrap();
    let requests = plain.memory_stats().slab_allocations;
    assert!(requests > 5);
    let mut errors = 0;
    for number in 1..=requests + 1 {
        let options = SimOptions { seed: 1, out_of_memory: OutOfMemory::At(number), ..SimOptions::default() };
        let device = Device::sim(options).unwrap();
        device.set_memory_limit(ROOM_BYTES);
        let loss = Training::new(&device).and_then(|mut training| training.step());
        match loss {
            Ok(loss) => assert_eq!(loss.to_bits(), expected.to_bits(), "request {number}"),
            Err(error) => {
                asked_and_allocated(&error);
                errors += 1;
                let again = Training::new(&device).and_then(|mut training| training.step());
                assert_eq!(again.unwrap().to_bits(), expected.to_bits(), "request {number}");
            }
        }
        assert!(device.close().unwrap(), "request {number}: memory is still held");
    }
    println!("sim: {requests} requests, {errors} of them failed the step when refused once");
}

/// Each single allocation of a step is refused once, small ones, too: the step says so, nothing is lost, and the next one goes
/// through.
fn no_memory_at_each_allocation(device: &Device) {
    let expected = Training::new(device).unwrap().step().unwrap();
    device.synchronize().unwrap();
    let before = device.memory_stats().allocated_bytes;
    for number in 1.. {
        let mut training = Training::new(device).unwrap();
        let failing = Arc::new(FailingResource::new(DeviceMemory(**device), FailAt::Number(number)));
        device.set_memory_resource(Some(failing.clone())).unwrap();
        let loss = training.step();
        device.set_memory_resource(None).unwrap();
        if failing.allocations() < number {
            assert_eq!(loss.unwrap().to_bits(), expected.to_bits());
            println!("{}: each of {} allocations of a step was refused once", device.name(), number - 1);
            assert!(number > 20);
            break;
        }
        asked_and_allocated(&loss.expect_err("an allocation was refused and nobody noticed"));
        let next = training.step().expect("there is memory again");
        assert!(next.is_finite() && next <= 1.01 * expected, "{next}, at first {expected}");
        assert!(training.is_finite());
        drop(training);
        assert_eq!(
            device.memory_stats().allocated_bytes,
            before,
            "memory is given back, allocation {number}"
        );
    }
}

/// More than there is, by the driver's own count.
fn more_than_there_is(device: &Device) {
    let memory_bytes = device.info().memory_bytes.expect("a GPU knows its memory");
    let kept = Tensor::full([1000], 1.0, DType::F32, device).unwrap();
    let error = Tensor::empty([memory_bytes + (1 << 30)], DType::U8, device).unwrap_err();
    assert_eq!(asked_and_allocated(&StepError(error)).0, memory_bytes + (1 << 30));
    assert_eq!(kept.add(1.0).unwrap().to_vec::<f32>().unwrap(), vec![2.0; 1000]);
}

// ------------------------------------------------------------ loss

/// All threads are told, what was right stays right in memory of the host, and nothing hangs.
fn lose(device: &Device, trigger: impl FnOnce() + Send) {
    let name = device.name();
    let before = &Tensor::full([100], 1.0, DType::F32, device).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let error = loop {
                    match before.add(thread as f32).and_then(|sum| sum.to_vec::<f32>()) {
                        Ok(sum) => assert_eq!(sum, vec![1.0 + thread as f32; 100]),
                        Err(error) => break error,
                    }
                };
                assert!(error.to_string().starts_with(&format!("{name}: the device is lost: ")), "{error}");
                // Whoever asks again is told again, at once.
                assert!(before.mul(2.0).and_then(|product| product.to_vec::<f32>()).is_err());
            });
        }
        scope.spawn(trigger);
    });
    assert!(before.to_vec::<f32>().is_err());
    assert!(device.synchronize().is_err());
    let cpu = Device::new("cpu").unwrap();
    let other = Tensor::full([10], 2.0, DType::F32, &cpu).unwrap();
    assert_eq!(other.to_vec::<f32>().unwrap(), vec![2.0; 10], "other devices go on");
}

fn a_lost_simulator() {
    let device = Device::sim(SimOptions { lose_after_count: Some(300), ..SimOptions::default() }).unwrap();
    // A stream that has nothing to do with it any more when the device is lost.
    let idle = Stream::from_pool(&device, Priority::High).unwrap();
    let guard = idle.enter();
    drop(Tensor::ones([10], DType::F32, &device).unwrap());
    drop(guard);
    idle.synchronize().unwrap();
    lose(&device, || ());
    assert!(idle.synchronize().is_err(), "what is complete hides the loss");
}

const LOSS: &str = "sim::a_lost_device";
const TRAP: &str = "RADDLE_TEST_TRAP";

/// In a process of its own, which has to end by itself and well: the context of this one must stay whole.
fn a_kernel_that_traps() {
    let output = Command::new(std::env::current_exe().unwrap()).env(TRAP, "1").output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

fn trap() {
    let cuda = Cuda::new(0).unwrap();
    let control = cuda.control();
    let device = &Device::from(runtime::Device::open(Box::new(cuda)).unwrap());
    lose(device, move || control.plant_trap(runtime::hal::QueueId(0)).unwrap());
}

const VERSION: &str = "sim::a_version_that_fails_is_not_published";

/// Whoever loads after a failure gets the version before, whole.
fn a_version_that_fails_is_not_published() {
    let device = Device::sim(SimOptions { lose_after_count: Some(6), ..SimOptions::default() }).unwrap();
    let make = || Tensor::ones([64], DType::F32, &device).unwrap();
    let weight = make();
    let publisher = Publisher::new(&[&weight]).unwrap();
    drop(make()); // there is memory for the copy
    while device.synchronize().is_ok() {
        // When it is refused the device is lost, as the next turn finds.
        _ = weight.add_(1.0);
    }
    assert!(publisher.publish(&[&weight]).is_err());
    assert_eq!(publisher.load().id(), 0);
}

fn main() -> ExitCode {
    if std::env::var_os(TRAP).is_some() {
        trap();
        return ExitCode::SUCCESS;
    }
    let absent = Backend::Cuda.absent();
    if let Some(absent) = absent {
        println!("skipped: {absent}");
    }
    let trial = |name: &str, body: fn()| {
        let is_cuda = name.starts_with("cuda");
        let trial = Trial::test(name, move || {
            body();
            Ok(())
        });
        trial.with_ignored_flag(absent.is_some() && is_cuda)
    };
    let trials = vec![
        trial("cpu::no_memory_at_each_point_of_a_step", || {
            no_memory_at_each_point_of_a_step(&Device::cpu().unwrap());
        }),
        trial("sim::no_memory_at_each_point_of_a_step", || {
            let device = Device::new("sim:3").unwrap();
            no_memory_at_each_point_of_a_step(&device);
            assert!(device.close().unwrap());
        }),
        trial("sim::no_memory_at_each_allocation", || {
            let device = Device::new("sim:4").unwrap();
            no_memory_at_each_allocation(&device);
            assert!(device.close().unwrap());
        }),
        trial("fault_refusal_passed_over", || {
            assert_caught(Fault::refusal_passed_over, "sim::no_memory_at_each_allocation");
        }),
        trial("sim::one_refused_request", one_refused_request),
        trial(LOSS, a_lost_simulator),
        trial("fault_complete_hides_loss", || assert_caught(Fault::complete_hides_loss, LOSS)),
        trial(VERSION, a_version_that_fails_is_not_published),
        trial("fault_publish_before_copy", || assert_caught(Fault::publish_before_copy, VERSION)),
        // A device of its own: limits are those of all its threads.
        trial("cuda::no_memory_at_each_point_of_a_step", || {
            no_memory_at_each_point_of_a_step(&Device::cuda(0, Default::default()).unwrap());
        }),
        trial("cuda::no_memory_at_each_allocation", || {
            no_memory_at_each_allocation(&Device::cuda(0, Default::default()).unwrap());
        }),
        trial("cuda::more_than_there_is", || more_than_there_is(&Device::new("cuda:0").unwrap())),
        trial("cuda::a_kernel_that_traps", a_kernel_that_traps),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
