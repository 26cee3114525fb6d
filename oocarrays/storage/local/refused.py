"""Errors of the system, as a person is told of them."""

from __future__ import annotations

import errno

from oocarrays.errors import DiskFullError, StoreFailure

FULL = (errno.ENOSPC, errno.EDQUOT)
"""There is no room: on the device, or in a person's share of it."""


def write_error(where: str, error: OSError) -> DiskFullError | StoreFailure:
    """Say of a write, or of a sync, that failed why it did."""
    if error.errno in FULL:
        return DiskFullError(f"no room left on the device for {where}: {error.strerror}")
    return StoreFailure(f"cannot write {where}: {error.strerror or error}")
