"""Layers and losses, with PyTorch's names, shapes and initial weights."""

from . import functional  # noqa: F401
