//! What launches are planned as. (That the texts compute what they should is tested on a GPU, that they compile by
//! `cargo xtask kernels`.)

use super::{
    geometry::is_aligned,
    plan, plan_over,
    steps::{BIAS_ALIGNMENT_BYTES, KernelStep, MatMulStep, Plan, Step},
};
use raddle_base::{DType, Dims, Layout, Scalar};
use raddle_hal::{Address, Kernel, Operand, View};
use raddle_op::{Activation, PARAM_COUNT_MAX, Pointwise, ReduceOp, ScatterMode};
use raddle_sync::faults::{Fault, assert_caught};

/// A view whose first element lies at 2^20.
fn strided(dtype: DType, shape: &[usize], strides: &[usize]) -> View {
    let layout = Layout::new(Dims::new(shape).unwrap(), Dims::new(strides).unwrap(), 0);
    View { address: Address { handle: 1 << 20, offset_bytes: 0 }, dtype, layout }
}

fn packed(dtype: DType, shape: &[usize]) -> View {
    let layout = Layout::contiguous(Dims::new(shape).unwrap());
    View { address: Address { handle: 1 << 20, offset_bytes: 0 }, dtype, layout }
}

fn planned(kernel: &Kernel, outputs: &[View], inputs: &[View]) -> Plan {
    let operands: Vec<Operand> = (outputs.iter().map(|view| Operand::Out(*view)))
        .chain(inputs.iter().map(|view| Operand::In(*view)))
        .collect();
    plan(kernel, &operands)
}

fn pointwise(op: Pointwise, compute: DType, groups: usize) -> Kernel {
    Kernel::Pointwise { program: op.into(), compute, params: [Scalar::Float(1.0); PARAM_COUNT_MAX], groups }
}

fn kernels(plan: &Plan) -> Vec<&KernelStep> {
    let kernels = plan.steps.iter().map(|step| match step {
        Step::Kernel(step) => step,
        _ => panic!("not a kernel: {step:?}"),
    });
    kernels.collect()
}

/// The Debug text of a key tells the path.
fn keys(plan: &Plan) -> Vec<String> {
    kernels(plan).iter().map(|step| format!("{:?}", step.key)).collect()
}

#[test]
fn contiguous_operands_are_taken_16_bytes_at_a_time() {
    let x = packed(DType::F32, &[100, 10]);
    let plan = planned(&pointwise(Pointwise::add, DType::F32, 1), &[x], &[x, x]);
    let mut steps = kernels(&plan);
    let step = steps.pop().unwrap();
    assert!(format!("{:?}", step.key).contains("Flat { groups: 1 }, vector: 4, unroll: 1"), "{:?}", step.key);
    assert_eq!((step.grid, step.block), ([1, 1, 1], [256, 1, 1]));
    // Three pointers, the count, the first block.
    let mut args = step.args.clone();
    let words: Vec<u64> =
        args.resolve(0, 0).chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [1 << 20, 1 << 20, 1 << 20, 1000, 0]);
}

#[test]
fn nothing_stays_of_a_plan_whose_memory_is_used_again() {
    let (x, y) = (packed(DType::F32, &[2000, 1000]), strided(DType::F32, &[2000, 1000], &[1, 2000]));
    let (row, none) = (packed(DType::F32, &[1000]), packed(DType::F32, &[0]));
    let sum = Kernel::Reduce { op: ReduceOp::Sum, axes: 0b01, divisor: 1.0 };
    let launches: [(Kernel, Vec<View>, Vec<View>); 6] = [
        (pointwise(Pointwise::add, DType::F32, 1), vec![x], vec![x, x]),
        (pointwise(Pointwise::add, DType::F32, 1), vec![y], vec![x, y]),
        (pointwise(Pointwise::add, DType::F32, 2), vec![x, x, x], vec![row, row, row]),
        (pointwise(Pointwise::neg, DType::F32, 1), vec![none], vec![none]),
        (sum, vec![packed(DType::F32, &[1, 1000])], vec![x]),
        (
            matmul(false, Activation::None),
            vec![packed(DType::F32, &[1, 64, 64])],
            vec![packed(DType::F32, &[1, 64, 64]), packed(DType::F32, &[1, 64, 64])],
        ),
    ];
    let mut used = Plan::default();
    for (first, second) in (0..36).map(|pair| (pair / 6, pair % 6)) {
        for (kernel, outputs, inputs) in [&launches[first], &launches[second]] {
            let operands: Vec<Operand> = (outputs.iter().map(|view| Operand::Out(*view)))
                .chain(inputs.iter().map(|view| Operand::In(*view)))
                .collect();
            plan_over(&mut used, kernel, &operands);
            assert_eq!(format!("{used:?}"), format!("{:?}", plan(kernel, &operands)));
        }
    }
}

#[test]
fn what_is_transposed_alike_is_contiguous() {
    let x = strided(DType::F32, &[100, 64], &[1, 100]);
    let plan = planned(&pointwise(Pointwise::add, DType::F32, 1), &[x], &[x, x]);
    assert!(keys(&plan)[0].contains("Flat"));
}

#[test]
fn what_is_transposed_differently_goes_by_tiles() {
    let (x, y) = (packed(DType::F32, &[100, 64]), strided(DType::F32, &[100, 64], &[1, 100]));
    let plan = planned(&pointwise(Pointwise::add, DType::F32, 1), &[y], &[x, y]);
    assert!(keys(&plan)[0].contains("Tiled"));
    assert_eq!(kernels(&plan)[0].grid, [2, 1, 1]);
    // Short axes don't fill tiles.
    let (x, y) = (packed(DType::F32, &[100, 3]), strided(DType::F32, &[100, 3], &[1, 100]));
    let plan = planned(&pointwise(Pointwise::add, DType::F32, 1), &[y], &[x, y]);
    assert!(keys(&plan)[0].contains("Strided"));
}

#[test]
fn a_bias_of_a_row_keeps_wide_accesses() {
    let (x, bias) = (packed(DType::F32, &[10, 64]), strided(DType::F32, &[10, 64], &[0, 1]));
    let plan = planned(&pointwise(Pointwise::add, DType::F32, 1), &[x], &[x, bias]);
    assert!(keys(&plan)[0].contains("Strided { rank: 2, wide: false }, vector: 4"), "{:?}", keys(&plan));
    let odd = strided(DType::F32, &[10, 63], &[0, 1]);
    let x = packed(DType::F32, &[10, 63]);
    let plan = planned(&pointwise(Pointwise::add, DType::F32, 1), &[x], &[x, odd]);
    assert!(keys(&plan)[0].contains("vector: 1"));
}

#[test]
fn offsets_past_31_bits_are_wide() {
    let (x, y) =
        (packed(DType::U8, &[1 << 20, 1 << 12]), strided(DType::U8, &[1 << 20, 1 << 12], &[1, 1 << 20]));
    let plan = planned(&pointwise(Pointwise::add, DType::U8, 1), &[x], &[x, y]);
    assert!(keys(&plan)[0].contains("wide: true"), "{:?}", keys(&plan));
}

#[test]
fn many_groups_are_few_launches() {
    let x = packed(DType::F32, &[100]);
    let operands = vec![x; 3 * 200];
    let plan = planned(&pointwise(Pointwise::add, DType::F32, 200), &operands, &[]);
    assert_eq!(plan.steps.len(), 2);
    assert!(kernels(&plan).iter().map(|step| step.grid[0]).sum::<u32>() == 200);
    for step in kernels(&plan) {
        assert!(step.args.clone().resolve(0, 0).len() <= 4096);
    }
}

#[test]
fn nothing_is_done_for_empty_outputs() {
    let x = packed(DType::F32, &[0, 4]);
    assert!(planned(&pointwise(Pointwise::add, DType::F32, 1), &[x], &[x, x]).steps.is_empty());
    let kernel = Kernel::Sort { axis: 1, descending: false };
    assert!(planned(&kernel, &[x, packed(DType::I64, &[0, 4])], &[x]).steps.is_empty());
}

#[test]
fn a_sum_of_much_has_two_stages() {
    let kernel = Kernel::Reduce { op: ReduceOp::Sum, axes: 0b11, divisor: 1.0 };
    let plan = planned(&kernel, &[packed(DType::F32, &[1, 1])], &[packed(DType::F32, &[8192, 8192])]);
    assert_eq!(kernels(&plan).iter().map(|step| step.grid[0]).collect::<Vec<_>>(), [1024, 1]);
    assert_eq!(plan.scratch_bytes, 1024 * 4);
    let plan = planned(&kernel, &[packed(DType::F32, &[1, 1])], &[packed(DType::F32, &[8, 8])]);
    assert_eq!((plan.steps.len(), plan.scratch_bytes), (1, 0));
}

#[test]
fn rows_with_holes_are_staged() {
    let kernel = Kernel::Softmax { axis: 0, log: false };
    let x = packed(DType::F32, &[50, 60]);
    let plan = planned(&kernel, &[x], &[x]);
    // Turned, made, turned back.
    assert_eq!(plan.steps.len(), 3);
    assert_eq!(plan.scratch_bytes, 12_032 + 12_000);
}

#[test]
fn attention_is_one_launch_wherever_its_operands_lie() {
    let kernel = Kernel::Attention { scale: 1.0, causal: false, mask: false };
    // Queries, keys and values side by side in rows, as one product makes them.
    let side = |dtype, texts: usize, rows: usize| {
        strided(dtype, &[texts, 12, rows, 32], &[rows * 1152, 32, 1152, 1])
    };
    for (dtype, texts, rows, setting, blocks) in [
        (DType::F16, 1, 16, "(WARPS, Number(1))", 12),
        (DType::F16, 1, 32, "(WARPS, Number(2))", 12),
        (DType::BF16, 64, 128, "(WARPS, Number(2))", 64 * 12 * 4),
        (DType::F32, 1, 32, "(OWN, Number(4))", 12 * 2),
        (DType::F32, 64, 32, "(OWN, Number(8))", 64 * 12),
    ] {
        let x = side(dtype, texts, rows);
        let plan = planned(&kernel, &[x], &[x, x, x]);
        assert_eq!((plan.steps.len(), plan.scratch_bytes), (1, 0));
        let step = kernels(&plan)[0];
        let text = format!("{:?}", step.key);
        assert!(text.contains(setting), "{setting}: {text}");
        assert_eq!(step.grid[0], blocks);
        assert_eq!(text.contains("(ALIGNED, Number(1))"), dtype != DType::F32);
    }
    // Rows that don't start evenly, and columns that don't lie side by side.
    let uneven = strided(DType::F16, &[1, 12, 32, 32], &[0, 32, 385, 1]);
    let plan = planned(&kernel, &[uneven], &[uneven, uneven, uneven]);
    assert!(format!("{:?}", kernels(&plan)[0].key).contains("(ALIGNED, Number(0))"));
    let turned = strided(DType::F16, &[1, 12, 32, 32], &[0, 1024, 1, 32]);
    let plan = planned(&kernel, &[turned], &[turned, turned, turned]);
    assert!(format!("{:?}", kernels(&plan)[0].key).contains("AttentionAny"));
}

#[test]
fn layer_norm_shares_rows_as_measured() {
    let key = |kernel: &Kernel, outputs: &[View], inputs: &[View]| {
        let plan = planned(kernel, outputs, inputs);
        let first = kernels(&plan)[0];
        (format!("{:?}", first.key), first.grid[0])
    };
    let (x, row, statistic) =
        (packed(DType::F32, &[16384, 1024]), packed(DType::F32, &[1024]), packed(DType::F32, &[16384, 1]));
    let forward = Kernel::LayerNorm { axes: 1, eps: 1e-5, weight: true, bias: true, addend: false };
    let (text, blocks) = key(&forward, &[x, statistic, statistic], &[x, row, row]);
    for setting in ["(LANES, Number(128))", "(CHUNKS, Number(2))", "(RESIDENT, Number(2048))"] {
        assert!(text.contains(setting), "{setting}: {text}");
    }
    assert_eq!(blocks, 16384);
    let backward = Kernel::LayerNormBackward { axes: 1, weight: true, bias: true };
    let (text, blocks) = key(&backward, &[x, row, row], &[x, x, statistic, statistic, row]);
    for setting in
        ["(LANES, Number(256))", "(CHUNKS, Number(1))", "(RESIDENT, Number(1024))", "(AHEAD, Number(1))"]
    {
        assert!(text.contains(setting), "{setting}: {text}");
    }
    // 528 spans or fewer, of as many rows each as the first.
    assert_eq!(blocks, 16384 / 32);
}

#[test]
fn one_value_goes_to_many_places_without_sorting() {
    let (target, index) = (packed(DType::I64, &[1536]), packed(DType::I64, &[8192]));
    let (one, many) = (strided(DType::I64, &[8192], &[0]), packed(DType::I64, &[8192]));
    let kernels = |mode, values| {
        keys(&planned(&Kernel::Scatter { axis: 0, mode, repeats: 1 }, &[target], &[index, values]))
    };
    let alike = kernels(ScatterMode::Overwrite, one);
    assert!(
        matches!(&alike[..], [check, scatter] if check.contains("CheckIndex") && scatter.contains("Scatter,")),
        "{alike:?}"
    );
    for sorted in [kernels(ScatterMode::Overwrite, many), kernels(ScatterMode::Add, one)] {
        assert!(sorted.last().is_some_and(|last| last.contains("ScatterSorted")), "{sorted:?}");
    }
}

#[test]
fn a_few_runs_are_put_together_at_once() {
    let merged = |rows: usize, count: usize| {
        let shape = [rows, count];
        let sort = Kernel::Sort { axis: 1, descending: false };
        let (x, index) = (packed(DType::F32, &shape), packed(DType::I64, &shape));
        keys(&planned(&sort, &[x, index], &[x]))
    };
    let count = |keys: &[String], name: &str| keys.iter().filter(|key| key.contains(name)).count();
    for (rows, length, ranks, merges) in [
        (64, 2048, 0, 0),
        (8, 2048, 1, 0),
        (1, 1024, 0, 0),
        (1, 32768, 1, 0),
        (8, 16384, 0, 3),
        (1, 32769, 0, 5),
    ] {
        let keys = merged(rows, length);
        assert_eq!((count(&keys, "SortRank"), count(&keys, "SortMerge")), (ranks, merges), "{keys:?}");
    }
}

fn product(kernel: &Kernel, outputs: &[View], inputs: &[View]) -> MatMulStep {
    let plan = planned(kernel, outputs, inputs);
    let found = plan.steps.into_iter().find_map(|step| match step {
        Step::MatMul(step) => Some(step),
        _ => None,
    });
    found.expect("there is a product")
}

fn matmul(bias: bool, activation: Activation) -> Kernel {
    Kernel::MatMul { alpha: 1.0, beta: 0.0, bias, accumulate: false, activation }
}

#[test]
fn batches_with_one_right_side_are_one_product() {
    let (x, y) = (packed(DType::F16, &[4, 32, 64]), packed(DType::F16, &[4, 32, 16]));
    // The weight of a linear layer, [16, 64] row-major.
    let weight = strided(DType::F16, &[4, 64, 16], &[0, 1, 64]);
    let bias = strided(DType::F16, &[4, 32, 16], &[0, 0, 1]);
    let step = product(&matmul(true, Activation::Relu), &[y], &[x, weight, bias]);
    assert_eq!((step.batch, step.m, step.n, step.k), (1, 128, 16, 64));
    assert!(step.b.transposed && step.b.leading == 64 && step.relu && step.bias.is_some());
}

#[test]
fn the_exact_gelu_follows_the_product() {
    let (x, y) = (packed(DType::F32, &[1, 32, 64]), packed(DType::F32, &[1, 32, 16]));
    let weight = packed(DType::F32, &[1, 64, 16]);
    let plan = planned(&matmul(false, Activation::Gelu), &[y], &[x, weight]);
    assert!(matches!(plan.steps[..], [Step::MatMul(_), Step::Kernel(_)]));
}

#[test]
fn matrices_with_holes_are_copied() {
    let y = strided(DType::F32, &[1, 32, 16], &[0, 64, 2]);
    let x = strided(DType::F32, &[1, 32, 64], &[0, 256, 2]);
    let plan = planned(&matmul(false, Activation::None), &[y], &[x, packed(DType::F32, &[1, 64, 16])]);
    assert!(matches!(plan.steps[..], [Step::Kernel(_), Step::MatMul(_), Step::Kernel(_)]));
}

#[test]
fn every_source_defines_its_entry() {
    for (name, key) in super::catalogue() {
        let source = key.source();
        assert!(source.contains(&format!(" {}(const ", key.entry())), "{name}");
        assert!(!source.contains("#include"), "{name}");
    }
}

#[test]
fn few_rows_take_all_that_follows_along() {
    let y = packed(DType::F32, &[1, 4, 16]);
    let x = strided(DType::F32, &[1, 4, 64], &[0, 1, 4]);
    let inputs = [x, packed(DType::F32, &[1, 64, 16]), strided(DType::F32, &[1, 4, 16], &[0, 0, 1])];
    let plan = planned(&matmul(true, Activation::Gelu), &[y], &inputs);
    // The left side is packed first.
    assert_eq!(
        kernels(&plan).iter().map(|step| step.key.entry()).collect::<Vec<_>>(),
        ["pointwise", "few_rows"]
    );
}

#[test]
fn some_rows_of_16_bits_take_all_that_follows_along() {
    let entries = |dtype: DType, m: usize, k: usize, turned: bool| {
        let strides = if turned { [0, 1, k] } else { [0, 96, 1] };
        let inputs = [
            packed(dtype, &[1, m, k]),
            strided(dtype, &[1, k, 96], &strides),
            strided(dtype, &[1, m, 96], &[0, 0, 1]),
        ];
        let plan = planned(&matmul(true, Activation::Gelu), &[packed(dtype, &[1, m, 96])], &inputs);
        plan.steps
            .iter()
            .map(|step| match step {
                Step::Kernel(step) => step.key.entry(),
                _ => "product",
            })
            .collect::<Vec<_>>()
    };
    for turned in [false, true] {
        assert_eq!(entries(DType::F16, 32, 64, turned), ["some_rows"]);
        assert_eq!(entries(DType::BF16, 64, 72, turned), ["some_rows"]);
        assert_eq!(entries(DType::F16, 65, 64, turned), ["product", "pointwise"]);
        assert_eq!(entries(DType::F32, 32, 64, turned), ["product", "pointwise"]);
        // Eight neighbours wouldn't be loaded at once.
        assert_eq!(entries(DType::F16, 32, 68, turned), ["product", "pointwise"]);
    }
}

/// A bias where it lies if the library can read it there, and copied if not, whatever the start of its view.
#[test]
fn a_bias_lies_where_the_library_can_read_it() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for start in 0..=16 {
            let (x, weight, y) =
                (packed(dtype, &[1, 70, 30]), packed(dtype, &[1, 30, 24]), packed(dtype, &[1, 70, 24]));
            let mut bias = strided(dtype, &[1, 70, 24], &[0, 0, 1]);
            bias.layout = Layout::new(*bias.layout.shape(), *bias.layout.strides(), start);
            let plan = planned(&matmul(true, Activation::None), &[y], &[x, weight, bias]);
            let Some(Step::MatMul(step)) = plan.steps.last() else { panic!("{:?}", plan.steps) };
            let place = step.bias.expect("a row goes along");
            assert!(is_aligned(place, BIAS_ALIGNMENT_BYTES), "{dtype} from {start}: {place:?}");
            let lies_well = (start * dtype.size_bytes()).is_multiple_of(BIAS_ALIGNMENT_BYTES);
            assert_eq!(plan.steps.len(), if lies_well { 1 } else { 2 }, "{dtype} from {start}");
        }
    }
}

#[test]
fn fault_bias_where_it_lies() {
    assert_caught(Fault::bias_where_it_lies, "kernels::tests::a_bias_lies_where_the_library_can_read_it");
}

/// Not a benchmark, which would need a quiet machine: `cargo test --release -- --ignored --nocapture planning`.
#[test]
#[ignore = "prints times"]
fn planning_takes() {
    let x = packed(DType::F32, &[256]);
    let operands = [Operand::Out(x), Operand::In(x), Operand::In(x)];
    let kernel = pointwise(Pointwise::add, DType::F32, 1);
    let start = std::time::Instant::now();
    for _ in 0..1_000_000 {
        std::hint::black_box(plan(std::hint::black_box(&kernel), &operands));
    }
    println!("planning: {} ns", start.elapsed().as_nanos() / 1_000_000);
}
