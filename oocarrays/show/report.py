"""Text that a person reads: lines, tables, a progress bar."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

from dask.utils import format_bytes, format_time

from oocarrays.plan.lazy.blocks import BlocksPlan, DatasetPlan
from oocarrays.plan.memory import Memory
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.show.planned import rows

BAR_WIDTH = 30
LINE_WIDTH = 100


def bytes_text(nbytes: int) -> str:
    """Show a size of any number of bytes: arrays may be named that have more than a float can hold.

    >>> bytes_text(2**20), bytes_text(2**1261 + 1)
    ('1.00 MiB', '2**1261 B')
    """
    return format_bytes(nbytes) if nbytes < 2**512 else f"2**{nbytes.bit_length() - 1} B"


def cache_text(past_cache: bool) -> str:
    """Return how local files are read and written.

    >>> cache_text(True)
    "past the system's cache"
    """
    return f"{'past' if past_cache else 'through'} the system's cache"


def seconds_text(seconds: float) -> str:
    """Seconds with a unit.

    >>> seconds_text(0.25), seconds_text(12.34)
    ('250.00 ms', '12.34 s')
    """
    return format_time(seconds)


def shape_text(shape: Iterable[int]) -> str:
    """Extents as a person writes them.

    >>> shape_text((3, 4)), shape_text(())
    ('3 × 4', 'scalar')
    """
    return " × ".join(map(str, shape)) or "scalar"


def missing_text(missing: int | None, chunks: int) -> str:
    """Return how many chunks an array lacks.

    >>> missing_text(3, 12), missing_text(0, 12), missing_text(None, 10**9)
    ('3 of 12', 'none of 12', 'not counted')
    """
    return "not counted" if missing is None else f"{missing or 'none'} of {chunks}"


def table(rows: Sequence[tuple[str, ...]], *, indent: str = "") -> str:
    """Rows with aligned columns.

    >>> print(table([("a", "bb"), ("ccc", "d")]))
    a    bb
    ccc  d
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(indent + line.rstrip() for line in lines)


def shortened(value: Any, *, most: int = 80, quoted: bool = True) -> str:
    """Return a value in one line of at most ``most`` characters.

    >>> shortened("a\\nb"), shortened(list(range(100)), most=12)
    ("'a\\\\nb'", '[0, 1, 2, 3…')
    """
    text = repr(value) if quoted else str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


# ---------------------------------------------------------------------- arrays


def first_rows(rows: list[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    """Return the first rows, and how many more there are.

    >>> first_rows([("a", "b")] * 22, 20)[-1]
    ('… 2 more', '')
    """
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"… {len(rows) - most} more", *[""] * (len(rows[0]) - 1))]


# ---------------------------------------------------------------------- plans


ACCESS_WORDS = {
    "mapped": "mapped files",
    "ranges": "byte ranges",
    "sieved": "one byte range a chunk",
    "chunks": "whole chunks",
}


def pass_text(step: Pass) -> str:
    """Describe one pass in a few words."""
    reads = ACCESS_WORDS[step.access]
    unit = {"independent": "regions", "assembled": "boxes"}.get(step.method, "partitions")
    side = "source" if step.assembled else "target"
    return (
        f"{step.method}: {step.units} {unit} of {shape_text(step.unit)} {side} chunks "
        f"({shape_text(step.cut.chunks)} each), {reads}, {step.ranks} ranks"
        + ("" if step.alone else f", {step.schedule.name}")
        + (f", {step.traffic.placed_runs} runs in place" if step.assembled else "")
        + (f", {step.requests} requests a rank under way" if step.requests > 1 else "")
    )


def plan_rows(plan: RechunkPlan) -> list[tuple[str, str]]:
    """Return a plan as rows of name and value."""
    each = " in each worker" if plan.processes else ""
    about = " (estimate)" if plan.source.coded or plan.target.coded else ""
    return [
        *([("workers", f"{plan.processes}, {plan.ranks} ranks")] if plan.processes else []),
        ("strategy", plan.strategy if plan.passes else "nothing to move"),
        ("chunks", f"{shape_text(plan.source.grid.chunks)} → {shape_text(plan.target.grid.chunks)}"),
        *((f"pass {i}", pass_text(step)) for i, step in enumerate(plan.passes, 1)),
        *rows(plan, reads=about, decodes="", writes=about, messages="", scratch="", tasks=""),
        *rows(plan, peak_memory=each, predicted=""),
    ]


def considered_rows(plan: RechunkPlan) -> list[tuple[str, ...]]:
    """Every strategy that was looked at, a row each, below a head."""
    rows = [
        (
            c.name,
            str(c.ranks),
            "–" if c.seconds is None else f"{c.seconds:.2f}",
            format_bytes(c.peak_bytes),
            c.reason,
        )
        for c in plan.considered
    ]
    return [("strategy", "ranks", "seconds", "memory", ""), *rows]


def memory_text(memory: Memory) -> str:
    """Return what is held at one time, a row each for what holds any.

    >>> print(memory_text(Memory.of(stacks=2**20, index=0, handed_on=2**10)))
    held at one time, at most
      stacks     1.00 MiB
      handed on  1.00 kiB
    """
    rows = [(name.replace("_", " "), format_bytes(nbytes)) for name, nbytes in memory.terms if nbytes]
    return f"held at one time, at most\n{table(rows or [('nothing',)], indent='  ')}"


def explain(plan: RechunkPlan) -> str:
    """Return the plan, and every strategy that was looked at."""
    considered = table(considered_rows(plan), indent="  ") if plan.considered else "  none: the array is empty"
    return f"{table(plan_rows(plan))}\n\nconsidered\n{considered}"


def number_text(value: float | Mapping[str, float]) -> str:
    """Return a constant of the cost model, or one for each codec.

    >>> number_text(1.234e9), number_text({"zstd": 7e8, "other": 5e8})
    ('1.23e+09', 'zstd 7e+08, other 5e+08')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number_text(part)}" for name, part in value.items())
    return f"{value:.3g}"


def move_text(move: Mapping[str, Any], placement: Mapping[int, str]) -> str:
    """Say where the ranks of a lost worker went."""
    ranks, worker = move["moved"], move["worker"]
    there = len(ranks) + sum(home == worker for home in placement.values())
    several = f", whose budget now holds {there} ranks" if there > len(ranks) else ""
    return f"worker {move['lost']} was lost: ranks {', '.join(map(str, ranks))} went to {worker}{several}"


# ---------------------------------------------------------------------- the bar


@contextmanager
def progress_bar(
    plan: RechunkPlan | BlocksPlan | DatasetPlan, run: Any, stream: TextIO | None = None
) -> Iterator[None]:
    """Show, while the block runs, how many of a plan's bytes have been read and written, by whom it goes on with, too.

    A terminal shows one line that changes; a file, such as a batch job's log, gets a line each tenth or minute.
    """
    out = stream or sys.stderr
    stop = threading.Event()
    start = time.perf_counter()
    reads, writes = run.expected
    t = plan.traffic
    to_read = t.read_bytes * reads / max(t.read_requests, 1)
    to_write = t.written_bytes * writes / max(t.write_requests, 1)
    every = t.read_bytes + t.written_bytes
    before = max(every - to_read - to_write, 0.0)
    shown = _changing_line(out) if out.isatty() else _logged_lines(out)

    def show(*, last: bool = False) -> None:
        read = done_share(run.meter.read_requests, reads) * to_read
        written = done_share(run.meter.write_requests + run.meter.skipped_chunks, writes) * to_write
        shown(State(before + read + written, before + to_read + to_write, time.perf_counter() - start, before), last)

    def show_again_and_again() -> None:
        while not stop.wait(0.1):
            show()

    thread = threading.Thread(target=show_again_and_again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        show(last=True)


class State(NamedTuple):
    """How far a run is."""

    done: float
    """Bytes that have been read and written."""
    total: float
    """Bytes in all."""
    elapsed: float
    """Seconds."""
    before: float = 0.0
    """Bytes of those done that an earlier run has done."""


def _changing_line(out: TextIO) -> Callable[[State, bool], None]:
    """Return what writes each state over the one before."""

    def write(state: State, last: bool) -> None:
        out.write("\r" + bar_line(state).ljust(LINE_WIDTH) + "\n" * last)
        out.flush()

    return write


def _logged_lines(out: TextIO) -> Callable[[State, bool], None]:
    """Return what writes a line where another tenth is done, or a minute has gone by, and the last state.

    >>> write = _logged_lines(sys.stdout)
    >>> for i, done in enumerate((5, 12, 14, 15, 31, 31)):
    ...     write(State(done, 100, 25.0 * i), i == 5)
    [███                           ]  12 %  12 B of 100 B, 25.0 s, 183.33 s left
    [█████████                     ]  31 %  31 B of 100 B, 100.0 s, 222.58 s left
    [█████████                     ]  31 %  31 B of 100 B, 125.0 s, 278.23 s left
    """
    tenths, minute = 0, 0.0

    def write(state: State, last: bool) -> None:
        nonlocal tenths, minute
        now = int(10 * state.done / state.total) if state.total else 10
        if not (last or now > tenths or state.elapsed >= minute + 60):
            return
        tenths, minute = now, state.elapsed
        out.write(bar_line(state) + "\n")
        out.flush()

    return write


def done_share(made: int, expected: float) -> float:
    """The share of the expected requests that have been made: what each brings is not known where data is coded.

    >>> done_share(1, 4), done_share(5, 4), done_share(0, 0)
    (0.25, 1.0, 1.0)
    """
    return min(made / expected, 1.0) if expected >= 1 else 1.0


def bar_line(state: State) -> str:
    """One line of the bar.

    >>> bar_line(State(2**29, 2**30, 2.0))
    '[███████████████               ]  50 %  512.00 MiB of 1.00 GiB, 2.0 s, 2.00 s left'
    """
    done, total, elapsed, before = state
    share = done / total if total else 1.0
    left = f", {seconds_text(elapsed * (total - done) / (done - before))} left" if before < done < total else ""
    bar = f"[{'█' * int(share * BAR_WIDTH):<{BAR_WIDTH}}] {share:4.0%}".replace("%", " %")
    return f"{bar}  {format_bytes(int(done))} of {format_bytes(int(total))}, {elapsed:.1f} s{left}"
