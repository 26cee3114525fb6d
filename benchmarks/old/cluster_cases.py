"""The questions of the cluster benchmark: arrays, workers and their memory; faults; runs to predict.

`memory` of a case is that of all its workers together; 0 is no limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cases import GIB, ONE_GIB, Case

MB = 10**6

TIGHT = Case(
    name="tight",
    shape=(16384, 32768),
    source_chunks=(512, 32768),
    target_chunks=(16384, 1024),
    memory=4 * 500 * MB,
    workers=4,
)
"""2 GiB in chunks of 64 MiB, by workers of 500 MB."""
TWO = replace(ONE_GIB, name="two", memory=2 * GIB, workers=2)
"""1 GiB in chunks of 16 MiB."""
FREE = replace(TWO, name="free-2", memory=0)

RACES = {
    case.name: case
    for plain in (TIGHT, TWO, FREE, replace(FREE, name="free-4", workers=4))
    for case in (plain, replace(plain, name=f"{plain.name}-zstd", codec="zstd"))
}
"""Ours beside the peers."""

FAULTS = {
    fault: replace(TIGHT, name=fault, memory=4 * 1000 * MB) for fault in ("kill-25", "kill-50", "kill-75", "resume-50")
}
"""Ours with a fault beside ours without: the case's name is the fault."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run whose time is predicted."""

    case: Case
    """What is asked."""
    method: str = "auto"
    """Strategy."""

    @property
    def label(self) -> str:
        """The peer that answers."""
        return f"oocarrays:{self.method}"


ROWS = replace(TWO, name="rows")
ROWS_ON_FOUR = replace(ROWS, name="rows-on-four", workers=4, memory=4 * GIB)
TILES = replace(TWO, name="tiles", shape=(8192, 16384), source_chunks=(1024, 1024), target_chunks=(64, 16384))
MAPS = replace(TWO, name="maps", shape=(256, 512, 1024), source_chunks=(4, 512, 1024), target_chunks=(256, 32, 64))
SLABS = replace(TWO, name="slabs", shape=(8192, 8192), source_chunks=(512, 8192), target_chunks=(1024, 1024))
COLUMNS = replace(
    ROWS_ON_FOUR, name="columns", shape=(8192, 8192), source_chunks=(8192, 128), target_chunks=(128, 8192)
)

TRIALS = (
    Trial(ROWS),
    Trial(ROWS, "two-phase"),
    Trial(replace(ROWS, codec="zstd")),
    Trial(ROWS_ON_FOUR),
    Trial(replace(ROWS_ON_FOUR, codec="blosc"), "two-phase"),
    Trial(TILES),
    Trial(replace(TILES, codec="blosc"), "two-phase"),
    Trial(replace(MAPS, codec="zstd", workers=4, memory=4 * GIB)),
    Trial(replace(SLABS, codec="blosc")),
    Trial(replace(COLUMNS, codec="zstd"), "two-phase"),
)
"""Two and four workers, 256 MiB to 1 GiB, each codec, chunks of several shapes."""
