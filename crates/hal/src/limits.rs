//! The limits of the runtime and its devices: one table, from which come what a program can set, the environment variables,
//! and the page `docs/limits.md`.
//!
//! A limit is what the program says ([`Limits`]), else what the environment says, else its default. What comes out are
//! [`Bounds`], which a device is made with and shows in [`Info`](crate::Info). A value that isn't one is an error when the
//! device is opened, wherever it stands; it is never replaced by another.

use Preset::{Device, Is, Unbounded};
use raddle_sync::fault;
use std::{ffi::OsString, fmt};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes; in the environment also as `512K`, `64M`, `8G` or `1T`, in powers of 1024.
    Bytes,
}

/// What stands where nothing was asked for and the table has no number.
pub const OWN: usize = usize::MAX;

/// What holds unless something else is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// This.
    Is(usize),
    /// What the device has of its own.
    Device,
    /// There is no bound.
    Unbounded,
}

impl Preset {
    /// As [`Bounds`] have it.
    pub const fn value(self) -> usize {
        match self {
            Preset::Is(value) => value,
            Preset::Device | Preset::Unbounded => OWN,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The field of [`Limits`].
    pub name: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// The least that is taken.
    pub min: usize,
    /// The most that is taken.
    pub max: usize,
    /// Unless something else is asked for.
    pub default: Preset,
    /// What it is, and what happens when it is reached.
    pub says: &'static str,
}

/// A limit that is no number, or one that is out of range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    /// The environment variable, or the field of [`Limits`].
    pub place: String,
    /// The row.
    pub limit: &'static Limit,
    /// What was there.
    pub found: String,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { unit, min, max, .. } = self.limit;
        let what = if *unit == Unit::Bytes { "bytes, perhaps with K, M, G or T," } else { "a number" };
        write!(f, "{}: expected {what} ", self.place)?;
        match *max {
            usize::MAX => write!(f, "of at least {min}")?,
            max => write!(f, "from {min} to {max}")?,
        }
        write!(f, ", found {:?}", self.found)
    }
}
impl std::error::Error for LimitError {}

macro_rules! limits {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident($variable:literal, $unit:ident, $min:expr, $max:expr, $default:expr);
    )*) => {
        /// What a program asks for; `None` leaves it to the environment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: Option<usize>,)*
        }

        /// What a device keeps to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Bounds {
            $($(#[doc = $doc])+ pub $name: usize,)*
        }

        impl Default for Bounds {
            /// The defaults of the table; the environment isn't asked.
            fn default() -> Bounds {
                Bounds { $($name: $default.value(),)* }
            }
        }

        impl Limits {
            /// All limits.
            pub const TABLE: &[Limit] = &[$(Limit {
                name: stringify!($name),
                variable: $variable,
                unit: Unit::$unit,
                min: $min,
                max: $max,
                default: $default,
                says: concat!($($doc),+),
            },)*];

            /// What holds, with what the environment says for what isn't asked for. Every variable is checked, also one that
            /// makes no difference.
            pub fn resolve_with(
                &self,
                environment: impl Fn(&str) -> Option<OsString>,
            ) -> Result<Bounds, LimitError> {
                let mut rows = Limits::TABLE.iter();
                let mut resolve = |asked: Option<usize>| {
                    let limit = rows.next().expect("there is a row for each field");
                    let told = environment(limit.variable).map(|text| limit.parse(&text));
                    let told = match fault!(bad_limit_is_none) {
                        false => told.transpose()?,
                        true => told.and_then(Result::ok),
                    };
                    let asked = asked.map(|value| limit.check(value)).transpose()?;
                    Ok(asked.or(told).unwrap_or(limit.default.value()))
                };
                Ok(Bounds { $($name: resolve(self.$name)?,)* })
            }
        }

        impl Bounds {
            /// Each with its row.
            pub fn rows(&self) -> impl Iterator<Item = (&'static Limit, usize)> {
                Limits::TABLE.iter().zip([$(self.$name),*])
            }
        }
    };
}

limits! {
    /// Memory of a device that slabs take; beyond it an allocation is out of memory, after all caches were given back.
    memory_bytes("RADDLE_MEMORY_BYTES", Bytes, 1 << 16, usize::MAX, Device);
    /// The high watermark: memory that slabs take at first, until the program sets another; as above.
    memory_high_bytes("RADDLE_MEMORY_HIGH_BYTES", Bytes, 1 << 16, usize::MAX, Unbounded);
    /// The low watermark, at most the high one: a slab past it is asked for only after unused ones were given back.
    memory_low_bytes("RADDLE_MEMORY_LOW_BYTES", Bytes, 0, usize::MAX, Unbounded);
    /// The most that a slab of large blocks takes, unless one block is larger: slabs are a 32nd of those that there are.
    slab_bytes("RADDLE_SLAB_BYTES", Bytes, 1 << 16, usize::MAX, Is(32 << 20));
    /// Free memory in flight at which the next use waits for some rather than that memory grows: of a class of small blocks as a
    /// multiple of what a thread keeps, of large ones as a multiple of what is asked for.
    pending_ratio("RADDLE_PENDING_RATIO", Count, 1, 1 << 10, Is(8));
    /// Launches in flight on a stream; who submits one more waits. A device may hold fewer.
    in_flight_count("RADDLE_IN_FLIGHT", Count, 2, 1 << 20, Device);
    /// Streams of each priority beside the default one; threads beyond share them.
    stream_count("RADDLE_STREAMS", Count, 1, 32, Is(32));
    /// Threads of one kernel on the CPU, and threads that run queued work there; the default is the number of cores.
    thread_count("RADDLE_NUM_THREADS", Count, 1, 4096, Device);
    /// Versions of its clock that a stream remembers; a wait for older work is right, but teaches less.
    history_count("RADDLE_HISTORY", Count, 1, 4096, Is(16));
    /// Failures of kernels that are remembered; what depends on an older one counts as clean.
    failure_count("RADDLE_FAILURES", Count, 1, 1 << 20, Is(4096));
    /// Instances of a captured graph; past it replays line up.
    graph_instance_count("RADDLE_GRAPH_INSTANCES", Count, 1, 1024, Is(32));
    /// Memory of a graph's instances up to which one more is made rather than another's operands replaced.
    graph_bytes("RADDLE_GRAPH_BYTES", Bytes, 0, usize::MAX, Is(256 << 20));
    /// Compiled kernels that stay loaded; beyond it the least recently used goes.
    kernel_count("RADDLE_KERNELS", Count, 1, 1 << 20, Is(4096));
    /// Size of the compiled kernels that stay loaded; beyond it the least recently used goes.
    kernel_bytes("RADDLE_KERNEL_BYTES", Bytes, 0, usize::MAX, Is(512 << 20));
    /// Shapes of matrix products whose algorithm is remembered; beyond it the least recently used goes.
    algorithm_count("RADDLE_ALGORITHMS", Count, 1, 1 << 20, Is(4096));
    /// Files in the folder of compiled kernels; beyond it the oldest go.
    disk_count("RADDLE_CACHE_FILES", Count, 1, 1 << 24, Is(8192));
    /// Size of the folder of compiled kernels; beyond it the oldest files go.
    disk_bytes("RADDLE_CACHE_BYTES", Bytes, 0, usize::MAX, Is(1 << 30));
    /// Pinned memory of the host that copies go through; a copy that finds none isn't pinned, and slower.
    pinned_bytes("RADDLE_PINNED_BYTES", Bytes, 1 << 20, usize::MAX, Is(512 << 20));
    /// Spans of a trace, of the whole process; later ones are counted only. The device that is opened first decides.
    trace_span_count("RADDLE_TRACE_SPANS", Count, 1, 1 << 28, Is(1 << 20));
}

impl Limit {
    fn error(&'static self, place: String, found: String) -> LimitError {
        LimitError { place, limit: self, found }
    }

    fn check(&'static self, value: usize) -> Result<usize, LimitError> {
        if (self.min..=self.max).contains(&value) {
            return Ok(value);
        }
        Err(self.error(format!("Limits::{}", self.name), value.to_string()))
    }

    /// A value as the environment has it.
    fn parse(&'static self, text: &std::ffi::OsStr) -> Result<usize, LimitError> {
        let number = |text: &str| {
            let factors = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
            let factor =
                factors.iter().find(|(letter, _)| self.unit == Unit::Bytes && text.ends_with(*letter));
            let (digits, shift) =
                factor.map_or((text, 0), |(letter, shift)| (&text[..text.len() - letter.len_utf8()], *shift));
            let value: usize = digits.parse().ok()?;
            value.checked_mul(1_usize.checked_shl(shift)?)
        };
        let value = text.to_str().and_then(|text| number(text.trim()));
        value
            .filter(|value| (self.min..=self.max).contains(value))
            .ok_or_else(|| self.error(self.variable.to_string(), text.to_string_lossy().into_owned()))
    }
}

impl Limits {
    /// What holds in this process.
    pub fn resolve(&self) -> Result<Bounds, LimitError> {
        self.resolve_with(|variable| std::env::var_os(variable))
    }
}

/// The environment variables that are no limits.
pub const VARIABLES: &[(&str, &str)] = &[
    ("RADDLE_CACHE_DIR", "The folder of compiled kernels; none if it is empty. Default: `~/.cache/raddle`."),
    ("RADDLE_TRACE", "A file that a trace of the program is written to at its end, for Perfetto's viewer."),
    (
        "RADDLE_NVTX",
        "`0`: ops are not named to a profiler of CUDA that is attached (by `NVTX_INJECTION64_PATH`).",
    ),
    ("RADDLE_FAULT", "A fault to plant, in builds that can."),
];

/// A bound that can't be set, since asking for it would cost where it is looked at, or since something is built on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The name of what is bounded.
    pub name: &'static str,
    /// How much.
    pub value: usize,
    /// What happens when it is reached, and why it is fixed.
    pub says: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(variable: &'static str, text: &'static str) -> Result<Bounds, String> {
        let environment = |name: &str| (name == variable).then(|| text.into());
        Limits::default().resolve_with(environment).map_err(|error| error.to_string())
    }

    #[test]
    fn the_program_comes_before_the_environment_and_that_before_the_default() {
        let environment = |name: &str| (name == "RADDLE_KERNELS").then(|| "7".into());
        let asked = Limits { kernel_count: Some(5), ..Limits::default() };
        assert_eq!(asked.resolve_with(environment).unwrap().kernel_count, 5);
        assert_eq!(Limits::default().resolve_with(environment).unwrap().kernel_count, 7);
        assert_eq!(Limits::default().resolve_with(|_| None), Ok(Bounds::default()));
        assert!(Bounds::default().rows().all(|(limit, value)| limit.default.value() == value));
    }

    #[test]
    fn bytes_have_units_and_counts_have_none() {
        assert_eq!(told("RADDLE_MEMORY_BYTES", " 8G ").unwrap().memory_bytes, 8 << 30);
        assert_eq!(told("RADDLE_KERNEL_BYTES", "0").unwrap().kernel_bytes, 0);
        assert!(told("RADDLE_KERNELS", "1K").is_err());
    }

    #[test]
    fn what_is_no_value_is_told_with_its_place() {
        for (variable, text, message) in [
            ("RADDLE_STREAMS", "33", "RADDLE_STREAMS: expected a number from 1 to 32, found \"33\""),
            ("RADDLE_STREAMS", "", "RADDLE_STREAMS: expected a number from 1 to 32, found \"\""),
            ("RADDLE_STREAMS", "-1", "RADDLE_STREAMS: expected a number from 1 to 32, found \"-1\""),
            ("RADDLE_STREAMS", "many", "RADDLE_STREAMS: expected a number from 1 to 32, found \"many\""),
            (
                "RADDLE_MEMORY_BYTES",
                "99999999999T",
                "RADDLE_MEMORY_BYTES: expected bytes, perhaps with K, M, G or T, of at least 65536, found \"99999999999T\"",
            ),
            (
                "RADDLE_MEMORY_BYTES",
                "8KK",
                "RADDLE_MEMORY_BYTES: expected bytes, perhaps with K, M, G or T, of at least 65536, found \"8KK\"",
            ),
        ] {
            assert_eq!(told(variable, text).unwrap_err(), message);
        }
        let asked = Limits { stream_count: Some(0), ..Limits::default() };
        let error = asked.resolve_with(|_| None).unwrap_err().to_string();
        assert_eq!(error, "Limits::stream_count: expected a number from 1 to 32, found \"0\"");
    }

    #[test]
    fn a_variable_that_makes_no_difference_is_checked_too() {
        let asked = Limits { stream_count: Some(1), ..Limits::default() };
        assert!(asked.resolve_with(|name| (name == "RADDLE_STREAMS").then(|| "x".into())).is_err());
    }

    #[test]
    fn variables_and_names_are_told_apart() {
        for (index, limit) in Limits::TABLE.iter().enumerate() {
            let is_fit = match limit.default {
                Is(value) => (limit.min..=limit.max).contains(&value),
                Device | Unbounded => limit.max == OWN || limit.unit == Unit::Count,
            };
            assert!(is_fit, "{}", limit.name);
            let same = |other: &Limit| other.variable == limit.variable || other.name == limit.name;
            assert_eq!(Limits::TABLE.iter().position(same), Some(index));
        }
    }
}
