//! What tests of the program have in common.

pub mod form;

use std::process::{Command, Output, Stdio};

pub fn raddle(arguments: &[&str]) -> Output {
    raddle_to(Stdio::piped(), arguments)
}

/// With standard output elsewhere.
pub fn raddle_to(stdout: Stdio, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_raddle")).args(arguments).stdout(stdout).output().unwrap()
}

/// Exit code 2, with the point in the first line of stderr.
pub fn assert_refused(arguments: &[&str], point: &str) {
    let output = raddle(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(stderr.lines().next().is_some_and(|line| line.contains(point)), "{arguments:?}: {stderr}");
}
