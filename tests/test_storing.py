"""``ooc.store``: lazy arrays of any blocks into stored ones of any chunks; what is not written stays as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray
import zarr
from dask.delayed import Delayed
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import ChunksError, InputError, NotFoundError, SelectionError, TargetError, UnsupportedError
from tests.profiles import examples, some
from tests.strategies import chunks_for, lengths, shapes
from tests.test_lazy_array import ZSTD

THREADS: dict[str, Any] = {"scheduler": "threads", "num_workers": 4}


def target(folder: Any, shape: tuple[int, ...], chunks: tuple[int, ...], **options: Any) -> zarr.Array:
    """An array of small numbers, none of which is stored anew by these tests."""
    made = zarr.create_array(folder, shape=shape, dtype="i4", chunks=chunks, fill_value=7, **options)
    made[...] = np.arange(made.size).reshape(shape)
    return made


@st.composite
def slices(draw: st.DrawFn, extent: int) -> slice:
    start, stop = sorted((draw(st.integers(0, extent)), draw(st.integers(0, extent))))
    return slice(start, stop, draw(st.integers(1, 3)))


@st.composite
def written(draw: st.DrawFn) -> tuple[zarr.Array, Any, da.Array]:
    shape = draw(shapes(3, most=400))
    chunks = draw(chunks_for(shape))
    shards = draw(st.none() | st.just(tuple(2 * c for c in chunks))) if shape else None
    made = target({}, shape, chunks, shards=shards, compressors=draw(st.sampled_from([None, ZSTD])))
    region = draw(st.none() | st.tuples(*map(slices, shape)))
    data = (-1 - np.arange(made.size).reshape(shape)[region or ...]).astype("i4")
    return made, region, da.from_array(data, chunks=tuple(draw(lengths(n)) for n in data.shape))


@examples(80)
@given(written(), st.booleans())
def test_what_is_written_is_there_and_the_rest_stays(case: Any, compute: bool) -> None:
    made, region, x = case
    wanted = np.asarray(made[...]).copy()
    wanted[region or ...] = x.compute(scheduler="sync")
    if compute:
        assert ooc.store(x, made, region=region, **THREADS) is None
    else:
        later = ooc.store(x, ooc.OutOfCoreArray(made), region=region, compute=False)
        assert isinstance(later, Delayed)
        later.compute(**THREADS)
    np.testing.assert_array_equal(made[...], wanted)


def test_nothing_is_lost_in_many_writes_of_threads(tmp_path: Path) -> None:
    made = target(tmp_path / "a.zarr", (60, 60), (16, 16), compressors=None)
    for turn in some(range(50), 4):
        data = np.full((60, 60), turn)
        ooc.store(da.from_array(data, chunks=(7, 11)), made, **THREADS)
        np.testing.assert_array_equal(made[...], data)


def test_several_arrays_may_share_a_chunk(tmp_path: Path) -> None:
    made = target(tmp_path / "a.zarr", (30, 12), (20, 12), shards=(20, 12), compressors=None)
    halves = [da.full((15, 12), value, chunks=(4, 5), dtype="i4") for value in (1, 2)]
    ooc.store(halves, made, region=[np.s_[:15], np.s_[15:]], **THREADS)
    np.testing.assert_array_equal(made[...], np.repeat([1, 2], 15)[:, None] * np.ones((1, 12)))


def test_a_path_is_opened_and_whole_blocks_are_written_whole(tmp_path: Path) -> None:
    target(tmp_path / "a.zarr", (40, 40), (10, 10))
    x = da.arange(1600, chunks=1600).reshape(40, 40).rechunk((20, 40))
    later = ooc.store(x, tmp_path / "a.zarr", compute=False)
    assert sum(str(key).startswith("('cut-") for key in later.dask) == 0
    later.compute(**THREADS)
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "a.zarr")[...], x.compute(scheduler="sync"))


def test_what_is_read_lazily_is_written_in_other_chunks(tmp_path: Path) -> None:
    source = target(tmp_path / "a.zarr", (40, 30), (7, 30))
    made = target(tmp_path / "b.zarr", (40, 30), (40, 8))
    ooc.store(ooc.open_array(tmp_path / "a.zarr").to_dask((40, 6)) + 5, made, **THREADS)
    np.testing.assert_array_equal(made[...], source[...] + 5)


WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "shape": (da.zeros((3, 4)), {}, TargetError, r"shape \(3, 4\)"),
    "region of another shape": (da.zeros((3,)), {"region": np.s_[2:4]}, TargetError, "region="),
    "dtype": (da.zeros((8,)), {}, TargetError, "convert it with astype"),
    "no array": (range(8), {}, InputError, "not a dask.array.Array"),
    "objects": (da.from_array(np.array([{}] * 8), chunks=8), {}, UnsupportedError, "no fixed size"),
    "unknown blocks": (da.arange(16)[da.arange(16) > 7], {}, ChunksError, "compute_chunk_sizes"),
    "an index": (da.zeros((8,), dtype="i4"), {"region": [3]}, SelectionError, "not a slice"),
    "backwards": (da.zeros((8,), dtype="i4"), {"region": np.s_[::-1]}, SelectionError, "has a negative step"),
    "fewer targets": ([da.zeros((8,), dtype="i4")] * 2, {"region": [None]}, InputError, "their numbers must be equal"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_one_line(tmp_path: Path, case: str) -> None:
    x, options, error, words = WRONG[case]
    made = target(tmp_path / "a.zarr", (8,), (3,))
    region = options.get("region")
    with pytest.raises(error, match=words) as raised:
        ooc.store(x, made, region=(region,) if isinstance(region, list) and case == "an index" else region)
    assert "\n" not in str(raised.value)
    np.testing.assert_array_equal(made[...], np.arange(8))


def test_an_array_that_is_opened_for_reading_is_refused(tmp_path: Path) -> None:
    target(tmp_path / "a.zarr", (8,), (3,))
    with pytest.raises(InputError, match="mode='r\\+'"):
        ooc.store(da.zeros((8,), dtype="i4"), ooc.open_array(tmp_path / "a.zarr"))
    with pytest.raises(NotFoundError, match="no such store"):
        ooc.store(da.zeros((8,), dtype="i4"), tmp_path / "b.zarr", region=slice(0, 8))


def _opened(folder: Path, compressors: Any = ZSTD) -> ooc.OutOfCoreArray:
    target(folder, (12, 12), (3, 3), compressors=compressors)
    return ooc.open_array(folder, mode="r+")


def _of_xarray(a: ooc.OutOfCoreArray) -> da.Array:
    """Read by xarray: the array of a group, with names of its axes."""
    group = Path(a.store).parent
    zarr.open_group(group, mode="a")
    document = Path(a.store, "zarr.json")
    document.write_text(json.dumps(json.loads(document.read_text()) | {"dimension_names": ["y", "x"]}))
    return xarray.open_zarr(group, consolidated=False, chunks={}, mask_and_scale=False)["a.zarr"].data


def _of_ranks(a: ooc.OutOfCoreArray, method: str = "independent") -> da.Array:
    return ooc.ranks.read_sections(a, "(block, *)", ranks=2, method=method, scheduler="threads").to_dask()


READ_FIRST: dict[str, tuple[Any, Any]] = {
    "elementwise": (lambda a: a.to_dask() + 1, None),
    "fused before": (lambda a: dask.optimize(a.to_dask() + 1)[0], None),
    "by Dask": (lambda a: da.from_zarr(a.store) + 1, None),
    "blocks across chunks": (lambda a: a.to_dask(chunks=5) + 1, None),
    "in groups": (lambda a: a.to_dask(chunks=(1, 12)) + 1, None),
    "all before any": (lambda a: a.to_dask() - a.to_dask().max(), None),
    "neighbours": (lambda a: a.to_dask().map_overlap(lambda b: 2 * b + b[::-1], depth=1, boundary="none"), None),
    "elsewhere": (lambda a: a.to_dask()[::2], np.s_[1::2]),
    "beside": (lambda a: a.to_dask()[:4], np.s_[4:8]),
    "moved": (lambda a: a.to_dask()[1:5], np.s_[:4]),
    "of xarray": (lambda a: _of_xarray(a) + 1, None),
    "of ranks": (lambda a: _of_ranks(a) + 1, None),
    "collective": (lambda a: _of_ranks(a, method="two-phase") + 1, None),
    "in memory": (lambda a: a.to_dask().persist(scheduler="threads")[::-1], None),
}


@pytest.mark.parametrize("compressors", [None, ZSTD], ids=["plain", "coded"])
@pytest.mark.parametrize("case", READ_FIRST)
def test_what_is_read_before_it_is_overwritten_is_stored(tmp_path: Path, case: str, compressors: Any) -> None:
    made, region = READ_FIRST[case]
    a = _opened(tmp_path / "a.zarr", compressors)
    x, wanted = made(a), a[...].copy()
    wanted[region or ...] = x.compute(scheduler="sync")
    ooc.store(x, a, region=region, **THREADS)
    np.testing.assert_array_equal(a[...], wanted)


@pytest.mark.parametrize("made", [
    pytest.param(lambda a: a.to_dask()[::-1], id="backwards"),
    pytest.param(lambda a: a.to_dask().T, id="transposed"),
    pytest.param(lambda a: da.from_zarr(a.store)[::-1], id="by Dask"),
    pytest.param(lambda a: da.from_array(a, chunks=3)[:, ::-1] + 1, id="of the array"),
    pytest.param(lambda a: dask.optimize(a.to_dask()[::-1])[0], id="fused before"),
    pytest.param(lambda a: da.roll(a.to_dask(), 3, axis=0), id="rolled"),
    pytest.param(lambda a: _of_xarray(a)[::-1], id="of xarray"),
    pytest.param(lambda a: _of_ranks(a)[::-1], id="of ranks"),
    pytest.param(lambda a: _of_ranks(a, method="two-phase")[::-1], id="collective"),
])  # fmt: skip
def test_what_would_be_overwritten_before_it_is_read_is_refused(tmp_path: Path, made: Any) -> None:
    a = _opened(tmp_path / "a.zarr")
    before = a[...]
    for compute in (True, False):
        with pytest.raises(TargetError, match="would be overwritten before it is read: write to another array"):
            ooc.store(made(a), a, compute=compute, **THREADS if compute else {})
    np.testing.assert_array_equal(a[...], before)


def test_two_arrays_do_not_change_places(tmp_path: Path) -> None:
    a, b = (_opened(tmp_path / name) for name in ("a.zarr", "b.zarr"))
    with pytest.raises(TargetError, match=r"\.zarr is read in a different order"):
        ooc.store([a.to_dask(), b.to_dask()], [b, a], **THREADS)
    ooc.store([a.to_dask() + 1, a.to_dask() + 2], [b, tmp_path / "a.zarr"], **THREADS)
    np.testing.assert_array_equal(b[...] + 1, a[...])
