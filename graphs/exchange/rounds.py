"""The task of a rank and round, as builders add it: what it does stands in `whole`, which needs Dask's cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from oocarrays.graphs.run.telling import tell

if TYPE_CHECKING:
    from oocarrays.graphs.exchange.messages import Messages


async def whole_round(run: Messages, key: tuple[Any, ...], args: tuple[int, ...], held: Any, *after: Any) -> Any:
    """Take a rank through a round, on a worker; returns what its region is then."""
    from distributed import Reschedule

    from oocarrays.graphs.exchange.whole import go_through

    *round, rank = args
    withdrawn: BaseException | None = None
    with run._counted(), run._during("round", args):
        try:
            region = await go_through(run, key, tuple(round), rank, held)
        except (Reschedule, asyncio.CancelledError) as error:  # no fault of the run's
            withdrawn = error
    if withdrawn is not None:
        raise withdrawn
    tell(run.topic, "round", args, run.meter)
    return region
