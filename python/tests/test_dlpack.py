"""Tensors that cross to NumPy and PyTorch, and theirs to here, over the same memory."""

import ctypes
import gc
import random
import threading

import numpy as np
import pytest
import raddle

NAMES = "bool uint8 int32 int64 float16 bfloat16 float32 float64".split()
SHAPES = [((), None), ((3,), None), ((2, 3), None), ((2, 3), "t"), ((0, 4), None), ((4, 6), "slice")]


def view(x, how):
    return x.T if how == "t" else x[1:3, 2:4] if how == "slice" else x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape, how", SHAPES)
def test_memory_is_shared_with_torch_both_ways(torch, name, shape, how):
    theirs = view((torch.rand(shape) * 2).to(getattr(torch, name)), how)
    ours = raddle.from_dlpack(theirs)
    assert ours.dtype is getattr(raddle, name) and ours.shape == tuple(theirs.shape)
    assert ours.numel() < 2 or ours.stride() == theirs.stride()
    assert ours.tolist() == theirs.tolist()
    if ours.numel():
        ours.fill_(1)
        assert theirs.tolist() == ours.tolist() and bool((theirs == 1).all())
        theirs.zero_()
        assert not any(raddle.flatten(ours).tolist())
    mine = view(raddle.ones(shape, dtype=getattr(raddle, name)), how)
    back = torch.from_dlpack(mine)
    assert back.dtype == theirs.dtype and tuple(back.shape) == mine.shape
    assert mine.numel() < 2 or back.stride() == mine.stride()
    if mine.numel():
        back.zero_()
        assert not any(raddle.flatten(mine).tolist())
        mine.fill_(1)
        assert bool((back == 1).all())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bfloat16"])
def test_memory_is_shared_with_numpy_both_ways(name):
    theirs = np.ones((2, 3), dtype=name)
    ours = raddle.from_dlpack(theirs)
    ours[0, 1] = 0
    assert theirs.tolist() == ours.tolist() and not theirs[0, 1]
    mine = raddle.ones((2, 3), dtype=getattr(raddle, name)).T
    array = np.from_dlpack(mine)
    assert array.strides == tuple(stride * mine.itemsize for stride in mine.stride())
    mine[2, 1] = 0
    assert not array[2, 1] and array.sum() == 5
    shared = np.asarray(mine, copy=False)
    assert np.shares_memory(shared, array) and not np.shares_memory(np.asarray(mine), array)


def test_what_is_in_flight_is_waited_for(torch):
    for seed in range(7, 27):
        device = raddle.device(f"sim:{seed}")
        x = raddle.zeros(1000, device=device)
        for _ in range(5):
            x.add_(1)
        with raddle.Stream(device):
            other = x + 1
        theirs = torch.from_dlpack(x)
        assert bool((theirs == 5).all())
        theirs.mul_(2)  # the read behind `other` is over, too
        assert other.sum().item() == 6000
        assert x.sum().item() == 10000


def test_read_only_memory_stays_so(torch):
    array = np.ones(3)
    array.flags.writeable = False
    x = raddle.from_dlpack(array)
    assert x.add(1).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="add_?: the output is memory of others that may only be read, 24 bytes on cpu"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="may only be read"):
        x[0] = 3
    again = np.from_dlpack(x)
    assert not again.flags.writeable and np.shares_memory(array, again)
    with pytest.raises(BufferError, match="may only be read, expected max_version of at least"):
        x.__dlpack__()
    assert raddle.from_dlpack(array, copy=True).add_(1).tolist() == [2, 2, 2]


def test_arguments(torch):
    x = raddle.arange(4.0)
    assert x.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(2, 7), stream=-1))
    for plain in (x.__dlpack__(), x.__dlpack__(max_version=(0, 8)), x.__dlpack__(max_version=None)):
        assert '"dltensor"' in repr(plain)
    copied = torch.from_dlpack(x.__dlpack__(copy=True, max_version=(1, 0)))
    copied.zero_()
    assert x.tolist() == [0, 1, 2, 3]
    on_cpu = raddle.from_dlpack(x.__dlpack__(dl_device=(1, 0)))
    on_cpu[0] = 9
    assert x[0].item() == 9
    with pytest.raises(BufferError, match=r"dl_device, expected the tensor's or \(1, 0\), found \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream, expected None on the CPU, found 1"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="requires grad"):
        raddle.ones(1, requires_grad=True).__dlpack__()
    assert raddle.from_dlpack(x, copy=True).zero_().tolist() == [0] * 4 and x[1].item() == 1
    assert raddle.from_dlpack(np.ones(2), device="sim:7").device == raddle.device("sim:7")


def test_what_cannot_cross_is_refused(torch):
    capsule = raddle.ones(2).__dlpack__()
    raddle.from_dlpack(capsule)
    with pytest.raises(BufferError, match="expected a capsule that hasn't been used"):
        raddle.from_dlpack(capsule)
    with pytest.raises(BufferError, match="code 5, 64 bits and 1 lanes"):
        raddle.from_dlpack(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(BufferError, match="at most 8 axes, found 9"):
        raddle.from_dlpack(torch.ones([1] * 9))
    with pytest.raises(BufferError, match="axis 0, expected no negative size or stride, found -1"):
        raddle.from_dlpack(np.ones(3)[::-1])
    odd = np.frombuffer(bytearray(17), dtype=np.uint8)[1:].view(np.float64)
    with pytest.raises(Exception, match="address"):
        raddle.from_dlpack(odd)
    with pytest.raises(AttributeError, match="__dlpack_device__"):
        raddle.from_dlpack([1, 2])

    class Nothing:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, stream=None):
            return None

    with pytest.raises(TypeError, match="to give a capsule"):
        raddle.from_dlpack(Nothing())


def test_memory_that_comes_back_is_ours(torch, device):
    x = raddle.zeros((3, 4), device=device)
    y = raddle.from_dlpack(torch.from_dlpack(x)[1:], device=device)
    y.add_(1)
    assert (x.sum().item(), y.storage_offset()) == (8, 4)
    z = raddle.from_dlpack(x)
    z.add_(1)
    assert x.sum().item() == 20 and not z.requires_grad
    theirs = torch.zeros(4)
    a, b = raddle.from_dlpack(theirs, device=device), raddle.from_dlpack(theirs[2:], device=device)
    b.add_(1)
    assert a.tolist() == [0, 0, 1, 1]


def test_memory_lives_as_long_as_anyone_has_it(torch):
    """Released in any order, from any thread; what is left has its numbers, and nothing is given back twice or never."""
    rng = random.Random(1)
    for round in range(200):
        kept = []
        source = [torch.full((64,), round, dtype=torch.int64), np.full(64, round), raddle.full((64,), round)][round % 3]
        kept.append(source)
        for _ in range(4):
            last = rng.choice(kept)
            kept.append(rng.choice([raddle.from_dlpack, torch.from_dlpack, np.from_dlpack])(last))
            if rng.random() < 0.2:
                kept[-1].__dlpack__()  # a capsule that nobody takes
        del source, last
        rng.shuffle(kept)
        while len(kept) > 1:
            gone = [kept.pop()]
            if rng.random() < 0.5:
                thread = threading.Thread(target=gone.clear)
                thread.start()
                thread.join()
            gone.clear()
            junk = [torch.full((64,), -1), np.full(64, -1), raddle.full((64,), -1)]
            assert all(value.tolist() == [round] * 64 for value in kept), round
            del junk


def test_owners_are_let_go(torch):
    import weakref

    class Owner(np.ndarray):
        pass

    for late in (False, True):
        array = np.zeros(8).view(Owner)
        gone = weakref.ref(array)
        x = raddle.from_dlpack(array, device="sim:9" if late else None)
        y = x + 1
        del array
        gc.collect()
        assert gone() is not None
        threading.Thread(target=x.add_, args=(1,)).start() if late else x.add_(1)
        del x
        assert y.tolist() == [1] * 8
        raddle.device("sim:9").synchronize()
        for _ in range(1000):
            gc.collect()
            if gone() is None:
                break
            threading.Event().wait(0.005)  # a thread of the runtime gives it back
        assert gone() is None


def test_threads_share_memory_at_once(torch, device):
    theirs = torch.arange(64.0)
    wrong = []

    def use(number):
        for _ in range(100):
            x = raddle.from_dlpack(theirs, device=device)
            if (x + number).tolist() != [value + number for value in range(64)]:
                wrong.append(number)
            torch.from_dlpack(x.__dlpack__(max_version=(1, 0)))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_a_capsule_of_a_newer_major_version_is_refused():
    """By the structure alone: version, context, deleter."""
    called = []
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)

    class Managed(ctypes.Structure):
        _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p)]
        _fields_ += [("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("rest", ctypes.c_uint8 * 64)]

    managed = Managed(2, 3, None, ctypes.cast(deleter, ctypes.c_void_p))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = new(ctypes.addressof(managed), b"dltensor_versioned", None)
    with pytest.raises(BufferError, match="expected DLPack 1, found version 2.3"):
        raddle.from_dlpack(capsule)
    assert called == [ctypes.addressof(managed)]
