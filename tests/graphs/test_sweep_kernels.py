"""Residuals and tiles of sweeps, without a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oocarrays.graphs.slabs.sweeps import Fused, change
from oocarrays.plan.slabs.sweeps import Sweeps
from tests.sweeping import together

pytestmark = pytest.mark.once

RANDOM = np.random.default_rng(5)
U, V = 1 - RANDOM.random((90, 40)) / 4, RANDOM.random((90, 40)) / 2


def test_an_element_that_stays_not_a_number_does_not_change() -> None:
    before, after = np.array([1, np.nan, -np.inf, 5]), np.array([4, np.nan, -np.inf, 3])
    assert change(before, after) == 3
    assert math.isnan(change(after, np.full(4, np.nan)))
    assert change(np.array([250, 3], "u1"), np.array([5, 4], "u1")) == 245
    assert change(np.array([True, False]), np.array([True, True])) == 1
    assert change(np.array([3 + 4j]), np.array([0j])) == 5


def test_tiles_of_several_fields_are_plain_sweeps() -> None:
    def wave(now: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        made = 2 * now - before
        made[1:-1] += (now[:-2] + now[2:] - 2 * now[1:-1]) / 3
        return made, now

    sweeps = Sweeps(shape=(90, 40), count=7, depth=(1, 0), boundary="none", tile=(3, 40))
    ends = [(0, 90), (0, 40)]
    made = Fused(kernel=wave, sweeps=sweeps, fields=2)([U, V], ends, ends)
    for each, wanted in zip(made, together(wave, [U, V], 2, (1, 0), "none", 7), strict=True):
        np.testing.assert_array_equal(each, wanted)
