"""Sections of array files that are asked for, told to whoever watches: nobody does, but while a run is traced."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Watcher = Callable[[Any, Any, bool, float], None]
"""Takes an array file, what is taken along each axis, whether it is written, and seconds."""
WATCHERS: list[Watcher] = []
"""Who is told."""
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
            if not WATCHERS:
                return function(file, axes, *args, **how)
            begun = time.perf_counter()
            answer = function(file, axes, *args, **how)
            for watcher in tuple(WATCHERS) if answer is not None else ():  # it leaves some calls to others
                watcher(file, axes, writes, time.perf_counter() - begun)
            return answer

        return called

    return with_watch
