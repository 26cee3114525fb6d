"""Predicted seconds of an exchange on a network, by the thesis's models, from routed and counted messages.

    seconds of a step = α + tasks · τ + max( bytes of a message · β_ex, β_sr or β_s,  bytes on a link · β_sat )

    β_ex   two ranks send to each other          0 ↔ 1
    β_sr   a rank sends to one, receives from another    0 → 1 → 2
    β_s    a rank only sends, or only receives   0 → 1

If all messages have L bytes and f of them share the busiest link, a step takes α + L · max(β, f · β_sat). A machine may
use another send method for large messages, so constants apply from a message size upwards. Thakur 1995, sections 4.1.3
and 4.3.8.

    0 ──►──1 ──►──2        a message from 0 to 5 shares its row with one, its column with two others; while it waits
                  │        at the corner, it keeps its row from the others, too
    3      4      5
                  │        seconds = α + max over messages of
    6      7      8          bytes · β  +  (row + column) · β_sat  +  row · column / bytes · κ

where row and column are the bytes on the busiest link of either leg (`WormholeConstants`). In the thesis's model, which
uses the busiest link of all, IPEX is faster than PEX only if its larger messages use another send method: its legs are
those of PEX one after the other, and max(row, column) ≤ row + column. On the Delta it was faster on large meshes. A
likely reason is that a waiting message holds its links (section 4.1.2); this form fits the measurements, but nothing
here proves it.

    sizes  ──►  PEX  GEN  REX … COLORING  ──►  steps routed on the network  ──►  the least seconds

One carrier prices a redistribution's methods, its schedules and the run itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.network import FlatCluster, Mesh, Network, busiest
from oocarrays.plan.exchange.ordering import Exchange, Turn, colored, is_worth_coloring
from oocarrays.plan.exchange.schedule import (
    COLORING,
    IDLE,
    NAMES,
    Schedule,
    Step,
    complete_exchange,
    is_auto,
    is_coloring,
    is_unordered,
    schedules,
)
from oocarrays.plan.machine import Costs

QUICK = 7 * 10**7
"""Maximum number of rank visits to follow all steps of all schedules, which takes a few seconds."""
LIKELY = (COLORING, "REX", "PEX", "IPEX", "GEN", "BEX", "PEX-GEN", "PEX-GEN-SHIFT", "LEX")
"""Schedules in the order in which they are priced if not all can be; among equal ones, simpler schedules come first."""
BETWEEN_WORKERS = "the costs of messages between workers: see oocarrays calibrate"
"""Origin of the constants of a flat cluster."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """Network and its message constants."""

    network: Network
    constants: tuple[Constants, ...]
    """Constants by message size."""
    whose: str = ""
    """Origin of the constants."""
    direct: bool = False
    """True if "auto" skips schedules that forward, because ranks receive in the order of arrival."""

    @classmethod
    def between_workers(cls, ranks: int, costs: Costs, *, direct: bool = False) -> Carrier:
        return cls(FlatCluster.of(*[1] * ranks), flat_constants(costs), BETWEEN_WORKERS, direct)

    def orders(
        self, sizes: np.ndarray, asked: str | Schedule | None = "auto", *, most: int = QUICK
    ) -> tuple[list[Schedule], list[str]]:
        """Return the schedules that an exchange may use, and the names of those that would take long to price."""
        ranks = max(np.shape(sizes))
        if is_coloring(asked):
            return [colored(square(sizes))], []
        if is_unordered(asked):
            return [complete_exchange(ranks)], []
        columns = self.network.columns if isinstance(self.network, Mesh) and ranks == self.network.ranks else None
        if asked is not None and not is_auto(asked):
            return [Schedule.of(asked, ranks, columns=columns)], []
        takes: dict[str, Schedule] = {each.name: each for each in schedules(ranks, columns=columns, names=NAMES)}
        takes = {name: each for name, each in takes.items() if not (self.direct and each.forwards)}
        if is_worth_coloring(square(sizes)):
            takes[COLORING] = colored(square(sizes))
        chosen: list[Schedule] = []
        left_out: list[str] = []
        messages, work = int(np.count_nonzero(sizes)), 0
        for schedule in (takes[name] for name in LIKELY if name in takes):
            mine = len(schedule) * schedule.ranks
            mine += 2 * min(messages, mine)  # routing a message takes twice as long as visiting a rank
            if chosen and work + mine > most:
                left_out.append(schedule.name)
            else:
                chosen.append(schedule)
                work += mine
        return chosen, left_out

    def cheapest(self, sizes: np.ndarray, asked: str | Schedule | None = "auto") -> tuple[Schedule, float]:
        """Return the schedule with the least predicted seconds, and the seconds."""
        if max(np.shape(sizes)) > self.network.ranks:
            raise ScheduleError(f"{max(np.shape(sizes))} ranks exceed a network of {self.network.ranks}")
        known, _ = self.orders(sizes, asked)
        priced = [(each, schedule_seconds(each, sizes, self.network, self.constants)) for each in known]
        return min(priced, key=lambda each: each[1])


def square(sizes: np.ndarray) -> np.ndarray:
    """Return the sizes as a square matrix over all ranks before or after the exchange."""
    ranks = max(sizes.shape)
    return np.pad(sizes, [(0, ranks - length) for length in sizes.shape])


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Time constants of a machine for messages from a given size upwards."""

    from_bytes: int = 0
    """Minimum bytes of a message for which the constants apply."""
    startup: float
    """Startup seconds of a step, independent of its bytes: α."""
    exchange: float
    """Seconds per byte if two ranks send to each other and share no link: β_ex."""
    send_receive: float
    """Seconds per byte if a rank sends to one and receives from another: β_sr."""
    single: float
    """Seconds per byte if a rank only sends, or only receives: β_s."""
    saturated: float
    """Seconds per byte on a saturated link: β_sat."""
    forward: float = 0.0
    """Seconds per byte packed again in schedules that forward; the thesis names them, and neglects them."""
    task: float = 0.0
    """Seconds of each task of a step in a scheduler shared by all ranks; 0 for the thesis's machines."""

    @classmethod
    def even(cls, startup: float, byte: float, *, saturated: float, from_bytes: int = 0) -> Constants:
        return cls(
            from_bytes=from_bytes, startup=startup, exchange=byte, send_receive=byte, single=byte, saturated=saturated
        )

    def step_seconds(self, turn: Turn, network: Network) -> float:
        """Return the seconds of a step if these constants apply to all its messages."""
        sources, sizes = turn.step.senders, turn.sizes
        link = busiest(network, sources, turn.step.destinations[sources], sizes)
        sent = max(float((sizes * self.byte_seconds(turn.step)).max()), link * self.saturated)
        return self.startup + turn.tasks * self.task + sent + self.packing_seconds(turn)

    def byte_seconds(self, step: Step) -> np.ndarray:
        """Return β of each message, by source."""
        return np.take([self.exchange, self.send_receive, self.single], message_kinds(step))

    def packing_seconds(self, turn: Turn) -> float:
        """Return the seconds to pack the largest message again; 0 for schedules that do not forward."""
        return turn.forwards * int(turn.sizes.max()) * self.forward


def message_kinds(step: Step) -> np.ndarray:
    """Return the kind of each message by source: 0 for an exchange, 1 if a rank also serves a third one, else 2."""
    sources, targets = step.senders, step.destinations[step.senders]
    receives = np.zeros(len(step.destinations), bool)
    receives[targets] = True
    back = step.destinations[targets]
    return np.select([back == sources, receives[sources] | (back != IDLE)], [0, 1], 2)


DELTA = (
    Constants.even(75e-6, 0.35e-6, saturated=0.175e-6),
    Constants.even(150e-6, 0.2e-6, saturated=0.1e-6, from_bytes=1536),
)
"""Intel Touchstone Delta: unforced messages, and forced ones from 1.5 KB (sections 4.3.7 and 4.3.8)."""


CM5 = (Constants.even(88e-6, 0.1e-6, saturated=0.1e-6),)
"""Thinking Machines CM-5: 5 Mbytes a second for each of two messages that share a link (section 4.1.1), hence 10 for
one; α is that of its library in other measurements. The model reproduces Figure 4.6, and the lead of PEX and BEX over
REX on few ranks in Figures 4.7 and 4.8. It cannot give REX's lead on many ranks, with any constants: REX over PEX is L
· lg P · β over α + 2 · L · β, which grows with P.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WormholeConstants(Constants):
    """Time constants of a mesh for messages from a given size upwards, with the cost of shared legs."""

    held_exchange: float
    """Seconds per byte that each message of the column adds for each of the row, if two ranks send to each other."""
    held_send_receive: float
    """Seconds per byte that each message of the column adds for each of the row, if a rank has two partners."""

    def step_seconds(self, turn: Turn, network: Network) -> float:
        """Return the seconds of a step on a mesh if these constants apply to all its messages."""
        if not isinstance(network, Mesh):
            raise ScheduleError(f"{network} is not a mesh; these constants apply to meshes only")
        sources, sizes = turn.step.senders, turn.sizes
        row, column = network.legs(sources, turn.step.destinations[sources], sizes)
        held = np.where(message_kinds(turn.step) == 0, self.held_exchange, self.held_send_receive)
        seconds = sizes * self.byte_seconds(turn.step) + (row + column) * self.saturated + row * column / sizes * held
        return self.startup + float(seconds.max()) + self.packing_seconds(turn)


MEASURED_DELTA = (
    WormholeConstants(
        startup=75e-6,
        exchange=0.281e-6,
        send_receive=0.261e-6,
        single=0.281e-6,
        saturated=0.0842e-6,
        held_exchange=0.0,
        held_send_receive=0.0155e-6,
    ),
    WormholeConstants(
        from_bytes=1536,
        startup=150e-6,
        exchange=0.0834e-6,
        send_receive=0.0664e-6,
        single=0.0834e-6,
        saturated=0.0750e-6,
        held_exchange=0.0029e-6,
        held_send_receive=0.0288e-6,
    ),
)
"""Touchstone Delta, fitted to Tables 4.4, 4.7, 4.9 and 4.10: α as printed, the other constants by least squares of log
ratios. An order of PEX, GEN and IPEX other than the measured one costs ten times as much in the fit. Ten constants for
119 measured times give a root mean square error of 0.112. The printed crossovers are therefore fitted, not predicted.
REX is modelled with the send method of a pair's bytes, however large its own messages are: with large-message
constants the fit error was 0.155, and REX was the fastest for small messages on a mesh.
"""


def flat_constants(costs: Costs) -> tuple[Constants]:
    """Return the constants of Dask workers, as fitted by `oocarrays calibrate --scheduler`."""
    return (Constants(from_bytes=0, **costs.exchange),)


def regime(constants: Sequence[Constants], nbytes: int) -> Constants:
    """Return the constants for a message size: those with the largest ``from_bytes`` up to it."""
    return max((each for each in constants if each.from_bytes <= nbytes), key=lambda each: each.from_bytes)


def step_seconds(turn: Turn, network: Network, constants: Sequence[Constants]) -> float:
    """Return the seconds of one step, with constants chosen by its largest message, or in REX by a pair's bytes."""
    return regime(constants, turn.part).step_seconds(turn, network)


def schedule_seconds(
    schedule: Schedule, sizes: np.ndarray | int, network: Network, constants: Sequence[Constants]
) -> float:
    """Return the seconds of a whole exchange without its empty messages."""
    if schedule.ranks > network.ranks:
        raise ScheduleError(f"{schedule.ranks} ranks exceed a network of {network.ranks}")
    return sum(step_seconds(turn, network, constants) for turn in Exchange.of(schedule, sizes))


def exchange_seconds(schedule: Schedule, sizes: np.ndarray, costs: Costs, rounds: int = 1) -> float:
    """Return the seconds of an exchange between workers; each further round adds the startup of its steps."""
    constants = flat_constants(costs)
    whole = schedule_seconds(schedule, sizes, FlatCluster.of(schedule.ranks), constants)
    return whole + max(rounds - 1, 0) * len(schedule) * constants[0].startup


def unordered_seconds(messages: Any, nbytes: Any, costs: Costs, ranks: int, rounds: Any) -> Any:
    """Return the seconds of messages without steps: a startup a round, a task a message, the busiest rank's bytes."""
    (known,) = flat_constants(costs)
    return rounds * known.startup + (messages + 2 * ranks * rounds) * known.task + nbytes * known.exchange
