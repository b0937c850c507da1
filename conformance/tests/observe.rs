//! Traces, limits and caches as a program has them: whole processes, and every device that needs no GPU.

use raddle::{CacheStats, Device, Limits, prelude::*};
use raddle_sync::faults::{Fault, assert_caught};
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Barrier,
};

/// Set in a child: how it ends.
const END: &str = "RADDLE_TEST_END";

fn ops(device: &Device, count: usize) -> raddle::Result<()> {
    let shared = Tensor::ones([300], DType::F32, device)?;
    std::thread::scope(|scope| {
        let work = || (0..count).try_for_each(|_| shared.add(1)?.sum(.., false).map(drop));
        let threads: Vec<_> = (0..3)
            .map(|index| {
                std::thread::Builder::new().name(format!("worker {index}")).spawn_scoped(scope, work)
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.unwrap().join().unwrap().unwrap());
    });
    Ok(())
}

/// What a child does, and nothing in the test itself.
#[test]
fn child() {
    let Some(end) = std::env::var_os(END) else { return };
    for name in ["cpu", "sim:1", "sim:2"] {
        let device = Device::new(name).unwrap_or_else(|error| panic!("{error}"));
        ops(&device, 20).unwrap();
    }
    let device = Device::new("sim:3").unwrap();
    let in_flight = Tensor::ones([1 << 16], DType::F32, &device).unwrap().add(1).unwrap();
    match end.to_str() {
        Some("exit") => std::thread::spawn(|| std::process::exit(7)).join().unwrap(),
        _ => drop(in_flight),
    }
}

fn run(end: &str, variable: &str, value: impl AsRef<std::ffi::OsStr>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(END, end).env(variable, value);
    command.env("RUST_BACKTRACE", "0").output().unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("raddle-observe-{}-{name}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn any_program_writes_a_trace_at_its_end() {
    let folder = folder("trace");
    for (end, code) in [("return", 0), ("exit", 7)] {
        let path = folder.join(end);
        let output = run(end, "RADDLE_TRACE", &path);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        let names: Vec<_> = of("M").iter().map(|event| event["args"]["name"].as_str().unwrap()).collect();
        for name in ["threads", "worker 2", "cpu", "sim:1", "sim:2", "default stream"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        // Streams of each device: what ran is on its own tracks.
        for device in ["cpu", "sim:1", "sim:2"] {
            let pid = of("M").iter().find(|event| event["args"]["name"] == device).unwrap()["pid"].clone();
            let ran = of("X").iter().filter(|event| event["pid"] == pid && event["name"] == "add").count();
            // The simulator runs an op in pieces.
            assert!(ran == 60 || ran > 60 && device != "cpu", "{device}: {ran}");
        }
        let ids = |phase| {
            let mut ids: Vec<_> = of(phase).iter().map(|event| event["id"].as_u64().unwrap()).collect();
            ids.sort_unstable();
            ids
        };
        assert!(!ids("s").is_empty(), "streams have waited");
        assert_eq!(ids("s"), ids("f"));
        assert!(of("C").iter().any(|event| event["name"] == "reserved bytes"));
    }
    assert_eq!(files(&folder), 2, "nothing partial is left");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_that_cannot_be_written_changes_nothing_else() {
    let folder = folder("unwritable");
    let path = folder.join("none").join("trace.json");
    let output = run("exit", "RADDLE_TRACE", &path);
    assert_eq!(output.status.code(), Some(7));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(&format!("RADDLE_TRACE: {}: ", path.display())), "{text}");
    assert_eq!(files(&folder), 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn fault_trace_of_main_only() {
    assert_caught(Fault::trace_of_main_only, "any_program_writes_a_trace_at_its_end");
}

#[test]
fn fault_unwritten_trace_aborts() {
    assert_caught(Fault::unwritten_trace_aborts, "a_trace_that_cannot_be_written_changes_nothing_else");
}

#[test]
fn a_variable_that_is_no_value_is_an_error_at_open() {
    let output = run("return", "RADDLE_KERNEL_BYTES", "lots");
    let text = String::from_utf8_lossy(&output.stderr);
    let expected =
        "RADDLE_KERNEL_BYTES: expected bytes, perhaps with K, M, G or T, of at least 0, found \"lots\"";
    assert!(!output.status.success() && text.contains(expected), "{text}");
}

#[test]
fn fault_bad_limit_is_none() {
    assert_caught(Fault::bad_limit_is_none, "a_variable_that_is_no_value_is_an_error_at_open");
}

/// However many threads add up the parts of a sum.
#[test]
fn results_have_the_same_bits_on_any_number_of_threads() {
    let bits = |thread_count| -> Vec<u32> {
        let limits = Limits { thread_count: Some(thread_count), ..Limits::default() };
        let device = Device::with_limits("cpu", &limits).unwrap();
        let x = Tensor::randn([3, 200_000], DType::F32, &device, &Generator::new(8)).unwrap();
        let found = [
            x.sum(.., false),
            x.sum(1, false),
            x.softmax(1).and_then(|x| x.sum(0, false)),
            x.matmul(&x.t().unwrap()),
        ];
        found
            .into_iter()
            .flat_map(|found| found.unwrap().to_vec::<f32>().unwrap())
            .map(f32::to_bits)
            .collect()
    };
    let expected = bits(1);
    for thread_count in [2, 3, 8] {
        assert!(bits(thread_count) == expected, "{thread_count} threads: other bits");
    }
}

#[test]
fn fault_order_by_threads() {
    assert_caught(Fault::order_by_threads, "results_have_the_same_bits_on_any_number_of_threads");
}

#[test]
fn limits_hold() {
    let limits = Limits {
        memory_bytes: Some(1 << 20),
        stream_count: Some(2),
        thread_count: Some(1),
        in_flight_count: Some(4),
        ..Limits::default()
    };
    for name in ["cpu", "sim:5"] {
        let device = Device::with_limits(name, &limits).unwrap();
        let (start, hold) = (Barrier::new(6), Barrier::new(6));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    start.wait();
                    Tensor::ones([10], DType::F32, &device).unwrap().to_vec::<f32>().unwrap();
                    hold.wait();
                });
            }
        });
        assert_eq!(device.stream_stats().streams, 3, "the default one and two");
        let error = Tensor::zeros([1 << 20], DType::F32, &device).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: out of memory, 4194304 bytes asked")), "{error}");
        Tensor::zeros([1000], DType::F32, &device).unwrap();
    }
}

#[test]
fn fault_streams_unlimited() {
    assert_caught(Fault::streams_unlimited, "limits_hold");
}

/// Counters of a device grow, whatever is cleared meanwhile, and clearing disturbs nobody.
#[test]
fn caches_are_cleared_under_use_and_counters_go_on() {
    let limits = Limits { graph_instance_count: Some(4), ..Limits::default() };
    for name in ["cpu", "sim:9"] {
        let device = Device::with_limits(name, &limits).unwrap();
        let x = Tensor::ones([1000], DType::F32, &device).unwrap();
        let graph = device.capture(|| x.add(1)?.square()).unwrap();
        let held = graph.replay().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert_eq!(graph.replay().unwrap().to_vec::<f32>().unwrap()[999], 4.0);
                        device.clear_current_thread_caches();
                    }
                });
            }
            let mut before = CacheStats::default();
            for _ in 0..50 {
                device.clear_caches().unwrap();
                let now = device.cache_stats();
                assert!(now.graphs.replays >= before.graphs.replays && now.graphs.captured == 1);
                assert!(now.graphs.instance_count <= 4);
                before = now;
            }
        });
        assert_eq!(held.to_vec::<f32>().unwrap()[0], 4.0, "it outlives its instance");
        device.clear_caches().unwrap();
        let stats = device.cache_stats();
        assert_eq!((stats.graphs.replays, stats.graphs.alive_count, stats.graphs.instance_count), (81, 1, 0));
        drop(graph);
        assert_eq!(device.cache_stats().graphs.alive_count, 0);
        let text = serde_json::to_string(&stats).unwrap();
        assert!(text.contains("\"pinned_bytes\":0") && text.contains("\"evictions\":0"), "{text}");
    }
}

#[test]
fn fault_clear_forgets_counts() {
    assert_caught(Fault::clear_forgets_counts, "caches_are_cleared_under_use_and_counters_go_on");
}

#[test]
fn counters_of_streams_only_grow() {
    for name in ["cpu", "sim:6"] {
        let device = Device::with_limits(name, &Limits::default()).unwrap();
        std::thread::scope(|scope| {
            let work = scope.spawn(|| (0..20).try_for_each(|_| ops(&device, 3)));
            let mut before = device.stream_stats();
            while !work.is_finished() {
                let now = device.stream_stats();
                assert!(now.streams >= before.streams && now.ops >= before.ops, "{before:?}, {now:?}");
                assert!(now.waits_inserted >= before.waits_inserted, "{before:?}, {now:?}");
                assert!(now.waits_elided >= before.waits_elided, "{before:?}, {now:?}");
                before = now;
                std::thread::yield_now();
            }
            work.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_thread_lets_go_of_its_scratch() {
    let device = Device::new("cpu").unwrap();
    Tensor::ones([64, 64], DType::F32, &device).unwrap().t().unwrap().add(1).unwrap().sort(1, false).unwrap();
    device.clear_current_thread_caches();
    assert_eq!(device.cache_stats().device.thread_bytes, 0);
}
