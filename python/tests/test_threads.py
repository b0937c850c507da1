"""Threads on one tensor, one model, one graph: no lock in user code, no wrong result, no lost gradient."""

import threading

import pytest
import raddle

THREADS = 8


def together(body):
    """Runs `body(index)` on so many threads that begin at once, and hands on what they raise."""
    barrier, errors = threading.Barrier(THREADS), []

    def run(index):
        try:
            barrier.wait()
            body(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(THREADS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if errors:
        raise errors[0]


def test_threads_read_and_make_what_others_read(device):
    x = raddle.arange(1000, dtype=raddle.float32, device=device)
    shared = [None] * THREADS

    def body(index):
        for turn in range(20):
            shared[index] = x * index + turn
            for other in list(shared):
                if other is not None:
                    assert other.shape == (1000,)
            y = (x + index).sum().item()
            assert y == pytest.approx(499500 + 1000 * index)

    together(body)
    for index, made in enumerate(shared):
        assert made.tolist() == [value * index + 19 for value in range(1000)]


def test_in_place_additions_are_all_there(device):
    x = raddle.zeros(100, dtype=raddle.int64, device=device)
    together(lambda index: [x.add_(1) for _ in range(100)])
    assert x.tolist() == [100 * THREADS] * 100


def test_concurrent_backward_loses_no_gradient(device):
    weight = raddle.ones(50, 20, device=device, requires_grad=True)
    x = raddle.ones(10, 50, device=device)

    def body(index):
        for _ in range(20):
            (x @ weight).sum().backward()

    together(body)
    assert weight.grad.tolist() == [[10.0 * 20 * THREADS] * 20] * 50


def test_one_graph_serves_many_passes(device):
    x = raddle.ones(30, device=device, requires_grad=True)
    loss = (x * 2).sum()
    together(lambda index: loss.backward(retain_graph=True))
    assert x.grad.tolist() == [2.0 * THREADS] * 30


def test_a_model_shared_by_threads_gives_each_its_own_answer(device):
    raddle.manual_seed(0)
    layers = [(raddle.randn(32, 32, device=device) / 6, raddle.randn(32, device=device)) for _ in range(3)]

    def forward(x):
        for weight, bias in layers:
            x = raddle.linear(x, weight, bias).relu()
        return x

    inputs = [raddle.randn(1, 32, device=device) for _ in range(THREADS)]
    expected = [forward(x).tolist() for x in inputs]

    def body(index):
        for _ in range(20):
            assert forward(inputs[index]).tolist() == expected[index]

    together(body)


def test_the_interpreter_runs_while_a_thread_waits():
    x = raddle.ones(1500, 1500)
    done = threading.Event()

    def compute():
        y = x
        for _ in range(10):
            y = (y @ x) / 1500
        y.sum().item()
        done.set()

    thread = threading.Thread(target=compute)
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 100
