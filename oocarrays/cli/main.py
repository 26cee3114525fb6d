"""Command line: runs one command, and reports its end in one line and an exit code."""

from __future__ import annotations

import argparse
import io
import logging
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from oocarrays.cli.commands import FAILED, WRONG_INPUT, parser_of_all
from oocarrays.errors import InputError, MissingChunksWarning, OocError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code: 0, 1 for a failed run, 2 for wrong input."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no text
    words = _with_negative_chunks(sys.argv[1:] if arguments is None else arguments)
    options = parser_of_all(version("oocarrays")).parse_args(words)
    if options.verbose:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
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
        what_now = options.what_now(options) if "what_now" in options else ""
        print(f"oocarrays: {'terminated' if number == signal.SIGTERM else 'interrupted'}{what_now}", file=sys.stderr)
        return 128 + int(number)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, which batch systems send, end a command like Ctrl-C: in order, and with a message."""

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
    """Print warnings of oocarrays in the format of its errors."""
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
    """Replace argument names by ``--overwrite`` and ``--resume`` if the command has them."""
    for name in ("overwrite", "resume"):
        if name in options:
            message = re.sub(rf"\b(ask for|with) {name}\b", rf"\1 --{name}", message)
            message = message.replace(f"{name}=True (--{name})", f"--{name}").replace(f"{name}=True", f"--{name}")
    return message


def _with_negative_chunks(arguments: Sequence[str]) -> list[str]:
    """Join ``--chunks -1,8`` and ``--shards -1,8`` by ``=``: argparse takes ``-1,8`` for an option."""
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1] in ("--chunks", "--shards") and word.startswith("-"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
