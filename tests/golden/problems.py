"""Problems of every kind that is planned, by public names alone: arrays that are described, none that is filled.

Each verb yields names of problems and the calls that plan them. A name begins with its verb.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import zarr

import oocarrays as ooc
from tests.golden.sources import LAYOUTS, PLACES, SHAPES, Folder, Problems, scheduler, short

# ---------------------------------------------------------------------- rechunks


def rechunk(folder: Folder) -> Problems:
    for (shape, s, t), codec, memory, place in itertools.product(
        SHAPES, ("none", "zstd"), ("64MiB", "1GiB", "8GiB"), PLACES
    ):
        yield (
            short("rechunk", shape, s, "->", t, codec, memory, place),
            lambda s=s, t=t, shape=shape, codec=codec, memory=memory, place=place: ooc.rechunk(
                folder.array(shape, s, codec), folder.target, chunks=t, memory=memory, scheduler=scheduler(place)
            ),
        )


def rechunk_by(folder: Folder) -> Problems:
    methods = ("independent", "two-phase", "assembled", "staged")
    for (shape, s, t), method, ranks in itertools.product(SHAPES[:7], methods, (1, 4)):
        yield (
            short("rechunk_by", method, ranks, shape, s, "->", t),
            lambda shape=shape, s=s, t=t, method=method, ranks=ranks: ooc.rechunk(
                folder.array(shape, s), folder.target, chunks=t, memory="512MiB", method=method, ranks=ranks,
                scheduler="threads",
            ),
        )  # fmt: skip


def rechunk_stored(folder: Folder) -> Problems:
    """Rechunk sources and targets in other formats, orders, shards and types."""
    shape, s, t = SHAPES[5]
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "blosc": ({"codec": "blosc"}, {}),
        "sharded source": ({"shards": (128, 128, 512)}, {}),
        "sharded target": ({}, {"shards": (512, 512, 16)}),
        "both sharded": ({"shards": (128, 128, 512)}, {"shards": (512, 512, 16)}),
        "format 2": ({"zarr_format": 2}, {}),
        "to format 2": ({}, {"zarr_format": 2}),
        "i1": ({"dtype": "i1"}, {}),
        "f8": ({"dtype": "f8"}, {}),
        "columns": ({}, {"orientation": "column"}),
        "to gzip": ({}, {"compressors": zarr.codecs.GzipCodec(level=1)}),
        "filled": ({"fill_value": 7}, {}),
    }
    for (name, (source, target)), memory in itertools.product(kinds.items(), ("64MiB", "1GiB")):
        yield (
            short("rechunk_stored", name.replace(" ", "-"), memory),
            lambda source=source, target=target, memory=memory: ooc.rechunk(
                folder.array(shape, s, **source), folder.target, chunks=t, memory=memory, scheduler="threads", **target
            ),
        )


def rechunk_group(folder: Folder) -> Problems:
    made = zarr.create_group(folder.path / "group.zarr")
    for name, (shape, chunks, _) in {"air": SHAPES[5], "sea": SHAPES[2], "lat": SHAPES[7]}.items():
        made.create_array(name, shape=shape, chunks=chunks, dtype="f4")
    for memory, place in itertools.product(("64MiB", "256MiB", "1GiB"), ("threads", "4w")):
        for chunks in ({"air": (512, 512, 1)}, {"air": (512, 512, 1), "sea": (8192, 64)}):
            yield (
                short("rechunk_group", *chunks, memory, place),
                lambda memory=memory, place=place, chunks=chunks: ooc.rechunk(
                    made, folder.target, chunks=chunks, memory=memory, scheduler=scheduler(place)
                ),
            )


# ---------------------------------------------------------------------- passes


def map_slabs(folder: Folder) -> Problems:
    for (shape, s, _), depth, boundary, memory in itertools.product(
        SHAPES[:3] + SHAPES[5:6], (0, 1, 5), ("none", "reflect"), ("64MiB", "1GiB")
    ):
        yield (
            short("map_slabs", shape, s, depth, boundary, memory),
            lambda shape=shape, s=s, depth=depth, boundary=boundary, memory=memory: ooc.map_slabs(
                np.negative, folder.array(shape, s, "zstd"), folder.target, depth=depth, boundary=boundary,
                memory=memory, dtype="f4", scheduler="threads",
            ),
        )  # fmt: skip


def map_slabs_with(folder: Folder) -> Problems:
    """Map with each of the other arguments, on threads and on workers."""
    shape, s, _ = SHAPES[2]
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "halo": {"depth": 2},
        "axis": {"axis": 1},
        "height": {"height": 128},
        "window": {"window": (512, 512), "depth": 1},
        "chunks": {"chunks": (1024, 1024)},
        "no-reuse": {"depth": 3, "reuse": False},
        "no-prefetch": {"prefetch": 0},
        "workspace": {"workspace": "16MiB"},
        "one-rank": {"ranks": 1},
        "f8": {"dtype": "f8"},
        "factor": {"factor": 2},
        "dropped": {"drop_axis": 0},
        "new": {"new_axis": 0, "shape": (3, *shape)},
    }
    for (name, options), place in itertools.product(kinds.items(), ("threads", "4w")):
        yield (
            short("map_slabs_with", name, place),
            lambda options=options, place=place: ooc.map_slabs(
                np.negative, folder.array(shape, s), folder.target, scheduler=scheduler(place),
                **({"memory": "256MiB", "dtype": "f4"} | options),
            ),
        )  # fmt: skip


def iterate(folder: Folder) -> Problems:
    for (shape, s, _), sweeps, memory in itertools.product(
        SHAPES[2:3] + SHAPES[5:6], (1, 10), ("64MiB", "256MiB", "1GiB")
    ):
        yield (
            short("iterate", shape, s, sweeps, memory),
            lambda shape=shape, s=s, sweeps=sweeps, memory=memory: ooc.iterate(
                np.negative, folder.array(shape, s, dtype="f8"), folder.target, sweeps=sweeps, depth=1, memory=memory,
                scheduler="threads",
            ),
        )  # fmt: skip


def iterate_with(folder: Folder) -> Problems:
    shape, s = (4096, 4096), (64, 4096)
    kinds: dict[str, dict[str, Any]] = {
        "forty": {"sweeps": 40},
        "fused": {"fuse": 4},
        "reflect": {"boundary": "reflect"},
        "until": {"until": 1e-3},
        "windows": {"window": (512, 512)},
        "deep": {"depth": 3},
        "two-ranks": {"ranks": 2},
    }
    for (name, options), place in itertools.product(kinds.items(), ("threads", "4w")):
        yield (
            short("iterate_with", name, place),
            lambda options=options, place=place: ooc.iterate(
                np.negative, folder.array(shape, s, dtype="f8"), folder.target, scheduler=scheduler(place),
                **({"memory": "64MiB", "sweeps": 8, "depth": 1} | options),
            ),
        )  # fmt: skip


def local_slabs(folder: Folder) -> Problems:
    """Map and iterate over local array files."""
    for layout, depth, sweeps, memory in itertools.product(LAYOUTS[:3], (0, 1), (0, 4), ("32MiB", "256MiB")):
        if sweeps and not depth:
            continue
        verb = "iterate" if sweeps else "map_slabs"
        more: dict[str, Any] = {"sweeps": sweeps} if sweeps else {"dtype": "f4"}
        yield (
            short("local_slabs", verb, layout, depth, memory),
            lambda layout=layout, depth=depth, verb=verb, more=more, memory=memory: getattr(ooc, verb)(
                np.negative, folder.local((2048, 2048), layout, depth=depth), folder.target, depth=depth, memory=memory,
                scheduler="threads", **more,
            ),
        )  # fmt: skip


def reduce(folder: Folder) -> Problems:
    for (shape, s, _), how, axis, memory in itertools.product(
        SHAPES[:1] + SHAPES[2:6], ("mean", "max"), (0, -1), ("64MiB", "1GiB")
    ):
        yield (
            short("reduce", shape, s, how, axis, memory),
            lambda shape=shape, s=s, how=how, axis=axis, memory=memory: ooc.reduce(
                folder.array(shape, s, "zstd"), how, axis, target=folder.target, memory=memory, scheduler="threads"
            ),
        )
    shape, s, _ = SHAPES[3]
    for how, place in itertools.product(("sum", "std", "var", "count", "min"), ("4w", "64w")):
        yield (
            short("reduce", shape, s, how, 0, place),
            lambda how=how, place=place: ooc.reduce(
                folder.array(shape, s), how, 0, target=folder.target, scheduler=scheduler(place)
            ),
        )


def reduce_by(folder: Folder) -> Problems:
    shape, s, _ = SHAPES[5]
    for groups, how, place in itertools.product((2, 12, 512), ("mean", "max"), ("threads", "4w")):
        yield (
            short("reduce_by", groups, how, place),
            lambda groups=groups, how=how, place=place: ooc.reduce(
                folder.array(shape, s, "zstd"), how, 0, by=np.arange(512) % groups, target=folder.target,
                memory="256MiB", scheduler=scheduler(place),
            ),
        )  # fmt: skip


def pyramid(folder: Folder) -> Problems:
    for (shape, s, _), memory, method in itertools.product(SHAPES[1:3], ("128MiB", "1GiB"), ("mean", "nearest")):
        yield (
            short("pyramid", shape, s, memory, method),
            lambda shape=shape, s=s, memory=memory, method=method: ooc.pyramid(
                folder.array(shape, s, dtype="u2"), folder.target, memory=memory, method=method, scheduler="threads"
            ),
        )


# ---------------------------------------------------------------------- ranks


def read_sections(folder: Folder) -> Problems:
    methods = ("auto", "independent", "two-phase")
    for (shape, s, _), layout, method, place in itertools.product(SHAPES[1:3], LAYOUTS, methods, ("threads", "4w")):
        yield (
            short("read_sections", shape, s, layout, method, place),
            lambda shape=shape, s=s, layout=layout, method=method, place=place: ooc.read_sections(
                folder.array(shape, s, "zstd"), layout, ranks=4, method=method, scheduler=scheduler(place)
            ),
        )


def write_sections(folder: Folder) -> Problems:
    shape = (1024, 1024)
    for chunks, layout, method, memory in itertools.product(
        ((64, 1024), (128, 128)), LAYOUTS[:2], ("auto", "independent", "two-phase"), ("16MiB", "256MiB")
    ):
        parts = [np.zeros(part, "f4") for part in map(ooc.Layout.of(shape, layout, ranks=4).local_shape, range(4))]
        yield (
            short("write_sections", chunks, layout, method, memory),
            lambda chunks=chunks, layout=layout, method=method, memory=memory, parts=parts: ooc.write_sections(
                ooc.open_array(folder.array(shape, chunks), mode="r+"), layout, parts, method=method, memory=memory,
                scheduler="threads",
            ),
        )  # fmt: skip


def redistribute(folder: Folder) -> Problems:
    sources = (*LAYOUTS[:2], "(cyclic(3), block)", "(cyclic, *)")
    for a, b, before, after in itertools.product(sources, ("(*, block)", "(cyclic(2), *)"), (4, 8), (4, 6)):
        yield (
            short("redistribute", a, "->", b, before, after),
            lambda a=a, b=b, before=before, after=after: ooc.plan_redistribution(
                ooc.Layout.of((960, 840), a, ranks=before), ooc.Layout.of((960, 840), b, ranks=after), dtype="f8"
            ),
        )


def redistribute_by(folder: Folder) -> Problems:
    source, target = (ooc.Layout.of((960, 840), each, ranks=8) for each in LAYOUTS[:2])
    for schedule in ("pex", "bex", "rex", "gen", "coloring", "unordered"):
        yield (
            short("redistribute_by", schedule),
            lambda schedule=schedule: ooc.plan_redistribution(source, target, schedule=schedule),
        )
    for network in ("fat-tree", "mesh", "hypercube", "torus", "dragonfly"):
        yield (
            short("redistribute_by", network),
            lambda network=network: ooc.plan_redistribution(source, target, network=network),
        )


def files(folder: Folder) -> Problems:
    """Scatter to local array files, gather from them, and shift their halos."""
    for (shape, s, _), layout, memory in itertools.product(SHAPES[:3], LAYOUTS[:3:2], ("256MiB", "2GiB")):
        yield (
            short("files", "scatter", shape, s, layout, memory),
            lambda shape=shape, s=s, layout=layout, memory=memory: ooc.scatter_files(
                folder.array(shape, s), layout, folder.target, ranks=4, memory=memory, scheduler="threads"
            ),
        )
    for layout, memory in itertools.product(LAYOUTS, ("16MiB", "256MiB")):
        yield (
            short("files", "gather", layout, memory),
            lambda layout=layout, memory=memory: ooc.gather_files(
                folder.local((2048, 2048), layout), folder.target, memory=memory, scheduler="threads"
            ),
        )
    for layout, depth in itertools.product(LAYOUTS[:3], (1, 4)):
        yield (
            short("files", "shift", layout, depth),
            lambda layout=layout, depth=depth: ooc.shift(
                folder.local((2048, 2048), layout, depth=depth), scheduler="threads"
            ),
        )


def messages(folder: Folder) -> Problems:
    """Exchange all to all, and send a section to all."""
    for ranks, schedule in itertools.product((4, 7), ("auto", "pex", "coloring")):
        counts = np.arange(ranks * ranks).reshape(ranks, ranks) % 5
        yield (
            short("messages", "exchange", ranks, schedule),
            lambda ranks=ranks, schedule=schedule, counts=counts: ooc.exchange(
                [np.zeros(int(row.sum())) for row in counts], counts, schedule=schedule, scheduler="threads"
            ),
        )
    for layout, rows in itertools.product(LAYOUTS, (slice(3, 5), slice(0, 2048, 7))):
        yield (
            short("messages", "multicast", layout, rows.stop, rows.step),
            lambda layout=layout, rows=rows: ooc.multicast(
                folder.local((2048, 2048), layout), (rows, slice(0, 2048)), scheduler="threads"
            ),
        )


def requests(folder: Folder) -> Problems:
    for layout, orientation, chunk in itertools.product(LAYOUTS, ("row", "column"), (None, (64, 64))):
        yield (
            short("requests", layout, orientation, chunk),
            lambda layout=layout, orientation=orientation, chunk=chunk: ooc.count_requests(
                (1024, 1000), layout, orientation=orientation, chunk=chunk, ranks=4
            ),
        )


# ---------------------------------------------------------------------- Dask


def dask_arrays(folder: Folder) -> Problems:
    for (shape, s, t), memory in itertools.product(SHAPES[:3] + SHAPES[6:7], ("256MiB", "2GiB")):
        yield (
            short("dask_arrays", "from", shape, s, "->", t, memory),
            lambda shape=shape, s=s, t=t, memory=memory: ooc.from_dask(
                da.zeros(shape, chunks=s, dtype="f4"), folder.target, chunks=t, memory=memory, scheduler="threads"
            ),
        )
        yield (
            short("dask_arrays", "to", shape, s, "->", t, memory),
            lambda shape=shape, s=s, t=t, memory=memory: ooc.open_array(folder.array(shape, s, "zstd")).to_dask(
                chunks=t, memory=memory
            ),
        )


def update(folder: Folder) -> Problems:
    """Bring targets up to date, of sources that have changed by an element."""
    shape, chunks = (256, 256), (32, 256)
    for layout, memory in itertools.product(((256, 32), (64, 64)), ("16MiB", "256MiB")):
        source = zarr.create_array(folder.target, data=np.ones(shape, "f4"), chunks=chunks)
        target = folder.target
        ooc.rechunk(source, target, chunks=layout, scheduler="threads").run()
        source[5, 7] = 2
        yield (
            short("update", chunks, "->", layout, memory),
            lambda target=target, memory=memory: ooc.update(target, memory=memory, scheduler="threads"),
        )


VERBS: tuple[Callable[[Folder], Problems], ...] = (
    rechunk, rechunk_by, rechunk_stored, rechunk_group, map_slabs, map_slabs_with, iterate, iterate_with, local_slabs,
    reduce, reduce_by, pyramid, read_sections, write_sections, redistribute, redistribute_by, files, messages, requests,
    dask_arrays, update,
)  # fmt: skip
