"""Command lines drawn from the tree of parsers: every command, option and type."""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

from oocarrays.cli.main import FAILED, WRONG_INPUT, main, parser_of_all
from tests.fuzz import pools
from tests.fuzz.calls import Wrong

CODES = (0, FAILED, WRONG_INPUT)
FEW = ("demo", "calibrate")
"""Commands that take seconds: a few of the first, and of the second those that refuse what they are to measure."""


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    [commands] = [a for a in parser_of_all("")._actions if isinstance(a, argparse._SubParsersAction)]
    for parser in commands.choices.values():
        parser.load_options()
    return dict(commands.choices)


def draw(rng: random.Random) -> list[str]:
    """A command line."""
    known = parsers()
    name = rng.choice([name for name in sorted(known) if name not in FEW or rng.random() < 0.2] or sorted(known))
    odd = rng.choice([0.0, 0.1, 0.3])
    words = [word for action in known[name]._actions for word in _words(rng, action, odd)]
    if rng.random() < 0.03:
        words.insert(rng.randrange(len(words) + 1), pools.text(rng, "", odd=1))
    return [name, *words]


def _words(rng: random.Random, action: argparse.Action, odd: float) -> list[str]:
    """What is typed for an argument, if anything."""
    if not action.option_strings:
        return [_text(rng, action, odd)]
    always = action.required or action.dest in ("size", "chunks")
    if isinstance(action, argparse._HelpAction) and rng.random() < 0.98:
        return []
    if not always and rng.random() < 0.75:
        return []
    option = rng.choice(action.option_strings)
    return [option] if action.nargs == 0 else [f"{option}={_text(rng, action, odd)}"]


def _text(rng: random.Random, action: argparse.Action, odd: float) -> str:
    if action.choices and rng.random() >= odd:
        return str(rng.choice(sorted(action.choices)))
    return pools.text(rng, action.dest, odd)


def attempt(rng: random.Random, folder: Path, say: Callable[[str], None]) -> None:
    """One command: raises where its exit code or what it prints is not as it may be."""
    words = draw(rng)
    if words[0] == "calibrate" and not any(word.startswith("--store") for word in words):
        words.append(f"--store={rng.choice(pools.BAD)}/new")
    say(f"oocarrays {' '.join(map(shlex.quote, words))!r}"[:2000])
    run(words)


def run(words: list[str]) -> int:
    """What a command returns.

    Raises
    ------
    Wrong
        Where a failure is not said in one line.
    """
    out, err = _terminal("strict"), _terminal("backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as left:
            code = int(left.code or 0)
    err.flush()
    said = err.buffer.getvalue().decode()
    if code not in CODES:
        raise Wrong(f"exit code {code}")
    if code and (said.count("\n") != 1 or len(said) > 3000):
        raise Wrong(f"exit code {code}, and not one line: {pools.shown(said)}")
    return code


def _terminal(errors: str) -> io.TextIOWrapper:
    """What encodes what is printed, as a terminal does."""
    return io.TextIOWrapper(io.BytesIO(), "utf-8", errors)
