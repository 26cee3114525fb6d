"""Sections of array files that are asked for, told to whoever watches: nobody does, but while a run is traced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

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
    """Let whoever watches be told of each call of a function that takes a file and a section of it.

    >>> told = []
    >>> WATCHERS.append(lambda file, axes, writes, seconds: told.append((file, axes, writes)))
    >>> watched(writes=False)(lambda file, axes: "data")("file", (range(3),))
    'data'
    >>> WATCHERS.clear()
    >>> told
    [('file', (range(0, 3),), False)]
    """

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
    """Let whoever watches be told of a part that a rank wants, and not of what is read meanwhile, for whomever that is."""
    begun, token = time.perf_counter(), _TOLD_ABOVE.set(True)
    try:
        yield
    finally:
        _TOLD_ABOVE.reset(token)
    for watcher in tuple(WATCHERS):
        watcher(file, axes, False, time.perf_counter() - begun, ranks)
