"""Mistakes are exceptions of Python's kinds, with Raddle's text, and nothing is written."""

import pytest
import raddle


@pytest.mark.parametrize(
    "call, kinds, text",
    [
        (lambda: raddle.ones(2, 3) + raddle.ones(2), (ValueError, RuntimeError), "add: shapes can't be broadcast together, lhs [2, 3] axis 1 is 3, rhs [2] axis 0 is 2"),
        (lambda: raddle.ones(2, 3) @ raddle.ones(4, 5), (ValueError, RuntimeError), "matmul: inner sizes differ, lhs [2, 3] axis 1 is 3, rhs [4, 5] axis 0 is 4"),
        (lambda: raddle.ones(2).sum(3), (IndexError, RuntimeError), "sum: axis 3 is out of range, expected -1 to 0, rank is 1"),
        (lambda: raddle.ones(2).long().bitwise_and(1.5), (TypeError, RuntimeError), "bitwise_and: the promoted input has the wrong dtype, expected an integer or bool, found f32"),
        (lambda: raddle.ones(2, dtype=raddle.int64).add_(1.5), (TypeError, RuntimeError), "add: a result of dtype f32 can't be stored in an output of dtype i64"),
        (lambda: raddle.ones(2).reshape(3), (ValueError, RuntimeError), "reshape: shape [3] has 3 elements, the tensor of shape [2] has 2"),
        (lambda: raddle.ones(2).item(), (ValueError, RuntimeError), "item: the tensor has the wrong number of elements, expected 1, found 2"),
        (lambda: bool(raddle.ones(2)), (ValueError, RuntimeError), "item: the tensor has the wrong number of elements, expected 1, found 2"),
        (lambda: raddle.full((2,), 300, dtype=raddle.uint8), (ValueError, RuntimeError), "full: the number is out of range, expected a number that fits u8, found 300"),
        (lambda: raddle.tensor([1, 300], dtype=raddle.uint8), (ValueError, RuntimeError), "tensor: a number is out of range, expected a number that fits u8, found 300"),
        (lambda: raddle.tensor([float("nan")], dtype=raddle.int64), (ValueError, RuntimeError), "tensor: a number is out of range, expected a number that fits i64, found"),
        (lambda: raddle.tensor([1e300], dtype=raddle.int64), (ValueError, RuntimeError), "tensor: a number is out of range, expected a number that fits i64, found"),
        (lambda: raddle.ones(1).expand(3).add_(1), (RuntimeError,), "add: the output of shape [3] with strides [0] has elements that share memory, use copy() first"),
        (lambda: raddle.ones(2).add(raddle.ones(2), out=raddle.ones(3)), (ValueError, RuntimeError), "add: the output has the wrong shape, expected [2], found [3]"),
        (lambda: raddle.cat([]), (ValueError, RuntimeError), "cat: wrong number of tensors, expected at least 1, found 0"),
        (lambda: raddle.ones(2).div(1, rounding_mode="up"), (ValueError,), "div: expected a rounding_mode of None, 'trunc' or 'floor', found 'up'"),
        (lambda: raddle.ones(2, dtype="f32"), (TypeError,), "dtype: expected a raddle.dtype, found 'f32'"),
        (lambda: raddle.ones(-2), (ValueError,), "ones: expected at least 0, found -2"),
        (lambda: raddle.tensor([[1, 2], [3]]), (ValueError,), "tensor: expected 2 elements at depth 1, found 1"),
        (lambda: raddle.tensor(object()), (TypeError,), "tensor: expected numbers, lists, arrays or tensors, found object"),
        (lambda: raddle.ones(2).mul(None), (TypeError,), "mul: expected a tensor or a number, found NoneType"),
        (lambda: raddle.ones(2).mul(2**70), (OverflowError,), ""),
        (lambda: raddle.ones(2) + raddle.ones(2, device="sim:1"), (RuntimeError,), "add: operands are on different devices, expected cpu, found sim:1"),
        (lambda: raddle.empty(1 << 50), (MemoryError, RuntimeError), "out of memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_a_mistake_is_of_its_kind(call, kinds, text):
    for kind in kinds:
        with pytest.raises(kind) as found:
            call()
        assert text in str(found.value)


def test_exceptions_are_raddles_and_pythons():
    assert issubclass(raddle.Error, RuntimeError)
    for kind, python in {
        raddle.BoundsError: IndexError,
        raddle.ShapeError: ValueError,
        raddle.DTypeError: TypeError,
        raddle.ArgumentError: ValueError,
        raddle.OutOfMemoryError: MemoryError,
        raddle.FileError: OSError,
    }.items():
        assert issubclass(kind, raddle.Error) and issubclass(kind, python) and kind.__doc__


def test_a_failure_on_the_device_reaches_who_reads(device):
    x = raddle.ones(3, device=device)
    with pytest.raises(IndexError, match="index 7 .* is out of bounds"):
        x.index_select(0, raddle.tensor([7], device=device)).tolist()
    assert x.tolist() == [1, 1, 1]
