"""Every way to read an array, and what may happen to the array between planning and reading."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import oocarrays as ooc
from tests.flat import flat
from tests.seams import begin
from tests.small import make

Reads = Callable[[], np.ndarray]
"""Reads all of the array, as it was planned."""
How = dict[str, Any]
THREADS: How = {"scheduler": "threads"}
ROWS = (96, 10)


def rechunked(**options: Any) -> Callable[..., Reads]:
    """A rechunk by some method."""

    def planned(source: Any, folder: Path, how: How) -> Reads:
        job = flat(ooc.rechunk, source, "target.zarr", **({"chunks": ROWS, "memory": "64MiB"} | options | how))
        return lambda: job.run()[:]

    return planned


def in_group(copied: bool) -> Callable[..., Reads]:
    """A group of which the array is rewritten, or copied as it is."""

    def planned(source: Any, folder: Path, how: How) -> Reads:
        group = os.path.dirname(source) or "."
        zarr_format = zarr.open_array(source, mode="r").metadata.zarr_format
        zarr.create_group(group, zarr_format=zarr_format)
        make(os.path.join(group, "other"), zarr_format=zarr_format)
        name = os.path.basename(source)
        chunks = {"other" if copied else name: ROWS}
        job = flat(ooc.rechunk, group, folder / "written", chunks=chunks, memory="64MiB", **how)
        return lambda: job.run()[name][:]

    return planned


def _job(made: Any) -> Reads:
    return lambda: made.run()[:]


def _scattered(source: Any, folder: Path, how: How) -> Reads:
    job = flat(ooc.ranks.scatter_files, source, "(block, *)", "local.zarr", ranks=2, **how)

    def read() -> np.ndarray:
        files = job.run()
        return np.concatenate([files.local(rank)[:] for rank in range(2)])

    return read


def _loop(source: Any, folder: Path, how: How) -> Reads:
    slabs = ooc.open_array(source).slabs(memory="64MiB", prefetch=0, window=8)
    return lambda: np.concatenate([slab.data for slab in slabs])


def _partitioned(source: Any, folder: Path, how: How) -> Reads:
    a = ooc.open_array(source)
    return lambda: np.concatenate([
        part.local(0).compute(**how) for part in ooc.ranks.partitions(a, "(block, *)", ranks=1, memory="64MiB", **how)
    ])  # fmt: skip


def _for_ranks(method: str) -> Callable[..., Reads]:
    def planned(source: Any, folder: Path, how: How) -> Reads:
        read = flat(ooc.ranks.read_sections, ooc.open_array(source), [np.s_[:48], np.s_[48:]], method=method, **how)
        return lambda: np.concatenate(read.compute())

    return planned


def _as_local(source: Any) -> Any:
    """The array as local array files, which take its place."""
    whole = f"{source}-whole"
    os.rename(source, whole)
    ooc.ranks.scatter_files(whole, "(block, *)", source, ranks=2, **THREADS).run()
    return source


def _gathered(source: Any, folder: Path, how: How) -> Reads:
    return _job(flat(ooc.ranks.gather_files, _as_local(source), "target.zarr", **how))


def _local_slabs(source: Any, folder: Path, how: How) -> Reads:
    return _job(flat(ooc.map_slabs, _double, ooc.open_array(_as_local(source)), "target.zarr", **how))


def _local(read: Callable[[Any, How], Reads]) -> Callable[..., Reads]:
    return lambda source, folder, how: read(ooc.open_array(_as_local(source)), how)


def _multicast(a: Any, how: How) -> Reads:
    sent = flat(ooc.ranks.multicast, a, np.s_[:], **how)
    return lambda: sent.compute()[1]


def _shifted(source: Any, folder: Path, how: How) -> Reads:
    """What is within, and what came into the halos."""
    whole = f"{source}-whole"
    os.rename(source, whole)
    ooc.ranks.scatter_files(whole, "(block, *)", source, ranks=2, depth=(1, 0), **THREADS).run()
    a = ooc.open_array(source, mode="r+")
    job = flat(ooc.ranks.shift, a, **how)

    def read() -> np.ndarray:
        job.run()
        return a[...]

    return read


def _distributed(layout: str) -> Callable[..., Reads]:
    """An array that is laid out as Dask has it, and perhaps in another way."""

    def planned(source: Any, folder: Path, how: How) -> Reads:
        x = flat(ooc.ranks.distribute, ooc.open_array(source).to_dask((8, 80)), "(block, *)", ranks=2, **how)
        return x.redistribute(layout).compute if layout else x.compute

    return planned


def _resumed(source: Any, folder: Path, how: How) -> Reads:
    """A run that stopped before its first chunk, gone on with."""
    job = flat(ooc.rechunk, source, "target.zarr", chunks=ROWS, memory="64MiB", **how)
    begin(job)
    return _job(flat(ooc.resume, "target.zarr", **how))


def _double(block: np.ndarray) -> np.ndarray:
    return block * 1


JOBS: dict[str, Callable[..., Reads]] = {
    "rechunk, independent": rechunked(method="independent"),
    "rechunk, two-phase": rechunked(method="two-phase"),
    "rechunk, assembled": rechunked(method="assembled"),
    "rechunk, staged": rechunked(method="staged"),
    "group, rewritten": in_group(copied=False),
    "group, copied": in_group(copied=True),
    "map_slabs": lambda s, f, how: _job(flat(ooc.map_slabs, _double, s, "target.zarr", memory="64MiB", **how)),
    "iterate": lambda s, f, how: _job(
        flat(
            ooc.iterate,
            _double,
            s,
            "target.zarr",
            sweeps=2,
            depth=0,
            memory="64MiB",
            resources=ooc.Resources(scratch=f),
            **how,
        )
    ),
    "scatter_files": _scattered,
    "read_sections, independent": _for_ranks("independent"),
    "read_sections, two-phase": _for_ranks("two-phase"),
    "gather_files": _gathered,
    "map_slabs, local": _local_slabs,
    "shift": _shifted,
    "multicast": _local(_multicast),
    "distribute": _distributed(""),
    "redistribute": _distributed("(*, block)"),
}
"""Where work is planned, and done by tasks."""


def _opened(read: Callable[[ooc.OutOfCoreArray, How], Any]) -> Callable[..., Reads]:
    return lambda source, folder, how: partial(read, ooc.open_array(source), how)


def _lazy(chunks: Any, **options: Any) -> Callable[..., Reads]:
    def opened(source: Any, folder: Path, how: How) -> Reads:
        return partial(ooc.open_array(source).to_dask(chunks, scratch=folder, **options).compute, **how)

    return opened


AT_ONCE: dict[str, Callable[..., Reads]] = {
    "a[...]": _opened(lambda a, how: a[...]),
    "a.read, sieved": _opened(lambda a, how: a.read(np.s_[...], method="sieve")),
    "a.prefetch": _opened(lambda a, how: a.prefetch(np.s_[...]).result()),
    "slabs": _loop,
    "partitions": _partitioned,
    "local a[...]": _local(lambda a, how: lambda: a[...]),
    "resume": _resumed,
    "to_dask": _lazy((5, 80)),
    "to_dask, scratch": _lazy((96, 1), memory="64KiB"),
}
"""Where an open array is read."""
ENTRIES = JOBS | AT_ONCE


def moved(source: Path) -> None:
    """Give it another name."""
    source.rename(source.with_name("moved.zarr"))


def removed(source: Path) -> None:
    """Take it away."""
    shutil.rmtree(source)


def emptied(source: Path) -> None:
    """Take all chunks away, and leave what says that it is an array, or that arrays are there."""
    for entry in source.iterdir():
        if entry.name.startswith("rank-"):
            emptied(entry)
        elif entry.name[0] in "c0123456789":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def looped(source: Path) -> None:
    """Put a link to itself in its place: ELOOP."""
    removed(source)
    source.symlink_to(source)


def a_file(source: Path) -> None:
    """Put a file in its place: ENOTDIR."""
    removed(source)
    source.write_bytes(b"x")


def another(source: Path) -> None:
    """Put another array in its place, which is shorter, and of which nothing is stored."""
    removed(source)
    zarr.create_array(source, shape=(40, 80), chunks=(8, 80), dtype="f4", compressors=None)


FAULTS = (moved, emptied, removed, looped, a_file, another)
STORED: dict[str, How] = {
    "plain": {},
    "zstd": {"compressors": zarr.codecs.ZstdCodec()},
    "sharded": {"chunks": (8, 40), "shards": (16, 80), "compressors": zarr.codecs.ZstdCodec()},
    "through zarr": {"compressors": zarr.codecs.Crc32cCodec()},
    "format 2": {"zarr_format": 2},
    "flat keys": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
}
"""Kinds of chunks."""
