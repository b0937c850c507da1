"""What PyTorch has under several names, and which methods are functions, too. Tables, applied once at import."""

#: An alias, and the method that it is.
METHODS = {
    "absolute": "abs",
    "arccosh": "acosh",
    "arcsinh": "asinh",
    "arctanh": "atanh",
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

def install(tensor, functions):
    """Puts the methods among the functions, and the aliases among both."""
    for name, method in list(vars(tensor).items()):
        if not (name.startswith("_") or name.endswith("_") or name in METHODS_ONLY):
            functions.setdefault(name, method)
    for alias, name in METHODS.items():
        if name in functions:
            functions[alias] = functions[name]
        for suffix in ("", "_"):
            if name + suffix in vars(tensor):
                setattr(tensor, alias + suffix, vars(tensor)[name + suffix])
