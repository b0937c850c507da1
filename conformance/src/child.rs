//! A process of its own, with a limit of time.

use std::{
    io::{self, Read},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// What became of it.
pub(crate) struct Ended {
    /// None if its time was over.
    pub status: Option<ExitStatus>,
    pub out: String,
    pub err: String,
}

/// Runs a command without input.
pub(crate) fn run(command: &mut Command, time_max: Duration) -> io::Result<Ended> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // Read all along, or the child would wait when a pipe is full.
    let [out, err] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ]
    .map(|pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // What was read before a failure is as good.
            _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if start.elapsed() > time_max => {
                // It may have ended by itself in between: then there is nothing to end.
                _ = child.kill();
                child.wait()?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    Ok(Ended { status, out: out.join().unwrap_or_default(), err: err.join().unwrap_or_default() })
}
