#!/usr/bin/env python3
"""The list of `measure rows`, on PyTorch's CPU device.

Same names, units and JSON as `measure rows --json`; what each row does and how many bytes or operations it counts is in
benches/README.md. add_out_256 and add_256 are what a user of PyTorch pays, in a bare Python loop; their twins with
`_script` run in TorchScript, which pays neither Python's dispatch nor its lock (about a third of the time), and so do all
rows with threads, which in Python would only measure its lock.
Large ops write into outputs made before, where PyTorch has such a variant: what is compared is the kernel.

Example: python torch_cpu.py --only gemm_1024 --json -
"""

import itertools
import os
import sys
import warnings

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"torch_cpu.py: PyTorch is not installed for {sys.executable} ({error}); see benches/README.md")

from harness import F32, THREADS, main, measured, parser, repeat, seconds_per_op, seconds_per_op_threads

warnings.filterwarnings("ignore", category=FutureWarning)  # TorchScript is deprecated, but has no successor for loops
warnings.filterwarnings("ignore", category=DeprecationWarning)

SIDE = 4096  # bandwidth ops work on SIDE × SIDE f32
ROWS, FEATURES = 16384, 1024  # softmax and layer_norm


@torch.jit.script
def add_out_loop(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, count: int):
    for _ in range(count):
        torch.add(a, b, out=out)


@torch.jit.script
def add_loop(a: torch.Tensor, b: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        a = torch.add(a, b)  # of the one before: an add of the same two would be hoisted out of the loop
    return a


@torch.jit.script
def alloc_free_loop(count: int) -> int:
    total = 0
    for i in range(count):
        size = 4096 - (i & 1)  # sizes that don't change would be folded and the tensors optimized away
        total += torch.empty([size], dtype=torch.uint8).size(0)
    return total


@torch.jit.script
def linear_loop(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        out = F.linear(x, weight, bias)
        bias = out[0]  # or it would be hoisted
    return bias


def autoencoder_step(d, h, batch, k):
    """A step of the TopK sparse autoencoder: encoder, top k, scatter, decoder, MSE, clipping, fused Adam."""
    generator = torch.Generator().manual_seed(0)
    decoder = torch.randn(d, h, generator=generator)
    decoder /= decoder.norm(dim=0, keepdim=True)
    encoder = decoder.t().clone()  # strides (1, h), as the layout is preserved
    parameters = [torch.nn.Parameter(p) for p in (encoder, torch.zeros(h), decoder, torch.zeros(d))]
    encoder, encoder_bias, decoder, decoder_bias = parameters
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    x = torch.randn(batch, d, generator=generator)

    def step():
        values, indices = F.linear(x, encoder, encoder_bias).topk(k, dim=-1)
        code = torch.zeros(batch, h).scatter(-1, indices, values)
        loss = F.mse_loss(F.linear(code, decoder, decoder_bias), x)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()

    return step


def square():
    return torch.randn(SIDE, SIDE)


def bench_copy():
    a, b = square(), square()
    return lambda: b.copy_(a)


def bench_addcmul():
    t, a, b = square(), square(), square()
    return lambda: t.addcmul_(a, b, value=1e-3)


def bench_addcmul_transposed():
    t, a, b = square().t(), square(), square()
    return lambda: t.addcmul_(a, b, value=1e-3)


def bench_copy_transposed():
    a, b = square(), square()
    return lambda: b.copy_(a.t())


def bench_exp():
    a, out = square(), square()
    return lambda: torch.exp(a, out=out)


def bench_normal():
    out = square()
    return lambda: out.normal_()


def bench_sum():
    a = square()
    return lambda: a.sum()


def bench_sum_axis0():
    a, out = square(), torch.empty(SIDE)
    return lambda: torch.sum(a, dim=0, out=out)


def bench_softmax():
    x, out = torch.randn(ROWS, FEATURES), torch.empty(ROWS, FEATURES)
    return lambda: torch.softmax(x, -1, out=out)


def bench_layer_norm():
    x, gamma, beta = torch.randn(ROWS, FEATURES), torch.randn(FEATURES), torch.randn(FEATURES)
    out, mean, rstd = torch.empty(ROWS, FEATURES), torch.empty(ROWS, 1), torch.empty(ROWS, 1)
    run = torch.ops.aten.native_layer_norm.out
    return lambda: run(x, [FEATURES], gamma, beta, 1e-5, out0=out, out1=mean, out2=rstd)


def bench_layer_norm_backward():
    x, gamma, beta = torch.randn(ROWS, FEATURES), torch.randn(FEATURES), torch.randn(FEATURES)
    _, mean, rstd = torch.native_layer_norm(x, [FEATURES], gamma, beta, 1e-5)
    gradient, dx = torch.randn(ROWS, FEATURES), torch.empty(ROWS, FEATURES)
    dgamma, dbeta = torch.empty(FEATURES), torch.empty(FEATURES)
    run = torch.ops.aten.native_layer_norm_backward.out
    mask = [True, True, True]
    return lambda: run(
        gradient, x, [FEATURES], mean, rstd, gamma, beta, mask, out0=dx, out1=dgamma, out2=dbeta
    )


def bench_gemm(n):
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    return lambda: torch.mm(a, b, out=out)


def bench_linear(rows):
    x, weight, bias = torch.randn(rows, 384), torch.randn(1536, 384), torch.randn(1536)
    return lambda count: linear_loop(x, weight, bias, count)


def bench_adam():
    parameters = [torch.nn.Parameter(torch.randn(2048, 2048)) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.randn(2048, 2048)
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    return adam.step


def small_add_out():
    a, b, out, add = torch.randn(256), torch.randn(256), torch.empty(256), torch.add

    def loop(count):
        for _ in itertools.repeat(None, count):
            add(a, b, out=out)

    return loop


def small_add():
    a, b, add = torch.randn(256), torch.randn(256), torch.add

    def loop(count):
        for _ in itertools.repeat(None, count):
            add(a, b)

    return loop


def small_add_out_script():
    a, b, out = torch.randn(256), torch.randn(256), torch.empty(256)
    return lambda count: add_out_loop(a, b, out, count)


def small_add_script():
    a, b = torch.randn(256), torch.randn(256)
    return lambda count: add_loop(a, b, count)


def shared_read():
    shared = torch.randn(256)

    def make_loop():
        a, out = torch.randn(256), torch.empty(256)
        return lambda count: add_out_loop(a, shared, out, count)

    return make_loop


SQUARE_BYTES = SIDE * SIDE * F32
ROWS_BYTES = ROWS * FEATURES * F32


def table():
    """(name, threads, unit, work, loop): the value is work / seconds for rates, seconds × work for times."""

    def rate(name, bytes_count, make):
        return (name, 1, "GB/s", bytes_count / 1e9, lambda: repeat(make()))

    def gflops(name, m, k, n, make):
        return (name, 1, "GFLOP/s", 2e-9 * m * k * n, make)

    yield ("add_out_256", 1, "ns", 1e9, small_add_out)
    yield ("add_256", 1, "ns", 1e9, small_add)
    yield ("add_out_256_script", 1, "ns", 1e9, small_add_out_script)
    yield ("add_256_script", 1, "ns", 1e9, small_add_script)
    for threads in THREADS:
        yield ("alloc_free_4k", threads, "ns", 1e9, lambda: lambda: alloc_free_loop)
    for threads in THREADS:
        yield ("shared_read", threads, "ns", 1e9, shared_read)
    yield rate("copy", 2 * SQUARE_BYTES, bench_copy)
    yield rate("addcmul", 4 * SQUARE_BYTES, bench_addcmul)
    yield rate("addcmul_transposed", 4 * SQUARE_BYTES, bench_addcmul_transposed)
    yield rate("copy_transposed", 2 * SQUARE_BYTES, bench_copy_transposed)
    yield rate("exp", 2 * SQUARE_BYTES, bench_exp)
    yield rate("normal_", SQUARE_BYTES, bench_normal)
    yield rate("sum", SQUARE_BYTES, bench_sum)
    yield rate("sum_axis0", SQUARE_BYTES + SIDE * F32, bench_sum_axis0)
    yield rate("softmax", 2 * ROWS_BYTES, bench_softmax)
    yield rate("layer_norm", 2 * ROWS_BYTES, bench_layer_norm)
    yield rate("layer_norm_backward", 3 * ROWS_BYTES, bench_layer_norm_backward)
    for n in (256, 512, 1024, 2048):
        yield gflops(f"gemm_{n}", n, n, n, lambda n=n: repeat(bench_gemm(n)))
    for rows in (1, 8, 128):
        yield gflops(f"linear_{rows}", rows, 384, 1536, lambda rows=rows: bench_linear(rows))
    yield rate("adam", 7 * 4 * 2048 * 2048 * F32, bench_adam)
    yield ("autoencoder_step", 1, "ms", 1e3, lambda: repeat(autoencoder_step(384, 1536, 256, 32)))
    yield ("autoencoder_step_small", 1, "ms", 1e3, lambda: repeat(autoencoder_step(64, 256, 128, 8)))


def measure(name, threads, unit, work, make):
    """One row."""
    loop = make()
    if threads > 1:
        return measured(name, threads, unit, work, seconds_per_op_threads([loop() for _ in range(threads)]))
    threaded = name in ("alloc_free_4k", "shared_read")
    return measured(name, threads, unit, work, seconds_per_op(loop() if threaded else loop))


def run():
    options = parser(__doc__)
    cores = int(os.environ.get("RADDLE_NUM_THREADS") or len(os.sched_getaffinity(0)))  # as many as Raddle uses
    options.add_argument("--intra-op", metavar="N", type=int, default=cores, help=f"threads of an op (default {cores})")
    arguments = options.parse_args()

    def device():
        torch.set_num_threads(arguments.intra_op)
        return f"cpu, PyTorch {torch.__version__}, {arguments.intra_op} intra-op threads"

    return main("torch_cpu.py", arguments, list(table()), measure, device)


if __name__ == "__main__":
    sys.exit(run())
