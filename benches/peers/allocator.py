"""What the allocators of PyTorch and RMM do with allocation traces: counts for `measure replay --check`, and rates.

    python3 benches/peers/allocator.py benches/traces/*.trace.gz --json COUNTS

It needs a GPU and PyTorch; RMM if it is there. Counts come from a replay
in the order of the trace, on one thread, in which all work is complete at once. Rates are events a second: `python` from a
loop on one thread, less what the loop itself takes; `native`, where a C++ compiler is there, from C++ with the threads of
the trace, in the way of `measure replay`.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import sys
import time

import torch

ALLOCATE, USE, FREE, SYNCHRONIZE, END = 0, 1, 2, 3, 7
CHECKPOINTS = 200
REPEATS = 7
SECONDS_PER_REPEAT = 0.1


def read_trace(path):
    """Events as (op, thread, stream, number): bytes of an allocation, or which allocation. The form is described in
    crates/runtime/src/memory_trace/format.rs."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    header = b"raddle memory trace 1\n"
    if not data.startswith(header):
        raise SystemExit(f"{path}: expected a trace of version 1")
    at = len(header)

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    events, allocations, thread, stream = [], 0, 0, 0
    while True:
        tag = data[at]
        at += 1
        op = tag & 7
        if op == END:
            assert number() == len(events), f"{path}: cut off"
            return events
        thread = number() if tag & 8 else thread
        stream = number() if tag & 16 else stream
        if tag & 32:
            number()
        value = None if op == SYNCHRONIZE else number()
        if op == ALLOCATE:
            allocations += 1
        elif op != SYNCHRONIZE:
            value = allocations - 1 - value
        events.append((op, thread, stream, value))


def checkpoints(events):
    """After how many events counts are taken."""
    step = max(1, len(events) // CHECKPOINTS)
    return set(range(step, len(events), step)) | {len(events)}


def empty_pytorch():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_reserved() == 0, "something else holds memory of the GPU"


def torch_streams(events):
    streams = [torch.cuda.default_stream()]
    return streams + [torch.cuda.Stream() for _ in range(max(event[2] for event in events))]


def pytorch_counts(events):
    """Tensors of bytes, each on its stream."""
    empty_pytorch()
    streams, at, addresses, found = torch_streams(events), checkpoints(events), [], []
    tensors, foreign, reserved = [], {}, 0

    def count(name):
        entry = torch._C._cuda_memoryStats(torch.cuda.current_device())[name]["all"]
        return entry["current"], entry["peak"]

    for index, (op, _, stream, value) in enumerate(events):
        if op == ALLOCATE:
            torch.cuda.set_stream(streams[stream])
            tensors.append((torch.empty(value, dtype=torch.uint8, device="cuda"), stream))
            now = count("reserved_bytes")[0]
            if now > reserved:  # at most one segment an allocation, of which it gets the start
                addresses.append(tensors[-1][0].data_ptr())
            reserved = now
        elif op == USE:
            tensor, own = tensors[value]
            if stream != own and tensor.numel():
                tensor.record_stream(streams[stream])
                foreign[value] = True
        elif op == FREE:
            tensors[value] = tensor = None
            if foreign.pop(value, False):
                torch.cuda.synchronize()  # what the free has recorded is over at the next allocation
        if index + 1 in at:
            (allocated, allocated_peak), (_, reserved_peak) = count("allocated_bytes"), count("reserved_bytes")
            found.append(
                {
                    "events": index + 1,
                    "allocated_bytes": allocated,
                    "allocated_peak_bytes": allocated_peak,
                    "reserved_bytes": reserved,
                    "reserved_peak_bytes": reserved_peak,
                    "slab_calls": len(addresses),
                }
            )
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    torch.cuda.set_stream(streams[0])
    tensors.clear()
    return addresses, found, {"num_alloc_retries": retries}


def rmm_counts(events, rmm):
    """A pool without an initial size over device memory."""
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=0)
    streams, at, addresses, found = rmm_streams(events), checkpoints(events), [], []
    blocks, peak = [], 0
    for index, (op, _, stream, value) in enumerate(events):
        if op == ALLOCATE:
            before = pool.pool_size()
            blocks.append((pool.allocate(value, streams[stream]), value, stream))
            if pool.pool_size() > before:
                addresses.append(blocks[-1][0])
        elif op == FREE:
            pointer, size, own = blocks[value]
            pool.deallocate(pointer, size, streams[own])
            blocks[value] = None
        peak = max(peak, pool.pool_size())
        if index + 1 in at:
            found.append(
                {
                    "events": index + 1,
                    "allocated_bytes": None,
                    "allocated_peak_bytes": None,
                    "reserved_bytes": pool.pool_size(),
                    "reserved_peak_bytes": peak,
                    "slab_calls": len(addresses),
                }
            )
    for pointer, size, own in filter(None, blocks):
        pool.deallocate(pointer, size, streams[own])
    return addresses, found, {}


def rmm_streams(events):
    try:
        from rmm.pylibrmm.stream import Stream
    except ImportError:
        from rmm._cuda.stream import Stream
    return [Stream() for _ in range(max(event[2] for event in events) + 1)]


def seconds_of(run):
    """The seconds of a run, once for each repeat."""
    run()
    start = time.perf_counter()
    run()
    count = max(1, round(SECONDS_PER_REPEAT / (time.perf_counter() - start)))
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(count):
            run()
        seconds.append((time.perf_counter() - start) / count)
    return seconds


def python_rate(events, allocate, free):
    """Allocations and frees a second, without uses, less what the loop takes with functions that do nothing."""
    calls, live = [], {}
    for op, _, stream, value in events:
        if op == ALLOCATE:
            live[len(live)] = (value, stream)
            calls.append((True, len(live) - 1, value, stream))
        elif op == FREE:
            calls.append((False, value, *live[value]))
    ended = {slot for is_allocation, slot, *_ in calls if not is_allocation}
    calls += [(False, slot, *live[slot]) for slot in live if slot not in ended]

    def run(allocate, free):
        pointers = [0] * len(live)
        for is_allocation, slot, size, stream in calls:
            if is_allocation:
                pointers[slot] = allocate(size, stream)
            else:
                free(pointers[slot], size, stream)

    own = statistics.median(seconds_of(lambda: run(lambda size, stream: 1, lambda pointer, size, stream: None)))
    rates = [len(calls) / max(seconds - own, 1e-9) for seconds in seconds_of(lambda: run(allocate, free))]
    return {"median": statistics.median(rates), "min": min(rates), "max": max(rates), "loop_seconds": own}


# What a library's allocator is for `NATIVE`: by stream, from the trace's numbers of streams.
PYTORCH = r"""
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

struct Allocator {
  c10::cuda::CUDACachingAllocator::CUDAAllocator* all = c10::cuda::CUDACachingAllocator::get();
  c10::DeviceIndex device = c10::cuda::current_device();
  std::vector<c10::cuda::CUDAStream> streams{c10::cuda::getDefaultCUDAStream()};
  Allocator() { for (int i = 1; i < 128; i++) streams.push_back(c10::cuda::getStreamFromPool()); }
  void begin() { c10::cuda::set_device(device); }
  void* allocate(size_t bytes, int stream) { return all->raw_alloc_with_stream(bytes, streams[stream]); }
  void use(void* pointer, int stream) {
    c10::DataPtr data(pointer, pointer, all->raw_deleter(), c10::Device(c10::kCUDA, device));
    all->recordStream(data, streams[stream]);
    data.release_context();
  }
  void free(void* pointer, size_t, int) { all->raw_delete(pointer); }
};
"""
RMM = r"""
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <cuda_runtime_api.h>

struct Allocator {
  rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, 0};
  int device = 0;
  std::vector<cudaStream_t> streams;
  Allocator() : streams(128) {
    cudaGetDevice(&device);
    for (auto& stream : streams) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  }
  void begin() { cudaSetDevice(device); }
  void* allocate(size_t bytes, int stream) { return pool.allocate(cuda::stream_ref{streams[stream]}, bytes, 256); }
  void use(void*, int) {}
  void free(void* pointer, size_t bytes, int stream) {
    pool.deallocate(cuda::stream_ref{streams[stream]}, pointer, bytes, 256);
  }
};
"""
NATIVE = r"""
#include <torch/extension.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

// Rows of `steps` are (event, op, place, bytes, stream, is shared); those of a thread lie between two `starts`.
// A place that threads share is used after it was filled, and freed after its uses; nobody gets further ahead of the slowest
// than `ahead` events. Seconds from the first start to the last end.
double play(torch::Tensor steps, std::vector<int64_t> starts, std::vector<int64_t> uses, int64_t ahead) {
  using Clock = std::chrono::steady_clock;
  struct Place {
    std::atomic<void*> pointer{nullptr};
    std::atomic<int64_t> uses{0};
    int64_t bytes = 0, stream = 0;
  };
  struct alignas(128) Progress { std::atomic<int64_t> event{0}; };
  static Allocator& allocator = *new Allocator;  // it stays as it has become, from run to run
  const int64_t thread_count = starts.size() - 1;
  std::unique_ptr<Place[]> places(new Place[uses.size()]);
  for (size_t i = 0; i < uses.size(); i++) places[i].uses = uses[i];
  std::unique_ptr<Progress[]> progress(new Progress[thread_count]);
  std::atomic<int64_t> ready{0};
  std::vector<Clock::time_point> begin(thread_count), end(thread_count);
  const int64_t* rows = steps.data_ptr<int64_t>();
  auto wait = [](auto done) { for (int turns = 0; !done(); turns++) if (turns > 64) std::this_thread::yield(); };
  auto run = [&](int64_t thread) {
    allocator.begin();
    ready++;
    wait([&] { return ready.load() == thread_count; });
    begin[thread] = Clock::now();
    for (int64_t row = starts[thread]; row < starts[thread + 1]; row++) {
      const int64_t* step = rows + 6 * row;
      auto& place = places[step[2]];
      if ((row - starts[thread]) % 64 == 0 && thread_count > 1) {
        progress[thread].event = step[0];
        wait([&] {
          int64_t slowest = INT64_MAX;
          for (int64_t i = 0; i < thread_count; i++) slowest = std::min(slowest, progress[i].event.load());
          return slowest >= step[0] - ahead;
        });
      }
      if (step[1] != 0 && step[5] && !place.pointer.load()) {
        progress[thread].event = step[0];
        wait([&] { return place.pointer.load() != nullptr; });
      }
      if (step[1] == 0) {
        place.bytes = step[3];
        place.stream = step[4];
        place.pointer = allocator.allocate(step[3], step[4]);
      } else if (step[1] == 1) {
        allocator.use(place.pointer.load(), step[4]);
        place.uses--;
      } else {
        if (step[5] && place.uses.load() > 0) {
          progress[thread].event = step[0];
          wait([&] { return place.uses.load() == 0; });
        }
        allocator.free(place.pointer.exchange(nullptr), place.bytes, place.stream);
      }
    }
    end[thread] = Clock::now();
    progress[thread].event = INT64_MAX;
  };
  {
    pybind11::gil_scoped_release release;
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < thread_count; i++) threads.emplace_back(run, i);
    for (auto& thread : threads) thread.join();
  }
  for (size_t i = 0; i < uses.size(); i++)
    if (void* left = places[i].pointer.load()) allocator.free(left, places[i].bytes, places[i].stream);
  return std::chrono::duration<double>(*std::max_element(end.begin(), end.end())
                                       - *std::min_element(begin.begin(), begin.end())).count();
}
"""


def native_rate(events, module, with_uses):
    """Events a second of an allocator called from C++, on the trace's threads; work is what the GPU does with none."""
    owner, own_stream, shared, uses = [], [], set(), []
    events = [event for event in events if event[0] in ((ALLOCATE, USE, FREE) if with_uses else (ALLOCATE, FREE))]
    for op, thread, stream, value in events:
        if op == ALLOCATE:
            owner.append(thread)
            own_stream.append(stream)
            uses.append(0)
        else:
            uses[value] += op == USE
            if owner[value] != thread:
                shared.add(value)
    threads, allocations = [[] for _ in range(max(event[1] for event in events) + 1)], 0
    for index, (op, thread, stream, value) in enumerate(events):
        place = allocations if op == ALLOCATE else value
        allocations += op == ALLOCATE
        size = max(1, value) if op == ALLOCATE else 0  # none is no address, which means that it isn't there yet
        threads[thread].append((index, op, place, size, stream, place in shared))
    starts = [0]
    for thread in threads:
        starts.append(starts[-1] + len(thread))
    steps = torch.tensor([step for thread in threads for step in thread], dtype=torch.int64)
    play = lambda: module.play(steps, starts, uses, 1024)
    seconds = min(play(), play())
    count = max(1, round(SECONDS_PER_REPEAT / seconds))
    rates = [len(events) / statistics.mean(play() for _ in range(count)) for _ in range(REPEATS)]
    return {"median": statistics.median(rates), "min": min(rates), "max": max(rates)}


def native_module(name, allocator, **options):
    """The C++ part, or why it isn't there."""
    try:
        from torch.utils.cpp_extension import load_inline

        source = allocator + NATIVE
        return load_inline(f"raddle_{name}_peer", [source], functions=["play"], with_cuda=True, **options), None
    except Exception as error:  # whatever a compiler that isn't there, or another version, leads to
        return None, str(error).strip().splitlines()[-1][:300]


def rmm_module():
    import librmm
    import rapids_logger

    folders = [pathlib.Path(package.__file__).parent for package in (librmm, rapids_logger)]
    libraries = [folders[0] / "lib64/librmm.so", folders[1] / "lib64/librapids_logger.so"]
    return native_module(
        "rmm",
        RMM,
        extra_include_paths=[str(folders[0] / "include/rapids"), *(str(folder / "include") for folder in folders)],
        extra_cflags=["-std=c++20", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"],
        extra_ldflags=[part for file in libraries for part in (str(file), f"-Wl,-rpath,{file.parent}")],
    )


def add_native(rates, events, module, missing):
    if module:
        rates["events_per_s_native"] = native_rate(events, module, True)
        rates["calls_per_s_native"] = native_rate(events, module, False)
    else:
        rates["no_native"] = missing


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("traces", nargs="+", type=pathlib.Path, metavar="TRACE")
    options.add_argument("--json", type=pathlib.Path, required=True, metavar="COUNTS", help="where the counts go")
    options.add_argument("--no-rates", action="store_true", help="counts only")
    arguments = options.parse_args()
    if not torch.cuda.is_available():
        print("allocator: PyTorch finds no GPU", file=sys.stderr)
        return 1
    configured = [name for name in os.environ if name.endswith("_ALLOC_CONF")]
    if configured:
        print(f"allocator: expected the default settings, found {configured[0]}", file=sys.stderr)
        return 2
    try:
        import rmm
    except ImportError as error:
        rmm = None
        print(f"allocator: without RMM: {error}", file=sys.stderr)
    torch.cuda.init()
    none = (None, "not asked for")
    pytorch_native = none if arguments.no_rates else native_module("pytorch", PYTORCH)
    rmm_native = none if arguments.no_rates or not rmm else rmm_module()
    traces = []
    for path in arguments.traces:
        events = read_trace(path)
        libraries = []

        def add(policy, library, counts, rates):
            addresses, found, more = counts
            libraries.append(
                {
                    "policy": policy,
                    "library": library,
                    "slab_addresses": addresses,
                    "checkpoints": found,
                    **more,
                    **rates,
                }
            )

        rates, counts = {}, pytorch_counts(events)
        if not arguments.no_rates:
            handles = [stream.cuda_stream for stream in torch_streams(events)]
            raw_allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
            raw_delete = torch._C._cuda_cudaCachingAllocator_raw_delete
            rates["calls_per_s_python"] = python_rate(
                events,
                lambda size, stream: raw_allocate(size, handles[stream]),
                lambda pointer, size, stream: raw_delete(pointer),
            )
            add_native(rates, events, *pytorch_native)
        add("pytorch", f"PyTorch {torch.__version__}", counts, rates)
        empty_pytorch()
        if rmm:
            rates, counts = {}, rmm_counts(events, rmm)
            if not arguments.no_rates:
                pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=0)
                streams = rmm_streams(events)
                rates["calls_per_s_python"] = python_rate(
                    events,
                    lambda size, stream: pool.allocate(size, streams[stream]),
                    lambda pointer, size, stream: pool.deallocate(pointer, size, streams[stream]),
                )
                add_native(rates, events, *rmm_native)
            add("rmm", f"RMM {rmm.__version__}", counts, rates)
        traces.append({"trace": path.name, "events": len(events), "libraries": libraries})
        print(f"{path.name}: {', '.join(library['library'] for library in libraries)}", file=sys.stderr, flush=True)
    report = {"device": torch.cuda.get_device_name(), "traces": traces}
    partial = arguments.json.with_suffix(".partial")
    partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
