"""Sections of ranks as a journal keeps them: a layout, or one index a rank, in plain values.

np.s_[::2, [5, 0], None]   ─►   [{"slice": [0, 24, 2]}, [5, 0], None]
"(block, *)" on 2 ranks    ─►   {"distribution": ["block", "*"], "ranks": [2, 1]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oocarrays.errors import JournalError, OocError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.selection import Selection


def kept_sections(layout: Layout | None, selections: Sequence[Selection]) -> Any:
    """Write down what each rank has: the parts of a layout, or else selections."""
    if layout is not None:
        return {"distribution": list(map(str, layout.distributions)), "ranks": list(layout.grid)}
    return [list(map(_kept, each.key)) for each in selections]


def _kept(entry: Any) -> Any:
    return {"slice": [entry.start, entry.stop, entry.step]} if isinstance(entry, slice) else entry


def sections_again(kept: Any, shape: Sequence[int]) -> Any:
    """Return the same as `write_sections` takes them.

    >>> key = (slice(0, 4, 2), [5, 0], None)
    >>> sections_again(kept_sections(None, [Selection.of(key, (4, 6))]), (4, 6)) == [key]
    True
    >>> print(sections_again(kept_sections(Layout.of((4, 6), "(block, *)", ranks=2), []), (4, 6)))
    (block, *) on 2 × 1
    """
    try:
        if isinstance(kept, dict):
            return Layout.of(tuple(shape), list(kept["distribution"]), grid=kept["ranks"])
        return [tuple(map(_again, each)) for each in kept]
    except (OocError, KeyError, TypeError, ValueError):
        raise JournalError(f"the journal keeps sections {kept!r}, which are none of an array of {shape}") from None


def _again(entry: Any) -> Any:
    return slice(*entry["slice"]) if isinstance(entry, dict) else entry
