"""The names of schedules mean the same in every verb: plans on a cluster, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import ScheduleError
from tests.flat import flat
from tests.graphs.clusters import within
from tests.graphs.test_whole_rounds import inside

pytestmark = pytest.mark.long

X = np.arange(48 * 48, dtype="f4").reshape(48, 48)
COUNTS = [[0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2], [2, 0, 0, 0]]
PARTS = [np.arange(2.0) + 10 * rank for rank in range(4)]


@pytest.fixture(scope="module")
def four() -> Iterator[Client]:
    with inside(4) as client:
        yield client


class Verbs:
    """Every verb that takes ``schedule=``, as a job or a lazy array of four ranks."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder, self.on = folder, {"scheduler": client, "memory": "1GiB"}
        zarr.create_array(str(folder / "x.zarr"), data=X, chunks=(6, 48), compressors=None)
        ooc.ranks.scatter_files(folder / "x.zarr", "(block, *)", folder / "files.zarr", ranks=4, depth=(1, 0)).run()

    @property
    def rows(self) -> ooc.ranks.DistributedArray:
        return ooc.ranks.distribute(X, "(block, *)", ranks=4, scheduler=self.on["scheduler"])

    def rechunk(self, **how: Any) -> Any:
        options: Any = {"chunks": (48, 6), "ranks": 4, "method": "two-phase", "compressors": (), "overwrite": True}
        return flat(ooc.rechunk, self.folder / "x.zarr", self.folder / "y.zarr", **options, **how, **self.on)

    def scatter_files(self, **how: Any) -> Any:
        target = self.folder / "z.zarr"
        return flat(
            ooc.ranks.scatter_files,
            self.folder / "x.zarr",
            "(*, block)",
            target,
            ranks=4,
            overwrite=True,
            **how,
            **self.on,
        )

    def gather_files(self, **how: Any) -> Any:
        return flat(
            ooc.ranks.gather_files,
            self.folder / "files.zarr",
            ooc.Target(self.folder / "g.zarr", chunks=(12, 24)),
            overwrite=True,
            **how,
            **self.on,
        )

    def read_sections(self, **how: Any) -> Any:
        return flat(
            ooc.ranks.read_sections, self.folder / "x.zarr", "(*, block)", ranks=4, method="two-phase", **how, **self.on
        )

    def write_sections(self, **how: Any) -> Any:
        parts = [X[:, 12 * rank : 12 * rank + 12] for rank in range(4)]
        layout = ooc.Layout.of(X.shape, "(*, block)", ranks=4)
        return flat(ooc.ranks.write_sections,
            zarr.create_array(str(self.folder / "w.zarr"), shape=X.shape, dtype="f4", chunks=(6, 48), overwrite=True),
            layout, parts, method="two-phase", **how, **self.on,
        )  # fmt: skip

    def redistribute(self, **how: Any) -> Any:
        return self.rows.redistribute("(*, block)", **how)

    def synchronous(self, **how: Any) -> Any:
        return self.rows.redistribute("(*, block)", assembly="synchronous", **how)

    def distribute(self, **how: Any) -> Any:
        return ooc.ranks.redistribute(self.rows, "(*, block)", **how)

    def exchange(self, **how: Any) -> Any:
        return flat(ooc.ranks.exchange, PARTS, COUNTS, **how, scheduler=self.on["scheduler"])

    def shift(self, **how: Any) -> Any:
        return flat(ooc.ranks.shift, self.rows, (1, 0), **how)

    def shift_files(self, **how: Any) -> Any:
        return flat(ooc.ranks.shift, ooc.open_array(self.folder / "files.zarr", mode="r+"), **how, **self.on)


VERBS = [name for name in vars(Verbs) if not name.startswith("_") and name != "rows"]


@pytest.fixture
def verbs(tmp_path: Path, four: Client) -> Verbs:
    return Verbs(tmp_path, four)


def made(verb: Callable[..., Any], schedule: str | None) -> str:
    """What the plan says of its order."""
    return str(verb(schedule=schedule).explain())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", VERBS)
def test_none_is_auto_which_is_what_is_set(verbs: Verbs, name: str) -> None:
    verb = getattr(verbs, name)
    assert made(verb, None) == made(verb, "auto") == made(verb, "Auto")
    with dask.config.set({"oocarrays.schedule": "bex"}):
        assert made(verb, None) == made(verb, "auto") == made(verb, "bex")
    with pytest.raises(
        ScheduleError, match=r"schedule='later' is unknown; pass 'auto' or one of .*coloring, unordered"
    ):
        verb(schedule="later")


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", ["coloring", "unordered"])
@pytest.mark.parametrize("name", VERBS)
def test_messages_that_decide_their_steps_and_none_are_taken_by_every_verb(
    verbs: Verbs, name: str, schedule: str
) -> None:
    job = getattr(verbs, name)(schedule=schedule)
    found = within(job.run if hasattr(job, "run") else job.compute)
    expected = within(getattr(verbs, name)().compute) if not hasattr(job, "run") else None
    if expected is not None:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    elif name not in ("scatter_files", "shift_files"):
        np.testing.assert_array_equal(np.asarray(found[...]), X)


def test_sections_that_few_ranks_share_go_in_as_many_steps_as_one_has_partners(verbs: Verbs) -> None:
    read = flat(
        ooc.ranks.read_sections,
        verbs.folder / "x.zarr",
        [np.s_[:, :6], np.s_[:2], np.s_[2:4], np.s_[4:6]],
        method="two-phase",
        aggregators=[1],
        resources=ooc.Resources(schedule="coloring"),
        **verbs.on,
    )
    assert read.plan.schedule is not None
    assert len(read.plan.schedule) == 3
    assert verbs.read_sections(schedule="unordered").plan.schedule is None


def test_a_cluster_reduces_in_whatever_order_is_set(verbs: Verbs) -> None:
    for schedule in ("coloring", "unordered", "gen"):
        with dask.config.set({"oocarrays.schedule": schedule}):
            assert float(flat(ooc.reduce, verbs.folder / "x.zarr", "sum", **verbs.on)) == X.sum()
