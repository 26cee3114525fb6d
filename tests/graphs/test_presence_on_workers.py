"""On a cluster, too, what cannot be reached is an error; workers take paths as the client named them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.errors import MissingChunksWarning, RunError
from tests import entries
from tests.entries import ENTRIES, JOBS
from tests.flat import flat
from tests.graphs.clusters import within
from tests.small import DATA, make

pytestmark = pytest.mark.long

ON_WORKERS = [entry for entry in [*JOBS, "to_dask"] if entry != "rechunk, kept"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data", "work", "else/where"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    make(tmp_path / "data" / "s.zarr")
    return tmp_path / "data" / "s.zarr"


@pytest.mark.sampled
@pytest.mark.parametrize("entry", ON_WORKERS)
def test_a_relative_path_is_that_of_the_client(
    entry: str, two: Client, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ENTRIES[entry]("../data/s.zarr", tmp_path, {})
    monkeypatch.chdir(tmp_path / "else" / "where")
    np.testing.assert_array_equal(within(read), DATA)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        *((entry, entries.moved) for entry in ON_WORKERS),
        *(("rechunk, two-phase", fault) for fault in (entries.emptied, entries.looped, entries.another)),
        *((entry, entries.emptied) for entry in ("map_slabs", "scatter_files", "read_sections, two-phase", "to_dask")),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_source_that_has_gone_is_an_error(
    entry: str, fault: Callable[[Path], None], two: Client, source: Path, tmp_path: Path
) -> None:
    read = ENTRIES[entry](str(source), tmp_path, {})
    fault(source)
    with pytest.raises(RunError, match=r"s\.zarr"):
        within(read)


def test_workers_tell_their_client_what_is_missing(two: Client, source: Path, tmp_path: Path) -> None:
    (source / "c" / "3" / "0").unlink()
    how: Any = {"chunks": (96, 10), "memory": "64MiB", "scheduler": two, "overwrite": True}
    with pytest.warns(MissingChunksWarning, match=f"{source} lacks 1 chunk: read as the fill value"):
        within(flat(ooc.rechunk, source, tmp_path / "t", resources=ooc.Resources(missing="warn"), **how).run)
    with pytest.raises(RunError, match=r"lacks 1 chunk, and missing='error': \(3, 0\)"):
        within(flat(ooc.rechunk, source, tmp_path / "t", resources=ooc.Resources(missing="error"), **how).run)
    with pytest.raises(RunError, match=r"lacks 1 chunk, and missing='error': \(3, 0\)"):
        within(lambda: two.compute(ooc.open_array(source, missing="error").to_dask((96, 10))).result())


def test_folders_on_workers_disks_are_those_of_the_client(
    two: Client, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ooc.ranks.scatter_files(
        source, "(block, *)", ooc.Target("l", folders="rel/{rank}.zarr"), ranks=2, scheduler=two
    )
    monkeypatch.chdir(tmp_path / "else" / "where")
    a = within(job.run)
    np.testing.assert_array_equal(within(lambda: a[...]), DATA)
    assert sorted(path.name for path in (tmp_path / "work" / "rel").iterdir()) == ["0.zarr", "1.zarr"]
