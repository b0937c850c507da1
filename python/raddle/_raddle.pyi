"""Made by python/stubs.py: do not edit."""

import builtins
import os
from collections.abc import Iterator, Sequence
from typing import Any

Number = builtins.bool | builtins.int | builtins.float
Operand = Tensor | Number
Axes = builtins.int | Sequence[builtins.int]
AnyDType = dtype | type
AnyDevice = device | builtins.str
DType = dtype

class Adam:
    """Adam; the decay of weights is part of the gradient."""
    def __new__(cls, *args: Any, **kwargs: Any) -> Adam: ...
    @property
    def lr(self) -> Tensor:
        """The learning rate."""
    def step(self) -> Tensor:
        """Changes each parameter that has a gradient, all of them in one launch."""
    def zero_grad(self, set_to_none: Any = True) -> Tensor:
        """Drops the gradients."""
class AdamW:
    """Adam; weights decay by themselves."""
    def __new__(cls, *args: Any, **kwargs: Any) -> AdamW: ...
    @property
    def lr(self) -> Tensor:
        """The learning rate."""
    def step(self) -> Tensor:
        """Changes each parameter that has a gradient, all of them in one launch."""
    def zero_grad(self, set_to_none: Any = True) -> Tensor:
        """Drops the gradients."""
class ArgumentError(Error, builtins.ValueError): ...
class BoundsError(Error, builtins.IndexError): ...
class DTypeError(Error, builtins.TypeError): ...
class Error(builtins.RuntimeError): ...
class Event:
    """A point in the work of a stream. Any thread may use it."""
    def __new__(cls, *args: Any, **kwargs: Any) -> Event: ...
    def elapsed_time(self, end_event: Any) -> builtins.float:
        """Milliseconds from this event to `end_event`. Both note times, and are complete."""
    def query(self) -> builtins.bool:
        """Is what was recorded complete? Doesn't wait; false before the first record."""
    def record(self, stream: Any = None) -> None:
        """Records what is on a stream now: on the current one of the CPU if none is given."""
    def synchronize(self) -> None:
        """Waits until what was recorded is complete."""
    def wait(self, stream: Any = None) -> None:
        """Puts what comes to a stream from now on behind what was recorded."""
class FileError(Error, builtins.OSError): ...
class Generator:
    """A source of random numbers of its own; without one a thread's is used."""
    def __new__(cls, *args: Any, **kwargs: Any) -> Generator: ...
    @staticmethod
    def from_state(*args: Any) -> Generator:
        """staticmethod(function) -> method"""
    def get_state(self) -> Any:
        """Key and counter, from which it can be made again."""
class Graph:
    """Ops that were captured by `raddle.capture`. Any thread may replay it."""
    @property
    def kernel_count(self) -> builtins.int:
        """How many kernels a replay runs."""
    def replay(self, replacements: Any = None) -> Any:
        """Does it all again, as one op; what the function returned, of this replay. Doesn't wait for results. `replacements`:"""
class OutOfMemoryError(Error, builtins.MemoryError): ...
class Published:
    """A version that was published: its number and copies of the tensors."""
    @property
    def id(self) -> builtins.int:
        """The number of the version; later ones are higher."""
    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The copies, in the order in which they were published."""
class Publisher:
    """Where versions of tensors are published: readers get all tensors of one version, and nobody waits."""
    def __new__(cls, *args: Any, **kwargs: Any) -> Publisher: ...
    def load(self) -> Published:
        """The newest version. Never waits."""
    def publish(self, tensors: Sequence[Tensor]) -> builtins.int:
        """Copies the tensors and makes the copies the newest version; its number. Doesn't wait for the copy, nor for readers."""
class SGD:
    """Gradient descent, with momentum."""
    def __new__(cls, *args: Any, **kwargs: Any) -> SGD: ...
    @property
    def lr(self) -> Tensor:
        """The learning rate."""
    def step(self) -> Tensor:
        """Changes each parameter that has a gradient, all of them in one launch."""
    def zero_grad(self, set_to_none: Any = True) -> Tensor:
        """Drops the gradients."""
class SentenceEncoder:
    """A sentence encoder of the BERT kind. Any thread may use it."""
    def __new__(cls, *args: Any, **kwargs: Any) -> SentenceEncoder: ...
    @property
    def device(self) -> Any:
        """Where it is."""
    def encode(self, sentences: Any, *, convert_to_numpy: Any = False) -> Any:
        """The vectors of texts, `[texts, width]` in float32; of one text that isn't in a list, `[width]`. Texts that are too long are"""
    @property
    def max_seq_length(self) -> builtins.int:
        """Tokens of a text, at most."""
    def prompt(self, name: Any) -> builtins.str:
        """What the model wants before texts of this kind, to be put there by the caller."""
    @property
    def width(self) -> builtins.int:
        """Elements of a vector."""
class ShapeError(Error, builtins.ValueError): ...
class Stream:
    """A queue of work of a device. `with stream:` makes it the current one of this thread."""
    def __enter__(self) -> Stream: ...
    def __exit__(self, *_error: Any) -> None: ...
    def __new__(cls, *args: Any, **kwargs: Any) -> Stream: ...
    def __repr__(self) -> builtins.str:
        """Return repr(self)."""
    @property
    def device(self) -> Any:
        """The device that it belongs to."""
    def query(self) -> builtins.bool:
        """Is all work on it complete? Doesn't wait."""
    def record_event(self, event: Any = None) -> Event:
        """An event that has recorded what is on it now: `event`, or a new one."""
    @property
    def stream_id(self) -> builtins.int:
        """Its number; no other stream of the process has it."""
    def synchronize(self) -> None:
        """Waits for all work on it."""
    def wait_event(self, event: Any) -> None:
        """Puts what comes from now on behind what an event has recorded."""
    def wait_stream(self, stream: Any) -> None:
        """Puts what comes from now on behind what is on another stream."""
class Tensor:
    """Elements of one dtype on one device, in any strides. Any thread may use it, with no lock: work is ordered by Raddle."""
    @property
    def T(self) -> Tensor:
        """All axes in the reverse order: a view."""
    def __abs__(self) -> Tensor:
        """abs(self)"""
    def __add__(self, value: Any) -> Tensor:
        """Return self+value."""
    def __and__(self, value: Any) -> Tensor:
        """Return self&value."""
    def __array__(self, dtype: AnyDType | None = None, copy: builtins.bool | None = None) -> Any:
        """For `numpy.asarray`: a copy, or with `copy=False` an array of the same memory."""
    def __bool__(self) -> builtins.bool:
        """True if self else False"""
    def __contains__(self, key: Any) -> builtins.bool:
        """Return key in self."""
    def __copy__(self) -> Tensor:
        """Another handle of the same tensor."""
    def __deepcopy__(self, _memo: Any) -> Tensor: ...
    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: builtins.bool | None = None) -> Any:
        """For consumers of DLPack, as `torch.from_dlpack` and `numpy.from_dlpack`: a capsule of the same memory. What a tensor on a GPU is"""
    def __dlpack_device__(self) -> tuple[builtins.int, builtins.int]:
        """Where it lies, in DLPack's words: (1, 0) is the CPU, (2, n) the GPU n."""
    def __float__(self) -> builtins.float:
        """float(self)"""
    def __floordiv__(self, value: Any) -> Tensor:
        """Return self//value."""
    def __format__(self, spec: Any) -> builtins.str:
        """Default object formatter."""
    def __getitem__(self, key: Any) -> Tensor:
        """Return self[key]."""
    def __iadd__(self, value: Any) -> Tensor:
        """Return self+=value."""
    def __iand__(self, value: Any) -> Tensor:
        """Return self&=value."""
    def __ifloordiv__(self, value: Any) -> Tensor:
        """Return self//=value."""
    def __ilshift__(self, value: Any) -> Tensor:
        """Return self<<=value."""
    def __imod__(self, value: Any) -> Tensor:
        """Return self%=value."""
    def __imul__(self, value: Any) -> Tensor:
        """Return self*=value."""
    def __index__(self) -> builtins.int:
        """Return self converted to an integer, if self is suitable for use as an index into a list."""
    def __int__(self) -> builtins.int:
        """int(self)"""
    def __invert__(self) -> Tensor:
        """~self"""
    def __ior__(self, value: Any) -> Tensor:
        """Return self|=value."""
    def __ipow__(self, value: Any) -> Tensor:  # type: ignore[misc]
        """Return self**=value."""
    def __irshift__(self, value: Any) -> Tensor:
        """Return self>>=value."""
    def __isub__(self, value: Any) -> Tensor:
        """Return self-=value."""
    def __iter__(self) -> Iterator[Tensor]:
        """Implement iter(self)."""
    def __itruediv__(self, value: Any) -> Tensor:
        """Return self/=value."""
    def __ixor__(self, value: Any) -> Tensor:
        """Return self^=value."""
    def __len__(self) -> builtins.int:
        """Return len(self)."""
    def __lshift__(self, value: Any) -> Tensor:
        """Return self<<value."""
    def __matmul__(self, value: Any) -> Tensor:
        """Return self@value."""
    def __mod__(self, value: Any) -> Tensor:
        """Return self%value."""
    def __mul__(self, value: Any) -> Tensor:
        """Return self*value."""
    def __neg__(self) -> Tensor:
        """-self"""
    def __or__(self, value: Any) -> Tensor:
        """Return self|value."""
    def __pos__(self) -> Tensor:
        """+self"""
    def __pow__(self, value: Any, mod: Any = None) -> Tensor:
        """Return pow(self, value, mod)."""
    def __radd__(self, value: Any) -> Tensor:
        """Return value+self."""
    def __rand__(self, value: Any) -> Tensor:
        """Return value&self."""
    def __reduce__(self) -> Any:
        """Elements, shape, dtype, device, and whether it requires grad; no graph."""
    def __repr__(self) -> builtins.str:
        """Return repr(self)."""
    def __rfloordiv__(self, value: Any) -> Tensor:
        """Return value//self."""
    def __rlshift__(self, value: Any) -> Tensor:
        """Return value<<self."""
    def __rmatmul__(self, value: Any) -> Tensor:
        """Return value@self."""
    def __rmod__(self, value: Any) -> Tensor:
        """Return value%self."""
    def __rmul__(self, value: Any) -> Tensor:
        """Return value*self."""
    def __ror__(self, value: Any) -> Tensor:
        """Return value|self."""
    def __rpow__(self, value: Any, mod: Any = None) -> Tensor:
        """Return pow(value, self, mod)."""
    def __rrshift__(self, value: Any) -> Tensor:
        """Return value>>self."""
    def __rshift__(self, value: Any) -> Tensor:
        """Return self>>value."""
    def __rsub__(self, value: Any) -> Tensor:
        """Return value-self."""
    def __rtruediv__(self, value: Any) -> Tensor:
        """Return value/self."""
    def __rxor__(self, value: Any) -> Tensor:
        """Return value^self."""
    def __setitem__(self, key: Any, value: Any) -> None:
        """Set self[key] to value."""
    def __sub__(self, value: Any) -> Tensor:
        """Return self-value."""
    def __truediv__(self, value: Any) -> Tensor:
        """Return self/value."""
    def __xor__(self, value: Any) -> Tensor:
        """Return self^value."""
    def _cdist(self, other: Operand, p: builtins.float, *, out: Tensor | None = None) -> Tensor:
        """Distances between rows."""
    def _channel_shuffle(self, groups: Any, *, out: Tensor | None = None) -> Tensor:
        """Channels of groups, mixed."""
    def _coordinate(self, shape: Any, axis: Any, *, out: Tensor | None = None) -> Tensor:
        """Places in row-major order as the index of one axis of a shape."""
    def _cov(self, *, correction: Any = 1, fweights: Any = None, aweights: Any = None, out: Tensor | None = None) -> Tensor:
        """The covariances of variables, which are rows."""
    def _cross(self, other: Operand, dim: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """The cross product along an axis of size 3."""
    def _cumulative_trapezoid(self, x: Operand | None = None, dx: Any = None, dim: builtins.int = ..., *, out: Tensor | None = None) -> Tensor:
        """The running integral by trapezoids."""
    def _diff(self, n: builtins.int = 1, dim: builtins.int = ..., *, out: Tensor | None = None) -> Tensor:
        """What each element of an axis is above the one before it."""
    def _isin(self, test: Any, *, out: Tensor | None = None) -> Tensor:
        """Which elements are among those of another tensor."""
    def _matrix_power(self, n: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """A square matrix times itself."""
    def _median(self, dim: builtins.int, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The middle of an axis."""
    def _nanmedian(self, dim: builtins.int, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The middle of what is no NaN."""
    def _nansum(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The sum of what is no NaN."""
    def _one_hot(self, num_classes: Any = ..., *, out: Tensor | None = None) -> Tensor:
        """1 at each class, 0 elsewhere."""
    def _pad(self, pad: Any, mode: builtins.bool, value: Any, *, out: Tensor | None = None) -> Tensor:
        """Axes with more elements at both ends, or fewer; of the last axis first."""
    def _pixel_shuffle(self, factor: Any, *, out: Tensor | None = None) -> Tensor:
        """Channels as blocks of pixels."""
    def _pixel_unshuffle(self, factor: Any, *, out: Tensor | None = None) -> Tensor:
        """Blocks of pixels as channels."""
    def _searchsorted(self, values: Tensor, right: Any, *, out: Tensor | None = None) -> Tensor:
        """Where values go in a sorted axis."""
    def _tensordot(self, other: Operand, a: Any, b: Any, *, out: Tensor | None = None) -> Tensor:
        """The product summed over axes of both."""
    def _trapezoid(self, x: Operand | None = None, dx: Any = None, dim: builtins.int = ..., *, out: Tensor | None = None) -> Tensor:
        """The integral by trapezoids."""
    def _unique(self, consecutive: Any, dim: Axes | None = None) -> Tensor: ...
    def _vander(self, count: Any, increasing: Any, *, out: Tensor | None = None) -> Tensor:
        """The powers of a vector's elements."""
    def _vecdot(self, other: Operand, dim: builtins.int = ..., *, out: Tensor | None = None) -> Tensor:
        """`Σ x · other` along an axis."""
    @property
    def _version(self) -> builtins.int:
        """How often the storage was changed in place."""
    def abs(self, *, out: Tensor | None = None) -> Tensor:
        """`|x|`; of the least integer itself. The derivative at 0 is 0."""
    def abs_(self) -> Tensor:
        """`abs` in place."""
    def absolute(self, *, out: Tensor | None = None) -> Tensor:
        """`|x|`; of the least integer itself. The derivative at 0 is 0."""
    def absolute_(self) -> Tensor:
        """`abs` in place."""
    def acos(self, *, out: Tensor | None = None) -> Tensor:
        """Arc cosine."""
    def acos_(self) -> Tensor:
        """`acos` in place."""
    def acosh(self, *, out: Tensor | None = None) -> Tensor:
        """Inverse hyperbolic cosine, exact near 1; NaN below 1."""
    def acosh_(self) -> Tensor:
        """`acosh` in place."""
    def add(self, other: Operand, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
        """`x + alpha · other`. Of bools: or."""
    def add_(self, other: Operand, *, alpha: Any = None) -> Tensor:
        """`add` in place."""
    def addbmm(self, batch1: Any, batch2: Any, *, beta: Any = ..., alpha: Any = ..., out: Tensor | None = None) -> Tensor:
        """`beta · x + alpha · Σ batch1 batch2`."""
    def addcdiv(self, tensor1: Operand, tensor2: Operand, *, value: Any = None, out: Tensor | None = None) -> Tensor:
        """`x + value · tensor1 / tensor2`."""
    def addcdiv_(self, tensor1: Operand, tensor2: Operand, *, value: Any = None) -> Tensor:
        """`addcdiv` in place."""
    def addcmul(self, tensor1: Operand, tensor2: Operand, *, value: Any = None, out: Tensor | None = None) -> Tensor:
        """`x + value · tensor1 · tensor2`."""
    def addcmul_(self, tensor1: Operand, tensor2: Operand, *, value: Any = None) -> Tensor:
        """`addcmul` in place."""
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: Any = None, alpha: Any = None, out: Tensor | None = None) -> Tensor:
        """`beta · x + alpha · mat1 mat2`."""
    def addmm_(self, mat1: Tensor, mat2: Tensor, *, beta: Any = None, alpha: Any = None) -> Tensor:
        """`addmm` in place."""
    def addmv(self, mat: Any, vec: Any, *, beta: Any = ..., alpha: Any = ..., out: Tensor | None = None) -> Tensor:
        """`beta · x + alpha · mat vec`."""
    def addr(self, vec1: Any, vec2: Any, *, beta: Any = ..., alpha: Any = ..., out: Tensor | None = None) -> Tensor:
        """`beta · x + alpha · vec1 vec2ᵀ`."""
    def all(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """Are all true? Over axes (none: all)."""
    def allclose(input: Tensor, other: Operand, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: Any = False) -> Tensor:
        """Are all close? Waits for the answer."""
    def amax(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The largest over axes (none: all)."""
    def amin(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The smallest over axes (none: all)."""
    def aminmax(input: Tensor, *, dim: Axes | None = None, keepdim: builtins.bool = False, out: Tensor | None = None) -> Tensor:
        """The smallest and the largest, of all or along an axis."""
    def any(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """Is one true? Over axes (none: all)."""
    def arccos(self, *, out: Tensor | None = None) -> Tensor:
        """Arc cosine."""
    def arccos_(self) -> Tensor:
        """`acos` in place."""
    def arccosh(self, *, out: Tensor | None = None) -> Tensor:
        """Inverse hyperbolic cosine, exact near 1; NaN below 1."""
    def arccosh_(self) -> Tensor:
        """`acosh` in place."""
    def arcsin(self, *, out: Tensor | None = None) -> Tensor:
        """Arc sine."""
    def arcsin_(self) -> Tensor:
        """`asin` in place."""
    def arcsinh(self, *, out: Tensor | None = None) -> Tensor:
        """Inverse hyperbolic sine, exact near 0."""
    def arcsinh_(self) -> Tensor:
        """`asinh` in place."""
    def arctan(self, *, out: Tensor | None = None) -> Tensor:
        """Arc tangent."""
    def arctan2(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Angle of the point (`y`, `x`): the arc tangent of `x / y` in the right quadrant. The derivative at the origin is 0."""
    def arctan2_(self, other: Operand) -> Tensor:
        """`atan2` in place."""
    def arctan_(self) -> Tensor:
        """`atan` in place."""
    def arctanh(self, *, out: Tensor | None = None) -> Tensor:
        """Inverse hyperbolic tangent, exact near 0; infinite at 1 and -1, NaN beyond."""
    def arctanh_(self) -> Tensor:
        """`atanh` in place."""
    def argmax(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The index of the largest along an axis (none: of all elements)."""
    def argmin(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The index of the smallest along an axis (none: of all elements)."""
    def argsort(self, dim: builtins.int = ..., descending: builtins.bool = False, *, stable: builtins.bool | None = None, out: Tensor | None = None) -> Tensor:
        """The indices that put an axis into order. Always stable."""
    def argwhere(input: Tensor) -> Tensor:
        """The indices of what isn't zero, a row each. Waits for how many there are."""
    def as_strided(self, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
        """Any view of the storage."""
    def asin(self, *, out: Tensor | None = None) -> Tensor:
        """Arc sine."""
    def asin_(self) -> Tensor:
        """`asin` in place."""
    def asinh(self, *, out: Tensor | None = None) -> Tensor:
        """Inverse hyperbolic sine, exact near 0."""
    def asinh_(self) -> Tensor:
        """`asinh` in place."""
    def atan(self, *, out: Tensor | None = None) -> Tensor:
        """Arc tangent."""
    def atan2(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Angle of the point (`y`, `x`): the arc tangent of `x / y` in the right quadrant. The derivative at the origin is 0."""
    def atan2_(self, other: Operand) -> Tensor:
        """`atan2` in place."""
    def atan_(self) -> Tensor:
        """`atan` in place."""
    def atanh(self, *, out: Tensor | None = None) -> Tensor:
        """Inverse hyperbolic tangent, exact near 0; infinite at 1 and -1, NaN beyond."""
    def atanh_(self) -> Tensor:
        """`atanh` in place."""
    def backward(self, gradient: Tensor | None = None, retain_graph: builtins.bool | None = None) -> None:
        """Computes the gradients of all leaves that it was made from, and adds them to theirs. `gradient`: of this tensor, if it"""
    def baddbmm(self, batch1: Any, batch2: Any, *, beta: Any = ..., alpha: Any = ..., out: Tensor | None = None) -> Tensor:
        """`beta · x + alpha · batch1 batch2`."""
    def bernoulli(self, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
        """Ones, each with the probability that the element is, and zeros."""
    def bernoulli_(self, p: builtins.float = ..., *, generator: Generator | None = None) -> Tensor:
        """Overwritten with ones, each with probability p, and zeros."""
    def bfloat16(self) -> Tensor:
        """Converted to bfloat16; itself if it is that already."""
    def bincount(self, weights: Any = None, minlength: Any = 0, *, out: Tensor | None = None) -> Tensor:
        """How often each integer from 0 on is there, or the sums of weights. Waits for the largest."""
    def bitwise_and(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Bits that both have."""
    def bitwise_and_(self, other: Operand) -> Tensor:
        """`bitwise_and` in place."""
    def bitwise_left_shift(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x << y`. 0 where `y` is negative or at least the width."""
    def bitwise_left_shift_(self, other: Operand) -> Tensor:
        """`bitwise_left_shift` in place."""
    def bitwise_not(self, *, out: Tensor | None = None) -> Tensor:
        """All bits flipped; of bools: not."""
    def bitwise_not_(self) -> Tensor:
        """`bitwise_not` in place."""
    def bitwise_or(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Bits that one has."""
    def bitwise_or_(self, other: Operand) -> Tensor:
        """`bitwise_or` in place."""
    def bitwise_right_shift(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x >> y`, the sign is filled in. Where `y` is negative or at least the width: 0, or -1 of a negative `x`."""
    def bitwise_right_shift_(self, other: Operand) -> Tensor:
        """`bitwise_right_shift` in place."""
    def bitwise_xor(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Bits that exactly one has."""
    def bitwise_xor_(self, other: Operand) -> Tensor:
        """`bitwise_xor` in place."""
    def bmm(self, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
        """`[b, n, k] × [b, k, m]`."""
    def bool(self) -> Tensor:
        """Converted to bool; itself if it is that already."""
    def broadcast_to(self, *size: Any) -> Tensor:
        """Expanded to a shape."""
    def byte(self) -> Tensor:
        """Converted to byte; itself if it is that already."""
    def ceil(self, *, out: Tensor | None = None) -> Tensor:
        """The smallest integer not below."""
    def ceil_(self) -> Tensor:
        """`ceil` in place."""
    def celu(self, alpha: Any = None, *, out: Tensor | None = None) -> Tensor:
        """`x > 0 ? x : alpha · (e^(x / alpha) - 1)`."""
    def celu_(self, alpha: Any = None) -> Tensor:
        """`celu` in place."""
    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """An axis in so many parts, at most: views."""
    def clamp(self, min: Operand | None = None, max: Operand | None = None, *, out: Tensor | None = None) -> Tensor:
        """`minimum(maximum(x, min), max)`; one of the bounds may be left out."""
    def clamp_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clamp` in place."""
    def clamp_max(self, max: Operand, *, out: Tensor | None = None) -> Tensor:
        """`minimum(x, max)`. Where `max` is a number `x` has the gradient where it is below, and nothing has it elsewhere. Else it is"""
    def clamp_max_(self, max: Operand) -> Tensor:
        """`clamp_max` in place."""
    def clamp_min(self, min: Operand, *, out: Tensor | None = None) -> Tensor:
        """`maximum(x, min)`. Where `min` is a number `x` has the gradient where it is above, and nothing has it elsewhere. Else it is"""
    def clamp_min_(self, min: Operand) -> Tensor:
        """`clamp_min` in place."""
    def clip(self, min: Operand | None = None, max: Operand | None = None, *, out: Tensor | None = None) -> Tensor:
        """`minimum(maximum(x, min), max)`; one of the bounds may be left out."""
    def clip_(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """`clamp` in place."""
    def clone(self) -> Tensor:
        """A new tensor with the same elements and, if this one is dense, the same strides."""
    def contiguous(self) -> Tensor:
        """Itself if it is row-major, else a row-major copy."""
    def copy_(self, src: Operand, non_blocking: builtins.bool = False) -> Tensor:
        """Overwrites the elements with those of another tensor, broadcast and converted as needed."""
    def copysign(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`|x|` with the sign of `y`, that of -0 too. A NaN counts as positive, whatever its bit; PyTorch looks at the bit. The derivative"""
    def copysign_(self, other: Operand) -> Tensor:
        """`copysign` in place."""
    def corrcoef(self, *, out: Tensor | None = None) -> Tensor:
        """The correlations of variables, which are rows."""
    def cos(self, *, out: Tensor | None = None) -> Tensor:
        """Cosine."""
    def cos_(self) -> Tensor:
        """`cos` in place."""
    def cosh(self, *, out: Tensor | None = None) -> Tensor:
        """Hyperbolic cosine; infinite only where the result is."""
    def cosh_(self) -> Tensor:
        """`cosh` in place."""
    def count_nonzero(self, dim: Axes | None = None) -> Tensor:
        """How many elements aren't zero, over axes (none: all)."""
    def cpu(self) -> Tensor:
        """On the CPU."""
    def cross(input: Tensor, other: Operand, dim: Axes | None = None, *, out: Tensor | None = None) -> Tensor:
        """The cross product along an axis of size 3; none: the first one."""
    def cummax(self, dim: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """The largest up to each element of an axis, and where it stands."""
    def cummin(self, dim: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """The smallest up to each element of an axis, and where it stands."""
    def cumprod(self, dim: builtins.int, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """Running products along an axis. `dtype`: convert first."""
    def cumsum(self, dim: builtins.int, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """Running sums along an axis. `dtype`: convert first."""
    def deg2rad(self, *, out: Tensor | None = None) -> Tensor:
        """`x` in radians."""
    def deg2rad_(self) -> Tensor:
        """`deg2rad` in place."""
    def detach(self) -> Tensor:
        """The same elements, and no part of any graph."""
    @property
    def device(self) -> Any: ...
    def diag(self, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
        """A vector as the diagonal of a matrix, or the diagonal of a matrix as a copy."""
    def diag_embed(self, offset: builtins.int = 0, dim1: builtins.int = ..., dim2: builtins.int = ..., *, out: Tensor | None = None) -> Tensor:
        """The last axis as the diagonal of matrices of zeros."""
    def diagflat(self, offset: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
        """All elements as the diagonal of a matrix."""
    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """A diagonal of two axes, as the last axis: a view."""
    def diagonal_scatter(self, src: Operand, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1, *, out: Tensor | None = None) -> Tensor:
        """A copy with `src` on a diagonal."""
    def diff(input: Tensor, n: builtins.int = 1, dim: builtins.int = -1, prepend: Any = None, append: Any = None, *, out: Tensor | None = None) -> Tensor:
        """What each element of an axis is above the one before it, ``n`` times over."""
    def dim(self) -> builtins.int:
        """How many axes."""
    def dist(input: Tensor, other: Operand, p: builtins.float = 2) -> Tensor:
        """The p-norm of the difference."""
    def div(self, other: Operand, *, rounding_mode: builtins.str | None = None, out: Tensor | None = None) -> Tensor:
        """`x / other`; integers are converted to float32 first. `rounding_mode`: `"floor"`, `"trunc"` or none."""
    def div_(self, other: Operand, *, rounding_mode: builtins.str | None = None) -> Tensor:
        """`div` in place."""
    def divide(self, other: Operand, *, rounding_mode: builtins.str | None = None, out: Tensor | None = None) -> Tensor:
        """`x / other`; integers are converted to float32 first. `rounding_mode`: `"floor"`, `"trunc"` or none."""
    def divide_(self, other: Operand, *, rounding_mode: builtins.str | None = None) -> Tensor:
        """`div` in place."""
    def dot(self, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The sum of the products of two vectors."""
    def double(self) -> Tensor:
        """Converted to double; itself if it is that already."""
    def dsplit(input: Tensor, indices_or_sections: Any) -> Tensor:
        """``tensor_split`` along axis 2 in parts of one size."""
    @property
    def dtype(self) -> DType: ...
    def element_size(self) -> builtins.int:
        """Bytes of an element."""
    def elu(self, alpha: Any = None, *, out: Tensor | None = None) -> Tensor:
        """`x > 0 ? x : alpha · (eˣ - 1)`. The derivative at 0 is `alpha`."""
    def elu_(self, alpha: Any = None) -> Tensor:
        """`elu` in place."""
    def entr(self, *, out: Tensor | None = None) -> Tensor:
        """`-x · ln x`, the entropy; 0 at 0, -∞ below."""
    def entr_(self) -> Tensor:
        """`entr` in place."""
    def eq(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x == y`."""
    def eq_(self, other: Operand) -> Tensor:
        """`eq` in place."""
    def equal(self, other: Operand) -> builtins.bool:
        """Has it the same shape and the same elements?"""
    def erf(self, *, out: Tensor | None = None) -> Tensor:
        """Error function: `2/√π ∫₀ˣ e^(-t²) dt`."""
    def erf_(self) -> Tensor:
        """`erf` in place."""
    def erfc(self, *, out: Tensor | None = None) -> Tensor:
        """`1 - erf(x)`, exact where that is small."""
    def erfc_(self) -> Tensor:
        """`erfc` in place."""
    def erfinv(self, *, out: Tensor | None = None) -> Tensor:
        """The `y` with `erf(y) = x`; infinite at 1 and -1, NaN beyond. A rational approximation and two steps of Newton's."""
    def erfinv_(self) -> Tensor:
        """`erfinv` in place."""
    def exp(self, *, out: Tensor | None = None) -> Tensor:
        """`eˣ`."""
    def exp2(self, *, out: Tensor | None = None) -> Tensor:
        """`2ˣ`."""
    def exp2_(self) -> Tensor:
        """`exp2` in place."""
    def exp_(self) -> Tensor:
        """`exp` in place."""
    def expand(self, *sizes: Any) -> Tensor:
        """Axes of size 1 repeated without a copy, and new ones in front; -1 keeps a size."""
    def expand_as(self, other: Operand) -> Tensor:
        """Expanded to the shape of another."""
    def expm1(self, *, out: Tensor | None = None) -> Tensor:
        """`eˣ - 1`, exact near 0."""
    def expm1_(self) -> Tensor:
        """`expm1` in place."""
    def exponential_(self, lambd: builtins.float = ..., *, generator: Generator | None = None) -> Tensor:
        """Overwritten with random numbers of an exponential distribution."""
    def fill_(self, value: Any) -> Tensor:
        """Overwrites all elements with a number."""
    def fix(self, *, out: Tensor | None = None) -> Tensor:
        """The integer part."""
    def fix_(self) -> Tensor:
        """`trunc` in place."""
    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = ...) -> Tensor:
        """Several axes as one: a view where strides allow it."""
    def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
        """The axes in the reverse order of their elements."""
    def fliplr(input: Tensor) -> Tensor:
        """Columns in the reverse order."""
    def flipud(input: Tensor) -> Tensor:
        """Rows in the reverse order."""
    def float(self) -> Tensor:
        """Converted to float; itself if it is that already."""
    def float_power(input: Tensor, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
        """``pow`` in float64."""
    def floor(self, *, out: Tensor | None = None) -> Tensor:
        """The largest integer not above. The derivative is 0, as of all that round."""
    def floor_(self) -> Tensor:
        """`floor` in place."""
    def floor_divide(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The largest integer not above `x / y`. By zero: of floats as `x / y`, of integers 0. The derivative"""
    def floor_divide_(self, other: Operand) -> Tensor:
        """`floor_divide` in place."""
    def fmax(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The larger; of NaN the other. At a tie `x` has the gradient."""
    def fmax_(self, other: Operand) -> Tensor:
        """`fmax` in place."""
    def fmin(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The smaller; of NaN the other. At a tie `x` has the gradient."""
    def fmin_(self, other: Operand) -> Tensor:
        """`fmin` in place."""
    def fmod(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x - trunc(x / y) * y`, C's `fmod`: zero or of the sign of `x`. By zero: NaN, of integers 0."""
    def fmod_(self, other: Operand) -> Tensor:
        """`fmod` in place."""
    def frac(self, *, out: Tensor | None = None) -> Tensor:
        """`x - trunc(x)`, of the sign of `x`. Of infinities NaN."""
    def frac_(self) -> Tensor:
        """`frac` in place."""
    def gather(self, dim: builtins.int, index: Tensor, *, sparse_grad: builtins.bool = False, out: Tensor | None = None) -> Tensor:
        """`out[.., i, ..] = x[.., index[.., i, ..], ..]`."""
    def ge(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x >= y`."""
    def ge_(self, other: Operand) -> Tensor:
        """`ge` in place."""
    def gelu(self, *, approximate: builtins.str = 'none', out: Tensor | None = None) -> Tensor:
        """`x · Φ(x)`; `approximate="tanh"`: by the hyperbolic tangent."""
    @property
    def grad(self) -> Tensor | None:
        """The gradient gathered so far; none of what is no leaf."""
    @grad.setter
    def grad(self, value: Any) -> None: ...
    def greater(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x > y`."""
    def greater_(self, other: Operand) -> Tensor:
        """`gt` in place."""
    def greater_equal(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x >= y`."""
    def greater_equal_(self, other: Operand) -> Tensor:
        """`ge` in place."""
    def gt(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x > y`."""
    def gt_(self, other: Operand) -> Tensor:
        """`gt` in place."""
    def half(self) -> Tensor:
        """Converted to half; itself if it is that already."""
    def hardshrink(self, lambd: builtins.float | None = None, *, out: Tensor | None = None) -> Tensor:
        """`x` beyond `lambd` and `-lambd`, else 0."""
    def hardshrink_(self, lambd: builtins.float | None = None) -> Tensor:
        """`hardshrink` in place."""
    def hardsigmoid(self, *, out: Tensor | None = None) -> Tensor:
        """`min(max(x + 3, 0), 6) / 6`. The derivative at -3 and 3 is 0."""
    def hardsigmoid_(self) -> Tensor:
        """`hardsigmoid` in place."""
    def hardswish(self, *, out: Tensor | None = None) -> Tensor:
        """`x · hardsigmoid(x)`. The derivative at -3 is 0, at 3 it is 1."""
    def hardswish_(self) -> Tensor:
        """`hardswish` in place."""
    def hardtanh(self, min_val: Any = None, max_val: Any = None, *, out: Tensor | None = None) -> Tensor:
        """`x` between `min_val` and `max_val`, else the nearer. The derivative at a bound is 0."""
    def hardtanh_(self, min_val: Any = None, max_val: Any = None) -> Tensor:
        """`hardtanh` in place."""
    def heaviside(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """0, `values` or 1 as `x` is below 0, is 0 or is above; 0 of NaN."""
    def heaviside_(self, other: Operand) -> Tensor:
        """`heaviside` in place."""
    def histc(input: Tensor, bins: Any = 100, min: Operand = 0, max: Operand = 0, *, out: Tensor | None = None) -> Tensor:
        """How many elements are in each of so many bins of one size; elements outside count nowhere."""
    def histogram(input: Tensor, bins: Any, *, range: Any = None, weight: Any = None, density: Any = False, out: Tensor | None = None) -> Tensor:
        """Weights of the elements of each bin, and the edges of the bins."""
    def hsplit(input: Tensor, indices_or_sections: Any) -> Tensor:
        """``tensor_split`` along axis 1 in parts of one size."""
    def hypot(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`√(x² + y²)`, without squares that overflow or vanish; infinite if one is, even beside NaN. The derivative at the origin is 0."""
    def hypot_(self, other: Operand) -> Tensor:
        """`hypot` in place."""
    def index_add(self, dim: builtins.int, index: Tensor, source: Any, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
        """`alpha · source[.., i, ..]` added to slice `index[i]` of an axis."""
    def index_add_(self, dim: builtins.int, index: Tensor, source: Any, *, alpha: Any = None) -> Tensor:
        """`index_add` in place."""
    def index_copy(self, dim: builtins.int, index: Tensor, source: Any, *, out: Tensor | None = None) -> Tensor:
        """A copy in which slice `index[i]` of an axis is slice `i` of `source`."""
    def index_copy_(self, dim: builtins.int, index: Tensor, source: Any) -> Tensor:
        """`index_copy` in place."""
    def index_fill(self, dim: builtins.int, index: Tensor, value: Any, *, out: Tensor | None = None) -> Tensor:
        """A copy with slices of an axis overwritten with one number."""
    def index_fill_(self, dim: builtins.int, index: Tensor, value: Any) -> Tensor:
        """`index_fill` in place."""
    def index_put(self, indices: Any, values: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """A copy with `index_put_`."""
    def index_put_(self, indices: Any, values: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """`x[indices] = values`, or with `accumulate` an addition, in which elements that are named twice get both."""
    def index_reduce(self, dim: builtins.int, index: Tensor, source: Any, reduce: builtins.str | None, *, include_self: Any = True, out: Tensor | None = None) -> Tensor:
        """A copy whose slices of an axis are folded with those of `source`."""
    def index_select(self, dim: builtins.int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The slices of an axis that `index` names."""
    def inner(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The product summed over the last axes."""
    def int(self) -> Tensor:
        """Converted to int; itself if it is that already."""
    def is_contiguous(self) -> builtins.bool:
        """Are the elements row-major, one after the other?"""
    def is_floating_point(self) -> builtins.bool:
        """Are the elements floats?"""
    @property
    def is_leaf(self) -> builtins.bool:
        """Was it not made by a recorded op?"""
    def is_set_to(self, tensor: Tensor) -> builtins.bool:
        """Is it the same view of the same storage?"""
    def isclose(input: Tensor, other: Operand, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: Any = False) -> Tensor:
        """Where ``|input - other| ≤ atol + rtol · |other|``, or both are equal."""
    def isfinite(self, *, out: Tensor | None = None) -> Tensor:
        """Is it neither infinite nor NaN?"""
    def isfinite_(self) -> Tensor:
        """`isfinite` in place."""
    def isinf(self, *, out: Tensor | None = None) -> Tensor:
        """Is it infinite?"""
    def isinf_(self) -> Tensor:
        """`isinf` in place."""
    def isnan(self, *, out: Tensor | None = None) -> Tensor:
        """Is it NaN?"""
    def isnan_(self) -> Tensor:
        """`isnan` in place."""
    def isneginf(self, *, out: Tensor | None = None) -> Tensor:
        """Is it -∞?"""
    def isneginf_(self) -> Tensor:
        """`isneginf` in place."""
    def isposinf(self, *, out: Tensor | None = None) -> Tensor:
        """Is it ∞?"""
    def isposinf_(self) -> Tensor:
        """`isposinf` in place."""
    def item(self) -> Any:
        """The only element, as a number. Waits for it."""
    @property
    def itemsize(self) -> builtins.int:
        """Bytes of an element."""
    def kron(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The Kronecker product."""
    def kthvalue(self, k: builtins.int, dim: builtins.int = ..., keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The `k`-th smallest of an axis, and where it stands."""
    def ldexp(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x · 2ʸ`."""
    def ldexp_(self, other: Operand) -> Tensor:
        """`ldexp` in place."""
    def le(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x <= y`."""
    def le_(self, other: Operand) -> Tensor:
        """`le` in place."""
    def leaky_relu(self, negative_slope: Any = None, *, out: Tensor | None = None) -> Tensor:
        """`x > 0 ? x : negative_slope · x`. The derivative at 0 is the slope."""
    def leaky_relu_(self, negative_slope: Any = None) -> Tensor:
        """`leaky_relu` in place."""
    def lerp(self, end: Operand, weight: Any, *, out: Tensor | None = None) -> Tensor:
        """`x + weight · (end - x)`."""
    def lerp_(self, end: Operand, weight: Any) -> Tensor:
        """`lerp` in place."""
    def less(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x < y`."""
    def less_(self, other: Operand) -> Tensor:
        """`lt` in place."""
    def less_equal(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x <= y`."""
    def less_equal_(self, other: Operand) -> Tensor:
        """`le` in place."""
    def log(self, *, out: Tensor | None = None) -> Tensor:
        """`ln x`."""
    def log10(self, *, out: Tensor | None = None) -> Tensor:
        """`log₁₀ x`."""
    def log10_(self) -> Tensor:
        """`log10` in place."""
    def log1p(self, *, out: Tensor | None = None) -> Tensor:
        """`ln(1 + x)`, exact near 0."""
    def log1p_(self) -> Tensor:
        """`log1p` in place."""
    def log2(self, *, out: Tensor | None = None) -> Tensor:
        """`log₂ x`."""
    def log2_(self) -> Tensor:
        """`log2` in place."""
    def log_(self) -> Tensor:
        """`log` in place."""
    def log_softmax(self, dim: builtins.int, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """`x - ln Σ eˣ` along an axis. `dtype`: convert first."""
    def logaddexp(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`ln(eˣ + eʸ)`, without powers that overflow."""
    def logaddexp2(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`log₂(2ˣ + 2ʸ)`, without powers that overflow."""
    def logaddexp2_(self, other: Operand) -> Tensor:
        """`logaddexp2` in place."""
    def logaddexp_(self, other: Operand) -> Tensor:
        """`logaddexp` in place."""
    def logcumsumexp(self, dim: builtins.int, *, out: Tensor | None = None) -> Tensor:
        """Running `ln Σ eˣ` along an axis."""
    def logical_and(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Are both true?"""
    def logical_and_(self, other: Operand) -> Tensor:
        """`logical_and` in place."""
    def logical_not(self, *, out: Tensor | None = None) -> Tensor:
        """Is it zero?"""
    def logical_not_(self) -> Tensor:
        """`logical_not` in place."""
    def logical_or(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Is one true?"""
    def logical_or_(self, other: Operand) -> Tensor:
        """`logical_or` in place."""
    def logical_xor(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """Is exactly one true?"""
    def logical_xor_(self, other: Operand) -> Tensor:
        """`logical_xor` in place."""
    def logit(self, eps: builtins.float | None = None, *, out: Tensor | None = None) -> Tensor:
        """`ln(z / (1 - z))`, `z` being `x` between `eps` and `1 - eps`; `x` itself if `eps` isn't given, or negative."""
    def logit_(self, eps: builtins.float | None = None) -> Tensor:
        """`logit` in place."""
    def logsigmoid(self, *, out: Tensor | None = None) -> Tensor:
        """`ln(1 / (1 + e⁻ˣ))`, without powers that overflow."""
    def logsigmoid_(self) -> Tensor:
        """`logsigmoid` in place."""
    def logsumexp(self, dim: builtins.int, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """`ln Σ eˣ` over axes."""
    def long(self) -> Tensor:
        """Converted to long; itself if it is that already."""
    def lt(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x < y`."""
    def lt_(self, other: Operand) -> Tensor:
        """`lt` in place."""
    @property
    def mT(self) -> Tensor:
        """The last two axes swapped: a view."""
    def masked_fill(self, mask: Tensor, value: Any) -> Tensor:
        """`mask ? value : x`; `value` is a number, or a tensor without axes."""
    def masked_fill_(self, mask: Tensor, value: Any) -> Tensor:
        """`masked_fill` in place."""
    def masked_scatter(self, mask: Tensor, source: Any, *, out: Tensor | None = None) -> Tensor:
        """A copy in which the elements where `mask` is true are those of `source`. Waits for the mask."""
    def masked_select(self, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The elements where `mask` (bool, broadcast) is true, as one axis. Waits for the mask."""
    def matmul(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The matrix product over the last two axes; the others are broadcast. Vectors are rows or columns."""
    def max(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, out: Any = None) -> Any:
        """The largest of all, or values and indices of the largest along an axis, or by elements beside another tensor."""
    def maximum(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The larger; NaN if one is; -0 is below 0. At a tie each has half of the gradient, at NaN each has all of it."""
    def maximum_(self, other: Operand) -> Tensor:
        """`maximum` in place."""
    def mean(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The mean over axes (none: all). `dtype`: convert first."""
    def median(input: Tensor, dim: Axes | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The middle of all, of two the lower one, or values and indices along an axis. NaN if there is one."""
    def min(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, out: Any = None) -> Any:
        """The smallest of all, or values and indices of the smallest along an axis, or by elements beside another tensor."""
    def minimum(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """The smaller; NaN if one is; -0 is below 0. At a tie each has half of the gradient, at NaN each has all of it."""
    def minimum_(self, other: Operand) -> Tensor:
        """`minimum` in place."""
    def mish(self, *, out: Tensor | None = None) -> Tensor:
        """`x · tanh(ln(1 + eˣ))`. NaN at -∞, as in PyTorch."""
    def mish_(self) -> Tensor:
        """`mish` in place."""
    def mm(self, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
        """`[n, k] × [k, m]`."""
    def mode(self, dim: builtins.int = ..., keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The most frequent element of an axis."""
    def moveaxis(self, source: Any, destination: Any) -> Tensor:
        """Axes moved to other places: a view."""
    def movedim(self, source: Any, destination: Any) -> Tensor:
        """Axes moved to other places: a view."""
    def msort(self, *, out: Tensor | None = None) -> Tensor:
        """Values in ascending order along the first axis."""
    def mul(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x * y`. Of bools: and."""
    def mul_(self, other: Operand) -> Tensor:
        """`mul` in place."""
    def multiply(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x * y`. Of bools: and."""
    def multiply_(self, other: Operand) -> Tensor:
        """`mul` in place."""
    def mv(self, vec: Any, *, out: Tensor | None = None) -> Tensor:
        """`[n, k] × [k]`."""
    def nan_to_num(input: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None, *, out: Tensor | None = None) -> Tensor:
        """Numbers for NaN (0) and the infinities (the largest and the least of the dtype)."""
    def nan_to_num_(input: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
        """``nan_to_num`` in place."""
    def nanmean(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """The mean of what is no NaN."""
    def nanmedian(input: Tensor, dim: Axes | None = None, keepdim: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """``median`` of what is no NaN."""
    def nanquantile(self, q: Any, dim: Axes | None = None, keepdim: builtins.bool = False, *, interpolation: Any = ..., out: Tensor | None = None) -> Tensor:
        """`quantile` of what is no NaN."""
    def nansum(input: Tensor, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The sum of what is no NaN, over axes (none: all)."""
    def narrow(self, dim: builtins.int, start: Any, length: Any) -> Tensor:
        """A range of an axis: a view."""
    @property
    def nbytes(self) -> builtins.int:
        """Bytes of all elements."""
    @property
    def ndim(self) -> builtins.int:
        """How many axes."""
    def ndimension(self) -> Tensor:
        """How many axes."""
    def ndtr(self, *, out: Tensor | None = None) -> Tensor:
        """`Φ(x)`, the distribution of the standard normal; the lower tail keeps its digits."""
    def ndtr_(self) -> Tensor:
        """`ndtr` in place."""
    def ne(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x != y`."""
    def ne_(self, other: Operand) -> Tensor:
        """`ne` in place."""
    def neg(self, *, out: Tensor | None = None) -> Tensor:
        """`-x`."""
    def neg_(self) -> Tensor:
        """`neg` in place."""
    def negative(self, *, out: Tensor | None = None) -> Tensor:
        """`-x`."""
    def negative_(self) -> Tensor:
        """`neg` in place."""
    def nelement(self) -> Tensor:
        """How many elements."""
    def new_empty(self, *size: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False, **given: Any) -> Tensor:
        """A tensor of undefined content, of this dtype and device unless others are named."""
    def new_full(self, size: Any, fill_value: Any, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
        """A number everywhere, of this dtype and device unless others are named."""
    def new_ones(self, *size: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False, **given: Any) -> Tensor:
        """Ones, of this dtype and device unless others are named."""
    def new_tensor(self, data: Any, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
        """Numbers, of this dtype and device unless others are named."""
    def new_zeros(self, *size: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False, **given: Any) -> Tensor:
        """Zeros, of this dtype and device unless others are named."""
    def nonzero(self, *, as_tuple: builtins.bool = False, out: Any = None) -> Any:
        """The indices of what isn't zero: [count, rank], or with `as_tuple` a tensor an axis. Waits for the elements."""
    def norm(self, p: builtins.float | None = None, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """`(Σ |x|ᵖ)^(1/p)` over axes (none: all); `p` a number, `inf`, `-inf`, 0 (how many aren't 0) or `"fro"`."""
    def normal_(self, mean: builtins.float = ..., std: builtins.float = ..., *, generator: Generator | None = None) -> Tensor:
        """Overwritten with random numbers of a normal distribution."""
    def not_equal(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x != y`."""
    def not_equal_(self, other: Operand) -> Tensor:
        """`ne` in place."""
    def numel(self) -> builtins.int:
        """How many elements."""
    def numpy(self, *, force: builtins.bool = False) -> Any:
        """A NumPy array of the elements, a copy. Waits for them. `force`: of a tensor that requires grad, too."""
    def outer(self, vec2: Any, *, out: Tensor | None = None) -> Tensor:
        """All products of the elements of two vectors."""
    def permute(self, *dims: Any) -> Tensor:
        """The axes in another order: a view."""
    def permute_dims(self, *dims: Any) -> Tensor:
        """The axes in another order: a view."""
    def positive(input: Tensor) -> Tensor:
        """Itself: numbers have a sign."""
    def pow(self, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
        """`xʸ`. Of integers by repeated multiplication; a negative power of one is what truncation leaves: 1, -1 or 0."""
    def pow_(self, exponent: Operand) -> Tensor:
        """`pow` in place."""
    def prelu(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x > 0 ? x : weight · x`. The derivative by `x` at 0 is the weight."""
    def prelu_(self, other: Operand) -> Tensor:
        """`prelu` in place."""
    def prod(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The product over axes (none: all); of integers and bools an int64. `dtype`: convert first."""
    def put(self, index: Tensor, source: Any, accumulate: builtins.bool = False, *, out: Tensor | None = None) -> Tensor:
        """A copy with `source` at places in row-major order."""
    def put_(self, index: Tensor, source: Any, accumulate: builtins.bool = False) -> Tensor:
        """`put` in place."""
    def quantile(self, q: Any, dim: Axes | None = None, keepdim: builtins.bool = False, *, interpolation: Any = ..., out: Tensor | None = None) -> Tensor:
        """The values below which parts `q` of an axis lie."""
    def rad2deg(self, *, out: Tensor | None = None) -> Tensor:
        """`x` in degrees."""
    def rad2deg_(self) -> Tensor:
        """`rad2deg` in place."""
    def random_(self, low: builtins.int, high: Any = None, *, generator: Generator | None = None) -> Tensor:
        """Overwritten with random integers from `low` to before `high`."""
    def ravel(self) -> Tensor:
        """One axis."""
    def reciprocal(self, *, out: Tensor | None = None) -> Tensor:
        """`1 / x`."""
    def reciprocal_(self) -> Tensor:
        """`reciprocal` in place."""
    def relu(self, *, out: Tensor | None = None) -> Tensor:
        """`max(x, 0)`; NaN stays. The derivative at 0 is 0."""
    def relu_(self) -> Tensor:
        """`relu` in place."""
    def remainder(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x - floor(x / y) * y`, Python's `%`: zero or of the sign of `y`. PyTorch's `remainder`. By zero: NaN, of"""
    def remainder_(self, other: Operand) -> Tensor:
        """`remainder` in place."""
    def renorm(self, p: builtins.float, dim: builtins.int, maxnorm: Any, *, out: Tensor | None = None) -> Tensor:
        """A copy whose slices of an axis have at most this norm."""
    def repeat(self, *repeats: Any) -> Tensor:
        """So many times along each axis; axes may be added in front."""
    def repeat_interleave(self, repeats: Any = None, dim: Axes | None = None, *, output_size: Any = None) -> Tensor:
        """Each element of an axis (none: of all) so many times in a row; `repeats` is one number or a tensor. Alone: places."""
    @property
    def requires_grad(self) -> builtins.bool:
        """Is a gradient wanted of it, or of what it was made from?"""
    @requires_grad.setter
    def requires_grad(self, value: Any) -> None: ...
    def requires_grad_(self, requires_grad: builtins.bool = True) -> Tensor:
        """Turns it into a leaf whose gradient is kept, or back into one that requires none."""
    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in row-major order as another shape: a view where strides allow it. One size may be -1."""
    def reshape_as(self, other: Operand) -> Tensor:
        """Reshaped to the shape of another."""
    def roll(self, shifts: Any, dims: Any = None, *, out: Tensor | None = None) -> Tensor:
        """Moved along axes by so many places; what falls off one end comes in at the other."""
    def rot90(self, k: builtins.int = 1, dims: Any = ..., *, out: Tensor | None = None) -> Tensor:
        """Turned by 90° in the plane of two axes, `k` times."""
    def round(self, *, decimals: builtins.int = 0, out: Tensor | None = None) -> Tensor:
        """The nearest integer, halves to the even one; to so many decimals."""
    def round_(self, *, decimals: builtins.int = 0) -> Tensor:
        """`round` in place."""
    def rsqrt(self, *, out: Tensor | None = None) -> Tensor:
        """`1 / √x`."""
    def rsqrt_(self) -> Tensor:
        """`rsqrt` in place."""
    def scatter(self, dim: builtins.int, index: Tensor, src: Operand | None = None, *, value: Any = None, reduce: builtins.str | None = None, out: Tensor | None = None) -> Tensor:
        """A copy in which `[.., index[.., i, ..], ..]` is `src[.., i, ..]`, or with `reduce` (`"add"`, `"multiply"`) is combined"""
    def scatter_(self, dim: builtins.int, index: Tensor, src: Operand | None = None, *, value: Any = None, reduce: builtins.str | None = None) -> Tensor:
        """`scatter` in place."""
    def scatter_add(self, dim: builtins.int, index: Tensor, src: Operand, *, out: Tensor | None = None) -> Tensor:
        """A copy with `src[.., i, ..]` added to `[.., index[.., i, ..], ..]`."""
    def scatter_add_(self, dim: builtins.int, index: Tensor, src: Operand) -> Tensor:
        """`scatter_add` in place."""
    def scatter_reduce(self, dim: builtins.int, index: Tensor, src: Operand, reduce: builtins.str | None, *, include_self: Any = True, out: Tensor | None = None) -> Tensor:
        """A copy folded with `src` at the places that `index` names."""
    def select(self, dim: builtins.int, index: Tensor) -> Tensor:
        """One index of an axis, which goes away: a view."""
    def select_scatter(self, src: Operand, dim: builtins.int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
        """A copy with `src` at one index of an axis."""
    def selu(self, *, out: Tensor | None = None) -> Tensor:
        """`scale · elu(x)` with the constants of self-normalizing networks. The derivative at 0 is the one from below."""
    def selu_(self) -> Tensor:
        """`selu` in place."""
    @property
    def shape(self) -> tuple[builtins.int, ...]:
        """The sizes of the axes."""
    def sigmoid(self, *, out: Tensor | None = None) -> Tensor:
        """`1 / (1 + e⁻ˣ)`."""
    def sigmoid_(self) -> Tensor:
        """`sigmoid` in place."""
    def sign(self, *, out: Tensor | None = None) -> Tensor:
        """1, -1 or 0 as `x` is above, below or neither; so 0 of NaN, as in PyTorch. The derivative is 0."""
    def sign_(self) -> Tensor:
        """`sign` in place."""
    def signbit(self, *, out: Tensor | None = None) -> Tensor:
        """Is it negative, or -0? A NaN counts as positive, whatever its bit; PyTorch looks at the bit."""
    def signbit_(self) -> Tensor:
        """`signbit` in place."""
    def silu(self, *, out: Tensor | None = None) -> Tensor:
        """`x / (1 + e⁻ˣ)`. NaN at -∞, as in PyTorch."""
    def silu_(self) -> Tensor:
        """`silu` in place."""
    def sin(self, *, out: Tensor | None = None) -> Tensor:
        """Sine."""
    def sin_(self) -> Tensor:
        """`sin` in place."""
    def sinc(self, *, out: Tensor | None = None) -> Tensor:
        """`sin(πx) / (πx)`, 1 at 0; exactly 0 at other integers. Of infinities NaN."""
    def sinc_(self) -> Tensor:
        """`sinc` in place."""
    def sinh(self, *, out: Tensor | None = None) -> Tensor:
        """Hyperbolic sine, exact near 0; infinite only where the result is."""
    def sinh_(self) -> Tensor:
        """`sinh` in place."""
    def size(self, dim: Axes | None = None) -> Any:
        """The sizes of the axes, or of one."""
    def slice_scatter(self, src: Operand, dim: builtins.int = 0, start: Any = None, end: Operand | None = None, step: Any = 1, *, out: Tensor | None = None) -> Tensor:
        """A copy with `src` in a range of an axis."""
    def softmax(self, dim: builtins.int, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """`eˣ / Σ eˣ` along an axis. `dtype`: convert first."""
    def softplus(self, beta: Any = None, threshold: Any = None, *, out: Tensor | None = None) -> Tensor:
        """`ln(1 + e^(beta · x)) / beta`; `x` itself where `beta · x > threshold`."""
    def softplus_(self, beta: Any = None, threshold: Any = None) -> Tensor:
        """`softplus` in place."""
    def softshrink(self, lambd: builtins.float | None = None, *, out: Tensor | None = None) -> Tensor:
        """`x` nearer to 0 by `lambd`, and 0 within."""
    def softshrink_(self, lambd: builtins.float | None = None) -> Tensor:
        """`softshrink` in place."""
    def softsign(self, *, out: Tensor | None = None) -> Tensor:
        """`x / (1 + |x|)`. NaN at the infinities, as in PyTorch."""
    def softsign_(self) -> Tensor:
        """`softsign` in place."""
    def sort(self, dim: builtins.int = ..., descending: builtins.bool = False, *, stable: builtins.bool | None = None, out: Any = None) -> tuple[Tensor, Tensor]:
        """Values and indices in order along an axis. Always stable."""
    def split(self, split_size: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Parts of an axis, of one size or of several: views."""
    def split_with_sizes(self, split_sizes: Any, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """Parts of an axis, of these sizes: views."""
    def sqrt(self, *, out: Tensor | None = None) -> Tensor:
        """`√x`. The derivative at 0 is infinite."""
    def sqrt_(self) -> Tensor:
        """`sqrt` in place."""
    def square(self, *, out: Tensor | None = None) -> Tensor:
        """`x²`; bools are converted to i64 first."""
    def square_(self) -> Tensor:
        """`square` in place."""
    def squeeze(self, dim: Axes | None = None) -> Tensor:
        """Without axes of size 1: all of them, or those named."""
    def std(self, dim: Axes | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Any = None, out: Tensor | None = None) -> Tensor:
        """The root of the variance over axes (none: all)."""
    def storage_offset(self) -> builtins.int:
        """Where the first element lies in the storage, in elements."""
    def stride(self, dim: Axes | None = None) -> Any:
        """The strides of the axes in elements, or of one."""
    def sub(self, other: Operand, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
        """`x - alpha · other`. A bool beside a number counts as 0 or 1."""
    def sub_(self, other: Operand, *, alpha: Any = None) -> Tensor:
        """`sub` in place."""
    def subtract(self, other: Operand, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
        """`x - alpha · other`. A bool beside a number counts as 0 or 1."""
    def subtract_(self, other: Operand, *, alpha: Any = None) -> Tensor:
        """`sub` in place."""
    def sum(self, dim: Axes | None = None, keepdim: builtins.bool = False, *, dtype: AnyDType | None = None, out: Tensor | None = None) -> Tensor:
        """The sum over axes (none: all); of integers and bools an int64. `dtype`: convert first."""
    def sum_to_size(input: Tensor, *size: Any) -> Tensor:
        """Summed over the axes that were broadcast from a shape."""
    def swapaxes(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Two axes swapped: a view."""
    def swapdims(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Two axes swapped: a view."""
    def t(self) -> Tensor:
        """The two axes of a matrix swapped: a view."""
    def take(self, index: Tensor, *, out: Tensor | None = None) -> Tensor:
        """The elements at places in row-major order."""
    def take_along_dim(input: Tensor, indices: Any, dim: Axes | None = None, *, out: Tensor | None = None) -> Tensor:
        """``gather`` in which all other axes are broadcast; negative indices count from the end."""
    def tan(self, *, out: Tensor | None = None) -> Tensor:
        """Tangent."""
    def tan_(self) -> Tensor:
        """`tan` in place."""
    def tanh(self, *, out: Tensor | None = None) -> Tensor:
        """Hyperbolic tangent."""
    def tanh_(self) -> Tensor:
        """`tanh` in place."""
    def tanhshrink(self, *, out: Tensor | None = None) -> Tensor:
        """`x - tanh x`."""
    def tanhshrink_(self) -> Tensor:
        """`tanhshrink` in place."""
    def tensor_split(input: Tensor, indices_or_sections: Any, dim: builtins.int = 0) -> Tensor:
        """An axis in so many parts, the first of which are the longer ones, or cut at indices: views."""
    def threshold(self, threshold: Any = None, value: Any = None, *, out: Tensor | None = None) -> Tensor:
        """`x > threshold ? x : value`. The derivative at the threshold is 0."""
    def threshold_(self, threshold: Any = None, value: Any = None) -> Tensor:
        """`threshold` in place."""
    def tile(input: Tensor, *sizes: Any, dims: Any = None) -> Tensor:
        """``repeat`` with as many numbers as axes."""
    def to(self, *args: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None, copy: builtins.bool = False, non_blocking: builtins.bool = False) -> Tensor:
        """Another dtype, another device, or both; itself if nothing changes."""
    def tobytes(self) -> bytearray:
        """The elements in row-major order, as bytes. Waits for them."""
    def tolist(self) -> Any:
        """The elements in nested lists. Waits for them."""
    def topk(self, k: builtins.int, dim: builtins.int = ..., largest: builtins.bool = True, sorted: builtins.bool = True, *, out: Any = None) -> tuple[Tensor, Tensor]:
        """Values and indices of the `k` largest (or smallest) along an axis, in order."""
    def trace(self, *, out: Tensor | None = None) -> Tensor:
        """The sum of the diagonal of a matrix."""
    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Two axes swapped: a view."""
    def tril(self, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
        """What is on and below a diagonal of the last two axes; zeros elsewhere."""
    def tril_(self, diagonal: builtins.int = 0) -> Tensor:
        """`tril` in place."""
    def triu(self, diagonal: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
        """What is on and above a diagonal of the last two axes; zeros elsewhere."""
    def triu_(self, diagonal: builtins.int = 0) -> Tensor:
        """`triu` in place."""
    def true_divide(self, other: Operand, *, rounding_mode: builtins.str | None = None, out: Tensor | None = None) -> Tensor:
        """`x / other`; integers are converted to float32 first. `rounding_mode`: `"floor"`, `"trunc"` or none."""
    def true_divide_(self, other: Operand, *, rounding_mode: builtins.str | None = None) -> Tensor:
        """`div` in place."""
    def trunc(self, *, out: Tensor | None = None) -> Tensor:
        """The integer part."""
    def trunc_(self) -> Tensor:
        """`trunc` in place."""
    def trunc_divide(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x / y` without its fraction, from the exact quotient. By zero and of infinities: of floats as `x / y`, of integers 0."""
    def trunc_divide_(self, other: Operand) -> Tensor:
        """`trunc_divide` in place."""
    def type_as(self, *args: Any, dtype: AnyDType | None = None, device: AnyDevice | None = None, copy: builtins.bool = False, non_blocking: builtins.bool = False) -> Tensor:
        """Another dtype, another device, or both; itself if nothing changes."""
    def unbind(self, dim: builtins.int = 0) -> tuple[Tensor, ...]:
        """The slices of an axis, one by one: views."""
    def unflatten(self, dim: builtins.int, sizes: Any) -> Tensor:
        """One axis as several; one size may be -1."""
    def unfold(self, dimension: Any, size: Any, step: Any) -> Tensor:
        """Windows of an axis, as a new last axis: a view."""
    def uniform_(self, from_: builtins.float = ..., to: builtins.float = ..., *, generator: Generator | None = None) -> Tensor:
        """Overwritten with random numbers, uniform in [from_, to)."""
    def unique(input: Tensor, sorted: builtins.bool = True, return_inverse: Any = False, return_counts: Any = False, dim: Axes | None = None) -> Tensor:
        """The distinct elements in ascending order, or slices of an axis. Waits for how many there are."""
    def unique_consecutive(input: Tensor, return_inverse: Any = False, return_counts: Any = False, dim: Axes | None = None) -> Tensor:
        """The elements, or slices of an axis, without those that equal the one before them."""
    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """A new axis of size 1: a view."""
    def var(self, dim: Axes | None = None, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False, *, correction: Any = None, out: Tensor | None = None) -> Tensor:
        """The variance over axes (none: all): the sum of squared deviations is divided by `n - correction`."""
    def view(self, *shape: Any) -> Tensor:
        """The same elements in row-major order as another shape, without a copy. One size may be -1."""
    def view_as(self, other: Operand) -> Tensor:
        """Viewed in the shape of another."""
    def vsplit(input: Tensor, indices_or_sections: Any) -> Tensor:
        """``tensor_split`` along axis 0 in parts of one size."""
    def where(self, condition: Tensor, other: Operand) -> Tensor:
        """`condition ? self : other`, as PyTorch's method has it."""
    def xlog1py(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x · ln(1 + y)`; 0 where `x` is 0, unless `y` is NaN. The derivative by `x` is 0 where `x` is 0 and `y` isn't above -1."""
    def xlog1py_(self, other: Operand) -> Tensor:
        """`xlog1py` in place."""
    def xlogy(self, other: Operand, *, out: Tensor | None = None) -> Tensor:
        """`x · ln y`; 0 where `x` is 0, unless `y` is NaN. The derivative by `x` is 0 where `x` is 0 and `y` isn't above 0."""
    def xlogy_(self, other: Operand) -> Tensor:
        """`xlogy` in place."""
    def zero_(self) -> Tensor:
        """Zeros in place."""
    def __eq__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __lt__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __le__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __gt__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __ge__(self, other: Operand) -> Tensor: ...  # type: ignore[override]
    def __hash__(self) -> builtins.int: ...
class _Kernel:
    """A traced function as one kernel."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call self as a function."""
    def __new__(cls, *args: Any, **kwargs: Any) -> _Kernel: ...
    @property
    def result_count(self) -> builtins.int:
        """How many results it has."""
__version__: builtins.str
def _einsum(equation: Any, operands: Any) -> Tensor:
    """A sum of products over axes that letters name."""
def _multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of a chain of matrices, in the order that costs least."""
def _rebuild(data: Any, shape: Any, dtype: AnyDType | None, device: AnyDevice | None, requires_grad: builtins.bool) -> Tensor:
    """What a tensor is made of when it is unpickled."""
def _set_grad_enabled(mode: builtins.bool) -> builtins.bool:
    """Turns recording on or off for this thread; says what it was."""
def _triangle_indices(upper: Any, row: Any, col: Any, offset: builtins.int, dtype: AnyDType | None, device: AnyDevice | None) -> Tensor:
    """Rows and columns of a triangle."""
def _write_random_model(folder: Any, words: Any, seed: builtins.int) -> None:
    """Writes a small model of random weights into a folder, for tests."""
def add(input: Tensor, other: Operand, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
    """`input + alpha · other`. Of bools: or."""
def arange(start: Any, end: Operand | None = None, step: Any = None, *, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """`start`, `start + step`, … before `end`."""
def backward(tensors: Sequence[Tensor], grad_tensors: Any = None, retain_graph: builtins.bool | None = None) -> None:
    """One pass from several outputs."""
bfloat16: dtype
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Any = None, *, reduction: builtins.str = 'mean', pos_weight: Tensor | None = None) -> Tensor:
    """`-pos_weight · target · ln σ(input) - (1 - target) · ln(1 - σ(input))`, times `weight`."""
def bitwise_and(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_and` of two tensors, or of a tensor and a number at either side."""
def bitwise_left_shift(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_left_shift` of two tensors, or of a tensor and a number at either side."""
def bitwise_or(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_or` of two tensors, or of a tensor and a number at either side."""
def bitwise_right_shift(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_right_shift` of two tensors, or of a tensor and a number at either side."""
def bitwise_xor(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_xor` of two tensors, or of a tensor and a number at either side."""
bool: dtype
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors as views of one shape."""
def can_cast(from_: builtins.float, to: builtins.float) -> builtins.bool:
    """May a result of the one dtype be stored in an output of the other?"""
def capture(function: Any, device: AnyDevice | None = None) -> Graph:
    """Runs `function()` once on this thread and records what it does on a device instead of doing it. What the function uses"""
def cat(tensors: Sequence[Tensor], dim: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors one after the other along an axis."""
def catalogue() -> Any:
    """Every op: name, forms, dtypes and whether it has a gradient, for tests and docs."""
def clip_grad_norm_(parameters: Any, max_norm: builtins.float) -> Tensor:
    """Scales the gradients of parameters so that their norm is at most `max_norm`; gives the norm before."""
def clip_grad_value_(parameters: Any, clip_value: builtins.float) -> None:
    """Clamps each element of the gradients of parameters to [-clip_value, clip_value]."""
def cross_entropy(input: Tensor, target: Tensor, weight: Any = None, *, ignore_index: builtins.int = ..., reduction: builtins.str = 'mean', label_smoothing: builtins.float = 0.0) -> Tensor:
    """`-Σ target · weight · ln softmax(input)` of logits `[n, classes, ..]`; targets are classes, or probabilities."""
def current_stream(device: AnyDevice | None = None) -> Stream:
    """The stream that this thread's work on a device goes to."""
class device:
    """`raddle.device("cpu")`, `"cuda:0"`, `"sim:7"`: where tensors live. One of a name in the process."""
    def __new__(cls, *args: Any, **kwargs: Any) -> device: ...
    def __reduce__(self) -> Any:
        """Helper for pickle."""
    def __repr__(self) -> builtins.str:
        """Return repr(self)."""
    def __str__(self) -> builtins.str:
        """Return str(self)."""
    @property
    def index(self) -> builtins.int | None:
        """The number behind the colon, if there is one."""
    def synchronize(self) -> None:
        """Waits for all work of the device."""
    @property
    def type(self) -> builtins.str:
        """`cpu`, `cuda` or `sim`."""
def div(input: Tensor, other: Operand, *, rounding_mode: builtins.str | None = None, out: Tensor | None = None) -> Tensor:
    """`input / other`; integers are converted to float32 first. `rounding_mode`: `"floor"`, `"trunc"` or none."""
double: dtype
def dropout(input: Tensor, p: builtins.float = 0.5, training: builtins.bool = True) -> Tensor:
    """Each element is dropped with probability `p` in training, and the others are divided by `1 - p`."""
class dtype:
    """The type of a tensor's elements: `raddle.float32` and its like."""
    def __reduce__(self) -> Any:
        """Helper for pickle."""
    def __repr__(self) -> builtins.str:
        """Return repr(self)."""
    @property
    def is_complex(self) -> builtins.bool:
        """Always false: Raddle has no complex numbers."""
    @property
    def is_floating_point(self) -> builtins.bool:
        """Is it a float?"""
    @property
    def itemsize(self) -> builtins.int:
        """Bytes of an element."""
def embedding(input: Tensor, weight: Any, padding_idx: builtins.int | None = None, *, sparse: builtins.bool = False) -> Tensor:
    """Rows of a table. `padding_idx`: a row that gets no gradient. A gradient is never sparse."""
def empty(*sizes: Any, size: Any = None, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """Undefined content."""
def empty_like(input: Tensor, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """`empty` of the shape of another tensor, and of its dtype and device if none is given."""
def eye(n: builtins.int, m: Any = None, *, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """The identity."""
float: dtype
float16: dtype
float32: dtype
float64: dtype
def floor_divide(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`floor_divide` of two tensors, or of a tensor and a number at either side."""
def from_dlpack(ext_tensor: Any, *, device: AnyDevice | None = None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array or tensor, or of a capsule: no copy, and both go on with the memory. `device`: a"""
def full(size: Any, fill_value: Any, *, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """One number everywhere."""
def full_like(input: Tensor, fill_value: Any, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """One number everywhere, in the shape of another tensor."""
def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: builtins.bool | None = None, *, allow_unused: builtins.bool = False) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` by `inputs`; none for an input that they don't depend on."""
half: dtype
int: dtype
int32: dtype
int64: dtype
def is_grad_enabled() -> builtins.bool:
    """Are ops of this thread recorded?"""
def l1_loss(input: Tensor, target: Tensor, *, reduction: builtins.str = 'mean') -> Tensor:
    """`|input - target|`."""
def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Tensor | None = None, eps: builtins.float = 1e-05, *, out: Tensor | None = None) -> Tensor:
    """`(x - mean) / √(variance + eps) · weight + bias` over the last axes, which have the shape `normalized_shape`."""
def linear(input: Tensor, weight: Any, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """`x weightᵀ + bias`."""
def linspace(start: Any, end: Operand, steps: builtins.int, *, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """So many numbers from `start` to `end`, both among them."""
def load_file(filename: builtins.str | os.PathLike[builtins.str], device: AnyDevice | None = None) -> dict[builtins.str, Tensor]:
    """Reads a safetensors file into a dict of tensors."""
long: dtype
def manual_seed(seed: builtins.int) -> None:
    """Seeds the random numbers of this thread."""
def mse_loss(input: Tensor, target: Tensor, *, reduction: builtins.str = 'mean') -> Tensor:
    """`(input - target)²`."""
def mul(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`mul` of two tensors, or of a tensor and a number at either side."""
def nll_loss(input: Tensor, target: Tensor, weight: Any = None, *, ignore_index: builtins.int = ..., reduction: builtins.str = 'mean') -> Tensor:
    """`-weight[target] · input[.., target, ..]` of log-probabilities `[n, classes, ..]`."""
def ones(*sizes: Any, size: Any = None, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """Ones."""
def ones_like(input: Tensor, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """`ones` of the shape of another tensor, and of its dtype and device if none is given."""
def pow(input: Tensor, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """`pow` of two tensors, or of a tensor and a number at either side."""
def promote_types(type1: Any, type2: Any) -> dtype:
    """The dtype that two are promoted to."""
def rand(*sizes: Any, size: Any = None, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """Random numbers, uniform in [0, 1)."""
def rand_like(input: Tensor, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """`rand` of the shape of another tensor, and of its dtype and device if none is given."""
def randint(low: builtins.int, high: Any, size: Any = None, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """Random integers from `low` (0 if left out) to before `high`."""
def randn(*sizes: Any, size: Any = None, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """Random numbers of the standard normal distribution."""
def randn_like(input: Tensor, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """`randn` of the shape of another tensor, and of its dtype and device if none is given."""
def randperm(n: builtins.int, *, dtype: AnyDType | None = None, device: AnyDevice | None = None) -> Tensor:
    """The integers from 0 to before `n`, in random order."""
def remainder(input: Tensor, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """`remainder` of two tensors, or of a tensor and a number at either side."""
def result_type(tensor1: Operand, tensor2: Operand) -> dtype:
    """The dtype that operands are promoted to."""
def save_file(tensors: Sequence[Tensor], filename: builtins.str | os.PathLike[builtins.str]) -> None:
    """Writes a dict of tensors as safetensors: the whole file or nothing."""
def scaled_dot_product_attention(query: Tensor, key: Any, value: Any, attn_mask: Tensor | None = None, dropout_p: builtins.float = 0.0, is_causal: builtins.bool = False, *, scale: Any = None, enable_gqa: builtins.bool = False, out: Tensor | None = None) -> Tensor:
    """`softmax(query keyᵀ · scale + mask) value`. A mask of bools is true where a key is seen."""
def set_stream(stream: Any) -> None:
    """Makes a stream the current one of this thread, on its device."""
def stack(tensors: Sequence[Tensor], dim: builtins.int = 0, *, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape along a new axis."""
def sub(input: Tensor, other: Operand, *, alpha: Any = None, out: Tensor | None = None) -> Tensor:
    """`input - alpha · other`."""
def synchronize(device: AnyDevice | None = None) -> None:
    """Waits for all work of a device, of all threads."""
def tensor(data: Any, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """A tensor of numbers: of one, of nested lists, of an array. A copy."""
uint8: dtype
def where(condition: Tensor, x: Operand, y: Operand, *, out: Tensor | None = None) -> Tensor:
    """`condition ? x : y`, by elements; `x` and `y` are tensors or numbers."""
def zeros(*sizes: Any, size: Any = None, out: Tensor | None = None, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """Zeros."""
def zeros_like(input: Tensor, *, dtype: AnyDType | None = None, device: AnyDevice | None = None, requires_grad: builtins.bool = False) -> Tensor:
    """`zeros` of the shape of another tensor, and of its dtype and device if none is given."""
