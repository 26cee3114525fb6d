"""A resumed run trusts neither its source nor its target before it has looked at them."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, JournalError, RunError
from tests.dying import Server
from tests.flat import flat
from tests.seams import JOURNAL_FOLDER, Journal, replace_step, small, step
from tests.small import each_method
from tests.unfinished import (
    FIELD,
    check_finished,
    check_unfinished,
    chunks_of,
    make_field,
    options_of,
    places_of,
    recorded,
    stamps,
)

pytestmark = [pytest.mark.long, pytest.mark.sampled(2)]

CHANGED = r"about \d+ % of the chunks of .*source\.zarr have changed since the run in .*target\.zarr began: start over"
WRITTEN_AGAIN = "chunks that had been written are not as they were: they are written again"


def parts_of(field: Path, method: str) -> int:
    """How many parts the first pass of a run has, of runs that die."""
    with small(batch_bytes=1):
        plan = flat(ooc.rechunk, field, field.parent / "none.zarr", scheduler="threads", **options_of(method)).plan
    return len(list(plan.passes[0].parts(0)))


def kill(runs: Server, field: Path, target: Path, method: str = "independent", after: int = 6, **options: Any) -> Any:
    return runs.run("rechunk", field, target, at="entry", after=after, **(options_of(method) | options)).plan


def change(field: Path, data: np.ndarray) -> None:
    """Other values, the same metadata."""
    zarr.open_array(field, mode="r+")[...] = data


# ---------------------------------------------------------------------- the source


@each_method
def test_a_source_that_has_changed_is_refused_and_can_be_begun_again(
    field: Path, target: Path, runs: Server, method: str
) -> None:
    """What holds the fill value only is not stored: chunks of the old values must not stay there."""
    kill(runs, field, target, method)
    other = FIELD + 1
    other[:, 100:400] = 0
    change(field, other)
    with pytest.raises(JournalError, match=CHANGED) as caught:
        ooc.resume(target)
    assert "\n" not in str(caught.value)
    check_unfinished(target)
    job = ooc.resume(target, again=True)
    assert job.left == 1
    job.run()
    check_finished(target, other)


def test_what_was_begun_again_can_be_killed_and_goes_on(field: Path, target: Path, runs: Server) -> None:
    kill(runs, field, target, "staged")
    change(field, FIELD * 2)
    runs.run("resume", target, again=True, at="entry", after=5)
    job = ooc.resume(target)
    assert recorded(target)
    job.run()
    check_finished(target, FIELD * 2)


def test_as_is_goes_on_with_a_source_that_has_changed(field: Path, target: Path, runs: Server) -> None:
    plan = kill(runs, field, target)
    done = [index for part in recorded(target) for index in chunks_of(plan, part)]
    change(field, FIELD + 1)
    job = ooc.resume(target, as_is=True)
    assert "have changed since" in job.explain()
    job.run()
    made, expected = ooc.open_array(target)[...], FIELD + 1
    for _, column in done:
        expected[:, 64 * column : 64 * column + 64] = FIELD[:, 64 * column : 64 * column + 64]
    np.testing.assert_array_equal(made, expected)
    with pytest.raises(InputError, match=r"again=True \(start over\) and as_is=True \(continue\)"):
        ooc.resume(target, as_is=True, again=True)


def test_it_says_how_much_has_changed(field: Path, target: Path, runs: Server) -> None:
    kill(runs, field, target)
    zarr.open_array(field, mode="r+")[:64] = 7
    with pytest.raises(JournalError, match=r"about (\d|1\d)(\.\d+)? % of the chunks"):
        ooc.resume(target)


MOVES: dict[str, Callable[[Path, Path], Any]] = {
    "moved": shutil.move,
    "copied with its times": lambda source, place: shutil.copytree(source, place),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_a_source_that_was_moved_is_taken_where_it_is_named(
    field: Path, target: Path, runs: Server, move: Callable
) -> None:
    kill(runs, field, target)
    place = field.parent / "else where.zarr"
    move(field, place)
    ooc.resume(target, source=place).run()
    check_finished(target)


def test_a_copy_that_lies_where_the_source_was_must_be_named(field: Path, target: Path, runs: Server) -> None:
    kill(runs, field, target)
    copy = field.parent / "copy.zarr"
    shutil.copytree(field, copy)
    shutil.rmtree(field)
    copy.rename(field)
    with pytest.raises(JournalError, match=CHANGED + r".*; if it was copied, pass it as source"):
        ooc.resume(target)
    ooc.resume(target, source=field).run()
    check_finished(target)


def test_a_source_that_changes_while_it_is_read_leaves_the_target_unfinished(
    field: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = flat(ooc.rechunk, field, target, scheduler="threads", **options_of("two-phase"))
    read, whole = [], step("read chunk")

    def changing(self: Any, indices: Any, chunks: Any) -> Any:
        if not read:
            read.append(change(field, FIELD + 1))
        yield from whole(self, indices, chunks)

    replace_step(monkeypatch, "read chunk", changing)
    with pytest.raises(RunError, match=CHANGED):
        job.run()
    check_unfinished(target)
    ooc.resume(target, again=True).run()
    check_finished(target, FIELD + 1)


def test_on_the_command_line(
    field: Path, target: Path, runs: Server, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(runs, field, target)
    change(field, FIELD + 1)
    assert main(["resume", str(target)]) == 2
    assert "start over (resume with --again), or continue anyway (--as-is)" in capsys.readouterr().err
    assert main(["resume", str(target), "--again", "--quiet"]) == 0
    check_finished(target, FIELD + 1)
    shutil.rmtree(target)
    plan = kill(runs, field, target)
    spoil(target, plan, REMOVED)
    moved = field.rename(field.parent / "moved.zarr")
    assert main(["resume", str(target), "--source", str(moved), "--verify"]) == 0
    assert f"1 of 6 {WRITTEN_AGAIN}" in capsys.readouterr().out
    check_finished(target, FIELD + 1)


# ---------------------------------------------------------------------- the target

REMOVED, CUT, FLIPPED = "removed", "truncated", "flipped"
FAULTS = [REMOVED, CUT, FLIPPED]


def spoil(target: Path, plan: Any, fault: str, number: int | None = None) -> Path:
    """Do something to a chunk that is recorded."""
    last = len(plan.passes) - 1 if number is None else number
    part = min(part for part in recorded(target) if part[0] == last)
    folder = target if number is None else next(target.parent.glob(f".oocarrays-*/{number}"))
    path = folder.joinpath("c", *map(str, chunks_of(plan, part)[0]))
    if plan.passes[last].assembled and not path.exists():
        (path,) = path.parent.glob(f"{path.name}.*.partial")
    do_to(path, fault, _first_byte(plan.passes[last], part))
    return path


def _first_byte(step: Any, part: tuple[int, ...]) -> int | None:
    """Where that begins which the part has written in its first chunk, if others write there, too."""
    if not step.assembled:
        return None
    _, piece = places_of(step, step.batch_units(part[1], part[2])[0])[0]
    return int(np.ravel_multi_index(piece.lower, step.target.grid.chunks)) * FIELD.itemsize


def do_to(path: Path, fault: str, flipped: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    path.unlink()
    if fault != REMOVED:
        data[len(data) // 3 if flipped is None else flipped] ^= 1
        path.write_bytes(data[:-1] if fault == CUT else data)


@each_method
@pytest.mark.parametrize("fault", FAULTS)
def test_a_chunk_that_is_not_as_it_was_is_written_again(
    field: Path, target: Path, runs: Server, method: str, fault: str
) -> None:
    plan = kill(runs, field, target, method, after=parts_of(field, method) + 4 if method == "staged" else 6)
    last = len(plan.passes) - 1
    kept = sum(len(chunks_of(plan, part)) for part in recorded(target) if part[0] == last)
    path, before = spoil(target, plan, fault), stamps(target)
    with pytest.warns(RuntimeWarning, match=f"1 of [0-9]+ {WRITTEN_AGAIN}"):
        job = ooc.resume(target, verify=fault == FLIPPED)
    assert WRITTEN_AGAIN in job.explain()
    job.run()
    check_finished(target)
    after = stamps(target)
    if path.suffix != ".partial":
        assert after[str(path)] != before.get(str(path))
    stayed = [name for name, stamp in before.items() if after[name] == stamp]
    if not plan.passes[last].assembled:  # of which every part has written to that chunk
        assert len(stayed) >= kept - 2, "nothing is written again of what is recorded but that part"


@pytest.mark.parametrize("fault", [REMOVED, FLIPPED])
def test_scratch_that_is_not_as_it_was_is_written_again(field: Path, target: Path, runs: Server, fault: str) -> None:
    plan = kill(runs, field, target, "staged", after=2)
    assert {part[0] for part in recorded(target)} == {0}
    spoil(target, plan, fault, number=0)
    with pytest.warns(RuntimeWarning, match=f"1 of [0-9]+ {WRITTEN_AGAIN}"):
        job = ooc.resume(target, verify=fault == FLIPPED)
    job.run()
    check_finished(target)


def test_chunks_of_nothing_but_the_fill_value_are_not_lost(tmp_path: Path, target: Path, runs: Server) -> None:
    data = FIELD.copy()
    data[:, :512] = 0
    field = make_field(tmp_path)
    change(field, data)
    plan = kill(runs, field, target, after=9)
    ooc.resume(target, verify=True)  # a warning would be an error
    part = min(part for part in recorded(target) if not data[:, 64 * chunks_of(plan, part)[0][1]].any())
    stray = target.joinpath("c", *map(str, chunks_of(plan, part)[0]))
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(FIELD[:, :64].tobytes())
    with pytest.warns(RuntimeWarning, match=f"1 of [0-9]+ {WRITTEN_AGAIN}"):
        job = ooc.resume(target)
    job.run()
    check_finished(target, data)
    assert not stray.exists()


KINDS: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": zarr.codecs.ZstdCodec()},
    "gzip, through Zarr": {"compressors": zarr.codecs.GzipCodec(level=1)},
    "shards": {"shards": (128, 1024)},
}


@pytest.mark.parametrize("fault", [CUT, FLIPPED])
@pytest.mark.parametrize("kind", KINDS)
def test_coded_chunks_and_shards(tmp_path: Path, target: Path, runs: Server, kind: str, fault: str) -> None:
    field = make_field(tmp_path, **KINDS[kind])
    extra = {"shards": (1024, 128)} if kind == "shards" else {}
    plan = kill(runs, field, target, after=2, memory="64MiB", **extra)
    path = spoil(target, plan, fault)
    with pytest.warns(RuntimeWarning, match=WRITTEN_AGAIN):
        job = ooc.resume(target, verify=fault == FLIPPED)
    job.run()
    check_finished(target)
    assert path.exists()


def test_a_run_without_a_fault_is_found_as_it_was(field: Path, target: Path, runs: Server) -> None:
    kill(runs, field, target, "two-phase")
    kept = {str(target / key) for stored in Journal(target).stored().values() for key in (stored or {}).get("", ())}
    before = {name: stamp for name, stamp in stamps(target).items() if name in kept}
    job = ooc.resume(target, verify=True)
    assert before
    assert job.notices == ()
    job.run()
    assert all(stamps(target)[name] == stamp for name, stamp in before.items())
    check_finished(target)


@pytest.mark.parametrize("key", ["../../elsewhere", "/etc/passwd", "c/./0"])
def test_a_journal_that_names_chunks_elsewhere_is_refused(field: Path, target: Path, runs: Server, key: str) -> None:
    kill(runs, field, target)
    part = min(recorded(target))
    Journal(target).forget([part])
    Journal(target).record(part, {"": {key: [8, 8]}})
    with pytest.raises(JournalError, match="is truncated, or not part of a journal"):
        ooc.resume(target)


# ---------------------------------------------------------------------- groups


LAT = np.arange(1, 1025)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    root = zarr.create_group(tmp_path / "source.zarr")
    root.create_array("air", data=FIELD, chunks=(64, 1024), compressors=None)
    root.create_array("lat", data=LAT, chunks=(100,), compressors=None)
    return tmp_path / "source.zarr"


def kill_group(runs: Server, group: Path, target: Path) -> None:
    options = options_of("independent") | {"chunks": {"air": (1024, 64)}}
    runs.run("rechunk", group, target, at="entry", after=6, **options)


def check_group(target: Path, air: Any = FIELD, lat: Any = LAT) -> None:
    np.testing.assert_array_equal(zarr.open_array(target / "air", mode="r")[...], air)
    np.testing.assert_array_equal(zarr.open_array(target / "lat", mode="r")[...], lat)
    assert not list(target.rglob(JOURNAL_FOLDER))


@pytest.mark.parametrize("name", ["air", "lat"])
def test_an_array_of_a_group_that_has_changed(group: Path, target: Path, runs: Server, name: str) -> None:
    kill_group(runs, group, target)
    zarr.open_array(group / name, mode="r+")[...] = 7
    with pytest.raises(JournalError, match=rf"of the chunks of .*{name} have changed since"):
        ooc.resume(target)
    ooc.resume(target, again=True).run()
    check_group(target, **{name: 7})


def test_a_group_that_was_moved(group: Path, target: Path, runs: Server) -> None:
    kill_group(runs, group, target)
    ooc.resume(target, source=group.rename(group.parent / "moved.zarr")).run()
    check_group(target)


@pytest.mark.parametrize("fault", [REMOVED, FLIPPED])
@pytest.mark.parametrize("name", ["air", "lat"])
def test_chunks_of_a_group_that_are_not_as_they_were(
    group: Path, target: Path, runs: Server, name: str, fault: str
) -> None:
    kill_group(runs, group, target)
    do_to(min(path for path in (target / name / "c").rglob("*") if path.is_file()), fault)
    with pytest.warns(RuntimeWarning, match=WRITTEN_AGAIN):
        job = ooc.resume(target, verify=fault == FLIPPED)
    assert WRITTEN_AGAIN in "".join(job.notices)
    job.run()
    check_group(target)


# ---------------------------------------------------------------------- passes over slabs

SLABS: dict[str, Any] = {"depth": 0, "memory": "64MiB", "ranks": 1, "height": 64, "scheduler": "threads"}
PASSES: dict[str, tuple[dict[str, Any], int]] = {
    "map_slabs": (SLABS, 6),
    "iterate": (SLABS | {"sweeps": 3, "fuse": 1}, 22),
}
each_pass = pytest.mark.parametrize("call", PASSES)


def kill_pass(runs: Server, field: Path, target: Path, call: str) -> Callable[..., Any]:
    """Killed in the middle; gives what calls it again."""
    options, after = PASSES[call]
    runs.run(call, "numpy:negative", field, target, at="entry", after=after, **options)
    return lambda source=field, resume=True: flat(call, np.negative, source, target, resume=resume, **options)


@each_pass
def test_a_pass_goes_on_with_the_source_that_it_began_with(field: Path, target: Path, runs: Server, call: str) -> None:
    again = kill_pass(runs, field, target, call)
    change(field, FIELD + 1)
    with pytest.raises(JournalError, match=r"have changed since .*\(overwrite=True\).*\(resume='as-is'\)"):
        again()
    assert "have changed since" in again(resume="as-is").explain()
    with pytest.raises(InputError, match="resume='yes' is not True, False, 'verify' or 'as-is'"):
        again(resume="yes")
    change(field, FIELD)
    again(resume="as-is").run()
    check_finished(target, -FIELD)


@each_pass
def test_a_pass_takes_a_source_that_was_moved(field: Path, target: Path, runs: Server, call: str) -> None:
    again = kill_pass(runs, field, target, call)
    again(source=field.rename(field.parent / "moved.zarr")).run()
    check_finished(target, -FIELD)


@each_pass
@pytest.mark.parametrize("fault", FAULTS)
def test_slabs_that_are_not_as_they_were_are_written_again(
    field: Path, target: Path, runs: Server, call: str, fault: str
) -> None:
    again = kill_pass(runs, field, target, call)
    folder = target if call == "map_slabs" else max(target.parent.glob(".oocarrays-*/[0-9]"))
    do_to(min(path for path in (folder / "c").rglob("*") if path.is_file()), fault)
    with pytest.warns(RuntimeWarning, match=f"1 of [0-9]+ {WRITTEN_AGAIN}"):
        job = again(resume="verify" if fault == FLIPPED else True)
    assert WRITTEN_AGAIN in job.explain()
    job.run()
    check_finished(target, -FIELD)


@pytest.mark.parametrize("fault", [CUT, FLIPPED])
def test_a_pass_begins_again_where_what_it_reads_is_not_as_it_was(
    field: Path, target: Path, runs: Server, fault: str
) -> None:
    """What the pass before it had read is gone."""
    again = kill_pass(runs, field, target, "iterate")
    do_to(min(path for path in min(target.parent.glob(".oocarrays-*/[0-9]")).rglob("c/*/*")), fault)
    with pytest.warns(RuntimeWarning, match=f"1 of [0-9]+ {WRITTEN_AGAIN}"):
        job = again(resume="verify" if fault == FLIPPED else True)
    job.run()
    check_finished(target, -FIELD)


def test_slabs_that_share_a_chunk(field: Path, target: Path, runs: Server) -> None:
    """The chunk is as the later slab has left it; where it is lost, both are written again."""
    options = SLABS | {"height": 32}
    runs.run("map_slabs", "numpy:negative", field, target, at="entry", after=6, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat(ooc.map_slabs, np.negative, field, target, resume=True, **options)
    do_to(target / "c/0/0", CUT)
    with pytest.warns(RuntimeWarning, match=f"1 of [0-9]+ {WRITTEN_AGAIN}"):
        job = flat(ooc.map_slabs, np.negative, field, target, resume=True, **options)
    job.run()
    check_finished(target, -FIELD)
