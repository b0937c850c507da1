"""Tiny models of random weights with what `transformers`, `sentence-transformers` and `sentencepiece` make of texts with
them: what `crates/nn/tests/it/tiny.rs` compares with.

    python3 benches/peers/tiny.py --into data/tiny [--only NAME]

Needs torch, transformers, sentence-transformers, sentencepiece, protobuf and safetensors (the versions of `data/README.md`).
"""

import argparse
import io
import json
import pathlib
import shutil
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
            scores = []
            for a, b in pairs:
                pair = tokenizer.encode(texts[a], texts[b])
                # Without them all tokens are of the first kind.
                types = {"token_type_ids": torch.tensor([pair.type_ids])} if "type_vocab_size" in config else {}
                scores.append(model(torch.tensor([pair.ids]), **types).logits[0])
            golden["scores"] = torch.stack(scores)
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


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert_tokenizer():
    words = ["a", "thread", "stream", "##s", "wait", "for", "the", "device", "tick", "of", "and", "is", ".", ",", "two"]
    words += ["more", "long", "another", "##e", "##i", "e", "1", ";"]
    return transformers.BertTokenizer(vocab={word: index for index, word in enumerate(BERT + words)})


def electra(folder):
    tokenizer = bert_tokenizer()
    config = transformers.ElectraConfig(
        vocab_size=len(tokenizer), embedding_size=12, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=48, layer_norm_eps=1e-6, hidden_act="gelu_new", num_labels=1,
    )
    model = transformers.ElectraForSequenceClassification(config).eval()
    spread(model)
    names = ["model_type", "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads"]
    names += ["intermediate_size", "max_position_embeddings", "layer_norm_eps", "hidden_act", "type_vocab_size"]
    config = {"architectures": ["ElectraForSequenceClassification"], **{name: getattr(config, name) for name in names}}
    save(folder, config, model, tokenizer.backend_tokenizer, TEXTS[:-1], [[1, 2], [2, 0]])


def modules(folder, scratch):
    """A folder of sentence-transformers with all modules that a text's vector may go through, and a prompt that isn't pooled."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer import modules as kinds

    tokenizer = bert_tokenizer()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=40, hidden_act="silu",
    )
    model = transformers.BertModel(config).eval()
    spread(model)
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    steps = [
        kinds.Transformer(str(scratch), max_seq_length=20),
        kinds.Pooling(16, ["cls", "max", "mean", "weightedmean", "lasttoken"], include_prompt=False),
        kinds.Dropout(0.5),
        kinds.LayerNorm(80),
        kinds.Dense(80, 12, activation_function=torch.nn.Mish(), use_residual=True),
        kinds.Dense(12, 12, bias=False, activation_function=torch.nn.SiLU(), use_residual=True),
        kinds.Normalize(),
    ]
    for step in steps[1:]:
        spread(step)
    prompts = {"query": "the stream is: ", "empty": ""}
    whole = sentence_transformers.SentenceTransformer(modules=steps, device="cpu", prompts=prompts)
    whole.save(str(folder), create_model_card=False)
    # As older versions of it lay folders out.
    inside = folder / "0_Transformer"
    inside.mkdir(exist_ok=True)
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json"]:
        shutil.move(folder / file, inside / file)
    listed = json.loads((folder / "modules.json").read_text())
    listed[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(listed, indent=1) + "\n")
    for file in ["README.md", "special_tokens_map.json", "vocab.txt"]:
        (folder / file).unlink(missing_ok=True)
    texts = ["", *TEXTS[1:4], TEXTS[-1]]
    loaded = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    vectors = {
        name: torch.tensor(loaded.encode(texts, batch_size=1, prompt_name=name)) for name in ["empty", "query"]
    }
    safetensors.torch.save_file(vectors, folder / "golden.safetensors")
    (folder / "golden.json").write_text(json.dumps({"texts": texts}) + "\n")


def agreement(file, scratch):
    """Tokens by `tokenizer.json` with a `tokenizer_config.json` that says something else."""
    text = "Hello Ünï uni 日本 hello [SEP] x"
    words = ["hello", "Hello", "uni", "ünï", "Ünï", "Uni", "日", "本", "日本", "x", "[", "]", "sep", "SEP"]
    vocabulary = {word: index for index, word in enumerate(BERT + words)}

    def bert(lower, accents, chinese):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(True, chinese, accents, lower)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = tokenizers.decoders.WordPiece()
        tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokenizer.add_special_tokens(BERT)
        return tokenizer

    def roberta(space):
        pieces = ["<s>", "<pad>", "</s>", "<unk>", "a", "Ġ", "Ġa", "b", "Ġb", "<mask>"]
        pairs = [("Ġ", "a"), ("Ġ", "b")]
        model = tokenizers.models.BPE({piece: index for index, piece in enumerate(pieces)}, pairs)
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=space)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
        return tokenizer

    def directed(tokenizer, direction):
        tokenizer.enable_truncation(3, direction=direction)
        return tokenizer

    berts = ["BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "MPNetTokenizer", "ElectraTokenizer"]
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    cases = []
    for lower, accents, chinese in [(True, None, True), (False, None, True), (False, True, False), (True, False, False)]:
        for config in [
            None,
            {},
            {"do_lower_case": False},
            {"do_lower_case": True},
            {"strip_accents": True, "do_lower_case": False},
            {"strip_accents": False},
            {"tokenize_chinese_chars": False},
            {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": True},
            {"split_special_tokens": True},
        ]:
            cases.append((bert(lower, accents, chinese), config, text))
    for name in berts:
        cases.append((bert(False, None, True), {"tokenizer_class": name, **special}, text))
    cases.append((bert(False, False, False), {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}, text))
    for space in [False, True]:
        for config in [{}, {"add_prefix_space": True}, {"add_prefix_space": False}]:
            cases.append((roberta(space), {"tokenizer_class": "RobertaTokenizer", **config}, "a b a"))
    for config in [{}, {"truncation_side": "left"}, {"truncation_side": "right"}]:
        for direction in ["left", "right"]:
            cases.append((directed(bert(True, None, True), direction), config, text))
    files, told = [], []
    for tokenizer, config, text in cases:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        tokenizer.save(str(scratch / "tokenizer.json"), pretty=False)
        (scratch / "config.json").write_text('{"model_type": "bert"}')
        if config is not None:
            (scratch / "tokenizer_config.json").write_text(json.dumps(config))
        loaded = transformers.AutoTokenizer.from_pretrained(str(scratch))
        ids = loaded(text, truncation=True, max_length=7)["input_ids"]
        whole = loaded(text)["input_ids"]
        written = (scratch / "tokenizer.json").read_text()
        if written not in files:
            files.append(written)
        case = {"tokenizer": files.index(written), "config": config, "text": text, "ids": whole, "cut": ids}
        told.append(json.dumps(case, ensure_ascii=False))
    lists = [f'"{name}": [\n' + ",\n".join(lines) + "\n]" for name, lines in [("tokenizers", files), ("cases", told)]]
    file.write_text("{" + ", ".join(lists) + "}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=pathlib.Path, required=True)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    into = arguments.into
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        made = {
            "mpnet": lambda: mpnet(into / "mpnet"),
            "xlm-roberta": lambda: xlm_roberta(into / "xlm-roberta", scratch),
            "electra": lambda: electra(into / "electra"),
            "modules": lambda: modules(into / "modules", scratch / "model"),
            "agreement": lambda: agreement(into / "agreement.json", scratch / "tokenizer"),
        }
        for name, make in made.items():
            if arguments.only in (None, name):
                make()


if __name__ == "__main__":
    main()
