"""Calls and command lines that nobody would write: a few with the same seed each time; more of them by hand."""

from __future__ import annotations

import argparse
import inspect
import random

import pytest

import oocarrays as ooc
from tests.fuzz import calls, commands
from tests.fuzz.watched import tries
from tests.profiles import is_nightly

pytestmark = pytest.mark.long

TRIES = {"calls": 80, "commands": 80}
"""How many are drawn at night; CI draws half."""


@pytest.mark.long
@pytest.mark.parametrize("kind", TRIES)
def test_every_answer_is_right_or_one_line(kind: str) -> None:
    failures = [failure for failure in tries(kind, 0, range(TRIES[kind] // (1 if is_nightly() else 2))) if failure]
    assert not failures, "\n".join(f"{failure}\n{failure.where}" for failure in failures)


def test_what_hangs_or_ends_the_interpreter_is_named() -> None:
    [hung] = [failure for failure in tries("hangs", 0, range(1), seconds=1) if failure]
    assert hung.tried == "hangs(0)"
    assert hung.why.startswith("no answer in 6 s")
    assert "broken.py" in hung.where
    [ended, after] = [failure for failure in tries("ends", 0, range(2)) if failure]
    assert (ended.tried, after.tried) == ("ends(0)", "ends(1)")
    assert ended.why.startswith("the interpreter ended")


def test_every_public_function_is_drawn() -> None:
    functions = {name for name in ooc.__all__ if inspect.isfunction(getattr(ooc, name))}
    assert functions <= set(calls.public())
    assert {"Layout.of", "Section.of", "GenBlock.even", "Block", "kernels.median"} <= set(calls.public())


def test_every_command_and_option_is_drawn() -> None:
    rng = random.Random(1)
    drawn = [commands.draw(rng) for _ in range(2000)]
    assert {words[0] for words in drawn} == set(commands.parsers())
    known = {
        option
        for parser in commands.parsers().values()
        for action in parser._actions
        for option in action.option_strings
        if not isinstance(action, argparse._HelpAction)
    }
    assert known <= {word.partition("=")[0] for words in drawn for word in words}


def test_a_wrong_answer_is_seen() -> None:
    """The same array with one element changed."""
    rng = random.Random(0)
    call = calls.draw(rng, "a", lambda key: None, 0.0)
    with pytest.raises(calls.Wrong):
        calls._same([1, 2, 4], [1, 2, 3], call)
