"""The floors of the house: an import that runs up, or in a circle, is an error, wherever in a file it stands."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = """
    errors
    limits
    mapping
    mapping.layouts kernels
    plan
    plan.exchange plan.sections
    plan.queueing
    plan.rechunk plan.collective plan.layouts plan.slabs
    plan.files plan.lazy plan.advice plan.streams plan.reductions
    storage.local
    storage.stores
    storage.striped
    storage.foreign
    testing
    storage
    storage.codecs
    storage.files
    storage.journal
    storage.chunks
    storage.sections
    storage.streams
    graphs
    graphs.dashboard
    graphs.cluster
    graphs.run
    graphs.exchange
    graphs.rechunk
    graphs.slabs graphs.lazy graphs.reductions
    graphs.layouts
    graphs.collective graphs.calibrate
    graphs.files graphs.tracing
    graphs.storing
    requests
    options
    show
    show.pictures
    stored
    distributed
    arrays
    streaming
    jobs
    tracing advice reductions comparing
    recovery
    ranks streams disks advise networks
    xarray
    cli
"""
"""The rooms, from the ground up. A room imports from itself, and from rooms on the lines above its own."""
FLOOR_OF = {room: floor for floor, line in enumerate(FLOORS.strip().splitlines()) for room in line.split()}
ROOF = len(FLOORS.split())
"""``oocarrays/__init__.py``, which shows the names of the house, and which no room imports."""
OUTSIDE = {"typing_extensions": "errors", "numpy": "mapping", "scipy": "kernels", "zarr": "storage.local"}
OUTSIDE |= {"google_crc32c": "storage.local"} | dict.fromkeys(("numcodecs", "fsspec", "obstore"), "storage.stores")
OUTSIDE |= dict.fromkeys(("h5py", "tifffile", "isal"), "storage.foreign")
OUTSIDE |= dict.fromkeys(("bokeh", "dask", "distributed", "cloudpickle", "tornado", "xarray"), "graphs")
OUTSIDE |= dict.fromkeys(("matplotlib", "IPython", "ipywidgets"), "show") | {"awkward": "streaming"}
"""The lowest room that may import a package."""
MOST_MODULES = 14
"""What a room may hold: more is two ideas in one room."""


def source_files(root: Path) -> list[Path]:
    return sorted([*(root / "oocarrays").rglob("*.py"), *(root / "graphs").rglob("*.py")])


def module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    parts = ("oocarrays", *parts) if parts[0] == "graphs" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    """The room that a module of the house stands in; None where there is no such room."""
    inside = module.removeprefix("oocarrays").removeprefix(".")
    return next((room for room in (inside, inside.rpartition(".")[0]) if room in FLOOR_OF), None)


def floor_of(module: str) -> int | None:
    """The floor that a module may be used from, or None where no floor knows it."""
    top = module.partition(".")[0]
    if module in ("oocarrays", "oocarrays.__main__"):
        return ROOF
    if top == "oocarrays":
        return FLOOR_OF.get(room_of(module) or "")
    return -1 if top in sys.stdlib_module_names else FLOOR_OF.get(OUTSIDE.get(top, ""))


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that is imported, also inside functions, relatively, and by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                named = f"{base}.{alias.name}"
                yield node.lineno, named if is_module(named) or (base == "oocarrays" and room_of(named)) else base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def is_module(name: str) -> bool:
    top, *rest = name.split(".")
    file = (ROOT / "oocarrays").joinpath(*rest)
    return top == "oocarrays" and bool(rest) and (file.with_suffix(".py").is_file() or (file / "__init__.py").is_file())


@cache
def imports_of(file: Path, root: Path) -> list[tuple[int, str]]:
    name = module_name(file, root)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return list(imported(ast.parse(file.read_text(encoding="utf-8")), package))


def wrong_imports(file: Path, root: Path) -> list[str]:
    """Every import of ``file`` that runs up, or along to another room, as a line for a person."""
    name = module_name(file, root)
    mine = floor_of(name)
    if mine is None:
        return [f"{name} stands on no floor"]
    found = []
    for line, wanted in imports_of(file, root):
        floor = floor_of(wanted)
        is_of_the_house = wanted.partition(".")[0] == "oocarrays"
        below = floor is not None and (floor < mine or (floor == mine and not is_of_the_house))
        if not below and not (is_of_the_house and room_of(wanted) == room_of(name) and wanted != "oocarrays"):
            found.append(f"{file.relative_to(root)}:{line} on floor {mine} imports {wanted} of floor {floor}")
    return found


def circle(root: Path) -> list[str]:
    """Modules that import each other in a circle, where there is one."""
    imports = {module_name(file, root): {wanted for _, wanted in imports_of(file, root)} for file in source_files(root)}
    arrows = {name: {wanted for wanted in found if wanted in imports} - {name} for name, found in imports.items()}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.long
def test_imports_only_floors_below() -> None:
    assert [line for file in source_files(ROOT) for line in wrong_imports(file, ROOT)] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circle(ROOT) == []


def test_every_room_is_looked_at_and_none_is_too_full() -> None:
    named = [module_name(file, ROOT) for file in source_files(ROOT)]
    rooms = Counter(room_of(name) for name in named if name not in (*PACKAGES, "oocarrays.__main__"))
    assert {*rooms, *(room_of(name) for name in PACKAGES)} >= FLOOR_OF.keys()
    assert max(rooms.values()) <= MOST_MODULES


PACKAGES = {module_name(file, ROOT) for file in source_files(ROOT) if file.name == "__init__.py"}
PLANTED = {
    "up": ("oocarrays/mapping/bad.py", "from oocarrays.plan.cost import Costs"),
    "up by name of the room": ("oocarrays/storage/bad.py", "from oocarrays import show"),
    "up by name of the module": ("oocarrays/storage/bad.py", "from oocarrays.jobs import job"),
    "up within a floor": ("oocarrays/storage/stores/bad.py", "from oocarrays.storage.chunks.reader import ChunkReader"),
    "along to another room": (
        "oocarrays/kernels/bad.py",
        "from oocarrays.mapping.layouts.distribution import BlockAxis",
    ),
    "for types alone": (
        "oocarrays/plan/bad.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from oocarrays.show import report",
    ),
    "up to the graphs": ("oocarrays/storage/bad.py", "import oocarrays.graphs.run.job"),
    "graphs up": ("graphs/bad.py", "from oocarrays.arrays.array import OutOfCoreArray"),
    "the whole house": ("graphs/bad.py", "import oocarrays"),
    "relative": ("oocarrays/plan/bad.py", "from ..storage import meter"),
    "relative from graphs": ("graphs/bad.py", "from ..show import report"),
    "relative in a package's own file": ("oocarrays/plan/__init__.py", "from ..storage.meter import Meter"),
    "inside a function": ("oocarrays/plan/bad.py", "def f():\n    if True:\n        import zarr"),
    "in a method, as another name": (
        "oocarrays/mapping/bad.py",
        "class A:\n    def f(self):\n        import zarr as z",
    ),
    "dask below the graphs": ("oocarrays/storage/bad.py", "from dask.utils import parse_bytes"),
    "distributed below the graphs": ("oocarrays/plan/bad.py", "import distributed"),
    "numcodecs below storage": ("oocarrays/plan/bad.py", "import numcodecs"),
    "numpy on the ground": ("oocarrays/errors.py", "import numpy"),
    "by a call": ("oocarrays/storage/bad.py", "import importlib\nimportlib.import_module('dask.array')"),
    "of nobody": ("oocarrays/jobs/bad.py", "import pandas"),
    "a bare graphs": ("oocarrays/jobs/bad.py", "import graphs"),
    "a file without a room": ("oocarrays/shed.py", "import os"),
    "a room without a floor": ("oocarrays/plan/shed/bad.py", "import os"),
}


@pytest.mark.parametrize(("name", "code"), PLANTED.values(), ids=PLANTED)
def test_a_planted_import_is_caught(tmp_path: Path, name: str, code: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(code)
    assert source_files(tmp_path) == [file]
    assert len(wrong_imports(file, tmp_path)) == 1


FINE = {
    "down": ("oocarrays/plan/good.py", "from oocarrays.mapping.grid import ChunkGrid"),
    "along": ("graphs/run/good.py", "from . import buffers\nfrom .job import GraphJob\nimport dask, zarr, numpy"),
    "relative and down": ("oocarrays/storage/good.py", "from ..errors import OocError\nfrom .. import errors"),
    "standard library": ("oocarrays/errors.py", "import os.path"),
    "the roof": (
        "oocarrays/__init__.py",
        "from oocarrays import graphs\nfrom oocarrays.jobs.rechunking import rechunk",
    ),
}


@pytest.mark.parametrize(("name", "code"), FINE.values(), ids=FINE)
def test_a_right_import_is_let_through(tmp_path: Path, name: str, code: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(code)
    assert wrong_imports(file, tmp_path) == []


CIRCLES = {
    "of two": {"a": "from oocarrays.plan import b", "b": "from oocarrays.plan.a import A"},
    "by a deferred import": {"a": "import oocarrays.plan.b", "b": "def f():\n    from oocarrays.plan import a"},
    "of three, one for types": {
        "a": "from oocarrays.plan.b import B",
        "b": "from oocarrays.plan.c import C",
        "c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from oocarrays.plan.a import A",
    },
}


@pytest.mark.parametrize("files", CIRCLES.values(), ids=CIRCLES)
def test_a_planted_circle_is_caught(tmp_path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    folder = tmp_path / "oocarrays" / "plan"
    folder.mkdir(parents=True)
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    assert {name.rpartition(".")[2] for name in circle(tmp_path)} == set(files)
