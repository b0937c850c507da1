"""Modules: PyTorch's state, results and gradients; a model that is trained while threads run it."""

import threading

import pytest
import raddle
from raddle import nn
from test_threads import THREADS, together


def build(nn):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8, bias=False)
            self.act, self.drop = nn.GELU(), nn.Dropout(0.5)

        def forward(self, x):
            return x + self.drop(self.down(self.act(self.up(self.norm(x)))))

    return nn.Sequential(nn.Embedding(11, 8, padding_idx=2), Block(), nn.ReLU(), nn.Linear(8, 5), nn.LeakyReLU(0.2))


def pair(torch, device):
    theirs = build(torch.nn).double().eval()
    ours = build(nn).to(device, raddle.float64).eval()
    state = {name: raddle.tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    assert tuple(ours.load_state_dict(state)) == ([], [])
    return ours, theirs


def test_results_and_gradients_are_those_of_pytorch(torch, device):
    ours, theirs = pair(torch, device)
    rows = [[1, 2, 3], [4, 5, 10]]
    target = [[0, 1, 2], [3, 4, 0]]
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)(
        ours(raddle.tensor(rows, device=device)).reshape(6, 5), raddle.tensor(target, device=device).flatten()
    )
    wanted = torch.nn.CrossEntropyLoss(label_smoothing=0.1)(
        theirs(torch.tensor(rows)).reshape(6, 5), torch.tensor(target).flatten()
    )
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-9)
    loss.backward()
    wanted.backward()
    grads = dict(theirs.named_parameters())
    assert list(dict(ours.named_parameters())) == list(grads)
    for name, parameter in ours.named_parameters():
        found, expected = parameter.grad.flatten().tolist(), grads[name].grad.flatten().tolist()
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-12), name
        assert any(expected), name
    ours.zero_grad()
    assert all(parameter.grad is None for parameter in ours.parameters())


@pytest.mark.parametrize("name", ["ReLU", "SiLU", "LeakyReLU", "ELU", "GELU", "Sigmoid", "Tanh", "Softplus"])
def test_activations_are_those_of_pytorch(torch, name):
    data = [-30.0, -1.5, -0.25, 0.0, 0.5, 3.0, 30.0]
    ours = getattr(nn, name)()(raddle.tensor(data, dtype=raddle.float64)).tolist()
    theirs = getattr(torch.nn, name)()(torch.tensor(data, dtype=torch.float64)).tolist()
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "BCEWithLogitsLoss", "NLLLoss", "CrossEntropyLoss"])
def test_losses_are_those_of_pytorch(torch, name, reduction):
    data = [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]
    goal = [2, 0] if name in ("NLLLoss", "CrossEntropyLoss") else [[0.0, 1.0, 0.5], [1.0, 0.0, 0.25]]
    found = []
    for of in (raddle, torch):
        weight = of.tensor([0.5, 1.0, 2.0], dtype=of.float64)
        options = {} if name in ("MSELoss", "L1Loss") else {"weight": weight}
        dtype = of.int64 if isinstance(goal[0], int) else of.float64
        loss = getattr(of.nn, name)(reduction=reduction, **options)
        assert list(loss.state_dict()) == list(options)
        found.append(loss(of.tensor(data, dtype=of.float64), of.tensor(goal, dtype=dtype)).flatten().tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_weights_begin_as_those_of_pytorch(torch):
    raddle.manual_seed(3)
    for of in (nn, torch.nn):
        linear = of.Linear(400, 300)
        for parameter in linear.parameters():
            assert parameter.abs().max().item() == pytest.approx(0.05, rel=0.02)
            assert parameter.std().item() == pytest.approx(0.05 / 3**0.5, rel=0.1)
        table = of.Embedding(100, 200, padding_idx=-1).weight
        assert table[:99].std().item() == pytest.approx(1.0, rel=0.05) and not table[99].any()
        norm = of.LayerNorm([2, 3])
        assert norm.weight.tolist() == [[1.0] * 3] * 2 and norm.bias.tolist() == [[0.0] * 3] * 2


def test_members_are_found_moved_and_switched(device):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(raddle.ones(2))
            self.register_buffer("seen", raddle.zeros(1, dtype=raddle.int64))
            self.register_buffer("scratch", raddle.zeros(1), persistent=False)
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Dropout(0.5)])
            self.again = self.layers[0]

        def forward(self, x):
            return self.layers[1](x * self.scale)

    own = Own()
    assert [name for name, _ in own.named_parameters()] == ["scale", "layers.0.weight", "layers.0.bias"]
    state = ["scale", "seen", "layers.0.weight", "layers.0.bias", "again.weight", "again.bias"]
    assert list(own.state_dict()) == state
    assert [name for name, _ in own.named_buffers()] == ["seen", "scratch"]
    own.to(device, dtype=raddle.float64)
    assert own.scale.device == device and own.scale.dtype == raddle.float64 and own.scale.requires_grad
    assert own.seen.dtype == raddle.int64 and own.seen.device == device
    assert own.again.weight is own.layers[0].weight
    x = raddle.ones(50, 2, dtype=raddle.float64, device=device)
    assert own(x).eq(0).any().item()
    assert own.eval()(x).equal(x) and not own.layers[1].training
    assert own.train().layers[1].training
    assert "(0): Linear(in_features=2, out_features=2, bias=True)" in repr(own)
    own.scale = None
    assert "scale" not in own.state_dict() and own.scale is None


def test_a_state_that_does_not_fit_changes_nothing():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    state = {name: raddle.full_like(tensor, 7) for name, tensor in model.state_dict().items()}
    wrong = {**state, "1.bias": raddle.ones(2), "more": raddle.ones(1)}
    del wrong["0.bias"]
    text = r"1.bias: expected shape \[1\], found \[2\]; 0.bias: missing; more: not expected"
    with pytest.raises(RuntimeError, match=text):
        model.load_state_dict(wrong)
    assert {name: tensor.tolist() for name, tensor in model.state_dict().items()} == before
    del wrong["1.bias"]
    keys = model.load_state_dict(wrong, strict=False)
    assert keys.missing_keys == ["0.bias", "1.bias"] and keys.unexpected_keys == ["more"]
    assert model[0].weight.tolist() == [[7.0, 7.0]] * 3 and model[0].bias.tolist() == before["0.bias"]


def test_mistakes_are_told():
    class Early(nn.Module):
        def __init__(self):
            self.weight = raddle.ones(1)

    with pytest.raises(AttributeError, match=r"expected super\(\).__init__\(\)"):
        Early()
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module()(1)
    with pytest.raises(TypeError, match="weight: expected a tensor or None, found int"):
        nn.Linear(1, 1).weight = 3
    with pytest.raises(KeyError, match="without a dot"):
        nn.Module().add_module("a.b", nn.Identity())
    with pytest.raises(ValueError, match="expected p from 0 to 1, found 2"):
        nn.Dropout(2)
    with pytest.raises(TypeError, match="expected a dtype of floats"):
        nn.Linear(1, 1).to(raddle.int64)
    with pytest.raises(AttributeError, match="'Linear' has no attribute 'wieght'"):
        nn.Linear(1, 1).wieght


def test_a_model_learns_while_threads_run_it(device):
    raddle.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    optimizer = raddle.optim.Adam(model.parameters(), lr=0.02)
    x = raddle.randn(64, 3, device=device)
    goal = x.sum(1, keepdim=True).sin()
    losses, done = [], threading.Event()

    def body(index):
        if index == 0:
            try:
                for _ in range(80):
                    optimizer.zero_grad()
                    loss = nn.MSELoss()(model(x), goal)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
            finally:
                done.set()
        else:
            turns = 0
            while not done.is_set() or not turns:
                with raddle.no_grad():
                    assert model(x).isfinite().all().item()
                turns += 1

    together(body)
    assert THREADS == 8 and losses[-1] < losses[0] / 5
    with raddle.no_grad():
        assert nn.MSELoss()(model(x), goal).item() <= losses[-1] * 1.5


def test_dropout_writes_where_it_is_told_to():
    x = raddle.ones(1000)
    assert raddle.nn.functional.dropout(x, 0.5, inplace=True) is x
    assert set(x.tolist()) == {0.0, 2.0}
    q, out = raddle.randn(2, 3, 4), raddle.zeros(2, 3, 4)
    attention = raddle.nn.functional.scaled_dot_product_attention
    assert attention(q, q, q, dropout_p=0.5, out=out) is out and out.any()
