"""Runs that write to what is there, killed in the middle: what they had to write is written again, or refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, JournalError, NotFoundError
from tests.dying import Server
from tests.graphs.clusters import cluster, within
from tests.seams import JOURNAL_CALL, JOURNAL_NOTE, Journal
from tests.unfinished import left_behind

pytestmark = pytest.mark.long

DATA = np.arange(24 * 20, dtype="i4").reshape(24, 20) + 1
TILES = [np.s_[0:14, 0:12], np.s_[4:24, 6:20], np.s_[2:9:3, ::-4], np.s_[20, [7, 3]], None]
PARTS = [
    -np.ones((14, 12), "i4"),
    -2 * np.ones((20, 14), "i4"),
    -np.arange(15).reshape(3, 5),
    [5, 6],
    np.zeros((0, 0), "i4"),
]
LAYOUTS = {"tiles": TILES, "layout": "(block, cyclic(3))"}

WRITE = """
import numpy as np
import oocarrays as ooc
from tests.test_resume_in_place import LAYOUTS, parts_of

if __name__ == "__main__":
    ooc.ranks.write_sections("z", LAYOUTS[{kind!r}], parts_of({kind!r}), deal="cyclic", scheduler="threads").run()
"""
SHIFT = """
import oocarrays as ooc
ooc.ranks.shift(ooc.open_array("l", mode="r+"), boundary="periodic", scheduler="threads").run()
"""
ON_WORKERS = """
import os, signal
from distributed import Client, LocalCluster
import oocarrays as ooc
from tests.seams import PROCESS, replace_step, step
from tests.test_resume_in_place import TILES, PARTS

def deadly():
    calls, real = [], step("put file")
    def put(self, key, data):
        real(self, key, data)
        calls.append(key)
        if len(calls) == 2:
            os.killpg(os.getpgid(0), signal.SIGKILL)
    replace_step(PROCESS, "put file", put)

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made, Client(made) as client:
        client.run(deadly)
        ooc.ranks.write_sections("z", TILES, PARTS, scheduler=client).run()
"""


def parts_of(kind: str) -> list[Any]:
    if kind == "tiles":
        return PARTS
    layout = ooc.Layout.of(DATA.shape, LAYOUTS[kind], grid=(2, 2))
    return [np.full(layout.local_shape(rank), -1 - rank, "i4") for rank in range(4)]


def expected(kind: str) -> np.ndarray:
    """What numpy, or one who is not killed, makes."""
    z = zarr.create_array({}, data=DATA, chunks=(5, 7))
    return ooc.ranks.write_sections(z, LAYOUTS[kind], parts_of(kind), scheduler="threads").run()[...]


def killed(runs: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, *, after: int = 4) -> Path:
    monkeypatch.chdir(folder)
    (folder / "script.py").write_text(script)
    runs.run("script", folder / "script.py", at="chunk", after=after)
    return folder


@pytest.fixture(params=LAYOUTS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def half(tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch, kind: str) -> Path:
    """An array of which some has been written by ranks that were killed."""
    zarr.create_array(tmp_path / "z", data=DATA, chunks=(5, 7))
    return killed(runs, tmp_path, monkeypatch, WRITE.format(kind=kind)) / "z"


def check(made: Any, kind: str, folder: Path) -> None:
    np.testing.assert_array_equal(made[...], expected(kind))
    np.testing.assert_array_equal(ooc.open_array(folder)[...], expected(kind))
    assert not Journal(folder).notes.noted()
    with pytest.raises(NotFoundError, match="nothing to resume"):
        ooc.resume(folder)


def test_sections_are_written_again_of_parts_that_are_given_again(half: Path, kind: str) -> None:
    some = ooc.open_array(half)[...]
    assert (some == DATA).any()
    assert (some != DATA).any()
    assert (some != expected(kind)).any()
    with pytest.raises(InputError, match=r"by write_sections, whose parts are not kept: .*resume\(target, parts="):
        ooc.resume(half)
    with pytest.raises(InputError, match="1 source was passed"):
        ooc.resume(half, source="x.zarr", parts=parts_of(kind))
    with pytest.raises(JournalError, match="not by shift"):
        ooc.resume(half, kind="shift")
    job = ooc.resume(half, kind="write_sections", parts=parts_of(kind))
    assert job._run.program.note[JOURNAL_CALL]["options"]["deal"] == "cyclic"
    check(job.run(), kind, half)


@pytest.mark.parametrize("kind", ["tiles"], indirect=True)
def test_other_parts_are_refused_before_anything_is_written(half: Path, kind: str) -> None:
    before, others = ooc.open_array(half)[...], [*PARTS[:3], [5, 7], PARTS[4]]
    with pytest.raises(JournalError, match="the part of rank 3 differs from what the run in"):
        ooc.resume(half, parts=others).run()
    np.testing.assert_array_equal(ooc.open_array(half)[...], before)
    made = ooc.resume(half, parts=others, as_is=True).run()[...]
    assert made[20, 3] == 7
    assert not Journal(half).notes.noted()


@pytest.mark.parametrize("kind", ["tiles"], indirect=True)
def test_parts_that_were_read_of_the_array_itself_are_not_made_again_of_what_is_half_written(
    half: Path, kind: str
) -> None:
    z = da.from_zarr(str(half))
    with pytest.raises(JournalError, match="cannot be made again"):
        ooc.resume(half, parts=[z[:14, :12], *PARTS[1:]], scheduler="threads").run()


@pytest.mark.parametrize("kind", ["tiles"], indirect=True)
def test_the_same_call_or_another_one_takes_the_place_of_a_note(half: Path, kind: str) -> None:
    check(ooc.ranks.write_sections(half, TILES, PARTS, scheduler="threads").run(), kind, half)


@pytest.mark.parametrize("kind", ["tiles"], indirect=True)
def test_another_array_in_the_place_is_refused(half: Path, kind: str) -> None:
    note = (half / JOURNAL_NOTE).read_bytes()
    zarr.create_array(half, shape=(24, 20), dtype="f8", chunks=(5, 7), overwrite=True)
    (half / JOURNAL_NOTE).write_bytes(note)
    with pytest.raises(JournalError, match="to a different array"):
        ooc.resume(half, parts=PARTS)
    (half / JOURNAL_NOTE).write_bytes(note.replace(b"cyclic", b"blocky"))
    with pytest.raises(JournalError, match="its digest is wrong"):
        ooc.resume(half, parts=PARTS)


@pytest.mark.parametrize("kind", ["tiles"], indirect=True)
def test_what_is_noted_is_no_hindrance(half: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The array can be read, rechunked and written over; the command line says what is to be done, or cleans it."""
    assert main(["resume", str(half)]) == 2
    assert "parts=" in capsys.readouterr().err
    made = ooc.rechunk(half, half.parent / "o", chunks=(24, 3), scheduler="threads").run()
    np.testing.assert_array_equal(made[...], ooc.open_array(half)[...])
    assert left_behind(half.parent / "o") == []
    os.utime(half / JOURNAL_NOTE, (1, 1))  # what is young may be at work
    assert main(["clean", str(half.parent)]) == 0
    assert (half / JOURNAL_NOTE).exists(), "without it nobody would know that a part has been written"
    assert main(["clean", str(half.parent), "--unfinished"]) == 0
    assert not (half / JOURNAL_NOTE).exists()
    assert ooc.open_array(half)[...].shape == DATA.shape


def test_nothing_is_left_by_a_run_that_ends(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "z", data=DATA, chunks=(5, 7))
    job = ooc.ranks.write_sections(tmp_path / "z", TILES, PARTS, scheduler="threads")
    assert left_behind(tmp_path) == []
    job.run()
    job.run()
    assert left_behind(tmp_path) == []


def halos(folder: Path) -> list[np.ndarray]:
    a = ooc.open_array(folder)
    return [a.local(rank)[...] for rank in range(a.ranks)]


def test_a_shift_that_was_killed_is_done_again(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    zarr.create_array(tmp_path / "a", data=DATA, chunks=(5, 7))
    for name in ("l", "whole"):
        ooc.ranks.scatter_files(
            tmp_path / "a",
            "(block, *)",
            ooc.Target(tmp_path / name, chunks=(3, 20)),
            ranks=4,
            depth=(1, 0),
            scheduler="threads",
        ).run()
        ooc.open_array(tmp_path / name, mode="r+")
    ooc.ranks.shift(ooc.open_array(tmp_path / "whole", mode="r+"), boundary="periodic", scheduler="threads").run()
    assert left_behind(tmp_path) == []
    killed(runs, tmp_path, monkeypatch, SHIFT, after=2)
    with pytest.raises(InputError, match="by shift, which has no parts"):
        ooc.resume("l", parts=PARTS)
    job = ooc.resume("l", kind="shift")
    assert "periodic" in job.explain()
    assert main(["resume", "l"]) == 0
    assert "is done by shift; " in capsys.readouterr().out
    for mine, wanted in zip(halos(tmp_path / "l"), halos(tmp_path / "whole"), strict=True):
        np.testing.assert_array_equal(mine, wanted)
    assert not Journal(tmp_path / "l").notes.noted()


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(2) as made:
        yield made


@pytest.mark.long
def test_a_cluster_that_is_killed_with_its_client_leaves_what_another_goes_on_with(
    tmp_path: Path, client: Client
) -> None:
    zarr.create_array(tmp_path / "z", data=DATA, chunks=(5, 7))
    (tmp_path / "script.py").write_text(ON_WORKERS)
    command = [sys.executable, str(tmp_path / "script.py")]
    subprocess.run(
        command, cwd=tmp_path, start_new_session=True, env={"PYTHONPATH": str(Path.cwd())}, capture_output=True
    )
    target = tmp_path / "z"
    assert Journal(target).notes.noted()
    assert (ooc.open_array(target)[...] != DATA).any()
    with pytest.raises(JournalError, match="the part of rank 1 differs from what"):
        within(ooc.resume(target, parts=[PARTS[0], PARTS[1] - 1, *PARTS[2:]], scheduler=client).run)
    check(within(ooc.resume(target, parts=PARTS, scheduler=client).run), "tiles", target)
