//! What can be chosen about a device.

use crate::stress::Spin;
use raddle_hal::Bounds;
use std::path::PathBuf;

/// Where compiled kernels are kept across runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DiskCache {
    /// `RADDLE_CACHE_DIR`, or the folder for such things of this user.
    #[default]
    OfUser,
    /// Here.
    At(PathBuf),
    /// Nowhere.
    Off,
}

/// What can be chosen about the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CudaOptions {
    /// Of its memory, its caches, and of the runtime.
    pub bounds: Bounds,
    /// Matrix products of `f32` may round their factors to 11 bits, which is several times as fast. Default: no.
    pub tf32: bool,
    /// Where compiled kernels are kept.
    pub disk_cache: DiskCache,
    /// For tests: launches that take their time.
    pub spin: Option<Spin>,
}
