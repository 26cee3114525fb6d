"""Schedules and collective reads as text: the thesis's table, the load of the busiest link, predicted seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice, product, zip_longest

import numpy as np
from dask.utils import format_bytes

from oocarrays.errors import ChunksError, LayoutError, in_number
from oocarrays.graphs.settings import size_in_bytes
from oocarrays.mapping.given import element_type
from oocarrays.mapping.layouts.layout import LayoutLike, layout_for
from oocarrays.plan.collective.read import CollectivePlan
from oocarrays.plan.exchange.network import Network, busiest
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.prediction import Constants, step_seconds
from oocarrays.plan.exchange.schedule import Schedule, Step
from oocarrays.plan.plan import Alternative
from oocarrays.plan.sections.requests import RequestCounts, requests_of
from oocarrays.show import report
from oocarrays.show.report import LINE_WIDTH, memory_text, seconds_text, table

ChunkLike = int | str | Sequence[int]
"""Elements of a stripe, its size as ``"128KiB"``, or the lengths of chunks along each axis."""


def count_requests(
    shape: Sequence[int],
    layout: LayoutLike,
    *,
    orientation: str | Sequence[int] = "row",
    chunk: ChunkLike | None = None,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    dtype: np.typing.DTypeLike = "float32",
) -> RequestCounts:
    """Count the requests when every rank of a layout reads its own part of a file directly. Reads nothing.

    Parameters
    ----------
    shape : sequence of int
        Extent of each axis of the array, in elements.
    layout : Layout, str, Distribution or sequence of them
        The layout of the array over ranks, as `distribute` takes it.
    orientation : "row", "column" or sequence of int
        Storage order of the file, or of each of its chunks: a sequence names the axes from the slowest to the fastest.
    chunk : int, str or sequence of int
        Unit that cuts the file, and every run with it. One number is a stripe in elements (S_stripe), a text such as
        ``"128KiB"`` one in bytes; a sequence has the lengths of chunks, as of a Zarr array. By default the file is not
        cut.
    ranks, grid : int, sequence of int
        Ranks in all, or along each axis, as `Layout.of` takes them.
    dtype : numpy.dtype
        Type of the elements; only needed for a stripe in bytes.

    Returns
    -------
    RequestCounts
        With ``distribution_requests`` (R_dist), ``distribution_elements`` (S_dist), ``transaction_requests`` (R_trans)
        and ``rank_requests``.

    Raises
    ------
    LayoutError, ChunksError
        If layout or chunk do not fit the array.

    Notes
    -----
    del Rosario, Bordawekar and Choudhary 1993, Table 1 and equation (1).

    Examples
    --------
    The paper's example: 4 processors, a file of 1 MB by columns, column blocks, stripes of 128 K.

    >>> found = count_requests((1024, 1024), "(*, block)", ranks=4, orientation="column", chunk="128KiB", dtype="u1")
    >>> found.distribution_requests, found.distribution_elements, found.transaction_requests
    (4, 262144, 8)
    """
    laid = layout_for(shape, layout, ranks=ranks, grid=grid, about=1)
    itemsize = element_type(dtype, error=LayoutError).itemsize
    return requests_of(laid, orientation=orientation, chunk=_elements(chunk, itemsize))


def _elements(chunk: ChunkLike | None, itemsize: int) -> int | Sequence[int] | None:
    if not isinstance(chunk, str):
        return chunk
    nbytes = size_in_bytes(chunk, "chunk")
    if nbytes % itemsize:
        raise ChunksError(f"chunk={chunk!r}: {nbytes} bytes are not a whole number of elements of {itemsize} bytes")
    return nbytes // itemsize


def distributions_of(axes: int) -> list[str]:
    """Return all distributions of some axes by block or cyclically; the eight of Table 1 for two axes."""
    if axes > 6:
        raise LayoutError(f"{axes} axes can be distributed in 3**{axes} ways: pass one layout")
    every = product(("block", "cyclic", "*"), repeat=axes)
    return [f"({', '.join(each)})" for each in every if set(each) != {"*"}]


def requests_table(counts: Sequence[RequestCounts]) -> str:
    """Return R_dist, S_dist and R_trans of some layouts, one a line."""
    head = ("layout", "R_dist", "S_dist", "R_trans", "of a rank, at most")
    rows = []
    for each in counts:
        numbers = each.distribution_requests, each.distribution_elements, each.transaction_requests
        rows.append((str(each.layout), *map(str, numbers), str(max(each.rank_requests))))
    return report.table([head, *rows])


def parsed_chunk(text: str) -> ChunkLike:
    lengths = re.split("[x×,]", text)
    if not all(length.strip().isdigit() for length in lengths):
        return text
    return tuple(map(int, lengths)) if len(lengths) > 1 else int(text)


ACROSS = 8
"""Maximum number of steps side by side; more are listed one below the other."""
MOST_STEPS = 64
"""Maximum number of steps of a schedule in a notebook."""


Pairs = tuple[list[str], int]
"""Pairs of ranks in a step as the thesis prints them, all or at least as many as fit a line, and their number."""


def pair_texts(step: Step, most: int | None = None) -> Pairs:
    """Return the pairs of a step as the thesis prints them, or the first ``most``, and their total number."""
    sources = step.senders
    targets = step.destinations[sources]
    both = step.destinations[targets] == sources
    shown = ~both | (sources < targets)
    rows = zip(*(column[shown][:most].tolist() for column in (sources, targets, both)), strict=True)
    return [f"{source} {'↔' if back else '→'} {to}" for source, to, back in rows], int(shown.sum())


def schedule_text(
    schedule: Schedule,
    *,
    network: Network | None = None,
    nbytes: int | None = None,
    constants: Sequence[Constants] = (),
) -> str:
    """Return a schedule as a table: the thesis's, with a few steps side by side, or many one below the other."""
    exchange, most = Exchange.of(schedule, nbytes or 1), None if len(schedule) <= ACROSS else LINE_WIDTH
    pairs, messages, links, took = [], 0, [], []
    for turn in exchange:
        senders = turn.step.senders
        pairs.append(pair_texts(turn.step, most))
        messages += len(senders)
        if network is not None:
            links.append(busiest(network, senders, turn.step.destinations[senders]))
            took.append(step_seconds(turn, network, constants) if nbytes and constants else 0.0)
    mesh = f" on {schedule.ranks // schedule.columns} × {schedule.columns}" if schedule.columns > 1 else ""
    said = f"{schedule.name}{mesh}: {schedule.ranks} ranks, {len(pairs)} steps, {messages} messages"
    facts, summary = {}, [in_number(said)]
    if nbytes and schedule.forwards:
        summary.append(f"a rank holds {format_bytes(exchange.buffer_bytes)} more, of what it sends on")
    if network is not None:
        facts["busiest link"] = [f"{link:g}" for link in links]
    if network is not None and nbytes:
        facts["predicted"] = list(map(seconds_text, took))
        summary.append(f"predicted {seconds_text(sum(took))}")
    lines = _across([texts for texts, _ in pairs], facts) if len(pairs) <= ACROSS else None
    if lines is None or max(map(len, lines), default=0) > LINE_WIDTH:
        lines = _below(pairs, facts)
    return "\n".join([*lines, *[""][: len(lines)], *summary])


def schedule_rows(schedule: Schedule) -> list[tuple[str, str]]:
    """Return the messages of the first steps, a row for each."""
    steps = [pair_texts(step, LINE_WIDTH) for step in islice(schedule, MOST_STEPS)]
    rows = [(f"Step {number}", _cut(step, LINE_WIDTH)) for number, step in enumerate(steps, 1)]
    return rows + ([("…", f"{len(schedule) - len(steps)} more")] if len(steps) < len(schedule) else [])


def _across(pairs: Sequence[Sequence[str]], facts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return steps side by side, as the thesis prints them, with the facts of each below."""
    if not pairs:
        return []
    rows = [tuple(f"Step {number}" for number in range(1, len(pairs) + 1)), *zip_longest(*pairs, fillvalue="")]
    if not facts:
        return table(rows).splitlines()
    blank = ("",) * (len(pairs) + 1)
    return table([*(("", *row) for row in rows), blank, *((name, *said) for name, said in facts.items())]).splitlines()


def _below(steps: Sequence[Pairs], facts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a step a line, cut to the width."""
    numbers = map(str, range(1, len(steps) + 1))
    first, *others = table([("Step", *facts), *zip(numbers, *facts.values(), strict=True)]).splitlines()
    width = max(map(len, [first, *others])) + 2
    return [
        first,
        *(f"{text:{width}}{_cut(step, LINE_WIDTH - width)}" for text, step in zip(others, steps, strict=True)),
    ]


def _cut(pairs: Pairs, width: int) -> str:
    """Return the pairs that fit a line, and the number of the others."""
    texts, many = pairs
    whole = "  ".join(texts)
    if len(texts) == many and len(whole) <= width:
        return whole
    ends = np.cumsum([len(text) + 2 for text in texts])
    fit = max(int(np.searchsorted(ends, width - len(f" … {many} more") + 2, side="right")), 1)
    return f"{'  '.join(texts[:fit])} … {many - fit} more"


def collective_text(plan: CollectivePlan) -> str:
    """Return the compared read methods, cheapest first, and the memory of the chosen one."""
    head = (
        "method", "domains", "aggregators", "rounds", "requests", "read", "decoded", "messages", "held", "seconds",
    )  # fmt: skip
    return f"{table([head, *map(_collective_row, plan.alternatives)])}\n\n{memory_text(plan.memory)}"


def _collective_row(way: Alternative) -> tuple[str, ...]:
    traffic = way.traffic
    numbers = way.ranks, way.rounds, traffic.read_requests
    sizes = format_bytes(traffic.read_bytes), format_bytes(traffic.decoded_bytes)
    ends = str(traffic.messages), format_bytes(way.peak_bytes), f"{way.seconds:.3g}"
    return (f"{way.name}{' ◄' * way.taken}", way.domains or "–", *map(str, numbers), *sizes, *ends)
