"""Chunks that tasks of a write to a stored array own."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import Any

from hypothesis import given

from oocarrays.graphs.storing.tasks import Storing
from oocarrays.storage.files.array_file import describe
from tests.profiles import examples
from tests.test_storing import written


@examples(80)
@given(written())
def test_every_chunk_has_one_owner(case: Any) -> None:
    made, region, x = case
    file = describe(made, written=True)
    axes = tuple(
        range(*each.indices(n)) for each, n in zip(region or (slice(None),) * made.ndim, made.shape, strict=True)
    )
    storing = Storing(name=x.name, blocks=x.chunks, dtype=x.dtype, file=file, axes=axes)
    grid, owners, elements = file.stored.grid, Counter[Any](), 0
    for span in storing.owned():
        mine = storing.written(span)
        elements += math.prod(map(len, mine))
        chunks = (sorted({i // c for i in taken}) for taken, c in zip(mine, grid.chunks, strict=True))
        owners.update(product(*chunks))
    assert elements == x.size
    assert set(owners.values()) <= {1}
