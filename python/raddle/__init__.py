"""Raddle: tensors for many threads and one accelerator, with PyTorch's names.

Any tensor may be used from any thread, with no lock and no synchronization in user code.

>>> import raddle
>>> x = raddle.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad.tolist()
[2.0, 4.0, 6.0]
"""

from contextlib import ContextDecorator as _ContextDecorator
from math import e, inf, nan, pi

from . import _aliases, _functions
from ._raddle import *  # noqa: F403
from ._raddle import Tensor, __version__, _set_grad_enabled, load_file, save_file, tensor

newaxis = None
save, load = save_file, load_file
_functions.install(Tensor, globals())
_aliases.install(Tensor, globals())


class _Mode(_ContextDecorator):
    """A mode of recording for a ``with`` block or for a function."""

    _on = False

    def __new__(cls, function=None):
        made = super().__new__(cls)
        return made if function is None else made(function)

    def __enter__(self):
        self._was = _set_grad_enabled(self._on)
        return self

    def __exit__(self, *_):
        _set_grad_enabled(self._was)

    def _recreate_cm(self):
        return type(self)()


class no_grad(_Mode):
    """Ops of this thread aren't recorded inside: results require no grad, and leaves may be changed in place."""


class inference_mode(no_grad):
    """As ``no_grad``."""


class enable_grad(_Mode):
    """Ops of this thread are recorded inside, inside of ``no_grad`` too."""

    _on = True


class set_grad_enabled:
    """Turns recording on or off for this thread, from here on or for a ``with`` block."""

    def __init__(self, mode):
        self._was = _set_grad_enabled(not not mode)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _set_grad_enabled(self._was)


def is_tensor(obj):
    """Is it a tensor?"""
    return isinstance(obj, Tensor)


def is_floating_point(input):
    """Are its elements floats?"""
    return input.is_floating_point()


def numel(input):
    """How many elements it has."""
    return input.numel()


def as_tensor(data, dtype=None, device=None):
    """The tensor itself if it is one of that dtype and device, else a new one of the numbers."""
    if not isinstance(data, Tensor):
        return tensor(data, dtype=dtype, device=device)
    return data.to(dtype=dtype, device=device)


asarray = as_tensor


def from_numpy(array):
    """A tensor of an array's elements, copied."""
    return tensor(array)


def stream(stream):
    """``with raddle.stream(s):`` makes a stream the current one of this thread."""
    return stream


def __getattr__(name):
    # What few need is imported when it is asked for.
    if name in ("linalg", "nn", "optim", "special"):
        import importlib

        return importlib.import_module("." + name, __name__)
    if name == "fused":
        from ._fused import fused

        globals()["fused"] = fused
        return fused
    raise AttributeError(f"module 'raddle' has no attribute '{name}'")
