"""Deliveries to a part lie in it, however they came and whichever part they are put into then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed.protocol import deserialize, serialize

from oocarrays.graphs.cluster import nearby
from oocarrays.graphs.cluster.nearby import FilledPart, Message
from tests.graphs.test_nearby import FAR, NEAR

ROOMS: dict[str, Any] = {
    "in one piece": np.s_[100:300, :, :],
    "rows": np.s_[:, 3:600, :],
    "short runs": np.s_[5:395, 1:699, 1:3],
    "longer than what is copied at one time": np.s_[7:8, 2:690, :],
    "nothing": np.s_[3:3, :, :],
}


def travelled(message: Message, context: dict[str, Any]) -> Message:
    """What comes out at the other end of a connection."""
    got: Message = deserialize(*serialize(message, context=context))
    return got


@pytest.mark.parametrize("name", ROOMS)
def test_a_delivery_between_ends_of_one_machine_lies_in_the_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "_ways", frozenset({nearby.READ}))
    expected = np.zeros((400, 700, 4), "i4")
    sent = expected[ROOMS[name]] = np.arange(expected[ROOMS[name]].size, dtype="i4").reshape(
        expected[ROOMS[name]].shape
    )
    first, later = FilledPart(np.zeros_like(expected), "first"), FilledPart(np.zeros_like(expected), "first")
    first.expect()
    got = travelled(
        Message([sent, expected[ROOMS["in one piece"]]], into=("first", [ROOMS[name], ROOMS["in one piece"]])), NEAR
    )
    expected_first = first.array.copy()
    got.fill(first)
    np.testing.assert_array_equal(first.array, expected)
    np.testing.assert_array_equal(expected_first, expected)
    got.fill(later)
    np.testing.assert_array_equal(later.array, expected)


def test_a_part_that_is_done_or_elsewhere_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "_ways", frozenset({nearby.READ}))
    data, place = np.ones((200, 300)), np.s_[:200, :300]
    part = FilledPart(np.zeros((400, 400)), "second")
    part.expect()
    part.done()
    for context in (NEAR, FAR):
        got = travelled(Message([data], into=("second", [place])), context)
        assert not part.array.any()
        again = travelled(got, context)
        np.testing.assert_array_equal(again.arrays[0], data)
    again.fill(part)
    assert part.array.sum() == data.sum()


def test_a_part_that_came_from_elsewhere_is_copied_before_it_is_written() -> None:
    received = np.zeros(4)
    received.flags.writeable = False
    part = FilledPart(received, "third")
    part.put(np.s_[1:3,], np.ones(2))
    assert part.array.tolist() == [0, 1, 1, 0]
    assert not received.any()
