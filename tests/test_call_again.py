"""The same call again, in each state of its target: it starts, continues, or is finished at once; all calls agree."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import DiskFullError, InputError, JournalError, NotFoundError, TargetError
from oocarrays.kernels import median
from tests.dying import Server
from tests.flat import flat
from tests.graphs.clusters import until
from tests.seams import JOURNAL_FOLDER, begin, rank_name, replace_step, set_constants, step
from tests.unfinished import fail, left_behind

FIELD = np.random.default_rng(3).integers(1, 999, (96, 40), dtype="i4")
MEMORY = {"memory": "64MiB", "scheduler": "threads"}
SLABS = MEMORY | {"ranks": 1, "height": 8}
SIXTH, SECOND = {"at": "chunk", "after": 6}, {"at": "entry", "after": 2}
COLUMNS = MEMORY | {"chunks": (96, 4)}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A call that writes a target."""

    call: str
    source: str = "a"
    kernel: str = ""
    between: tuple[Any, ...] = ()
    options: dict[str, Any]
    other: dict[str, Any] = field(default_factory=lambda: {"chunks": (12, 40)})
    """Options of another request."""
    early: dict[str, Any] = field(default_factory=lambda: {"at": "begun"})
    """Where a run is killed early."""
    late: dict[str, Any] = field(default_factory=lambda: {"at": "entry", "after": 5})
    """Where it is killed late."""
    expected: Callable[[Any], np.ndarray] = lambda made: made[...]
    values: np.ndarray = field(default_factory=lambda: FIELD)

    def plan(self, folder: Path, **more: Any) -> Any:
        """Make the call in this process."""
        kernel = [np.negative] if self.kernel else []
        source: Any = folder / self.source
        source = ooc.open_array(source) if self.source == "l" and kernel else source
        given = self.between if self.call == "reduce" else ()
        between = () if self.call == "reduce" else self.between
        place: Any = {"target": folder / "t"} if self.call == "reduce" else {}
        where = [] if place else [folder / "t"]
        return flat(self.call, *kernel, source, *given, *between, *where, **place, **self.options | more)

    def start(self, runs: Server, folder: Path, **how: Any) -> Any:
        """Make it in another process."""
        kernel, target = [self.kernel] if self.kernel else [], folder / "t"
        if self.call == "reduce":
            return runs.start(self.call, folder / self.source, *self.between, target=target, **how, **self.options)
        return runs.start(self.call, *kernel, folder / self.source, *self.between, target, **how, **self.options)


KINDS = {
    "rechunk": Kind(call="rechunk", options=COLUMNS | {"ranks": 1, "method": "independent"}, late=SIXTH),
    "staged": Kind(call="rechunk", options=COLUMNS | {"ranks": 2, "method": "staged"}, late=SECOND),
    "group": Kind(
        call="rechunk", source="g", options=MEMORY | {"chunks": {"b": (96, 4)}, "ranks": 1},
        other={"chunks": {"b": (12, 40)}}, early={"at": "entry"}, late=SIXTH,
        expected=lambda made: made["b"][...],
    ),
    "map_slabs": Kind(call="map_slabs", kernel="numpy:negative", options=SLABS, values=-FIELD),
    "iterate": Kind(
        call="iterate", kernel="numpy:negative", options=SLABS | {"sweeps": 3, "fuse": 1}, other={"sweeps": 5},
        late={"at": "entry", "after": 30}, values=-FIELD,
    ),
    "map_slabs of local files": Kind(
        call="map_slabs", source="l", kernel="numpy:negative", options=MEMORY | {"height": 8}, values=-FIELD
    ),
    "pyramid": Kind(
        call="pyramid", options=MEMORY | {"levels": 2, "ranks": 1, "chunks": (8, 8), "method": "nearest"},
        other={"levels": 3}, late={"at": "entry", "after": 1}, expected=lambda made: made["0"][...],
    ),
    "scatter": Kind(
        call="scatter_files", between=("(block, *)",), options=MEMORY | {"ranks": 3, "chunks": (8, 40)},
        other={"chunks": (4, 40)}, late={"at": "entry", "after": 9},
    ),
    "gather": Kind(call="gather_files", source="l", options=MEMORY | {"chunks": (8, 20)}),
    "reduce": Kind(
        call="reduce", between=("sum",), options=MEMORY | {"axis": 0}, other={"axis": 1},
        late={"at": "entry", "after": 1}, values=FIELD.sum(0),
    ),
}  # fmt: skip
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All sources, and a place for a target."""
    set_constants(monkeypatch, box_bytes=2**12)  # as where a run is killed
    zarr.create_array(tmp_path / "a", data=FIELD, chunks=(8, 40), compressors=None, fill_value=-1)
    group = zarr.create_group(tmp_path / "g")
    group.create_array("b", data=FIELD, chunks=(8, 40))
    group.create_array("c", data=FIELD[:8], chunks=(8, 40))
    ooc.ranks.scatter_files(
        tmp_path / "a", "(block, *)", ooc.Target(tmp_path / "l", chunks=(8, 40)), ranks=3, scheduler="threads"
    ).run()
    return tmp_path


def check(kind: Kind, folder: Path, made: Any) -> None:
    np.testing.assert_array_equal(kind.expected(made), kind.values)
    opened: Any = ooc.open_group(folder / "t") if kind.call == "pyramid" or kind.source == "g" else None
    np.testing.assert_array_equal(
        kind.expected(ooc.open_array(folder / "t") if opened is None else opened), kind.values
    )
    assert left_behind(folder) == []


def check_finished(kind: Kind, folder: Path) -> None:
    """Each call says so; what there is to do is nothing."""
    with pytest.raises(TargetError, match="exists"):
        kind.plan(folder)
    job = kind.plan(folder, resume=True)
    assert job.is_finished
    assert job.left == 0
    assert "chunk" in job.notices[0]
    assert job.notices[0].endswith("nothing to do")
    check(kind, folder, job.run())
    for more in ({}, {"again": True}):
        with pytest.raises(NotFoundError, match="nothing to resume"):
            flat(ooc.resume, folder / "t", **more)
    with pytest.raises(TargetError, match="exists, and was made with"):
        kind.plan(folder, resume=True, **kind.other)


WAYS: dict[str, Callable[[Kind, Path], Any]] = {
    "the same call": lambda kind, folder: kind.plan(folder, resume=True),
    "resume": lambda kind, folder: ooc.resume(folder / "t"),
    "resume again": lambda kind, folder: ooc.resume(folder / "t", again=True),
}


def check_unfinished(kind: Kind, folder: Path, capsys: pytest.CaptureFixture[str], way: str = "resume=True") -> None:
    """No call that was not told to goes on, or throws anything away; all name the same way."""
    before = sorted(path for path in folder.rglob("*") if path.name != "lock")
    with pytest.raises(TargetError, match=rf"is unfinished.*{way}") as caught:
        kind.plan(folder)
    if way == "resume=True":
        assert "chunk" in str(caught.value)
        assert main(["info", str(folder / "t")]) == 0
        assert "oocarrays resume" in capsys.readouterr().out
        with pytest.raises((JournalError, InputError), match=r"was begun with|exists"):
            kind.plan(folder, resume=True, **kind.other)
    assert sorted(path for path in folder.rglob("*") if path.name != "lock") == before


@each_kind
def test_where_nothing_is_it_starts_and_then_is_finished(kind: Kind, folder: Path) -> None:
    for more in ({}, {"again": True}):
        with pytest.raises(NotFoundError, match="nothing to resume"):
            flat(ooc.resume, folder / "t", **more)
    job = kind.plan(folder, resume=True)
    assert not job.is_finished
    check(kind, folder, job.run())
    check_finished(kind, folder)


@pytest.mark.sampled
@each_kind
@pytest.mark.parametrize(
    ("state", "way"),
    [("early", WAYS["the same call"]), *(("late", way) for way in WAYS.values())],
    ids=["early, the same call", *(f"late, {name}" for name in WAYS)],
)
def test_a_killed_run_is_continued(
    kind: Kind, folder: Path, runs: Server, capsys: pytest.CaptureFixture[str], state: str, way: Any
) -> None:
    assert kind.start(runs, folder, **getattr(kind, state)).wait() < 0
    check_unfinished(kind, folder, capsys)
    job = way(kind, folder)
    assert not job.is_finished
    check(kind, folder, job.run())
    check_finished(kind, folder)


@pytest.mark.sampled(2)
@each_kind
def test_a_living_run_is_left_alone(
    kind: Kind, folder: Path, runs: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constants(monkeypatch, claim_seconds=0.1)
    child = kind.start(runs, folder, **kind.late, wait=True)
    child.until_there()
    try:
        with pytest.raises(TargetError, match=r"is unfinished, and a run is writing to it.*chunk.*resume=True"):
            kind.plan(folder)
        for way in WAYS.values():
            with pytest.raises(TargetError, match="another run is writing to"):
                way(kind, folder).run()
        assert main(["info", str(folder / "t")]) == 0
        assert "a run is at work on it" in capsys.readouterr().out
    finally:
        assert child.go_on() == 0
    check_finished(kind, folder)


@pytest.mark.sampled(2)
@each_kind
def test_a_journal_that_cannot_be_read_leaves_one_way(
    kind: Kind, folder: Path, runs: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kind.start(runs, folder, **kind.late).wait() < 0
    (folder / "t/.oocarrays/plan.json").write_text("")
    check_unfinished(kind, folder, capsys, "overwrite=True")
    for way in WAYS.values():
        with pytest.raises((JournalError, NotFoundError), match="overwrite=True"):
            way(kind, folder)
    main(["info", str(folder / "t")])
    out = capsys.readouterr().out
    assert "overwrite=True" in out
    assert "oocarrays resume" not in out
    made = kind.plan(folder, overwrite=True).run()
    for path in folder.rglob("*"):  # scratch that was not locked yet counts as alive while it is young
        if any(part.startswith(".oocarrays-") for part in path.parts):
            os.utime(path, (0, 0))
    ooc.clean(folder)  # scratch, of which only the journal knew
    check(kind, folder, made)
    check_finished(kind, folder)


@pytest.mark.sampled(2)
@each_kind
def test_a_failed_run_is_continued(
    kind: Kind, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, calls, put = kind.plan(folder), itertools.count(), step("put file")

    def full(self: Any, key: str, *data: Any) -> None:
        if key.startswith("c") and next(calls) >= (1 if kind.call == "reduce" else 4):
            raise DiskFullError(f"no space left on the device for {key}")
        put(self, key, *data)

    replace_step(monkeypatch, "put file", full)
    try:
        job.run()
    except DiskFullError:
        monkeypatch.undo()
        check_unfinished(kind, folder, capsys)
        check(kind, folder, kind.plan(folder, resume=True).run())
    check_finished(kind, folder)


@each_kind
def test_a_source_that_changed_since_is_named(kind: Kind, folder: Path) -> None:
    kind.plan(folder, resume=True).run()
    place = {"a": "a", "g": "g/b", "l": f"l/{rank_name(0)}"}[kind.source]
    zarr.open_array(folder / place)[:8] = 7
    with pytest.raises(TargetError, match="source has changed since"):
        kind.plan(folder, resume=True)


def test_blocks_that_are_computed(folder: Path) -> None:
    x, target = da.from_array(FIELD, chunks=(8, 40), name="x"), folder / "t"
    how: Any = {"chunks": (8, 40), "scheduler": "threads"}

    def broken(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info[0]["chunk-location"] == (9, 0):
            until(lambda: any(file.is_file() for file in (target / "c").rglob("*")))  # another block is written
            raise ValueError("enough")
        return block

    failing = da.map_blocks(broken, x, dtype=x.dtype, name="y")
    with pytest.raises(ValueError, match="enough"):
        flat(ooc.rechunk, failing, target, **how).run()
    with pytest.raises(TargetError, match=r"is unfinished: .* of 12 chunks are written; pass resume=True"):
        flat(ooc.rechunk, failing, target, **how)
    with pytest.raises(JournalError, match=r"was begun with source=.*y.*, not .*x"):
        flat(ooc.rechunk, x, target, resume=True, **how)
    mended = da.map_blocks(np.copy, x, dtype=x.dtype, name="y")
    np.testing.assert_array_equal(flat(ooc.rechunk, mended, target, resume=True, **how).run()[...], FIELD)
    job = flat(ooc.rechunk, mended, target, resume=True, **how)
    assert job.is_finished
    assert job.notices[0] == "12 of 12 chunks, nothing to do"
    np.testing.assert_array_equal(zarr.open_array(target, mode="r")[...], FIELD)
    assert ooc.store(mended, target, resume=True, scheduler="threads") is None
    np.testing.assert_array_equal(flat(ooc.rechunk, mended, target, resume=True, **how).run()[...], FIELD)


def test_any_of_several_targets_leads_to_their_run(folder: Path) -> None:
    """The journal is with the first target, which the others name until they are finished."""
    targets = [folder / "t", folder / "u"]
    zarr.create_array(folder / "f", data=FIELD / 8, chunks=(8, 40))
    begin(ooc.map_slabs(np.modf, folder / "f", targets, **MEMORY))
    with pytest.raises(TargetError, match=r"is unfinished.*its run began with the target .*t: resume that"):
        ooc.map_slabs(np.negative, folder / "f", targets[1], **MEMORY)
    parts, wholes = ooc.resume(targets[1]).run()
    np.testing.assert_array_equal(parts[...], FIELD / 8 % 1)
    np.testing.assert_array_equal(wholes[...], FIELD // 8)
    assert not (folder / "u" / JOURNAL_FOLDER).exists()
    job = ooc.map_slabs(np.modf, folder / "f", targets, resume=True, **MEMORY)
    assert job.is_finished
    shutil.rmtree(targets[1])
    with pytest.raises(TargetError, match=r"t already exists, but not .*u, which the same run made; pass overwrite"):
        ooc.map_slabs(np.modf, folder / "f", targets, resume=True, **MEMORY)


def test_a_dataset(folder: Path) -> None:
    import xarray as xr

    x, target, ends = da.from_array(FIELD, chunks=(8, 40), name="x"), folder / "t", []

    def broken(block: np.ndarray) -> np.ndarray:
        if ends:
            raise ValueError("enough")
        return block

    def job(**more: Any) -> Any:
        lazy = da.map_blocks(broken, x, dtype=x.dtype, name="y", meta=x._meta)
        ds = xr.Dataset({"v": (("t", "s"), lazy)})
        return flat(ooc.rechunk, ds, target, chunks={"t": 96, "s": 4}, scheduler="threads", **more)

    ends.append(1)
    with pytest.raises(ValueError, match="enough"):
        job(resume=True).run()
    if target.exists():
        with pytest.raises(TargetError, match=r"is unfinished.*overwrite=True"):
            job()
    ends.clear()
    np.testing.assert_array_equal(job(resume=True).run()["v"].values, FIELD)
    assert job(resume=True).is_finished
    np.testing.assert_array_equal(job(resume=True).run()["v"].values, FIELD)
    with pytest.raises(TargetError, match="exists"):
        job()


def test_an_update_each_night(folder: Path, runs: Server) -> None:
    """One line in a crontab, whatever the night before has left."""
    target, options = folder / "t", COLUMNS | {"ranks": 1, "source": str(folder / "a"), "resume": True}
    assert runs.start("update", target, at="chunk", after=3, **options).wait() < 0
    with pytest.raises(TargetError, match=r"is unfinished: .*resume=True"):
        flat(ooc.update, target, **options | {"resume": False})
    np.testing.assert_array_equal(flat(ooc.update, target, **options).run()[...], FIELD)
    zarr.open_array(folder / "a").append(FIELD[:16])
    options["chunks"] = None
    assert runs.start("update", target, at="chunk", after=2, **options).wait() < 0
    with pytest.raises(TargetError, match="an update was stopped; continue it with update"):
        flat(ooc.rechunk, folder / "a", target, **COLUMNS)
    with pytest.raises(JournalError, match="an update was stopped; continue it with update"):
        flat(ooc.rechunk, folder / "a", target, **COLUMNS, resume=True)
    want = np.concatenate([FIELD, FIELD[:16]])
    np.testing.assert_array_equal(flat(ooc.update, target, **options).run()[...], want)
    assert not ooc.update(target, resume=True, scheduler="threads").plan.changed


def test_writes_into_what_is_there(folder: Path) -> None:
    """A run that was killed is done again, of the same parts; whether one has ended nobody knows."""
    parts = [FIELD[:48] + 1, FIELD[48:] + 1]
    for _ in range(2):
        job = ooc.ranks.write_sections(folder / "a", "(block, *)", parts, resume=True, scheduler="threads")
        np.testing.assert_array_equal(job.run()[...], FIELD + 1)
    a = ooc.open_array(folder / "l", mode="r+")
    with pytest.raises(InputError, match="have no halo"):
        ooc.ranks.shift(a, resume=True, scheduler="threads")
    with pytest.raises(InputError, match="resume="):
        ooc.ranks.write_sections(folder / "a", "(block, *)", parts, resume="yes", scheduler="threads")


def test_other_code_of_a_kernel_is_named(folder: Path) -> None:
    def first(block: np.ndarray) -> np.ndarray:
        return block + 1

    kernel = first
    flat(ooc.map_slabs, kernel, folder / "a", folder / "t", resume=True, **SLABS).run()

    def first(block: np.ndarray) -> np.ndarray:  # type: ignore[no-redef]
        return block + 2

    with pytest.raises(TargetError, match=r"was made with other code of .*first"):
        flat(ooc.map_slabs, first, folder / "a", folder / "t", resume=True, **SLABS)
    made = flat(ooc.map_slabs, first, folder / "a", folder / "t", resume=True, overwrite=True, **SLABS).run()
    np.testing.assert_array_equal(made[...], FIELD + 2)


def test_a_command_of_a_queue(folder: Path, runs: Server, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rechunk", str(folder / "a"), str(folder / "t"), "--chunks", "96,4", "--method", "independent"]
    assert runs.start("main", *words, at="chunk", after=3).wait() < 0
    assert main(words) == 2
    assert "pass --resume to continue, or --overwrite to start over" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    capsys.readouterr()
    assert main([*words, "--resume"]) == 0
    assert capsys.readouterr().out == f"{folder / 't'}: 10 of 10 chunks, nothing to do\n"
    assert main(["update", str(folder / "t"), "--resume"]) == 0
    levels = ["pyramid", str(folder / "a"), str(folder / "p"), "--resume"]
    assert main(levels) == main(levels) == 0
    assert "nothing to do" in capsys.readouterr().out


def shifted(block: np.ndarray, by: int = 0, steps: tuple[int, ...] = ()) -> np.ndarray:
    return block + block.dtype.type(by + sum(steps))


@pytest.mark.parametrize(
    "given", [[], [shifted], [partial(shifted, by=3, steps=(1, 2))]], ids=["none", "bare", "bound"]
)
def test_arguments_that_a_partial_binds_are_kept_with_the_run(
    tmp_path: Path, given: list[Any], capsys: pytest.CaptureFixture
) -> None:
    data = np.arange(2000, dtype="i4").reshape(40, 50)
    zarr.create_array(tmp_path / "a", data=data, chunks=(2, 50))
    kernel: Any = partial(shifted, by=3, steps=(1, 2)) if given else partial(median, size=(1, 3))
    job = ooc.map_slabs(
        kernel, tmp_path / "a", tmp_path / "b", depth=(0, 1), window=2, memory="16MiB", scheduler="threads"
    )
    fail(job, 3)
    if not given:
        assert main(["info", str(tmp_path / "b")]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) < 200, "its plan is a line"
    again = ooc.resume(tmp_path / "b", kernel=given or None, scheduler="threads")
    expected = data + 6 if given else median(data, (1, 3))
    np.testing.assert_array_equal(again.run()[...], expected)
    assert again.meter.write_requests < 20
