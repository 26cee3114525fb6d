"""Command line: runs one command, and reports its end in one line and an exit code.

Commands are listed by name, in groups, with the module of their options, which is imported on use.
"""

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
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple, NoReturn

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


WRONG_INPUT, FAILED = 2, 1
"""Exit codes."""


class Command(NamedTuple):
    """Command, with the module and the name of the function that adds its options."""

    name: str
    does: str
    options: str


GROUPS = {
    "work": (
        Command("demo", "rechunk an array larger than its budget, and check it", "runs.demo_options"),
        Command("rechunk", "write an array again in other chunks", "runs.rechunk_options"),
        Command("update", "bring a rechunked array up to date with its source", "runs.update_options"),
        Command("pyramid", "write an image in several resolutions, as OME-Zarr", "runs.pyramid_options"),
        Command("resume", "go on with a run that stopped", "runs.resume_options"),
        Command("stripe", "lay an array out over several disks, add or empty one, verify", "stripes.stripe_options"),
        Command("clean", "remove what dead runs have left in a folder", "stores.clean_options"),
    ),
    "look": (
        Command("info", "show what a store holds: an array, or a group as a tree", "stores.info_options"),
        Command("read", "read a section of an array, and show what it took", "sections.read_options"),
        Command("compare", "say whether two arrays or groups are equal, and where not", "stores.compare_options"),
        Command("advise", "say which chunks arrays should have, from how they are read", "advise.advise_options"),
        Command("plan", "plan a rechunk for clusters that are not there", "planning.plan_options"),
    ),
    "tools": (
        Command("calibrate", "measure this machine, and plan by it from now on", "machine.calibrate_options"),
        Command("schedule", "show who sends to whom in each step of an exchange", "exchange.schedule_options"),
        Command("redistribute", "show what a change of an array's layout costs", "exchange.redistribute_options"),
        Command("requests", "count the requests of ranks that read their parts", "exchange.requests_options"),
    ),
}


class Parser(argparse.ArgumentParser):
    """Parser that imports its options when it parses, with errors of one line."""

    def __init__(self, *args: Any, options: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._options = options

    def load_options(self) -> None:
        """Add the options of this command."""
        if self._options is not None:
            module, _, function = self._options.partition(".")
            self._options = None
            getattr(import_module(f"oocarrays.cli.{module}"), function)(self)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse arguments; the first may be the name of a command."""
        self.load_options()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print one line, and exit with the code of wrong input."""
        self.exit(WRONG_INPUT, f"{self.prog}: {OocError(message)} (see {self.prog} --help)\n")


def parser_of_all(version: str) -> Parser:
    parser = Parser(
        prog="oocarrays",
        description="\n".join(_in_words()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"oocarrays {version}")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is planned, begun, moved and done")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", help="oocarrays COMMAND --help says more")
    for group in GROUPS.values():
        for command in group:
            commands.add_parser(command.name, options=command.options)
    return parser


def _in_words() -> list[str]:
    lines = ["Rewrite Zarr arrays larger than memory, in a memory budget."]
    for name, group in GROUPS.items():
        lines += ["", f"{name}:", *(f"  {each.name:13} {each.does}" for each in group)]
    return lines
