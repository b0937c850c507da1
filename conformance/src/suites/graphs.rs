//! Graphs: a replay is what running would be, as one op, from any thread.

use super::harness::having;
use super::reports::{alone, stream};
use crate::Case;
use raddle::{
    DType, Device, Generator, GraphStats, Result, Tensor, capture,
    grad::Autograd,
    nn::{AutoencoderOptions, Module, TopKAutoencoder},
    optim::{Adam, AdamOptions, Sgd, SgdOptions},
    testing::hold,
    uncaptured,
};
use std::sync::Barrier;

pub fn cases() -> Vec<Case> {
    crate::cases!("graphs":
        a_replay_is_what_running_is,
        products_and_norms_are_what_running_them_is,
        operands_are_read_as_they_are_at_each_replay,
        outputs_may_share_memory_or_come_from_outside,
        outputs_stay_while_they_are_held,
        replays_go_on_past_the_room_of_a_stream,
        replays_overlap_a_writer_and_are_never_torn,
        writes_of_replays_add_up,
        operands_can_be_replaced,
        replacements_that_do_not_fit_are_refused,
        what_cannot_be_captured_is_refused,
        what_is_kept_from_inside_has_no_value,
        errors_and_panics_leave_nothing_behind,
        other_threads_are_no_part_of_it,
        each_replay_draws_anew,
        a_failure_is_told_to_who_depends_on_the_replay,
        a_training_step_is_captured,
        the_autoencoder_is_captured,
        outputs_are_copied_out;
        holding: operands_outlive_their_handles,
    )
}

fn normal(device: &Device, shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, DType::F32, device, &Generator::new(seed)).unwrap()
}

fn filled(device: &Device, value: f32) -> Tensor {
    Tensor::full([SIZE], value, DType::F32, device).unwrap()
}

/// Of vectors that are looked at for tears.
const SIZE: usize = 3000;

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// The one value of all elements.
fn value(tensor: &Tensor) -> f32 {
    let found = tensor.to_vec::<f32>().unwrap();
    assert!(
        found.iter().all(|&element| element == found[0]),
        "torn: {:?} to {:?}",
        found[0],
        found[SIZE - 1]
    );
    found[0]
}

struct Block {
    first: Tensor,
    scale: Tensor,
    second: Tensor,
}

impl Block {
    fn new(device: &Device) -> Block {
        let (first, second) = (normal(device, &[40, 24], 1), normal(device, &[24, 40], 2));
        Block { first, scale: normal(device, &[24], 3), second }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for _ in 0..3 {
            let hidden = x.layer_norm(1, Some(&self.scale), None, 1e-5)?.linear(&self.first, None)?.gelu()?;
            x = hidden.linear(&self.second, None)?.softmax(-1)?.add(&x)?;
        }
        Ok(x)
    }
}

fn a_replay_is_what_running_is(device: &Device) {
    let (block, x) = (Block::new(device), normal(device, &[5, 24], 4));
    let expected = bits(&block.forward(&x).unwrap());
    let graph = device.capture(|| block.forward(&x)).unwrap();
    for _ in 0..5 {
        assert_eq!(bits(&graph.replay().unwrap()), expected);
    }
    let GraphStats { nodes, arena_bytes, instances, .. } = graph.stats();
    assert!(nodes >= 15 && arena_bytes < 16 << 10, "{nodes} kernels, {arena_bytes} bytes");
    assert_eq!(instances, 1, "one thread needs one");
}

/// Of products of every form, which may ask for memory of their own, and of what is added to them.
fn products_and_norms_are_what_running_them_is(device: &Device) {
    for dtype in having(device, &[DType::F32, DType::F16]) {
        let tensor = |shape: &[usize], seed| normal(device, shape, seed).to_dtype(dtype).unwrap();
        // Few rows, which have a kernel of their own on CUDA, and more of them.
        for rows in [2, 40] {
            let (x, weight, bias) = (tensor(&[rows, 24], 1), tensor(&[16, 24], 2), tensor(&[16], 3));
            let (addend, row) = (tensor(&[rows, 16], 4), tensor(&[16], 5));
            let all = || {
                let product = x.linear(&weight, Some(&bias))?;
                let more = addend.addmm(&x, &weight.t()?, 0.5, 2.0)?;
                let turned = row.addmm(&x, &weight.t()?, 1.0, 1.0)?;
                let normalized = product.layer_norm_add(&more, 1, Some(&row), Some(&bias), 1e-5)?;
                Ok::<_, raddle::Error>([product, more, turned, normalized])
            };
            let values =
                |made: &[Tensor; 4]| made.each_ref().map(|made| bits(&made.to_dtype(DType::F32).unwrap()));
            let expected = values(&all().unwrap());
            let graph = device.capture(all).unwrap();
            for _ in 0..2 {
                assert!(values(&graph.replay().unwrap()) == expected, "{rows} rows of {dtype}");
            }
        }
    }
}

fn operands_are_read_as_they_are_at_each_replay(device: &Device) {
    let (block, x) = (Block::new(device), normal(device, &[5, 24], 4));
    let graph = device.capture(|| block.forward(&x)).unwrap();
    for seed in 10..14 {
        x.copy_(&normal(device, &[5, 24], seed)).unwrap();
        block.second.add_(0.25).unwrap();
        let replayed = graph.replay().unwrap();
        assert_eq!(bits(&replayed), bits(&block.forward(&x).unwrap()));
    }
}

fn outputs_may_share_memory_or_come_from_outside(device: &Device) {
    let x = normal(device, &[4, 6], 1);
    let graph = device
        .capture(|| {
            let y = x.mul(2.0)?;
            Ok::<_, raddle::Error>([y.clone(), y.t()?, x.clone(), y.slice(0, 1, 3, 1)?])
        })
        .unwrap();
    let [y, transposed, outside, slice] = graph.replay().unwrap();
    assert!(transposed.shares_storage(&y) && slice.shares_storage(&y));
    assert!(outside.shares_storage(&x));
    assert_eq!(bits(&transposed.t().unwrap()), bits(&x.mul(2.0).unwrap()));
    assert_eq!(bits(&slice), bits(&y.slice(0, 1, 3, 1).unwrap()));
    y.zero_().unwrap();
    assert_eq!(slice.to_vec::<f32>().unwrap(), [0.0; 12]);
    assert_eq!(**slice.strides(), [6, 1]);
    let nothing = device.capture(|| x.add_(1.0).map(drop)).unwrap();
    let before = x.copy().unwrap();
    nothing.replay().unwrap();
    assert_eq!(bits(&x), bits(&before.add(1.0).unwrap()));
}

fn outputs_stay_while_they_are_held(device: &Device) {
    let x = filled(device, 0.0);
    let graph = device.capture(|| x.add(1.0)?.mul(2.0)).unwrap();
    graph.set_instance_count_max(3);
    let mut held = Vec::new();
    for round in 0..12 {
        x.fill_(round as f32).unwrap();
        held.push(graph.replay().unwrap());
        if round % 4 == 3 {
            held.remove(1);
        }
    }
    let found: Vec<f32> = held.iter().map(value).collect();
    assert_eq!(found, expected_held());
    assert_eq!(graph.stats().instances, 3);
}

/// The values of the rounds whose outputs are still held.
fn expected_held() -> Vec<f32> {
    let mut rounds = Vec::new();
    for round in 0..12 {
        rounds.push(round);
        if round % 4 == 3 {
            rounds.remove(1);
        }
    }
    rounds.into_iter().map(|round| 2.0 * (round as f32 + 1.0)).collect()
}

/// Far more than a stream has room for: a replay waits for room, and holds nothing meanwhile that others want.
fn replays_go_on_past_the_room_of_a_stream(device: &Device) {
    let x = filled(device, 1.0);
    let graph = device.capture(|| x.add(1.0)?.square()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..1500).for_each(|_| drop(graph.replay().unwrap()));
                assert_eq!(value(&graph.replay().unwrap()), 4.0);
            });
        }
    });
}

/// Each replay reads the weight twice, with a writer in between if there is one.
fn replays_overlap_a_writer_and_are_never_torn(device: &Device) {
    const THREADS: usize = 8;
    const ROUNDS: usize = 20;
    let weight = filled(device, 1.0);
    let graph = device.capture(|| weight.mul(3.0)?.add(&weight)).unwrap();
    let barrier = Barrier::new(THREADS + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                let mut last = 0.0;
                for round in 0..ROUNDS {
                    let output = graph.replay().unwrap();
                    // Something else, so that memory changes hands.
                    let noise = filled(device, -1.0);
                    if round % 3 == 0 {
                        drop(output);
                        continue;
                    }
                    let found = value(&output);
                    assert!(found % 4.0 == 0.0 && found >= last, "{found} after {last}");
                    last = found;
                    drop(noise);
                }
            });
        }
        barrier.wait();
        for round in 0..ROUNDS {
            weight.fill_(round as f32 + 2.0).unwrap();
        }
    });
    assert_eq!(value(&graph.replay().unwrap()), 4.0 * (ROUNDS as f32 + 1.0));
}

fn writes_of_replays_add_up(device: &Device) {
    let sum = filled(device, 0.0);
    let graph = device
        .capture(|| {
            let more = sum.add(1.0)?;
            sum.copy_(&more)?;
            Ok::<_, raddle::Error>(more)
        })
        .unwrap();
    let version = sum.version();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let seen: Vec<f32> = (0..10).map(|_| value(&graph.replay().unwrap())).collect();
                assert!(seen.is_sorted());
            });
        }
    });
    assert_eq!(value(&sum), 80.0);
    assert!(sum.version() >= version + 80, "gradients are told");
}

fn operands_can_be_replaced(device: &Device) {
    let (block, x) = (Block::new(device), normal(device, &[5, 24], 4));
    let graph = device.capture(|| block.forward(&x)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (block, graph, x) = (&block, &graph, &x);
            scope.spawn(move || {
                let own = x.empty_like().unwrap();
                for round in 0..5 {
                    own.copy_(&normal(device, &[5, 24], 100 * thread + round)).unwrap();
                    let replayed = graph.replay_with(&[(x, &own)]).unwrap();
                    assert_eq!(bits(&replayed), bits(&block.forward(&own).unwrap()));
                }
            });
        }
    });
    assert_eq!(bits(&graph.replay().unwrap()), bits(&block.forward(&x).unwrap()));
    // Part of a larger tensor, and of a written operand.
    let (all, sum) = (normal(device, &[4, 64], 9), Tensor::zeros([64], DType::F32, device).unwrap());
    let first = all.select(0, 0).unwrap();
    let adds = device.capture(|| sum.add_(&first).map(drop)).unwrap();
    adds.set_instance_count_max(1);
    let other = sum.copy().unwrap();
    for row in 0..4 {
        let row = all.copy().unwrap().select(0, row).unwrap();
        adds.replay_with(&[(&sum, &other), (&first, &row)]).unwrap();
    }
    let expected =
        (1..4).fold(all.select(0, 0).unwrap(), |sum, row| sum.add(&all.select(0, row).unwrap()).unwrap());
    assert_eq!(bits(&other), bits(&expected));
    assert_eq!(sum.to_vec::<f32>().unwrap(), [0.0; 64]);
}

fn error<T>(result: Result<T>) -> String {
    result.err().expect("it is refused").to_string()
}

fn replacements_that_do_not_fit_are_refused(device: &Device) {
    let (x, y) = (normal(device, &[4, 6], 1), normal(device, &[4, 6], 2));
    let graph = device.capture(|| y.add_(&x).map(drop)).unwrap();
    let with = |old: &Tensor, new: &Tensor| error(graph.replay_with(&[(old, new)]));
    let other = normal(device, &[4, 6], 3);
    assert_eq!(
        with(&other, &x),
        "replay: replacement 0 doesn't fit, expected a tensor that was made outside and is used inside of the \
         captured closure"
    );
    assert_eq!(
        with(&x, &y),
        "replay: replacement 0 doesn't fit, its memory is another operand's, and one of the two is written, use \
         copy() first"
    );
    assert_eq!(
        error(graph.replay_with(&[(&x, &other), (&x, &other)])),
        "replay: replacement 1 doesn't fit, the operand is replaced twice"
    );
    assert_eq!(
        with(&x, &normal(device, &[6, 4], 3)),
        "replay: a replacement has the wrong shape, expected [4, 6], found [6, 4]"
    );
    assert_eq!(
        with(&x, &normal(device, &[6, 4], 3).t().unwrap()),
        "replay: a replacement has the wrong strides, expected [6, 1], found [1, 4]"
    );
    assert_eq!(with(&x, &other.to(DType::F64).unwrap()), "replay: dtypes differ, lhs is f32, rhs is f64");
    let later = normal(device, &[5, 6], 3).slice(0, 1, 5, 1).unwrap();
    assert_eq!(
        with(&x, &later),
        "replay: replacement 0 doesn't fit, expected a start that differs by a multiple of 256 bytes from the \
         operand's, use copy() first"
    );
    let part = normal(device, &[2, 6], 4);
    let two = device.capture(|| part.as_strided([12], [1], 0)?.sum(.., false)).unwrap();
    let (old, new) = (part.select(0, 0).unwrap(), Tensor::zeros([6], DType::F32, device).unwrap());
    assert_eq!(
        error(two.replay_with(&[(&old, &new)])),
        "replay: replacement 0 doesn't fit, the graph uses more of the operand's storage than the replacement's has"
    );
}

fn what_cannot_be_captured_is_refused(device: &Device) {
    let name = device.name();
    let x = normal(device, &[4], 1);
    let refused = |what: &str, body: &dyn Fn() -> Result<()>| {
        let found = error(device.capture(body));
        let start = format!("{what}: can't be captured on {name}, ");
        assert!(found.starts_with(&start), "{found}");
        found
    };
    let found = refused("download", &|| x.sum(.., false)?.item::<f32>().map(drop));
    assert!(
        found.ends_with("nothing has run whose values could be read; read them after a replay"),
        "{found}"
    );
    refused("download", &|| x.to_vec::<f32>().map(drop));
    refused("download", &|| x.nonzero().map(drop));
    refused("upload", &|| Tensor::from_slice(&[1.0f32], [1], device).map(drop));
    refused("synchronize", &|| Ok(device.synchronize()?));
    refused("synchronize", &|| Ok(raddle::Stream::current(device)?.synchronize()?));
    refused("capture", &|| device.capture(|| x.add(1.0)).map(drop));
    let graph = device.capture(|| x.add(1.0)).unwrap();
    refused("replay", &|| graph.replay().map(drop));
    // A nested capture that is refused doesn't disturb the one around it.
    let outer = device
        .capture(|| {
            let y = x.mul(2.0)?;
            assert!(device.capture(|| y.add(1.0)).is_err());
            y.add(1.0)
        })
        .unwrap();
    assert_eq!(bits(&outer.replay().unwrap()), bits(&x.mul(2.0).unwrap().add(1.0).unwrap()));
    // What is done apart is done at once.
    let kept = std::cell::Cell::new(None);
    let graph = device
        .capture(|| {
            let state = uncaptured(|| Tensor::from_slice(&[5.0f32], [1], device))?;
            state.add_(1.0)?;
            kept.set(Some(state.clone()));
            state.mul(2.0)
        })
        .unwrap();
    let state = kept.take().unwrap();
    assert_eq!(state.item::<f32>().unwrap(), 5.0);
    assert_eq!(graph.replay().unwrap().item::<f32>().unwrap(), 12.0);
    assert_eq!(state.item::<f32>().unwrap(), 6.0);
}

fn what_is_kept_from_inside_has_no_value(device: &Device) {
    let x = filled(device, 1.0);
    let kept = std::cell::Cell::new(None);
    let graph = device
        .capture(|| {
            let y = x.add(1.0)?;
            kept.set(Some(y.clone()));
            y.mul(2.0)
        })
        .unwrap();
    let kept = kept.take().unwrap();
    let told = format!(
        "{}: a value is read that was made inside of a capture, where nothing runs; return it from the captured \
         closure, and each replay gives one",
        device.name()
    );
    assert_eq!(error(kept.to_vec::<f32>()), told);
    assert_eq!(error(kept.add(&x).and_then(|sum| sum.to_vec::<f32>())), told);
    assert_eq!(value(&graph.replay().unwrap()), 4.0);
    assert_eq!(error(kept.to_vec::<f32>()), told, "replays have memory of their own");
    kept.fill_(3.0).unwrap();
    assert_eq!(value(&kept), 3.0, "what is overwritten has a value");
}

fn errors_and_panics_leave_nothing_behind(device: &Device) {
    let x = filled(device, 1.0);
    let other = Tensor::ones([7], DType::F32, device).unwrap();
    assert!(device.capture(|| x.add(1.0)?.add(&other)).is_err());
    let panics = std::panic::AssertUnwindSafe(|| {
        capture(device, || -> Result<Tensor> {
            let _y = x.add(1.0)?;
            x.add_(1.0)?;
            std::panic::resume_unwind(Box::new("planted"));
        })
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(!device.is_capturing());
    assert_eq!(value(&x), 1.0, "nothing has run");
    let y = x.add(1.0).unwrap();
    assert_eq!(value(&y), 2.0);
    assert_eq!(value(&device.capture(|| y.add(1.0)).unwrap().replay().unwrap()), 3.0);
}

fn other_threads_are_no_part_of_it(device: &Device) {
    let x = filled(device, 1.0);
    let graph = device
        .capture(|| {
            let y = x.mul(10.0)?;
            std::thread::scope(|scope| {
                let other = scope.spawn(|| value(&x.add_(1.0).unwrap().add(1.0).unwrap()));
                assert_eq!(other.join().unwrap(), 3.0);
            });
            y.add(&x)
        })
        .unwrap();
    assert_eq!(value(&x), 2.0);
    assert_eq!(value(&graph.replay().unwrap()), 22.0);
}

fn each_replay_draws_anew(device: &Device) {
    let x = normal(device, &[700], 1);
    let (own, twin) = (Generator::new(5), Generator::new(5));
    let step = |generator: Option<&Generator>| -> Result<Tensor> {
        let noise = x.empty_like()?;
        noise.normal_(0.0, 1.0, generator)?;
        x.dropout(0.5, generator)?.add(&noise)
    };
    let graph = device.capture(|| step(Some(&own))).unwrap();
    assert_eq!(own.state(), twin.state(), "a capture draws nothing");
    let mut seen = Vec::new();
    for _ in 0..4 {
        let replayed = bits(&graph.replay().unwrap());
        assert_eq!(replayed, bits(&step(Some(&twin)).unwrap()));
        assert!(!seen.contains(&replayed));
        seen.push(replayed);
    }
    assert_eq!(own.state(), twin.state());
    // Without a generator, that of the thread that replays.
    let graph = device.capture(|| step(None)).unwrap();
    let of_thread = |body: &(dyn Fn() -> Tensor + Sync)| {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    raddle::manual_seed(3);
                    bits(&body())
                })
                .join()
                .unwrap()
        })
    };
    assert_eq!(of_thread(&|| graph.replay().unwrap()), of_thread(&|| step(None).unwrap()));
}

fn a_failure_is_told_to_who_depends_on_the_replay(device: &Device) {
    let source = normal(device, &[10], 1);
    let index = Tensor::from_slice(&[1i64, 4, 9], [3], device).unwrap();
    let graph = device
        .capture(|| {
            let more = source.gather(0, &index.add(0)?)?;
            more.add(&source.gather(0, &index)?)
        })
        .unwrap();
    let good = bits(&graph.replay().unwrap());
    index.copy_(&Tensor::from_slice(&[1i64, 12, 9], [3], device).unwrap()).unwrap();
    for _ in 0..3 {
        let found = error(graph.replay().and_then(|output| output.add(1.0)?.to_vec::<f32>()));
        let told = "index 12 (element 1 of the indices) is out of bounds, the axis has size 10";
        assert!(found.contains(told), "{found}");
    }
    assert_eq!(source.add(1.0).unwrap().to_vec::<f32>().unwrap().len(), 10);
    index.copy_(&Tensor::from_slice(&[1i64, 4, 9], [3], device).unwrap()).unwrap();
    assert_eq!(bits(&graph.replay().unwrap()), good);
}

fn leaf(device: &Device, shape: &[usize], seed: u64) -> Tensor {
    let leaf = normal(device, shape, seed);
    leaf.requires_grad_(true).unwrap();
    leaf
}

#[derive(Debug)]
struct Failed(String);
impl From<raddle::Error> for Failed {
    fn from(error: raddle::Error) -> Failed {
        Failed(error.to_string())
    }
}
impl From<raddle::grad::Error> for Failed {
    fn from(error: raddle::grad::Error) -> Failed {
        Failed(error.to_string())
    }
}
impl From<raddle::optim::Error> for Failed {
    fn from(error: raddle::optim::Error) -> Failed {
        Failed(error.to_string())
    }
}

fn a_training_step_is_captured(device: &Device) {
    enum Either {
        Adam(Adam),
        Sgd(Sgd),
    }
    impl Either {
        fn step(&mut self) -> raddle::optim::Result<()> {
            match self {
                Either::Adam(adam) => adam.step(),
                Either::Sgd(sgd) => sgd.step(),
            }
        }
    }
    for with_adam in [true, false] {
        let train = |captured: bool| -> (Vec<Vec<u32>>, Vec<u32>) {
            let parameters =
                vec![leaf(device, &[16, 8], 1), leaf(device, &[16], 2), leaf(device, &[3, 16], 3)];
            let mut optimizer = if with_adam {
                let options = AdamOptions { lr: 0.05, capturable: true, ..AdamOptions::adamw() };
                Either::Adam(Adam::new(parameters.clone(), options).unwrap())
            } else {
                let options = SgdOptions { lr: 0.05, momentum: 0.9, nesterov: true, ..Default::default() };
                Either::Sgd(Sgd::new(parameters.clone(), options).unwrap())
            };
            let x = normal(device, &[10, 8], 9);
            let [w1, b1, w2] = [0, 1, 2].map(|index| parameters[index].clone());
            let mut step = || -> std::result::Result<Tensor, Failed> {
                parameters.iter().for_each(Autograd::zero_grad);
                let y = x.linear(&w1, Some(&b1))?.gelu()?.linear(&w2, None)?;
                let loss = y.square()?.mean(.., false)?;
                loss.backward()?;
                optimizer.step()?;
                Ok(loss.detach())
            };
            let mut losses = Vec::new();
            if captured {
                let graph = capture(device, &mut step).unwrap();
                for _ in 0..8 {
                    losses.extend(bits(&graph.replay().unwrap()));
                }
            } else {
                for _ in 0..8 {
                    losses.extend(bits(&step().unwrap()));
                }
            }
            (parameters.iter().map(|parameter| bits(&parameter.detach())).collect(), losses)
        };
        let (expected, found) = (train(false), train(true));
        assert_eq!(found.1, expected.1, "losses, Adam: {with_adam}");
        assert_eq!(found.0, expected.0, "parameters, Adam: {with_adam}");
    }
    let parameter = leaf(device, &[4], 1);
    parameter.set_grad(Some(normal(device, &[4], 2))).unwrap();
    let mut adam = Adam::new(vec![parameter], AdamOptions::default()).unwrap();
    let found = capture(device, || adam.step().map_err(Failed::from)).unwrap_err().0;
    let told = "this step can't be captured on";
    assert!(found.contains(told) && found.ends_with("expected AdamOptions::capturable to be set"), "{found}");
}

fn the_autoencoder_is_captured(device: &Device) {
    let train = |captured: bool| -> Vec<Vec<u32>> {
        let options = AutoencoderOptions::new(12, 40, 4);
        let mut model = TopKAutoencoder::new(options, DType::F32, device, Some(&Generator::new(3))).unwrap();
        let parameters = model.parameters();
        let adam = AdamOptions { lr: 0.01, capturable: true, ..AdamOptions::default() };
        let mut adam = Adam::new(parameters.clone(), adam).unwrap();
        let x = normal(device, &[9, 12], 5);
        let mut step = || model.train_step(&x, || adam.step().map_err(Failed::from));
        let mut all = Vec::new();
        if captured {
            let graph = capture(device, &mut step).unwrap();
            for _ in 0..6 {
                all.push(bits(&graph.replay().unwrap()));
            }
        } else {
            for _ in 0..6 {
                all.push(bits(&step().unwrap()));
            }
        }
        assert_eq!(adam.state().unwrap().groups[0][0].step, 6);
        all.extend(parameters.iter().map(|parameter| bits(&parameter.detach())));
        all
    };
    assert_eq!(train(true), train(false));
}

fn outputs_are_copied_out(device: &Device) {
    let x = filled(device, 1.0);
    let graph = device.capture(|| Ok::<_, raddle::Error>((x.add(1.0)?, x.mul(5.0)?))).unwrap();
    let (a, b) = (filled(device, 0.0), filled(device, 0.0));
    graph.replay_into(&[&a, &b]).unwrap();
    x.fill_(2.0).unwrap();
    graph.replay_into(&[&b, &a]).unwrap();
    assert_eq!((value(&a), value(&b)), (10.0, 3.0));
    assert_eq!(error(graph.replay_into(&[&a])), "replay: wrong number of outputs, expected 2, found 1");
}

/// Between capture and replay, between replays, and of a graph that is dropped itself while a replay is in flight.
fn operands_outlive_their_handles(device: &Device) {
    alone(device, drop_all_handles);
}

/// Takes memory of the sizes of the block's tensors, on streams of its own, and fills it with what no result has.
fn use_memory(device: &Device) {
    // On several, so that none is full.
    for _ in 0..8 {
        let _guard = stream(device).enter();
        let fill = |shape: &[usize]| Tensor::full(shape, f32::NAN, DType::F32, device).unwrap();
        let shapes = [[40, 24].as_slice(), &[24, 40], &[24], &[5, 24], &[5, 40]];
        drop(shapes.map(fill));
    }
}

fn drop_all_handles(device: &Device) {
    let captured = || {
        let (block, x) = (Block::new(device), normal(device, &[5, 24], 4));
        let expected = bits(&block.forward(&x).unwrap());
        (device.capture(|| block.forward(&x)).unwrap(), expected)
    };
    let (graph, expected) = captured();
    for _ in 0..3 {
        use_memory(device);
        assert_eq!(bits(&graph.replay().unwrap()), expected);
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                use_memory(device);
                assert_eq!(bits(&graph.replay().unwrap()), expected);
            });
        }
    });
    // What takes the place of an operand for one replay, and is dropped before that runs.
    let (block, x) = (Block::new(device), normal(device, &[5, 24], 4));
    let replaced = device.capture(|| block.forward(&x)).unwrap();
    drop(block);
    let (held, other) = (stream(device), normal(device, &[5, 24], 5));
    let expected_of_other = {
        let block = Block::new(device);
        bits(&block.forward(&other).unwrap())
    };
    let hold_of_all = hold(held).unwrap();
    let (of_other, of_graph) = {
        let _guard = held.enter();
        (replaced.replay_with(&[(&x, &other)]).unwrap(), graph.replay().unwrap())
    };
    drop((other, x, replaced, graph));
    use_memory(device);
    hold_of_all.release();
    assert_eq!(bits(&of_other), expected_of_other);
    assert_eq!(bits(&of_graph), expected);
}
