"""Messages between workers of one machine: the same bytes, however they go, and no hang where they cannot."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, Worker, wait
from distributed.comm import connect
from distributed.protocol import deserialize, serialize

import oocarrays as ooc
from oocarrays.errors import RunError
from oocarrays.graphs.cluster import nearby, shared
from oocarrays.graphs.cluster.nearby import Message, introduce
from oocarrays.graphs.cluster.shared import LEAST_BYTES, Rooms
from tests.graphs.clusters import cluster, looks_work, only, they_look, until, within
from tests.seams import known_workers

NEAR = {end: {"address": f"tcp://10.1.2.3:{port}"} for end, port in (("sender", 1), ("recipient", 2))}
FAR = {"sender": {"address": "tcp://10.1.2.3:1"}, "recipient": {"address": "tcp://10.1.2.4:1"}}


def numbers(rooms: Rooms | None = None) -> Message:
    """More than goes over a socket anyway, of several kinds, one of them empty; packed in rooms, if given."""
    pairs = np.zeros(3, [("a", "i4"), ("b", "f8")])
    pairs["a"] = 1, 2, 3
    arrays = [np.arange(LEAST_BYTES, dtype="i4").reshape(-1, 2), np.empty((0, 4)), pairs]
    if rooms is None:
        return Message(arrays)
    room, packed, start = rooms.take(2**20), [], 64
    for array in arrays:
        view = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        packed.append(view)
        start += array.nbytes + 64
    return Message(packed)


def packed_numbers() -> Message:
    return numbers(Rooms())


def sums(message: Message) -> tuple[int, int, int, bool]:
    first, empty, pairs = message.arrays
    return int(first.sum()), len(empty), int(pairs["a"].sum()), all(array.flags.writeable for array in message.arrays)


def came_by_look(message: Message) -> bool:
    return isinstance(shared._owner_of(message.arrays[0]), shared.Look)


EXPECTED = (LEAST_BYTES * (LEAST_BYTES - 1) // 2, 0, 6, True)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(2) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["look", "sockets"])
def looks(request: pytest.FixtureRequest, client: Client) -> Iterator[bool]:
    """Whether the workers look at each other's messages, where that works here."""
    with only(client, looks=request.param):
        yield request.param


def passed_on(client: Client, make: object = numbers) -> tuple[int, int, int, bool]:
    """What the second worker makes of the first one's message."""
    one, other = sorted(known_workers(client))
    message = client.submit(make, workers=one, pure=False)
    found: tuple[int, int, int, bool] = client.submit(sums, message, workers=other, pure=False).result(timeout=30)
    return found


def test_workers_are_introduced_in_all_ways_that_work_here(client: Client) -> None:
    with dask.config.set({"oocarrays.same-machine": False}):
        introduce(client)
    assert not they_look(client)
    introduce(client)
    assert they_look(client) == looks_work()


@pytest.mark.parametrize("make", [numbers, packed_numbers])
def test_a_message_is_the_same_in_all_ways(client: Client, looks: bool, make: object) -> None:
    assert passed_on(client, make) == EXPECTED


def test_what_is_packed_in_a_room_is_looked_at_where_it_is(client: Client, looks: bool) -> None:
    one, other = sorted(known_workers(client))
    message = client.submit(packed_numbers, workers=one, pure=False)
    seen = client.submit(came_by_look, message, workers=other, pure=False).result(timeout=30)
    assert seen == looks


def test_no_worker_asks_to_be_more_open_than_it_was(client: Client) -> None:
    introduce(client)
    assert passed_on(client, packed_numbers) == EXPECTED
    roots = Path(ooc.__file__).parent, Path(nearby.__file__).parents[1]  # graphs is a link, which is not followed
    for path in (path for root in roots for path in root.rglob("*.py")):
        assert not re.search("prctl|PTRACER", path.read_text()), path
    for modes in client.run(_modes_of_segments).values():
        assert set(modes) <= {0o600}


def _modes_of_segments(dask_worker: Worker) -> list[int]:
    return [os.fstat(segment.file).st_mode & 0o777 for segment in [*shared._segments, shared.probe()]]


@pytest.mark.parametrize("schedule", ["pex", "rex", "gen"])
def test_an_exchange_is_right_in_all_ways(client: Client, looks: bool, schedule: str) -> None:
    rows = np.arange(512 * 512, dtype="i4").reshape(512, 512)
    held = ooc.ranks.distribute(rows, "(block, *)", ranks=2, scheduler=client)
    moved = ooc.ranks.redistribute(held, "(*, cyclic)", schedule=schedule)
    np.testing.assert_array_equal(within(moved.to_dask().compute), rows)


def test_rechunks_leave_no_shared_memory(client: Client, looks: bool, tmp_path: Path) -> None:
    values = np.arange(1024 * 1024, dtype="f4").reshape(1024, 1024)
    ooc.create_array(tmp_path / "a.zarr", shape=values.shape, dtype="f4", chunks=(64, 1024))[...] = values
    job = ooc.rechunk(
        tmp_path / "a.zarr",
        tmp_path / "b.zarr",
        chunks=(1024, 64),
        scheduler=client,
        method="two-phase",
        resources=ooc.Resources(ranks=2),
    )
    np.testing.assert_array_equal(within(job.run), values)
    del job
    until(lambda: sum(client.run(_shared_bytes).values()) <= 2**21)


def test_the_log_of_a_failed_transfer_holds_no_message(client: Client, looks: bool) -> None:
    """Dask keeps records of its log, their tracebacks, and so what was sent when the receiver died."""
    home, key = next(iter(known_workers(client))), "a message that is not taken"
    message = client.submit(packed_numbers, workers=[home], pure=False, key=key)
    wait(message)

    async def ask_and_die() -> None:
        connection = await connect(home)
        asked = {"op": "get_data", "keys": [key], "who": None, "serializers": None, "reply": True}
        await connection.write(asked)
        await connection.read()
        connection.abort()

    assert max(client.run(_messages).values()) == 1
    client.sync(ask_and_die)
    until(lambda: any("failed during get data" in text for _, text in client.get_worker_logs()[home]))
    del message
    until(lambda: max(client.run(_messages).values()) == 0, 10)
    assert any("Traceback" in text for _, text in client.get_worker_logs()[home]), "it is still told"


def _messages() -> int:
    gc.collect()
    return sum(type(each) is Message for each in gc.get_objects())


def _shared_bytes() -> int:
    """Bytes of shared memory that a worker still has, when what nobody holds is gone."""
    gc.collect()
    return sum(len(segment) for segment in shared._segments if segment is not shared.probe())


def test_a_large_message_between_ends_of_one_machine_is_only_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_on", True)
    message = packed_numbers()
    assert serialize(message, context=NEAR)[1] == []
    assert serialize(numbers(), context=NEAR)[1] != []
    for context in (FAR, None):
        assert sum(memoryview(frame).nbytes for frame in serialize(message, context=context)[1]) > LEAST_BYTES
    assert serialize(Message([np.arange(3)]), context=NEAR)[1] != []
    monkeypatch.setattr(shared, "_on", False)
    assert serialize(message, context=NEAR)[1] != []


def test_a_process_that_is_gone_is_a_lost_connection() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ConnectionError, match=f"process {gone.pid} cannot be read"):
        received(shared.probe().where._replace(process=gone.pid))


def test_a_process_that_is_not_the_sender_is_one_line() -> None:
    with pytest.raises(RunError, match=r"set oocarrays\.same-machine to False"):
        received(shared.probe().where._replace(owner=b"0" * shared.TOKEN_BYTES))


def received(where: shared.RoomAddress) -> Message:
    """What comes of a message that is said to lie there."""
    header, _ = serialize(numbers())
    sub = {"look": [(where, shared.HEAD_BYTES, (1,), "|u1")], "labels": []}
    message: Message = deserialize({**header, "sub-header": sub}, [])
    return message
