"""Sections of one array, one a rank: what a person holds of a collective read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask.utils import format_bytes

from oocarrays.distributed.rank_arrays import RankLists
from oocarrays.graphs.layouts.parts import RankParts
from oocarrays.graphs.run.job import Cluster
from oocarrays.mapping.selection import Selection
from oocarrays.plan.collective.read import CollectivePlan
from oocarrays.show import report
from oocarrays.show.collective_report import plan_rows, plan_text
from oocarrays.show.notebook import rows_html
from oocarrays.storage.meter import Meter


class SectionArrays(RankLists):
    """One array a rank, of whatever shapes: lazy, a Dask collection. Made by `read_sections`.

    ``compute`` gives a list of numpy arrays; ``persist`` leaves each rank's with its rank.
    """

    def __init__(
        self,
        selections: Sequence[Selection],
        dtype: np.dtype,
        build: Callable[[], RankParts],
        *,
        plan: CollectivePlan,
        cluster: Cluster | None,
        workers: Sequence[str],
        meter: Meter | None = None,
    ) -> None:
        shapes = [selection.shape for selection in selections]
        where: dict[str, Any] = {"cluster": cluster, "workers": workers, "meter": meter}
        super().__init__(shapes.__getitem__, len(selections), dtype, build, **where)
        self._plan = plan

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(self._plan.part_bytes)

    @property
    def plan(self) -> CollectivePlan:
        """Who reads what for whom, and what that takes."""
        return self._plan

    @property
    def peak_bytes(self) -> int:
        """Bytes that this process holds, or the worker that holds most, at any moment of the read."""
        return self._plan.price.peak_bytes if self._plan.price else max(self._plan.part_bytes)

    @property
    def seconds(self) -> float:
        """Predicted, by the clock."""
        return self._plan.price.seconds if self._plan.price else 0.0

    def _named(self) -> str:
        return f"{self.ranks} sections"

    def _rows(self) -> list[tuple[str, str]]:
        sizes = self._plan.part_bytes
        least, most = format_bytes(min(sizes)), format_bytes(max(sizes))
        return [
            ("a rank holds", most if least == most else f"{least} to {most}"),
            ("ranks are", self._where()),
            *plan_rows(self._plan),
        ]

    def explain(self) -> str:
        """Say what each rank gets, who reads it, and what other ways would cost."""
        return f"{report.table(self._rows())}\n\n{plan_text(self._plan)}"

    def __repr__(self) -> str:
        head = f"<oocarrays.SectionArrays of {self.ranks} ranks, {self.dtype}, {format_bytes(self.nbytes)}>"
        return f"{head}\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title="oocarrays.SectionArrays")
