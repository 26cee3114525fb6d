"""Workers that stand still for a while, runs that are taken away, two clusters or four clients that want one target."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, Future

import oocarrays as ooc
from oocarrays.errors import PlacementError, RunError, TargetError
from tests.flat import flat
from tests.graphs.clusters import FIELD, cluster, tight, until, within
from tests.small import make

pytestmark = pytest.mark.long


@pytest.fixture
def field(tmp_path: Path) -> Path:
    make(tmp_path / "field.zarr", FIELD, chunks=(16, 768))
    return tmp_path / "field.zarr"


def job_of(client: Client, source: Path, method: str = "two-phase") -> Any:
    asked: dict[str, Any] = {"chunks": (1024, 16), "method": method, "ranks": 2, "scheduler": client}
    return tight(lambda memory: flat(ooc.rechunk, source, source.parent / "target.zarr", memory=memory, **asked))


def begun(job: Any, count: int = 3) -> bool:
    """Whether some tasks have told what they did."""
    return bool(job.meter.read_requests >= count)


def in_background(work: Any) -> tuple[threading.Thread, list[Any]]:
    """Something that goes on beside us, and what it gives or raises."""
    came: list[Any] = []

    def caught() -> None:
        try:
            came.append(within(work))
        except BaseException as error:  # noqa: BLE001
            came.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    return thread, came


@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled", "staged"])
def test_a_worker_that_stands_still_for_a_while_goes_on(two: Client, field: Path, method: str) -> None:
    job = job_of(two, field, method)
    pid = two.run(os.getpid)[job.placement[1]]
    thread, came = in_background(job.run)
    until(lambda: begun(job) or not thread.is_alive())
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1)  # longer than it looks for what is ready, and shorter than anybody's patience
    os.kill(pid, signal.SIGCONT)
    thread.join()
    np.testing.assert_array_equal(came[0][...], FIELD)


def test_two_clusters_at_one_target(two: Client, field: Path) -> None:
    with cluster(1) as other:
        both = [in_background(job_of(client, field).run) for client in (two, other)]
        for thread, _ in both:
            thread.join()
    refused = [came[0] for _, came in both if isinstance(came[0], BaseException)]
    assert len(refused) <= 1
    assert all(isinstance(error, TargetError) for error in refused), refused
    np.testing.assert_array_equal(ooc.open_array(field.parent / "target.zarr"), FIELD)


def test_a_run_that_is_taken_away_says_so(two: Client, field: Path) -> None:
    """Somebody else at the client has cancelled all that it waits for."""
    job = job_of(two, field)
    thread, came = in_background(job.run)
    until(lambda: begun(job) or not thread.is_alive())
    two.cancel([Future(key, two) for key in list(two.futures)], force=True)
    thread.join()
    assert isinstance(came[0], RunError), repr(came[0])
    assert "was cancelled" in str(came[0])
    assert "\n" not in str(came[0])
    again = ooc.resume(field.parent / "target.zarr", scheduler=two)
    np.testing.assert_array_equal(within(again.run), FIELD)


def ended(client: Client, field: Path, target: str) -> object:
    """What a run of a client gives, or that its target is another's."""
    try:
        job = ooc.rechunk(
            field,
            field.parent / target,
            chunks=(1024, 16),
            memory="96MiB",
            scheduler=client,
            resources=ooc.Resources(ranks=2),
        )
        return within(job.run)
    except TargetError as error:
        return error


@pytest.mark.parametrize("shared", [False, True], ids=["a target each", "one target"])
def test_four_clients_at_one_cluster(two: Client, field: Path, shared: bool) -> None:
    """Each has its array; where all want one target, one has it and nobody spoils it."""
    clients = [Client(two.scheduler.address, set_as_default=False) for _ in range(4)]
    targets = [f"target{0 if shared else number}.zarr" for number in range(4)]
    try:
        with ThreadPoolExecutor(4) as pool:
            came = list(pool.map(lambda one, target: ended(one, field, target), clients, targets))
    finally:
        for client in clients:
            client.close()
    refused = [one for one in came if isinstance(one, TargetError)]
    assert len(refused) < 4 if shared else not refused, refused
    for target in set(targets):
        np.testing.assert_array_equal(ooc.open_array(field.parent / target), FIELD)


def test_an_asynchronous_client_is_refused_and_leaves_nothing(two: Client, field: Path) -> None:
    async def asked() -> None:
        async with Client(two.scheduler.address, asynchronous=True) as client:
            for scheduler in (None, client):  # the active one, and one that is named
                with pytest.raises(PlacementError, match="an asynchronous client is active: pass scheduler='threads'"):
                    ooc.rechunk(field, field.parent / "target.zarr", chunks=(1024, 16), scheduler=scheduler)
            job = ooc.rechunk(field, field.parent / "target.zarr", chunks=(1024, 16), scheduler="threads")
            np.testing.assert_array_equal(job.run()[...], FIELD)

    asyncio.run(asked())
