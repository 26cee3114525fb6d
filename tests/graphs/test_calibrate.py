"""The constants of the cost model, measured on this machine and kept for the next process."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import dask
import pytest
import yaml

from oocarrays.cli.main import main
from oocarrays.errors import InputError
from oocarrays.graphs.calibrate.keeping import keep
from oocarrays.graphs.calibrate.machine import calibrate
from oocarrays.plan.machine import COST_NAMES
from tests.seams import set_constants

pytestmark = pytest.mark.usefixtures("settings_of_old")


def flat(measured: dict) -> list[float]:
    return [part for value in measured.values() for part in (value.values() if isinstance(value, dict) else [value])]


def test_what_is_measured_are_constants_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch, calibration_file_bytes=2**21, calibration_most_bytes=2**27)
    measured = calibrate(tmp_path)
    assert set(measured) <= set(COST_NAMES)
    assert {"read_bandwidth", "write_bandwidth", "encode_bandwidth", "task_seconds"} <= set(measured)
    assert all(0 < value < 1e12 for value in flat(measured) if value != math.inf)
    assert {"cache_bandwidth", "burst_bytes", "sustained_bandwidth"} <= set(measured)
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_is_what_the_next_process_plans_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "config"))
    path = keep({"read_bandwidth": 12345.0, "task_seconds": 1e-7, "decode_bandwidth": {"zstd": 77.0, "other": 5.0}})
    assert yaml.safe_load(path.read_text())["oocarrays"]["cost"]["task_seconds"] == 1e-7
    code = "from oocarrays.graphs.settings import costs as c; print(c().read_bandwidth, c().decode_bandwidth['zstd'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert done.stdout.split() == ["12345.0", "77.0"], done.stderr


def test_the_command_shows_what_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "config"))
    monkeypatch.setattr("oocarrays.cli.machine.calibrate", lambda folder: {"task_seconds": 1e-4})
    dask.config.set({"oocarrays.cost.task_seconds": 6e-4})
    assert main(["calibrate", "--store", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "task_seconds" in out
    assert "0.0006" in out
    assert "0.0001" in out
    assert str(tmp_path / "config" / "oocarrays.yaml") in out


def test_a_folder_that_cannot_be_written_is_one_clear_line(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(InputError, match="/nowhere"):
        calibrate("/nowhere")
    assert main(["calibrate", "--store", "/nowhere"]) == 2
    assert capsys.readouterr().err == "oocarrays: cannot write in /nowhere: No such file or directory\n"
