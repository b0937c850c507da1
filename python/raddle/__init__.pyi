"""Made by python/stubs.py: do not edit."""
from typing import Any
from . import nn as nn
from ._fused import fused as fused
from ._raddle import *
from ._raddle import __version__ as __version__
abs = Tensor.abs
absolute = Tensor.abs
acos = Tensor.acos
addcdiv = Tensor.addcdiv
addcmul = Tensor.addcmul
addmm = Tensor.addmm
all = Tensor.all
amax = Tensor.amax
amin = Tensor.amin
any = Tensor.any
arccos = Tensor.acos
arcsin = Tensor.asin
arctan = Tensor.atan
arctan2 = Tensor.atan2
argmax = Tensor.argmax
argmin = Tensor.argmin
argsort = Tensor.argsort
as_strided = Tensor.as_strided
def as_tensor(data: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None) -> Any:
    """The tensor itself if it is one of that dtype and device, else a new one of the numbers."""
def asarray(data: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None) -> Any:
    """The tensor itself if it is one of that dtype and device, else a new one of the numbers."""
asin = Tensor.asin
atan = Tensor.atan
atan2 = Tensor.atan2
bernoulli = Tensor.bernoulli
bitwise_not = Tensor.bitwise_not
bmm = Tensor.bmm
broadcast_to = Tensor.broadcast_to
ceil = Tensor.ceil
chunk = Tensor.chunk
clamp = Tensor.clamp
clamp_max = Tensor.clamp_max
clamp_min = Tensor.clamp_min
clip = Tensor.clamp
clone = Tensor.clone
concat = cat
concatenate = cat
cos = Tensor.cos
cosh = Tensor.cosh
count_nonzero = Tensor.count_nonzero
cumsum = Tensor.cumsum
diagonal = Tensor.diagonal
divide = div
dot = Tensor.dot
e: Any
elu = Tensor.elu
class enable_grad:
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> None: ...
    def __call__(self, function: Any) -> Any: ...
eq = Tensor.eq
equal = Tensor.equal
erf = Tensor.erf
erfc = Tensor.erfc
exp = Tensor.exp
expm1 = Tensor.expm1
fix = Tensor.trunc
flatten = Tensor.flatten
floor = Tensor.floor
fmod = Tensor.fmod
frac = Tensor.frac
def from_numpy(array: Any) -> Any:
    """A tensor of an array's elements, copied."""
gather = Tensor.gather
ge = Tensor.ge
gelu = Tensor.gelu
greater = Tensor.gt
greater_equal = Tensor.ge
gt = Tensor.gt
index_add = Tensor.index_add
index_put = Tensor.index_put
index_select = Tensor.index_select
inf: Any
class inference_mode:
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> None: ...
    def __call__(self, function: Any) -> Any: ...
is_contiguous = Tensor.is_contiguous
def is_floating_point(input: Tensor) -> Any:
    """Are its elements floats?"""
def is_tensor(obj: Any) -> Any:
    """Is it a tensor?"""
isfinite = Tensor.isfinite
isinf = Tensor.isinf
isnan = Tensor.isnan
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
logical_and = Tensor.logical_and
logical_not = Tensor.logical_not
logical_or = Tensor.logical_or
logical_xor = Tensor.logical_xor
lt = Tensor.lt
masked_fill = Tensor.masked_fill
masked_select = Tensor.masked_select
matmul = Tensor.matmul
max = Tensor.max
maximum = Tensor.maximum
mean = Tensor.mean
min = Tensor.min
minimum = Tensor.minimum
mm = Tensor.mm
moveaxis = Tensor.movedim
movedim = Tensor.movedim
multiply = mul
nan: Any
narrow = Tensor.narrow
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
permute = Tensor.permute
permute_dims = Tensor.permute
pi: Any
prod = Tensor.prod
ravel = Tensor.ravel
reciprocal = Tensor.reciprocal
relu = Tensor.relu
reshape = Tensor.reshape
round = Tensor.round
rsqrt = Tensor.rsqrt
save = save_file
scatter = Tensor.scatter
scatter_add = Tensor.scatter_add
select = Tensor.select
class set_grad_enabled:
    def __init__(self, *args: Any) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *args: Any) -> None: ...
    def __call__(self, function: Any) -> Any: ...
sigmoid = Tensor.sigmoid
sign = Tensor.sign
silu = Tensor.silu
sin = Tensor.sin
sinh = Tensor.sinh
softmax = Tensor.softmax
softplus = Tensor.softplus
sort = Tensor.sort
split = Tensor.split
split_with_sizes = Tensor.split_with_sizes
sqrt = Tensor.sqrt
square = Tensor.square
squeeze = Tensor.squeeze
std = Tensor.std
def stream(stream: Any) -> Any:
    """``with raddle.stream(s):`` makes a stream the current one of this thread."""
subtract = sub
sum = Tensor.sum
swapaxes = Tensor.transpose
swapdims = Tensor.transpose
t = Tensor.t
tan = Tensor.tan
tanh = Tensor.tanh
topk = Tensor.topk
transpose = Tensor.transpose
tril = Tensor.tril
triu = Tensor.triu
true_divide = div
trunc = Tensor.trunc
trunc_divide = Tensor.trunc_divide
unbind = Tensor.unbind
unflatten = Tensor.unflatten
unsqueeze = Tensor.unsqueeze
var = Tensor.var
