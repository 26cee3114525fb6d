"""The choice of layouts against brute force over everything that could be chosen, and the rules that keep what is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.choice import BlockReader, ChoiceUnit, Subgraph, choose, priced
from oocarrays.plan.advice.patterns import Pattern
from oocarrays.plan.advice.price import prices, rewriting_seconds
from oocarrays.plan.advice.verdict import candidates
from oocarrays.plan.plan import Resources

pytestmark = pytest.mark.long

RESOURCES = Resources(budget=2**30)


def use_of(axes: Sequence[Iterable[range]], count: float = 1.0, **how: Any) -> Access:
    return Access(block="", dataset="", patterns=(Pattern.of(axes),), weight=count, **{"by": "oocarrays", **how})


def unit_of(weight: float) -> ChoiceUnit:
    """Return columns that are read of an array of rows, `weight` times."""
    shape = (4096, 4096)
    stored = Stored(grid=ChunkGrid.of(shape, (64, 4096)), itemsize=8, local=True, codec="zstd")
    use = use_of([[range(4096)], [range(i, i + 512) for i in range(0, 4096, 512)]])
    reader = BlockReader(block="columns", weight=weight, uses=(use,))
    flow = Subgraph(dataset="x", producer=None, readers=(reader,))
    return ChoiceUnit(flow=flow, stored=stored, shapes=candidates(stored, [use]))


def test_an_array_is_rewritten_only_if_that_saves_a_tenth_or_more() -> None:
    found = {weight: choose(priced(unit_of(weight), RESOURCES)) for weight in (0.3, 100)}
    assert (found[0.3].kept, found[100].kept) == (True, False)
    weights = [0.3 * 1.01**n for n in range(600)]
    first = next(each for each in (choose(priced(unit_of(weight), RESOURCES)) for weight in weights) if not each.kept)
    assert 0.1 <= first.saving < 0.12


def random_unit(rng: np.random.Generator, name: str, producer: str | None, blocks: list[str]) -> ChoiceUnit:
    shape = tuple(int(n) for n in rng.integers(2, 200, rng.integers(1, 4)))
    shapes = np.stack([rng.integers(1, n + 1, 8) for n in shape], axis=1)
    coded = rng.choice([None, "zstd"])
    stored = Stored(grid=ChunkGrid.of(shape, tuple(map(int, shapes[0]))), itemsize=8, local=True, codec=coded)
    readers = [
        BlockReader(block=block, weight=float(rng.integers(0, 20)), uses=random_uses(rng, shape, False))
        for block in blocks
    ]
    writing = random_uses(rng, shape, True) if producer else ()
    flow = Subgraph(dataset=name, producer=producer, readers=tuple(readers), writing=writing)
    return ChoiceUnit(flow=flow, stored=stored, shapes=shapes)


def random_uses(rng: np.random.Generator, shape: tuple[int, ...], writes: bool) -> tuple[Access, ...]:
    found = []
    for _ in range(1 if writes else int(rng.integers(1, 3))):
        parts = [int(rng.integers(1, min(n, 8) + 1)) for n in shape]
        axes = [[range(i * n // p, (i + 1) * n // p) for i in range(p)] for n, p in zip(shape, parts, strict=True)]
        ranks = math.prod(parts) if writes or rng.random() < 0.7 else None
        by = "zarr" if rng.random() < 0.5 else "oocarrays"
        found.append(use_of(axes, float(rng.integers(1, 4)), ranks=ranks, writes=writes, by=by))
    return tuple(found)


def random_graph(seed: int) -> list[ChoiceUnit]:
    """Up to three arrays, six blocks and eight layouts each; an array may have two producers."""
    rng = np.random.default_rng(seed)
    blocks = [f"b{i}" for i in range(int(rng.integers(1, 7)))]
    units = []
    for array in range(int(rng.integers(1, 4))):
        producers = [[None], ["b0"], ["b0", "b1"]][int(rng.integers(3))]
        for producer in producers:
            readers = [b for b in blocks[2:] or blocks if rng.random() < 0.6][:2]
            units.append(random_unit(rng, f"a{array}", producer, readers))
    return units


def every_cost(unit: ChoiceUnit) -> np.ndarray:
    """Seconds of every way to do everything with an array, each priced use by use and layout by layout.

    The axes are: the layout that is made, the one of the copy, the producer's method, and of each reader whether it
    reads the copy and its method.
    """
    flow = unit.flow
    ends = 3 + 2 * len(flow.readers)
    total = np.zeros((1,) * ends)

    def seconds_of(use: Access) -> np.ndarray:
        """A row for each layout, a column for each method."""
        each = [prices(use, unit.stored, shape[None], RESOURCES).seconds[:, 0] for shape in unit.shapes]
        return np.stack(each)

    def spread(values: np.ndarray, *axes: int) -> np.ndarray:
        """Values along some of the axes."""
        return np.expand_dims(values, tuple(set(range(ends)) - set(axes)))

    for use in flow.writing:
        total = total + spread(use.weight * seconds_of(use), 0, 2)
    times = sum(use.weight for use in flow.writing) if flow.writing else 1.0
    rewrite = [
        [float(rewriting_seconds(unit.stored, a[None], b[None], RESOURCES)[0, 0]) for b in unit.shapes]
        for a in unit.shapes
    ]
    total = total + spread(times * np.array(rewrite), 0, 1)
    for number, reader in enumerate(flow.readers):
        for use in reader.uses:
            times = reader.weight * use.weight
            seconds = np.array([[e if math.isinf(e) else times * e for e in row] for row in seconds_of(use)])
            where, how = 3 + 2 * number, 4 + 2 * number
            made = spread(seconds, 0, how)
            copied = spread(seconds, 1, how)
            is_copy = spread(np.array([False, True]), where)
            total = total + np.where(is_copy, copied, made)
    return total if flow.producer else total[:1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(10))
def test_the_choice_is_the_cheapest_of_all_that_could_be_chosen(seed: int) -> None:
    for graph in range(25 * seed, 25 * seed + 25):
        for unit in random_graph(graph):
            found = choose(priced(unit, RESOURCES), worth=1.0, worth_a_copy=1.0, least_copy=0)
            assert found.seconds == pytest.approx(every_cost(unit).min(), rel=1e-9)


def test_arrays_chosen_one_by_one_are_chosen_best_together() -> None:
    one, other = (random_unit(np.random.default_rng(n), f"a{n}", None, ["b0"]) for n in (1, 2))
    together = every_cost(one).reshape(-1, 1) + every_cost(other).reshape(1, -1)
    each = [choose(priced(unit, RESOURCES), worth=1.0, worth_a_copy=1.0, least_copy=0).seconds for unit in (one, other)]
    assert sum(each) == pytest.approx(together.min())


def some_uses(rng: np.random.Generator, shape: tuple[int, ...]) -> list[Access]:
    """Sections of a few lengths, some with strides, some of tasks that are cut by chunks."""
    found = []
    for _ in range(int(rng.integers(1, 3))):
        axes = []
        for n in shape:
            length, stride = int(2 ** rng.integers(0, n.bit_length())), int(rng.choice([1, 1, 1, 4]))
            lower = map(int, rng.integers(0, max(n - length, 1), int(rng.integers(1, 5))))
            axes.append([range(low, min(low + length * stride, n), stride) for low in lower])
        cut = bool(rng.random() < 0.5)
        found.append(use_of(axes, float(rng.integers(1, 50)), by="zarr", cut_by_chunks=cut))
    return found


def test_chunks_that_are_tried_are_nearly_as_cheap_as_any() -> None:
    """Against all chunks whose lengths are powers of two, of 64 KiB (or today's bytes, if these are fewer) and more."""
    rng, gaps = np.random.default_rng(0), []
    for _ in range(30):
        shape = [(2**20,), (1024, 512), (2048, 2048), (128, 256, 64)][int(rng.integers(4))]
        chunks = tuple(int(2 ** rng.integers(n.bit_length() // 2, n.bit_length())) for n in shape)
        stored = Stored(grid=ChunkGrid.of(shape, chunks), itemsize=4, local=True, codec="zstd")
        uses = some_uses(rng, shape)
        every = np.array(list(product(*([2**i for i in range(n.bit_length())] for n in shape))))
        nbytes = every.prod(axis=1) * 4
        every = every[(nbytes >= min(2**16, math.prod(chunks) * 4)) & (nbytes <= 2**28)]
        tried = candidates(stored, uses)
        found, best = (
            sum(use.weight * prices(use, stored, each, RESOURCES).seconds[0] for use in uses).min()
            for each in (tried, every)
        )
        gaps.append(found / best)
    assert max(gaps) < 1.3
    assert sorted(gaps)[len(gaps) * 9 // 10] < 1.1


def test_among_equal_chunks_tasks_of_dask_get_the_fewest() -> None:
    shapes = np.array([[64, 64], [512, 512], [512, 1024], [1024, 512]])
    stored = Stored(grid=ChunkGrid.of((4096, 4096), (64, 64)), itemsize=4, local=True)
    for cut in (False, True):
        use = use_of([[range(4096)]] * 2, by="zarr", cut_by_chunks=cut)
        reader = BlockReader(block="b", weight=1e6, uses=(use,))
        unit = ChoiceUnit(flow=Subgraph(dataset="a", producer=None, readers=(reader,)), stored=stored, shapes=shapes)
        found = priced(unit, RESOURCES)
        equal = np.flatnonzero(found.single[0] <= 1.05 * found.single.min())
        fewest = min(equal, key=lambda at: (-int(shapes[at].prod()), found.single[0, at]))
        assert choose(found).copied == (fewest if cut else found.single[0].argmin())
