"""Packed arrays, of which what is stored is not what is meant: CF's scale, offset and fill."""

from __future__ import annotations

import warnings

import zarr

from oocarrays.storage.files.places import location

PACKING = ("scale_factor", "add_offset", "_Unsigned")
"""Attributes by which xarray and others decode what is stored."""


def warn_of_packed(array: zarr.Array) -> None:
    """Warn whoever gives a kernel for an array whose elements stand for others: it is given what is stored.

    >>> warn_of_packed(zarr.create_array({}, shape=(3,), dtype="i2", attributes={"units": "K"}))
    """
    said = {name: array.attrs[name] for name in PACKING if name in array.attrs}
    if said:
        words = ", ".join(f"{name}={value!r}" for name, value in said.items())
        warnings.warn(
            f"{location(array)} is packed ({words}): the kernel is given its {array.dtype} elements as they are stored",
            UserWarning,
            stacklevel=4,
        )
