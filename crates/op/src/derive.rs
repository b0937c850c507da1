//! Differentiation: the program that computes, from the gradients of a program's outputs, those of its inputs.
//!
//! Reverse mode over the instructions. The result is a program like any other: it can be launched, rendered, fused and
//! differentiated again. Equal subexpressions, those of the forward computation among them, are computed once.
//!
//! What holds at the singular points is stated with the rules in `pull_back` and follows PyTorch. A choice is where a
//! derivative usually goes wrong: `select(x > 0, √x, 0)` has the gradient 0 at 0, yet the chain rule says `0 · ∞`. So the
//! gradient of a branch isn't masked before it is carried through the branch, but after: each [`Adjoint`] carries the
//! condition under which it counts, and what lies outside of it, NaN or not, is dropped where it is used up.
//!
//! Two rules depend on how a formula is written. Bounds made of `minimum` and `maximum` share the gradient at a tie, while
//! `clamp` between numbers as a row of its own passes nothing; and a function that is smooth but written with `abs` has the
//! derivative 0 at 0. Rows are written, or state their gradients, with that in mind.

use crate::{
    Pointwise,
    expr::{Expr, Mask, Recorded, Recorder},
    program::{Binary, Compare, Id, Inst, Logic, Program, Unary},
};
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10};

/// The gradient by one value, as far as it has been gathered.
#[derive(Clone, Copy)]
struct Adjoint<'r> {
    value: Expr<'r>,
    /// Where it counts; elsewhere the gradient is 0 and `value` may be anything. Everywhere if none.
    guard: Option<Mask<'r>>,
}

impl<'r> Adjoint<'r> {
    /// The gradient itself, 0 where it doesn't count.
    fn settle(self) -> Expr<'r> {
        self.guard.map_or(self.value, |guard| guard.select(self.value, 0.0))
    }

    /// The same, counted only where `mask` is true too.
    fn within(self, mask: Mask<'r>) -> Adjoint<'r> {
        Adjoint { guard: Some(self.guard.map_or(mask, |guard| guard & mask)), ..self }
    }

    /// The sum of two.
    fn plus(self, other: Adjoint<'r>) -> Adjoint<'r> {
        match (self.guard, other.guard) {
            (None, None) => Adjoint { value: self.value + other.value, guard: None },
            (Some(a), Some(b)) if a.id() == b.id() => {
                Adjoint { value: self.value + other.value, guard: Some(a) }
            }
            (Some(a), Some(b)) => match complement(a, b) {
                Some((guard, mask)) => Adjoint { value: mask.select(self.value, other.value), guard },
                None => Adjoint { value: self.settle() + other.settle(), guard: Some(a | b) },
            },
            _ => Adjoint { value: self.settle() + other.settle(), guard: None },
        }
    }
}

/// If exactly one of `a` and `b` is true wherever some guard is: the guard, and what is true where `a` is.
fn complement<'r>(a: Mask<'r>, b: Mask<'r>) -> Option<(Option<Mask<'r>>, Mask<'r>)> {
    let recorder = a.recorder();
    match (recorder.inst(a.id()), recorder.inst(b.id())) {
        (Inst::Not(not_a), _) if not_a == b.id() => Some((None, a)),
        (_, Inst::Not(not_b)) if not_b == a.id() => Some((None, a)),
        (Inst::Logic(Logic::And, guard, a), Inst::Logic(Logic::And, other, b)) if guard == other => {
            match complement(recorder.mask_at(a), recorder.mask_at(b))? {
                (None, mask) => Some((Some(recorder.mask_at(guard)), mask)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The gradients of an instruction's operands, given its own value `y` and gradient `g`. Choices aren't dealt with here.
fn pull_back<'r>(inst: Inst, y: Expr<'r>, g: Expr<'r>) -> [Option<Expr<'r>>; 2] {
    let recorder = g.recorder();
    match inst {
        Inst::Unary(op, x) => {
            let x = recorder.number_at(x);
            let by_x = match op {
                Unary::Neg => -g,
                // 0 at 0 and at NaN.
                Unary::Abs => x.lt(0.0).select(-g, x.gt(0.0).select(g, 0.0)),
                // Infinite at 0.
                Unary::Sqrt => g / (2.0 * y),
                Unary::Exp => g * y,
                // Not y + 1, which loses its digits where eˣ is small.
                Unary::Expm1 => g * x.exp(),
                Unary::Log => g / x,
                Unary::Log1p => g / (1.0 + x),
                Unary::Log2 => g / (x * LN_2),
                Unary::Log10 => g / (x * LN_10),
                Unary::Sin => g * x.cos(),
                Unary::Cos => -(g * x.sin()),
                Unary::Tan => g * (1.0 + y * y),
                // Not 1 - y², which has no digits where y is near 1.
                Unary::Tanh => {
                    let e = (-2.0 * x.abs()).exp();
                    g * (4.0 * e / ((1.0 + e) * (1.0 + e)))
                }
                Unary::Asin => g / ((1.0 - x) * (1.0 + x)).sqrt(),
                Unary::Acos => -(g / ((1.0 - x) * (1.0 + x)).sqrt()),
                Unary::Atan => g / (1.0 + x * x),
                Unary::Erf => g * (FRAC_2_SQRT_PI * (-(x * x)).exp()),
                Unary::Erfc => -(g * (FRAC_2_SQRT_PI * (-(x * x)).exp())),
                Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::BitNot => return [None; 2],
            };
            [Some(by_x), None]
        }
        Inst::Binary(op, a, b) => {
            let (a, b) = (recorder.number_at(a), recorder.number_at(b));
            // At a tie each has half. Of NaN both have all.
            let nearer = |a: Expr<'r>, b: Expr<'r>| a.eq(b).select(0.5 * g, b.lt(a).select(0.0, g));
            let (by_a, by_b) = match op {
                Binary::Add => (g, g),
                Binary::Sub => (g, -g),
                Binary::Mul => (g * b, g * a),
                Binary::Div => (g / b, -(g * (y / b))),
                // The multiple of b that was taken away; a / b may be rounded up to the next.
                Binary::Rem => (g, -(g * ((a - y) / b).round())),
                // x⁰ is 1 everywhere, and 0ʸ is 0 for positive y and 1 at y = 0, which counts as flat.
                Binary::Pow => (
                    b.eq(0.0).select(0.0, g * (b * a.pow(b - 1.0))),
                    (a.eq(0.0) & b.ge(0.0)).select(0.0, g * (y * a.log())),
                ),
                // In units of the larger, so that the squares neither overflow nor vanish. The origin has no angle, and
                // counts as flat.
                Binary::Atan2 => {
                    let size = a.abs().maximum(b.abs());
                    let unit = (size.gt(0.0) & size.lt(f64::INFINITY)).select(size, 1.0);
                    let (a, b) = (a / unit, b / unit);
                    let by = |x: Expr<'r>| size.eq(0.0).select(0.0, g * (x / (a * a + b * b) / unit));
                    (by(b), by(-a))
                }
                Binary::Min => (nearer(a, b), nearer(b, a)),
                Binary::Max => (nearer(-a, -b), nearer(-b, -a)),
                Binary::BitAnd | Binary::BitOr | Binary::BitXor | Binary::Shl | Binary::Shr => {
                    return [None; 2];
                }
            };
            [Some(by_a), Some(by_b)]
        }
        _ => [None; 2],
    }
}

impl Program {
    /// The program of the gradients by the inputs `wrt`. Its inputs are a gradient `g` for each output of this program,
    /// then the inputs of this program; its parameters are those of this program; its outputs stand in the order of
    /// `wrt`. Where nothing depends on an input its gradient is 0. Meant for float compute dtypes.
    ///
    /// ```
    /// use raddle_op::Program;
    /// let square = Program::record(|[x]| x * x);
    /// assert_eq!(square.gradient(&[0]), Program::record(|[g, x]| g * x + g * x));
    /// ```
    pub fn gradient(&self, wrt: &[usize]) -> Program {
        let recorder = Recorder::default();
        let gradients = self.outputs.len();

        let given: Vec<Expr> = (0..gradients).map(|output| recorder.input(output)).collect();

        // The forward computation, and which of its numbers depend on `wrt`.
        let mut ids: Vec<Id> = Vec::with_capacity(self.insts.len());
        let mut active = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            active.push(match *inst {
                Inst::Input(index) => wrt.contains(&usize::from(index)),
                Inst::FromMask(_) => false,
                inst => !inst.is_mask() && inst.operands().any(|id| active[id.0 as usize]),
            });
            ids.push(match *inst {
                Inst::Input(index) => recorder.input(usize::from(index) + gradients).id(),
                inst => recorder.push(inst.map(|id| ids[id.0 as usize])),
            });
        }

        // Backwards: every use of a value stands after it, so that its adjoint is whole when it is reached.
        let mut adjoints = Adjoints { active, gathered: vec![None; self.insts.len()] };
        for (&id, &value) in self.outputs.iter().zip(&given) {
            adjoints.give(id, Adjoint { value, guard: None });
        }
        let mut by_input = vec![None; self.input_count()];
        for (position, &inst) in self.insts.iter().enumerate().rev() {
            let Some(adjoint) = adjoints.gathered[position] else { continue };
            match inst {
                Inst::Input(index) => by_input[usize::from(index)] = Some(adjoint.settle()),
                Inst::Select(mask, yes, no) => {
                    let mask = recorder.mask_at(ids[mask.0 as usize]);
                    adjoints.give(yes, adjoint.within(mask));
                    adjoints.give(no, adjoint.within(!mask));
                }
                _ => {
                    let y = recorder.number_at(ids[position]);
                    let forward = inst.map(|id| ids[id.0 as usize]);
                    let pulled = pull_back(forward, y, adjoint.value);
                    for (operand, pulled) in inst.operands().zip(pulled) {
                        if let Some(value) = pulled {
                            adjoints.give(operand, Adjoint { value, ..adjoint });
                        }
                    }
                }
            }
        }
        let outputs: Vec<Id> =
            wrt.iter().map(|&input| by_input[input].unwrap_or_else(|| recorder.literal(0.0)).id()).collect();
        recorder.finish(self.input_count() + gradients, self.param_count(), &outputs).simplify()
    }

    /// The same with what is known beforehand left out: arithmetic of literals, and operations that change no float,
    /// not even in the sign of a zero.
    fn simplify(&self) -> Program {
        let recorder = Recorder::default();
        let mut ids: Vec<Id> = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            let inst = inst.map(|id| ids[id.0 as usize]);
            ids.push(simpler(&recorder, inst).unwrap_or_else(|| recorder.push(inst)));
        }
        let outputs: Vec<Id> = self.outputs.iter().map(|id| ids[id.0 as usize]).collect();
        recorder.finish(self.input_count(), self.param_count(), &outputs)
    }
}

/// The adjoints of all values that matter.
struct Adjoints<'r> {
    active: Vec<bool>,
    gathered: Vec<Option<Adjoint<'r>>>,
}

impl<'r> Adjoints<'r> {
    fn give(&mut self, to: Id, adjoint: Adjoint<'r>) {
        let to = to.0 as usize;
        if self.active[to] {
            self.gathered[to] = Some(self.gathered[to].map_or(adjoint, |gathered| gathered.plus(adjoint)));
        }
    }
}

/// What an instruction comes to, if that is simpler.
fn simpler(recorder: &Recorder, inst: Inst) -> Option<Id> {
    let literal = |id: Id| match recorder.inst(id) {
        Inst::Literal(bits) => Some(f64::from_bits(bits)),
        _ => None,
    };
    let fold = |value: f64| Some(recorder.literal(value).id());
    let negated = |id: Id| Some(recorder.push(Inst::Unary(Unary::Neg, id)));
    match inst {
        Inst::Unary(Unary::Neg, a) => match recorder.inst(a) {
            Inst::Literal(bits) => fold(-f64::from_bits(bits)),
            Inst::Unary(Unary::Neg, inner) => Some(inner),
            _ => None,
        },
        Inst::Binary(op, a, b) => match (op, literal(a), literal(b)) {
            (Binary::Add, Some(a), Some(b)) => fold(a + b),
            (Binary::Sub, Some(a), Some(b)) => fold(a - b),
            (Binary::Mul, Some(a), Some(b)) => fold(a * b),
            (Binary::Div, Some(a), Some(b)) => fold(a / b),
            (Binary::Sub, _, Some(0.0)) | (Binary::Mul | Binary::Div | Binary::Pow, _, Some(1.0)) => Some(a),
            (Binary::Mul, Some(1.0), _) => Some(b),
            (Binary::Mul | Binary::Div, _, Some(-1.0)) => negated(a),
            (Binary::Mul, Some(-1.0), _) => negated(b),
            (Binary::Pow, _, Some(2.0)) => Some(recorder.push(Inst::Binary(Binary::Mul, a, a))),
            _ => None,
        },
        Inst::Not(a) => match recorder.inst(a) {
            Inst::Not(inner) => Some(inner),
            _ => None,
        },
        Inst::Select(mask, yes, no) => match recorder.inst(mask) {
            _ if yes == no => Some(yes),
            Inst::Not(mask) => Some(
                simpler(recorder, Inst::Select(mask, no, yes))
                    .unwrap_or_else(|| recorder.push(Inst::Select(mask, no, yes))),
            ),
            Inst::Compare(op, a, b) => {
                let (a, b) = (literal(a)?, literal(b)?);
                let holds = match op {
                    Compare::Eq => a == b,
                    Compare::Ne => a != b,
                    Compare::Lt => a < b,
                    Compare::Le => a <= b,
                };
                Some(if holds { yes } else { no })
            }
            _ => None,
        },
        _ => None,
    }
}

impl Pointwise {
    /// The program of the gradients by the inputs `wrt`: its inputs are the output's gradient and the op's inputs, its
    /// outputs the gradients in ascending order of `wrt`. None if there is no gradient by one of them.
    ///
    /// ```
    /// use raddle_op::{Pointwise, Program};
    /// assert_eq!(Pointwise::mul.gradient_program(&[0]), Some(&Program::record(|[g, _x, y]| g * y)));
    /// assert_eq!(Pointwise::gt.gradient_program(&[0]), None);
    /// ```
    pub fn gradient_program(self, wrt: &[usize]) -> Option<&'static Program> {
        self.gradient_program_with(wrt, 0)
    }

    /// The same where some inputs are scalars (bit `i` for input `i`, none of them in `wrt`): these are its last
    /// parameters, as in [`Pointwise::program_with`].
    pub fn gradient_program_with(self, wrt: &[usize], scalars: usize) -> Option<&'static Program> {
        if !wrt.iter().all(|&input| self.is_differentiable_by(input)) {
            return None;
        }
        let set = wrt.iter().fold(0, |set, &input| set | 1 << input);
        Some(self.programs().gradients[scalars][set].get_or_init(|| {
            // The output's gradient comes before the inputs.
            self.record_gradient(wrt, scalars).with_scalars(scalars << 1)
        }))
    }

    /// The same where scalars are still inputs.
    fn record_gradient(self, wrt: &[usize], scalars: usize) -> Program {
        let inputs = 0..self.row().inputs.len();
        let wanted = |input: &usize| wrt.contains(input);
        let all_but_the_first = (1 << inputs.end) - 2;
        if scalars == all_but_the_first
            && let Some(program) = self.record_gradient_beside_numbers()
        {
            return program;
        }
        let Some(stated) = self.record_stated_gradient() else {
            return self.program().gradient(&inputs.filter(wanted).collect::<Vec<_>>());
        };
        let by = inputs.filter(|&input| self.is_differentiable_by(input));
        stated.choose(by.enumerate().filter(|(_, input)| wanted(input)).map(|(output, _)| output))
    }
}
