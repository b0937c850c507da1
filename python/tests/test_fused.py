"""Functions traced to one kernel."""

import pytest
import raddle
from test_threads import together

CASES = [
    (lambda x, y: x / (1 + y.abs()) - 2 * x, 2),
    (lambda x: x.exp().sqrt() + x.sigmoid() ** 2, 1),
    (lambda x, y: (x - y).where((x < y) | (x > 1), 0.5), 2),
    (lambda x, y: -x.maximum(y).clamp(-0.5, 0.5) + (2 - y) % 1.5 + 3 / (y.abs() + 1), 2),
    (lambda x: x.leaky_relu(0.1) + x.elu(), 1),
    (lambda x, y, z: x.addcmul(y, z, 0.5).lerp(y, 0.25), 3),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_results_and_gradients_are_those_of_the_ops(torch, device, case):
    function, count = CASES[case]
    kernel = raddle.fused(function)
    raddle.manual_seed(case)
    data = [raddle.randn(3, 4, dtype=raddle.float64).tolist() for _ in range(count)]
    ours = [raddle.tensor(rows, dtype=raddle.float64, device=device, requires_grad=True) for rows in data]
    theirs = [torch.tensor(rows, dtype=torch.float64, requires_grad=True) for rows in data]
    if case == 2:
        expected = torch.where((theirs[0] < theirs[1]) | (theirs[0] > 1), theirs[0] - theirs[1], 0.5)
    elif case == 4:
        expected = torch.nn.functional.leaky_relu(theirs[0], 0.1) + torch.nn.functional.elu(theirs[0])
    elif case == 5:
        expected = torch.addcmul(theirs[0], theirs[1], theirs[2], value=0.5).lerp(theirs[1], 0.25)
    else:
        expected = function(*theirs)
    found = kernel(*ours)
    assert found.flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-9)
    found.sum().backward()
    expected.sum().backward()
    for one, other in zip(ours, theirs):
        assert one.grad.flatten().tolist() == pytest.approx(other.grad.flatten().tolist(), rel=1e-8, abs=1e-12)


def test_it_is_one_kernel():
    x = raddle.ones(5)
    kernel = raddle.fused(lambda x: (x + 1).exp() * x.sin() - x)
    assert raddle.capture(lambda: kernel(x)).kernel_count == 1
    assert raddle.capture(lambda: (x + 1).exp() * x.sin() - x).kernel_count == 5


def test_several_results_masks_and_integers(device):
    kernel = raddle.fused(lambda x, y: (x + y, (x > y) & ~(x > 3), x & 6))
    total, mask, bits = kernel(raddle.tensor([1, 5, 3], device=device), raddle.tensor([[2], [0]], device=device))
    assert total.tolist() == [[3, 7, 5], [1, 5, 3]] and total.dtype == raddle.int64
    assert mask.tolist() == [[False, False, True], [True, False, True]] and mask.dtype == raddle.bool
    assert bits.tolist() == [[0, 4, 2]] * 2
    with pytest.raises(TypeError, match="bits and shifts are for integers"):
        kernel(raddle.ones(1), raddle.ones(1))
    with pytest.raises(ValueError, match="expected 2, found 1"):
        raddle.fused(lambda x, y: x + y)(raddle.ones(1))
    with pytest.raises(TypeError):
        kernel(1, 2)


@pytest.mark.parametrize(
    "function, error, text",
    [
        (lambda x: x if x > 0 else -x, TypeError, r"if, while, and, or, not of a traced number: .*x.where\(condition, y\)"),
        (lambda x: x.sum(), AttributeError, "no 'sum': pointwise ops alone can be traced"),
        (lambda x: x[0], TypeError, "__getitem__ of a traced number"),
        (lambda x: x + raddle.ones(1), TypeError, "tensor from outside of the function, expected it as a parameter"),
        (lambda x: raddle.ones(1) * x, TypeError, "tensor from outside of the function, expected it as a parameter"),
        (lambda x: x + "1", TypeError, "expected a traced number or a literal, found str"),
        (lambda x: x + (2**60 + 1), ValueError, "literals are float64"),
        (lambda x: x.clamp(1), TypeError, "clamp takes min, max, found int"),
        (lambda x: 3.0, TypeError, "expected a function that returns traced numbers, found float"),
        (lambda: 3.0, TypeError, "returns traced numbers, found float"),
        (lambda *x: x[0], TypeError, "expected parameters by position alone"),
    ],
)
def test_what_cannot_be_traced_is_told(function, error, text):
    with pytest.raises(error, match=text):
        raddle.fused(function)


def test_functions_of_the_package_are_pointed_at_methods():
    with pytest.raises(TypeError) as caught:
        raddle.fused(lambda x: raddle.exp(x))
    assert "x.exp(), not raddle.exp(x)" in caught.value.__notes__[0]


def test_threads_share_a_kernel(device):
    @raddle.fused
    def scaled(x, y):
        """Twice."""
        return x * 2 + y

    def body(index):
        for turn in range(20):
            assert scaled(raddle.full((8,), index, device=device), raddle.tensor(turn, device=device)).tolist() == [
                2 * index + turn
            ] * 8

    together(body)
    assert scaled.__doc__ == "Twice." and repr(scaled) == "<fused scaled>"
