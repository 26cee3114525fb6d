"""What `oocarrays stripe --verify` finds, and old copies of disks, seen from the command line."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from numcodecs import Zstd
from zarr.storage import StorePath

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import DescriptorError

DATA = np.arange(24 * 20, dtype="i4").reshape(24, 20)


def url(disks: list[str]) -> str:
    return f"striped://{','.join(disks)}!x.zarr"


@pytest.fixture(params=["plain", "zstd", "format 2", "shards", "blocks"])
def laid_out(request: pytest.FixtureRequest, disks: list[str], tmp_path: Path) -> str:
    how: dict = {"compressors": None}
    if request.param == "zstd":
        how = {}
    if request.param == "format 2":
        how = {"compressors": Zstd()}
    if request.param == "shards":
        how = {"shards": (12, 20)}
    group = zarr.create_group(tmp_path / "source.zarr", zarr_format=2 if request.param == "format 2" else 3)
    for name in ("a", "b"):
        group.create_array(name, data=DATA, chunks=(6, 5), **how)
    block = ["--block", "60"] if request.param == "blocks" else []
    assert main(["stripe", str(tmp_path / "source.zarr"), *disks, "--name", "x.zarr", *block]) == 0
    return url(disks)


def stored_chunk(disks: list[str]) -> tuple[Path, str]:
    """A file of a chunk of array `a`, and its key."""
    files = [(Path(disk), file) for disk in disks for file in Path(disk, "x.zarr", "a").rglob("*") if file.is_file()]
    keys = {file: file.relative_to(disk / "x.zarr").as_posix() for disk, file in files}
    blocks = {file: BLOCKS.sub("", key) for file, key in keys.items() if BLOCKS.search(key)}
    chunks = blocks or {file: key for file, key in keys.items() if file.name[0].isdigit()}
    return max(chunks.items(), key=lambda each: each[1])


def opened(disks: list[str], mode: str) -> ooc.OutOfCoreArray:
    store = ooc.disks.StripedStore([f"{disk}/x.zarr" for disk in disks])
    return ooc.open_array(StorePath(store, "a"), mode=mode)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def overwrite(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)


def delete(file: Path) -> None:
    file.unlink()


BLOCKS = re.compile(r"\.[0-9a-f]{32}\.striped$")
HARM = [truncate, empty, overwrite, delete]


@pytest.mark.parametrize("harm", HARM)
def test_each_harmed_chunk_is_named(
    disks: list[str], laid_out: str, harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stripe", laid_out, "--verify"]) == 0
    said = capsys.readouterr().out
    assert "no faults" in said
    file, key = stored_chunk(disks)
    harm(file)
    assert main(["stripe", laid_out, "--verify"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "1 fault" in said[-1]
    assert [line for line in said if line.startswith(f"{key} of striped://")]


@pytest.mark.parametrize("harm", [truncate, empty, overwrite])
def test_without_a_record_chunks_that_cannot_be_decoded_are_named(
    disks: list[str], harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    zarr.create_array(ooc.disks.StripedStore([f"{disk}/x.zarr" for disk in disks]), data=DATA, chunks=(6, 5), name="a")
    assert main(["stripe", url(disks), "--verify"]) == 0
    file, key = stored_chunk(disks)
    harm(file)
    assert main(["stripe", url(disks), "--verify"]) == 1
    assert f"{key} of {url(disks).partition('!')[0]}" in capsys.readouterr().out.replace("/x.zarr", "")


def test_what_was_written_since_is_no_fault(
    disks: list[str], laid_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(disks, "r+")[3:20, 4:15] = 7
    capsys.readouterr()
    assert main(["stripe", laid_out, "--verify"]) == 0
    assert "written since its values were recorded: a chunk that is gone is not noticed" in capsys.readouterr().out
    assert main(["stripe", laid_out, "--record"]) == 0
    assert main(["stripe", laid_out, "--verify"]) == 0
    said = capsys.readouterr().out
    assert "written since" not in said.rpartition("recorded")[2]


@pytest.mark.parametrize("stale", range(3))
def test_an_old_copy_of_a_disk_is_named(disks: list[str], laid_out: str, stale: int, tmp_path: Path) -> None:
    shutil.copytree(f"{disks[stale]}/x.zarr", tmp_path / "copy")
    opened(disks, "r+")[...] = 7
    assert (opened(disks, "r")[...] == 7).all()
    shutil.rmtree(f"{disks[stale]}/x.zarr")
    shutil.copytree(tmp_path / "copy", f"{disks[stale]}/x.zarr")
    for mode in ("r", "r+"):
        with pytest.raises(DescriptorError, match=f"{disks[stale]}/x.zarr has generation . .* it is an old copy"):
            opened(disks, mode)
    with pytest.raises(DescriptorError, match="old copy"):
        zarr.open_array(ooc.disks.StripedStore([f"{disk}/x.zarr" for disk in disks]), path="a")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"generation": 0, "values": 5}', "\x00\xff"])
def test_a_damaged_record_is_one_line_and_can_be_written_again(
    disks: list[str], laid_out: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(disks[0], "x.zarr", ".striped-values.json").write_text(text)
    assert main(["stripe", laid_out, "--verify"]) == 2
    assert "the record of values of striped://" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    assert main(["stripe", laid_out, "--record"]) == 0
    assert main(["stripe", laid_out, "--verify"]) == 0
