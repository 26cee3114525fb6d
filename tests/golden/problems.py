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
from tests.flat import flat
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
                folder.array(shape, s), folder.target, chunks=t, memory="512MiB", method=method, scheduler="threads",
                resources=ooc.Resources(ranks=ranks),
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
            lambda source=source, target=target, memory=memory: flat(
                ooc.rechunk,
                folder.array(shape, s, **source),
                folder.target,
                chunks=t,
                memory=memory,
                scheduler="threads",
                **target,
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
                np.negative, folder.array(shape, s, "zstd"), ooc.Target(folder.target, dtype="f4"), depth=depth,
                boundary=boundary, memory=memory, scheduler="threads",
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
            lambda options=options, place=place: flat(ooc.map_slabs,
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
            lambda options=options, place=place: flat(ooc.iterate,
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
            lambda layout=layout, depth=depth, verb=verb, more=more, memory=memory: flat(
                verb, np.negative, folder.local((2048, 2048), layout, depth=depth), folder.target, depth=depth,
                memory=memory, scheduler="threads", **more,
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
            lambda shape=shape, s=s, layout=layout, method=method, place=place: ooc.ranks.read_sections(
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
            lambda chunks=chunks, layout=layout, method=method, memory=memory, parts=parts: ooc.ranks.write_sections(
                ooc.open_array(folder.array(shape, chunks), mode="r+"), layout, parts, method=method, memory=memory,
                scheduler="threads",
            ),
        )  # fmt: skip


def redistribute(folder: Folder) -> Problems:
    sources = (*LAYOUTS[:2], "(cyclic(3), block)", "(cyclic, *)")
    for a, b, before, after in itertools.product(sources, ("(*, block)", "(cyclic(2), *)"), (4, 8), (4, 6)):
        yield (
            short("redistribute", a, "->", b, before, after),
            lambda a=a, b=b, before=before, after=after: ooc.ranks.plan_redistribution(
                ooc.Layout.of((960, 840), a, ranks=before), ooc.Layout.of((960, 840), b, ranks=after), dtype="f8"
            ),
        )


def redistribute_by(folder: Folder) -> Problems:
    source, target = (ooc.Layout.of((960, 840), each, ranks=8) for each in LAYOUTS[:2])
    for schedule in ("pex", "bex", "rex", "gen", "coloring", "unordered"):
        yield (
            short("redistribute_by", schedule),
            lambda schedule=schedule: ooc.ranks.plan_redistribution(source, target, schedule=schedule),
        )
    for network in ("fat-tree", "mesh", "hypercube", "torus", "dragonfly"):
        yield (
            short("redistribute_by", network),
            lambda network=network: ooc.ranks.plan_redistribution(source, target, network=network),
        )


def files(folder: Folder) -> Problems:
    """Scatter to local array files, gather from them, and shift their halos."""
    for (shape, s, _), layout, memory in itertools.product(SHAPES[:3], LAYOUTS[:3:2], ("256MiB", "2GiB")):
        yield (
            short("files", "scatter", shape, s, layout, memory),
            lambda shape=shape, s=s, layout=layout, memory=memory: ooc.ranks.scatter_files(
                folder.array(shape, s), layout, folder.target, ranks=4, memory=memory, scheduler="threads"
            ),
        )
    for layout, memory in itertools.product(LAYOUTS, ("16MiB", "256MiB")):
        yield (
            short("files", "gather", layout, memory),
            lambda layout=layout, memory=memory: ooc.ranks.gather_files(
                folder.local((2048, 2048), layout), folder.target, memory=memory, scheduler="threads"
            ),
        )
    for layout, depth in itertools.product(LAYOUTS[:3], (1, 4)):
        yield (
            short("files", "shift", layout, depth),
            lambda layout=layout, depth=depth: ooc.ranks.shift(
                folder.local((2048, 2048), layout, depth=depth), scheduler="threads"
            ),
        )


def messages(folder: Folder) -> Problems:
    """Exchange all to all, and send a section to all."""
    for ranks, schedule in itertools.product((4, 7), ("auto", "pex", "coloring")):
        counts = np.arange(ranks * ranks).reshape(ranks, ranks) % 5
        yield (
            short("messages", "exchange", ranks, schedule),
            lambda ranks=ranks, schedule=schedule, counts=counts: ooc.ranks.exchange(
                [np.zeros(int(row.sum())) for row in counts], counts, schedule=schedule, scheduler="threads"
            ),
        )
    for layout, rows in itertools.product(LAYOUTS, (slice(3, 5), slice(0, 2048, 7))):
        yield (
            short("messages", "multicast", layout, rows.stop, rows.step),
            lambda layout=layout, rows=rows: ooc.ranks.multicast(
                folder.local((2048, 2048), layout), (rows, slice(0, 2048)), scheduler="threads"
            ),
        )


def requests(folder: Folder) -> Problems:
    for layout, orientation, chunk in itertools.product(LAYOUTS, ("row", "column"), (None, (64, 64))):
        yield (
            short("requests", layout, orientation, chunk),
            lambda layout=layout, orientation=orientation, chunk=chunk: ooc.ranks.count_requests(
                (1024, 1000), layout, orientation=orientation, chunk=chunk, ranks=4
            ),
        )


# ---------------------------------------------------------------------- Dask


def dask_arrays(folder: Folder) -> Problems:
    for (shape, s, t), memory in itertools.product(SHAPES[:3] + SHAPES[6:7], ("256MiB", "2GiB")):
        yield (
            short("dask_arrays", "from", shape, s, "->", t, memory),
            lambda shape=shape, s=s, t=t, memory=memory: ooc.rechunk(
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


# ---------------------------------------------------------------------- what few of the others decide


def corners(folder: Folder) -> Problems:
    """Problems each of which decides something that few of the others do."""
    image, rows, wide = ((8192, 8192), (1024, 1024)), ((4096, 4096), (64, 4096)), ((2**16, 256), (2**16, 8))

    def passes(
        name: str, arrays: tuple[Any, ...], memory: str, verb: str = "map_slabs", codec: str = "none", **options: Any
    ) -> tuple[str, Callable[[], Any]]:
        dtype = "f8" if verb == "iterate" else "f4"
        how = {"memory": memory, "scheduler": "threads"} | ({"dtype": "f4"} if verb == "map_slabs" else {}) | options
        return (
            short("corners", verb, name, memory),
            lambda: flat(
                verb, np.negative, [folder.array(*each, codec, dtype=dtype) for each in arrays], folder.target, **how
            ),
        )

    yield passes("another-axis", (wide,), "128MiB", ranks=2)
    yield passes("all-in-one-axis", (((2**24, 2**14), (16, 2**14)),), "8GiB", ranks=2)
    yield passes("chunks-of-all", (((96, 10), (4, 10)), ((96, 10), (6, 10))), "256MiB", chunks=(8, 5))
    yield passes("ranks-at-chunks", (((100, 4), (10, 4)),), "256MiB", chunks=(7, 4), ranks=4, height=5)
    yield passes("crossing-chunks", (((4096, 4096), (256, 4096)), ((4096, 4096), (4096, 256))), "64MiB", ranks=1)
    yield passes("whole-rows", (image,), "320MiB", depth=(2, 0), ranks=2)
    yield passes("windows-in-turn", (image,), "1GiB", depth=1, window=(500, 700))
    yield passes("coded", (image,), "128MiB", codec="zstd", depth=2, ranks=1)
    for workspace in (0, 1.5, "5MB"):
        yield passes(f"workspace-{workspace}", (rows,), "1GiB", workspace=workspace, height=256)
    for memory, sweeps in itertools.product(("64MiB", "128MiB", "256MiB"), (10, 40)):
        yield passes(f"image-{sweeps}", (image,), memory, "iterate", sweeps=sweeps, depth=1, ranks=2)
    yield passes("uneven-fuse", (rows,), "64MiB", "iterate", sweeps=7, fuse=3, depth=1)

    def rechunks(name: str, shape: Any, s: Any, t: Any, codec: str = "none", **options: Any) -> Any:
        how = {"memory": "1GiB", "scheduler": "threads"} | options
        return (
            short("corners", "rechunk", name),
            lambda: flat(ooc.rechunk, folder.array(shape, s, codec), folder.target, chunks=t, **how),
        )

    slabs = ((32768, 32768), (256, 32768), (32768, 256))
    for codec, memory in itertools.product(("none", "zstd"), ("64MiB", "512MiB")):
        yield rechunks(f"slabs-{codec}-{memory}", *slabs, codec, memory=memory)
        yield rechunks(f"assembled-{codec}-{memory}", *slabs, codec, memory=memory, method="assembled", compressors=())
    yield rechunks("squares", (32768, 32768), (4096, 256), (1024, 1024), memory="128MiB", method="assembled")
    yield rechunks("conforming", (4096, 4096), (64, 4096), (128, 4096), "zstd", memory="256MiB", ranks=4)
    yield rechunks("short-runs", (100_000, 100), (1, 100), (100_000, 1), ranks=8)
    yield rechunks("many-chunks", (100_000, 10_000), (100, 100), (1000, 10), "zstd", ranks=8)
    for edge, schedule in itertools.product((1024, 16384), ("auto", "pex", "rex", "gen")):
        four = ooc.networks.planned_cluster(workers=4, memory="512MiB")
        yield rechunks(
            f"{edge}-by-{schedule}", (edge, edge), (edge // 64, edge), (edge, edge // 64), method="two-phase",
            schedule=schedule, memory=None, scheduler=four,
        )  # fmt: skip
    for workers, ranks in itertools.product((8, 64), (None, 8, 9, 64)):
        there = ooc.networks.planned_cluster(workers=workers, memory="4GiB")
        yield rechunks(
            f"frames-{workers}-{ranks}", (20_000, 1024, 1024), (8, 1024, 1024), (16384, 32, 32), ranks=ranks,
            method="two-phase", memory=None, scheduler=there,
        )  # fmt: skip

    copied = zarr.create_group(folder.path / "copied.zarr")
    copied.create_array("large", shape=(8192, 2048), chunks=(2048, 2048), dtype="f8")
    copied.create_array("small", shape=(60, 60), chunks=(6, 60), dtype="f4")
    yield (
        short("corners", "group-that-is-copied"),
        lambda: ooc.rechunk(copied, folder.target, chunks={"small": (60, 6)}, memory="512MiB", scheduler="threads"),
    )
    for boundary, ranks, depth in itertools.product(("none", "reflect", "periodic"), (4, 9), (3, 12)):
        yield (
            short("corners", "halos", boundary, ranks, depth),
            lambda boundary=boundary, ranks=ranks, depth=depth: ooc.ranks.shift(
                ooc.ranks.distribute(np.zeros((90, 60), "f4"), "(block, block)", ranks=ranks, scheduler="threads"),
                depth, boundary=boundary,
            ),
        )  # fmt: skip
    few = [np.zeros((64, 4), "f4")] * 16
    for place, method in itertools.product(("threads", "4w"), ("auto", "two-phase")):
        yield (
            short("corners", "read-by-few", place, method),
            lambda place=place, method=method: ooc.ranks.read_sections(
                folder.array((64, 64), (8, 64)), "(*, block)", ranks=16, method=method, scheduler=scheduler(place)
            ),
        )
        yield (
            short("corners", "write-coded", place, method),
            lambda place=place, method=method: ooc.ranks.write_sections(
                ooc.open_array(folder.array((64, 64), (8, 64), "zstd"), mode="r+"), "(*, block)", few, method=method,
                memory="64MiB", scheduler=scheduler(place),
            ),
        )  # fmt: skip
    collectives: dict[str, dict[str, Any]] = {
        "two-rounds": {"layout": "(*, block)", "memory": "300MiB", "method": "two-phase", "aggregators": 4},
        "two-readers": {"layout": "(*, block)", "aggregators": [1, 3]},
        "cyclic-deal": {"layout": "(*, cyclic)", "deal": "cyclic"},
        "cyclic-rows": {"layout": "(cyclic, *)"},
        "diagonal": {"layout": [np.s_[512 * p : 512 * p + 512, 512 * p : 512 * p + 512] for p in range(8)]},
        "static": {
            "layout": [np.s_[8 * p : 8 * p + 700, 99 * p : 99 * p + 300] for p in range(4)],
            "domains": "static",
        },
        "dynamic": {"layout": [np.s_[8 * p : 8 * p + 700, 99 * p : 99 * p + 300] for p in range(4)]},
        "strides": {"layout": [np.s_[4 * p : 4 * p + 4 : 2, 20:280:3] for p in range(4)]},
    }
    for (name, options), place in itertools.product(collectives.items(), ("threads", "4w")):
        given = {"method": "two-phase", "scheduler": scheduler(place)} | options
        if isinstance(given["layout"], str):
            given["ranks"] = 4
        yield (
            short("corners", "read", name, place),
            lambda given=given: flat(ooc.ranks.read_sections,
                folder.array((4096, 4096), (256, 4096), "zstd"), given["layout"],
                **{name: value for name, value in given.items() if name != "layout"},
            ),
        )  # fmt: skip
    for chunks in ((64, 64), (4096, 64)):
        yield (
            short("corners", "to-dask-plain", chunks),
            lambda chunks=chunks: ooc.open_array(folder.array(*rows)).to_dask(chunks=chunks, memory="256MiB"),
        )
        yield (
            short("corners", "from-dask-coded", chunks),
            lambda chunks=chunks: ooc.rechunk(
                da.zeros((4096, 4096), chunks=chunks, dtype="f4"), folder.target, memory="256MiB", scheduler="threads"
            ),
        )


VERBS: tuple[Callable[[Folder], Problems], ...] = (
    rechunk, rechunk_by, rechunk_stored, rechunk_group, map_slabs, map_slabs_with, iterate, iterate_with, local_slabs,
    reduce, reduce_by, pyramid, read_sections, write_sections, redistribute, redistribute_by, files, messages, requests,
    dask_arrays, update, corners,
)  # fmt: skip
