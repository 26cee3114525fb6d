"""Writing a section of the array that a person holds: what numpy's assignment does, on what is stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocarrays.errors import SelectionError
from oocarrays.graphs import settings
from oocarrays.graphs.defaults import setting
from oocarrays.mapping.casting import lost_value
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection
from oocarrays.plan.sections.write import SectionWritePlan, WriteMethod
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.metered import new_meter
from oocarrays.storage.sections.write import check_writable, write_section
from oocarrays.storage.stores.zipped import settled


def write(
    file: ArrayFile,
    section: Any,
    values: Any,
    *,
    method: WriteMethod = "auto",
    memory: int | float | str | None = None,
) -> SectionWritePlan:
    """Write values to a section of an array described as written; see `oocarrays.OutOfCoreArray.write`."""
    check_writable(file)
    taken = selection_of(section, file.stored.grid.shape)
    buffer_bytes = None if memory is None else settings.size_in_bytes(memory, "memory")
    requests = setting("requests") if file.stored.remote else settings.local_cores()
    data = taken.spread(cast(values, file.dtype))
    try:
        return write_section(
            file, taken.axes, data, meter=new_meter(), method=method, buffer_bytes=buffer_bytes, requests=requests
        )
    finally:
        settled(file.zarr.store_path.store)


def selection_of(section: Any, shape: tuple[int, ...]) -> Selection:
    """Return the selection that an index, or a `Section`, makes of an array of some shape.

    Examples
    --------
    >>> selection_of(Section((2,), (9,)), (8,))
    Traceback (most recent call last):
    oocarrays.errors.SelectionError: Section(lower=(2,), upper=(9,)) is no section of an array of shape (8,)
    """
    if isinstance(section, Selection):
        return section
    if not isinstance(section, Section):
        return Selection.of(section, shape)
    fits = len(section.upper) == len(shape) and all(
        lower >= 0 and upper <= n for lower, upper, n in zip(section.lower, section.upper, shape, strict=True)
    )
    if not fits:
        raise SelectionError(f"{section} is no section of an array of shape {shape}")
    return Selection.of_section(section)


def cast(values: Any, dtype: np.dtype) -> np.ndarray:
    """Values to be assigned to elements of a type; those of an array of another type are cast when they are written.

    Examples
    --------
    >>> cast(300, np.dtype("u1"))
    Traceback (most recent call last):
    oocarrays.errors.SelectionError: the value 300 (int64) cannot be stored as uint8: give values that fit, or cast ...
    """
    try:
        given = np.asarray(values)
        lost = lost_value(given, dtype)
        if lost is None:
            numeric = given.dtype.kind in "biufcmM" and np.can_cast(given.dtype, dtype, "unsafe")
            return given if numeric else np.asarray(values, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise SelectionError(f"values of type {type(values).__name__} cannot be stored as {dtype}: {error}") from error
    advice = f"give values that fit, or cast them with astype('{dtype}')"
    raise SelectionError(f"the value {lost} ({given.dtype}) cannot be stored as {dtype}: {advice}")
