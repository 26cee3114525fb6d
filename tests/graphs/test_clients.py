"""Several clients of one cluster, and a client that does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import PlacementError, TargetError
from tests.graphs.clusters import FIELD, cluster, within
from tests.small import make

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def two() -> Iterator[Client]:
    with cluster(2) as client:
        yield client


@pytest.fixture
def field(tmp_path: Path) -> Path:
    make(tmp_path / "field.zarr", FIELD, chunks=(16, 768))
    return tmp_path / "field.zarr"


def ended(client: Client, field: Path, target: str) -> object:
    """What a run of a client gives, or that its target is another's."""
    try:
        job = ooc.rechunk(field, field.parent / target, chunks=(1024, 16), ranks=2, memory="96MiB", scheduler=client)
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
                with pytest.raises(PlacementError, match="an asynchronous client is active: give scheduler='threads'"):
                    ooc.rechunk(field, field.parent / "target.zarr", chunks=(1024, 16), scheduler=scheduler)
            job = ooc.rechunk(field, field.parent / "target.zarr", chunks=(1024, 16), scheduler="threads")
            np.testing.assert_array_equal(job.run()[...], FIELD)

    asyncio.run(asked())
