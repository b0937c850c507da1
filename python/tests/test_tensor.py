"""Creation, what a tensor says of itself, operators, forms, and the way to NumPy and back."""

import array
import copy
import inspect
import itertools
import math
import operator
import pickle

import numpy as np
import pytest
import raddle

FLOATS = [raddle.float16, raddle.bfloat16, raddle.float32, raddle.float64]
DTYPES = [raddle.bool, raddle.uint8, raddle.int32, raddle.int64, *FLOATS]


def name(dtype):
    return repr(dtype).removeprefix("raddle.")


def test_numbers_lists_and_arrays_become_tensors(device):
    for data, dtype, shape in [
        (1, raddle.int64, ()),
        (1.5, raddle.float32, ()),
        (True, raddle.bool, ()),
        ([1, 2.5], raddle.float32, (2,)),
        ([True, 2], raddle.int64, (2,)),
        ([[1], [2]], raddle.int64, (2, 1)),
        ([], raddle.float32, (0,)),
        ([[], []], raddle.float32, (2, 0)),
        (np.float64(2), raddle.float32, ()),
        (np.int32(2), raddle.int64, ()),
        (array.array("d", [1, 2]), raddle.float64, (2,)),
        (np.arange(6, dtype=np.int32).reshape(2, 3).T, raddle.int32, (3, 2)),
        ([np.ones(2, np.float32), np.zeros(2, np.float32)], raddle.float32, (2, 2)),
    ]:
        made = raddle.tensor(data, device=device)
        assert made.dtype is dtype and made.shape == shape and made.device == device, data
        if not isinstance(data, array.array):
            assert made.tolist() == np.asarray(data).tolist()


def test_dtypes_cross_to_numpy_and_back():
    for dtype in DTYPES:
        x = raddle.tensor([[0, 1, 2], [3, 4, 5]], dtype=dtype).T
        if dtype is raddle.bfloat16:
            with pytest.raises(TypeError, match="numpy: expected a dtype that NumPy has, found bfloat16"):
                x.numpy()
            continue
        there = x.numpy()
        assert there.dtype == name(dtype) and there.tolist() == x.tolist() and there.flags.writeable
        back = raddle.from_numpy(there)
        assert back.dtype is dtype and back.equal(x)
        assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(TypeError, match="found the format 'H'"):
        raddle.tensor(np.ones(2, np.uint16))
    with pytest.raises(RuntimeError, match="requires grad"):
        raddle.ones(2, requires_grad=True).numpy()


def test_constants_ranges_and_random_numbers(device):
    assert raddle.zeros(2, 3, device=device).tolist() == [[0.0] * 3] * 2
    assert raddle.ones((2,), dtype=raddle.int64, device=device).tolist() == [1, 1]
    assert raddle.full((2,), 7, device=device).tolist() == [7, 7]
    assert raddle.arange(5, device=device).tolist() == [0, 1, 2, 3, 4]
    assert raddle.arange(1, 2, 0.25, device=device).tolist() == [1, 1.25, 1.5, 1.75]
    assert raddle.linspace(0, 1, 5, device=device).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert raddle.eye(2, device=device).tolist() == [[1, 0], [0, 1]]
    assert raddle.empty_like(raddle.ones(2, 3)).shape == (2, 3)
    assert raddle.zeros_like(raddle.ones(2), dtype=raddle.int64).dtype is raddle.int64
    raddle.manual_seed(3)
    first = raddle.randn(100, device=device)
    raddle.manual_seed(3)
    assert first.equal(raddle.randn(100, device=device))
    uniform = raddle.rand(1000, device=device)
    assert uniform.amin().item() >= 0 and uniform.amax().item() < 1
    assert sorted(raddle.randperm(50, device=device).tolist()) == list(range(50))
    assert set(raddle.randint(2, 5, (200,), device=device).tolist()) == {2, 3, 4}


def test_what_a_tensor_says_of_itself():
    x = raddle.zeros(2, 3, 4).transpose(0, 2)
    assert (x.shape, x.stride(), x.ndim, x.numel(), x.nbytes, len(x)) == ((4, 3, 2), (1, 4, 12), 3, 24, 96, 4)
    assert x.size(0) == 4 and x.size(-1) == 2 and x.stride(1) == 4 and not x.is_contiguous()
    assert repr(raddle.tensor([1.0, 2.0])) == "tensor([1., 2.], shape [2], f32, cpu)"
    assert f"{raddle.tensor(0.125):.2f}" == "0.12"
    assert [row.tolist() for row in raddle.eye(2)] == [[1, 0], [0, 1]]
    assert 3 in raddle.arange(4) and 5 not in raddle.arange(4)
    assert bool(raddle.tensor(2)) and int(raddle.tensor(2.5)) == 2 and float(raddle.tensor(3)) == 3.0
    assert [10, 20, 30][raddle.tensor(1)] == 20
    assert len({x, x, raddle.zeros(1)}) == 2
    assert (x == None) is False and x.dtype is raddle.float32  # noqa: E711


def test_operators_are_those_of_python(device):
    a, b = np.array([7.0, -3.0, 2.5], np.float32), np.array([2.0, 2.0, -1.5], np.float32)
    i, j = np.array([7, -3, 12]), np.array([2, 3, 1])
    of = lambda array: raddle.tensor(array, device=device)  # noqa: E731
    close = lambda found, expected: np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)  # noqa: E731
    for op in "add sub mul truediv floordiv mod".split():
        op = getattr(operator, op)
        close(op(of(a), of(b)), op(a, b))
        close(op(of(a), 2), op(a, np.float32(2)))
        close(op(2, of(b)), op(np.float32(2), b))
        x = of(a)
        if op is not operator.truediv:
            same = x
            x = getattr(operator, "i" + op.__name__)(x, of(b))
            assert x is same
            close(x, op(a, b))
    for op in "and_ or_ xor lshift rshift".split():
        op = getattr(operator, op)
        assert op(of(i), of(j)).tolist() == op(i, j).tolist()
        assert op(5, of(j)).tolist() == op(5, j).tolist()
    for op in "lt le eq ne gt ge".split():
        op = getattr(operator, op)
        assert op(of(a), of(b)).tolist() == op(a, b).tolist()
        assert op(of(i), 7).tolist() == op(i, 7).tolist()
    close(of(np.abs(a)) ** 2, a**2)
    close(2 ** of(b), 2**b)
    assert (-of(i)).tolist() == (-i).tolist() and abs(of(i)).tolist() == abs(i).tolist()
    assert (~of(i)).tolist() == (~i).tolist() and (+of(i)).tolist() == i.tolist()
    close(of(np.eye(3, dtype=np.float32)) @ of(a), a)
    with pytest.raises(TypeError):
        of(a) + "text"
    with pytest.raises(TypeError):
        [] - of(a)


def test_promotion_is_that_of_pytorch(torch):
    numbers = [True, 2, 2.5]
    for x, y in itertools.product(DTYPES, DTYPES):
        ours = raddle.promote_types(x, y)
        assert name(ours) == str(torch.promote_types(getattr(torch, name(x)), getattr(torch, name(y))))[6:]
        assert (raddle.ones(2, dtype=x) + raddle.ones(2, dtype=y)).dtype is ours
    for dtype, number, shape in itertools.product(DTYPES, numbers, [(), (2,)]):
        theirs = torch.ones(shape, dtype=getattr(torch, name(dtype)))
        ours = raddle.ones(shape, dtype=dtype)
        assert name((ours * number).dtype) == str((theirs * number).dtype)[6:]
        assert name((number * ours).dtype) == str((number * theirs).dtype)[6:]
        assert name(raddle.result_type(ours, number)) == str(torch.result_type(theirs, number))[6:]
        for other in DTYPES:
            mixed = ours * raddle.ones(3, 1, dtype=other)
            assert name(mixed.dtype) == str((theirs * torch.ones(3, 1, dtype=getattr(torch, name(other)))).dtype)[6:]


def test_each_op_is_a_method_and_a_function_with_its_forms():
    x, y = raddle.tensor([0.5, 0.25]), raddle.tensor([0.125, 2.0])
    for name, args in [("add", (y,)), ("exp", ()), ("addcmul", (y, y)), ("lerp", (y, 0.5)), ("leaky_relu", ())]:
        method, function = getattr(x, name), getattr(raddle, name)
        made = method(*args)
        assert function(x, *args).equal(made)
        out = raddle.empty(2)
        assert function(x, *args, out=out) is out and out.equal(made)
        z = x.clone()
        assert getattr(z, name + "_")(*args) is z and z.equal(made)
    assert raddle.add(x, y, alpha=2).equal(x + 2 * y) and raddle.sub(x, y, alpha=2).equal(x - 2 * y)
    assert raddle.pow(2, raddle.tensor([1, 3])).tolist() == [2, 8]
    assert raddle.remainder(7, raddle.tensor([4, -4])).tolist() == [3, -1]
    assert raddle.multiply(x, y).equal(x * y) and x.true_divide(y).equal(x / y)
    assert "eˣ" in raddle.exp.__doc__


def test_every_op_of_the_catalogue_is_here():
    # Under another name, or another form: what PyTorch has is what counts.
    elsewhere = {"rem": "remainder", "fill": "fill_", "copy": "clone", "gelu_tanh": "gelu", "contiguous": "contiguous"}
    absent = {"layer_norm_add", "slice", "index"}  # no op of PyTorch; `x[a:b]`, `x[i]`
    for op in raddle._raddle.catalogue():
        if op["name"] in absent:
            continue
        found = elsewhere.get(op["name"], op["name"])
        assert hasattr(raddle.Tensor, found) or hasattr(raddle, found) or hasattr(raddle.Tensor, found + "_"), found
        if op["in_place"] and found + "_" not in ("clone_", "gelu_", "where_"):
            assert hasattr(raddle.Tensor, found.rstrip("_") + "_"), found
        function = getattr(raddle, found, None)
        if op["out"] and found not in ("clone", "masked_fill"):
            assert "out" in inspect.signature(function).parameters, found


def test_rounding_and_quotients():
    x = raddle.tensor([1.2345, -15.5])
    assert x.round(decimals=2).tolist() == pytest.approx([1.23, -15.5]) and x.round(decimals=-1).tolist() == [0, -20]
    i = raddle.tensor([7, -7])
    assert i.div(2, rounding_mode="floor").tolist() == [3, -4] and i.div(2, rounding_mode="trunc").tolist() == [3, -3]
    assert i.div(2, rounding_mode="trunc").dtype is raddle.int64
    y = raddle.tensor([3.5], requires_grad=True)
    y.div(2, rounding_mode="trunc").sum().backward()
    assert y.grad.tolist() == [0]


def test_reductions_take_dims(device):
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = raddle.tensor(data, device=device)
    for op in "sum mean prod".split():
        for dim in (None, 0, -1, (0, 2), [1]):
            axis = tuple(dim) if isinstance(dim, list) else dim
            for keepdim in (False, True):
                found = getattr(x, op)(dim, keepdim)
                np.testing.assert_allclose(found.numpy(), getattr(data, op)(axis, keepdims=keepdim), rtol=1e-6)
    values, indices = x.max(1)
    assert values.tolist() == data.max(1).tolist() and indices.tolist() == data.argmax(1).tolist()
    assert x.max().item() == 23 and x.min(raddle.zeros(1, device=device)).amax().item() == 0
    assert x.max(dim=0).values.shape == (3, 4)
    np.testing.assert_allclose(x.var(0).numpy(), data.var(0, ddof=1))
    np.testing.assert_allclose(x.std((0, 1), correction=0).numpy(), data.std((0, 1)), rtol=1e-6)
    assert x.norm(p=math.inf).item() == 23 and x.norm(1, dim=0).shape == (3, 4)
    assert x.sum(dtype=raddle.float64).dtype is raddle.float64
    values, indices = x.flatten().topk(2)
    assert values.tolist() == [23, 22] and indices.tolist() == [23, 22]
    assert x.flatten().sort(descending=True)[0][:2].tolist() == [23, 22]
    assert [part.tolist() for part in raddle.eye(2).nonzero(as_tuple=True)] == [[0, 1], [0, 1]]
    assert x.cumsum(0).equal(raddle.tensor(data.cumsum(0), device=device))


def test_views_share_memory_and_copies_do_not():
    x = raddle.zeros(2, 6)
    for view in (x.view(3, 4), x.T, x[0], x.reshape(12), x.squeeze(), x.unflatten(1, (2, -1)), x.movedim(0, 1), x.detach()):
        view.fill_(1)
        assert x.sum().item() >= 6
        x.zero_()
    for other in (x.clone(), x.T.contiguous(), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.to(raddle.float64)):
        other.fill_(1)
        assert x.sum().item() == 0
    assert x.to(raddle.float32) is x and x.contiguous() is x and x.to("cpu") is x
    assert [tuple(part.shape) for part in x.split([1, 5], 1)] == [(2, 1), (2, 5)]
    assert raddle.cat([x, x], 1).shape == (2, 12) and raddle.stack((x, x)).shape == (2, 2, 6)
    a, b = raddle.broadcast_tensors(raddle.zeros(2, 1), raddle.zeros(3))
    assert a.shape == b.shape == (2, 3)
    assert raddle.zeros(1, 2, 1).squeeze().shape == (2,) and raddle.zeros(1, 2, 1).squeeze(0).shape == (2, 1)
    assert x.narrow(1, -2, 2).shape == (2, 2) and x.expand(3, -1, -1).stride() == (0, 6, 1)


def test_devices_are_named_once():
    assert raddle.device("cpu") == raddle.device("cpu") and str(raddle.device("sim", 7)) == "sim:7"
    assert raddle.device("sim:7").type == "sim" and raddle.device("sim:7").index == 7
    assert hash(raddle.device("sim:7")) == hash(raddle.ones(1, device="sim:7").device)
    x = raddle.ones(3, device="sim:7") * 2
    assert x.cpu().device == raddle.device("cpu") and x.to("cpu").tolist() == [2, 2, 2]
    raddle.device("sim:7").synchronize()
    with pytest.raises(ValueError, match='device: unknown name "gpu", expected one of: cpu, cuda:ORDINAL, sim:SEED'):
        raddle.device("gpu")


def test_checkpoints_are_whole(tmp_path):
    state = {"a": raddle.randn(2, 3), "b": raddle.arange(4), "c": raddle.ones(2, dtype=raddle.bfloat16)}
    file = tmp_path / "x.safetensors"
    raddle.save(state, file)
    back = raddle.load(file)
    assert back.keys() == state.keys() and all(back[name].equal(state[name]) for name in state)
    with pytest.raises(OSError, match="missing.safetensors"):
        raddle.load(tmp_path / "missing.safetensors")


def test_copies_and_pickles_are_whole(device):
    for dtype in DTYPES:
        x = raddle.tensor([[1, 0], [3, 4]], dtype=dtype, device=device).T
        for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x)):
            assert made.equal(x) and made.dtype is dtype and made.device == device
    weight = raddle.ones(2, requires_grad=True)
    assert copy.deepcopy(weight).requires_grad and pickle.loads(pickle.dumps(weight)).requires_grad
    assert copy.copy(x).is_set_to(x) and not copy.deepcopy(x).is_set_to(x)
    assert pickle.loads(pickle.dumps(raddle.float16)) is raddle.float16
    assert pickle.loads(pickle.dumps(device)) == device
    with pytest.raises(RuntimeError, match="deepcopy: expected a leaf"):
        copy.deepcopy(weight * 2)
