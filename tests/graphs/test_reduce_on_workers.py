"""Reductions on the workers of a cluster: the same bits as on threads, also where a worker dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import KernelError
from tests.flat import flat
from tests.graphs.clusters import events, kill_when, within
from tests.seams import set_constants
from tests.small import CODECS, make

pytestmark = pytest.mark.long

FIELD = np.random.default_rng(2).normal(1e4, 1, (384, 64, 48)).astype("f4")
MONTHS = np.arange(384) // 16 % 12


@pytest.fixture
def field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    set_constants(monkeypatch, box_bytes=2**16)
    make(tmp_path / "field.zarr", FIELD, chunks=(4, 64, 48), compressors=CODECS["zstd"])
    return tmp_path / "field.zarr"


@pytest.mark.parametrize("asked", [{"how": "std", "axis": 0, "by": MONTHS}, {"how": "mean"}, {"how": "max", "axis": 2}])
def test_the_same_bits_as_on_threads(three: Client, field: Path, tmp_path: Path, asked: dict[str, Any]) -> None:
    wanted = flat(ooc.reduce, field, **asked, scheduler="threads")
    given = within(lambda: flat(ooc.reduce, field, **asked, memory="64MiB", scheduler=three))
    assert np.asarray(given).tobytes() == np.asarray(wanted).tobytes()
    job = flat(ooc.reduce, field, **asked, target=tmp_path / "made.zarr", memory="64MiB", scheduler=three)
    made = within(job.run)
    assert made[...].tobytes() == np.asarray(wanted).tobytes()
    assert job.meter.messages == job.plan.traffic.messages
    assert job.meter.read_requests == job.plan.traffic.read_requests
    assert len(job._graph) == job.plan.traffic.tasks


def test_a_function_that_fails_leaves_no_target(three: Client, field: Path, tmp_path: Path) -> None:
    how = (lambda block, axes: 1 / (block.shape[0] == 1) * block.sum(axis=axes), np.add, np.negative)
    job = ooc.reduce(field, how, 0, target=tmp_path / "made.zarr", memory="64MiB", scheduler=three)
    with pytest.raises(KernelError, match="division by zero"):
        within(job.run)
    assert not (tmp_path / "made.zarr").exists()


@pytest.mark.parametrize("verb", ["reduce", "send", "write"])
def test_a_worker_that_dies_changes_no_bit(three: Client, field: Path, tmp_path: Path, verb: str) -> None:
    wanted = ooc.reduce(field, "std", 0, by=MONTHS, scheduler="threads")
    job: Any = ooc.reduce(field, "std", 0, by=MONTHS, target=tmp_path / "m.zarr", memory="64MiB", scheduler=three)
    killer = kill_when(three, job, job.placement[1], lambda: any(e["verb"] == verb for e in events(three, job)))
    made = within(job.run)
    killer.join()
    assert made[...].tobytes() == wanted.tobytes()
