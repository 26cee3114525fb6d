"""Hot paths by public names: small calls that users make often, whose calls `tests/golden` counts."""

from __future__ import annotations

import sys
from pathlib import Path
from timeit import Timer

from case import Job

REPEATS = 5


def paths(job: Job) -> dict:
    """Seconds of each path: of some calls together, divided by their number."""
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.golden import hot

    if not job.measured:
        return {}
    folder = Path(job.scratch)
    figures = {}
    for part, known in ((folder / "paths", hot.paths), (folder / "runs", hot.runs)):
        part.mkdir()
        for name, call in known(part).items():
            call()
            timer = Timer(call)
            number = max(timer.autorange()[0] // 4, 1)
            figures[name] = [seconds / number for seconds in timer.repeat(REPEATS, number)]
    return {"figures": figures}
