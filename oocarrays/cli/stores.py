"""Commands for stores: ``oocarrays info`` shows one, ``compare`` two, ``stripe`` distributes an array over disks,
``clean`` removes the remains of dead runs.

weather.zarr      group of 3 arrays, …
├── air           720 × 721   float32  …
└── ocean         group of 2 arrays, …
    ├── …
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from dask.utils import format_bytes

from oocarrays.cli.main import FAILED
from oocarrays.cli.options import sources_of
from oocarrays.cli.reports import print_json
from oocarrays.cli.signatures import asked, command
from oocarrays.comparing import Comparison, compare
from oocarrays.errors import InputError, plural
from oocarrays.graphs.calibrate.striping import BLOCKS, plan_striping
from oocarrays.graphs.settings import size_in_bytes, ways
from oocarrays.jobs.rechunking import clean
from oocarrays.plan.documents import Document
from oocarrays.recovery.resume import run_status
from oocarrays.requests import is_at_work, journaled
from oocarrays.show.contents import ArrayFacts, GroupFacts, chunks_text, contents
from oocarrays.show.report import bytes_text, missing_text, shape_text, shortened, table
from oocarrays.storage.files.places import local_folder
from oocarrays.storage.foreign.places import WILD
from oocarrays.storage.journal.journal import way_out
from oocarrays.storage.journal.leftovers import Leftover, find_leftovers
from oocarrays.storage.stores.urls import joined_url, store_of
from oocarrays.storage.striped.moving import add as adds, empty as empties, lay_out
from oocarrays.storage.striped.store import StripedStore, opened
from oocarrays.storage.striped.verifying import record as records, verify as verifies
from oocarrays.stored.array import placer
from oocarrays.streaming.opening import holds_streams, stream_rows


@command(compare)
def compare_command(
    a: str, b: str, *, concat_dim: str | None = None, json: bool = False, quiet: bool = False, **how: Any
) -> int:
    """Compare two arrays or groups element by element; the exit code is 0 if they are equal, otherwise 1.

    a A: array or group: a path or a URL
    b: another one, with any chunks and codecs
    rtol: relative tolerance: elements are equal if |a - b| <= atol + rtol * |b|
    atol: absolute tolerance
    equal_nan: treat NaN as different from NaN
    scratch: folder for rechunking one array like the other, if that is faster (default: the system's temporary folder)
    quiet: print nothing
    """
    one, other = sources_of(concat_dim, how["storage_options"], a, b)
    found = compare(one, other, **asked(compare, None, how)[1])
    if json:
        print_json(_comparison(found))
    elif not quiet:
        print(found)
    return 0 if found else FAILED


def _comparison(found: Comparison) -> Document:
    differences = found.differences
    return {
        "equal": bool(found),
        "shapes": found.shapes,
        "dtypes": found.dtypes,
        "different_elements": differences.count,
        "largest_difference": differences.largest if differences.count else None,
        "first": differences.first if differences.count else None,
        "attributes": found.attributes,
        "only": found.only,
        "arrays": {name: _comparison(each) for name, each in found.arrays.items()},
    }


@command(clean)
def clean_command(path: str, *, dry_run: bool = False, json: bool = False, **how: Any) -> None:
    """Remove the remains of dead runs in a folder and below it.

    path: folder
    unfinished: remove unfinished targets too: their runs cannot be continued afterwards
    dry_run: print what would be removed; remove nothing
    """
    removed = clean(path, dry_run=dry_run, **how)
    kept = [each for each in find_leftovers(path) if each not in removed]
    if json:
        print_json({"removed": list(map(asdict, removed)), "kept": list(map(asdict, kept)), "dry_run": dry_run})
    else:
        rows = [*_leftover_rows(removed, "to be removed" if dry_run else "removed"), *_leftover_rows(kept, "")]
        print(table(rows) if rows else f"nothing was left in {path}")


def _leftover_rows(leftovers: Sequence[Leftover], word: str) -> list[tuple[str, ...]]:
    reasons = {True: "kept: a run is at work on it", False: "kept: resume it, or pass --unfinished"}
    return [(each.kind, format_bytes(each.nbytes), word or reasons[each.alive], each.path) for each in leftovers]


@command()
def info_command(
    store: str, *, json: bool = False, storage_options: Mapping[str, Any] | None = None, concat_dim: str | None = None
) -> None:
    """Show an array, or a group as a tree, and the progress of an unfinished one.

    json: print one JSON object to standard output
    """
    (source,) = sources_of(concat_dim, storage_options, store)
    place = placer(storage_options)(source)
    if holds_streams(place) and not json:
        print(table(stream_rows(place)))
        return
    found = contents(place)
    left = run_status(place) if found.unfinished is not None else None
    if json:
        print_json(_facts(found) | ({} if left is None else {"run": asdict(left)}), odd=str, indent=2)
        return
    rows = list(left.rows()) if left else []
    if isinstance(found, GroupFacts):
        print("\n".join(filter(None, (tree(found, store), table(rows)))))
    else:
        print(table([*array_rows(found), *rows]))


def _facts(found: ArrayFacts | GroupFacts) -> Document:
    if isinstance(found, ArrayFacts):
        return {"kind": "array", **asdict(found)}
    said = {field.name: getattr(found, field.name) for field in fields(found)}
    return {"kind": "group", **said, "members": {name: _facts(each) for name, each in found.members.items()}}


Line = tuple[str, str, ArrayFacts | GroupFacts | tuple[str, ...] | str]
"""Branches before a label, the label, and its content."""


def tree(group: GroupFacts, name: str) -> str:
    """Return a group as text: one line for each array, and one for each attribute of a group."""
    columns = ("shape", "dimensions", "dtype", "chunks", "shards", "bytes", "stored", "codecs", "")
    head: list[Line] = [("│", "", columns)] if group.arrays else []
    top = f"{name}  {_group_text(group)}"
    lines: list[Line] = [("", "", top), *_attributes(group, ""), *head, *_branches(group, "")]
    rows = [
        _array_row(what) if isinstance(what, ArrayFacts)
        else (_group_text(what),) if isinstance(what, GroupFacts) else what
        for _, _, what in lines
    ]  # fmt: skip
    cells = [row for row in rows if len(row) > 1 and isinstance(row, tuple)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    labels = [len(branch + label) for branch, label, what in lines if not isinstance(what, str)]
    indent = max(labels, default=0) + 2
    return "\n".join(
        f"{branch}{row}"
        if isinstance(row, str)
        else f"{(branch + label).ljust(indent)}{'  '.join(map(str.ljust, row, widths or [0]))}".rstrip()
        for (branch, label, _), row in zip(lines, rows, strict=True)
    )


def _branches(group: GroupFacts, prefix: str) -> Iterator[Line]:
    """Yield the lines below a group, except its attributes."""
    for place, (name, member) in enumerate(group.members.items(), 1):
        last = place == len(group.members)
        yield prefix + ("└── " if last else "├── "), name, member
        below = prefix + ("    " if last else "│   ")
        if isinstance(member, GroupFacts):
            yield from _attributes(member, below)
            yield from _branches(member, below)
        elif group.unfinished is None:  # else the group is resumed, with all that is in it
            yield from _unfinished(member, below)


def _unfinished(facts: ArrayFacts | GroupFacts, trunk: str) -> Iterator[Line]:
    """Yield the lines for an unfinished array or group: its state, and the command that continues it."""
    if facts.unfinished is not None:
        yield trunk, "", f"  unfinished: run {facts.unfinished} did not write all of it; {_way(facts.store)[0]}:"
        yield trunk, "", f"  {_way(facts.store)[1]}"


def _way(store: str) -> tuple[str, str]:
    """Return the state of an unfinished target in a few words, and the next step."""
    if local_folder(store) is not None and is_at_work(store):
        return "now", "a run is at work on it"
    if local_folder(store) is not None and journaled(store) is None:
        return "its journal cannot be read", way_out(store)
    return "continue with", f"oocarrays resume {shlex.quote(store)}"


def _attributes(group: GroupFacts, prefix: str) -> Iterator[Line]:
    trunk = prefix + ("│ " if group.members else "  ")
    yield from _unfinished(group, trunk)
    yield from ((trunk, "", f"{key}: {shortened(value)}") for key, value in group.attributes.items())
    yield from ((trunk, "", f"left out: {name} {why}") for name, why in group.skipped.items() if "/" not in name)


def _group_text(group: GroupFacts) -> str:
    arrays = group.arrays
    stored = [array.stored_bytes for array in arrays if array.stored_bytes is not None]
    parts = [
        f"group of {plural(len(arrays), 'array')}",
        f"format {group.zarr_format}",
        *(["consolidated"] if group.consolidated else []),
        bytes_text(sum(array.nbytes for array in arrays)),
        *([f"{format_bytes(sum(stored))} stored"] if stored else []),
    ]
    return ", ".join(parts)


def _array_row(array: ArrayFacts) -> tuple[str, ...]:
    names = array.dimension_names
    return (
        shape_text(array.shape),
        ", ".join(str(name) for name in names) if names else "–",
        shortened(array.dtype, quoted=False, most=24),
        chunks_text(array),
        shape_text(array.shards) if array.shards else "–",
        bytes_text(array.nbytes),
        "–" if array.stored_bytes is None else format_bytes(array.stored_bytes),
        ", ".join(array.codecs) or "–",
        f"lacks {missing_text(array.missing_chunks, array.all_chunks)} chunks" if array.missing_chunks else "",
    )


def array_rows(array: ArrayFacts) -> list[tuple[str, str]]:
    names = array.dimension_names
    stored = array.stored_bytes
    how_to_go_on: list[tuple[str, str]] = []
    if array.unfinished is not None:
        word, way = _way(array.store)
        more = " (--dry-run says how much is left)" if word == "continue with" else ""
        how_to_go_on = [("unfinished", f"run {array.unfinished} did not write all of it"), (word, way + more)]
    return [
        ("store", array.store),
        *how_to_go_on,
        ("format", str(array.zarr_format)),
        ("shape", shape_text(array.shape)),
        ("dtype", array.dtype),
        ("chunks", chunks_text(array)),
        ("shards", shape_text(array.shards) if array.shards else "none"),
        ("codecs", ", ".join(array.codecs) or "none"),
        ("fill value", str(array.fill_value)),
        ("dimension names", ", ".join(map(str, names)) if names else "none"),
        ("bytes", f"{bytes_text(array.nbytes)} ({array.nbytes})"),
        *([] if stored is None else [("bytes stored", f"{format_bytes(stored)} ({stored})")]),
        *([] if stored is None else [("chunks missing", missing_text(array.missing_chunks, array.all_chunks))]),
        *((f"attribute {name}", repr(value)) for name, value in array.attributes.items()),
    ]


# ---------------------------------------------------------------------- stripes


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
