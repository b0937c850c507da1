//! Operands live until the op that names them is over: the model of the story, and the shipped code on the simulator.

use raddle::{DType, Device, Priority, SimOptions, Stream, Tensor, grad::Autograd};
use raddle_conformance::lifetime::{Op, explore};
use raddle_sync::faults::{Fault, assert_caught};

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

const SEED_COUNT: u64 = 40;

/// Devices on which work is late.
fn each_device(body: impl Fn(&Device)) {
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
}
