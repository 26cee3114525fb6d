"""Sections on the terminal: ``oocarrays read STORE '[::4, 5]'``."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from oocarrays.arrays.array import open_array
from oocarrays.cli.options import sources_of
from oocarrays.cli.signatures import command
from oocarrays.errors import SelectionError, TargetError
from oocarrays.mapping.selection import Selection
from oocarrays.show import report
from oocarrays.storage.local.fs import translated
from oocarrays.storage.meter import Meter
from oocarrays.storage.metered import metered
from oocarrays.storage.stores.urls import check_path
from oocarrays.stored.reading import plan


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
        f"{report.shortened(text)} is not an index: write it as in Python, such as '[::4, 5]' or '[10:20, ..., [1, 4]]'"
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


@command()
def read_command(
    store: str,
    section: str,
    *,
    method: Literal["auto", "direct", "sieve"] = "auto",
    explain: bool = False,
    out: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    concat_dim: str | None = None,
    missing: Literal["fill", "warn", "error"] | None = None,
) -> None:
    """Read a section of an array, and print it or write it to a file.

    store: array: a path or a URL
    section: index as in Python: '[::4, 5]', '[10:20, ..., [1, 4]]'
    method: how elements between those of the section are skipped
    explain: print the planned and the counted requests and bytes
    out FILE.npy: new .npy file for the section
    """
    if out is not None:
        out = check_path(out, "--out")
        if os.path.lexists(out):
            raise TargetError(f"{out} exists; name a new file")
        if not os.path.isdir(os.path.dirname(os.path.abspath(out))):
            raise TargetError(f"--out {out}: there is no such folder")
    (source,) = sources_of(concat_dim, storage_options, store)
    array = open_array(source, storage_options=storage_options, missing=missing)
    taken = Selection.of(parsed_section(section), array.shape)
    if explain:
        print(plan(array.zarr, taken, method=method).explain())
    with metered() as meter:
        data = np.asarray(array.read(taken, method=method))
    if explain:
        print(_counted(meter))
    if out:
        _save(out, data)
    else:
        print(np.array2string(data, threshold=1000))
    place = f"; wrote {out}" if out else ""
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
