from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise, product
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping import overlap
from oocarrays.mapping.along import product_line
from oocarrays.mapping.grid import ceil_div, chunks_along
from oocarrays.mapping.overlap import axis_overlap, touched_by_region

pytestmark = pytest.mark.once


def pieces(extent: int, chunk: int, region: int) -> list[tuple[int, int, int]]:
    """Brute force: (region, chunk, elements in common)."""
    table = []
    for r in range(ceil_div(extent, region)):
        for c in range(ceil_div(extent, chunk)):
            common = len(
                set(range(r * region, min((r + 1) * region, extent)))
                & set(range(c * chunk, min((c + 1) * chunk, extent)))
            )
            if common:
                table.append((r, c, common))
    return table


axes = st.tuples(st.integers(0, 60), st.integers(1, 15), st.integers(1, 15))


@given(axes, st.integers(1, 8), st.sampled_from([1, 2, overlap.LISTED]))
def test_one_axis_is_the_brute_force_table(axis: tuple[int, int, int], tile: int, listed: int) -> None:
    extent, chunk, region = axis
    table = pieces(*axis)
    with patch.object(overlap, "LISTED", listed):  # so that also few cuts are counted by the tiles that they leave
        counted = axis_overlap.__wrapped__(extent, chunk, region, tile)
    assert counted.pieces == len(table)
    whole = sum(ceil_div(n, tile) for *_, n in table if n == chunk)
    assert counted.line[:3] == (extent, whole + sum(ceil_div(n, tile) for *_, n in table if n < chunk), whole)
    assert counted.touched == Counter(Counter(r for r, *_ in table).values())


def requests_of(piece: tuple[int, ...], chunks: tuple[int, ...], tile: tuple[int, ...]) -> int:
    """Brute force: contiguous runs of a piece, tile by tile, from the offsets of its elements in the chunk."""
    requests = 0
    for corner in product(*(range(0, n, t) for n, t in zip(piece, tile, strict=True))):
        ranges = [range(l, min(l + t, n)) for l, t, n in zip(corner, tile, piece, strict=True)]
        offsets = []
        for index in product(*ranges):
            place = 0
            for i, c in zip(index, chunks, strict=True):
                place = place * c + i
            offsets.append(place)
        requests += 1 + sum(b != a + 1 for a, b in pairwise(offsets))
    return requests


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 6)), max_size=3), st.integers(1, 30))
def test_requests_are_the_runs_counted_element_by_element(shape: list[tuple[int, int, int]], limit: int) -> None:
    chunks = tuple(c for _, c, _ in shape)
    tile = chunks_along(range(len(shape)), [min(c, r) for _, c, r in shape], limit)
    counted = [axis_overlap(n, c, r, t) for (n, c, r), t in zip(shape, tile, strict=True)]
    table = product(*(pieces(*axis) for axis in shape))
    every = list(table)
    runs = product_line([axis.line for axis in counted]).runs
    assert runs == sum(_merged(tuple(n for *_, n in piece), chunks, tile) for piece in every)
    assert math.prod(axis.pieces for axis in counted) == len(every)
    assert sum(n * times for n, times in touched_by_region(counted).items()) == len(every)


def _merged(piece: tuple[int, ...], chunks: tuple[int, ...], tile: tuple[int, ...]) -> int:
    """Runs as we make them: a reader looks no further than the axes that the piece spans, so runs that touch by
    chance (a single element of an axis of one) are two requests only where tiles part them."""
    axis = max((a for a in range(len(piece)) if piece[a] < chunks[a]), default=0)
    before = math.prod(piece[:axis])
    runs = before * math.prod(ceil_div(n, t) for n, t in zip(piece[axis:], tile[axis:], strict=True))
    assert runs >= requests_of(piece, chunks, tile)
    return runs


@given(st.lists(st.integers(0, 40), max_size=4), st.integers(1, 8), st.integers(1, 2000))
def test_a_tile_fits_and_is_contiguous(piece: list[int], itemsize: int, limit: int) -> None:
    tile = chunks_along(range(len(piece)), piece, limit // itemsize)
    assert all(1 <= t <= max(n, 1) for t, n in zip(tile, piece, strict=True))
    assert math.prod(tile) * itemsize <= max(limit, itemsize)
    cut = [axis for axis, (t, n) in enumerate(zip(tile, piece, strict=True)) if t < n]
    assert all(tile[axis] == 1 for axis in range(cut[-1] if cut else 0) if piece[axis])
