"""Codecs of a source that are bound to its type: targets of other types, as zarr-python reads them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
import zarr.codecs.numcodecs as in_format_3
from hypothesis import given, strategies as st
from zarr.codecs import BloscCodec, TransposeCodec, ZstdCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from tests.flat import flat
from tests.profiles import examples

SAID = "ignore:Numcodecs codecs are not in the Zarr version 3 specification"
pytestmark = pytest.mark.filterwarnings(SAID)
HOW: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
VALUES = np.arange(35).reshape(7, 5) * 3 % 23
SOURCES = ["u1", "i2", "i4", "u8", "f4", "f8", "?"]
TYPES = [*SOURCES, "u2", "i8", "f2", "c8", ">i4"]
TURNED = TransposeCodec(order=(1, 0))


def codecs(zarr_format: int, dtype: np.dtype) -> dict[str, list[Any]]:
    """Filters that take elements of a type and hold the test's values: those of numcodecs in both formats."""
    of: Any = numcodecs if zarr_format == 2 else in_format_3
    found: dict[str, list[Any]] = {"none": []}
    if zarr_format == 2:
        found["shuffle"] = [of.Shuffle(elementsize=dtype.itemsize)]
    if dtype.kind in "iu":
        found |= {"delta": [of.Delta(dtype=dtype.str)]}
        found |= {"narrow": [of.Delta(dtype=dtype.str, astype="<i2")]} if dtype.itemsize > 1 else {}
    if dtype.kind == "f":
        found["scaled"] = [of.FixedScaleOffset(offset=0, scale=10, dtype=dtype.str, astype="|u1")]
        found["rounded"] = [of.Quantize(digits=2, dtype=dtype.str)]
        found["bits"] = [of.BitRound(keepbits=16)]
        found["narrow"] = [of.AsType(encode_dtype="<f2", decode_dtype=dtype.str)]
    if dtype.kind == "b":
        found["packed"] = [of.PackBits()]
    return found


def compressors(zarr_format: int, itemsize: int) -> dict[str, Any]:
    if zarr_format == 2:
        return {"none": None, "blosc": numcodecs.Blosc(shuffle=1), "zstd": numcodecs.Zstd()}
    shuffled = [in_format_3.Shuffle(elementsize=itemsize), in_format_3.Zlib()]
    return {"none": None, "blosc": BloscCodec(typesize=itemsize, shuffle="shuffle"), "shuffled": shuffled}


def source(zarr_format: int, dtype: str, filters: Any = (), compressors: Any = None, **more: Any) -> zarr.Array:
    array = zarr.create_array(
        {}, shape=(7, 5), chunks=(3, 2), dtype=dtype, zarr_format=zarr_format, filters=list(filters) or None,
        compressors=compressors, **more,
    )  # fmt: skip
    array[...] = VALUES % 2 if dtype == "?" else VALUES
    return array


def computed(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda block: (block * 40 + 9).astype(dtype) if np.dtype(dtype).itemsize > 1 else (block % 2).astype(dtype)


def by_column(block: np.ndarray) -> np.ndarray:
    return block[:, 0]


def refused(call: Callable[[], Any]) -> bool:
    """Whether filters are refused because zarr-python, with this numcodecs, does not read back what it writes."""
    try:
        call()
    except ooc.errors.UnsupportedError as error:
        return "do not survive the filters" in str(error)
    return False


VERBS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "map_slabs": (
        lambda a, t, dtype: ooc.map_slabs(computed(dtype), a, ooc.Target(t, dtype=dtype), **HOW),
        lambda x, dtype: computed(dtype)(x),
    ),
    "drop_axis": (
        lambda a, t, dtype: ooc.map_slabs(
            lambda b: by_column(computed(dtype)(b)), a, t, results=ooc.Results(drop_axis=1), **HOW
        ),
        lambda x, dtype: by_column(computed(dtype)(x)),
    ),
    "new_axis": (
        lambda a, t, dtype: ooc.map_slabs(
            lambda b: computed(dtype)(b)[..., None] + np.zeros(2, dtype), a, t,
            results=ooc.Results(new_axis=2, shape=2), **HOW,
        ),
        lambda x, dtype: computed(dtype)(x)[..., None] + np.zeros(2, dtype),
    ),
    "rechunk": (lambda a, t, _: ooc.rechunk(a, t, chunks=(2, 5), **HOW), lambda x, _: x),
    "orientation": (
        lambda a, t, _: ooc.rechunk(a, ooc.Target(t, orientation="column"), chunks=(4, 3), **HOW), lambda x, _: x
    ),
    "iterate": (
        lambda a, t, _: ooc.iterate(lambda b: (b * 2).astype(b.dtype), a, t, sweeps=2, **HOW), lambda x, _: x * 4
    ),
    "reduce": (lambda a, t, _: ooc.reduce(a, "max", axis=0, target=t, **HOW), lambda x, _: x.max(axis=0)),
}  # fmt: skip


@examples(60)
@given(st.data(), st.sampled_from([2, 3]), st.sampled_from(SOURCES), st.sampled_from(TYPES), st.sampled_from([*VERBS]))
def test_targets_are_read_by_zarr(data: st.DataObject, form: int, old: str, new: str, verb: str) -> None:
    chosen = data.draw(st.sampled_from([*codecs(form, np.dtype(old)).items()]))
    coded = data.draw(st.sampled_from([*compressors(form, np.dtype(old).itemsize).values()]))
    coded = (
        None if chosen[0] in ("narrow", "scaled", "packed") else coded
    )  # zarr-python cannot shuffle what is narrower than its elements
    array = source(form, old, chosen[1], coded)
    stored, (job, right) = array[...], VERBS[verb]
    if old == "?" and verb in ("iterate", "reduce"):
        return
    place = MemoryStore()
    if refused(lambda: job(array, place, new).run()):
        assert verb in ("rechunk", "orientation")
        return
    wanted, found = right(stored, new), zarr.open_array(place, mode="r")
    rounding = {"rounded": 1e-2, "bits": 1e-4}.get(chosen[0], 0.0)
    np.testing.assert_allclose(found[...], wanted, rtol=rounding, atol=rounding)
    assert found.dtype == wanted.dtype.newbyteorder("=") or found.dtype == wanted.dtype


@pytest.mark.parametrize("form", [2, 3])
def test_codecs_are_made_again_for_the_new_type_where_that_means_the_same(form: int) -> None:
    of: Any = numcodecs if form == 2 else in_format_3
    array = source(form, "i4", [of.Delta(dtype="<i4")], compressors(form, 4)["blosc"])
    made = ooc.map_slabs(lambda b: b.astype("i8") << 40, array, ooc.Target(MemoryStore(), dtype="i8"), **HOW).run().zarr
    assert made.filters == (of.Delta(dtype="<i8"),)
    assert form == 2 or made.compressors == (BloscCodec(typesize=8, shuffle="shuffle"),)
    np.testing.assert_array_equal(made[...], VALUES << 40)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_codecs_that_hold_other_values_are_left_out_with_a_notice(dtype: str, caplog: Any) -> None:
    scaled = in_format_3.FixedScaleOffset(offset=0, scale=10, dtype="<f8", astype="|u1")
    job = ooc.map_slabs(lambda b: b * 100.5, source(3, "f8", [scaled]), ooc.Target(MemoryStore(), dtype=dtype), **HOW)
    said = "the codec fixedscaleoffset is left out: computed elements of"
    assert said in job.explain()
    with caplog.at_level(logging.WARNING, "oocarrays"):
        made = job.run().zarr
    assert said in caplog.text
    assert made.filters == ()
    np.testing.assert_array_equal(made[...], (VALUES * 100.5).astype(dtype))


def test_local_array_files_have_codecs_of_their_type(tmp_path: Path) -> None:
    filters = [in_format_3.Delta(dtype="<i4")]
    a = ooc.create_array(
        ooc.Target(tmp_path / "a", filters=filters), shape=8, dtype="i4", layout="(block)", ranks=2, placement="local"
    )
    a[:] = np.arange(8)
    b = ooc.map_slabs(lambda block: block / 2, a, ooc.Target(tmp_path / "b", dtype="f8"), scheduler="threads").run()
    np.testing.assert_array_equal(b[...], np.arange(8) / 2)
    ranks = sorted((tmp_path / "b").glob("rank-*"))
    np.testing.assert_array_equal(zarr.open_array(ranks[1])[...], np.arange(4, 8) / 2)


ORDERS = {"turned, then differences": "td", "differences": "d", "turned": "t"}


@pytest.mark.parametrize("orientation", [None, "column", "row"])
@pytest.mark.parametrize("name", ORDERS)
def test_codecs_of_arrays_stay_in_their_order(name: str, orientation: str | None) -> None:
    differences = in_format_3.Delta(dtype="<i4")
    filters = [TURNED if each == "t" else differences for each in ORDERS[name]]
    array = source(3, "i4", filters)
    whole = (array[...] == VALUES).all()  # zarr-python 3.1 with numcodecs 0.16 does not read what it wrote
    target = MemoryStore()
    if refused(lambda: ooc.rechunk(array, ooc.Target(target, orientation=orientation), chunks=(4, 5), **HOW).run()):
        assert not whole or orientation == "column"
        return
    made = zarr.open_array(target, mode="r")
    np.testing.assert_array_equal(made[...], array[...])
    turned = orientation == "column" or (orientation is None and TURNED in filters)
    assert list(made.filters) == [TURNED] * turned + [differences] * (differences in filters)


@pytest.mark.parametrize("order", "CF")
def test_differences_are_taken_in_either_order_of_format_2(order: str) -> None:
    array = source(2, "i4", [numcodecs.Delta("<i4")], order=order)
    for orientation in ("row", "column"):
        made = ooc.rechunk(array, ooc.Target(MemoryStore(), orientation=orientation), chunks=(4, 5), **HOW).run()
        np.testing.assert_array_equal(made.zarr[...], VALUES)


def test_arrays_that_are_made_with_filters_turn_axes_first(tmp_path: Path) -> None:
    how: dict[str, Any] = {"shape": (7, 5), "dtype": "i4", "orientation": "column"}
    filters = [in_format_3.Delta(dtype="<i4")]
    if refused(lambda: flat(ooc.create_array, ooc.Target(tmp_path / "a", filters=filters), **how)):
        return
    ooc.open_array(tmp_path / "a", mode="r+")[...] = VALUES
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a")[...], VALUES)


@pytest.mark.parametrize(
    ("dtype", "filters"),
    [
        ("i4", [numcodecs.PackBits()]),
        ("f4", [numcodecs.Delta("<i8")]),
        ("i4", None),
        ("?", [numcodecs.Delta("|b1")]),
    ],
)
def test_filters_through_which_elements_do_not_come_back_are_refused(tmp_path: Path, dtype: str, filters: Any) -> None:
    array = source(2 if filters else 3, dtype)
    filters = filters or [in_format_3.Delta(dtype="<i4"), TURNED]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ooc.errors.UnsupportedError, match=r"do not survive .*pass Target\(store, filters=\(\)\)"):
            ooc.rechunk(array, ooc.Target(tmp_path / "t", filters=filters), chunks=(7, 1), **HOW)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(("old", "new", "fill"), [("i4", "u1", 0), ("i4", "i2", -9), ("f4", "i4", 0), ("i2", "f8", -9)])
def test_fill_values_are_of_the_new_type(old: str, new: str, fill: float) -> None:
    value = np.nan if old == "f4" else -9
    array = zarr.create_array({}, shape=(4,), chunks=(2,), dtype=old, fill_value=value)
    made = ooc.map_slabs(lambda b: np.ones(b.shape, new), array, ooc.Target(MemoryStore(), dtype=new), **HOW).run()
    assert made.zarr.fill_value == fill
    np.testing.assert_array_equal(made.zarr[...], np.ones(4, new))


@pytest.mark.parametrize("new", ["i2", "f4", "u1", "f8"])
@pytest.mark.parametrize("old", ["i2", "f4"])
def test_masked_values_are_of_the_new_type_for_xarray(tmp_path: Path, old: str, new: str) -> None:
    data = xr.DataArray(np.array([1.0, np.nan, 3.0]), dims="x", name="a")
    data.encoding = {"dtype": old, "_FillValue": -1}
    data.to_dataset().to_zarr(tmp_path / "s", zarr_format=3, consolidated=False)
    zarr.create_group(tmp_path / "t")
    target = tmp_path / "t" / "a"
    ooc.map_slabs(lambda b: np.abs(b).astype(new), tmp_path / "s" / "a", ooc.Target(target, dtype=new), **HOW).run()
    found = xr.open_zarr(tmp_path / "t", consolidated=False)["a"].values
    np.testing.assert_array_equal(found, [1, 1, 3])


def test_reductions_have_compressors_of_their_type() -> None:
    array = source(3, "i4", compressors=[BloscCodec(typesize=4, shuffle="shuffle"), ZstdCodec()])
    made = ooc.reduce(array, "mean", axis=0, target=MemoryStore(), **HOW).run().zarr
    assert made.compressors == (BloscCodec(typesize=8, shuffle="shuffle"), ZstdCodec())
    np.testing.assert_allclose(made[...], VALUES.mean(axis=0))
