"""Odd input that once raised what is none of ours, or hung: each says in one line what is wrong."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.cli.main import WRONG_INPUT
from oocarrays.errors import InputError, JournalError, LayoutError, NotFoundError, PlacementError, SelectionError
from tests.flat import flat
from tests.fuzz import commands, watched, world
from tests.fuzz.soon import soon
from tests.seams import JOURNAL_FOLDER, JOURNAL_PLAN

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "world"
    world.build(folder)
    return folder


@pytest.fixture
def here(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything in it, good and bad, in which the test works."""
    shutil.copytree(built, tmp_path / "world", symlinks=True)
    monkeypatch.chdir(tmp_path / "world")
    for name, value in watched.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "world"


COMMANDS = [
    "info zip://x",
    "info wreck0.zarr",
    "info wreck1.zarr",
    "info github://a:b@c/x",
    "info a\0.zarr",
    "info a\nb.zarr",
    "info x::y.zarr",
    "info " + "x" * 5000,
    "demo --folder=file.txt --size=1MiB",
    "demo --folder=a\0 --size=1MiB",
    "clean .\n",
    "clean \0",
    "rechunk wreck0.zarr new.zarr --chunks=2",
    "rechunk a.zarr new\0.zarr --chunks=2,2",
    "rechunk a.zarr new\n/x::y.zarr --chunks=2,2",
    "rechunk a.zarr new.zarr --chunks=2,2 --scheduler=tls://x:1",
    "rechunk a.zarr new.zarr --chunks=2,2 --scheduler=ucx://x:1",
    "rechunk evil.zarr new.zarr --chunks=../../evil=2",
    "resume ftp://127.0.0.1/x",
    "resume wreck1.zarr",
    "read a.zarr ... --out=\0",
    "schedule " + "x" * 5000 + " --ranks=4",
]


@pytest.mark.parametrize("line", COMMANDS, ids=[line[:50].replace("\0", "NUL") for line in COMMANDS])
@pytest.mark.usefixtures("here")
def test_commands_say_in_one_line_what_is_wrong(line: str) -> None:
    with soon():
        assert commands.run(line.split(" ")) in (1, WRONG_INPUT)


def test_what_is_left_is_found_beside_documents_that_nest_too_deep(here: Path) -> None:
    """Among them documents of 200,000 brackets."""
    assert commands.run(["clean", "."]) == 0


def test_a_journal_that_nests_too_deep_is_none(here: Path) -> None:
    [journal] = here.glob(f"unfinished.zarr/{JOURNAL_FOLDER}/{JOURNAL_PLAN}")
    journal.write_text("[" * 200_000)
    with pytest.raises(JournalError, match="is truncated, or not part of a journal"):
        ooc.resume("unfinished.zarr")


def _created(**options: Any) -> Callable[[], Any]:
    return lambda: flat(ooc.create_array, "new.zarr", **{"shape": (12, 10), "dtype": "f4"} | options)


def _rechunked(**options: Any) -> Callable[[], Any]:
    return lambda: flat(ooc.rechunk, "a.zarr", "new.zarr", **{"chunks": (12, 2), "scheduler": "threads"} | options)


def _assigned(key: Any) -> Callable[[], Any]:
    def assign() -> None:
        ooc.open_array("a.zarr", mode="r+")[key] = 7

    return assign


def _streams(name: str) -> None:
    with ooc.streams.open_streams(name, "w", shape=4, dtype="i4") as streams:
        streams.write([1, 2, 3, 4])


def _replanned(**options: Any) -> Any:
    x = ooc.ranks.distribute(np.arange(6), "block", ranks=2, scheduler="threads")
    return ooc.ranks.redistribute(x, ooc.ranks.redistribute(x, "cyclic").plan, **options)


CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "scheduler of numbers": (_rechunked(scheduler=(16, 16)), PlacementError, r"scheduler=\(16, 16\) is not a client"),
    "schedule of a number": (_rechunked(schedule=1), InputError, "schedule=1 is unknown"),
    "schedule of files": (
        lambda: ooc.ranks.scatter_files(
            "a.zarr", "(block, *)", "new.zarr", ranks=2, scheduler="threads", resources=ooc.Resources(schedule=1)
        ),
        InputError,
        "schedule=1 is unknown",
    ),
    "shape of text": (_created(shape="nan"), InputError, "shape='nan' is not a sequence"),
    "shape of text in a tuple": (_created(shape=("4",)), InputError, r"shape=\('4',\) must be whole numbers"),
    "attributes of text": (_created(attributes="x"), InputError, "attributes='x' is not a mapping"),
    "ragged key": (_assigned([1, [2]]), SelectionError, r"\[1, \[2\]\] is not an index"),
    "orientation of an array": (_created(orientation=np.array([1, 2])), InputError, "orientation=array"),
    "orientation of a rechunk": (_rechunked(orientation=np.array([1, 2])), InputError, "orientation=array"),
    "dtype of a layout": (_created(dtype="(block, *)"), InputError, r"dtype='\(block, \*\)' is no type"),
    "dtype of half a character": (_created(dtype="\udc80"), InputError, "is no type"),
    "dtype of a command": (
        lambda: ooc.ranks.count_requests((8, 8), "(block, *)", ranks=2, dtype="(block, *)"),
        InputError,
        "is no type",
    ),
    "zarr_format in a tuple": (_created(zarr_format=(1,)), InputError, r"zarr_format=\(1,\) is not 2 or 3"),
    "zarr_format of a rechunk": (_rechunked(zarr_format=(1,)), InputError, r"zarr_format=\(1,\) is not 2 or 3"),
    "no mode": (lambda: ooc.open_array("a.zarr", mode=""), InputError, "mode='' is not 'r' or 'r\\+'"),
    "chunks without end": (_rechunked(chunks="1e400"), InputError, "chunks='1e400'"),
    "memory without end": (_rechunked(memory=float("inf")), InputError, "memory=inf is not a size"),
    "key that leads out": (lambda: ooc.open_group("evil.zarr")["../../evil"], KeyError, "evil"),
    "key that is not text": (lambda: ooc.open_group("group.zarr")[[1, 2]], KeyError, r"\[1, 2\]"),
    "rank of sections that is none": (
        lambda: ooc.ranks.read_sections("a.zarr", [...], scheduler="threads").local_shape([1]),
        LayoutError,
        r"rank=\[1\] must be a whole number",
    ),
    "rank of sections that there is not": (
        lambda: ooc.ranks.read_sections("a.zarr", [...], scheduler="threads").local_shape(-1),
        LayoutError,
        "rank -1 is not one of 0 to 0: 1 section",
    ),
    "rank of halos that there is not": (
        lambda: ooc.ranks.shift(
            ooc.ranks.distribute(np.arange(6), "block", ranks=2, scheduler="threads"), 1
        ).local_shape(2),
        LayoutError,
        "rank 2 is not one of 0 to 1",
    ),
    "array of no type": (lambda: ooc.open_array("a.zarr").__array__("/"), InputError, "dtype='/' is no type"),
    "distributed array of no type": (
        lambda: ooc.ranks.distribute(np.arange(6), "block", ranks=2, scheduler="threads").__array__("/"),
        InputError,
        "dtype='/' is no type",
    ),
    "attributes of a lazy array": (
        lambda: ooc.rechunk(da.arange(6), ooc.Target("new.zarr", attributes=({"a": 1}, "x")), scheduler="threads"),
        InputError,
        "attributes=.* is not a mapping",
    ),
    "overwrite of text": (_rechunked(overwrite="no"), InputError, "overwrite='no' is neither True nor False"),
    "nothing to read into": (
        lambda: ooc.open_array("a.zarr").read(np.s_[:2], out="(("),
        InputError,
        "out is of type str",
    ),
    "zero byte": (lambda: ooc.open_array("a\0.zarr"), InputError, "contains a zero byte"),
    "more than can be counted": (lambda: ooc.open_array("endless.zarr"), NotFoundError, r"less than 2\*\*63"),
    "within of numbers": (
        lambda: ooc.ranks.read_sections("a.zarr", "(block, *)", ranks=2, within=(0, 0), scheduler="threads"),
        SelectionError,
        r"within=\(0, 0\) is not a Section",
    ),
    "a list of sources": (
        lambda: ooc.rechunk(["é" * 200, "group.zarr"], "new.zarr", chunks=(2, 2)),
        InputError,
        "list cannot hold an array",
    ),
    "schedule without a target": (
        lambda: ooc.rechunk(da.ones((4, 4)), chunks=2, resources=ooc.Resources(schedule="pex")),
        InputError,
        "schedule='pex' is for a target",
    ),
    "dtype of streams": (
        lambda: _streams("s.zarr") or ooc.streams.open_streams("s.zarr", dtype={0: -5}),
        InputError,
        "dtype={0: -5} is no type",
    ),
    "points of no axis": (lambda: ooc.open_array("a.zarr").vindex[1:3], SelectionError, "selects no points"),
    "a point beyond": (lambda: ooc.open_array("a.zarr").vindex[42], SelectionError, "index 42 is out of range"),
    "local arrays as one": (
        lambda: ooc.ranks.read_sections(ooc.open_array("local.zarr"), "(block, *)", ranks=2),
        InputError,
        r"LocalArrays .* has a file for each rank; gather_files\(…, target\)",
    ),
    "local array files as one": (
        lambda: ooc.ranks.read_sections("local.zarr", "(block, *)", ranks=2),
        NotFoundError,
        r"local\.zarr holds local array files, one a rank: gather_files\(…, target\)",
    ),
    "a group as one": (lambda: ooc.reduce(ooc.open_group("group.zarr"), "sum"), InputError, r"group\[name\]"),
    "weights of no edges": (
        lambda: ooc.advise.Trace().reads("a.zarr", "(block, *)", ranks=2).advise(weights={"b": 1}),
        InputError,
        "weights={'b': 1} is not a mapping from pairs of blocks",
    ),
    "a method beside a plan": (lambda: _replanned(method="lcm"), LayoutError, "method='lcm' is part of the plan"),
    "ranks beside a plan": (lambda: _replanned(ranks=7), LayoutError, "ranks=7 is part of the plan"),
    "nothing": (lambda: ooc.open_array(""), InputError, "is empty"),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_say_what_is_wrong(here: Path, case: str) -> None:
    call, kind, says = CALLS[case]
    shutil.copytree("a.zarr", "endless.zarr")
    document = json.loads(Path("endless.zarr/zarr.json").read_text())
    Path("endless.zarr/zarr.json").write_text(json.dumps(document | {"shape": [10**20, 10]}))
    with pytest.raises(kind, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert not (here / "new.zarr").exists()


@pytest.mark.parametrize("key", [[1, 2], 7, None, {}])
def test_a_group_has_nothing_under_what_is_no_path(here: Path, key: Any) -> None:
    group = ooc.open_group("group.zarr")
    assert group.get(key) is None
    assert key not in group
    assert "one" in group


@pytest.mark.parametrize("named", ["../../evil", "..", "a/../../evil", "a//b"])
def test_a_group_whose_document_names_what_lies_outside_is_read_by_what_is_there(here: Path, named: str) -> None:
    """Its consolidated metadata are not believed, and no error of Zarr's comes out."""
    document = (here / "evil.zarr/zarr.json").read_text().replace("../../evil", named)
    (here / "evil.zarr/zarr.json").write_text(document)
    with contextlib.suppress(InputError):
        assert list(ooc.open_group("evil.zarr")) == ["one"]


def test_a_scheduler_that_is_gone_is_missed_soon(here: Path) -> None:
    with soon(), pytest.raises(PlacementError, match="no scheduler answers"):
        ooc.rechunk("a.zarr", "new.zarr", chunks=(12, 2), scheduler="tcp://127.0.0.1:9")


def test_a_message_is_one_line_of_text_whatever_it_names() -> None:
    error = InputError("a\nb\udc80\0" + "x" * 10_000)
    assert str(error).startswith(r"a b\udc80\0xxx")
    assert len(str(error)) < 2100
