//! Programs over elements, on any strides.
//!
//! Three ways, by how the operands of a group lie once their axes are merged:
//!
//! - *flat*: each is contiguous or one element. Threads take 16 bytes at a time; many groups are one launch.
//! - *strided*: positions are taken apart by divisions that are multiplications. Where the fastest axis allows it threads
//!   still take 16 bytes at a time.
//! - *tiled*: some step least along one axis, some along another. Blocks take square tiles, each operand is read and
//!   written along the axis that it is fastest in, and turned in shared memory.

use super::build::Builder;
use super::geometry::{Array, Grid, Order, address, is_aligned, push_index};
use super::key::{Key as KernelKey, Source};
use super::pointwise_source::{Access, Key, Path, THREADS, Work};
use super::steps::{Args, Place};
use raddle_base::{DType, Dims, Element, Scalar, by_element};
use raddle_hal::Operand;
use raddle_op::{Program, ProgramRef};
use raddle_sync::fault;
use smallvec::SmallVec;

/// Bytes of inputs that a thread has under way, at least: of neighbours, 2048 threads of a multiprocessor fill the memory with 16
/// (an H200 copies 4.19 TB/s so, 3.93 with 64), where addresses take work first more of them at once pay.
const FLAT_BYTES: usize = 16;
const STRIDED_BYTES: usize = 64;
/// Both axes of a tile are at least so long; shorter ones leave too much of it empty (guess).
const TILED_SIZE_MIN: usize = 24;
/// Argument bytes of a launch; 4096 are allowed.
const ARGS_BYTES_MAX: usize = 4000;

/// Plans `Kernel::Pointwise`.
pub fn plan(
    builder: &mut Builder,
    program: &ProgramRef,
    compute: DType,
    params: &[Scalar],
    groups: usize,
    operands: &[Operand],
) {
    let (outputs, count) = (program.outputs().len(), program.outputs().len() + program.input_count());
    let params = &params[..program.param_count()];
    let params = Params { values: params, compute };
    let mut pending = Pending { params, alone: groups == 1, batches: SmallVec::new() };
    debug_assert_eq!(operands.len(), groups * count, "cuda: operands of a pointwise launch");
    for group in operands.chunks_exact(count) {
        let shape = group[0].shape();
        if shape.contains(&0) {
            continue;
        }
        let work = work_of(program, compute, group[0].view().dtype, group[count - 1].view().dtype);
        if group.iter().all(|operand| operand.view().layout.is_contiguous()) {
            let operands = group.iter().map(|operand| {
                let view = operand.view();
                (Place::At(address(view)), view.dtype, Access::Vector)
            });
            pending.flat(builder, work, outputs, shape.product(), operands);
            continue;
        }
        let arrays: SmallVec<[Array; 8]> = group.iter().map(|operand| Array::from(operand.view())).collect();
        pending.group(builder, work, outputs, &arrays);
    }
    pending.flush(builder);
}

/// A program on arrays of one shape.
pub fn program(
    builder: &mut Builder,
    program: &ProgramRef,
    compute: DType,
    params: &[Scalar],
    arrays: &[Array],
) {
    let outputs = program.outputs().len();
    let params = &params[..program.param_count()];
    let params = Params { values: params, compute };
    let mut pending = Pending { params, alone: true, batches: SmallVec::new() };
    if !arrays[0].shape.contains(&0) {
        let work = work_of(program, compute, arrays[0].dtype, arrays[arrays.len() - 1].dtype);
        pending.group(builder, work, outputs, arrays);
    }
    pending.flush(builder);
}

/// `to = from`, converted as a cast does.
pub fn copy(builder: &mut Builder, to: &Array, from: &Array) {
    static COPY: raddle_sync::RaceOnce<Program> = raddle_sync::RaceOnce::new();
    let copy = COPY.get_or_init(|| Program::record_many(|[x], []| [x]));
    program(builder, &ProgramRef::Static(copy), from.dtype.compute(), &[], &[*to, *from]);
}

/// A program that changes nothing moves bytes: then dtypes of one size share a kernel, and NaN keep their bits.
fn work_of(program: &ProgramRef, compute: DType, first: DType, last: DType) -> Work {
    if program.is_copy() && first == last && compute == first.compute() {
        return Work::Move(first.size_bytes() as u8);
    }
    Work::Program(program.clone(), compute)
}

/// The dtype under which elements of so many bytes are moved.
pub fn moved_dtype(size_bytes: u8) -> DType {
    match size_bytes {
        1 => DType::U8,
        2 => DType::F16,
        4 => DType::I32,
        _ => DType::I64,
    }
}

/// Flat groups that will be one launch.
struct Batch {
    key: Key,
    groups: SmallVec<[(SmallVec<[Place; 8]>, usize); 1]>,
}

/// The parameters of a program.
#[derive(Clone, Copy)]
struct Params<'a> {
    values: &'a [Scalar],
    compute: DType,
}

struct Pending<'a> {
    params: Params<'a>,
    /// There is one group: it needs to wait for no other.
    alone: bool,
    batches: SmallVec<[Batch; 1]>,
}

/// The most elements that are taken at once, so that none takes more than 16 bytes.
fn vector_max(dtypes: impl Iterator<Item = DType>) -> usize {
    16 / dtypes.map(DType::size_bytes).max().unwrap_or(1)
}

/// How often a thread takes that many, for so many bytes.
fn unroll_of(vector: usize, thread_bytes: usize, inputs: impl Iterator<Item = DType>) -> u8 {
    let bytes: usize = inputs.map(DType::size_bytes).sum();
    thread_bytes.div_ceil((vector * bytes).max(4)).clamp(1, 4) as u8
}

impl Pending<'_> {
    /// Adds a group whose operands are contiguous or one element each.
    fn flat(
        &mut self,
        builder: &mut Builder,
        work: Work,
        outputs: usize,
        count: usize,
        operands: impl Iterator<Item = (Place, DType, Access)> + Clone,
    ) {
        let mut count = count;
        if fault!(last_element_left) {
            count = (count - 1).max(1);
        }
        let mut vector = vector_max(operands.clone().map(|(_, dtype, _)| dtype));
        let aligned = |(place, dtype, access): (Place, DType, Access)| {
            access != Access::Vector || is_aligned(place, vector * dtype.size_bytes())
        };
        if !operands.clone().all(aligned) {
            vector = 1;
        }
        let mut key = Key {
            work,
            path: Path::Flat { groups: 1 },
            vector: vector as u8,
            unroll: 1,
            outputs: outputs as u8,
            operands: SmallVec::new(),
        };
        for (_, dtype, access) in operands.clone() {
            let dtype = if let Work::Move(size) = key.work { moved_dtype(size) } else { dtype };
            key.operands.push((dtype, access));
        }
        key.unroll = unroll_of(vector, FLAT_BYTES, key.operands[outputs..].iter().map(|(dtype, _)| *dtype));
        let places = operands.map(|(place, ..)| place);
        if self.alone {
            return self.params.launch_flat(builder, key, std::iter::once((places, count)));
        }
        let places = places.collect();
        let Some(batch) = self.batches.iter_mut().find(|batch| batch.key == key) else {
            return self.batches.push(Batch { key, groups: SmallVec::from_iter([(places, count)]) });
        };
        batch.groups.push((places, count));
        if batch.groups.len() >= group_count_max(&batch.key, self.params.values.len()) {
            self.flush(builder);
        }
    }

    /// Adds a group of any strides.
    fn group(&mut self, builder: &mut Builder, work: Work, outputs: usize, arrays: &[Array]) {
        let strides: SmallVec<[&Dims; 8]> = arrays.iter().map(|array| &array.strides).collect();
        let grid = Grid::new(&arrays[0].shape, &strides, Order::Memory);
        let step = |index: usize| grid.strides[index][0];
        if grid.rank() == 1 && (0..arrays.len()).all(|index| step(index) <= 1 || grid.sizes[0] == 1) {
            let operands = arrays.iter().enumerate().map(|(index, array)| {
                let access =
                    if step(index) == 1 || index < outputs { Access::Vector } else { Access::Broadcast };
                (array.place, array.dtype, access)
            });
            return self.flat(builder, work, outputs, grid.sizes[0], operands);
        }
        let key = |path, vector: usize, unroll, accesses: &dyn Fn(usize) -> Access| {
            let operands = arrays.iter().enumerate().map(|(index, array)| match work {
                Work::Move(size) => (moved_dtype(size), accesses(index)),
                _ => (array.dtype, accesses(index)),
            });
            KernelKey(Source::Pointwise(Key {
                work: work.clone(),
                path,
                vector: vector as u8,
                unroll,
                outputs: outputs as u8,
                operands: operands.collect(),
            }))
        };
        let mut args = Args::default();
        arrays.iter().for_each(|array| _ = args.place(array.place));

        if let Some(axis) = turned_axis(&grid) {
            let bytes: usize = arrays.iter().map(|array| array.dtype.size_bytes()).sum();
            // A thread keeps side² / 256 elements of each operand in registers.
            let fills = grid.sizes[0].min(grid.sizes[axis]) > 40;
            let side = if bytes <= 20 && fills { 64usize } else { 32 };
            let turned = |index: usize| {
                let strides = &grid.strides[index];
                strides[axis] != 0 && (strides[0] == 0 || strides[axis] < strides[0])
            };
            let (tiles, wide) = (tiles_of(&grid, axis, side), grid.is_wide());
            let access = |index| if turned(index) { Access::Turned } else { Access::Strided };
            let path = Path::Tiled { rank: tiles.rank() as u8, wide, side: side as u8 };
            push_index(&mut args, grid.sizes[0], wide);
            push_index(&mut args, grid.sizes[axis], wide);
            for strides in &grid.strides {
                push_index(&mut args, strides[0], wide);
                push_index(&mut args, strides[axis], wide);
            }
            tiles.push_to(&mut args, wide);
            push_index(&mut args, tiles.count(), wide);
            self.params.push_to(&mut args);
            builder.launch_key(key(path, 1, 1, &access), tiles.count(), THREADS as u32, args);
            return;
        }

        let vector = vector_of(&grid, arrays);
        let mut units = grid.clone();
        units.sizes[0] /= vector;
        units.strides.iter_mut().for_each(|strides| strides[0] *= vector);
        let unroll = unroll_of(vector, STRIDED_BYTES, arrays[outputs..].iter().map(|array| array.dtype));
        let access = |index: usize| match step(index) {
            1 => Access::Vector,
            0 if index >= outputs => Access::Broadcast,
            _ => Access::Strided,
        };
        let wide = grid.is_wide();
        let path = Path::Strided { rank: units.rank() as u8, wide };
        for strides in &grid.strides {
            push_index(&mut args, strides[0], wide);
        }
        units.push_to(&mut args, wide);
        push_index(&mut args, units.count(), wide);
        self.params.push_to(&mut args);
        let blocks = units.count().div_ceil(THREADS * unroll as usize);
        builder.launch_key(key(path, vector, unroll, &access), blocks, THREADS as u32, args);
    }

    /// Launches the flat groups that wait.
    fn flush(&mut self, builder: &mut Builder) {
        for Batch { key, groups } in self.batches.drain(..) {
            let groups = groups.iter().map(|(places, count)| (places.iter().copied(), *count));
            self.params.launch_flat(builder, key, groups);
        }
    }
}

impl Params<'_> {
    fn push_to(self, args: &mut Args) {
        for &param in self.values {
            by_element!(self.compute, T => {
                let word = T::from_scalar(param).to_word();
                args.push(*word.first_chunk::<{ size_of::<T>() }>().expect("an element fits"));
            });
        }
    }

    /// One launch of these groups, each its places and how many elements it has (at least one).
    #[inline]
    fn launch_flat<P: Iterator<Item = Place>>(
        self,
        builder: &mut Builder,
        mut key: Key,
        groups: impl ExactSizeIterator<Item = (P, usize)> + Clone,
    ) {
        let group_count = groups.len();
        let room = room_for(group_count, group_count_max(&key, self.values.len()));
        key.path = Path::Flat { groups: room as u8 };
        let tile = THREADS * key.vector as usize * key.unroll as usize;
        let operand_count = key.operands.len();
        let blocks = groups.clone().map(|(_, count)| count.div_ceil(tile)).sum();
        builder.launch_with(KernelKey(Source::Pointwise(key)), blocks, THREADS as u32, |args| {
            let mut first_block = 0;
            for (places, count) in groups {
                for place in places {
                    args.place(place);
                }
                args.push((count as u64).to_ne_bytes()).push((first_block as u64).to_ne_bytes());
                first_block += count.div_ceil(tile);
            }
            for _ in group_count..room {
                (0..operand_count + 1).for_each(|_| _ = args.push([0; 8]));
                args.push(u64::MAX.to_ne_bytes());
            }
            self.push_to(args);
        });
    }
}

/// How many groups fit the arguments of a launch.
fn group_count_max(key: &Key, params: usize) -> usize {
    ((ARGS_BYTES_MAX - 8 * params) / (8 * key.operands.len() + 16)).clamp(1, 255)
}

/// Rooms come in few sizes, so that few kernels are compiled.
fn room_for(groups: usize, max: usize) -> usize {
    [1, 4, 16].into_iter().find(|room| groups <= *room && *room <= max).unwrap_or(max)
}

/// The axis other than the first along which some operand steps least, if tiles pay.
fn turned_axis(grid: &Grid) -> Option<usize> {
    if grid.sizes[0] < TILED_SIZE_MIN {
        return None;
    }
    grid.strides.iter().find_map(|strides| {
        let fastest =
            (0..grid.rank()).filter(|&axis| strides[axis] != 0).min_by_key(|&axis| strides[axis])?;
        let pays =
            fastest != 0 && strides[0] != 0 && strides[fastest] <= 2 && grid.sizes[fastest] >= TILED_SIZE_MIN;
        pays.then_some(fastest)
    })
}

/// The tiles of a grid: of each operand the offset of a tile, then the tile's first position along both axes.
fn tiles_of(grid: &Grid, axis: usize, side: usize) -> Grid {
    let count = grid.strides.len();
    let mut tiles = Grid { sizes: Dims::EMPTY, strides: SmallVec::from_elem(Dims::EMPTY, count + 2) };
    for (turn, of) in [0, axis].into_iter().enumerate() {
        let steps = grid.strides.iter().map(|strides| strides[of] * side);
        let places = [if turn == 0 { side } else { 0 }, if turn == 1 { side } else { 0 }];
        tiles.push(grid.sizes[of].div_ceil(side), steps.chain(places));
    }
    for other in (1..grid.rank()).filter(|other| *other != axis) {
        tiles.push(grid.sizes[other], grid.strides.iter().map(|strides| strides[other]).chain([0, 0]));
    }
    tiles
}

/// How many elements along the fastest axis can be taken at once.
fn vector_of(grid: &Grid, arrays: &[Array]) -> usize {
    let mut vector = vector_max(arrays.iter().map(|array| array.dtype));
    let allows = |vector: usize| {
        grid.sizes[0].is_multiple_of(vector)
            && grid.strides.iter().zip(arrays).all(|(strides, array)| {
                strides[0] != 1
                    || is_aligned(array.place, vector * array.dtype.size_bytes())
                        && strides[1..].iter().all(|stride| stride.is_multiple_of(vector))
            })
    };
    while vector > 1 && !allows(vector) {
        vector /= 2;
    }
    vector
}
