"""Exchanges of rows, against loops over all pairs; plans of redistributions as people ask for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import InputError, LayoutError, OocError, ScheduleError, UnsupportedError
from tests.flat import flat
from tests.profiles import examples


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[list[np.ndarray], np.ndarray, np.ndarray | None]:
    """What ranks have, counts, and displacements or none: rows may go to several, and to nobody."""
    ranks = draw(st.integers(1, 6))
    numbers = st.lists(st.lists(st.integers(0, 4), min_size=ranks, max_size=ranks), min_size=ranks, max_size=ranks)
    counts = np.array(draw(numbers))
    displacements = np.array(draw(numbers)) if draw(st.booleans()) else None
    ends = counts.sum(axis=1) if displacements is None else (counts + displacements).max(axis=1)
    row = draw(st.sampled_from([(), (3,), (2, 2), (0,)]))
    parts = [100 * rank + np.arange(n * int(np.prod(row)), dtype="i2").reshape(n, *row) for rank, n in enumerate(ends)]
    return parts, counts, displacements


def expected(parts: list[np.ndarray], counts: np.ndarray, displacements: np.ndarray | None) -> list[np.ndarray]:
    """Element by element of the definition."""
    made = []
    for target in range(len(parts)):
        rows = []
        for source, part in enumerate(parts):
            first = counts[source, :target].sum() if displacements is None else displacements[source, target]
            rows += [part[first + n] for n in range(counts[source, target])]
        made.append(np.array(rows, parts[0].dtype).reshape(len(rows), *parts[0].shape[1:]))
    return made


@examples(60)
@given(exchanges())
def test_every_row_comes_where_it_is_to_come(asked: tuple[list[np.ndarray], np.ndarray, np.ndarray | None]) -> None:
    parts, counts, displacements = asked
    given_parts = [part.copy() for part in parts]
    made = ooc.ranks.exchange(given_parts, counts.tolist(), displacements=displacements, scheduler="threads")
    for rank, (part, right) in enumerate(zip(made.compute(), expected(parts, counts, displacements), strict=True)):
        np.testing.assert_array_equal(part, right, strict=True)
        assert made.local_shape(rank) == right.shape
        np.testing.assert_array_equal(given_parts[rank], parts[rank])


def test_arrays_of_ranks_are_exchanged_and_go_on() -> None:
    x = ooc.ranks.distribute(np.arange(20.0).reshape(10, 2), "(cyclic(2), *)", ranks=3, scheduler="threads")
    counts = np.array([[1, 2, 1], [0, 4, 0], [2, 0, 0]])
    parts = [x.local(rank).compute() for rank in range(3)]
    once = ooc.ranks.exchange(x, counts)
    np.testing.assert_array_equal(once.local(1).compute(), expected(parts, counts, None)[1])
    back = ooc.ranks.exchange(once, counts.T)
    for part, right in zip(back.compute(), parts, strict=True):
        np.testing.assert_array_equal(part, right)
    assert "rank" in once.explain()
    assert once.plan.sent_bytes == (2 + 1 + 2) * 16


@pytest.mark.parametrize(
    ("parts", "counts", "how", "kind", "message"),
    [
        ([np.arange(2), np.arange(2)], [[1, 2], [0, 0]], {}, LayoutError, "rank 0 is to send rows 1 to 3 to rank 1"),
        ([np.arange(2)] * 2, [[1, -1], [0, 0]], {}, LayoutError, "counts contain -1"),
        ([np.arange(2)] * 2, [[1, 1]], {}, LayoutError, "counts of 1 × 2 must have one entry for each pair of 2 ranks"),
        ([np.arange(2)] * 2, [[1, 1], [1]], {}, LayoutError, "one entry for each pair"),
        ([np.arange(2)] * 2, [[0.5, 1], [1, 1]], {}, LayoutError, "counts of type float64 are not whole numbers"),
        ([np.arange(2), np.ones(2)], [[1, 1], [1, 1]], {}, InputError, "of types float64, int64"),
        ([np.ones((2, 2)), np.ones((2, 3))], [[1, 1], [1, 1]], {}, LayoutError, "differ in more than the first axis"),
        ([np.array(1)], [[1]], {}, LayoutError, "differ in more than the first axis"),
        ([], [], {}, LayoutError, "parts is empty"),
        ([np.array(["a", None])], [[1]], {}, UnsupportedError, "no fixed size"),
        ([np.arange(2)] * 3, np.zeros((3, 3), int), {"schedule": "pex"}, ScheduleError, "power of two"),
        ([np.arange(2)] * 2, np.zeros((2, 2), int), {"displacements": [[3, -1], [0, 0]]}, LayoutError, "contain -1"),
    ],
)  # fmt: skip
def test_what_exchange_refuses(parts: Any, counts: Any, how: Any, kind: type[OocError], message: str) -> None:
    with pytest.raises(kind, match=message):
        flat(ooc.ranks.exchange, parts, counts, scheduler="threads", **how)


def test_arrays_of_ranks_take_no_scheduler() -> None:
    x = ooc.ranks.distribute(np.arange(4), "block", ranks=2, scheduler="threads")
    with pytest.raises(InputError, match="goes with arrays of this process"):
        ooc.ranks.exchange(x, [[1, 1], [1, 1]], scheduler="threads")


# ---------------------------------------------------------------------- plans, schedules, networks


def test_a_plan_on_a_network_of_ones_own_is_run() -> None:
    array = np.arange(960)
    layouts = [ooc.Layout.of((960,), f"cyclic({m})", ranks=8) for m in (15, 10)]
    plan = ooc.ranks.plan_redistribution(
        *layouts, array.dtype, network=ooc.networks.Mesh(rows=2, columns=4), constants="cm-5"
    )
    assert isinstance(plan, ooc.ranks.Redistribution)
    x = ooc.ranks.distribute(array, layouts[0], scheduler="threads").redistribute(plan)
    np.testing.assert_array_equal(x.compute(), array)
    np.testing.assert_array_equal(x.redistribute(plan.reversed()).compute(), array)
    by_text = ooc.ranks.plan_redistribution(*layouts, array.dtype, network="mesh:2x4", constants="cm-5")
    assert by_text == plan
    with pytest.raises(ScheduleError, match="has 9 places"):
        ooc.ranks.plan_redistribution(*layouts, network=ooc.networks.Torus(rows=3, columns=3))
    with pytest.raises(LayoutError, match=r"not a Layout: create one with Layout\.of"):
        ooc.ranks.plan_redistribution("cyclic", layouts[1])  # type: ignore[arg-type]


def test_a_schedule_is_taken_wherever_its_name_is() -> None:
    layouts = [ooc.Layout.of((64,), text, ranks=4) for text in ("block", "cyclic")]
    ipex = ooc.ranks.Schedule.of("ipex", 4, columns=4)
    assert ooc.ranks.plan_redistribution(*layouts, schedule=ipex).price.schedules == ("IPEX",)
    x = ooc.ranks.distribute(np.arange(64), layouts[0], scheduler="threads")
    np.testing.assert_array_equal(x.redistribute(layouts[1], schedule=ipex).compute(), np.arange(64))
    with pytest.raises(ScheduleError, match="is for 8 ranks, not 4"):
        x.redistribute(layouts[1], schedule=ooc.ranks.Schedule.of("gen", 8))
    some = ooc.ranks.Schedule("COLORING", 4, 1, ((1, 0, -1, -1),))
    with pytest.raises(ScheduleError, match="does not fit others"):
        x.redistribute(layouts[1], schedule=some)
    with pytest.raises(ScheduleError, match="power of two"):
        x.redistribute("cyclic", ranks=6, schedule=ooc.ranks.Schedule("PEX", 6, 1))
