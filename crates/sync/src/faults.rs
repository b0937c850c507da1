//! Planted faults: places where the code can be told to do it wrong, so that the checks can be seen to catch it.
//!
//! `fault!(NAME)` is constant `false` in what ships. In debug builds, models and builds with `--cfg raddle_faults` it
//! tells whether NAME is planted: by [`plant`] for a test, or by the environment variable `RADDLE_FAULT` for a process.

/// Is this build able to plant faults?
pub const ENABLED: bool = cfg!(any(debug_assertions, loom, raddle_faults));

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident breaks $property:literal;)*) => {
        /// Every fault that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "named as in RADDLE_FAULT")]
        pub enum Fault { $($(#[doc = $doc])* $name),* }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];
            /// The name, as in `RADDLE_FAULT`.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => stringify!($name)),* }
            }
            /// The invariant of DESIGN.md that it breaks.
            pub fn breaks(self) -> &'static str {
                match self { $(Fault::$name => $property),* }
            }
        }
    };
}

faults! {
    /// A block that is given out while uses of its former life are in flight has forgotten them.
    forget_marks breaks "T1";
    /// A block that is freed while work that touches it is in flight counts as unused at once.
    free_without_fence breaks "T1";
    /// A buffer keeps one read mark, whatever stream read it.
    one_read_mark breaks "T2";
    /// A write waits for the last write only.
    no_wait_after_read breaks "T2";
    /// A read doesn't wait for the last write.
    no_wait_after_write breaks "T2";
    /// A wait brings what the producer knows now, not what it knew at the awaited tick.
    current_clock breaks "T2";
    /// An operand's memory goes back to the device although a launch that names it is in flight.
    release_in_flight breaks "T3";
    /// An event that has not been recorded says that it is complete.
    event_born_complete breaks "T4";
    /// An event records all but the last op of the stream.
    event_early breaks "T4";
    /// A thread that waits for room on a stream keeps the lock that the others need.
    wait_under_lock breaks "T5";
    /// A queue whose wait is over isn't woken.
    lost_wakeup breaks "T5";
    /// An event is labelled with what its queue holds after it was recorded.
    label_after_record breaks "T2";
    /// A kernel that is no longer cached is unloaded although a launch of it is in flight.
    unload_in_flight breaks "T3";
    /// A download counts as complete before its bytes are in the memory of the host.
    download_early breaks "T4";
    /// A kernel writes its strided output to a packed copy and leaves it there.
    no_copy_back breaks "T7";
    /// A graph is replayed into memory whose last outputs somebody still holds.
    reuse_leased breaks "T1";
    /// The replay of a graph waits for its own memory only, not for its operands.
    unhoisted_waits breaks "T2";
    /// Now and then a recording of allocations forgets an event.
    lost_trace_event breaks "T10";
    /// A recording of allocations puts one thread's events behind another's, whatever came first.
    unordered_trace breaks "T10";
}

#[cfg(any(debug_assertions, loom, raddle_faults))]
mod planted {
    use super::Fault;
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    // std's even in models: which fault is planted is no part of the modelled program.
    static PLANTED: AtomicU32 = AtomicU32::new(0);
    static ENVIRONMENT: OnceLock<Option<Fault>> = OnceLock::new();

    /// Is it planted?
    pub fn is(fault: Fault) -> bool {
        let environment = *ENVIRONMENT.get_or_init(|| {
            let name = std::env::var("RADDLE_FAULT").ok()?;
            let fault = Fault::ALL.iter().copied().find(|fault| fault.name() == name);
            if fault.is_none() {
                eprintln!("RADDLE_FAULT: no fault is called {name:?}");
            }
            fault
        });
        PLANTED.load(Relaxed) == fault as u32 + 1 || environment == Some(fault)
    }

    /// Takes the fault out again when dropped.
    #[derive(Debug)]
    pub struct Planted(());

    /// Plants a fault in this process until the guard is dropped. One at a time; tests that plant run one by one.
    pub fn plant(fault: Fault) -> Planted {
        assert_eq!(PLANTED.swap(fault as u32 + 1, Relaxed), 0, "one fault is planted at a time");
        Planted(())
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.store(0, Relaxed);
        }
    }
}
#[cfg(any(debug_assertions, loom, raddle_faults))]
pub use planted::{Planted, is, plant};

/// Is the fault planted? Constant `false` in what ships.
#[macro_export]
macro_rules! fault {
    ($name:ident) => {{
        #[cfg(any(debug_assertions, loom, raddle_faults))]
        let planted = $crate::faults::is($crate::faults::Fault::$name);
        #[cfg(not(any(debug_assertions, loom, raddle_faults)))]
        let planted = false;
        planted
    }};
}
