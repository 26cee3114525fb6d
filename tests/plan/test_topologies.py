"""Hypercubes, tori and dragonflies, beside messages that walk link by link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import ScheduleError
from oocarrays.networks import Dragonfly, Hypercube, Torus
from tests.profiles import examples

pytestmark = pytest.mark.once

Link = tuple[object, ...]


def cube_walk(cube: Hypercube, source: int, target: int) -> Iterator[Link]:
    for bit in range(cube.dimensions):
        if (source ^ target) >> bit & 1:
            yield source, source ^ 1 << bit
            source ^= 1 << bit


def ring_walk(start: int, stop: int, length: int) -> Iterator[tuple[int, int]]:
    ahead, back = (stop - start) % length, (start - stop) % length
    turn = 1 if ahead < back or (ahead == back and start % 2 == 0) else -1
    while start != stop:
        yield start, turn
        start = (start + turn) % length


def torus_walk(torus: Torus, source: int, target: int) -> Iterator[Link]:
    (y, x), (to_y, to_x) = divmod(source, torus.columns), divmod(target, torus.columns)
    yield from (("row", y, *link) for link in ring_walk(x, to_x, torus.columns))
    yield from (("column", to_x, *link) for link in ring_walk(y, to_y, torus.rows))


def dragonfly_walk(fly: Dragonfly, source: int, target: int) -> Iterator[Link]:
    if source == target:
        return
    yield "out", source
    yield "in", target
    (group, router), (to_group, to_router) = (divmod(r // fly.ranks_a_router, fly.routers) for r in (source, target))
    if group == to_group:
        yield from [("within", group, router, to_router)] * (router != to_router)
        return
    others = [g for g in range(fly.groups) if g != group]
    gate = others.index(to_group) % fly.routers
    back = [g for g in range(fly.groups) if g != to_group].index(group) % fly.routers
    yield from [("within", group, router, gate)] * (router != gate)
    yield "between", group, to_group
    yield from [("within", to_group, back, to_router)] * (back != to_router)


SHORT = st.integers(1, 5)
Network = Dragonfly | Hypercube | Torus
KINDS: dict[str, tuple[st.SearchStrategy[Network], Callable[..., Iterator[Link]]]] = {
    "hypercube": (st.builds(Hypercube, dimensions=st.integers(0, 5)), cube_walk),
    "torus": (st.builds(Torus, rows=SHORT, columns=st.integers(1, 6)), torus_walk),
    "dragonfly": (st.builds(Dragonfly, groups=SHORT, routers=SHORT, ranks_a_router=st.integers(1, 3)), dragonfly_walk),
}


@pytest.mark.parametrize(("kind", "walk"), KINDS.values(), ids=KINDS)
@examples(80)
@given(data=st.data())
def test_links_carry_the_messages_that_walk_them(
    kind: st.SearchStrategy[Network], walk: Callable[..., Iterator[Link]], data: st.DataObject
) -> None:
    network = data.draw(kind)
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    many = data.draw(st.integers(0, 30))
    sources, targets = random.integers(0, network.ranks, (2, many))
    sizes = random.integers(1, 1000, many)
    for weights in (None, sizes):
        walked: Counter[Link] = Counter()
        for k in range(many):
            for link in walk(network, int(sources[k]), int(targets[k])):
                walked[link] += 1 if weights is None else int(weights[k])
        loads = network.loads(sources, targets, weights)
        assert sorted(loads[loads > 0].tolist()) == sorted(walked.values())


def test_networks_without_ranks_are_refused() -> None:
    for kind, lengths in ((Hypercube, {"dimensions": -1}), (Torus, {"rows": 0, "columns": 2})):
        with pytest.raises(ScheduleError, match=r"has no ranks|is invalid"):
            kind(**lengths)
    with pytest.raises(ScheduleError, match="dragonfly of 1x0x1"):
        Dragonfly(groups=1, routers=0, ranks_a_router=1)
