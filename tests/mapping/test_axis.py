"""One-axis maps against elements dealt out by hand, against the paper's table and against ScaLAPACK."""

from __future__ import annotations

import csv
import ctypes
import os
from collections.abc import Callable, Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays import Block, Collapsed, Cyclic, GenBlock
from oocarrays.mapping.layouts.distribution import Axis, BlockCyclicAxis
from tests.mapping.dealing import Table, dealt, laid_out, owners, places

pytestmark = pytest.mark.once

DATA = Path(__file__).parents[1] / "data"
RANKS, BLOCKS, MOST = range(1, 10), range(1, 13), 60


def agrees(axis: Axis, table: Table) -> bool:
    """Whether a map says what the table does, of every element and every rank, integers and arrays alike."""
    elements = np.arange(axis.extent)
    held = [axis.index(rank, np.arange(len(hand))).tolist() for rank, hand in enumerate(table)]
    sections = [sorted(chain(*axis.sections(rank))) for rank in range(axis.ranks)]
    return (
        [axis.size(rank) for rank in range(axis.ranks)] == list(map(len, table))
        and axis.owner(elements).tolist() == owners(table)
        and axis.place(elements).tolist() == places(table)
        and held == sections == table
    )


def agrees_one_by_one(axis: Axis, table: Table) -> bool:
    """The same for integers."""
    elements = range(axis.extent)
    held = [[axis.index(rank, place) for place in range(len(hand))] for rank, hand in enumerate(table)]
    kinds = {type(axis.owner(i)) for i in elements} | {type(axis.place(i)) for i in elements}
    return (
        [axis.owner(i) for i in elements] == owners(table)
        and [axis.place(i) for i in elements] == places(table)
        and held == table
        and kinds <= {int}
    )


@pytest.mark.parametrize("ranks", RANKS)
def test_cyclic_is_dealing_blocks_in_turn(ranks: int) -> None:
    """Every extent to 60, every block to 12: of fewer elements the table is the start of that of more."""
    for block, extent in product(BLOCKS, range(MOST + 1)):
        axis = Cyclic(block).over(extent, ranks)
        assert agrees(axis, dealt(extent, ranks, block)), axis
    for block in BLOCKS:
        axis = Cyclic(block).over(MOST, ranks)
        assert agrees_one_by_one(axis, dealt(MOST, ranks, block)), axis


@pytest.mark.parametrize("ranks", RANKS)
def test_block_is_dealing_once(ranks: int) -> None:
    for block, extent in product([None, *BLOCKS], range(MOST + 1)):
        if block is None or block * ranks >= extent:
            axis = Block(block).over(extent, ranks)
            assert agrees(axis, laid_out(Block(block), extent, ranks)), axis
            assert max(len(axis.sections(rank)) for rank in range(ranks)) <= 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9).map(tuple))
def test_gen_block_is_dealing_as_many_as_each_is_to_have(sizes: tuple[int, ...]) -> None:
    axis = GenBlock(sizes).over(sum(sizes), len(sizes))
    assert agrees(axis, laid_out(GenBlock(sizes), sum(sizes), len(sizes)))
    assert agrees_one_by_one(axis, laid_out(GenBlock(sizes), sum(sizes), len(sizes)))


@pytest.mark.parametrize("extent", [0, 1, 7])
def test_an_axis_that_is_not_shared_out_is_all_with_one_rank(extent: int) -> None:
    assert agrees(Collapsed().over(extent, 1), [list(range(extent))])


def test_sections_are_few() -> None:
    """No more than the blocks, no more than the elements of a block: so of n elements hardly more than √n sections."""
    for block, ranks, extent in product(BLOCKS, RANKS, range(MOST + 1)):
        axis = Cyclic(block).over(extent, ranks)
        for rank in range(ranks):
            few = len(axis.sections(rank))
            assert few <= block
            assert few**2 <= axis.size(rank) + block
    assert Cyclic(3).over(26, 1).sections(0) == [range(26)]


@pytest.mark.parametrize("distribution", [Cyclic(10**6), Block(), GenBlock((3 * 10**9, 2 * 10**9))])
def test_narrow_integers_and_axes_past_two_to_the_31_agree(distribution: Cyclic | Block | GenBlock) -> None:
    axis = distribution.over(5 * 10**9, 2)
    held = np.array([0, 10**6, 2 * 10**9 - 1], np.int32)
    wide = axis.index(1, held)
    assert wide.tolist() == [axis.index(1, int(place)) for place in held]
    assert wide.dtype == axis.owner(held).dtype == axis.place(held).dtype == np.int64
    assert axis.owner(wide).tolist() == [1, 1, 1]
    assert axis.place(wide).tolist() == held.tolist()


# what is printed


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


def ceiling(j: int, k: int) -> int:
    return (j + k - 1) // k


@pytest.mark.parametrize(
    "row", rows("thesis_table3_1.csv"), ids=lambda row: f"{row['conversion']} {row['distribution']}"
)
def test_table_3_1_counts_from_one_what_we_count_from_zero(row: dict[str, str]) -> None:
    formula = compile(row["corrected_python"] or row["formula_python"], row["conversion"], "eval")
    names: dict[str, Any] = {"CD": ceiling, "CR": lambda j, k: j - k * ceiling(j, k), "MOD": lambda a, b: a % b}
    for extent, ranks, m in product(range(1, 40), range(1, 6), range(1, 9)):
        distribution = {"BLOCK(m)": Block(m), "CYCLIC": Cyclic(), "CYCLIC(m)": Cyclic(m)}[row["distribution"]]
        if distribution == Block(m) and m * ranks < extent:
            continue
        axis = distribution.over(extent, ranks)
        for g in range(extent):
            rank, place = axis.owner(g), axis.place(g)
            printed = eval(formula, names, {"g": g + 1, "l": place + 1, "p": rank, "m": m, "P": ranks})
            ours = {"processor": rank, "local": place + 1, "global": g + 1}[row["conversion"].split()[-1]]
            assert printed == ours, (axis, g)


def test_the_26_elements_on_4_processors() -> None:
    """HPF's example, section 3.2: every element that is printed is where we say, and no other is printed."""
    example = rows("thesis_hpf_example.csv")
    words = {"BLOCK": Block(), "CYCLIC": Cyclic(), "CYCLIC(3)": Cyclic(3)}
    assert len(example) == 3 * 26
    for row in example:
        axis = words[row["distribution"]].over(int(row["extent"]), int(row["processors"]))
        g = int(row["global_index"])
        assert (axis.owner(g), axis.place(g)) == (int(row["rank"]), int(row["local_index"]))


# ScaLAPACK, which counts elements from one and deals its first block to any process


def numroc(n: int, nb: int, iproc: int, isrcproc: int, nprocs: int) -> int:
    distance, blocks = (nprocs + iproc - isrcproc) % nprocs, n // nb
    extra = blocks % nprocs
    return blocks // nprocs * nb + (nb if distance < extra else n % nb if distance == extra else 0)


def indxg2p(indxglob: int, nb: int, iproc: int, isrcproc: int, nprocs: int) -> int:
    return (isrcproc + (indxglob - 1) // nb) % nprocs


def indxg2l(indxglob: int, nb: int, iproc: int, isrcproc: int, nprocs: int) -> int:
    return nb * ((indxglob - 1) // (nb * nprocs)) + (indxglob - 1) % nb + 1


def indxl2g(indxloc: int, nb: int, iproc: int, isrcproc: int, nprocs: int) -> int:
    distance = (nprocs + iproc - isrcproc) % nprocs
    return nprocs * nb * ((indxloc - 1) // nb) + (indxloc - 1) % nb + distance * nb + 1


FORMULAS: dict[str, Callable[..., int]] = {f.__name__: f for f in (numroc, indxg2p, indxg2l, indxl2g)}


def compiled() -> dict[str, Callable[..., int]]:
    """The library's own functions, where Debian's libscalapack-mpich2.2 or libscalapack-openmpi2.2 is installed."""
    folders = [
        *map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))),
        *Path("/usr/lib").glob("*-linux-*"),
    ]
    found = next((str(file) for folder in folders for file in folder.glob("libscalapack-*.so*")), None)
    if found is None:
        pytest.skip("ScaLAPACK is not installed: no libscalapack-*.so in /usr/lib")
    library = ctypes.CDLL(found)

    def caller(name: str) -> Callable[..., int]:
        function = getattr(library, f"{name}_")
        return lambda *numbers: int(function(*(ctypes.byref(ctypes.c_int(number)) for number in numbers)))

    return {name: caller(name) for name in FORMULAS}


def cases() -> Iterator[tuple[BlockCyclicAxis, int, int]]:
    """Axes, with a process that holds the first block and another process."""
    for extent, ranks, block in product((0, 1, 2, 11, 12, 13, 26, 59, 60), (1, 2, 3, 4, 7, 9), (1, 2, 3, 5, 12)):
        for first, process in {(0, ranks - 1), (ranks - 1, 0), (ranks // 2, ranks // 3)}:
            yield BlockCyclicAxis(extent, ranks, block), first, process


@pytest.mark.parametrize("library", ["formulas", "compiled"])
def test_scalapacks_functions(library: str) -> None:
    call = FORMULAS if library == "formulas" else compiled()
    for axis, first, process in cases():
        block, ranks = axis.block, axis.ranks
        rank = (process - first) % ranks
        assert call["numroc"](axis.extent, block, process, first, ranks) == axis.size(rank)
        for g in range(axis.extent):
            assert call["indxg2p"](g + 1, block, process, first, ranks) == (axis.owner(g) + first) % ranks
            assert call["indxg2l"](g + 1, block, process, first, ranks) == axis.place(g) + 1
        for place in range(axis.size(rank)):
            assert call["indxl2g"](place + 1, block, process, first, ranks) == axis.index(rank, place) + 1
