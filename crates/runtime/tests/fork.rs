//! D-17 of the reported cases: a process that has used its devices from many threads, with a pool of workers for large
//! ops, forks. The child goes on with the CPU, by ops large enough for the workers that it doesn't have; any other device
//! tells it so at once; and the parent doesn't notice. A file of its own: a fork copies what other tests hold.
#![cfg(not(loom))]

use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_op::{Distribution, Kernel, PARAM_COUNT_MAX, Pointwise, ReduceOp};
use raddle_runtime::{Access, Buffer, Device, Error, Operand, Result};

/// Enough for the parallel path (the report's number), and far below it.
const COUNTS: [usize; 2] = [64_000, 10];

fn layout(shape: &[usize]) -> Layout {
    Layout::contiguous(Dims::new(shape).expect("few axes"))
}

fn operand<'a>(buffer: &'a Buffer, access: Access, dtype: DType, layout: &'a Layout) -> Operand<'a> {
    Operand { buffer, access, dtype, layout }
}

/// Random numbers, converted from f64 to f32 and added up, all on the device; and added up on the host.
fn sums(device: &Device, count: usize) -> Result<(f32, f32)> {
    let (all, one) = (layout(&[count]), layout(&[1]));
    let wide = device.allocate(count * 8)?;
    let narrow = device.allocate(count * 4)?;
    let sum = device.allocate(4)?;
    let wide_out = operand(&wide, Access::Write, DType::F64, &all);
    let distribution = Distribution::Integer { low: 0, high: 8 };
    // Integers, so that the sum is exact in any order: drawn as i64 in the same memory, then converted.
    let drawn = operand(&wide, Access::Write, DType::I64, &all);
    device.submit(&Kernel::Random { distribution, key: 7, counter: 0 }, &[drawn])?;
    let convert = |compute| Kernel::Pointwise {
        program: Pointwise::copy.into(),
        compute,
        params: [Scalar::Int(0); PARAM_COUNT_MAX],
        groups: 1,
    };
    let from = operand(&wide, Access::Read, DType::I64, &all);
    device.submit(&convert(DType::F64), &[wide_out, from])?;
    let [to, from] =
        [operand(&narrow, Access::Write, DType::F32, &all), operand(&wide, Access::Read, DType::F64, &all)];
    device.submit(&convert(DType::F32), &[to, from])?;
    let reduce = Kernel::Reduce { op: ReduceOp::Sum, axes: 1, scale: 1.0 };
    let [to, from] =
        [operand(&sum, Access::Write, DType::F32, &one), operand(&narrow, Access::Read, DType::F32, &all)];
    device.submit(&reduce, &[to, from])?;
    let (mut found, mut bytes) = ([0; 4], vec![0; count * 4]);
    device.download(&sum, 0, &mut found)?;
    device.download(&narrow, 0, &mut bytes)?;
    let values = bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().expect("four bytes")));
    Ok((f32::from_ne_bytes(found), values.sum()))
}

/// Forks; the child's exit code says which step of its body failed, 0 for none. It may take ten seconds.
fn in_child(body: impl FnOnce() -> std::result::Result<(), i32>) -> i32 {
    // SAFETY: the child computes with what is its own, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: a hang ends the child by a signal, which is a failure to the parent.
        unsafe { libc::alarm(10) };
        let code = body().err().unwrap_or(0);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `child` is ours and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
}

#[test]
fn d_17_a_forked_child_goes_on_and_the_parent_too() {
    let cpu = Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
    let sim = raddle_sim::Sim::new(Box::new(raddle_cpu::Cpu::new()), raddle_sim::SimOptions::default());
    let sim = Device::open(Box::new(sim.unwrap())).unwrap();
    let expected = COUNTS.map(|count| sums(&cpu, count).unwrap());
    assert!(expected.iter().all(|(device, host)| device == host && *host > 0.0));
    assert_eq!(sums(&sim, COUNTS[1]).unwrap(), expected[1]);
    // Other threads have used it, too, and hold nothing that a child could wait for.
    std::thread::scope(|scope| {
        (0..4).for_each(|_| _ = scope.spawn(|| sums(&cpu, COUNTS[0]).unwrap()));
    });

    let code = in_child(|| {
        for (count, expected) in COUNTS.into_iter().zip(expected) {
            match sums(&cpu, count) {
                Ok(found) if found == expected => {}
                Ok(_) => return Err(1),
                Err(_) => return Err(2),
            }
        }
        match sums(&sim, COUNTS[1]) {
            Err(Error::Forked { .. }) => Ok(()),
            _ => Err(3),
        }
    });
    assert_eq!(code, 0, "1: wrong sums, 2: an error, 3: the simulator, -1: a signal");
    // One that does nothing ends, too.
    assert_eq!(in_child(|| Ok(())), 0);
    assert_eq!(sums(&cpu, COUNTS[0]).unwrap(), expected[0]);
    assert_eq!(sums(&sim, COUNTS[1]).unwrap(), expected[1]);
}
