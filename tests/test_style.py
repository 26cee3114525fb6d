"""Phrases that no page, docstring or message uses: the list, and what looks for them."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "style"
STYLE = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


@pytest.mark.long  # .ci/lint runs it, too
def test_nothing_that_people_read_uses_a_banned_phrase() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The how manieth rank.", ["how manieth"]),
        ("It keeps\ntargets that are\nno places.", ["that are no"]),
        ("It takes no longer than that; scratch that is no longer there.", []),
        ("In order to go\non, Mended: a fault.", ["Mended:", "In order to"]),
        ("less chunks of the the array", ["the the", "less chunks"]),
        ("Less than three chunks are read.", []),
    ],
)
def test_each_phrase_is_found_and_no_other(text: str, words: list[str]) -> None:
    assert [found for _, found, _ in STYLE.found(text, list(STYLE.oddities()))] == words


def test_a_file_that_is_named_is_read_and_the_line_and_advice_are_said(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("One line.\nWe leverage chunks.\n")
    done = subprocess.run([sys.executable, SCRIPT, page], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f'{page}:2: leverage: write "use"\n', 1)
