"""Writes the stubs from what the package says of itself: names, signatures and docs.

    python python/stubs.py            # writes python/raddle/*.pyi
    python python/stubs.py --check    # fails if they aren't what would be written
"""

import builtins
import inspect
import pathlib
import sys

sys.path.pop(0)  # what is installed, not the folder beside this file, which may have no module

import raddle  # noqa: E402
from raddle import _raddle  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "raddle"

HEAD = '''"""Made by python/stubs.py: do not edit."""

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

'''

COMPARISONS = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__".split()

#: What a parameter of that name takes.
PARAMETERS = {
    **dict.fromkeys("other exponent end weight_ tensor1 tensor2 x y min max src".split(), "Operand"),
    **dict.fromkeys("input tensor mask index target condition mat1 mat2 query key value_ values".split(), "Tensor"),
    **dict.fromkeys("attn_mask bias pos_weight gradient grad".split(), "Tensor | None"),
    **dict.fromkeys("keepdim descending stable sorted largest copy force non_blocking requires_grad training accumulate mode is_causal enable_gqa sparse sparse_grad as_tuple allow_unused inplace".split(), "builtins.bool"),
    **dict.fromkeys("unbiased retain_graph".split(), "builtins.bool | None"),
    **dict.fromkeys("dim dim0 dim1 dim2 start_dim end_dim diagonal offset decimals seed k n steps chunks low".split(), "builtins.int"),
    **dict.fromkeys("p mean std from_ to lambd eps dropout_p max_norm clip_value label_smoothing".split(), "builtins.float"),
    **dict.fromkeys("alpha beta value negative_slope threshold fill_value weight".split(), "Any"),
    **dict.fromkeys("reduction approximate".split(), "builtins.str"),
    **dict.fromkeys("rounding_mode reduce".split(), "builtins.str | None"),
    "dtype": "AnyDType | None",
    "device": "AnyDevice | None",
    "generator": "Generator | None",
    "filename": "builtins.str | os.PathLike[builtins.str]",
    "ignore_index": "builtins.int",
    "padding_idx": "builtins.int | None",
    "tensors": "Sequence[Tensor]",
    "key": "Any",
}
#: What something returns, if that isn't a tensor.
RETURNS = {
    **dict.fromkeys("__bool__ __contains__ equal is_contiguous is_floating_point is_set_to is_leaf requires_grad is_grad_enabled _set_grad_enabled can_cast __eq__device is_complex query".split(), "builtins.bool"),
    **dict.fromkeys("__len__ __int__ __index__ __hash__ dim ndim numel element_size itemsize nbytes storage_offset _version stream_id kernel_count publish id width max_seq_length result_count".split(), "builtins.int"),
    **dict.fromkeys("__repr__ __str__ __format__ type prompt".split(), "builtins.str"),
    **dict.fromkeys("backward clip_grad_value_ manual_seed save_file __setitem__ __delitem__ synchronize __exit__ record wait wait_event wait_stream set_stream _write_random_model".split(), "None"),
    **dict.fromkeys("unbind split split_with_sizes chunk broadcast_tensors".split(), "tuple[Tensor, ...]"),
    **dict.fromkeys("sort topk".split(), "tuple[Tensor, Tensor]"),
    **dict.fromkeys("max min size stride item tolist numpy __array__ nonzero catalogue __reduce__ get_state replay encode __call__".split(), "Any"),
    "shape": "tuple[builtins.int, ...]",
    "__iter__": "Iterator[Tensor]",
    "__float__": "builtins.float",
    "tobytes": "bytearray",
    "index": "builtins.int | None",
    "load_file": "dict[builtins.str, Tensor]",
    "is_floating_point_": "builtins.bool",
    "result_type": "dtype",
    "promote_types": "dtype",
    "device": "Any",
    "dtype": "DType",
    "grad": "Tensor | None",
    "from_state": "Generator",
    "capture": "Graph",
    "load": "Published",
    "tensors": "tuple[Tensor, ...]",
    "current_stream": "Stream",
    "__enter__": "Stream",
    "record_event": "Event",
    "elapsed_time": "builtins.float",
    "__dlpack__": "Any",
    "__dlpack_device__": "tuple[builtins.int, builtins.int]",
}


def parameter(owner, item, name=None):
    kinds = inspect.Parameter
    if item.name in ("self", "slf", "/"):
        return "self"
    kind = PARAMETERS.get(item.name, "Any")
    if item.kind is kinds.VAR_POSITIONAL:
        return f"*{item.name}: Any"
    if item.kind is kinds.VAR_KEYWORD:
        return f"**{item.name}: Any"
    if item.name == "dim" and item.default is None:
        kind = "Axes | None"
    if item.name == "out":
        kind = "Any" if RETURNS.get(name, "Tensor") != "Tensor" else "Tensor | None"
    text = f"{item.name}: {kind}"
    if item.default is not kinds.empty:
        if item.default is None and "None" not in kind and kind != "Any":
            text += " | None"
        text += " = ..." if item.default is ... else f" = {item.default!r}"
    return text


def signature(owner, name, function):
    try:
        items = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "(self, *args: Any, **kwargs: Any)" if owner else "(*args: Any, **kwargs: Any)"
    parts, marked = [], False
    for place, item in enumerate(items):
        if item.kind is inspect.Parameter.VAR_POSITIONAL:
            marked = True
        if item.kind is inspect.Parameter.KEYWORD_ONLY and not marked:
            parts.append("*")
            marked = True
        parts.append(parameter(owner, item, name))
    return f"({', '.join(parts)})"


def doc(value, indent):
    text = inspect.getdoc(value) or ""
    if not text:
        return " ..."
    return f'\n{indent}    """{text.splitlines()[0]}"""'


def returns(owner, name):
    if owner and name in ("backward",):
        return "None"
    if name == "grad" and not owner:
        return "tuple[Tensor | None, ...]"
    if name == "__new__":
        return owner
    return RETURNS.get(name, "Tensor")


def ignored(name):
    # Python hands over no modulus in place.
    return "  # type: ignore[misc]" if name == "__ipow__" else ""


def members(kind):
    lines = []
    for name, value in sorted(vars(kind).items()):
        if name in "__doc__ __module__ __weakref__ __delitem__".split() or name in COMPARISONS:
            continue
        if name == "__new__":
            lines.append("    def __new__(cls, *args: Any, **kwargs: Any) -> " + kind.__name__ + ": ...")
        elif inspect.isgetsetdescriptor(value):
            lines.append(f"    @property\n    def {name}(self) -> {returns(kind.__name__, name)}:{doc(value, '    ')}")
            if name in ("grad", "requires_grad"):
                lines.append(f"    @{name}.setter\n    def {name}(self, value: Any) -> None: ...")
        elif isinstance(value, staticmethod):
            lines.append(f"    @staticmethod\n    def {name}(*args: Any) -> {returns(kind.__name__, name)}:{doc(value, '    ')}")
        elif callable(value) and name not in ("__hash__", "__class__"):
            lines.append(f"    def {name}{signature(kind.__name__, name, value)} -> {returns(kind.__name__, name)}:{ignored(name)}{doc(value, '    ')}")
    if "__eq__" in vars(kind) and kind.__name__ == "Tensor":
        for name in COMPARISONS:
            lines.append(f"    def {name}(self, other: Operand) -> Tensor: ...  # type: ignore[override]")
        lines.append("    def __hash__(self) -> builtins.int: ...")
    return lines or ["    ..."]


def stub():
    own = {name: value for name, value in vars(_raddle).items() if not name.startswith("__") or name == "__version__"}
    lines = []
    for name, value in sorted(own.items()):
        # Aliases are put on the class at import of the package, and stand there as well.
        if isinstance(value, type) and issubclass(value, BaseException):
            bases = ", ".join(f"builtins.{base.__name__}" if hasattr(builtins, base.__name__) else base.__name__ for base in value.__bases__)
            lines.append(f"class {name}({bases}): ...")
        elif isinstance(value, type):
            lines.append("\n".join([f"class {name}:", f'    """{inspect.getdoc(value).splitlines()[0]}"""', *members(value)]))
        elif isinstance(value, raddle.dtype):
            lines.append(f"{name}: dtype")
        elif callable(value):
            lines.append(f"def {name}{signature(None, name, value)} -> {returns(None, name)}:{doc(value, '')}")
        else:
            lines.append(f"{name}: builtins.{type(value).__name__}")
    return HEAD + "\n".join(lines) + "\n"


def package():
    """The package: what the native module has, its methods as functions, and what stands in __init__.py."""
    lines = [HEAD.splitlines()[0], "import builtins", "from collections.abc import Sequence", "from typing import Any", "from . import nn as nn", "from ._fused import fused as fused", "from ._raddle import *", "from ._raddle import __version__ as __version__"]  # fmt: skip
    for name, value in sorted(vars(raddle).items()):
        if name.startswith("_") or name in vars(_raddle) or inspect.ismodule(value):
            continue
        method = next((of for of, found in vars(raddle.Tensor).items() if found is value), None)
        native = next((of for of, found in vars(_raddle).items() if found is value), None)
        if native:
            lines.append(f"{name} = {native}")
        elif method:
            lines.append(f"{name} = Tensor.{method}")
        elif isinstance(value, type):
            lines += [f"class {name}:", "    def __init__(self, *args: Any) -> None: ...", "    def __enter__(self) -> Any: ...", "    def __exit__(self, *args: Any) -> None: ...", "    def __call__(self, function: Any) -> Any: ..."]  # fmt: skip
        elif callable(value):
            lines.append(f"def {name}{signature(None, name, value)} -> Any:{doc(value, '')}")
        else:
            lines.append(f"{name}: Any")
    return "\n".join(lines) + "\n"


def main():
    wrong = []
    for name, made in (("_raddle.pyi", stub()), ("__init__.pyi", package())):
        compile(made, name, "exec")
        file = FOLDER / name
        if "--check" not in sys.argv:
            file.write_text(made)
        elif file.read_text() != made:
            wrong.append(f"{file}: not what python/stubs.py makes; run it")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
