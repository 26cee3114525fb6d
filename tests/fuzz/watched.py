"""Tries in a process of their own, watched: what raises, hangs or ends the interpreter is named.

parent ── number ──► child        the child names what it tries before it tries it, and then says how it went
       ◄── {"try"}, {"end"} ──    no word in time: its stacks are asked for, and it is killed
"""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import random
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
SECONDS = 10.0
"""In which every try is to have its answer."""
AGAIN = 6
"""Times as long a try may take that was too slow, by itself, before it is said to hang: the machine may be busy."""
MOST_BYTES = 16 * 2**30
"""Of address space of the child: what is asked for beyond is a MemoryError and not the death of the machine."""
ENVIRONMENT = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1,localhost",
    "DASK_OOCARRAYS__RETRIES": "0",
    "DASK_OOCARRAYS__REQUEST_TIMEOUT": "2s",
    "PYTHONFAULTHANDLER": "1",
}
"""Nothing is asked for that is not on this machine, and nothing is waited for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A try that did not have a right answer."""

    number: int
    """Of the try, with its seed."""
    tried: str
    """What was called last."""
    why: str
    """What came instead of an answer."""
    where: str = ""
    """The traceback, or the stacks."""

    def __str__(self) -> str:
        return f"#{self.number} {self.tried}\n    {self.why}"


def tries(kind: str, seed: int, numbers: Iterable[int], seconds: float = SECONDS) -> Iterator[Failure | None]:
    """What came of each try: None, or how it failed."""
    child = None
    try:
        for number in numbers:
            child = child or _Child(kind, seed)
            failure = child.attempt(number, seconds)
            if failure and not child.alive:
                child = None
                if failure.why.startswith("no answer"):
                    failure = _again(kind, seed, number, seconds * AGAIN)
            yield failure
    finally:
        if child:
            child.close()


def _again(kind: str, seed: int, number: int, seconds: float) -> Failure | None:
    child = _Child(kind, seed)
    try:
        return child.attempt(number, seconds)
    finally:
        child.close()


class _Child:
    """A process that tries what it is told to."""

    def __init__(self, kind: str, seed: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._log = open(Path(self._folder.name, "log"), "w+b")  # noqa: SIM115  as long as the child
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.watched", kind, str(seed), self._folder.name],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env={**os.environ, **ENVIRONMENT, "DASK_CONFIG": str(Path(self._folder.name, "config")),
                 "HOME": self._folder.name, "TMPDIR": self._folder.name},
        )  # fmt: skip
        self._lines = _Lines(self._process.stdout)
        self.alive = True
        assert self._lines.next(120), self._stacks()

    def attempt(self, number: int, seconds: float) -> Failure | None:
        """How a try went."""
        assert self._process.stdin
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()
        until, tried = time.monotonic() + seconds, "?"
        while line := self._lines.next(until - time.monotonic()):
            said = json.loads(line)
            if "try" not in said:
                return Failure(number=number, tried=tried, **said["failed"]) if said["failed"] else None
            tried = said["try"]
        why = "no answer" if line is None else "the interpreter ended"
        if line is None:
            self._process.send_signal(signal.SIGABRT)
        self.close()
        return Failure(number=number, tried=tried, why=f"{why} in {seconds:.0f} s", where=self._said)

    def _stacks(self) -> str:
        self._log.seek(0)
        return self._log.read()[-20_000:].decode(errors="replace").partition("Extension modules")[0]

    def close(self) -> None:
        if not self.alive:
            return
        self.alive = False
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said = self._stacks()
        for file in (self._log, self._process.stdout, self._lines):
            if file:
                file.close()
        self._folder.cleanup()


class _Lines:
    """Lines from a pipe, each waited for no longer than so many seconds."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe
        self._pipe, self._rest = pipe, b""
        self._ready = selectors.DefaultSelector()
        self._ready.register(pipe, selectors.EVENT_READ)

    def close(self) -> None:
        self._ready.close()

    def next(self, seconds: float) -> bytes | None:
        """A line; None where there was none in time, and nothing where the other side is gone."""
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not self._ready.select(max(until - time.monotonic(), 0)):
                return None
            more = os.read(self._pipe.fileno(), 2**16)
            if not more:
                return b""
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line


# ---------------------------------------------------------------------- in the child


def serve(kind: str, seed: int, work: Path) -> None:
    """Try what the parent asks for, each in a fresh folder."""
    words = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from tests.fuzz import broken, calls, commands, world

    kinds = {
        "calls": calls.attempt,
        "parameters": calls.attempt_parameter,
        "commands": commands.attempt,
        "hangs": broken.hang,
        "ends": broken.end,
    }
    attempt = kinds[kind]
    world.build(work / "world")
    _say(words, ready=True)
    for line in sys.stdin:
        folder = work / f"try{int(line)}"
        shutil.copytree(work / "world", folder, symlinks=True)
        os.chdir(folder)
        rng = random.Random(f"{kind} {seed} {int(line)}")
        _say(words, **{"try": "world.bend"})
        world.bend(folder, rng)
        _say(words, failed=_outcome(attempt, rng, folder, words))
        os.chdir(work)
        shutil.rmtree(folder, ignore_errors=True)
        if int(line) % 50 == 0:
            gc.collect()


def _outcome(attempt: Any, rng: random.Random, folder: Path, words: IO[str]) -> dict[str, str] | None:
    import dask.config

    try:
        with dask.config.set({}):
            attempt(rng, folder, lambda text: _say(words, **{"try": text}))
    except (KeyboardInterrupt, SystemExit) as error:
        return {"why": repr(error), "where": traceback.format_exc()}
    except BaseException as error:  # noqa: BLE001  whatever it is, it is what is looked for
        return {"why": f"{type(error).__name__}: {error}"[:500], "where": traceback.format_exc()[-6000:]}
    return None


def _say(words: IO[str], **what: Any) -> None:
    words.write(json.dumps(what) + "\n")
    words.flush()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
