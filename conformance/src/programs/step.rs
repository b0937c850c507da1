//! One op of a random program: on the device, and on the host.

use super::{
    family::{Families, Family, Number},
    stop::{Stop, done},
};
use crate::random::Random;
use raddle::{Device, Error, Event, Layout, Stream, Tensor};

/// More families than this and an old one is dropped first: memory is to be reused.
const FAMILY_COUNT_MAX: usize = 6;
/// Views of a family.
const VIEW_COUNT_MAX: usize = 4;

/// Somebody who draws ops and does them.
pub struct Player<'a> {
    device: &'a Device,
    streams: Vec<Stream>,
    /// Is nobody else at work? Then more can be checked.
    alone: bool,
    events: Vec<(Stream, Event)>,
}

/// Which view of which family.
type Place = (usize, usize);

/// An op of two operands, on the device and on the host.
#[derive(Clone, Copy)]
enum Two {
    Add,
    Sub,
    Mul,
    Max,
}

impl Two {
    fn host<T: Number>(self, a: T, b: T) -> T {
        match self {
            Two::Add => a.plus(b),
            Two::Sub => a.minus(b),
            Two::Mul => a.times(b),
            Two::Max => a.larger(b),
        }
    }
    fn fresh(self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        match self {
            Two::Add => a.add(b),
            Two::Sub => a.sub(b),
            Two::Mul => a.mul(b),
            Two::Max => a.maximum(b),
        }
    }
    fn in_place(self, a: &Tensor, b: &Tensor) -> Result<(), Error> {
        match self {
            Two::Add => a.add_(b),
            Two::Sub => a.sub_(b),
            Two::Mul => a.mul_(b),
            Two::Max => a.maximum_(b),
        }
        .map(drop)
    }
    fn into(self, a: &Tensor, b: &Tensor, out: &Tensor) -> Result<(), Error> {
        match self {
            Two::Add => a.add_out(b, out),
            Two::Sub => a.sub_out(b, out),
            Two::Mul => a.mul_out(b, out),
            Two::Max => a.maximum_out(b, out),
        }
    }
}

impl<'a> Player<'a> {
    /// `alone`: nobody else is at work on the device.
    pub fn new(device: &'a Device, streams: Vec<Stream>, alone: bool) -> Player<'a> {
        Player { device, streams, alone, events: Vec::new() }
    }

    /// Draws an op and does it. `own` may be changed, `shared` only read.
    pub fn step<T: Number>(
        &mut self,
        own: &mut Families<T>,
        shared: &Families<T>,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let size = own.size;
        if own.list.is_empty() || random.one_of(10) {
            if let Some(family) = done(own.make(self.device, random))? {
                own.put(family);
            }
            return Ok(());
        }
        while own.list.len() > FAMILY_COUNT_MAX {
            let dropped = random.below(own.list.len());
            own.list.swap_remove(dropped);
        }
        match random.below(20) {
            0..5 => self.fresh(own, shared, size, random),
            5..9 => self.in_place(own, shared, random),
            9..11 => self.write_into(own, shared, size, random),
            11 | 12 => {
                view(own, random)?;
                Ok(())
            }
            13 | 14 => {
                // A whole family, so that its memory is free at once, or one view of it.
                let at = random.below(own.list.len());
                let family = &mut own.list[at];
                if random.one_of(2) && family.views.len() > 1 {
                    let view = random.below(family.views.len());
                    family.views.swap_remove(view);
                } else {
                    own.list.swap_remove(at);
                }
                Ok(())
            }
            15 => {
                let (family, view) = any(own, random);
                let family = &own.list[family];
                family.check(&family.views[view])
            }
            16 => self.summed(own, random),
            17 => self.copied(own, shared, random),
            _ => self.ordering(own, random),
        }
    }

    /// A new tensor from two operands.
    fn fresh<T: Number>(
        &self,
        own: &mut Families<T>,
        shared: &Families<T>,
        size: usize,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let two = *random.pick(&[Two::Add, Two::Sub, Two::Mul, Two::Max]);
        let made = {
            let (a, at_a) = operand(own, shared, random);
            let (b, at_b) = operand(own, shared, random);
            let (a_view, b_view) = (&a.views[at_a], &b.views[at_b]);
            let Some(made) = done(two.fresh(a_view, b_view))? else { return Ok(()) };
            let shape = Layout::broadcast_shapes("program", a_view.shape(), b_view.shape())
                .expect("every view broadcasts to the square");
            if shape.iter().product::<usize>() != size * size {
                // Smaller results are only read.
                let host = |family: &Family<T>, view: &Tensor| {
                    family.values(&view.layout().broadcast_to("program", &shape).expect("it broadcasts"))
                };
                let values: Vec<T> =
                    host(a, a_view).iter().zip(host(b, b_view)).map(|(&a, b)| two.host(a, b)).collect();
                return done(made.contiguous())?
                    .map_or(Ok(()), |made| Family::new(made, &values).check_first());
            }
            let (x, y) = (a.broadcast(a_view.layout(), size), b.broadcast(b_view.layout(), size));
            let values: Vec<T> = x.into_iter().zip(y).map(|(a, b)| two.host(a, b)).collect();
            Family::new(made, &values)
        };
        own.put(made);
        Ok(())
    }

    /// Changes a view in place by an operand of another family.
    fn in_place<T: Number>(
        &self,
        own: &mut Families<T>,
        shared: &Families<T>,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let two = *random.pick(&[Two::Add, Two::Sub, Two::Mul, Two::Max]);
        let (target, view) = any(own, random);
        let written = own.list[target].views[view].clone();
        let layout = *written.layout();
        let values = {
            let Some((b, at)) = other(own, shared, target, random) else { return Ok(()) };
            let Ok(spread) = b.views[at].layout().broadcast_to("program", layout.shape()) else {
                return Ok(());
            };
            if done(two.in_place(&written, &b.views[at]))?.is_none() {
                return Ok(());
            }
            own.list[target]
                .values(&layout)
                .into_iter()
                .zip(b.values(&spread))
                .map(|(a, b)| two.host(a, b))
                .collect::<Vec<T>>()
        };
        own.list[target].write(&layout, &values);
        Ok(())
    }

    /// Writes the result of two operands into a view of a third family.
    fn write_into<T: Number>(
        &self,
        own: &mut Families<T>,
        shared: &Families<T>,
        size: usize,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let two = *random.pick(&[Two::Add, Two::Sub, Two::Mul, Two::Max]);
        let (target, view) = any(own, random);
        let out = own.list[target].views[view].clone();
        let values: Vec<T> = {
            let (Some((a, at_a)), Some((b, at_b))) =
                (other(own, shared, target, random), other(own, shared, target, random))
            else {
                return Ok(());
            };
            let (a_view, b_view) = (&a.views[at_a], &b.views[at_b]);
            let shape = Layout::broadcast_shapes("program", a_view.shape(), b_view.shape())
                .expect("every view broadcasts to the square");
            if shape != *out.shape() {
                return Ok(());
            }
            if done(two.into(a_view, b_view, &out))?.is_none() {
                return Ok(());
            }
            let spread = |family: &Family<T>, view: &Tensor| {
                family.values(&view.layout().broadcast_to("program", &shape).expect("it broadcasts"))
            };
            spread(a, a_view).into_iter().zip(spread(b, b_view)).map(|(a, b)| two.host(a, b)).collect()
        };
        debug_assert!(values.len() <= size * size);
        let layout = *out.layout();
        own.list[target].write(&layout, &values);
        Ok(())
    }

    /// The sum over an axis, by a structured kernel, of integers (whose sums don't depend on the order).
    fn summed<T: Number>(&self, own: &mut Families<T>, random: &mut Random) -> Result<(), Stop> {
        if T::DTYPE.is_float() {
            return Ok(());
        }
        let (at, view) = any(own, random);
        let (family, view) = (&own.list[at], &own.list[at].views[view]);
        if view.rank() == 0 {
            return Ok(());
        }
        let axis = random.below(view.rank());
        let Some(sum) = done(view.sum(axis as isize, true))? else { return Ok(()) };
        // Added to what it was made of: [size, size] again if the view was.
        let Some(spread) = done(view.mul(&sum))? else { return Ok(()) };
        drop(sum);
        let (shape, values) = (view.shape(), family.values(view.layout()));
        let inner: usize = shape[axis + 1..].iter().product();
        let length = shape[axis];
        let line = |at: usize| at / (inner * length) * inner * length + at % inner;
        let expected: Vec<T> = (0..values.len())
            .map(|at| {
                let sum =
                    (0..length).fold(T::small(0), |sum, step| sum.plus(values[line(at) + step * inner]));
                values[at].times(sum)
            })
            .collect();
        if expected.len() == own.size * own.size {
            own.put(Family::new(spread, &expected));
        }
        Ok(())
    }

    /// A copy of a view, or one view overwritten with another.
    fn copied<T: Number>(
        &self,
        own: &mut Families<T>,
        shared: &Families<T>,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let (target, view) = any(own, random);
        let written = own.list[target].views[view].clone();
        let layout = *written.layout();
        let values = {
            let Some((from, at)) = other(own, shared, target, random) else { return Ok(()) };
            let Ok(spread) = from.views[at].layout().broadcast_to("program", layout.shape()) else {
                return Ok(());
            };
            if done(written.copy_(&from.views[at]))?.is_none() {
                return Ok(());
            }
            from.values(&spread)
        };
        own.list[target].write(&layout, &values);
        Ok(())
    }

    /// What doesn't change numbers: events, waits, marks, memory given back.
    fn ordering<T: Number>(&mut self, own: &Families<T>, random: &mut Random) -> Result<(), Stop> {
        let current = Stream::current(self.device).map_err(Error::from)?;
        let other = *random.pick(&self.streams);
        match random.below(8) {
            0 => {
                if Event::new().query() {
                    return Err(Stop::Wrong(
                        "an event that was never recorded says that it is complete".into(),
                    ));
                }
                self.events.push((current, current.record()));
                if self.events.len() > 4 {
                    self.events.remove(0);
                }
            }
            1 => {
                let event = current.record();
                event.synchronize().map_err(Error::from)?;
                // Nothing was put on the stream since.
                if self.alone && !(event.query() && current.query()) {
                    return Err(Stop::Wrong(
                        "an event is complete before the work that it was recorded behind".into(),
                    ));
                }
            }
            2 => {
                if let Some((_, event)) = self.events.last() {
                    current.wait_event(event).map_err(Error::from)?;
                }
            }
            3 => current.wait_stream(other).map_err(Error::from)?,
            4 => {
                let (family, view) = any(own, random);
                self.device
                    .record_stream(own.list[family].views[view].buffer(), other)
                    .map_err(Error::from)?;
            }
            5 => self.device.empty_cache(),
            6 => {
                if let Some((stream, event)) = self.events.pop() {
                    event.synchronize().map_err(Error::from)?;
                    if !event.query() {
                        let id = stream.id();
                        return Err(Stop::Wrong(format!(
                            "an event of {id:?} isn't complete after it was waited for"
                        )));
                    }
                }
            }
            _ => {
                if random.one_of(4) {
                    self.device.synchronize().map_err(Error::from)?;
                }
            }
        }
        Ok(())
    }
}

impl<T: Number> Family<T> {
    fn check_first(&self) -> Result<(), Stop> {
        self.check(&self.views[0])
    }
}

/// Any view.
fn any<T>(families: &Families<T>, random: &mut Random) -> Place {
    let family = random.below(families.list.len());
    (family, random.below(families.list[family].views.len()))
}

/// Any view, of what is shared now and then.
fn operand<'f, T>(
    own: &'f Families<T>,
    shared: &'f Families<T>,
    random: &mut Random,
) -> (&'f Family<T>, usize) {
    let from = if shared.list.is_empty() || random.one_of(2) { own } else { shared };
    let (family, view) = any(from, random);
    (&from.list[family], view)
}

/// The same, but not of the family that is written: what overlaps is refused.
fn other<'f, T>(
    own: &'f Families<T>,
    shared: &'f Families<T>,
    written: usize,
    random: &mut Random,
) -> Option<(&'f Family<T>, usize)> {
    let (family, view) = operand(own, shared, random);
    (!std::ptr::eq(family, &own.list[written])).then_some((family, view))
}

/// Another view of a family.
fn view<T: Number>(own: &mut Families<T>, random: &mut Random) -> Result<(), Stop> {
    let (at, view) = any(own, random);
    let family = &mut own.list[at];
    let from = &family.views[view];
    let index = random.below(own.size) as isize;
    let made = match (random.below(4), from.rank()) {
        (0, 2) => from.transpose(0, 1)?,
        (1, 2) => {
            let start = index as usize % from.shape()[0].max(1);
            from.narrow(0, start, (from.shape()[0] - start).min(1))?
        }
        (2, 2) if from.shape()[0] == own.size => from.select(0, index)?,
        (3, 2) if from.shape()[1] == own.size => from.slice(1, index, index + 1, 1)?,
        _ => from.alias_view()?,
    };
    if family.views.len() == VIEW_COUNT_MAX {
        let dropped = random.below(VIEW_COUNT_MAX);
        family.views.swap_remove(dropped);
    }
    family.views.push(made);
    Ok(())
}
