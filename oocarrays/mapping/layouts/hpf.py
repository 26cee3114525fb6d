"""Distributions and layouts as HPF text: ``cyclic(3)``, ``(block, *)``, ``(block, cyclic) on 2 × 2``.

The text of a layout can be parsed back into the layout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import index

from oocarrays.errors import LayoutError
from oocarrays.mapping.layouts.distribution import Block, Collapsed, Cyclic, Distribution, GenBlock

Asked = str | Distribution | Sequence["str | Distribution | Sequence[int]"]
"""Distributions as given by a user: a sequence of integers is a `GenBlock`."""

EXAMPLES = "'block', 'cyclic(3)', 'gen_block(2,5)' and '*'"


def written(distributions: Sequence[Distribution], grid: Sequence[int] = ()) -> str:
    return f"({', '.join(map(str, distributions))})" + (f" on {' × '.join(map(str, grid))}" if grid else "")


def parse_layout(asked: Asked) -> tuple[tuple[Distribution, ...], tuple[int, ...] | None]:
    """Return the distributions, and the grid if a text states one."""
    named = (
        re.fullmatch(r"(.*)\son\s+(\d+(?:\s*[x×]\s*\d+)*)\s*", asked, re.I | re.S) if isinstance(asked, str) else None
    )
    if named is None:
        return parse_distributions(asked), None
    return parse_distributions(named[1]), tuple(map(int, re.split("[x×]", named[2], flags=re.I)))


def parse_distributions(asked: Asked) -> tuple[Distribution, ...]:
    if isinstance(asked, str):
        inner = asked.strip()
        inner = inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner
        words = re.split(r",(?![^()]*\))", inner) if inner.strip() else []
        return tuple(_parse(word, asked) for word in words)
    return tuple(map(_distribution, asked if isinstance(asked, Sequence) else (asked,)))


def _distribution(asked: str | Distribution | Sequence[int]) -> Distribution:
    if isinstance(asked, str):
        return _parse(asked, asked)
    if isinstance(asked, Distribution) and not isinstance(asked, GenBlock):
        return asked
    try:
        return GenBlock(tuple(map(index, asked.sizes if isinstance(asked, GenBlock) else asked)))
    except TypeError:
        raise LayoutError(f"{asked!r} is not a distribution such as {EXAMPLES}") from None


def _parse(word: str, whole: str) -> Distribution:
    text = re.fullmatch(r"(block|cyclic|gen_block|\*)(?:\s*\(\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\))?", word.strip().lower())
    numbers = tuple(map(int, text[2].split(","))) if text and text[2] else ()
    match text and text[1], len(numbers):
        case "*", 0:
            return Collapsed()
        case "block", 0 | 1:
            return Block(*numbers)
        case "cyclic", 0 | 1:
            return Cyclic(*numbers)
        case "gen_block", count if count:
            return GenBlock(numbers)
    where = "" if word == whole else f" in {whole!r}"
    raise LayoutError(f"{word.strip()!r}{where} is not a distribution such as {EXAMPLES}")
