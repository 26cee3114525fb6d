"""Reports of collective reads: what one takes, and what other ways would."""

from __future__ import annotations

from dask.utils import format_bytes

from oocarrays.plan.alternative import CountedAlternative
from oocarrays.plan.collective.read import CollectivePlan
from oocarrays.plan.cost import Traffic
from oocarrays.show.planned import rows
from oocarrays.show.report import memory_text, table

HEAD = ("method", "domains", "aggregators", "rounds", "requests", "read", "decoded", "messages", "held", "seconds")


def plan_rows(plan: CollectivePlan) -> list[tuple[str, str]]:
    price = plan.price
    if price is None:
        return [("reads", repr(plan))]
    about = " (estimate)" if plan.stored.coded else ""
    each = "a worker" if plan.workers else "this process"
    return [
        ("method", _way(plan)),
        *rows(price, reads=about, **({"decodes": ""} if plan.stored.coded else {})),
        ("for others", _sent(plan, price.traffic)),
        (f"{each} holds", format_bytes(price.peak_bytes)),
        *rows(price, predicted=""),
        ("why", why(plan)),
    ]


def _way(plan: CollectivePlan) -> str:
    if plan.method == "independent":
        return "independent: each rank reads for itself"
    return (
        f"two-phase, {plan.partition}: {len(plan.aggregators)} of {plan.ranks} ranks read for all, "
        f"in {len(plan.rounds)} round{'s' * (len(plan.rounds) != 1)} of at most {format_bytes(plan.round_bytes)}"
    )


def _sent(plan: CollectivePlan, traffic: Traffic) -> str:
    if not plan.workers:
        return f"{format_bytes(traffic.exchanged_bytes)}, without messages"
    order = plan.schedule.name if plan.schedule else "all of a round at one time"
    return f"{format_bytes(traffic.exchanged_bytes)} in {traffic.messages} messages, {order}"


def why(plan: CollectivePlan) -> str:
    shared, alone = plan.table.are_shared, len({way.name for way in plan.considered}) == 1
    if plan.method == "independent" and not shared:
        return "no chunk is wanted by two ranks: requests conform"
    if alone:
        return "asked for"
    if plan.method == "independent":
        return "reading what others read too takes less time than waiting for it"
    return "chunks are wanted by several ranks: each is read once" if shared else "what ranks want is dealt out evenly"


def plan_text(plan: CollectivePlan) -> str:
    """Every way that was looked at, the cheapest first, and what the one that was taken holds."""
    return f"{table([HEAD, *map(_row, plan.considered)])}\n\n{memory_text(plan.memory)}"


def _row(way: CountedAlternative) -> tuple[str, ...]:
    traffic = way.traffic
    numbers = way.ranks, way.rounds, traffic.read_requests
    sizes = format_bytes(traffic.read_bytes), format_bytes(traffic.decoded_bytes)
    ends = str(traffic.messages), format_bytes(way.peak_bytes), f"{way.seconds:.3g}"
    return (f"{way.name}{' ◄' * way.taken}", way.domains or "–", *map(str, numbers), *sizes, *ends)
