"""Sections read one after the other, each in memory of the caller's, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

from oocarrays.mapping.selection import lengths
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.windows import read_pieces
from tests.owners import numbered
from tests.small import CODECS

X = numbered((22, 30), "f4")
SECTIONS = [
    (range(8), range(10)),
    (range(1, 8, 2), range(10, 30)),
    (range(8, 16), range(0, 20, 2)),
    (range(16, 22), np.array([0, 1, 7, 29])),
]
"""A chunk, several of which some is wanted in as many elements as a chunk has, and chunks at the edge."""


@pytest.mark.parametrize("codec", ["plain", "zstd"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_each_section_is_in_its_room(tmp_path, codec: str, order: str) -> None:
    z = zarr.create_array(tmp_path / "x", data=X, chunks=(8, 10), compressors=CODECS[codec], fill_value=-1)
    expected = X.copy()
    z[16:22, 0:10] = expected[16:22, 0:10] = -1
    (tmp_path / "x" / "c" / "2" / "0").unlink(missing_ok=True)
    rooms = [np.empty(lengths(axes), "f4", order=order if codec == "zstd" else "C") for axes in SECTIONS]  # type: ignore[call-overload]
    meter = Meter()
    for number, data in enumerate(
        read_pieces(describe(zarr.open_array(tmp_path / "x")), SECTIONS, iter(rooms), meter=meter)
    ):
        np.testing.assert_array_equal(data, expected[np.ix_(*SECTIONS[number])])
        assert data is rooms[number]
    if codec == "zstd":
        assert meter.decoded_bytes == (1 + 2 + 2 + 1) * 8 * 10 * 4
