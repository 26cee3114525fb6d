"""What is a group, what is not a part of its copy, and targets that would cost data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore

import oocarrays as ooc
from oocarrays.errors import NotFoundError, TargetError
from tests.groups import as_stored, objects
from tests.seams import JOURNAL_FOLDER
from tests.small import make

pytestmark = pytest.mark.long

PARTIAL = f"0.{'0123456789abcdef' * 2}.partial"


def test_what_runs_left_in_an_array_is_no_part_of_it(tmp_path: Path) -> None:
    """Its journal, and files that were being written, are not copied with a group."""
    source = zarr.create_group(tmp_path / "a")
    make(tmp_path / "a" / "copied")
    make(tmp_path / "a" / "named")
    clean = objects(tmp_path / "a" / "copied")
    (tmp_path / "a" / "copied" / JOURNAL_FOLDER).mkdir()
    (tmp_path / "a" / "copied" / JOURNAL_FOLDER / "lock").write_bytes(b"")
    (tmp_path / "a" / "copied" / "c" / PARTIAL).write_bytes(b"half of")
    there = MemoryStore()
    for target in (tmp_path / "b", there):
        ooc.rechunk(source, target, chunks={"named": (96, 10)}, scheduler="threads").run()
    assert as_stored(tmp_path / "b" / "copied") == clean
    kept = there._store_dict.items()
    assert {key[len("copied/") :]: data.to_bytes() for key, data in kept if key.startswith("copied/")} == clean
    assert not [key for key in there._store_dict if "oocarrays" in key or "partial" in key]


def test_a_store_holds_a_group_an_array_or_nothing(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "group")
    make(tmp_path / "array")
    assert list(ooc.open_group(tmp_path / "group")) == []
    for nothing in ("array", "none"):
        with pytest.raises(NotFoundError, match="no Zarr group in"):
            ooc.open_group(tmp_path / nothing)
    assert not (tmp_path / "none").exists()


def test_a_target_that_would_cost_data_is_refused(tmp_path: Path) -> None:
    source = zarr.create_group(tmp_path / "a")
    make(tmp_path / "a" / "x")
    zarr.create_group(tmp_path / "b")
    make(tmp_path / "array")

    def job(target: Any, overwrite: bool = False) -> Any:
        return ooc.rechunk(source, target, chunks={"x": (96, 10)}, overwrite=overwrite, scheduler="threads")

    wrong = {
        "read-only": LocalStore(tmp_path / "c", read_only=True),
        "itself": LocalStore(tmp_path / "a"),
        "inside": tmp_path / "a" / "b",
        "exists": tmp_path / "b",
    }
    for words, target in wrong.items():
        with pytest.raises(TargetError, match=words):
            job(target)
    with pytest.raises(TargetError, match="is not a Zarr group"):
        job(tmp_path / "array", overwrite=True)
    for target in (tmp_path / "b", tmp_path / "ab"):
        assert list(job(target, overwrite=target.name == "b").run()) == ["x"]
