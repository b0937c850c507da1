"""Optimizers, with PyTorch's names. One is of one thread at a time."""

from ._raddle import SGD, Adam, AdamW  # noqa: F401
