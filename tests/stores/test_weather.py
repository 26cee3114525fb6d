"""Runs over a store that fails in passing all the time, killed and gone on with.

``python -m tests.stores.test_weather 40`` writes forty targets, with three kills each, and counts.

The proxy refuses with 500, 503 or 429, cuts answers short or says nothing, as it comes; a run may end with one clear
error, never with a wrong value, and the next one goes on.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests.dying import Child, Server
from tests.seams import store_at
from tests.stores.servers import BUCKET, S3

pytestmark = pytest.mark.long

DATA = np.random.default_rng(0).random((256, 256), dtype="f4")
FAULTS = ("503", "500", "429", "drop", "hang", "")
METHODS = ("independent", "two-phase", "staged")
ATTEMPTS, KILLS = 30, 3
"""How often a target is gone on with, and how many of these runs are killed."""
SECONDS = 240
"""How long one run may last: it may wait for answers many times."""


@contextmanager
def weather(s3: S3, rng: random.Random) -> Iterator[None]:
    """Another fault, or none, every moment."""
    over = threading.Event()

    def change() -> None:
        while not over.wait(0.15):
            fault = rng.choice(FAULTS)
            times = {"": 0, "hang": 1}.get(fault, rng.randint(1, 4))
            s3.tell(fault=fault, times=times, match=rng.choice(["GET", "PUT", "DELETE", "HEAD", "."]))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        s3.tell()


def end(child: Child, alive: float | None) -> int | None:
    """Its exit code, killed if it lives longer than it may; None where it hangs."""
    deadline = time.monotonic() + (SECONDS if alive is None else alive)
    while not child.server.ask({"ended": child.pid}) and time.monotonic() < deadline:
        time.sleep(0.01)
    hangs = alive is None and not child.server.ask({"ended": child.pid})
    if not child.server.ask({"ended": child.pid}):
        os.kill(child.pid, signal.SIGKILL)
    code = child.wait()
    return None if hangs else code


def source(s3: S3) -> str:
    url = s3.url("weather-source")
    zarr.create_array(store_at(url, s3.direct), data=DATA, chunks=(8, 256), compressors=None, overwrite=True)
    return url


def written(s3: S3, runs: Server, rng: random.Random, name: str, library: str, method: str) -> Iterator[str]:
    """Write one target with kills, and say how each run went."""
    config = {"oocarrays.store-library": library, "oocarrays.retries": 8, "oocarrays.request-timeout": "2s"}
    url, given = s3.url(name), {"storage_options": s3.options, "scheduler": "threads"}
    more: dict[str, Any] = {"chunks": (256, 16), "memory": "64MiB", "ranks": 2, "method": method}
    if method == "staged":
        more["scratch"] = s3.url(f"{name}-scratch")
    for attempt in range(ATTEMPTS):
        keys = s3.keys(f"{name}/")
        if f"{name}/.oocarrays/plan.json" in keys:
            child = runs.start("resume", url, config=config, **given)
        else:
            child = runs.start("rechunk", source_of(s3), url, config=config, overwrite=bool(keys), **more, **given)
        code = end(child, rng.uniform(0.3, 3.0) if attempt < KILLS else None)
        if code is None:
            yield f"HANGS: {child.err}"
        elif code == 0:
            yield "done"
            return
        else:
            told = child.err.strip()
            yield "killed" if code == -signal.SIGKILL else f"failed: {told}" if one_line(told) else f"UNCLEAR: {told}"
        if is_finished(s3, name):
            return
    yield "NEVER DONE"


def one_line(told: str) -> bool:
    """Whether a person was told in one line, by an error of ours."""
    return "\n" not in told and told.startswith(("StoreFailure: ", "RunError: ", "NotFoundError: ", "TargetError: "))


def source_of(s3: S3) -> str:
    return s3.url("weather-source")


def is_finished(s3: S3, name: str) -> bool:
    """Whether a target has lost its mark."""
    if f"{name}/zarr.json" not in s3.keys(f"{name}/zarr.json"):
        return False
    return b"oocarrays" not in s3.client.get_object(Bucket=BUCKET, Key=f"{name}/zarr.json")["Body"].read()


def check(s3: S3, name: str) -> None:
    made = zarr.open_array(store_at(s3.url(name), s3.direct), mode="r")
    np.testing.assert_array_equal(made[...], DATA)


def test_a_run_gets_there_in_any_weather(s3: S3, runs: Server, library: str) -> None:
    method = {"obstore": "staged", "fsspec": "two-phase"}[library]
    rng, name = random.Random(library), f"weather-{library}"
    source(s3)
    with weather(s3, rng):
        told = list(written(s3, runs, rng, name, library, method))
    assert not [each for each in told if each.partition(":")[0].isupper()], told
    check(s3, name)


def main(targets: int, seed: int = 0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "runs").mkdir()
        s3, runs, rng, count = S3(Path(folder)), Server(Path(folder) / "runs"), random.Random(seed), Counter[str]()
        source(s3)
        for number in range(targets):
            library, method = ("obstore", "fsspec")[number % 2], METHODS[number // 2 % 3]
            with weather(s3, rng):
                for told in written(s3, runs, rng, f"t{number}", library, method):
                    count[told.partition(":")[0]] += 1
                    if ":" in told:
                        print(number, library, method, told[:400], flush=True)
            try:
                check(s3, f"t{number}")
            except AssertionError as error:
                count["WRONG"] += 1
                print(number, library, method, "WRONG", error, flush=True)
            count["left"] += bool([key for key in s3.keys(f"t{number}") if "oocarrays" in key])
            print(number, dict(count), flush=True)
        runs.close()
        s3.close()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*map(int, sys.argv[1:]))
