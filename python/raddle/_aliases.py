"""What PyTorch has under several names, and which methods are functions, too. Tables, applied once at import."""

#: An alias, and the method that it is.
METHODS = {
    "absolute": "abs",
    "arccos": "acos",
    "arcsin": "asin",
    "arctan": "atan",
    "arctan2": "atan2",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "moveaxis": "movedim",
    "multiply": "mul",
    "ndimension": "dim",
    "negative": "neg",
    "nelement": "numel",
    "not_equal": "ne",
    "permute_dims": "permute",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "true_divide": "div",
    "type_as": "to",
}

#: Of tensors alone: these are no functions.
METHODS_ONLY = frozenset(
    """
    T backward bfloat16 bool byte contiguous copy_ cpu data detach device dim double dtype element_size expand expand_as
    fill_ float grad half int is_leaf is_set_to item itemsize long mT masked_fill_ nbytes ndim new_empty new_full new_ones
    new_tensor new_zeros numpy random_ requires_grad requires_grad_ reshape_as shape size storage_offset stride to tobytes
    tolist type_as unfold view view_as where zero_
    """.split()
)

#: Functions whose first argument may be a number, and the operator that then does it.
NUMBER_FIRST = {
    "pow": "__rpow__",
    "remainder": "__rmod__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "bitwise_left_shift": "__rlshift__",
    "bitwise_right_shift": "__rrshift__",
}


def _number_first(name, method, reflected):
    def function(input, other, *, out=None):
        if hasattr(input, "requires_grad_"):
            return method(input, other, out=out)
        made = reflected(other, input)
        return made if out is None else out.copy_(made)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    return function


def install(tensor, functions):
    """Puts the aliases on the class, and its methods among the functions."""
    for alias, name in METHODS.items():
        for suffix in ("", "_"):
            method = vars(tensor).get(name + suffix)
            if method is not None:
                setattr(tensor, alias + suffix, method)
            elif name + suffix in functions:
                functions[alias + suffix] = functions[name + suffix]
    for name, method in list(vars(tensor).items()):
        if name.startswith("_") or name.endswith("_") or name in METHODS_ONLY or name in functions:
            continue
        if name in NUMBER_FIRST:
            method = _number_first(name, method, getattr(tensor, NUMBER_FIRST[name]))
        functions[name] = method
