"""Blocks of lazy arrays however they are read: alone, in groups, from a plain copy."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from dask.highlevelgraph import HighLevelGraph
from hypothesis import given, strategies as st

from oocarrays.graphs.lazy.reads import PlainCopy, copied, copy_tile, layers_of, name_of, read_copy
from oocarrays.storage.files.array_file import describe
from oocarrays.stored.lazy_array import to_dask
from tests.profiles import examples
from tests.strategies import chunks_for, lengths, shapes
from tests.test_lazy_array import COLUMNS, CROWDED, DATA, MOST, ZSTD, slabs


@st.composite
def stored_arrays(draw: st.DrawFn) -> tuple[np.ndarray, zarr.Array, tuple[tuple[int, ...], ...]]:
    shape = draw(shapes(3, most=2000) | st.tuples(st.integers(10, 40), st.integers(10, 40)))
    chunks = draw(chunks_for(shape))
    shards = draw(st.none() | st.just(tuple(2 * c for c in chunks))) if shape else None
    data = np.arange(np.prod(shape, dtype=int), dtype=draw(st.sampled_from(["i2", "f8"]))).reshape(shape)
    compressors = draw(st.sampled_from([ZSTD, ZSTD, None]))
    made = zarr.create_array({}, data=data, chunks=chunks, shards=shards, compressors=compressors)
    return data, made, tuple(draw(lengths(n)) for n in shape)


@st.composite
def grouped(draw: st.DrawFn, blocks: tuple[tuple[int, ...], ...]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Groups of blocks along each axis."""
    cuts = [sorted(draw(st.sets(st.integers(1, len(each))))) for each in blocks]
    return tuple(
        tuple(pairwise([0, *c, *([] if len(b) in c else [len(b)])])) for b, c in zip(blocks, cuts, strict=True)
    )


@examples(40)
@given(stored_arrays(), st.sampled_from(["groups", "scratch", None]), st.data())
def test_any_blocks_are_what_is_stored_however_they_are_read(case: Any, method: Any, data: st.DataObject) -> None:
    values, made, blocks = case
    x: Any = (lazy := to_dask(describe(made), blocks, memory=MOST, scratch=tempfile.gettempdir()))
    if method:
        groups = data.draw(grouped(blocks)) if method == "groups" else lazy.plan.groups
        plan = replace(lazy.plan, method=method, groups=groups)
        name = name_of(lazy._part, plan)
        graph = HighLevelGraph(*layers_of(name, lazy._part, plan, tempfile.gettempdir()))
        x = da.Array(graph, name, plan.blocks, dtype=values.dtype)
    assert x.chunks == blocks
    np.testing.assert_array_equal(x.compute(), values)
    every = dask.compute(*x.to_delayed().ravel())
    assert [block.shape for block in every] == [x.blocks[index].shape for index in np.ndindex(x.numblocks)]


def test_a_copy_that_has_gone_is_not_missed(tmp_path: Path) -> None:
    """As when the worker that made it is lost: blocks are read from the array itself."""
    x = slabs(tmp_path).to_dask(COLUMNS, memory=CROWDED)
    span = ((0, 96), (15, 30))
    gone = PlainCopy.make(str(tmp_path), x._part, x.plan)
    folders = copied(copy_tile(x._part, gone, ((0, 8), (0, 120))))
    new = PlainCopy.make(str(tmp_path), x._part, x.plan)
    np.testing.assert_array_equal(read_copy(x._part, new, folders, span), DATA[:, 15:30])
    lost = PlainCopy(gone.folder)
    del gone
    assert lost.file is None
    np.testing.assert_array_equal(read_copy(x._part, lost, folders, span), DATA[:, 15:30])
