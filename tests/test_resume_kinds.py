"""What any job has left is gone on with by ``ooc.resume``: killed in the middle, and compared with numpy."""

from __future__ import annotations

import linecache
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import DiskFullError, InputError, JournalError, NotFoundError, UnfinishedError
from tests.dying import Server
from tests.flat import flat
from tests.graphs.clusters import cluster, within
from tests.seams import JOURNAL_CALL, Journal, rank_name, replace_step, set_constants, step
from tests.unfinished import left_behind

pytestmark = pytest.mark.long

FIELD = np.random.default_rng(3).integers(1, 999, (96, 40), dtype="i4")
MEMORY = "64MiB"
SLABS = {"memory": MEMORY, "ranks": 1, "height": 8, "scheduler": "threads"}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(2) as made:
        yield made


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A job that is killed, and what it makes."""

    call: str
    """The function that plans it."""
    before: tuple[Any, ...] = ()
    """Its arguments before source and target."""
    more: tuple[Any, ...] = ()
    """Those between them."""
    options: dict[str, Any]
    """What else it is asked for."""
    expected: np.ndarray
    """What it makes."""
    local: bool = False
    """Whether it reads local array files."""
    smaller: int | None = None
    """Bytes of memory with which it is planned anew."""


LOCAL = {"memory": MEMORY, "height": 8, "scheduler": "threads"}
KINDS: dict[str, Kind] = {
    "map_slabs": Kind(call="map_slabs", before=("numpy:negative",), options=SLABS, expected=-FIELD),
    "local": Kind(call="map_slabs", before=("numpy:negative",), options=LOCAL, expected=-FIELD, local=True),
    "iterate": Kind(
        call="iterate", before=("numpy:negative",), options=SLABS | {"sweeps": 3, "fuse": 1}, expected=-FIELD
    ),
    "scatter": Kind(
        call="scatter_files",
        more=("(block, *)",),
        options={"ranks": 3, "chunks": (8, 40), "memory": MEMORY, "scheduler": "threads"},
        expected=FIELD,
    ),
    "scatter across": Kind(  # chunks of local files that two rounds write
        call="scatter_files",
        more=("(block, *)",),
        options={"ranks": 3, "chunks": (5, 40), "memory": MEMORY, "scheduler": "threads"},
        expected=FIELD,
    ),
    "gather": Kind(
        call="gather_files",
        options={"chunks": (8, 20), "memory": MEMORY, "scheduler": "threads"},
        expected=FIELD,
        local=True,
    ),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def source_of(kind: Kind, folder: Path) -> Path:
    zarr.create_array(folder / "a", data=FIELD, chunks=(8, 40), compressors=None, fill_value=-1)
    if not kind.local:
        return folder / "a"
    ooc.ranks.scatter_files(
        folder / "a", "(block, *)", ooc.Target(folder / "l", chunks=(8, 40)), ranks=3, scheduler="threads"
    ).run()
    return folder / "l"


def killed(runs: Server, kind: Kind, folder: Path, *, after: int = 9, at: str = "entry") -> Path:
    """The target of a run that was killed after some entries."""
    source, target = source_of(kind, folder), folder / "target"
    runs.run(kind.call, *kind.before, source, *kind.more, target, at=at, after=after, **kind.options)
    with pytest.raises(UnfinishedError):
        ooc.open_array(target)
    return target


def check(target: Path, kind: Kind, made: Any) -> None:
    np.testing.assert_array_equal(made[...], kind.expected)
    np.testing.assert_array_equal(ooc.open_array(target)[...], kind.expected)
    assert left_behind(target.parent) == []


@pytest.mark.sampled(2)
@each_kind
@pytest.mark.parametrize("after", [2, 9])
def test_a_killed_run_goes_on(tmp_path: Path, runs: Server, kind: str, after: int) -> None:
    target = killed(runs, KINDS[kind], tmp_path, after=after)
    stored = sum(any((receipts or {}).values()) for receipts in Journal(target).stored().values())
    job = ooc.resume(target)
    assert job.left < 1 or not stored
    check(target, KINDS[kind], job.run())
    assert job.plan.traffic.write_requests > job.meter.write_requests or not stored, "what was stored stays"
    with pytest.raises(NotFoundError, match="nothing to resume"):
        ooc.resume(target)


@pytest.mark.sampled(2)
@each_kind
@pytest.mark.parametrize("how", ["again", "verify"])
@pytest.mark.filterwarnings("ignore:.* are not as they were")  # chunks to which a round that is not recorded has added
def test_it_begins_again_or_looks_at_everything(tmp_path: Path, runs: Server, kind: str, how: str) -> None:
    asked = KINDS[kind]
    target = killed(runs, asked, tmp_path)
    if how == "again":
        (tmp_path / "a").rename(tmp_path / "old")
        zarr.create_array(tmp_path / "a", data=FIELD + 1, chunks=(8, 40), compressors=None, fill_value=-1)
        if asked.local:
            ooc.ranks.scatter_files(
                tmp_path / "a",
                "(block, *)",
                ooc.Target(tmp_path / "l", chunks=(8, 40)),
                ranks=3,
                overwrite=True,
                scheduler="threads",
            ).run()
        if kind != "local":  # whose sources may be on workers' own disks: nobody looks
            with pytest.raises(JournalError, match="have changed since"):
                ooc.resume(target)
    job = flat(ooc.resume, target, **{how: True})
    np.testing.assert_array_equal(job.run()[...], asked.expected + (how == "again") * np.sign(asked.expected))


def a_chunk(target: Path, kind: str) -> Path:
    """A chunk that is recorded."""
    part, receipts = max(
        (part, receipts) for part, receipts in Journal(target).stored().items() if any((receipts or {}).values())
    )
    ((name, keys),) = receipts.items()
    rank = {"scatter": name, "scatter across": name, "local": name.rpartition("/")[2]}.get(kind)
    where = target if rank is None else target / rank_name(int(rank))
    if kind == "iterate":
        (where,) = target.parent.glob(f".oocarrays-*/{part[0]}")
    return where / max(keys)


@pytest.mark.sampled(2)
@each_kind
@pytest.mark.parametrize("fault", ["removed", "truncated"])
def test_chunks_that_are_lost_are_written_again(tmp_path: Path, runs: Server, kind: str, fault: str) -> None:
    target = killed(runs, KINDS[kind], tmp_path)
    chunk = a_chunk(target, kind)
    chunk.unlink() if fault == "removed" else chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="written again"):
        job = ooc.resume(target)
    check(target, KINDS[kind], job.run())


# ---------------------------------------------------------------------- what no journal keeps, and where it goes on


def write_kernel(folder: Path, name: str, body: str = "-block") -> None:
    (folder / f"{name}.py").write_text(f"def smooth(block):\n    return {body}\n")


def test_a_kernel_is_given_again_and_is_the_same(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(8, 40))
    for name in ("filters_before", "filters_other"):
        write_kernel(tmp_path, name)
    at_once = {"oocarrays.durable": False}  # else entries are published once a second
    runs.run("script", write_script(tmp_path, "filters_before"), at="entry", after=4, config=at_once)
    target = tmp_path / "target"
    with pytest.raises(JournalError, match=r"with filters_before:smooth, which is not kept: .*kernel=smooth"):
        ooc.resume(target)
    with pytest.raises(JournalError, match="with filters_before:smooth, not filters_other:smooth"):
        ooc.resume(target, kernel="filters_other:smooth")
    with pytest.raises(JournalError, match="not numpy:negative"):
        ooc.resume(target, kernel=np.negative)
    with pytest.raises(InputError, match="module 'filters_before' has no attribute 'rough'"):
        ooc.resume(target, kernel="filters_before:rough")
    with pytest.raises(JournalError, match="was being written by map_slabs: not by iterate"):
        ooc.resume(target, kind="iterate", kernel="filters_before:smooth")
    write_kernel(tmp_path, "filters_before", "block * -1")
    with pytest.raises(JournalError, match="filters_before:smooth has changed since the run in"):
        ooc.resume(target, kernel="filters_before:smooth")
    assert ooc.resume(target, kernel="filters_before:smooth", as_is=True).left < 1
    write_kernel(tmp_path, "filters_before")
    linecache.clearcache()
    words = ["resume", "target", "--kernel", "filters_before:smooth"]
    assert main([*words, "--dry-run"]) == 0
    assert "is done by map_slabs; " in capsys.readouterr().out
    assert main(words) == 0
    np.testing.assert_array_equal(ooc.open_array(target)[...], -FIELD)


SCRIPT = """
import {name}
import oocarrays as ooc

with ooc.Resources(ranks=1, memory="64MiB", scheduler="threads"):
    ooc.map_slabs({name}.smooth, "a", "target", window=8).run()
"""


def write_script(folder: Path, name: str) -> Path:
    """Write a program that maps slabs with a kernel of its own."""
    script = folder / "script.py"
    script.write_text(SCRIPT.format(name=name))
    return script


def test_a_function_is_never_taken_by_a_name_in_a_journal(tmp_path: Path, runs: Server) -> None:
    target = killed(runs, KINDS["map_slabs"], tmp_path)
    journal = Journal(target)
    id, content = journal.read()
    for name in ("os:system", "numpy:load", "pickle:_loads", "shutil:rmtree"):
        content[JOURNAL_CALL]["functions"] = [{"name": name, "code": None}]
        journal.replace(id, content)
        with pytest.raises(JournalError, match=f"with {name}, which is not kept"):
            ooc.resume(target)


@each_kind
def test_a_source_that_has_moved_or_no_name_is_given(tmp_path: Path, runs: Server, kind: str) -> None:
    asked = KINDS[kind]
    target = killed(runs, asked, tmp_path)
    source = tmp_path / ("l" if asked.local else "a")
    shutil.copytree(source, tmp_path / "b")  # with the times of its chunks
    shutil.rmtree(source)
    with pytest.raises(NotFoundError):
        ooc.resume(target)
    with pytest.raises(InputError, match="2 sources were passed"):
        ooc.resume(target, source=[tmp_path / "b", tmp_path / "b"])
    check(target, asked, ooc.resume(target, source=tmp_path / "b").run())


@each_kind
def test_a_source_that_has_changed_is_refused(tmp_path: Path, runs: Server, kind: str) -> None:
    asked = KINDS[kind]
    target = killed(runs, asked, tmp_path)
    chunk = tmp_path / (f"l/{rank_name(1)}/c/0/0" if asked.local else "a/c/5/0")
    data = chunk.read_bytes()
    chunk.unlink()
    chunk.write_bytes(data[::-1])
    with pytest.raises(JournalError, match="have changed since the run"):
        ooc.resume(target)
    assert ooc.resume(target, as_is=True).left < 1


@each_kind
def test_a_source_that_was_copied_back_to_its_place_is_named(tmp_path: Path, runs: Server, kind: str) -> None:
    """The copy has other inodes, also where the run itself looks again."""
    asked = KINDS[kind]
    target = killed(runs, asked, tmp_path)
    source = tmp_path / ("l" if asked.local else "a")
    shutil.copytree(source, tmp_path / "copy")  # with the times of its chunks
    shutil.rmtree(source)
    (tmp_path / "copy").rename(source)
    with pytest.raises(JournalError, match="if it was copied, pass it as source"):
        ooc.resume(target)
    check(target, asked, ooc.resume(target, source=source).run())


@pytest.mark.parametrize("kind", ["local", "scatter", "gather"])
def test_files_are_planned_anew_where_memory_is_less(tmp_path: Path, kind: str) -> None:
    """In rounds of other boxes, or slabs of another height: chunks that have been written stay."""
    data = np.random.default_rng(1).integers(1, 99, (2048, 512), dtype="i4")
    zarr.create_array(tmp_path / "a", data=data, chunks=(64, 512), compressors=None)
    how: dict[str, Any] = {"chunks": (64, 512), "scheduler": "threads"}
    target, large = tmp_path / "t", "64MiB"
    local = None
    if kind != "scatter":
        local = flat(ooc.ranks.scatter_files, tmp_path / "a", "(block, *)", tmp_path / "l", ranks=2, **how).run()
    with pytest.MonkeyPatch.context() as patch:
        set_constants(patch, round_bytes=2**20, record_seconds=0.0)  # each part is written down as soon as it can be
        if kind == "scatter":
            job: Any = flat(ooc.ranks.scatter_files, tmp_path / "a", "(block, *)", target, ranks=2, memory=large, **how)
        elif kind == "gather":
            job = flat(ooc.ranks.gather_files, local, target, memory=large, **how)
        else:
            job = ooc.map_slabs(np.negative, local, target, memory=large, scheduler="threads", window=512)
        stop(patch, job, after=2 if kind == "local" else 6)
    before = stamps_of(target, recorded(target))
    again = ooc.resume(target, memory=job.plan.peak_bytes - 1)
    assert again.plan.peak_bytes < job.plan.peak_bytes
    assert any("planned anew" in notice for notice in again.notices)
    assert 0 < again.left < 1
    np.testing.assert_array_equal(again.run()[...], -data if kind == "local" else data)
    assert before
    assert before == stamps_of(target, set(before))


def stop(patch: pytest.MonkeyPatch, job: Any, after: int) -> None:
    """Run a job that fails when some parts are written down."""
    real, calls = step("record part"), count()

    def full(self: Journal, part: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
        if len(part) > 1 and next(calls) >= after:
            raise DiskFullError("no space left on the device")
        return real(self, part, *args, **kwargs)

    replace_step(patch, "record part", full)
    with pytest.raises(DiskFullError):
        job.run()


def recorded(target: Path) -> set[str]:
    """Chunks of which something is recorded, as they stand below the target."""
    stored = [each for each in Journal(target).stored().values() if each]
    ranks = [(name.rpartition("/")[2], keys) for receipts in stored for name, keys in receipts.items()]
    return {f"{rank_name(int(rank))}/{key}" if rank else key for rank, keys in ranks for key in keys}


def stamps_of(target: Path, keys: set[str]) -> dict[str, int]:
    return {key: (target / key).stat().st_ino for key in keys}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["scatter", "gather"])
def test_files_go_on_on_workers(tmp_path: Path, runs: Server, client: Client, kind: str) -> None:
    asked = KINDS[kind]
    target = killed(runs, asked, tmp_path)
    stored = sum(len(part) > 1 for part in Journal(target).parts())
    job = ooc.resume(target, scheduler=client, memory=MEMORY)
    assert job.plan.processes
    assert job.left < 1
    made = within(job.run)
    check(target, asked, made)
    assert stored
    assert job.meter.write_requests < job.plan.traffic.write_requests
