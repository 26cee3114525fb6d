"""Pages of Markdown as programs: what stands in their fences is run from top to bottom, in a folder of its own.

```python   is run, in one namespace a page, as doctest runs: what it prints must be the ```text that follows
```sh       lines that begin with "oocarrays" are run by the command line's own main; others are left to the reader
```text     what was printed: compared; "…" stands for anything
```text typical      the same, where figures depend on the machine: each number stands for any, with its unit
```sh ends 143       what is printed includes errors, and the exit code is this; of 143, SIGTERM ends the run midway
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import os
import re
import shlex
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oocarrays.cli.main import main
from tests.seams import replace_step, set_constants, step

FENCE = re.compile(r"```(\w+)([^\n]*)\n(.*?)```", re.DOTALL)
ELSEWHERE = "elsewhere"
"""Word behind a fence's language: what it shows needs what no test machine has, so it is parsed, and not run."""
TYPICAL = "typical"
"""Word behind a fence's language: figures that are printed are others on another machine."""
ENDS = re.compile(r"ends (\d+)")
"""Words behind a fence's language: the exit code of its command."""
TERMINATED = 128 + signal.SIGTERM
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
    ends: int | None
    """Exit code that is shown, beside what is printed as errors; None where it is 0 and they are not."""
    text: str
    """Lines between the backticks."""


def fences(page: Path) -> list[Fence]:
    """Return the blocks of a page, in order."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [
        Fence(
            language=language,
            run=ELSEWHERE not in rest,
            typical=TYPICAL in rest,
            ends=int(code[1]) if (code := ENDS.search(rest)) else None,
            text=text,
        )
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
            shows_errors = contextlib.nullcontext() if fence.ends is None else contextlib.redirect_stderr(io.StringIO())
            with contextlib.redirect_stdout(io.StringIO()) as out, shows_errors as errors:
                if fence.language == "python":
                    _python(fence.text, names, page.name)
                else:
                    _commands(fence.text, fence.ends or 0)
            printed = out.getvalue() + (errors.getvalue() if errors else "")


def _python(text: str, names: dict[str, Any], page: str) -> None:
    """Run statements; the value of the last one, where it is an expression, is printed as in a notebook."""
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, page, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), page, "eval"), names)
        if value is not None:
            print(repr(value))


def _commands(text: str, ends: int) -> None:
    for words in _lines(text):
        with _terminated() if ends == TERMINATED else contextlib.nullcontext():
            status = main(words)
        assert (status or 0) == ends, f"oocarrays {shlex.join(words)}: {status}"


@contextlib.contextmanager
def _terminated(after: int = 28) -> Iterator[None]:
    """Send SIGTERM to this process when a run of many small parts has recorded some of them."""
    with pytest.MonkeyPatch.context() as patch:
        set_constants(patch, batch_bytes=1, round_bytes=2**12, box_bytes=2**12, record_seconds=0.0)
        publish, abort, calls, aborted = step("publish entry"), step("abort"), itertools.count(1), threading.Event()

        def published(*args: Any, **kwargs: Any) -> Any:
            made = publish(*args, **kwargs)
            if next(calls) == after:
                os.kill(os.getpid(), signal.SIGTERM)
                aborted.wait(10)
            return made

        def aborting(*args: Any, **kwargs: Any) -> Any:
            aborted.set()
            return abort(*args, **kwargs)

        replace_step(patch, "publish entry", published)
        replace_step(patch, "abort", aborting)
        yield


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
