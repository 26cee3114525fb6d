"""Plans of about 550 problems are the stored ones, field by field."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

import oocarrays as ooc
from tests.golden.facts import facts, refusal
from tests.golden.problems import VERBS
from tests.golden.records import Golden
from tests.golden.sources import Folder, Problems

pytestmark = pytest.mark.once

FEW = 5
"""One problem of so many is planned on every run."""
shares = [False, pytest.param(True, marks=pytest.mark.long)]


def is_rare(name: str) -> bool:
    """Return whether a problem is left to CI."""
    return zlib.crc32(name.encode()) % FEW > 0


def found(problems: Problems, rare: bool) -> dict[str, Any]:
    """Plan the problems of one share."""
    return {name: outcome(make) for name, make in problems if is_rare(name) is rare}


def outcome(make: Any) -> dict[str, Any]:
    """Plan a problem; of one that is refused, keep the error."""
    try:
        job = make()
    except ooc.OocError as error:
        return refusal(error)
    return facts(getattr(job, "plan", job))


@pytest.mark.parametrize("rare", shares, ids=lambda rare: "rest" if rare else "few")
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_plans_are_the_stored_ones(tmp_path: Path, golden: Golden, verb: Any, rare: bool) -> None:
    new = found(verb(Folder(tmp_path)), rare)
    golden.check(new, lambda name: name.partition(" ")[0] == verb.__name__ and is_rare(name) is rare)
