"""What a run writes into the log ``oocarrays``: its plan, what happens on the way, how it ended."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import CorruptChunkError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "s.zarr", data=np.arange(64.0).reshape(8, 8), chunks=(2, 8))
    return tmp_path / "s.zarr"


def test_a_run_says_what_it_will_do_and_that_it_is_done(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="oocarrays"):
        ooc.rechunk(source, tmp_path / "t.zarr", chunks=(8, 2), scheduler="threads").run()
    begins, done = [record.getMessage() for record in caplog.records]
    assert "begins\n" in begins
    assert "strategy" in begins
    assert f"{tmp_path}/t.zarr is done: " in done
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_a_run_that_stops_says_why(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (source / "c/1/0").write_bytes(b"nothing")
    with caplog.at_level(logging.INFO, logger="oocarrays"), pytest.raises(CorruptChunkError):
        ooc.rechunk(source, tmp_path / "t.zarr", chunks=(8, 2), scheduler="threads").run()
    assert caplog.records[-1].levelname == "ERROR"
    assert "c/1/0" in caplog.records[-1].getMessage()


def test_on_the_command_line(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, root.handlers = (root.handlers, root.level), []
    try:
        assert main(["rechunk", str(source), str(tmp_path / "a.zarr"), "--chunks=8,2", "--quiet"]) == 0
        assert capfd.readouterr().err == ""
        assert main(["-v", "rechunk", str(source), str(tmp_path / "b.zarr"), "--chunks=8,2", "--quiet"]) == 0
    finally:
        root.handlers, root.level = before
    assert "INFO oocarrays.RechunkJob" in capfd.readouterr().err
