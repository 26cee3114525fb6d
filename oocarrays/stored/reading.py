"""Reading a section of the array that a person holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from oocarrays.errors import SelectionError
from oocarrays.graphs import settings
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.missing import warn_of_missing
from oocarrays.mapping.casting import misfit
from oocarrays.mapping.given import chosen
from oocarrays.mapping.selection import Selection, lengths
from oocarrays.plan.sections.batches import READ_BUFFER_BYTES
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.sieve import METHODS, Method
from oocarrays.storage.files.array_file import ArrayFile, describe
from oocarrays.storage.meter import Meter
from oocarrays.storage.metered import new_meter
from oocarrays.storage.sections.read import read_section, section_plan
from oocarrays.storage.sections.runs import RunReader, read_runs
from oocarrays.storage.watched import WATCHERS


def read(
    array: zarr.Array | ArrayFile,
    taken: Selection,
    *,
    method: Method = "auto",
    out: np.ndarray | None = None,
    meter: Meter | None = None,
) -> Any:
    """Read the selected elements of an array; see `oocarrays.OutOfCoreArray.read`."""
    file, meter = array if isinstance(array, ArrayFile) else describe(array), meter or new_meter()
    read_as = _read_into(file, taken, method, out, meter)
    warn_of_missing(meter, file.presence.name)
    return read_as


def read_small(reader: RunReader, key: Any) -> Any:
    """Read a section as ``a[key]``, where it is one run of each of a few chunks; None of any other."""
    if WATCHERS:
        return None
    meter = new_meter()
    found = reader.read(key if type(key) is tuple else (key,), meter)
    if found is None:
        return None
    warn_of_missing(meter, reader.file.presence.name)
    return found[()]


def _read_into(file: ArrayFile, taken: Selection, method: Method, out: np.ndarray | None, meter: Meter) -> Any:
    chosen(method, "method", METHODS)
    found = read_runs(file, taken.axes, meter) if out is None else None
    if found is not None:
        return taken.arranged(found)[()]
    ways, threads = _ways(file), settings.local_cores()
    if out is None:
        return taken.arranged(read_section(file, taken.axes, meter=meter, method=method, threads=threads, **ways))[()]
    if not isinstance(out, np.ndarray):
        raise SelectionError(f"out is of type {type(out).__name__}: it takes a numpy array of shape {taken.shape}")
    if out.shape != taken.shape:
        raise SelectionError(f"out has shape {out.shape}; what is read has {taken.shape}")
    plain = all(isinstance(stands, slice) and stands == slice(None) for stands in taken.order)
    straight = plain and taken.shape == lengths(taken.axes) and np.can_cast(file.dtype, out.dtype, "safe")
    if straight:
        return read_section(file, taken.axes, out, meter=meter, method=method, threads=threads, **ways)
    found = taken.arranged(read_section(file, taken.axes, meter=meter, method=method, threads=threads, **ways))
    unfit = misfit(found, out.dtype)
    if unfit is not None:
        raise SelectionError(f"{unfit} does not fit out= of dtype {out.dtype}: make it of dtype {file.dtype}")
    out[...] = found
    return out


def plan(array: zarr.Array, taken: Selection, *, method: Method = "auto") -> SectionPlan:
    """Return how `read` reads it: nothing is read."""
    file = describe(array)
    return section_plan(file, taken.axes, method=method, **_ways(file))


def _ways(file: ArrayFile) -> dict[str, Any]:
    """Return the settings for reading sections."""
    nbytes, default = setting("sieve-buffer"), READ_BUFFER_BYTES if file.stored.local else None
    return {
        "buffer_bytes": default if nbytes is None else settings.size_in_bytes(nbytes, "sieve-buffer"),
        "requests": setting("requests") if file.stored.remote else 16,
        "costs": settings.set_costs(),
    }
