"""Comparing arrays and groups: what numpy says of the whole, in any chunks, codecs, budgets and formats."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import BudgetError, InputError, NotFoundError, RunError
from tests.flat import flat
from tests.profiles import examples
from tests.seams import replace_step, set_constants, step
from tests.strategies import chunks_for, shapes

pytestmark = pytest.mark.once

CODECS = [None, zarr.codecs.ZstdCodec(), zarr.codecs.BloscCodec()]


def stored(data: np.ndarray, chunks: Any, **options: Any) -> zarr.Array:
    return zarr.create_array(MemoryStore(), data=data, chunks=chunks, **options)


@examples(80)
@given(data=st.data(), shape=shapes(most=3000))
def test_it_says_what_numpy_says(data: st.DataObject, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    dtype = data.draw(st.sampled_from(["f4", "f8", "i2", "?", "c8", "M8[s]"]))
    x = rng.integers(0, 3, shape).astype(dtype)
    y = np.where(
        rng.random(shape) < data.draw(st.sampled_from([0, 0.05, 1])), rng.integers(0, 3, shape).astype(dtype), x
    )
    if dtype[0] == "f":
        x, y = (np.where(rng.random(shape) < 0.1, np.nan, each).astype(dtype) for each in (x, y))
    exact = {"equal_nan": data.draw(st.booleans())}
    near = data.draw(st.sampled_from([{}, {"atol": 1.0}, {"rtol": 0.5}])) if dtype[0] in "fi" else {}
    a = stored(x, data.draw(chunks_for(shape)), compressors=data.draw(st.sampled_from(CODECS)))
    b = stored(y, data.draw(chunks_for(shape)), zarr_format=data.draw(st.sampled_from([2, 3])))
    found = flat(ooc.compare, a, b, memory="64MiB", **exact, **near)
    if near:
        alike = np.isclose(x, y, **({"rtol": 0.0, "atol": 0.0} | near), **exact)
    else:
        both = (x != x) & (y != y) if exact["equal_nan"] else np.zeros(shape, bool)
        alike = (x == y) | both
    unlike = np.argwhere(~alike)
    assert found.differences.count == len(unlike)
    assert bool(found) == (not len(unlike))
    if len(unlike):
        first = tuple(unlike[0].tolist())
        assert found.differences.first == first
        np.testing.assert_array_equal(np.array(found.differences.values, dtype), [x[first], y[first]])
        if dtype[0] in "i?c":
            assert found.differences.largest == abs(x.astype("c16") - y.astype("c16"))[~alike].max()


def test_tolerance_is_numpys(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 300))
    y = x * (1 + rng.normal(0, 1e-3, x.shape))
    found = ooc.compare(stored(x, (50, 300)), stored(y, (200, 10)), rtol=1e-3, atol=1e-4)
    assert found.differences.count == int((~np.isclose(x, y, rtol=1e-3, atol=1e-4)).sum()) > 0


@pytest.mark.parametrize("codec", CODECS[:2])
def test_each_stored_byte_is_read_once_within_the_budget(tmp_path: Path, codec: Any) -> None:
    x = np.random.default_rng(0).random((512, 512), dtype="f4")
    for name, chunks in (("a", (64, 512)), ("b", (128, 512))):
        zarr.create_array(tmp_path / name, data=x, chunks=chunks, compressors=codec)
    with ooc.advise.metered() as meter:
        assert ooc.compare(tmp_path / "a", tmp_path / "b", memory="64MiB")
    assert meter.read_requests == 8 + 4
    if codec is None:
        assert meter.read_bytes == 2 * x.nbytes


def test_a_budget_that_is_too_small_names_the_least(tmp_path: Path) -> None:
    x = np.zeros((256, 256))
    a, b = stored(x, (256, 16)), stored(x, (16, 256))
    with pytest.raises(BudgetError, match="comparing two arrays needs at least") as caught:
        ooc.compare(a, b, memory="1MiB")
    assert ooc.compare(a, b, memory=caught.value.least)
    with pytest.raises(BudgetError):
        ooc.compare(a, b, memory=caught.value.least - 1)


def test_groups_are_compared_array_by_array_with_their_attributes(tmp_path: Path) -> None:
    air = np.random.default_rng(0).random((24, 6))
    ds = xr.Dataset(
        {"air": (("time", "lat"), air, {"units": "K"}), "name": ("lat", np.array(list("abcdef"), object))},
        {"time": np.arange(24)},
    )
    ds.to_zarr(tmp_path / "a", consolidated=False)
    ooc.rechunk(tmp_path / "a", tmp_path / "b", chunks={"air": (24, 2)}).run()
    assert ooc.compare(tmp_path / "a", tmp_path / "b")
    assert str(ooc.compare(ooc.open_group(tmp_path / "a"), zarr.open_group(tmp_path / "b", use_consolidated=False)))
    other = ds.copy(deep=True).assign_attrs(title="other")
    other.air[3, 4] += 1
    other.name[2] = "x"
    other.air.attrs["units"] = "C"
    other.assign(wind=("lat", np.ones(6))).to_zarr(tmp_path / "c", consolidated=False)
    found = ooc.compare(tmp_path / "a", tmp_path / "c")
    assert not found
    assert found.only == ((), ("wind",))
    assert found.attributes == ("title",)
    assert found.arrays["air"].attributes == ("units",)
    assert found.arrays["air"].differences.first == (3, 4)
    assert found.arrays["name"].differences.first == (2,)
    assert found.arrays["time"]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.arange(48.0).reshape(6, 8)
    zarr.create_array(tmp_path / "a", data=x, chunks=(1, 8))
    zarr.create_array(tmp_path / "b", data=x, chunks=(6, 1))
    zarr.create_array(tmp_path / "c", data=np.where(x > 40, x + 0.25, x).astype("f4"), chunks=(6, 1))
    zarr.create_array(tmp_path / "d", data=x[:5], chunks=(6, 1))
    a, b, c, d = (str(tmp_path / name) for name in "abcd")
    assert main(["compare", a, b]) == 0
    assert main(["compare", a, c, "--memory", "64MiB"]) == 1
    assert main(["compare", a, c, "--atol", "0.25"]) == 0
    assert main(["compare", a, d]) == 1
    assert main(["compare", a, str(tmp_path)]) == 2
    assert main(["compare", a, b, "--rtol", "-1"]) == 2
    told = capsys.readouterr()
    assert "equal\n7 of 48 elements differ, of float64 and float32, at most 0.25 apart; the first at (5, 1)" in told.out
    assert "shapes differ: 6 × 8 and 5 × 8" in told.out
    assert told.err.count("\n") == 2


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    a = stored(np.zeros(3), (3,))
    for error, asked in (
        (NotFoundError, {"b": tmp_path / "nowhere"}),
        (InputError, {"b": a, "rtol": "x"}),
        (InputError, {"b": a, "memory": "much"}),
    ):
        with pytest.raises(error) as caught:
            flat(ooc.compare, a, **asked)
        assert "\n" not in str(caught.value)


def test_a_source_that_goes_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    for name in "ab":
        zarr.create_array(tmp_path / name, data=np.zeros((64, 64)), chunks=(8, 64), config={"write_empty_chunks": True})
    read = step("read window")

    def goes(self: Any, slab: Any) -> Any:
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        return read(self, slab)

    replace_step(monkeypatch, "read window", goes)
    with pytest.raises(RunError, match="b"):
        ooc.compare(tmp_path / "a", tmp_path / "b")


def test_arrays_without_axes_and_of_no_size() -> None:
    for shape in ((), (0, 3)):
        a, b = (stored(np.full(shape, value), shape and (1, 3)) for value in (1.0, 2.0))
        assert ooc.compare(a, a)
        assert bool(ooc.compare(a, b)) == (0 in shape)


def test_integers_that_no_float_tells_apart_are_told_apart() -> None:
    x = np.array([2**63 - 1, -(2**63), 2**53], "i8")
    found = ooc.compare(stored(x, (3,)), stored(x - [1, -1, 0], (2,)))
    assert (found.differences.count, found.differences.largest) == (2, 1.0)
    far = ooc.compare(stored(x[:1], (1,)), stored(x[1:2], (1,)))
    assert far.differences.largest == 2.0**64


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Maps and series of one array, coded."""
    folder = tmp_path_factory.mktemp("crossing")
    x = np.random.default_rng(0).integers(0, 99, (128, 128, 128)).astype("f4")
    zarr.create_array(folder / "maps", data=x, chunks=(2, 128, 128), compressors=CODECS[1])
    zarr.create_array(folder / "series", data=x, chunks=(128, 8, 8), compressors=CODECS[1])
    return folder


def decoded(crossing: Path, scratch: Path) -> tuple[ooc.Comparison, int]:
    with ooc.advise.metered() as meter:
        found = ooc.compare(
            crossing / "maps", crossing / "series", memory="24MiB", resources=ooc.Resources(scratch=scratch)
        )
    assert not list(scratch.iterdir())
    return found, meter.decoded_bytes


@pytest.mark.long
def test_chunks_that_cross_are_decoded_once_by_way_of_scratch(
    crossing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constants(monkeypatch, copy_gain=2)  # so small an array is not worth it
    found, nbytes = decoded(crossing, tmp_path)
    assert found
    assert nbytes == 4 * 128**3  # the array that is read as it is: a copy is not coded
    array = zarr.open_array(crossing / "series", mode="r+")
    array[7, 8, 9] += 3
    found, _ = decoded(crossing, tmp_path)
    array[7, 8, 9] -= 3
    assert (found.differences.count, found.differences.first, found.differences.largest) == (1, (7, 8, 9), 3)
    assert found.names == (str(crossing / "maps"), str(crossing / "series"))


def test_without_room_in_scratch_chunks_are_decoded_more_often(
    crossing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**20))
    found, nbytes = decoded(crossing, tmp_path)
    assert found
    assert nbytes > 3 * 4 * 128**3
