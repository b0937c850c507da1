//! Source text: a prelude that all kernels share, settings as macros, and the text of a unit.

use raddle_base::DType;
use smallvec::SmallVec;
use std::fmt::Write;

/// Types and conversions, before every kernel.
const COMMON: &str = include_str!("common.cu");

/// The C++ type of an element in memory.
pub fn element_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "truth",
        DType::U8 => "unsigned char",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// The beginning of every source.
pub fn start(wide: bool) -> String {
    format!("#define WIDE {}\n{COMMON}", u32::from(wide))
}

macro_rules! units {
    ($($(#[$doc:meta])* $name:ident $entry:literal [$($file:literal),*];)*) => {
        /// A text with one kernel; what varies in it are macros.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Unit { $($(#[$doc])* $name),* }
        impl Unit {
            /// The name of its kernel.
            pub fn entry(self) -> &'static str {
                match self { $(Unit::$name => $entry),* }
            }
            fn text(self) -> &'static str {
                match self { $(Unit::$name => concat!($(include_str!($file)),*)),* }
            }
        }
    };
}
units! {
    /// One stage of a reduction.
    Reduce "reduce" ["reduce.cu"];
    /// A matrix product of few rows.
    FewRows "few_rows" ["product.cu", "few_rows.cu"];
    /// One of some rows, on tensor cores.
    SomeRows "some_rows" ["product.cu", "mma.cu", "some_rows.cu"];
    /// Softmax of rows and its backward.
    Softmax "softmax" ["rows.cu", "softmax.cu"];
    /// Attention on tensor cores.
    Attention "attention" ["attention.cu", "mma.cu", "attention_mma.cu"];
    /// Attention of anything else.
    AttentionAny "attention" ["attention.cu", "attention_any.cu"];
    /// Layer normalization of rows.
    LayerNorm "layer_norm" ["rows.cu", "layer_norm.cu"];
    /// Its backward.
    LayerNormBackward "layer_norm_backward" ["rows.cu", "layer_norm_backward.cu"];
    /// The derivatives of its weight and bias, of the sums that the former leaves.
    LayerNormSums "layer_norm_sums" ["layer_norm_sums.cu"];
    /// Gather, and the check of indices.
    Gather "gather" ["gather.cu"];
    /// Scatter, serially along the axis.
    Scatter "scatter" ["scatter.cu"];
    /// Scatter of entries that are sorted by destination.
    ScatterSorted "scatter_sorted" ["sort_key.cu", "scatter_sorted.cu"];
    /// Checks indices.
    CheckIndex "check_index" ["check_index.cu"];
    /// Counters and triangles.
    Fill "fill" ["fill.cu"];
    /// Random numbers.
    Random "random" ["random.cu"];
    /// Sorts chunks of rows.
    SortChunks "sort_chunks" ["sort_key.cu", "sort_network.cu", "sort_chunks.cu"];
    /// Merges sorted runs.
    SortMerge "sort_merge" ["sort_key.cu", "sort_merge.cu"];
    /// Puts a few sorted runs together.
    SortRank "sort_rank" ["sort_key.cu", "sort_rank.cu"];
    /// From sorted words to values and indices.
    SortFinish "sort_finish" ["sort_key.cu", "sort_finish.cu"];
    /// The first few of a row.
    TopK "topk" ["sort_key.cu", "sort_network.cu", "topk.cu"];
    /// Running sums of chunks of rows.
    Scan "scan" ["scan.cu"];
    /// Counts or writes the places of what isn't zero.
    NonZero "nonzero" ["nonzero.cu"];
    /// The product of sparse rows and a matrix.
    Sparse "sparse_matmul" ["sparse.cu"];
    /// The derivative of its values.
    SparseValues "sparse_values" ["sparse_values.cu"];
    /// The derivative of its matrix.
    SparseWeight "sparse_weight" ["sort_key.cu", "sparse_weight.cu"];
}

macro_rules! names {
    ($($name:ident),*) => {
        /// A macro of the texts; each says in its head what it means there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "named as in the texts")]
        pub enum Name { $($name),* }
        impl Name {
            fn text(self) -> &'static str {
                match self { $(Name::$name => stringify!($name)),* }
            }
        }
    };
}
names! {
    ACC, AHEAD, ELEMENT, IN, INDEX, OUT, PROBABILITY, ACROSS, ACT, ADDEND, ALIGNED, ARG, AXES, BACKWARD, BIAS,
    CAUSAL, CHUNK, CHUNKS, COLUMNS, COUNTS, D, DESCENDING, DIVIDE, DOUBLE, DV, FOLD, HAS_PROBABILITY, KEPT, KEYS, KIND, LANES, LAST, LOG, M,
    MAP, MASK, OWN, PAIRS, PARTIAL, PARTS, PASS, PLAIN, RANK, REDUCED, RESIDENT, ROOM, ROOT, RUNS, SETTLE, SHARED, STARTS,
    SUM_BIAS, SUM_WEIGHT, THREADS, TOTALS, TURNED, V, WARPS, WEIGHT, WIDE_KEY, WORDS
}

/// What a macro stands for: a type or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    Element(DType),
    Number(u16),
}

/// A unit and its macros.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Text {
    unit: Unit,
    wide: bool,
    settings: SmallVec<[(Name, Value); 16]>,
}

impl Text {
    /// Without macros yet; `wide` asks for 64 bits in positions and offsets.
    pub fn new(unit: Unit, wide: bool) -> Text {
        Text { unit, wide, settings: SmallVec::new() }
    }
    /// With a type.
    pub fn element(mut self, name: Name, dtype: DType) -> Text {
        self.settings.push((name, Value::Element(dtype)));
        self
    }
    /// With a number.
    pub fn number(mut self, name: Name, value: usize) -> Text {
        self.settings.push((name, Value::Number(value as u16)));
        self
    }
    /// With a truth value.
    pub fn flag(self, name: Name, value: bool) -> Text {
        self.number(name, usize::from(value))
    }

    /// The name of the kernel.
    pub fn entry(&self) -> &'static str {
        self.unit.entry()
    }

    /// The source.
    pub fn source(&self) -> String {
        let mut text = start(self.wide);
        for (name, value) in &self.settings {
            let written = match value {
                Value::Element(dtype) => writeln!(text, "#define {} {}", name.text(), element_type(*dtype)),
                Value::Number(number) => writeln!(text, "#define {} {number}", name.text()),
            };
            written.expect("a string takes whatever is written to it");
        }
        text + self.unit.text()
    }
}
