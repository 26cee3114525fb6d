"""An array that is rewritten in many parts, and what is there when a run has stopped in the middle."""

from __future__ import annotations

import itertools
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError, DiskFullError, UnfinishedError
from tests.seams import JOURNAL_FOLDER, KEPT_REQUEST, KEPT_SOURCE, Journal, replace_step, step
from tests.small import make

FIELD = np.random.default_rng(1).random((1024, 1024), dtype="f4")
CHUNKS = (1024, 64)
FEW_MORE = 2**18
"""Bytes above the least budget: a few parts more than the least number fit."""
Part = tuple[int, ...]

STORE_MORE = 20 * 2**20
"""Bytes that a rechunk of two ranks counts beside its buffers where an array is not in local files: 24 MiB, not 4."""


def make_field(folder: Path, name: str = "source.zarr", **options: Any) -> Path:
    make(folder / name, FIELD, **({"chunks": (64, 1024)} | options))
    return folder / name


def options_of(method: str) -> dict[str, Any]:
    """What makes a plan of many parts, and several in each pass, with a method."""
    return {"chunks": CHUNKS, "memory": _least(method) + FEW_MORE, "ranks": 2, "method": method}


def words_of(method: str) -> list[str]:
    """The same, as it is typed."""
    options = options_of(method) | {"chunks": ",".join(map(str, CHUNKS))}
    return [f"--{name}={value}" for name, value in options.items()]


@cache
def _least(method: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        make_field(Path(folder))
        try:
            ooc.rechunk(
                f"{folder}/source.zarr",
                f"{folder}/t.zarr",
                chunks=CHUNKS,
                memory=1,
                method=method,
                scheduler="threads",
                resources=ooc.Resources(ranks=2),
            )
        except BudgetError as error:
            return error.least
    raise AssertionError("a byte is enough")


def recorded(target: Path) -> set[Part]:
    return Journal(target).parts()


def missing(plan: Any, target: Path) -> set[Part]:
    """The parts that are not recorded."""
    return {part for number, step in enumerate(plan.passes) for part in step.parts(number)} - recorded(target)


def places_of(step: Any, unit: int) -> list[tuple[tuple[int, ...], Any]]:
    """The target chunks of a unit of an assembled pass, each with the section of it that the unit writes."""
    touched = step.target.grid.indices(step.section(step.chunk_box(unit)))
    return [(index, step.place(unit, index)) for index in touched]


def chunks_of(plan: Any, part: Part) -> list[tuple[int, ...]]:
    """The chunks that are written when a part is done."""
    step, (_, first, rank) = plan.passes[part[0]], part
    if step.assembled:
        return [index for unit in step.batch_units(first, rank) for index, _ in places_of(step, unit)]
    boxes = map(step.chunk_box, step.batch_units(first, rank)) if step.alone else [step.share(first, rank)]
    return [index for box in boxes if box for index in itertools.product(*map(range, *box))]


def count(plan: Any, parts: set[Part]) -> int:
    """Chunks that are written when these parts are done."""
    return sum(len(chunks_of(plan, part)) for part in parts)


def share_left(plan: Any, parts: set[Part]) -> float:
    """The share of the bytes of all passes, where these parts are still to be done."""
    sizes = [step.traffic.read_bytes + step.traffic.written_bytes for step in plan.passes]
    left = [count(plan, {part for part in parts if part[0] == n}) / plan.passes[n].writes for n in range(len(sizes))]
    return float(np.average(left, weights=sizes))


def stamps(target: Path) -> dict[str, tuple[int, int]]:
    """What tells a chunk's file from one that was written later."""
    files = [path for path in target.joinpath("c").rglob("*") if path.is_file() and path.suffix != ".partial"]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def check_unfinished(target: Any) -> None:
    """It says so in one line, and what to do."""
    with pytest.raises(UnfinishedError, match=r"is unfinished: .*resume") as caught:
        ooc.open_array(target)
    assert "\n" not in str(caught.value)


def left_behind(folder: Path) -> list[Path]:
    """What runs that have ended must not leave: marks, journals, scratch, partial files."""
    here = [path for path in folder.rglob("*") if path.name not in (KEPT_REQUEST, KEPT_SOURCE)]
    return [path for path in here if path.name.startswith(JOURNAL_FOLDER) or path.suffix == ".partial"]


def check_finished(target: Path, data: np.ndarray = FIELD) -> None:
    """Every element is right, and nothing is left: no mark, no journal, no partial file, no scratch."""
    np.testing.assert_array_equal(ooc.open_array(target)[...], data)
    np.testing.assert_array_equal(zarr.open_array(target, mode="r")[...], data)
    assert left_behind(target.parent) == []
    assert not [name for name in zarr.open_array(target, mode="r").attrs if name.startswith("oocarrays")]


def break_disk(patch: pytest.MonkeyPatch, after: int) -> None:
    """Let the device be full after some chunks."""
    calls = itertools.count()

    def full(put: Any) -> Any:
        def checked(self: Any, key: str, *data: Any) -> None:
            if next(calls) >= after:
                raise DiskFullError(f"no space left on the device for {key}")
            put(self, key, *data)

        return checked

    for name in ("put file", "put object", "put later", "write pieces"):
        replace_step(patch, name, full(step(name)))


def fail(job: ooc.Job, after: int) -> None:
    """Run a job that fails after some chunks."""
    with pytest.MonkeyPatch.context() as patch:
        break_disk(patch, after)
        with pytest.raises(DiskFullError):
            job.run()
