"""What a plan looks like from above, as rectangles: who has which part of each array, and in which order.

    source          target
    ┌──────────┐    ┌───┬───┬───┬┄┄    two axes are shown; along the others, what lies at index 0
    │ rank 0   │    │0:1│1:1│0:2│ ┊    rank:turn
    ├──────────┤    │   │   │   │ ┊
    │ rank 1   │    │   │   │   │ ┊    of a large plan the first units are shown
    └──────────┘    └───┴───┴───┴┄┄

An array that is read in two phases shows who reads its chunks; where ranks read for themselves, whose regions cross
them. Where chunks are assembled both show who reads what, and puts it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

from oocarrays.mapping.grid import ChunkGrid, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.plan.rechunk.plan import RechunkPlan

MOST_UNITS = 24
"""Units along an axis that are shown at most."""
MOST_BOXES = 1000
"""Rectangles of one array that are shown at most."""
MOST_READS = 64
"""Of an array that is read in two phases: its rectangles may be as thin as chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A part of an array that a rank has at one time."""

    lower: tuple[int, ...]
    """First element in each axis shown."""
    upper: tuple[int, ...]
    """One past the last element in each axis shown."""
    rank: int
    """Who has it."""
    turn: int
    """Its number among that rank's regions, or that of the partition that it belongs to, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One array of a plan."""

    name: str
    """What it is: source, scratch or target."""
    chunks: tuple[int, ...]
    """Chunk length in every axis, in elements."""
    grid: ChunkGrid
    """Its chunks, in the axes shown."""
    window: tuple[int, ...]
    """Elements shown of each axis, from the first."""
    boxes: tuple[Box, ...]
    """Who has which part, in the order of their units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A plan from above."""

    axes: tuple[int, ...]
    """The axes shown: two, or all where the array has fewer."""
    panels: tuple[Panel, ...]
    """Source, scratch, target."""
    notes: tuple[str, ...]
    """What is not shown."""


def view(plan: RechunkPlan) -> View:
    """A plan from above.

    Examples
    --------
    >>> from oocarrays.mapping.grid import Stored
    >>> from oocarrays.plan.memory import Resources
    >>> from oocarrays.plan.rechunk.plan import plan_rechunk
    >>> rows = Stored(grid=ChunkGrid.of((4, 6), (1, 6)), itemsize=4, local=True)
    >>> columns = Stored(grid=ChunkGrid.of((4, 6), (4, 3)), itemsize=4, local=True)
    >>> seen = view(plan_rechunk(rows, columns, Resources(budget=2**26, ranks=2), method="two-phase"))
    >>> [(box.lower, box.upper, box.rank) for box in seen.panels[1].boxes]
    [((0, 0), (4, 3), 0), ((0, 3), (4, 6), 1)]
    """
    axes = _axes(plan)
    panels = tuple(_panels(plan, axes))
    return View(axes=axes, panels=panels, notes=tuple(_notes(plan, axes, panels)))


def _axes(plan: RechunkPlan) -> tuple[int, ...]:
    """Two axes: that along which the source is cut more than the target, and of the others one that ranks share."""
    source, target = plan.source.grid.counts, plan.target.grid.counts
    order = sorted(range(len(target)), key=lambda a: -source[a] / max(target[a], 1))
    shared = {_shared(step) for step in plan.passes}
    others = sorted(order[1:], key=lambda a: (a not in shared, -target[a]))
    return tuple(sorted([*order[:1], *others[:1]]))


def _shared(step: Pass) -> int | None:
    """The axis along which neighbours are of different ranks."""
    if not step.alone:
        return step.split
    return max((a for a, n in enumerate(step.unit_counts) if n > 1), default=None)


def _panels(plan: RechunkPlan, axes: tuple[int, ...]) -> Iterator[Panel]:
    """The source as the first pass has it, and what each pass writes."""
    for number, step in enumerate(plan.passes):
        window = tuple(min(step.cut.shape[a], MOST_UNITS * step.unit[a] * step.cut.chunks[a]) for a in axes)
        written = tuple(islice(_written(step, axes, window), MOST_BOXES))
        if number == 0 and step.alone:
            yield _panel("source", step.source.grid, axes, written)
        elif number == 0:
            read = tuple(islice(_read(step, axes, window), MOST_READS))
            yield _panel("source", step.source.grid, axes, read)
        name = "target" if step is plan.passes[-1] else f"scratch {number + 1}"
        yield _panel(name, step.target.grid, axes, written)


def _panel(name: str, grid: ChunkGrid, axes: tuple[int, ...], boxes: tuple[Box, ...]) -> Panel:
    """An array as far as there are boxes."""
    seen = ChunkGrid(tuple(grid.shape[a] for a in axes), tuple(grid.chunks[a] for a in axes))
    window = tuple(max(ends) for ends in zip(*(box.upper for box in boxes), strict=True))
    return Panel(name=name, chunks=grid.chunks, grid=seen, window=window, boxes=boxes)


def _units(step: Pass, axes: tuple[int, ...], window: tuple[int, ...]) -> Iterator[int]:
    """The units that are in sight."""
    counts = step.unit_counts
    lengths = [1] * len(counts)
    for a, most in zip(axes, window, strict=True):
        lengths[a] = min(counts[a], ceil_div(most, step.unit[a] * step.cut.chunks[a]))
    for index in product(*map(range, lengths)):
        number = 0
        for i, n in zip(index, counts, strict=True):
            number = number * n + i
        yield number


def _written(step: Pass, axes: tuple[int, ...], window: tuple[int, ...]) -> Iterator[Box]:
    """The regions, or the ranks' shares of the partitions."""
    for unit in _units(step, axes, window):
        if step.alone:
            yield _box(step.cut, step.chunk_box(unit), axes, unit % step.ranks, unit // step.ranks + 1)
            continue
        for rank in range(step.ranks):
            share = step.share(unit, rank)
            if share is not None:
                yield _box(step.target.grid, share, axes, rank, unit + 1)


def _read(step: Pass, axes: tuple[int, ...], window: tuple[int, ...]) -> Iterator[Box]:
    """The chunks that ranks read for the partitions."""
    others = [a for a in range(len(step.source.grid.shape)) if a not in axes]
    for unit in _units(step, axes, window):
        for turn, rank in product(range(step.rounds(unit)), range(step.ranks)):
            for first, last in step.read_boxes(unit, turn, rank):
                if not any(first[a] for a in others):
                    yield _box(step.source.grid, (first, last), axes, rank, unit + 1)


def _box(grid: ChunkGrid, chunks: ChunkBox, axes: tuple[int, ...], rank: int, turn: int) -> Box:
    section: Section = grid.block(*chunks)
    lower, upper = (tuple(side[a] for a in axes) for side in (section.lower, section.upper))
    return Box(lower=lower, upper=upper, rank=rank, turn=turn)


def _notes(plan: RechunkPlan, axes: tuple[int, ...], panels: tuple[Panel, ...]) -> Iterator[str]:
    """Say what is left out, and how much of it there is."""
    shape = plan.target.grid.shape
    counts = plan.passes[-1].unit_counts if plan.passes else ()
    others = [a for a in range(len(counts)) if a not in axes]
    if others:
        parts = {a: f", in {counts[a]} parts" if counts[a] > 1 else "" for a in others}
        hidden = ", ".join(f"axis {a} ({shape[a]} long{parts[a]})" for a in others)
        yield f"seen at index 0 of {hidden}"
    for panel in panels:
        cut = [f"{w} of {shape[a]} along axis {a}" for a, w in zip(axes, panel.window, strict=True) if w < shape[a]]
        if cut:
            yield f"{panel.name} thinned: the first {', '.join(cut)}"
