"""Redistributions drawn with matplotlib: messages by step, load of links, and seconds of each step.

    ┌ messages ─────┐   ┌ links ────────┐   ┌ each step ────┐
    │ source        │   │ 0 ━━ 1 ── 2   │   │ busiest link  │    a row for each transfer
    │  × target     │   │ ┃    │    │   │   ├───────────────┤
    │ by step       │   │ 3 ── 4 ── 5   │   │ seconds       │
    └───────────────┘   └───────────────┘   └───────────────┘

Steps have the same colours in both; nothing here touches pyplot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from dask.utils import format_bytes
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from oocarrays.errors import in_number
from oocarrays.mapping.grid import ceil_div
from oocarrays.options.networks import network_text
from oocarrays.plan.exchange.network import FatTree, FlatCluster, Mesh, Network
from oocarrays.plan.exchange.schedule import IDLE
from oocarrays.plan.exchange.trace import ExchangeTrace, arrivals
from oocarrays.plan.layouts.redistribution import Redistribution
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.show.pictures.plans import COLORS, Drawing
from oocarrays.show.redistributions import NOTHING, Outlook
from oocarrays.show.report import seconds_text

KEPT = "#DDDDDD"
"""Colour of data that stays with its rank."""
MOST_NUMBERS = 16
"""Maximum number of ranks for step numbers in messages."""
MOST_CELLS = 64
"""Maximum number of ranks for borders around messages; more are an image."""


def draw_plan(plan: Redistribution, *, network: Network | str | None = None, schedule: str | None = None) -> Figure:
    """Return a figure of a plan, as `draw`: by its schedule, or by the one of least predicted time."""
    return draw(Outlook.of(plan, network, schedule))


def draw(outlook: Outlook) -> Figure:
    """Return a figure of the cheapest priced schedule."""
    plan = outlook.plan
    rows = len(plan.transfers) if outlook.priced else 0
    figure = Drawing(figsize=(14, 4.7 * rows + 0.6), dpi=120, layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)  # type: ignore[union-attr, call-arg]
    figure.suptitle("\n".join(_title(outlook)), fontsize=11, x=0.01, ha="left")
    if not outlook.priced:
        return figure
    parts = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    chosen = outlook.priced[0]
    for part, transfer, trace in zip(parts, plan.transfers, chosen.traces, strict=True):
        grid = part.add_gridspec(2, 3, width_ratios=[1.15, 1.15, 1.0])
        colors = step_colors(len(trace.numbers))
        _draw_messages(part.add_subplot(grid[:, 0]), transfer, trace, colors)
        _draw_links(part.add_subplot(grid[:, 1]), outlook.network, trace)
        shared = part.add_subplot(grid[0, 2])
        _draw_shared(shared, trace)
        _draw_seconds(part.add_subplot(grid[1, 2], sharex=shared), trace, colors)
    return figure


def _title(outlook: Outlook) -> list[str]:
    plan = outlook.plan
    what = f"{plan.source} → {plan.target}"
    if not outlook.priced:
        return [what, NOTHING]
    chosen = outlook.priced[0]
    return [
        what,
        in_number(
            f"{plan.method} by {chosen.name} on {network_text(outlook.network)} · {chosen.messages} messages in "
            f"{chosen.steps} steps · {seconds_text(chosen.seconds)} predicted"
        ),
    ]


def step_colors(steps: int) -> Colormap:
    """Return a colour for each step: of many, from dark to light."""
    if steps < len(COLORS):  # the most distinct ones, without the grey
        return ListedColormap(list(COLORS[: max(steps, 1)]))
    return ListedColormap(colormaps["viridis"](np.linspace(0, 1, steps)))


def _draw_messages(axes: Axes, transfer: Transfer, trace: ExchangeTrace, colors: Colormap) -> None:
    """Draw source × target: the step in which each message arrives."""
    sizes = transfer.sizes()
    sources, targets = sizes.shape
    steps, rides = (each[:sources, :targets] for each in arrivals(trace.exchange.schedule))
    order = np.searchsorted(trace.numbers, steps)
    sent = (sizes > 0) & (steps != IDLE)
    ranks = max(sources, targets)
    each = ceil_div(ranks, 512)
    shown = _thinned(np.where(sent, order, IDLE), each)
    bottom, right = (length * each - 0.5 for length in shown.shape)
    norm, extent = Normalize(-0.5, len(trace.numbers) - 0.5), (-0.5, right, bottom, -0.5)
    sent_only = np.ma.masked_equal(shown, IDLE)
    axes.imshow(sent_only, extent=extent, cmap=colors, norm=norm, interpolation="none", zorder=1)
    kept = [Rectangle((rank - 0.5, rank - 0.5), 1, 1) for rank in np.flatnonzero(np.diagonal(sizes))]
    axes.add_collection(PatchCollection(kept, facecolor=KEPT, edgecolor="none"))
    forwarded = sent & (rides > 1)
    if ranks <= MOST_CELLS:
        axes.set_xticks(np.arange(targets + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(sources + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=min(16 / ranks, 1.5))
        axes.tick_params(which="minor", length=0)
        across = 220 / max(ranks, 4) * (0.62 if ranks <= MOST_NUMBERS else 0.3)
        source, target = np.nonzero(forwarded)  # numbers are written over the dots
        axes.scatter(target, source, s=across**2, marker="o", facecolor="white", edgecolor="none", zorder=3)
    if ranks <= MOST_NUMBERS:
        _number_cells(axes, order, sent, forwarded, colors)
    moved = int(trace.exchange.sizes.sum() - np.trace(trace.exchange.sizes))
    pairs = int(np.count_nonzero(sizes) - np.count_nonzero(np.diagonal(sizes)))
    thinned = f"; a point is {each} × {each} ranks, their last step" if each > 1 else ""
    axes.set_title(
        f"messages, by the step in which they arrive\n{pairs} pairs of ranks, {format_bytes(moved)}{thinned}",
        fontsize=10,
    )
    axes.set_xlabel(f"to rank, {transfer.target}", fontsize=9)
    axes.set_ylabel(f"from rank, {transfer.source}", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.tick_params(labelsize=8)
    axes.set_anchor("N")
    _draw_legend(axes, bool(forwarded.any()), ranks, int(forwarded.sum()))


def _thinned(steps: np.ndarray, each: int) -> np.ndarray:
    """Return the last step of every ``each`` × ``each`` ranks, so that no message is lost between points."""
    rows, columns = (ceil_div(length, each) for length in steps.shape)
    padding = ((0, rows * each - steps.shape[0]), (0, columns * each - steps.shape[1]))
    padded = np.pad(steps, padding, constant_values=IDLE)
    return padded.reshape(rows, each, columns, each).max(axis=(1, 3))


def _number_cells(axes: Axes, order: np.ndarray, sent: np.ndarray, forwarded: np.ndarray, colors: Colormap) -> None:
    """Write the number of its step in each cell, in a readable colour."""
    for source, target in zip(*np.nonzero(sent), strict=True):
        step = int(order[source, target])
        red, green, blue, _ = colors(step)
        dark = not forwarded[source, target] and 0.299 * red + 0.587 * green + 0.114 * blue < 0.45
        ink, size = ("white" if dark else "black"), min(9, 90 / max(sent.shape))
        axes.text(target, source, str(step + 1), ha="center", va="center", fontsize=size, color=ink, zorder=4)


def _draw_legend(axes: Axes, is_forwarded: bool, ranks: int, pairs: int) -> None:
    """Explain the grey squares, and the dots."""
    handles: list[Patch | Line2D] = [Patch(facecolor=KEPT, label="stays with its rank")]
    if is_forwarded:
        dot = {"marker": "o", "markerfacecolor": "white", "markeredgecolor": "black", "linestyle": "none"}
        none = {"linestyle": "none"}
        is_marked = ranks <= MOST_CELLS
        label = "rides through other ranks" if is_marked else f"{pairs} pairs' data rides through other ranks"
        handles.append(Line2D([], [], label=label, **(dot if is_marked else none)))  # type: ignore[arg-type]
    _put_legend_below(axes, handles)


def _put_legend_below(axes: Axes, handles: Sequence[Patch | Line2D] | None = None) -> None:
    """Put the legend below the label of the axis, at any height of the picture."""
    known = axes.get_legend_handles_labels()[0] if handles is None else handles
    below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 4.4}
    axes.legend(handles=known, fontsize=8, frameon=False, ncols=3, **below)


def _draw_links(axes: Axes, network: Network, trace: ExchangeTrace) -> None:
    """Draw the bytes that each link carries, all steps together."""
    axes.set_title(
        f"bytes on each link, all steps together\nthe busiest: {format_bytes(int(trace.link_bytes.max(initial=0)))}",
        fontsize=10,
    )
    match network:
        case Mesh():
            _draw_mesh(axes, network, trace.link_bytes)
        case FatTree():
            _draw_tree(axes, network, trace.link_bytes)
        case FlatCluster():
            _draw_ways(axes, network, trace.link_bytes)
        case _:
            _draw_bars(axes, [("link", trace.link_bytes)], "bytes")


def _draw_mesh(axes: Axes, mesh: Mesh, loads: np.ndarray) -> None:
    """Draw links side by side in both directions, wider and darker for a higher load."""
    links = list(_mesh_links(mesh, loads))
    carried = np.array([load for _, load in links])
    most = max(float(carried.max(initial=0)), 1.0)
    wide = 200 / max(mesh.rows, mesh.columns, 4)
    lines = LineCollection(
        [ends for ends, _ in links],
        array=carried,
        cmap=colormaps["cividis_r"],
        norm=Normalize(0, most),
        linewidths=wide * (0.02 + 0.1 * carried / most),
        capstyle="butt",
    )
    axes.add_collection(lines)
    names = mesh.ranks <= 64
    rank = np.arange(mesh.ranks)
    row, column = divmod(rank, mesh.columns)
    across = wide * (0.5 if names else 0.25)
    axes.scatter(column, row, s=across**2, facecolor="white", edgecolor="#555555", linewidth=0.6, zorder=3)
    for number in rank if names else []:
        place = column[number], row[number]
        axes.text(*place, str(number), ha="center", va="center", fontsize=min(wide * 0.22, 9), zorder=4)
    axes.set(xlim=(-0.6, mesh.columns - 0.4), ylim=(mesh.rows - 0.4, -0.6), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_anchor("N")
    thick = 0.032 * max(mesh.rows, mesh.columns) / mesh.rows
    below = axes.inset_axes((0.1, -0.2 / mesh.rows - 1.4 * thick, 0.8, thick))
    bar = axes.figure.colorbar(lines, cax=below, orientation="horizontal")
    _tick_bytes(bar.ax.xaxis, most)
    bar.ax.tick_params(labelsize=8)
    bar.set_label("each way of a link on its right-hand side, as on a road", fontsize=8)


def _mesh_links(mesh: Mesh, loads: np.ndarray) -> Iterator[tuple[list[tuple[float, float]], float]]:
    """Yield the ends and the load of every link: right, left, down, up, as the mesh counts them."""
    apart = 0.11
    right, left, down, up = loads.reshape(4, mesh.ranks)
    for row in range(mesh.rows):
        for column in range(mesh.columns - 1):
            at = row * mesh.columns + column
            yield [(column, row + apart), (column + 1, row + apart)], right[at]
            yield [(column + 1, row - apart), (column, row - apart)], left[at]
    for column in range(mesh.columns):
        for row in range(mesh.rows - 1):
            at = column * mesh.rows + row
            yield [(column - apart, row), (column - apart, row + 1)], down[at]
            yield [(column + apart, row + 1), (column + apart, row)], up[at]


def _draw_tree(axes: Axes, tree: FatTree, loads: np.ndarray) -> None:
    """Draw the busiest link of each level, up and down."""
    nodes = [-(-tree.ranks // 4**level) for level in range(len(tree.links)) for _ in range(2)]
    most = np.array([part.max(initial=0) for part in np.split(loads, np.cumsum(nodes)[:-1])])
    levels = [f"{'rank' if level == 0 else f'level {level}'},\n{links} links" for level, links in enumerate(tree.links)]
    _draw_bars(axes, [("up", most[::2]), ("down", most[1::2])], "bytes on the busiest link of a level")
    axes.set_xticks(range(len(levels)), levels, fontsize=8)


def _draw_ways(axes: Axes, cluster: FlatCluster, loads: np.ndarray) -> None:
    """Draw the bytes that leave and reach each rank, and its host's work if the network counts it."""
    leaves, comes, works = np.split(loads, [cluster.ranks, 2 * cluster.ranks])
    _draw_bars(axes, [("out", leaves), ("in", comes)], "bytes")
    axes.set_xlabel("rank's way", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    if works.size:
        ranks = np.arange(cluster.ranks)
        axes.hlines(works[list(cluster.hosts)], ranks - 0.5, ranks + 0.5, color=COLORS[5], label="a lane of its host")
        axes.set_ylim(0, float(loads.max()) * 1.05)
        _tick_bytes(axes.yaxis, float(loads.max()))
        _put_legend_below(axes)


def _draw_bars(axes: Axes, sides: list[tuple[str, np.ndarray]], what: str) -> None:
    """Draw bars side by side; many become lines."""
    for number, (label, carried) in enumerate(sides):
        color, places = (COLORS[4], COLORS[0])[number], np.arange(len(carried))
        if len(carried) <= MOST_CELLS:
            axes.bar(places + (number - 0.5) * 0.4, carried, 0.38, color=color, label=label)
        else:
            axes.step(places, carried, where="mid", color=color, label=label, linewidth=0.8)
    axes.set_ylabel(what, fontsize=9)
    _plain(axes)
    _tick_bytes(axes.yaxis, max(float(carried.max()) for _, carried in sides))
    _put_legend_below(axes)


def _draw_shared(axes: Axes, trace: ExchangeTrace) -> None:
    """Draw the number of messages that share the busiest link of each step."""
    places = np.arange(len(trace.numbers) + 1) + 0.5
    axes.stairs(trace.shared, places, baseline=None, color=COLORS[5], linewidth=1.6)
    axes.fill_between(places, np.append(trace.shared, trace.shared[-1:]), step="post", color=COLORS[5], alpha=0.15)
    axes.set_title("each step in which something is sent", fontsize=10)
    axes.set_ylabel("messages that share\nthe busiest link", fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=trace.shared.max(initial=0) > 1))
    _plain(axes)
    axes.tick_params(labelbottom=False)


def _draw_seconds(axes: Axes, trace: ExchangeTrace, colors: Colormap) -> None:
    steps = np.arange(len(trace.numbers))
    gap = 0.1 if len(steps) <= MOST_CELLS else 0.0
    axes.bar(steps + 1, trace.seconds, 1 - gap, color=[colors(int(step)) for step in steps])
    axes.set_ylabel("predicted time\nof the step", fontsize=9)
    axes.set_xlabel(f"step, of {len(trace.numbers)}; {seconds_text(float(trace.seconds.sum()))} together", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(seconds_text(value)) if value else "0"))
    axes.set_xlim(0.5, len(steps) + 0.5)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _tick_bytes(axis: Axis, most: float) -> None:
    """Set about five ticks, at multiples of a power of two."""
    axis.set_major_locator(MultipleLocator(2.0 ** max(math.ceil(math.log2(max(most, 1) / 5)), 0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(format_bytes(round(value))) if value else "0"))


def _short(text: str) -> str:
    """Return a number and its unit, without trailing zeros."""
    number, unit = text.split()
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"
