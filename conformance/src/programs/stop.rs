//! What ends a program early.

use raddle::{Error, Result, runtime};

/// What a step stops a program with.
#[derive(Debug)]
pub enum Stop {
    /// The device is lost, as it was told to be. Everything up to then was right.
    Lost,
    /// Something is wrong.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match error {
            Error::Runtime(runtime::Error::Device {
                error: runtime::hal::DeviceError::Lost { .. }, ..
            }) => Stop::Lost,
            other => Stop::Wrong(format!("unexpected error: {other}")),
        }
    }
}

/// Done, or refused for want of memory: then nothing has happened.
pub fn done<T>(result: Result<T>) -> std::result::Result<Option<T>, Stop> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Runtime(runtime::Error::OutOfMemory { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
