"""The task of a rank and round, as builders add it: what it does stands in `whole`, which needs Dask's cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from oocarrays.graphs.run.telling import tell

if TYPE_CHECKING:
    from oocarrays.graphs.exchange.messages import Messages
    from oocarrays.graphs.exchange.whole import RankRound


async def whole_round(run: Messages, key: tuple[Any, ...], args: tuple[int, ...], held: Any, *after: Any) -> Any:
    """Take a rank through a round by its schedule, on a worker; returns what its region is then."""
    from oocarrays.graphs.exchange.whole import RankRound

    return await _through(RankRound, run, key, args, held)


async def arrivals(run: Messages, key: tuple[Any, ...], args: tuple[int, ...], held: Any, *after: Any) -> Any:
    """Have a rank take what others hold for it, as it is there, on a worker; returns what it has then."""
    from oocarrays.graphs.exchange.whole import Takes

    return await _through(Takes, run, key, args, held)


async def _through(kind: type[RankRound], run: Messages, key: tuple[Any, ...], args: tuple[int, ...], held: Any) -> Any:
    from distributed import Reschedule

    from oocarrays.graphs.exchange.whole import go_through

    *round, rank = args
    withdrawn: BaseException | None = None
    with run._counted(), run._during("round", args):
        try:
            region = await go_through(run, key, tuple(round), rank, held, kind)
        except (Reschedule, asyncio.CancelledError) as error:  # no fault of the run's
            withdrawn = error
    if withdrawn is not None:
        raise withdrawn
    tell(run.topic, "round", args, run.meter)
    return region
