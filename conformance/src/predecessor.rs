//! The 25 tests of the predecessor, a stream pool for another backend, and where what each of them tested is tested here:
//! on the CPU, the simulator and the GPU.
//!
//! `scene` is one of `race_suite`, `life` one of `lives`, `case` one of the suites. What a child of a fork may do differs, so
//! there it says where; all others are the same everywhere.

/// Where it is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// On all three.
    All,
    /// On the CPU, with which a forked child goes on.
    Cpu,
    /// On the simulator and the GPU, which a forked child is refused.
    Others,
}

/// What runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A scene of the race suite.
    Scene(&'static str),
    /// A life of a process.
    Life(&'static str),
    /// A case of the suites, `suite::behaviour`.
    Case(&'static str),
}

/// One of the 25.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As it was counted there.
    pub number: usize,
    /// What it tested.
    pub tested: &'static str,
    /// What tests that here.
    pub by: &'static [(On, By)],
}

macro_rules! rows {
    ($($number:literal $tested:literal [$($kind:ident $name:literal $(on $on:ident)?),* $(,)?])*) => {
        &[$(Row { number: $number, tested: $tested, by: &[$((rows!(@on $($on)?), By::$kind($name))),*] }),*]
    };
    (@on) => { On::All };
    (@on $on:ident) => { On::$on };
}

/// All of them.
pub const TABLE: &[Row] = rows! {
1 "A forked child may not use the device, and is told so."
    [Life "children_compute" on Cpu, Life "a_child_is_refused" on Others]
2 "A few threads run simple ops at once."
    [Scene "forward_of_8_threads_50_times"]
3 "Eight threads and more, very often."
    [Scene "forward_of_64_threads_200_times", Scene "programs_of_64_threads"]
4 "Numbers of threads from two up, each in turn: at which one does a layer fail?"
    [Scene "forward_of_few_threads_and_many", Scene "sizes_at_boundaries"]
5 "Each thread has a stream, and keeps it."
    [Scene "a_thread_keeps_its_stream", Scene "guards_nest_in_threads", Scene "ids_name_streams"]
6 "Linear layers in parallel: no crash. (It took the time, too; here that is the benchmarks' work.)"
    [Scene "linear_algebra_of_8_threads"]
7 "Whole models in parallel."
    [Scene "models_are_trained_by_8_threads", Scene "gradients_of_8_threads_add_up"]
8 "Oversubscription: more threads than streams."
    [Scene "streams_are_shared_by_256_threads", Scene "threads_have_streams_for_themselves"]
9 "Thread churn: threads come and go, and nothing is left."
    [Life "come_and_go"]
10 "A tensor that was made on one stream is used on another."
    [Scene "a_tensor_goes_through_16_threads", Scene "a_chain_is_handed_over", Scene "a_long_chain_is_read_elsewhere"]
11 "Linear algebra in parallel, of batches and strided views."
    [Scene "linear_algebra_of_8_threads"]
12 "Two threads with much to do. (It asked for half of twice the rate, which is a measurement; here the results are checked.)"
    [Scene "load_is_uneven", Scene "forward_of_few_threads_and_many"]
13 "31 threads, all streams of the pool, 100 times each."
    [Scene "forward_of_31_threads_100_times"]
14 "Memory runs out for several threads at once, and they go on."
    [Scene "memory_runs_out_for_8_threads"]
15 "Threads that compile at once, the same and different."
    [Scene "kernels_are_made_at_once", Case "reports::d_15_kernels_that_nobody_knows_yet_are_made_at_once"]
16 "Streams of the pool are given out round-robin, past its end."
    [Scene "streams_go_round"]
17 "Streams are used again while threads come and go."
    [Scene "released_threads_go_on", Scene "threads_have_streams_for_themselves", Life "come_and_go"]
18 "All streams are synchronized while threads submit."
    [Scene "streams_are_waited_for_while_others_submit"]
19 "What is static is destroyed while the device is in use."
    [Life "statics_outlive_all", Life "main_returns"]
20 "Exit handlers use the device."
    [Life "exit_handlers"]
21 "Threads end before, with and after the main one."
    [Life "locals_of_a_thread", Life "locals_of_main", Life "another_thread_exits"]
22 "A fork while threads are at work."
    [Life "children_train" on Cpu, Life "a_child_is_refused" on Others]
23 "The parent goes on after a fork."
    [Life "children_train" on Cpu, Life "children_compute" on Cpu, Life "a_child_is_refused" on Others]
24 "A process that is started, not forked, uses the device beside its parent."
    [Life "a_process_that_is_started_uses_the_device_too"]
25 "Layer normalization is right, and the same for every thread."
    [Case "normalize::layer_norm", Case "normalize::layer_norm_backward", Scene "forward_of_8_threads_50_times"]
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lives, races, races::Place, suites};

    #[test]
    fn each_is_tested_on_cpu_sim_and_cuda() {
        let numbers: Vec<usize> = TABLE.iter().map(|row| row.number).collect();
        assert_eq!(numbers, (1..=25).collect::<Vec<_>>());
        // The suites are the same on every backend.
        let cases: Vec<String> = suites::all().into_iter().map(|case| case.name).collect();
        for (place, on) in [(Place::Cpu, On::Cpu), (Place::Sim(1), On::Others), (Place::Cuda(0), On::Others)]
        {
            for row in TABLE {
                let here: Vec<By> =
                    row.by.iter().filter(|(at, _)| [On::All, on].contains(at)).map(|(_, by)| *by).collect();
                let Row { number, tested, .. } = row;
                assert!(!here.is_empty(), "{number}, {tested:?}: nothing tests it on {}", place.name());
                for by in here {
                    let exists = match by {
                        By::Scene(name) => races::names(place).any(|scene| scene == name),
                        By::Life(name) => lives::names(place).any(|life| life == name),
                        By::Case(name) => cases.iter().any(|case| case == name),
                    };
                    assert!(exists, "{number}, {tested:?}: there is no {by:?} on {}", place.name());
                }
            }
        }
    }
}
