//! What stands in front of the allocator.

use super::*;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::AtomicUsize,
};

/// A sink for logs that can be read again.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn resources_stack() {
    let _turn = turn();
    let (device, oracle, a, _) = pair();
    let before = device.allocate(100).unwrap(); // none of its business
    let (csv, lines) = (Sink::default(), Sink::default());
    let limiting = LimitingResource::new(DeviceMemory(device), 10_000);
    let logging = LoggingResource::new(limiting, LogFormat::Csv, csv.clone());
    let logging = LoggingResource::new(logging, LogFormat::JsonLines, lines.clone());
    let statistics = Arc::new(StatisticsResource::new(logging));
    assert!(device.set_memory_resource(Some(statistics.clone())).unwrap().is_none());
    let (first, second) = (device.allocate(6000).unwrap(), device.allocate(4000).unwrap());
    op(a, &[], &[&first]).unwrap();
    let refused = device.allocate(1).unwrap_err();
    let counts = (1, 10_000, Some(10_000));
    assert!(
        matches!(refused, Error::OutOfMemory { asked_bytes, allocated_bytes, bound_bytes, .. }
            if (asked_bytes, allocated_bytes, bound_bytes) == counts),
        "{refused}"
    );
    drop(first);
    let third = device.allocate(1).unwrap();
    drop((before, second));
    let expected = ResourceStatistics {
        allocations: 3,
        frees: 2,
        failures: 1,
        current_bytes: 1,
        peak_bytes: 10_000,
        total_bytes: 10_001,
    };
    assert_eq!(statistics.statistics(), expected);
    let csv = csv.text();
    let actions = |line: &str| line.split(',').nth(2).unwrap().to_string();
    let expected = ["Action", "allocate", "allocate", "allocate failure", "free", "allocate", "free"];
    assert_eq!(csv.lines().map(actions).collect::<Vec<_>>(), expected);
    assert_eq!(csv.lines().next().unwrap(), "Thread,Time,Action,Pointer,Size,Stream");
    for line in lines.text().lines() {
        let line: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        assert!(line["Size"].is_u64() && line["Action"].is_string());
    }
    // Taken away, it isn't told any more, and nothing is lost.
    assert!(device.set_memory_resource(None).unwrap().is_some());
    drop(third);
    assert_eq!(statistics.statistics().frees, 2);
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    let (other, _) = oracle::open(8);
    let error = device.set_memory_resource(Some(Arc::new(DeviceMemory(other)))).err().unwrap();
    assert_eq!(error.to_string(), "set_memory_resource: expected a resource of oracle, found one of oracle");
    oracle.check().unwrap();
}

#[test]
fn resources_fail_on_demand() {
    let _turn = turn();
    let (device, ..) = pair();
    let refused = |at: FailAt| -> Vec<usize> {
        let failing = Arc::new(FailingResource::new(DeviceMemory(device), at));
        device.set_memory_resource(Some(failing.clone())).unwrap();
        let refused = (1..=200).filter(|_| device.allocate(1000).is_err()).collect();
        device.set_memory_resource(None).unwrap();
        assert_eq!(failing.allocations(), 200);
        refused
    };
    assert_eq!(refused(FailAt::Number(7)), [7]);
    let half = |seed| refused(FailAt::Probability { probability: 0.5, seed });
    assert_eq!(half(1), half(1));
    assert_ne!(half(1), half(2));
    assert!((60..140).contains(&half(3).len()));
    assert!(refused(FailAt::Probability { probability: 0.0, seed: 1 }).is_empty());
    assert_eq!(refused(FailAt::Probability { probability: 1.0, seed: 1 }).len(), 200);
}

/// Keeps whatever comes back and gives the first that fits, to any stream, in whatever order: a policy as bad as it gets.
struct Hoard {
    upstream: DeviceMemory,
    kept: Mutex<Vec<Allocation>>,
}

impl MemoryResource for Hoard {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        let mut kept = self.kept.lock().unwrap();
        match kept.iter().position(|kept| kept.capacity_bytes() >= size_bytes) {
            Some(at) => Ok(kept.remove(at)),
            None => self.upstream.allocate(size_bytes),
        }
    }
    fn free(&self, allocation: Allocation) {
        self.kept.lock().unwrap().push(allocation);
    }
    fn device(&self) -> Device {
        self.upstream.device()
    }
}

/// Gives less than it is asked for, and panics when it gets it back.
struct Broken(DeviceMemory);

impl MemoryResource for Broken {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        self.0.allocate(size_bytes / 2)
    }
    fn free(&self, _: Allocation) {
        panic!("planted");
    }
    fn device(&self) -> Device {
        self.0.device()
    }
}

/// Gives half of what it is asked for, and counts.
struct Stingy(StatisticsResource<DeviceMemory>);

impl MemoryResource for Stingy {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        self.0.allocate(size_bytes / 2)
    }
    fn free(&self, allocation: Allocation) {
        self.0.free(allocation);
    }
    fn device(&self) -> Device {
        self.0.device()
    }
}

#[test]
fn what_does_not_fit_goes_back_through_the_resource() {
    let _turn = turn();
    let device = oracle::open(64).0;
    let stingy = Arc::new(Stingy(StatisticsResource::new(DeviceMemory(device))));
    device.set_memory_resource(Some(stingy.clone())).unwrap();
    assert!(matches!(device.allocate(100_000), Err(Error::ResourceMisfit { .. })));
    let ResourceStatistics { allocations, frees, current_bytes, .. } = stingy.0.statistics();
    assert_eq!((allocations, frees, current_bytes), (1, 1, 0));
}

#[test]
fn whatever_a_resource_does_memory_is_safe() {
    let _turn = turn();
    let (device, oracle, a, b) = pair();
    let hoard = Hoard { upstream: DeviceMemory(device), kept: Mutex::default() };
    device.set_memory_resource(Some(Arc::new(hoard))).unwrap();
    let mut random = Random::new(5);
    for _ in 0..200 {
        let _guard = [a, b][random.below(2)].enter();
        let buffer = device.allocate([300, 5_000, 1 << 20][random.below(3)]).unwrap();
        op([a, b][random.below(2)], &[], &[&buffer]).unwrap();
    }
    device.set_memory_resource(None).unwrap();
    device.set_memory_resource(Some(Arc::new(Broken(DeviceMemory(device))))).unwrap();
    let error = device.allocate(100_000).unwrap_err();
    assert!(
        error.to_string().starts_with("oracle: the memory resource was asked for 100000 bytes, found 57344"),
        "{error}"
    );
    drop(device.allocate(1).unwrap());
    device.set_memory_resource(None).unwrap();
    assert_eq!(device.memory_stats().allocated_bytes, 0, "all of it came back");
    oracle.check().unwrap();
    oracle.complete_all();
    assert!(device.close().unwrap());
}

/// Keeps the sum of what it was asked for, less what it is told that it was when it comes back.
struct Summing(DeviceMemory, AtomicUsize);

impl MemoryResource for Summing {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        self.1.fetch_add(size_bytes, Relaxed);
        self.0.allocate(size_bytes)
    }
    fn free(&self, allocation: Allocation) {
        self.1.fetch_sub(allocation.size_bytes(), Relaxed);
        self.0.free(allocation);
    }
    fn device(&self) -> Device {
        self.0.device()
    }
}

/// A capture gives one block out for several sizes.
#[test]
fn resources_count_the_same_whatever_a_capture_does() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    let summing = Arc::new(Summing(DeviceMemory(device), AtomicUsize::new(0)));
    let statistics = Arc::new(StatisticsResource::new(summing.clone()));
    device.set_memory_resource(Some(statistics.clone())).unwrap();
    let capture = Capture::begin(&device).unwrap();
    [1000, 600, 1000, 1000, 700]
        .into_iter()
        .for_each(|size_bytes| drop(device.allocate(size_bytes).unwrap()));
    drop(capture);
    let ResourceStatistics { current_bytes, allocations, frees, .. } = statistics.statistics();
    assert_eq!((current_bytes, allocations), (0, frees));
    assert_eq!(summing.1.load(Relaxed), 0);
}

/// Keeps what it gets back, and gives it out again.
struct Keeping(DeviceMemory, Mutex<Vec<Allocation>>);

impl MemoryResource for Keeping {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        let kept = self.1.lock().unwrap().pop();
        kept.map_or_else(|| self.0.allocate(size_bytes), Ok)
    }
    fn free(&self, allocation: Allocation) {
        self.1.lock().unwrap().push(allocation);
    }
    fn device(&self) -> Device {
        self.0.device()
    }
}

#[test]
fn memory_that_a_resource_kept_has_forgotten_its_failure() {
    let _turn = turn();
    let (device, _) = oracle::open(8);
    device.set_memory_resource(Some(Arc::new(Keeping(DeviceMemory(device), Mutex::default())))).unwrap();
    let capture = Capture::begin(&device).unwrap();
    drop(device.allocate(64).unwrap());
    drop(capture);
    let buffer = device.allocate(64).unwrap();
    (0..2).for_each(|half| device.upload(&buffer, 32 * half, &[1; 32]).unwrap());
    assert_eq!(device.download(&buffer, 0, &mut [0; 64]), Ok(()));
}

/// Asks for more than it is asked for, as alignment wants it.
struct Rounding<R>(R);

impl<R: MemoryResource> MemoryResource for Rounding<R> {
    fn allocate(&self, size_bytes: usize) -> Result<Allocation> {
        self.0.allocate(size_bytes.next_multiple_of(128))
    }
    fn free(&self, allocation: Allocation) {
        self.0.free(allocation);
    }
    fn device(&self) -> Device {
        self.0.device()
    }
}

/// Each counts what it was asked for itself, whatever stands in front of it.
#[test]
fn resources_count_behind_what_changes_sizes() {
    let _turn = turn();
    let device = oracle::open(8).0;
    let below = Arc::new(StatisticsResource::new(LimitingResource::new(DeviceMemory(device), 1000)));
    let above = Arc::new(StatisticsResource::new(Rounding(below.clone())));
    device.set_memory_resource(Some(above.clone())).unwrap();
    for _ in 0..100 {
        let _held = [device.allocate(100).unwrap(), device.allocate(1).unwrap()];
        assert_eq!((above.statistics().current_bytes, below.statistics().current_bytes), (101, 256));
    }
    assert_eq!((above.statistics().current_bytes, below.statistics().current_bytes), (0, 0));
    // The other way round what is given doesn't fit, and goes back.
    let stingy = Stingy(StatisticsResource::new(DeviceMemory(device)));
    let limiting = Arc::new(LimitingResource::new(StatisticsResource::new(stingy), 100_000));
    device.set_memory_resource(Some(limiting)).unwrap();
    for _ in 0..3 {
        assert!(matches!(device.allocate(100_000), Err(Error::ResourceMisfit { .. })));
    }
}

/// Panics when it is asked.
struct Panicking(DeviceMemory);

impl MemoryResource for Panicking {
    fn allocate(&self, _: usize) -> Result<Allocation> {
        panic!("planted")
    }
    fn free(&self, allocation: Allocation) {
        self.0.free(allocation);
    }
    fn device(&self) -> Device {
        self.0.device()
    }
}

/// Panics when it is written to.
struct Torn;

impl Write for Torn {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        panic!("planted")
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn panics_behind_a_resource_cost_it_nothing() {
    let _turn = turn();
    let device = oracle::open(8).0;
    let limiting = LimitingResource::new(Panicking(DeviceMemory(device)), 1000);
    device.set_memory_resource(Some(Arc::new(limiting))).unwrap();
    for _ in 0..3 {
        let asked = catch_unwind(AssertUnwindSafe(|| device.allocate(1000)));
        assert!(asked.is_err(), "it is refused, as if what had panicked were there");
    }
    // A line that can't be written is left out, and nothing else.
    let statistics = Arc::new(StatisticsResource::new(DeviceMemory(device)));
    let logging = LoggingResource::new(statistics.clone(), LogFormat::JsonLines, Torn);
    device.set_memory_resource(Some(Arc::new(logging))).unwrap();
    drop(device.allocate(1000).unwrap());
    let ResourceStatistics { allocations, frees, current_bytes, .. } = statistics.statistics();
    assert_eq!((allocations, frees, current_bytes), (1, 1, 0));
}
