//! What a simulator is told.

use raddle_hal::DTypes;

/// When slabs are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum OutOfMemory {
    /// When the wrapped device refuses.
    #[default]
    Never,
    /// The n-th request, counted from 1, and no other.
    At(u64),
    /// Each request with this probability.
    Rate(f64),
}

/// What is drawn, and what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimOptions {
    /// Names the order of everything.
    pub seed: u64,
    /// How probably a launch that can be cut is cut.
    pub cut_probability: f64,
    /// How probably a launch takes many turns in which it does nothing.
    pub slow_probability: f64,
    /// When slabs are refused.
    pub out_of_memory: OutOfMemory,
    /// The device is lost when it has executed so many launches.
    pub lose_after_count: Option<u64>,
    /// How many launches a queue holds; a submission to a full queue runs work until there is room.
    pub in_flight_count_max: u64,
    /// Work that hasn't been flushed runs only when another queue waits for it, or somebody synchronizes: like the open
    /// command buffer of Metal. Without it, as on CUDA, everything may run.
    pub needs_flush: bool,
    /// It has these dtypes only, of those that the wrapped device has.
    pub dtypes: DTypes,
}

impl Default for SimOptions {
    /// No faults. Half of the launches cut, one of ten slow, queues of 32 (guesses: small programs then meet each case).
    fn default() -> SimOptions {
        SimOptions {
            seed: 0,
            cut_probability: 0.5,
            slow_probability: 0.1,
            out_of_memory: OutOfMemory::Never,
            lose_after_count: None,
            in_flight_count_max: 32,
            needs_flush: false,
            dtypes: DTypes::ALL,
        }
    }
}
