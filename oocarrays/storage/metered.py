"""A meter in a person's hands: what is read and written inside a ``with`` block, counted.

with metered() as m:        m ◄── the meter of each a[key], a.read, a.write, slab, prefetch asked for inside
    a[key]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from oocarrays.storage.meter import Meter

_HEARERS: ContextVar[tuple[Meter, ...]] = ContextVar("oocarrays meters", default=())


class _Heard(Meter):
    """A meter whose counts others hear as they come."""

    def __init__(self, hearers: tuple[Meter, ...]) -> None:
        super().__init__()
        self._hearers = hearers

    def add(self, **counts: int) -> None:
        """Add to the named counters, and to those of all who hear it."""
        super().add(**counts)
        for meter in self._hearers:
            meter.add(**counts)


@contextmanager
def metered() -> Iterator[Meter]:
    """Count what is read from and written to opened arrays inside a ``with`` block, in requests and bytes.

    It counts what this thread asks for: ``a[key]``, ``a.read``, ``a.write``, ``a.slabs``, ``a.prefetch``, of local
    array files too. Jobs, lazy and distributed arrays have a ``.meter`` of their own, and are not counted here.

    Yields
    ------
    Meter
        ``read_requests``, ``read_bytes`` (as stored), ``decoded_bytes``, ``write_requests``, ``written_bytes`` and
        others; blocks may lie one inside the other, and each counts all that is done in it.

    Examples
    --------
    >>> import numpy as np, oocarrays as ooc, zarr
    >>> z = zarr.create_array({}, data=np.arange(24.0).reshape(4, 6), chunks=(2, 6), compressors=None)
    >>> with ooc.metered() as meter:
    ...     row = ooc.open_array(z)[3]
    >>> meter.read_requests, meter.read_bytes
    (1, 48)
    """
    meter = Meter()
    token = _HEARERS.set((*_HEARERS.get(), meter))
    try:
        yield meter
    finally:
        _HEARERS.reset(token)


def new_meter() -> Meter:
    """A meter of one access, heard by those of the ``with`` blocks around it."""
    hearers = _HEARERS.get()
    return _Heard(hearers) if hearers else Meter()
