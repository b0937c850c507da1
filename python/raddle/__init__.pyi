"""Made by python/stubs.py: do not edit."""
import builtins
from collections.abc import Sequence
from typing import Any
from . import nn as nn
from ._fused import fused as fused
from ._raddle import *
from ._raddle import __version__ as __version__
abs = Tensor.abs
absolute = Tensor.abs
acos = Tensor.acos
acosh = Tensor.acosh
addbmm = Tensor.addbmm
addcdiv = Tensor.addcdiv
addcmul = Tensor.addcmul
addmm = Tensor.addmm
addmv = Tensor.addmv
addr = Tensor.addr
all = Tensor.all
allclose = Tensor.allclose
amax = Tensor.amax
amin = Tensor.amin
aminmax = Tensor.aminmax
any = Tensor.any
arccos = Tensor.acos
arccosh = Tensor.acosh
arcsin = Tensor.asin
arcsinh = Tensor.asinh
arctan = Tensor.atan
arctan2 = Tensor.atan2
arctanh = Tensor.atanh
argmax = Tensor.argmax
argmin = Tensor.argmin
argsort = Tensor.argsort
argwhere = Tensor.argwhere
as_strided = Tensor.as_strided
def as_tensor(data: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None) -> Any:
    """The tensor itself if it is one of that dtype and device, else a new one of the numbers."""
def asarray(data: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None) -> Any:
    """The tensor itself if it is one of that dtype and device, else a new one of the numbers."""
asin = Tensor.asin
asinh = Tensor.asinh
atan = Tensor.atan
atan2 = Tensor.atan2
atanh = Tensor.atanh
def atleast_1d(*tensors: Any) -> Any:
    """With at least one axis."""
def atleast_2d(*tensors: Any) -> Any:
    """With at least two axes: new ones come in front."""
def atleast_3d(*tensors: Any) -> Any:
    """With at least three axes: a row becomes ``[1, n, 1]``, a matrix ``[n, m, 1]``."""
baddbmm = Tensor.baddbmm
bernoulli = Tensor.bernoulli
bincount = Tensor.bincount
bitwise_not = Tensor.bitwise_not
def block_diag(*tensors: Any) -> Any:
    """Matrices along a diagonal; vectors are rows."""
bmm = Tensor.bmm
def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that all broadcast to."""
broadcast_to = Tensor.broadcast_to
def bucketize(input: Tensor, boundaries: Any, *, out_int32: Any = False, right: Any = False, out: Tensor | None = None) -> Any:
    """Between which boundaries each element lies."""
def cartesian_prod(*tensors: Any) -> Any:
    """All choices of one element of each vector, as rows."""
def cdist(x1: Any, x2: Any, p: builtins.float = 2.0, compute_mode: Any = None) -> Any:
    """Distances between the rows of two tensors."""
ceil = Tensor.ceil
celu = Tensor.celu
def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Any:
    """The product of matrices, in the order that costs least."""
chunk = Tensor.chunk
clamp = Tensor.clamp
clamp_max = Tensor.clamp_max
clamp_min = Tensor.clamp_min
clip = Tensor.clamp
clone = Tensor.clone
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Any:
    """``hstack`` with vectors as columns."""
def combinations(input: Tensor, r: Any = 2, with_replacement: Any = False) -> Any:
    """All choices of ``r`` elements of a vector in its order, as rows."""
concat = cat
concatenate = cat
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Any:
    """The last axes with so many elements more, or fewer, at both ends; of the last axis first."""
copysign = Tensor.copysign
corrcoef = Tensor.corrcoef
cos = Tensor.cos
cosh = Tensor.cosh
count_nonzero = Tensor.count_nonzero
cross = Tensor.cross
cummax = Tensor.cummax
cummin = Tensor.cummin
cumprod = Tensor.cumprod
cumsum = Tensor.cumsum
def cumulative_trapezoid(y: Operand, x: Operand | None = None, *, dx: Any = None, dim: builtins.int = -1) -> Any:
    """The running integral by trapezoids."""
deg2rad = Tensor.deg2rad
diag = Tensor.diag
diag_embed = Tensor.diag_embed
diagflat = Tensor.diagflat
diagonal = Tensor.diagonal
diagonal_scatter = Tensor.diagonal_scatter
diff = Tensor.diff
dist = Tensor.dist
divide = div
dot = Tensor.dot
dsplit = Tensor.dsplit
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Any:
    """One behind the other: along axis 2."""
e: Any
def einsum(equation: Any, *operands: Any) -> Any:
    """The sum of products that an equation names: ``einsum("ij,jk->ik", a, b)``."""
elu = Tensor.elu
class enable_grad:
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> None: ...
    def __call__(self, function: Any) -> Any: ...
entr = Tensor.entr
eq = Tensor.eq
equal = Tensor.equal
erf = Tensor.erf
erfc = Tensor.erfc
erfinv = Tensor.erfinv
exp = Tensor.exp
exp2 = Tensor.exp2
expm1 = Tensor.expm1
fix = Tensor.trunc
flatten = Tensor.flatten
flip = Tensor.flip
fliplr = Tensor.fliplr
flipud = Tensor.flipud
float_power = Tensor.float_power
floor = Tensor.floor
fmax = Tensor.fmax
fmin = Tensor.fmin
fmod = Tensor.fmod
frac = Tensor.frac
def from_numpy(array: Any) -> Any:
    """A tensor of an array's elements, copied."""
gather = Tensor.gather
ge = Tensor.ge
gelu = Tensor.gelu
def gradient(input: Tensor, *, spacing: Any = 1, dim: Axes | None = None, edge_order: Any = 1) -> Any:
    """Differences of second order inside, of order ``edge_order`` at the ends, for each axis; ``spacing`` is a step, or places."""
greater = Tensor.gt
greater_equal = Tensor.ge
gt = Tensor.gt
hardshrink = Tensor.hardshrink
hardsigmoid = Tensor.hardsigmoid
hardswish = Tensor.hardswish
hardtanh = Tensor.hardtanh
heaviside = Tensor.heaviside
histc = Tensor.histc
histogram = Tensor.histogram
hsplit = Tensor.hsplit
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Any:
    """Side by side: along axis 1, of vectors along axis 0."""
hypot = Tensor.hypot
index_add = Tensor.index_add
index_copy = Tensor.index_copy
index_fill = Tensor.index_fill
index_put = Tensor.index_put
index_reduce = Tensor.index_reduce
index_select = Tensor.index_select
inf: Any
class inference_mode:
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> None: ...
    def __call__(self, function: Any) -> Any: ...
inner = Tensor.inner
is_contiguous = Tensor.is_contiguous
def is_floating_point(input: Tensor) -> Any:
    """Are its elements floats?"""
def is_tensor(obj: Any) -> Any:
    """Is it a tensor?"""
isclose = Tensor.isclose
isfinite = Tensor.isfinite
def isin(elements: Any, test_elements: Any, *, assume_unique: Any = False, invert: Any = False, out: Tensor | None = None) -> Any:
    """Which elements are among others; a NaN is among none."""
isinf = Tensor.isinf
isnan = Tensor.isnan
isneginf = Tensor.isneginf
isposinf = Tensor.isposinf
kron = Tensor.kron
kthvalue = Tensor.kthvalue
ldexp = Tensor.ldexp
le = Tensor.le
leaky_relu = Tensor.leaky_relu
lerp = Tensor.lerp
less = Tensor.lt
less_equal = Tensor.le
load = load_file
log = Tensor.log
log10 = Tensor.log10
log1p = Tensor.log1p
log2 = Tensor.log2
log_softmax = Tensor.log_softmax
logaddexp = Tensor.logaddexp
logaddexp2 = Tensor.logaddexp2
logcumsumexp = Tensor.logcumsumexp
logical_and = Tensor.logical_and
logical_not = Tensor.logical_not
logical_or = Tensor.logical_or
logical_xor = Tensor.logical_xor
logit = Tensor.logit
logsigmoid = Tensor.logsigmoid
def logspace(start: Any, end: Operand, steps: builtins.int, base: Any = 10.0, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, out: Tensor | None = None) -> Any:
    """``base`` to the power of evenly spaced numbers."""
logsumexp = Tensor.logsumexp
lt = Tensor.lt
masked_fill = Tensor.masked_fill
masked_scatter = Tensor.masked_scatter
masked_select = Tensor.masked_select
matmul = Tensor.matmul
max = Tensor.max
maximum = Tensor.maximum
mean = Tensor.mean
median = Tensor.median
def meshgrid(*tensors: Any, indexing: Any = 'ij') -> Any:
    """Vectors as views of one grid: ``"ij"`` in their order, ``"xy"`` with the first two swapped."""
min = Tensor.min
minimum = Tensor.minimum
mish = Tensor.mish
mm = Tensor.mm
mode = Tensor.mode
moveaxis = Tensor.movedim
movedim = Tensor.movedim
msort = Tensor.msort
multiply = mul
mv = Tensor.mv
nan: Any
nan_to_num = Tensor.nan_to_num
nanmean = Tensor.nanmean
nanmedian = Tensor.nanmedian
nanquantile = Tensor.nanquantile
nansum = Tensor.nansum
narrow = Tensor.narrow
ndtr = Tensor.ndtr
ne = Tensor.ne
neg = Tensor.neg
negative = Tensor.neg
nelement = Tensor.numel
newaxis: Any
class no_grad:
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> None: ...
    def __call__(self, function: Any) -> Any: ...
nonzero = Tensor.nonzero
norm = Tensor.norm
not_equal = Tensor.ne
def numel(input: Tensor) -> Any:
    """How many elements it has."""
outer = Tensor.outer
permute = Tensor.permute
permute_dims = Tensor.permute
pi: Any
positive = Tensor.positive
prelu = Tensor.prelu
prod = Tensor.prod
put = Tensor.put
quantile = Tensor.quantile
rad2deg = Tensor.rad2deg
ravel = Tensor.ravel
reciprocal = Tensor.reciprocal
relu = Tensor.relu
renorm = Tensor.renorm
repeat = Tensor.repeat
repeat_interleave = Tensor.repeat_interleave
reshape = Tensor.reshape
roll = Tensor.roll
rot90 = Tensor.rot90
round = Tensor.round
rsqrt = Tensor.rsqrt
def rsub(input: Tensor, other: Operand, *, alpha: Any = 1) -> Any:
    """``other - alpha · input``."""
save = save_file
def scalar_tensor(s: Any, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Any:
    """A number as a tensor without axes."""
scatter = Tensor.scatter
scatter_add = Tensor.scatter_add
scatter_reduce = Tensor.scatter_reduce
def searchsorted(sorted_sequence: Any, input: Tensor, *, out_int32: Any = False, right: Any = False, side: Any = None, sorter: Any = None, out: Tensor | None = None) -> Any:
    """Where values go in a sorted axis so that it stays so: before equal ones, or behind them."""
select = Tensor.select
select_scatter = Tensor.select_scatter
selu = Tensor.selu
class set_grad_enabled:
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> None: ...
    def __call__(self, function: Any) -> Any: ...
sigmoid = Tensor.sigmoid
sign = Tensor.sign
signbit = Tensor.signbit
silu = Tensor.silu
sin = Tensor.sin
sinc = Tensor.sinc
sinh = Tensor.sinh
slice_scatter = Tensor.slice_scatter
softmax = Tensor.softmax
softplus = Tensor.softplus
softshrink = Tensor.softshrink
softsign = Tensor.softsign
sort = Tensor.sort
split = Tensor.split
split_with_sizes = Tensor.split_with_sizes
sqrt = Tensor.sqrt
square = Tensor.square
squeeze = Tensor.squeeze
std = Tensor.std
def std_mean(input: Tensor, dim: Axes | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Any = None, out: Tensor | None = None) -> Any:
    """``std`` and ``mean`` over axes (none: all)."""
def stream(stream: Any) -> Any:
    """``with raddle.stream(s):`` makes a stream the current one of this thread."""
subtract = sub
sum = Tensor.sum
sum_to_size = Tensor.sum_to_size
swapaxes = Tensor.transpose
swapdims = Tensor.transpose
t = Tensor.t
take = Tensor.take
take_along_dim = Tensor.take_along_dim
tan = Tensor.tan
tanh = Tensor.tanh
tanhshrink = Tensor.tanhshrink
tensor_split = Tensor.tensor_split
def tensordot(a: Any, b: Any, dims: Any = 2, out: Tensor | None = None) -> Any:
    """The product summed over axes: so many last ones of ``a`` with the first of ``b``, or lists of both."""
threshold = Tensor.threshold
tile = Tensor.tile
topk = Tensor.topk
trace = Tensor.trace
transpose = Tensor.transpose
def trapezoid(y: Operand, x: Operand | None = None, *, dx: Any = None, dim: builtins.int = -1) -> Any:
    """The integral by trapezoids, of steps ``dx`` or at places ``x``."""
def trapz(y: Operand, x: Operand | None = None, *, dx: Any = None, dim: builtins.int = -1) -> Any:
    """The integral by trapezoids, of steps ``dx`` or at places ``x``."""
tril = Tensor.tril
def tril_indices(row: Any, col: Any, offset: builtins.int = 0, *, dtype: AnyDType | None = None, device: AnyDevice | None = None) -> Any:
    """Rows and columns of what lies on and below a diagonal."""
triu = Tensor.triu
def triu_indices(row: Any, col: Any, offset: builtins.int = 0, *, dtype: AnyDType | None = None, device: AnyDevice | None = None) -> Any:
    """Rows and columns of what lies on and above a diagonal."""
true_divide = div
trunc = Tensor.trunc
trunc_divide = Tensor.trunc_divide
unbind = Tensor.unbind
unflatten = Tensor.unflatten
unique = Tensor.unique
unique_consecutive = Tensor.unique_consecutive
def unravel_index(indices: Any, shape: Any) -> Any:
    """Places in row-major order as an index for each axis."""
unsqueeze = Tensor.unsqueeze
def vander(x: Operand, N: Any = None, increasing: Any = False) -> Any:
    """The powers of a vector's elements, as columns."""
var = Tensor.var
def var_mean(input: Tensor, dim: Axes | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Any = None, out: Tensor | None = None) -> Any:
    """``var`` and ``mean`` over axes (none: all)."""
vsplit = Tensor.vsplit
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Any:
    """One below the other: along axis 0, vectors as rows."""
def xlog1py(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Any:
    """`x · ln(1 + y)`; 0 where `x` is 0, unless `y` is NaN. The derivative by `x` is 0 where `x` is 0 and `y` isn't above -1."""
def xlogy(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Any:
    """`x · ln y`; 0 where `x` is 0, unless `y` is NaN. The derivative by `x` is 0 where `x` is 0 and `y` isn't above 0."""
