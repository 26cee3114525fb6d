"""A source that changes while a plan without a target reads it is an error: never old and new in one result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import RunError
from tests.changing import VERBS, Gate, changes
from tests.entries import ENTRIES, STORED, THREADS
from tests.flat import flat
from tests.small import DATA, make

SAYS = "changed while it was read|is not the array|is missing|is empty"
each_verb = pytest.mark.parametrize("verb", VERBS)


def rewritten(source: Path, asked: set[str], **stored: object) -> None:
    zarr.open_array(source, mode="r+")[...] = DATA + 1


def replaced(source: Path, asked: set[str], **stored: object) -> None:
    shutil.rmtree(source)
    make(source, DATA + 1, **stored)


def without_a_chunk(source: Path, asked: set[str], **stored: object) -> None:
    files = [path for path in source.rglob("*") if path.is_file() and path.name[0] not in ".z"]
    max(path for path in files if str(path) not in asked).unlink()


def a_chunk_rewritten(source: Path, asked: set[str], **stored: object) -> None:
    zarr.open_array(source, mode="r+")[:8] = DATA[:8] + 1


CHANGES = (rewritten, replaced, without_a_chunk)


def check(verb: str, source: Path, change: Callable[..., None], stored: dict[str, object]) -> None:
    gate = Gate(str(source), 2, lambda asked: change(source, asked, **stored))
    with changes(gate), pytest.raises(RunError, match=SAYS) as failed:
        VERBS[verb](str(source), ooc.open_array, THREADS)
    assert gate.reached
    assert "\n" not in str(failed.value)
    now = np.asarray(zarr.open_array(source, mode="r")[...])
    np.testing.assert_array_equal(VERBS[verb](str(source), ooc.open_array, THREADS), now)


@each_verb
@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_is_noticed(verb: str, change: Callable[..., None], tmp_path: Path) -> None:
    if verb == "partitions" and change is without_a_chunk:
        pytest.skip("each partition is planned when the loop comes to it")
    make(tmp_path / "s.zarr")
    check(verb, tmp_path / "s.zarr", change, {})


@each_verb
def test_one_chunk_that_is_written_again_is_old_or_noticed(verb: str, tmp_path: Path) -> None:
    source = tmp_path / "s.zarr"
    make(source)
    gate = Gate(str(source), 2, lambda asked: a_chunk_rewritten(source, asked))
    with changes(gate):
        try:
            found = VERBS[verb](str(source), ooc.open_array, THREADS)
        except RunError as error:
            assert "changed while it was read" in str(error)  # noqa: PT017  either is right
        else:
            np.testing.assert_array_equal(found, DATA)
    assert gate.reached


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("change", [rewritten, without_a_chunk])
@pytest.mark.parametrize("verb", ["read_sections, two-phase", "reduce", "compare", "lazy rechunk, groups"])
def test_in_any_coding(verb: str, change: Callable[..., None], stored: str, tmp_path: Path) -> None:
    make(tmp_path / "s.zarr", **STORED[stored])
    check(verb, tmp_path / "s.zarr", change, STORED[stored])


@each_verb
def test_a_chunk_that_was_never_written_is_the_fill_value(verb: str, tmp_path: Path) -> None:
    array = make(tmp_path / "s.zarr")
    for row in (0, 5, 11):
        shutil.rmtree(tmp_path / "s.zarr" / "c" / str(row))
    np.testing.assert_array_equal(VERBS[verb](str(tmp_path / "s.zarr"), ooc.open_array, THREADS), array[...])


@each_verb
def test_what_is_not_read_may_change(verb: str, tmp_path: Path) -> None:
    make(tmp_path / "s.zarr")
    make(tmp_path / "s.zarr.other")
    gate = Gate(str(tmp_path / "s.zarr") + "/", 2, lambda asked: rewritten(tmp_path / "s.zarr.other", asked))
    with changes(gate):
        np.testing.assert_array_equal(VERBS[verb](str(tmp_path / "s.zarr"), ooc.open_array, THREADS), DATA)
    assert gate.reached


def test_a_section_does_not_mind_the_rest_of_the_array(tmp_path: Path) -> None:
    make(tmp_path / "s.zarr")
    parts = flat(ooc.ranks.read_sections, tmp_path / "s.zarr", [np.s_[:16], np.s_[16:48]], **THREADS)

    def change(asked: set[str]) -> None:
        zarr.open_array(tmp_path / "s.zarr", mode="r+")[48:] = 0

    with changes(Gate(str(tmp_path / "s.zarr"), 2, change)) as gate:
        np.testing.assert_array_equal(np.concatenate(parts.compute()), DATA[:48])
    assert gate.reached


def test_local_array_files_that_change_under_a_multicast(tmp_path: Path) -> None:
    make(tmp_path / "whole")
    flat(
        ooc.ranks.scatter_files,
        tmp_path / "whole",
        "(block, *)",
        ooc.Target(tmp_path / "files", chunks=(8, 80)),
        ranks=2,
        **THREADS,
    ).run()
    a = ooc.open_array(tmp_path / "files", mode="r+")

    def change(asked: set[str]) -> None:
        a[...] = DATA + 1

    sent = flat(ooc.ranks.multicast, a, np.s_[:], **THREADS)
    gate = Gate(str(tmp_path / "files"), 2, change)
    with changes(gate), pytest.raises(RunError, match="changed while it was read"):
        sent.compute()
    assert gate.reached
    np.testing.assert_array_equal(sent.compute()[1], DATA + 1)


def _planned(name: str, source: Path, folder: Path) -> Callable[[], object]:
    """A read that is planned now, and done later."""
    return ENTRIES[name](str(source), folder, THREADS)


@pytest.mark.parametrize("stored", ["plain", "sharded", "format 2"])
@pytest.mark.parametrize("entry", ["rechunk, two-phase", "map_slabs", "iterate", "read_sections, two-phase"])
def test_a_chunk_that_was_there_when_it_was_planned(
    entry: str, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "s.zarr", **STORED[stored])
    monkeypatch.chdir(tmp_path)
    read = _planned(entry, tmp_path / "s.zarr", tmp_path)
    without_a_chunk(tmp_path / "s.zarr", set())
    with pytest.raises(RunError, match=r"has lost 1 of the \d+ chunks that it had when this was planned"):
        read()
    np.testing.assert_array_equal(
        _planned(entry, tmp_path / "s.zarr", tmp_path)(), zarr.open_array(tmp_path / "s.zarr", mode="r")[...]
    )
