"""Clients of others against `raddle serve`, with the weights of all-MiniLM-L6-v2.

    python3 conformance/clients/run.py --install            # the packages, into target/clients
    python3 conformance/clients/run.py --raddle target/release/raddle --seconds 120 --json -
    python3 conformance/clients/run.py --raddle target/release/raddle --only packages

Needs the folder that `python3 benches/peers/minilm.py` makes, and for the page the Debian packages chromium and
chromium-driver. Leaves with 1 and the reason if anything isn't as it must be.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "target/clients"
NAMES = ["packages", "page", "load"]


def install():
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--no-warn-conflicts"]
    subprocess.run([*pip, "--target", str(PACKAGES), "--upgrade", "openai", "huggingface_hub", "numpy"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--raddle", default=str(ROOT / "target/release/raddle"))
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--seconds", type=float, default=120, help="of load")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.install:
        return install()
    sys.path.insert(0, str(PACKAGES))
    found = {}
    for name in [arguments.only] if arguments.only else NAMES:
        module = __import__(name)
        more = [arguments.seconds] if name == "load" else []
        found[name] = module.check(arguments.raddle, *more)
        print(f"{name}: {found[name]}", file=sys.stderr)
    if arguments.json:
        text = json.dumps(found, indent=1) + "\n"
        sys.stdout.write(text) if arguments.json == "-" else pathlib.Path(arguments.json).write_text(text)


if __name__ == "__main__":
    main()
