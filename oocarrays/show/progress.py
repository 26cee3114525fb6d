"""Progress of a run while it runs: a bar in a terminal, lines in a log, a widget in a notebook.

plan, meter ─► State ─┬─► a widget           in a notebook that has ipywidgets
                      ├─► one changing line  in a terminal, or another notebook
                      └─► a line each tenth  in a file
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from dask.utils import format_bytes

from oocarrays.graphs.events import Events
from oocarrays.plan.plan import Plan
from oocarrays.show.report import LINE_WIDTH, seconds_text
from oocarrays.storage.meter import Expected


class State(NamedTuple):
    done: float
    total: float
    """Bytes in all."""
    elapsed: float
    """Seconds since the start."""
    before: float = 0.0
    """Bytes read and written by an earlier run."""

    @property
    def share(self) -> float:
        """Share that is done, from 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @property
    def left(self) -> float | None:
        """Seconds left at the pace so far; None if unknown yet, or if nothing is left."""
        if not self.before < self.done < self.total:
            return None
        return self.elapsed * (self.total - self.done) / (self.done - self.before)


Write = Callable[[State, bool], None]
"""Function that shows a state, and whether it is the last."""


def follow(plan: Plan, run: Any) -> Callable[[], State]:
    """Return a function for the progress of a plan in bytes, including an earlier run that it continues."""
    start, t = time.perf_counter(), plan.traffic
    reads, writes = run.expected
    left = Expected(
        reads,
        t.read_bytes * reads / max(t.read_requests, 1),
        writes,
        t.written_bytes * writes / max(t.write_requests, 1),
    )
    before = max(t.read_bytes + t.written_bytes - left.nbytes, 0.0)

    def state() -> State:
        done = left.done(run.meter.read_requests, run.meter.write_requests + run.meter.skipped_chunks)
        return State(before + done, before + left.nbytes, time.perf_counter() - start, before)

    return state


class ProgressBar(Events):
    """Listener that shows the progress of a plan while its run lasts.

    A terminal shows one changing line. A file, such as a batch job's log, gets a line each tenth or minute. A notebook
    shows a widget, if ipywidgets is installed.
    """

    def __init__(self, plan: Plan, run: Any, stream: TextIO | None = None) -> None:
        self._plan, self._run, self._stream = plan, run, stream
        self._stop = threading.Event()

    def on_begin(self, job: Any) -> None:
        """Show the state again and again, from a thread."""
        self._state = follow(self._plan, self._run)
        self._show = _writer(self._stream or sys.stderr, asked=self._stream is not None)
        self._thread = threading.Thread(target=self._show_again_and_again, daemon=True)
        self._thread.start()

    def _show_again_and_again(self) -> None:
        while not self._stop.wait(0.1):
            self._show(self._state(), False)

    def on_end(self, run: Any, error: BaseException | None) -> None:
        """Show the last state; chunks that are not there need no request."""
        self._stop.set()
        self._thread.join()
        last = self._state()
        if error is None:
            last = last._replace(done=last.total, elapsed=run.measured_seconds or last.elapsed)
        self._show(last, True)


def _writer(out: TextIO, *, asked: bool) -> Write:
    """Return the writer for the present display; a requested stream is always written to."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if hasattr(shell, "kernel") and not asked:  # a notebook's kernel, not a terminal
        return _widget() or _changing_line(out)
    return _changing_line(out) if out.isatty() else _logged_lines(out)


def _widget() -> Write | None:
    """Return a writer to a widget of the running cell; None if ipywidgets is not installed."""
    try:
        import ipywidgets
        from IPython.display import display
    except ImportError:
        return None
    bar = ipywidgets.FloatProgress(min=0.0, max=1.0)
    text = ipywidgets.Label()
    display(ipywidgets.HBox([bar, text]))

    def write(state: State, last: bool) -> None:
        bar.value, text.value = state.share, state_text(state)
        if last and state.done >= state.total:
            bar.bar_style = "success"

    return write


def _changing_line(out: TextIO) -> Write:
    """Return a writer that overwrites the previous state."""

    def write(state: State, last: bool) -> None:
        out.write("\r" + bar_line(state).ljust(LINE_WIDTH) + "\n" * last)
        out.flush()

    return write


def _logged_lines(out: TextIO) -> Write:
    """Return a writer of a line for each tenth, each minute, and the last state."""
    tenths, minute = 0, 0.0

    def write(state: State, last: bool) -> None:
        nonlocal tenths, minute
        now = int(10 * state.done / state.total) if state.total else 10
        if not (last or tenths < now < 10 or state.elapsed >= minute + 60):
            return
        tenths, minute = now, state.elapsed
        out.write(bar_line(state) + "\n")
        out.flush()

    return write


def bar_line(state: State) -> str:
    return f"[{'█' * int(30 * state.share):<30}] {state_text(state)}"


def elapsed_text(seconds: float) -> str:
    return f"{seconds:.{2 if seconds < 10 else 1}f} s"


def state_text(state: State) -> str:
    done, total = (format_bytes(int(nbytes)) for nbytes in (state.done, state.total))
    left = "" if state.left is None else f", {seconds_text(state.left)} left"
    return f"{state.share:4.0%}".replace("%", " %") + f"  {done} of {total}, {elapsed_text(state.elapsed)}{left}"
