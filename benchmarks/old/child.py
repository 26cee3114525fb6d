"""One measured process: import a peer, warm it up on a tiny array, say `ready`, wait, work, answer.

    python child.py MODULE JOB TINY-JOB      (JOB and TINY-JOB are JSON)

Every answer is one JSON line on standard output; what libraries print goes to standard error. The process
stays until its standard input is closed, so that the parent can read its counters.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from contextlib import nullcontext

from cases import Job


def main(module: str, line: str, tiny_line: str) -> None:
    """Serve one job."""
    answer = _answerer()
    try:
        peer = importlib.import_module(module)
    except ImportError as missing:
        answer({"absent": str(missing)})
        return
    kind = getattr(peer, "Job", Job)
    job, tiny = kind.from_json(line), kind.from_json(tiny_line)
    with getattr(peer, "workers", lambda job: nullcontext())(job) as workers:
        arguments = () if workers is None else (workers,)
        try:
            peer.run(tiny, *arguments)
            answer({"ready": os.getpid()})
            sys.stdin.readline()
            answer(_timed(peer.run, job, *arguments))
        except Exception as error:  # noqa: BLE001  (whatever a peer raises is its result)
            traceback.print_exc()
            answer({"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]})
        sys.stdin.readline()


def _timed(run, *arguments) -> dict:
    start = time.perf_counter()
    facts = run(*arguments) or {}
    return {"seconds": time.perf_counter() - start, **facts}


def _answerer():
    """Return a function that prints one JSON line where the parent listens; all other output goes to stderr."""
    line = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return lambda facts: print(json.dumps(facts), file=line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
