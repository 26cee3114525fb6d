"""Elements that sieving reads, against going through all pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid, boxes
from oocarrays.mapping.overlap import axis_overlap, span_elements
from tests.strategies import chunks_for, shapes

pytestmark = pytest.mark.once


@given(st.data())
def test_what_is_sieved_is_what_lies_between_first_and_last(data: st.DataObject) -> None:
    shape = data.draw(shapes(3, most=500).filter(lambda shape: 0 not in shape))
    chunks, region = data.draw(chunks_for(shape)), data.draw(chunks_for(shape))
    axes = [axis_overlap(n, c, r, c) for n, c, r in zip(shape, chunks, region, strict=True)]
    source, target = ChunkGrid.of(shape, chunks), ChunkGrid.of(shape, region)
    total = 0
    for first, last in boxes(range(target.count), target.counts):
        for index in np.ndindex(*(b - a for a, b in zip(first, last, strict=True))):
            section = target.section(tuple(a + i for a, i in zip(first, index, strict=True)))
            for chunk in source.indices(section):
                whole = source.section(chunk)
                piece = section.intersection(whole)
                assert piece is not None
                here = piece.relative_to(whole.lower)
                corner = np.array([u - 1 for u in here.upper])
                strides = np.cumprod((1, *chunks[:0:-1]))[::-1] if chunks else np.array([], int)
                total += int(((corner - np.array(here.lower, int)) * strides).sum()) + 1
    assert total == span_elements(shape, [axis.pieces for axis in axes], chunks)
