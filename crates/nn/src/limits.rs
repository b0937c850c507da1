//! What bounds models and what they are read from.

use crate::checkpoint;
#[cfg(feature = "text")]
use crate::text;
use raddle_runtime::hal::Fixed;

/// The bounds of models that can't be set.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "bytes of a checkpoint's header",
        value: checkpoint::HEADER_BYTES_MAX as usize,
        says: "A longer one is refused.",
    },
    #[cfg(feature = "text")]
    Fixed {
        name: "bytes of a tokenizer's file",
        value: text::TOKENIZER_BYTES_MAX as usize,
        says: "A larger one is refused.",
    },
    #[cfg(feature = "text")]
    Fixed {
        name: "bytes of a file of a model's settings",
        value: text::SETTINGS_BYTES_MAX as usize,
        says: "As above.",
    },
    #[cfg(feature = "text")]
    Fixed {
        name: "tokens of a pass over texts",
        value: text::PASS_TOKENS_MAX,
        says: "More are several passes; a longer text is a pass of its own.",
    },
    #[cfg(feature = "text")]
    Fixed {
        name: "captured passes of a model",
        value: text::GRAPHS_MAX,
        says: "One for a padded length and a number of texts; the least recently used goes.",
    },
    #[cfg(feature = "text")]
    Fixed {
        name: "bytes that the captured passes of a model may take in replays",
        value: text::GRAPH_BYTES_MAX,
        says: "As above.",
    },
    #[cfg(feature = "text")]
    Fixed {
        name: "replays of a captured pass at once",
        value: text::REPLAYS_MAX,
        says: "More line up on the device.",
    },
];
