"""The benchmarks' scripts, tiny, each in a process that is forked from one that has imported everything."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.dying import Server

FOLDER = Path(__file__).parents[1] / "benchmarks" / "old"
ONCE = ("--rounds", "1", "--discard", "0", "--pause", "0")
"""One round of a benchmark that has rounds, as short as may be."""
SECONDS = 240


def printed(runs: Server, script: str, *arguments: object) -> str:
    """What a script prints where it ends well."""
    child = runs.start("script", FOLDER / script, *map(str, arguments))
    assert child.ends_within(SECONDS) == 0, child.err
    return child.out


def found(runs: Server, folder: Path, script: str, *arguments: object) -> Any:
    """What a script writes as JSON."""
    out = folder / "out.json"
    printed(runs, script, *arguments, "--json", out)
    return json.loads(out.read_text())


def results(runs: Server, folder: Path, script: str, *arguments: object) -> list[dict]:
    """What a benchmark that keeps its data in a folder finds in one round."""
    told: list[dict] = found(runs, folder, script, *arguments, *ONCE, "--workdir", folder / "work")["results"]
    return told


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Scripts import what lies beside them."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
