//! Faults in kernels that the suites must be seen to catch: each case runs another one, of the same device, in a process of its own
//! with the fault planted. On the simulator they are the CPU's.

use crate::Case;

/// None: nothing can be planted in this build.
#[cfg(not(any(debug_assertions, raddle_faults)))]
pub fn cases() -> Vec<Case> {
    Vec::new()
}

/// A case for each fault and suite.
#[cfg(any(debug_assertions, raddle_faults))]
pub fn cases() -> Vec<Case> {
    use crate::Backend::{Cpu, Cuda, Sim};
    use raddle_sync::faults::{Fault, assert_caught};

    // The fault, where it is planted, the suite and its case that must fail with it.
    let faults: [(Fault, &'static [crate::Backend], &str, &str); 13] = [
        (Fault::last_element_left, &[Cpu, Sim, Cuda], "random", "mul"),
        (Fault::last_element_left, &[Cuda], "pointwise", "mul"),
        (Fault::no_copy_back, &[Cpu, Sim], "pointwise", "mul"),
        (Fault::no_copy_back, &[Cuda], "normalize", "softmax"),
        (Fault::no_copy_back, &[Cuda], "random", "softmax"),
        (Fault::strided_as_packed, &[Cpu, Sim, Cuda], "normalize", "softmax"),
        (Fault::strided_as_packed, &[Cpu, Sim, Cuda], "random", "softmax"),
        (Fault::nothing_is_multiplied, &[Cpu, Sim, Cuda], "product", "factors_of_zero"),
        (Fault::nothing_is_multiplied, &[Cpu, Sim, Cuda], "random", "addmm"),
        (Fault::bias_where_it_lies, &[Cuda], "product", "starts"),
        (Fault::equal_bounds_are_nobodys, &[Cpu, Sim, Cuda], "gradients", "ties"),
        (Fault::equal_bounds_are_nobodys, &[Cpu, Sim, Cuda], "gradients", "bounds"),
        (Fault::sum_is_rounded_again, &[Cpu, Sim, Cuda], "gradients", "sums_that_are_normalized"),
    ];
    let case = |(fault, backends, suite, name): (Fault, _, &str, &str)| {
        let test = format!("{suite}::{name}");
        let body = move |device: &raddle::Device| {
            let device = device.name();
            let backend = device.split(':').next().unwrap_or_default();
            assert_caught(fault, &format!("{backend}::{test}"));
        };
        Case { backends, ..Case::new(&format!("planted::{suite}"), &format!("fault_{}", fault.name()), body) }
    };
    faults.into_iter().map(case).collect()
}
