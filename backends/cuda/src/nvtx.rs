//! Ranges that a profiler shows: the op's name around its submission.
//!
//! A profiler says by `NVTX_INJECTION64_PATH` which library it wants to be called in; there `InitializeInjectionNvtx2` is
//! given a table of slots, into which it puts its functions (NVTX, version 3; what its headers do in C). Without one, or with
//! `RADDLE_NVTX=0`, or if anything about it fails, there are no ranges, and a launch pays one relaxed load.

use raddle_sync::global::{AtomicUsize, Once, Ordering::*};
use smallvec::SmallVec;
use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr,
};

/// Ids of the core functions, and how many there are.
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;
const FUNCTION_COUNT: usize = 16;

/// What the profiler has put there: addresses of functions; 0 for none. Stored by it alone, while it is initialized.
static SLOTS: [AtomicUsize; FUNCTION_COUNT] = [const { AtomicUsize::new(0) }; FUNCTION_COUNT];
/// What is in the slot of `RANGE_PUSH`, once the pop is there, too. Stored by Release: whoever sees it and then loads it by
/// Acquire sees the pop.
static PUSH: AtomicUsize = AtomicUsize::new(0);

type Push = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;
type ExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(ExportTable) -> c_int;

#[repr(C)]
struct Callbacks {
    size_bytes: usize,
    function_table: unsafe extern "C" fn(c_uint, *mut *const *const AtomicUsize, *mut c_uint) -> c_int,
}

#[repr(C)]
struct Version {
    size_bytes: usize,
    version: u32,
    reserved: u32,
    set_version: unsafe extern "C" fn(u32),
}

/// Where each slot is; ends with a 0.
struct Table([*const AtomicUsize; FUNCTION_COUNT + 1]);
// SAFETY: it never changes, and points to atomics that live for ever.
unsafe impl Sync for Table {}

static TABLE: Table = {
    let mut table = [ptr::null(); FUNCTION_COUNT + 1];
    let mut index = 1;
    while index < FUNCTION_COUNT {
        table[index] = &raw const SLOTS[index];
        index += 1;
    }
    Table(table)
};
static CALLBACKS: Callbacks = Callbacks { size_bytes: size_of::<Callbacks>(), function_table };
static VERSION: Version = Version { size_bytes: size_of::<Version>(), version: 3, reserved: 0, set_version };

unsafe extern "C" fn function_table(
    module: c_uint,
    table: *mut *const *const AtomicUsize,
    count: *mut c_uint,
) -> c_int {
    const CORE: c_uint = 1;
    if module != CORE {
        return 0;
    }
    // SAFETY: the profiler asks for one or both by pointers to its variables.
    unsafe {
        if !table.is_null() {
            table.write(TABLE.0.as_ptr());
        }
        if !count.is_null() {
            count.write(FUNCTION_COUNT as c_uint);
        }
    }
    1
}

unsafe extern "C" fn set_version(_version: u32) {}

unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => ptr::null(),
    }
}

/// Looks for a profiler, once a process.
pub fn attach() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if env::var_os("RADDLE_NVTX").is_some_and(|value| value == "0") {
            return;
        }
        let path = env::var("NVTX_INJECTION64_PATH").ok().filter(|path| !path.is_empty());
        let Some(path) = path.and_then(|path| CString::new(path).ok()) else { return };
        // SAFETY: the library is one that is made to be loaded so, and stays loaded; the symbol is of that type by NVTX.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
            if library.is_null() {
                return;
            }
            let symbol = libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr());
            if !symbol.is_null() {
                initialize(std::mem::transmute::<*mut c_void, Initialize>(symbol));
            }
        }
    });
}

/// # Safety
/// - It is a profiler's, as NVTX wants it.
unsafe fn initialize(initialize: Initialize) {
    // SAFETY: by the contract.
    let is_attached = unsafe { initialize(export_table) } != 0;
    let push = SLOTS[RANGE_PUSH].load(Acquire);
    if is_attached && SLOTS[RANGE_POP].load(Acquire) != 0 {
        PUSH.store(push, Release);
    }
}

/// Ends when dropped.
pub struct Range(());

impl Drop for Range {
    fn drop(&mut self) {
        let pop = SLOTS[RANGE_POP].load(Acquire);
        // SAFETY: the profiler has put its pop there before any range could begin.
        unsafe { std::mem::transmute::<usize, Pop>(pop)() };
    }
}

/// A range of this thread, if a profiler is attached.
#[inline]
pub fn range(name: &str) -> Option<Range> {
    if PUSH.load(Relaxed) == 0 { None } else { Some(begin(name)) }
}

#[cold]
fn begin(name: &str) -> Range {
    let mut text: SmallVec<[u8; 64]> = name.bytes().filter(|byte| *byte != 0).collect();
    text.push(0);
    let text = CStr::from_bytes_with_nul(&text).expect("there is one zero, at the end");
    // SAFETY: the profiler has put its push there, and takes a text that it copies.
    unsafe { std::mem::transmute::<usize, Push>(PUSH.load(Acquire))(text.as_ptr()) };
    Range(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    unsafe extern "C" fn push(text: *const c_char) -> c_int {
        // SAFETY: it is a text that ends with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        SEEN.with_borrow_mut(|seen| seen.push(text.to_str().unwrap().into()));
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        SEEN.with_borrow_mut(|seen| seen.push("end".into()));
        0
    }

    /// As a profiler does it.
    unsafe extern "C" fn profiler(export_table: ExportTable) -> c_int {
        // SAFETY: the tables are as NVTX has them.
        unsafe {
            assert!(export_table(2).is_null());
            let version = &*export_table(3).cast::<Version>();
            (version.set_version)(version.version);
            let callbacks = &*export_table(1).cast::<Callbacks>();
            let (mut table, mut count) = (ptr::null(), 0);
            assert_eq!((callbacks.function_table)(7, &mut table, &mut count), 0, "no such module");
            assert_eq!((callbacks.function_table)(1, &mut table, &mut count), 1);
            assert!(count as usize > RANGE_POP && (*table).is_null());
            for (id, function) in [(RANGE_PUSH, push as Push as usize), (RANGE_POP, pop as Pop as usize)] {
                (**table.add(id)).store(function, Release);
            }
        }
        1
    }

    #[test]
    fn a_profiler_sees_names_in_pairs_and_nothing_before_it_is_attached() {
        assert!(range("early").is_none());
        // SAFETY: it is one.
        unsafe { initialize(profiler) };
        {
            let _outer = range("add");
            let _inner = range("sum\0");
        }
        assert_eq!(SEEN.take(), ["add", "sum", "end", "end"]);
    }
}
