"""Sections written to S3: the same as everywhere, with so many chunks under way at one time."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec

import oocarrays as ooc
from tests.seams import store_at
from tests.stores.servers import S3

pytestmark = pytest.mark.long

CODINGS: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (4, 16), "compressors": None},
    "zstd": {"chunks": (4, 16), "compressors": ZstdCodec()},
    "shards": {"chunks": (2, 4), "shards": (4, 16), "compressors": None},
}


@pytest.mark.parametrize("coding", CODINGS)
def test_sections_are_written_a_request_or_two_a_chunk(s3: S3, library: str, coding: str) -> None:
    url, model = s3.url(f"sections-{library}-{coding}"), np.zeros((32, 16), "i4")
    zarr.create_array(store_at(url, s3.direct), shape=model.shape, dtype="i4", **CODINGS[coding])
    array = ooc.open_array(url, mode="r+", storage_options=s3.options)
    model[...] = np.arange(model.size).reshape(model.shape) + 1
    array[...] = model
    s3.tell(latency=0.05, fault="503", times=1, match=f"{coding}/c")
    with dask.config.set({"oocarrays.requests": 4}):
        array[2:31:3, ::5] = model[2:31:3, ::5] = -1
    counts = s3.counts()
    assert 8 + 8 <= counts["GET"] + counts["PUT"] <= 8 + 8 + counts["faults"], "all 8 chunks are read and replaced"
    assert 2 <= counts["most"] <= 4
    model[4:8] = 0
    s3.tell()
    array[4:8] = 0
    assert s3.counts().get("GET", 0) == 0, "nothing is read of a chunk that is wholly written"
    np.testing.assert_array_equal(array[...], model)
    assert len(s3.keys(f"sections-{library}-{coding}/c/")) == 7, "what holds the fill value only is gone"
