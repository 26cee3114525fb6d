"""Hypothesis strategies for arrays, chunks and stored arrays: odd extents, empty ones, chunks past the end."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from oocarrays.ranks import Schedule
from tests.seams import FORWARDING, ChunkGrid, Resources, Stored, ascending, schedules

MIB = 2**20


def shapes(max_axes: int = 4, most: int = 20_000) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of no axes to ``max_axes``, with extents from 0."""
    axis = st.one_of(st.integers(0, 3), st.integers(0, 40))
    return st.lists(axis, max_size=max_axes).map(tuple).filter(lambda shape: math.prod(shape) <= most)


@st.composite
def chunks_for(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Chunks of any length, some longer than the axis."""
    return tuple(draw(st.integers(1, n + 2)) for n in shape)


def cut(lengths: tuple[int, ...], shape: tuple[int, ...], whole: int | tuple[int, ...] = 1) -> tuple[int, ...]:
    """Lengths as a target has them: no more of ``whole`` than it takes, but along axes that are empty."""
    each = (whole,) * len(shape) if isinstance(whole, int) else whole
    return tuple(min(c, -(-n // w) * w) if n else c for c, n, w in zip(lengths, shape, each, strict=True))


@st.composite
def grids(draw: st.DrawFn, max_axes: int = 3) -> ChunkGrid:
    """A grid of chunks over a shape."""
    shape = draw(shapes(max_axes))
    return ChunkGrid.of(shape, draw(chunks_for(shape)))


def stored(grid: ChunkGrid, *, itemsize: int = 4, coded: bool = False) -> Stored:
    """A local array, plain or coded, with the workspace that a compressor of one chunk needs."""
    workspace = grid.chunk_size * itemsize + 2**16 if coded else 0
    return Stored(
        grid=grid,
        itemsize=itemsize,
        codec="zstd" if coded else None,
        local=True,
        decode_workspace=workspace,
        encode_workspace=2 * workspace,
    )


def taking(ranks: int, *, direct: bool = False) -> list[str]:
    """The names of the schedules that take so many ranks."""
    return [schedule.name for schedule in schedules(ranks) if not (direct and schedule.forwards)]


@st.composite
def orders(draw: st.DrawFn, ranks: int, *, direct: bool = False) -> Schedule:
    """Any schedule for so many ranks, on any mesh."""
    name = draw(st.sampled_from(taking(ranks, direct=direct)))
    meshes = [2**bit for bit in range(ranks.bit_length())] if name in FORWARDING else [None]
    return Schedule.of(name, ranks, columns=draw(st.sampled_from(meshes)))


@st.composite
def taken(draw: st.DrawFn, extent: int) -> range | np.ndarray:
    """What is taken along one axis: a range, or any indices, ascending."""
    if draw(st.booleans()):
        lower = draw(st.integers(0, extent))
        return ascending(range(lower, draw(st.integers(lower, extent)), draw(st.integers(1, 5))))
    return np.array(sorted(draw(st.sets(st.integers(0, extent - 1)))) if extent else [], np.int64)


def requests_of(shape: tuple[int, ...], max_ranks: int = 5) -> st.SearchStrategy[list[tuple[range | np.ndarray, ...]]]:
    """What each of a few ranks takes of an array: common, overlapping, distinct, nothing."""
    some = st.tuples(*map(taken, shape))
    whole = st.just(tuple(map(range, shape)))
    return st.lists(st.one_of(some, some, whole), max_size=max_ranks)


def apart(options: dict) -> tuple[Resources, dict]:
    """The resources among some options of a planner, and the other options."""
    names = {each.name for each in dataclasses.fields(Resources)} & options.keys()
    return Resources(**{name: options[name] for name in names}), {k: v for k, v in options.items() if k not in names}


@st.composite
def lengths(draw: st.DrawFn, extent: int) -> tuple[int, ...]:
    """Blocks of any lengths that add up."""
    cuts = draw(st.lists(st.integers(0, extent), max_size=4))
    edges = [0, *sorted(cuts), extent]
    return tuple(b - a for a, b in pairwise(edges) if b > a) or (0,)
