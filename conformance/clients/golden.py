"""The 200 sentences of data/minilm, and the vectors that sentence-transformers has made of them."""

import json

import numpy
from server import GOLDEN


def read():
    sentences = json.loads((GOLDEN / "sentences.json").read_text())
    data = (GOLDEN / "vectors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + size])["vectors"]
    assert entry["dtype"] == "F16" and entry["shape"] == [len(sentences), 384], entry
    start, end = entry["data_offsets"]
    vectors = numpy.frombuffer(data[8 + size + start : 8 + size + end], dtype="<f2").reshape(entry["shape"])
    return sentences, vectors.astype("float32")
