//! Gates: words of pinned memory that a stream waits for and the host writes.
//!
//! The stream waits in front of the device's units, which work for others meanwhile. A kernel that looked at a word would
//! take one, and calls that wait for running kernels, such as loading another one, would wait for whoever opens the gate.
//!
//! All words of a device are pinned at once, when it wants the first: the driver may let who pins memory wait for streams, and
//! these may be held by then. They are never given back to the driver, which frees them at its end. That waits for all streams,
//! so what is held then is let go ([`open_all`]).

use crate::{driver::Driver, inside::process_ends};
use raddle_hal::{DeviceError, Gate};
use raddle_sync::{
    Mutex, Rank,
    global::{self, AtomicU64, Ordering::*, PoisonError},
};

/// What is written into the word of a gate that is opened.
pub const OPEN: u64 = 1;
const CLOSED: u64 = 0;
/// A page (guess: tests hold a few streams).
const GATE_COUNT_MAX: u64 = 512;

/// Where the host finds the words of each device.
static ALL: global::Mutex<Vec<u64>> = global::Mutex::new(Vec::new());

/// How many aren't open, of all devices: the driver's locks and waits are the process's.
static CLOSED_COUNT: global::AtomicUsize = global::AtomicUsize::new(0);

/// Is a stream held? Then the driver may let who loads, pins or makes something wait until it is let go.
pub fn any_is_closed() -> bool {
    CLOSED_COUNT.load(Acquire) > 0
}

/// Refuses what would wait for all streams while one is held, perhaps by the thread that asks.
pub fn check_none_is_closed(what: &'static str) -> Result<(), DeviceError> {
    if any_is_closed() { Err(DeviceError::Unsupported { what }) } else { Ok(()) }
}

/// Of a device. A gate's number counts words.
pub struct Gates {
    /// Where the host and where the device finds the words.
    words: global::OnceLock<[u64; 2]>,
    free: Mutex<Vec<Gate>>,
}

/// # Safety
/// - It is the address of an aligned word of pinned memory that the driver frees at its end, and that hasn't come.
unsafe fn write(address: u64, value: u64) {
    // SAFETY: by the contract; nobody has it as anything else. Release: what the thread has done before is there for what goes on.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(value, Release);
}

/// Opens all gates. For the end of the process, before the driver's.
pub fn open_all() {
    for start in ALL.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        // SAFETY: the caller comes before the driver's end.
        (0..GATE_COUNT_MAX).for_each(|at| unsafe { write(start + 8 * at, OPEN) });
    }
}

impl Gates {
    pub fn new() -> Gates {
        Gates { words: global::OnceLock::new(), free: Mutex::new(Rank::Leaf, Vec::new()) }
    }

    /// A gate, which is closed.
    pub fn make(&self, driver: Driver<'_>) -> Result<Gate, DeviceError> {
        if self.words.get().is_none() {
            let words = driver.mem_host_zeroed(8 * GATE_COUNT_MAX as usize)?;
            // Of threads that are here at once one puts its words down.
            if self.words.set(words).is_ok() {
                ALL.lock().unwrap_or_else(PoisonError::into_inner).push(words[0]);
                self.free.lock().extend((0..GATE_COUNT_MAX).rev().map(Gate));
            }
        }
        let gate = self.free.lock().pop();
        let gate = gate.ok_or(DeviceError::Unsupported { what: "gate left, of 512" })?;
        // SAFETY: it is a word of the device, and we are inside of the driver, which has a context.
        unsafe { write(self.address(gate)[0], CLOSED) };
        CLOSED_COUNT.fetch_add(1, Release);
        Ok(gate)
    }

    fn address(&self, gate: Gate) -> [u64; 2] {
        self.words.get().expect("whoever has a gate has made the words").map(|start| start + 8 * gate.0)
    }

    /// Where the device finds the word of a gate.
    pub fn word(&self, gate: Gate) -> u64 {
        self.address(gate)[1]
    }

    /// For a caller that is inside. Once for each that was made.
    pub fn open(&self, gate: Gate) {
        CLOSED_COUNT.fetch_sub(1, Release);
        // Else it has been opened, and its word may be gone.
        if !process_ends() {
            // SAFETY: it is a word of the device, and we are inside.
            unsafe { write(self.address(gate)[0], OPEN) };
        }
    }

    pub fn release(&self, gate: Gate) {
        self.free.lock().push(gate);
    }
}
