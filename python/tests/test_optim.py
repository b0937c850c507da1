"""Optimizers take PyTorch's steps, on weights of any strides."""

import pytest
import raddle


@pytest.mark.parametrize(
    "name, options",
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("Adam", {"lr": 0.01, "betas": (0.8, 0.9)}),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
        ("AdamW", {"lr": 0.01}),
    ],
)
def test_steps_are_those_of_pytorch(torch, device, name, options):
    data = torch.arange(12, dtype=torch.float64).reshape(3, 4) / 7
    theirs = data.clone().requires_grad_()
    # The transpose of a row-major matrix: a layout that once kept Adam from learning elsewhere.
    ours = raddle.tensor(data.T.numpy(), device=device).T.detach().requires_grad_()
    assert not ours.is_contiguous()
    ours_optimizer = getattr(raddle.optim, name)([ours], **options)
    theirs_optimizer = getattr(torch.optim, name)([theirs], **options)
    for _ in range(5):
        for weight, optimizer in ((ours, ours_optimizer), (theirs, theirs_optimizer)):
            optimizer.zero_grad()
            (weight.sin() * weight).sum().backward()
            optimizer.step()
    assert ours.flatten().tolist() == pytest.approx(theirs.flatten().tolist(), rel=1e-9)


def test_the_learning_rate_can_be_changed():
    weight = raddle.ones(2, requires_grad=True)
    optimizer = raddle.optim.SGD([weight], lr=0.5)
    optimizer.lr = 0.25
    weight.sum().backward()
    optimizer.step()
    assert optimizer.lr == 0.25 and weight.tolist() == [0.75, 0.75]
    with pytest.raises(ValueError, match="lr"):
        raddle.optim.SGD([weight], lr=-1.0)
