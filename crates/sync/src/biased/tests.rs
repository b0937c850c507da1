//! The lock as it ships, on cores of their own.

use super::*;
use crate::{
    Padded,
    atomic::AtomicU64,
    faults::{Fault, assert_caught},
};
use std::{sync::Barrier, thread};

/// So many visits while the owner does nothing but go in and out; what they have added, and what is there.
fn added(visits: u64) -> [u64; 2] {
    let (number, done, start) = (Biased::new(0_u64), AtomicBool::new(false), Barrier::new(2));
    // The visitor has just looked where the owner stores before it goes in, so others see what it stores then a while later.
    let slow: [Padded<AtomicU64>; 4] = Default::default();
    let owned = thread::scope(|scope| {
        let owner = scope.spawn(|| {
            start.wait();
            let mut owned = 0;
            while !done.load(Relaxed) {
                slow.iter().for_each(|slow| slow.store(owned, Relaxed));
                // SAFETY: only this thread calls it.
                unsafe { number.own(|number| *number += 1) };
                owned += 1;
            }
            owned
        });
        start.wait();
        for _ in 0..visits {
            std::hint::black_box(slow.each_ref().map(|slow| slow.load(Relaxed)));
            number.visit(|number| *number += 1);
        }
        done.store(true, Relaxed);
        owner.join().expect("it adds only")
    });
    assert!(owned > 0, "the owner has never been inside");
    [owned + visits, number.visit(|number| *number)]
}

/// No addition is lost. A fault is looked for longer.
#[test]
fn an_owner_and_a_visitor_are_never_inside_together() {
    let turns = if fault!(visits_without_fence) { 1000 } else { 5 };
    for _ in 0..turns {
        let [expected, found] = added(100_000);
        assert_eq!(found, expected);
    }
}

/// Two cores are needed to see it.
#[test]
fn fault_visits_without_fence() {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        let test = "biased::tests::an_owner_and_a_visitor_are_never_inside_together";
        assert_caught(Fault::visits_without_fence, test);
    }
}

#[test]
fn a_panic_inside_lets_others_in() {
    let number = Biased::new(1);
    let panics = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    // SAFETY: only this thread calls it.
    assert!(panics(&|| unsafe { number.own(|_| panic!("inside")) }));
    assert!(panics(&|| number.visit(|_| panic!("inside"))));
    // SAFETY: as above.
    assert_eq!(unsafe { number.own(|number| *number) }, 1);
    assert_eq!(number.visit(|number| *number), 1);
}
