//! Faults that people reported on other libraries, as cases: named by the letter and number under which the project lists
//! them. Each is checked for its whole kind (other ops, layouts, sizes), not only for the numbers of the report.
//!
//! Elsewhere: those of kinds c, d and e in the suite `reports`, for every backend; here are some of them for many seeds. D-17
//! (a forked child) stands with the runtime and, with all that a program does, in `lives`. C-11 and C-14 stand with the
//! runtime too, without data, those of kind f with `nn` (F-22, F-23, F-25, F-26) and `serve` (F-21, F-24, F-26). B-06 waits
//! for an op that resizes, B-10 for a solver of triangular systems, G-27, G-28 and G-30 for the pipeline.

use raddle::{
    DType, DTypes, Device, Error, Generator, Pointwise, Priority, Result, SimOptions, Stream, Tensor,
    grad::Autograd, manual_seed, nn, testing::hold,
};
use raddle_conformance::suites::{self, reports};
use std::{collections::HashSet, thread};

/// Runs a body on the CPU and on some simulators.
fn on_each(body: impl Fn(&Device)) {
    body(&Device::new("cpu").unwrap());
    for seed in [1, 2] {
        let device = Device::sim(SimOptions { seed, ..SimOptions::default() }).unwrap();
        body(&device);
        assert!(device.close().unwrap(), "sim:{seed}: buffers are alive after the case");
    }
}

fn f32s(values: &[f32], shape: &[usize], device: &Device) -> Tensor {
    Tensor::from_slice(values, shape, device).unwrap()
}

fn read(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// 1, 2, 3, … as f32.
fn counted(shape: &[usize], device: &Device) -> Tensor {
    let count: usize = shape.iter().product();
    f32s(&(1..=count).map(|value| value as f32).collect::<Vec<_>>(), shape, device)
}

/// Leaves whose gradients are wanted.
fn leaf(tensor: Tensor) -> Tensor {
    tensor.requires_grad_(true).unwrap();
    tensor
}

// ------------------------------------------------------------ strided, overlapping and empty outputs

#[test]
fn a_01_updates_of_a_transposed_tensor_arrive() {
    on_each(|device| {
        let y = f32s(&[10.0, 20.0, 30.0, 40.0, 50.0, 60.0], &[3, 2], device);
        let z = f32s(&[2.0, 4.0, 5.0, 8.0, 10.0, 12.0], &[3, 2], device);
        for (offset, transposed) in [(0, false), (0, true), (1, false), (1, true)] {
            let z = if transposed { z.t().unwrap().contiguous().unwrap().t().unwrap() } else { z.clone() };
            let guarded = [-9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
            let storage = f32s(&guarded[1 - offset..], &[6 + offset], device);
            let x = storage.as_strided([3, 2], [1, 3], offset).unwrap();
            x.addcdiv_(&y, &z, 0.5).unwrap();
            assert_eq!(read(&x), [3.5, 6.5, 5.0, 7.5, 5.5, 8.5]);
            let expected = [-9.0, 3.5, 5.0, 5.5, 6.5, 7.5, 8.5];
            assert_eq!(read(&storage), expected[1 - offset..]);
            assert_eq!(**x.strides(), [1, 3]);
            x.addcmul_(&y, &z, 0.5).unwrap();
            assert_eq!(read(&x), [13.5, 46.5, 80.0, 167.5, 255.5, 368.5]);
        }
    });
}

#[test]
fn a_02_results_go_into_the_column_that_was_given() {
    on_each(|device| {
        let b: Vec<f32> =
            [1.0, 10.0, 100.0].iter().flat_map(|f| (1..=5).map(move |v| f * v as f32)).collect();
        let b = f32s(&b, &[3, 5], device);
        let column = |run: &dyn Fn(&Tensor), expected: [f32; 5]| {
            let a = Tensor::zeros([5, 3], DType::F32, device).unwrap();
            let out = a.select(1, 1).unwrap();
            run(&out);
            let all: Vec<f32> = expected.iter().flat_map(|&value| [0.0, value, 0.0]).collect();
            assert_eq!(read(&a), all);
            assert_eq!((&**out.shape(), &**out.strides(), out.storage_offset()), (&[5][..], &[3][..], 1));
        };
        column(&|out| b.sum_out(0, false, out).unwrap(), [111.0, 222.0, 333.0, 444.0, 555.0]);
        column(&|out| b.mean_out(0, false, out).unwrap(), [37.0, 74.0, 111.0, 148.0, 185.0]);
        column(&|out| b.amax_out(0, false, out).unwrap(), [100.0, 200.0, 300.0, 400.0, 500.0]);
        let ones = Tensor::ones([3], DType::F32, device).unwrap();
        column(&|out| ones.matmul_out(&b, out).unwrap(), [111.0, 222.0, 333.0, 444.0, 555.0]);
        let indices = Tensor::zeros([5], DType::I64, device).unwrap();
        column(&|out| b.max_out(0, false, (out, &indices)).unwrap(), [100.0, 200.0, 300.0, 400.0, 500.0]);
        // A running sum into a transposed view.
        let a = Tensor::zeros([5, 3], DType::F32, device).unwrap();
        b.cumsum_out(1, &a.t().unwrap()).unwrap();
        assert_eq!(read(&a.select(1, 2).unwrap()), [100.0, 300.0, 600.0, 1000.0, 1500.0]);
    });
}

#[test]
fn a_03_nothing_is_joined_reduced_and_multiplied() {
    on_each(|device| {
        let x = f32s(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[2, 3], device);
        let e = Tensor::zeros([2, 0], DType::F32, device).unwrap();
        for parts in [[&x, &e], [&e, &x]] {
            let joined = Tensor::cat(&parts, 1).unwrap();
            assert_eq!(**joined.shape(), [2, 3]);
            assert_eq!(read(&joined), read(&x));
        }
        assert_eq!(**Tensor::cat(&[&e, &e], 1).unwrap().shape(), [2, 0]);
        x.narrow(1, 3, 0).unwrap().copy_(&e).unwrap();
        assert_eq!(read(&x), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(read(&e.sum(1, false).unwrap()), [0.0, 0.0]);
        assert!(matches!(e.amax(1, false), Err(Error::EmptyAxis { axis: 1, .. })));
        let rows = Tensor::zeros([0, 4], DType::F32, device).unwrap();
        assert_eq!(**rows.layer_norm(1, None, None, 1e-5).unwrap().shape(), [0, 4]);
        let product = e.matmul(&Tensor::zeros([0, 3], DType::F32, device).unwrap()).unwrap();
        assert_eq!((&**product.shape(), read(&product)), (&[2, 3][..], vec![0.0; 6]));
        assert_eq!(read(&x.add(1.0).unwrap())[5], 6.0);
    });
}

#[test]
fn a_04_the_gradient_of_a_step_slice_goes_to_its_elements_only() {
    on_each(|device| {
        let z = leaf(Tensor::zeros([2, 4], DType::F32, device).unwrap());
        let first = f32s(&[5.0, 6.0, 7.0, 8.0], &[1, 4], device);
        let second = f32s(&[-20.0, -30.0, -40.0, -50.0], &[1, 4], device);
        let upper = z.slice(0, 0, 2, 2).unwrap().mul(&first).unwrap().sum(.., false).unwrap();
        let lower = z.slice(0, 1, 2, 2).unwrap().mul(&second).unwrap().sum(.., false).unwrap();
        upper.add(&lower).unwrap().backward().unwrap();
        assert_eq!(read(&z.grad().unwrap()), [5.0, 6.0, 7.0, 8.0, -20.0, -30.0, -40.0, -50.0]);

        let only = |view: &dyn Fn(&Tensor) -> Result<Tensor>, at: usize| {
            let w = leaf(Tensor::zeros([9], DType::F32, device).unwrap());
            view(&w).unwrap().mul(10.0).unwrap().sum(.., false).unwrap().backward().unwrap();
            let mut expected = [0.0; 9];
            expected[at] = 10.0;
            assert_eq!(read(&w.grad().unwrap()), expected);
        };
        only(&|w| w.slice(0, 3, 8, 6), 3);
        only(&|w| w.as_strided([1], [6], 2), 2);
        only(&|w| w.narrow(0, 8, 1), 8);
        only(&|w| w.select(0, -2), 7);
    });
}

// ------------------------------------------------------------ edge shapes and values

#[test]
fn b_05_many_rows_are_all_written() {
    let device = Device::new("cpu").unwrap();
    let row = f32s(&[1.0, 2.0, 3.0, 4.0], &[4], &device);
    // One past what a grid of 2^16 blocks, and what a float, counts.
    for rows in [65_537, (1 << 24) + 1] {
        let x = row.expand([rows, 4]).unwrap().contiguous().unwrap();
        let out = Tensor::full([rows, 4], 7, DType::F32, &device).unwrap();
        x.layer_norm_out(1, None, None, 1e-5, &out).unwrap();
        let expected = [-1.341_635_4f32, -0.447_211_8, 0.447_211_8, 1.341_635_4];
        let good =
            |row: &[f32]| row.iter().zip(expected).all(|(found, wanted)| (found - wanted).abs() <= 1e-6);
        assert!(read(&out).chunks(4).all(good), "{rows} rows");
        x.softmax_out(1, &out).unwrap();
        let found = read(&out);
        assert!(found.chunks(4).all(|row| row == &found[..4]), "{rows} rows");
    }
}

/// Over 2^32 elements: minutes, and 17 GB.
#[test]
#[ignore = "17 GB; `cargo xtask soak --large`"]
fn b_05_more_elements_than_32_bits_count() {
    let device = Device::new("cpu").unwrap();
    let (rows, columns) = (4_194_305usize, 1024usize);
    let sign = Tensor::from_slice(&[1.0f32, -1.0], [2], &device).unwrap().expand([columns / 2, 2]).unwrap();
    let sign = sign.reshape([1, columns]).unwrap().to(DType::F16).unwrap();
    let scale =
        Tensor::arange(0, rows as i64, 1, DType::I64, &device).unwrap().rem(3).unwrap().add(1).unwrap();
    let x = scale.to(DType::F16).unwrap().unsqueeze(1).unwrap().mul(&sign).unwrap();
    let out = Tensor::full([rows, columns], 7, DType::F16, &device).unwrap();
    x.layer_norm_out(1, None, None, 1e-5, &out).unwrap();
    for row in [0, rows - 2, rows - 1] {
        let found = read(&out.select(0, row as isize).unwrap().to(DType::F32).unwrap());
        assert!(found.chunks(2).all(|pair| pair == [1.0, -1.0]), "row {row}");
    }
}

#[test]
fn b_07_triangles_in_place_are_in_place() {
    on_each(|device| {
        let base = counted(&[3, 3], device).sub(1.0).unwrap();
        base.t().unwrap().tril_(0).unwrap();
        assert_eq!(read(&base), [0.0, 1.0, 2.0, 0.0, 4.0, 5.0, 0.0, 0.0, 8.0]);

        let base = counted(&[2, 3, 2, 2], device);
        base.permute([1, 0, 3, 2]).unwrap().tril_(0).unwrap();
        let found = read(&base);
        for (block, values) in found.chunks(4).enumerate() {
            let p = (4 * block + 1) as f32;
            assert_eq!(values, [p, p + 1.0, 0.0, p + 3.0]);
        }

        let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32, device).unwrap();
        assert_eq!(read(&ones(&[2, 3]).tril(-9).unwrap()), [0.0; 6]);
        assert_eq!(read(&ones(&[2, 3]).triu(-5).unwrap()), [1.0; 6]);
        assert_eq!(
            read(&ones(&[3, 4]).tril(1).unwrap()),
            [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
        );
        for shape in [[0, 3, 3], [2, 3, 0]] {
            assert_eq!(**ones(&shape).tril_(0).unwrap().shape(), shape);
        }
    });
}

#[test]
fn b_08_shifts_by_the_width_and_more() {
    /// By the definition, in 128 bits.
    fn shifted(value: i64, count: i64, dtype: DType, left: bool) -> i64 {
        let bits = 8 * dtype.size_bytes() as i64;
        let beyond = !(0..bits).contains(&count);
        if !left {
            return if beyond { value >> 63 } else { value >> count };
        }
        let wide = if beyond { 0 } else { i128::from(value) << count };
        match dtype {
            DType::U8 => i64::from(wide as u8),
            DType::I32 => i64::from(wide as i32),
            _ => wide as i64,
        }
    }
    on_each(|device| {
        for (dtype, value) in [(DType::U8, 200i64), (DType::I32, -12), (DType::I64, 3), (DType::I64, -3)] {
            for count in [0i64, 1, 8, 31, 32, 40, 63, 64, 72, -1, -64] {
                if dtype == DType::U8 && count < 0 {
                    continue;
                }
                for left in [true, false] {
                    let op =
                        if left { Pointwise::bitwise_left_shift } else { Pointwise::bitwise_right_shift };
                    let expected = vec![shifted(value, count, dtype, left); 11];
                    let packed = Tensor::full([11], value, dtype, device).unwrap();
                    let counts = Tensor::full([11], count, dtype, device).unwrap();
                    let every_second = |x: &Tensor| {
                        let wide = Tensor::zeros([22], dtype, device).unwrap();
                        let view = wide.slice(0, 0, 22, 2).unwrap();
                        view.copy_(x).unwrap();
                        view
                    };
                    let apply = |x: &Tensor, y: raddle::Arg<'_>| {
                        let found = raddle::pointwise(op, &[x.into(), y], &[]).unwrap();
                        found.to(DType::I64).unwrap().to_vec::<i64>().unwrap()
                    };
                    let (strided, strided_counts) = (every_second(&packed), every_second(&counts));
                    let what = format!("{dtype} {value} by {count}, left {left}");
                    assert_eq!(apply(&packed, (&counts).into()), expected, "{what}");
                    assert_eq!(apply(&strided, (&strided_counts).into()), expected, "{what}, strided");
                    assert_eq!(apply(&packed, count.into()), expected, "{what}, a number");
                    assert_eq!(apply(&strided, count.into()), expected, "{what}, strided, a number");
                }
            }
        }
    });
}

#[test]
fn b_09_gradients_of_scattered_values_are_gathered() {
    on_each(|device| {
        let upstream = f32s(&[10.0, 20.0, 30.0, 40.0, 50.0], &[1, 5], device);
        let index = |values: [i64; 3]| Tensor::from_slice(&values, [1, 3], device).unwrap();

        let base = leaf(Tensor::zeros([1, 5], DType::F32, device).unwrap());
        let values = leaf(f32s(&[1.0, 2.0, 3.0], &[1, 3], device));
        let out = base.scatter_add(1, &index([4, 0, 4]), &values).unwrap();
        assert_eq!(read(&out), [2.0, 0.0, 0.0, 0.0, 4.0]);
        out.backward_with(&upstream).unwrap();
        assert_eq!(read(&base.grad().unwrap()), [10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(read(&values.grad().unwrap()), [50.0, 10.0, 50.0]);

        let base = leaf(Tensor::ones([1, 5], DType::F32, device).unwrap());
        let values = leaf(f32s(&[1.0, 2.0, 3.0], &[1, 3], device));
        let out = base.scatter(1, &index([4, 0, 2]), &values).unwrap();
        assert_eq!(read(&out), [2.0, 1.0, 3.0, 1.0, 1.0]);
        out.backward_with(&upstream).unwrap();
        assert_eq!(read(&base.grad().unwrap()), [0.0, 20.0, 0.0, 40.0, 0.0]);
        assert_eq!(read(&values.grad().unwrap()), [50.0, 10.0, 30.0]);

        // Values that are a column of a matrix.
        let matrix = leaf(f32s(&[1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0], &[3, 3], device));
        let column = matrix.select(1, 0).unwrap().unsqueeze(0).unwrap();
        let base = Tensor::zeros([1, 5], DType::F32, device).unwrap();
        base.scatter_add(1, &index([4, 0, 4]), &column).unwrap().backward_with(&upstream).unwrap();
        assert_eq!(read(&matrix.grad().unwrap()), [50.0, 0.0, 0.0, 10.0, 0.0, 0.0, 50.0, 0.0, 0.0]);
    });
}

// ------------------------------------------------------------ streams, events, allocator

fn stream(device: &Device) -> Stream {
    Stream::from_pool(device, Priority::Normal).unwrap()
}

#[test]
fn c_12_a_buffer_that_another_stream_still_reads_is_not_given_out() {
    for seed in 0..200u64 {
        let device = Device::new(&format!("sim:{seed}")).unwrap();
        reports::c_12(&device, seed);
        assert!(device.close().unwrap(), "seed {seed}");
    }
}

#[test]
fn c_13_events_tell_the_truth() {
    for seed in 0..30u64 {
        let options = SimOptions { seed, slow_probability: 1.0, ..SimOptions::default() };
        let device = Device::sim(options).unwrap();
        reports::c_13(&device);
        assert!(device.close().unwrap(), "seed {seed}");
    }
}

// ------------------------------------------------------------ random

#[test]
fn e_20_a_shared_generator_repeats_nothing() {
    let draw = |device: &Device, generator: Option<&Generator>| {
        Tensor::randint(i64::MIN, i64::MAX, [256], DType::I64, device, generator)
            .unwrap()
            .to_vec::<i64>()
            .unwrap()
    };
    let device = Device::new("cpu").unwrap();
    let collect = |on_streams: bool| {
        thread::scope(|scope| {
            let body = || {
                let _guard = on_streams.then(|| stream(&device).enter());
                (0..1000).flat_map(|_| draw(&device, None)).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(body)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<HashSet<_>>()
        })
    };
    assert_eq!(collect(false).len(), 8 * 1000 * 256);
    assert_eq!(collect(true).len(), 8 * 1000 * 256);
    // A seed is kept, whoever draws for the first time meanwhile.
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| draw(&device, None));
        }
        manual_seed(10);
    });
    manual_seed(10);
    assert_eq!(draw(&device, None), draw(&device, Some(&Generator::new(10))));
    let own: HashSet<Vec<i64>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| draw(&device, Some(&Generator::new(5))))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(own.len(), 1);
}

// ------------------------------------------------------------ files

#[test]
fn f_25_broken_files_are_refused() {
    // One of its own, since its allocations are counted.
    let device = Device::new("sim:25").unwrap();
    let folder = std::env::temp_dir().join(format!("raddle-cases-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |shape: &str, offsets: &str, data: usize| {
        let header = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
    };
    let two = |first: &str, second: &str, data: usize| {
        let entry = |name: &str, offsets: &str| {
            format!(r#""{name}":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}"#)
        };
        let header = format!("{{{},{}}}", entry("a", first), entry("b", second));
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
    };
    let length = |length: u64| [&length.to_le_bytes()[..], b"{}"].concat();
    let broken = [
        ("a product that wraps to 0", file("[2147483648,8589934592]", "[0,0]", 0)),
        ("a product that wraps to 2", file("[6148914691236517206,3]", "[0,8]", 8)),
        ("bytes that wrap", file("[4611686018427387904]", "[0,0]", 0)),
        ("negative sizes", file("[-2,-2]", "[0,16]", 16)),
        ("too little data", file("[128,128]", "[0,16]", 16)),
        ("offsets in reverse", file("[4]", "[16,0]", 16)),
        (
            "offsets near the end of all numbers",
            file("[4]", "[18446744073709551600,18446744073709551615]", 16),
        ),
        ("overlap", two("[0,8]", "[4,12]", 12)),
        ("a gap", two("[0,8]", "[12,20]", 20)),
        ("trailing bytes", file("[2]", "[0,8]", 16)),
        ("a header of 2^64 - 1 bytes", length(u64::MAX)),
        ("a header of 2^63 bytes", length(1 << 63)),
        ("a header longer than the file", length(3)),
        ("seven bytes", vec![0; 7]),
        ("nothing", Vec::new()),
    ];
    for (number, (what, bytes)) in broken.iter().enumerate() {
        let path = folder.join(format!("{number}.safetensors"));
        std::fs::write(&path, bytes).unwrap();
        let before = device.memory_stats().allocations;
        let error = nn::checkpoint::load(&path, &device).expect_err(what).to_string();
        assert!(error.contains(&format!("{number}.safetensors")), "{what}: {error}");
        assert!(device.memory_stats().allocations <= before + 16, "{what}: nothing large is allocated");
    }
    let good = folder.join("good.safetensors");
    std::fs::write(&good, file("[2]", "[0,8]", 8)).unwrap();
    assert_eq!(read(&nn::checkpoint::load(&good, &device).unwrap()[0].1), [0.0, 0.0]);
    std::fs::remove_dir_all(&folder).unwrap();
}

// ------------------------------------------------------------ transfers

#[test]
fn g_29_uploads_keep_their_sources() {
    for seed in 0..50u64 {
        let options = SimOptions { seed, slow_probability: 0.5, ..SimOptions::default() };
        let device = Device::sim(options).unwrap();
        let stream = stream(&device);
        let _guard = stream.enter();
        let held = hold(stream).unwrap();
        let d = Tensor::zeros([5000], DType::F32, &device).unwrap();
        let upload = |value: f32| {
            let source = vec![value; 5000];
            let bytes: Vec<u8> = source.iter().flat_map(|value| value.to_ne_bytes()).collect();
            device.upload(d.buffer(), 0, &bytes).unwrap();
            // The source is gone, and its memory is used again.
        };
        upload(1.0);
        let e = d.copy().unwrap();
        upload(2.0);
        let noise = vec![9.0f32; 5000];
        held.release();
        let dropped_early = seed % 2 == 1;
        let last = (!dropped_early).then(|| read(&d));
        drop(d);
        assert!(read(&e).iter().all(|&value| value == 1.0), "seed {seed}");
        assert!(last.is_none_or(|last| last.iter().all(|&value| value == 2.0)), "seed {seed}");
        assert_eq!(noise[17], 9.0);
        drop(e);
        assert!(device.close().unwrap(), "seed {seed}");
    }
}

// ------------------------------------------------------------ devices that lack a dtype

#[test]
fn a_device_lacks_a_dtype() {
    let dtypes = DTypes::ALL.without(DType::F64).without(DType::BF16);
    let device = Device::sim(SimOptions { seed: 3, dtypes, ..SimOptions::default() }).unwrap();
    assert_eq!(device.dtypes(), dtypes);
    let lacks = |op: &str, dtype: &str| {
        let expected = "bool, u8, i32, i64, f16, f32";
        format!("{op}: sim:3 lacks the dtype, expected one of {expected}, found {dtype}")
    };
    let x = f32s(&[1.0, 2.0], &[2], &device);
    let error = |result: Result<Tensor>| result.unwrap_err().to_string();
    assert_eq!(error(Tensor::zeros([2], DType::F64, &device)), lacks("full", "f64"));
    assert_eq!(error(Tensor::from_slice(&[1.0f64], [1], &device)), lacks("from_slice", "f64"));
    assert_eq!(error(x.to(DType::BF16)), lacks("to", "bf16"));
    let elsewhere = Tensor::ones([2], DType::F64, &Device::cpu().unwrap()).unwrap();
    assert_eq!(error(elsewhere.to(&device)), lacks("to", "f64"));
    assert_eq!(read(&x.add(1).unwrap()), [2.0, 3.0]);
    // On a device without i64, what would be computed in it.
    let dtypes = DTypes::ALL.without(DType::I64);
    let narrow = Device::sim(SimOptions { seed: 4, dtypes, ..SimOptions::default() }).unwrap();
    let x = Tensor::from_slice(&[1u8, 2], [2], &narrow).unwrap();
    let text = |error: &str| error.contains("sim:4 lacks the dtype") && error.ends_with("found i64");
    assert!(text(&error(x.sum(0, false))), "{}", error(x.sum(0, false)));
    assert_eq!(x.eq(1).unwrap().to_vec::<bool>().unwrap(), [true, false]);
}

#[test]
fn cases_skip_what_a_device_lacks() {
    let dtypes = DTypes::ALL.without(DType::BF16);
    let names = ["normalize::layer_norm", "order::sort"]; // random calls mix dtypes, and don't know yet
    let cases: Vec<_> = suites::all().into_iter().filter(|case| names.contains(&&*case.name)).collect();
    assert_eq!(cases.len(), names.len());
    for case in cases {
        let device = Device::sim(SimOptions { seed: 5, dtypes, ..SimOptions::default() }).unwrap();
        (case.body)(&device);
        assert!(device.close().unwrap(), "{}: buffers are alive after the case", case.name);
    }
}
