//! Names and source texts of pointwise kernels.

use super::source::{element_type, start};
use raddle_base::DType;
use raddle_op::ProgramRef;
use raddle_op::render::{Dialect, Slot, body, prelude, type_name};
use smallvec::SmallVec;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

/// Threads of a block.
pub const THREADS: usize = 256;

/// How a thread reaches the neighbours that it takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// By one access.
    Vector,
    /// One by one, evenly apart.
    Strided,
    /// All are one element.
    Broadcast,
    /// Tiled only: along the second axis.
    Turned,
}

/// What is computed.
#[derive(Clone, Debug)]
pub enum Work {
    /// Elements of so many bytes are moved.
    Move(u8),
    /// A program in a compute dtype.
    Program(ProgramRef, DType),
}

/// Programs of the table are compared by their address, others by content.
impl PartialEq for Work {
    fn eq(&self, other: &Work) -> bool {
        use ProgramRef::*;
        match (self, other) {
            (Work::Move(a), Work::Move(b)) => a == b,
            (Work::Program(Static(a), c), Work::Program(Static(b), d)) => std::ptr::eq(*a, *b) && c == d,
            (Work::Program(Shared(a), c), Work::Program(Shared(b), d)) => {
                c == d && (std::sync::Arc::ptr_eq(a, b) || a == b)
            }
            _ => false,
        }
    }
}
impl Eq for Work {}
impl Hash for Work {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Work::Move(size) => size.hash(state),
            Work::Program(ProgramRef::Static(program), compute) => {
                (std::ptr::from_ref(*program), compute).hash(state);
            }
            Work::Program(ProgramRef::Shared(program), compute) => (program, compute).hash(state),
        }
    }
}

/// The way, and what its text depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Room for so many groups.
    Flat {
        groups: u8,
    },
    Strided {
        rank: u8,
        wide: bool,
    },
    Tiled {
        rank: u8,
        wide: bool,
        side: u8,
    },
}

/// Names a pointwise kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub work: Work,
    pub path: Path,
    /// Elements that are taken at once.
    pub vector: u8,
    /// How often a thread does.
    pub unroll: u8,
    pub outputs: u8,
    pub operands: SmallVec<[(DType, Access); 12]>,
}

impl Key {
    fn is_wide(&self) -> bool {
        match self.path {
            Path::Flat { .. } => true,
            Path::Strided { wide, .. } | Path::Tiled { wide, .. } => wide,
        }
    }

    fn ids(&self) -> std::ops::Range<usize> {
        0..self.operands.len()
    }
    fn output_ids(&self) -> std::ops::Range<usize> {
        0..self.outputs as usize
    }
    fn input_ids(&self) -> std::ops::Range<usize> {
        self.outputs as usize..self.operands.len()
    }
    fn element(&self, operand: usize) -> &'static str {
        element_type(self.operands[operand].0)
    }

    /// The source.
    pub fn source(&self) -> String {
        let mut text = start(self.is_wide());
        self.write_element(&mut text).expect("a string takes whatever is written to it");
        match self.path {
            Path::Flat { groups } => self.write_flat(&mut text, groups),
            Path::Strided { rank, .. } => self.write_strided(&mut text, rank),
            Path::Tiled { rank, side, .. } => self.write_tiled(&mut text, rank, side),
        }
        .expect("a string takes whatever is written to it");
        text
    }

    /// The function of one element, `element(params, y0, …, x0, …)` in the order of the operands.
    fn write_element(&self, text: &mut String) -> std::fmt::Result {
        let mut signature = String::new();
        for id in self.ids() {
            let qualifier = if id < self.outputs as usize { "&" } else { "" };
            write!(signature, ", {}{qualifier} e{id}", self.element(id))?;
        }
        let (program, compute) = match &self.work {
            Work::Move(_) => {
                writeln!(text, "struct Params {{}};")?;
                return writeln!(text, "INLINE void element(const Params&{signature}) {{ e0 = e1; }}");
            }
            Work::Program(program, compute) => (program, *compute),
        };
        let number = type_name(compute, Dialect::Cuda).expect("CUDA has all compute dtypes");
        text.push_str(&prelude(compute, Dialect::Cuda));
        text.push_str("struct Params {");
        for param in 0..program.param_count() {
            write!(text, " {number} p{param};")?;
        }
        writeln!(text, " }};\nINLINE void element(const Params& params{signature}) {{")?;
        for (input, id) in self.input_ids().enumerate() {
            match compute {
                DType::Bool => {
                    writeln!(text, "const {number} x{input} = To<truth>::from(widen(e{id})).byte;")?
                }
                _ => writeln!(text, "const {number} x{input} = convert<{number}>(e{id});")?,
            }
        }
        for id in self.output_ids() {
            writeln!(text, "{number} y{id};")?;
        }
        let name = |slot| match slot {
            Slot::Input(index) => format!("x{index}"),
            Slot::Param(index) => format!("params.p{index}"),
            Slot::Output(index) => format!("y{index}"),
        };
        text.push_str(&body(program, compute, Dialect::Cuda, name).expect("CUDA has all compute dtypes"));
        for id in self.output_ids() {
            let value = if compute == DType::Bool { format!("truth{{y{id}}}") } else { format!("y{id}") };
            writeln!(text, "e{id} = convert<{}>({value});", self.element(id))?;
        }
        writeln!(text, "}}")
    }

    /// A list with something for each operand.
    fn list(&self, of: impl Fn(usize) -> String) -> String {
        self.ids().map(of).collect::<Vec<_>>().join(", ")
    }

    /// Declares what a thread keeps of each operand, loads the inputs by units, computes, and stores the outputs. In
    /// scope are `live[u]`, and `p{id}_(u)` gives the address of the unit's first element.
    fn write_units(&self, text: &mut String) -> std::fmt::Result {
        let (vector, unroll) = (self.vector, self.unroll);
        for id in self.ids() {
            writeln!(text, "    {} v{id}[{unroll}][{vector}];", self.element(id))?;
        }
        writeln!(text, "#pragma unroll\n    for (int u = 0; u < {unroll}; u++) if (live[u]) {{")?;
        for id in self.input_ids() {
            match self.operands[id].1 {
                Access::Vector => {
                    writeln!(text, "        load<{}, {vector}>(v{id}[u], AT({id}, u));", self.element(id))?
                }
                Access::Broadcast => writeln!(
                    text,
                    "        v{id}[u][0] = *AT({id}, u);\n#pragma unroll\n        for (int i = 1; i < {vector}; i++) v{id}[u][i] = v{id}[u][0];"
                )?,
                _ => writeln!(
                    text,
                    "#pragma unroll\n        for (int i = 0; i < {vector}; i++) v{id}[u][i] = AT({id}, u)[i * STEP({id})];"
                )?,
            }
        }
        let arguments = self.list(|id| format!("v{id}[u][i]"));
        writeln!(text, "    }}\n#pragma unroll\n    for (int u = 0; u < {unroll}; u++) if (live[u]) {{")?;
        writeln!(
            text,
            "#pragma unroll\n        for (int i = 0; i < {vector}; i++) element(params, {arguments});"
        )?;
        for id in self.output_ids() {
            match self.operands[id].1 {
                Access::Vector => {
                    writeln!(text, "        store<{}, {vector}>(AT({id}, u), v{id}[u]);", self.element(id))?
                }
                _ => writeln!(
                    text,
                    "#pragma unroll\n        for (int i = 0; i < {vector}; i++) AT({id}, u)[i * STEP({id})] = v{id}[u][i];"
                )?,
            }
        }
        writeln!(text, "    }}")
    }

    fn write_flat(&self, text: &mut String, groups: u8) -> std::fmt::Result {
        let (vector, unroll) = (self.vector, self.unroll);
        let fields: String = self.ids().map(|id| format!(" {}* p{id};", self.element(id))).collect();
        writeln!(text, "struct Group {{{fields} unsigned long long count, first_block; }};")?;
        self.write_head(text, &format!("    Group groups[{groups}];\n"))?;
        writeln!(text, "    unsigned long long block = block_index();\n    int at = 0;")?;
        if groups > 1 {
            // The last group that starts at or before this block.
            writeln!(
                text,
                "    for (int high = {groups}; high - at > 1;) {{\n        int middle = (at + high) / 2;\n        \
                if (all.groups[middle].first_block <= block) at = middle; else high = middle;\n    }}"
            )?;
        }
        writeln!(
            text,
            "    const Group& g = all.groups[at];\n    block -= g.first_block;\n    \
            const unsigned long long units = g.count / {vector};\n    \
            const unsigned long long first = block * {} + threadIdx.x;\n    bool live[{unroll}];\n\
            #pragma unroll\n    for (int u = 0; u < {unroll}; u++) live[u] = first + u * {THREADS} < units;",
            THREADS * unroll as usize
        )?;
        for id in self.ids() {
            let offset = match self.operands[id].1 {
                Access::Broadcast => String::new(),
                _ => format!(" + (first + (u) * {THREADS}) * {vector}"),
            };
            writeln!(text, "#define AT_{id}(u) (g.p{id}{offset})")?;
        }
        writeln!(text, "#define AT(id, u) AT_##id(u)\n#define STEP(id) 1")?;
        self.write_units(text)?;
        if vector > 1 {
            let rest = self.list(|id| match self.operands[id].1 {
                Access::Broadcast => format!("g.p{id}[0]"),
                _ => format!("g.p{id}[rest]"),
            });
            writeln!(
                text,
                "    // What is less than a unit, by the first threads of the last block.\n    \
                const unsigned long long rest = units * {vector} + threadIdx.x;\n    \
                if (block == (g.count - 1) / {} && rest < g.count) element(params, {rest});",
                THREADS * unroll as usize * vector as usize
            )?;
        }
        writeln!(text, "}}")
    }

    /// The kernel's one argument, a struct of these fields and the program's parameters, and how the kernel begins.
    fn write_head(&self, text: &mut String, fields: &str) -> std::fmt::Result {
        let has_params = matches!(&self.work, Work::Program(program, _) if program.param_count() > 0);
        let (field, params) = match has_params {
            true => ("    Params params;\n", "const Params& params = all.params;"),
            // An empty struct would take a byte.
            false => ("", "const Params params{};"),
        };
        writeln!(text, "struct All {{\n{fields}{field}}};")?;
        writeln!(
            text,
            "extern \"C\" __global__ void __launch_bounds__({THREADS}) pointwise(const All all) {{\n    {params}"
        )
    }

    /// A field for each operand's place.
    fn places(&self) -> String {
        self.ids().map(|id| format!("    {}* p{id};\n", self.element(id))).collect()
    }

    fn write_strided(&self, text: &mut String, rank: u8) -> std::fmt::Result {
        let (count, unroll) = (self.operands.len(), self.unroll);
        let places = self.places();
        self.write_head(
            text,
            &format!(
                "{places}    index_t steps[{count}];\n    Grid<{count}, {rank}> grid;\n    index_t units;\n"
            ),
        )?;
        writeln!(
            text,
            "    const unsigned long long first = block_index() * {} + threadIdx.x;\n    bool live[{unroll}];\n    \
            index_t offsets[{unroll}][{count}];\n\
            #pragma unroll\n    for (int u = 0; u < {unroll}; u++) {{\n        \
            live[u] = first + u * {THREADS} < all.units;\n        \
            if (live[u]) all.grid.at((index_t)(first + u * {THREADS}), offsets[u]);\n    }}",
            THREADS * unroll as usize
        )?;
        for id in self.ids() {
            writeln!(text, "#define AT_{id}(u) (all.p{id} + offsets[u][{id}])")?;
        }
        writeln!(text, "#define AT(id, u) AT_##id(u)\n#define STEP(id) all.steps[id]")?;
        self.write_units(text)?;
        writeln!(text, "}}")
    }

    fn write_tiled(&self, text: &mut String, rank: u8, side: u8) -> std::fmt::Result {
        let (count, side) = (self.operands.len(), side as usize);
        let (lines, kept) = (THREADS / side, side * side / THREADS);
        let is_turned = |id: usize| self.operands[id].1 == Access::Turned;
        let size = |id: usize| self.operands[id].0.size_bytes();
        // A row and a few elements more is an odd number of words: then neither rows nor columns meet in a bank.
        let pitch = |id: usize| side + (4 / size(id)).max(1);
        let shared =
            self.ids().filter(|id| is_turned(*id)).map(|id| side * pitch(id) * size(id)).max().unwrap_or(8);
        writeln!(text, "struct Step {{ index_t across, down; }};")?;
        let fields = format!(
            "{}    index_t width, height;\n    Step steps[{count}];\n    Grid<{}, {rank}> tiles;\n    index_t tile_count;\n",
            self.places(),
            count + 2
        );
        self.write_head(text, &fields)?;
        writeln!(
            text,
            "    __shared__ __align__(16) unsigned char memory[{shared}];\n    \
            const unsigned long long tile = block_index();\n    if (tile >= all.tile_count) return;\n    \
            index_t offsets[{}];\n    all.tiles.at((index_t)tile, offsets);\n    \
            const index_t left = all.width - offsets[{count}], below = all.height - offsets[{}];\n    \
            const unsigned x = threadIdx.x % {side}, y = threadIdx.x / {side};",
            count + 2,
            count + 1
        )?;
        for id in self.ids() {
            writeln!(text, "    {} v{id}[{kept}];", self.element(id))?;
        }
        for id in self.input_ids() {
            let (inside, offset) = place_in_tile(id, is_turned(id), lines);
            writeln!(
                text,
                "#pragma unroll\n    for (int e = 0; e < {kept}; e++) if ({inside}) v{id}[e] = all.p{id}[offsets[{id}] + {offset}];"
            )?;
        }
        let turn = |text: &mut String, id: usize, write: &str, read: &str| {
            writeln!(
                text,
                "    {{\n        {0}* turned = ({0}*)memory;\n        __syncthreads();\n\
                #pragma unroll\n        for (int e = 0; e < {kept}; e++) turned[{write}] = v{id}[e];\n        __syncthreads();\n\
                #pragma unroll\n        for (int e = 0; e < {kept}; e++) v{id}[e] = turned[{read}];\n    }}",
                self.element(id)
            )
        };
        let along = |id: usize| format!("(y + e * {lines}) * {} + x", pitch(id));
        let across = |id: usize| format!("x * {} + y + e * {lines}", pitch(id));
        for id in self.input_ids().filter(|id| is_turned(*id)) {
            turn(text, id, &along(id), &across(id))?;
        }
        let arguments = self.list(|id| format!("v{id}[e]"));
        writeln!(text, "#pragma unroll\n    for (int e = 0; e < {kept}; e++) element(params, {arguments});")?;
        for id in self.output_ids() {
            if is_turned(id) {
                turn(text, id, &across(id), &along(id))?;
            }
            let (inside, offset) = place_in_tile(id, is_turned(id), lines);
            writeln!(
                text,
                "#pragma unroll\n    for (int e = 0; e < {kept}; e++) if ({inside}) all.p{id}[offsets[{id}] + {offset}] = v{id}[e];"
            )?;
        }
        writeln!(text, "}}")
    }
}

/// Is element `e` of a thread inside of the tensor, and where does it lie from the start of the tile?
fn place_in_tile(id: usize, turned: bool, lines: usize) -> (String, String) {
    let line = format!("(y + e * {lines})");
    let (across, down) = if turned { (line.as_str(), "x") } else { ("x", line.as_str()) };
    (
        format!("{across} < left && {down} < below"),
        format!("{across} * all.steps[{id}].across + {down} * all.steps[{id}].down"),
    )
}
