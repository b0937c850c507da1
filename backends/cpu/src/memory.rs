//! Slabs from the system's allocator, and moving bytes.
//!
//! Small slabs start on a cache line, large ones on a huge page, and the kernel is asked to back those with huge pages.
//! Nothing is zeroed here: fresh pages come zeroed from the kernel, and the contract leaves content open.

use crate::threads::Threads;
use std::alloc::{Layout, alloc, dealloc};

/// Blocks are aligned to it: a cache line, and the widest vector.
pub const ALIGNMENT_BYTES: usize = 64;
/// Of x86-64 and of 64-bit Arm with 4 KiB pages. Filling fresh 64 MiB took 215 ms with small pages and 40 to 117 with huge
/// ones, filling them again 22 and 14 (2 Xeon cores shared with other work, 2026-11-28).
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// From here on copying uses several threads, in pieces of `COPY_PART_BYTES` (guesses: one core doesn't saturate memory,
/// but a helper takes microseconds to come).
const PARALLEL_COPY_BYTES_MIN: usize = 1 << 20;
const COPY_PART_BYTES: usize = 256 << 10;

fn layout(size_bytes: usize) -> Option<Layout> {
    let alignment = if size_bytes < HUGE_PAGE_BYTES { ALIGNMENT_BYTES } else { HUGE_PAGE_BYTES };
    Layout::from_size_align(size_bytes.max(1), alignment).ok()
}

/// The memory of the machine, as far as the system says.
pub fn machine_bytes() -> Option<usize> {
    // SAFETY: these ask for constants of the system and touch no memory of ours.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    usize::try_from(pages).ok()?.checked_mul(usize::try_from(page_bytes).ok()?)
}

/// Memory with undefined content, or `None` where the system has none. Its address is the handle of the slab.
pub fn allocate(size_bytes: usize) -> Option<u64> {
    let layout = layout(size_bytes)?;
    // SAFETY: the layout's size isn't 0.
    let start = unsafe { alloc(layout) };
    #[cfg(target_os = "linux")]
    if !start.is_null() && size_bytes >= HUGE_PAGE_BYTES {
        // A hint, so its failure doesn't matter. Whole huge pages only: the rest may share a page with others.
        // SAFETY: the range lies inside the block that was just allocated, and the advice doesn't change its content.
        unsafe { libc::madvise(start.cast(), size_bytes & !(HUGE_PAGE_BYTES - 1), libc::MADV_HUGEPAGE) };
    }
    (!start.is_null()).then_some(start as u64)
}

/// Gives memory back.
///
/// # Safety
/// - `handle` came from [`allocate`] with this size and has not been given back.
/// - Nobody uses the memory any more.
pub unsafe fn release(handle: u64, size_bytes: usize) {
    let layout = layout(size_bytes).expect("the same size has been allocated");
    // SAFETY: by contract the block is live and was allocated with this layout.
    unsafe { dealloc(handle as *mut u8, layout) };
}

/// Runs `body(offset, size)` for pieces that make up `size_bytes`.
fn for_each_piece(size_bytes: usize, threads: Threads, body: impl Fn(usize, usize) + Sync) {
    if size_bytes < PARALLEL_COPY_BYTES_MIN {
        return body(0, size_bytes);
    }
    threads.for_each_part(size_bytes.div_ceil(COPY_PART_BYTES), |part| {
        let offset = part * COPY_PART_BYTES;
        body(offset, COPY_PART_BYTES.min(size_bytes - offset));
    });
}

/// Copies bytes.
///
/// # Safety
/// - Both ranges are live and don't overlap.
/// - Nobody else touches what is written or writes what is read until this returns.
pub unsafe fn copy(from: usize, to: usize, size_bytes: usize, threads: Threads) {
    for_each_piece(size_bytes, threads, |offset, size_bytes| {
        // SAFETY: the piece lies inside both ranges; pieces don't overlap, so threads don't meet.
        unsafe {
            std::ptr::copy_nonoverlapping((from + offset) as *const u8, (to + offset) as *mut u8, size_bytes)
        }
    });
}

/// Sets bytes.
///
/// # Safety
/// - The range is live, and nobody else touches it until this returns.
pub unsafe fn fill(to: usize, size_bytes: usize, value: u8, threads: Threads) {
    for_each_piece(size_bytes, threads, |offset, size_bytes| {
        // SAFETY: the piece lies inside the range; pieces don't overlap, so threads don't meet.
        unsafe { std::ptr::write_bytes((to + offset) as *mut u8, value, size_bytes) }
    });
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_aligned_and_usable_to_the_last_byte() {
        for size_bytes in [0, 1, 63, 64, 4096, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5]
        {
            let handle = allocate(size_bytes).expect("a few megabytes are there");
            assert_eq!(handle as usize % ALIGNMENT_BYTES, 0);
            let back = vec![0u8; size_bytes];
            // SAFETY: the ranges have that size and belong to this test; the slab came from `allocate`.
            unsafe {
                fill(handle as usize, size_bytes, 7, Threads(2));
                copy(handle as usize, back.as_ptr() as usize, size_bytes, Threads(2));
                release(handle, size_bytes);
            }
            assert!(back.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn what_the_system_does_not_have_is_refused() {
        assert_eq!(allocate(usize::MAX / 2), None);
        assert_eq!(allocate(usize::MAX), None);
    }
}
