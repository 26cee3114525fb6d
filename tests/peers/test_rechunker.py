"""rechunker's cases, through `rechunk`: its shapes, chunks, types, budgets and options.

what does not apply                              why
chunks of stages, read and write consolidation   rechunker's algorithm; plans of ours are in tests/plan
min_mem, stages, excessive I/O                   of the same algorithm: `rechunk` has no such options
budgets below six megabytes                      refused, and the least is named: they hold codecs and requests, too
executors: beam, prefect, python                 Dask's threads and workers
temp_store, which has to be given                ``scratch`` has a default
target_options, temp_options                     `compressors`, `filters` and others are arguments
array_name in a group                            the target is a path in the group
FSStore                                          of Zarr 2; stores of Zarr 3 are in tests/stores
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError, ChunksError, InputError, TargetError
from tests.flat import flat

HERE: dict[str, Any] = {"scheduler": "threads"}
SMALL: dict[str, Any] = {"memory": "10MB", **HERE}

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Consolidated metadata")]


def filled(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array whose elements are told apart."""
    return (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)


def stored(place: Path, values: np.ndarray, chunks: tuple[int, ...], **how: Any) -> Path:
    zarr.create_array(place, data=values, chunks=chunks, **how)
    return place


def test_a_large_array_in_four_rows_of_its_chunks(tmp_path: Path) -> None:
    values = np.add.outer(np.arange(8000, dtype="f4") % 251, np.arange(8000, dtype="f4") % 7)
    source, target = stored(tmp_path / "source.zarr", values, (200, 8000), attributes={"foo": "bar"}), tmp_path / "new"
    job, same = (
        ooc.rechunk(source, target, chunks=(8000, 200), memory=memory, **HERE) for memory in (25600000, "25.6MB")
    )
    assert job.plan.peak_bytes == same.plan.peak_bytes <= 25600000
    made = job.run()
    assert (made[:] == values).all()
    opened = zarr.open_array(target, mode="r")
    assert (opened.chunks, dict(opened.attrs)) == ((8000, 200), {"foo": "bar"})


@pytest.mark.parametrize("chunks", [(800, 20), (-1, 20), {"y": 800, "x": 20}, {"x": 20}, None])
def test_chunks_by_axis_and_by_name(tmp_path: Path, chunks: Any) -> None:
    """A tenth as long as rechunker's; -1, and names of some axes only, are what it does not know."""
    values = filled((800, 800), "f4")
    source = stored(tmp_path / "source.zarr", values, (20, 800), dimension_names=("y", "x"))
    made = flat(ooc.rechunk, source, tmp_path / "target.zarr", chunks=chunks, **SMALL).run()
    np.testing.assert_array_equal(made[:], values)
    assert made.chunks == {"None": (20, 800), "{'x': 20}": (20, 20)}.get(str(chunks), (800, 20))


def test_names_of_axes_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    source = stored(tmp_path / "source.zarr", filled((80, 80), "f4"), (2, 80))
    with pytest.raises(InputError, match="'y'"):
        flat(ooc.rechunk, source, tmp_path / "target.zarr", chunks={"y": 80, "x": 2}, **SMALL)


@pytest.mark.parametrize("blocks", [(20, 800), (80, 800)])
@pytest.mark.parametrize("chunks", [(20, 800), (80, 800), (800, 20), (40, 800)])
def test_dask_arrays(tmp_path: Path, blocks: tuple[int, int], chunks: tuple[int, int]) -> None:
    values = filled((800, 800), "f4")
    made = flat(ooc.rechunk, da.from_array(values, blocks), tmp_path / "target.zarr", chunks=chunks, **SMALL).run()
    np.testing.assert_array_equal(made[:], values)
    assert made.chunks == chunks


ONE_AXIS = [((8,), (1,), (1,)), ((8,), (1,), (2,)), ((16,), (3,), (7,)), ((10,), (4,), (5,)), ((24,), (2,), (3,))]
PRIME = [((100,), (43,), (each,)) for each in (100, 51, 40, 10, 1)]
TWO_AXES = [
    ((8, 8), (1, 8), (8, 1)),
    ((8, 8), (1, 2), (8, 8)),
    ((100, 100), (100, 1), (1, 100)),
    ((40, 40), (1, 10), (10, 1)),
    ((100, 100), (20, 20), (25, 25)),
    ((50, 50), (20, 20), (25, 25)),
    ((60, 60), (10, 10), (1, 60)),
]


@pytest.mark.parametrize(("shape", "chunks", "new"), [*ONE_AXIS, *PRIME, *TWO_AXES])
def test_chunks_of_plans(tmp_path: Path, shape: Any, chunks: Any, new: Any) -> None:
    values = filled(shape, "i4")
    source = stored(tmp_path / "source.zarr", values, chunks)
    made = flat(ooc.rechunk, source, tmp_path / "target.zarr", chunks=new, **SMALL).run()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "target.zarr", mode="r")[:], values)
    assert made.chunks == new


@pytest.mark.parametrize("memory", [32, 1600])
def test_a_budget_of_bytes_is_refused_and_the_least_is_enough(tmp_path: Path, memory: int) -> None:
    values = filled((8, 8), "f4")
    source, target = stored(tmp_path / "source.zarr", values, (1, 8)), tmp_path / "target.zarr"
    with pytest.raises(BudgetError, match=f"memory=.*{memory} bytes.* is too small") as refused:
        ooc.rechunk(source, target, chunks=(8, 1), memory=memory, **HERE)
    assert not target.exists()
    least = ooc.rechunk(source, target, chunks=(8, 1), memory=refused.value.least, **HERE)
    assert least.plan.peak_bytes <= refused.value.least
    np.testing.assert_array_equal(least.run()[:], values)


@pytest.mark.parametrize(
    ("shape", "chunks", "new", "memory"),
    [
        ((175320, 721, 1440), (24, 721, 1440), (21915, 103, 10), 12 * 10**9),
        ((1000, 2000, 2000), (1, 2000, 2000), (1000, 4, 4), 20 * 10**9),
        ((1000, 50, 1800, 3600), (1, 5, 1800, 3600), (1, 5, 1800, 3600), 10**9),
    ],
)
def test_plans_of_large_archives_are_within_memory(shape: Any, chunks: Any, new: Any, memory: int) -> None:
    """Planned only: the first is rechunker's issue 115."""
    source = zarr.create_array({}, shape=shape, chunks=chunks, dtype="f4")
    job = ooc.rechunk(source, {}, chunks=new, memory=memory, **HERE)
    assert 0 < job.plan.peak_bytes <= memory


def group_of(place: Path) -> Path:
    group = zarr.create_group(place, attributes={"description": "root"})
    a = group.create_array("a", data=filled((5, 10, 20), "f4"), chunks=(1, 10, 20))
    a.attrs["description"] = "a"
    for name in ("foo", "foo/bar", "foo/bar/baz"):
        group.create_group(name, attributes={"description": name})
    b = group.create_array("foo/bar/baz/b", data=filled((20,), "f4"), chunks=(10,))
    b.attrs["description"] = "b"
    return place


def test_groups_in_groups_keep_their_attributes(tmp_path: Path) -> None:
    source, new = group_of(tmp_path / "source.zarr"), {"a": (5, 10, 4), "foo/bar/baz/b": (20,)}
    flat(ooc.rechunk, source, tmp_path / "target.zarr", chunks=new, **SMALL).run()
    before, after = (zarr.open_group(tmp_path / name, mode="r") for name in ("source.zarr", "target.zarr"))
    for name in ("", "a", "foo", "foo/bar", "foo/bar/baz", "foo/bar/baz/b"):
        assert dict((after[name] if name else after).attrs) == dict((before[name] if name else before).attrs)
    for name, chunks in new.items():
        made: Any = after[name]
        assert made.chunks == chunks
        np.testing.assert_array_equal(made[:], before[name][:])  # type: ignore[index]


def dataset(blocks: tuple[int, int]) -> xr.Dataset:
    """A field with a row of NaN, packed when it is written, and its coordinates."""
    values = np.arange(5000.0).reshape(100, 50).astype("f4")
    values[-1] = np.nan
    made = xr.Dataset(
        {
            "a": (("x", "y"), values, {"a1": 1, "a2": [1, 2, 3], "a3": "x"}),
            "b": ("x", np.ones(100)),
            "c": ("y", np.ones(50)),
        },
        {"cx": ("x", np.ones(100)), "cy": ("y", np.ones(50))},
        {"a1": 1, "a2": [1, 2, 3], "a3": "x"},
    ).chunk(dict(zip("xy", blocks, strict=True)))
    made.a.encoding = {"dtype": "int32", "scale_factor": 0.1, "_FillValue": -9999}
    return made


@pytest.mark.parametrize("blocks", [(10, 50), (100, 5)])
@pytest.mark.parametrize("new", [{"x": 20, "y": 10}, {"x": 20}, {"x": 20, "y": -1}])
def test_datasets_are_packed_and_rechunked_by_dimension(tmp_path: Path, blocks: Any, new: dict[str, int]) -> None:
    ds = dataset(blocks)
    flat(ooc.rechunk, ds, tmp_path / "target.zarr", chunks=new, **SMALL).run()
    raw = xr.open_zarr(tmp_path / "target.zarr", decode_cf=False, chunks=None)
    assert raw.a.dtype == "int32"
    assert (raw.a.values[-1] == -9999).all()
    made = xr.open_zarr(tmp_path / "target.zarr")
    xr.testing.assert_allclose(made.compute(), ds.compute())
    assert made.attrs == ds.attrs
    along = [new.get(dim, block) for dim, block in zip("xy", blocks, strict=True)]
    assert made.a.data.chunksize == (along[0], 50 if along[1] == -1 else along[1])


def test_a_target_that_is_there_is_replaced_when_asked(tmp_path: Path) -> None:
    values = filled((80, 80), "f4")
    source, target = stored(tmp_path / "source.zarr", values, (2, 80)), tmp_path / "target.zarr"
    flat(ooc.rechunk, source, target, chunks=(80, 2), **SMALL).run()
    with pytest.raises(TargetError, match="exists"):
        flat(ooc.rechunk, source, target, chunks=(80, 2), **SMALL)
    made = flat(ooc.rechunk, source, target, chunks=(40, 4), overwrite=True, **SMALL).run()
    np.testing.assert_array_equal(made[:], values)


def test_compressed_targets_are_smaller(tmp_path: Path) -> None:
    source = stored(tmp_path / "source.zarr", filled((400, 400), "f4"), (20, 400))
    for name, compressors in {"plain": (), "packed": zarr.codecs.BloscCodec(cname="zstd", clevel=9)}.items():
        flat(ooc.rechunk, source, ooc.Target(tmp_path / name, compressors=compressors), chunks=(400, 20), **SMALL).run()
    plain, packed = (
        sum(f.stat().st_size for f in (tmp_path / n).rglob("*") if f.is_file()) for n in ("plain", "packed")
    )
    assert packed < plain


@pytest.mark.parametrize("chunks", [(10, 10, 10), (0, 10), (10,)])
def test_chunks_that_do_not_fit_are_an_error(tmp_path: Path, chunks: Any) -> None:
    source = stored(tmp_path / "source.zarr", filled((80, 80), "f4"), (2, 80))
    with pytest.raises(ChunksError):
        flat(ooc.rechunk, source, tmp_path / "target.zarr", chunks=chunks, **SMALL)


def test_chunks_of_a_group_are_named_by_array(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        flat(ooc.rechunk, group_of(tmp_path / "source.zarr"), tmp_path / "target.zarr", chunks=(10, 10), **SMALL)
    with pytest.raises(InputError):
        flat(ooc.rechunk, [[1, 2], [3, 4]], tmp_path / "target.zarr", chunks=(10, 10), **SMALL)
