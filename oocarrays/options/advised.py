"""Ways of reading that are taken because somebody has advised them: in a ``with`` block, of whoever asks for "auto"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token

import zarr

from oocarrays.mapping.selection import Axes

Advising = Callable[[zarr.Array, Sequence[Axes]], str]
"""The method in which sections of an array are read, one for each rank; "auto" where nothing is advised."""
_ADVISING: ContextVar[Advising | None] = ContextVar("oocarrays-advising", default=None)


def begin(advising: Advising) -> Token[Advising | None]:
    """Ask this for advice from now on."""
    return _ADVISING.set(advising)


def end(token: Token[Advising | None]) -> None:
    """Ask again whom one asked before."""
    _ADVISING.reset(token)


def method_for(asked: str, array: zarr.Array, requests: Sequence[Axes]) -> str:
    """Return the method that is asked for; where it is "auto", the one that is advised, which may be "auto" too."""
    advising = _ADVISING.get()
    is_auto = isinstance(asked, str) and asked == "auto"
    return advising(array, requests) if is_auto and advising is not None else asked
