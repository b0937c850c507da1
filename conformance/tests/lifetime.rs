//! Operands live until the op that names them is over: the model, the shipped code in every schedule of the model, and on the
//! simulator in orders of its own.

use raddle::{
    DType, Device, Limits, Priority, SimOptions, Stream, Tensor,
    grad::Autograd,
    testing::{Held, hold},
};
use raddle_conformance::{
    Backend,
    lifetime::{Move, Op, explore, schedules},
};
use raddle_sync::faults::{Fault, assert_caught, plant};
use std::sync::{Mutex, PoisonError};

/// What computes on devices does so one by one: a fault that is planted is seen by all.
static TURN: Mutex<()> = Mutex::new(());

const SINGLE: Op = Op { name: "relu", operands: &[("X", true)], threads: 1 };
const FORWARD: Op =
    Op { name: "layer_norm", operands: &[("X", true), ("gamma", true), ("bias", true)], threads: 1 };
const BACKWARD: Op = Op {
    name: "layer_norm_backward",
    operands: &[("grad", true), ("X", true), ("gamma", true), ("mean", true), ("rstd", true)],
    threads: 1,
};

/// No operand that is owned is read after its death, by one thread or by several, and no handle is left behind.
fn holds(op: Op) {
    let mut states = 0;
    for threads in 1..=3 {
        let explored = explore(Op { threads, ..op });
        assert!(explored.story.is_none(), "{}", explored.story.unwrap());
        assert!(explored.nothing_is_left);
        states += explored.states;
    }
    println!("{states} states");
}

#[test]
fn a_single_operand_that_is_owned_lives() {
    holds(SINGLE);
}
#[test]
fn all_operands_of_layer_norm_live() {
    holds(FORWARD);
}
#[test]
fn all_operands_of_its_backward_live() {
    holds(BACKWARD);
}

#[test]
fn a_borrowed_operand_dies_in_five_steps() {
    let explored = explore(Op { operands: &[("X", true), ("gamma", true), ("bias", false)], ..FORWARD });
    let story = explored.story.expect("bias is borrowed");
    println!("{} states\n{story}", explored.states);
    let expected = [
        "create",
        "start layer_norm with counts 2, 2, 1",
        "the collector frees bias",
        "the thread gets the lock",
        "encode reads bias, which is dead",
    ];
    assert_eq!(story.0, expected);
}

#[test]
fn a_borrowed_single_operand_dies() {
    let explored = explore(Op { operands: &[("X", false)], ..SINGLE });
    let story = explored.story.expect("X is borrowed");
    println!("{} states\n{story}", explored.states);
    assert_eq!(story.0.last().unwrap(), "encode reads X, which is dead");
}

#[test]
fn a_borrowed_operand_of_backward_dies() {
    for (borrowed, (name, _)) in BACKWARD.operands.iter().enumerate() {
        let mut operands = BACKWARD.operands.to_vec();
        operands[borrowed].1 = false;
        let explored = explore(Op { operands: operands.leak(), ..BACKWARD });
        let story = explored.story.expect("an operand is borrowed");
        assert_eq!(story.0.len(), 5);
        assert_eq!(story.0[4], format!("encode reads {name}, which is dead"));
    }
}

// ------------------------------------------------------------ the shipped code in the schedules of the model

/// An op of the shipped code, as it is in the model: what it computes, and the shapes of its operands.
struct Shipped {
    op: Op,
    shapes: &'static [&'static [usize]],
    compute: fn(&[Tensor]) -> raddle::Result<Tensor>,
}

const SHIPPED_SINGLE: Shipped =
    Shipped { op: SINGLE, shapes: &[&[16, 24]], compute: |operands| operands[0].relu() };
/// Of three operands, as a `layer_norm`, which has memory of its own as well: that is used again by the next one, behind the first.
const SHIPPED_SEVERAL: Shipped = Shipped {
    op: Op { name: "addcmul", ..FORWARD },
    shapes: &[&[16, 24], &[24], &[24]],
    compute: |operands| operands[0].addcmul(&operands[1], &operands[2], 0.5),
};

impl Shipped {
    fn operands(&self, device: &Device) -> Vec<Tensor> {
        let made = |(&shape, step): (&&[usize], f32)| {
            let values: Vec<f32> = (0..shape.iter().product()).map(|at| (at as f32 * step).sin()).collect();
            Tensor::from_slice(&values, shape, device).unwrap()
        };
        self.shapes.iter().zip([0.7, 1.1, 1.7]).map(made).collect()
    }

    /// The schedules of the owning way, for so many threads. In the borrowing way `borrowed` is an operand by its number.
    fn schedules(&self, threads: usize) -> Vec<Vec<Move>> {
        let all = schedules(Op { threads, ..self.op });
        assert!(all.iter().all(|schedule| !schedule.dies), "what is owned lives");
        all.into_iter().map(|schedule| schedule.moves).collect()
    }

    /// Does the model say that the borrowing way reads an operand after its death?
    fn dies(&self, threads: usize, borrowed: usize) -> impl Fn(&[Move]) -> bool {
        let mut operands = self.op.operands.to_vec();
        operands[borrowed].1 = false;
        let all = schedules(Op { operands: operands.leak(), threads, ..self.op });
        move |moves| {
            let known = all.iter().find(|schedule| moves.starts_with(&schedule.moves));
            known.expect("both ways make the same moves until one dies").dies
        }
    }

    /// Makes the moves. Each thread has a stream, which stands still until the device is to run its op. What the ops give, and which
    /// operand's block has the highest id.
    fn play(&self, device: &Device, moves: &[Move], fault: Option<Fault>) -> (Vec<Vec<f32>>, usize) {
        let mut operands: Vec<Option<Tensor>> = self.operands(device).into_iter().map(Some).collect();
        device.synchronize().unwrap();
        let id = |operand: &usize| operands[*operand].as_ref().map(|operand| operand.buffer().id());
        let highest = (0..operands.len()).max_by_key(id).unwrap();
        let stream = || Stream::from_pool(device, Priority::Normal).unwrap();
        let thread_count = moves.iter().filter(|made| matches!(made, Move::Start(_))).count();
        let streams: Vec<Stream> = (0..thread_count).map(|_| stream()).collect();
        let mut holds: Vec<Option<Held>> = streams.iter().map(|stream| hold(*stream).ok()).collect();
        let mut results: Vec<Option<Tensor>> = vec![None; thread_count];
        let mut others = Vec::new();
        for made in moves {
            match *made {
                Move::Start(thread) => {
                    let _guard = streams[thread].enter();
                    let operands: Vec<Tensor> = operands.iter().flatten().cloned().collect();
                    let _planted = fault.map(plant);
                    results[thread] = Some((self.compute)(&operands).unwrap());
                }
                Move::Free(operand) => {
                    // Not behind what the memory of another operand may have to wait for.
                    let collector = stream();
                    let _guard = collector.enter();
                    let shape = *operands[operand].take().unwrap().shape();
                    others.extend((0..4).map(|_| Tensor::full(shape, f32::NAN, DType::F32, device).unwrap()));
                    // What nothing is in front of is done by then, on any device.
                    let written = collector.record();
                    _ = (0..QUERY_COUNT).any(|_| written.query());
                }
                Move::Run(thread) => {
                    holds[thread] = None;
                    streams[thread].synchronize().unwrap();
                }
            }
        }
        (results.iter().flatten().map(|result| result.to_vec().unwrap()).collect(), highest)
    }
}

/// The simulator goes on by itself when it is asked (a guess of how often is enough).
const QUERY_COUNT: usize = 200;

/// In each schedule of the model the shipped code gives what the model says: the right result, and, with the planted fault that
/// borrows the last operand, a wrong one where the model reads it after its death, and nowhere else.
fn as_the_model_says(shipped: Shipped) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut count = 0;
    for backend in Backend::ALL.into_iter().filter(|backend| backend.absent().is_none()) {
        let device = match backend {
            Backend::Cpu => Device::with_limits("cpu", &Limits::default()).unwrap(),
            Backend::Sim => Device::new("sim:1").unwrap(),
            Backend::Cuda => Device::new("cuda:0").unwrap(),
        };
        let expected = {
            let expected = (shipped.compute)(&shipped.operands(&device)).unwrap();
            expected.to_vec::<f32>().unwrap()
        };
        for threads in 1..=2 {
            let dies: Vec<_> =
                (0..shipped.shapes.len()).map(|borrowed| shipped.dies(threads, borrowed)).collect();
            for moves in shipped.schedules(threads) {
                let (results, _) = shipped.play(&device, &moves, None);
                let is_right = results.iter().all(|result| *result == expected);
                assert!(is_right, "{backend:?}: an operand was read after its death, {moves:?}");
                let (results, borrowed) = shipped.play(&device, &moves, Some(Fault::borrowed_operand));
                let is_right = results.iter().all(|result| *result == expected);
                let verdict = if dies[borrowed](&moves) { "dies" } else { "lives" };
                assert!(
                    is_right == (verdict == "lives"),
                    "{backend:?}: operand {borrowed} is borrowed and {verdict}, right {is_right}: {moves:?}"
                );
                count += 2;
            }
        }
        device.close().unwrap();
    }
    println!("{count} schedules");
}

#[test]
fn a_single_operand_is_as_the_model_says() {
    as_the_model_says(SHIPPED_SINGLE);
}
#[test]
fn several_operands_are_as_the_model_says() {
    as_the_model_says(SHIPPED_SEVERAL);
}

#[test]
fn fault_free_without_fence() {
    assert_caught(Fault::free_without_fence, "a_single_operand_is_as_the_model_says");
    assert_caught(Fault::free_without_fence, "several_operands_are_as_the_model_says");
}

// ------------------------------------------------------------ the shipped code on the simulator

const SEED_COUNT: u64 = 40;

/// Devices on which work is late.
fn each_device(body: impl Fn(&Device)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in 0..SEED_COUNT {
        let options = SimOptions { seed, slow_probability: 0.9, ..SimOptions::default() };
        let device = Device::sim(options).unwrap();
        body(&device);
        assert!(device.close().unwrap(), "seed {seed}: memory is left");
    }
    println!("{SEED_COUNT} schedules");
}

fn operands(device: &Device) -> [Tensor; 3] {
    let made = |shape: &[usize], step: f32| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|at| (at as f32 * step).sin()).collect();
        Tensor::from_slice(&values, shape, device).unwrap()
    };
    [made(&[16, 24], 0.7), made(&[24], 1.1), made(&[24], 1.7)]
}

/// Frees each on a stream of its own, whose work nothing orders behind the op that still reads it, and writes to the memory.
fn free_and_reuse(device: &Device, freed: [Tensor; 3]) {
    for tensor in freed {
        let _guard = Stream::from_pool(device, Priority::Normal).unwrap().enter();
        let shape = *tensor.shape();
        drop(tensor);
        drop(Tensor::full(shape, f32::NAN, DType::F32, device).unwrap());
    }
}

/// What a pass gives when nothing is freed before its end.
fn expected(pass: impl Fn(&[Tensor; 3]) -> Vec<Tensor>) -> Vec<Vec<f32>> {
    let results = pass(&operands(&Device::cpu().unwrap()));
    results.iter().map(|result| result.to_vec().unwrap()).collect()
}

/// A pass whose operands are freed as soon as it is submitted gives the same bits.
fn operands_outlive_their_handles(pass: impl Fn(&[Tensor; 3]) -> Vec<Tensor>) {
    let expected = expected(&pass);
    each_device(|device| {
        let operands = operands(device);
        let results = pass(&operands);
        free_and_reuse(device, operands);
        for (result, expected) in results.iter().zip(&expected) {
            assert_eq!(result.to_vec::<f32>().unwrap(), *expected);
        }
    });
}

#[test]
fn operands_of_layer_norm_outlive_their_handles() {
    operands_outlive_their_handles(|[x, gamma, bias]| {
        vec![x.layer_norm(1, Some(gamma), Some(bias), 1e-5).unwrap()]
    });
}

#[test]
fn operands_of_backward_outlive_their_handles() {
    operands_outlive_their_handles(|operands| {
        operands.iter().for_each(|leaf| _ = leaf.requires_grad_(true).unwrap());
        let [x, gamma, bias] = operands;
        let loss = x.layer_norm(1, Some(gamma), Some(bias), 1e-5).unwrap().square().unwrap();
        loss.sum(.., false).unwrap().backward().unwrap();
        let gradients = operands.iter().map(|leaf| leaf.grad().unwrap()).collect();
        operands.iter().for_each(|leaf| _ = leaf.requires_grad_(false));
        gradients
    });
}

#[test]
fn fault_borrowed_operand() {
    assert_caught(Fault::borrowed_operand, "operands_of_layer_norm_outlive_their_handles");
    assert_caught(Fault::borrowed_operand, "operands_of_backward_outlive_their_handles");
    assert_caught(Fault::borrowed_operand, "a_single_operand_is_as_the_model_says");
    assert_caught(Fault::borrowed_operand, "several_operands_are_as_the_model_says");
}
