"""Schedules as a person reads them: the thesis's table, the load of the busiest link, predicted seconds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np
from dask.utils import format_bytes

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange import Exchange, Turn
from oocarrays.plan.network import FatTree, FlatCluster, Mesh, Network, busiest
from oocarrays.plan.prediction import Constants, step_seconds
from oocarrays.plan.schedule import Schedule, Step
from oocarrays.report import LINE_WIDTH, seconds_text, table

ACROSS = 8
"""Steps that stand side by side at most; more stand one below the other."""
NETWORKS = "mesh:4x8, fat-tree, flat, or flat:2x4 for 4 ranks on each of 2 hosts"


def parsed_network(text: str, ranks: int) -> Network:
    """A network for so many ranks, as a person writes it.

    >>> parsed_network("mesh:4x8", 32)
    Mesh(rows=4, columns=8)
    """
    kind, _, shape = text.partition(":")
    found = re.fullmatch(r"(\d+)x(\d+)", shape)
    lengths = tuple(map(int, found.groups())) if found else ()
    takes = {"mesh": bool(found), "fat-tree": not shape, "flat": bool(found) or not shape}
    if not takes.get(kind):
        raise ScheduleError(f"network={text!r} is unknown; there are {NETWORKS}")
    if lengths and math.prod(lengths) != ranks:
        raise ScheduleError(f"network={text!r} has {math.prod(lengths)} places, not one for each of {ranks} ranks")
    if kind == "mesh":
        return Mesh(rows=lengths[0], columns=lengths[1])
    if kind == "fat-tree":
        return FatTree(ranks=ranks)
    return FlatCluster.of(*[lengths[1]] * lengths[0]) if lengths else FlatCluster.of(*[1] * ranks)


def pair_texts(step: Step) -> list[str]:
    """Each message, or two ranks that exchange, as the thesis prints them.

    >>> pair_texts(Schedule.of("pex", 4).step(0)), pair_texts(Schedule.of("gen", 3).step(0))
    (['0 ↔ 1', '2 ↔ 3'], ['0 → 1', '1 → 2', '2 → 0'])
    """
    pairs = set(step.pairs)
    return [
        f"{source} {'↔' if (to, source) in pairs else '→'} {to}"
        for source, to in step.pairs
        if source < to or (to, source) not in pairs
    ]


def schedule_json(schedule: Schedule) -> list[list[list[int]]]:
    """Steps, each a list of [source, destination].

    >>> schedule_json(Schedule.of("rex", 2))
    [[[0, 1], [1, 0]]]
    """
    return [[list(pair) for pair in step.pairs] for step in schedule]


def schedule_text(
    schedule: Schedule,
    *,
    network: Network | None = None,
    nbytes: int | None = None,
    constants: Sequence[Constants] = (),
) -> str:
    """A schedule as a table: the thesis's, with steps side by side, or one below the other where they are many.

    Parameters
    ----------
    network : Network
        Where given, the load of the busiest link is shown with each step.
    nbytes : int
        Bytes that every pair exchanges; with a network, predicted seconds are shown with each step, and of all.
    """
    exchange = Exchange.of(schedule, nbytes or 1)
    turns = list(exchange)
    facts, summary = {}, [_summary(schedule, turns)]
    if nbytes and schedule.forwards:
        summary.append(f"a rank holds {format_bytes(exchange.buffer_bytes)} more, of what it sends on")
    if network is not None:
        facts["busiest link"] = [f"{_busiest(turn, network):g}" for turn in turns]
        if nbytes:
            seconds = [step_seconds(turn, network, constants) for turn in turns]
            facts["predicted"] = list(map(seconds_text, seconds))
            summary.append(f"predicted {seconds_text(sum(seconds))}")
    lines = _steps([pair_texts(turn.step) for turn in turns], facts)
    return "\n".join([*lines, *[""][: len(lines)], *summary])


def _summary(schedule: Schedule, turns: Sequence[Turn]) -> str:
    """A schedule in a line."""
    mesh = f" on {schedule.ranks // schedule.columns} × {schedule.columns}" if schedule.columns > 1 else ""
    messages = sum(len(turn.step.senders) for turn in turns)
    return f"{schedule.name}{mesh}: {schedule.ranks} ranks, {len(turns)} steps, {messages} messages"


def _busiest(turn: Turn, network: Network) -> float:
    """Messages on the busiest link of a step."""
    senders = turn.step.senders
    return busiest(network, senders, turn.step.destinations[senders])


def _steps(pairs: Sequence[Sequence[str]], facts: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of a table of steps: side by side where a line takes them."""
    if len(pairs) <= ACROSS:
        lines = _across(pairs, facts)
        if max(map(len, lines), default=0) <= LINE_WIDTH:
            return lines
    return _below(pairs, facts)


def _across(pairs: Sequence[Sequence[str]], facts: Mapping[str, Sequence[str]]) -> list[str]:
    """Steps side by side, as the thesis prints them; what is said of each stands below."""
    if not pairs:
        return []
    rows = [tuple(f"Step {number}" for number in range(1, len(pairs) + 1)), *zip_longest(*pairs, fillvalue="")]
    if not facts:
        return table(rows).splitlines()
    blank = ("",) * (len(pairs) + 1)
    return table([*(("", *row) for row in rows), blank, *((name, *said) for name, said in facts.items())]).splitlines()


def _below(pairs: Sequence[Sequence[str]], facts: Mapping[str, Sequence[str]]) -> list[str]:
    """A step a line, cut where the line is full."""
    numbers = map(str, range(1, len(pairs) + 1))
    first, *others = table([("Step", *facts), *zip(numbers, *facts.values(), strict=True)]).splitlines()
    width = max(map(len, [first, *others])) + 2
    cut = (_cut(each, LINE_WIDTH - width) for each in pairs)
    return [first, *(f"{text:{width}}{messages}" for text, messages in zip(others, cut, strict=True))]


def _cut(texts: Sequence[str], width: int) -> str:
    """As many texts as a line takes, and how many more there are.

    >>> _cut(["0 ↔ 1", "2 ↔ 3", "4 ↔ 5"], 30), _cut(["0 ↔ 1", "2 ↔ 3", "4 ↔ 5"], 17)
    ('0 ↔ 1  2 ↔ 3  4 ↔ 5', '0 ↔ 1 … 2 more')
    """
    whole = "  ".join(texts)
    if len(whole) <= width:
        return whole
    ends = np.cumsum([len(text) + 2 for text in texts])
    fit = max(int(np.searchsorted(ends, width - len(f" … {len(texts)} more") + 2, side="right")), 1)
    return f"{'  '.join(texts[:fit])} … {len(texts) - fit} more"
