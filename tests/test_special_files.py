"""A FIFO, socket or device in the place of a file of an array is refused in one line: nothing waits for it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import JournalError, RunError, StoreFailure
from tests.entries import ENTRIES, STORED, THREADS
from tests.flat import flat
from tests.small import make


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # paths of at most 107 bytes
        made.bind(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS = {fifo: "a FIFO", bound_socket: "a socket", device: "a device"}


REFUSED = "a FIFO, not a regular file|of the chunks of .* have changed"
"""A FIFO is no chunk: it is also missed by whoever compares them with a journal."""


def replace(file: Path, kind: Callable[[Path], None]) -> None:
    file.unlink()
    kind(file)


def a_chunk(folder: Path) -> Path:
    return min(path for path in folder.rglob("*") if path.is_file() and re.fullmatch(r"[\d.]+", path.name))


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_chunk_that_is_a_fifo_is_refused(entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "data" / "s.zarr")
    read = ENTRIES[entry](str(tmp_path / "data" / "s.zarr"), tmp_path, THREADS)
    replace(a_chunk(tmp_path / "data" / "s.zarr"), fifo)
    with pytest.raises((RunError, JournalError), match=REFUSED) as refused:
        read()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("entry", ["rechunk, two-phase", "a[...]", "to_dask"])
def test_in_any_coding(
    stored: str, kind: Callable[[Path], None], entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "s.zarr", **STORED[stored])
    monkeypatch.chdir(tmp_path)
    read = ENTRIES[entry](str(tmp_path / "s.zarr"), tmp_path, THREADS)
    replace(a_chunk(tmp_path / "s.zarr"), kind)
    with pytest.raises(StoreFailure, match=f"it is {KINDS[kind]}, not a regular file"):
        read()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_metadata_document(kind: Callable[[Path], None], zarr_format: int, tmp_path: Path) -> None:
    make(tmp_path / "g" / "s.zarr", zarr_format=zarr_format)
    zarr.create_group(tmp_path / "g", zarr_format=zarr_format)
    for folder, opened in ((tmp_path / "g" / "s.zarr", ooc.open_array), (tmp_path / "g", ooc.open_group)):
        name = "zarr.json" if zarr_format == 3 else ".zarray" if folder.name == "s.zarr" else ".zgroup"
        replace(folder / name, kind)
        with pytest.raises(StoreFailure, match=f"it is {KINDS[kind]}, not a regular file"):
            opened(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_format(kind: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(12.0).reshape(3, 4))
    a = ooc.open_array(path)
    replace(path, kind)
    with pytest.raises(RunError):
        a[...]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_a_striped_array(kind: Callable[[Path], None], tmp_path: Path) -> None:
    for disk in "ab":
        (tmp_path / disk).mkdir()
    url = f"striped://{tmp_path}/a,{tmp_path}/b"
    source = make(tmp_path / "s.zarr")
    flat(ooc.rechunk, source, url, chunks=(96, 10), memory="64MiB", **THREADS).run()
    a = ooc.open_array(url)
    replace(a_chunk(tmp_path / "a"), kind)
    with pytest.raises(StoreFailure, match=f"it is {KINDS[kind]}, not a regular file"):
        a[...]


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_of_streams(kind: Callable[[Path], None], tmp_path: Path) -> None:
    with ooc.streams.open_streams(tmp_path / "s", "w", shape=(2, 2), dtype="i4", memory="64MiB") as streams:
        streams.write(np.arange(4, dtype="i4").reshape(2, 2))
    for path in list((tmp_path / "s").rglob("*")):
        if path.is_file() and re.fullmatch(r"c[\d.]+", path.name):
            replace(path, kind)
    with pytest.raises(StoreFailure, match=f"it is {KINDS[kind]}, not a regular file"):
        ooc.streams.open_streams(tmp_path / "s")[0, 0][...]
