"""Small ops from Python beside PyTorch, in turn in one process: nanoseconds, medians of rounds; and how long an import takes.

    python benches/peers/python.py
"""

import statistics
import subprocess
import sys
import time

import raddle
import torch

torch.set_num_threads(1)


def nanoseconds(body, count=20_000):
    start = time.perf_counter_ns()
    for _ in range(count):
        body()
    return (time.perf_counter_ns() - start) / count


def rows(lib):
    x, y, z = lib.ones(256), lib.ones(256), lib.zeros(256)
    add = lib.add
    return {
        "x + y": lambda: x + y,
        "add(x, y, out=z)": lambda: add(x, y, out=z),
        "x.add_(y)": lambda: x.add_(y),
        "x * 2": lambda: x * 2,
        "x.exp()": lambda: x.exp(),
        "x.sum()": lambda: x.sum(),
        "x[1:]": lambda: x[1:],
        "x.view(16, 16)": lambda: x.view(16, 16),
    }


def main():
    ours, theirs = rows(raddle), rows(torch)
    times = {name: ([], []) for name in ours}
    for _ in range(9):
        for name in ours:
            times[name][0].append(nanoseconds(ours[name]))
            times[name][1].append(nanoseconds(theirs[name]))
    for name, (a, b) in times.items():
        a, b = statistics.median(a), statistics.median(b)
        print(f"{name:20} {a:8.0f} {b:8.0f}   {a / b:.2f} x")
    start_up = [
        min(
            float(subprocess.run([sys.executable, "-c", f"import time; t = time.perf_counter(); {what}; print(time.perf_counter() - t)"], capture_output=True, text=True).stdout)  # fmt: skip
            for _ in range(5)
        )
        for what in ("import raddle", "import torch")
    ]
    print(f"{'import, ms':20} {start_up[0] * 1e3:8.1f} {start_up[1] * 1e3:8.1f}")


if __name__ == "__main__":
    main()
