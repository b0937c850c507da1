"""Streams, events, graphs and publishers."""

import threading

import pytest
import raddle
from test_threads import THREADS, together


def test_a_stream_is_current_inside_and_on_its_thread(device):
    outer = raddle.current_stream(device)
    first, second = raddle.Stream(device), raddle.Stream(device)
    assert len({outer, first, second}) == 3 and first.device == device
    with first:
        assert raddle.current_stream(device) == first != outer
        with raddle.stream(second):
            assert raddle.current_stream(device) == second
            seen = []
            thread = threading.Thread(target=lambda: seen.append(raddle.current_stream(device)))
            thread.start()
            thread.join()
            assert seen[0] not in (first, second)
        with pytest.raises(KeyError), second:
            raise KeyError
        assert raddle.current_stream(device) == first
    assert raddle.current_stream(device) == outer


def test_results_cross_streams_without_a_wait(device):
    x = raddle.ones(1000, device=device)
    streams = [raddle.Stream(device, priority=-1), raddle.Stream(device)]
    for turn in range(20):
        with streams[turn % 2]:
            x.add_(1)
    assert x.tolist() == [21.0] * 1000


def test_events_tell_when_work_is_done(device):
    stream, event = raddle.Stream(device), raddle.Event()
    assert not event.query()
    with stream:
        x = raddle.ones(10, device=device) * 3
    event.record(stream)
    event.synchronize()
    assert event.query() and x.sum().item() == 30
    other = raddle.Stream(device)
    event.wait(other)
    other.wait_event(stream.record_event())
    other.wait_stream(stream)
    other.synchronize()
    raddle.synchronize(device)
    assert other.query() and stream.query()


def test_times_are_those_between_events(device):
    stream = raddle.Stream(device)
    start, end = raddle.Event(enable_timing=True), raddle.Event(enable_timing=True)
    start.record(stream)
    with stream:
        raddle.randn(200, 200, device=device) @ raddle.randn(200, 200, device=device)
    end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) > 0 and end.elapsed_time(start) < 0
    with pytest.raises(RuntimeError):
        raddle.Event().elapsed_time(end)


def test_streams_of_other_devices_are_refused():
    with pytest.raises(RuntimeError, match="wait_stream"):
        raddle.Stream("cpu").wait_stream(raddle.Stream("sim:7"))


def test_a_graph_does_it_again(device):
    x, weight = raddle.ones(2, 3, device=device), raddle.ones(4, 3, device=device)
    graph = raddle.capture(lambda: raddle.linear(x, weight).relu(), device)
    assert graph.replay().tolist() == [[3.0] * 4] * 2 and graph.kernel_count > 0
    weight.fill_(2)
    assert graph.replay().tolist() == [[6.0] * 4] * 2
    assert graph.replay([(x, raddle.full((2, 3), 10.0, device=device))]).tolist() == [[60.0] * 4] * 2

    def both():
        x.add_(1)
        return x * 2, x.sum()

    before = x.tolist()
    graph = raddle.capture(both, device)
    assert x.tolist() == before
    double, total = graph.replay()
    assert double.tolist() == [[4.0] * 3] * 2 and total.item() == 12
    assert raddle.capture(lambda: (x.zero_(), None)[1], device).replay() is None and not x.any()


def test_what_cannot_be_captured_is_told(device):
    x = raddle.ones(2, device=device)
    with pytest.raises(RuntimeError, match="can't be captured"):
        raddle.capture(lambda: x.sum().item(), device)
    with pytest.raises(TypeError, match="expected a function that returns tensors or None, found int"):
        raddle.capture(lambda: 3, device)
    with pytest.raises(ZeroDivisionError):
        raddle.capture(lambda: 1 // 0, device)
    assert raddle.capture(lambda: x + 1, device).replay().tolist() == [2.0, 2.0]


def test_threads_replay_one_graph(device):
    x = raddle.ones(16, device=device)
    graph = raddle.capture(lambda: x * 2, device)
    others = [raddle.full((16,), float(index), device=device) for index in range(THREADS)]

    def body(index):
        for _ in range(20):
            assert graph.replay([(x, others[index])]).tolist() == [2.0 * index] * 16

    together(body)


def test_readers_get_whole_versions(device):
    tensors = [raddle.zeros(50, device=device) for _ in range(3)]
    publisher = raddle.Publisher(tensors)
    done = threading.Event()

    def body(index):
        if index == 0:
            try:
                for turn in range(1, 31):
                    for tensor in tensors:
                        tensor.fill_(turn)
                    assert publisher.publish(tensors) == turn
            finally:
                done.set()
        else:
            last = -1
            while not done.is_set() or last < 0:
                version = publisher.load()
                values = {value for tensor in version.tensors for value in tensor.tolist()}
                assert values == {float(version.id)} and version.id >= last
                last = version.id

    together(body)
    assert publisher.load().id == 30
    with pytest.raises(raddle.ArgumentError):
        publisher.publish([])
