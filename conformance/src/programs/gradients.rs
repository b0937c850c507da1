//! Random programs with gradients: several threads change one tensor through views of it at once, each in a part of its own,
//! and look at all of it. Their order is open and doesn't matter, so the gradients of all leaves must be those of running the
//! threads one after the other, which the host does with dual numbers: each element with its derivatives by all leaves.

use super::stop::Stop;
use crate::random::Random;
use raddle::{
    Device, Stream, Tensor,
    grad::{Autograd, no_grad},
};
use std::{ops::Range, sync::Barrier};

/// Errors of tensors, gradients and streams.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The tensor that threads change.
const ROWS: usize = 4;
const COLUMNS: usize = 6;
const THREAD_COUNT_MAX: usize = 4;
const STEP_COUNT_MAX: usize = 8;
const ROUND_COUNT_MAX: usize = 3;

/// A rectangle of the base, or its transpose.
#[derive(Clone, Debug, PartialEq)]
struct View {
    rows: Range<usize>,
    columns: Range<usize>,
    transposed: bool,
}

impl View {
    fn draw(part: &View, random: &mut Random) -> View {
        let range = |within: &Range<usize>, random: &mut Random| {
            let start = within.start + random.below(within.len());
            start..start + 1 + random.below(within.end - start)
        };
        let (rows, columns) = (range(&part.rows, random), range(&part.columns, random));
        View { rows, columns, transposed: random.one_of(3) }
    }

    fn of(&self, base: &Tensor) -> Result<Tensor> {
        let rows = base.narrow(0, self.rows.start, self.rows.len())?;
        let view = rows.narrow(1, self.columns.start, self.columns.len())?;
        Ok(if self.transposed { view.t()? } else { view })
    }

    /// Positions in the base, in the order of the view.
    fn positions(&self) -> Vec<usize> {
        let mut positions = Vec::new();
        match self.transposed {
            false => self.rows.clone().for_each(|row| {
                positions.extend(self.columns.clone().map(|column| row * COLUMNS + column));
            }),
            true => self.columns.clone().for_each(|column| {
                positions.extend(self.rows.clone().map(|row| row * COLUMNS + column));
            }),
        }
        positions
    }

    /// Another view of its shape that is the same elements in the same order, or none of them.
    fn partner(&self, part: &View, random: &mut Random) -> View {
        let mut other = self.clone();
        let (height, width) = (self.rows.len(), self.columns.len());
        for _ in 0..8 {
            let row = part.rows.start + random.below(part.rows.len() - height + 1);
            let column = part.columns.start + random.below(part.columns.len() - width + 1);
            other.rows = row..row + height;
            other.columns = column..column + width;
            let meets = row < self.rows.end
                && self.rows.start < row + height
                && column < self.columns.end
                && self.columns.start < column + width;
            if !meets {
                return other;
            }
        }
        self.clone()
    }
}

/// What a thread does.
#[derive(Clone, Debug)]
enum Step {
    /// In place on a view of its part; the operand is the same place of its leaf.
    AddLeaf(View),
    MulLeaf(View),
    CopyLeaf(View),
    /// The operand is another view of its part.
    AddView(View, View),
    MulCopy(View, View),
    Scale(View, f64),
    Fill(View, f64),
    /// A result that counts: a copy of the view by the leaf.
    Keep(View),
    /// Of any part: is it in a graph? By a view made before, or now.
    Ask(View),
    Read(View),
}

impl Step {
    fn draw(part: &View, random: &mut Random) -> Step {
        let all = View { rows: 0..ROWS, columns: 0..COLUMNS, transposed: false };
        let view = View::draw(part, random);
        let number = *random.pick(&[-1.0, 0.5, 2.0, 3.0]);
        match random.below(12) {
            0 => Step::AddLeaf(view),
            1 => Step::MulLeaf(view),
            2 => Step::CopyLeaf(view),
            3 | 4 => Step::AddView(view.clone(), view.partner(part, random)),
            5 => Step::MulCopy(view.clone(), view.partner(part, random)),
            6 => Step::Scale(view, number),
            7 => Step::Fill(view, number),
            8 => Step::Keep(view),
            9 | 10 => Step::Ask(View::draw(&all, random)),
            _ => Step::Read(View::draw(&all, random)),
        }
    }

    /// On the device. `before`: views of the whole base that were made before any thread began.
    fn run(&self, base: &Tensor, before: &[Tensor], leaf: &Tensor, kept: &mut Vec<Tensor>) -> Result<()> {
        let both = |view: &View| Result::Ok((view.of(&before[0])?, view.of(leaf)?));
        match self {
            Step::AddLeaf(view) => {
                let (view, leaf) = both(view)?;
                view.add_(&leaf)?;
            }
            Step::MulLeaf(view) => {
                let (view, leaf) = both(view)?;
                view.mul_(&leaf)?;
            }
            Step::CopyLeaf(view) => {
                let (view, leaf) = both(view)?;
                view.copy_(&leaf.mul(2.0)?)?;
            }
            Step::AddView(to, from) => _ = to.of(base)?.add_(&from.of(&before[0])?)?,
            Step::MulCopy(to, from) => _ = to.of(base)?.mul_(&from.of(base)?.copy()?)?,
            Step::Scale(view, by) => _ = view.of(base)?.mul_(*by)?,
            Step::Fill(view, value) => _ = view.of(&before[0])?.fill_(*value)?,
            Step::Keep(view) => {
                let (view, leaf) = both(view)?;
                kept.push(view.copy()?.mul(&leaf)?);
            }
            Step::Ask(view) => {
                before.iter().for_each(|view| _ = view.requires_grad());
                _ = view.of(base)?.requires_grad();
            }
            Step::Read(view) => _ = view.of(&before[0])?.exp()?,
        }
        Ok(())
    }
}

/// An element with its derivatives by all elements of all leaves.
#[derive(Clone, Debug)]
struct Dual(f64, Vec<f64>);

impl Dual {
    fn combined(&self, by_self: f64, other: &Dual, by_other: f64, value: f64) -> Dual {
        Dual(value, self.1.iter().zip(&other.1).map(|(a, b)| a * by_self + b * by_other).collect())
    }
    fn plus(&self, other: &Dual) -> Dual {
        self.combined(1.0, other, 1.0, self.0 + other.0)
    }
    fn times(&self, other: &Dual) -> Dual {
        self.combined(other.0, other, self.0, self.0 * other.0)
    }
    fn scaled(&self, by: f64) -> Dual {
        self.combined(by, self, 0.0, self.0 * by)
    }
    fn constant(&self, value: f64) -> Dual {
        Dual(value, vec![0.0; self.1.len()])
    }
}

impl Step {
    /// On the host.
    fn play(&self, base: &mut [Dual], leaf: &[Dual], kept: &mut Vec<Dual>) {
        let (Step::AddLeaf(view)
        | Step::MulLeaf(view)
        | Step::CopyLeaf(view)
        | Step::AddView(view, _)
        | Step::MulCopy(view, _)
        | Step::Scale(view, _)
        | Step::Fill(view, _)
        | Step::Keep(view)
        | Step::Ask(view)
        | Step::Read(view)) = self;
        let from: Vec<usize> = match self {
            Step::AddView(_, from) | Step::MulCopy(_, from) => from.positions(),
            _ => Vec::new(),
        };
        let old: Vec<Dual> = from.iter().map(|&at| base[at].clone()).collect();
        for (index, at) in view.positions().into_iter().enumerate() {
            base[at] = match self {
                Step::AddLeaf(_) => base[at].plus(&leaf[at]),
                Step::MulLeaf(_) => base[at].times(&leaf[at]),
                Step::CopyLeaf(_) => leaf[at].scaled(2.0),
                Step::AddView(..) => base[at].plus(&old[index]),
                Step::MulCopy(..) => base[at].times(&old[index]),
                Step::Scale(_, by) => base[at].scaled(*by),
                Step::Fill(_, value) => base[at].constant(*value),
                Step::Keep(_) => {
                    kept.push(base[at].times(&leaf[at]));
                    continue;
                }
                Step::Ask(_) | Step::Read(_) => continue,
            };
        }
    }
}

/// A program: in each round what each thread does.
struct Program {
    joined: bool,
    rounds: Vec<Vec<Vec<Step>>>,
    threads: usize,
}

impl Program {
    fn draw(random: &mut Random) -> Program {
        let threads = 1 + random.below(THREAD_COUNT_MAX);
        let round = |random: &mut Random| {
            let by_rows = random.one_of(2);
            (0..threads)
                .map(|thread| {
                    let (rows, columns) = match by_rows {
                        true => (thread * ROWS / threads..(thread + 1) * ROWS / threads, 0..COLUMNS),
                        false => (0..ROWS, thread * COLUMNS / threads..(thread + 1) * COLUMNS / threads),
                    };
                    let part = View { rows, columns, transposed: false };
                    (0..1 + random.below(STEP_COUNT_MAX)).map(|_| Step::draw(&part, random)).collect()
                })
                .collect()
        };
        let rounds = (0..1 + random.below(ROUND_COUNT_MAX)).map(|_| round(random)).collect();
        Program { joined: random.one_of(2), rounds, threads }
    }

    /// The derivatives of the weighted sum of all that counts, leaf by leaf.
    fn expected(&self) -> Vec<f64> {
        let (size, count) = (ROWS * COLUMNS, self.threads * ROWS * COLUMNS);
        let unit = |at: usize| (0..count).map(|other| f64::from(u8::from(other == at))).collect();
        let leaf: Vec<Dual> = (0..count).map(|at| Dual(leaf_value(at), unit(at))).collect();
        let zero = leaf[0].constant(0.0);
        let mut base: Vec<Dual> = match self.joined {
            true => leaf[..size].iter().map(|leaf| leaf.scaled(1.0)).collect(),
            false => vec![zero.constant(1.0); size],
        };
        let mut kept: Vec<Vec<Dual>> = vec![Vec::new(); self.threads];
        for round in &self.rounds {
            for (thread, steps) in round.iter().enumerate() {
                let own = &leaf[thread * size..][..size];
                steps.iter().for_each(|step| step.play(&mut base, own, &mut kept[thread]));
            }
        }
        let mut sum = zero;
        for (at, element) in base.iter().enumerate() {
            sum = sum.plus(&element.scaled(weight(at)));
        }
        kept.iter().flatten().for_each(|element| sum = sum.plus(element));
        sum.1
    }

    /// As the device has them, played by threads or, in one of the orders, by this one.
    fn found(&self, device: &Device, in_threads: bool, random: &mut Random) -> Result<Vec<f64>> {
        let size = ROWS * COLUMNS;
        let tensor = |values: Vec<f64>| Tensor::from_vec(values, [ROWS, COLUMNS], device);
        let leaf = |thread: usize| {
            let leaf = tensor((0..size).map(|at| leaf_value(thread * size + at)).collect())?;
            leaf.requires_grad_(true)?;
            Ok(leaf)
        };
        let leaves: Vec<Tensor> = (0..self.threads).map(leaf).collect::<Result<_>>()?;
        let base = if self.joined { leaves[0].mul(1.0)? } else { tensor(vec![1.0; size])? };
        let before = [base.alias_view()?, base.t()?, base.select(0, 1)?, base.narrow(1, 2, 3)?];
        let mut kept: Vec<Vec<Tensor>> = vec![Vec::new(); self.threads];
        for round in &self.rounds {
            if in_threads {
                let barrier = Barrier::new(self.threads);
                let play = |thread: usize, kept: &mut Vec<Tensor>| {
                    barrier.wait();
                    round[thread].iter().try_for_each(|step| step.run(&base, &before, &leaves[thread], kept))
                };
                std::thread::scope(|scope| {
                    let play = &play;
                    let threads: Vec<_> = kept
                        .iter_mut()
                        .enumerate()
                        .map(|(thread, kept)| scope.spawn(move || play(thread, kept)))
                        .collect();
                    threads.into_iter().try_for_each(|thread| thread.join().expect("no step panics"))
                })?;
                continue;
            }
            let streams: Vec<Stream> = (0..self.threads)
                .map(|_| Stream::from_pool(device, raddle::Priority::Normal))
                .collect::<std::result::Result<_, _>>()?;
            let mut next = vec![0; self.threads];
            while let Some(thread) =
                draw_of(random, |thread| next[thread] < round[thread].len(), self.threads)
            {
                let _guard = streams[thread].enter();
                round[thread][next[thread]].run(&base, &before, &leaves[thread], &mut kept[thread])?;
                next[thread] += 1;
            }
        }
        let weights = tensor((0..size).map(weight).collect())?;
        let mut sum = before[0].mul(&weights)?.sum(.., false)?;
        for kept in kept.iter().flatten() {
            sum = sum.add(&kept.sum(.., false)?)?;
        }
        if sum.requires_grad() {
            sum.backward()?;
        }
        let mut found = Vec::new();
        for leaf in &leaves {
            match leaf.grad() {
                Some(gradient) => found.extend(no_grad(|| gradient.contiguous())?.to_vec::<f64>()?),
                None => found.extend([0.0; ROWS * COLUMNS]),
            }
        }
        Ok(found)
    }
}

fn draw_of(random: &mut Random, is_left: impl Fn(usize) -> bool, count: usize) -> Option<usize> {
    let left: Vec<usize> = (0..count).filter(|&thread| is_left(thread)).collect();
    (!left.is_empty()).then(|| *random.pick(&left))
}

fn leaf_value(at: usize) -> f64 {
    [1.0, -2.0, 0.5, 3.0, -1.0][at % 5]
}

fn weight(at: usize) -> f64 {
    1.0 + at as f64
}

/// Plays a program and compares.
pub(super) fn run(device: &Device, random: &mut Random, in_threads: bool) -> std::result::Result<(), Stop> {
    let program = Program::draw(random);
    let expected = program.expected();
    if expected.iter().any(|value| !value.is_finite()) {
        return Ok(()); // repeated squares leave the range
    }
    let found = program
        .found(device, in_threads, random)
        .map_err(|error| Stop::Wrong(format!("{error}, in {:?}", program.rounds)))?;
    // Sums of a few dozen terms, in another order.
    let largest = expected.iter().fold(1.0f64, |largest, value| largest.max(value.abs()));
    let wrong = (0..expected.len())
        .find(|&at| (expected[at] - found[at]).abs() > largest * 1e-12 || found[at].is_nan());
    match wrong {
        None => Ok(()),
        Some(at) => Err(Stop::Wrong(format!(
            "the gradient of element {} of leaf {} is {}, expected {}, after {:?}",
            at % (ROWS * COLUMNS),
            at / (ROWS * COLUMNS),
            found[at],
            expected[at],
            program.rounds
        ))),
    }
}
