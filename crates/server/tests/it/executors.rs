//! Raddle's futures in tokio's runtimes of one thread and of several: awaited, dropped, in `select!`, beside calls that block. They
//! need no runtime of their own, nor its timers, so these have neither unless a test says so.

use crate::server::{WIDTH, engine_of};
use futures_util::FutureExt;
use raddle_runtime::{Event, Stream};
use raddle_server::engine::{Engine, EngineOptions};
use raddle_sim::{Sim, SimOptions};
use raddle_tensor::{DType, Device, Tensor};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::runtime::{Builder, Runtime};

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().build().unwrap(),
        Builder::new_multi_thread().worker_threads(3).build().unwrap(),
    ]
}

/// A device whose work is done late.
fn late(seed: u64) -> Device {
    let sim =
        Sim::new(Box::new(raddle_cpu::Cpu::new()), SimOptions { seed, ..SimOptions::default() }).unwrap();
    Device::open(Box::new(sim)).unwrap()
}

fn engine() -> Arc<Engine> {
    Arc::new(engine_of(false, EngineOptions::default()))
}

/// Tasks that go from thread to thread where they wait: each op is on the stream of the thread that it is called on, and behind
/// those that it needs.
#[test]
fn tasks_compute_and_wait_for_events() {
    for (seed, runtime) in runtimes().into_iter().enumerate() {
        let device = late(seed as u64);
        let task = move |start: i64| async move {
            let mut x = Tensor::full([64], start, DType::I64, &device).unwrap();
            for _ in 0..20 {
                x = x.add(1).unwrap();
                let event = Event::new();
                event.record(Stream::current(&device).unwrap());
                event.wait().await.unwrap();
                tokio::task::yield_now().await;
            }
            x
        };
        runtime.block_on(async {
            let tasks: Vec<_> = (0..16).map(|start| tokio::spawn(task(start))).collect();
            for (start, task) in tasks.into_iter().enumerate() {
                let found = task.await.unwrap().to_vec::<i64>().unwrap();
                assert_eq!(found, [start as i64 + 20; 64]);
            }
        });
        assert!(device.close().unwrap());
    }
}

/// What loses, or is dropped after it was polled, is no error of what wins, and keeps nothing.
#[test]
fn events_lose_races_and_are_dropped() {
    for (seed, runtime) in runtimes().into_iter().enumerate() {
        let device = late(10 + seed as u64);
        runtime.block_on(async {
            for _ in 0..100 {
                let x = Tensor::full([64], 1, DType::I64, &device).unwrap().add(1).unwrap();
                let event = Stream::current(&device).unwrap().record();
                let other = event.wait();
                tokio::select! {
                    biased;
                    () = tokio::task::yield_now() => {}
                    done = event.wait() => done.unwrap(),
                }
                // Asked once, and gone.
                _ = event.wait().now_or_never();
                other.await.unwrap();
                assert_eq!(x.to_vec::<i64>().unwrap(), [2; 64]);
            }
        });
        assert!(device.close().unwrap());
    }
}

#[test]
fn answers_are_awaited_beside_each_other() {
    for runtime in runtimes() {
        let engine = engine();
        let tokens = engine.complete(vec![5, 8], raddle_nn::text::TooLong::Refuse).unwrap();
        runtime.block_on(async {
            let ask = || {
                let (engine, tokens) = (engine.clone(), tokens.clone());
                tokio::spawn(async move { engine.submit(tokens, Default::default()).unwrap().await.unwrap() })
            };
            let tasks: Vec<_> = (0..64).map(|_| ask()).collect();
            for task in tasks {
                assert_eq!(task.await.unwrap().len(), WIDTH);
            }
            // A task that is aborted takes its request back.
            engine.pause();
            let task = ask();
            while engine.counts().waiting_count == 0 {
                tokio::task::yield_now().await;
            }
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
            assert_eq!((engine.counts().waiting_count, engine.counts().cancelled_count), (0, 1));
            engine.resume();
        });
    }
}

/// A limit of the executor's own.
#[test]
fn answers_that_come_too_late_are_taken_back() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let engine = engine();
    engine.pause();
    let tokens = engine.complete(vec![5, 8], raddle_nn::text::TooLong::Refuse).unwrap();
    runtime.block_on(async {
        let submit = || engine.submit(tokens.clone(), Default::default()).unwrap();
        // The clock goes on when nothing else can.
        assert!(tokio::time::timeout(Duration::from_secs(1), submit()).await.is_err());
        assert_eq!((engine.counts().waiting_count, engine.counts().cancelled_count), (0, 1));
        // One that is only looked at may still win.
        let mut answer = pin!(submit());
        tokio::select! {
            _ = &mut answer => panic!("it is paused"),
            () = tokio::time::sleep(Duration::from_secs(1)) => engine.resume(),
        }
        assert_eq!(answer.await.unwrap().len(), WIDTH);
    });
}

/// Calls that block hold up their thread and what else it would run, and nothing else: no lock of ours and no thread of the
/// executor is needed for them to end, not even where it has one only.
#[test]
fn blocking_calls_end_inside_of_tasks() {
    for (seed, runtime) in runtimes().into_iter().enumerate() {
        let (device, engine) = (late(20 + seed as u64), engine());
        let other = engine.clone();
        runtime.block_on(async move {
            let blocking = async move {
                let x = Tensor::full([64], 1, DType::I64, &device).unwrap().add(1).unwrap();
                assert_eq!(x.to_vec::<i64>().unwrap(), [2; 64]);
                Stream::current(&device).unwrap().record().synchronize().unwrap();
                device.synchronize().unwrap();
                assert_eq!(engine.embed(&["a thread"]).unwrap()[0].len(), WIDTH);
                let tokens = engine.complete(vec![5], raddle_nn::text::TooLong::Refuse).unwrap();
                engine.submit(tokens, Default::default()).unwrap().wait().unwrap();
                // Waits for its threads.
                drop(engine_of(false, EngineOptions::default()));
            };
            tokio::spawn(blocking).await.unwrap();
            let embedded = tokio::task::spawn_blocking(move || other.embed(&["a thread"]).unwrap());
            assert_eq!(embedded.await.unwrap()[0].len(), WIDTH);
        });
        assert!(device.close().unwrap());
    }
}
