"""How a row is measured on PyTorch, and how the rows are reported: what torch_cpu.py and torch_cuda.py share."""

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

REPEATS = 7
SECONDS_PER_REPEAT = 0.1
THREADS = (1, 2, 4, 8, 16)
F32 = 4


def seconds_per_op(loop, synchronize=lambda: None):
    """Seconds an op takes: one number for each repeat. `loop(count)` runs the op `count` times."""

    def timed(count):
        start = time.perf_counter()
        loop(count)
        synchronize()
        return time.perf_counter() - start

    for _ in range(3):
        timed(1)  # TorchScript compiles at the first and the second run
    count, elapsed = 1, 0.0
    while elapsed < SECONDS_PER_REPEAT / 2:
        if elapsed:  # at most tenfold: a first run is slower than those to come
            count = min(10 * count, round(count * SECONDS_PER_REPEAT / elapsed) + 1)
        elapsed = timed(count)
    return [timed(count) / count for _ in range(REPEATS)]


def seconds_per_op_threads(loops, synchronize=lambda: None, within=lambda thread: contextlib.nullcontext()):
    """As above with a thread for each loop: total wall time / total ops. Threads start on a barrier, each in what
    `within(thread)` gives."""

    def together(count):
        barrier = threading.Barrier(len(loops))

        def run(thread, loop):
            with torch.inference_mode(), within(thread):  # a thread's own settings
                barrier.wait()
                loop(count)

        for done in [pool.submit(run, thread, loop) for thread, loop in enumerate(loops)]:
            done.result()

    with ThreadPoolExecutor(len(loops)) as pool:
        samples = seconds_per_op(together, synchronize)
    return [seconds / len(loops) for seconds in samples]


def repeat(op):
    """A loop over an op that is long enough not to mind Python."""

    def loop(count):
        for _ in range(count):
            op()

    return loop


def measured(name, threads, unit, work, seconds):
    """A row of the report: work / seconds for rates, seconds × work for times."""
    values = [work / s if unit.endswith("/s") else s * work for s in seconds]
    return {
        "name": name,
        "threads": threads,
        "unit": unit,
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


def machine():
    """The processor in words."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), model)
    except OSError:
        pass  # not Linux: what platform says has to do
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores"


def parser(description):
    """The options of all peers."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--list", action="store_true", help="print the names and stop")
    options.add_argument("--only", metavar="NAME", action="append", help="run the rows of this name; may be given again")
    options.add_argument("--json", metavar="FILE", help="write the rows there; - is standard output")
    return options


def main(program, arguments, rows, measure, device, failed=None):
    """Measures rows, each a tuple that starts with name and threads, and writes the report; the exit code. `device()` is
    called first, and says in words what is measured, or nothing if it isn't there. `failed(row, error)` is told of a row
    that fails, which is then left out; without it the error is raised."""
    names = list(dict.fromkeys(row[0] for row in rows))
    if arguments.list:
        print("\n".join(names))
        return 0
    if arguments.only:
        unknown = [name for name in arguments.only if name not in names]
        if unknown:
            print(f"{program}: no row is called {unknown[0]!r}; known: {', '.join(names)}", file=sys.stderr)
            return 2
        rows = [row for row in rows if row[0] in arguments.only]
    words = device()
    if words is None:
        return 1
    results, failures = [], 0
    for row in rows:
        try:
            torch.manual_seed(0)
            with torch.inference_mode(not row[0].startswith(("adam", "autoencoder"))):
                result = measure(*row)
        except Exception as error:
            if failed is None:
                raise
            failures += 1
            failed(row, error)
            continue
        results.append(result)
        print("{name:24} {threads:3} {median:12.3f} {unit}".format(**result), file=sys.stderr, flush=True)
    report = {"machine": machine(), "device": words, "commit": torch.version.git_version, "rows": results}
    if arguments.json == "-":
        json.dump(report, sys.stdout, indent=2)
        print()
    elif arguments.json:
        partial = arguments.json + ".partial"
        try:
            with open(partial, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=2)
            os.replace(partial, arguments.json)
        except OSError as error:
            print(f"{program}: {arguments.json}: {error.strerror}", file=sys.stderr)
            return 2
    return 1 if failures and not results else 0
