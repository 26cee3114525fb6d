"""Internals of the package that tests name: only `tests.seams` does, outside the folders of unit tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import seams

ROOT = Path(__file__).parents[1]
UNITS = ("mapping", "plan", "storage", "graphs")
"""Folders of tests that are about the internals of the package's folders of the same names."""
PUBLIC = (
    "errors", "testing", "xarray", "kernels", "networks", "ranks", "streams", "disks", "advise", "settings", "cli.main",
    "__main__",
)  # fmt: skip
INSIDE = {"seams.py", "test_seams.py", "test_floors.py", "test_source_folder.py"}
"""Files that name internals on purpose: the seams, tests that plant faults in text, and one of the link to `graphs`."""
LEFT: set[str] = set()
"""Files that still name internals. The list may only get shorter."""
IMPORTS = re.compile(r"^\s*(?:from|import)\s+oocarrays\.([\w.]+)|^\s*import .*, oocarrays\.([\w.]+)", re.MULTILINE)
PATHS = re.compile(r"oocarrays\.(\w+(?:\.\w+)+)")


def internals(text: str) -> Iterator[str]:
    """Yield each internal module or attribute that code names: in imports, strings, and programs in strings."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module="oocarrays"):
                found = [name.name for name in node.names if is_module(name.name)]
            case ast.ImportFrom(module=str(module)) if module.startswith("oocarrays."):
                found = [module.removeprefix("oocarrays.")]
            case ast.Import():
                found = [each.name.removeprefix("oocarrays.") for each in node.names if "oocarrays." in each.name]
            case ast.Constant(value=str(said)) if PATHS.fullmatch(said):
                found = [PATHS.fullmatch(said)[1]] if is_module(said.split(".")[1]) else []  # type: ignore[index]
            case ast.Constant(value=str(said)):
                found = [first or second for first, second in IMPORTS.findall(said)]
            case _:
                found = []
        yield from (name for name in found if not is_public(name))


def is_module(name: str) -> bool:
    return any((ROOT / "oocarrays" / each).exists() for each in (name, f"{name}.py"))


def is_public(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in PUBLIC)


@pytest.mark.long
def test_only_seams_names_internals_outside_the_folders_of_unit_tests() -> None:
    files = {str(path.relative_to(ROOT / "tests")): path for path in (ROOT / "tests").rglob("*.py")}
    named = {name: sorted(set(internals(path.read_text(encoding="utf-8")))) for name, path in files.items()}
    found = {name for name, each in named.items() if each and name.split("/")[0] not in UNITS} - INSIDE
    assert {name: named[name] for name in found - LEFT} == {}, "take them from tests.seams, or use public names"
    assert sorted(LEFT - found) == [], "these need not be listed any more"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import oocarrays as ooc\nfrom oocarrays.errors import OocError\nfrom oocarrays.cli.main import main", []),
        ("from oocarrays import Section, kernels, plan", ["plan"]),
        ("def f():\n    from oocarrays.plan.cost import Costs", ["plan.cost"]),
        ("import numpy, oocarrays.plan.cost as cost", ["plan.cost"]),
        ("patch.setattr('oocarrays.plan.cost.Costs', None)", ["plan.cost.Costs"]),
        ("PROGRAM = '''\nimport oocarrays as ooc\nfrom oocarrays.plan import cost\n'''", ["plan"]),
        ("dask.config.set({'oocarrays.requests': 2, 'oocarrays.cost.cores': 1})", []),
    ],
)
def test_each_way_to_name_an_internal_is_found(text: str, found: list[str]) -> None:
    assert list(internals(text)) == found


@pytest.mark.parametrize("path", [*seams.CONSTANTS.values(), *seams.STEPS.values()])
def test_what_seams_names_exists(path: str) -> None:
    assert hasattr(*seams.owner_of(path))


def test_kill_points_are_steps_and_constants_are_set_for_a_while() -> None:
    assert {name for points in seams.KILL_POINTS.values() for name, _ in points} <= seams.STEPS.keys()
    before = seams.constant("box_bytes")
    with seams.small(box_bytes=1, batch_bytes=2):
        assert (seams.constant("box_bytes"), seams.constant("batch_bytes")) == (1, 2)
    assert seams.constant("box_bytes") == before
