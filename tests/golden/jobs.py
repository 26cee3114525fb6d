"""Small jobs of every kind that write a store, with data that is the same each time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

import oocarrays as ooc
from tests.flat import flat

FIELD = np.arange(1, 24 * 20 + 1, dtype="f4").reshape(24, 20)
HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
Jobs = Iterator[tuple[str, Callable[[Path], Any]]]


def source(folder: Path, data: np.ndarray = FIELD, **options: Any) -> Path:
    zarr.create_array(folder / "source", data=data, **({"chunks": (4, 20), "compressors": None} | options))
    return folder / "source"


def local(folder: Path, layout: str = "(block, *)", **options: Any) -> Any:
    how = {"shape": FIELD.shape, "dtype": "f4", "layout": layout, "ranks": 2, "placement": "local", "compressors": None}
    a: Any = flat(ooc.create_array, folder / "local", **how, **options)  # type: ignore[arg-type]
    a[...] = FIELD
    return a


def rechunks() -> Jobs:
    for method, chunks in itertools.product(("independent", "two-phase", "assembled", "staged"), ((24, 3), (5, 7))):
        yield (
            f"rechunk {method} {chunks}",
            lambda f, method=method, chunks=chunks: ooc.rechunk(
                source(f), f / "target", chunks=chunks, method=method, resources=ooc.Resources(ranks=2), **HERE
            ).run(),
        )
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "format 2": ({"zarr_format": 2}, {}),
        "to format 2": ({}, {"zarr_format": 2}),
        "sharded": ({}, {"shards": (24, 6)}),
        "from shards": ({"shards": (8, 20)}, {}),
        "columns": ({}, {"orientation": "column"}),
        "zstd": ({}, {"compressors": zarr.codecs.ZstdCodec(level=3)}),
        "gzip": ({}, {"compressors": zarr.codecs.GzipCodec(level=1)}),
        "blosc": ({}, {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")}),
        "crc32c": ({}, {"compressors": zarr.codecs.Crc32cCodec()}),
        "of zstd": ({"compressors": zarr.codecs.ZstdCodec()}, {}),
        "filled": ({"fill_value": 7}, {}),
        "named": ({"dimension_names": ("y", "x"), "attributes": {"units": "K"}}, {}),
        "separator": ({"chunk_key_encoding": {"name": "default", "separator": "."}}, {}),
        "i2": ({"data": FIELD.astype("i2")}, {}),
        "big-endian": ({"data": FIELD.astype(">f8")}, {}),
        "bool": ({"data": FIELD > 99}, {}),
        "zeros": ({"data": np.where(FIELD > 400, FIELD, 0)}, {}),
        "complex": ({"data": FIELD.astype("c8")}, {}),
        "time": ({"data": FIELD.astype("i8").view("M8[s]")}, {}),
    }
    for name, (before, after) in kinds.items():
        yield (
            f"rechunk {name}",
            lambda f, before=before, after=after: flat(
                ooc.rechunk, source(f, **before), f / "target", chunks=(24, 3), **after, **HERE
            ).run(),
        )


def passes() -> Jobs:
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "ranks": {"ranks": 2, "height": 4},
        "halo": {"depth": 1, "boundary": "reflect"},
        "chunks": {"chunks": (5, 5)},
        "columns": {"axis": 1},
        "window": {"window": (8, 8)},
        "cast": {"dtype": "f8"},
    }
    for name, options in kinds.items():
        yield (
            f"map_slabs {name}",
            lambda f, options=options: flat(
                ooc.map_slabs, np.negative, source(f), f / "target", **HERE, **options
            ).run(),
        )
    yield "map_slabs two", lambda f: ooc.map_slabs(np.modf, source(f), [f / "target", f / "second"], **HERE).run()
    yield "map_slabs local", lambda f: ooc.map_slabs(np.negative, local(f), f / "target", **HERE).run()
    for sweeps, fuse in ((1, 1), (5, 2)):
        yield (
            f"iterate {sweeps} {fuse}",
            lambda f, sweeps=sweeps, fuse=fuse: ooc.iterate(
                np.negative, source(f), f / "target", sweeps=sweeps, depth=1, resources=ooc.Resources(fuse=fuse), **HERE
            ).run(),
        )
    yield "iterate local", lambda f: ooc.iterate(np.negative, local(f), f / "target", sweeps=3, **HERE).run()
    for how, axis in (("sum", 0), ("mean", 1), ("max", None), ("std", (0, 1)), ("var", 0), ("count", 1)):
        yield (
            f"reduce {how} {axis}",
            lambda f, how=how, axis=axis: ooc.reduce(source(f), how, axis, target=f / "target", **HERE).run(),
        )
    yield (
        "reduce by",
        lambda f: ooc.reduce(source(f), "mean", 0, by=np.arange(24) % 5, target=f / "target", **HERE).run(),
    )
    for method in ("mean", "median", "nearest", "mode"):
        yield (
            f"pyramid {method}",
            lambda f, method=method: ooc.pyramid(
                source(f, FIELD.astype("u2")), f / "target", levels=3, method=method, **HERE
            ).run(),
        )


def ranks() -> Jobs:
    for layout in ("(block, *)", "(*, block)", "(block, block)", "(cyclic(3), *)"):
        yield (
            f"scatter {layout}",
            lambda f, layout=layout: ooc.ranks.scatter_files(source(f), layout, f / "target", ranks=4, **HERE).run(),
        )
    yield "gather", lambda f: ooc.ranks.gather_files(local(f), ooc.Target(f / "target", chunks=(5, 7)), **HERE).run()
    yield "shift", lambda f: ooc.ranks.shift(local(f, depth=1), **HERE).run()
    for method in ("independent", "two-phase"):
        yield (
            f"write_sections {method}",
            lambda f, method=method: ooc.ranks.write_sections(
                ooc.open_array(source(f, FIELD * 0), mode="r+"), "(block, *)", [FIELD[:12], FIELD[12:]],
                method=method, **HERE,
            ).run(),
        )  # fmt: skip
    for placement, orientation in itertools.product(("global", "local"), ("row", "column")):
        yield f"create {placement} {orientation}", lambda f, p=placement, o=orientation: filled(f, p, o)


def filled(folder: Path, placement: Any, orientation: Any) -> None:
    a: Any = ooc.create_array(
        ooc.Target(folder / "target", orientation=orientation, attributes={"units": "K"}, compressors=None),
        shape=FIELD.shape,
        dtype="f4",
        layout="(block, *)",
        ranks=2,
        placement=placement,
    )
    a[...] = FIELD
    a[3:9, ::3] = -1


def others() -> Jobs:
    """Write from Dask, groups, updates, streams and stripes; of xarray the metadata depends on its version."""
    x = da.from_array(FIELD, chunks=(4, 20))
    for chunks in ((4, 20), (24, 3), (5, 7)):
        yield (
            f"from_dask {chunks}",
            lambda f, chunks=chunks: ooc.rechunk(
                x, ooc.Target(f / "target", compressors=None), chunks=chunks, **HERE
            ).run(),
        )
    yield "store", lambda f: ooc.store(x, source(f, FIELD * 0))
    yield "group", lambda f: ooc.rechunk(group(f), f / "target", chunks={"air": (24, 3)}, **HERE).run()
    yield "update", brought_up_to_date
    for mode, last in {"NB": {}, "CB": {"axis": 2}, "IB": {"at": [3, 5]}}.items():
        yield f"streams {mode}", lambda f, last=last: streams(f, **last)
    yield "striped file", striped_file
    yield "striped array", striped_array


def group(folder: Path) -> Path:
    made = zarr.create_group(folder / "source", attributes={"title": "fields"})
    made.create_array("air", data=FIELD, chunks=(4, 20), compressors=None)
    made.create_array("deep/lat", data=FIELD[0], chunks=(7,), compressors=None)
    return folder / "source"


def brought_up_to_date(folder: Path) -> None:
    ooc.rechunk(source(folder), folder / "target", chunks=(24, 3), **HERE).run()
    zarr.open_array(folder / "source", mode="r+")[5, 7] = -1
    ooc.update(folder / "target", **HERE).run()


def streams(folder: Path, axis: int | None = None, at: Any = None) -> None:
    values = np.arange(24, dtype="f8").reshape(4, 6)
    with ooc.streams.open_streams(folder / "target", "w", shape=(4, 6), dtype="f8", ranks=2) as s:
        s.write(values)
        if axis is not None:
            s.write(np.stack((values, values + 1), axis))
        if at is not None:
            s.write([7.0, 8.0], at=at)


def striped_file(folder: Path) -> None:
    disks = disks_in(folder)
    with ooc.disks.open_striped("bytes", "w+", disks=disks, block=64) as file:
        file.write(bytes(range(250)) * 3)


def striped_array(folder: Path) -> None:
    where = ",".join(map(str, disks_in(folder)))
    ooc.rechunk(source(folder), f"striped://{where}!target", chunks=(8, 8), **HERE).run()


def disks_in(folder: Path) -> list[Path]:
    disks = [folder / name for name in "abc"]
    for disk in disks:
        disk.mkdir()
    return disks


KINDS = {"rechunks": rechunks, "passes": passes, "ranks": ranks, "others": others}
