//! `measure rows`: what ops cost on this machine, through the public API. `benches/README.md` says what each row does; the
//! scripts in `benches/peers` measure the same list on PyTorch.

mod gpu;
mod graphs;
mod sizes;

pub use gpu::Encoder;

use gpu::{Bare, Side, hops, hops_bare, launch};
use raddle::{
    DType::{F16, F32},
    Device, Generator, Result, Stream, Tensor,
    grad::Autograd,
    optim::{Adam, AdamOptions},
};
use raddle_cli::{
    bench::{
        measure::{alone, together},
        rows::{STEP, Spec, add_out, alloc_free, autoencoder, copy, normal, product, repeat, steps},
    },
    output::{Failure, Outcome},
};
use sizes::{STEP_LARGE, STEP_SMALL, Sizes, THREADS};

/// `softmax` and `layer_norm` on rows of features.
const ROWS: usize = 16384;
const FEATURES: usize = 1024;
const ROWS_GB: f64 = (ROWS * FEATURES * 4) as f64 / 1e9;
/// Permuted views: no axis stays where it was. Of 4 bytes it is 256 MiB, as the square of a GPU.
const PERMUTED: [usize; 3] = [128, 512, 1024];
const PERMUTED_GB: f64 = (PERMUTED[0] * PERMUTED[1] * PERMUTED[2] * 4) as f64 / 1e9;

/// All of them, in the order in which they run.
pub fn table(device: &str) -> Vec<Spec> {
    let sizes = Sizes::of(device);
    ops(sizes).into_iter().chain(graphs::table(sizes)).collect()
}

fn ops(sizes: Sizes) -> Vec<Spec> {
    let Sizes { side, adam_side, gemm, gpu } = sizes;
    let square_gb = (side * side * 4) as f64 / 1e9;
    let mut table = vec![Spec::time("add_out_256", 1, add_out)];
    if gpu {
        table.push(Spec::time("add_out_256", 8, add_out));
        for (name, what) in [("launch", Bare::Nothing), ("launch_add_256", Bare::Add)] {
            table.extend([1, 8].map(|threads| {
                Spec::time(name, threads, move |device: &Device, threads| launch(device, threads, what))
            }));
        }
        table.push(Spec::time("chain_one_stream", 1, |device, _| chain(device, 1)));
        table.push(Spec::time("chain_two_streams", 1, |device, _| chain(device, 2)));
        table.push(Spec::time("hop_one_stream", 1, |device, _| hops(device, 1, Side::Host)));
        table.push(Spec::time("hop_two_streams", 1, |device, _| hops(device, 2, Side::Host)));
        table.push(Spec::time("hop_one_stream_bare", 1, |device, _| hops_bare(device, 1)));
        table.push(Spec::time("hop_two_streams_bare", 1, |device, _| hops_bare(device, 2)));
        table.push(Spec::time("hop_one_stream_device", 1, |device, _| hops(device, 1, Side::Device)));
        table.push(Spec::time("hop_two_streams_device", 1, |device, _| hops(device, 2, Side::Device)));
    }
    table.push(Spec::time("add_256", 1, add));
    table.extend(THREADS.map(|threads| Spec::time("alloc_free_4k", threads, alloc_free)));
    table.push(Spec::time("cross_stream_free", 1, cross_stream_free));
    table.extend(THREADS.map(|threads| Spec::time("shared_read", threads, shared_read)));
    table.extend(bandwidth(side, square_gb));
    if gpu {
        table.extend(permuted());
    }
    let gemm_name = |n: usize| match n {
        256 => "gemm_256",
        512 => "gemm_512",
        1024 => "gemm_1024",
        2048 => "gemm_2048",
        _ => "gemm_4096",
    };
    table.extend(
        gemm.iter().map(|&n| Spec::flops(gemm_name(n), (n, n, n), move |device| product(device, n, F32))),
    );
    if gpu {
        let n = 4096;
        table.push(Spec::flops("gemm_4096_f16", (n, n, n), move |device| product(device, n, F16)));
    }
    table.push(Spec::flops("linear_1", (1, 384, 1536), |device| linear(device, 1)));
    table.push(Spec::flops("linear_8", (8, 384, 1536), |device| linear(device, 8)));
    table.push(Spec::flops("linear_128", (128, 384, 1536), |device| linear(device, 128)));
    let adam_gb = (7 * 4 * adam_side * adam_side * 4) as f64 / 1e9;
    table.push(Spec::rate("adam", adam_gb, move |device| adam(device, adam_side, false)));
    if gpu {
        table.push(Spec::rate("adam_transposed", adam_gb, move |device| adam(device, adam_side, true)));
        table.extend(THREADS.map(|threads| Spec::per_second("mlp", threads, gpu::mlp)));
        table.extend([1, 8].map(|threads| Spec::per_second("transformer_f16", threads, gpu::transformer)));
    }
    table.push(Spec::step("autoencoder_step", |device| autoencoder(device, STEP, false)));
    if gpu {
        table.push(Spec::step("autoencoder_step_large", |device| autoencoder(device, STEP_LARGE, false)));
        table.push(Spec::step("autoencoder_step_large_full", |device| autoencoder(device, STEP_LARGE, true)));
    } else {
        table.push(Spec::step("autoencoder_step_small", |device| autoencoder(device, STEP_SMALL, false)));
    }
    table
}

fn bandwidth(side: usize, square_gb: f64) -> Vec<Spec> {
    let square = move |device: &Device| normal(device, &[side, side]);
    vec![
        Spec::rate("copy", 2.0 * square_gb, move |device| copy(device, side)),
        Spec::rate("addcmul", 4.0 * square_gb, move |device| {
            let (t, a, b) = (square(device)?, square(device)?, square(device)?);
            repeat(device, || t.addcmul_(&a, &b, 1e-3).map(drop))
        }),
        Spec::rate("addcmul_transposed", 4.0 * square_gb, move |device| {
            let (t, a, b) = (square(device)?.t()?, square(device)?, square(device)?);
            repeat(device, || t.addcmul_(&a, &b, 1e-3).map(drop))
        }),
        Spec::rate("copy_transposed", 2.0 * square_gb, move |device| {
            let (a, b) = (square(device)?.t()?, square(device)?);
            repeat(device, || b.copy_(&a).map(drop))
        }),
        Spec::rate("exp", 2.0 * square_gb, move |device| {
            let (a, out) = (square(device)?, square(device)?);
            repeat(device, || a.exp_out(&out))
        }),
        Spec::rate("normal_", square_gb, move |device| {
            let (out, generator) = (square(device)?, Generator::new(0));
            repeat(device, || out.normal_(0.0, 1.0, &generator).map(drop))
        }),
        Spec::rate("sum", square_gb, move |device| {
            let a = square(device)?;
            repeat(device, || a.sum(.., false).map(drop))
        }),
        Spec::rate("sum_axis0", square_gb + (side * 4) as f64 / 1e9, move |device| {
            let (a, out) = (square(device)?, Tensor::empty([side], F32, device)?);
            repeat(device, || a.sum_out(0, false, &out))
        }),
        Spec::rate("softmax", 2.0 * ROWS_GB, |device| {
            let (x, out) = (rows(device)?, rows(device)?);
            repeat(device, || x.softmax_out(-1, &out))
        }),
        Spec::rate("layer_norm", 2.0 * ROWS_GB, |device| {
            let (x, weight, bias) = (rows(device)?, features(device)?, features(device)?);
            repeat(device, || x.layer_norm_stats(1, Some(&weight), Some(&bias), 1e-5).map(drop))
        }),
        Spec::rate("layer_norm_backward", 3.0 * ROWS_GB, |device| {
            let (x, weight, bias) = (rows(device)?, features(device)?, features(device)?);
            let (_, mean, rstd) = x.layer_norm_stats(1, Some(&weight), Some(&bias), 1e-5)?;
            let gradient = rows(device)?;
            repeat(device, || {
                gradient.layer_norm_backward(&x, (&mean, &rstd), 1, Some(&weight), true).map(drop)
            })
        }),
    ]
}

/// Views of which no axis is where it was.
fn permuted() -> Vec<Spec> {
    let [a, b, c] = PERMUTED;
    // [b, c, a] in memory, seen as [a, b, c].
    let seen = move |device: &Device| normal(device, &[b, c, a])?.permute([2, 0, 1]);
    vec![
        Spec::rate("copy_permuted", 2.0 * PERMUTED_GB, move |device| {
            let (from, to) = (seen(device)?, normal(device, &PERMUTED)?);
            repeat(device, || to.copy_(&from).map(drop))
        }),
        Spec::rate("addcmul_permuted", 4.0 * PERMUTED_GB, move |device| {
            let (t, a, b) = (seen(device)?, normal(device, &PERMUTED)?, normal(device, &PERMUTED)?);
            repeat(device, || t.addcmul_(&a, &b, 1e-3).map(drop))
        }),
    ]
}

fn rows(device: &Device) -> Result<Tensor> {
    normal(device, &[ROWS, FEATURES])
}
fn features(device: &Device) -> Result<Tensor> {
    normal(device, &[FEATURES])
}

/// Ops that each need the result of the one before, in turn on so many streams.
fn chain(device: &Device, streams: usize) -> Outcome<Vec<f64>> {
    let streams: Vec<Stream> = (0..streams)
        .map(|_| Stream::from_pool(device, raddle::Priority::Normal))
        .collect::<std::result::Result<_, _>>()
        .map_err(raddle::Error::from)?;
    let (one, x) = (normal(device, &[256])?, [normal(device, &[256])?, normal(device, &[256])?]);
    alone(device, |count| {
        (0..count).try_for_each(|at| {
            let _guard = streams[at % streams.len()].enter();
            x[at % 2].add_out(&one, &x[(at + 1) % 2])
        })
    })
}

fn add(device: &Device, _: usize) -> Outcome<Vec<f64>> {
    let (a, b) = (normal(device, &[256])?, normal(device, &[256])?);
    repeat(device, || a.add(&b).map(drop))
}

/// A raw block, marked as read on another live stream, then dropped; taking it again is included.
fn cross_stream_free(device: &Device, _: usize) -> Outcome<Vec<f64>> {
    let other = Stream::from_pool(device, raddle::Priority::Normal).map_err(raddle::Error::from)?;
    {
        let _guard = other.enter();
        normal(device, &[256])?; // it has worked, so it is live
    }
    repeat(device, || {
        let buffer = device.allocate(4096)?;
        Ok(device.record_stream(&buffer, other)?)
    })
}

fn shared_read(device: &Device, threads: usize) -> Outcome<Vec<f64>> {
    let shared = normal(device, &[256])?;
    let shared = &shared;
    together(device, threads, move |_| {
        let (a, out) = (normal(device, &[256])?, normal(device, &[256])?);
        Ok(move |count| (0..count).try_for_each(|_| a.add_out(shared, &out)))
    })
}

fn linear(device: &Device, rows: usize) -> Outcome<Vec<f64>> {
    let (x, weight) = (normal(device, &[rows, 384])?, normal(device, &[1536, 384])?);
    let bias = normal(device, &[1536])?;
    repeat(device, || x.linear(&weight, Some(&bias)).map(drop))
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

/// Four square matrices, one launch. If they are transposed views their gradients are, too.
fn adam(device: &Device, side: usize, transposed: bool) -> Outcome<Vec<f64>> {
    let matrix = || match transposed {
        true => normal(device, &[side, side])?.t(),
        false => normal(device, &[side, side]),
    };
    let mut parameters = Vec::new();
    for _ in 0..4 {
        let parameter = matrix()?.detach();
        parameter.requires_grad_(true).map_err(failure)?;
        parameter.set_grad(Some(matrix()?)).map_err(failure)?;
        parameters.push(parameter);
    }
    let mut adam = Adam::new(parameters, AdamOptions::default()).map_err(failure)?;
    steps(device, || adam.step())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that the other side can't have.
    const OWN: [&str; 13] = [
        "launch",
        "launch_add_256",
        "hop_one_stream",
        "hop_two_streams",
        "hop_one_stream_bare",
        "hop_two_streams_bare",
        "hop_one_stream_device",
        "hop_two_streams_device",
        "cross_stream_free",
        "autoencoder_step_large_full",
        "autoencoder_step_captured",
        "autoencoder_step_large_captured",
        "autoencoder_step_small_captured",
    ];

    #[test]
    fn the_peers_have_rows_of_the_same_names() {
        let peers = [
            ("cpu", include_str!("../../../../peers/torch_cpu.py")),
            ("cuda:0", include_str!("../../../../peers/torch_cuda.py")),
        ];
        for (device, script) in peers {
            for row in table(device) {
                // Numbered names are made by a loop over the numbers.
                let start = row.name.trim_end_matches(|last: char| last.is_ascii_digit());
                let known = script.contains(&format!("\"{}\"", row.name))
                    || script.contains(&format!("f\"{start}{{")) && row.name != start;
                assert!(known || OWN.contains(&row.name), "{device}: the peer has no row {:?}", row.name);
            }
        }
    }

    #[test]
    fn the_rows_of_the_program_are_measured_here_too() {
        let all = table("cpu");
        for row in raddle_cli::bench::rows::table() {
            let same = |other: &Spec| (other.name, other.unit, other.work) == (row.name, row.unit, row.work);
            assert!(all.iter().any(same), "{}", row.name);
        }
    }

    #[test]
    fn rows_of_a_gpu_run_on_a_simulator() {
        let device = Device::new("sim:1").expect("the simulator is there");
        for row in table("cuda:0") {
            if ["chain_one_stream", "chain_two_streams", "mlp", "mlp_captured"].contains(&row.name)
                && row.threads < 4
            {
                let seconds = (row.measure)(&device, row.threads).expect("the row runs");
                assert!(seconds.iter().all(|seconds| *seconds > 0.0), "{}", row.name);
            }
        }
    }
}
