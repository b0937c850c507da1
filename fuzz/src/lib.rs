//! Fuzz targets: each hands bytes to what reads bytes of others, and asserts what has to hold of whatever it accepts.
//!
//! | target | bytes | what has to hold |
//! |---|---|---|
//! | `safetensors` | a weights file | names differ, the tensors are the data, byte for byte; saved and read again they are the same |
//! | `folder` | the JSON files of a model's folder and a text, one `0xff` between two | nothing outside of the folder is read; a text has tokens within the limit and a finite vector |
//! | `http_body` | a body of a request, read for each route | what is read is no larger than the body, what isn't is told in few words |
//! | `trace` | an allocation trace | it is exactly what writing it again gives |
//! | `snapshot` | a snapshot of memory | it is the same after writing and reading; its page holds no element of others |
//!
//! That they don't panic, hang or allocate without bound is watched by libFuzzer, whose limits `cargo xtask fuzz` sets.

#![forbid(unsafe_code)]

mod folder;
mod http_body;
mod json;
mod safetensors;

pub use folder::folder;
pub use http_body::http_body;
pub use json::{snapshot, trace};
pub use safetensors::safetensors;

use raddle_tensor::Device;
use std::sync::OnceLock;

/// What one input may take of the device: inputs are kilobytes.
const DEVICE_BYTES_MAX: usize = 64 << 20;

/// One for the process.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let device = Device::open(Box::new(raddle_cpu::Cpu::new())).expect("the CPU is there");
        device.set_memory_limit(DEVICE_BYTES_MAX);
        device
    })
}
