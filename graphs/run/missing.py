"""Warning of chunks that a source lacks, once a run, where a person asks for it."""

from __future__ import annotations

import warnings

from oocarrays.errors import MissingChunksWarning
from oocarrays.graphs.run.telling import this_worker
from oocarrays.storage.meter import Meter


def warn_of_missing(meter: Meter, name: str, *, so_far: bool = False) -> None:
    """Warn of the chunks that have been counted for it, once for a meter; on a worker, its client is told."""
    count = meter.to_warn()
    if not count:
        return
    least = "at least " if so_far else ""
    warn_person(f"{name} lacks {least}{count} chunk{'s' * (count > 1)}: taken for the fill value", MissingChunksWarning)


def warn_person(text: str, category: type[Warning]) -> None:
    """Warn of something; on a worker, its client is told."""
    if this_worker():
        from distributed import warn

        warn(text, category)
    else:
        warnings.warn(text, category, stacklevel=2)
