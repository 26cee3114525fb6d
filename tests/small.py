"""Small arrays, and plans that rewrite them, for many tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from tests.flat import flat
from tests.seams import RECHUNK_METHODS

DATA = np.random.default_rng(0).random((96, 80), dtype="f4")
CODECS = {"plain": None, "zstd": zarr.codecs.ZstdCodec(), "crc": zarr.codecs.Crc32cCodec()}
MIB = 2**20
each_method = pytest.mark.parametrize("method", RECHUNK_METHODS)


def make(store: Any, data: np.ndarray = DATA, **options: Any) -> zarr.Array:
    return zarr.create_array(store, data=data, **({"chunks": (8, data.shape[1]), "compressors": None} | options))


def plan(source: Any, target: Any, method: str = "auto", **options: Any) -> ooc.Job:
    return flat(ooc.rechunk, source, target, **({"chunks": (96, 10), "memory": "128MiB", "method": method} | options))
