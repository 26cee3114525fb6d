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

KINDS = ("two-phase", "map_slabs", "scatter")
"""Some of the kinds of jobs; ``python -m tests.full`` knows more, and fails at every call."""
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


@pytest.mark.once
def test_one_clear_error_and_the_next_run_goes_on(shared: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.full", shared, "7", *KINDS]
    env = os.environ | {"LD_PRELOAD": str(shared), "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, cwd=SOURCE.parents[1], env=env, capture_output=True, text=True)
    tries = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-2000:]
    assert {(kind, late) for kind, late, _, _ in tries} == {*product(KINDS, (False, True))}
    assert not [each for each in tries if each[-1] not in ("", "done")]
