//! A device as all floors know it: its hal, its names, and where each floor keeps what it has of the device.

use super::Error;
use raddle_hal as hal;
use raddle_sync::{
    Padded,
    atomic::{AtomicBool, AtomicU32, AtomicU64},
    global::{self, AtomicPtr, Ordering::Relaxed},
    locks_at_fork::fork_count,
};
use std::ptr;

/// Devices that a process can have opened at once: a tick has 8 bits for them.
pub const DEVICE_COUNT_MAX: usize = 256;

/// The floors that keep something of a device.
const FLOOR_COUNT: usize = 4;

/// Lives as long as the process, so that buffers, handles and ticks hold it without counting. Devices are few; a
/// simulator that is opened for each of a million seeds is closed again by [`Device::close`], which gives back all but
/// the frames of the floors, of some 30 KiB.
pub(crate) struct Core {
    pub(crate) hal: Box<dyn hal::Device>,
    pub(crate) index: u8,
    /// Its index, and how often that had been used before, modulo 2^8: what ids of its streams say.
    pub(crate) id: u16,
    pub(crate) in_flight_count_max: u64,
    pub(crate) dtypes: hal::DTypes,
    pub(crate) poison: bool,
    pub(crate) prepares: bool,
    pub(crate) source: hal::trace::Source,
    /// Set when the device is lost; then everything counts as complete.
    pub(crate) lost: AtomicBool,
    /// Set when it has been closed, and its index is no longer its own.
    pub(crate) closed: AtomicBool,
    /// The process's count of forks when it was opened, and when the hal last heard of one.
    pub(crate) forks: u32,
    pub(crate) forks_seen: global::AtomicU32,
    /// How many blocks have been described, so that each has a number.
    pub(crate) block_count: AtomicU64,
    /// How many reasons there are for an allocation not to take the shortest path. On a line of its own, since everybody loads it.
    watchers: Padded<AtomicU32>,
    floors: [AtomicPtr<()>; FLOOR_COUNT],
}

// A panic leaves nothing half done: locks aren't poisoned, and what they guard is restored by `Drop`.
impl std::panic::RefUnwindSafe for Core {}

impl Core {
    pub(crate) fn new(hal: Box<dyn hal::Device>, index: u8, use_count: u8) -> Core {
        let info = hal.info();
        Core {
            index,
            id: u16::from_be_bytes([use_count, index]),
            in_flight_count_max: info.in_flight_count_max.min(info.bounds.in_flight_count as u64).max(2),
            dtypes: info.dtypes,
            poison: info.poison,
            prepares: info.prepares,
            source: info.source,
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            forks: fork_count(),
            forks_seen: global::AtomicU32::new(fork_count()),
            block_count: AtomicU64::new(0),
            watchers: Padded(AtomicU32::new(0)),
            floors: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            hal,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.hal.info().name
    }

    pub(crate) fn bounds(&self) -> &hal::Bounds {
        &self.hal.info().bounds
    }

    pub(crate) fn error(&self, error: hal::DeviceError) -> Error {
        Error::Device { device: self.name().into(), error }
    }

    /// Is there a reason for allocations not to take the shortest path? Relaxed: whoever has given one sees it on its own
    /// thread; others see it when they are told.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Relaxed) != 0
    }

    /// One reason more.
    pub(crate) fn add_watcher(&self) {
        self.watchers.fetch_add(1, Relaxed);
    }

    /// One reason less.
    pub(crate) fn remove_watcher(&self) {
        self.watchers.fetch_sub(1, Relaxed);
    }

    /// Has the device to prepare the launch, or say how much scratch memory it needs?
    #[inline]
    pub(crate) fn wants_prepared(&self, launch: &hal::Launch<'_>) -> bool {
        self.prepares || launch.may_want_scratch()
    }
}

/// What a floor keeps of a device. The ground knows where it is, and not what: so what stands on a floor may be found from
/// anything that names the device, and no floor knows one above it.
///
/// # Safety
/// - No other type has the same number.
pub(crate) unsafe trait Floor: Sync + Sized + 'static {
    /// Below [`FLOOR_COUNT`].
    const NUMBER: usize;

    /// Gives it to the device, for its life. Called once, before anybody else has the device.
    fn build(self, device: &'static Core) -> &'static Self {
        let place = &device.floors[Self::NUMBER];
        debug_assert!(place.load(Relaxed).is_null(), "runtime: a floor is built twice");
        let floor: *mut Self = Box::into_raw(Box::new(self));
        place.store(floor.cast(), Relaxed);
        Self::of(device)
    }

    /// Of a device. Whoever has the device got it by a synchronized way, after the floors were built.
    #[inline]
    fn of(device: &'static Core) -> &'static Self {
        let floor = device.floors[Self::NUMBER].load(Relaxed);
        debug_assert!(!floor.is_null(), "runtime: a floor is asked for before it is built");
        // SAFETY: `build` alone stores there, of this type as no other has the number; it is never freed.
        unsafe { &*floor.cast::<Self>() }
    }
}

/// A device in service. A handle is a pointer; it may be copied, sent and used from any thread.
#[derive(Clone, Copy)]
pub struct Device(pub(crate) &'static Core);

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        ptr::eq(self.0, other.0)
    }
}
impl Eq for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl Device {
    /// As the user names it: `cpu`, `cuda:0`, `sim:7`.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The dtypes that its kernels know.
    #[inline]
    pub fn dtypes(&self) -> hal::DTypes {
        self.0.dtypes
    }

    /// What it is like.
    pub fn info(&self) -> &'static hal::Info {
        self.0.hal.info()
    }
}
