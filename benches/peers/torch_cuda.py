#!/usr/bin/env python3
"""The list of `measure rows --device cuda:0`, on PyTorch's CUDA device.

Same names, units and JSON as `measure rows --json`; what each row does and how many bytes or operations it counts is in
benches/README.md. Small ops and models of many small ops run in TorchScript loops, a stream for each thread: those pay
neither Python's dispatch nor its lock, so they are PyTorch at its best (record_stream, which TorchScript doesn't have,
and replays of graphs, which give up the lock, run in Python loops). Large ops write into outputs made before, where
PyTorch has such a variant: what is compared is the kernel. TF32 is off.

A row that fails is told on standard error and left out.

Example: python torch_cuda.py --only mlp --json -
"""

import sys
import warnings

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"torch_cuda.py: PyTorch is not installed for {sys.executable} ({error}); see benches/README.md")

from harness import F32, THREADS, main, measured, parser, repeat, seconds_per_op, seconds_per_op_threads

warnings.filterwarnings("ignore")  # TorchScript is deprecated, but has no successor for loops

SIDE = 8192  # bandwidth ops work on SIDE × SIDE f32
ADAM_SIDE = 4096
ROWS, FEATURES = 16384, 1024  # softmax and layer_norm
PERMUTED = (128, 512, 1024)
MLP = (512, 1024, 1024, 512)
LAYERS, WIDTH, HEADS, INNER, TOKENS = 6, 384, 12, 1536, 32
CUDA = torch.device("cuda")


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=CUDA, dtype=dtype)


def empty(*shape):
    return torch.empty(*shape, device=CUDA)


# ------------------------------------------------------------ small ops


@torch.jit.script
def add_out_loop(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, count: int):
    for _ in range(count):
        torch.add(a, b, out=out)


@torch.jit.script
def chain_loop(a: torch.Tensor, b: torch.Tensor, one: torch.Tensor, count: int):
    for i in range(count):
        if i % 2 == 0:
            torch.add(a, one, out=b)
        else:
            torch.add(b, one, out=a)


@torch.jit.script
def add_loop(a: torch.Tensor, b: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        a = torch.add(a, b)  # of the one before: an add of the same two would be hoisted out of the loop
    return a


@torch.jit.script
def alloc_free_loop(count: int, device: torch.device) -> int:
    total = 0
    for i in range(count):
        size = 4096 - (i & 1)  # sizes that don't change would be folded and the tensors optimized away
        total += torch.empty([size], dtype=torch.uint8, device=device).size(0)
    return total


@torch.jit.script
def linear_loop(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        out = F.linear(x, weight, bias)
        bias = out[0]  # or it would be hoisted
    return bias


def small_add_out():
    a, b, out = randn(256), randn(256), randn(256)
    return lambda count: add_out_loop(a, b, out, count)


def small_add():
    a, b = randn(256), randn(256)
    return lambda count: add_loop(a, b, count)


def alloc_free():
    return lambda count: alloc_free_loop(count, torch.device("cuda", torch.cuda.current_device()))


def cross_stream_free():
    other = torch.cuda.Stream()

    def loop(count):
        for _ in range(count):
            torch.empty(4096, dtype=torch.uint8, device=CUDA).record_stream(other)

    return loop


def chain_one_stream():
    a, b, one = randn(256), randn(256), randn(256)
    return lambda count: chain_loop(a, b, one, count)


def chain_two_streams():
    x, one = [randn(256), randn(256)], randn(256)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    events = [torch.cuda.Event(), torch.cuda.Event()]
    torch.cuda.synchronize()

    def loop(count):
        for i in range(count):
            here, other = i % 2, (i + 1) % 2
            streams[here].wait_event(events[other])
            with torch.cuda.stream(streams[here]):
                torch.add(x[here], one, out=x[other])
                events[here].record(streams[here])

    return loop


def shared_read():
    shared = randn(256)

    def make_loop():
        a, out = randn(256), randn(256)
        return lambda count: add_out_loop(a, shared, out, count)

    return make_loop


# ------------------------------------------------------------ bandwidth


def square():
    return randn(SIDE, SIDE)


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


def permuted():
    a, b, c = PERMUTED
    return randn(b, c, a).permute(2, 0, 1)


def bench_copy_permuted():
    source, target = permuted(), randn(*PERMUTED)
    return lambda: target.copy_(source)


def bench_addcmul_permuted():
    t, a, b = permuted(), randn(*PERMUTED), randn(*PERMUTED)
    return lambda: t.addcmul_(a, b, value=1e-3)


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
    a, out = square(), empty(SIDE)
    return lambda: torch.sum(a, dim=0, out=out)


def bench_softmax():
    x, out = randn(ROWS, FEATURES), empty(ROWS, FEATURES)
    return lambda: torch.softmax(x, -1, out=out)


def bench_layer_norm():
    x, gamma, beta = randn(ROWS, FEATURES), randn(FEATURES), randn(FEATURES)
    return lambda: torch.native_layer_norm(x, [FEATURES], gamma, beta, 1e-5)


def bench_layer_norm_backward():
    x, gamma, beta = randn(ROWS, FEATURES), randn(FEATURES), randn(FEATURES)
    _, mean, rstd = torch.native_layer_norm(x, [FEATURES], gamma, beta, 1e-5)
    gradient = randn(ROWS, FEATURES)
    run = torch.ops.aten.native_layer_norm_backward
    return lambda: run(gradient, x, [FEATURES], mean, rstd, gamma, beta, [True, True, True])


def bench_gemm(n, dtype=torch.float32):
    a, b, out = (randn(n, n, dtype=dtype) for _ in range(3))
    return lambda: torch.mm(a, b, out=out)


def bench_linear(rows):
    x, weight, bias = randn(rows, 384), randn(1536, 384), randn(1536)
    return lambda count: linear_loop(x, weight, bias, count)


# ------------------------------------------------------------ training


def bench_adam(transposed):
    def matrix():
        a = randn(ADAM_SIDE, ADAM_SIDE)
        return a.t() if transposed else a

    parameters = [torch.nn.Parameter(matrix()) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = matrix()
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    return adam.step


def autoencoder_step(d, h, batch, k):
    """A step of the TopK sparse autoencoder: encoder, top k, scatter, decoder, MSE, clipping, fused Adam."""
    generator = torch.Generator(device=CUDA).manual_seed(0)
    decoder = torch.randn(d, h, generator=generator, device=CUDA)
    decoder /= decoder.norm(dim=0, keepdim=True)
    encoder = decoder.t().clone()  # strides (1, h), as the layout is preserved
    zeros = [torch.zeros(h, device=CUDA), torch.zeros(d, device=CUDA)]
    parameters = [torch.nn.Parameter(p) for p in (encoder, zeros[0], decoder, zeros[1])]
    encoder, encoder_bias, decoder, decoder_bias = parameters
    adam = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    x = torch.randn(batch, d, generator=generator, device=CUDA)

    def step():
        values, indices = F.linear(x, encoder, encoder_bias).topk(k, dim=-1)
        code = torch.zeros(batch, h, device=CUDA).scatter(-1, indices, values)
        loss = F.mse_loss(F.linear(code, decoder, decoder_bias), x)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()

    return step


# ------------------------------------------------------------ models


@torch.jit.script
def mlp_forward(
    x: torch.Tensor,
    w0: torch.Tensor,
    b0: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor,
    w2: torch.Tensor,
    b2: torch.Tensor,
) -> torch.Tensor:
    return F.linear(torch.relu(F.linear(torch.relu(F.linear(x, w0, b0)), w1, b1)), w2, b2)


@torch.jit.script
def mlp_loop(x: torch.Tensor, weights: list[torch.Tensor], count: int) -> torch.Tensor:
    for _ in range(count):  # of the one before: a forward of the same input would be hoisted
        x = mlp_forward(x, weights[0], weights[1], weights[2], weights[3], weights[4], weights[5])
    return x


def mlp_weights():
    weights = []
    for before, after in zip(MLP, MLP[1:]):
        weights += [randn(after, before) / before**0.5, randn(after)]
    return weights


def mlp():
    weights = mlp_weights()

    def make_loop():
        x = randn(1, MLP[0])
        return lambda count: mlp_loop(x, weights, count)

    return make_loop


def captured(forward):
    """A loop that replays a graph of its own: captured on the current stream, after warm-up there."""
    stream = torch.cuda.current_stream()
    for _ in range(3):
        forward()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        forward()

    def loop(count):
        for _ in range(count):
            graph.replay()

    return loop


def mlp_captured():
    weights = mlp_weights()

    def make_loop():
        x = randn(1, MLP[0])
        return captured(lambda: mlp_forward(x, *weights))

    return make_loop


@torch.jit.script
def encoder_forward(x: torch.Tensor, layers: list[list[torch.Tensor]], heads: int) -> torch.Tensor:
    for layer in layers:
        tokens, width = x.size(0), x.size(1)
        qkv = F.linear(x, layer[0], layer[1]).view(tokens, 3, heads, width // heads).permute(1, 2, 0, 3)
        mixed = F.scaled_dot_product_attention(qkv[0].unsqueeze(0), qkv[1].unsqueeze(0), qkv[2].unsqueeze(0))
        mixed = mixed.squeeze(0).transpose(0, 1).reshape(tokens, width)
        x = F.layer_norm(F.linear(mixed, layer[2], layer[3]) + x, [width], layer[4], layer[5], 1e-12)
        up = F.gelu(F.linear(x, layer[6], layer[7]))
        x = F.layer_norm(F.linear(up, layer[8], layer[9]) + x, [width], layer[10], layer[11], 1e-12)
    return x


@torch.jit.script
def encoder_loop(x: torch.Tensor, layers: list[list[torch.Tensor]], heads: int, count: int) -> torch.Tensor:
    out = x
    for _ in range(count):  # of the one before, as above
        x = encoder_forward(x, layers, heads)
        out = x.mean(0)
    return out


def encoder_layers():
    def half(*shape):
        return randn(*shape, dtype=torch.float16) * 0.02

    def ones():
        return torch.ones(WIDTH, device=CUDA, dtype=torch.float16)

    def layer():
        attention = [half(3 * WIDTH, WIDTH), half(3 * WIDTH), half(WIDTH, WIDTH), half(WIDTH), ones(), half(WIDTH)]
        inner = [half(INNER, WIDTH), half(INNER), half(WIDTH, INNER), half(WIDTH), ones(), half(WIDTH)]
        return attention + inner

    return [layer() for _ in range(LAYERS)]


def transformer():
    layers = encoder_layers()

    def make_loop():
        x = randn(TOKENS, WIDTH, dtype=torch.float16)
        return lambda count: encoder_loop(x, layers, HEADS, count)

    return make_loop


def transformer_captured():
    layers = encoder_layers()

    def make_loop():
        x = randn(TOKENS, WIDTH, dtype=torch.float16)
        return captured(lambda: encoder_forward(x, layers, HEADS).mean(0))

    return make_loop


# ------------------------------------------------------------ the list

SQUARE_BYTES = SIDE * SIDE * F32
ROWS_BYTES = ROWS * FEATURES * F32
PERMUTED_BYTES = PERMUTED[0] * PERMUTED[1] * PERMUTED[2] * F32
ADAM_BYTES = 7 * 4 * ADAM_SIDE * ADAM_SIDE * F32


def table():
    """(name, threads, unit, work, make, per thread): the value is work / seconds for rates, seconds × work for times.
    `make()` gives a loop, or, where threads are counted, what makes the loop of each thread."""

    def rate(name, bytes_count, make):
        return (name, 1, "GB/s", bytes_count / 1e9, lambda: repeat(make()), False)

    def gflops(name, m, k, n, make):
        return (name, 1, "GFLOP/s", 2e-9 * m * k * n, make, False)

    def ns(name, make):
        return (name, 1, "ns", 1e9, make, False)

    def each(name, threads, unit, work, make):
        return (name, threads, unit, work, make, True)

    yield each("add_out_256", 1, "ns", 1e9, lambda: small_add_out)
    yield each("add_out_256", 8, "ns", 1e9, lambda: small_add_out)
    yield ns("chain_one_stream", chain_one_stream)
    yield ns("chain_two_streams", chain_two_streams)
    yield ns("add_256", small_add)
    for threads in THREADS:
        yield each("alloc_free_4k", threads, "ns", 1e9, lambda: alloc_free)
    yield ns("cross_stream_free", cross_stream_free)
    for threads in THREADS:
        yield each("shared_read", threads, "ns", 1e9, shared_read)
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
    yield rate("copy_permuted", 2 * PERMUTED_BYTES, bench_copy_permuted)
    yield rate("addcmul_permuted", 4 * PERMUTED_BYTES, bench_addcmul_permuted)
    for n in (512, 1024, 2048, 4096):
        yield gflops(f"gemm_{n}", n, n, n, lambda n=n: repeat(bench_gemm(n)))
    yield gflops("gemm_4096_f16", 4096, 4096, 4096, lambda: repeat(bench_gemm(4096, torch.float16)))
    for rows in (1, 8, 128):
        yield gflops(f"linear_{rows}", rows, 384, 1536, lambda rows=rows: bench_linear(rows))
    yield rate("adam", ADAM_BYTES, lambda: bench_adam(False))
    yield rate("adam_transposed", ADAM_BYTES, lambda: bench_adam(True))
    for threads in THREADS:
        yield each("mlp", threads, "1/s", 1, mlp)
    for threads in THREADS:
        yield each("mlp_captured", threads, "1/s", 1, mlp_captured)
    for threads in (1, 8):
        yield each("transformer_f16", threads, "1/s", 1, transformer)
    for threads in (1, 8):
        yield each("transformer_f16_captured", threads, "1/s", 1, transformer_captured)
    yield ("autoencoder_step", 1, "ms", 1e3, lambda: repeat(autoencoder_step(384, 1536, 256, 32)), False)
    yield ("autoencoder_step_large", 1, "ms", 1e3, lambda: repeat(autoencoder_step(768, 24576, 4096, 32)), False)


def on_streams(make_loop, threads):
    """Seconds an op takes with a stream for each thread."""
    streams = [torch.cuda.Stream() for _ in range(threads)]

    def loop_on(stream):
        with torch.cuda.stream(stream):
            loop = make_loop()

        def run(count):
            loop(count)
            stream.synchronize()

        return run

    loops = [loop_on(stream) for stream in streams]
    torch.cuda.synchronize()
    within = lambda thread: torch.cuda.stream(streams[thread])
    return seconds_per_op_threads(loops, torch.cuda.synchronize, within)


def measure(name, threads, unit, work, make, per_thread):
    """One row."""
    try:
        loop = make()
        seconds = on_streams(loop, threads) if per_thread else seconds_per_op(loop, torch.cuda.synchronize)
        return measured(name, threads, unit, work, seconds)
    finally:
        torch.cuda.empty_cache()


def device():
    if not torch.cuda.is_available():
        print("torch_cuda.py: PyTorch finds no CUDA device", file=sys.stderr)
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}, PyTorch {torch.__version__}"


def failed(row, error):  # the rest is worth having
    print(f"{row[0]:24} {row[1]:3} failed: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    sys.exit(main("torch_cuda.py", arguments, list(table()), measure, device, failed))
