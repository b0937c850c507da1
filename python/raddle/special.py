"""Functions of ``torch.special``."""

from ._functions import xlog1py, xlogy  # noqa: F401
from ._raddle import Tensor

entr, erf, erfc, erfinv, exp2, expm1, expit = Tensor.entr, Tensor.erf, Tensor.erfc, Tensor.erfinv, Tensor.exp2, Tensor.expm1, Tensor.sigmoid
log1p, log_softmax, logit, logsumexp, ndtr = Tensor.log1p, Tensor.log_softmax, Tensor.logit, Tensor.logsumexp, Tensor.ndtr
round, sinc, softmax = Tensor.round, Tensor.sinc, Tensor.softmax
