"""What a collective read costs in an advice, against the planner of collective reads, which counts every message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oocarrays import Layout
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.price import prices
from oocarrays.plan.advice.trace import patterns_of
from oocarrays.plan.collective.search import plan_collective
from oocarrays.plan.collective.wanted import requests_of
from oocarrays.plan.machine import Costs
from oocarrays.plan.plan import Resources
from tests.pairs import pairs

pytestmark = pytest.mark.once

EDGE = 4096
CHUNKS = {"rows": (64, EDGE), "columns": (EDGE, 64)}
SLOW = {name: seconds if name in ("startup", "task") else 1 / 12.5e6 for name, seconds in Costs().exchange.items()}
"""A network beside which nothing else counts."""


@pytest.mark.parametrize(*pairs(lie=CHUNKS, layout=["(block, *)", "(*, block)", "(block, block)"], ranks=[4, 8, 16]))
def test_ranks_send_each_other_what_a_planned_read_sends(lie: str, layout: str, ranks: int) -> None:
    resources = Resources(costs=replace(Costs(cores=4), exchange=SLOW), workers=4, threads=1)
    stored = Stored(grid=ChunkGrid.of((EDGE, EDGE), CHUNKS[lie]), itemsize=4, local=True, codec="zstd")
    patterns, _ = patterns_of(layout, stored.grid.shape, ranks)
    use = Access(block="", dataset="", patterns=patterns, ranks=ranks, by="oocarrays")
    said = prices(use, stored, np.array([CHUNKS[lie]]), resources).seconds[1, 0]
    requests = requests_of(Layout.of(stored.grid.shape, layout, ranks=ranks))
    plan = plan_collective(stored, requests, resources, method="two-phase", aggregators=ranks)
    assert plan.price is not None
    assert said == pytest.approx(plan.price.seconds, rel=0.05, abs=0.05)
