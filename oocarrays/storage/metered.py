"""A meter in a person's hands: what is read and written inside a ``with`` block, counted.

with metered() as m:        m ◄── the meter of each a[key], a.read, a.write, slab, prefetch asked for inside
    a[key]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from oocarrays.storage.meter import Meter

Watcher = Callable[..., None]
"""Takes an array file, what is taken along each axis, whether it is written, seconds, and the ranks that ask at one
time, where some read for others."""
WATCHERS: list[Watcher] = []
"""Who is told."""
JOB_WATCHERS: list[Callable[[Any], None]] = []
"""Who is told of jobs that have run: what they read and write by chunks is in their plans."""
_TOLD_ABOVE = ContextVar("told above", default=False)
Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")
Call = Callable[Concatenate[Any, Any, Rest], Answer]


def watched(*, writes: bool) -> Callable[[Call[Rest, Answer]], Call[Rest, Answer]]:
    """Let whoever watches be told of each call of a function that takes a file and a section of it."""

    def with_watch(function: Call[Rest, Answer]) -> Call[Rest, Answer]:
        @wraps(function)
        def called(file: Any, axes: Any, /, *args: Rest.args, **how: Rest.kwargs) -> Answer:
            if not WATCHERS or _TOLD_ABOVE.get():
                return function(file, axes, *args, **how)
            begun = time.perf_counter()
            answer = function(file, axes, *args, **how)
            for watcher in tuple(WATCHERS) if answer is not None else ():  # it leaves some calls to others
                watcher(file, axes, writes, time.perf_counter() - begun)
            return answer

        return called

    return with_watch


@contextmanager
def watched_for(file: Any, axes: Any, ranks: int) -> Iterator[None]:
    """Report this part to the access hooks; suppress reports for the reads made inside it."""
    begun, token = time.perf_counter(), _TOLD_ABOVE.set(True)
    try:
        yield
    finally:
        _TOLD_ABOVE.reset(token)
    for watcher in tuple(WATCHERS):
        watcher(file, axes, False, time.perf_counter() - begun, ranks)


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
