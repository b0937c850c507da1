//! Processes, for tests of what becomes of devices in a forked child and when a process ends. Not part of what programs
//! need, so behind the feature `process`.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

/// The exit code of a child whose body has panicked, as of any Rust program that panics.
const PANICKED: i32 = 101;

/// How a child leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// By `_exit`: nothing runs any more.
    AtOnce,
    /// By `exit`: destructors of thread-locals, then exit handlers.
    Normally,
}

/// How a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code.
    Code(i32),
    /// By this signal; `SIGALRM` if its time was over.
    Signal(i32),
}

/// Forks. The child runs the body, whose result is its exit code (101 if it panics), and never returns; the parent waits
/// for it, and kills it after `time_s_max` seconds. Errors: the system refuses a process.
///
/// The child has this thread only. Locks that other threads hold just now stay held in it, those of the standard library's
/// output too: a body writes to files and pipes.
pub fn in_child(time_s_max: u32, leave: Leave, body: impl FnOnce() -> i32) -> io::Result<End> {
    if let Some(end) = fork(time_s_max)? {
        return Ok(end);
    }
    // Nothing of the body is seen afterwards.
    let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
    if leave == Leave::Normally {
        std::process::exit(code);
    }
    leave_at_once(code)
}

/// Forks, and both go on. In the child this returns none at once; in the parent how the child has ended, which it is made to
/// after `time_s_max` seconds. Errors, and what a child has: as of [`in_child`].
pub fn fork(time_s_max: u32) -> io::Result<Option<End>> {
    // SAFETY: what a child of a process with threads may do is said above; the allocator looks after itself.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: no handler is installed, so the signal ends the child.
            unsafe { libc::alarm(time_s_max) };
            Ok(None)
        }
        _ => {
            let mut status = 0;
            // SAFETY: the child is ours, and `status` outlives the call.
            if unsafe { libc::waitpid(child, &mut status, 0) } == -1 {
                return Err(io::Error::last_os_error());
            }
            let exited = libc::WIFEXITED(status);
            Ok(Some(if exited {
                End::Code(libc::WEXITSTATUS(status))
            } else {
                End::Signal(libc::WTERMSIG(status))
            }))
        }
    }
}

/// Ends the process by `_exit`.
pub fn leave_at_once(code: i32) -> ! {
    // SAFETY: it ends the process.
    unsafe { libc::_exit(code) }
}

/// Arranges for a function to run whenever a thread of this process forks, before it does. It must not panic. Errors: the system
/// has no room for it.
pub fn before_forks(handler: unsafe extern "C" fn()) -> io::Result<()> {
    // SAFETY: functions live as long as the process.
    let code = unsafe { libc::pthread_atfork(Some(handler), None, None) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Arranges for a function to run when the process exits, before those that are registered already. It must not panic.
/// Errors: the system has no room for it.
pub fn at_exit(handler: extern "C" fn()) -> io::Result<()> {
    // SAFETY: functions live as long as the process.
    let code = unsafe { libc::atexit(handler) };
    if code == 0 { Ok(()) } else { Err(io::Error::other("atexit has no room for a handler")) }
}

/// Runs a body on a thread that the standard library knows nothing of, and waits for its end, that of its thread-locals
/// included. A panic ends the process. Errors: the system refuses a thread.
pub fn on_foreign_thread(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    type Body = Box<dyn FnOnce() + Send>;
    extern "C" fn run(body: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: made by `Box::into_raw` below, and given to this thread alone.
        let body = unsafe { Box::from_raw(body.cast::<Body>()) };
        body();
        ptr::null_mut()
    }
    let body: *mut Body = Box::into_raw(Box::new(Box::new(body)));
    let mut thread = 0;
    // SAFETY: `run` takes the box over if a thread is made; the handle is written before it is joined, once.
    let code = unsafe {
        let code = libc::pthread_create(&mut thread, ptr::null(), run, body.cast());
        if code == 0 {
            libc::pthread_join(thread, ptr::null_mut())
        } else {
            drop(Box::from_raw(body));
            code
        }
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}
