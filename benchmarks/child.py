"""One measured process: import a way, warm it up on a tiny job, say `ready`, wait, work, answer.

    python child.py MODULE:FUNCTION JOB TINY-JOB      (JOB and TINY-JOB are JSON)

Every answer is one JSON line on standard output; what libraries print goes to standard error. The process stays until
its standard input is closed, so that the parent can read its counters. An array in an answer's `output` is saved as
TARGET.npy, for the check, after the time is taken.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from contextlib import nullcontext

from case import Job, function


def serve(name: str, job: Job, tiny: Job, answer, wait=lambda: None) -> None:
    """Warm up, say `ready`, wait, work, answer."""
    try:
        run = function(name)
        with getattr(run, "within", lambda job: nullcontext())(job) as value:
            arguments = () if value is None else (value,)
            run(tiny, *arguments)
            answer({"ready": os.getpid()})
            wait()
            answer(_timed(run, job, *arguments))
            wait()
    except ImportError as missing:
        answer({"absent": str(missing)})
    except Exception as error:  # noqa: BLE001  (whatever a peer raises is its result)
        traceback.print_exc()
        answer({"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]})
        wait()


def _timed(run, job: Job, *arguments) -> dict:
    start = time.perf_counter()
    facts = run(job, *arguments) or {}
    facts = {"seconds": time.perf_counter() - start, **facts}
    if "output" in facts:
        import numpy as np

        np.save(f"{job.target}.npy", facts.pop("output"))
    return facts


def _answerer():
    """Return a function that prints one JSON line where the parent listens; all other output goes to stderr."""
    line = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return lambda facts: print(json.dumps(facts), file=line, flush=True)


if __name__ == "__main__":
    serve(
        sys.argv[1], Job.from_json(sys.argv[2]), Job.from_json(sys.argv[3]), _answerer(), lambda: sys.stdin.readline()
    )
