"""Pages of Markdown as programs: what stands in their fences is run from top to bottom, in a folder of its own.

```python   is run, in one namespace a page, as doctest runs: what it prints must be the ```text that follows
```sh       lines that begin with "oocarrays" are run by the command line's own main; others are left to the reader
```text     what was printed: compared; "…" stands for anything
```text typical      the same, where figures depend on the machine: each number stands for any, with its unit
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oocarrays.cli.main import main

FENCE = re.compile(r"```(\w+)([^\n]*)\n(.*?)```", re.DOTALL)
ELSEWHERE = "elsewhere"
"""Word behind a fence's language: what it shows needs what no test machine has, so it is parsed, and not run."""
TYPICAL = "typical"
"""Word behind a fence's language: figures that are printed are others on another machine."""
NUMBER = re.compile(r"\d+(\\?\.\d+)?((\\? )([kMG]?i?B|m?s|µs)\b)?")
"""A figure, with a unit, where dots and spaces may be escaped."""
NUMBER_PRINTED = r"\d+(\.\d+)?( ([kMG]?i?B|m?s|µs))?"
"""Any figure that is printed in place of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One block of a page."""

    language: str
    """Word after the backticks."""
    run: bool
    """Whether it runs here."""
    typical: bool
    """Whether its numbers stand for others."""
    text: str
    """Lines between the backticks."""


def fences(page: Path) -> list[Fence]:
    """Return the blocks of a page, in order."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [
        Fence(language=language, run=ELSEWHERE not in rest, typical=TYPICAL in rest, text=text)
        for language, rest, text in found
    ]


def play(page: Path) -> None:
    """Run a page in the current folder.

    Raises
    ------
    AssertionError
        Where it prints something else than it says, or a command fails.
    """
    names: dict[str, Any] = {"__name__": "__page__"}
    printed = ""
    for fence in fences(page):
        if fence.language == "text":
            is_said = _like(fence.text, fence.typical).fullmatch(
                _spaced(printed) if fence.typical else _trimmed(printed)
            )
            assert is_said, f"{page.name} says\n{fence.text}\nprinted\n{printed}"
        elif fence.run and fence.language in ("python", "sh"):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                _python(fence.text, names, page.name) if fence.language == "python" else _commands(fence.text)
            printed = out.getvalue()


def _python(text: str, names: dict[str, Any], page: str) -> None:
    """Run statements; the value of the last one, where it is an expression, is printed as in a notebook."""
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, page, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), page, "eval"), names)
        if value is not None:
            print(repr(value))


def _commands(text: str) -> None:
    for words in _lines(text):
        status = main(words)
        assert status in (0, None), f"oocarrays {shlex.join(words)}: {status}"


def _lines(text: str) -> Iterator[list[str]]:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "oocarrays":
            yield words[1:]


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _spaced(text: str) -> str:
    """Return a text with one space between its columns, as their widths depend on the figures in them."""
    return re.sub("(?<=[^\\n ]) +", " ", _trimmed(text))


def _like(text: str, typical: bool) -> re.Pattern[str]:
    parts = map(re.escape, (_spaced(text) if typical else _trimmed(text)).split("…"))
    pattern = ".*".join(parts)
    return re.compile(NUMBER.sub(lambda _: NUMBER_PRINTED, pattern) if typical else pattern, re.DOTALL)
