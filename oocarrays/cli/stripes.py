"""Command ``oocarrays stripe``: distribute arrays over several disks."""

from __future__ import annotations

import argparse
import posixpath
from typing import Any

from dask.utils import format_bytes

from oocarrays.cli.options import shared_options, sources_of
from oocarrays.errors import InputError
from oocarrays.graphs.calibrate.striping import BLOCKS, plan_striping
from oocarrays.graphs.settings import size_in_bytes, ways
from oocarrays.storage.foreign.places import WILD
from oocarrays.storage.stores.urls import joined_url, store_of
from oocarrays.storage.striped.moving import add, empty, lay_out
from oocarrays.storage.striped.store import StripedStore, opened
from oocarrays.storage.striped.verifying import record, verify


def stripe_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``stripe``."""
    parser.add_argument(
        "store", metavar="STORE", help="an array, a group or files; with --add and the like a striped store"
    )
    parser.add_argument("disks", metavar="DISKS", nargs="*", help="folders or URLs, one a disk")
    parser.add_argument("--name", help="of the store on each disk (default: that of STORE)")
    parser.add_argument("--block", help="split chunks of more bytes, such as 8MiB (default: chunks stay whole)")
    todo = parser.add_mutually_exclusive_group()
    todo.add_argument("--add", metavar="DISK", help="add a disk: what it is to have moves there, and nothing else")
    todo.add_argument("--empty", metavar="DISK", help="move all that a disk has to the others")
    todo.add_argument("--verify", action="store_true", help="decode every chunk, and compare it with its record")
    todo.add_argument("--record", action="store_true", help="record the size and checksum of every chunk for --verify")
    todo.add_argument("--explain", action="store_true", help="measure DISKS; recommend block, buffers and I/O ranks")
    parser.add_argument("--kept", action="store_true", help="explain by what calibrate --disks has measured")
    shared_options(parser, "storage-option", "concat-dim")
    parser.set_defaults(command=_stripe)


def _stripe(options: argparse.Namespace) -> int:
    if options.explain:
        return _explain([options.store, *options.disks], options)
    if options.verify or options.record or options.add or options.empty:
        return _change(options)
    return _lay_out(options)


def _explain(disks: list[str], options: argparse.Namespace) -> int:
    """Measure disks, and print the model's recommendation."""
    if options.concat_dim:
        raise InputError(f"--concat-dim {options.concat_dim}: --explain measures disks, and reads no files")
    blocks = [options.block] if options.block else BLOCKS
    how: dict[str, Any] = {"blocks": blocks, "kept": options.kept, "trial": not options.kept}
    texts = [plan_striping(disks, mode=mode, **how).explain() for mode in ("read", "write")]
    print("\n\n".join(texts))
    return 0


def _lay_out(options: argparse.Namespace) -> int:
    if not options.disks:
        raise InputError("DISKS are needed: folders or URLs, one a disk")
    given = dict(options.storage_option)
    name = options.name or posixpath.basename(options.store.partition("!")[2] or options.store.rstrip("/"))
    if WILD.search(name):
        raise InputError(f"the store on the disks cannot be named {name!r}: give it a --name, such as --name a.zarr")
    (named,) = sources_of(options, options.store)
    source = store_of(named, given, ways())
    url = f"{joined_url(options.disks)}!{name}"
    target = opened(url, given, ways())
    if options.block is not None:
        target = StripedStore(target.parts, block=size_in_bytes(options.block, "--block"))
    moved = lay_out(source, target)
    print(f"laid out {moved.keys} objects, {format_bytes(moved.nbytes)}, over {len(target.disks)} disks: {url}")
    return 0


def _change(options: argparse.Namespace) -> int:
    if options.disks or options.block or options.name or options.concat_dim:
        raise InputError(
            "--add, --empty, --record and --verify take a striped STORE alone, such as striped:///mnt/a,/mnt/b!x.zarr"
        )
    given = dict(options.storage_option)
    store: Any = store_of(options.store, given, ways())
    if options.verify:
        return _verify(store)
    if options.record:
        print(f"recorded {record(store)} objects")
        return 0
    change, disk = (add, options.add) if options.add else (empty, options.empty)
    moved = change(store, _beside(options.store, disk), given)
    print(f"moved {moved.keys} objects, {format_bytes(moved.nbytes)}")
    return 0


def _beside(store: str, disk: str) -> str:
    """Return a disk with the name of the striped store on the others."""
    name = store.partition("!")[2]
    return f"{disk.rstrip('/')}/{name}" if name else disk


def _verify(store: Any) -> int:
    found = verify(store)
    for line in found.faults:
        print(line)
    for name in found.left:
        print(f"left by a writer that died, and read by nobody: {name}")
    if not found.recorded:
        print("written since its values were recorded: a chunk that is gone is not noticed; --record records them")
    faults = len(found.faults)
    print(f"{found.keys} objects, {format_bytes(found.nbytes)}: {faults or 'no'} fault{'s' * (faults != 1)}")
    return 1 if found.faults else 0
