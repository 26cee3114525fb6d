"""Notebooks' views of arrays, plans and jobs: tables, and chunks as Dask draws them.

Every page has a bounded length, and is well-formed XML as well as HTML. It has no colours but those of the chunks, so
that it is legible on light and dark backgrounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from dask.utils import format_bytes

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.layouts.layout import Layout, block_lengths, is_blocks
from oocarrays.mapping.overlap import BlockLengths
from oocarrays.plan.plan import Plan
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.show.contents import ArrayFacts, chunks_text
from oocarrays.show.report import bytes_text, considered_rows, plan_rows, shape_text, shortened, verdict

MOST_MEMBERS = 12
"""Maximum number of members of a group with a folded page."""
MOST_LINES = 60
"""Maximum number of members of a group, or of alternatives of a plan, to list."""


def picture(grid: ChunkGrid, blocks: BlockLengths | None = None) -> str:
    """Return the chunks of an array, or its blocks, as an SVG image; empty if the array is."""
    if not grid.shape or 0 in grid.shape:
        return ""
    from dask.array.svg import svg

    most = 24 if len(grid.shape) <= 3 else 8  # Dask draws as many lines at this size
    chunks = (_pieces(n, c, most) for n, c in zip(grid.shape, grid.chunks, strict=True))
    lengths = tuple(chunks if blocks is None else (_merged(axis, most) for axis in blocks))
    drawn: str = svg(lengths, size=120)
    lines = (line.strip() for line in drawn.splitlines() if line.strip() and "<!--" not in line)
    ink = "stroke:currentColor;fill:currentColor;max-width:none"
    label = escape(f"{shape_text(grid.shape)} in chunks of {shape_text(grid.chunks)}")
    return (
        "\n".join(lines)
        .replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
        .replace("stroke:rgb(0,0,0)", ink)
        .replace("<text ", '<text stroke="none" ')
    )


def _pieces(extent: int, chunk: int, most: int) -> tuple[int, ...]:
    """Return the lengths to draw along an axis: its chunks, or, of many, several merged."""
    length = chunk * ceil_div(ceil_div(extent, chunk), most)
    return tuple(min(length, extent - start) for start in range(0, extent, length))


def _merged(lengths: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return block lengths, with several merged if they are too many."""
    together = ceil_div(len(lengths), most)
    return tuple(sum(lengths[i : i + together]) for i in range(0, len(lengths), together))


def array_html(array: ArrayFacts) -> str:
    """Return an array: a table of facts, a picture of its chunks beside it, and its attributes folded."""
    grids = [ChunkGrid(array.shape, piece) for piece in (array.chunks, array.shards) if piece is not None]
    names = array.dimension_names
    rows = [
        *_size_rows(array.nbytes, array.itemsize, array.shape, grids),
        *([("Dimensions", ", ".join(map(str, names)))] if names else []),
        ("Data type", shortened(array.dtype, quoted=False)),
        ("Codecs", ", ".join(array.codecs) or "none"),
        ("Fill value", shortened(array.fill_value, quoted=False)),
    ]
    body = _table(rows, head=("", "Array", "Chunk", *(["Shard"] if array.shards else [])))
    image = picture(ChunkGrid(array.shape, array.chunks)) if array.chunks is not None else ""
    return (
        f"<div><div><strong>oocarrays.OutOfCoreArray</strong> {escape(array.store)}</div>"
        f"{_beside(body, image)}{_attributes(array.attributes)}</div>"
    )


def _size_rows(
    nbytes: int, itemsize: int, shape: Sequence[int], grids: Sequence[ChunkGrid], count: int | None = None
) -> list[tuple[str, ...]]:
    """Return the size of an array beside those of its chunks and shards, or of its blocks."""
    counts = [grid.count for grid in grids] if count is None else [count]
    return [
        ("Bytes", bytes_text(nbytes), *(format_bytes(grid.chunk_size * itemsize) for grid in grids)),
        ("Shape", shape_text(shape), *([shape_text(grid.chunks) for grid in grids] or ["of unequal length"])),
        ("Count", "", *map(str, counts)),
    ]


def _attributes(attributes: Mapping[str, Any]) -> str:
    if not attributes:
        return ""
    shown = list(attributes.items())[:24]
    rows = [(shortened(name, quoted=False), shortened(value)) for name, value in shown]
    more = len(attributes) - len(shown)
    return _folded(f"Attributes ({len(attributes)})", _table(rows + ([("…", f"{more} more")] if more else [])))


def plan_html(
    plan: RechunkPlan,
    *,
    title: str = "oocarrays.RechunkPlan",
    places: Sequence[str] = ("", ""),
    measured: Sequence[tuple[str, ...]] = (),
) -> str:
    """Return a plan: source beside target, the plan below, and every strategy considered, folded."""
    source, target = (
        _side(*each) for each in zip(("Source", "Target"), places, (plan.source, plan.target), strict=True)
    )
    done = f"<strong>Plan</strong>{_table(plan_rows(plan))}"
    folded = _folded("Strategies considered", _table(considered_rows(plan.alternatives))) if plan.alternatives else ""
    return (
        f"<div><div><strong>{escape(title)}</strong></div>{_beside(source, '→', target)}"
        f"{_beside(done, _last_run(measured))}{folded}</div>"
    )


def lazy_html(
    blocks: BlockLengths,
    target: Stored,
    rows: Sequence[tuple[str, ...]],
    *,
    title: str,
    places: Sequence[str],
    measured: Sequence[tuple[str, ...]] = (),
) -> str:
    """Return the planned write of a lazy array: its blocks beside the target's chunks, and the plan below."""
    shape, count = target.grid.shape, math.prod(map(len, blocks))
    longest = ChunkGrid(shape, tuple(max((*axis, 1)) for axis in blocks))
    text = _size_rows(target.nbytes, target.itemsize, shape, [longest], count)
    what = f"<strong>Source</strong> {escape(places[0])}{_table(text, head=('', 'Array', 'Longest block'))}"
    source = _beside(what, picture(longest, blocks))
    above = _beside(source, "→", _side("Target", places[1], target))
    return rows_html(rows, title=title, above=above, measured=measured)


def facts_html(plan: Plan) -> str:
    """Return any plan of a job: its facts, and the alternatives, folded."""
    alternatives = getattr(plan, "alternatives", ())[:MOST_LINES]
    others = _folded("Strategies considered", _table(considered_rows(alternatives))) if alternatives else ""
    return rows_html(plan_rows(plan), title=f"oocarrays.{type(plan).__name__}", below=others)


def layout_html(layout: Layout) -> str:
    """Return a layout: a picture of its blocks, if it has some, and the elements that ranks hold."""
    lengths = [[axis.size(rank) for rank in range(axis.ranks)] for axis in layout.axes]
    least, most = (math.prod(map(which, lengths)) for which in (min, max))
    rows = [
        ("Layout", str(layout)),
        ("Shape", shape_text(layout.shape)),
        ("Ranks", f"{layout.ranks}, on a grid of {shape_text(layout.grid)}"),
        ("Elements of a rank", f"{least} to {most}" if least < most else f"{most}"),
    ]
    return rows_html(rows, title="oocarrays.Layout", above=layout_picture(layout))


def layout_picture(layout: Layout) -> str:
    """Return the blocks of a layout as an SVG image; empty for other layouts."""
    if not is_blocks(layout) or 0 in layout.shape:
        return ""
    blocks = block_lengths(layout)
    return picture(ChunkGrid.of(layout.shape, tuple(map(max, blocks))), blocks)


def rows_html(
    rows: Sequence[tuple[str, ...]],
    *,
    title: str,
    above: str = "",
    below: str = "",
    measured: Sequence[tuple[str, ...]] = (),
) -> str:
    """Return a table with a title, parts above and below it, and the measurements of the last run beside it."""
    table = _table(rows) if rows else ""
    both = _beside(f"<strong>Plan</strong>{table}", _last_run(measured)) if measured else table
    return f"<div><div><strong>{escape(title)}</strong></div>{above}{both}{below}</div>"


def _last_run(measured: Sequence[tuple[str, ...]]) -> str:
    return f"<strong>Last run</strong>: {escape(verdict(measured))}{_table(measured)}" if measured else ""


def group_html(title: str, members: Mapping[str, ArrayFacts], attributes: Mapping[str, Any]) -> str:
    """Return a group as xarray shows a dataset: its dimensions, a folded line for each array, its attributes.

    Of many arrays, only the first have folded pages; more are listed, a line each.
    """
    lines = [
        _unfolded_line(name, member, array_html(member) if place < MOST_MEMBERS else "")
        for place, (name, member) in enumerate(list(members.items())[:MOST_LINES])
    ]
    more = len(members) - len(lines)
    body = "".join(lines) + (f"<div>… {more} more</div>" if more > 0 else "")
    sizes = _dimensions(members.values())
    named = f"<div>Dimensions: {escape(', '.join(f'{name}: {size}' for name, size in sizes))}</div>" if sizes else ""
    arrays = f'<details open=""><summary>Arrays ({len(members)})</summary>{body}</details>' if members else ""
    return f"<div><div><strong>{escape(title)}</strong></div>{named}{arrays}{_attributes(attributes)}</div>"


def _dimensions(members: Iterable[ArrayFacts]) -> list[tuple[str, int]]:
    """Return the names of axes on which all arrays agree, with their lengths."""
    lengths: dict[str, set[int]] = {}
    for member in members:
        for name, extent in zip(member.dimension_names or (), member.shape, strict=False):
            if name is not None:
                lengths.setdefault(str(name), set()).add(extent)
    return [(name, max(found)) for name, found in lengths.items() if len(found) == 1][:MOST_LINES]


def _unfolded_line(name: str, member: ArrayFacts, page: str) -> str:
    """Return name, axes, type, shape, chunks and bytes of an array, with its page folded below, if any."""
    axes = ", ".join("–" if axis is None else str(axis) for axis in member.dimension_names or ())
    cells = (
        (name, 8),
        (f"({axes})" if axes else "", 9),
        (shortened(member.dtype, quoted=False), 5),
        (f"{shape_text(member.shape)} in chunks of {chunks_text(member)}", 20),
        (bytes_text(member.nbytes), 5),
    )
    style = "display:inline-block;vertical-align:top;padding-right:1em;min-width:"
    line = "".join(f'<span style="{style}{width}em">{escape(text)}</span>' for text, width in cells)
    indent = ' style="margin-left:1.5em"'
    if not page:
        return f"<div{indent}>{line}</div>"
    return f"<details{indent}><summary>{line}</summary>{page}</details>"


def members_html(members: Sequence[tuple[str, RechunkPlan]]) -> str:
    """Return the plans of a group's members by name, each with its page folded; of many, the first."""
    pages = "".join(_folded(name, plan_html(member)) for name, member in members[:MOST_MEMBERS])
    more = len(members) - MOST_MEMBERS
    return pages + (f"<div>… {more} more</div>" if more > 0 else "")


def _side(word: str, place: str, stored: Stored) -> str:
    """Return source or target, with a picture of its chunks."""
    shape, shards = stored.grid.shape, stored.shard_chunks is not None
    grids = [ChunkGrid(shape, stored.shard_chunks or stored.grid.chunks), *([stored.grid] if shards else [])]
    rows = [*_size_rows(stored.nbytes, stored.itemsize, shape, grids), ("Codec", stored.codec or "none")]
    table = _table(rows, head=("", "Array", "Chunk", *(["Shard"] if shards else [])))
    return _beside(f"<strong>{word}</strong> {escape(place)}{table}", picture(grids[0]))


def _table(rows: Iterable[tuple[str, ...]], *, head: tuple[str, ...] = ()) -> str:
    """Return a table with escaped cells; the last cell of a short row spans the remaining columns."""
    rows = list(rows)
    width = max(map(len, [head, *rows]))
    style = ' style="white-space:nowrap"' if head else ""
    top = f"<thead>{_row(head, 'th', width)}</thead>" if head else ""
    return f"<table{style}>{top}<tbody>{''.join(_row(row, 'td', width) for row in rows)}</tbody></table>"


def _beside(*parts: str) -> str:
    """Return parts of a page side by side, one below the other if the page is narrow; without empty ones."""
    cells = "".join(f'<div style="text-align:left;overflow-wrap:anywhere">{part}</div>' for part in parts if part)
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 1em">{cells}</div>'


def _row(cells: tuple[str, ...], tag: str, width: int) -> str:
    spans = [""] * (len(cells) - 1) + [f' colspan="{width - len(cells) + 1}"' if width > len(cells) else ""]
    each = zip(cells, spans, strict=True)
    row = "".join(f'<{tag} style="text-align:left;padding:0 .5em"{wide}>{escape(text)}</{tag}>' for text, wide in each)
    return f"<tr>{row}</tr>"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
