"""Explanations, reprs, help and error messages are the stored ones, but for their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oocarrays as ooc
from tests.golden import said
from tests.golden.problems import VERBS
from tests.golden.records import Golden
from tests.golden.sources import Folder
from tests.golden.test_plans import is_rare

pytestmark = [pytest.mark.once, pytest.mark.long]


def explained(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Explain one problem in five."""
    folder = Folder(path)
    for verb in VERBS:
        for name, make in verb(folder):
            if not is_rare(name):
                yield f"explain {name}", said.masked(explanation(make), path)


def explanation(make: Any) -> str:
    """Return the explanation of a plan, or the error of a problem that is refused."""
    try:
        job = make()
    except ooc.OocError as error:
        return f"{type(error).__name__}: {error}"
    return str(job.explain()) if hasattr(job, "explain") else repr(job)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [("explain", explained), ("help", said.helps), ("refusal", said.refusals), ("shown", said.shown)],
    ids=["explain", "help", "refusals", "shown"],
)
def test_texts_are_the_stored_ones(
    tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch, kind: str, texts: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    new = {f"{kind}: {name}": lines for name, lines in texts(tmp_path)}
    golden.check(new, lambda name: name.startswith(f"{kind}: "))
