//! A driver of a few lines under both stubs: streams of commands that run only when `step` is called, events that are
//! counters. What CUDA and Metal call differently is the same here; which calls a hal makes, and when, is the point.

use raddle_sync::{Mutex, Rank};
use std::collections::VecDeque;

/// One command in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Work, by the numbers that hal gave it.
    Launch { queue: u8, sequence: u64 },
    /// Raises an event (or a word in pinned memory) to a value.
    Signal { event: usize, value: u64 },
    /// Holds the stream until an event has reached a value.
    Wait { event: usize, value: u64 },
}

#[derive(Default)]
struct State {
    streams: Vec<VecDeque<Command>>,
    events: Vec<u64>,
    launched: Vec<(u8, u64)>,
}

pub struct Driver(Mutex<State>);

impl Driver {
    pub fn new() -> Driver {
        Driver(Mutex::new(Rank::Leaf, State::default()))
    }
    pub fn stream_create(&self) -> usize {
        let mut state = self.0.lock();
        state.streams.push(VecDeque::new());
        state.streams.len() - 1
    }
    pub fn event_create(&self) -> usize {
        let mut state = self.0.lock();
        state.events.push(0);
        state.events.len() - 1
    }
    /// Hands commands to the device.
    pub fn enqueue(&self, stream: usize, commands: impl IntoIterator<Item = Command>) {
        self.0.lock().streams[stream].extend(commands);
    }
    pub fn event_value(&self, event: usize) -> u64 {
        self.0.lock().events[event]
    }
    /// The device gets on by at most one command a stream; false if none could run.
    pub fn step(&self) -> bool {
        let state = &mut *self.0.lock();
        let mut ran = false;
        for stream in &mut state.streams {
            match stream.front() {
                None => continue,
                Some(&Command::Wait { event, value }) if state.events[event] < value => continue,
                Some(&Command::Wait { .. }) => {}
                Some(&Command::Signal { event, value }) => state.events[event] = value,
                Some(&Command::Launch { queue, sequence }) => state.launched.push((queue, sequence)),
            }
            stream.pop_front();
            ran = true;
        }
        ran
    }
    /// What ran, in order.
    pub fn launched(&self) -> Vec<(u8, u64)> {
        self.0.lock().launched.clone()
    }
}
