"""Command ``oocarrays stripe``: distribute arrays over several disks."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from dask.utils import format_bytes

from oocarrays.cli.main import FAILED
from oocarrays.cli.options import sources_of
from oocarrays.cli.signatures import command
from oocarrays.errors import InputError, plural
from oocarrays.graphs.calibrate.striping import BLOCKS, plan_striping
from oocarrays.graphs.settings import size_in_bytes, ways
from oocarrays.storage.foreign.places import WILD
from oocarrays.storage.stores.urls import joined_url, store_of
from oocarrays.storage.striped.moving import add as adds
from oocarrays.storage.striped.moving import empty as empties
from oocarrays.storage.striped.moving import lay_out
from oocarrays.storage.striped.store import StripedStore, opened
from oocarrays.storage.striped.verifying import record as records
from oocarrays.storage.striped.verifying import verify as verifies


@command()
def stripe_command(
    store: str,
    disks: list[str] | tuple[()] = (),
    *,
    name: str | None = None,
    block: str | None = None,
    add: str | None = None,
    empty: str | None = None,
    verify: bool = False,
    record: bool = False,
    explain: bool = False,
    kept: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    concat_dim: str | None = None,
    resume: bool = False,
) -> int:
    """Distribute an array, a group or files over several disks, or change, verify or plan such a distribution.

    store: array, group or files to distribute; with --add, --empty, --verify or --record a striped store
    disks: folders or URLs, one a disk
    name: name of the store on each disk (default: that of STORE)
    block SIZE: split chunks with more bytes, such as 8MiB (default: chunks stay whole)
    add DISK: add a disk, and move its share to it
    empty DISK: move all data of a disk to the others
    verify: decode every chunk, and compare it with its record; the exit code is 1 if one does not match
    record: record the size and checksum of every chunk for --verify
    explain: measure STORE and DISKS, which are disks, and recommend block, buffers and I/O ranks
    kept: with --explain: use the measurements of calibrate --disks
    """
    asked = {"--add": add, "--empty": empty, "--verify": verify, "--record": record, "--explain": explain}
    chosen = [flag for flag, given in asked.items() if given]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)} are given: one command does one of them")
    if explain:
        if concat_dim:
            raise InputError(f"--concat-dim {concat_dim}: --explain measures disks, and reads no files")
        return _explain([store, *disks], block, kept=kept)
    if not chosen:
        (source,) = sources_of(concat_dim, storage_options, store)
        print(_lay_out(store, source, list(disks), name, block, storage_options or {}, resume=resume))
        return 0
    if disks or block or name or concat_dim or resume:
        raise InputError(
            f"{chosen[0]} takes a striped STORE alone, such as striped:///mnt/a,/mnt/b!x.zarr: no DISKS, --name, "
            "--block, --concat-dim or --resume"
        )
    striped = store_of(store, storage_options or {}, ways())
    if verify:
        return _verify(striped)
    if add or empty:
        disk = _beside(store, add or empty or "")
        moved = (adds if add else empties)(striped, disk, storage_options or {})
        done = f"moved {plural(moved.keys, 'object')}, {format_bytes(moved.nbytes)}"
    else:
        done = f"recorded {plural(records(striped), 'object')}"
    print(done)
    return 0


def _explain(disks: list[str], block: str | None, *, kept: bool) -> int:
    how: dict[str, Any] = {"blocks": [block] if block else BLOCKS, "kept": kept, "trial": not kept}
    texts = [plan_striping(disks, mode=mode, **how).explain() for mode in ("read", "write")]
    print("\n\n".join(texts))
    return 0


def _lay_out(
    place: str,
    source: Any,
    disks: list[str],
    name: str | None,
    block: str | None,
    options: Mapping[str, Any],
    *,
    resume: bool,
) -> str:
    if not disks:
        raise InputError("DISKS are needed: folders or URLs, one a disk")
    name = name or posixpath.basename(place.partition("!")[2] or place.rstrip("/"))
    if WILD.search(name):
        raise InputError(f"the store on the disks cannot be named {name!r}: give it a --name, such as --name a.zarr")
    url = f"{joined_url(disks)}!{name}"
    target = opened(url, options, ways())
    if block is not None:
        target = StripedStore(target.parts, block=size_in_bytes(block, "--block"))
    moved = lay_out(store_of(source, options, ways()), target, resume=resume)
    if resume and not moved.keys:
        return f"{url} is laid out already, nothing to do"
    many = plural(moved.keys, "object")
    return f"laid out {many}, {format_bytes(moved.nbytes)}, over {plural(len(target.disks), 'disk')}: {url}"


def _beside(store: str, disk: str) -> str:
    """Return a disk with the name of the striped store on the others."""
    name = store.partition("!")[2]
    return f"{disk.rstrip('/')}/{name}" if name else disk


def _verify(store: Any) -> int:
    found = verifies(store)
    lines = [*found.faults, *(f"left by a writer that died, and read by nobody: {name}" for name in found.left)]
    if not found.recorded:
        lines.append(
            "written since its values were recorded: a chunk that is gone is not noticed; --record records them"
        )
    faults = plural(len(found.faults), "fault") if found.faults else "no faults"
    lines.append(f"{plural(found.keys, 'object')}, {format_bytes(found.nbytes)}: {faults}")
    print("\n".join(lines))
    return FAILED if found.faults else 0
