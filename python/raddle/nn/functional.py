"""Functions of ``torch.nn.functional``."""

import math

from .._functions import _axis, _into, triu_indices
from .._raddle import (  # noqa: F401
    Tensor,
    _einsum,
    arange,
    bfloat16,
    binary_cross_entropy_with_logits,
    broadcast_tensors,
    cross_entropy,
    dropout as _dropout,
    embedding,
    float16,
    float32,
    float64,
    int64,
    l1_loss,
    layer_norm,
    linear,
    mse_loss,
    nll_loss,
    ones_like,
    scaled_dot_product_attention,
    zeros,
)

gelu = Tensor.gelu
log_softmax = Tensor.log_softmax
sigmoid = Tensor.sigmoid
softmax = Tensor.softmax
softplus = Tensor.softplus
tanh = Tensor.tanh


def _activation(name, parameter=None, default=None):
    made, changed = getattr(Tensor, name), getattr(Tensor, name + "_")

    def plain(input, inplace=False):
        return changed(input) if inplace else made(input)

    def parametric(input, value=default, inplace=False, **given):
        value = given.pop(parameter, value)
        if given:
            raise TypeError(f"{name}: expected {parameter} and inplace, found {', '.join(given)}")
        return changed(input, value) if inplace else made(input, value)

    function = parametric if parameter else plain
    function.__name__ = function.__qualname__ = name
    function.__doc__ = made.__doc__
    return function


relu = _activation("relu")
silu = _activation("silu")
leaky_relu = _activation("leaky_relu", "negative_slope", 0.01)
elu = _activation("elu", "alpha", 1.0)


def dropout(input, p=0.5, training=True, inplace=False):
    """Each element is dropped with probability ``p`` in training, and the others are divided by ``1 - p``."""
    if not inplace or not training:
        return _dropout(input, p, training)
    # One op on the input, so that nothing that others write to it meanwhile is lost.
    return input.mul_(_dropout(ones_like(input), p, True))


# ---------------------------------------------------------------- activations

softsign, tanhshrink, logsigmoid = Tensor.softsign, Tensor.tanhshrink, Tensor.logsigmoid
hardshrink = Tensor.hardshrink
selu, mish, hardsigmoid, hardswish = (_activation(name) for name in ("selu", "mish", "hardsigmoid", "hardswish"))
celu = _activation("celu", "alpha", 1.0)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """``input`` between two numbers. The derivative at a bound is 0."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: expected min_val of at most max_val, found {min_val} and {max_val}")
    if not input.is_floating_point():
        min_val, max_val = int(min_val), int(max_val)
    return (input.hardtanh_ if inplace else input.hardtanh)(min_val, max_val)


def softshrink(input, lambd=0.5, *, out=None):
    """``input`` nearer to 0 by ``lambd``, and 0 within."""
    if lambd < 0:
        raise RuntimeError(f"softshrink: expected lambd of at least 0, found {lambd}")
    return input.softshrink(lambd, out=out)


def relu6(input, inplace=False):
    """``min(max(x, 0), 6)``."""
    return hardtanh(input, 0, 6, inplace)


def threshold(input, threshold, value, inplace=False):
    """``x > threshold ? x : value``."""
    return (input.threshold_ if inplace else input.threshold)(threshold, value)


def prelu(input, weight):
    """``x > 0 ? x : weight · x``, with one weight or one for each channel (axis 1)."""
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: expected a weight of at most 1 axis, found {weight.dim()}")
    if weight.dtype != input.dtype:
        raise TypeError(f"prelu: expected a weight of {input.dtype}, found {weight.dtype}")
    if weight.numel() != 1:
        channels = input.shape[1] if input.dim() > 1 else input.numel() if input.dim() else 1
        if input.dim() == 0 or weight.numel() != channels:
            raise RuntimeError(f"prelu: expected {channels} weights, found {weight.numel()}")
        weight = weight.reshape([-1 if i == min(1, input.dim() - 1) else 1 for i in range(input.dim())])
    elif input.dim() == 0:
        weight = weight.reshape(())
    return input.prelu(weight)


def glu(input, dim=-1, *, out=None):
    """``a · σ(b)`` of the halves of an axis."""
    if input.dim() == 0:
        raise RuntimeError("glu: expected at least 1 axis, found 0")
    size = input.shape[_axis("glu", dim, input.dim())]
    if size % 2:
        raise RuntimeError(f"glu: expected an even size, found {size}")
    return _into(out, input.narrow(dim, 0, size // 2) * input.narrow(dim, size // 2, size // 2).sigmoid())


def softmin(input, dim, *, dtype=None):
    """``softmax`` of the negative."""
    return (-input).softmax(dim, dtype=dtype)


# ---------------------------------------------------------------- vectors, channels, borders


def normalize(input, p=2.0, dim=1, eps=1e-12, *, out=None):
    """Divided by the p-norm along an axis, or by ``eps`` if that is larger."""
    return _into(out, input / input.norm(p, dim, True).clamp_min(eps))


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along an axis; norms count as at least ``eps``."""
    if not (x1.is_floating_point() and x2.is_floating_point()):
        raise TypeError("cosine_similarity: expected floats")
    x1, x2 = broadcast_tensors(x1, x2)
    unit = lambda x: x / x.norm(2.0, dim, True).clamp(min=eps)  # noqa: E731
    return (unit(x1) * unit(x2)).sum(dim)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of ``x1 - x2 + eps`` along the last axis."""
    return (x1 - x2 + eps).norm(p, -1, keepdim)


def pdist(input, p=2.0):
    """Distances between the rows of a matrix, each pair once."""
    if input.dim() != 2 or p < 0:
        raise RuntimeError(f"pdist: expected a matrix and p of at least 0, found {input.dim()} axes and {p}")
    first, second = triu_indices(input.shape[0], input.shape[0], 1, device=input.device).unbind()
    return (input.index_select(0, first) - input.index_select(0, second)).norm(p, -1) if input.shape[1] else input.new_zeros(first.shape)


def one_hot(tensor, num_classes=-1):
    """1 at each class along a new last axis, 0 elsewhere."""
    return tensor._one_hot(num_classes)


def pixel_shuffle(input, upscale_factor):
    """``[.., c·r², h, w]`` as ``[.., c, h·r, w·r]``."""
    return input._pixel_shuffle(upscale_factor)


def pixel_unshuffle(input, downscale_factor):
    """``[.., c, h·r, w·r]`` as ``[.., c·r², h, w]``."""
    return input._pixel_unshuffle(downscale_factor)


def channel_shuffle(input, groups):
    """The channels of groups, mixed."""
    return input._channel_shuffle(groups)


def pad(input, pad, mode="constant", value=None):
    """The last axes with more elements at both ends, or fewer; of the last axis first."""
    if mode != "constant":
        if value is not None and value != 0:
            raise RuntimeError(f"pad: expected no value beside mode {mode!r}, found {value}")
        axes = len(pad) // 2
        if not axes + 1 <= input.dim() <= axes + 2:
            raise NotImplementedError(f"pad: expected {axes + 1} or {axes + 2} axes beside {len(pad)} widths, found {input.dim()}")
        if 0 in input.shape[1:]:
            raise RuntimeError(f"pad: expected no size of 0 but the first, found {list(input.shape)}")
    return input._pad(list(pad), mode, value or 0)


def bilinear(input1, input2, weight, bias=None):
    """``input1ᵀ weight[k] input2 + bias[k]`` for each ``k``."""
    made = _einsum("...i,kij,...j->...k", [input1, weight, input2])
    return made if bias is None else made + bias


# ---------------------------------------------------------------- normalization


def _per_channel(x, weight):
    return weight.reshape([-1 if i == 1 else 1 for i in range(x.dim())])


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """``(x - mean) / √(variance + eps) · weight + bias`` for each channel, of the batch in training, else of the running statistics."""
    if input.dim() < 2:
        raise ValueError(f"batch_norm: expected at least 2 axes, found {input.dim()}")
    for given in (running_mean, running_var, weight, bias):
        if given is not None and list(given.shape) != [input.shape[1]]:
            raise RuntimeError(f"batch_norm: expected {input.shape[1]} elements, found {list(given.shape)}")
    axes = [i for i in range(input.dim()) if i != 1]
    if training:
        count = input.numel() // max(input.shape[1], 1)
        if count <= 1:
            raise ValueError(f"batch_norm: expected more than 1 value per channel in training, found shape {list(input.shape)}")
        wide = input.to(_wide(input.dtype))
        var, mean = wide.var(axes, unbiased=False), wide.mean(axes)
        if running_mean is not None:
            # One op on each, so that nothing that others write meanwhile is lost.
            running_mean.detach().lerp_(mean.detach().to(running_mean.dtype), momentum)
            running_var.detach().lerp_((var.detach() * (count / (count - 1))).to(running_var.dtype), momentum)
    else:
        if running_mean is None or running_var is None:
            raise RuntimeError("batch_norm: expected running statistics in evaluation")
        wide, mean, var = input.to(_wide(input.dtype)), running_mean.to(_wide(input.dtype)), running_var.to(_wide(input.dtype))
    made = (wide - _per_channel(input, mean)) * _per_channel(input, (var + eps).rsqrt())
    made = made if weight is None else made * _per_channel(input, weight)
    return (made if bias is None else made + _per_channel(input, bias)).to(input.dtype)


def _wide(dtype):
    return float32 if dtype in (float16, bfloat16) else dtype


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    """``batch_norm`` of each element of the batch alone."""
    if input.dim() < 2:
        raise ValueError(f"instance_norm: expected at least 2 axes, found {input.dim()}")
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if math.prod(input.shape[2:]) <= 1:
        raise ValueError(f"instance_norm: expected more than 1 spatial element in training, found shape {list(input.shape)}")
    axes = list(range(2, input.dim()))
    wide = input.to(_wide(input.dtype))
    var, mean = wide.var(axes, unbiased=False, keepdim=True), wide.mean(axes, True)
    if running_mean is not None:
        count = math.prod(input.shape[2:])
        channels = lambda x: x.detach().mean(0).reshape(-1)  # noqa: E731
        running_mean.detach().lerp_(channels(mean).to(running_mean.dtype), momentum)
        running_var.detach().lerp_((channels(var) * (count / (count - 1))).to(running_var.dtype), momentum)
    made = (wide - mean) * (var + eps).rsqrt()
    made = made if weight is None else made * _per_channel(input, weight)
    return (made if bias is None else made + _per_channel(input, bias)).to(input.dtype)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Normalized over groups of channels (axis 1) and all axes behind, each element of the batch alone."""
    if input.dim() < 2:
        raise RuntimeError(f"group_norm: expected at least 2 axes, found {input.dim()}")
    if num_groups < 1 or input.shape[1] == 0 or input.shape[1] % num_groups:
        raise RuntimeError(f"group_norm: expected groups that divide {input.shape[1]} channels, found {num_groups}")
    if 0 in input.shape[2:]:
        raise RuntimeError(f"group_norm: expected no size of 0 behind the channels, found {list(input.shape)}")
    for given in (weight, bias):
        if given is not None and list(given.shape) != [input.shape[1]]:
            raise RuntimeError(f"group_norm: expected {input.shape[1]} elements, found {list(given.shape)}")
    if input.numel() == 0:
        return input * 1
    groups = input.to(_wide(input.dtype)).reshape(input.shape[0], num_groups, -1)
    made = layer_norm(groups, groups.shape[-1:], None, None, eps).reshape(input.shape)
    made = made if weight is None else made * _per_channel(input, weight)
    return (made if bias is None else made + _per_channel(input, bias)).to(input.dtype)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """``x / √(mean of x² + eps) · weight`` over the last axes; ``eps`` is what the dtype tells from 1 if it isn't given."""
    axes = len(normalized_shape)
    if axes == 0 or list(input.shape[input.dim() - axes :]) != list(normalized_shape):
        raise RuntimeError(f"rms_norm: expected a shape that ends in {list(normalized_shape)}, found {list(input.shape)}")
    if weight is not None and list(weight.shape) != list(normalized_shape):
        raise RuntimeError(f"rms_norm: expected a weight of shape {list(normalized_shape)}, found {list(weight.shape)}")
    wide = input.to(_wide(input.dtype))
    eps = eps if eps is not None else 2.0**-52 if wide.dtype == float64 else 2.0**-23
    made = wide * (wide.square().mean(list(range(-axes, 0)), True) + eps).rsqrt()
    return (made if weight is None else made * weight).to(input.dtype)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """``x / (k + alpha · mean of x² over size channels beside it)^beta``."""
    if input.dim() < 3:
        raise ValueError(f"local_response_norm: expected at least 3 axes, found {input.dim()}")
    if input.numel() == 0:
        return input
    widths = [0, 0] * (input.dim() - 2) + [size // 2, (size - 1) // 2]
    near = input.square()._pad(widths, "constant", 0).unfold(1, size, 1).mean(-1)
    return input / (near * alpha + k) ** beta


# ---------------------------------------------------------------- losses


def _reduced(losses, reduction):
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', found {reduction!r}")
    return losses.mean() if reduction == "mean" else losses.sum()


def smooth_l1_loss(input, target, reduction="mean", beta=1.0):
    """``d² / (2 beta)`` where ``d = |input - target|`` is below ``beta``, else ``d - beta / 2``."""
    if beta < 0:
        raise RuntimeError(f"smooth_l1_loss: expected beta of at least 0, found {beta}")
    if beta == 0:
        return _reduced((input - target).abs(), reduction)
    d = (input - target).abs()
    return _reduced((d * d * (0.5 / beta)).where(d < beta, d - 0.5 * beta), reduction)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """``d² / 2`` where ``d = |input - target|`` is at most ``delta``, else ``delta · (d - delta / 2)``."""
    if delta <= 0:
        raise RuntimeError(f"huber_loss: expected delta above 0, found {delta}")
    d = (input - target).abs()
    losses = (d * d * 0.5).where(d <= delta, (d - 0.5 * delta) * delta)
    return _reduced(losses if weight is None else losses * weight, reduction)


def kl_div(input, target, reduction="mean", log_target=False):
    """``target · (ln target - input)``; with ``log_target`` the target is a logarithm, too. ``"batchmean"``: a mean over axis 0."""
    losses = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return losses.sum() / input.shape[0] if input.dim() else losses.sum()
    return _reduced(losses, reduction)


def binary_cross_entropy(input, target, weight=None, reduction="mean"):
    """``-target · ln input - (1 - target) · ln(1 - input)`` of probabilities; logarithms are at least -100."""
    if list(input.shape) != list(target.shape):
        raise ValueError(f"binary_cross_entropy: expected a target of shape {list(input.shape)}, found {list(target.shape)}")
    # Where a logarithm is cut off PyTorch's gradient goes on as if the input were 1e-12 from the end: so does this one.
    variance = (input * (1 - input)).detach().clamp_min(1e-12)
    losses = (target - 1) * (-input).log1p().clamp_min(-100) - target * input.log().clamp_min(-100)
    slope = (input.detach() - target.detach()) / variance
    passed = slope * (input - input.detach())
    by_target = ((-input).log1p().clamp_min(-100) - input.log().clamp_min(-100)).detach() * (target - target.detach())
    losses = losses.detach() + passed + by_target
    return _reduced(losses if weight is None else losses * weight, reduction)


def poisson_nll_loss(input, target, log_input=True, full=False, eps=1e-8, reduction="mean"):
    """``e^input - target · input``, or without ``log_input`` ``input - target · ln(input + eps)``; ``full``: with Stirling's terms."""
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + (target * (2 * math.pi)).log() * 0.5
        losses = losses + stirling.where(target > 1, 0)
    return _reduced(losses, reduction)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """``(ln var + (input - target)² / var) / 2``, ``var`` being at least ``eps``; ``full``: with the constant."""
    if not isinstance(var, Tensor):
        var = input.new_full(input.shape, var)
    if list(var.shape) != list(input.shape):
        if list(input.shape[:-1]) == list(var.shape):
            var = var.unsqueeze(-1)
        elif list(input.shape[:-1]) != list(var.shape[:-1]) or var.shape[-1] != 1:
            raise ValueError(f"gaussian_nll_loss: expected var of shape {list(input.shape)}, found {list(var.shape)}")
    if bool((var < 0).any().item()):
        raise ValueError("gaussian_nll_loss: expected var of at least 0, found a negative one")
    # What is cut off keeps its gradient.
    var = var + (var.clamp_min(eps) - var).detach()
    losses = (var.log() + (input - target).square() / var) * 0.5
    return _reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def hinge_embedding_loss(input, target, margin=1.0, reduction="mean"):
    """``input`` where the target is 1, ``max(0, margin - input)`` where it is -1."""
    losses = (margin - input).clamp_min(0).where(target != 1, 0) + input.where(target != -1, 0)
    return _reduced(losses, reduction)


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction="mean"):
    """``max(0, -target · (input1 - input2) + margin)``."""
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError("margin_ranking_loss: expected tensors of as many axes each")
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


def soft_margin_loss(input, target, reduction="mean"):
    """``ln(1 + e^(-target · input))``."""
    if list(input.shape) != list(target.shape):
        raise RuntimeError(f"soft_margin_loss: expected a target of shape {list(input.shape)}, found {list(target.shape)}")
    return _reduced(-(target * input).logsigmoid(), reduction)


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction="mean"):
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1."""
    if input1.dim() != input2.dim() or target.dim() + 1 != input1.dim() or target.dim() > 1:
        raise RuntimeError("cosine_embedding_loss: expected inputs of one axis more than the target's 0 or 1")
    # As PyTorch: with a little beside the squares, not below the norms.
    cos = (input1 * input2).sum(-1) / ((input1.square().sum(-1) + 1e-12) * (input2.square().sum(-1) + 1e-12)).sqrt()
    losses = (1 - cos).where(target == 1, 0) + (cos - margin).clamp_min(0).where(target == -1, 0)
    return _reduced(losses, reduction)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, reduction="mean"):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` of p-norms."""
    distance = lambda x, y: pairwise_distance(x, y, p, eps)  # noqa: E731
    return triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction)  # fmt: skip


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """``triplet_margin_loss`` with a distance of one's own; ``swap``: of the negative from the nearer of both."""
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError("triplet_margin_loss: expected tensors of as many axes each")
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss: expected a margin above 0, found {margin}")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    far = far.minimum(distance(positive, negative)) if swap else far
    return _reduced((near - far + margin).clamp_min(0), reduction)


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, reduction="mean"):
    """``Σ max(0, margin - input[target] + input[i])ᵖ / classes`` over the classes other than the target."""
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: expected p of 1 or 2, found {p}")
    input = input.reshape(1) if input.dim() == 0 else input
    if input.dim() > 2 or target.dim() != input.dim() - 1 and target.numel() != 1 or input.shape[-1] == 0:
        raise RuntimeError(f"multi_margin_loss: expected [n, classes] or [classes], found {list(input.shape)}")
    rows = input if input.dim() == 2 else input.unsqueeze(0)
    classes = target.reshape(-1, 1)
    if classes.shape[0] != rows.shape[0]:
        raise RuntimeError(f"multi_margin_loss: expected {rows.shape[0]} targets, found {classes.shape[0]}")
    if weight is not None and list(weight.shape) != [rows.shape[1]]:
        raise RuntimeError(f"multi_margin_loss: expected {rows.shape[1]} weights, found {list(weight.shape)}")
    losses = (margin - rows.gather(1, classes) + rows).clamp_min(0)
    losses = losses.square() if p == 2 else losses
    losses = losses if weight is None else losses * weight[classes.reshape(-1)].unsqueeze(1)
    places = arange(rows.shape[1], device=input.device)
    losses = losses.where(places != classes, 0).sum(1) / rows.shape[1]
    return _reduced(losses.reshape(target.shape) if reduction == "none" else losses, reduction)


def multilabel_soft_margin_loss(input, target, weight=None, reduction="mean"):
    """The mean over classes of ``-target · ln σ(input) - (1 - target) · ln σ(-input)``."""
    losses = -(target * input.logsigmoid() + (1 - target) * (-input).logsigmoid())
    return _reduced((losses if weight is None else losses * weight).mean(-1), reduction)


def multilabel_margin_loss(input, target, reduction="mean"):
    """``Σ max(0, 1 - input[target] + input[i]) / classes`` over targets (up to the first -1) and classes that are none."""
    if input.dim() > 2 or list(input.shape) != list(target.shape):
        raise RuntimeError(f"multilabel_margin_loss: expected a target of shape {list(input.shape)}, found {list(target.shape)}")
    rows, classes = input.reshape(-1, input.shape[-1] if input.dim() else 1), target.reshape(-1, input.shape[-1] if input.dim() else 1)
    given = (classes < 0).cumsum(1) == 0
    places = classes.where(given, 0)
    is_target = zeros(list(rows.shape), dtype=int64, device=input.device).scatter_add(1, places, given.to(int64)) > 0
    apart = (1 - rows.gather(1, places).unsqueeze(2) + rows.unsqueeze(1)).clamp_min(0)
    counts = given.unsqueeze(2).logical_and(is_target.logical_not().unsqueeze(1))
    losses = apart.where(counts, 0).sum((1, 2)) / max(rows.shape[1], 1)
    return _reduced(losses.reshape(input.shape[:-1]) if reduction == "none" else losses, reduction)
