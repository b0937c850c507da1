//! Other programs: how they are started, and what came of them.

use crate::{Failure, Outcome};
use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// A folder for builds of one kind, so that flags of one command don't throw away the builds of another.
pub fn target_dir(kind: &str) -> PathBuf {
    let base = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    base.join(kind)
}

/// The cargo that runs us, in the root of the repository.
pub fn cargo() -> Command {
    program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program, started in the root of the repository.
///
/// It isn't told of our package, as we are by the cargo that runs us. Build scripts ask for these variables (`ring`'s does), and
/// would run again, with all that stands on what they make, whenever a cargo inside of ours and one outside take turns.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    let of_our_package = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for (name, _) in env::vars_os().filter(|(name, _)| of_our_package(name)) {
        command.env_remove(name);
    }
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Writes a file.
pub fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| io(path, &error))
}

/// What went wrong with a file or a folder.
pub fn io(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Check(format!("{}: {error}", path.display()))
}

/// The program and its arguments as one would type them, without its folder.
pub fn line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What a program said and how it ended.
pub struct Finished {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Did it end with 0?
    pub fn is_good(&self) -> bool {
        self.code == Some(0)
    }
    /// Both outputs, errors first.
    pub fn output(&self) -> String {
        format!("{}{}", self.stderr, self.stdout)
    }
}

/// Runs it to the end and keeps what it says.
pub fn capture(command: &mut Command) -> Result<Finished, Failure> {
    let output = command.output().map_err(|error| unable(command, &error))?;
    Ok(Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs it to the end with its output going to ours; an error if it fails.
pub fn stream(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| unable(command, &error))?;
    if status.success() { Ok(()) } else { crate::failed(format!("`{}` failed: {status}", line(command))) }
}

/// Runs it, and ends it when it takes longer than the limit: `None`. Its output goes to files, which can't fill up as
/// pipes do.
pub fn capture_within(
    command: &mut Command,
    limit: Duration,
    log: &Path,
) -> Result<Option<Finished>, Failure> {
    let file = |name: &str| {
        let path = log.with_extension(name);
        let file = std::fs::File::create(&path).map_err(|error| io(&path, &error))?;
        Ok((path, file))
    };
    let (stdout, stdout_file) = file("out")?;
    let (stderr, stderr_file) = file("err")?;
    let mut child =
        command.stdout(stdout_file).stderr(stderr_file).spawn().map_err(|error| unable(command, &error))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| unable(command, &error))? {
            Some(status) => break status,
            None if start.elapsed() > limit => {
                // It may have ended by itself in between: then there is nothing to end.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let read = |path: &Path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Some(Finished {
        code: status.code(),
        stdout: read(&stdout).unwrap_or_default(),
        stderr: read(&stderr).unwrap_or_default(),
    }))
}

fn unable(command: &Command, error: &std::io::Error) -> Failure {
    Failure::Check(format!("`{}` can't be started: {error}", line(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_not_told_of_our_package() {
        let is_told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        assert!(env::vars().any(|(name, _)| is_told(&name)), "cargo tells us, or this shows nothing");
        let said = capture(&mut program("env")).ok().expect("there is such a program").stdout;
        assert!(said.contains("PATH="), "{said}");
        assert!(!said.lines().any(is_told), "{said}");
    }
}
