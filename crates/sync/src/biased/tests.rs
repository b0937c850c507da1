//! The lock as it ships, on cores of their own.

use super::*;
use crate::{
    Padded,
    atomic::AtomicU64,
    faults::{Fault, assert_caught},
};
use std::{sync::mpsc, thread, time::Duration};

/// So many visits while the owner does nothing but go in and out; what they have added, and what is there.
fn added(visits: u64) -> [u64; 2] {
    /// Ends the owner, whatever becomes of the visitor.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let (number, begun, done) = (Biased::new(0_u64), AtomicBool::new(false), AtomicBool::new(false));
    // The visitor has just looked where the owner stores before it goes in, so others see what it stores then a while later.
    let slow: [Padded<AtomicU64>; 4] = Default::default();
    let owned = thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut owned = 0;
            while !done.load(Relaxed) {
                slow.iter().for_each(|slow| slow.store(owned, Relaxed));
                // SAFETY: only this thread calls it.
                unsafe { number.own(|number| *number += 1) };
                owned += 1;
                begun.store(true, Relaxed);
            }
            owned
        });
        let end = End(&done);
        while !begun.load(Relaxed) {
            thread::yield_now();
        }
        for _ in 0..visits {
            std::hint::black_box(slow.each_ref().map(|slow| slow.load(Relaxed)));
            number.visit(|number| *number += 1);
        }
        drop(end);
        owner.join().expect("it adds only")
    });
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

/// Two cores are needed to see it, and a fence that the visitor alone pays for.
#[test]
fn fault_visits_without_fence() {
    fence::choose();
    if fence::is_asymmetric() && thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        let test = "biased::tests::an_owner_and_a_visitor_are_never_inside_together";
        assert_caught(Fault::visits_without_fence, test);
    }
}

/// Each is visited once, and all can be entered afterwards.
#[test]
fn many_are_visited() {
    let numbers: Vec<Biased<i32>> = (0..100).map(Biased::new).collect();
    let mut sum = 0;
    Biased::visit_all(numbers.iter(), |number| sum += *number);
    assert_eq!(sum, 99 * 100 / 2);
    // SAFETY: only this thread calls it.
    numbers.iter().for_each(|number| unsafe { number.own(|number| *number += 1) });
    Biased::visit_all(numbers.iter(), |number| sum -= *number);
    assert_eq!(sum, -100);
}

/// An owner that loses its core while it is inside holds up its visitor. The owners behind it in the list go on: here it
/// comes out when the one behind it has been in.
#[test]
fn an_owner_that_is_put_off_holds_up_no_other() {
    const TIME_MAX: Duration = Duration::from_secs(10); // what is waited for takes microseconds
    let locks = [Biased::new(0), Biased::new(0)];
    let [first, second] = &locks;
    let ((is_inside, inside), (has_owned, owned)) = (mpsc::channel(), mpsc::channel());
    let has_begun = AtomicBool::new(false);
    thread::scope(|scope| {
        let owner = scope.spawn(move || {
            let put_off = || {
                is_inside.send(()).expect("somebody waits for it");
                owned.recv_timeout(TIME_MAX)
            };
            // SAFETY: only this thread calls it.
            unsafe { first.own(|_| put_off()) }
        });
        inside.recv().expect("it goes in");
        let visit = |number: &mut i32| {
            has_begun.store(true, Relaxed);
            *number += 1;
        };
        let sweep = scope.spawn(move || Biased::visit_all([first, second].into_iter(), visit));
        while !second.visited.load(Relaxed) && !has_begun.load(Relaxed) {
            thread::yield_now();
        }
        // SAFETY: only this thread calls it.
        unsafe { second.own(|number| *number += 10) };
        _ = has_owned.send(()); // who has given up isn't there
        assert!(owner.join().expect("it doesn't panic").is_ok(), "the second owner waits for the first");
        sweep.join().expect("it doesn't panic");
    });
    assert_eq!(locks.each_ref().map(|lock| lock.visit(|number| *number)), [1, 11]);
}

#[test]
fn fault_sweeps_in_order() {
    assert_caught(Fault::sweeps_in_order, "biased::tests::an_owner_that_is_put_off_holds_up_no_other");
}

#[test]
fn a_panic_inside_lets_others_in() {
    let number = Biased::new(1);
    let panics = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
    // SAFETY: only this thread calls it.
    assert!(panics(&|| unsafe { number.own(|_| panic!("inside")) }));
    assert!(panics(&|| number.visit(|_| panic!("inside"))));
    let two = [&number, &Biased::new(2)];
    assert!(panics(&|| Biased::visit_all(two.into_iter(), |_| panic!("inside"))));
    assert_eq!(two[1].visit(|number| *number), 2);
    // SAFETY: as above.
    assert_eq!(unsafe { number.own(|number| *number) }, 1);
    assert_eq!(number.visit(|number| *number), 1);
}
