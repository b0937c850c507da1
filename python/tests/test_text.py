"""Sentence encoders."""

import pytest
import raddle
from raddle import _raddle
from test_threads import together

TEXTS = ["a red fox", "fox", "", "the fox is red red red"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    _raddle._write_random_model(folder, ["a", "red", "fox", "the", "is"], 5)
    return folder


def test_texts_become_vectors(folder, device):
    encoder = raddle.SentenceEncoder(folder, device)
    rows = encoder.encode(TEXTS)
    assert rows.shape == (4, encoder.width) and rows.device == device == encoder.device
    assert (rows * rows).sum(1).tolist() == pytest.approx([1.0] * 4, rel=1e-5)
    assert encoder.encode(TEXTS[1]).tolist() == pytest.approx(rows[1].tolist(), abs=1e-6)
    assert rows[0].tolist() != pytest.approx(rows[1].tolist(), abs=1e-3)
    array = encoder.encode(TEXTS, convert_to_numpy=True)
    assert array.shape == (4, encoder.width) and abs(array - rows.numpy()).max() < 1e-6
    assert encoder.max_seq_length == 64


def test_threads_share_an_encoder(folder):
    encoder = raddle.SentenceEncoder(str(folder))
    expected = encoder.encode(TEXTS).tolist()
    together(lambda index: [encoder.encode(TEXTS).tolist() == expected or pytest.fail("differs") for _ in range(5)])


def test_mistakes_are_told(folder, tmp_path):
    with pytest.raises(OSError, match="config.json"):
        raddle.SentenceEncoder(tmp_path)
    encoder = raddle.SentenceEncoder(folder)
    with pytest.raises(ValueError, match="at least one text, found none"):
        encoder.encode([])
    with pytest.raises(TypeError):
        encoder.encode([3])
    with pytest.raises(TypeError, match="f32, f16 or bf16"):
        raddle.SentenceEncoder(folder, dtype=raddle.int64)
