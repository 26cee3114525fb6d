"""Memory of a pass over slabs, in processes of its own: within its plan, and not far below."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.dying import Server

pytestmark = pytest.mark.long

PAST = {"above": 1}
WIDE = {"memory": "96MiB", "ranks": 2, "workspace": 1.0}
PAIR = {"new_axis": [0], "shape": [2], "workspace": 2.0}
WAVES = {"shape": [(2049, 2048)], "workspace": 8.0}
SWEPT = {"memory": "64MiB", "ranks": 2, "sweeps": 6, "fuse": 3, "workspace": 1.0}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("new", "plain", WIDE | {"depth": 1}),
    ("new", "plain", WIDE | {"depth": 1, "prefetch": 0}),
    ("new", "plain", WIDE | {"depth": 1, "prefetch": 3, "ranks": 1}),
    ("new", "plain", WIDE | {"depth": 200, "boundary": "reflect"}),
    ("new", "plain", WIDE | {"depth": 20, "reuse": False}),
    ("in place", "plain", WIDE | {"depth": 4, "workspace": 0.0}),
    ("view", "plain", WIDE | {"depth": 4, "workspace": 0.0}),
    ("three", "plain", WIDE | {"depth": 4, "workspace": 2.0}),
    ("two", "plain", WIDE | {"depth": 2}),
    ("new", "plain", WIDE | PAST | {"depth": 1}),
    ("in place", "plain", WIDE | PAST | {"depth": 0, "workspace": 0.0}),
    ("new", "plain", PAST | {"depth": 3, "boundary": "reflect", "workspace": 1.0}),
    ("new", "plain", WIDE | {"depth": 2, "verify": True}),
    ("three", "plain", {"depth": 30, "verify": True, "workspace": 2.0, "ranks": 2}),
    ("two", "tiles", WIDE | {"depth": 9, "window": (512, 512), "verify": True}),
    ("new", "zstd", WIDE | {"depth": 1}),
    ("new", "shards", WIDE | {"depth": 1}),
    ("new", "plain", {"depth": 1, "ranks": 2, "workspace": 1.0}),
    ("new", "zstd", {"depth": 70, "ranks": 2, "workspace": 1.0}),
    ("new", "tiles", {"depth": 1, "workspace": 1.0}),
    ("new", "tiles", {"memory": "28MiB", "depth": 70, "boundary": "reflect", "workspace": 1.0}),
    ("new", "tiles", WIDE | {"depth": 9, "window": (512, 512)}),
    ("new", "tiles", PAST | {"depth": 3, "workspace": 1.0}),
    ("two", "tiles", {"depth": 2, "ranks": 2, "workspace": 1.0}),
    ("new", "coded tiles", {"depth": 1, "ranks": 2, "workspace": 1.0}),
    ("new", "coded tiles", {"memory": "32MiB", "depth": 40, "workspace": 1.0}),
    ("most", "plain", WIDE | {"drop_axis": [0]}),
    ("most", "coded tiles", {"drop_axis": [0], "workspace": 1.0, "ranks": 2}),
    ("pair", "plain", WIDE | PAIR | {"depth": [1, 0]}),
    ("pair", "coded tiles", PAIR | {"depth": 40, "verify": True}),
    ("pair", "tiles", PAIR | {"memory": "320MiB", "ranks": 2, "dtype": "f8", "window": (300, 700), "depth": 2}),
    ("waves", "plain", WAVES | {"memory": "96MiB", "ranks": 2}),
    ("half", "plain", {"shape": [(2048, 2048)], "workspace": 2.0, "memory": "96MiB", "ranks": 2}),
    ("half", "tiles", {"shape": [(2048, 2048)], "workspace": 2.0}),
    ("pyramid", "tiles", {"memory": "96MiB", "ranks": 2, "levels": 5}),
    ("pyramid", "tiles", {"levels": 4, "method": "mode"}),
    ("pyramid", "coded tiles", {"levels": 6, "method": "nearest", "ranks": 2}),
    ("pyramid", "coded tiles", {"levels": 3, "method": "median"}),
    ("swept", "plain", SWEPT),
    ("swept, and one beside", "plain", SWEPT | {"boundary": "nearest"}),
    ("swept", "plain", SWEPT | {"until": 0.0}),
    ("swept together", "plain", SWEPT),
    ("swept together", "plain", SWEPT | {"until": 0.0}),
    ("swept together", "coded tiles", SWEPT | {"boundary": "reflect"}),
    ("swept together", "tiles", {"sweeps": 4, "fuse": 2}),
    ("moved on", "tiles", SWEPT | {"fuse": "auto"}),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, runs: Server) -> Callable[[str], Path]:
    """Makes the two arrays that are passed over, stored as asked, once: in a process of its own, too."""
    folder = tmp_path_factory.mktemp("slabs")

    @cache
    def made(storing: str) -> Path:
        runs.run("tests.slab_memory:make", folder, storing)
        return folder

    return made


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kernel", "storing", "options"), CASES, ids=[f"{case[0]}, {case[1]}, {n}" for n, case in enumerate(CASES)]
)
def test_a_pass_holds_no_more_than_its_plan(
    stored: Callable[[str], Path], runs: Server, kernel: str, storing: str, options: dict[str, Any]
) -> None:
    told = runs.run("tests.slab_memory:measure", stored(storing), kernel, storing, options).told
    assert told["held"] <= told["peak"] <= told["budget"], told
