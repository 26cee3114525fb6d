"""What a run holds is freed when it ends, and does not wait for Python's collector of cycles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    group = zarr.create_group(tmp_path / "group.zarr")
    for name in ("a", "b"):
        group.create_array(name, data=np.arange(128 * 96, dtype="f4").reshape(128, 96), chunks=(16, 96))
    yield tmp_path
    gc.enable()


def rechunked(method: str) -> Callable[[Path, str], Any]:
    return lambda place, to: ooc.rechunk(place / "group.zarr" / "a", place / to, chunks=(128, 8), method=method, **HERE)


KINDS: dict[str, Callable[[Path, str], Any]] = {
    "independent": rechunked("independent"),
    "assembled": rechunked("assembled"),
    "two-phase": rechunked("two-phase"),
    "staged": rechunked("staged"),
    "group": lambda p, to: ooc.rechunk(p / "group.zarr", p / to, chunks={"a": (128, 8), "b": (64, 96)}, **HERE),
    "slabs": lambda p, to: ooc.map_slabs(np.negative, p / "group.zarr" / "a", p / to, **HERE),
    "sweeps": lambda p, to: ooc.iterate(np.negative, p / "group.zarr" / "a", p / to, sweeps=3, **HERE),
    "means": lambda p, to: ooc.reduce(p / "group.zarr" / "a", "mean", axis=0, target=p / to, **HERE),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_run_held_is_freed_at_its_end(place: Path, kind: str) -> None:
    KINDS[kind](place, "first").run()  # what is cached for good is there
    gc.collect()
    gc.disable()
    job = KINDS[kind](place, "second")
    job.run()
    held = weakref.ref(job._run)
    del job
    assert held() is None
