"""Constants are found again from exchanges timed by them, noise or none."""

from __future__ import annotations

import numpy as np
import pytest

from oocarrays.graphs.calibrate.workers import NAMES, fitted
from oocarrays.networks import FlatCluster
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.prediction import Constants, schedule_seconds
from oocarrays.ranks import Schedule

pytestmark = pytest.mark.once

TRUE = Constants(
    startup=0.016, exchange=2e-9, send_receive=3e-9, single=1e-9, saturated=1.5e-9, forward=0.5e-9, task=0.001
)
GUESS = Constants.even(1.0, 1.0, saturated=1.0)
SIZES = (1024, 1 << 20, 1 << 26)


def timed(name: str, noise: float = 0.0) -> list[tuple[Exchange, float]]:
    """Exchanges of several sizes and ranks, and what they take by ``TRUE``, each a little more or less."""
    random = np.random.default_rng(0)
    return [
        (
            Exchange.of(Schedule.of(name, ranks), size),
            schedule_seconds(Schedule.of(name, ranks), size, FlatCluster.of(ranks), (TRUE,))
            * (1 + noise * random.uniform(-1, 1)),
        )
        for ranks in (4, 8)
        for size in SIZES
    ]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("pex",), {"startup", "exchange", "task"}),
        (("pex", "gen"), {"startup", "exchange", "send_receive", "task"}),
        (("pex", "gen", "lex"), {"startup", "exchange", "send_receive", "saturated", "task"}),
        (("bex", "rex", "ipex"), {"startup", "exchange", "forward", "task"}),
    ],
)
def test_what_was_measured_is_found_and_the_rest_is_kept(names: tuple[str, ...], found: set[str]) -> None:
    ours = fitted([each for name in names for each in timed(name)], FlatCluster.of(8), GUESS)
    for name in NAMES:
        assert getattr(ours, name) == pytest.approx(getattr(TRUE if name in found else GUESS, name), rel=1e-6)
