"""The constants of the cost model, measured on this machine and kept for the next process."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml

from oocarrays.cli.main import main
from tests.seams import replace_step, set_constants

pytestmark = pytest.mark.usefixtures("settings_of_old")


def flat(measured: dict) -> list[float]:
    return [part for value in measured.values() for part in (value.values() if isinstance(value, dict) else [value])]


def kept(folder: Path) -> dict[str, Any]:
    """Costs in the file of settings in a folder."""
    said: dict[str, Any] = yaml.safe_load((folder / "oocarrays.yaml").read_text())["oocarrays"]["cost"]
    return said


def test_what_is_measured_are_constants_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch, calibration_file_bytes=2**21, calibration_most_bytes=2**27)
    names = set(dask.config.get("oocarrays.cost"))
    (tmp_path / "disk").mkdir()
    assert main(["calibrate", "--store", str(tmp_path / "disk")]) == 0
    measured = kept(tmp_path)
    assert set(measured) <= names
    assert {"read_bandwidth", "write_bandwidth", "encode_bandwidth", "task_seconds"} <= set(measured)
    assert all(0 < value < 1e12 for value in flat(measured) if value != math.inf)
    assert {"cache_bandwidth", "burst_bytes", "sustained_bandwidth"} <= set(measured)
    assert list((tmp_path / "disk").iterdir()) == []


PLANNED = """
import oocarrays as ooc
a = ooc.create_array({}, shape=(64,), chunks=(8,), dtype="f4")
print(ooc.rechunk(a, {}, chunks=(64,), scheduler="threads").plan.seconds)
"""


@pytest.mark.long
def test_what_is_kept_is_what_the_next_process_plans_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "config"))
    seconds = []
    for took in (0.0, 1000.0):
        replace_step(monkeypatch, "measure machine", lambda folder, took=took: {"task_seconds": took})
        assert main(["calibrate"]) == 0
        assert kept(tmp_path / "config") == {"task_seconds": took}
        done = subprocess.run([sys.executable, "-c", PLANNED], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        seconds.append(float(done.stdout))
    assert seconds[0] < 1000 <= seconds[1]


def test_the_command_shows_what_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "config"))
    for took in (6e-4, 1e-4):
        replace_step(monkeypatch, "measure machine", lambda folder, took=took: {"task_seconds": took})
        assert main(["calibrate", "--store", str(tmp_path)]) == 0
    before, after = capsys.readouterr().out.split("kept in")[1:]
    assert str(tmp_path / "config" / "oocarrays.yaml") in before
    for shown in ("task_seconds", "0.0006", "0.0001"):
        assert shown in before, "planned with, and measured"
    assert str(tmp_path / "config" / "oocarrays.yaml") in after


def test_a_folder_that_cannot_be_written_is_one_clear_line(capsys: pytest.CaptureFixture) -> None:
    assert main(["calibrate", "--store", "/nowhere"]) == 2
    assert capsys.readouterr().err == "oocarrays: cannot write in /nowhere: No such file or directory\n"
