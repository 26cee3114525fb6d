"""User-facing meter: counts of reads and writes inside a ``with`` block.

with metered() as m:        m ◄── the meter of each a[key], a.read, a.write, slab, prefetch requested inside
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
"""Callback with an array file, its section along each axis, whether it is written, and seconds. A fifth argument, if
present, is the number of ranks served by one read."""
WATCHERS: list[Watcher] = []
"""Access hooks."""
_TOLD_ABOVE = ContextVar("told above", default=False)
Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")
Call = Callable[Concatenate[Any, Any, Rest], Answer]


def watched(*, writes: bool) -> Callable[[Call[Rest, Answer]], Call[Rest, Answer]]:
    """Report each call of a function of a file and a section to the access hooks."""

    def with_watch(function: Call[Rest, Answer]) -> Call[Rest, Answer]:
        @wraps(function)
        def called(file: Any, axes: Any, /, *args: Rest.args, **how: Rest.kwargs) -> Answer:
            if not WATCHERS or _TOLD_ABOVE.get():
                return function(file, axes, *args, **how)
            begun = time.perf_counter()
            answer = function(file, axes, *args, **how)
            for watcher in tuple(WATCHERS) if answer is not None else ():  # None: the function did not handle the call
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
    """Meter that forwards its counts to others."""

    def __init__(self, hearers: tuple[Meter, ...]) -> None:
        super().__init__()
        self._hearers = hearers

    def add(self, **counts: int) -> None:
        """Add to the named counters here and in all forwarded meters."""
        super().add(**counts)
        for meter in self._hearers:
            meter.add(**counts)


@contextmanager
def metered() -> Iterator[Meter]:
    """Count the requests and bytes of accesses to opened arrays inside a ``with`` block.

    Accesses of this thread count: ``a[key]``, ``a.read``, ``a.write``, ``a.slabs``, ``a.prefetch``, for local array
    files too. Jobs, lazy arrays and distributed arrays have their own ``.meter`` and are not counted here.

    Yields
    ------
    Meter
        ``read_requests``, ``read_bytes`` (as stored), ``decoded_bytes``, ``write_requests``, ``written_bytes`` and
        others. Blocks may be nested; each counts every access inside it.

    Examples
    --------
    >>> import numpy as np, oocarrays as ooc, zarr
    >>> z = zarr.create_array({}, data=np.arange(24.0).reshape(4, 6), chunks=(2, 6), compressors=None)
    >>> with ooc.advise.metered() as meter:
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
    """Return a meter of one access that forwards to the enclosing ``with`` blocks."""
    hearers = _HEARERS.get()
    return _Heard(hearers) if hearers else Meter()
