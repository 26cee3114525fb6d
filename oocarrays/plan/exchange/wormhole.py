"""The seconds of an exchange on a mesh where a waiting message holds its links: a finer model, with fitted constants.

    0 ──►──1 ──►──2        a message from 0 to 5 shares its row with one, its column with two others; while it waits
                  │        at the corner, it keeps its row from the others, too
    3      4      5
                  │        seconds = α + max over messages of
    6      7      8          bytes · β  +  (row + column) · β_sat  +  row · column / bytes · κ

where row and column are the bytes on the busiest link of either leg. In the thesis's model, which takes the busiest
link of all, IPEX is not faster than PEX unless its larger messages are sent in another way: its legs are those of PEX
one after the other, and max(row, column) ≤ row + column. On the Delta it was faster on large meshes. That a waiting
message holds its links is a likely reason (section 4.1.2), and a form that fits; nothing here proves it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.exchange import Turn
from oocarrays.plan.exchange.network import Mesh, Network
from oocarrays.plan.exchange.prediction import Constants, message_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class WormholeConstants(Constants):
    """The times that a mesh takes for messages of some size and larger: a byte's own, and what sharing a leg adds."""

    held_exchange: float
    """Seconds a byte that each message of the column adds for each of the row, where two ranks send to each other."""
    held_send_receive: float
    """The same where a rank sends to one and receives from another."""

    def step_seconds(self, turn: Turn, network: Network) -> float:
        """Seconds of a step whose messages all take these constants; the network is a mesh."""
        if not isinstance(network, Mesh):
            raise ScheduleError(f"{network} is no mesh, the only network for which these constants hold")
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
"""The Touchstone Delta as Tables 4.4, 4.7, 4.9 and 4.10 measured it: α as printed, the others fitted to these tables by
least squares of log ratios, where an order of PEX, GEN and IPEX other than the measured one costs ten times as much
(``benchmarks/fit_delta.py``): ten constants for 119 measured times, 0.112 off, root mean square. So the printed
crossovers are fitted, not foretold. REX is taken to send as messages of a pair's bytes are sent, however large its own
are: with its messages taken for large ones the fit was 0.155 off, and small messages on a mesh went fastest by REX."""
