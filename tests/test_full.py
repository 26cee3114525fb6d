"""Disks that are full, or over quota, at any call of the system: one clear error, and the next run goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

KINDS = ("two-phase", "map_slabs", "scatter")
"""Some of the kinds of jobs; ``python -m tests.full`` knows more, and fails at every call."""
MODES = ("NB", "CB", "IB")
"""Those of streams, of which ``python -m tests.streams.full`` fails at every call, too."""
SOURCE = Path(__file__).with_name("full.c")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands before the system's own calls."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no compiler for Linux here")
    made = tmp_path_factory.mktemp("full") / "full.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def told(shared: Path, tmp_path: Path, module: str, every: int, kinds: tuple[str, ...]) -> list[list[object]]:
    """What a module tells of each try, whose kinds must be these."""
    words = [sys.executable, "-m", module, shared, str(every), *kinds]
    env = os.environ | {"LD_PRELOAD": str(shared), "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, cwd=SOURCE.parents[1], env=env, capture_output=True, text=True)
    tries = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-2000:]
    assert {(kind, late) for kind, late, _, _ in tries} == {*product(kinds, (False, True))}
    return tries


@pytest.mark.long
def test_one_clear_error_and_the_next_run_goes_on(shared: Path, tmp_path: Path) -> None:
    tries = told(shared, tmp_path, "tests.full", 7, KINDS)
    fine = "", "done", "not reached; done"  # threads make some calls together, more or fewer of them
    assert not [each for each in tries if each[-1] not in fine]


@pytest.mark.long
def test_streams_lose_nothing_that_was_flushed_and_are_appended_to_once_there_is_room(
    shared: Path, tmp_path: Path
) -> None:
    tries = told(shared, tmp_path, "tests.streams.full", 5, MODES)
    assert not [each for each in tries if each[-1]]
