"""Pyramids of OME-Zarr groups: ome-zarr-models writes the source, and reads what is made of its finest level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from ome_zarr_models.common.omero import Omero
from ome_zarr_models.v04.axes import Axis as Axis4
from ome_zarr_models.v04.image import Image as Image4
from ome_zarr_models.v05.axes import Axis as Axis5
from ome_zarr_models.v05.image import Image as Image5
from pydantic_zarr.v2 import ArraySpec as Array2
from pydantic_zarr.v3 import ArraySpec as Array3
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, NotFoundError, UnsupportedError
from tests.dying import Server
from tests.unfinished import left_behind

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
AXES: list[dict[str, Any]] = [
    {"name": "t", "type": "time", "unit": "second"}, {"name": "c", "type": "channel"},
    {"name": "z", "type": "space", "unit": "micrometer"}, {"name": "y", "type": "space", "unit": "nanometer"},
    {"name": "x", "type": "space", "unit": "nanometer"},
]  # fmt: skip
SCALE, ORIGIN = [1.5, 1.0, 2.0, 325.0, 325.0], [0.0, 0.0, 10.0, 0.0, 20.0]
IMAGE = np.random.default_rng(8).integers(0, 2**12, (2, 2, 3, 40, 50), dtype="u2")
WINDOW = {"min": 0.0, "max": 4095.0, "start": 100.0, "end": 2000.0}
CHANNELS: dict[str, Any] = {
    "channels": [
        {"label": "DAPI", "color": "0000FF", "window": WINDOW, "active": True},
        {"label": "GFP", "color": "00FF00", "window": WINDOW, "active": False},
    ],
    "rdefs": {"model": "color", "defaultT": 0, "defaultZ": 1},
}


def written(store: Any, zarr_format: int, *, paths: tuple[str, ...] = ("0", "1"), omero: Any = CHANNELS) -> zarr.Group:
    """An image in two levels, as ome-zarr-models writes it; the coarser one is not made of the finer."""
    arrays = [IMAGE, np.zeros((2, 2, 3, 20, 25), "u2")]
    how: dict[str, Any] = {
        "paths": paths, "scales": [SCALE, [1.5, 1.0, 2.0, 650.0, 650.0]], "translations": [ORIGIN, None],
        "name": "cells", "global_scale": [2.0, 1.0, 1.0, 1.0, 1.0],
    }  # fmt: skip
    if zarr_format == 2:
        specs4: list[Any] = [
            Array2.from_array(each, chunks=(1, 1, 3, 16, 16), dimension_separator="/") for each in arrays
        ]
        group = Image4.new(array_specs=specs4, axes=[Axis4(**each) for each in AXES], **how).to_zarr(store, path="")
    else:
        specs5: list[Any] = [
            Array3.from_array(
                each, dimension_names=tuple("tczyx"),
                chunk_grid={"name": "regular", "configuration": {"chunk_shape": (1, 1, 3, 16, 16)}},
                codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
            )
            for each in arrays
        ]  # fmt: skip
        group = Image5.new(array_specs=specs5, axes=[Axis5(**each) for each in AXES], **how).to_zarr(store, path="")
    finest = group[paths[0]]
    assert isinstance(finest, zarr.Array)
    finest[...] = IMAGE
    if omero is not None and zarr_format == 2:
        group.attrs["omero"] = omero
    elif omero is not None:
        group.attrs["ome"] = {**group.attrs["ome"], "omero": omero}  # type: ignore[dict-item]
    return group


def read(target: Any) -> Any:
    """The attributes of an image, as ome-zarr-models checks and reads them."""
    group = zarr.open_group(target, mode="r")
    if group.metadata.zarr_format == 2:
        return Image4.from_zarr(group).attributes
    return Image5.from_zarr(group).ome_attributes


def check(target: Any, made: Any) -> None:
    """Levels made of the finest one, and its axes, scale, origin and channels."""
    attributes = read(target)
    (image,) = attributes.multiscales
    assert [axis.model_dump(exclude_none=True) for axis in image.axes] == AXES
    first, second = (each.coordinateTransformations for each in image.datasets)
    assert first[0].scale == [3.0, *SCALE[1:]]
    assert first[1].translation == ORIGIN
    assert second[0].scale == [3.0, 1.0, 2.0, 650.0, 650.0]
    assert Omero.model_validate(attributes.model_dump()["omero"]).model_dump() == CHANNELS
    np.testing.assert_array_equal(made["0"][...], IMAGE)
    wide = IMAGE.reshape(2, 2, 3, 20, 2, 25, 2).mean(axis=(4, 6))
    np.testing.assert_array_equal(made["1"][...], np.floor(wide + 0.5))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("paths", [("0", "1"), ("scale0/image", "scale1/image")])
def test_the_finest_level_is_the_image(tmp_path: Path, zarr_format: int, paths: tuple[str, ...]) -> None:
    written(tmp_path / "a.zarr", zarr_format, paths=paths)
    job = ooc.pyramid(tmp_path / "a.zarr", tmp_path / "b.zarr", levels=2, **HERE)
    made = job.run()
    check(tmp_path / "b.zarr", made)
    assert made["0"].chunks == (1, 1, 3, 16, 16)
    assert job.meter.read_bytes == job.plan.traffic.read_bytes
    assert ooc.compare(tmp_path / "a.zarr" / paths[0], tmp_path / "b.zarr" / "0")


@pytest.mark.parametrize("kind", ["OutOfCoreGroup", "zarr.Group", "store", "URL", "opened URL", "path in a store"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_group_is_named_in_any_way(tmp_path: Path, zarr_format: int, kind: str) -> None:
    inside, address = MemoryStore(), f"memory://groups/{zarr_format}/{kind}/a.zarr"
    if "URL" in kind:
        written(zarr.storage.FsspecStore.from_url(address), zarr_format)
    else:
        written(tmp_path / "a.zarr", zarr_format)
        written(zarr.storage.StorePath(inside, "deep/a"), zarr_format)
    source: Any = {
        "OutOfCoreGroup": lambda: ooc.open_group(tmp_path / "a.zarr"),
        "zarr.Group": lambda: zarr.open_group(tmp_path / "a.zarr", mode="r"),
        "store": lambda: zarr.storage.LocalStore(tmp_path / "a.zarr"),
        "URL": lambda: address,
        "opened URL": lambda: ooc.open_group(address),
        "path in a store": lambda: zarr.storage.StorePath(inside, "deep/a"),
    }[kind]()
    target = MemoryStore()
    check(target, ooc.pyramid(source, target, levels=2, **HERE).run())


def test_channels_come_with_a_level_that_is_named(tmp_path: Path) -> None:
    written(tmp_path / "a.zarr", 3)
    check(tmp_path / "b.zarr", ooc.pyramid(tmp_path / "a.zarr" / "0", tmp_path / "b.zarr", levels=2, **HERE).run())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_group_without_channels_has_none(zarr_format: int) -> None:
    target = MemoryStore()
    ooc.pyramid(written(MemoryStore(), zarr_format, omero=None), target, levels=1, **HERE).run()
    assert read(target).model_dump().get("omero") is None


def test_scales_that_are_given_replace_those_of_the_group(tmp_path: Path) -> None:
    written(tmp_path / "a.zarr", 3)
    words = ["pyramid", f"{tmp_path}/a.zarr", f"{tmp_path}/b.zarr", "--levels", "2", "--quiet"]
    assert main([*words, "--scale", "y=0.5,x=0.5", "--unit", "y=µm,x=µm", "--factor", "y=2,x=2"]) == 0
    (image,) = read(tmp_path / "b.zarr").multiscales
    assert [axis.unit for axis in image.axes] == ["second", None, *["micrometer"] * 3]
    assert image.datasets[0].coordinateTransformations[0].scale == [3.0, 1.0, 2.0, 0.5, 0.5]


def test_a_killed_run_goes_on_with_the_group_that_was_moved(tmp_path: Path, runs: Server) -> None:
    how: dict[str, Any] = {"levels": 2, "memory": "10MiB", "ranks": 1, "scheduler": "threads"}
    written(tmp_path / "a.zarr", 3)
    runs.run("pyramid", tmp_path / "a.zarr", tmp_path / "b.zarr", at="entry", after=1, **how)
    (tmp_path / "a.zarr").rename(tmp_path / "moved.zarr")
    with pytest.raises(NotFoundError, match=r"a\.zarr"):
        ooc.resume(tmp_path / "b.zarr")
    for source in (tmp_path / "moved.zarr", ooc.open_group(tmp_path / "moved.zarr")):
        job = ooc.resume(tmp_path / "b.zarr", source=source, kind="pyramid")
    check(tmp_path / "b.zarr", job.run())
    assert sorted(left_behind(tmp_path)) == []


# ---------------------------------------------------------------------- groups that are not one image


def group_of(*images: Any) -> zarr.Group:
    group = written(MemoryStore(), 3)
    group.attrs["ome"] = {"version": "0.5", "multiscales": list(images)}
    return group


@pytest.mark.parametrize(
    ("images", "error", "match"),
    [
        ([], NotFoundError, "Zarr group without multiscales of OME-Zarr: name an image or an array in it"),
        (
            [{"datasets": [{"path": "0"}]}, {"datasets": [{"path": "1"}]}], UnsupportedError,
            r"holds 2 images \(multiscales\): name the array of one: 0, 1",
        ),
        ([{"axes": AXES}], UnsupportedError, "datasets name no array"),
        ([{"datasets": []}], UnsupportedError, "datasets name no array"),
        ([{"datasets": [{"path": 7}]}], UnsupportedError, "datasets name no array"),
        ([{"datasets": [{"path": "../a"}]}], UnsupportedError, "datasets name no array"),
        ([{"datasets": [{"path": "9"}]}], NotFoundError, "no Zarr array in .*9"),
    ],
)  # fmt: skip
def test_groups_that_are_not_one_image(images: list[Any], error: type[InputError], match: str) -> None:
    with pytest.raises(error, match=match) as refused:
        ooc.pyramid(group_of(*images), MemoryStore(), **HERE)
    assert "\n" not in str(refused.value)


def test_a_level_in_the_target_is_refused(tmp_path: Path) -> None:
    """The group as its own target, and a level of it."""
    written(tmp_path / "a.zarr", 3)
    for target, match in (("a.zarr", "are one inside the other"), ("a.zarr/0", "is the source itself")):
        with pytest.raises(InputError, match=match):
            ooc.pyramid(tmp_path / "a.zarr", tmp_path / target, overwrite=True, **HERE)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr" / "0", mode="r")[...], IMAGE)


def test_a_file_of_several_images_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import tifffile

    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for image in (IMAGE[0, 0, 0], IMAGE[0, 0, 1, :9]):
            file.write(image, photometric="minisblack", metadata=None)
    assert main(["pyramid", f"{tmp_path}/a.tif", f"{tmp_path}/b.zarr"]) == 2
    said = capsys.readouterr().err
    assert "without multiscales" in said
    assert said.count("\n") == 1
