"""Command line: runs one command, and reports its end in one line and an exit code.

Commands are listed by name, in groups, with the module of their function, which is imported on use.
"""

from __future__ import annotations

import argparse
import errno
import io
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple, NoReturn

from oocarrays.errors import InputError, MissingChunksWarning, OocError

FAILED, WRONG_INPUT = 1, 2
CODES = {
    0: "success, also if nothing was left to do; compare: equal",
    FAILED: "the run failed, and can be resumed once the cause is removed; compare: different; stripe --verify: faults",
    WRONG_INPUT: "wrong input: the same command would fail again",
    128 + signal.SIGINT: "interrupted by Ctrl-C; the target can be resumed",
    128 + signal.SIGPIPE: "the program that read the output has ended, such as head",
    128 + signal.SIGTERM: "ended by SIGTERM, as batch systems send it; the target can be resumed",
}
"""Exit codes and their meaning."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, and return one of `CODES`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no text
    words = _with_negative_values(sys.argv[1:] if arguments is None else arguments)
    options = parser_of_all(version("oocarrays")).parse_args(words)
    options.words = words
    if options.verbose:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        held = io.StringIO() if options.quiet and not getattr(options, "json", False) else None
        with _terminated_as_interrupted(), _warnings_in_a_line(), redirect_stdout(held or sys.stdout):
            code: int = options.run(options)
        if code and held:
            print(held.getvalue(), end="")
        sys.stdout.flush()
    except OocError as error:
        print(f"oocarrays: {_as_typed(str(error), options.run.flags)}", file=sys.stderr)
        return WRONG_INPUT if isinstance(error, InputError) else FAILED
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        word = "terminated" if number == signal.SIGTERM else "interrupted"
        print(f"oocarrays: {word}{options.run.stopped(options)}", file=sys.stderr)
        return 128 + int(number)
    except OSError as error:
        return _output_lost(error)
    return code


def _output_lost(error: OSError) -> int:
    """Return the exit code if standard output is gone or full; jobs translate errors of their files."""
    if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it once more
    if error.errno == errno.EPIPE:
        return 128 + signal.SIGPIPE
    print(f"oocarrays: cannot write to standard output: {error.strerror}", file=sys.stderr)
    return FAILED


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
            ours = category is UserWarning and where[0].startswith(os.path.dirname(__file__))
            if ours or issubclass(category, MissingChunksWarning):
                print(f"oocarrays: {message}", file=sys.stderr)
            else:
                shown(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _as_typed(message: str, flags: Mapping[str, str]) -> str:
    """Replace the names of arguments in a message by flags of the command: ``ranks=0`` by ``--ranks=0``.

    Calls in Python, ``f(ranks=0)``, stay as they are.
    """
    message = re.sub(r"\b\w+\([^()]*=[^()]*\), or (?=--)", "", message)
    stated = r"\b(?:Target|Resources)\((?:store, )?((\w+)=.*?)\)(?=[:;, ]|$)"
    message = re.sub(stated, lambda found: found[1] if found[2] in flags else found[0], message)
    parts = CALL.split(message)
    parts[::2] = (_with_flags(part, flags) for part in parts[::2])
    return "".join(parts)


def _with_flags(message: str, flags: Mapping[str, str]) -> str:
    for name, flag in flags.items():
        before = r"(?<![\w./'\"=-])"
        message = re.sub(rf"{before}{name}=True(?:, {flag}| \({flag}\))?", flag, message)
        message = re.sub(rf"{before}{name}=(?![,; ])", f"{flag}=", message)
        message = re.sub(rf"{before}{name}=(?=[,; ])", flag, message)
    return message


def _with_negative_values(arguments: Sequence[str]) -> list[str]:
    """Join ``--chunks -1,8`` by ``=``: argparse takes ``-1,8`` for an option."""
    joined: list[str] = []
    for word in arguments:
        is_value = re.match(r"-[\d.]", word) and joined and joined[-1].startswith("--") and "=" not in joined[-1]
        if is_value:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


class Entry(NamedTuple):
    name: str
    does: str
    function: str


GROUPS = {
    "write": (
        Entry("rechunk", "write an array, or arrays of a group, again in other chunks", "runs.rechunk_command"),
        Entry("map", "apply a function of numpy blocks to arrays", "runs.map_command"),
        Entry("reduce", "sum, average, … along axes", "runs.reduce_command"),
        Entry("update", "bring a rechunked array up to date with its source", "runs.update_command"),
        Entry("pyramid", "write an image in several resolutions, as OME-Zarr", "runs.pyramid_command"),
        Entry("resume", "continue a run that stopped", "runs.resume_command"),
        Entry("stripe", "distribute an array over several disks, or change that", "stores.stripe_command"),
        Entry("clean", "remove the remains of dead runs in a folder", "stores.clean_command"),
        Entry("demo", "rechunk an array that is larger than its budget, and check it", "runs.demo_command"),
    ),
    "read": (
        Entry("info", "show an array, or a group as a tree", "stores.info_command"),
        Entry("read", "print a section of an array", "ranks.read_command"),
        Entry("compare", "compare two arrays or groups", "stores.compare_command"),
        Entry("advise", "recommend chunks from recorded reads", "advice.advise_command"),
        Entry("plan", "plan a rechunk for clusters that do not exist", "advice.plan_command"),
    ),
    "tools": (
        Entry("calibrate", "measure this machine for later plans", "advice.calibrate_command"),
        Entry("schedule", "show who sends to whom in each step of an exchange", "ranks.schedule_command"),
        Entry("redistribute", "show the cost of a change of an array's layout", "ranks.redistribute_command"),
        Entry("requests", "count the requests of ranks that read their parts", "ranks.requests_command"),
    ),
}
OLD = {"--axis": "--window AXIS=auto", "--height": "--window LENGTH, or AXIS=LENGTH"}
"""Options of version 0.5, and what replaces them; removed in 0.7."""
CALL = re.compile(r"(\b\w+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))")
"""A call in a message, with calls or tuples inside."""
VERBOSE = "log plan, progress and end to standard error"


class Parser(argparse.ArgumentParser):
    """Parser that imports its options when it parses, with errors of one line."""

    def __init__(self, *args: Any, function: str | None = None, **kwargs: Any) -> None:
        formatter = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28)
        super().__init__(*args, **{"formatter_class": formatter} | kwargs)
        self._function = function
        self._is_command = function is not None

    def load_options(self) -> None:
        if self._function is not None:
            module, _, name = self._function.partition(".")
            self._function = None
            getattr(import_module(f"oocarrays.cli.{module}"), name).add_options(self)
            if "--quiet" not in self._option_string_actions:
                self.add_argument("--quiet", action="store_true", help="print nothing on success")
            self.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=VERBOSE)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse arguments; the first may be the name of a command, which leaves none unknown."""
        self.load_options()
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._is_command:
            from oocarrays.options.given import OTHERS

            others = {_flag(name): _flag(own) for name, own in OTHERS.items()}
            for word in (word.partition("=")[0] for word in unknown):
                for names, when in ((OLD, "now"), (others, "here")):
                    if word in names and names[word].split()[0] in self._option_string_actions:
                        self.error(f"{word} is {names[word]} {when}")
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print one line, and exit with the code of wrong input."""
        self.exit(WRONG_INPUT, f"{self.prog}: {OocError(message)} (see {self.prog} --help)\n")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def parser_of_all(version: str) -> Parser:
    codes = "\n".join(f"  {code:<5}{meaning}" for code, meaning in CODES.items())
    lines = ["Rewrite Zarr arrays larger than memory, within a memory budget."]
    for name, group in GROUPS.items():
        lines += ["", f"{name}:", *(f"  {each.name:13} {each.does}" for each in group)]
    parser = Parser(prog="oocarrays", description="\n".join(lines), epilog=f"exit codes:\n{codes}")
    parser.add_argument("--version", action="version", version=f"oocarrays {version}", help="print the version")
    parser.add_argument("-v", "--verbose", action="store_true", help=VERBOSE)
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", help="oocarrays COMMAND --help lists its options"
    )
    for group in GROUPS.values():
        for entry in group:
            commands.add_parser(entry.name, function=entry.function)
    return parser
