//! Pointwise programs over operands of any strides, in blocks that stay in cache.
//!
//! A block is `columns × rows` elements: columns along the axis in which the first output steps least, rows along a
//! second axis, if any. For each block, operands that don't lie packed are packed into registers, transposed where
//! another axis than the output's is their fast one; the loops of a [`Plan`] run one after another over the block; what
//! belongs in strided outputs is written there. So DRAM is read and written once, by whole lines, whatever the program
//! and the strides, and an element's result can't depend on how the work was cut (T8).
//!
//! Bounded: what grows here grows with the program and the number of operands, never with their elements.

use super::block::{Block, Cache, LINE_BYTES, pack, prefetch, prefetch_bytes, unpack};
use super::fused::Slots;
use super::level::{Level, LoopFn};
use super::loops::{self, Single};
use super::plan::{Class, Plan, Step, scalar_bits};
use super::view::{Geometry, Strided, start_bytes};
use crate::threads::Threads;
use raddle_base::{DType, MAX_RANK, Scalar};
use raddle_hal::Operand;
use raddle_op::{Id, Inst, Program};
use raddle_sync::fault;
use std::{cell::Cell, ops::Range};

/// Elements of a block of straight rows: 1 KiB of `f32`, so that a dozen registers, and as much that is prefetched, fit the
/// L1 cache; without registers twice that, and nothing is prefetched. (2 cores of a Zen 4, 2026-11-29: of 128, 256, 512 and
/// 1024, with and without. Adam, which has none, 76 GB/s with 512, 75 with 256, and prefetching 63 and 69; chains of three and
/// four registers 35 to 37 GB/s with 256, and with 512 29 to 36.)
const ROW_COUNT_MAX: usize = 256;
const ROW_COUNT_MAX_WITHOUT_REGISTERS: usize = 512;
/// Elements of a block that is transposed: squares of 64, four cache lines of `f32` a row.
const TILE_COUNT_MAX: usize = 4096;
const TILE_SIDE: usize = 64;
/// Rows shorter than this are taken several at a time (guess).
const SHORT_ROW: usize = 128;
/// Elements that are worth another thread (guess).
const PART_COUNT: usize = 1 << 16;
/// Elements that a thread takes at a time: few, so that none waits long for the last. (16 cores of a Xeon, 2026-11-30, `exp`: 187 GB/s,
/// with 65,536 172.)
const TAKEN_COUNT: usize = 1 << 14;
/// What a thread keeps for its next launch at most.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// Runs a pointwise kernel.
///
/// # Safety
/// - As of [`super::execute`] for `Kernel::Pointwise` with these fields.
pub unsafe fn execute(
    program: &Program,
    compute: DType,
    params: &[Scalar],
    groups: usize,
    operands: &[Operand],
    threads: Threads,
) {
    // SAFETY: as of this function; the level is this machine's.
    unsafe { execute_at(Level::best(), program, compute, params, groups, operands, threads) }
}

/// # Safety
/// - As of [`execute`]; the machine has the level.
pub unsafe fn execute_at(
    level: Level,
    program: &Program,
    compute: DType,
    params: &[Scalar],
    groups: usize,
    operands: &[Operand],
    threads: Threads,
) {
    let in_a_group = program.outputs().len() + program.input_count();
    debug_assert_eq!(operands.len(), in_a_group * groups, "hal: operands of {groups} groups");
    let mut kept = None;
    for operands in operands.chunks_exact(in_a_group) {
        if operands[0].view().layout.is_empty() {
            continue;
        }
        if let Some(single) = SingleLoop::of(program, compute, params, operands, level) {
            parts(single.count, PART_COUNT, threads, |range| {
                // SAFETY: as of this function.
                unsafe { single.run(range) }
            });
            continue;
        }
        let mut launch = kept.take().unwrap_or_else(take_launch);
        launch.prepare(program, compute, params, operands, level);
        let (blocks, per_part) = (launch.block_count(), launch.blocks_per_part());
        parts(blocks, per_part, threads, |range| {
            // SAFETY: as of this function.
            unsafe { launch.run(range) }
        });
        kept = Some(launch);
    }
    if let Some(launch) = kept {
        // Without thread-locals, at the end of a thread, it is simply dropped.
        let _ = LAUNCH.try_with(|slot| slot.set(Some(launch)));
    }
}

/// Cuts `count` into parts of at most `part`, by these two numbers only (T8).
fn parts(count: usize, part: usize, threads: Threads, body: impl Fn(Range<usize>) + Sync) {
    if count <= part {
        return body(0..count);
    }
    let part = part.min(TAKEN_COUNT);
    threads.for_each_part(count.div_ceil(part), |index| body(index * part..count.min((index + 1) * part)));
}

/// The most common launches, without any preparation: one loop over packed operands of the compute dtype, and scalars.
struct SingleLoop {
    loop_: LoopFn,
    count: usize,
    out: usize,
    size_bytes: usize,
    operands: [Source; 2],
    /// An operand is the output's view.
    in_place: bool,
}

/// Where a [`SingleLoop`] finds an operand.
#[derive(Clone, Copy)]
enum Source {
    /// Packed, from this address on.
    Packed(usize),
    /// One element for all, at this address.
    Element(usize),
    /// One element for all.
    Scalar(u64),
}

impl SingleLoop {
    fn of(
        program: &Program,
        compute: DType,
        params: &[Scalar],
        operands: &[Operand],
        level: Level,
    ) -> Option<SingleLoop> {
        let (insts, out) = (program.insts(), operands[0].view());
        let &[.., last] = insts else { return None };
        // One output: the last instruction, since nothing is recorded that no output needs.
        if program.outputs().len() != 1 || insts.len() > 3 || !out.layout.is_contiguous() {
            return None;
        }
        let dtype = if program.is_copy() && compute == out.dtype.compute() { out.dtype } else { compute };
        let source = |id: Id| match insts[id.0 as usize] {
            Inst::Param(index) => Some(Source::Scalar(scalar_bits(params[index as usize], compute))),
            Inst::Literal(bits) => {
                Some(Source::Scalar(scalar_bits(Scalar::Float(f64::from_bits(bits)), compute)))
            }
            Inst::Input(index) => {
                let view = operands[1 + index as usize].view();
                if view.dtype != dtype {
                    None
                } else if view.layout.is_contiguous() {
                    Some(Source::Packed(start_bytes(view)))
                } else {
                    let expanded = view.layout.strides().iter().all(|stride| *stride == 0);
                    expanded.then(|| Source::Element(start_bytes(view)))
                }
            }
            _ => None,
        };
        let is_packed = |source: &Source| matches!(source, Source::Packed(_));
        if out.dtype != dtype {
            return None;
        }
        let (loop_, operands) = match last {
            Inst::Input(_) => {
                let source = source(Id(0)).filter(is_packed)?;
                (loops::copied(dtype.size_bytes(), level), [source; 2])
            }
            Inst::Unary(op, a) => {
                let source = source(a).filter(is_packed)?;
                (loops::unary(op, compute, level), [source; 2])
            }
            Inst::Binary(op, a, b) => {
                let (a, b) = (source(a)?, source(b)?);
                let which = match (is_packed(&a), is_packed(&b)) {
                    (true, true) => Single::None,
                    (true, false) if loops::has_single(op, compute) => Single::Second,
                    (false, true) if loops::has_single(op, compute) => Single::First,
                    _ => return None,
                };
                (loops::binary(op, compute, which, level), [a, b])
            }
            _ => return None,
        };
        let out_start = start_bytes(out);
        let in_place = operands.iter().any(|source| matches!(source, Source::Packed(at) if *at == out_start));
        Some(SingleLoop {
            loop_,
            count: out.layout.element_count(),
            out: out_start,
            size_bytes: dtype.size_bytes(),
            operands,
            in_place,
        })
    }

    /// Runs the elements of a range.
    ///
    /// # Safety
    /// - The operands are live and as `Kernel::Pointwise` says; nobody else touches these elements.
    unsafe fn run(&self, range: Range<usize>) {
        let operand = |index: usize, first: usize| match &self.operands[index] {
            Source::Packed(start) => (start + first * self.size_bytes) as *const u8,
            Source::Element(at) => *at as *const u8,
            Source::Scalar(bits) => std::ptr::from_ref(bits).cast(),
        };
        let out = |first: usize| (self.out + first * self.size_bytes) as *mut u8;
        if !self.in_place {
            let (a, b) = (operand(0, range.start), operand(1, range.start));
            // SAFETY: as of this function; the output is no operand.
            return unsafe { (self.loop_)(out(range.start), a, b, std::ptr::null(), range.len()) };
        }
        // No loop writes what it reads: through a buffer in the L1 cache.
        let mut buffer = std::mem::MaybeUninit::<[Line; 64]>::uninit();
        let buffer_count = size_of_val(&buffer) / self.size_bytes;
        for first in range.clone().step_by(buffer_count) {
            let (count, place) = (buffer_count.min(range.end - first), buffer.as_mut_ptr().cast::<u8>());
            // SAFETY: as of this function; the buffer has room for `count` elements.
            unsafe {
                (self.loop_)(place, operand(0, first), operand(1, first), std::ptr::null(), count);
                out(first).copy_from_nonoverlapping(place, count * self.size_bytes);
            }
        }
    }
}

/// How a block finds an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// It lies packed, or is one element.
    Direct,
    /// Through this register.
    Packed(usize),
}

/// A launch of one group, prepared.
#[derive(Default)]
struct Launch {
    geometry: Geometry,
    plan: Plan,
    classes: Vec<Class>,
    previous: Vec<Class>,
    accesses: Vec<Access>,
    level: Option<Level>,
    inputs: usize,
    outputs: usize,
    slot_count: usize,
    /// Only moves elements: the register of the input, or of the output, is the other's, too.
    moves: bool,
    /// The axis of rows; axis 0 is that of columns.
    row_axis: Option<usize>,
    columns: usize,
    rows: usize,
    /// Blocks along axis 0 and along the axis of rows.
    across: usize,
    down: usize,
    register_count: usize,
    register_bytes: usize,
    uniform_inputs: bool,
    /// What is read or written straight on, by slot and operand, each place once; how much of it to prefetch in a step.
    ahead: Vec<(usize, usize)>,
    ahead_bytes: usize,
}

thread_local! {
    /// Kept for its memory, so that a launch allocates nothing.
    static LAUNCH: Cell<Option<Box<Launch>>> = const { Cell::new(None) };
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

pub fn kept_bytes() -> usize {
    let scratch = SCRATCH.take();
    let bytes = scratch.as_ref().map_or(0, |scratch| scratch.lines.len() * size_of::<Line>());
    SCRATCH.set(scratch);
    bytes
}

pub fn let_go() {
    LAUNCH.set(None);
    SCRATCH.set(None);
}

fn take_launch() -> Box<Launch> {
    let mut launch = LAUNCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
    // Its plan was another launch's.
    launch.previous.clear();
    launch
}

impl Launch {
    fn prepare(
        &mut self,
        program: &Program,
        compute: DType,
        params: &[Scalar],
        operands: &[Operand],
        level: Level,
    ) {
        self.geometry.assign(operands);
        (self.inputs, self.outputs) = (program.input_count(), program.outputs().len());
        let turned = self.choose_row_axis();
        let row_axis = self.row_axis;
        let is_uniform =
            |strides: &[usize; MAX_RANK]| strides[0] == 0 && row_axis.is_none_or(|axis| strides[axis] == 0);

        self.classes.clear();
        self.uniform_inputs = false;
        for (index, (operand, strided)) in operands.iter().zip(&self.geometry.operands).enumerate() {
            let uniform = index >= self.outputs && is_uniform(&strided.strides);
            self.uniform_inputs |= uniform;
            self.classes.push(Class { dtype: operand.view().dtype, uniform, start: strided.start });
        }
        let dtype = self.classes[0].dtype;
        self.moves = program.is_copy()
            && dtype == self.classes[1].dtype
            && compute == dtype.compute()
            && !self.classes[1].uniform;
        if !self.is_as_before(level) {
            self.plan.assign(program, compute, params, &self.classes, level);
            self.previous.clone_from(&self.classes);
        }
        self.level = Some(level);
        self.slot_count = self.plan.slot_count(program);
        self.choose_blocks(compute, turned);

        self.accesses.clear();
        self.register_count = self.plan.register_count;
        let mut widest = self.plan.register_size_bytes;
        for (index, operand) in self.geometry.operands.iter().enumerate() {
            let rows_follow = row_axis.is_none_or(|axis| {
                self.columns == self.geometry.sizes[0]
                    && operand.strides[axis] == self.columns * operand.size_bytes
            });
            let packed = operand.strides[0] == operand.size_bytes && rows_follow;
            self.accesses.push(if self.classes[index].uniform || packed {
                Access::Direct
            } else {
                widest = widest.max(operand.size_bytes);
                self.register_count += 1;
                Access::Packed(self.register_count - 1)
            });
        }
        self.ahead.clear();
        for (index, class) in self.classes.iter().enumerate() {
            let again = index < self.outputs
                && self.classes[self.outputs..].iter().any(|input| input.start == class.start);
            if self.accesses[index] == Access::Direct && !class.uniform && !again {
                let slot = if index < self.outputs { self.inputs + index } else { index - self.outputs };
                self.ahead.push((slot, index));
            }
        }
        self.ahead_bytes = (self.columns * self.geometry.operands[0].size_bytes)
            .div_ceil(self.plan.steps.len().max(1))
            .next_multiple_of(LINE_BYTES);
        // One loop over packed memory needs no blocks but those of the threads.
        if self.register_count == 0 && row_axis.is_none() && self.plan.steps.len() <= 1 {
            self.columns = self.geometry.sizes[0].min(PART_COUNT);
        }
        let sizes = &self.geometry.sizes;
        self.across = sizes[0].div_ceil(self.columns);
        self.down = row_axis.map_or(1, |axis| sizes[axis].div_ceil(self.rows));
        // A bit more than the elements, so that registers don't share the places of a cache line for line.
        self.register_bytes = (self.columns * self.rows * widest).next_multiple_of(64) + 128;
    }

    /// Is the plan of the last group right for this one? (Only starts and layouts differ within a launch.)
    fn is_as_before(&self, level: Level) -> bool {
        let same = |a: &Class, b: &Class| (a.dtype, a.uniform) == (b.dtype, b.uniform);
        let meets =
            |classes: &[Class], output: usize, input: usize| classes[output].start == classes[input].start;
        self.level == Some(level)
            && self.previous.len() == self.classes.len()
            && self.previous.iter().zip(&self.classes).all(|(a, b)| same(a, b))
            && (0..self.outputs).all(|output| {
                (self.outputs..self.classes.len())
                    .all(|input| meets(&self.previous, output, input) == meets(&self.classes, output, input))
            })
    }

    /// Is it chosen because an operand's lines lie along it?
    fn choose_row_axis(&mut self) -> bool {
        let Geometry { rank, sizes, operands } = &self.geometry;
        // The axis in which an operand steps less than along the columns: then lines are best taken whole both ways.
        let faster = |strides: &[usize; MAX_RANK]| {
            (1..*rank)
                .filter(|axis| strides[*axis] != 0)
                .min_by_key(|axis| strides[*axis])
                .filter(|axis| strides[*axis] < strides[0])
        };
        let across = operands.iter().find_map(|operand| faster(&operand.strides));
        self.row_axis = across.or((*rank > 1 && sizes[0] < SHORT_ROW).then_some(1));
        across.is_some()
    }

    fn choose_blocks(&mut self, compute: DType, turned: bool) {
        let sizes = &self.geometry.sizes;
        let most = match self.plan.register_count {
            0 => ROW_COUNT_MAX_WITHOUT_REGISTERS,
            _ => ROW_COUNT_MAX,
        };
        let row_max = most / (compute.size_bytes() / 4).max(1);
        (self.columns, self.rows) = match self.row_axis {
            Some(axis) if turned => {
                let columns = sizes[0].min(TILE_SIDE.max(TILE_COUNT_MAX / sizes[axis].max(1)));
                (columns, sizes[axis].min(TILE_COUNT_MAX / columns).max(1))
            }
            Some(axis) => (sizes[0], sizes[axis].min((row_max / sizes[0]).max(1))),
            None => (sizes[0].min(row_max), 1),
        };
    }

    fn outer_axes(&self) -> impl Iterator<Item = usize> + '_ {
        (1..self.geometry.rank).filter(|axis| Some(*axis) != self.row_axis)
    }

    fn block_count(&self) -> usize {
        self.across * self.down * self.outer_axes().map(|axis| self.geometry.sizes[axis]).product::<usize>()
    }

    fn blocks_per_part(&self) -> usize {
        (PART_COUNT / (self.columns * self.rows)).max(1)
    }

    /// Runs some of the blocks.
    ///
    /// # Safety
    /// - The operands given to `prepare` are live and as `Kernel::Pointwise` says; nobody else touches these blocks.
    unsafe fn run(&self, blocks: Range<usize>) {
        let mut scratch = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
        // SAFETY: as of this function.
        unsafe { self.run_with(&mut scratch, blocks) };
        if scratch.lines.len() * size_of::<Line>() > KEPT_BYTES_MAX {
            scratch.lines = Vec::new();
        }
        let _ = SCRATCH.try_with(|slot| slot.set(Some(scratch)));
    }

    /// # Safety
    /// - As of [`Launch::run`].
    unsafe fn run_with(&self, scratch: &mut Scratch, blocks: Range<usize>) {
        let operands = &self.geometry.operands;
        let uniforms = &self.plan.uniforms;
        let uniform_start = self.register_count * self.register_bytes;
        let area = scratch.area(uniform_start + uniforms.len() * LINE_BYTES);
        let register = |index: usize| area.wrapping_add(index * self.register_bytes);
        let uniform = |index: usize| area.wrapping_add(uniform_start + index * LINE_BYTES);
        for (index, bits) in uniforms.iter().enumerate() {
            // SAFETY: inside of the area, which is aligned to cache lines.
            unsafe { uniform(index).cast::<u64>().write(*bits) };
        }
        scratch.pointers.clear();
        scratch.pointers.resize(self.inputs + self.outputs, std::ptr::null_mut());
        scratch.pointers.extend((0..self.plan.register_count).map(register));
        scratch.pointers.extend((0..uniforms.len()).map(uniform));
        debug_assert_eq!(scratch.pointers.len(), self.slot_count, "cpu: slots of a plan");
        scratch.bases.clear();
        scratch.bases.resize(operands.len(), 0);

        let (mut column_block, mut line) = (blocks.start % self.across, blocks.start / self.across);
        let mut first = true;
        for _ in blocks {
            let new_line = first || column_block == 0;
            if new_line {
                self.locate(line, &mut scratch.bases);
            }
            let (columns_before, rows_before) = (column_block * self.columns, line % self.down * self.rows);
            let columns = self.columns.min(self.geometry.sizes[0] - columns_before);
            let rows = self.row_axis.map_or(1, |axis| self.rows.min(self.geometry.sizes[axis] - rows_before));
            let block = |index: usize| {
                let Strided { size_bytes, strides, .. } = operands[index];
                Block {
                    start: scratch.bases[index] + columns_before * strides[0],
                    size_bytes,
                    column_stride: strides[0],
                    row_stride: self.row_axis.map_or(0, |axis| strides[axis]),
                    columns,
                    rows,
                }
            };
            self.prefetch_after(&block, column_block, line);
            if self.moves {
                // SAFETY: the blocks are parts of the operands; an input that is the output's view is moved in place
                // through a register.
                unsafe { self.move_block(&block(0), &block(1), register) };
            } else {
                for (index, access) in self.accesses.iter().enumerate() {
                    // Outputs come first among operands, inputs among slots.
                    let slot = if index < self.outputs { self.inputs + index } else { index - self.outputs };
                    scratch.pointers[slot] = match *access {
                        Access::Direct => {
                            (scratch.bases[index] + columns_before * operands[index].strides[0]) as *mut u8
                        }
                        Access::Packed(number) => {
                            if index >= self.outputs {
                                // SAFETY: the block is part of the operand; a register has room for a block.
                                unsafe { pack(&block(index), register(number)) };
                            }
                            register(number)
                        }
                    };
                }
                let pointers = &scratch.pointers;
                // SAFETY: the slots are those of the plan, as long as the block; no loop writes what it reads.
                unsafe {
                    if first || (new_line && self.uniform_inputs) {
                        run_steps(&self.plan.uniform_steps, &[], pointers, 1);
                        run_steps(&self.plan.spread_steps, &[], pointers, self.columns * self.rows);
                        run_steps(
                            &self.plan.line_steps,
                            &[],
                            pointers,
                            LINE_BYTES / self.plan.register_size_bytes,
                        );
                    }
                    let mut left = 0;
                    fault!(last_element_left => left = 1);
                    self.run_block(
                        pointers,
                        &mut scratch.ahead,
                        columns * rows - left,
                        column_block + 1 < self.across,
                    );
                }
                for (index, access) in self.accesses[..self.outputs].iter().enumerate() {
                    if let Access::Packed(number) = *access {
                        fault!(no_copy_back => continue);
                        // SAFETY: the block is part of the operand; the register holds all of it.
                        unsafe { unpack(register(number), &block(index)) };
                    }
                }
            }
            first = false;
            column_block += 1;
            if column_block == self.across {
                (column_block, line) = (0, line + 1);
            }
        }
    }

    /// Prefetches the operands of the block after this one that aren't read straight on.
    fn prefetch_after(&self, block: &impl Fn(usize) -> Block, column_block: usize, line: usize) {
        let Some(row_axis) = self.row_axis else { return };
        let (axis, step) = if column_block + 1 < self.across {
            (0, self.columns)
        } else if line % self.down + 1 < self.down && self.across == 1 {
            (row_axis, self.rows)
        } else {
            return;
        };
        for (index, operand) in self.geometry.operands.iter().enumerate() {
            if self.accesses[index] != Access::Direct {
                let mut next = block(index);
                next.start += step * operand.strides[axis];
                prefetch(&next);
            }
        }
    }

    /// Runs the loops of a block. If they run over registers, memory would idle: between them it prefetches, bit by bit, the next
    /// block of what is read straight on.
    ///
    /// # Safety
    /// - The pointers are those of the slots, with room for `count` elements each.
    unsafe fn run_block(
        &self,
        pointers: &[*mut u8],
        ahead: &mut Vec<Range<usize>>,
        count: usize,
        more: bool,
    ) {
        let steps = &self.plan.steps;
        if self.row_axis.is_some() || !more || self.plan.register_count == 0 {
            // SAFETY: as of this function.
            return unsafe { run_steps(steps, &self.plan.fused, pointers, count) };
        }
        let size_bytes = |index: usize| self.columns * self.geometry.operands[index].size_bytes;
        ahead.clear();
        ahead.extend(self.ahead.iter().map(|&(slot, index)| {
            let start = pointers[slot] as usize + size_bytes(index);
            start..start + size_bytes(index)
        }));
        for step in steps {
            for lines in ahead.iter_mut() {
                let end = lines.end.min(lines.start + self.ahead_bytes);
                prefetch_bytes(lines.start..end, Cache::First);
                lines.start = end;
            }
            // SAFETY: as of this function.
            unsafe { run_steps(std::slice::from_ref(step), &self.plan.fused, pointers, count) };
        }
    }

    /// # Safety
    /// - The blocks are those of the one output and the one input.
    unsafe fn move_block(&self, to: &Block, from: &Block, register: impl Fn(usize) -> *mut u8) {
        // SAFETY: as of this function; registers have room for a block.
        unsafe {
            match (self.accesses[0], self.accesses[1]) {
                (Access::Direct, Access::Direct) => {
                    (to.start as *mut u8)
                        .copy_from(from.start as *const u8, to.columns * to.rows * to.size_bytes);
                }
                (Access::Direct, Access::Packed(_)) => pack(from, to.start as *mut u8),
                (Access::Packed(_), Access::Direct) => unpack(from.start as *const u8, to),
                (Access::Packed(number), Access::Packed(_)) => {
                    pack(from, register(number));
                    unpack(register(number), to);
                }
            }
        }
    }

    /// Where each operand's elements of a line of blocks start.
    fn locate(&self, line: usize, bases: &mut [usize]) {
        let mut outer = line / self.down;
        let rows_before = line % self.down * self.rows;
        for (base, operand) in bases.iter_mut().zip(&self.geometry.operands) {
            *base = operand.start + self.row_axis.map_or(0, |axis| rows_before * operand.strides[axis]);
        }
        for axis in self.outer_axes() {
            let index = outer % self.geometry.sizes[axis];
            outer /= self.geometry.sizes[axis];
            for (base, operand) in bases.iter_mut().zip(&self.geometry.operands) {
                *base += index * operand.strides[axis];
            }
        }
    }
}

/// # Safety
/// - The pointers are those of the steps' slots, with room for `count` elements each.
unsafe fn run_steps(steps: &[Step], fused: &[Slots], pointers: &[*mut u8], count: usize) {
    for step in steps {
        // SAFETY: as of this function; what is a line for all has been written as one.
        unsafe {
            match *step {
                Step::One { run, out, operands: [a, b, c] } => {
                    let at = |slot: u32| pointers[slot as usize];
                    run(at(out), at(a), at(b), at(c), count);
                }
                Step::Fused(run, number) => run(pointers, &fused[number], count),
            }
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// A thread's memory for registers.
#[derive(Default)]
struct Scratch {
    lines: Vec<Line>,
    pointers: Vec<*mut u8>,
    bases: Vec<usize>,
    ahead: Vec<Range<usize>>,
}

impl Scratch {
    /// So many bytes, aligned to cache lines.
    fn area(&mut self, size_bytes: usize) -> *mut u8 {
        let count = size_bytes.div_ceil(size_of::<Line>());
        if self.lines.len() < count {
            self.lines.resize(count, Line([0; 8]));
        }
        self.lines.as_mut_ptr().cast()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "pointwise_tests.rs"]
mod tests;
