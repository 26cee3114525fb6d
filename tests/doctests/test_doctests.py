"""Examples of internal functions, by module, in the text files beside this one: calls, and what they return."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

MODULE = re.compile(r"^(oocarrays\.[\w.]+)\n=+\n", re.MULTILINE)
NAME = re.compile(r"^([\w.]+)\n-+\n", re.MULTILINE)


def modules() -> dict[str, str]:
    """Return the text below each module's heading."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.txt"))]
    parts = [part for text in texts for part in MODULE.split(text)[1:]]
    return dict(zip(parts[::2], parts[1::2], strict=True))


EXAMPLES = modules()


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_of_internal_functions_give_what_they_show(module: str) -> None:
    names = vars(importlib.import_module(module))
    parts, runner, said = (
        NAME.split(EXAMPLES[module])[1:],
        doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS),
        [],
    )
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        example = doctest.DocTestParser().get_doctest(text, dict(names), f"{module}.{name}", None, None)
        assert example.examples, f"{module}.{name} has no example"
        runner.run(example, out=said.append)
    assert not said, "".join(said)
