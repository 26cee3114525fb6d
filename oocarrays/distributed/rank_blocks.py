"""Blocks that ranks have received from each other, one a rank, as handled by the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from dask.utils import format_bytes

from oocarrays.distributed.rank_arrays import RankLists, Where
from oocarrays.graphs.layouts.parts import RankParts
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.plan.layouts.halos import HaloPlan
from oocarrays.plan.layouts.multicast import MulticastPlan
from oocarrays.show import report
from oocarrays.show.notebook import rows_html

Plan = TypeVar("Plan", bound=HaloPlan | MulticastPlan | AlltoallPlan)


class RankBlocks(RankLists, Generic[Plan]):
    """Blocks of any shapes, one a rank: a lazy Dask collection. Created by `shift`, `multicast` and `exchange`.

    ``compute`` returns a list of numpy arrays; ``persist`` keeps each rank's block on its worker.
    """

    def __init__(
        self,
        plan: Plan,
        dtype: np.dtype,
        build: Callable[[], RankParts],
        where: Where,
    ) -> None:
        self._plan: Plan = plan
        super().__init__(plan.shape, plan.ranks, dtype, build, where)

    @property
    def plan(self) -> Plan:
        """Frozen plan of the messages between ranks."""
        return self._plan

    @property
    def peak_bytes(self) -> int:
        """Peak memory of a rank in bytes: its part, its block, and messages."""
        return self._plan.peak_bytes

    # ------------------------------------------------------------------ reports

    def _named(self) -> str:
        return self._plan.title

    def _rows(self) -> list[tuple[str, str]]:
        plan = self._plan
        sent = f"{plan.messages}, {format_bytes(plan.sent_bytes)}, {plan.order}"
        return [
            *report.fact_rows(plan.facts()),
            ("ranks are", self._where()),
            ("messages", sent if self.cluster else "none: ranks are threads"),
            ("peak of a rank", format_bytes(plan.peak_bytes)),
        ]

    def explain(self) -> str:
        """Describe each rank's block and the messages for it."""
        return report.table(self._rows())

    def __repr__(self) -> str:
        head = f"<oocarrays.RankBlocks of {self.ranks} ranks, {self.dtype}: {self._plan.title}>"
        return f"{head}\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title=f"oocarrays.RankBlocks: {self._plan.title}")
