"""The `openai` and `huggingface_hub` packages, as their users call them, against a running server."""

import json
import math
import struct

import golden
import httpx2 as httpx
import numpy
import openai
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from server import serving

KEY = "a-key-of-this-test"


def cosine(found, expected):
    found, expected = numpy.asarray(found, dtype="float64"), numpy.asarray(expected, dtype="float64")
    return float(found @ expected / numpy.linalg.norm(found) / numpy.linalg.norm(expected))


def refused(status, call):
    try:
        call()
    except (openai.APIStatusError, HfHubHTTPError) as error:
        assert error.response.status_code == status, error
        return error
    raise AssertionError(f"expected an error of status {status}")


def openai_package(server, sentences, vectors):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
    # It asks for base64 unless told otherwise; both must say the same.
    coded = client.embeddings.create(model="any", input=sentences[:20])
    plain = client.embeddings.create(model="any", input=sentences[:20], encoding_format="float")
    assert [item.index for item in coded.data] == list(range(20))
    for one, other, expected in zip(coded.data, plain.data, vectors):
        assert len(one.embedding) == 384 and abs(math.hypot(*one.embedding) - 1) < 1e-5
        assert numpy.array_equal(numpy.float32(one.embedding), numpy.float32(other.embedding))
        assert cosine(one.embedding, expected) > 0.99999
    assert coded.object == "list" and coded.model == "all-MiniLM-L6-v2"
    assert coded.usage.prompt_tokens == coded.usage.total_tokens > 40
    one = client.embeddings.create(model="any", input=sentences[2], dimensions=64)
    part = numpy.float32(plain.data[2].embedding[:64])
    assert cosine(one.data[0].embedding, part) > 0.999999 and len(one.data[0].embedding) == 64
    tokens = httpx.post(f"{server.url}/tokenize", json={"inputs": sentences[2]}, headers={"Authorization": f"Bearer {KEY}"})
    ids = [token["id"] for token in tokens.json()[0]]
    for given in (ids, ids[1:-1]):
        same = client.embeddings.create(model="any", input=given, encoding_format="float")
        assert same.data[0].embedding == plain.data[2].embedding
    assert [model.id for model in client.models.list()] == ["all-MiniLM-L6-v2"]
    error = refused(400, lambda: client.embeddings.create(model="any", input=[]))
    assert isinstance(error, openai.BadRequestError) and error.type == "invalid_request_error", error
    assert "input: " in error.message and "inputs" not in error.message, error
    refused(400, lambda: client.embeddings.create(model="any", input="a", dimensions=385))
    # As many as OpenAI takes, and one more.
    assert len(client.embeddings.create(model="any", input=["a"] * 2048).data) == 2048
    refused(413, lambda: client.embeddings.create(model="any", input=["a"] * 2049))
    # Without the version in the address, too.
    bare = openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0)
    assert bare.embeddings.create(model="any", input=sentences[2]).data[0].embedding == coded.data[2].embedding
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="another", max_retries=0)
    error = refused(401, lambda: stranger.embeddings.create(model="any", input="a"))
    assert isinstance(error, openai.AuthenticationError)


def hub_package(server, sentences, vectors):
    for place in (server.url, f"{server.url}/embed"):
        client = InferenceClient(place, token=KEY)
        found = client.feature_extraction(sentences[2])
        assert found.shape == (1, 384) and found.dtype == numpy.float32
        assert cosine(found[0], vectors[2]) > 0.99999
        several = client.feature_extraction(sentences[:5], truncate=True, normalize=True)
        assert several.shape == (5, 384)
        raw = client.feature_extraction(sentences[2], normalize=False)[0]
        assert abs(numpy.linalg.norm(raw) - 1) > 0.1 and cosine(raw, found[0]) > 0.999999
        refused(413, lambda: client.feature_extraction("word " * 300, truncate=False))
        refused(422, lambda: client.feature_extraction("a", prompt_name="none"))
    similarity = InferenceClient(f"{server.url}/similarity", token=KEY)
    found = similarity.sentence_similarity(sentences[2], other_sentences=sentences[2:6])
    expected = [cosine(vectors[2], vector) for vector in vectors[2:6]]
    assert numpy.allclose(found, expected, atol=1e-3), (found, expected)
    refused(401, lambda: InferenceClient(server.url, token="another").feature_extraction("a"))


def by_hand(server, sentences, vectors):
    """What neither package does: bits, and what a log must not hold."""
    headers = {"Authorization": f"Bearer {KEY}", "x-request-id": "by-hand"}
    answer = httpx.post(f"{server.url}/embed", json={"inputs": "a word that nobody logs: xylotomous"}, headers=headers)
    assert answer.status_code == 200 and answer.headers["x-request-id"] == "by-hand"
    body = {"input": "a word that nobody logs: xylotomous", "encoding_format": "base64"}
    import base64
    coded = httpx.post(f"{server.url}/v1/embeddings", json=body, headers=headers).json()
    numbers = base64.b64decode(coded["data"][0]["embedding"])
    assert struct.unpack("<384f", numbers) == tuple(numpy.float32(answer.json()[0]).tolist())
    wrong = httpx.post(f"{server.url}/embed", json={"inputs": {"xylotomous": 1}}, headers=headers)
    assert wrong.status_code == 422 and wrong.json()["error_type"] == "validation"
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert "te_request_count" in httpx.get(f"{server.url}/metrics").text
    info = httpx.get(f"{server.url}/info", headers=headers).json()
    assert info["model_type"] == {"embedding": {"pooling": "mean"}} and info["max_input_length"] == 256


def check(raddle):
    sentences, vectors = golden.read()
    with serving(raddle, "--api-key", KEY) as server:
        openai_package(server, sentences, vectors)
        hub_package(server, sentences, vectors)
        by_hand(server, sentences, vectors)
        server.terminate()
        report = server.end()
        assert report["given_up"] == 0 and report["accepted"] > 20, report
        lines = server.logged()
        assert any(line.get("id") == "by-hand" and line["status"] == 200 for line in lines)
        log = server.log.read_text()
        assert "xylotomous" not in log and KEY not in log, "the log holds what users have sent"
    return {"requests": report["accepted"], "openai": openai.__version__}
