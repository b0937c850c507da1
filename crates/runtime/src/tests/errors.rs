//! Records of kernels that may fail, over devices that run them.

use super::{external, streams_of, turn};
use crate::{order::taint::OPEN_COUNT, *};
use raddle_base::{DType, Dims, Layout};
use raddle_hal::{Kernel, KernelError};
use raddle_op::kernel::ScatterMode;

const LAUNCH_COUNT: usize = 200_000;
/// Enough to download, and far from enough for a frame a launch.
const STACK_BYTES: usize = 512 << 10;

/// Launches that may fail, each of which reads and writes what the one before has written; one of them fails, if told so. What
/// a download says then, and the most records that were open.
fn chain(device: Device, bad: Option<usize>) -> (Result<f32>, usize) {
    let upload = |bytes: &[u8]| {
        let buffer = device.allocate(bytes.len()).unwrap();
        device.upload(&buffer, 0, bytes).unwrap();
        buffer
    };
    let (target, values) = (upload(&[0; 16]), upload(&1_f32.to_le_bytes()));
    let [good_index, bad_index] = [2_i64, 4].map(|index| upload(&index.to_le_bytes()));
    let [four, one] = [4, 1].map(|length| Layout::contiguous(Dims::new(&[length]).unwrap()));
    let kernel = Kernel::Scatter { axis: 0, mode: ScatterMode::Add, repeats: 1 };
    let mut open_count = 0;
    for launch in 0..LAUNCH_COUNT {
        let index = if bad == Some(launch) { &bad_index } else { &good_index };
        let operands = [
            Operand { buffer: &target, access: Access::Write, dtype: DType::F32, layout: &four },
            Operand { buffer: index, access: Access::Read, dtype: DType::I64, layout: &one },
            Operand { buffer: &values, access: Access::Read, dtype: DType::F32, layout: &one },
        ];
        device.submit(&kernel, &operands).unwrap();
        open_count = open_count.max(streams_of(&device).taints.open_count());
    }
    device.synchronize().unwrap();
    let read = || {
        let mut bytes = [0; 4];
        device.download(&target, 8, &mut bytes).map(|()| f32::from_le_bytes(bytes))
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let told = std::thread::scope(|scope| thread.spawn_scoped(scope, read).unwrap().join().unwrap());
    (told, open_count)
}

#[test]
fn records_of_launches_that_may_fail_are_bounded() {
    let _turn = turn();
    let cpu = Device::open(Box::new(raddle_cpu::Cpu::new())).unwrap();
    let (told, open_count) = chain(cpu, None);
    assert_eq!(told, Ok(LAUNCH_COUNT as f32));
    assert!(open_count <= OPEN_COUNT, "{open_count} records of nothing in flight");

    for bad in [None, Some(10)] {
        let (device, _) = external::open(6);
        let (told, open_count) = chain(device, bad);
        match bad {
            None => assert_eq!(told, Ok(LAUNCH_COUNT as f32)),
            Some(_) => {
                let Err(Error::Kernel { error, .. }) = told else { panic!("{told:?}") };
                assert_eq!(error, KernelError::IndexOutOfRange { index: 4, position: 0, size: 4 });
            }
        }
        let in_flight = 2 * device.0.in_flight_count_max as usize;
        assert!(open_count <= OPEN_COUNT.max(in_flight), "{open_count} records, {in_flight} in flight");
    }
}
