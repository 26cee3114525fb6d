"""How many requests a layout takes of a file, asked by a person: in one call, or as a table of all distributions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import numpy as np

from oocarrays.errors import ChunksError, LayoutError
from oocarrays.graphs.settings import size_in_bytes
from oocarrays.mapping.given import element_type
from oocarrays.options.packing import LayoutLike, layout_for
from oocarrays.plan.sections.requests import RequestCounts, requests_of
from oocarrays.show import report

KINDS = ("block", "cyclic", "*")
ChunkLike = int | str | Sequence[int]
"""Elements of a stripe, bytes of one such as ``"128KiB"``, or the lengths of chunks along each axis."""


def count_requests(
    shape: Sequence[int],
    layout: LayoutLike,
    *,
    orientation: str | Sequence[int] = "row",
    chunk: ChunkLike | None = None,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    dtype: np.typing.DTypeLike = "float32",
) -> RequestCounts:
    """How many requests it takes when every rank of a layout reads its own part of a file directly. Reads nothing.

    Parameters
    ----------
    shape : sequence of int
        Extent of each axis of the array, in elements.
    layout : Layout, str, Distribution or sequence of them
        Which rank reads what, as `distribute` takes it.
    orientation : "row", "column" or sequence of int
        How the file is stored, or each of its chunks: a sequence names the axes from the slowest to the fastest.
    chunk : int, str or sequence of int
        What cuts the file, and every run with it. One number is a stripe of so many elements (S_stripe), a text such
        as ``"128KiB"`` one of so many bytes; a sequence has the lengths of chunks, as a Zarr array is stored in them.
        By default nothing does.
    ranks, grid : int, sequence of int
        Ranks in all, or along each axis, as `Layout.of` takes them.
    dtype : numpy.dtype
        Of the elements: only a stripe in bytes asks for it.

    Returns
    -------
    RequestCounts
        With ``distribution_requests`` (R_dist), ``distribution_elements`` (S_dist), ``transaction_requests`` (R_trans)
        and ``rank_requests``.

    Raises
    ------
    LayoutError, ChunksError
        Where layout or chunk do not fit the array.

    Notes
    -----
    del Rosario, Bordawekar and Choudhary 1993, Table 1 and equation (1).

    Examples
    --------
    The paper's example: 4 processors, a file of 1 MB by columns, column blocks, stripes of 128 K.

    >>> found = count_requests((1024, 1024), "(*, block)", ranks=4, orientation="column", chunk="128KiB", dtype="u1")
    >>> found.distribution_requests, found.distribution_elements, found.transaction_requests
    (4, 262144, 8)
    """
    laid = layout_for(shape, layout, ranks=ranks, grid=grid, about=1)
    itemsize = element_type(dtype, error=LayoutError).itemsize
    return requests_of(laid, orientation=orientation, chunk=_elements(chunk, itemsize))


def _elements(chunk: ChunkLike | None, itemsize: int) -> int | Sequence[int] | None:
    """Return the chunk that cuts the file, in elements."""
    if not isinstance(chunk, str):
        return chunk
    nbytes = size_in_bytes(chunk, "chunk")
    if nbytes % itemsize:
        raise ChunksError(f"chunk={chunk!r}: {nbytes} bytes are not a whole number of elements of {itemsize} bytes")
    return nbytes // itemsize


MOST_AXES = 6
"""Axes of an array of which every way to distribute them is counted, at most."""


def distributions_of(axes: int) -> list[str]:
    """Every way to distribute some axes by block or cyclically; the eight of Table 1 where there are two.

    >>> distributions_of(1), len(distributions_of(2))
    (['(block)', '(cyclic)'], 8)
    """
    if axes > MOST_AXES:
        raise LayoutError(f"{axes} axes can be distributed in {len(KINDS)}**{axes} ways: give one layout")
    every = product(KINDS, repeat=axes)
    return [f"({', '.join(each)})" for each in every if set(each) != {"*"}]


def requests_table(counts: Sequence[RequestCounts]) -> str:
    """R_dist, S_dist and R_trans of some layouts, one in a line."""
    head = ("layout", "R_dist", "S_dist", "R_trans", "of a rank, at most")
    rows = [
        (
            str(each.layout),
            str(each.distribution_requests),
            str(each.distribution_elements),
            str(each.transaction_requests),
            str(max(each.rank_requests)),
        )
        for each in counts
    ]
    return report.table([head, *rows])


def parsed_chunk(text: str) -> ChunkLike:
    """Parse the chunk that cuts a file, as it is written on a command line.

    >>> parsed_chunk("1024"), parsed_chunk("128KiB"), parsed_chunk("256,4096"), parsed_chunk("256x4096")
    (1024, '128KiB', (256, 4096), (256, 4096))
    """
    lengths = re.split("[x×,]", text)
    if not all(length.strip().isdigit() for length in lengths):
        return text
    return tuple(map(int, lengths)) if len(lengths) > 1 else int(text)
