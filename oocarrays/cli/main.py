"""The command line: one module a command or a few that go together; here they are put side by side, and one is run."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, NoReturn

from oocarrays.cli.advise import add_advise
from oocarrays.cli.demo import add_demo
from oocarrays.cli.exchange import add_exchanges
from oocarrays.cli.machine import add_calibrate
from oocarrays.cli.options import FAILED, WRONG_INPUT
from oocarrays.cli.planning import add_plan
from oocarrays.cli.requests import add_requests
from oocarrays.cli.runs import add_runs
from oocarrays.cli.sections import add_read
from oocarrays.cli.stores import add_stores
from oocarrays.cli.stripes import add_stripe
from oocarrays.errors import InputError, OocError
from oocarrays.graphs.run.missing import MissingChunksWarning
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.stored.array import placer

COMMANDS = (
    add_demo, add_runs, add_stores, add_calibrate, add_exchanges, add_requests, add_plan, add_stripe, add_advise,
    add_read,
)  # fmt: skip
"""All that can be typed, in the order in which ``--help`` lists it."""
INTERRUPTED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, and the exit code of wrong input."""
        print(f"{self.prog}: {OocError(message)} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(WRONG_INPUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 1 where a run failed, 2 for wrong input."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no text
    options = _parser().parse_args(_with_negative_chunks(sys.argv[1:] if arguments is None else arguments))
    try:
        with _terminated_as_interrupted(), _warnings_in_a_line():
            return int(options.command(options) or 0)
    except InputError as error:
        print(f"oocarrays: {_as_typed(str(error), options)}", file=sys.stderr)
        return WRONG_INPUT
    except OocError as error:
        print(f"oocarrays: {_as_typed(str(error), options)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        print(f"oocarrays: {INTERRUPTED[number]}{_what_now(options)}", file=sys.stderr)
        return 128 + int(number)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, by which batch systems end a job, end a command as Ctrl-C does: in order, and with a word."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show our own warnings as our errors are shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MissingChunksWarning)
        shown = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, MissingChunksWarning):
                print(f"oocarrays: {message}", file=sys.stderr)
            else:
                shown(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _as_typed(message: str, options: argparse.Namespace) -> str:
    """Name the option ``--overwrite`` as it is typed, where the command has it.

    >>> _as_typed("it exists; ask for overwrite to replace it", argparse.Namespace(overwrite=False))
    'it exists; ask for --overwrite to replace it'
    >>> _as_typed("write it again with overwrite", argparse.Namespace())
    'write it again with overwrite'
    """
    return re.sub(r"\b(ask for|with) overwrite\b", r"\1 --overwrite", message) if "overwrite" in options else message


def _what_now(options: argparse.Namespace) -> str:
    """Say how to go on after an interruption."""
    target = getattr(options, "target", None)
    if target is None:
        return ""
    with suppress(OocError):
        if unfinished_run(placer(dict(options.storage_option))(target)) is None:
            return ""
    return f"; what was written stays, go on with: oocarrays resume {shlex.quote(target)}"


def _with_negative_chunks(arguments: Sequence[str]) -> list[str]:
    """Let ``--chunks -1,8`` and ``--shards -1,8`` be written as they are read: argparse takes ``-1,8`` for an option.

    >>> _with_negative_chunks(["a", "--chunks", "-1,8"])
    ['a', '--chunks=-1,8']
    """
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1] in ("--chunks", "--shards") and word.startswith("-"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="oocarrays", description="Rewrite Zarr arrays larger than memory, in a memory budget.")
    parser.add_argument("--version", action="version", version=f"oocarrays {version('oocarrays')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    return parser
