"""Hot paths by public names: small calls that users make often, and plans of which the calls must not grow.

Each path is prepared once and can be called again and again; no path hands work to other threads, whose calls depend
on timing. The case `hot` of `benchmarks/run.py` takes the time of the same paths.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

import oocarrays as ooc
from tests.flat import flat

FIELD = np.arange(256 * 256, dtype="f4").reshape(256, 256)
HERE: dict[str, Any] = {"memory": "256MiB", "scheduler": "threads"}
HotPath = Callable[[], Any]


class Prepared:
    """A folder with the stores that paths use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, codecs in (("plain", None), ("zstd", zarr.codecs.ZstdCodec())):
            zarr.create_array(folder / name, data=FIELD, chunks=(32, 32), compressors=codecs)
        zarr.create_array(folder / "sharded", data=FIELD, chunks=(16, 16), shards=(64, 64))
        zarr.create_array(folder / "many", shape=(2**15, 2**15), chunks=(256, 256), dtype="f4")
        self.arrays: dict[str, Any] = {
            name: ooc.open_array(folder / name, mode="r+") for name in ("plain", "zstd", "sharded")
        }

    @property
    def many(self) -> Path:
        """An array of 16,384 chunks without data."""
        return self.folder / "many"

    @property
    def target(self) -> Path:
        """A path at which nothing is stored."""
        return self.folder / "target"


def paths(folder: Path) -> dict[str, HotPath]:
    """Return every path by name."""
    made = Prepared(folder)
    return sections(made) | planned(made) | graphs(made) | layouts(made) | files(made)


def sections(made: Prepared) -> dict[str, HotPath]:
    plain, zstd, sharded = (made.arrays[name] for name in ("plain", "zstd", "sharded"))
    points = np.arange(0, 256, 17)
    row, box = np.ones(32, "f4"), np.ones((64, 64), "f4")
    return {
        "open an array": lambda: ooc.open_array(made.folder / "plain"),
        "first a[3:9, ::3]": lambda: ooc.open_array(made.folder / "plain")[3:9, ::3],
        "a[3:9, ::3]": lambda: plain[3:9, ::3],
        "a[3:9, ::3] of zstd": lambda: zstd[3:9, ::3],
        "a[3:9, ::3] of shards": lambda: sharded[3:9, ::3],
        "a[5, 7]": lambda: plain[5, 7],
        "a[...]": lambda: plain[...],
        "a.vindex": lambda: plain.vindex[points, points],
        "a.oindex": lambda: plain.oindex[points, points],
        "write a row of a chunk": lambda: plain.__setitem__((3, slice(0, 32)), row),
        "write four chunks": lambda: plain.__setitem__((slice(0, 64), slice(0, 64)), box),
    }


def planned(made: Prepared) -> dict[str, HotPath]:
    four = ooc.networks.planned_cluster(workers=4, memory="2GiB")
    return {
        "plan a rechunk": lambda: ooc.rechunk(made.many, made.target, chunks=(2**15, 8), **HERE),
        "plan a rechunk for workers": lambda: ooc.rechunk(made.many, made.target, chunks=(2**15, 8), scheduler=four),
        "plan a pass": lambda: ooc.map_slabs(
            np.negative, made.many, ooc.Target(made.target, dtype="f4"), depth=1, **HERE
        ),
        "plan 40 sweeps": lambda: ooc.iterate(
            np.negative, made.folder / "zstd", made.target, sweeps=40, depth=1, **HERE
        ),
        "plan a reduction": lambda: ooc.reduce(made.many, "mean", 0, target=made.target, **HERE),
        "plan a collective read": lambda: ooc.ranks.read_sections(made.folder / "zstd", "(*, block)", ranks=4, **HERE),
        "plan a scatter": lambda: ooc.ranks.scatter_files(made.many, "(block, *)", made.target, ranks=4, **HERE),
    }


def graphs(made: Prepared) -> dict[str, HotPath]:
    small, x = made.folder / "zstd", da.from_zarr(made.folder / "zstd")
    rechunk = ooc.rechunk(
        made.many,
        made.target,
        chunks=(2**15, 64),
        memory="256MiB",
        scheduler="threads",
        resources=ooc.Resources(ranks=4),
    )
    return {
        "plan and graph of a rechunk": lambda: ooc.rechunk(
            small, made.target, chunks=(256, 8), resources=ooc.Resources(ranks=4), **HERE
        ).__dask_graph__(),
        "plan and graph of a reduction": lambda: ooc.reduce(
            small, "mean", 0, target=made.target, **HERE
        ).__dask_graph__(),
        "explain a rechunk": rechunk.explain,
        "lazy blocks": lambda: made.arrays["zstd"].to_dask(chunks=(256, 8), memory="64MiB"),
        "trace and advise": lambda: ooc.advise.trace(x[:, :8].sum()).advise(memory="1GiB"),
    }


def layouts(made: Prepared) -> dict[str, HotPath]:
    rows = ooc.Layout.of((960, 840), "(block, *)", ranks=8)
    cyclic = ooc.Layout.of((960, 840), "(cyclic(3), block)", ranks=8)
    one, other = ooc.Section((3, 0), (90, 80), (3, 2)), ooc.Section((0, 1), (77, 80), (2, 5))
    counts = np.arange(64).reshape(8, 8) % 5
    parts = [np.zeros(int(row.sum())) for row in counts]
    return {
        "sections of a layout": lambda: [cyclic.sections(rank) for rank in range(8)],
        "intersect sections": lambda: one.intersection(other),
        "runs of a redistribution": lambda: ooc.ranks.plan_redistribution(rows, cyclic),
        "plan an exchange": lambda: ooc.ranks.exchange(parts, counts, scheduler="threads"),
        "count requests": lambda: ooc.ranks.count_requests((1024, 1000), "(cyclic(5), *)", ranks=4),
    }


def files(made: Prepared) -> dict[str, HotPath]:
    values = np.arange(24, dtype="f8").reshape(4, 6)
    disks = [made.folder / name for name in "abc"]
    for disk in disks:
        disk.mkdir()

    def streams() -> None:
        with ooc.streams.open_streams(made.folder / "streams", "w", shape=(4, 6), dtype="f8", overwrite=True) as s:
            for _ in range(8):
                s.write(values)

    def striped() -> None:
        with ooc.disks.open_striped("bytes", "w+", disks=disks, block=64) as file:
            file.write(bytes(750))

    return {"write streams": streams, "write a striped file": striped}


def runs(folder: Path) -> dict[str, HotPath]:
    """Return small runs by name: of these only the time is taken, as their work is done by several threads."""
    made = Prepared(folder)
    again: dict[str, Any] = {"overwrite": True, **HERE}
    return {
        "run a rechunk": lambda: flat(ooc.rechunk, made.folder / "zstd", made.target, chunks=(256, 8), **again).run(),
        "run a pass": lambda: flat(ooc.map_slabs, np.negative, made.folder / "plain", made.target, **again).run(),
        "run a reduction": lambda: ooc.reduce(made.folder / "zstd", "mean", 0, scheduler="threads"),
    }
