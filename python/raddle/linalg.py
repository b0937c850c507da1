"""Functions of ``torch.linalg`` that need no factorization."""

import math

from . import _functions, _raddle
from ._functions import _axis, _into
from ._raddle import Tensor


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None, out=None):
    """``(Σ |x|ᵖ)^(1/p)`` over axes (none: all); ``ord`` as of ``norm``."""
    if not x.is_floating_point():
        raise TypeError(f"vector_norm: expected floats, found {x.dtype}")
    if isinstance(ord, str):
        raise TypeError(f"vector_norm: expected a number as ord, found {ord!r}")
    if ord == math.inf or ord < 0:
        axes = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        if x.dim() and any(x.shape[axis] == 0 for axis in axes):
            raise RuntimeError(f"vector_norm: expected at least one element beside ord {ord}, found none")
    return x.norm(float(ord), dim, keepdim, dtype=dtype, out=out)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None):
    """The norm of matrices: ``"fro"``, 1 and -1 (columns), ``inf`` and ``-inf`` (rows)."""
    if A.dim() < 2 or not A.is_floating_point():
        raise RuntimeError(f"matrix_norm: expected floats with at least 2 axes, found {A.dim()} of {A.dtype}")
    rows, columns = (_axis("matrix_norm", axis, A.dim()) for axis in dim)
    if rows == columns:
        raise RuntimeError(f"matrix_norm: expected two axes, found {tuple(dim)}")
    A = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return _into(out, A.norm(2.0, (rows, columns), keepdim))
    if ord not in (1, -1, math.inf, -math.inf):
        raise NotImplementedError(f"matrix_norm: expected 'fro', 1, -1, inf or -inf, found {ord!r}")
    along, across = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = A.abs().sum(along, True)
    found = (sums.amax if ord > 0 else sums.amin)(across, True)
    return _into(out, found if keepdim else found.squeeze((rows, columns)))


def matrix_power(A, n, *, out=None):
    """A square matrix times itself, ``n`` times."""
    return A._matrix_power(n, out=out)


def multi_dot(tensors, *, out=None):
    """The product of a chain of matrices, in the order that costs least."""
    return _into(out, _raddle._multi_dot(list(tensors)))


def vecdot(x, y, *, dim=-1, out=None):
    """``Σ x · y`` along an axis."""
    return x._vecdot(y, dim, out=out)


def cross(input, other, *, dim=-1, out=None):
    """The cross product along an axis of size 3."""
    return input._cross(other, dim, out=out)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """A diagonal of the last two axes, as the last axis: a view."""
    return A.diagonal(offset, dim1, dim2)


def vander(x, *, N=None):
    """The powers of a vector's elements from 0 on, as columns."""
    if N is not None and N <= 1:
        raise RuntimeError(f"vander: expected N of at least 2, found {N}")
    x = x.reshape(1) if x.dim() == 0 else x
    return _functions.vander(x if x.is_floating_point() else x.to(_raddle.int64), N, True)


matmul = Tensor.matmul
