"""One exchange under all requests: any schedule gives the elements, on workers and between threads, counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import RunError
from oocarrays.graphs.run.live import GIVEN_UP, settled
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.prediction import square
from oocarrays.plan.exchange.schedule import NAMES
from oocarrays.storage.meter import Meter
from tests.flat import flat
from tests.graphs.clusters import tight, until, within
from tests.mapping.local_parts import expected
from tests.padding import seen

pytestmark = pytest.mark.long

FIELD = np.random.default_rng(7).integers(1, 99, (48, 36), dtype="i4")
SCHEDULES = [name.lower() for name in NAMES]
EXCHANGING = ("send", "message", "gather", "pass_on", "exchange", "write")
"""Phases in which ranks give each other what they have: in collective writes threads take when they write."""


@pytest.fixture(params=["workers", "threads"])
def on(request: pytest.FixtureRequest) -> Client | str:
    """Where ranks are."""
    where: Client | str = request.getfixturevalue("two") if request.param == "workers" else "threads"
    return where


@pytest.fixture
def source(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(8, 36), compressors=None, fill_value=-1)
    return tmp_path / "a"


def assert_metered(meter: Meter, messages: int, nbytes: int) -> None:
    """What was told by all workers comes a little later than the result."""
    until(lambda: (meter.messages, meter.sent_bytes) >= (messages, nbytes), 10)
    assert (meter.messages, meter.sent_bytes) == (messages, nbytes)
    assert sum(span.phase in EXCHANGING for span in meter.spans) >= bool(messages)
    assert meter.seconds


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_scatter_gather_and_shift_of_files(on: Client | str, source: Path, tmp_path: Path, schedule: str) -> None:
    how: dict[str, Any] = {"schedule": schedule, "scheduler": on}
    scatter = flat(
        ooc.ranks.scatter_files, source, "(cyclic(5), block)", tmp_path / "l", grid=(2, 2), depth=(0, 2), **how
    )
    a = within(scatter.run)
    for rank in range(4):
        np.testing.assert_array_equal(a.local(rank)[...], expected(FIELD, a.layout, rank, (0, 2), -1))
    gather = flat(ooc.ranks.gather_files, a, ooc.Target(tmp_path / "g", chunks=(10, 20)), **how)
    np.testing.assert_array_equal(within(gather.run)[...], FIELD)
    blocks = within(
        flat(ooc.ranks.scatter_files, source, "(block, block)", tmp_path / "b", grid=(2, 2), depth=(3, 2), **how).run
    )
    shift = flat(ooc.ranks.shift, ooc.open_array(tmp_path / "b", mode="r+"), boundary="periodic", **how)
    within(shift.run)
    for rank in range(4):
        there = zarr.open_array(blocks.files.place(rank), mode="r")[...]
        np.testing.assert_array_equal(there, seen(FIELD, blocks.layout, rank, (3, 2), "periodic"))
    for job in (scatter, gather, shift):
        assert job.plan.schedule.name == schedule.upper()
        assert job.meter.messages == job.plan.traffic.messages
        assert bool(job.meter.messages) == (on != "threads"), "threads look at what others have packed"
        assert {"read", "write"} <= {span.phase for span in job.meter.spans}
        sent, planned = job.meter.sent_bytes, job.plan.traffic.exchanged_bytes
        exact = job is shift or job.plan.schedule.forwards  # else those that stay with their rank are counted, too
        assert sent == planned if exact or on == "threads" else 0 < sent <= planned


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", [None, *SCHEDULES])
def test_a_collective_read(on: Client | str, source: Path, schedule: str | None) -> None:
    how: Any = {"method": "two-phase", "schedule": schedule, "scheduler": on}
    with dask.config.set({"oocarrays.collective-buffer": "1kB"}):
        y = flat(ooc.ranks.read_sections, source, "(cyclic(5), block)", grid=(2, 2), **how)
    np.testing.assert_array_equal(within(y.compute), FIELD)
    assert len(y.plan.rounds) > 1
    if on == "threads":  # what is read goes straight into all parts
        assert_metered(y.meter, 0, 0)
        assert y.plan.messages == 0
        return
    nbytes = y.plan.exchanged_bytes
    if y.plan.schedule is not None:
        rounds = [Exchange.of(y.plan.schedule, sizes * FIELD.itemsize) for sizes in y.plan.read.between]
        nbytes = sum(each.sent_bytes for each in rounds)
    assert y.plan.messages > 4
    assert_metered(y.meter, y.plan.messages, nbytes)


@pytest.mark.sampled
@pytest.mark.parametrize("assembly", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_redistribution(on: Client | str, schedule: str, assembly: str) -> None:
    x = ooc.ranks.distribute(FIELD, "(cyclic(3), block)", grid=(2, 2), scheduler=on)
    y = x.redistribute("(*, cyclic(2))", ranks=4, schedule=schedule, assembly=assembly)
    np.testing.assert_array_equal(within(y.compute), FIELD)
    if on == "threads":
        assert_metered(y.meter, y.plan.price.messages, y.plan.price.moved_bytes)
        return
    made = zip(y.plan.transfers, y._messaging.schedules, strict=True)
    sizes = [(order, square(transfer.sizes()) * FIELD.itemsize) for transfer, order in made]
    each = [Exchange.of(order, size * ~np.eye(4, dtype=bool)) for order, size in sizes]
    assert_metered(y.meter, sum(one.messages for one in each), sum(one.sent_bytes for one in each))


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_halos(on: Client | str, schedule: str) -> None:
    x = ooc.ranks.distribute(FIELD, "(block, block)", ranks=4, scheduler=on)
    shifted = ooc.ranks.shift(x, (5, 2), boundary="reflect", resources=ooc.Resources(schedule=schedule))
    for rank, block in enumerate(within(shifted.compute)):
        np.testing.assert_array_equal(block, seen(FIELD, x.layout, rank, (5, 2), "reflect"))
    if on == "threads":
        assert_metered(shifted.meter, shifted.plan.messages, shifted.plan.sent_bytes)
        return
    exchange = Exchange.of(shifted.plan.schedule, shifted.plan.between)
    assert_metered(shifted.meter, exchange.messages, exchange.sent_bytes)


def test_a_multicast(on: Client | str) -> None:
    x = ooc.ranks.distribute(FIELD, "(cyclic(3), block)", ranks=4, scheduler=on)
    cast = ooc.ranks.multicast(x, np.s_[2:9, ::-4], root=2)
    for block in within(cast.compute):
        np.testing.assert_array_equal(block, FIELD[2:9, ::-4])
    sent = (0, 0) if on == "threads" else (cast.plan.messages, cast.plan.sent_bytes)
    assert_metered(cast.meter, *sent)


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_collective_write(on: Client | str, tmp_path: Path, schedule: str) -> None:
    zarr.create_array(tmp_path / "w", shape=FIELD.shape, chunks=(8, 36), dtype="i4", compressors=None)
    x = ooc.ranks.distribute(FIELD, "(cyclic(5), block)", grid=(2, 2), scheduler=on)
    job = ooc.ranks.write_sections(
        tmp_path / "w", x.layout, x, method="two-phase", resources=ooc.Resources(schedule=schedule)
    )
    within(job.run)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "w", mode="r")[...], FIELD)
    planned = job.plan.traffic
    assert_metered(job.meter, planned.messages, 0 if on == "threads" else planned.exchanged_bytes)


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rechunk(on: Client | str, tmp_path: Path, schedule: str) -> None:
    """Of several partitions: threads take in the step in which a message would come."""
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(12, 36), compressors=None)
    how: Any = {"method": "two-phase", "ranks": 4, "schedule": schedule, "scheduler": on}
    job = tight(lambda **memory: flat(ooc.rechunk, tmp_path / "a", tmp_path / "t", chunks=(48, 3), **how, **memory))
    np.testing.assert_array_equal(within(job.run)[...], FIELD)
    (step,), planned = job.plan.passes, job.plan.traffic
    assert step.schedule.name == schedule.upper()
    assert step.units == 3
    assert_metered(job.meter, planned.messages, 0 if on == "threads" else planned.exchanged_bytes)


@pytest.mark.parametrize("request_of", ["read", "redistribute", "shift", "multicast"])
def test_tasks_that_were_given_up_do_nothing(two: Client, source: Path, request_of: str) -> None:
    """They are refused where they come late, and done when their array is wanted again."""
    x = ooc.ranks.distribute(FIELD, "(block, block)", grid=(2, 2))
    made = {
        "read": lambda: ooc.ranks.read_sections(source, "(cyclic(5), block)", grid=(2, 2), method="two-phase"),
        "redistribute": lambda: x.redistribute("(*, cyclic)", ranks=4),
        "shift": lambda: ooc.ranks.shift(x, (5, 2)),
        "multicast": lambda: ooc.ranks.multicast(x, np.s_[2:9, ::-4]),
    }[request_of]()
    suffixes = tuple(made.tasks.homes)
    two.run(settled, suffixes, suffixes)
    with pytest.raises(RunError, match="has been given up"):
        within(made.compute)  # which has workers forget that, as it may be wanted again
    assert len(within(made.compute)) in (4, 48)


def unlucky(block: np.ndarray) -> np.ndarray:
    raise ZeroDivisionError("of the user")


def given_up() -> list[str]:
    """The graphs that this worker refuses: its own set, not a copy of that of the process that asks."""

    return list(GIVEN_UP)


def test_an_array_that_failed_is_given_up_and_computed_once_more(two: Client, source: Path) -> None:
    """Nothing of it runs when the failure is heard of; what it needs may be mended, and then it is computed."""
    blocks = da.from_array(FIELD, chunks=(24, 18)).map_blocks(unlucky, meta=np.empty(0, "i4"))
    failing = ooc.ranks.distribute(blocks, "(block, block)", grid=(2, 2))
    with pytest.raises(ZeroDivisionError, match="of the user"):
        within(failing.redistribute("(*, cyclic)", ranks=4).compute)
    y = ooc.ranks.read_sections(source, "(cyclic(5), block)", grid=(2, 2), method="two-phase")
    source.rename(source.with_name("away"))
    with pytest.raises(ooc.errors.OocError):
        within(y.compute)
    assert not any(two.run(given_up).values())
    source.with_name("away").rename(source)
    np.testing.assert_array_equal(within(y.compute), FIELD)


@pytest.mark.parametrize("schedule", ["auto", "coloring"])
def test_few_partners_take_few_steps_on_workers(two: Client, schedule: str) -> None:
    """cyclic(4) to cyclic(2): each of 8 ranks has two partners at most, and messages go in two steps."""
    whole = np.arange(200)
    x = ooc.ranks.distribute(whole, "cyclic(4)", ranks=8, scheduler=two).redistribute("cyclic(2)", schedule=schedule)
    assert "COLORING" in x.explain()
    (sizes,) = x.plan.sizes()
    between = int(np.count_nonzero(sizes)) - int(np.count_nonzero(np.diag(sizes)))
    assert (x.compute() == whole).all()
    assert_metered(x.meter, between, int(sizes.sum() - np.trace(sizes)) * whole.itemsize)
