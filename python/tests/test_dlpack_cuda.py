"""Tensors that cross to PyTorch and back on a GPU, with slow kernels in flight: work is ordered by the device, never by a wait of
the host. Skipped where there is no GPU of CUDA."""

import threading

import pytest
import raddle

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of CUDA, and a PyTorch that has it")

ROUNDS = 200
COUNT = 1 << 20
SLOW = 20_000_000  # clocks: some 10 ms


def side_stream():
    return torch.cuda.stream(torch.cuda.Stream())


def slow_value(value):
    """A tensor of ours whose elements are that number once some 10 ms of work are over."""
    x = raddle.zeros(COUNT, device="cuda:0")
    a = raddle.zeros((2048, 2048), device="cuda:0")
    for _ in range(40):
        a = a @ a
    return x.add_(a[0, 0]).add_(value)


def test_ours_crosses_while_it_is_written():
    wrong = 0
    for round in range(ROUNDS):
        x = slow_value(round)
        if round % 2:
            with side_stream():
                theirs = torch.from_dlpack(x)
                wrong += not bool((theirs == round).all())
        else:
            theirs = torch.from_dlpack(x)
            wrong += not bool((theirs == round).all())
    assert wrong == 0


def test_theirs_crosses_while_it_is_written():
    wrong = 0
    for round in range(ROUNDS):
        stream = torch.cuda.Stream() if round % 2 else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            theirs = torch.zeros(COUNT, device="cuda:0")
            torch.cuda._sleep(SLOW)
            theirs.fill_(round)
            x = raddle.from_dlpack(theirs)
        wrong += not (x == round).all().item()
    assert wrong == 0


def test_memory_that_comes_back_is_behind_what_they_did():
    wrong = 0
    for round in range(ROUNDS):
        x = raddle.zeros(COUNT, device="cuda:0")
        with side_stream():
            theirs = torch.from_dlpack(x)
            torch.cuda._sleep(SLOW)
            theirs.fill_(round)
            again = raddle.from_dlpack(theirs)
        wrong += not (again == round).all().item()
        wrong += not (x == round).all().item()
    assert wrong == 0


@pytest.mark.parametrize("thread", [False, True])
def test_theirs_is_not_used_again_while_we_read_it(thread):
    """Their allocator gives a block out as soon as its last tensor is gone."""
    wrong = 0
    for round in range(ROUNDS):
        theirs = torch.full((COUNT,), float(round), device="cuda:0")
        torch.cuda.synchronize()
        held = [raddle.from_dlpack(theirs)]
        y = slow_value(0).add(held[0])
        del theirs
        if thread:
            dropper = threading.Thread(target=held.clear)
            dropper.start()
            dropper.join()
        held.clear()
        junk = [torch.full((COUNT,), -1.0, device="cuda:0") for _ in range(4)]
        wrong += not (y == round).all().item()
        del junk
    assert wrong == 0


def test_ours_is_not_used_again_while_they_read_it():
    wrong = 0
    for round in range(ROUNDS):
        x = raddle.full((COUNT,), float(round), device="cuda:0")
        with side_stream():
            theirs = torch.from_dlpack(x)
            torch.cuda._sleep(SLOW)
            result = theirs + 0
            del x, theirs
            junk = [raddle.full((COUNT,), -1.0, device="cuda:0") for _ in range(4)]
            wrong += not bool((result == round).all())
        del junk
    assert wrong == 0


def test_streams():
    x = raddle.ones(4, device="cuda:0")
    assert x.__dlpack_device__() == (2, 0)
    for stream in (None, -1, 1, 2, torch.cuda.Stream().cuda_stream):
        theirs = torch.from_dlpack(x.__dlpack__(stream=stream, max_version=(1, 0)))
        assert theirs.tolist() == [1] * 4
    for stream in (0, -2):
        with pytest.raises(ValueError, match="expected None, -1, 1, 2 or the handle of a stream"):
            x.__dlpack__(stream=stream)
    # One wrapped stream for all that is on it, however many they are.
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        many = [torch.from_dlpack(raddle.full((4,), value, device="cuda:0")) for value in range(300)]
        assert [int(value[3]) for value in many] == list(range(300))
    copied = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert torch.from_dlpack(copied).device.type == "cpu"
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
