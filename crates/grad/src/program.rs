//! Pointwise ops and fused closures: the program that is derived for all inputs.

use raddle_op::{Inst, PARAM_COUNT_MAX, Program, ProgramRef};
use raddle_tensor::{
    Arg, CallArg, DType, Pointwise, Result as TensorResult, Scalar,
    record::{Record, refuse},
    result_type,
};
use smallvec::SmallVec;
use std::{cell::RefCell, collections::HashMap, sync::Arc};

/// How the gradients are computed.
pub(crate) struct Gradient {
    pub name: &'static str,
    /// Its inputs: the gradients of the outputs, then the op's inputs.
    pub program: ProgramRef,
    pub compute: DType,
    pub params: SmallVec<[Scalar; PARAM_COUNT_MAX]>,
    /// Which inputs' gradients it yields, in its order.
    pub computed: SmallVec<[usize; 4]>,
    /// The inputs whose gradient is the output's.
    pub passed: SmallVec<[usize; 4]>,
    /// The inputs that it reads, as bits.
    pub needs: u64,
}

/// The position in the op's row of a recorded input.
pub(crate) fn row_position(args: &[CallArg], input: usize) -> Option<usize> {
    let mut tensors = args.iter().enumerate().filter(|(_, arg)| **arg == CallArg::Tensor);
    tensors.nth(input).map(|(position, _)| position)
}

/// Which gradients pass the output's on.
fn passes(program: &Program) -> impl Fn(usize) -> bool {
    |output| program.insts()[program.outputs()[output].0 as usize] == Inst::Input(0)
}

impl Gradient {
    pub fn of_row(
        record: &Record<'_>,
        op: Pointwise,
        args: &[CallArg],
        row_params: &[Scalar],
        wanted: &[usize],
    ) -> TensorResult<Gradient> {
        let name = op.name();
        let position = |input: usize| row_position(args, input).expect("as many tensors as were recorded");
        let mut params: SmallVec<[Scalar; PARAM_COUNT_MAX]> = row_params.into();
        params.truncate(op.row().params.len());
        let (mut scalars, mut typed, mut tensors) =
            (0, SmallVec::<[Arg<'_>; 4]>::new(), record.inputs.iter());
        for (position, arg) in args.iter().enumerate() {
            let arg = match arg {
                CallArg::Scalar(value) => {
                    scalars |= 1 << position;
                    params.push(*value);
                    Arg::Scalar(*value)
                }
                CallArg::Tensor => Arg::Tensor(tensors.next().expect("as many tensors as were recorded")),
            };
            if !op.is_condition(position) {
                typed.push(arg);
            }
        }
        let compute = op
            .operand_dtype(result_type(&typed))
            .ok_or_else(|| refuse(name, "its dtype has no gradient"))?
            .compute();
        let derive = |wanted: &[usize]| {
            let rows: SmallVec<[usize; 4]> = wanted.iter().map(|&input| position(input)).collect();
            op.gradient_program_with(&rows, scalars).ok_or_else(|| refuse(name, "it has no gradient"))
        };
        let whole = derive(wanted)?;
        let (passed, computed) = split(wanted, passes(whole));
        let program = if passed.is_empty() { whole } else { derive(&computed)? };
        let needs = needs(program, 1);
        let program = ProgramRef::Static(program);
        Ok(Gradient { name, program, compute, params, computed, passed, needs })
    }

    pub fn of_closure(program: &Arc<Program>, compute: DType, wanted: SmallVec<[usize; 4]>) -> Gradient {
        let outputs = program.outputs().len();
        let whole = derived(program, &wanted);
        let (passed, computed) = split(&wanted, |output| outputs == 1 && passes(&whole)(output));
        let program = if passed.is_empty() { whole } else { derived(program, &computed) };
        let needs = needs(&program, outputs);
        let program = ProgramRef::Shared(program);
        Gradient { name: "fused", program, compute, params: SmallVec::new(), computed, passed, needs }
    }
}

/// Inputs whose gradient is passed on, and those whose gradient is computed.
fn split(wanted: &[usize], passes: impl Fn(usize) -> bool) -> (SmallVec<[usize; 4]>, SmallVec<[usize; 4]>) {
    let mut parts = (SmallVec::new(), SmallVec::new());
    for (output, &input) in wanted.iter().enumerate() {
        if passes(output) { parts.0.push(input) } else { parts.1.push(input) }
    }
    parts
}

/// Which inputs behind the first `skipped` a program reads.
fn needs(program: &Program, skipped: usize) -> u64 {
    program.insts().iter().fold(0, |needs, inst| match *inst {
        Inst::Input(input) if usize::from(input) >= skipped => needs | 1 << (usize::from(input) - skipped),
        _ => needs,
    })
}

/// How many derived programs a thread remembers (guess); at more it begins anew.
pub(crate) const REMEMBERED_MAX: usize = 256;

/// The gradients by each set of inputs that was asked for.
type BySet = Vec<(SmallVec<[usize; 4]>, Arc<Program>)>;

thread_local! {
    /// Derived programs of closures, by content: a closure may be recorded anew for each call, as dropout's is.
    static DERIVED: RefCell<HashMap<Arc<Program>, BySet>> = RefCell::default();
}

fn derived(program: &Arc<Program>, wanted: &[usize]) -> Arc<Program> {
    let remembered = DERIVED.try_with(|remembered| {
        let mut remembered = remembered.borrow_mut();
        if remembered.len() >= REMEMBERED_MAX && !remembered.contains_key(program) {
            remembered.clear();
        }
        let sets = remembered.entry(program.clone()).or_default();
        if let Some((_, gradient)) = sets.iter().find(|(set, _)| set[..] == *wanted) {
            return gradient.clone();
        }
        let gradient = Arc::new(program.gradient(wanted));
        sets.push((wanted.into(), gradient.clone()));
        gradient
    });
    // A thread that ends remembers nothing.
    remembered.unwrap_or_else(|_| Arc::new(program.gradient(wanted)))
}
