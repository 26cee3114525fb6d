"""Networks, beside messages that walk link by link, and beside the thesis's own formulas for contention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import ScheduleError
from oocarrays.networks import FatTree, FlatCluster, Mesh
from oocarrays.plan.exchange.network import Network, busiest
from oocarrays.ranks import Schedule
from tests import contention
from tests.profiles import examples

pytestmark = pytest.mark.long

POWERS = (1, 2, 4, 8, 16, 32)


def routed(name: str, network: Network, columns: int | None = None) -> list[float]:
    """Contention of each step, by routing its messages."""
    schedule = Schedule.of(name, network.ranks, columns=columns)
    return [busiest(network, step.senders, step.destinations[step.senders]) for step in schedule]


def walk(mesh: Mesh, source: int, target: int) -> Iterator[tuple[int, int]]:
    """The links of a message: a column nearer at a time, then a row nearer at a time."""
    here = source
    while here != target:
        column, to = here % mesh.columns, target % mesh.columns
        if column != to:
            after = here + (1 if to > column else -1)
        else:
            after = here + (mesh.columns if target > here else -mesh.columns)
        yield here, after
        here = after


def climb(source: int, target: int) -> Iterator[tuple[str, int, int]]:
    """The nodes whose links to their parents a message takes: up from the source, and down to the target."""
    level = 0
    while source != target:
        yield "up", level, source
        yield "down", level, target
        source, target, level = source // 4, target // 4, level + 1


@st.composite
def messages(draw: st.DrawFn, ranks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    many = draw(st.integers(0, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return random.integers(0, ranks, many), random.integers(0, ranks, many), random.integers(0, 1000, many)


@examples(150)
@given(st.data(), st.integers(1, 9), st.integers(1, 9))
def test_a_mesh_loads_the_links_that_messages_walk(data: st.DataObject, rows: int, columns: int) -> None:
    mesh = Mesh(rows=rows, columns=columns)
    sources, targets, sizes = data.draw(messages(mesh.ranks))
    for weights in (None, sizes):
        walked: Counter[tuple[int, int]] = Counter()
        for k, (source, target) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)):
            for link in walk(mesh, source, target):
                walked[link] += 1 if weights is None else int(weights[k])
        loads = mesh.loads(sources, targets, weights)
        assert sorted(loads[loads > 0].tolist()) == sorted(load for load in walked.values() if load)


@examples(100)
@given(st.data(), st.integers(1, 9), st.integers(1, 9))
def test_legs_are_the_busiest_links_of_each_message_s_row_and_column(
    data: st.DataObject, rows: int, columns: int
) -> None:
    mesh = Mesh(rows=rows, columns=columns)
    sources, targets, sizes = data.draw(messages(mesh.ranks))
    ways = [list(walk(mesh, source, target)) for source, target in zip(sources.tolist(), targets.tolist(), strict=True)]
    load: Counter[tuple[int, int]] = Counter()
    for way, size in zip(ways, sizes.tolist(), strict=True):
        load.update(dict.fromkeys(way, size))
    across, along = mesh.legs(sources, targets, sizes)
    for way, row, column in zip(ways, across, along, strict=True):
        same_row = [link for link in way if link[0] // columns == link[1] // columns]
        assert row == max((load[link] for link in same_row), default=0)
        assert column == max((load[link] for link in way if link not in same_row), default=0)


@examples(150)
@given(st.data(), st.integers(1, 300))
def test_a_fat_tree_loads_the_nodes_that_messages_climb(data: st.DataObject, ranks: int) -> None:
    tree = FatTree(ranks=ranks)
    sources, targets, sizes = data.draw(messages(ranks))
    climbed: Counter[tuple[str, int, int]] = Counter()
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True):
        for link in climb(source, target):
            climbed[link] += size
    shared = sorted(float(Fraction(load, tree.links[level])) for (_, level, _), load in climbed.items() if load)
    loads = tree.loads(sources, targets, sizes)
    assert sorted(loads[loads > 0].tolist()) == shared


def test_links_of_the_cm5() -> None:
    """Section 4.2.2: 2 links from a rank, 8 from a node of level 2, 32 from one of level 3; Figure 4.2."""
    assert FatTree(ranks=16 * 1024).links == (2, 4, 8, 32, 128, 512, 2048)
    assert FatTree(ranks=4).links == (2,)


def test_a_flat_cluster_loads_ways_and_hosts() -> None:
    cluster = FlatCluster.of(2, 2, lanes=2)
    loads = cluster.loads(np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([10, 20, 40]))
    assert loads.tolist() == [10, 20, 40, 0, 0, 10, 20, 40, 20, 50]
    assert busiest(FlatCluster.of(4), np.array([0, 1, 2]), np.array([3, 3, 3])) == 3
    assert busiest(cluster, np.array([], int), np.array([], int)) == 0


@pytest.mark.parametrize("rows", POWERS)
@pytest.mark.parametrize("columns", POWERS)
def test_pex_on_a_mesh_is_its_closed_form(rows: int, columns: int) -> None:
    expected = [contention.pex_on_mesh(i, columns) for i in range(1, rows * columns)]
    assert routed("PEX", Mesh(rows=rows, columns=columns)) == expected


@pytest.mark.parametrize(("rows", "columns"), [(1, 8), (8, 1), (4, 4), (4, 16), (16, 8), (32, 32)])
def test_rex_and_ipex_on_a_mesh_are_their_closed_forms(rows: int, columns: int) -> None:
    mesh = Mesh(rows=rows, columns=columns)
    steps = range(1, mesh.ranks.bit_length())
    assert routed("REX", mesh, columns) == [contention.rex_on_mesh(i, rows, columns) for i in steps]
    along_columns = [contention.ipex_on_mesh(j) for j in range(1, rows)]
    by_rows = [f for i in range(1, columns) for f in (contention.ipex_on_mesh(i), *along_columns)]
    assert routed("IPEX", mesh, columns) == by_rows + along_columns


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize("columns", [1, 2, 4, 5, 6, 8, 9])
def test_gen_on_a_mesh_is_no_more_than_its_closed_form(rows: int, columns: int) -> None:
    bound = [contention.gen_on_mesh(i, rows, columns) for i in range(1, rows * columns)]
    counted = routed("GEN", Mesh(rows=rows, columns=columns))
    assert all(ours <= most for ours, most in zip(counted, bound, strict=True))
    if (rows, columns) == (2, 4):
        assert counted == bound
    if (rows, columns) == (8, 8):
        assert sum(ours < most for ours, most in zip(counted, bound, strict=True)) == 30


def test_pex_on_2_x_4_is_the_figure() -> None:
    """Figure 4.9: no contention in steps 1, 4 and 5; two messages on a link in the others."""
    assert routed("PEX", Mesh(rows=2, columns=4)) == [1, 2, 2, 1, 1, 2, 2]


@pytest.mark.parametrize("ranks", [64, 256, 1024])
def test_schedules_on_the_fat_tree_are_their_closed_forms(ranks: int) -> None:
    """The thesis counts whole messages on a link, so 1 where two links carry one."""
    tree = FatTree(ranks=ranks)
    assert np.ceil(routed("PEX", tree)).tolist() == [contention.pex_on_fat_tree(i) for i in range(1, ranks)]
    steps = range(1, ranks.bit_length())
    assert np.ceil(routed("REX", tree)).tolist() == [contention.rex_on_fat_tree(i, ranks) for i in steps]
    assert set(np.ceil(routed("LEX", tree))) == {contention.lex_on_fat_tree(ranks)}


def test_bex_on_64_ranks_of_the_fat_tree() -> None:
    """Late steps peak at 2 as those of PEX do; an average of links and steps is a little below (4.2.4)."""
    tree, schedule = FatTree(ranks=64), list(Schedule.of("BEX", 64))
    assert max(routed("BEX", tree)[:15]) == 1
    assert set(routed("BEX", tree)[15:]) == {2.0}
    top = -2 * 4
    for first, last in ((16, 31), (32, 63)):
        loads = [tree.loads(s.senders, s.destinations[s.senders])[top:] for s in schedule[first - 1 : last]]
        assert np.mean(loads) == pytest.approx(contention.bex_on_fat_tree(first), abs=0.01)


def test_4096_ranks_on_a_mesh_are_routed() -> None:
    mesh = Mesh(rows=64, columns=64)
    assert max(routed("PEX", mesh)) == max(routed("GEN", mesh)) == 32


@pytest.mark.parametrize(
    "make",
    [lambda: Mesh(rows=0, columns=4), lambda: FatTree(ranks=0), lambda: FlatCluster.of(2, 0), lambda: FlatCluster.of()],
)
def test_a_network_without_ranks_is_refused(make: object) -> None:
    with pytest.raises(ScheduleError, match="at least"):
        make()  # type: ignore[operator]
