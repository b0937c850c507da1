"""``fused``: a function of elements, traced to one kernel."""

import inspect

from ._raddle import Tensor, _Kernel, catalogue

_OPERATORS = {
    **{"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "rem"},
    **{"pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
    **{"lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"},
}
_ALIASES = {"remainder": "rem", "clip": "clamp", "divide": "div", "multiply": "mul", "subtract": "sub", "absolute": "abs"}
_DEFAULTS = {"negative_slope": 0.01, "alpha": 1.0, "beta": 1.0, "threshold": 20.0}


class Traced:
    """A number in a function that is traced: operators and methods of pointwise ops are noted, and nothing is computed."""

    __slots__ = ("_steps", "_index")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, steps, index):
        self._steps, self._index = steps, index

    def _note(self, name, *operands):
        indices = [self._index_of(name, operand) for operand in operands]
        self._steps.append((name, indices, 0.0))
        return Traced(self._steps, len(self._steps) - 1)

    def _index_of(self, name, operand):
        if isinstance(operand, Traced):
            if operand._steps is not self._steps:
                raise TypeError(f"fused: {name} of a number that belongs to another traced function")
            return operand._index
        if isinstance(operand, (int, float)):
            if isinstance(operand, int) and int(float(operand)) != operand:
                raise ValueError(f"fused: {name}: literals are float64, which has no {operand}")
            self._steps.append(("literal", [], float(operand)))
            return len(self._steps) - 1
        if isinstance(operand, Tensor):
            raise TypeError(f"fused: {name} of a tensor from outside of the function, expected it as a parameter")
        raise TypeError(f"fused: {name}: expected a traced number or a literal, found {type(operand).__name__}")

    def where(self, condition, other):
        """This where the condition holds, else the other one."""
        return self._note("where", condition, self, other)

    def __pos__(self):
        return self

    def __getattr__(self, name):
        raise AttributeError(f"fused: a traced number has no '{name}': pointwise ops alone can be traced")


def _refused(what):
    def method(self, *_):
        text = "it has no value while the function is traced; choose with x.where(condition, y)"
        raise TypeError(f"fused: {what} of a traced number: {text}")

    return method


def _row(name, op, inputs, params):
    expected = [*inputs[1:], *params]

    def method(self, *operands, **given):
        for place in expected[len(operands) :]:
            if place in given or place in _DEFAULTS:
                operands = (*operands, given.pop(place, _DEFAULTS.get(place)))
        if given or len(operands) != len(expected):
            found = [*(type(operand).__name__ for operand in operands), *given]
            raise TypeError(f"fused: {name} takes {', '.join(expected) or 'nothing'}, found {', '.join(found) or 'nothing'}")
        return self._note(op, self, *operands)

    method.__name__ = name
    return method


def _install():
    for operator, op in _OPERATORS.items():
        setattr(Traced, f"__{operator}__", lambda self, other, op=op: self._note(op, self, other))
        setattr(Traced, f"__r{operator}__", lambda self, other, op=op: self._note(op, other, self))
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Traced, f"__{op}__", lambda self, other, op=op: self._note(op, self, other))
    for operator, op in {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}.items():
        setattr(Traced, f"__{operator}__", lambda self, op=op: self._note(op, self))
    for name in "int float index len iter getitem contains".split():
        setattr(Traced, f"__{name}__", _refused(f"__{name}__"))
    setattr(Traced, "__bool__", _refused("if, while, and, or, not"))
    rows: dict = {}
    for entry in catalogue():
        if entry["pointwise"] and entry["name"] not in ("where", "fill", "copy"):
            inputs, _, params = entry["signature"].strip("()").partition(";")
            rows[entry["name"]] = [[name.strip() for name in part.split(",") if name.strip()] for part in (inputs, params)]
    for name, op in {**{op: op for op in rows}, **_ALIASES}.items():
        setattr(Traced, name, _row(name, op, *rows[op]))


_install()


class Fused:
    """A function as one kernel: call it with tensors. Any thread may."""

    def __init__(self, function):
        kinds, parameters = inspect.Parameter, 0
        for item in inspect.signature(function).parameters.values():
            if item.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
                raise TypeError(f"fused: expected parameters by position alone, found {item}")
            parameters += item.default is kinds.empty
        steps = [("input", [], 0.0) for _ in range(parameters)]
        try:
            returned = function(*[Traced(steps, index) for index in range(parameters)])
        except TypeError as error:
            error.add_note("fused: while it is traced an op is an operator or a method: x.exp(), not raddle.exp(x)")
            raise
        results = returned if isinstance(returned, tuple) else (returned,)
        for result in results:
            if not isinstance(result, Traced) or result._steps is not steps:
                raise TypeError(f"fused: expected a function that returns traced numbers, found {type(result).__name__}")
        self._kernel = _Kernel(steps, [result._index for result in results])
        self.__wrapped__, self.__doc__ = function, function.__doc__
        self.__name__ = getattr(function, "__name__", "fused")

    def __call__(self, *inputs):
        return self._kernel(*inputs)

    def __repr__(self):
        return f"<fused {self.__name__}>"


def fused(function):
    """Traces a function of numbers once and makes one kernel of it, with a gradient: one pass over its tensors, no temporaries.

    The function sees traced numbers in the place of tensors: operators, comparisons and methods of pointwise ops. Parameters
    with defaults keep them.

    >>> @raddle.fused
    ... def softsign(x):
    ...     return x / (1 + x.abs())
    >>> softsign(raddle.tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """
    return Fused(function)
