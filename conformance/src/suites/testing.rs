//! What tests hold streams up with. Each has a device to itself: nobody else's work comes to stand behind what is held, and this
//! thread isn't bound to a stream of the pool. On CUDA each has a process to itself, since nobody there can load a kernel while a
//! stream is held; so what it calls it has called once before.

use super::reports::{self, is_sim, read, stream};
use crate::Case;
use raddle::{
    DType, Device, Event, Stream, Tensor,
    testing::{Held, hold, spin},
};
use std::{
    mem, thread,
    time::{Duration, Instant},
};

/// The suite.
pub fn cases() -> Vec<Case> {
    crate::cases!("testing": ; holding:
        a_held_stream_stands_still_and_others_go_on,
        a_stream_goes_on_when_all_have_let_go,
        a_graph_is_captured_beside_a_held_stream,
        holds_end_with_their_device,
        there_is_no_end_of_holds,
        a_spin_takes_its_time,
    )
}

/// On a device of its own, which has run the ops that are used here.
fn alone(device: &Device, body: impl FnOnce(&Device)) {
    reports::alone(device, |device| {
        for size in [3, 300] {
            let one = Tensor::ones([size], DType::F32, device).unwrap();
            assert_eq!(read(&add_on(stream(device), &one)), vec![2.0; size]);
            let graph = device.capture::<_, raddle::Error>(|| one.add(1)).unwrap();
            assert_eq!(read(&graph.replay().unwrap()), vec![2.0; size]);
        }
        body(device);
    });
}

fn add_on(stream: Stream, x: &Tensor) -> Tensor {
    let _guard = stream.enter();
    x.add(1).unwrap()
}

fn a_held_stream_stands_still_and_others_go_on(device: &Device) {
    alone(device, stand_still);
}

fn stand_still(device: &Device) {
    let (held, other) = (stream(device), stream(device));
    let x = Tensor::ones([300], DType::F32, device).unwrap();
    let before = add_on(held, &x);
    let before_is_over = held.record();
    let hold = hold(held).unwrap();
    let (behind, beside) = (add_on(held, &x), add_on(other, &x));
    let is_over = held.record();
    // What comes before goes on, and so does another stream, with reads of the same tensor.
    before_is_over.synchronize().unwrap();
    assert_eq!(read(&before), [2.0; 300]);
    other.synchronize().unwrap();
    let copied = {
        let _guard = other.enter();
        read(&beside)
    };
    assert_eq!(copied, [2.0; 300]);
    assert!(!is_over.query() && !held.query(), "it stands still");
    // Whoever needs what is behind is behind it, too, on whatever stream.
    let sum = add_on(other, &behind);
    assert!(!other.record().query(), "it overtakes what it reads");
    // Another thread may let go.
    thread::scope(|scope| _ = scope.spawn(move || hold.release()));
    assert_eq!(read(&sum), [3.0; 300]);
    is_over.synchronize().unwrap();
}

fn a_stream_goes_on_when_all_have_let_go(device: &Device) {
    alone(device, let_go_of_all);
}

fn let_go_of_all(device: &Device) {
    let held = stream(device);
    let x = Tensor::ones([3], DType::F32, device).unwrap();
    let mut holds: Vec<Held> = (0..3).map(|_| hold(held).unwrap()).collect();
    let sum = add_on(held, &x);
    for at in [1, 0, 0] {
        assert!(!held.query());
        drop(holds.remove(at));
    }
    assert_eq!(read(&sum), [2.0; 3]);
}

/// The stream of the thread that captures is held, and no replay is.
fn a_graph_is_captured_beside_a_held_stream(device: &Device) {
    alone(device, capture_beside);
}

fn capture_beside(device: &Device) {
    let held = stream(device);
    let x = Tensor::ones([3], DType::F32, device).unwrap();
    let _guard = held.enter();
    let (graph, hold) = {
        let mut kept = None;
        let graph = device.capture::<_, raddle::Error>(|| {
            spin(held, Duration::from_micros(1))?;
            kept = Some(hold(held)?);
            x.add(1)
        });
        (graph.unwrap(), kept)
    };
    assert!(!held.query());
    drop(hold);
    for _ in 0..2 {
        assert_eq!(read(&graph.replay().unwrap()), [2.0; 3]);
    }
}

/// One that is dropped afterwards, and one that is leaked.
fn holds_end_with_their_device(device: &Device) {
    let mut kept = None;
    alone(device, |device| {
        let (first, second) = (stream(device), stream(device));
        let x = Tensor::ones([3], DType::F32, device).unwrap();
        mem::forget(hold(first).unwrap());
        kept = Some(hold(second).unwrap());
        drop((add_on(first, &x), add_on(second, &x)));
        drop(x);
        assert_eq!(device.close(), Ok(true));
        assert!(first.query() && second.query());
    });
    drop(kept);
}

fn there_is_no_end_of_holds(device: &Device) {
    alone(device, hold_often);
}

fn hold_often(device: &Device) {
    let stream = stream(device);
    for _ in 0..1000 {
        let held = hold(stream).unwrap();
        drop(held);
        stream.synchronize().unwrap();
    }
}

fn a_spin_takes_its_time(device: &Device) {
    alone(device, take_time);
}

fn take_time(device: &Device) {
    const TIME: Duration = Duration::from_millis(20);
    let (busy, other) = (stream(device), stream(device));
    let x = Tensor::ones([3], DType::F32, device).unwrap();
    // Behind a hold, so that it is known when it begins.
    let hold = hold(busy).unwrap();
    spin(busy, TIME).unwrap();
    let event: Event = busy.record();
    let sum = add_on(busy, &x);
    assert_eq!(read(&add_on(other, &x)), [2.0; 3]);
    assert!(!event.query());
    let start = Instant::now();
    hold.release();
    event.synchronize().unwrap();
    assert!(is_sim(device) || start.elapsed() >= TIME, "{:?}", start.elapsed());
    assert_eq!(read(&sum), [2.0; 3]);
}
