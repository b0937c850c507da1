//! How large things are: what fills a device depends on it.

#[derive(Clone, Copy)]
pub struct Sizes {
    /// Bandwidth ops work on a square of this side.
    pub side: usize,
    /// Parameters of `adam` are squares of this side.
    pub adam_side: usize,
    /// Sides of products.
    pub gemm: &'static [usize],
    /// Is it a GPU, of which more is measured?
    pub gpu: bool,
}

impl Sizes {
    /// For a device.
    pub fn of(device: &str) -> Sizes {
        match device.starts_with("cuda") {
            false => Sizes { side: 4096, adam_side: 2048, gemm: &[256, 512, 1024, 2048], gpu: false },
            true => Sizes { side: 8192, adam_side: 4096, gemm: &[512, 1024, 2048, 4096], gpu: true },
        }
    }
}

/// Autoencoders as [`autoencoder`](raddle_cli::bench::rows::autoencoder) takes them.
pub const STEP_SMALL: (usize, usize, usize, usize) = (64, 256, 128, 8);
pub const STEP_LARGE: (usize, usize, usize, usize) = (768, 24576, 4096, 32);
pub const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
