"""What is shorter in Python: ops that are nothing but calls of others, under PyTorch's names."""

import itertools
import math

from . import _raddle
from ._raddle import Tensor, _einsum, _multi_dot, _triangle_indices, cat, full, stack, zeros


def _into(out, made):
    """What was made, or ``out`` with it; of several a tuple."""
    if out is None:
        return made
    if isinstance(made, tuple):
        return tuple(_into(*pair) for pair in zip(out, made, strict=True))
    if list(out.shape) != list(made.shape):
        raise ValueError(f"out: expected shape {list(made.shape)}, found {list(out.shape)}")
    if not _raddle.can_cast(made.dtype, out.dtype):
        raise TypeError(f"out: a result of {made.dtype} can't be stored in {out.dtype}")
    return out.copy_(made)


def _list(tensors):
    """Tensors as one list or one after the other."""
    return list(tensors[0]) if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else list(tensors)


def _axis(op, dim, rank):
    if not -rank <= dim < rank:
        raise IndexError(f"{op}: axis {dim} is out of range, expected -{rank} to {rank - 1}, rank is {rank}")
    return dim % rank


# ---------------------------------------------------------------- shapes


def atleast_1d(*tensors):
    """With at least one axis."""
    made = tuple(x.reshape(1) if x.dim() == 0 else x for x in _list(tensors))
    return made[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else made


def atleast_2d(*tensors):
    """With at least two axes: new ones come in front."""
    made = tuple(x if x.dim() > 1 else x.reshape(1, -1) if x.numel() else x.reshape(1, 0) for x in _list(tensors))
    return made[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else made


def atleast_3d(*tensors):
    """With at least three axes: a row becomes ``[1, n, 1]``, a matrix ``[n, m, 1]``."""
    made = tuple(x if x.dim() > 2 else atleast_2d(x).unsqueeze(-1) for x in _list(tensors))
    return made[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else made


def hstack(tensors, *, out=None):
    """Side by side: along axis 1, of vectors along axis 0."""
    parts = atleast_1d(tensors)
    return cat(parts, int(not parts or parts[0].dim() > 1), out=out)


def vstack(tensors, *, out=None):
    """One below the other: along axis 0, vectors as rows."""
    return cat(atleast_2d(tensors), 0, out=out)


def dstack(tensors, *, out=None):
    """One behind the other: along axis 2."""
    return cat(atleast_3d(tensors), 2, out=out)


def column_stack(tensors, *, out=None):
    """``hstack`` with vectors as columns."""
    return hstack([x.reshape(-1, 1) if x.dim() < 2 and x.numel() else x.reshape(0, 1) if x.dim() < 2 else x for x in tensors], out=out)


def tensor_split(input, indices_or_sections, dim=0):
    """An axis in so many parts, the first of which are the longer ones, or cut at indices: views."""
    if input.dim() == 0:
        raise ValueError("tensor_split: expected at least 1 axis, found 0")
    size = input.shape[_axis("tensor_split", dim, input.dim())]
    cuts = indices_or_sections
    if isinstance(cuts, Tensor):
        if cuts.dtype != _raddle.int64 or cuts.dim() > 1:
            raise ValueError("tensor_split: expected at most 1 axis of int64 as indices or sections")
        cuts = cuts.tolist()
    if isinstance(cuts, int):
        if cuts < 1:
            raise ValueError(f"tensor_split: expected at least 1 section, found {cuts}")
        part, longer = divmod(size, cuts)
        cuts = list(itertools.accumulate(part + (i < longer) for i in range(cuts - 1)))
    cuts = [min(max(cut + size if cut < 0 else cut, 0), size) for cut in cuts]
    ends = [*cuts, size]
    return tuple(input.narrow(dim, start, max(end - start, 0)) for start, end in zip([0, *cuts], ends))


def _split(name, least, axis):
    def split(input, indices_or_sections):
        if input.dim() < least:
            raise ValueError(f"{name}: expected at least {least} axes, found {input.dim()}")
        dim = axis if input.dim() > 1 else 0
        if isinstance(indices_or_sections, int):
            size = input.shape[dim]
            if indices_or_sections < 1 or size % indices_or_sections:
                raise ValueError(f"{name}: expected sections that divide {size}, found {indices_or_sections}")
        return tensor_split(input, indices_or_sections, dim)

    split.__name__ = split.__qualname__ = name
    split.__doc__ = f"``tensor_split`` along axis {axis} in parts of one size."
    return split


hsplit, vsplit, dsplit = _split("hsplit", 1, 1), _split("vsplit", 2, 0), _split("dsplit", 3, 2)


def fliplr(input):
    """Columns in the reverse order."""
    if input.dim() < 2:
        raise ValueError(f"fliplr: expected at least 2 axes, found {input.dim()}")
    return input.flip(1)


def flipud(input):
    """Rows in the reverse order."""
    if input.dim() < 1:
        raise ValueError("flipud: expected at least 1 axis, found 0")
    return input.flip(0)


def meshgrid(*tensors, indexing="ij"):
    """Vectors as views of one grid: ``"ij"`` in their order, ``"xy"`` with the first two swapped."""
    parts = [x.reshape(1) if x.dim() == 0 else x for x in _list(tensors)]
    if not parts:
        raise ValueError("meshgrid: expected at least 1 tensor, found 0")
    if any(x.dim() != 1 for x in parts):
        raise ValueError("meshgrid: expected tensors of at most 1 axis")
    if any(x.dtype != parts[0].dtype for x in parts):
        raise TypeError("meshgrid: expected tensors of one dtype")
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: expected indexing 'ij' or 'xy', found {indexing!r}")
    swap = indexing == "xy" and len(parts) > 1
    if swap:
        parts[:2] = parts[1::-1]
    shape = [x.numel() for x in parts]
    grids = [x.reshape([-1 if j == i and x.numel() else x.numel() if j == i else 1 for j in range(len(parts))]).expand(shape) for i, x in enumerate(parts)]  # fmt: skip
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def cartesian_prod(*tensors):
    """All choices of one element of each vector, as rows."""
    parts = _list(tensors)
    if any(x.dim() != 1 for x in parts):
        raise ValueError("cartesian_prod: expected vectors")
    if len(parts) == 1:
        return parts[0].view_as(parts[0])
    return stack([grid.ravel() for grid in meshgrid(*parts)], 1)


def combinations(input, r=2, with_replacement=False):
    """All choices of ``r`` elements of a vector in its order, as rows."""
    if input.dim() != 1:
        raise ValueError(f"combinations: expected a vector, found {input.dim()} axes")
    if r < 0:
        raise ValueError(f"combinations: expected at least 0 elements, found {r}")
    if r == 0:
        return input.new_empty((0,))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(choose(range(input.numel()), r))
    index = _raddle.tensor(places, dtype=_raddle.int64, device=input.device) if places else zeros([0, r], dtype=_raddle.int64, device=input.device)
    return input[index]


def block_diag(*tensors):
    """Matrices along a diagonal; vectors are rows."""
    if any(x.dim() > 2 for x in tensors):
        raise ValueError("block_diag: expected at most 2 axes")
    if not tensors:
        return zeros([1, 0])
    blocks = [atleast_2d(x) for x in tensors]
    dtype = blocks[0].dtype
    for block in blocks[1:]:
        dtype = _raddle.promote_types(dtype, block.dtype)
    width = sum(block.shape[1] for block in blocks)
    rows, start = [], 0
    for block in blocks:
        rows.append(_pad(block.to(dtype), [start, width - start - block.shape[1]]))
        start += block.shape[1]
    return cat(rows, 0)


def _pad(x, widths, mode="constant", value=0):
    return x._pad(list(widths), mode, value)


def constant_pad_nd(input, pad, value=0):
    """The last axes with so many elements more, or fewer, at both ends; of the last axis first."""
    return _pad(input, pad, value=value)


def tril_indices(row, col, offset=0, *, dtype=None, device=None):
    """Rows and columns of what lies on and below a diagonal."""
    return _triangle_indices(False, row, col, offset, dtype, device)


def triu_indices(row, col, offset=0, *, dtype=None, device=None):
    """Rows and columns of what lies on and above a diagonal."""
    return _triangle_indices(True, row, col, offset, dtype, device)


def broadcast_shapes(*shapes):
    """The shape that all broadcast to."""
    shapes = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    made = []
    for sizes in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        wanted = {size for size in sizes if size != 1}
        if len(wanted) > 1 or any(size < 0 for size in wanted):
            raise RuntimeError(f"broadcast_shapes: shapes don't fit together: {shapes}")
        made.append(wanted.pop() if wanted else 1)
    return tuple(reversed(made))


def positive(input):
    """Itself: numbers have a sign."""
    if input.dtype == _raddle.bool:
        raise TypeError("positive: expected numbers, found bools")
    return input.view_as(input)


def sum_to_size(input, *size):
    """Summed over the axes that were broadcast from a shape."""
    size = list(size[0]) if len(size) == 1 and not isinstance(size[0], int) else list(size)
    missing = input.dim() - len(size)
    if missing < 0 or any(want not in (1, have) for want, have in zip(size, input.shape[missing:])):
        raise ValueError(f"sum_to_size: expected a shape that broadcasts to {list(input.shape)}, found {size}")
    if input.dim() == 0:
        return input.sum()
    axes = [i for i in range(input.dim()) if i < missing or size[i - missing] == 1 and input.shape[i] != 1]
    return (input.sum(axes, True) if axes else input).reshape(size)


# ---------------------------------------------------------------- indexing


def take_along_dim(input, indices, dim=None, *, out=None):
    """``gather`` in which all other axes are broadcast; negative indices count from the end."""
    size = input.numel() if dim is None else input.shape[dim] if input.dim() else 1
    return _take_along_dim(input, indices.where(indices >= 0, indices + size), dim, out=out)


def flip(input, *axes, dims=None):
    """The axes in the reverse order of their elements."""
    return _flip(input, *(axes if dims is None else (list(dims),)))


def tile(input, *sizes, dims=None):
    """``repeat`` with as many numbers as axes."""
    return _tile(input, *(sizes if dims is None else (list(dims),)))


_take_along_dim, _flip, _tile = Tensor.take_along_dim, Tensor.flip, Tensor.tile


def argwhere(input):
    """The indices of what isn't zero, a row each. Waits for how many there are."""
    return input.nonzero()


def isin(elements, test_elements, *, assume_unique=False, invert=False, out=None):
    """Which elements are among others; a NaN is among none."""
    device = next(x.device for x in (elements, test_elements) if isinstance(x, Tensor))
    elements, test_elements = (x if isinstance(x, Tensor) else _raddle.tensor(x, device=device) for x in (elements, test_elements))
    found = elements._isin(test_elements)
    return _into(out, found.logical_not() if invert else found)


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None, out=None):
    """Where values go in a sorted axis so that it stays so: before equal ones, or behind them."""
    if side not in (None, "left", "right") or side == "left" and right:
        raise ValueError(f"searchsorted: expected side 'left' or 'right' that fits right={right}, found {side!r}")
    if sorter is not None:
        if list(sorter.shape) != list(sorted_sequence.shape) or sorter.dtype != _raddle.int64:
            raise ValueError("searchsorted: expected a sorter of int64, of the sequence's shape")
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if not isinstance(input, Tensor):
        if sorted_sequence.dim() != 1:
            raise ValueError("searchsorted: expected one sorted axis beside a number")
        input = _raddle.tensor(input, device=sorted_sequence.device)
    elif input.dtype != sorted_sequence.dtype:
        raise TypeError(f"searchsorted: expected values of {sorted_sequence.dtype}, found {input.dtype}")
    made = sorted_sequence._searchsorted(input, right or side == "right")
    made = made.to(_raddle.int32) if out_int32 else made
    if out is not None and out.dtype != made.dtype:
        raise TypeError(f"searchsorted: expected an out of {made.dtype}, found {out.dtype}")
    return _into(out, made)


def bucketize(input, boundaries, *, out_int32=False, right=False, out=None):
    """Between which boundaries each element lies."""
    if boundaries.dim() != 1:
        raise ValueError(f"bucketize: expected boundaries of 1 axis, found {boundaries.dim()}")
    if not isinstance(input, Tensor):
        input = _raddle.tensor(input, device=boundaries.device)
    made = boundaries._searchsorted(input, right)
    return _into(out, made.to(_raddle.int32) if out_int32 else made)


def _edges(input, bins, low, high, apart=1):
    if not input.is_floating_point():
        raise TypeError(f"histc: expected floats, found {input.dtype}")
    if bins < 1:
        raise ValueError(f"histc: expected at least 1 bin, found {bins}")
    if low == high and input.numel():
        low, high = input.amin().item(), input.amax().item()
    if low == high:
        low, high = low - apart, high + apart
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ValueError(f"histc: expected a finite range, found {low} to {high}")
    return _raddle.linspace(low, high, bins + 1, dtype=input.dtype, device=input.device)


def _count(input, edges, weight):
    """Weights of the elements of each bin; the last one has its upper edge."""
    x, bins = input.detach().ravel(), edges.numel() - 1
    inside = x.ge(edges[0]).logical_and(x.le(edges[-1]))
    place = edges._searchsorted(x, True).sub(1).clamp(0, bins - 1)
    weight = inside.to(edges.dtype) if weight is None else weight.ravel().where(inside, 0)
    return zeros([bins], dtype=weight.dtype, device=x.device).index_add(0, place, weight)


def histc(input, bins=100, min=0, max=0, *, out=None):
    """How many elements are in each of so many bins of one size; elements outside count nowhere."""
    return _into(out, _count(input, _edges(input, bins, min, max), None))


def histogram(input, bins, *, range=None, weight=None, density=False, out=None):
    """Weights of the elements of each bin, and the edges of the bins."""
    if isinstance(bins, Tensor):
        if bins.dtype != input.dtype or bins.dim() != 1:
            raise ValueError("histogram: expected edges of the input's dtype, as a vector")
        edges = bins
    else:
        range = range or (None if input.numel() else (0, 1))
        edges = _edges(input, bins, *(range or (0, 0)), apart=0.5)
    if weight is not None and (list(weight.shape) != list(input.shape) or weight.dtype != input.dtype):
        raise ValueError("histogram: expected weights of the input's shape and dtype")
    counts = _count(input, edges, weight)
    if density:
        counts = counts / (counts.sum() * edges._diff())
    return _into(out, (counts, edges))


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements in ascending order, or slices of an axis. Waits for how many there are."""
    found = input._unique(False, dim)
    chosen = [found[0]] + [part for part, wanted in zip(found[1:], (return_inverse, return_counts)) if wanted]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements, or slices of an axis, without those that equal the one before them."""
    found = input._unique(True, dim)
    chosen = [found[0]] + [part for part, wanted in zip(found[1:], (return_inverse, return_counts)) if wanted]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def unravel_index(indices, shape):
    """Places in row-major order as an index for each axis."""
    shape = [shape] if isinstance(shape, int) else list(shape)
    if indices.dtype not in (_raddle.int64, _raddle.int32, _raddle.uint8):
        raise TypeError(f"unravel_index: expected integers, found {indices.dtype}")
    if any(size < 0 for size in shape):
        raise ValueError(f"unravel_index: expected sizes of at least 0, found {shape}")
    return tuple(indices._coordinate(shape, axis) for axis in range(len(shape)))


# ---------------------------------------------------------------- statistics


def aminmax(input, *, dim=None, keepdim=False, out=None):
    """The smallest and the largest, of all or along an axis."""
    import collections

    if out is not None and any(part.dtype != input.dtype for part in out):
        raise TypeError(f"aminmax: expected an out of {input.dtype}")
    made = _into(out, (input.amin(dim, keepdim), input.amax(dim, keepdim)))
    return collections.namedtuple("aminmax", ("min", "max"))(*made)


def median(input, dim=None, keepdim=False, *, out=None):
    """The middle of all, of two the lower one, or values and indices along an axis. NaN if there is one."""
    if dim is not None:
        return input._median(dim, keepdim, out=out)
    if input.numel() == 0:
        return _into(out, input.new_full((), math.nan))
    return _into(out, input.ravel()._median(0)[0])


def nanmedian(input, dim=None, keepdim=False, *, out=None):
    """``median`` of what is no NaN."""
    if dim is not None:
        return input._nanmedian(dim, keepdim, out=out)
    if input.numel() == 0:
        return _into(out, input.new_full((), math.nan))
    return _into(out, input.ravel()._nanmedian(0)[0])


def nansum(input, dim=None, keepdim=False, *, dtype=None, out=None):
    """The sum of what is no NaN, over axes (none: all)."""
    made = (input if dtype is None else input.to(dtype))._nansum(dim, keepdim)
    return _into(out, made if dtype is None else made.to(dtype))


def _with_mean(name):
    def spread(input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        kwargs = {"correction": correction} if unbiased is None else {"unbiased": unbiased}
        return _into(out, (getattr(input, name)(dim, keepdim=keepdim, **kwargs), input.mean(dim, keepdim)))

    spread.__name__ = spread.__qualname__ = f"{name}_mean"
    spread.__doc__ = f"``{name}`` and ``mean`` over axes (none: all)."
    return spread


std_mean, var_mean = _with_mean("std"), _with_mean("var")


def diff(input, n=1, dim=-1, prepend=None, append=None, *, out=None):
    """What each element of an axis is above the one before it, ``n`` times over."""
    if n < 0:
        raise ValueError(f"diff: expected an order of at least 0, found {n}")
    if input.dim() == 0:
        raise ValueError("diff: expected at least 1 axis, found 0")
    parts = [x for x in (prepend, input, append) if x is not None]
    if n == 0:
        return _into(out, input)
    parts = [x if x is input or x.dim() == input.dim() else x.expand([1 if i == dim % input.dim() else size for i, size in enumerate(input.shape)]) for x in parts]  # fmt: skip
    return _into(out, (cat(parts, dim) if len(parts) > 1 else input)._diff(n, dim))


def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integral by trapezoids, of steps ``dx`` or at places ``x``."""
    return y._trapezoid(x, dx, dim)


def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """The running integral by trapezoids."""
    return y._cumulative_trapezoid(x, dx, dim)


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Differences of second order inside, of order ``edge_order`` at the ends, for each axis; ``spacing`` is a step, or places."""
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [_axis("gradient", axis, input.dim()) for axis in dims]
    if len(set(dims)) != len(dims):
        raise ValueError(f"gradient: expected each axis once, found {dims}")
    if edge_order not in (1, 2):
        raise ValueError(f"gradient: expected an edge_order of 1 or 2, found {edge_order}")
    spaced = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(spaced) != len(dims):
        raise ValueError(f"gradient: expected {len(dims)} spacings, found {len(spaced)}")
    made = []
    for axis, step in zip(dims, spaced):
        size = input.shape[axis]
        if size <= edge_order:
            raise ValueError(f"gradient: expected more than {edge_order} elements along axis {axis}, found {size}")
        x = input.to(_raddle.float32) if not input.is_floating_point() else input
        if isinstance(step, Tensor):
            if step.dim() != 1 or step.numel() != size:
                raise ValueError(f"gradient: expected {size} places along axis {axis}, found {list(step.shape)}")
            h = step._diff().reshape([-1 if i == axis else 1 for i in range(input.dim())])
        else:
            h = full([1] * input.dim(), step, dtype=x.dtype, device=x.device).expand([size - 1 if i == axis else 1 for i in range(input.dim())])  # fmt: skip
        at = lambda start, count: x.narrow(axis, start, count)  # noqa: E731
        parts = []
        slope = (at(1, size - 1) - at(0, size - 1)) / h
        if edge_order == 1:
            ends = slope.narrow(axis, 0, 1), slope.narrow(axis, size - 2, 1)
        else:
            a, b = h.narrow(axis, 0, 1), h.narrow(axis, 1, 1)
            first = at(0, 1) * (-(2 * a + b) / (a * (a + b))) + at(1, 1) * ((a + b) / (a * b)) - at(2, 1) * (a / (b * (a + b)))
            a, b = h.narrow(axis, size - 3, 1), h.narrow(axis, size - 2, 1)
            last = at(size - 3, 1) * (b / (a * (a + b))) - at(size - 2, 1) * ((a + b) / (a * b)) + at(size - 1, 1) * ((a + 2 * b) / (b * (a + b)))  # fmt: skip
            ends = first, last
        parts.append(ends[0])
        if size > 2:
            a, b = h.narrow(axis, 0, size - 2), h.narrow(axis, 1, size - 2)
            parts.append((slope.narrow(axis, 0, size - 2) * b + slope.narrow(axis, 1, size - 2) * a) / (a + b))
        parts.append(ends[1])
        made.append(cat(parts, axis))
    return made


# ---------------------------------------------------------------- products


def einsum(equation, *operands):
    """The sum of products that an equation names: ``einsum("ij,jk->ik", a, b)``."""
    return _einsum(equation, _list(operands))


def tensordot(a, b, dims=2, out=None):
    """The product summed over axes: so many last ones of ``a`` with the first of ``b``, or lists of both."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0 or dims > min(a.dim(), b.dim()):
            raise ValueError(f"tensordot: expected 0 to {min(a.dim(), b.dim())} axes, found {dims}")
        dims = list(range(a.dim() - dims, a.dim())), list(range(dims))
    first, second = ([axes] if isinstance(axes, int) else list(axes) for axes in dims)
    for i, j in zip(first, second):
        # An axis of size 1 goes with any.
        if a.shape[i] == 1 != b.shape[j]:
            b = b.sum(j, True).to(b.dtype)
        elif b.shape[j] == 1 != a.shape[i]:
            a = a.sum(i, True).to(a.dtype)
    return _into(out, a._tensordot(b, first, second))


def chain_matmul(*matrices, out=None):
    """The product of matrices, in the order that costs least."""
    matrices = _list(matrices)
    return _into(out, matrices[0] if len(matrices) == 1 else _multi_dot(matrices))


def dist(input, other, p=2):
    """The p-norm of the difference."""
    return (input - other).norm(p)


def cdist(x1, x2, p=2.0, compute_mode=None):
    """Distances between the rows of two tensors."""
    return x1._cdist(x2, float(p))


def cross(input, other, dim=None, *, out=None):
    """The cross product along an axis of size 3; none: the first one."""
    if dim is None:
        dim = next((i for i, size in enumerate(input.shape) if size == 3), None)
        if dim is None:
            raise ValueError(f"cross: expected an axis of size 3, found shape {list(input.shape)}")
    return _into(out, input._cross(other, dim))


# ---------------------------------------------------------------- numbers


def rsub(input, other, *, alpha=1):
    """``other - alpha · input``."""
    return _raddle.sub(other, input, alpha=alpha)


def nan_to_num(input, nan=None, posinf=None, neginf=None, *, out=None):
    """Numbers for NaN (0) and the infinities (the largest and the least of the dtype)."""
    if not input.is_floating_point():
        return _into(out, input.clone())
    return _nan_to_num(input, *_numbers(input, nan, posinf, neginf), out=out)


def _numbers(input, nan, posinf, neginf):
    most = {_raddle.float16: 65504.0, _raddle.bfloat16: 3.3895313892515355e38, _raddle.float32: 3.4028234663852886e38}
    most = most.get(input.dtype, 1.7976931348623157e308)
    return nan or 0.0, most if posinf is None else posinf, -most if neginf is None else neginf


def _nan_to_num_in_place(input, nan=None, posinf=None, neginf=None):
    """``nan_to_num`` in place."""
    return _nan_to_num_(input, *_numbers(input, nan, posinf, neginf)) if input.is_floating_point() else input


_nan_to_num, _nan_to_num_ = Tensor.nan_to_num, Tensor.nan_to_num_


def _number_first(name):
    method = getattr(Tensor, name)

    def function(input, other, *, out=None):
        if not isinstance(input, Tensor):
            if not isinstance(other, Tensor):
                raise TypeError(f"{name}: expected a tensor, found numbers alone")
            dtype = other.dtype if other.is_floating_point() else _raddle.float32
            input = full((), input, dtype=dtype, device=other.device)
        return method(input, other, out=out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    return function


xlogy, xlog1py = _number_first("xlogy"), _number_first("xlog1py")


def float_power(input, exponent, *, out=None):
    """``pow`` in float64."""
    wide = [x.to(_raddle.float64) if isinstance(x, Tensor) else float(x) for x in (input, exponent)]
    return _into(out, _raddle.pow(*wide))


def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Where ``|input - other| ≤ atol + rtol · |other|``, or both are equal."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise TypeError("isclose: expected two tensors")
    if input.dtype != other.dtype:
        raise TypeError(f"isclose: expected one dtype, found {input.dtype} and {other.dtype}")
    if rtol < 0 or atol < 0:
        raise ValueError(f"isclose: expected tolerances of at least 0, found {rtol} and {atol}")
    close = input.eq(other)
    if equal_nan and input.is_floating_point():
        close = close.logical_or(input.isnan().logical_and(other.isnan()))
    if rtol == 0 and atol == 0:
        return close
    if not input.is_floating_point():
        input, other = input.to(_raddle.float64), other.to(_raddle.float64)
    apart = (input - other).abs()
    return close.logical_or(apart.isfinite().logical_and(apart.le((other * rtol).abs() + atol)))


def allclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Are all close? Waits for the answer."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False):
    """A number as a tensor without axes."""
    made = full((), s, dtype=dtype or _raddle.float32, device=device)
    return made.requires_grad_() if requires_grad else made


def _new(name, *, doc):
    make = getattr(_raddle, name)

    def new(self, *size, dtype=None, device=None, requires_grad=False, **given):
        size = size or (given.pop("size"),)
        if given:
            raise TypeError(f"new_{name}: expected size, dtype, device and requires_grad, found {', '.join(given)}")
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        made = make(list(size), dtype=dtype or self.dtype, device=self.device if device is None else device)
        return made.requires_grad_() if requires_grad else made

    new.__name__ = new.__qualname__ = f"new_{name}"
    new.__doc__ = doc
    return new


_new_empty = _new("empty", doc="A tensor of undefined content, of this dtype and device unless others are named.")
_new_zeros = _new("zeros", doc="Zeros, of this dtype and device unless others are named.")
_new_ones = _new("ones", doc="Ones, of this dtype and device unless others are named.")


def _new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False):
    """A number everywhere, of this dtype and device unless others are named."""
    made = full(list(size), fill_value, dtype=dtype or self.dtype, device=self.device if device is None else device)
    return made.requires_grad_() if requires_grad else made


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """Numbers, of this dtype and device unless others are named."""
    data = data.tolist() if isinstance(data, Tensor) else data
    made = _raddle.tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device)
    return made.requires_grad_() if requires_grad else made


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, out=None):
    """``base`` to the power of evenly spaced numbers."""
    start, end = (x.item() if isinstance(x, Tensor) else x for x in (start, end))
    dtype = dtype or (out.dtype if out is not None else _raddle.float32)
    wide = _raddle.float64 if dtype not in (_raddle.float32, _raddle.float64) else dtype
    if not dtype.is_floating_point:
        start, end = int(start), int(end)
    powers = _raddle.linspace(start, end, steps, dtype=wide, device=device)
    return _into(out, _raddle.pow(base, powers).to(dtype))


def vander(x, N=None, increasing=False):
    """The powers of a vector's elements, as columns."""
    return x._vander(x.shape[-1] if N is None else N, increasing)


#: Functions that are methods, too.
METHODS = """
    aminmax argwhere allclose cross diff dist dsplit flip fliplr flipud float_power histc histogram hsplit isclose
    median nan_to_num nanmedian nansum positive sum_to_size take_along_dim tensor_split tile unique unique_consecutive vsplit
""".split()


def install(tensor, functions):
    """Puts the functions among Raddle's, and some among the methods."""
    for name, function in globals().items():
        if callable(function) and not name.startswith("_") and getattr(function, "__module__", None) == __name__ and name != "install":
            functions[name] = function
            if name in METHODS:
                setattr(tensor, name, function)
    functions["trapz"] = trapezoid
    for name in "empty zeros ones full tensor".split():
        setattr(tensor, f"new_{name}", globals()[f"_new_{name}"])
    tensor.nan_to_num_ = _nan_to_num_in_place
