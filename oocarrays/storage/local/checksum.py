"""Checksum of stored bytes, as fast as memory: long buffers are folded before crc32c is computed."""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np

FOLDED_ABOVE = 2**16
"""Bytes: what is longer is folded first. That takes half the time of a crc32c: it is as fast as memory."""
FOLD = 1021
"""Words of 8 bytes: a prime, so that pages that change places do not fall on each other."""


def checksum(data: Any) -> int:
    """A checksum of bytes: crc32c, of what is long after words that lie ``FOLD`` apart have been added up."""
    flat = np.frombuffer(data, np.uint8)
    if len(flat) < FOLDED_ABOVE:
        return int(google_crc32c.value(flat))
    rows = len(flat) // (8 * FOLD)
    folded = np.add.reduce(flat[: rows * 8 * FOLD].view(np.uint64).reshape(rows, FOLD), axis=0)
    return int(google_crc32c.extend(google_crc32c.value(folded.view(np.uint8)), flat[rows * 8 * FOLD :]))
