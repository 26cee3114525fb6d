"""Axes of pyramids: order, types, physical sizes of TIFF, OME-Zarr and CF sources, levels that become isotropic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import BudgetError, InputError, UnsupportedError
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples
from tests.unfinished import left_behind

pytestmark = pytest.mark.long

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
RNG = np.random.default_rng(7)
COLOUR = RNG.integers(0, 256, (42, 54, 3), dtype="u1")
STACK = RNG.integers(0, 4096, (5, 2, 42, 54), dtype="u2")
MICRON = {"PhysicalSizeX": 0.325, "PhysicalSizeY": 0.325, "PhysicalSizeZ": 1.0}


def scales(group: Any) -> tuple[list[tuple[Any, ...]], list[tuple[float, ...]], list[Any]]:
    """Name, type and unit of each axis; the scale of each level; and its translation, as ome-zarr-models reads them."""
    read = zarr.open_group(group, mode="r")
    found: Any
    if read.metadata.zarr_format == 2:
        from ome_zarr_models.v04.image import Image as Image4  # here: it takes a second

        (found,) = Image4.from_zarr(read).attributes.multiscales
    else:
        from ome_zarr_models.v05.image import Image as Image5

        (found,) = Image5.from_zarr(read).ome_attributes.multiscales
    transformations = [each.coordinateTransformations for each in found.datasets]
    return (
        [(axis.name, axis.type, axis.unit) for axis in found.axes],
        [tuple(each[0].scale) for each in transformations],
        [tuple(each[1].translation) if len(each) > 1 else None for each in transformations],
    )


def halved(image: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The mean of pairs along even axes."""
    wide = image.astype("f8")
    for axis in axes:
        wide = wide.reshape(*wide.shape[:axis], -1, 2, *wide.shape[axis + 1 :]).mean(axis + 1)
    return np.floor(wide + 0.5)


# ---------------------------------------------------------------------- order and types


@pytest.mark.parametrize("how", [{}, {"tile": (16, 32), "compression": "zlib"}])
def test_colours_are_not_mixed(tmp_path: Path, how: dict[str, Any]) -> None:
    tifffile.imwrite(tmp_path / "a.tif", COLOUR, photometric="rgb", **how)
    made = ooc.pyramid(tmp_path / "a.tif", tmp_path / "b.zarr", levels=2, **HERE).run()
    axes, found, _ = scales(tmp_path / "b.zarr")
    assert axes == [("c", "channel", None), ("y", "space", None), ("x", "space", None)]
    assert found == [(1.0, 1.0, 1.0), (1.0, 2.0, 2.0)]
    image = np.moveaxis(tifffile.imread(tmp_path / "a.tif"), 2, 0)
    np.testing.assert_array_equal(made["0"][...], image)
    np.testing.assert_array_equal(made["1"][...], halved(image, (1, 2)))
    assert zarr.open_array(tmp_path / "b.zarr" / "1").metadata.dimension_names == ("c", "y", "x")  # type: ignore[union-attr]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("names", "types"),
    [
        (("z", "c", "y", "x"), {"c": "channel", "z": "space", "y": "space", "x": "space"}),
        (("y", "x", "t"), {"t": "time", "y": "space", "x": "space"}),
        (("y", "x", "sample"), {"sample": "channel", "y": "space", "x": "space"}),
        (("i", "c", "y", "x"), {"c": "channel", "i": None, "y": "space", "x": "space"}),
        (("lat", "lon", "time"), {"time": "time", "lat": "space", "lon": "space"}),
    ],
)  # fmt: skip
def test_axes_are_put_in_order(tmp_path: Path, zarr_format: Any, names: Any, types: dict[str, Any]) -> None:
    image = RNG.integers(0, 99, tuple(range(3, 3 + len(names))), dtype="i4")
    a = zarr.create_array(
        tmp_path / "a", data=image, chunks=(2,) * len(names), zarr_format=zarr_format,
        dimension_names=names if zarr_format == 3 else None,
    )  # fmt: skip
    if zarr_format == 2:
        a.attrs["_ARRAY_DIMENSIONS"] = list(names)
    made = ooc.pyramid(tmp_path / "a", tmp_path / "b", levels=2, method="nearest", **HERE).run()
    assert [axis[:2] for axis in scales(tmp_path / "b")[0]] == list(types.items())
    image = image.transpose([names.index(name) for name in types])
    steps = tuple(slice(None, None, 2 if type == "space" else 1) for type in types.values())
    np.testing.assert_array_equal(made["0"][...], image)
    np.testing.assert_array_equal(made["1"][...], image[steps])
    level = zarr.open_array(tmp_path / "b" / "1")
    kept = level.attrs["_ARRAY_DIMENSIONS"] if zarr_format == 2 else level.metadata.dimension_names  # type: ignore[union-attr]
    assert list(kept) == list(types)  # type: ignore[arg-type]


@given(st.data())
@examples(25)
def test_axes_in_any_order_and_memory(data: st.DataObject) -> None:
    names = data.draw(st.permutations(["t", "c", "z", "y", "x"]).map(lambda all: all[: data.draw(st.integers(3, 5))]))
    if sum(name in "zyx" for name in names) < 2:
        return
    shape = tuple(data.draw(st.integers(1, 9)) for _ in names)
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    image = RNG.integers(0, 2**16, shape, dtype="u2")
    source = zarr.create_array({}, data=image, chunks=chunks, dimension_names=names)
    ranks = data.draw(st.integers(1, 2))
    how: dict[str, Any] = {"levels": 3, "method": "nearest", "scheduler": "threads", "ranks": ranks}
    with pytest.raises(BudgetError) as refused:
        flat(ooc.pyramid, source, MemoryStore(), memory=1, **how)
    job = flat(ooc.pyramid, source, MemoryStore(), memory=refused.value.least, **how)
    assert job.plan.peak_bytes <= job.plan.budget
    made = job.run()
    order = sorted(range(len(names)), key=lambda axis: ({"t": 0, "c": 1}.get(names[axis], 2), axis))
    for level in range(3):
        steps = [slice(None, None, 2**level if names[axis] in "zyx" else 1) for axis in order]
        np.testing.assert_array_equal(made[str(level)][...], image.transpose(order)[tuple(steps)])
    assert job.meter.decoded_bytes <= job.plan.traffic.decoded_bytes
    assert job.meter.write_requests <= job.plan.traffic.write_requests


def test_sequences_are_in_the_order_of_the_levels(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", COLOUR, photometric="rgb")
    how: dict[str, Any] = {"levels": 2, "chunks": (1, 16, 32), "factor": (1, 1, 3), "scale": (1, 2, 0.5)}
    made = flat(ooc.pyramid, tmp_path / "a.tif", tmp_path / "b.zarr", **how, **HERE).run()
    assert made["0"].chunks == (1, 16, 32)
    assert made["1"].shape == (3, 42, 18)
    assert scales(tmp_path / "b.zarr")[1] == [(1.0, 2.0, 0.5), (1.0, 2.0, 1.5)]


def test_a_killed_run_goes_on_with_axes_and_scales(tmp_path: Path, runs: Server) -> None:
    image = RNG.integers(1, 2**16, (512, 512, 3), dtype="u2")
    zarr.create_array(tmp_path / "a", data=image, chunks=(32, 32, 3), dimension_names=("y", "x", "s"))
    how: dict[str, Any] = {"memory": "11MiB", "ranks": 1, "scheduler": "threads"}
    how |= {"levels": 5, "chunks": (3, 32, 32), "scale": {"y": 1.0, "x": 0.25}, "unit": "nm"}
    runs.run("pyramid", tmp_path / "a", tmp_path / "b", at="entry", after=2, **how)
    made = ooc.resume(tmp_path / "b").run()
    expected = flat(ooc.pyramid, tmp_path / "a", tmp_path / "c", **how).run()
    for level in expected:
        np.testing.assert_array_equal(made[level][...], expected[level][...])
    assert scales(tmp_path / "b") == scales(tmp_path / "c")
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("names", [("c", "y", "x", "s"), ("a", "b", "y", "x"), ("y", "x", "t", "time"), ("c", "x")])
def test_axes_that_ome_zarr_does_not_have(names: tuple[str, ...]) -> None:
    source = zarr.create_array({}, data=np.zeros((2,) * len(names)), dimension_names=names)
    with pytest.raises(UnsupportedError, match="at most one of time"):
        ooc.pyramid(source, MemoryStore(), **HERE)


# ---------------------------------------------------------------------- physical sizes

UM = "micrometer"
SIZES: dict[Any, float] = {"nanometer": 1e-9, UM: 1e-6, "millimeter": 1e-3, "centimeter": 1e-2, "minute": 60.0}
FILES: dict[str, tuple[np.ndarray, dict[str, Any], dict[str, tuple[float, str | None]]]] = {
    "OME": (STACK, {"metadata": {"axes": "ZCYX", **MICRON}}, {"z": (1.0, UM), "y": (0.325, UM), "x": (0.325, UM)}),
    "OME, nanometres and times": (
        STACK,
        {"metadata": {
            "axes": "TCYX", "PhysicalSizeX": 65, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 70,
            "PhysicalSizeYUnit": "nm", "TimeIncrement": 2.5, "TimeIncrementUnit": "min",
        }},
        {"t": (2.5, "minute"), "y": (70.0, "nanometer"), "x": (65.0, "nanometer")},
    ),
    "OME, pixels": (
        STACK[0, 0],
        {"metadata": {"axes": "YX", **{f"PhysicalSize{a}": 2 for a in "XY"}, "PhysicalSizeXUnit": "pixel"}},
        {"y": (2.0, UM), "x": (2.0, None)},
    ),
    "OME, colours": (
        COLOUR, {"photometric": "rgb", "metadata": {"axes": "YXS", "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "mm"}},
        {"x": (0.5, "millimeter")},
    ),
    "ImageJ": (
        STACK[np.newaxis].repeat(3, 0),
        {"imagej": True, "resolution": (4.0, 2.0), "metadata": {
            "axes": "TZCYX", "spacing": 1.5, "unit": "um", "finterval": 0.5}},
        {"t": (0.5, "second"), "z": (1.5, UM), "y": (0.5, UM), "x": (0.25, UM)},
    ),
    "resolution tags": (
        STACK[0, 0], {"resolution": (100, 200), "resolutionunit": "CENTIMETER"},
        {"y": (0.005, "centimeter"), "x": (0.01, "centimeter")},
    ),
    "resolution tags without a unit": (STACK[0, 0], {"resolution": (100, 200), "resolutionunit": "NONE"}, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_sizes_of_pixels_in_tiff_are_carried(tmp_path: Path, kind: str) -> None:
    data, how, expected = FILES[kind]
    path = tmp_path / ("a.ome.tif" if kind.startswith("OME") else "a.tif")
    tifffile.imwrite(path, data, **{"photometric": "minisblack", **how})
    ooc.pyramid(path, tmp_path / "b.zarr", levels=1, **HERE).run()
    axes, (found,), _ = scales(tmp_path / "b.zarr")
    stated = {name: (scale, unit) for (name, _, unit), scale in zip(axes, found, strict=True)}
    for name, (scale, unit) in stated.items():
        wanted, wanted_unit = expected.get(name, (1.0, None))
        assert (scale, unit) == (pytest.approx(wanted, rel=1e-6), wanted_unit), name
    with tifffile.TiffFile(path) as file:
        series = file.series[0]  # new versions of tifffile state sizes and units
        told, units = getattr(series, "coord_scales", {}), getattr(series, "coord_units", {})
        for name, (scale, unit) in expected.items():
            theirs = units.get(name.upper(), unit)
            same = scale * SIZES[unit] / SIZES[theirs] if unit in SIZES and theirs in SIZES else scale
            assert told.get(name.upper(), same) == pytest.approx(same)


def test_levels_and_series_of_ome_tiff_have_their_own_sizes(tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "a.ome.tif") as file:
        for size in (0.5, 2.0):
            said = {"axes": "YX", "PhysicalSizeX": size, "PhysicalSizeY": size}
            file.write(STACK[0, 0], subifds=1, photometric="minisblack", metadata=said)
            file.write(STACK[0, 0, ::2, ::2], subfiletype=1, photometric="minisblack")
    for name, size in (("0/0", 0.5), ("0/1", 1.0), ("1/0", 2.0), ("1/1", 4.0)):
        source = ooc.open_group(tmp_path / "a.ome.tif")[name]
        ooc.pyramid(source, tmp_path / "b.zarr", levels=1, overwrite=True, **HERE).run()
        assert scales(tmp_path / "b.zarr")[1] == [(size, size)]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_sizes_and_types_of_ome_zarr_are_carried(tmp_path: Path, zarr_format: Any) -> None:
    """Level 1 of a pyramid as a source: its scale and its translation are those of the image."""
    image = RNG.integers(0, 99, (3, 40, 64), dtype="u2")
    zarr.create_array(
        tmp_path / "a", data=image, chunks=(1, 16, 16), zarr_format=zarr_format,
        dimension_names=("c", "y", "x") if zarr_format == 3 else None,
    )  # fmt: skip
    how: dict[str, Any] = {"levels": 2, "scale": {1: 0.25, 2: 0.5}, "unit": "µm", "factor": (1, 2, 2), **HERE}
    if zarr_format == 2:
        zarr.open_array(tmp_path / "a", mode="r+").attrs["_ARRAY_DIMENSIONS"] = ["c", "y", "x"]
    flat(ooc.pyramid, tmp_path / "a", tmp_path / "b", **how).run()
    if zarr_format == 2:
        del zarr.open_array(tmp_path / "b" / "1", mode="r+").attrs["_ARRAY_DIMENSIONS"]
    for source in (tmp_path / "b" / "1", zarr.open_group(tmp_path / "b", mode="r")["1"]):
        ooc.pyramid(source, tmp_path / "c", levels=2, factor=(1, 2, 2), overwrite=True, **HERE).run()  # type: ignore[arg-type]
        axes, found, origins = scales(tmp_path / "c")
        assert axes == [("c", "channel", None), ("y", "space", UM), ("x", "space", UM)]
        assert found == [(1.0, 0.5, 1.0), (1.0, 1.0, 2.0)]
        assert origins == [(0.0, 0.125, 0.25), (0.0, 0.375, 0.75)]


def test_sizes_of_ome_zarr_are_carried_from_a_url() -> None:
    source = zarr.create_array({}, data=STACK[0, 0], chunks=(16, 16))
    ooc.pyramid(source, "memory://images/sized.zarr", levels=2, scale=0.5, unit="µm", overwrite=True, **HERE).run()
    for each in ("memory://images/sized.zarr/1", ooc.open_group("memory://images/sized.zarr")["1"]):
        target = MemoryStore()
        ooc.pyramid(each, target, levels=1, **HERE).run()
        axes, found, _ = scales(target)
        assert (axes, found) == ([("y", "space", UM), ("x", "space", UM)], [(1.0, 1.0)])


def test_transformations_of_an_image_and_of_its_levels_are_both_applied(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "a")
    group.create_array("deep/0", data=STACK[0, 0], chunks=(16, 16))
    scale = {"type": "scale", "scale": [2.0, 3.0]}
    first = [scale, {"type": "translation", "translation": [1.0, 0.0]}]
    image = {"axes": [{"name": "y", "type": "space", "unit": "meter"}, {"name": "x", "type": "space"}]}
    datasets = [{"path": "deep/0", "coordinateTransformations": first}]
    image |= {"datasets": datasets, "coordinateTransformations": [scale]}  # type: ignore[dict-item]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [image]}
    ooc.pyramid(tmp_path / "a" / "deep" / "0", tmp_path / "b", levels=1, **HERE).run()
    axes, found, origins = scales(tmp_path / "b")
    assert [unit for *_, unit in axes] == ["meter", None]
    assert (found, origins) == ([(4.0, 9.0)], [(2.0, 0.0)])


@pytest.mark.parametrize("netcdf", [False, True])
def test_evenly_spaced_coordinates_are_carried(tmp_path: Path, netcdf: bool) -> None:
    xr = pytest.importorskip("xarray")
    time = ("time", np.arange(4) * 6.0, {"units": "hours since 2000-01-01"})
    y, x = ("y", 100 + 30.0 * np.arange(42), {"units": "m"}), ("x", np.arange(54.0) ** 2, {"units": "m"})
    data = xr.Dataset({"a": (("time", "y", "x"), np.ones((4, 42, 54)))}, {"time": time, "y": y, "x": x})
    if netcdf:
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    else:
        data.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    source = ooc.open_group(tmp_path / "a.nc")["a"] if netcdf else tmp_path / "a.zarr" / "a"
    ooc.pyramid(source, tmp_path / "b", levels=2, **HERE).run()
    axes, found, origins = scales(tmp_path / "b")
    assert axes == [("time", "time", "hour"), ("y", "space", "meter"), ("x", "space", None)]
    assert found == [(6.0, 30.0, 1.0), (6.0, 60.0, 2.0)]
    assert origins == [(0.0, 100.0, 0.0), (0.0, 115.0, 0.5)]


# ---------------------------------------------------------------------- scales that are given, and isotropy


def test_axes_that_are_coarser_are_not_halved_first(tmp_path: Path) -> None:
    image = RNG.integers(0, 4096, (8, 32, 64), dtype="u2")
    tifffile.imwrite(tmp_path / "a.ome.tif", image, photometric="minisblack", metadata={"axes": "ZYX", **MICRON})
    made = ooc.pyramid(tmp_path / "a.ome.tif", tmp_path / "b", levels=4, **HERE).run()
    assert [level.shape for level in made.values()] == [(8, 32, 64), (8, 16, 32), (8, 8, 16), (4, 4, 8)]
    assert scales(tmp_path / "b")[1] == [(1.0, *(0.325 * 2**n,) * 2) for n in range(3)] + [(2.0, 2.6, 2.6)]
    level = image
    for number, axes in enumerate([(1, 2), (1, 2), (0, 1, 2)], 1):
        level = halved(level, axes)
        np.testing.assert_array_equal(made[str(number)][...], level)


@pytest.mark.parametrize(
    ("how", "shapes"),
    [
        ({"scale": {"z": 4, "y": 1, "x": 1}}, [(8, 16, 16), (8, 8, 8), (4, 4, 4)]),
        ({"scale": (1, 2, 0.002), "unit": {"z": "µm", "y": "µm", "x": "mm"}}, [(4, 32, 32), (2, 16, 16), (1, 8, 8)]),
        ({"scale": {"z": 4}}, [(4, 16, 16), (2, 8, 8), (1, 4, 4)]),
        ({"scale": (4, 1, 1), "unit": {"z": "day"}}, [(4, 16, 16), (2, 8, 8), (1, 4, 4)]),
        ({"scale": (4, 1, 1), "factor": (2, 2, 2)}, [(4, 16, 16), (2, 8, 8), (1, 4, 4)]),
        ({"scale": 0.5}, [(4, 16, 16), (2, 8, 8), (1, 4, 4)]),
    ],
)  # fmt: skip
def test_levels_become_isotropic_by_the_scales_that_are_given(how: dict[str, Any], shapes: Any) -> None:
    source = zarr.create_array({}, data=np.ones((8, 32, 32), "u1"), chunks=(8, 8, 8))
    made = flat(ooc.pyramid, source, MemoryStore(), levels=4, **how, **HERE).run()
    assert [level.shape for level in list(made.values())[1:]] == shapes


def test_a_stack_has_levels_until_the_finest_axes_have_256_elements() -> None:
    source = zarr.create_array({}, data=np.ones((300, 512, 8), "u1"), chunks=(100, 512, 8))
    made = ooc.pyramid(source, MemoryStore(), scale=(5, 1, 1), **HERE).run()
    assert [level.shape for level in made.values()] == [(300, 512, 8), (300, 256, 4)]


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"scale": 0}, "scale=0: 0 is not a positive number"), ({"scale": float("inf")}, "inf is not a positive"),
        ({"scale": (1, "2")}, "'2' is not a positive"), ({"scale": {"q": 1}}, "scale=.*'q' is not one of the"),
        ({"scale": (1, 2, 3)}, "has 3 axes; the levels have 2: y, x"), ({"unit": 3}, "unit=3: 3 is not the name"),
        ({"unit": {"x": ""}}, "is not the name of a unit"), ({"scale": True}, "True is not a positive"),
    ],
)  # fmt: skip
def test_scales_that_cannot_be(how: dict[str, Any], match: str) -> None:
    source = zarr.create_array({}, data=STACK[0, 0], chunks=(16, 16))
    with pytest.raises(InputError, match=match):
        flat(ooc.pyramid, source, MemoryStore(), **how, **HERE)


def test_the_command_line_takes_scales_and_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tifffile.imwrite(tmp_path / "a.tif", STACK[:, 0], photometric="minisblack", metadata={"axes": "ZYX"})
    words = ["pyramid", f"{tmp_path}/a.tif", f"{tmp_path}/b.zarr", "--levels", "2", "--quiet", "--overwrite"]
    asked = ["--scale", "z=1,y=0.325,x=0.325", "--unit", "µm"], ["--scale", "1,0.325,0.325", "--unit", "um,um,um"]
    for how in asked:
        assert main([*words, *how]) == 0
        axes, found, _ = scales(tmp_path / "b.zarr")
        assert [unit for *_, unit in axes] == [UM] * 3
        assert found == [(1.0, 0.325, 0.325), (1.0, 0.65, 0.65)]
    with pytest.raises(SystemExit):
        main([*words, "--scale", "1,y=2"])
    assert "--scale: '1,y=2' is not one value" in capsys.readouterr().err
