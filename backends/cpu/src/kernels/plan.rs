//! A program made ready for the operands of one launch: which loop runs on which memory, in order.
//!
//! Values live in slots: the inputs and outputs of a block, scratch registers, and single elements ("uniform" values:
//! literals, parameters, inputs that don't step, and what is computed from these alone). An input of the compute dtype is
//! read where it lies; the instruction that makes an output writes it where it belongs. Two rules keep this right:
//!
//! - No loop of one instruction writes what it reads, so these may assume that slots don't meet. An output that is the same
//!   view as an input is written once that input has been read for the last time (by fused loops: in the same loop); if that
//!   is too early, through a register.
//! - A register is given out again after the last use of its value.
//!
//! Making a plan costs some ten nanoseconds an instruction, so plans aren't kept across launches: nothing to bound,
//! nothing to invalidate.
//!
//! Bounded: what grows here grows with the program and the number of operands, never with their elements.

use super::convert::convert;
use super::fused::{self, FusedFn, Match, RESULTS_MAX, Role, Slot, Slots};
use super::level::{Level, LoopFn};
use super::loops::{self, Single};
use raddle_base::{DType, Scalar};
use raddle_op::{Id, Inst, Program};

/// One loop over a block.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Of one instruction.
    One {
        /// The loop.
        run: LoopFn,
        /// What it writes.
        out: Slot,
        /// What it reads; 0 where it reads less.
        operands: [Slot; 3],
    },
    /// Of several; its slots are the plan's of this number.
    Fused(FusedFn, usize),
}

impl Step {
    fn one(run: LoopFn, out: Slot, operands: [Slot; 3]) -> Step {
        Step::One { run, out, operands }
    }
}

/// What a plan has to know about an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Of its elements.
    pub dtype: DType,
    /// Is it one element throughout a block? Only inputs are.
    pub uniform: bool,
    /// Where it starts: outputs and inputs that start together are the same view.
    pub start: usize,
}

/// See the module. Slots are numbered: inputs, outputs, registers, uniform values.
#[derive(Debug, Default)]
pub struct Plan {
    /// Run with a count of 1 where uniform inputs have changed.
    pub uniform_steps: Vec<Step>,
    /// Run after these, with the count of a whole block: they write uniform values out, for loops that need that.
    pub spread_steps: Vec<Step>,
    /// Run after these, with the count of a line: the same for fused loops.
    pub line_steps: Vec<Step>,
    /// Run for each block.
    pub steps: Vec<Step>,
    /// What fused loops take.
    pub fused: Vec<Slots>,
    /// What the uniform values are at first. Each has a cache line.
    pub uniforms: Vec<u64>,
    /// How many registers there are.
    pub register_count: usize,
    /// The widest element that a register holds.
    pub register_size_bytes: usize,
    values: Vec<Value>,
    inner: Vec<Id>,
    free: Vec<Slot>,
}

/// What is known of the value of an instruction.
#[derive(Clone, Copy, Debug)]
struct Value {
    slot: Slot,
    uniform: bool,
    mask: bool,
    /// The slot of the uniform value, written out for a block.
    spread: Option<Slot>,
    /// The same, written out for a line.
    line: Option<Slot>,
    /// The last instruction that reads it; its own position if none does.
    last_use: usize,
    /// Its register isn't given out again: an output is stored from it at the end.
    pinned: bool,
    /// How often it is read, or stored.
    uses: u32,
    /// How often it is stored.
    stores: u32,
    /// It is computed in the loop of another one.
    is_inner: bool,
    /// What its loop computes, if that is more than this instruction.
    fused: Option<Match>,
}

/// While a plan is made, registers and uniform values are numbered from here, since neither count is known yet.
const REGISTER: Slot = 1 << 30;
const UNIFORM: Slot = 1 << 31;

/// What stays the same while a plan is made.
struct Context<'a> {
    program: &'a Program,
    compute: DType,
    classes: &'a [Class],
    level: Level,
}

impl Context<'_> {
    fn output_count(&self) -> usize {
        self.program.outputs().len()
    }
    fn input(&self, index: usize) -> &Class {
        &self.classes[self.output_count() + index]
    }
    fn output(&self, index: usize) -> &Class {
        &self.classes[index]
    }
    fn input_slot(&self, index: usize) -> Slot {
        index as Slot
    }
    fn output_slot(&self, index: usize) -> Slot {
        (self.program.input_count() + index) as Slot
    }
    /// May an operand of this dtype be used as a number of the compute dtype, as it is?
    fn reads_directly(&self, dtype: DType) -> bool {
        dtype == self.compute || (dtype == DType::Bool && self.compute == DType::U8)
    }
    /// May a number of the compute dtype be stored in this dtype, as it is?
    fn writes_directly(&self, dtype: DType) -> bool {
        dtype == self.compute || (dtype == DType::U8 && self.compute == DType::Bool)
    }
}

impl Plan {
    /// Makes the plan of a program for operands of these classes (outputs first), in the memory of `self`.
    pub fn assign(
        &mut self,
        program: &Program,
        compute: DType,
        params: &[Scalar],
        classes: &[Class],
        level: Level,
    ) {
        let context = Context { program, compute, classes, level };
        self.uniform_steps.clear();
        self.spread_steps.clear();
        self.line_steps.clear();
        self.steps.clear();
        self.fused.clear();
        self.uniforms.clear();
        self.free.clear();
        self.register_count = 0;
        self.register_size_bytes = compute.size_bytes();
        self.values.clear();
        self.values.extend(program.insts().iter().enumerate().map(|(position, inst)| Value {
            slot: 0,
            uniform: false,
            mask: inst.is_mask(),
            spread: None,
            line: None,
            last_use: position,
            pinned: false,
            uses: 0,
            stores: 0,
            is_inner: false,
            fused: None,
        }));
        for (position, inst) in program.insts().iter().enumerate() {
            for id in inst.operands() {
                let value = &mut self.values[id.0 as usize];
                (value.last_use, value.uses) = (position, value.uses + 1);
            }
            self.values[position].uniform = match *inst {
                Inst::Input(index) => context.input(index as usize).uniform,
                _ => inst.operands().all(|id| self.values[id.0 as usize].uniform),
            };
        }
        program.outputs().iter().for_each(|id| self.values[id.0 as usize].stores += 1);
        if compute.is_float() {
            self.fuse(program);
        }
        for (position, inst) in program.insts().iter().enumerate() {
            self.instruction(&context, position, *inst, params);
            if self.values[position].is_inner {
                continue; // until it is there
            }
            let own = [Some(Id(position as u16))];
            let (leaves, stored) = match self.values[position].fused {
                Some(found) => (found.leaves, found.stored),
                None => Default::default(),
            };
            let made = stored.into_iter().chain(own).flatten();
            made.clone().for_each(|id| self.store_what_can_be(&context, id.0 as usize, position));
            for id in inst.operands().chain(leaves.into_iter().flatten()).chain(made) {
                self.release(id.0 as usize, position);
            }
        }
        for output in 0..context.output_count() {
            let id = program.outputs()[output].0 as usize;
            if self.values[id].pinned && !self.is_stored_early(&context, id, output) {
                self.store(&context, id, output);
            }
        }
        self.renumber(program.input_count() + program.outputs().len());
    }

    /// Finds what has a loop of its own, from the end on. What only that loop needs is left out, and its operands live as long.
    fn fuse(&mut self, program: &Program) {
        for root in (0..program.insts().len()).rev() {
            let value = &self.values[root];
            if value.is_inner || value.uniform {
                continue;
            }
            let values = &self.values;
            let role = |id: Id| match &values[id.0 as usize] {
                Value { uniform: true, .. } => Role::Apart,
                Value { uses: 1, stores: 0, .. } => Role::Inner,
                Value { uses: 1, .. } => Role::Stored,
                _ => Role::Apart,
            };
            let inner = &mut self.inner;
            inner.clear();
            let Some(found) = fused::find(program.insts(), Id(root as u16), role, |id| inner.push(id)) else {
                continue;
            };
            for id in found.leaves.into_iter().flatten() {
                let value = &mut self.values[id.0 as usize];
                value.last_use = value.last_use.max(root);
            }
            for id in self.inner.drain(..) {
                let value = &mut self.values[id.0 as usize];
                (value.is_inner, value.last_use) = (true, root);
            }
            self.values[root].fused = Some(found);
        }
    }

    /// The pointers that blocks use: how many.
    pub fn slot_count(&self, program: &Program) -> usize {
        program.input_count() + program.outputs().len() + self.register_count + self.uniforms.len()
    }

    fn renumber(&mut self, first_register: usize) {
        let first_uniform = (first_register + self.register_count) as Slot;
        let slot = |slot: &mut Slot| match *slot {
            UNIFORM.. => *slot = *slot - UNIFORM + first_uniform,
            REGISTER.. => *slot = *slot - REGISTER + first_register as Slot,
            _ => {}
        };
        let before = self.uniform_steps.iter_mut().chain(&mut self.spread_steps).chain(&mut self.line_steps);
        let all = before.chain(&mut self.steps);
        for step in all {
            if let Step::One { out, operands, .. } = step {
                slot(out);
                operands.iter_mut().for_each(slot);
            }
        }
        for slots in &mut self.fused {
            slots.results.iter_mut().chain(&mut slots.operands).for_each(slot);
        }
    }

    fn register(&mut self) -> Slot {
        self.free.pop().unwrap_or_else(|| {
            self.register_count += 1;
            REGISTER + (self.register_count - 1) as Slot
        })
    }

    fn uniform(&mut self, bits: u64) -> Slot {
        self.uniforms.push(bits);
        UNIFORM + (self.uniforms.len() - 1) as Slot
    }

    fn release(&mut self, id: usize, position: usize) {
        let value = &mut self.values[id];
        if value.last_use <= position && !value.pinned && (REGISTER..UNIFORM).contains(&value.slot) {
            self.free.push(value.slot);
            // Named twice in one instruction, it must not be given back twice.
            value.slot = 0;
        }
    }

    /// Would writing output `output` after the instruction at `position` (in it, before it has read, if `within`) hurt an
    /// input that is the same view and is still to be read?
    fn is_safe_to_write(&self, context: &Context<'_>, output: usize, position: usize, within: bool) -> bool {
        context.program.insts().iter().enumerate().all(|(id, inst)| match inst {
            Inst::Input(input) if context.input(*input as usize).start == context.output(output).start => {
                let read_last = self.values[id].last_use;
                let stored_later = context.program.outputs().iter().any(|stored| stored.0 as usize == id);
                // A conversion reads the input at its own place, and then never again.
                let converted = !context.reads_directly(context.input(*input as usize).dtype);
                let read_last = if converted { id } else { read_last };
                (read_last < position || (!within && read_last == position)) && (converted || !stored_later)
            }
            _ => true,
        })
    }

    /// Where the instruction at `position` writes the value `id`: into the first output that it is, if that is right.
    fn target(&mut self, context: &Context<'_>, id: usize, position: usize) -> Slot {
        let output = context.program.outputs().iter().position(|output| output.0 as usize == id);
        let within = self.values[position].fused.is_none();
        if let Some(output) = output.filter(|output| {
            !self.values[id].mask
                && context.writes_directly(context.output(*output).dtype)
                && self.is_safe_to_write(context, *output, position, within)
        }) {
            return context.output_slot(output);
        }
        self.register()
    }

    fn instruction(&mut self, context: &Context<'_>, position: usize, inst: Inst, params: &[Scalar]) {
        let Context { compute, level, .. } = *context;
        match inst {
            Inst::Param(index) => return self.constant(context, position, params[index as usize]),
            Inst::Literal(bits) => {
                return self.constant(context, position, Scalar::Float(f64::from_bits(bits)));
            }
            Inst::Input(index) => {
                let (class, slot) = (*context.input(index as usize), context.input_slot(index as usize));
                if context.reads_directly(class.dtype) {
                    self.values[position].slot = slot;
                } else {
                    let run = convert(class.dtype, compute, level);
                    self.emit(context, position, run, [slot, 0, 0]);
                }
                return;
            }
            _ => {}
        }
        if self.values[position].is_inner {
            return;
        }
        if let Some(found) = self.values[position].fused {
            let mut slots = Slots { results: [0; RESULTS_MAX], operands: Default::default(), lines: 0 };
            for (leaf, id) in found.leaves.into_iter().enumerate() {
                let Some(id) = id else { continue };
                slots.operands[leaf] = self.values[id.0 as usize].slot;
                if self.values[id.0 as usize].uniform {
                    slots.operands[leaf] = self.line(context, id);
                    slots.lines |= 1 << leaf;
                }
            }
            let made = [Some(Id(position as u16))].into_iter().chain(found.stored[1..].iter().copied());
            for (number, id) in made.enumerate() {
                let Some(id) = id else { continue };
                slots.results[number] = self.target(context, id.0 as usize, position);
                self.values[id.0 as usize].slot = slots.results[number];
            }
            self.steps.push(Step::Fused(found.shape.at(compute, level), self.fused.len()));
            self.fused.push(slots);
            return;
        }
        let single =
            |plan: &Plan, id: Id| plan.values[id.0 as usize].uniform && !plan.values[position].uniform;
        let slot = |plan: &Plan, id: Id| plan.values[id.0 as usize].slot;
        let (run, operands) = match inst {
            Inst::Unary(op, a) => (loops::unary(op, compute, level), [slot(self, a), 0, 0]),
            Inst::Not(a) => (loops::not(compute, level), [slot(self, a), 0, 0]),
            Inst::FromMask(a) => (loops::from_mask(compute, level), [slot(self, a), 0, 0]),
            Inst::Binary(op, a, b) if loops::has_single(op, compute) => {
                let which = which_is_single(single(self, a), single(self, b));
                (loops::binary(op, compute, which, level), [slot(self, a), slot(self, b), 0])
            }
            Inst::Binary(op, a, b) => {
                let operands = [self.packed(context, a, position), self.packed(context, b, position), 0];
                (loops::binary(op, compute, Single::None, level), operands)
            }
            Inst::Compare(op, a, b) => {
                let which = which_is_single(single(self, a), single(self, b));
                (loops::compare(op, compute, which, level), [slot(self, a), slot(self, b), 0])
            }
            Inst::Logic(op, a, b) => {
                let operands = [self.packed(context, a, position), self.packed(context, b, position), 0];
                (loops::logic(op, compute, level), operands)
            }
            Inst::Select(mask, yes, no) => {
                let run = loops::select(compute, single(self, yes), single(self, no), level);
                (run, [self.packed(context, mask, position), slot(self, yes), slot(self, no)])
            }
            Inst::Param(_) | Inst::Literal(_) | Inst::Input(_) => unreachable!("handled above"),
        };
        self.emit(context, position, run, operands);
    }

    fn constant(&mut self, context: &Context<'_>, position: usize, value: Scalar) {
        let slot = self.uniform(scalar_bits(value, context.compute));
        self.values[position].slot = slot;
    }

    fn emit(&mut self, context: &Context<'_>, position: usize, run: LoopFn, operands: [Slot; 3]) {
        let uniform = self.values[position].uniform;
        let out = if uniform { self.uniform(0) } else { self.target(context, position, position) };
        self.values[position].slot = out;
        let steps = if uniform { &mut self.uniform_steps } else { &mut self.steps };
        steps.push(Step::one(run, out, operands));
    }

    /// The slot of a value for a loop at `position` that can't take single elements.
    fn packed(&mut self, context: &Context<'_>, id: Id, position: usize) -> Slot {
        let value = self.values[id.0 as usize];
        if !value.uniform || self.values[position].uniform {
            return value.slot;
        }
        value.spread.unwrap_or_else(|| {
            // Not from the free ones: it is written before all steps and keeps its value through all blocks.
            self.register_count += 1;
            let out = REGISTER + (self.register_count - 1) as Slot;
            let run = loops::splat(context.compute.size_bytes(), context.level);
            self.spread_steps.push(Step::one(run, out, [value.slot, 0, 0]));
            self.values[id.0 as usize].spread = Some(out);
            out
        })
    }

    /// The slot of a uniform value for a fused loop.
    fn line(&mut self, context: &Context<'_>, id: Id) -> Slot {
        let value = self.values[id.0 as usize];
        value.line.unwrap_or_else(|| {
            let out = self.uniform(0);
            let run = loops::splat(context.compute.size_bytes(), context.level);
            self.line_steps.push(Step::one(run, out, [value.slot, 0, 0]));
            self.values[id.0 as usize].line = Some(out);
            out
        })
    }

    fn is_stored_early(&self, context: &Context<'_>, id: usize, output: usize) -> bool {
        let position = id;
        self.values[id].slot == context.output_slot(output)
            || self.is_safe_to_write(context, output, position, false)
    }

    /// Stores the outputs that the value `id` is, which the instruction at `position` has made, or pins it.
    fn store_what_can_be(&mut self, context: &Context<'_>, id: usize, position: usize) {
        for output in 0..context.output_count() {
            if context.program.outputs()[output].0 as usize != id {
                continue;
            }
            let slot = self.values[id].slot;
            if slot == context.output_slot(output) {
                continue;
            }
            if self.is_safe_to_write(context, output, position, false) {
                self.store(context, id, output);
                continue;
            }
            // It will be stored at the end. An input might be overwritten before, as another output: it is copied.
            if (slot as usize) < context.program.input_count() && !self.values[id].uniform {
                let copy = self.register();
                let run = loops::copied(context.compute.size_bytes(), context.level);
                self.steps.push(Step::one(run, copy, [slot, 0, 0]));
                self.values[id].slot = copy;
            }
            self.values[id].pinned = true;
        }
    }

    /// Appends the steps that store a value in an output.
    fn store(&mut self, context: &Context<'_>, id: usize, output: usize) {
        let Context { compute, level, .. } = *context;
        let (value, dtype) = (self.values[id], context.output(output).dtype);
        let out = context.output_slot(output);
        // A truth value becomes a byte, then whatever is wanted.
        let (byte, from) =
            if value.mask { (Some(loops::mask_to_byte(compute, level)), DType::U8) } else { (None, compute) };
        let whole =
            (byte.is_some() && matches!(dtype, DType::Bool | DType::U8)) || (byte.is_none() && from == dtype);
        let cast =
            convert(if byte.is_some() && dtype == DType::Bool { DType::Bool } else { from }, dtype, level);
        if value.uniform {
            let mut slot = value.slot;
            for run in byte.into_iter().chain((!whole).then_some(cast)) {
                let next = self.uniform(0);
                self.uniform_steps.push(Step::one(run, next, [slot, 0, 0]));
                slot = next;
            }
            let run = loops::splat(dtype.size_bytes(), level);
            self.steps.push(Step::one(run, out, [slot, 0, 0]));
            return;
        }
        match byte {
            None => self.steps.push(Step::one(cast, out, [value.slot, 0, 0])),
            Some(byte) if whole => self.steps.push(Step::one(byte, out, [value.slot, 0, 0])),
            Some(byte) => {
                let register = self.register();
                self.steps.push(Step::one(byte, register, [value.slot, 0, 0]));
                self.steps.push(Step::one(cast, out, [register, 0, 0]));
                self.free.push(register);
            }
        }
    }
}

fn which_is_single(a: bool, b: bool) -> Single {
    match (a, b) {
        (true, false) => Single::First,
        (false, true) => Single::Second,
        // Both are single elements only where the result is one, and then the count is 1.
        _ => Single::None,
    }
}

/// A scalar in a dtype: the element's bytes are the first ones of the word in memory.
pub fn scalar_bits(value: Scalar, dtype: DType) -> u64 {
    u64::from_ne_bytes(dtype.word_of(value))
}
