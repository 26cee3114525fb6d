"""Reports of redistributions: moves of a plan, and its schedules priced on a network."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from dask.utils import format_bytes, parse_bytes

from oocarrays.errors import LayoutError
from oocarrays.mapping.given import element_type
from oocarrays.mapping.layouts.distribution import parse_layout
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.options.networks import carrier_of, network_text
from oocarrays.plan.documents import Document
from oocarrays.plan.exchange.network import Network
from oocarrays.plan.exchange.prediction import Carrier
from oocarrays.plan.exchange.trace import Ordered, in_order
from oocarrays.plan.layouts.assembly import Messaging
from oocarrays.plan.layouts.redistribution import Redistribution
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.show.report import seconds_text, table


def elements(text: str) -> int:
    """Parse a number of elements, with Dask's suffixes."""
    number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?", text.strip(), re.IGNORECASE)
    scale = parse_bytes(f"1{number[2]}B") if number and number[2] else 1
    count = float(number[1]) * scale if number else math.nan
    if not count.is_integer():
        raise LayoutError(f"{text!r} is not a number of elements; write 960, 1M (a million) or 1Mi (1048576)")
    return int(number[1]) * scale if number and number[1].isdecimal() else int(count)


def shape(text: str) -> tuple[int, ...]:
    return tuple(map(elements, re.split("[x×,]", text, flags=re.IGNORECASE)))


def itemsize(dtype: str) -> int:
    return element_type(dtype, error=LayoutError).itemsize


def layouts(
    extents: tuple[int, ...],
    source: str,
    target: str,
    *,
    ranks: tuple[int | None, int | None] = (None, None),
    grids: tuple[Sequence[int] | None, Sequence[int] | None] = (None, None),
) -> tuple[Layout, Layout]:
    """Return the layouts before and after; by default both have the same number of ranks."""
    before = Layout.of(extents, source, ranks=ranks[0], grid=grids[0])
    named = ranks[1] is not None or grids[1] is not None or parse_layout(target)[1] is not None
    return before, Layout.of(extents, target, ranks=ranks[1] if named else before.ranks, grid=grids[1])


NOTHING = "nothing has to move from rank to rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Prediction of a redistribution on a network, for each schedule."""

    plan: Redistribution
    network: Network
    whose: str
    """Source of the constants that predict seconds."""
    priced: list[Ordered]
    """Costs of schedules, cheapest first; empty if nothing has to move."""
    left_out: list[str]
    """Schedules that would take too long to price."""

    @classmethod
    def of(
        cls, plan: Redistribution, network: Network | Carrier | str | None = None, schedule: str | None = None
    ) -> Outlook:
        """Return a plan priced by every schedule that supports its ranks, or by a given one."""
        given = plan.carrier if network is None else network
        ranks = max(each.ranks for each in (plan.source, plan.target, *(part.target for part in plan.transfers)))
        carrier = given if isinstance(given, Carrier) else carrier_of(given, ranks)
        there, constants, whose = carrier.network, carrier.constants, carrier.whose
        sizes = [each * plan.itemsize for each in plan.sizes()] if plan.price.messages else []
        priced, left_out = in_order(sizes, there, constants, schedule) if sizes else ([], [])
        return cls(plan=plan, network=there, whose=whose, priced=priced, left_out=left_out)

    def text(self) -> str:
        if not self.priced:
            return f"{self.plan.explain()}\n\n{NOTHING}"
        moves = ("transfer", "messages", "between ranks", "a rank sends", "messages at most")
        orders = (
            "schedule", "steps", "messages", "share a link", "busiest link", "to send on", "a rank holds", "predicted",
        )  # fmt: skip
        transfers = table([moves, *map(self._transfer_row, self.plan.transfers)])
        schedules = table([orders, *map(self._schedule_row, self.priced)])
        names = ", ".join(name.lower() for name in self.left_out)
        rest = [f"not priced, as that takes long for so many: {names}; --schedule prices one"] if names else []
        lines = [self.plan.explain(), "", transfers, "", f"on {network_text(self.network)}", schedules, *rest]
        return "\n".join([*lines, "", *self._priced_by()])

    def _priced_by(self) -> list[str]:
        known = self.plan.carrier
        if known and (known.network, known.whose) == (self.network, self.whose):
            return [f"priced by {self.whose}"]
        methods = known.whose if known else "copies between threads"
        return [f"methods are priced by {methods}", f"schedules are priced by {self.whose}"]

    def as_json(self) -> Document:
        plan = self.plan
        return {
            "source": str(plan.source),
            "target": str(plan.target),
            "shape": list(plan.source.shape),
            "itemsize": plan.itemsize,
            "method": plan.method,
            "methods": [asdict(offer) for offer in plan.offers],
            "transfers": [self._transfer_facts(each) for each in plan.transfers],
            "peak_bytes": plan.peak_bytes(),
            "stored_bytes": plan.stored_bytes,
            "network": network_text(self.network),
            "constants": self.whose,
            "schedules": [self._schedule_facts(each) for each in self.priced],
            "not_priced": self.left_out,
        }

    def _transfer_facts(self, transfer: Transfer) -> Document:
        """Return the messages and bytes of a transfer; least and most are over ranks with elements before it."""
        work, ranks = transfer.work, transfer.source.ranks
        sent = (work.held - work.kept)[:ranks] * self.plan.itemsize
        return {
            "source": str(transfer.source),
            "target": str(transfer.target),
            "messages": int(work.sends.sum()),
            "moved_bytes": work.moved * self.plan.itemsize,
            "least_sent_bytes": int(sent.min()),
            "most_sent_bytes": int(sent.max()),
            "most_messages_sent": int(work.sends.max()),
            "most_messages_received": int(work.receives.max()),
        }

    def _transfer_row(self, transfer: Transfer) -> tuple[str, ...]:
        facts = self._transfer_facts(transfer)
        return (
            f"{transfer.source} → {transfer.target}",
            str(facts["messages"]),
            format_bytes(facts["moved_bytes"]),
            f"{format_bytes(facts['least_sent_bytes'])} to {format_bytes(facts['most_sent_bytes'])}",
            f"{facts['most_messages_sent']}, takes {facts['most_messages_received']}",
        )

    def _schedule_facts(self, each: Ordered) -> Document:
        """Return what a schedule costs; ``peak_bytes`` as those of an array, with messages unpacked as they arrive."""
        messaging = Messaging(schedules=each.schedules, assembly="asynchronous", ordered=True)
        return {
            "schedule": each.name,
            "columns": each.schedules[0].columns,
            "steps": each.steps,
            "messages": each.messages,
            "busiest_link_messages": max(float(trace.shared.max(initial=0)) for trace in each.traces),
            "busiest_link_bytes": float(np.sum([trace.link_bytes for trace in each.traces], axis=0).max()),
            "buffer_bytes": max(trace.exchange.buffer_bytes for trace in each.traces),
            "peak_bytes": messaging.held(self.plan.transfers) * self.plan.itemsize,
            "seconds": each.seconds,
        }

    def _schedule_row(self, each: Ordered) -> tuple[str, ...]:
        cheapest = each is self.priced[0] and len(self.priced) > 1
        facts = self._schedule_facts(each)
        return (
            f"{each.name}{' ◄' * cheapest}",
            f"{facts['steps']} of {sum(map(len, each.schedules))}",
            str(facts["messages"]),
            f"{facts['busiest_link_messages']:g}",
            format_bytes(int(facts["busiest_link_bytes"])),
            format_bytes(facts["buffer_bytes"]) if any(schedule.forwards for schedule in each.schedules) else "–",
            format_bytes(facts["peak_bytes"]),
            seconds_text(each.seconds),
        )
