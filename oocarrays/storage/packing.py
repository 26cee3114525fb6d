"""What one rank sends to another, copied into one contiguous message and out of it, as strided copies.

    local array of the source        message                       local array of the target
    ▒▒·····▒▒·····▒▒·····   pack ►   ▒▒▒▒▒▒░░░░░░   unpack ►   ▒▒░░····▒▒░░····▒▒░░····
    ··░░·····░░·····░░···

A message holds the product of the runs along each axis, a combination of runs after the other. No index is computed for
an element. Thakur 1995, section 3.2: all that goes from one processor to another goes in one packet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided

from oocarrays.plan.communication import Runs
from oocarrays.plan.redistribution import Transfer


def pack(local: np.ndarray, transfer: Transfer, source: int, target: int) -> np.ndarray:
    """The message from ``source`` to ``target``: a contiguous array of one axis.

    Parameters
    ----------
    local : array
        What ``source`` holds, ``transfer.source.local_shape(source)``.
    """
    runs = transfer.runs(source, target)
    message = np.empty(transfer.size(source, target), local.dtype)
    for part, view in _parts(message, local, runs, "source"):
        part[...] = view
    return message


def unpack(message: np.ndarray, transfer: Transfer, source: int, target: int, local: np.ndarray) -> None:
    """Put a message from ``source`` where ``target`` holds it.

    Parameters
    ----------
    local : array
        What ``target`` holds, ``transfer.target.local_shape(target)``; it is written.
    """
    for part, view in _parts(message, local, transfer.runs(source, target), "target"):
        view[...] = part


def move(held: np.ndarray, transfer: Transfer, source: int, target: int, local: np.ndarray) -> None:
    """The same without a message, where both arrays are in one process.

    Parameters
    ----------
    held, local : array
        What ``source`` holds, and what ``target`` is to hold; the latter is written.
    """
    for combination in _combinations(transfer.runs(source, target)):
        _view(local, combination, "target")[...] = _view(held, combination, "source")


Side = Literal["source", "target"]


def _combinations(runs: Sequence[Runs]) -> Iterator[tuple[Runs, ...]]:
    """One run along each axis, in all combinations."""
    yield from product(*([each[i : i + 1] for i in range(len(each))] for each in runs))


def _parts(
    message: np.ndarray, local: np.ndarray, runs: Sequence[Runs], side: Side
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each combination's place in a message, and in a local array."""
    start = 0
    for combination in _combinations(runs):
        view = _view(local, combination, side)
        size = math.prod(view.shape)
        yield message[start : start + size].reshape(view.shape), view
        start += size


def _view(local: np.ndarray, combination: Sequence[Runs], side: Side) -> np.ndarray:
    """The elements of one run along each axis: ``(count, length)`` for each of them."""
    offset, shape, strides = 0, [], []
    for run, step in zip(combination, local.strides, strict=True):
        offset += int(getattr(run, f"{side}_start")[0]) * step
        shape += [int(run.count[0]), int(run.length[0])]
        strides += [int(getattr(run, f"{side}_stride")[0]) * step, step]
    return as_strided(local.reshape(-1)[offset // local.itemsize :], shape, strides)
