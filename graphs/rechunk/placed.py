"""Records of assembled chunks, in a form that can be compared with the chunks as stored now.

    recorded    c/0/3   [4194304, 991]     a part has placed pieces in it: the sum covers its pieces alone
    now         c/0/3.4f1c….partial        while the chunk does not have its final name

If the pieces of one part are not as they were placed, the chunk counts as changed for all parts.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np

from oocarrays.graphs.rechunk.assembly import MOST_SUM
from oocarrays.graphs.run.looking import Part, Stored
from oocarrays.mapping.grid import Index
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.storage.chunks.assembling import Assembler
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.local.blobs import byte_view, checksum
from oocarrays.storage.local.names import partial_name
from oocarrays.storage.meter import Meter

Recorded = Mapping[Part, Stored | None]
ODD = -1
"""Checksum that no chunk has."""


def as_named_now(
    plan: RechunkPlan,
    stored: Recorded,
    opened: Callable[[int], ArrayFile | None],
    mark: Callable[[int], str],
    verify: bool,
) -> Recorded:
    """Return the records under the current keys of the chunks, with checksums of whole chunks."""
    now = dict(stored)
    for number, step in enumerate(plan.passes):
        mine = {part: told for part, told in stored.items() if part and part[0] == number and told is not None}
        file = opened(number) if step.assembled and mine else None
        if file is not None:
            assembler = Assembler(file, Meter(), mark(number), past_cache=False)
            now.update(_of_pass(step, assembler, {part: told.get("", {}) for part, told in mine.items()}, verify))
    return now


def _of_pass(
    step: Pass, assembler: Assembler, told: Mapping[Part, Mapping[str, Receipt]], verify: bool
) -> dict[Part, Stored]:
    """Return the current receipts of each part, for the chunks in which it has placed pieces."""
    by_chunk: defaultdict[Index, list[tuple[Part, list[int]]]] = defaultdict(list)
    for part, receipts in told.items():
        for index in dict.fromkeys(step.written(*part[1:])):
            receipt = receipts.get(assembler.key(index))
            if receipt is not None:
                by_chunk[index].append((part, receipt))
    now: dict[Part, dict[str, Receipt]] = {part: {} for part in told}
    for index, parts in by_chunk.items():
        key, receipt = _chunk_now(step, assembler, index, parts, verify)
        for part, _ in parts:
            now[part][key] = receipt
    return {part: {"": receipts} for part, receipts in now.items()}


def _chunk_now(
    step: Pass, assembler: Assembler, index: Index, parts: list[tuple[Part, list[int]]], verify: bool
) -> tuple[str, list[int]]:
    """Return the current key of a chunk, and the receipt that it must match."""
    key, nbytes = assembler.key(index), step.target.chunk_bytes
    named = os.path.exists(assembler.chunks.final(key))
    here = key if named else partial_name(key, assembler.chunks.mark)
    if not verify:
        return here, [nbytes]
    chunk = assembler.read(index)
    if chunk is None or not all(_is_as_placed(step, assembler, chunk, index, *each) for each in parts):
        return here, [nbytes, ODD]
    return here, [nbytes, checksum(byte_view(chunk))]


def _is_as_placed(
    step: Pass, assembler: Assembler, chunk: np.ndarray, index: Index, part: Part, receipt: list[int]
) -> bool:
    """Return whether the pieces that a part has placed in a chunk are unchanged."""
    pieces = (dict(step.places(unit)).get(index) for unit in step.batch_units(*part[1:]))
    sums = (assembler.sum_of(chunk, piece, step.tile) for piece in pieces if piece is not None)
    return len(receipt) == 2 and sum(sums) % MOST_SUM == receipt[1]
