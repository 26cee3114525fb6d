"""A source is never overwritten, whatever other name it has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import TargetError

DATA = np.arange(64.0).reshape(8, 8)


@pytest.fixture
def twice(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder that has two names, as where case does not matter, or where a disk is mounted twice."""
    folder, again = tmp_path / "folder", tmp_path / "again"
    zarr.create_array(folder / "group" / "s.zarr", data=DATA, chunks=(2, 8))
    zarr.open_group(folder / "group", mode="a")
    again.mkdir()
    if subprocess.run(["mount", "--bind", folder, again], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder, again
    subprocess.run(["umount", again], check=True)


def rechunk(source: Path, target: Path) -> Any:
    return ooc.rechunk(source, target, chunks=(8, 2), overwrite=True, scheduler="threads")


def map_slabs(source: Path, target: Path) -> Any:
    return ooc.map_slabs(np.negative, source, target, overwrite=True, scheduler="threads")


def scatter(source: Path, target: Path) -> Any:
    return ooc.ranks.scatter_files(source, "(block, *)", target, ranks=2, overwrite=True, scheduler="threads")


@pytest.mark.parametrize("write", [rechunk, map_slabs, scatter])
@pytest.mark.parametrize("below", ["", "/new"])
def test_the_source_by_another_name(twice: tuple[Path, Path], write: Callable[..., Any], below: str) -> None:
    folder, again = twice
    with pytest.raises(TargetError, match="one inside the other"):
        write(folder / "group" / "s.zarr", Path(f"{again}/group/s.zarr{below}")).run()
    np.testing.assert_array_equal(zarr.open_array(folder / "group" / "s.zarr")[...], DATA)


def test_a_group_by_another_name(twice: tuple[Path, Path]) -> None:
    folder, again = twice
    for target in (again / "group", again, again / "group" / "new"):
        with pytest.raises(TargetError):
            ooc.rechunk(folder / "group", target, chunks={"s.zarr": (8, 2)}, overwrite=True, scheduler="threads").run()
    np.testing.assert_array_equal(zarr.open_array(folder / "group" / "s.zarr")[...], DATA)


def test_neighbours_are_apart(twice: tuple[Path, Path]) -> None:
    folder, again = twice
    made = rechunk(folder / "group" / "s.zarr", again / "t.zarr").run()
    np.testing.assert_array_equal(made, DATA)
