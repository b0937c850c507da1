"""Tiny models of random weights with what `transformers` and `sentencepiece` make of texts with them: what
`crates/nn/tests/it/tiny.rs` compares with.

    python3 benches/peers/tiny.py --into data/tiny

Needs torch, transformers, sentencepiece, protobuf and safetensors (the versions of `data/README.md`).
"""

import argparse
import io
import json
import pathlib
import tempfile
import unicodedata

import safetensors.torch
import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as sentencepiece_model
import tokenizers
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = [
    "",
    "a thread",
    "The stream waits for the device.",
    "Ünïcödé and ½ of a ﬁve-Ｗｉｄｅ　ﬃ",
    "two  spaces   and\tmore \n",
    "e\u0301 is é; ① is 1; ㌖; ﷺ",
    "soft\u00adhyphen, zero\u200bwidth, \ufeffmark",
    "日本語のテキスト と 한국어 텍스트",
    "\u0001\u0002control",
    "long " + "a stream waits for the tick of another stream, and " * 14,
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def save(folder, config, model, tokenizer, texts, pairs=None):
    """The model, and the means of the last layer's rows, each text alone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if "position_ids" not in name}
    safetensors.torch.save_file(state, folder / "model.safetensors", {"format": "pt"})
    encoder = getattr(model, model.base_model_prefix)
    tokenizer.enable_truncation(config["max_position_embeddings"] - 2)
    ids = [tokenizer.encode(text).ids for text in texts]
    with torch.no_grad():
        means = [encoder(torch.tensor([text])).last_hidden_state[0].mean(0) for text in ids]
        golden = {"vectors": torch.stack(means)}
        if pairs:
            ids_of = [tokenizer.encode(texts[a], texts[b]).ids for a, b in pairs]
            golden["scores"] = torch.stack([model(torch.tensor([pair])).logits[0] for pair in ids_of])
    safetensors.torch.save_file(golden, folder / "golden.safetensors")
    told = {"texts": texts, "ids": ids, "pairs": pairs or []}
    (folder / "golden.json").write_text(json.dumps(told) + "\n")


def spread(model):
    """Weights so large that a mistake shows: as they begin, all texts are alike."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, tensor in sorted(model.state_dict().items()):
            if tensor.dtype == torch.float32:
                scale = 1.0 if "embedding" in name or "bias.weight" in name else 0.3
                shift = 1.0 if "LayerNorm.weight" in name else 0.0
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * scale + shift)


def mpnet(folder):
    words = ["[UNK]", "a", "thread", "stream", "##s", "wait", "for", "the", "device", "tick", "of", "and", "is", ".", ","]
    words += ["two", "more", "long", "another", "##e", "##i", "e", "1", ";"]
    vocabulary = {word: index for index, word in enumerate(SPECIAL + words + ["<mask>"])}
    tokenizer = transformers.MPNetTokenizer(vocab=vocabulary)
    config = transformers.MPNetConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=152, layer_norm_eps=1e-5, num_labels=1,
    )
    model = transformers.MPNetForSequenceClassification(config).eval()
    spread(model)
    names = ["model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
    names += ["max_position_embeddings", "layer_norm_eps", "hidden_act", "pad_token_id", "relative_attention_num_buckets"]
    config = {"architectures": ["MPNetForSequenceClassification"], **{name: getattr(config, name) for name in names}}
    save(folder, config, model, tokenizer.backend_tokenizer, TEXTS, [[1, 2], [2, 0], [2, 4]])


def rules():
    """A part of what the rules of XLM-RoBERTa's table are, so that the file is small: NFKC, some that go, some that are spaces."""
    made = {chr(code): "" for code in [1, 2, 0x200B, 0xFEFF]} | {chr(code): " " for code in [9, 10, 13, 0x3000]}
    made["e\u0301"] = "é"
    for code in [*range(0xA0, 0x100), *range(0xFB00, 0xFB07), *range(0xFF01, 0xFF5F), 0x2460, 0x3316, 0xFDFA]:
        normal = unicodedata.normalize("NFKC", chr(code))
        if normal != chr(code):
            made[chr(code)] = normal
    spelled = lambda text: " ".join(f"{ord(char):X}" for char in text)
    return "".join(f"{spelled(char)}\t{spelled(normal)}\n" for char, normal in made.items())


def xlm_roberta(folder, scratch):
    table = scratch / "rules.tsv"
    table.write_text(rules())
    sentences = json.loads((ROOT / "data/minilm/sentences.json").read_text())
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS + sentences), model_writer=trained, vocab_size=220, model_type="unigram",
        character_coverage=0.98, normalization_rule_tsv=str(table), minloglevel=2, num_threads=1,
    )
    oracle = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    proto = sentencepiece_model.ModelProto.FromString(trained.getvalue())
    # As fairseq numbers them: sentencepiece's first three are others, and all that follow are one further.
    pieces = [(name, 0.0) for name in SPECIAL] + [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    charsmap = proto.normalizer_spec.precompiled_charsmap
    tokenizer = transformers.XLMRobertaTokenizer(
        vocab=pieces + [("<mask>", 0.0)], _spm_precompiled_charsmap=charsmap
    ).backend_tokenizer
    for text in TEXTS:
        ids = [0, *(3 if piece == 0 else piece + 1 for piece in oracle.encode(text)), 2]
        assert tokenizer.encode(text).ids == ids, (text, tokenizer.encode(text).tokens, oracle.encode(text, out_type=str))
    config = transformers.XLMRobertaConfig(
        vocab_size=len(pieces) + 1, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=66, layer_norm_eps=1e-5, type_vocab_size=1, pad_token_id=1, num_labels=1,
    )
    model = transformers.XLMRobertaForSequenceClassification(config).eval()
    spread(model)
    names = ["model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
    names += ["max_position_embeddings", "layer_norm_eps", "hidden_act", "pad_token_id", "type_vocab_size"]
    config = {"architectures": ["XLMRobertaForSequenceClassification"], **{name: getattr(config, name) for name in names}}
    save(folder, config, model, tokenizer, TEXTS[:-1], [[1, 2], [2, 0]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    into = parser.parse_args().into
    into.mkdir(parents=True, exist_ok=True)
    mpnet(into / "mpnet")
    with tempfile.TemporaryDirectory() as scratch:
        xlm_roberta(into / "xlm-roberta", pathlib.Path(scratch))


if __name__ == "__main__":
    main()
