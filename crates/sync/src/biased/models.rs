//! The lock under loom, which finds two threads in the cell.

use super::*;
use crate::{
    Arc,
    faults::{Fault, plant},
};
use loom::thread;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

/// In every order with so many preemptions at most it must hold, or with a fault planted must be seen not to.
fn explore(fault: Option<Fault>, preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let _planted = fault.map(plant);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let holds = catch_unwind(AssertUnwindSafe(|| builder.check(body))).is_ok();
    assert_eq!(holds, fault.is_none(), "{fault:?}");
}

/// The owner comes so often, while each visitor comes once: nobody's addition is lost.
fn owner_and_visitors(owned: u32, visitors: u32) {
    let number = Arc::new(Biased::new(0));
    let visits: Vec<_> = (0..visitors)
        .map(|_| {
            let number = number.clone();
            thread::spawn(move || number.visit(|number| *number += 1))
        })
        .collect();
    for _ in 0..owned {
        // SAFETY: only this thread calls it.
        unsafe { number.own(|number| *number += 1) };
    }
    visits.into_iter().for_each(|visit| visit.join().unwrap());
    assert_eq!(number.visit(|number| *number), owned + visitors);
}

/// One owner after the other, each of which finds what the one before has left, while a visitor comes.
fn owners_and_a_visitor() {
    let number = Arc::new(Biased::new(0));
    let visit = {
        let number = number.clone();
        thread::spawn(move || number.visit(|number| *number += 1))
    };
    let first = {
        let number = number.clone();
        // SAFETY: this thread calls it once the other one has ended.
        thread::spawn(move || unsafe { number.own(|number| *number += 1) })
    };
    first.join().unwrap();
    // SAFETY: the other thread has ended.
    unsafe { number.own(|number| *number += 1) };
    visit.join().unwrap();
    assert_eq!(number.visit(|number| *number), 3);
}

/// A sweep over two locks, whose owner goes in and out of both.
fn owner_and_sweep() {
    let numbers = Arc::new([Biased::new(0), Biased::new(0)]);
    let sweep = {
        let numbers = numbers.clone();
        thread::spawn(move || Biased::visit_all(numbers.iter(), |number| *number += 1))
    };
    // SAFETY: only this thread calls it.
    numbers.iter().for_each(|number| unsafe { number.own(|number| *number += 1) });
    sweep.join().unwrap();
    Biased::visit_all(numbers.iter(), |number| assert_eq!(*number, 2));
}

#[test]
fn model_owner_and_sweep() {
    explore(None, 3, owner_and_sweep);
}

#[test]
fn fault_sweeps_without_fence() {
    explore(Some(Fault::visits_without_fence), 2, owner_and_sweep);
}

#[test]
fn model_owner_follows_owner() {
    explore(None, 2, owners_and_a_visitor);
}

#[test]
fn model_owner_and_visitor() {
    explore(None, 5, || owner_and_visitors(2, 1));
}

#[test]
fn model_owner_and_two_visitors() {
    explore(None, 2, || owner_and_visitors(1, 2));
}

#[test]
fn fault_visits_without_fence() {
    explore(Some(Fault::visits_without_fence), 2, || owner_and_visitors(2, 1));
}

#[test]
fn fault_owns_without_fence() {
    explore(Some(Fault::owns_without_fence), 2, || owner_and_visitors(2, 1));
}
