"""``Module``, layers and losses as PyTorch's: names of parameters, initial weights, keys of ``state_dict``.

A module has no lock. Any number of threads may run it while another one trains it: a parameter is one tensor throughout, and
whoever changes it (an optimizer, ``load_state_dict``) overwrites its elements. Who wants all parameters of one version
publishes them. Adding or removing members, ``train`` and ``eval`` aren't for threads that run at the same time.
"""

import math

from .. import device as _device
from .. import dtype as _dtype
from .. import empty, no_grad, ones, zeros
from .._raddle import Tensor
from . import functional as F


def Parameter(data, requires_grad=True):
    """A tensor that a module counts among its parameters: of the elements of ``data``, a leaf of its own."""
    made = data.detach()
    return made.requires_grad_(requires_grad) if made.is_floating_point() else made


class _Missing:
    pass


class Module:
    """A part of a model: parameters, buffers and other modules by name, and ``forward``.

    A tensor that is assigned is a parameter if it requires grad, or if one of that name stands there; others are plain
    attributes. ``register_buffer`` makes one part of the state.
    """

    training = True

    def __init__(self):
        for kind in ("_parameters", "_buffers", "_modules"):
            object.__setattr__(self, kind, {})
        object.__setattr__(self, "_transient", set())

    def __setattr__(self, name, value):
        kinds = self.__dict__.get("_parameters"), self.__dict__.get("_buffers"), self.__dict__.get("_modules")
        if kinds[0] is None:
            if isinstance(value, (Tensor, Module)):
                raise AttributeError(f"{type(self).__name__}.{name}: expected super().__init__() before it is assigned")
            return object.__setattr__(self, name, value)
        parameters, buffers, modules = kinds
        if isinstance(value, Module):
            kind = modules
        elif name in buffers and (value is None or isinstance(value, Tensor)):
            kind = buffers
        elif isinstance(value, Tensor) and (value.requires_grad and value.is_leaf or name in parameters):
            kind = parameters
        elif value is None and (name in parameters or name in modules):
            kind = parameters if name in parameters else modules
        elif name in parameters or name in buffers:
            raise TypeError(f"{type(self).__name__}.{name}: expected a tensor or None, found {type(value).__name__}")
        else:
            kind = None
        for other in kinds:
            if other is not kind:
                other.pop(name, None)
        if kind is None:
            return object.__setattr__(self, name, value)
        self.__dict__.pop(name, None)
        kind[name] = value

    def __getattr__(self, name):
        for kind in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(kind, {}).get(name, _Missing)
            if found is not _Missing:
                return found
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")

    def __delattr__(self, name):
        for kind in (self._parameters, self._buffers, self._modules):
            if name in kind:
                del kind[name]
                return
        object.__delattr__(self, name)

    def __dir__(self):
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]

    def register_parameter(self, name, param):
        """Adds a parameter, or None where there is none."""
        self._check_name(name)
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a tensor that isn't trained; if ``persistent``, ``state_dict`` has it."""
        self._check_name(name)
        self._buffers[name] = tensor
        if not persistent:
            self._transient.add(name)

    def add_module(self, name, module):
        """Adds a module under a name."""
        self._check_name(name)
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, name):
        if not isinstance(name, str) or not name or "." in name:
            raise KeyError(f"{type(self).__name__}: expected a name without a dot, found {name!r}")
        if hasattr(self, name) and name not in {**self._parameters, **self._buffers, **self._modules}:
            raise KeyError(f"{type(self).__name__}: attribute '{name}' exists already")

    def forward(self, *args, **kwargs):
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def named_modules(self, memo=None, prefix=""):
        """Pairs of a name and a module: itself, then all within; each once."""
        memo = set() if memo is None else memo
        if id(self) not in memo:
            memo.add(id(self))
            yield prefix, self
            for name, module in self._modules.items():
                if module is not None:
                    yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def modules(self):
        """Itself and all modules within."""
        return (module for _, module in self.named_modules())

    def named_children(self):
        """Pairs of a name and a module of its own."""
        return ((name, module) for name, module in self._modules.items() if module is not None)

    def children(self):
        """The modules of its own."""
        return (module for _, module in self.named_children())

    def _named(self, kind, prefix, recurse):
        seen = set()
        for path, module in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, tensor in getattr(module, kind).items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(self, prefix="", recurse=True):
        """Pairs of a name and a parameter; a shared one once."""
        return self._named("_parameters", prefix, recurse)

    def parameters(self, recurse=True):
        """The parameters; a shared one once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True):
        """Pairs of a name and a buffer."""
        return self._named("_buffers", prefix, recurse)

    def buffers(self, recurse=True):
        """The buffers."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _state(self, prefix):
        for name, tensor in self._parameters.items():
            yield prefix + name, tensor
        for name, tensor in self._buffers.items():
            if name not in self._transient:
                yield prefix + name, tensor
        for name, module in self.named_children():
            yield from module._state(f"{prefix}{name}.")

    def state_dict(self, *, prefix="", keep_vars=False):
        """All parameters and buffers by name. They share memory with the module's."""
        found = ((name, tensor) for name, tensor in self._state(prefix) if tensor is not None)
        return {name: tensor if keep_vars else tensor.detach() for name, tensor in found}

    def load_state_dict(self, state_dict, strict=True):
        """Overwrites parameters and buffers; gives the names that were missing and those that weren't expected.

        Nothing is written if a shape differs or, when ``strict``, if a name is missing or unexpected.
        """
        own = self.state_dict(keep_vars=True)
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        common = {name: state_dict[name] for name in own if name in state_dict}
        wrong = []
        for name, given in common.items():
            if not isinstance(given, Tensor):
                wrong.append(f"{name}: expected a raddle.Tensor, found {type(given).__name__}")
            elif tuple(given.shape) != tuple(own[name].shape):
                wrong.append(f"{name}: expected shape {list(own[name].shape)}, found {list(given.shape)}")
        if strict:
            wrong += [f"{name}: missing" for name in missing] + [f"{name}: not expected" for name in unexpected]
        if wrong:
            raise RuntimeError(f"load_state_dict of {type(self).__name__}: " + "; ".join(wrong))
        with no_grad():
            for name, given in common.items():
                own[name].copy_(given.detach().to(device=own[name].device))
        return LoadedKeys(missing, unexpected)

    def train(self, mode=True):
        """Sets ``training`` of all modules within."""
        for module in self.modules():
            object.__setattr__(module, "training", bool(mode))
        return self

    def eval(self):
        """``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Drops the gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self, *args, device=None, dtype=None):
        """Moves all to a device, and floats to a dtype. Parameters that change are others afterwards: make optimizers later."""
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif isinstance(arg, (str, _device)):
                device = arg
            elif isinstance(arg, _dtype) or arg is float:
                dtype = arg
            else:
                raise TypeError(f"Module.to: expected a device, a dtype or a tensor, found {type(arg).__name__}")
        if dtype is not None and not zeros(0, dtype=dtype).is_floating_point():
            raise TypeError(f"Module.to: expected a dtype of floats, found {dtype}")
        moved = {}
        for module in self.modules():
            for kind in (module._parameters, module._buffers):
                for name, tensor in kind.items():
                    if tensor is None:
                        continue
                    if id(tensor) not in moved:
                        with no_grad():
                            made = tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
                        same = made is tensor or made.device == tensor.device and made.dtype == tensor.dtype
                        made = tensor if same else made.detach().requires_grad_(tensor.requires_grad)
                        moved[id(tensor)] = (tensor, made)
                    kind[name] = moved[id(tensor)][1]
        return self

    def float(self):
        """Floats to float32."""
        from .. import float32

        return self.to(dtype=float32)

    def double(self):
        """Floats to float64."""
        from .. import float64

        return self.to(dtype=float64)

    def half(self):
        """Floats to float16."""
        from .. import float16

        return self.to(dtype=float16)

    def bfloat16(self):
        """Floats to bfloat16."""
        from .. import bfloat16

        return self.to(dtype=bfloat16)

    def cpu(self):
        """To the CPU."""
        return self.to("cpu")

    def apply(self, fn):
        """Calls ``fn`` with each module, the innermost first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def extra_repr(self):
        """What stands in the brackets when it is printed."""
        return ""

    def __repr__(self):
        lines = [self.extra_repr()] if self.extra_repr() else []
        if not self._modules:
            return f"{type(self).__name__}({', '.join(lines)})"
        lines += [f"({name}): {module!r}" for name, module in self._modules.items()]
        inner = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {inner}\n)"


class LoadedKeys(tuple):
    """Names that ``load_state_dict`` missed, and those that it didn't expect."""

    def __new__(cls, missing_keys, unexpected_keys):
        return super().__new__(cls, (missing_keys, unexpected_keys))

    missing_keys = property(lambda self: self[0])
    unexpected_keys = property(lambda self: self[1])


def _uniform(bound, *shape, **about):
    return Parameter(empty(*shape, **about).uniform_(-bound, bound))


class Identity(Module):
    """What it gets."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """``x Wᵀ + b``: [.., in_features] → [.., out_features]. Weights and biases begin uniform in ±1/√in_features."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        # Kaiming's uniform with a = √5 comes to this for the weight.
        bound = 1 / math.sqrt(in_features) if in_features > 0 else 0.0
        about = {"device": device, "dtype": dtype}
        self.weight = _uniform(bound, out_features, in_features, **about)
        self.register_parameter("bias", _uniform(bound, out_features, **about) if bias else None)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a table by index: [..] → [.., embedding_dim]. The table begins normal; row ``padding_idx`` is 0 and gets no gradient."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, device=None, dtype=None):
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise IndexError(f"Embedding: expected padding_idx within {num_embeddings} rows, found {padding_idx}")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        table = empty(num_embeddings, embedding_dim, device=device, dtype=dtype).normal_()
        if padding_idx is not None:
            table[self.padding_idx].fill_(0)
        self.weight = Parameter(table)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None):
        """Of a table that is given, without a copy."""
        made = cls(*embeddings.shape, padding_idx=padding_idx, device=embeddings.device, dtype=embeddings.dtype)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def forward(self, input):
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self):
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last axes, then a weight (1 at first) and a bias (0)."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        about = {"device": device, "dtype": dtype}
        shape, has_bias = self.normalized_shape, elementwise_affine and bias
        self.register_parameter("weight", Parameter(ones(*shape, **about)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(zeros(*shape, **about)) if has_bias else None)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class Dropout(Module):
    """Drops each element with probability ``p`` in training, and divides the others by ``1 - p``."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: expected p from 0 to 1, found {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Flatten(Module):
    """Axes ``start_dim`` to ``end_dim`` as one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)


class ModuleList(Module):
    """Modules in a list."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def append(self, module):
        """Adds one at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Adds some at the end."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __getitem__(self, index):
        found = list(self._modules.values())[index]
        return type(self)(found) if isinstance(index, slice) else found


class Sequential(ModuleList):
    """One module behind the other; named ones from a dict."""

    def __init__(self, *modules):
        if len(modules) == 1 and isinstance(modules[0], (list, tuple)):
            modules = modules[0]  # a slice of one
        named = modules[0] if len(modules) == 1 and isinstance(modules[0], dict) else None
        super().__init__(() if named is not None else modules)
        for name, module in (named or {}).items():
            self.add_module(name, module)

    def forward(self, input):
        for module in self:
            input = module(input)
        return input


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules=None):
        super().__init__()
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name, module):
        self.add_module(name, module)

    def __getitem__(self, name):
        return self._modules[name]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, name):
        return name in self._modules

    def keys(self):
        return self._modules.keys()

    def values(self):
        return self._modules.values()

    def items(self):
        return self._modules.items()


def _function(name, function, defaults):
    """A class of a function: its options are kept, under their names, and handed on."""

    def __init__(self, *args, **given):
        Module.__init__(self)
        if len(args) > len(defaults) or not set(given) <= set(defaults):
            raise TypeError(f"{name}: expected at most {', '.join(defaults) or 'nothing'}, found {[*args, *given]}")
        for option, value in {**defaults, **dict(zip(defaults, args)), **given}.items():
            setattr(self, option, value)

    def forward(self, input):
        return function(input, **{option: getattr(self, option) for option in defaults})

    def extra_repr(self):
        return ", ".join(f"{option}={getattr(self, option)}" for option in defaults)

    about = f"``{function.__name__}`` of ``nn.functional`` as a module."
    body = {"__init__": __init__, "forward": forward, "extra_repr": extra_repr, "__doc__": about}
    return type(name, (Module,), {**body, "__module__": __name__, "__qualname__": name})


ReLU = _function("ReLU", F.relu, {"inplace": False})
SiLU = _function("SiLU", F.silu, {"inplace": False})
LeakyReLU = _function("LeakyReLU", F.leaky_relu, {"negative_slope": 0.01, "inplace": False})
ELU = _function("ELU", F.elu, {"alpha": 1.0, "inplace": False})
GELU = _function("GELU", F.gelu, {"approximate": "none"})
Sigmoid = _function("Sigmoid", F.sigmoid, {})
Tanh = _function("Tanh", F.tanh, {})
Softplus = _function("Softplus", F.softplus, {"beta": 1.0, "threshold": 20.0})
Softmax = _function("Softmax", F.softmax, {"dim": None})
LogSoftmax = _function("LogSoftmax", F.log_softmax, {"dim": None})


class _Loss(Module):
    _options = ("reduction",)

    def _hold(self, **options):
        Module.__init__(self)
        if options["reduction"] not in ("mean", "sum", "none"):
            raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', found '{options['reduction']}'")
        for name, value in options.items():
            # Weights of classes move with the module.
            self.register_buffer(name, value) if name in ("weight", "pos_weight") else setattr(self, name, value)
        object.__setattr__(self, "_options", tuple(options))

    def forward(self, input, target):
        return type(self)._function(input, target, **{name: getattr(self, name) for name in self._options})


class MSELoss(_Loss):
    """``(input - target)²``."""

    _function = staticmethod(F.mse_loss)

    def __init__(self, reduction="mean"):
        self._hold(reduction=reduction)


class L1Loss(_Loss):
    """``|input - target|``."""

    _function = staticmethod(F.l1_loss)

    def __init__(self, reduction="mean"):
        self._hold(reduction=reduction)


class NLLLoss(_Loss):
    """Of log-probabilities and classes."""

    _function = staticmethod(F.nll_loss)

    def __init__(self, weight=None, ignore_index=-100, reduction="mean"):
        self._hold(weight=weight, ignore_index=ignore_index, reduction=reduction)


class CrossEntropyLoss(_Loss):
    """Of logits, and classes or probabilities."""

    _function = staticmethod(F.cross_entropy)

    def __init__(self, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        self._hold(weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)


class BCEWithLogitsLoss(_Loss):
    """Of logits and probabilities."""

    _function = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(self, weight=None, reduction="mean", pos_weight=None):
        self._hold(weight=weight, reduction=reduction, pos_weight=pos_weight)
