//! How processes and threads end, and what a fork leaves: each life is a process of its own, whose exit code and output are
//! checked, and which is ended when it takes too long.
//!
//! - `ends`: exits with work in flight, and what is destroyed when: thread-locals, statics, exit handlers.
//! - `forks`: children of a process whose threads are all busy.
//! - `threads`: ten thousand threads that are gone at once.
//! - [`main`]: for each device every life as it is, `sim::locals_of_a_thread`, and with each of its planted faults, which
//!   must show: `sim::locals_of_a_thread::fault_use_after_exit`.

mod ends;
mod forks;
mod process;
mod threads;

use crate::{
    child::{self, Ended},
    races::Place,
    training::Outcome,
};
use libtest_mimic::{Arguments, Failed, Trial};
use process::{LIFE, TIME_MAX};
use raddle_sync::faults::{self, Fault};
use std::{env, process::Command, process::ExitCode};

/// Where they are lived.
const PLACES: [Place; 4] = [Place::Cpu, Place::Sim(1), Place::Sim(2), Place::Cuda(0)];

/// A life.
struct Life {
    name: &'static str,
    /// On a device, by its name. A panic is a failure, as is anything said that isn't expected.
    body: fn(&str) -> Outcome,
    /// Where it can be lived.
    places: &'static [&'static str],
    exit_code: i32,
    /// All of its output.
    says: &'static str,
    faults: &'static [Fault],
    /// Those that show only where work is late: on the CPU most ops have run when their call returns.
    late: &'static [Fault],
}

const ALL: &[&str] = &["cpu", "sim", "cuda"];
/// Where a child can go on.
const CPU: &[&str] = &["cpu"];
/// Where it can't.
const OTHERS: &[&str] = &["sim", "cuda"];

macro_rules! lives {
    ($($module:ident::$name:ident on $places:ident, exits $code:literal, says $says:expr, faults [$($fault:ident),*]
        $(, late [$($late:ident),*])?;)*) => {
        &[$(Life {
            name: stringify!($name),
            body: $module::$name,
            places: $places,
            exit_code: $code,
            says: $says,
            faults: &[$(Fault::$fault),*],
            late: &[$($(Fault::$late),*)?],
        }),*]
    };
}

/// All of them.
const TABLE: &[Life] = lives! {
    ends::main_returns on ALL, exits 0, says "main returns\n", faults [], late [exit_insists_on_idle];
    ends::another_thread_exits on ALL, exits 7, says "another thread exits\n", faults [];
    ends::main_panics on ALL, exits 101, says "", faults [];
    ends::a_callback_exits on ALL, exits 7, says "a callback exits\n", faults [];
    ends::a_hook_exits on ALL, exits 7, says "a hook exits\n", faults [];
    ends::a_resource_exits on ALL, exits 7, says "a resource exits\n", faults [];
    ends::a_capture_exits on ALL, exits 7, says "a capture exits\n", faults [];
    ends::a_thread_of_a_pool_exits on ALL, exits 7, says "a thread of a pool exits\n", faults [];
    ends::locals_of_a_thread on ALL, exits 0, says ends::LOCALS, faults [use_after_exit];
    ends::locals_of_main on ALL, exits 0, says ends::LOCALS, faults [use_after_exit];
    ends::locals_of_a_foreign_thread on ALL, exits 0, says ends::LOCALS, faults [use_after_exit];
    ends::exit_handlers on ALL, exits 0, says ends::HANDLERS, faults [];
    ends::adds on ALL, exits 0, says "", faults [];
    ends::a_trace_shows_what_ran on ALL, exits 0, says "", faults [];
    ends::statics_outlive_all on ALL, exits 0, says "main: [2.0, 2.0]\n", faults [];
    forks::children_compute on CPU, exits 0, says "", faults [];
    forks::children_train on CPU, exits 0, says "", faults [];
    forks::children_of_first_uses on CPU, exits 0, says "", faults [];
    forks::children_share_a_graph on CPU, exits 0, says "", faults [];
    forks::a_child_opens_devices on CPU, exits 0, says "", faults [];
    forks::a_child_of_a_child on CPU, exits 0, says "", faults [];
    forks::a_child_of_a_child_trains on CPU, exits 0, says "", faults [];
    forks::a_child_is_told_of_failures on CPU, exits 0, says "", faults [child_forgets_failures];
    forks::a_child_is_refused on OTHERS, exits 0, says "", faults [];
    forks::a_process_that_is_started_uses_the_device_too on ALL, exits 0, says "", faults [];
    threads::come_and_go on ALL, exits 0, says "", faults [exit_keeps_stream, exit_loses_magazine];
};

/// The main function of the suite, and of each of the processes that it starts.
pub fn main() -> ExitCode {
    if let Ok(life) = env::var(LIFE) {
        let (name, device) = life.split_once(' ').expect("a life and a device");
        let life = TABLE.iter().find(|life| life.name == name).expect("a life of the table");
        return match (life.body)(device) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let trials = PLACES.into_iter().flat_map(trials).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trials(place: Place) -> Vec<Trial> {
    let absent = place.absent();
    if let Some(reason) = absent {
        println!("{}: skipped: {reason}", place.device());
    }
    let mut trials = Vec::new();
    for life in TABLE.iter().filter(|life| life.places.contains(&place.name())) {
        let name = format!("{}::{}", place.device(), life.name);
        let late: &[Fault] = if place == Place::Cpu { &[] } else { life.late };
        for &fault in life.faults.iter().chain(late) {
            let trial = Trial::test(format!("{name}::fault_{}", fault.name()), move || {
                let Err(wrong) = live(life, place, Some(fault))? else {
                    return Err(format!("{} is planted, and nothing fails", fault.name()).into());
                };
                let first = wrong.lines().next().unwrap_or_default();
                println!("{}: {} is planted: {first}", life.name, fault.name());
                Ok(())
            });
            trials.push(trial.with_ignored_flag(absent.is_some() || !faults::ENABLED));
        }
        let trial = Trial::test(name, move || live(life, place, None)?.map_err(Failed::from));
        trials.push(trial.with_ignored_flag(absent.is_some()));
    }
    trials
}

/// Lives a life in a process of its own. What was wrong about it, if something was.
fn live(life: &Life, place: Place, fault: Option<Fault>) -> Result<Result<(), String>, Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.env(LIFE, format!("{} {}", life.name, place.device())).env("RUST_BACKTRACE", "0");
    command.envs(fault.map(|fault| ("RADDLE_FAULT", fault.name())));
    let Ended { status, out, err } = child::run(&mut command, TIME_MAX)?;
    let Some(status) = status else { return Ok(Err(format!("no end after {TIME_MAX:?}\n{out}{err}"))) };
    let is_right = status.code() == Some(life.exit_code) && out == life.says;
    let Life { exit_code, says, .. } = life;
    Ok(is_right.then_some(()).ok_or_else(|| {
        format!("expected exit code {exit_code} and {says:?}, found {status} and {out:?}\n{err}")
    }))
}
