"""`x[key]` and `x[key] = value` against NumPy, for keys of all kinds."""

import itertools
import random

import numpy as np
import pytest
import raddle

DATA = np.arange(120).reshape(2, 3, 4, 5)
KEYS = [
    0, -1, slice(None), slice(1, None), slice(None, None, 2), slice(-2, None), slice(3, 1), None, ..., (),
    (0, 1), (0, ..., 1), (..., None), (None, 0), (slice(None), 1), (0, slice(1, 3), ..., slice(None, None, 2)),
    (0, 1, 2, 3), (..., -1), (None, ..., None, 2),
    [0, 1, 1], [[0, 1], [1, 0]], ([0, 1], [1, 2]), (slice(None), [0, 2, 1]), (slice(None), [0, 2], [1, 3]),
    ([0, 1], slice(None), [1, 3]), ([0, 1], slice(None), [[1], [3]]), (..., [0, -1]), (slice(None), [0, 2], ..., [1, 3]),
    (slice(1), [0, 2]), (slice(None), [-1, -3]), ([], ), (slice(None), []),
    DATA[..., 0, 0] > 40, DATA > 60, (DATA[:, 0, 0, 0] > 0), (slice(None), np.array([True, False, True])),
    ([1, 0], np.array([True, False, True])), (np.array([True, False]), slice(None), [1, 2]), True, (0, False),
    (..., np.array([True, False, False, True, True])), (slice(None), None, [0, 1]),
]  # fmt: skip


def ours(key, device):
    def one(item):
        if isinstance(item, np.ndarray):
            return raddle.tensor(item, device=device)
        return item

    return tuple(map(one, key)) if isinstance(key, tuple) else one(key)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: repr(key)[:40].replace("\n", ""))
def test_reading_and_writing_are_numpys(key, device):
    x = raddle.tensor(DATA, device=device)
    expected = DATA[key]
    found = x[ours(key, device)]
    assert found.shape == expected.shape and found.tolist() == expected.tolist()
    for value in (-1, np.full(expected.shape, -2), np.arange(expected.size).reshape(expected.shape)):
        for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
            target, back = DATA.transpose(order).copy().transpose(np.argsort(order)), raddle.tensor(DATA, device=device)
            back = back.permute(order).contiguous().permute(np.argsort(order).tolist())
            target[key] = value
            back[ours(key, device)] = value if isinstance(value, int) else raddle.tensor(value, device=device)
            assert back.tolist() == target.tolist()


def test_random_keys(device):
    generator = random.Random(5)
    x = raddle.tensor(DATA, device=device)
    for _ in range(150 if device.type == "cpu" else 30):
        count = generator.randint(1, 4)
        shape = [generator.randint(1, 3) for _ in range(generator.randint(0, 2))]
        key = []
        for size in DATA.shape[:count]:
            kind = generator.randrange(4)
            if kind == 0:
                key.append(slice(generator.randint(-size, size), generator.randint(-size, size), generator.randint(1, 2)))
            elif kind == 1:
                key.append(np.random.default_rng(generator.randrange(99)).integers(-size, size, shape))
            elif kind == 2:
                key.append(slice(None))
            else:
                key.append(slice(None))
                if not any(isinstance(item, np.ndarray) for item in key):
                    key.insert(0, None)
        key = tuple(key)
        assert x[ours(key, device)].tolist() == DATA[key].tolist(), key


def test_keys_that_do_not_fit_are_errors():
    x = raddle.zeros(2, 3)
    for key, error, text in [
        (2, IndexError, "index 2 is out of bounds, axis 0 has size 2"),
        ((0, 0, 0), IndexError, "index: expected at most 2 indices, found 3"),
        ((..., ...), IndexError, "at most one"),
        (slice(None, None, -1), ValueError, "step of at least 1, found -1"),
        (1.5, TypeError, "index: expected integers, slices"),
        ("a", TypeError, "found str"),
        (raddle.tensor([0.5]), TypeError, "index has the wrong dtype, expected i64, i32 or bool, found f32"),
        (raddle.tensor([True, False, True]), ValueError, "a mask has the wrong shape"),
        (raddle.tensor([2]), IndexError, "index 2 .* is out of bounds, the axis has size 2"),
        (raddle.tensor([-3]), IndexError, "index -3 .* is out of bounds, the axis has size 2"),
        ((raddle.tensor([1]), raddle.tensor([3])), IndexError, "out of bounds"),
    ]:
        with pytest.raises(error, match=text):
            x[key]
        with pytest.raises(error):
            x[key] = 1
    assert x.sum().item() == 0
    with pytest.raises(ValueError):
        x[0] = raddle.zeros(4)
    with pytest.raises(ValueError):
        x[[0, 1]] = raddle.zeros(4)
    with pytest.raises(TypeError):
        raddle.zeros(())[0:1] if raddle.zeros(()).ndim else len(raddle.zeros(()))


def test_gradients_pass_through_keys(torch):
    data = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
    mask = data % 5 == 0
    for key, repeats in [(0, False), ((..., [0, 0, 2]), True), (([0, 1], slice(None), [1, 1]), False), (mask, False)]:
        x, y = raddle.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
        (x[ours(key, "cpu")] ** 2).sum().backward()
        (y[key if not isinstance(key, np.ndarray) else torch.tensor(key)] ** 2).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()
        x, y = raddle.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
        v, w = raddle.tensor(2.0, dtype=raddle.float64, requires_grad=True), torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        a, b = x * 1, y * 1
        if repeats:
            continue  # of values for one element PyTorch gives all the gradient, Raddle the one that stands
        a[ours(key, "cpu")] = v
        b[key if not isinstance(key, np.ndarray) else torch.tensor(key)] = w
        (a**2).sum().backward()
        (b**2).sum().backward()
        assert x.grad.tolist() == y.grad.tolist()


def test_index_put_accumulates():
    x = raddle.zeros(3)
    x.index_put_((raddle.tensor([0, 0, 2]),), raddle.tensor([1.0, 2.0, 3.0]), accumulate=True)
    assert x.tolist() == [3, 0, 3]
    made = x.index_put((raddle.tensor([1]),), raddle.tensor(9.0))
    assert made.tolist() == [3, 9, 3] and x.tolist() == [3, 0, 3]


def test_a_slice_of_a_slice_is_a_view():
    x = raddle.zeros(4, 4)
    x[1:][:, ::2][0] = 1
    assert x.sum().item() == 2
    for part, whole in itertools.pairwise([x[1:], x]):
        part += 1
        assert whole.sum().item() == 14
