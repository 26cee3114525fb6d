"""Files and folders that vanish while they are read, written or listed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import RunError, StoreFailure
from oocarrays.storage.local.blobs import LocalBlobs
from tests import entries

pytestmark = pytest.mark.once


def test_a_zip_file_that_is_written_stays_where_it_is(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = zarr.storage.ZipStore("t.zip", mode="w")
    job = ooc.rechunk(source, store, chunks=(96, 10), scheduler="threads")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    job.run()
    store.close()
    assert (tmp_path / "t.zip").exists()
    assert not os.listdir()


def test_a_link_that_leads_nowhere_is_no_change_of_a_source(source: Path, target: Path) -> None:
    ooc.rechunk(source, target, chunks=(96, 10), scheduler="threads").run()
    for name in ("00", "6x", "zz"):
        (source / "c" / name).symlink_to("/no/such/chunk")
    job = ooc.update(target, scheduler="threads")
    job.run()
    assert job.meter.write_requests == 0


def test_a_link_through_a_file_does_not_hide_the_chunks_behind_it(source: Path, target: Path) -> None:
    ooc.rechunk(source, target, chunks=(96, 10), scheduler="threads").run()
    (source / "c" / "00").symlink_to(source / "zarr.json" / "chunk")
    with pytest.raises(StoreFailure, match=r"cannot look at .*00"):
        ooc.update(target, scheduler="threads")


def test_what_is_missing_of_a_batch_is_looked_at_when_it_is_at_its_end(source: Path) -> None:
    from oocarrays.storage.chunks.reader import ChunkReader
    from oocarrays.storage.files.array_file import describe, open_array
    from oocarrays.storage.meter import Meter

    reader = ChunkReader(describe(open_array(source)), Meter())
    come = reader.whole([(row, 0) for row in range(12)], iter([np.empty((8, 80), "f4")] * 12))
    next(come)
    entries.removed(source)
    with pytest.raises(RunError, match="is missing"):
        list(come)


@pytest.mark.parametrize("end", ["", "/"])
def test_chunks_are_not_written_where_their_folder_was(tmp_path: Path, end: str) -> None:
    """Nobody can look and write at one time: a folder may go between the two."""
    (tmp_path / "t.zarr").mkdir()
    blobs = LocalBlobs(f"{tmp_path}/t.zarr{end}")
    blobs.put("c/0/0", memoryview(b"it is there"))
    (tmp_path / "t.zarr").rename(tmp_path / "taken")
    for key in ("c/0/0", "c/1/0"):
        with pytest.raises(StoreFailure):
            blobs.put(key, memoryview(b"it is not"))
    assert not (tmp_path / "t.zarr").exists()
