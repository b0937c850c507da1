//! The end of the process.
//!
//! The driver and the libraries beside it shut down by exit handlers of their own: their memory goes, and who is inside of
//! them then crashes. Handlers run in the reverse order of their registration, and the libraries register some when they are
//! first used for something. So ours is registered again and again, ever more rarely ([`install`]), and what is registered before
//! the context was made comes after the driver's end. Ours sets a flag: from then on nobody gets in, and every context counts
//! as lost. Then it waits for those who are inside, but not for longer than [`END_WAIT_MAX`]: who sleeps there does so for as
//! long as the device takes, and a kernel may never end.
//!
//! **Who doesn't come out.** The driver can't shut down beneath them without a crash, and they can't be called back. So the process
//! ends there, by `_exit`, with the code that it was ending with, and the system takes the device's work down: no handler
//! runs that was registered before the device was opened, and what is in the buffers of C's streams is lost, but the trace is
//! written. (Where the system doesn't tell handlers the code, everywhere but with glibc, the handlers go on, and the
//! driver does what it does.)

use crate::{gates, inside, timed};
use raddle_hal::trace;
use raddle_sync::global::{AtomicU32, Ordering::*};
use std::time::Duration;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::{
    ffi::{c_int, c_void},
    ptr,
};

/// Calls of [`install`] that all count (guess: by then every library has been used for all that it can do).
const WATCHED_ALWAYS_COUNT: u32 = 1000;

/// How long the end of a process waits for its threads to come out of the driver (guess: nearly everything that a device does is
/// over by then, and a person who waits for a prompt doesn't mind).
const END_WAIT_MAX: Duration = Duration::from_secs(2);

/// The process that the handler is for: a forked child has a copy of the counters, and nobody in the driver.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// What handlers are called with: the exit code, and what they were registered with.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
extern "C" fn end_with(code: c_int, _: *mut c_void) {
    if !end() {
        trace::write_early();
        // SAFETY: it ends the process.
        unsafe { libc::_exit(code) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
extern "C" fn end_of_unknown_code() {
    end();
}

/// Is the driver left alone from now on?
fn end() -> bool {
    // The first of all registrations does it all.
    if inside::close() || PROCESS.load(Relaxed) != std::process::id() {
        return true;
    }
    gates::open_all(); // whoever waits behind one comes out
    if !inside::wait_for_others(END_WAIT_MAX) {
        return false;
    }
    // What has run is told now: handlers that write a trace come when the driver is gone. Not by who is inside.
    if !inside::is_here() && trace::is_on() {
        timed::tell_at_end();
    }
    true
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn at_exit() {
    // SAFETY: the handler touches statics only, and lives as long as the process. If there is no room for it the flag stays
    // down, and the driver tells late callers by itself that it has shut down.
    unsafe { on_exit(end_with, ptr::null_mut()) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn at_exit() {
    // SAFETY: as above.
    unsafe { libc::atexit(end_of_unknown_code) };
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    /// As `atexit`, in the same list, of a handler that is told the code (glibc; not in `libc`).
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Arranges for the end: called when the driver has a context, when something was built for the first time, and at the
/// first, second, fourth, … launch of each queue. After the first thousand calls only every power of two counts.
#[cold]
pub fn install() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let calls = CALLS.fetch_add(1, Relaxed) + 1;
    PROCESS.store(std::process::id(), Relaxed);
    if calls <= WATCHED_ALWAYS_COUNT || calls.is_power_of_two() {
        at_exit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inside::{Inside, process_ends};
    use raddle_sync::faults::{Fault, assert_caught};
    use std::{
        env,
        process::{Child, Command, Stdio, exit},
        sync::mpsc,
        thread,
        time::Instant,
    };

    /// What a process does whose end a test looks at.
    const END: &str = "RADDLE_TEST_DRIVER_END";
    const EXIT_CODE: i32 = 7;
    /// A process that takes longer hangs.
    const TIME_MAX: Duration = Duration::from_secs(20);

    extern "C" fn last() {
        println!("handlers");
    }

    /// Ends while a thread is inside, which comes out when the end has begun, or never.
    fn end_with_a_thread_inside(comes_out: bool) -> ! {
        // SAFETY: it prints, and doesn't unwind.
        unsafe { libc::atexit(last) };
        install();
        trace::on_early_end(|| println!("trace"));
        let (is_in, goes_in) = mpsc::channel();
        thread::spawn(move || {
            let _inside = Inside::new();
            is_in.send(()).expect("somebody waits for it");
            while !(comes_out && process_ends()) {
                thread::park_timeout(Duration::from_millis(1));
            }
        });
        goes_in.recv().expect("the thread goes in");
        exit(EXIT_CODE)
    }

    fn wait(mut child: Child) -> Option<String> {
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if start.elapsed() > TIME_MAX {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(EXIT_CODE), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let word = |line: &str| ["trace", "handlers"].into_iter().find(|word| line.ends_with(word));
        Some(text.lines().filter_map(word).collect())
    }

    /// What a process says that ends so.
    fn said(test: &str, how: &str) -> Option<String> {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(END, how);
        wait(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_process_ends_though_a_thread_stays_in_the_driver() {
        match env::var(END).as_deref() {
            Ok(how) => end_with_a_thread_inside(how == "comes out"),
            Err(_) => {
                let said = |how| said("exit::tests::a_process_ends_though_a_thread_stays_in_the_driver", how);
                assert_eq!(said("comes out").as_deref(), Some("handlers"));
                assert_eq!(said("stays").as_deref(), Some("trace"), "the process hangs, or ends otherwise");
            }
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn fault_end_waits_for_ever() {
        let test = "exit::tests::a_process_ends_though_a_thread_stays_in_the_driver";
        assert_caught(Fault::end_waits_for_ever, test);
    }
}
