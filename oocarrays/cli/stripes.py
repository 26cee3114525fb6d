"""The command that lays arrays out over several disks: ``oocarrays stripe``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oocarrays.errors import UnsupportedError
from oocarrays.graphs.settings import size_in_bytes

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction


def add_commands(commands: Commands) -> argparse.ArgumentParser:
    """Put it beside the others of the command line; its parser, which takes options of stores, too."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "stripe",
        help="lay an array out over several disks, add or empty one, verify; or ask a model",
    )
    parser.add_argument(
        "store", metavar="STORE", help="an array or a group; to --add, --empty, --verify: a striped one"
    )
    parser.add_argument("disks", metavar="DISKS", nargs="*", help="folders or URLs, one a disk")
    parser.add_argument("--name", help="of the store on each disk (default: that of STORE)")
    parser.add_argument("--block", help="split chunks of more bytes, such as 8MiB (default: chunks stay whole)")
    todo = parser.add_mutually_exclusive_group()
    todo.add_argument("--add", metavar="DISK", help="add a disk: what it is to have moves there, and nothing else")
    todo.add_argument("--empty", metavar="DISK", help="move all that a disk has to the others")
    todo.add_argument("--verify", action="store_true", help="look whether every chunk is whole, and on its disk")
    todo.add_argument("--explain", action="store_true", help="measure DISKS; recommend block, buffers and I/O ranks")
    parser.set_defaults(command=_stripe)
    return parser


def _stripe(options: argparse.Namespace) -> int:
    if options.explain:
        return _explain([options.store, *options.disks], options)
    if options.block is not None:
        size_in_bytes(options.block, "--block")
    raise UnsupportedError("arrays are not laid out yet")


def _explain(disks: list[str], options: argparse.Namespace) -> int:
    """Measure disks, and say what a model makes of them."""
    raise UnsupportedError("--explain is not there yet")
