//! What a server allows.

use super::Origins;
use std::{fmt, time::Duration};

/// Limits of a server, inclusive: what they name is still allowed. The numbers that text-embeddings-inference has are its own.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a body.
    pub body_bytes_max: usize,
    /// Inputs of a request.
    pub input_count_max: usize,
    /// The same of OpenAI's routes; the default is OpenAI's.
    pub openai_input_count_max: usize,
    /// Requests that are read or computed at once, or whose answer of more than 64 KiB is being taken. One more is told to come
    /// later.
    pub concurrent_request_count_max: usize,
    /// Connections at once. One more waits to be accepted.
    pub connection_count_max: usize,
    /// How long a head may take to come, which is also how long a connection may be idle.
    pub head_within: Duration,
    /// How long a body may take to come.
    pub body_within: Duration,
    /// How long a client may need to take an answer, or 256 KiB of a longer one.
    pub send_within: Duration,
    /// A request must begin to be computed within this time, if it doesn't say another.
    pub begin_within: Option<Duration>,
    /// After a signal to stop: how long connections may still bring requests.
    pub linger: Duration,
    /// After a signal to stop: how long until what isn't answered is given up.
    pub drain_within: Duration,
    /// What clients must show, if anything.
    pub key: Option<String>,
    /// Whose pages may ask.
    pub cors: Origins,
    /// The name of the model, if not that of its folder.
    pub name: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            body_bytes_max: 2_000_000,
            input_count_max: 32,
            openai_input_count_max: 2048,
            concurrent_request_count_max: 512,
            connection_count_max: 4096,
            head_within: Duration::from_secs(60),
            body_within: Duration::from_secs(30),
            send_within: Duration::from_secs(30),
            begin_within: None,
            linger: Duration::from_millis(500),
            drain_within: Duration::from_secs(30),
            key: None,
            cors: Origins::None,
            name: None,
        }
    }
}

/// Without the key.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("body_bytes_max", &self.body_bytes_max)
            .field("input_count_max", &self.input_count_max)
            .field("has_key", &self.key.is_some())
            .finish_non_exhaustive()
    }
}
