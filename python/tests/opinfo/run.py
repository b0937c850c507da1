"""Runs PyTorch's own samples of every op (OpInfo, which comes inside of the torch wheel) on Raddle, and compares with PyTorch.

    python python/tests/opinfo/run.py --device cpu --json FILE      # all; --only NAME for one op, --quick without reference inputs

Of each op that Raddle has under PyTorch's name: samples in every dtype that both have, non-contiguous ones and the larger
reference inputs in float32, gradients in float64, the forms in place and with `out=`, and inputs that must be refused. Values are
compared with PyTorch's in float64, rounded to the dtype. Each name is in exactly one list: it passes, or it stands in `lists.py`
as absent or as different on purpose, with the reason. Nothing else is left out but samples whose dtypes Raddle doesn't have.
"""

import argparse
import collections
import json
import math
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import raddle  # noqa: E402
import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils._pytree import tree_flatten, tree_map  # noqa: E402

import lists  # noqa: E402

TORCH = "2.15"
NAMES = "bool uint8 int32 int64 float16 bfloat16 float32 float64".split()
OURS = {getattr(torch, name): getattr(raddle, name) for name in NAMES}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}
#: What results may differ by: absolutely, and as a part of the value.
TOLERANCE = {torch.float64: (1e-9, 1e-9), torch.float32: (3e-5, 3e-5), torch.float16: (4e-3, 4e-3), torch.bfloat16: (3e-2, 3e-2)}
#: Results are random, or undefined: shapes and dtypes are compared.
RANDOM = {"bernoulli", "empty", "empty_like", "nn.functional.dropout", "rand_like", "randint", "randint_like", "randn", "randn_like", "new_empty", "normal", "uniform", "exponential"}  # fmt: skip


class Inapplicable(Exception):
    """The sample has a dtype, or an object, that Raddle doesn't have."""


def full_name(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def find(op):
    """Raddle's function of that name, or none."""
    if op.name in CALLED:
        return CALLED[op.name]
    place = raddle
    parts = op.name.split(".")
    if parts[0] in ("nn",):
        from raddle.nn import functional

        return getattr(functional, parts[-1], None) if parts[:2] == ["nn", "functional"] else None
    for part in parts:
        place = getattr(place, part, None)
        if place is None or not callable(place) and part is parts[-1]:
            return method(op.name) if len(parts) == 1 else None
    return place if callable(place) and not isinstance(place, raddle.dtype) else method(op.name)


def method(name):
    """A function that calls the method of a name."""
    found = getattr(raddle.Tensor, name, None)
    return found if callable(found) else None


#: Where OpInfo hands over arguments in an order of its own, or calls something else by that name.
CALLED = {
    "nn.functional.embedding": lambda weight, index, **kwargs: raddle.nn.functional.embedding(index, weight, **kwargs),
    "where": lambda x, condition, other, **kwargs: raddle.where(condition, x, other, **kwargs),
    "zero_": lambda x: x.clone().zero_(),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "fill": lambda x, value: x.clone().fill_(value),
    "slice": lambda x, dim=0, start=None, end=None, step=1: x[(slice(None),) * dim + (slice(start, end, step),)],
    "einsum": lambda tensors, equation: raddle.einsum(equation, *tensors),
    "broadcast_shapes": lambda *shapes: torch.Size(raddle.broadcast_shapes(*shapes)),
    "meshgrid": lambda first, *rest, **kwargs: raddle.meshgrid(*first if isinstance(first, (list, tuple)) else [first], *rest, **kwargs),
    "unique": raddle.unique,
}


class There:
    """From PyTorch to Raddle; remembers the leaves that require grad."""

    def __init__(self, device, grad=False):
        self.device, self.grad, self.leaves, self.storages = device, grad, [], {}

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.dtype):
            if value not in OURS:
                raise Inapplicable(f"dtype {value}")
            return OURS[value]
        if isinstance(value, torch.device):
            return self.device
        if isinstance(value, str) and value == "cpu":
            return self.device
        if isinstance(value, (complex, torch.memory_format, torch.layout, torch.Generator)):
            if value in (torch.contiguous_format, torch.preserve_format, torch.strided):
                return None
            raise Inapplicable(type(value).__name__)
        if callable(value):
            raise Inapplicable("a function of PyTorch")
        return value

    def tensor(self, value):
        if value.dtype not in OURS:
            raise Inapplicable(f"dtype {value.dtype}")
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            raise Inapplicable("layout")
        plain = value.detach()
        if plain.numel() == 0:
            made = self.flat(plain.reshape(-1)).reshape(list(plain.shape))
        else:
            # What shares memory there shares it here.
            key = (plain.untyped_storage().data_ptr(), plain.dtype)
            if key not in self.storages:
                count = plain.untyped_storage().nbytes() // plain.element_size()
                self.storages[key] = self.flat(torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage(), 0, (count,), (1,)))
            made = self.storages[key].as_strided(list(plain.shape), list(plain.stride()), plain.storage_offset())
        made = made.detach()
        if self.grad and value.requires_grad:
            made.requires_grad_()
            self.leaves.append((value, made))
        return made

    def flat(self, plain):
        data = bytearray(plain.contiguous().view(torch.uint8).numpy().tobytes()) if plain.numel() else bytearray()
        return raddle._raddle._rebuild(data, [plain.numel()], OURS[plain.dtype], self.device, False)


def back(value):
    """From Raddle to PyTorch."""
    if not isinstance(value, raddle.Tensor):
        return value
    dtype = THEIRS[value.dtype]
    if value.numel() == 0:
        return torch.empty(value.shape, dtype=dtype)
    return torch.frombuffer(value.tobytes(), dtype=torch.uint8).view(dtype).reshape(value.shape)


def flat(value):
    """The tensors and numbers of a result, in order."""
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return [part for item in value for part in flat(item)]
    return [value]


def wide(value):
    """In float64, if it is a float."""
    return tree_map(lambda x: x.detach().double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x, value)


def close(found, expected, dtype):
    absolute, relative = TOLERANCE.get(dtype, (0, 0))
    try:
        torch.testing.assert_close(found.double(), expected.double(), atol=absolute, rtol=relative, equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")
    return None


def is_random(name, kwargs):
    return name in RANDOM or bool(kwargs.get("dropout_p"))


def compare(name, found, same, exact, random=False):
    """`found` of Raddle, `same` of PyTorch in that dtype, `exact` of PyTorch in float64 (or none)."""
    found, same = flat(found), flat(same)
    exact = flat(exact) if exact is not None else same
    assert len(found) == len(same), f"{len(found)} results for {len(same)}"
    for ours, theirs, truth in zip(found, same, exact):
        if not isinstance(theirs, torch.Tensor):
            assert ours == theirs or ours != ours, f"{ours} for {theirs}"
            continue
        ours, theirs = back(ours), theirs.detach()
        assert ours.shape == theirs.shape, f"shape {tuple(ours.shape)} for {tuple(theirs.shape)}"
        assert ours.dtype == theirs.dtype, f"dtype {ours.dtype} for {theirs.dtype}"
        if random:
            continue
        wrong = close(ours, theirs, ours.dtype)
        if wrong and ours.is_floating_point() and isinstance(truth, torch.Tensor):
            # PyTorch's own rounding may be further off than ours.
            wrong = close(ours, truth.to(ours.dtype), ours.dtype) and wrong
        assert not wrong, wrong


def undo_ties(op, sample, found, same):
    """Indices of equal elements may stand in any order: compared is what they name."""
    if op.name not in ("sort", "argsort", "topk", "median", "nanmedian", "mode", "kthvalue") or isinstance(same, torch.Tensor) and op.name != "argsort":
        return found, same
    args, kwargs = sample.args, sample.kwargs
    place = 1 if op.name in ("topk", "kthvalue") else 0
    dim = kwargs.get("dim", args[place] if len(args) > place and not isinstance(args[place], bool) else -1)
    source = sample.input.detach()
    keeps = flat(same)[-1].dim() == source.dim()
    spread = lambda index: index if keeps else index.unsqueeze(dim)  # noqa: E731
    pick = lambda index: torch.gather(source, dim, spread(index)) if source.dim() else source.reshape(index.shape)  # noqa: E731
    found, same = flat(found), flat(same)
    values = [pick(back(found[-1])), pick(same[-1])]
    assert not close(values[0], values[1], None), "indices name other elements"
    return found[:-1], same[:-1]


class Judge:
    def __init__(self, device, quick):
        self.device, self.quick = device, quick
        self.counts = collections.Counter()
        self.failures = []

    def check(self, op, mode, body):
        try:
            body()
        except Inapplicable:
            self.counts[mode, "inapplicable"] += 1
        except Exception as error:
            self.counts[mode, "failed"] += 1
            self.failures.append((full_name(op), mode, type(error).__name__, str(error).replace("\n", " ")[:300]))
        else:
            self.counts[mode, "passed"] += 1

    def forward(self, op, function, sample):
        there = There(self.device)
        inputs, args, kwargs = tree_map(there, (sample.input, sample.args, sample.kwargs))
        # PyTorch first: what it refuses is nobody's sample.
        same = op.op(sample.input, *sample.args, **sample.kwargs)
        if any(isinstance(part, torch.Tensor) and part.dtype not in OURS for part in flat(same)):
            raise Inapplicable("dtype of the result")
        if any(isinstance(part, torch.Tensor) and part.layout is not torch.strided for part in flat(same)):
            raise Inapplicable("layout of the result")
        found = function(inputs, *args, **drop_none(kwargs))
        found, same = undo_ties(op, sample, found, same)
        exact = None
        if any(isinstance(part, torch.Tensor) and part.is_floating_point() for part in flat(same)):
            try:
                exact = op.op(wide(sample.input), *wide(sample.args), **wide(sample.kwargs))
                exact = flat(exact)[: len(flat(same))]
            except Exception:
                exact = None
        compare(op.name, found, same, exact, is_random(op.name, sample.kwargs))

    def gradient(self, op, function, sample):
        there = There(self.device, grad=True)
        inputs, args, kwargs = tree_map(there, (sample.input, sample.args, sample.kwargs))
        found = flat(function(inputs, *args, **drop_none(kwargs)))
        same = flat(op.op(sample.input, *sample.args, **sample.kwargs))
        pairs = [
            (ours, theirs)
            for ours, theirs in zip(found, same)
            if isinstance(theirs, torch.Tensor) and theirs.requires_grad and theirs.dtype in OURS
        ]
        if not pairs or not there.leaves:
            raise Inapplicable("nothing to differentiate")
        for ours, _ in pairs:
            assert ours.requires_grad, "the result requires no grad"
        seeds = [torch.randn_like(theirs) for _, theirs in pairs]
        expected = torch.autograd.grad([theirs for _, theirs in pairs], [leaf for leaf, _ in there.leaves], seeds, allow_unused=True)
        gradients = raddle.grad(
            [ours for ours, _ in pairs],
            [leaf for _, leaf in there.leaves],
            [There(self.device)(seed.contiguous()) for seed in seeds],
            allow_unused=True,
        )
        for (leaf, _), ours, theirs in zip(there.leaves, gradients, expected):
            # No gradient is one of zeros.
            ours = torch.zeros_like(leaf.detach()) if ours is None else back(ours)
            theirs = torch.zeros_like(leaf.detach()) if theirs is None else theirs
            if is_random(op.name, sample.kwargs):
                continue
            assert ours.shape == theirs.shape, f"gradient of shape {tuple(ours.shape)} for {tuple(theirs.shape)}"
            wrong = close(ours, theirs, torch.float64)
            assert not wrong, f"gradient: {wrong}"

    def in_place(self, op, sample):
        name = getattr(op.inplace_variant, "__name__", "lambda")
        if "lambda" in name:  # of torch.nn.functional
            name, function = op.name, find(op)
            changed = lambda x, *args, **kwargs: function(x, *args, inplace=True, **kwargs)  # noqa: E731
        else:
            changed = getattr(raddle.Tensor, name, None)
        if changed is None:
            raise AssertionError(f"no form {name}")
        there = There(self.device)
        inputs, args, kwargs = tree_map(there, (sample.input, sample.args, sample.kwargs))
        expected = sample.input.detach().clone()
        try:
            op.inplace_variant(expected, *sample.args, **sample.kwargs)
        except Exception:
            try:
                changed(inputs, *args, **drop_none(kwargs))
            except Exception:
                return
            raise AssertionError(f"{name} isn't refused") from None
        kwargs.pop("inplace", None)
        given = changed(inputs, *args, **drop_none(kwargs))
        assert given is inputs, f"{name} returns another tensor"
        compare(op.name, inputs, expected, None, is_random(op.name, sample.kwargs))

    def out(self, op, function, sample):
        if sample.kwargs.get("as_tuple"):
            raise Inapplicable("PyTorch has no such form")
        there = There(self.device)
        inputs, args, kwargs = tree_map(there, (sample.input, sample.args, sample.kwargs))
        same = op.op(sample.input, *sample.args, **sample.kwargs)
        if not all(isinstance(part, torch.Tensor) and part.dtype in OURS for part in flat(same)):
            raise Inapplicable("results")
        # Of other strides than the result's.
        outs = [raddle.empty(list(reversed(part.shape)), dtype=OURS[part.dtype], device=self.device).permute(*reversed(range(part.dim()))) for part in flat(same)]  # fmt: skip
        given = function(inputs, *args, out=outs[0] if isinstance(same, torch.Tensor) else tuple(outs), **drop_none(kwargs))
        assert all(a is b for a, b in zip(flat(given), outs)), "out isn't what is returned"
        found, same = undo_ties(op, sample, outs, same)
        compare(op.name, found, same, None, is_random(op.name, sample.kwargs))

    def error(self, op, function, error):
        sample = error.sample_input
        there = There(self.device)
        try:
            inputs, args, kwargs = tree_map(there, (sample.input, sample.args, sample.kwargs))
            made = function(inputs, *args, **drop_none(kwargs))
            if made is NotImplemented:
                return
            [part.tobytes() for part in flat(made) if isinstance(part, raddle.Tensor)]
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return
        raise AssertionError(f"isn't refused: {error.error_regex[:120]}")

    def op(self, op):
        function = find(op)
        dtypes = [dtype for dtype in OURS if op.supports_dtype(dtype, "cpu")]
        for dtype in dtypes:
            torch.manual_seed(1)
            try:
                samples = list(op.sample_inputs("cpu", dtype))
            except Exception as error:  # PyTorch has no samples of that dtype
                self.counts["samples", "none: " + type(error).__name__] += 1
                continue
            mode = f"samples {str(dtype)[6:]}"
            for sample in samples:
                self.check(op, mode, lambda sample=sample: self.forward(op, function, sample))
            if dtype in (torch.float32, torch.int64):
                if op.inplace_variant is not None:
                    for sample in samples:
                        if isinstance(sample.input, torch.Tensor) and not sample.broadcasts_input:
                            self.check(op, "in place", lambda sample=sample: self.in_place(op, sample))
                if op.supports_out:
                    for sample in samples:
                        self.check(op, "out", lambda sample=sample: self.out(op, function, sample))
            if dtype == torch.float32:
                for sample in samples:
                    self.check(op, "non-contiguous", lambda sample=sample: self.forward(op, function, sample.noncontiguous()))
                if not self.quick:
                    for sample in op.reference_inputs("cpu", dtype):
                        self.check(op, "reference", lambda sample=sample: self.forward(op, function, sample))
        if op.supports_autograd and op.supports_dtype(torch.float64, "cpu"):
            torch.manual_seed(1)
            for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
                self.check(op, "gradients", lambda sample=sample: self.gradient(op, function, sample))
        if op.error_inputs_func is not None:
            for error in op.error_inputs("cpu"):
                self.check(op, "errors", lambda error=error: self.error(op, function, error))


def drop_none(kwargs):
    return {name: value for name, value in kwargs.items() if value is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json")
    parser.add_argument("--only", action="append", help="these ops alone")
    parser.add_argument("--quick", action="store_true", help="without reference inputs")
    parser.add_argument("--seconds", type=float, default=math.inf, help="fail if it takes longer")
    options = parser.parse_args()
    if not torch.__version__.startswith(TORCH):
        sys.exit(f"opinfo: expected torch {TORCH}, found {torch.__version__}")
    torch.set_num_threads(1)
    judge = Judge(raddle.device(options.device), options.quick)
    start = time.monotonic()
    names = {}
    slow = []
    for op in op_db:
        name = full_name(op)
        if options.only and name not in options.only and op.name not in options.only:
            continue
        reason = lists.absent(name)
        if reason:
            names[name] = "skipped"
            if find(op) is not None:
                judge.failures.append((name, "lists", "Here", "listed as absent, but Raddle has it"))
                names[name] = "failed"
            continue
        if find(op) is None:
            judge.failures.append((name, "lists", "Absent", "Raddle lacks it, and no list says so"))
            names[name] = "failed"
            continue
        before, began = len(judge.failures), time.monotonic()
        judge.op(op)
        slow.append((time.monotonic() - began, name))
        failed = judge.failures[before:]
        on_purpose = lists.DIFFERS.get(name)
        if on_purpose:
            # A difference is one in these modes, with these words; anything else fails.
            kept = [failure for failure in failed if not any(mode in failure[1] and text in failure[3] for mode, text, _ in on_purpose)]
            unused = [(mode, text) for mode, text, _ in on_purpose if not any(mode in failure[1] and text in failure[3] for failure in failed)]
            judge.failures[before:] = kept
            if unused and not options.quick:
                judge.failures.append((name, "lists", "Same", f"listed as different, but it isn't: {unused}"))
            names[name] = "failed" if len(judge.failures) > before else "differs"
        else:
            names[name] = "failed" if failed else "passed"
    seconds = time.monotonic() - start
    for failure in judge.failures:
        print(*failure, sep=" | ")
    modes = sorted({mode for mode, _ in judge.counts})
    for mode in modes:
        print(f"{mode:20}", {verdict: count for (of, verdict), count in sorted(judge.counts.items()) if of == mode})
    verdicts = collections.Counter(names.values())
    print(dict(verdicts), f"{seconds:.0f} s; slowest", [f"{name} {time:.1f}" for time, name in sorted(slow)[-6:]])
    if options.json:
        by = lambda verdict: sorted(name for name in names if names[name] == verdict)  # noqa: E731
        report = {
            "names": len(names),
            "passed": by("passed"),
            "skipped": {name: lists.absent(name) for name in by("skipped")},
            "failed": [list(failure) for failure in judge.failures],
            "differs": {name: sorted({reason for _, _, reason in lists.DIFFERS[name]}) for name in by("differs")},
            "device": options.device,
            "torch": torch.__version__,
            "samples": {f"{mode}, {verdict}": count for (mode, verdict), count in sorted(judge.counts.items())},
            "seconds": round(seconds, 1),
        }
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)
    sys.exit(bool(judge.failures) or seconds > options.seconds)


if __name__ == "__main__":
    main()
