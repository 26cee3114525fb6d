"""Texts for people: explanations, reprs, HTML, commands and refusals, with numbers and paths masked."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from tests.flat import flat
from tests.golden.jobs import FIELD, HERE, local, source

NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")
SPACE = re.compile(r" {2,}")
WORD = re.compile(r"\b[0-9a-f]{12,}\b")
"""Random ids and digests."""
COMMANDS = (
    "rechunk", "map", "reduce", "update", "pyramid", "resume", "stripe", "clean", "demo", "info", "read", "compare",
    "advise", "plan", "calibrate", "schedule", "redistribute", "requests",
)  # fmt: skip


def masked(text: str, folder: Path) -> list[str]:
    """Return the lines of a text with its numbers as #, its ids as ID and its folder as DIR."""
    plain = WORD.sub("ID", text.replace(str(folder), "DIR"))
    return [SPACE.sub("  ", NUMBER.sub("#", line)).rstrip() for line in plain.splitlines()]


def typed(words: list[Any], folder: Path) -> list[str]:
    """Return the exit code and the masked output of a command."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            code = main([str(word) for word in words])
        except SystemExit as error:
            code = int(error.code or 0)
    return [f"exit {code}", *masked(text.getvalue(), folder)]


def helps(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for words in ([], *([name] for name in COMMANDS)):
        code, *lines = typed([*words, "--help"], folder)
        end = lines.index("")  # versions of Python break the lines of a usage in other places
        yield " ".join(["--help", *words]), [code, " ".join(" ".join(lines[:end]).split()), *lines[end:]]


# ---------------------------------------------------------------------- refusals


def rechunk(f: Path, **wrong: Any) -> Any:
    given = {"chunks": (24, 3), "target": f / "target"} | HERE | wrong
    return flat(ooc.rechunk, given.pop("source", f / "source"), given.pop("target"), **given)


def map_slabs(f: Path, **wrong: Any) -> Any:
    given = {"kernel": np.negative, "source": f / "source", "target": f / "target"} | HERE | wrong
    return flat(ooc.map_slabs, given.pop("kernel"), given.pop("source"), given.pop("target"), **given)


def iterate(f: Path, **wrong: Any) -> Any:
    given = {"source": f / "source", "target": f / "target", "sweeps": 3, "depth": 1} | HERE | wrong
    return flat(ooc.iterate, np.negative, given.pop("source"), given.pop("target"), **given)


def reduce(f: Path, **wrong: Any) -> Any:
    given = {"source": f / "source", "how": "mean", "axis": 0, "target": f / "target"} | HERE | wrong
    return flat(ooc.reduce, given.pop("source"), given.pop("how"), given.pop("axis"), **given)


def pyramid(f: Path, **wrong: Any) -> Any:
    given = {"source": f / "source", "target": f / "target"} | HERE | wrong
    return flat(ooc.pyramid, given.pop("source"), given.pop("target"), **given)


def scatter_files(f: Path, **wrong: Any) -> Any:
    given = {"source": f / "source", "layout": "(block, *)", "target": f / "target", "ranks": 2} | HERE | wrong
    return flat(ooc.ranks.scatter_files, given.pop("source"), given.pop("layout"), given.pop("target"), **given)


def gather_files(f: Path, **wrong: Any) -> Any:
    given = {"source": f / "local", "target": f / "target"} | HERE | wrong
    return flat(ooc.ranks.gather_files, given.pop("source"), given.pop("target"), **given)


def read_sections(f: Path, **wrong: Any) -> Any:
    given = {"source": f / "source", "layout": "(block, *)", "ranks": 2} | HERE | wrong
    return flat(ooc.ranks.read_sections, given.pop("source"), given.pop("layout"), **given)


def from_dask(f: Path, **wrong: Any) -> Any:
    given = {"source": da.from_array(FIELD, chunks=(4, 20)), "target": f / "target"} | HERE | wrong
    return flat(ooc.rechunk, given.pop("source"), given.pop("target"), **given)


def update(f: Path, **wrong: Any) -> Any:
    return flat(ooc.update, **({"target": f / "target"} | HERE | wrong))


def resume(f: Path, **wrong: Any) -> Any:
    return flat(ooc.resume, **({"target": f / "target"} | HERE | wrong))


def create_array(f: Path, **wrong: Any) -> Any:
    return flat(ooc.create_array, **({"store": f / "target", "shape": (24, 20), "dtype": "f4"} | wrong))


def open_array(f: Path, **wrong: Any) -> Any:
    return ooc.open_array(**({"store": f / "source"} | wrong))


def count_requests(f: Path, **wrong: Any) -> Any:
    return ooc.ranks.count_requests(**({"shape": (24, 20), "layout": "(block, *)", "ranks": 4} | wrong))


def redistribution(f: Path, **wrong: Any) -> Any:
    given = {"before": "(block, *)", "after": "(*, block)", "ranks": 4} | wrong
    before, after = (ooc.Layout.of((24, 20), given.pop(name), ranks=given["ranks"]) for name in ("before", "after"))
    return ooc.ranks.plan_redistribution(
        before, after, **{name: value for name, value in given.items() if name != "ranks"}
    )


def cluster(f: Path, **wrong: Any) -> Any:
    return ooc.networks.planned_cluster(**({"workers": 4, "memory": "1GiB"} | wrong))


def streams(f: Path, **wrong: Any) -> Any:
    given = {"store": f / "target", "mode": "w", "shape": (4, 6), "dtype": "f8"} | wrong
    with flat(ooc.streams.open_streams, given.pop("store"), given.pop("mode"), **given) as s:
        return s.mode


EVERY: dict[str, list[Any]] = {
    "memory": ["lots", 1, -1], "scheduler": ["fibers"], "workers": [["a"]], "storage_options": [{"key": "x"}],
}  # fmt: skip
WRITING: dict[str, list[Any]] = {**EVERY, "target": ["source", "missing/nested/../source"], "resume": ["perhaps", True]}
NOWHERE: list[Any] = ["nowhere.zarr", 7, "s3:/bucket/a"]
CHUNKS: list[Any] = [(0, 3), (3,), (-1, 3), "wide", {"z": 3}, 2.5]
LAYOUT: list[Any] = ["(block)", "(blocks, *)", "(cyclic(0), *)", "block, *", "(block, *, *)"]
REFUSED: dict[Callable[..., Any], dict[str, list[Any]]] = {
    rechunk: WRITING | {
        "source": NOWHERE, "chunks": CHUNKS, "shards": [(5, 5), (0, 0)], "ranks": [0, -1, 2.5], "method": ["fast"],
        "schedule": ["abc"], "zarr_format": [4], "orientation": ["diagonal", (0, 0)], "missing": ["skip"],
        "compressors": ["zip"], "update": [True],
    },
    map_slabs: WRITING | {
        "kernel": [len, np.add, "negative"], "source": NOWHERE, "depth": [-1, (1, 2, 3), {"z": 1}, 99],
        "boundary": ["mirror"], "axis": [2, "z"], "height": [0, -3], "window": [(0, 0), (3,)], "factor": [0],
        "drop_axis": [5], "new_axis": [9], "dtype": ["float99"], "ranks": [0], "prefetch": [-1], "chunks": CHUNKS[:3],
        "workspace": [-1, "big"],
    },
    iterate: WRITING | {"sweeps": [0, -1, 2.5], "fuse": [0, "some"], "until": [-1.0], "depth": [-1], "boundary": [7]},
    reduce: WRITING | {"how": ["mode", 7], "axis": [2, "z", (0, 0)], "by": [[1, 2], "time"], "ddof": [-1, 99]},
    pyramid: WRITING | {"levels": [0, 99], "factor": [1, 0, (2, 2, 2)], "method": ["cubic"], "scale": [-1]},
    scatter_files: WRITING | {"layout": LAYOUT, "ranks": [0, None], "grid": [(2, 2), (3, 0)], "depth": [-1, 99]},
    gather_files: WRITING | {"source": [*NOWHERE, "source"], "chunks": CHUNKS[:2], "orientation": ["diagonal"]},
    read_sections: EVERY | {
        "layout": LAYOUT, "method": ["fast"], "domains": ["odd"], "aggregators": ["none", 0, 99], "deal": ["cards"],
        "ranks": [0, -1],
    },
    from_dask: WRITING | {"source": [FIELD, 7], "chunks": CHUNKS},
    update: EVERY | {"target": ["source", "nowhere.zarr"]},
    resume: EVERY | {"target": ["source", "nowhere.zarr"], "kind": ["walk"]},
    create_array: {
        "shape": [(-1, 2), "wide"], "dtype": ["float99"], "chunks": CHUNKS, "layout": LAYOUT, "placement": ["near"],
        "orientation": ["diagonal"], "zarr_format": [4], "store": ["source"], "depth": [1], "memory": ["lots"],
    },
    open_array: {"store": NOWHERE, "mode": ["w", "x"], "missing": ["skip"]},
    count_requests: {"layout": LAYOUT, "ranks": [0], "grid": [(3, 3)], "chunk": [(0, 1)], "shape": [(-1, 2)]},
    redistribution: {"before": LAYOUT, "method": ["fast"], "schedule": ["abc"], "network": ["pigeons"], "ranks": [0]},
    cluster: {"workers": [0, -1], "memory": ["lots", 0], "threads": [0], "network": ["pigeons"], "storage": ["slow"]},
    streams: {"mode": ["x"], "shape": [(), (-1,)], "dtype": ["O"], "ranks": [0], "memory": [1], "layout": ["(block"]},
}  # fmt: skip
"""Wrong values by function and argument."""
TYPED: tuple[str, ...] = (
    "", "walk", "rechunk", "rechunk source", "rechunk source target", "rechunk source target --chunks 0,3",
    "rechunk source target --chunks wide", "rechunk source source --chunks 24,3", "rechunk nowhere target --chunks 4,4",
    "rechunk source target --chunks 24,3 --memory lots", "rechunk source target --chunks 24,3 --method fast",
    "rechunk source target --chunks 24,3 --ranks 0", "rechunk source target --chunks 24,3 --unknown",
    "info", "info nowhere", "read source", "read source [::]", "read source [99]", "read source [a]",
    "read nowhere [0]", "compare source", "compare source nowhere", "clean nowhere", "resume source", "resume nowhere",
    "update source", "pyramid source source", "advise nowhere", "plan", "plan source --chunks 4,4 --workers 0",
    "schedule", "schedule abc 4", "schedule pex 0", "redistribute 24,20", "requests 24,20 (blocks,*)",
    "stripe", "calibrate --unknown",
)  # fmt: skip


def refusals(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Make every wrong call; what is accepted is listed as such."""
    source(folder)
    local(folder)
    for call, wrong in REFUSED.items():
        for name, value in ((name, value) for name, values in wrong.items() for value in values):
            at = folder / value if name in ("target", "source", "store") and isinstance(value, str) else value
            shown = "FIELD" if value is FIELD else getattr(value, "__name__", value)
            yield f"{call.__name__} {name}={shown}", answer(call, folder, **{name: at})
    with contextlib.chdir(folder):
        for line in TYPED:
            shutil.rmtree("target", ignore_errors=True)
            yield f"oocarrays {line}", typed(line.split(), folder)


def answer(call: Callable[..., Any], folder: Path, **wrong: Any) -> list[str]:
    """Return the type and masked text of the error of a call."""
    shutil.rmtree(folder / "target", ignore_errors=True)  # of a call before that was accepted
    try:
        call(folder, **wrong)
    except Exception as error:  # noqa: BLE001  whatever it is, it is compared
        return [type(error).__name__, *masked(str(error), folder)]
    return ["accepted"]


# ---------------------------------------------------------------------- what is shown


def shown(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the repr and HTML of each kind of object, and what commands show of stores."""
    source(folder, attributes={"units": "K"}, dimension_names=("y", "x"))
    zarr.create_group(folder / "group").create_array("air", data=FIELD, chunks=(4, 20))
    a: Any = ooc.open_array(folder / "source")
    layout = ooc.Layout.of((24, 20), "(block, *)", ranks=4)
    job = flat(
        ooc.rechunk, folder / "source", folder / "target", chunks=(24, 3), resources=ooc.Resources(ranks=1), **HERE
    )
    objects: dict[str, Any] = {
        "array": a,
        "local arrays": local(folder),
        "group": ooc.open_group(folder / "group"),
        "layout": layout,
        "section": ooc.Section((3, 0), (9, 20), (1, 3)),
        "cluster": ooc.networks.planned_cluster(workers=4, memory="1GiB"),
        "rechunk": job,
        "map_slabs": map_slabs(folder),
        "iterate": iterate(folder),
        "reduce": reduce(folder),
        "read_sections": read_sections(folder),
        "distributed": ooc.ranks.distribute(FIELD, "(block, *)", ranks=2),
        "requests": count_requests(folder),
        "redistribution": redistribution(folder),
        "trace": ooc.advise.trace(columns=a.to_dask(memory="64MiB")[:, :3].sum()),
        "advice": ooc.advise.trace(columns=a.to_dask(memory="64MiB")[:, :3].sum()).advise(memory="1GiB"),
        "comparison": ooc.compare(folder / "source", folder / "source", memory="64MiB"),
    }
    for (name, each), how in itertools.product(objects.items(), ("__repr__", "__str__", "_repr_html_")):
        if how in dir(type(each)):
            yield f"{name}.{how}", masked(getattr(each, how)(), folder)
    job.run()
    yield "rechunk.explain after it ran", masked(job.explain(), folder)
    for words in (
        ["info", "source"],
        ["info", "group"],
        ["info", "local"],
        ["info", "target"],
        ["read", "source", "[3:9, ::3]"],
    ):
        with contextlib.chdir(folder):
            yield " ".join(words), typed(words, folder)
