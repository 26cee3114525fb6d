"""Boxes of whole chunks: how an expert cuts an array so that a piece fits in memory."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

Box = tuple[slice, ...]


def edges(shape: tuple[int, ...], chunks: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Edges of the largest box of whole chunks with at most `elements`, grown from the last axis.

    Boxes are evened out: box = chunk × ⌈chunks along the axis / ⌈chunks along the axis / chunks that fit⌉⌉.
    """
    box = [min(chunk, extent) for chunk, extent in zip(chunks, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        along = -(-shape[axis] // chunks[axis])
        fitting = min(along, max(1, elements // prod(box)))
        even = -(-along // -(-along // fitting))
        box[axis] = min(shape[axis], chunks[axis] * even)
    return tuple(box)


def boxes(shape: tuple[int, ...], box: tuple[int, ...]) -> list[Box]:
    """Sections with edges `box`, in C order, that cover `shape` once."""
    starts = product(*(range(0, extent, edge) for extent, edge in zip(shape, box, strict=True)))
    return [tuple(slice(s, min(s + e, n)) for s, e, n in zip(start, box, shape, strict=True)) for start in starts]


def within(box: Box, chunks: tuple[int, ...]) -> list[Box]:
    """Return the parts of `box` cut at every chunk boundary, in C order: each lies in one chunk."""
    cuts = []
    for part, chunk in zip(box, chunks, strict=True):
        marks = [part.start, *range((part.start // chunk + 1) * chunk, part.stop, chunk), part.stop]
        cuts.append([slice(low, high) for low, high in pairwise(marks)])
    return list(product(*cuts))


def inside(part: Box, box: Box) -> Box:
    """`part` in the coordinates of `box`: part − box's lower corner."""
    return tuple(slice(p.start - b.start, p.stop - b.start) for p, b in zip(part, box, strict=True))
