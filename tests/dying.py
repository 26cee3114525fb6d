"""Runs in processes of their own, which die or wait in the middle: all forked from one that has imported everything.

    test ── order ──► server ── fork ──► run ──► the nth time at a point: SIGKILL, or wait for a word
         ◄── exit code ──────────────────┘

To fork takes a hundredth of the time that it takes to start Python and import everything.
"""

from __future__ import annotations

import json
import os
import pickle
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from tests.flat import flat
from tests.seams import KILL_POINTS, PROCESS, MemoryWatch, replace_step, set_constants, step

ROOT = str(Path(__file__).parents[1])
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
"""One thread in the server, as only such a process may be forked; and clusters of a run are forked, too."""


@dataclass(frozen=True, slots=True)
class Child:
    """A run in another process."""

    server: Server
    pid: int
    folder: Path

    def wait(self) -> int:
        """Its exit code; less than zero where a signal ended it."""
        return int(self.server.ask({"end": self.pid}))

    def ends_within(self, seconds: float) -> int:
        """Its exit code; it is killed where it takes longer."""
        deadline = time.monotonic() + seconds
        while not self.ended:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.02)
        return self.wait()

    def until_there(self, what: str = "there") -> None:
        """Wait until it waits, or says that it was interrupted."""
        deadline = time.monotonic() + 60
        while not (self.folder / what).exists():
            ended = time.monotonic() > deadline or self.ended
            assert not ended or (self.folder / what).exists(), f"it never was {what}: {self.err}"
            time.sleep(0.005)

    def go_on(self) -> int:
        """Let it go on to its end."""
        (self.folder / "go").touch()
        return self.wait()

    def interrupt(self) -> None:
        """Send it SIGINT until it hears: Python may not see one that comes just before its main thread waits."""
        deadline = time.monotonic() + 60
        while not (self.folder / "interrupted").exists():
            assert time.monotonic() < deadline, f"it never was interrupted: {self.err}"
            os.kill(self.pid, signal.SIGINT)
            time.sleep(0.5)

    def kill(self) -> int:
        """End it as where power or patience ends; its exit code. It may have been killed before."""
        with suppress(ProcessLookupError):  # it has been waited for
            os.kill(self.pid, signal.SIGKILL)
            return self.wait()
        return -signal.SIGKILL

    @property
    def ended(self) -> bool:
        """Whether it has come to its end."""
        return bool(self.server.ask({"ended": self.pid}))

    @property
    def plan(self) -> Any:
        """The plan that it ran."""
        return pickle.loads((self.folder / "plan").read_bytes())

    @property
    def told(self) -> Any:
        """What a function returned."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def out(self) -> str:
        """What it printed."""
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        """What it printed as errors."""
        return (self.folder / "err").read_text()


class Server:
    """The process from which all others are forked. It has no threads of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])},
        )

    def ask(self, order: dict[str, Any]) -> Any:
        """What the server answers to an order."""
        assert self._process.stdin, self._process.stdout
        self._process.stdin.write(json.dumps(order, default=str) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(
        self,
        call: str,
        *args: Any,
        at: str = "",
        after: int = 1,
        wait: bool = False,
        config: dict[str, Any] | None = None,
        **options: Any,
    ) -> Child:
        """Begin a call, of `do` or of the package; end it, or let it wait, at a point.

        Parameters
        ----------
        call : str
            What `do` knows, or a function as ``"module:name"``, which runs as in a program of its own: what it returns
            is printed as JSON, and is kept until a word comes where it is to wait.
        config : dict, optional
            Dask's settings there.
        """
        self._children += 1
        folder = self.folder / str(self._children)
        folder.mkdir()
        (folder / "out").touch()
        order = {"call": call, "args": args, "options": options, "at": at, "after": after, "wait": wait}
        order["config"] = config or {}
        return Child(self, self.ask(order | {"folder": folder, "cwd": os.getcwd()}), folder)

    def run(self, call: str, *args: Any, **options: Any) -> Child:
        """As `start`, until it has ended, as it should: by its own hand where it was to die."""
        child = self.start(call, *args, **options)
        code, dies = child.wait(), bool(options.get("at"))
        assert code == (-signal.SIGKILL if dies else 0), child.err
        return child

    def close(self) -> None:
        """End it."""
        assert self._process.stdin, self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


# ---------------------------------------------------------------------- in the server, and in what it forks


def serve() -> None:
    """Fork a process for each order."""
    for points in KILL_POINTS.values():
        for name, _ in points:
            step(name)  # its module is imported
    for line in sys.stdin:
        order = json.loads(line)
        if "end" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["end"], 0)[1])
        elif "ended" in order:
            answer = int(os.waitid(os.P_PID, order["ended"], os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
        else:
            answer = os.fork()
            if answer == 0:
                os._exit(obey(order))
        print(answer, flush=True)


def obey(order: dict[str, Any]) -> int:
    """Do what is asked, in a process of its own."""
    folder = Path(order["folder"])
    for file, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o666), file.fileno())
    os.chdir(order["cwd"])
    signal.signal(signal.SIGINT, lambda *_: interrupted(folder))
    if order["call"] not in ("hold", "script") and ":" not in order["call"]:
        # small arrays have many parts, rounds and boxes, too, each written down as soon as it can be
        set_constants(PROCESS, batch_bytes=1, round_bytes=2**12, box_bytes=2**12, record_seconds=0.0)
    if order["at"]:
        stop_at(order["at"], order["after"], stay(folder) if order["wait"] else die)
    try:
        with dask.config.set(order["config"]):
            return do(order, folder)
    except BaseException as error:  # noqa: BLE001  whatever it is, it is told
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def do(order: dict[str, Any], folder: Path) -> int:
    """The call itself."""
    if order["call"] == "main":
        return main(order["args"])
    if order["call"] == "script":
        sys.argv = order["args"]
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    if ":" in order["call"]:
        kept = pkgutil.resolve_name(order["call"])(*order["args"], **order["options"])
        print(json.dumps(kept, default=repr), flush=True)
        if order["wait"]:
            stay(folder)()
        return 0
    if order["call"] == "write":
        write(*order["args"], **order["options"])
        return 0
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in order["options"].items()}
    if order["call"] == "hold":
        print(json.dumps(hold(**options)))
        return 0
    args = order["args"]
    if order["call"] in ("map_slabs", "iterate"):
        args[1] = [ooc.open_array(each) for each in args[1]] if isinstance(args[1], list) else ooc.open_array(args[1])
    if order["call"] in ("map_slabs", "iterate"):
        args[0] = pkgutil.resolve_name(args[0])
    job = flat(order["call"], *args, **options)
    (folder / "plan").write_bytes(pickle.dumps(job.plan))
    job.run()
    return 0


def write(path: str, sections: list[list[list[int | None]]], value: int, **options: Any) -> None:
    """Write one value to sections of an array, one after the other; each is a start, stop and step an axis."""
    array = ooc.open_array(path, mode="r+")
    for section in sections:
        array.write(tuple(slice(*each) for each in section), value, **options)


def hold(settings: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Rechunk, with Dask's settings, and watch what this process holds above what it held before, in bytes."""
    warm = zarr.create_array(MemoryStore(), data=np.zeros(8), chunks=(4,))
    ooc.rechunk(warm, MemoryStore(), chunks=(8,), memory="64MiB").run()  # what is made on first use
    samples, stop, idle = [0], threading.Event(), anonymous()

    def sample() -> None:
        while not stop.wait(0.002):
            samples.append(anonymous() - idle)

    thread = threading.Thread(target=sample)
    thread.start()
    with dask.config.set(settings or {}):
        job = flat(ooc.rechunk, **options)
        with MemoryWatch() as watch:
            job.run()
    stop.set()
    thread.join()
    plan = job.plan
    return {
        "held": max(samples),
        "watched": watch.peak_bytes,
        "after": anonymous() - idle,
        "samples": len(samples),
        "peak": plan.peak_bytes,
        "budget": plan.budget,
        "strategy": plan.strategy,
        "buffers": max(step.ranks * int(np.prod(step.region)) * step.target.chunk_bytes for step in plan.passes),
    }


def anonymous() -> int:
    """Resident bytes that no file backs: private ones, and those of anonymous maps that Python's mmap makes shared."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def interrupted(folder: Path) -> None:
    """Ctrl-C, and a word that it has come."""
    (folder / "interrupted").touch()
    raise KeyboardInterrupt


def stop_at(point: str, after: int, stop: Callable[[], None]) -> None:
    """Call ``stop`` where a run comes to a point for the ``after``-th time, and each time after that.

    Other threads of a run that waits there wait too, and get no further on a slow machine than on a fast one.
    """
    lock, calls = threading.Lock(), [0]

    def counting(real: Callable[..., Any], when: str) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if when == "after":
                result = real(*args, **kwargs)
            with lock:
                calls[0] += 1
                there = calls[0] >= after
            if there:
                stop()
            return result if when == "after" else real(*args, **kwargs)

        return counted

    for name, when in KILL_POINTS[point]:
        replace_step(PROCESS, name, counting(step(name), when))


def die() -> None:
    """As where power or patience ends."""
    os.kill(os.getpid(), signal.SIGKILL)


def stay(folder: Path) -> Callable[[], None]:
    """Wait for a word; of a run that was interrupted meanwhile until its main thread has told the others."""
    abort = step("abort")

    def aborting(run: Any, error: BaseException) -> BaseException:
        run.live.failure = run.live.failure or error
        (folder / "aborted").touch()
        return abort(run, error)

    def wait() -> None:
        (folder / "there").touch()
        while not (folder / "go").exists():
            time.sleep(0.005)
        deadline = time.monotonic() + 10
        while (folder / "interrupted").exists() and not (folder / "aborted").exists() and time.monotonic() < deadline:
            time.sleep(0.005)

    replace_step(PROCESS, "abort", aborting)
    return wait


if __name__ == "__main__":
    import tests.preloaded  # noqa: F401  what is imported before a fork is imported once

    serve()
