//! The registry of devices.
#![cfg(feature = "sim")]

use raddle::prelude::*;

#[test]
fn the_cpu_is_one_and_simulators_are_many() {
    assert_eq!(Device::new("cpu").unwrap(), "cpu".parse().unwrap());
    let (first, second) = (Device::new("sim:7").unwrap(), Device::new("sim:7").unwrap());
    assert_ne!(first, second);
    assert_eq!((first.name(), Device::cpu().unwrap().name()), ("sim:7", "cpu"));
}

#[test]
fn unknown_names_list_the_known_ones() {
    for name in ["gpu", "cuda:", "cuda:x", "cuda:-1", "sim", "sim:", "sim:x", "cpu:0", ""] {
        let text = Device::new(name).unwrap_err().to_string();
        assert_eq!(
            text,
            format!("device: unknown name {name:?}, expected one of: cpu, cuda:ORDINAL, sim:SEED")
        );
    }
}

#[cfg(feature = "cuda")]
#[test]
fn a_gpu_is_one_device_or_says_why_it_is_none() {
    match (Device::new("cuda"), Device::new("cuda:0")) {
        (Ok(first), Ok(same)) => assert_eq!((first.name(), first), ("cuda:0", same)),
        (Err(first), Err(same)) => {
            assert_eq!(first, same);
            assert!(first.to_string().starts_with("cuda:0: "), "{first}");
        }
        other => panic!("{other:?}"),
    }
    let missing = Device::new("cuda:4096").unwrap_err().to_string();
    assert!(missing.starts_with("cuda:4096: "), "{missing}");
}

#[test]
fn tensors_move_between_devices_and_numbers_stay() {
    let (cpu, sim) = (Device::cpu().unwrap(), Device::new("sim:3").unwrap());
    let here = Tensor::randn([5, 4], DType::F32, &cpu, &Generator::new(1)).unwrap().t().unwrap();
    let there = here.to(&sim).unwrap();
    let product =
        |x: &Tensor| x.matmul(&x.t().unwrap()).unwrap().softmax(1).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(product(&here), product(&there));
    assert!(here.add(&there).is_err());
    let again = Tensor::randn([5, 4], DType::F32, &sim, &Generator::new(1)).unwrap().t().unwrap();
    assert_eq!(again.to_vec::<f32>().unwrap(), here.to_vec::<f32>().unwrap());
}
