//! What the commands share: failures with exit codes, standard output, and files that are written whole or not at all.

pub use raddle::runtime::replaceable as target;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use raddle::runtime::FileReplacement;
use serde::Serialize;
use std::{
    fmt, fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Why a command stops.
#[derive(Debug)]
pub enum Failure {
    /// Wrong use or input: exit code 2.
    Input(String),
    /// A device that is there and can't be used: exit code 2.
    Unusable(String),
    /// Anything else: exit code 1.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(text) | Failure::Unusable(text) | Failure::Other(text) => f.write_str(text),
        }
    }
}

impl From<raddle::Error> for Failure {
    fn from(error: raddle::Error) -> Failure {
        match error {
            raddle::Error::UnknownDevice { .. }
            | raddle::Error::Runtime(raddle::runtime::Error::Limit(_)) => Failure::Input(error.to_string()),
            error => Failure::Other(error.to_string()),
        }
    }
}

/// Any error of a step of training, whose parts have errors of several kinds.
pub struct StepError(String);

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! step_error {
    ($($error:ty),*) => { $(
        impl From<$error> for StepError {
            fn from(error: $error) -> StepError { StepError(error.to_string()) }
        }
    )* };
}
step_error!(raddle::Error, raddle::grad::Error, raddle::optim::Error);

/// How commands end.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Tells why a program fails, if it does, and with which code it ends.
pub fn exit_code(program: &str, outcome: Outcome) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    tell(format_args!("{program}: {failure}"));
    ExitCode::from(match failure {
        Failure::Input(_) | Failure::Unusable(_) => 2,
        Failure::Other(_) => 1,
    })
}

/// Writes all bytes to standard output, at once. False: nobody reads it any more, which is no failure, as others may want
/// the files and the exit code.
pub fn to_stdout(bytes: &[u8]) -> Outcome<bool> {
    let mut stdout = io::stdout().lock();
    stdout_written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// What became of a write to standard output, as [`to_stdout`] says it.
pub fn stdout_written(written: io::Result<()>) -> Outcome<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Input(format!("standard output: {error}"))),
    }
}

/// Says a line to people, on standard output; false as [`to_stdout`]. `println!` would panic where that fails.
pub fn say(line: impl fmt::Display) -> Outcome<bool> {
    to_stdout(format!("{line}\n").as_bytes())
}

/// Tells a line on standard error. That nobody can be told is no reason to panic, as `eprintln!` would.
pub fn tell(line: impl fmt::Display) {
    _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Finds out before the work, not after it, that a report has nowhere to go.
pub fn check_writable(path: Option<&Path>) -> Outcome {
    let Some(path) = path.filter(|path| !is_stdout(Some(path))) else { return Ok(()) };
    let failed = |reason: &dyn fmt::Display| Failure::Input(format!("{}: {reason}", path.display()));
    if path.is_dir() {
        return Err(failed(&"expected a file, found a folder"));
    }
    match target(path) {
        Ok(Some(target)) if !folder(&target).is_dir() => Err(failed(&"the folder doesn't exist")),
        Ok(_) => Ok(()),
        Err(error) => Err(failed(&error)),
    }
}

/// Errors: a report, named by its option, would take the place of a file that a command reads or writes besides. Another name
/// of such a file may be given: reports are renamed into their places, so that the file stays under its own.
pub fn check_keeps(report: Option<&Path>, option: &str, files: &[&PathBuf]) -> Outcome {
    let Some(path) = report.filter(|path| !is_stdout(Some(path))) else { return Ok(()) };
    // What can't be looked at is told by those who open it.
    let place = |path: &Path| -> Option<PathBuf> {
        let target = target(path).ok()??;
        Some(fs::canonicalize(folder(&target)).ok()?.join(target.file_name()?))
    };
    let Some(replaced) = place(path) else { return Ok(()) };
    match files.iter().find(|file| place(file).as_ref() == Some(&replaced)) {
        Some(file) => {
            let file = file.display();
            Err(Failure::Input(format!("{option}: expected a file of its own, found that of {file}")))
        }
        None => Ok(()),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file so that a full disk or a crash leaves either the whole file or none. `-` is standard output; a symbolic link
/// stays, and the new file is as open to others as the old one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Outcome {
    write_whole_with(path, |to| to.write_all(bytes))
}

/// As [`write_whole`], of what is made while it is written.
pub fn write_whole_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Outcome {
    let failed = |error: io::Error| Failure::Input(format!("{}: {error}", path.display()));
    if is_stdout(Some(path)) {
        let mut to = BufWriter::new(io::stdout().lock());
        let written = write(&mut to).and_then(|()| to.flush());
        return stdout_written(written).map(drop);
    }
    let to_file = |file: &fs::File| -> io::Result<()> {
        let mut to = BufWriter::new(file);
        write(&mut to)?;
        to.flush()
    };
    let written = || -> io::Result<()> {
        let Some(target) = target(path)? else { return to_file(&fs::File::create(path)?) };
        let replacement = FileReplacement::begin(target)?;
        to_file(replacement.file())?;
        replacement.file().sync_all()?;
        replacement.finish()
    };
    written().map_err(failed)
}

/// Writes a report as JSON if a file was asked for.
pub fn write_json(path: Option<&Path>, report: &impl Serialize) -> Outcome {
    let Some(path) = path else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(report).map_err(|error| Failure::Other(error.to_string()))?;
    text.push('\n');
    write_whole(path, text.as_bytes())
}

/// Does the report go to standard output, so that nothing else may?
pub fn is_stdout(path: Option<&Path>) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Some(Path::new(name)))
}

/// A bar on stderr, where that is a terminal.
pub fn progress(count: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
