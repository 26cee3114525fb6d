"""Sources without data, and schedulers, of problems that are only planned."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import zarr

import oocarrays as ooc
from tests.flat import flat

Shape = tuple[int, ...]
Problems = Iterator[tuple[str, Callable[[], Any]]]

CODECS = {
    "none": None,
    "zstd": zarr.codecs.ZstdCodec(),
    "blosc": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"),
}
SHAPES: tuple[tuple[Shape, Shape, Shape], ...] = (
    ((16384, 16384), (256, 16384), (16384, 256)),
    ((16384, 16384), (1024, 1024), (4096, 256)),
    ((8192, 8192), (64, 8192), (8192, 64)),
    ((720, 721, 1440), (1, 721, 1440), (720, 20, 20)),
    ((720, 721, 1440), (720, 20, 20), (1, 721, 1440)),
    ((512, 512, 512), (64, 64, 64), (512, 512, 1)),
    ((100, 77, 61), (7, 20, 61), (100, 5, 9)),
    ((50,), (7,), (11,)),
    ((0, 5), (1, 5), (3, 2)),
    ((2**20, 2**14), (2**10, 2**14), (2**20, 2**4)),
)
"""Shape, chunks of a source and chunks of a target."""
PLACES: Mapping[str, Mapping[str, Any]] = {
    "threads": {},
    "4w": {"workers": 4, "memory": "2GiB"},
    "64w": {"workers": 64, "memory": "4GiB", "network": "fat-tree"},
}
LAYOUTS = ("(block, *)", "(*, block)", "(block, block)", "(cyclic(5), *)")


class Folder:
    """A folder with sources, each made when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._targets = itertools.count()
        self.array = cache(self._array)
        self.local = cache(self._local)

    @property
    def target(self) -> Path:
        """A path at which nothing is stored."""
        return self.path / f"target-{next(self._targets)}.zarr"

    def _array(self, shape: Shape, chunks: Shape, codec: str = "none", **options: Any) -> Path:
        target = self.path / f"source-{next(self._targets)}.zarr"
        how = {"compressors": CODECS[codec], "dtype": "f4"} | options
        zarr.create_array(target, shape=shape, chunks=chunks, **how)
        return target

    def _local(self, shape: Shape, layout: str, **options: Any) -> Any:
        made = self.target
        flat(
            ooc.create_array,
            made,
            shape=shape,
            layout=layout,
            placement="local",
            **({"dtype": "f4", "ranks": 4} | options),
        )
        return ooc.open_array(made, mode="r+")


def scheduler(place: str) -> Any:
    """Return threads, or a cluster that is only planned for."""
    return ooc.networks.planned_cluster(**PLACES[place]) if PLACES[place] else "threads"


def short(*parts: Any) -> str:
    """Write a problem's name without the spaces within its parts."""
    return " ".join(str(part).replace(" ", "") for part in parts)
