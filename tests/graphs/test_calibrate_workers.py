"""The constants of workers, measured on live clusters, and kept beside those that were measured without one."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml
from distributed import Client, LocalCluster

from oocarrays.cli.main import main
from oocarrays.graphs.calibrate.workers import message_sizes
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import Worker
from oocarrays.graphs.exchange.between import TAKE, Exchanges
from tests.seams import replace_step, set_constants

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("settings_of_old", "machine")]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is measured of the machine itself: nothing, unless a test puts it here."""
    found: dict[str, Any] = {}
    replace_step(monkeypatch, "measure machine", lambda folder: dict(found))
    return found


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Calibrate as it is typed, and read all that the file of settings then has."""

    def read(*words: str) -> dict[str, Any]:
        assert main(["calibrate", *words]) == 0
        said: dict[str, Any] = yaml.safe_load((tmp_path / "oocarrays.yaml").read_text())
        return said

    return read


def at(client: Client) -> tuple[str, str]:
    return "--scheduler", client.scheduler.address  # type: ignore[union-attr]


@contextmanager
def cluster_of(workers: int) -> Iterator[Client]:
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Client]:
    with cluster_of(2) as client:
        yield client


def tasks_left(client: Client) -> int:
    """Tasks that the scheduler still knows when it has had a second to forget them."""
    stop = time.monotonic() + 1
    while time.monotonic() < stop and count(client):
        time.sleep(0.01)
    return count(client)


def count(client: Client) -> int:
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


# ---------------------------------------------------------------------- what is measured


def test_two_workers_give_every_constant(two_workers: Client, kept: Callable[..., dict[str, Any]]) -> None:
    """Each is a time of less than the whole calibration; so a message of known length has a least bandwidth."""
    names, begin = set(dask.config.get("oocarrays.cost")["exchange"]), time.monotonic()
    measured = kept(*at(two_workers))["oocarrays"]["cost"]
    took, exchange = time.monotonic() - begin, measured.pop("exchange")
    assert set(exchange) == names
    assert all(type(value) is float for value in measured.values())
    assert measured.pop("message_bandwidth") > 2**20 / took
    assert set(measured) == {
        "worker_task_seconds", "scheduler_seconds", "message_seconds", "step_seconds", "graph_seconds"
    }  # fmt: skip
    assert all(0 <= value < took for value in (*exchange.values(), *measured.values()))
    assert min(measured[name] for name in ("worker_task_seconds", "scheduler_seconds", "step_seconds")) > 1e-6
    assert tasks_left(two_workers) == 0
    assert not two_workers.futures


def slow_down(seconds: float, bandwidth: float, dask_worker: Any) -> None:
    """Let all messages that a worker is asked for take longer: so many seconds, and some a byte."""
    exchanges = Exchanges.of(dask_worker)
    plain = dask_worker.handlers[TAKE]

    async def late(comm: Any, *, place: Any, destination: int, **more: Any) -> Any:
        id, round, rank = place
        outbox = exchanges._held[id, tuple(round), rank].what()
        await asyncio.sleep(seconds + (outbox.messages[destination].nbytes / bandwidth if outbox else 0))
        return await plain(comm, place=place, destination=destination, **more)

    dask_worker.handlers[TAKE] = late


def test_messages_that_take_longer_are_measured_to_take_longer(
    monkeypatch: pytest.MonkeyPatch, kept: Callable[..., dict[str, Any]]
) -> None:
    """Sleep is never shorter than asked for, however busy the machine is."""
    replace_step(monkeypatch, "measure exchange", lambda *_: {})
    with cluster_of(2) as client:
        client.run(slow_down, 0.02, 20e6)
        measured = kept(*at(client))["oocarrays"]["cost"]
    assert measured["step_seconds"] > 0.02 * 4 / 7 / 2  # four of seven steps are between the workers, two ranks a core
    assert measured["message_seconds"] > measured["step_seconds"]
    assert measured["message_bandwidth"] < 30e6


def test_one_worker_sends_no_messages(kept: Callable[..., dict[str, Any]]) -> None:
    with cluster_of(1) as client:
        measured = kept(*at(client))["oocarrays"]["cost"]
    assert set(measured) == {"worker_task_seconds", "scheduler_seconds"}
    assert 1e-5 < measured["worker_task_seconds"] < 0.5


def test_a_cluster_without_workers_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster_of(0) as client:
        assert main(["calibrate", *at(client)]) == 2
        said = f"oocarrays: the scheduler at {client.scheduler.address} has no workers\n"  # type: ignore[union-attr]
    assert capsys.readouterr().err == said


# ---------------------------------------------------------------------- how


def test_a_task_that_runs_elsewhere_is_an_error(
    two_workers: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = lambda client, suffix, addresses, topic: pin(client, suffix, addresses[::-1], topic)  # noqa: E731
    replace_step(monkeypatch, "pin calibration", elsewhere)
    assert main(["calibrate", *at(two_workers)]) == 1
    assert re.fullmatch(r"oocarrays: a task pinned to the worker tcp://\S+ ran on tcp://\S+\n", capsys.readouterr().err)
    assert tasks_left(two_workers) == 0


def test_workers_that_do_not_finish_are_an_error(
    two_workers: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_constants(monkeypatch, calibration_timeout=0.1)
    busy = two_workers.map(lambda _: time.sleep(1), range(2), pure=False)
    assert main(["calibrate", *at(two_workers)]) == 1
    assert "did not finish small tasks within 0.1 s" in capsys.readouterr().err
    two_workers.gather(busy)
    busy.clear()
    assert tasks_left(two_workers) == 0


# ---------------------------------------------------------------------- what is kept


def test_what_was_measured_earlier_and_not_now_is_kept(
    machine: dict[str, Any], kept: Callable[..., dict[str, Any]]
) -> None:
    machine |= {"message_seconds": 0.01, "message_bandwidth": 5e8}
    machine |= {"task_seconds": 1e-3, "decode_bandwidth": {"zstd": 2.0, "zlib": 3.0}}
    kept()
    machine.clear()
    machine |= {"task_seconds": 2e-7, "decode_bandwidth": {"zstd": 7e8}}
    assert kept()["oocarrays"]["cost"] == {
        "message_seconds": 0.01,
        "message_bandwidth": 5e8,
        "task_seconds": 2e-7,
        "decode_bandwidth": {"zstd": 7e8, "zlib": 3.0},
    }


@pytest.mark.parametrize("old", ["", "oocarrays:\n", "oocarrays:\n  cost:\n", "oocarrays: {cost: 3}\n"])
def test_a_file_with_nothing_in_it_is_no_hindrance(
    tmp_path: Path, machine: dict[str, Any], kept: Callable[..., dict[str, Any]], old: str
) -> None:
    (tmp_path / "oocarrays.yaml").write_text(old)
    machine["task_seconds"] = 1e-7
    assert kept() == {"oocarrays": {"cost": {"task_seconds": 1e-7}}}


OTHERS = """
oocarrays:
  memory: 1GiB
  scratch: null
  cost: {seek_seconds: .inf, cores: 3}
distributed:
  logging: {}
  worker: {memory: {target: 0.6, spill: false}, resources: {disk: 1}, preload: ["a: b", c]}
"""


def test_other_settings_in_the_file_are_kept(
    tmp_path: Path, machine: dict[str, Any], kept: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "oocarrays.yaml").write_text(OTHERS)
    machine["task_seconds"] = 1e-4
    expected = yaml.safe_load(OTHERS)
    expected["oocarrays"]["cost"]["task_seconds"] = 1e-4
    assert kept() == expected


@pytest.mark.parametrize("count", [2, 3, 8, 64, 1000])
@pytest.mark.parametrize("memory_limit", [0, 2**28])
def test_what_workers_of_one_machine_exchange_has_room_there(count: int, memory_limit: int) -> None:
    """Messages of 16 MiB between 16 workers of one process had been 4 GiB, held five times."""
    worker = Worker(address="a", host="10.0.0.1", threads=1, memory_limit=memory_limit, memory=0)
    sizes = message_sizes([worker] * count)
    assert sizes == sorted(sizes, reverse=True)
    assert count**2 * sizes[0] <= max(2**28, count**2)
    assert not memory_limit or count * sizes[0] <= max(memory_limit // 8, count)
