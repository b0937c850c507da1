//! Lines of the log on standard error.

use crate::output::{Failure, Outcome};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// An object.
    Json,
}

/// Lines that wait to be written. If nobody reads them, further ones are dropped: a log never holds up a request.
const LINE_COUNT_MAX: usize = 8192;

/// Lines are written until the result is dropped, and then what waits.
pub fn start(format: Format, level: &str) -> Outcome<WorkerGuard> {
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(LINE_COUNT_MAX);
    let (writer, guard) = builder.thread_name("raddle-log").finish(std::io::stderr());
    let level: tracing_subscriber::filter::LevelFilter =
        level.parse().map_err(|_| Failure::Input(format!("serve: there is no log level {level:?}")))?;
    let lines = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false);
    match format {
        Format::Text => lines.init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
    Ok(guard)
}
