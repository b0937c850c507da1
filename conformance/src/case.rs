//! Behaviours, one a case.

use crate::{Backend, child};
use raddle::Device;
use std::{env, process::Command, time::Duration};

/// Far longer than any case takes.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A behaviour and its test.
pub struct Case {
    /// `suite::behaviour`.
    pub name: String,
    /// Where it is run.
    pub backends: &'static [Backend],
    /// Panics if it doesn't hold.
    pub body: Box<dyn Fn(&Device) + Send + Sync>,
}

impl Case {
    /// A case of a suite.
    pub fn new(suite: &str, name: &str, body: impl Fn(&Device) + Send + Sync + 'static) -> Case {
        Case { name: format!("{suite}::{name}"), backends: &Backend::ALL, body: Box::new(body) }
    }

    /// The case, on CUDA in a process that runs nothing else. For cases that hold streams: meanwhile nobody there can load a
    /// kernel, so what it calls it has called before.
    pub(crate) fn in_own_process(self) -> Case {
        let Case { name, backends, body } = self;
        let in_cuda = format!("{}::{name}", Backend::Cuda.name());
        let run = move |device: &Device| {
            if !device.name().starts_with(Backend::Cuda.name())
                || env::args().any(|argument| argument == "--exact")
            {
                return body(device);
            }
            let mut command = Command::new(env::current_exe().unwrap());
            let ended = child::run(command.args(["--exact", &in_cuda]), TIME_MAX).unwrap();
            let is_good =
                ended.status.is_some_and(|status| status.success()) && ended.out.contains("1 passed");
            assert!(is_good, "{:?}\n{}{}", ended.status, ended.out, ended.err);
        };
        Case { name, backends, body: Box::new(run) }
    }
}

/// The cases of a suite from functions: each is named as the function. Those that hold streams stand behind `holding`.
#[macro_export]
macro_rules! cases {
    ($suite:literal: $($function:ident),* $(,)?; holding: $($holding:ident),* $(,)?) => {
        vec![
            $($crate::Case::new($suite, stringify!($function), $function),)*
            $($crate::Case::new($suite, stringify!($holding), $holding).in_own_process(),)*
        ]
    };
    ($suite:literal: $($function:ident),* $(,)?) => {
        $crate::cases!($suite: $($function),*; holding:)
    };
}
