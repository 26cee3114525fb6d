"""Workers that are lost while an array is overwritten with what is computed of itself: never a wrong element."""

from __future__ import annotations

from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from distributed import Client, wait

import oocarrays as ooc
from oocarrays.errors import RunError
from tests.graphs.clusters import until, within
from tests.graphs.test_killed_tasks import dies
from tests.seams import known_workers, task_of

pytestmark = pytest.mark.long

DATA = np.arange(64 * 64, dtype="i4").reshape(64, 64)
STORING = "oocarrays.graphs.storing.tasks"


@pytest.fixture
def a(two: Client, tmp_path: Path) -> ooc.OutOfCoreArray:
    until(lambda: len(known_workers(two)) == 2)
    zarr.create_array(tmp_path / "a.zarr", data=DATA, chunks=(4, 64), compressors=())
    return ooc.open_array(tmp_path / "a.zarr", mode="r+")


def some_die(client: Client, *where: object) -> set[str]:
    """Have each worker die at the same place, which one of them reaches at least."""
    there = set(known_workers(client))
    for worker in there:
        dies(client, worker, *where)  # type: ignore[arg-type]
    return there


def test_what_workers_keep_may_be_written_where_it_was_read(two: Client, a: ooc.OutOfCoreArray) -> None:
    """As it is, with more made of it, and as often as anybody likes: the first test, for no worker is to die in it."""
    kept = a.to_dask().persist()
    for made, wanted in ((kept + 1, DATA + 1), (kept, DATA), (kept[::-1] + kept, DATA + DATA[::-1])):
        within(lambda made=made: ooc.store(made, a))
        np.testing.assert_array_equal(a[...], wanted)


@pytest.mark.parametrize("name", ["elementwise", "fused"])
def test_what_was_overwritten_is_not_computed_of_itself_again(two: Client, a: ooc.OutOfCoreArray, name: str) -> None:
    x = a.to_dask() + 1 if name == "elementwise" else dask.optimize(a.to_dask() + 1)[0]
    there = some_die(two, STORING, "write_block", 4, "before")
    within(lambda: ooc.store(x, a))
    assert there - set(known_workers(two))
    np.testing.assert_array_equal(a[...], DATA + 1)


@pytest.mark.parametrize("case", ["in a write", "of all"])
def test_what_cannot_be_read_again_is_an_error(two: Client, a: ooc.OutOfCoreArray, case: str) -> None:
    """Unless nothing that is still wanted was lost."""
    x = a.to_dask() + 1 if case == "in a write" else a.to_dask() - a.to_dask().max(axis=0)
    wanted = DATA + 1 if case == "in a write" else DATA - DATA.max(axis=0)
    some_die(two, STORING, "write_block", 3, "after")
    try:
        within(lambda: ooc.store(x, a))
    except RunError as error:
        assert "a.zarr holds old and new elements: a worker was lost" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(a[...], wanted)


def test_what_is_computed_again_is_written_again(two: Client, a: ooc.OutOfCoreArray) -> None:
    later = ooc.store(a.to_dask() + 1, a, compute=False)
    assert later is not None
    for turn in (1, 2):
        within(later.compute)
        until(lambda: later.key not in notes(two))
        np.testing.assert_array_equal(a[...], DATA + turn)


@pytest.mark.parametrize("task", ["give part", "write", "mark done"])
def test_parts_that_are_computed_of_what_is_written_are_the_same_or_an_error(
    two: Client, a: ooc.OutOfCoreArray, task: str
) -> None:
    rows = [np.s_[first : first + 16] for first in range(0, 64, 16)]
    parts = [(a.to_dask() + 1)[each] for each in reversed(rows)]
    wanted = np.concatenate([DATA[each] + 1 for each in reversed(rows)])
    job = ooc.ranks.write_sections(a, rows, parts)
    there = some_die(two, *task_of(job, task), 2 if task == "write" else 1, "after")
    try:
        within(job.run)
    except RunError as error:
        assert "a.zarr holds old and new elements: the part of rank" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(a[...], wanted)
    assert there - set(known_workers(two))


def notes(client: Client) -> list[str]:
    """The last tasks of runs of which a scheduler has notes, which it forgets with them."""
    kept: list[str] = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_metadata))
    return kept


def test_what_workers_kept_is_not_read_again_of_what_was_written(two: Client, a: ooc.OutOfCoreArray) -> None:
    """What a worker that is lost had kept is computed again, and would be read of what is overwritten by then."""
    kept = a.to_dask().persist()
    wait(kept)
    there = some_die(two, STORING, "write_block", 4, "before")
    try:
        within(lambda: ooc.store(kept + 1, a))
    except RunError as error:
        assert "a.zarr holds old and new elements: a worker was lost" in str(error)  # noqa: PT017
    else:
        np.testing.assert_array_equal(a[...], DATA + 1)
    assert there - set(known_workers(two))
