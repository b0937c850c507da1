"""What the READMEs and the package show runs."""

import doctest
import pathlib
import re
import subprocess
import sys

import pytest
import raddle

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("file", ["README.md", "python/README.md", "docs/python.md"])
def test_examples_run(file):
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / file).read_text(), re.M | re.S)
    assert examples
    for example in examples:
        exec(compile(example, file, "exec"), {})


def test_docstrings_run():
    assert doctest.testmod(raddle).attempted > 0 and doctest.testmod(raddle).failed == 0


def test_what_differs_is_told():
    sys.path.insert(0, str(ROOT / "python/tests/opinfo"))
    import lists

    text = (ROOT / "docs/python.md").read_text()
    for name, differences in lists.DIFFERS.items():
        assert lists.absent(name) is None, name
        for _, _, reason in differences:
            assert f"- {reason}\n" in text, reason


def test_stubs_are_those_of_the_module_and_have_no_faults():
    run = lambda *args: subprocess.run([sys.executable, *args], capture_output=True, text=True)  # noqa: E731
    made = run(ROOT / "python/stubs.py", "--check")
    assert made.returncode == 0, made.stderr
    pytest.importorskip("mypy")
    checked = run("-m", "mypy", "--cache-dir=/dev/null", *(ROOT / "python/raddle").glob("*.pyi"))
    assert checked.returncode == 0, checked.stdout
