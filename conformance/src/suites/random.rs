//! Random calls of every op that the catalogue names, against the oracles of the other suites: any dtype that it takes, shapes with
//! axes of size 0 and 1, layouts in which operands start anywhere and lie in any order, special numbers.
//!
//! A call follows from the op's name and a seed. [`COUNT`] and [`SEED`] say how many there are of each op and which is the first;
//! a few by default. One that fails is made smaller as long as it fails, and both are told, with the seed.

use super::harness::{Drawing, having};
use super::{attention, create, draws, normalize, order, pointwise, product, reduce, views};
use crate::{Case, random::Random};
use raddle::{
    DType, Device,
    catalogue::{Entry, catalogue},
};
use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The variable that says how many calls there are of each op.
pub const COUNT: &str = "RADDLE_RANDOM_COUNT";
/// The variable that says which seed is the first.
pub const SEED: &str = "RADDLE_RANDOM_SEED";
/// Calls of each op: some seconds for all.
const COUNT_DEFAULT: u64 = 12;

/// A case for each op.
pub fn cases() -> Vec<Case> {
    let case = |op: Entry| Case::new("random", op.name, move |device| calls(&op, device));
    catalogue().into_iter().map(case).collect()
}

fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}: expected a number, found {text:?}")),
        Err(_) => default,
    }
}

/// What a call is cut down to.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The largest size of an axis.
    size_max: usize,
    /// Is everything contiguous?
    is_plain: bool,
    /// Are there no special numbers?
    is_usual: bool,
}

const WHOLE: Cut = Cut { size_max: usize::MAX, is_plain: false, is_usual: false };

fn calls(op: &Entry, device: &Device) {
    let (first, count) = (variable(SEED, 0), variable(COUNT, COUNT_DEFAULT));
    for seed in first..first.saturating_add(count) {
        let Err(message) = attempt(op, seed, WHOLE, device) else { continue };
        let (cut, least) = smallest(op, seed, &message, device);
        panic!(
            "{}: the call of seed {seed} fails\n{message}\nthe smallest that does, with {cut:?}:\n{least}\n\
             {SEED}={seed} {COUNT}=1 runs it again",
            op.name
        );
    }
}

/// The smallest call of the seed that fails.
fn smallest(op: &Entry, seed: u64, message: &str, device: &Device) -> (Cut, String) {
    // What is tried next, the last first: the smallest sizes.
    let smaller = |cut: Cut| {
        let mut cuts = Vec::new();
        cuts.extend((!cut.is_usual).then_some(Cut { is_usual: true, ..cut }));
        cuts.extend((!cut.is_plain).then_some(Cut { is_plain: true, ..cut }));
        let sizes = [64, 33, 16, 8, 4, 3, 2, 1].into_iter().filter(|size| *size < cut.size_max);
        cuts.extend(sizes.map(|size_max| Cut { size_max, ..cut }));
        cuts
    };
    let (mut cut, mut least) = (WHOLE, message.to_string());
    let mut attempts = smaller(cut);
    while let Some(next) = attempts.pop() {
        // On a device that is lost every call fails.
        if device.synchronize().is_err() {
            break;
        }
        let Err(message) = attempt(op, seed, next, device) else { continue };
        (cut, least) = (next, message);
        attempts = smaller(cut);
    }
    (cut, least)
}

/// The call of a seed; what it panicked with.
fn attempt(op: &Entry, seed: u64, cut: Cut, device: &Device) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| call(op, seed, cut, device))).map_err(|panic| text(&*panic))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
        .unwrap_or_else(|| "a panic".into())
}

fn call(op: &Entry, seed: u64, cut: Cut, device: &Device) {
    let mut own = Random::named(op.name);
    let base = own.bits() ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = Random::new(base);
    let [values, layouts] = [random.bits(), random.bits()];
    let is_special = random.one_of(2) && !cut.is_usual;
    let cpu = Device::new("cpu").expect("the CPU is there");
    let is_cpu = *device == cpu;
    let is_sim = device.name().starts_with("sim");
    let dtypes: Vec<DType> = having(device, &op.dtypes).collect();
    if dtypes.is_empty() {
        return;
    }
    let dtype: DType = *random.pick(&dtypes);
    let drawing = Drawing {
        device,
        // The simulator runs the CPU's kernels.
        reference: is_sim.then_some(&cpu),
        exact: (!is_cpu).then_some(&cpu),
        random: RefCell::new(random),
        values: RefCell::new(match is_special {
            true => Random::with_special_numbers(values),
            false => Random::new(values),
        }),
        layouts: RefCell::new(Random::new(layouts)),
        size_max: cut.size_max,
        is_plain: cut.is_plain,
    };
    let suites = [
        pointwise::draw,
        reduce::draw,
        product::draw,
        attention::draw,
        normalize::draw,
        order::draw,
        create::draw,
        views::draw,
        draws::draw_anywhere,
    ];
    let is_known = suites.iter().any(|draw| draw(op.name, dtype, &drawing));
    assert!(is_known, "no suite draws calls of {}", op.name);
}
