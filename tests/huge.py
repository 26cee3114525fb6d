"""A process of little memory and processor time that plans with huge arrays, and tells what is said of them."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import dask.array  # noqa: F401  what is loaded needs room, too
import distributed  # noqa: F401
import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import OocError

LONG = ((10**15,), (1000,))
SQUARE = ((2**31, 2**31), (2**12, 2**12))
MANY = ((2**63 - 1,) * 20, (1,) * 20)
HOURLY = ((262800, 721, 1440), (24, 721, 1440))
SECONDS = 60
"""Processor time for all."""


def cases(folder: Path) -> dict[str, Callable[[], object]]:
    """What is tried, by its name."""

    def path(of: tuple[tuple[int, ...], tuple[int, ...]]) -> Path:
        place = folder / f"{abs(hash(of))}.zarr"
        if not place.exists():
            zarr.create_array(place, shape=of[0], chunks=of[1], dtype="f4", compressors=None)
        return place

    def array(of: tuple[tuple[int, ...], tuple[int, ...]]) -> ooc.OutOfCoreArray:
        return ooc.open_array(path(of), mode="r+")

    def scatter(of: tuple[tuple[int, ...], tuple[int, ...]], layout: str) -> object:
        job = ooc.ranks.scatter_files(path(of), layout, folder / "files", ranks=4, scheduler="threads", memory="2GiB")
        return len(job.plan.rounds), job.plan.traffic.copied_bytes, bool(job.explain())

    def shift() -> object:
        local = folder / "local"
        ooc.create_array(
            local, shape=LONG[0], dtype="f4", chunks=1000, layout="block", ranks=4, placement="local", depth=1
        )
        opened = ooc.open_array(local, mode="r+")
        return ooc.ranks.shift(opened, scheduler="threads", memory="2GiB").plan.borders(1)[0].shape

    def gather() -> object:
        return ooc.ranks.gather_files(folder / "local", folder / "whole.zarr", scheduler="threads")

    def rows() -> object:
        rows = [np.broadcast_to(np.float32(1), (1, 2**31))] * 2
        return ooc.ranks.write_sections(array(SQUARE), [np.s_[5:6], np.s_[7:8]], rows, scheduler="threads")

    def strided() -> object:
        return ooc.ranks.read_sections(array(LONG), [np.s_[:: 10**6]], scheduler="threads")

    def laid_out() -> object:
        return ooc.ranks.read_sections(array(SQUARE), "(block, block)", ranks=4, scheduler="threads", memory="2GiB")

    def partition() -> object:
        return next(
            iter(ooc.ranks.partitions(array(LONG), "block", ranks=2, memory="64MiB", scheduler="threads"))
        ).shape

    def rechunk() -> object:
        return ooc.rechunk(path(MANY), folder / "no.zarr", chunks=(2,) * 20, scheduler="threads")

    def auto() -> object:
        return ooc.rechunk(path(LONG), folder / "no.zarr", chunks="auto", scheduler="threads").plan.target.grid.chunks

    return {
        "lazy": array(LONG).to_dask,
        "lazy square": array(SQUARE).to_dask,
        "scatter": lambda: scatter(LONG, "block"),
        "scatter square": lambda: scatter(SQUARE, "(block, block)"),
        "scatter hourly": lambda: scatter(HOURLY, "(*, block, block)"),
        "shift": shift,
        "gather": gather,
        "write rows": rows,
        "read strided": strided,
        "read all": laid_out,
        "partition": partition,
        "everything": lambda: array(LONG)[...],
        "element": lambda: float(array(LONG)[10**14]),
        "rechunk": rechunk,
        "auto": auto,
        "info": lambda: main(["info", str(path(MANY))]),
        "dry run": lambda: main(["rechunk", str(path(LONG)), str(folder / "no.zarr"), "--chunks", "999", "--dry-run"]),
    }


def told(folder: str) -> dict[str, str]:
    """What is said of each case, in little memory and processor time."""
    said = {}
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30,) * 2)
    for name, call in cases(Path(folder)).items():
        try:
            said[name] = repr(call())
        except OocError as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said
