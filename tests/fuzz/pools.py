"""Values to give for a parameter: right ones by its name, and odd ones of all kinds.

A parameter that no name here knows gets what its annotation says, so that a new one is covered by itself.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from tests.fuzz.world import WRECKS

# fmt: off
FIELDS = ["a.zarr", "plain.zarr", "two.zarr", "shards.zarr", "named.zarr"]
"""Arrays of shape (12, 10)."""
SOURCES = [*FIELDS, "line.zarr", "point.zarr", "none.zarr", "axes31.zarr", "group.zarr", "local.zarr"]
BAD = [
    "axes33.zarr", "huge.zarr", "square.zarr", "evil.zarr", "empty", "file.txt", "cut.zarr", "denied.zarr", "loop.zarr",
    "unfinished.zarr", "bent.zarr", *(f"wreck{number}.zarr" for number in range(len(WRECKS))),
]
NOWHERE = [
    "new.zarr", "file.txt/x.zarr", "new/deep/x.zarr", "a.zarr/in.zarr", "group.zarr/new", "/dev/null", "/proc/x.zarr",
]
TEXTS = [
    "", " ", "\x00", "a\nb", "\udc80", "x" * 300, "x" * 5000, "é", "nan", "inf", "-1", "1e400", "0x10", "1_0", "²",
    "(block, *)", "()", "((", "[1,2]", "1,2", "4,5", "a=1", "auto", "None", "../../evil", "..", ".", "/", "~", "-",
]
URLS = [
    "zip://x", "x::y.zarr", "ftp://127.0.0.1/x", "s3://", "s3://b/x", "http://127.0.0.1:9/x", "https://", "://", "file://",
    "memory://m", "gs://b/x", "az://b/x", "nosuch://x", "github://a:b@c/x", "s3://b/\x00", "simplecache::zip://x",
]
SCHEDULERS = ["tcp://", ":", "x:y", "inproc://x", "threads ", "THREADS", "ucx://x:1", "127.0.0.1", "tcp://x:99999999"]
DIALLED = ["tls://x:1", "tcp://127.0.0.1:9", "127.0.0.1:9"]
"""Schedulers that are waited for, since they may come."""
NUMBERS: list[Any] = [
    0, -1, 1, 3, 2**31, 2**63, 2**64, 10**20, -(10**20), 0.5, -0.0, 1e300, float("nan"), float("inf"), 10**400, True,
    1j, np.int64(3), np.float32(2.5), np.uint8(0), np.bool_(True), np.datetime64("nat", "s"), np.array(2),
]
# fmt: on


class Odd:
    """A class of its own."""

    def __repr__(self) -> str:
        return "Odd()"


def _nothing() -> None:
    """A function of nothing."""


# fmt: off
OBJECTS: list[Any] = [
    None, (), [], {}, set(), b"", b"\x80", ..., slice(None), [1, [2]], (1,), (16, 16), [None], [[]], {"x": 1}, Odd(),
    _nothing, len, np.array([1, 2]), np.zeros((2, 2)), np.array([]), np.array("x"), np.array([None]), object, range(3),
    iter([1]), (2**40, 2**40), (1,) * 31, (1,) * 33, (0, 5), (-1, -1), ("block", "*"), {0: -1}, {"x": "y"},
    np.zeros((300, 300)), np.ma.array([1, 2], mask=[True, False]), np.zeros(2, "f4,i2"), ["é" * 200, "a.zarr"], {0: -5},
    NotImplemented, {"\udc80": "\x00"}, [float("nan")] * 2, (10**20,), ("4", "5"), (4.0, 5.0), (True, False), int,
]
# fmt: on
ODD: list[Any] = [*NUMBERS, *TEXTS, *URLS, *OBJECTS]


def _twice(x: Any) -> Any:
    return x * 2


BLOCKS = [np.arange(30.0).reshape(5, 6), np.ones((4, 4), "c8"), np.arange(6, dtype="u1"), np.zeros((0, 3))]
"""What kernels are given."""
GOOD: dict[str, list[Any]] = {
    "source": SOURCES,
    "a": FIELDS,
    "local": ["local.zarr"],
    "store": SOURCES,
    "path": [".", "empty"],
    "target": ["new.zarr", "new2.zarr"],
    "shape": [(12, 10), 30, (4, 5), (0, 5), ()],
    "extent": [30, 0, 7],
    "dtype": ["f4", "i8", np.dtype("u1"), None, "f4,i2", "complex64"],
    "orientation": ["row", "column", (1, 0), [0, 1]],
    "chunks": [(4, 5), (12, 2), -1, "auto", {0: 3}, ((4, 4, 4), 10), "64kiB", 2],
    "shards": [(8, 10), None, -1],
    "layout": ["(block, *)", "block", "(cyclic(2), block)", "cyclic", ("block", "*")],
    "ranks": [1, 2, 4],
    "grid": [(2, 1), (1, 2), (2,)],
    "memory": ["64MiB", 2**26, None, 1e8],
    "method": ["auto", "direct", "sieve", "two-phase", "independent", "assembled", "staged"],
    "schedule": ["auto", "pex", "gen", "bex", "gen-shift", "ipex", "rex"],
    "placement": ["global", "local"],
    "depth": [0, 1, (1, 0)],
    "boundary": ["none", "reflect", "periodic", "nearest", 0.0, {0: "periodic", -1: 1}, ("none", "reflect")],
    "fill_value": [None, 0, 7],
    "compressors": [None, (), "auto"],
    "filters": [None, (), "auto"],
    "zarr_format": [2, 3],
    "attributes": [None, {"a": 1}],
    "dimension_names": [None, ("x", "y")],
    "storage_options": [None, {}, {"anon": True}],
    "scheduler": ["threads"],
    "workers": [None],
    "scratch": [None, "scratch"],
    "folders": [None, "own/{rank}.zarr"],
    "mode": ["r", "r+"],
    "key": [..., 0, slice(2, 5), (slice(None), 3), [1, 2], (slice(None, None, -2), [0, 3]), None],
    "section": [..., 0, slice(2, 5), (slice(None), 3), ([1, 2], [0, 3]), (slice(None, None, -2), [0, 3])],
    "sections": [[slice(2, 5), (slice(None), 3)], [..., None], {0: 1, 1: ...}],
    "parts": [[np.ones((3, 10), "i4"), np.ones(12, "i4")]],
    "values": [0, 7, [1, 2], np.arange(10)],
    "kernel": [_twice],
    "sweeps": [1, 2],
    "x": [np.arange(120).reshape(12, 10), da.arange(30, chunks=7)],
    "rank": [0, 1],
    "root": [None, 0, 1],
    "name": ["one", "deep/two"],
    "index": [(0, 1), (3, 3)],
    "length": [None, 3, 1],
    "sizes": [(4, 5), (3,)],
    "distributions": ["(block, *)", "(cyclic, block)"],
    "lower": [(0, 0), (2, 1)],
    "upper": [(4, 6), (3, 9)],
    "axes": [[range(3), range(1, 9, 2)]],
    "origin": [(0, 0), (1, 1)],
    "chunk": [None, 16, (4, 5), "128kiB"],
    "region": [None, (slice(0, 12), slice(0, 10))],
    "out": [None],
    "filename": [None],
    # of the command line
    "size": ["1MiB", "64kiB"],
    "folder": ["empty", "."],
    "network": ["flat", "hypercube", "mesh"],
    "columns": [None, 2],
    "bytes": ["16KiB"],
    "storage_option": ["anon=true"],
    "draw": ["new.png"],
    "codec": ["zstd"],
}


def value(rng: random.Random, name: str, annotation: Any = "", odd: float = 0.25) -> Any:
    """Something for a parameter: with a probability of ``odd`` what it was not made for."""
    if rng.random() < odd:
        return copy.deepcopy(_odd(rng, name))
    if annotation == "np.ndarray":
        return rng.choice(BLOCKS).copy()
    return copy.deepcopy(rng.choice(GOOD.get(name) or _by_annotation(str(annotation))))


def _odd(rng: random.Random, name: str) -> Any:
    """Of the kind that the parameter has, or of any."""
    places = ("source", "a", "store", "target", "local", "path", "folder", "scratch", "folders", "out", "draw")
    if name in places and rng.random() < 0.7:
        return rng.choice([*BAD, *NOWHERE, *URLS, *TEXTS])
    if name == "scheduler" and rng.random() < 0.7:
        return rng.choice(SCHEDULERS if rng.random() < 0.95 else DIALLED)
    if rng.random() < 0.3 and GOOD.get(name):
        return _nested(rng, name)
    return rng.choice(ODD)


def _nested(rng: random.Random, name: str) -> Any:
    """What would be right, with something odd in it or about it."""
    good, odd = rng.choice(GOOD[name]), rng.choice(ODD)
    ways: list[Callable[[], Any]] = [lambda: [good], lambda: (good, odd), lambda: {"x": good}, lambda: [odd, odd]]
    if isinstance(good, tuple | list) and good:
        ways += [lambda: (*good[:-1], odd), lambda: (*good, *good)]
    if isinstance(good, str):
        ways += [lambda: good + "\x00", lambda: good.upper(), lambda: good * 3, lambda: f" {good}\n"]
    return rng.choice(ways)()


def _by_annotation(annotation: str) -> list[Any]:
    named = re.findall(r"'([^']+)'", annotation) if "Literal" in annotation else []
    known = {"bool": [True, False], "int": [1, 2, 3], "float": [0.5, 1.0], "str": ["x", "auto"], "Sequence": [(1, 2)]}
    return [*named, *(v for kind, values in known.items() if kind in annotation for v in values)] or [None]


def text(rng: random.Random, name: str, odd: float = 0.25) -> str:
    """What is typed for an option or an argument."""
    given = value(rng, name, odd=odd)
    if rng.random() < 0.8 and isinstance(given, tuple | list) and all(isinstance(each, int | str) for each in given):
        return rng.choice([",", "x"]).join(map(str, given))
    return given if isinstance(given, str) else shown(given)


def shown(given: Any) -> str:
    """A value in a line."""
    try:
        line = repr(given)
    except Exception as error:  # noqa: BLE001  whatever it is, it has to be named
        line = f"<{type(given).__name__}: {error!r}>"
    return line if len(line) < 200 else f"{line[:150]}… ({len(line)} characters)"


def is_small(x: Any) -> bool:
    """Whether all of an array can be looked at."""
    return int(getattr(x, "size", 10**9)) < 10**5
