"""Messages between workers of one machine: the same bytes, however they go, and no hang where they cannot."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

import dask
import numpy as np
import pytest
from distributed import Client
from distributed.protocol import deserialize, serialize
from oocarrays.graphs import nearby
from oocarrays.graphs.nearby import LEAST_BYTES, Message, introduce
from oocarrays.graphs.placement import known_workers

from oocarrays.errors import RunError
from tests.graphs.clusters import cluster

NEAR = {end: {"address": f"tcp://10.1.2.3:{port}"} for end, port in (("sender", 1), ("recipient", 2))}
FAR = {"sender": {"address": "tcp://10.1.2.3:1"}, "recipient": {"address": "tcp://10.1.2.4:1"}}


def numbers() -> Message:
    """More than goes over a socket anyway, of several kinds, one of them empty."""
    pairs = np.zeros(3, [("a", "i4"), ("b", "f8")])
    pairs["a"] = 1, 2, 3
    return Message([np.arange(LEAST_BYTES, dtype="i4").reshape(-1, 2), np.empty((0, 4)), pairs])


def sums(message: Message) -> tuple[int, int, int, bool]:
    first, empty, pairs = message.arrays
    return int(first.sum()), len(empty), int(pairs["a"].sum()), all(array.flags.writeable for array in message.arrays)


EXPECTED = (LEAST_BYTES * (LEAST_BYTES - 1) // 2, 0, 6, True)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(2) as made:
        yield made


def passed_on(client: Client) -> tuple[int, int, int, bool]:
    """What the second worker makes of the first one's message."""
    one, other = sorted(known_workers(client))
    message = client.submit(numbers, workers=one, pure=False)
    found: tuple[int, int, int, bool] = client.submit(sums, message, workers=other, pure=False).result(timeout=30)
    return found


def near_on(client: Client) -> set[bool]:
    return set(client.run(lambda: nearby._near).values())


def test_a_message_is_the_same_over_a_socket_and_out_of_memory(client: Client) -> None:
    with dask.config.set({"oocarrays.same-machine": False}):
        introduce(client)
    assert near_on(client) == {False}
    assert passed_on(client) == EXPECTED
    introduce(client)
    assert near_on(client) == {nearby._is_readable(nearby._here())}
    assert passed_on(client) == EXPECTED


def test_a_large_message_between_ends_of_one_machine_is_only_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "_near", True)
    assert serialize(numbers(), context=NEAR)[1] == []
    for context in (FAR, None):
        assert sum(memoryview(frame).nbytes for frame in serialize(numbers(), context=context)[1]) > LEAST_BYTES
    assert serialize(Message([np.arange(3)]), context=NEAR)[1] != []
    monkeypatch.setattr(nearby, "_near", False)
    assert serialize(numbers(), context=NEAR)[1] != []


def test_a_process_that_is_gone_is_a_lost_connection() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ConnectionError, match=f"process {gone.pid} cannot be read"):
        deserialize({"serializer": "dask", **header(gone.pid)}, [])


def test_a_process_that_is_not_the_sender_is_one_line() -> None:
    with pytest.raises(RunError, match=r"set oocarrays\.same-machine to False"):
        deserialize({"serializer": "dask", **header(os.getpid())}, [])


def header(process: int) -> dict[str, object]:
    """Of a message of a process that says something else where its token should be."""
    place = ctypes.addressof(nearby._TOKEN)
    real, _ = serialize(numbers())
    sub = {"process": (process, place, b"0" * nearby.TOKEN_BYTES), "arrays": [(place, (4,), "|u1")]}
    return {**real, "sub-header": sub}
