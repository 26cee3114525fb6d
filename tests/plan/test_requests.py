"""Request counts against a map of the file's bytes, and against what del Rosario, Bordawekar and Choudhary print."""

from __future__ import annotations

import csv
import math
from collections import Counter
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import ChunksError, LayoutError
from oocarrays.plan.sections.requests import requests_of

pytestmark = pytest.mark.once

PRINTED = {
    "Column-Block": "(*, block)",
    "Column-Cyclic": "(*, cyclic)",
    "Row-Block": "(block, *)",
    "Row-Cyclic": "(cyclic, *)",
    "Block-Block": "(block, block)",
    "Block-Cyclic": "(block, cyclic)",
    "Cyclic-Block": "(cyclic, block)",
    "Cyclic-Cyclic": "(cyclic, cyclic)",
}
"""The distributions of Table 1, as layouts."""


def table_1(n: int, p: int) -> dict[str, tuple[int, int]]:
    """R_dist and S_dist by layout as printed: of an n × n array that is stored by columns, over p processors."""
    names = {"N": n, "P": p, "sqrt": math.isqrt}
    with (Path(__file__).parents[1] / "data" / "twophase_table1.csv").open() as file:
        return {
            PRINTED[row["distribution"]]: (eval(row["requests"], names), int(eval(row["request_elements"], names)))
            for row in csv.DictReader(file)
        }


@pytest.mark.parametrize("layout", PRINTED.values())
@pytest.mark.parametrize(("n", "p"), [(16, 4), (36, 9), (1024, 64)])
def test_table_1_comes_out_as_it_is_printed(layout: str, n: int, p: int) -> None:
    found = ooc.ranks.count_requests((n, n), layout, ranks=p, orientation="column")
    assert (found.distribution_requests, found.distribution_elements) == table_1(n, p)[layout]
    assert found.transaction_requests == found.distribution_requests


@pytest.mark.parametrize("layout", PRINTED.values())
@pytest.mark.parametrize("stripe", [1, 4, 8, 16, 64, 256])
def test_stripes_cut_as_equation_1_says_where_they_divide(layout: str, stripe: int) -> None:
    requests, elements = table_1(16, 4)[layout]
    found = ooc.ranks.count_requests((16, 16), layout, ranks=4, orientation="column", chunk=stripe)
    assert found.transaction_requests == requests * (elements // min(elements, stripe))


def test_rows_and_columns_are_switched_where_the_file_is() -> None:
    for layout in PRINTED.values():
        turned = layout.strip("()").split(", ")
        by_rows = ooc.ranks.count_requests((24, 24), [*reversed(turned)], ranks=4, orientation="row", chunk=6)
        by_columns = ooc.ranks.count_requests((24, 24), turned, ranks=4, orientation="column", chunk=6)
        assert by_rows.transaction_requests == by_columns.transaction_requests
        assert by_rows.distribution_elements == by_columns.distribution_elements


@pytest.mark.parametrize(("stripe", "each"), [("512KiB", 1), ("128KiB", 2)])
def test_the_worked_example_of_equation_1(stripe: str, each: int) -> None:
    found = ooc.ranks.count_requests(
        (1024, 1024), "(*, block)", ranks=4, orientation="column", chunk=stripe, dtype="u1"
    )
    assert (found.distribution_requests, found.distribution_elements) == (4, 256 * 1024)
    assert found.rank_requests == (each,) * 4


@st.composite
def layouts(draw: st.DrawFn) -> ooc.Layout:
    kinds = st.sampled_from(["block", "cyclic", "cyclic(2)", "cyclic(3)", "*"])
    each = draw(st.lists(kinds, min_size=1, max_size=3).filter(lambda each: set(each) != {"*"}))
    shape = tuple(draw(st.integers(0, 9)) for _ in each)
    return ooc.Layout.of(shape, each, grid=[1 if kind == "*" else draw(st.integers(1, 4)) for kind in each])


@st.composite
def cuts(draw: st.DrawFn) -> tuple[ooc.Layout, tuple[int, ...], Any]:
    layout = draw(layouts())
    stripes, chunks = st.integers(1, 12), st.tuples(*(st.integers(1, n + 1) for n in layout.shape))
    return layout, draw(st.permutations(range(len(layout.shape))).map(tuple)), draw(st.none() | stripes | chunks)


def owners(layout: ooc.Layout) -> np.ndarray:
    """The rank of each element, one by one."""
    held = np.empty(layout.shape, int)
    for index in product(*map(range, layout.shape)):
        held[index] = layout.owner(index)
    return held


def lines(held: np.ndarray) -> np.ndarray:
    """What is read in one request each, in file order: a rank's lines, or all of them where it holds them whole."""
    labels = np.empty(held.shape, object)
    for index in np.ndindex(held.shape):
        rank, axis = held[index], held.ndim - 1
        while axis >= 0 and (np.moveaxis(held == rank, axis, 0).reshape(held.shape[axis], -1).any(axis=1)).all():
            axis -= 1
        labels[index] = None if rank < 0 else (int(rank), index[: max(axis, 0)])
    return labels.ravel()


def files(held: np.ndarray, order: tuple[int, ...], chunk: Any) -> list[list[Any]]:
    """What lies in each stripe or chunk, in file order; None for what pads a chunk."""
    if not isinstance(chunk, tuple):
        line = lines(held.transpose(order)).tolist()
        return [line[i : i + chunk] for i in range(0, len(line), chunk)] if chunk else [line]
    padded = np.full([-(-n // c) * c for n, c in zip(held.shape, chunk, strict=True)], -1)
    padded[tuple(map(slice, held.shape))] = held
    starts = product(*(range(0, n, c) for n, c in zip(padded.shape, chunk, strict=True)))
    places = (tuple(slice(s, s + c) for s, c in zip(start, chunk, strict=True)) for start in starts)
    return [lines(padded[place].transpose(order)).tolist() for place in places]


def runs(files: list[list[Any]]) -> list[tuple[int, int]]:
    """The rank of each run, and its length."""
    return [(label[0], len([*each])) for line in files for label, each in groupby(line) if label is not None]


@given(cuts())
def test_counts_are_those_of_a_map_of_the_file(cut: tuple[ooc.Layout, tuple[int, ...], Any]) -> None:
    layout, order, chunk = cut
    held, found = owners(layout), requests_of(layout, orientation=order, chunk=chunk)
    uncut = runs(files(held, order, None))
    counted = Counter(rank for rank, _ in runs(files(held, order, chunk)))
    assert found.distribution_requests == len(uncut)
    assert found.distribution_elements == max((length for _, length in uncut), default=0)
    assert found.rank_requests == tuple(counted[rank] for rank in range(layout.ranks))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"chunk": 0}, ChunksError, "at least one element"),
        ({"chunk": (4,)}, ChunksError, "has 1 axis; the array has 2"),
        ({"chunk": "6B"}, ChunksError, "not a whole number of elements of 4 bytes"),
        ({"chunk": "many"}, ooc.errors.InputError, "'many'"),
        ({"orientation": "diagonal"}, LayoutError, "'diagonal' is not 'row', 'column'"),
        ({"grid": (3, 2)}, LayoutError, "6 ranks"),
    ],
    ids=str,
)
def test_what_cannot_be_counted_is_one_line(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        ooc.ranks.count_requests((8, 8), "(block, *)", **({"ranks": 2} | options))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("layout", [*PRINTED.values(), "(cyclic(3), block)", "(*, cyclic(2))"])
@pytest.mark.parametrize("chunks", [(24, 20), (6, 20), (24, 5), (7, 6)])
def test_the_meter_counts_on_real_files_what_is_predicted(tmp_path: Path, layout: str, chunks: tuple[int, int]) -> None:
    """Each rank reads its own part directly: a request is a contiguous run of a chunk."""
    data = np.arange(480, dtype="f4").reshape(24, 20)
    made = zarr.create_array(tmp_path / "a.zarr", data=data, chunks=chunks, compressors=None)
    laid, a = ooc.Layout.of(data.shape, layout, ranks=4), ooc.open_array(made)
    counted = []
    for rank in range(4):
        held = [np.concatenate([np.r_[s.start : s.stop : s.step] for s in each]) for each in laid.sections(rank)]
        axes = tuple(np.sort(each.astype(int)) for each in held)
        with ooc.advise.metered() as meter:
            part = a.read(axes, method="direct")
        np.testing.assert_array_equal(part, data[np.ix_(*axes)])
        counted.append(meter.read_requests)
    assert tuple(counted) == ooc.ranks.count_requests(data.shape, laid, chunk=chunks).rank_requests
