"""Commands for stores: ``oocarrays info`` shows one, ``compare`` two, ``clean`` removes the remains of dead runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from dask.utils import format_bytes

from oocarrays.cli.commands import FAILED
from oocarrays.cli.options import concat_option, sources_of, store_options
from oocarrays.comparing.comparing import compare
from oocarrays.jobs.rechunking import clean
from oocarrays.leftovers.resume import standing
from oocarrays.show import report
from oocarrays.show.contents import GroupFacts, array_rows, as_json, contents, tree
from oocarrays.storage.journal.leftovers import Leftover, find_leftovers
from oocarrays.stored.array import placer
from oocarrays.streaming.opening import holds_streams, stream_rows


def info_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``info``."""
    parser.add_argument("store", metavar="STORE")
    parser.add_argument("--json", action="store_true", help="for machines")
    store_options(parser)
    concat_option(parser)
    parser.set_defaults(command=_info)


def compare_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``compare``."""
    parser.add_argument("a", metavar="A", help="a Zarr array or group: a path, or a URL")
    parser.add_argument("b", metavar="B", help="another, of any chunks and codecs")
    parser.add_argument("--rtol", type=float, default=0.0, help="equal where |a - b| <= atol + rtol * |b|")
    parser.add_argument("--atol", type=float, default=0.0)
    parser.add_argument("--nan-differs", action="store_true", help="NaN is unlike NaN, too")
    parser.add_argument("--memory", metavar="SIZE", help="bytes that may be held, such as 256MiB")
    parser.add_argument("--scratch", metavar="DIR", help="where one may be rechunked like the other, if that is faster")
    store_options(parser)
    concat_option(parser)
    parser.set_defaults(command=_compare)


def _compare(options: argparse.Namespace) -> int:
    """Print the differences; return 0 if equal, otherwise 1."""
    a, b = sources_of(options, options.a, options.b)
    found = compare(
        a, b, rtol=options.rtol, atol=options.atol, equal_nan=not options.nan_differs,
        memory=options.memory, scratch=options.scratch, storage_options=dict(options.storage_option) or None,
    )  # fmt: skip
    print(found)
    return 0 if found else FAILED


def clean_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``clean``."""
    parser.add_argument("path", metavar="PATH", help="a folder")
    parser.add_argument("--unfinished", action="store_true", help="remove unfinished targets, too: see resume")
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed; do nothing")
    parser.set_defaults(command=_clean)


def _clean(options: argparse.Namespace) -> None:
    removed = clean(options.path, unfinished=options.unfinished, dry_run=options.dry_run)
    kept = [each for each in find_leftovers(options.path) if each not in removed]
    rows = [*_leftover_rows(removed, "to be removed" if options.dry_run else "removed"), *_leftover_rows(kept, "")]
    print(report.table(rows) if rows else f"nothing was left in {options.path}")


def _leftover_rows(leftovers: Sequence[Leftover], word: str) -> list[tuple[str, ...]]:
    """Return a row for each leftover, with its outcome."""
    reasons = {True: "kept: a run is at work on it", False: "kept: resume it, or ask for --unfinished"}
    return [(each.kind, format_bytes(each.nbytes), word or reasons[each.alive], each.path) for each in leftovers]


def _info(options: argparse.Namespace) -> None:
    place = placer(dict(options.storage_option))(*sources_of(options, options.store))
    if holds_streams(place) and not options.json:
        print(report.table(stream_rows(place)))
        return
    found = contents(place)
    left = standing(place) if found.unfinished is not None else None
    if options.json:
        told = as_json(found) | ({} if left is None else {"run": left.as_json()})
        print(json.dumps(told, ensure_ascii=False, indent=2, allow_nan=False))
        return
    rows = list(left.rows()) if left else []
    if isinstance(found, GroupFacts):
        print("\n".join(filter(None, (tree(found, options.store), report.table(rows)))))
    else:
        print(report.table([*array_rows(found), *rows]))
