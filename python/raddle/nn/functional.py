"""Functions of ``torch.nn.functional``."""

from .._raddle import (  # noqa: F401
    Tensor,
    binary_cross_entropy_with_logits,
    cross_entropy,
    dropout as _dropout,
    embedding,
    l1_loss,
    layer_norm,
    linear,
    mse_loss,
    nll_loss,
    ones_like,
    scaled_dot_product_attention,
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
