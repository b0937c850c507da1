"""What the READMEs and the package show runs."""

import doctest
import pathlib
import re

import pytest
import raddle

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("file", ["README.md", "python/README.md"])
def test_examples_run(file):
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / file).read_text(), re.M | re.S)
    assert examples
    for example in examples:
        exec(compile(example, file, "exec"), {})


def test_docstrings_run():
    assert doctest.testmod(raddle).attempted > 0 and doctest.testmod(raddle).failed == 0
