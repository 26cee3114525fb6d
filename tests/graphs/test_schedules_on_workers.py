"""Every schedule on real workers: the right array, messages that went as the schedule says, workers that die."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import ScheduleError
from oocarrays.graphs.cluster import shared
from oocarrays.graphs.exchange.between import Exchanges
from tests.flat import flat
from tests.graphs.clusters import (
    FIELD,
    assert_steps,
    cluster,
    kill_when,
    most_held,
    only,
    they_look,
    tight,
    until,
    within,
)
from tests.seams import known_workers
from tests.small import CODECS, make
from tests.strategies import taking

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def four() -> Iterator[Client]:
    """Four workers of which Dask looks two hundred times as often as by default which copies it can drop."""
    with (
        dask.config.set({"distributed.scheduler.active-memory-manager.interval": "10ms"}),
        cluster(4, memory_limit=0) as client,
    ):
        yield client


@pytest.fixture
def field(tmp_path: Path) -> Path:
    make(tmp_path / "field.zarr", FIELD, chunks=(50, 768), compressors=CODECS["zstd"])
    return tmp_path / "field.zarr"


def job_of(source: Path, schedule: str | None, **options: Any) -> ooc.Job:
    given = {"chunks": (1024, 20), "method": "two-phase", "memory": "31MiB", "compressors": ()} | options
    return flat(ooc.rechunk, source, source.parent / "target.zarr", resources=ooc.Resources(schedule=schedule), **given)


def note_messages(dask_worker: Any) -> None:
    """Have a worker write down each message that it gives: partition, stage, source and destination."""
    exchanges, seen = Exchanges.of(dask_worker), list[tuple[int, int, int, int]]()
    plain = exchanges._given

    @asynccontextmanager
    async def given(asked: Any) -> AsyncIterator[Any]:
        async with plain(asked) as found:
            yield found
        seen.append((asked.place[1][1], asked.stage, asked.place[2], asked.destination))

    exchanges._given, exchanges.seen = given, seen  # type: ignore[attr-defined, method-assign]


def noted(dask_worker: Any) -> list[tuple[int, int, int, int]]:
    """The messages that a worker has given, which is then as it was."""
    exchanges = Exchanges.of(dask_worker)
    del exchanges._given
    seen: list[tuple[int, int, int, int]] = exchanges.__dict__.pop("seen")
    return seen


CASES = [(4, name) for name in taking(4)] + [(3, name) for name in taking(3)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("ranks", "name"), CASES, ids=str)
def test_messages_go_as_the_schedule_says(four: Client, field: Path, ranks: int, name: str) -> None:
    """Read back from the transfers that really happened (DESIGN, promise 4)."""
    workers = sorted(known_workers(four))[:ranks]
    job = tight(lambda **memory: job_of(field, name.lower(), **{"workers": workers, "chunks": (1024, 64)} | memory))
    four.run(note_messages)
    np.testing.assert_array_equal(within(job.run), FIELD)
    given = four.run(noted)
    schedule, units = ooc.ranks.Schedule.of(name, ranks), job.plan.passes[0].units
    steps = [(unit, stage, each.pairs) for unit in range(units) for stage, each in enumerate(schedule, 1)]
    assert sorted(chain(*given.values())) == [(*at, *pair) for *at, pairs in steps for pair in sorted(pairs)]
    assert all(job.placement[source] == home for home, each in given.items() for _, _, source, _ in each)
    assert units > 2
    assert name in job.explain()
    assert_steps(job)


@pytest.mark.parametrize("name", ["LEX", "REX", "IPEX"])
def test_messages_may_come_as_they_come(four: Client, field: Path, name: str) -> None:
    with dask.config.set({"oocarrays.assembly": "asynchronous", "oocarrays.schedule": name.lower()}):
        job = job_of(field, None)
    assert job.plan.passes[0].schedule.name == name
    np.testing.assert_array_equal(within(job.run), FIELD)


@pytest.mark.parametrize(
    ("name", "verb"), [("rex", "send"), ("rex", "receive"), ("ipex", "receive"), ("ipex", "write")]
)
def test_a_worker_dies_where_messages_are_forwarded(four: Client, field: Path, name: str, verb: str) -> None:
    """What others had sent through it is sent again."""
    four.wait_for_workers(4, timeout=60)
    job = tight(lambda **memory: job_of(field, name, chunks=(1024, 40), **memory))
    victim = job.placement[1]
    kill_when(four, job, victim, lambda: verb in job.meter.seconds)
    np.testing.assert_array_equal(within(job.run), FIELD)
    assert victim not in known_workers(four)
    again = job.meter.decoded_bytes - job.plan.traffic.decoded_bytes
    assert again <= job.plan.peak_bytes, "no more is read again than the worker held"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A field of 64 MiB."""
    folder = tmp_path_factory.mktemp("large")
    make(folder / "field.zarr", np.random.default_rng(2).random((4096, 4096), dtype="f4"), chunks=(256, 4096))
    return folder / "field.zarr"


@pytest.mark.parametrize(("name", "verb"), [("rex", "receive"), ("pex", "receive")])
def test_a_worker_dies_that_others_look_at(four: Client, field: Path, name: str, verb: str) -> None:
    """What it had packed stays until nobody looks at it any more, and no longer."""
    four.wait_for_workers(4, timeout=60)
    with only(four, looks=True):
        job = tight(lambda **memory: job_of(field, name, **memory))
        victim = job.placement[1]
        kill_when(four, job, victim, lambda: verb in job.meter.seconds)
        np.testing.assert_array_equal(within(job.run), FIELD)
        assert victim not in known_workers(four)
        until(lambda: max(four.run(_files_without_names).values()) <= len(("the probe", "its pages")))
    assert not [name for name in os.listdir("/dev/shm") if "oocarrays" in name]


def _files_without_names() -> int:
    """How many files of shared memory a process has open."""
    gc.collect()
    found = 0
    for file in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one by which they are listed
            found += os.readlink(f"/proc/self/fd/{file}") == shared.LINK
    return found


@pytest.mark.parametrize(
    ("name", "assembly"),
    [("lex", "synchronous"), ("rex", "synchronous"), ("pex", "asynchronous"), ("ipex", "asynchronous")],
)
def test_every_worker_keeps_its_budget(four: Client, large: Path, tmp_path: Path, name: str, assembly: str) -> None:
    keep_their_budget(four, large, tmp_path, name, assembly)


def test_workers_that_pass_on_what_they_look_at_keep_their_budget(four: Client, large: Path, tmp_path: Path) -> None:
    four.wait_for_workers(4, timeout=60)
    with only(four, looks=True):
        keep_their_budget(four, large, tmp_path, "rex", "synchronous")
        assert they_look(four)


def keep_their_budget(four: Client, large: Path, tmp_path: Path, name: str, assembly: str) -> None:
    make(tmp_path / "warm.zarr", FIELD, chunks=(50, 768))
    four.wait_for_workers(4, timeout=60)
    within(ooc.rechunk(tmp_path / "warm.zarr", tmp_path / "w.zarr", chunks=(1024, 20), method="two-phase").run)
    with dask.config.set({"oocarrays.assembly": assembly}):
        job = job_of(large, name, chunks=(4096, 128), memory="56MiB", overwrite=True)
    data = ooc.open_array(large)[...]
    for peak in most_held(four, lambda: np.testing.assert_array_equal(job.run(), data), 2**21):
        assert 2**21 < peak <= job.plan.peak_bytes


def test_what_no_run_can_go_by_is_refused_before_any_work(four: Client, field: Path) -> None:
    asked = [("hex", {}), ("pex", {"ranks": 3}), ("rex", {"ranks": 6}), ("ipex", {"ranks": 6, "scheduler": "threads"})]
    for name, options in asked:
        with pytest.raises(ScheduleError, match=f"{name}.*(gen|pex-gen)") as caught:
            job_of(field, name, **options)
        assert len(str(caught.value).splitlines()) == 1
    assert [path.name for path in field.parent.iterdir()] == ["field.zarr"]
