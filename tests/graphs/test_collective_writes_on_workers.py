"""Sections that ranks on workers write: whatever comes first, and whoever dies, the highest rank's elements stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import PlacementError
from tests.flat import flat
from tests.graphs.clusters import cluster, tight, until, within
from tests.graphs.test_killed_tasks import dies
from tests.profiles import some
from tests.seams import known_workers
from tests.small import CODECS

pytestmark = pytest.mark.long

RANKS = 4
DATA = np.random.default_rng(3).random((256, 192), dtype="f4")
TILES = [np.s_[:150, :110], np.s_[100:, 20:130], np.s_[::3, 90:], np.s_[90:200, [5, 99, 190]]]


@pytest.fixture(scope="module")
def spare() -> Iterator[Client]:
    """Workers of which one has no ranks: it takes over at once."""
    with cluster(RANKS + 1) as client:
        yield client


def there(client: Client) -> list[str]:
    known: list[str] = []

    def all_there() -> bool:
        known[:] = sorted(known_workers(client))
        return len(known) == RANKS + 1

    until(all_there)
    return known[:RANKS]


def job_of(client: Client, store: Path, times: int = 1, **options) -> tuple[ooc.Job, np.ndarray]:
    """A job in a few rounds, and what it is to make of the array."""
    zarr.create_array(store, data=DATA, chunks=(32, 96), compressors=CODECS["zstd"], overwrite=True)
    parts = [np.full(DATA[key].shape, times * rank, "f4") for rank, key in enumerate(TILES, 1)]
    expected = DATA.copy()
    for key, part in zip(TILES, parts, strict=True):
        expected[key] = part
    given = {"scheduler": client, "workers": there(client), "domains": "static", "aggregators": RANKS} | options
    if "memory" in given:
        return flat(ooc.ranks.write_sections, store, TILES, parts, **given), expected
    return tight(lambda **memory: flat(ooc.ranks.write_sections, store, TILES, parts, **given, **memory)), expected


@pytest.mark.parametrize("schedule", ["pex", "gen", "rex"])
def test_every_schedule_brings_the_same_and_the_plan_is_kept(spare: Client, tmp_path: Path, schedule: str) -> None:
    job, expected = job_of(spare, tmp_path / "z", schedule=schedule)
    np.testing.assert_array_equal(within(job.run), expected)
    planned, meter = job.plan.traffic, job.meter
    assert (meter.read_requests, meter.write_requests) == (planned.read_requests, planned.write_requests)
    assert (meter.messages, meter.sent_bytes) == (planned.messages, planned.exchanged_bytes)
    assert planned.messages > 0
    assert schedule.upper() in job.explain()


def test_the_highest_rank_wins_every_time_on_workers(spare: Client, tmp_path: Path) -> None:
    for number in some(range(20), 4):
        job, expected = job_of(spare, tmp_path / "z", number + 1, memory="1GB", aggregators=1 + number % RANKS)
        np.testing.assert_array_equal(within(job.run), expected, err_msg=str(number))


def test_memory_bounds_what_comes_in_a_round(spare: Client, tmp_path: Path) -> None:
    roomy, expected = job_of(spare, tmp_path / "z", memory="1GB")
    less, _ = job_of(spare, tmp_path / "z")
    assert len(less.plan.rounds) > len(roomy.plan.rounds)
    assert less.plan.peak_bytes <= less.plan.budget < roomy.plan.peak_bytes
    np.testing.assert_array_equal(within(less.run), expected)


def test_parts_stay_with_their_ranks(spare: Client, tmp_path: Path) -> None:
    """What is read by ranks is written by the same, to this very array; and what is distributed is."""
    z = zarr.create_array(tmp_path / "z", data=DATA, chunks=(16, 192))
    read = ooc.ranks.read_sections(z, [np.s_[::-1, 48 * r : 48 * r + 48] for r in range(4)], scheduler=spare)
    job = ooc.ranks.write_sections(z, [np.s_[:, 48 * r : 48 * r + 48] for r in range(4)], read)
    assert job.placement == read.placement
    dask.compute(job)
    np.testing.assert_array_equal(z[:], DATA[::-1])
    x = ooc.ranks.distribute(DATA, "(*, cyclic)", ranks=3, scheduler=spare).persist()
    np.testing.assert_array_equal(within(ooc.ranks.write_sections(z, x.layout, x).run), DATA)


WRITE, MESSAGES = "oocarrays.graphs.collective.sections", "oocarrays.graphs.exchange.messages"
KILLED = [
    (WRITE, "own", 1, "after", 1),
    (MESSAGES, "send", 2, "after", 0),
    (MESSAGES, "receive", 2, "before", 2),
    (WRITE, "write", 2, "before", 1),
    ("oocarrays.storage.local.blobs:LocalBlobs", "_write", 2, "after", 2),
    (WRITE, "done", 1, "before", 0),
]


@pytest.mark.sampled
@pytest.mark.parametrize("case", KILLED, ids=lambda case: f"{case[3]} {case[1].strip('_')} {case[2]} of rank {case[4]}")
def test_a_worker_dies_and_the_run_goes_on(spare: Client, tmp_path: Path, case: tuple) -> None:
    *where, rank = case
    job, expected = job_of(spare, tmp_path / "z")
    victim = job.placement[rank]
    dies(spare, victim, *where)
    np.testing.assert_array_equal(within(job.run), expected)
    assert victim not in known_workers(spare), "it was there that it died"
    assert [move.lost for move in job.moves] == [victim]
    assert not list((tmp_path / "z").rglob("*.partial"))


def test_run_again_it_makes_the_same(spare: Client, tmp_path: Path) -> None:
    job, expected = job_of(spare, tmp_path / "z")
    for _ in range(2):
        np.testing.assert_array_equal(within(job.run), expected)


def test_a_store_in_this_process_is_refused(spare: Client) -> None:
    z = zarr.create_array({}, data=DATA, chunks=(16, 192))
    with pytest.raises(PlacementError, match="in this process's memory"):
        ooc.ranks.write_sections(z, [np.s_[:]], [DATA], scheduler=spare)
