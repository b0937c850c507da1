"""Gradients, and the modes of recording."""

import threading

import pytest
import raddle


def test_gradients_are_those_of_pytorch(torch):
    raddle.manual_seed(1)
    data = [raddle.randn(4, 3, dtype=raddle.float64), raddle.randn(3, 5, dtype=raddle.float64)]
    ours = [x.clone().requires_grad_() for x in data]
    theirs = [torch.tensor(x.numpy(), requires_grad=True) for x in data]

    def loss(lib, a, b):
        y = lib.softmax(lib.matmul(a, b).tanh() * 2 - lib.exp(a).sum(1, keepdim=True), -1)
        return (y[:, 1:].log() ** 2).mean() + a.T.reshape(-1)[::2].abs().sum()

    value, expected = loss(raddle, *ours), loss(torch, *theirs)
    value.backward()
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    for x, y in zip(ours, theirs):
        assert x.grad.flatten().tolist() == pytest.approx(y.grad.flatten().tolist(), rel=1e-10)


def test_leaves_gather_and_can_be_cleared():
    x = raddle.ones(2, requires_grad=True)
    assert x.is_leaf and x.requires_grad and x.grad is None
    for _ in range(2):
        (x * 3).backward(raddle.tensor([1.0, 2.0]))
    assert x.grad.tolist() == [6, 12]
    x.grad = None
    assert x.grad is None
    x.grad = raddle.ones(2)
    assert x.grad.tolist() == [1, 1]
    y = x * 2
    assert y.requires_grad and not y.is_leaf and not y.detach().requires_grad
    first, second = raddle.grad(y.sum(), [x, raddle.ones(1, requires_grad=True)], allow_unused=True)
    assert first.tolist() == [2, 2] and second is None
    with pytest.raises(RuntimeError, match="backward: the tensor has 2 elements"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="doesn't require grad"):
        raddle.ones(()).backward()
    with pytest.raises(RuntimeError, match="expected a float, found i64"):
        raddle.ones(2, dtype=raddle.int64, requires_grad=True)


def test_modes_are_of_a_thread_and_nest():
    x = raddle.ones(2, requires_grad=True)
    with raddle.no_grad():
        assert not (x * 2).requires_grad and not raddle.is_grad_enabled()
        with raddle.enable_grad():
            assert (x * 2).requires_grad
        x += 1
        found = []
        thread = threading.Thread(target=lambda: found.append((x * 2).requires_grad))
        thread.start()
        thread.join()
        assert found == [True] and not raddle.is_grad_enabled()
    assert raddle.is_grad_enabled()

    @raddle.no_grad()
    def f():
        return x * 2

    @raddle.inference_mode
    def g():
        return x * 2

    assert not f().requires_grad and not g().requires_grad and (x * 2).requires_grad
    with raddle.set_grad_enabled(False):
        assert not raddle.is_grad_enabled()
    assert raddle.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), raddle.no_grad():
        1 / 0
    assert raddle.is_grad_enabled()


def test_values_that_changed_are_an_error():
    x = raddle.ones(2, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="was changed in place since it was saved"):
        z.backward()


def test_gradients_can_be_clipped():
    x = raddle.ones(4, requires_grad=True)
    (x * 3).sum().backward()
    assert raddle.clip_grad_norm_([x], 3.0).item() == pytest.approx(6.0)
    assert x.grad.norm().item() == pytest.approx(3.0, rel=1e-5)
    raddle.clip_grad_value_([x], 1.0)
    assert x.grad.amax().item() == 1.0
