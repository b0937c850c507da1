//! Cases of what only those use who name their streams: callbacks, streams of one's own, times.

use super::fixture::{Backlog, Fixture, filled, is_all, on_threads, pool, trials};
use raddle::{Event, Exhausted, Priority, Stream};
use std::sync::{
    atomic::{AtomicUsize, Ordering::Relaxed},
    mpsc,
};

/// A callback runs behind the work that was there, computes on the stream that it belongs to, and reads what it computes.
pub fn callbacks_see_their_stream_and_its_work(fixture: &Fixture) {
    let device = fixture.device;
    on_threads(4, |thread| {
        // No thread is bound to one of high priority by itself.
        let stream = Stream::from_pool(&device, Priority::High).unwrap();
        let backlog = Backlog::new(&device);
        trials(fixture.count(100, 10), |trial| {
            let value = (thread * 1000 + trial) as f32;
            let guard = stream.enter();
            let x = filled(&device, 64, value);
            backlog.put();
            let (last, shared) = (stream.record(), x.clone());
            drop(guard);
            let (sender, receiver) = mpsc::channel();
            stream
                .on_complete(move |result| {
                    let is_behind = result.is_ok() && last.query();
                    let is_here = Stream::current(&device).unwrap() == stream;
                    let is_right = is_all(&shared.add(1.0).unwrap(), value + 1.0);
                    drop(shared);
                    sender.send(is_behind && is_here && is_right).unwrap();
                })
                .unwrap();
            receiver.recv().unwrap()
        });
    });
}

/// More threads than there are streams take one in turn; each is alone on its, and computes what it should.
pub fn threads_have_streams_for_themselves(fixture: &Fixture) {
    let device = fixture.device;
    let users: Vec<(Stream, AtomicUsize)> = (0..32)
        .map(|_| (Stream::from_pool(&device, Priority::Normal).unwrap(), AtomicUsize::new(0)))
        .collect();
    on_threads(48, |thread| {
        let x = filled(&device, 64, thread as f32);
        trials(fixture.count(20, 3), |trial| {
            let own = Stream::dedicated(&device, Exhausted::Wait).unwrap();
            let (_, count) = users.iter().find(|(stream, _)| *stream == *own).expect("one of the pool");
            let is_alone = count.fetch_add(1, Relaxed) == 0;
            fixture.be_late(0);
            x.add_(1.0).unwrap();
            let is_right = is_all(&x, (thread + trial + 1) as f32);
            count.fetch_sub(1, Relaxed);
            is_alone && is_right
        });
    });
}

/// Times along a stream, and from one stream to another that waits for it, never go back; nor are they changed by events that
/// come and go.
pub fn times_follow_each_other(fixture: &Fixture) {
    let device = fixture.device;
    let (streams, backlog) = (pool(&device, 3), Backlog::new(&device));
    trials(fixture.count(100, 20), |_| {
        let events: [Event; 3] = std::array::from_fn(|_| Event::timing());
        events[0].record(streams[0]);
        let guard = streams[2].enter();
        backlog.put();
        // Dropped in flight: nobody else may get the place where its time is noted before that has happened.
        for _ in 0..4 {
            let dropped = Event::timing();
            dropped.record(streams[2]);
            backlog.put();
        }
        drop(guard);
        events[1].record(streams[0]);
        streams[1].wait_event(&events[1]).unwrap();
        events[2].record(streams[1]);
        events[2].synchronize().unwrap();
        let elapsed = |end: usize, start: usize| events[end].elapsed_ms(&events[start]).unwrap();
        let before = [elapsed(1, 0), elapsed(2, 1)];
        device.synchronize().unwrap();
        before.iter().all(|&ms| ms >= 0.0) && before == [elapsed(1, 0), elapsed(2, 1)]
    });
}
