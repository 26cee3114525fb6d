"""Sections on the terminal: ``oocarrays read STORE '[::4, 5]'``."""

from __future__ import annotations

import argparse
import ast
import os
from typing import Any

import numpy as np

from oocarrays.arrays.array import open_array
from oocarrays.cli.options import shared_options, sources_of
from oocarrays.errors import SelectionError, TargetError
from oocarrays.mapping.given import from_home
from oocarrays.mapping.selection import Selection
from oocarrays.plan.sections.sieve import METHODS
from oocarrays.show import report
from oocarrays.storage.local.fs import translated
from oocarrays.storage.meter import Meter
from oocarrays.storage.metered import metered
from oocarrays.storage.stores.urls import check_path
from oocarrays.stored.reading import plan


def read_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``read``."""
    parser.add_argument("store", metavar="STORE", help="a Zarr array: a path, or a URL")
    parser.add_argument("section", metavar="SECTION", help="as in Python: '[::4, 5]', '[10:20, ..., [1, 4]]'")
    parser.add_argument("--method", choices=METHODS, default="auto", help="how holes are read (default: %(default)s)")
    parser.add_argument("--explain", action="store_true", help="show what is planned, and what was counted")
    parser.add_argument(
        "--out", metavar="FILE.npy", type=from_home, help="write the section to a new file, as numpy does"
    )
    shared_options(parser, "storage-option", "concat-dim", "missing")
    parser.set_defaults(command=_read)


def parsed_section(text: str) -> Any:
    """Parse an index in Python's syntax, with or without brackets."""
    stripped = text.strip()
    inside = stripped[1:-1] if _in_brackets(stripped) else stripped
    try:
        index = ast.parse(f"_[{inside}]", mode="eval").body
        if isinstance(index, ast.Subscript) and isinstance(index.value, ast.Name):
            return _index(index.slice)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise SelectionError(
        f"{report.shortened(text)} is no index: write it as in Python, such as '[::4, 5]' or '[10:20, ..., [1, 4]]'"
    )


def _in_brackets(text: str) -> bool:
    """Return whether the first bracket closes at the end."""
    depths = np.cumsum([{"[": 1, "]": -1}.get(letter, 0) for letter in text])
    return text.startswith("[") and text.endswith("]") and bool((depths[:-1] > 0).all())


def _index(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_index, node.elts))
    if isinstance(node, ast.Slice):
        return slice(
            *(None if part is None else ast.literal_eval(part) for part in (node.lower, node.upper, node.step))
        )
    return ast.literal_eval(node)


def _read(options: argparse.Namespace) -> None:
    if options.out is not None:
        check_path(options.out, "--out")
    if options.out and os.path.lexists(options.out):
        raise TargetError(f"{options.out} exists; name a new file")
    (store,) = sources_of(options, options.store)
    array = open_array(store, storage_options=dict(options.storage_option), missing=options.missing)
    taken = Selection.of(parsed_section(options.section), array.shape)
    if options.explain:
        print(plan(array.zarr, taken, method=options.method).explain())
    with metered() as meter:
        data = np.asarray(array.read(taken, method=options.method))
    if options.explain:
        print(_counted(meter))
    if options.out:
        _save(options.out, data)
    else:
        print(np.array2string(data, threshold=1000))
    place = f"; wrote {options.out}" if options.out else ""
    print(f"shape {data.shape}, {data.dtype}, {data.nbytes} bytes{place}")


def _counted(meter: Meter) -> str:
    """Describe the requests and bytes of a read, as the meter counted them."""
    more = f", {meter.index_requests} of indices of shards" if meter.index_requests else ""
    decoded = f", {meter.decoded_bytes} bytes decoded" if meter.decoded_bytes else ""
    missing = f", {meter.missing_chunks} chunks missing" if meter.missing_chunks else ""
    return f"counted: {meter.read_requests} requests for {meter.read_bytes} bytes{more}{decoded}{missing}"


def _save(path: str, data: np.ndarray) -> None:
    try:
        with translated("write", path, but=(FileExistsError,)), open(path, "xb") as file:
            np.save(file, data)
    except FileExistsError:
        raise TargetError(f"{path} exists; name a new file") from None
