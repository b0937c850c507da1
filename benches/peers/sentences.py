#!/usr/bin/env python3
"""Sentences through sentence-transformers on the CPU, and the files of sentences that all peers read.

`--make` writes the sentences: words that are one token each to all-MiniLM-L6-v2, so that lengths are known. The rest is
measured with the library's own encode(), with the batch size that is fastest of a few on a part of the sentences, and with
its default of 32. What each row is: benches/README.md.

Example: python sentences.py --model target/models/all-MiniLM-L6-v2 --mixed mixed.txt --single single.txt --json -
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time

MIXED, SHORTEST, LONGEST = 2000, 5, 250  # sentences, and their tokens with the two special ones
SINGLES, SINGLE = 256, 32
BATCHES = (4, 8, 16, 32, 64)
TUNED_ON = 100  # sentences


def make(model, mixed, single, seed=5):
    """Both files, the same for the same seed."""
    vocabulary = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isascii() and word.isalpha() and word.islower() and len(word) > 2)
    draw = random.Random(seed)
    sentence = lambda tokens: " ".join(draw.choice(words) for _ in range(tokens - 2))
    lengths = [draw.randint(SHORTEST, LONGEST) for _ in range(MIXED)]
    for path, counts in (mixed, lengths), (single, [SINGLE] * SINGLES):
        path.write_text("".join(sentence(count) + "\n" for count in counts), encoding="utf-8")


def row(name, threads, unit, values):
    return {"name": name, "threads": threads, "unit": unit, "median": statistics.median(values), "min": min(values),
            "max": max(values)}


def measure(arguments):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import sentence_transformers
    import torch

    torch.set_num_threads(arguments.intra_op)
    model = sentence_transformers.SentenceTransformer(str(arguments.model), device="cpu")
    mixed, single = (path.read_text(encoding="utf-8").splitlines() for path in (arguments.mixed, arguments.single))
    rows = []

    def rate(sentences, batch):
        start = time.perf_counter()
        vectors = model.encode(sentences, batch_size=batch)
        elapsed = time.perf_counter() - start
        assert len(vectors) == len(sentences)
        return len(sentences) / elapsed

    model.encode(mixed[:32])
    if "mixed" in arguments.only:
        best = max(arguments.batches, key=lambda batch: rate(mixed[:TUNED_ON], batch))
        print(f"sentences.py: the best of batches {arguments.batches} is {best}", file=sys.stderr)
        rows.append(row("sentences_mixed", arguments.intra_op, "1/s", [rate(mixed, best) for _ in range(arguments.repeats)]))
        rows.append(row("sentences_mixed_batch_32", arguments.intra_op, "1/s", [rate(mixed, 32)]))

    def alone(count, threads):
        """Seconds of each call, by all threads together, and the wall time."""
        times, barrier = [], threading.Barrier(threads + 1)

        def run(thread):
            own = []
            barrier.wait()
            for index in range(count):
                start = time.perf_counter()
                model.encode(single[(thread + index * threads) % len(single)])
                own.append(time.perf_counter() - start)
            times.extend(own)

        workers = [threading.Thread(target=run, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        barrier.wait()
        start = time.perf_counter()
        for worker in workers:
            worker.join()
        return times, time.perf_counter() - start

    if "single" in arguments.only:
        # Two threads that use two threads each get in each other's way, or not: the better of both.
        best = []
        for intra_op in (1, arguments.intra_op):
            torch.set_num_threads(intra_op)
            alone(20, 2)
            values = [2 * 100 / alone(100, 2)[1] for _ in range(arguments.repeats)]
            if not best or statistics.median(values) > statistics.median(best):
                best = values
        rows.append(row("sentences_single", 2, "1/s", best))
        torch.set_num_threads(arguments.intra_op)
        alone(20, 1)
        rows.append(row("sentence_latency", 1, "ms",
                        [1e3 * statistics.median(alone(100, 1)[0]) for _ in range(arguments.repeats)]))

    versions = f"sentence-transformers {sentence_transformers.__version__}, PyTorch {torch.__version__}, {torch.get_num_threads()} threads"
    return {"machine": "", "device": versions, "commit": torch.version.git_version, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--mixed", type=pathlib.Path, required=True, help="a file of sentences, one a line")
    parser.add_argument("--single", type=pathlib.Path, required=True, help="a file of sentences of one length")
    parser.add_argument("--make", action="store_true", help="write both files and stop")
    parser.add_argument("--only", nargs="+", choices=["mixed", "single"], default=["mixed", "single"])
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="sizes, of which the fastest counts")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--intra-op", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", default="-")
    arguments = parser.parse_args()
    if arguments.make:
        make(arguments.model, arguments.mixed, arguments.single)
        sys.exit()
    report = json.dumps(measure(arguments), indent=1)
    if arguments.json == "-":
        print(report)
    else:
        pathlib.Path(arguments.json).write_text(report + "\n", encoding="utf-8")
