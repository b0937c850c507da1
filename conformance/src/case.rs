//! Behaviours, one a case.

use crate::Backend;
use raddle::Device;

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
}

/// The cases of a suite from functions: each is named as the function.
#[macro_export]
macro_rules! cases {
    ($suite:literal: $($function:ident),* $(,)?) => {
        vec![$($crate::Case::new($suite, stringify!($function), $function)),*]
    };
}
