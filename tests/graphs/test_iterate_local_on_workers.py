"""Iterated sweeps over files on workers' own disks: each rank's scratch is beside its file, and its worker's alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, wait

import oocarrays as ooc
from oocarrays.errors import BudgetError, DiskFullError, InputError, KernelError, LayoutError
from tests.flat import flat
from tests.graphs.clusters import cluster, events, home_of, kill_when, within
from tests.graphs.test_killed_tasks import dies
from tests.seams import replace_step, task_of
from tests.sweeping import gray_scott, jacobi, plain_sweeps, together

pytestmark = pytest.mark.long

RANDOM = np.random.default_rng(5)
FIELD = RANDOM.random((90, 40))
U, V = 1 - FIELD / 4, FIELD[::-1] / 2
RANKS = 3
SWEPT: dict[str, Any] = {"sweeps": 6, "fuse": 2, "axis": 0, "height": 8, "memory": "64MiB"}


@pytest.fixture
def spare() -> Iterator[Client]:
    """Workers of which one has no ranks: it takes over at once."""
    with cluster(RANKS + 1) as client:
        yield client


def made(folder: Path, name: str, array: np.ndarray) -> ooc.ranks.LocalArrays:
    layout = ooc.Layout.of(array.shape, "(block, *)", ranks=RANKS)
    a = ooc.create_array(
        ooc.Target(folder / name, folders=disks(folder, name)),
        shape=array.shape,
        dtype=array.dtype,
        layout=layout,
        placement="local",
        depth=1,
        chunks=(8, 40),
    )
    a[...] = array
    return a


def disks(folder: Path, name: str) -> str:
    return str(folder / "disk-{rank}" / name)


def names(folder: Path) -> list[list[str]]:
    """What is on each disk."""
    return [sorted(path.name for path in (folder / f"disk-{rank}").iterdir()) for rank in range(RANKS)]


def plain(sweeps: int) -> Any:
    return plain_sweeps(FIELD, jacobi, (1, 1), "none", sweeps)


def scratch(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/.oocarrays-*"))


def test_each_rank_sweeps_where_its_file_is(two: Client, tmp_path: Path) -> None:
    a = made(tmp_path, "a", FIELD)
    states = [plain(sweeps) for sweeps in range(9)]
    residuals = [float(np.abs(states[n] - states[n - 1]).max()) for n in (2, 4, 6)]
    how = SWEPT | {"sweeps": 20, "until": residuals[-1], "folders": disks(tmp_path, "b")}
    job = flat(ooc.iterate, jacobi, a, tmp_path / "b", **how)
    b = within(job.run)
    np.testing.assert_array_equal(b[...], states[6])
    assert (job.residuals, b.disks.workers) == (residuals, a.disks.workers)
    assert all(event["worker"] == home_of(job, event) for event in events(two, job) if event["args"])
    assert names(tmp_path) == [["a", "b"]] * RANKS
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("disk")) == ["a", "b"]


def test_fields_and_what_is_beside_them_as_one_graph(two: Client, tmp_path: Path) -> None:
    def kernel(u: np.ndarray, v: np.ndarray, land: np.ndarray) -> list[np.ndarray]:
        return [np.where(land > 0, 0, each) for each in gray_scott(u, v)]

    land = np.asarray(U < 0.8, "u1")
    sources = [made(tmp_path, name, each) for name, each in zip(("u", "v", "land"), (U, V, land), strict=True)]
    targets, where = [tmp_path / "0", tmp_path / "1"], disks(tmp_path, "{target}")
    stored = [ooc.Target(each, folders=where) for each in targets]
    job = flat(ooc.iterate, kernel, sources, stored, boundary="periodic", **SWEPT)
    within(lambda: wait(job.persist()))  # a worker, where `dask.compute` makes its result, sees no other's disk
    found = map(ooc.open_array, targets)
    for each, other in zip(found, together(kernel, [U, V, land], 2, (1, 1), "periodic", 6), strict=True):
        np.testing.assert_array_equal(each[...], other)
    assert names(tmp_path) == [["0", "1", "land", "u", "v"]] * RANKS


def failing(on: Path, seen: Path, at: int) -> Callable[[np.ndarray], np.ndarray]:
    """A kernel that fails while there is a file, where others have been called so often."""

    def kernel(block: np.ndarray) -> np.ndarray:
        if on.exists():
            with open(seen, "ab") as file:
                file.write(b".")
            if os.path.getsize(seen) > at:
                raise ValueError("not yet")
        return jacobi(block)

    return kernel


def stopped(tmp_path: Path, at: int, how: dict[str, Any]) -> tuple[Any, Any, Any]:
    """An array, a kernel that is mended by now, and the job of its sweeps, which has failed."""
    a, on = made(tmp_path, "a", FIELD), tmp_path / "on"
    on.touch()
    kernel = failing(on, tmp_path / "seen", at)
    job = flat(ooc.iterate, kernel, a, tmp_path / "b", **how)
    with pytest.raises(KernelError, match="not yet"):
        within(job.run)
    on.unlink()
    return a, kernel, job


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["run", "iterate", "resume"])
@pytest.mark.parametrize("asked", [None, "elsewhere-{rank}"])
def test_a_kernel_that_fails_leaves_scratch_on_its_disks_and_the_pass_goes_on(
    two: Client, tmp_path: Path, way: str, asked: str | None
) -> None:
    how = SWEPT | {"folders": disks(tmp_path, "b"), "scratch": asked and str(tmp_path / asked)}
    a, kernel, job = stopped(tmp_path, 40, how)
    left = sorted(f"{(asked or 'disk-{rank}').format(rank=rank)}" for rank in range(RANKS))
    assert scratch(tmp_path) == left
    if way == "iterate" or asked:  # where scratch was asked for, no journal says
        job = flat(ooc.iterate, kernel, a, tmp_path / "b", resume=True, **how)
    elif way == "resume":
        job = ooc.resume(tmp_path / "b", kernel=kernel, kind="iterate")
    assert job.left < 0.7
    np.testing.assert_array_equal(within(job.run)[...], plain(6))
    assert scratch(tmp_path) == []
    assert names(tmp_path) == [["a", "b"]] * RANKS


def test_scratch_that_is_gone_on_one_disk_is_made_again(two: Client, tmp_path: Path) -> None:
    how = SWEPT | {"folders": disks(tmp_path, "b")}
    a, kernel, _ = stopped(tmp_path, 60, how)
    for document in (tmp_path / "disk-1").glob(".oocarrays-*/*/zarr.json"):
        document.unlink()
    job = flat(ooc.iterate, kernel, a, tmp_path / "b", resume=True, **how)
    assert job.left == 1
    assert any("own disks" in notice for notice in job.notices)
    np.testing.assert_array_equal(within(job.run)[...], plain(6))
    assert names(tmp_path) == [["a", "b"]] * RANKS


def test_what_cannot_be_gone_on_with_is_removed_where_it_is(
    two: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the workers: this process sees no disk of theirs."""

    def remove(self: Any) -> None:  # of the same name, by which workers find their own
        pass

    def kernel(block: np.ndarray) -> np.ndarray:
        with open(seen, "ab") as file:
            file.write(b".")
        if os.path.getsize(seen) > 40:
            assert list(tmp_path.glob("disk-*/.oocarrays-*/0/zarr.json"))
            raise DiskFullError("no space is left")
        return jacobi(block)

    seen, a = tmp_path / "seen", made(tmp_path, "a", FIELD)
    job = flat(ooc.iterate, kernel, a, ooc.Target(tmp_path / "b", folders=disks(tmp_path, "b")), **SWEPT)
    replace_step(monkeypatch, "remove rank's scratch", remove)
    with pytest.raises(DiskFullError, match="no space"):
        within(job.run)
    assert scratch(tmp_path) == []


def test_a_plan_for_too_little_memory_is_refused_where_nobody_sees_what_is_left(two: Client, tmp_path: Path) -> None:
    how = SWEPT | {"folders": disks(tmp_path, "b")}
    a, kernel, _ = stopped(tmp_path, 40, how)
    with pytest.raises(BudgetError, match="too small"):
        flat(ooc.iterate, kernel, a, tmp_path / "b", resume=True, **how | {"memory": 2**18})
    job = ooc.resume(tmp_path / "b", kernel=kernel, again=True)
    np.testing.assert_array_equal(within(job.run)[...], plain(6))
    assert names(tmp_path) == [["a", "b"]] * RANKS


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "number", "rank"),
    [("begin", 2, 0), ("make files", 2, 1), ("end pass", 1, 0), ("close", 1, 1), ("close", 2, 2), ("end", 1, 0)],
)
def test_what_begins_or_ends_a_pass_returns_and_its_worker_dies(
    spare: Client, tmp_path: Path, task: str, number: int, rank: int
) -> None:
    """Where all see all files: another worker takes over."""
    a = ooc.create_array(
        tmp_path / "a", shape=FIELD.shape, dtype=FIELD.dtype, layout="(block, *)", ranks=RANKS, placement="local",
        depth=1, chunks=(8, 40),
    )  # fmt: skip
    a[...] = FIELD
    job = flat(ooc.iterate, jacobi, a, tmp_path / "b", scheduler=spare, **SWEPT)
    dies(spare, job.placement[rank], *task_of(job, task), number, "after")
    np.testing.assert_array_equal(within(job.run)[...], plain(6))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert not list((tmp_path / "b").glob(".oocarrays*/journal*"))


@pytest.mark.long
@pytest.mark.parametrize("writes", [4, 15, 30])
def test_a_worker_killed_in_the_middle_comes_back_to_its_disk(tmp_path: Path, writes: int) -> None:
    with cluster(3) as client:
        a = made(tmp_path, "a", FIELD)
        job = flat(ooc.iterate, jacobi, a, ooc.Target(tmp_path / "b", folders=disks(tmp_path, "b")), **SWEPT)
        killer = kill_when(client, job, job.placement[1], lambda: job.meter.write_requests > writes)
        np.testing.assert_array_equal(within(job.run)[...], plain(6))
        killer.join()
        assert scratch(tmp_path) == []


def test_wrong_places_are_told_in_a_line(two: Client, tmp_path: Path) -> None:
    a, own = made(tmp_path, "a", FIELD), disks(tmp_path, "b")
    cases: list[tuple[type[InputError], str, dict[str, Any]]] = [
        (InputError, "must be a folder on workers' own disks", {"folders": own, "scratch": "s3://b/{rank}"}),
        (InputError, "must be a folder on workers' own disks", {"folders": own, "scratch": ["/x", "/y"]}),
        (InputError, "may have only {rank} in braces", {"folders": own, "scratch": "/tmp/{disk}"}),
        (InputError, "is inside the source", {"folders": own, "scratch": disks(tmp_path, "a")}),
        (InputError, "is inside the target", {"folders": own, "scratch": own}),
        (LayoutError, "must contain {rank}", {"folders": str(tmp_path / "b")}),
    ]
    for error, told, how in cases:
        with pytest.raises(error, match=told) as caught:
            flat(ooc.iterate, jacobi, a, tmp_path / "b", **SWEPT | how)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "b").exists()
