"""Constants of a flat cluster from exchanges that were measured on it: a line through what their steps are made of.

    seconds = steps · α  +  tasks · τ  +  exchanged · β_ex  +  passed on · β_sr  +  sent · β_s
                                       +  on shared links · β_sat  +  packed again · a copy        (all in bytes)

A step counts with its largest message, as the kind of message that this is; or, where its busiest link carries more
than that (many send to one, as in LEX), with the bytes on the link. What no exchange had in it, or none without the
rest, stays as it was known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from oocarrays.plan.exchange.exchange import Exchange
from oocarrays.plan.exchange.network import Network, busiest
from oocarrays.plan.exchange.prediction import Constants, message_kinds

NAMES = ("startup", "exchange", "send_receive", "single", "saturated", "forward", "task")


def parts(exchange: Exchange, network: Network) -> np.ndarray:
    """Steps, bytes of each kind that follow one another in an exchange, and tasks: one number for each of ``NAMES``."""
    found = np.zeros(len(NAMES))
    for turn in exchange:
        sources, sizes = turn.step.senders, turn.sizes
        largest = int(sizes.argmax())
        link = busiest(network, sources, turn.step.destinations[sources], sizes)
        found[[0, 5, 6]] += 1, turn.forwards * sizes[largest], turn.tasks
        if link > sizes[largest]:
            found[4] += link
        else:
            found[1 + int(message_kinds(turn.step)[largest])] += sizes[largest]
    return found


def fitted(measured: Iterable[tuple[Exchange, float]], network: Network, known: Constants) -> Constants:
    """Constants by which exchanges take the seconds that were measured, as nearly as they can: in ratio, none negative.

    Examples
    --------
    >>> from oocarrays.plan.exchange.network import FlatCluster
    >>> from oocarrays.plan.exchange.schedule import Schedule
    >>> took = [(Exchange.of(Schedule.of("pex", 4), size), 3 * (0.5 + 2 * size)) for size in (1, 10)]
    >>> found = fitted(took, FlatCluster.of(4), Constants.even(1.0, 1.0, saturated=1.0))
    >>> round(found.startup, 6), round(found.exchange, 6), found.send_receive
    (0.5, 2.0, 1.0)
    """
    exchanges, seconds = zip(*measured, strict=True)
    table = np.array([parts(exchange, network) for exchange in exchanges]) / np.array(seconds)[:, None]
    told = chosen = _independent(table)
    while len(chosen):
        scale = table[:, chosen].max(axis=0)
        values = np.linalg.lstsq(table[:, chosen] / scale, np.ones(len(table)), rcond=None)[0] / scale
        if (values >= 0).all():
            none = dict.fromkeys((NAMES[column] for column in told), 0.0)
            found = {NAMES[column]: float(value) for column, value in zip(chosen, values, strict=True)}
            return replace(known, **none | found)  # type: ignore[arg-type]
        chosen = np.delete(chosen, values.argmin())
    return known


def _independent(table: np.ndarray) -> np.ndarray:
    """Return the columns that say something which those before them do not."""
    chosen: list[int] = []
    for column in np.flatnonzero(table.any(axis=0)).tolist():
        scaled = table[:, [*chosen, column]] / table[:, [*chosen, column]].max(axis=0)
        if np.linalg.matrix_rank(scaled, tol=1e-6) > len(chosen):
            chosen.append(column)
    return np.array(chosen, int)
