"""The floors of the house: an import that runs up is an error, wherever in a file it stands."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP = """
    __main__ group_job api array asked chunks cli cli_exchange cli_requests cli_sections collective collective_report
    collective_writes contents converting counting distributed_array distributing exchanges files group_chunks
    groups iterating job keywords layouts lazy lazy_array lazy_dataset local_array local_slabs multicasting notebook
    partitions
    picture picture_exchange rank_arrays rank_blocks reading_ahead redistributions report section_arrays
    section_reading section_writing shift_job shifting slab_iterator slabs stored_array storing
"""
FLOORS = {"errors": 0, "kernels": 1, "mapping": 1, "plan": 2, "storage": 3, "graphs": 4} | dict.fromkeys(TOP.split(), 5)
ROOF = 6
"""``oocarrays/__init__.py``, which shows the rooms' names and which no room imports."""
OUTSIDE = {"numpy": 1, "zarr": 3, "numcodecs": 3, "fsspec": 3, "obstore": 3, "dask": 4, "distributed": 4}
OUTSIDE |= {"typing_extensions": 0, "scipy": 1, "google_crc32c": 3, "cloudpickle": 4, "xarray": 4, "matplotlib": 5}
"""The lowest floor that may import a package."""


def source_files(root: Path) -> list[Path]:
    return sorted([*(root / "oocarrays").rglob("*.py"), *(root / "graphs").rglob("*.py")])


def module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    parts = ("oocarrays", *parts) if parts[0] == "graphs" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> int | None:
    """The floor that a module may be used from, or None where no floor knows it."""
    top, *rest = module.split(".")
    if top == "oocarrays":
        return FLOORS.get(rest[0]) if rest else ROOF
    return 0 if top in sys.stdlib_module_names else OUTSIDE.get(top)


def imported(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that is imported, also inside functions, relatively, and by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                is_room = base == "oocarrays" and alias.name in FLOORS
                yield node.lineno, f"{base}.{alias.name}" if is_room else base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__"):
                yield node.lineno, str(node.args[0].value)


def wrong_imports(file: Path, root: Path) -> list[str]:
    """Every import of ``file`` that runs up, as a line for a person."""
    name = module_name(file, root)
    mine = floor_of(name)
    if mine is None:
        return [f"{name} stands on no floor"]
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    found = []
    for line, wanted in imported(ast.parse(file.read_text(encoding="utf-8")), package):
        floor = floor_of(wanted)
        if floor is None or floor > mine:
            found.append(f"{file.relative_to(root)}:{line} on floor {mine} imports {wanted} of floor {floor}")
    return found


@pytest.mark.parametrize("file", source_files(ROOT), ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_only_floors_below(file: Path) -> None:
    assert wrong_imports(file, ROOT) == []


def test_every_room_is_looked_at() -> None:
    rooms = {floor_of(module_name(file, ROOT)) for file in source_files(ROOT)}
    assert rooms == {*FLOORS.values(), ROOF}


PLANTED = {
    "up": ("oocarrays/mapping/bad.py", "from oocarrays.plan.cost import Costs"),
    "up by name of the room": ("oocarrays/storage/bad.py", "from oocarrays import api"),
    "up to the graphs": ("oocarrays/storage/bad.py", "import oocarrays.graphs.run"),
    "graphs up": ("graphs/bad.py", "from oocarrays.array import OutOfCoreArray"),
    "the whole house": ("graphs/bad.py", "import oocarrays"),
    "relative": ("oocarrays/plan/bad.py", "from ..storage import meter"),
    "relative from graphs": ("graphs/bad.py", "from .. import report"),
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
    "of nobody": ("oocarrays/api.py", "import pandas"),
    "a bare graphs": ("oocarrays/api.py", "import graphs"),
    "a file without a floor": ("oocarrays/shed.py", "import os"),
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
    "along": ("graphs/good.py", "from . import buffers\nfrom .run import GraphJob\nimport dask, zarr, numpy"),
    "relative and down": ("oocarrays/storage/good.py", "from ..errors import OocError\nfrom .. import errors"),
    "standard library": ("oocarrays/errors.py", "import os.path"),
    "the roof": ("oocarrays/__init__.py", "from oocarrays import graphs\nfrom oocarrays.api import rechunk"),
}


@pytest.mark.parametrize(("name", "code"), FINE.values(), ids=FINE)
def test_a_right_import_is_let_through(tmp_path: Path, name: str, code: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(code)
    assert wrong_imports(file, tmp_path) == []
