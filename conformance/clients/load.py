"""256 clients on one server: mixed lengths, some that go away, some that send nonsense; then SIGTERM while they go on.

Every good answer is compared with a vector that was computed before, and every request is accounted for by its id: what the
server's log says was answered is what clients have got, but for those that went away.
"""

import asyncio
import base64
import collections
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

import golden
import numpy
from server import MODEL, serving

# A request, and how often of 1000.
CANCELLED, MALFORMED = 50, 10
# Of the vectors of `raddle embed`, an element: another batch, another order of the last operations. Those of
# sentence-transformers were rounded to f16, and are compared by cosine.
TOLERANCE, COSINE = 2e-6, 0.99999
CLIENTS = 256


class Texts:
    """Texts of 1 to 512 tokens and their vectors."""

    def __init__(self, raddle, folder, seed):
        sentences, self.golden = golden.read()
        generator = random.Random(seed)
        words = sorted({word for sentence in sentences for word in sentence.split() if word.isascii() and word.isalpha()})
        long = [" ".join(generator.choices(words, k=generator.randint(1, 380))) for _ in range(300)]
        self.texts = sentences + long
        lines, vectors = pathlib.Path(folder, "texts.jsonl"), pathlib.Path(folder, "vectors.npy")
        lines.write_text("\n".join(json.dumps(text) for text in self.texts) + "\n")
        command = [raddle, "embed", "--model", str(MODEL), "--input", str(lines), "--output", str(vectors), "--json", "-"]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        assert report["lines"] == len(self.texts) and not report["skipped"], report
        self.vectors = numpy.load(vectors)
        # Both must agree before they are used to judge others.
        cosines = (self.vectors[: len(sentences)] * self.golden).sum(1) / numpy.linalg.norm(self.golden, axis=1)
        assert cosines.min() > COSINE, cosines.min()
        self.generator = generator

    def is_right(self, index, found):
        found = numpy.asarray(found, dtype="float32")
        if found.shape != (384,) or not numpy.allclose(found, self.vectors[index], rtol=0, atol=TOLERANCE):
            return False
        if index >= len(self.golden):
            return True
        expected = self.golden[index]
        return float(found @ expected / numpy.linalg.norm(expected)) > COSINE


class Load:
    def __init__(self, server, texts):
        self.server, self.texts = server, texts
        self.host, self.port = server.url.removeprefix("http://").split(":")
        self.counts = collections.Counter()
        self.latencies, self.problems = [], []
        self.answered, self.cancelled, self.lost = set(), set(), set()
        self.is_stopping = False

    def problem(self, *words):
        self.problems.append(" ".join(map(str, words)))

    async def client(self, number, deadline):
        generator = random.Random(number)
        reader = writer = None
        sent = 0
        while time.monotonic() < deadline:
            if writer is None:
                try:
                    reader, writer = await asyncio.open_connection(self.host, int(self.port))
                except OSError:
                    if self.is_stopping:
                        return
                    self.problem("a connection was refused")
                    return
            sent += 1
            keep = await self.request(generator, reader, writer, f"{number}-{sent}")
            if not keep:
                writer.close()
                reader = writer = None
        if writer is not None:
            writer.close()

    async def request(self, generator, reader, writer, name):
        chance = generator.randrange(1000)
        indices = [generator.randrange(len(self.texts.texts)) for _ in range(generator.choice([1, 1, 1, 1, 2, 4]))]
        inputs = [self.texts.texts[index] for index in indices]
        path, body = generator.choice([
            ("/embed", {"inputs": inputs}),
            ("/v1/embeddings", {"input": inputs, "encoding_format": "base64"}),
            ("/v1/embeddings", {"input": inputs}),
        ])
        body = json.dumps(body).encode()
        is_malformed = chance < MALFORMED
        if is_malformed:
            body = generator.choice([body[:-2], b"\xff" + body, b'{"inputs": 7, "input": 7}', b""])
        head = (f"POST {path} HTTP/1.1\r\nhost: load\r\ncontent-type: application/json\r\nx-request-id: {name}\r\n"
                f"content-length: {len(body)}\r\n\r\n").encode()
        start = time.perf_counter()
        try:
            writer.write(head + body)
            if MALFORMED <= chance < MALFORMED + CANCELLED and not self.is_stopping:
                # Sent, and then gone at any time.
                await writer.drain()
                await asyncio.sleep(generator.random() * 0.2)
                self.cancelled.add(name)
                return False
            status, closes, answer = await self.read(reader)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            self.lost.add(name)
            if not self.is_stopping:
                self.problem(name, "had no answer")
            return False
        self.answered.add(name)
        self.counts[status] += 1
        if is_malformed:
            if status not in (400, 422):
                self.problem(name, "was malformed and had status", status)
            elif "error" not in json.loads(answer):
                self.problem(name, "has an error without a text")
        elif status == 200:
            self.latencies.append(time.perf_counter() - start)
            self.check(name, path, body, indices, json.loads(answer))
        elif status not in (429, 503):
            self.problem(name, "had status", status, answer[:200])
        return not closes

    async def read(self, reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        answer = await reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers.get("connection") == "close", answer

    def check(self, name, path, body, indices, answer):
        if path == "/embed":
            rows = answer
        else:
            rows = [item["embedding"] for item in answer["data"]]
            if b"base64" in body:
                rows = [numpy.frombuffer(base64.b64decode(row), dtype="<f4") for row in rows]
        if len(rows) != len(indices):
            self.problem(name, "has", len(rows), "vectors, expected", len(indices))
        for index, row in zip(indices, rows):
            self.counts["texts"] += 1
            if not self.texts.is_right(index, row):
                self.problem(name, "has a wrong vector of text", index)

    async def watch(self, figures, deadline):
        while time.monotonic() < deadline:
            figures.append(self.server.process_figures())
            await asyncio.sleep(0.5)

    async def run(self, seconds):
        figures = []
        deadline = time.monotonic() + seconds
        clients = [asyncio.create_task(self.client(number, deadline + 120)) for number in range(CLIENTS)]
        await self.watch(figures, deadline)
        # Under load: the clients go on, and see the end.
        self.is_stopping = True
        self.server.terminate()
        await asyncio.gather(*clients)
        return figures


def check(raddle, seconds, seed=1):
    with serving(raddle, "--max-concurrent-requests", "1024", "--drain-timeout", "110") as server, tempfile.TemporaryDirectory() as folder:
        load = Load(server, Texts(raddle, folder, seed))
        start = time.monotonic()
        figures = asyncio.run(load.run(seconds))
        report = server.end()
        elapsed = time.monotonic() - start
        logged = list(server.logged())
        answered, left = (
            {line["id"] for line in logged if line.get("message") == message}
            for message in ("request", "left before its answer")
        )
    assert not load.problems, (len(load.problems), load.problems[:5])
    assert report["given_up"] == 0, report
    # Each request has one end, and the server and its clients agree which.
    unheard = answered - load.answered - load.cancelled
    assert not unheard, f"{len(unheard)} were answered, and their clients got nothing: {sorted(unheard)[:5]}"
    assert load.answered <= answered, "clients have answers that the server doesn't know of"
    assert report["accepted"] == len(answered) + report["cancelled"], report
    # Whoever was left was left by its client: not dropped at the end, when connections break that were never accepted.
    assert left <= load.cancelled, f"{len(left - load.cancelled)} were dropped under their clients: {sorted(left - load.cancelled)[:5]}"
    assert len(left) == report["cancelled"], (len(left), report)
    assert not load.lost & (answered | left), "a client has lost a request that was accepted"
    # Flat: after a quarter of the time nothing grows any more but by what happens to be held just then.
    memory, threads = zip(*figures)
    quarter = len(memory) // 4
    early, late = max(memory[: 2 * quarter]), max(memory[2 * quarter :])
    assert late < 1.1 * early + 16 * 1024, f"memory grows: {early} KiB in the first half, {late} in the second"
    assert max(threads) <= 16 + 4 * (os.cpu_count() or 1), f"{max(threads)} threads"
    assert min(threads[quarter:]) >= max(threads[quarter:]) - (os.cpu_count() or 1), f"threads: {sorted(set(threads))}"
    latencies = sorted(load.latencies)
    good, malformed = load.counts[200], load.counts[400] + load.counts[422]
    assert good > CLIENTS / 2 and malformed > 0 and load.cancelled, load.counts
    return {
        "seconds": round(elapsed, 1), "good": good, "texts": load.counts["texts"], "malformed": malformed,
        "busy_429": load.counts[429], "cancelled": len(load.cancelled), "cancelled_seen_by_server": report["cancelled"],
        "never_accepted_at_the_end": len(load.lost), "requests_per_s": round(good / elapsed, 1),
        "texts_per_s": round(load.counts["texts"] / elapsed, 1), "tokens_per_s": round(report["tokens"] / elapsed),
        "p50_ms": round(1000 * latencies[len(latencies) // 2]), "p99_ms": round(1000 * latencies[len(latencies) * 99 // 100]),
        "memory_MiB": [round(early / 1024), round(late / 1024)], "threads": sorted(set(threads)),
    }
