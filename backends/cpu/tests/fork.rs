//! A forked child goes on with the device, serially. A test file of its own: what a child must not touch is what other
//! tests hold.

use raddle_cpu::Cpu;
use raddle_hal::{Address, Device, HostBytes, Launch, Priority, QueueId, Slab, Submitted};

const QUEUE: QueueId = QueueId(0);
/// Large enough for helpers.
const SIZE_BYTES: usize = 4 << 20;

fn fill(slab: Slab, value: u8) -> Launch<'static> {
    Launch::FillBytes {
        to: Address { handle: slab.handle, offset_bytes: 0 },
        size_bytes: slab.size_bytes,
        value,
    }
}

#[test]
fn a_forked_child_goes_on_serially() {
    let cpu = Cpu::new();
    cpu.open_queue(QUEUE, Priority::Normal).unwrap();
    let slab = cpu.allocate_slab(SIZE_BYTES).unwrap();
    let mut host = vec![0u8; SIZE_BYTES];
    let to = HostBytes { address: host.as_mut_ptr() as usize, size_bytes: SIZE_BYTES };
    let download = Launch::Download { from: Address { handle: slab.handle, offset_bytes: 0 }, to };
    // Workers, helpers and an op in flight, so that there is something to stay behind.
    // SAFETY: numbers grow by one; memory lives to the end; `run` follows `Inline` with the same arguments.
    unsafe {
        assert_eq!(cpu.submit(QUEUE, 1, &[], &fill(slab, 1)), Ok(Submitted::Inline));
        assert_eq!(cpu.submit(QUEUE, 2, &[], &fill(slab, 2)), Ok(Submitted::Queued));
        cpu.run(QUEUE, 1, &fill(slab, 1)).unwrap();
        cpu.synchronize(QUEUE, 2).unwrap();
        assert_eq!(cpu.submit(QUEUE, 3, &[], &Launch::Nothing), Ok(Submitted::Inline));
    }
    // SAFETY: the child only computes, writes no shared file, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        cpu.after_fork();
        // SAFETY: as above; after a fork calls don't overlap and numbers don't count.
        let is_good = unsafe {
            let runs = |launch: &Launch<'_>| {
                cpu.submit(QUEUE, 0, &[], launch) == Ok(Submitted::Inline)
                    && cpu.run(QUEUE, 0, launch).is_ok()
            };
            runs(&fill(slab, 3)) && runs(&download)
        };
        let is_right = host.iter().all(|&byte| byte == 3) && cpu.completed(QUEUE) == 2;
        let returns = cpu.synchronize(QUEUE, 3).is_ok();
        let code = if is_good && is_right && returns { 0 } else { 1 };
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `child` is ours and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child reports a failure");
    // The parent doesn't notice.
    // SAFETY: as above.
    unsafe {
        cpu.run(QUEUE, 3, &Launch::Nothing).unwrap();
        assert_eq!(cpu.submit(QUEUE, 4, &[], &download), Ok(Submitted::Inline));
        cpu.run(QUEUE, 4, &download).unwrap();
        assert_eq!(host, vec![2; SIZE_BYTES]);
        cpu.release_slab(slab);
    }
}
