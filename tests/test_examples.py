"""Every example runs, from any directory, and says what numpy says of the same data."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from tests import profiles
from tests.dying import Server

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
WARMING = "+3.59 K"


# What examples print.


def time_series_prints_the_warming_that_numpy_finds(told: str) -> None:
    with np.load(EXAMPLES / "data" / "air_temperature.npz") as data:
        nearest = tuple(
            int(np.argmin(np.abs(data[name] - x))) for name, x in (("latitude", 43.7), ("longitude", 280.6))
        )
        series = data["air_temperature"][(slice(None), *nearest)].astype("f8")
    warming = re.search(r"Toronto: ([+-]\d+\.\d\d) K from 1860–1889 to 2070–2099", told)
    assert warming, told
    assert warming[1] in WARMING
    assert float(warming[1]) == pytest.approx(series[-30:].mean() - series[:30].mean(), abs=0.006)
    assert "predicted" in told
    assert "240 × 37 × 49" in told
    assert re.search(r"Toronto from ([\d.]+) ms to ([\d.]+) ms; the same: True", told), told


def filtered_elevation_is_nearer_to_the_true_one(told: str) -> None:
    found = re.findall(r"before: ([\d.]+)% off; after: ([\d.]+)% off", told)
    assert len(found) == 2
    assert all(float(after) < 0.2 * float(before) for before, after in found)


def the_plate_is_solved_from_the_solution_on_fewer_points(told: str) -> None:
    cold, near = map(float, re.findall(r"off by ([\d.]+) °C", told))
    assert near < 1 < cold


def the_flow_round_islands_is_numpys(told: str) -> None:
    assert "0 on land: True" in told
    assert "as numpy's: True" in told


def normals_of_thirty_years_are_those_of_numpy(told: str) -> None:
    assert told.count(" K, years apart by ") == 8
    assert "as numpy's: True" in told


def the_transforms_that_are_drawn_are_numpys(told: str) -> None:
    assert told.count("as numpy's: True") == 2


def four_folders_are_one_array_whose_speed_is_predicted(told: str) -> None:
    found = re.findall(r"(\d) of 4 folders: ([\d.]+) times one, ([\d.]+) predicted", told)
    assert [int(count) for count, *_ in found] == [1, 2, 3, 4]
    assert all(float(rate) > 0 for each in found for rate in each[1:])
    assert "[2, 2, 2, 2] chunks; the same: True" in told


def xarray_finds_the_same_warming(told: str) -> None:
    assert f"Toronto: {WARMING} in 240 years" in told
    assert "<xarray.Dataset>" in told


def a_mosaic_has_no_seams(told: str) -> None:
    assert "100 chunks written, 0 of them read first; tile after tile it would be 196" in told
    assert "9 tiles, and no seam between them: True" in told


def fewer_chunks_are_read_in_those_that_are_advised(told: str) -> None:
    found = re.search(r"chunks read: (\d+) before, (\d+) after; the same is found: True", told)
    assert found, told
    assert int(found[2]) * 5 < int(found[1])


def every_level_of_a_pyramid_is_the_same_in_the_chunks_that_are_advised(told: str) -> None:
    found = re.findall(r"(\d+) pixels: \S+ times as fast; the same: (\w+)", told)
    edge = int(found[0][0])
    assert found == [(str(edge), "True"), (str(edge // 2), "True"), (str(edge // 4), "True")]


CHECKS: dict[str, Callable[[str], None]] = {
    "climate_chunks": fewer_chunks_are_read_in_those_that_are_advised,
    "climatology": normals_of_thirty_years_are_those_of_numpy,
    "fft2d": the_transforms_that_are_drawn_are_numpys,
    "jacobi": the_plate_is_solved_from_the_solution_on_fewer_points,
    "median_filter": filtered_elevation_is_nearer_to_the_true_one,
    "mosaic": a_mosaic_has_no_seams,
    "poisson": the_flow_round_islands_is_numpys,
    "pyramid_chunks": every_level_of_a_pyramid_is_the_same_in_the_chunks_that_are_advised,
    "sample_chunks": fewer_chunks_are_read_in_those_that_are_advised,
    "striped": four_folders_are_one_array_whose_speed_is_predicted,
    "time_series": time_series_prints_the_warming_that_numpy_finds,
    "xarray_series": xarray_finds_the_same_warming,
}
"""What is looked at in what an example prints, by its name."""


SMALLER: dict[str, dict[str, str]] = {
    "fft2d": {"(2048, 4096)": "(1024, 4096)"},
    "jacobi": {"SIZE, PASSES, SWEEPS = 257, 12": "SIZE, PASSES, SWEEPS = 129, 6"},
    "median_filter": {"np.arange(3072": "np.arange(1536"},
    "netcdf_series": {"YEARS = 10": "YEARS = 40"},
    "pyramid_chunks": {"EDGE, LEVELS, TILE = 4096": "EDGE, LEVELS, TILE = 2048"},
    "sample_chunks": {"IMAGES, EDGE, CUBE = 64, 512": "IMAGES, EDGE, CUBE = 64, 256"},
}
"""Constants of examples with which they prove as much in less time; profile `nightly` runs them as they stand."""


def shown(name: str, folder: str) -> None:
    """Run an example, which prints; in a process of its own that has a server's imports."""
    program = EXAMPLES / f"{name}.py"
    tempfile.tempdir = folder
    os.chdir(folder)
    warnings.simplefilter("error")
    text = program.read_text(encoding="utf-8")
    for constant, value in SMALLER.get(program.stem, {}).items():
        assert text.count(constant) == 1, f"{program.name} has another constant than {constant}"
        text = text.replace(constant, value)
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__, sys.path[0] = str(program), str(program.parent)
    exec(compile(text, program, "exec"), main.__dict__)


def run(runs: Server, name: str, folder: Path) -> str:
    """Return what an example prints; at night as a person sees it, in a fresh interpreter."""
    if profiles.is_nightly():
        env = os.environ | {"TMPDIR": str(folder), "PYTHONWARNINGS": "error"}
        done = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py"], cwd=folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
    return runs.run("tests.test_examples:shown", name, folder).out.removesuffix("null\n")


@pytest.mark.parametrize("name", [program.stem for program in PROGRAMS])
def test_example_runs_leaves_nothing_but_a_picture_and_prints_what_numpy_finds(
    runs: Server, tmp_path: Path, name: str
) -> None:
    told = run(runs, name, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] in ([], [f"{name}.png"])
    assert told
    if name in CHECKS:
        CHECKS[name](told)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_example_uses_public_names_and_one_screen(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("oocarrays.")
        if isinstance(node, ast.Import):
            assert all(not alias.name.startswith("oocarrays.") for alias in node.names)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")


def loaded(name: str) -> SimpleNamespace:
    """An example's functions."""
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py")))


@pytest.mark.parametrize("program", ["median_filter", "jacobi", "fft2d", "striped"])
def test_without_matplotlib_one_line_says_what_to_install(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match=r"^the picture needs matplotlib: pip install 'oocarrays\[examples\]'$"):
        loaded(program).main()


@pytest.mark.parametrize(
    ("shape", "size", "dtype"),
    [
        ((40, 50), 3, "u1"),
        ((61, 33), (5, 3), "f8"),
        ((300,), 7, "i2"),
        ((9, 20, 21), (1, 5, 5), "f4"),
        ((40, 50), 4, "u1"),
        ((12, 11, 10), 3, "i4"),
        ((40, 50), 17, "f4"),
    ],
)
def test_any_window_type_and_number_of_axes_is_filtered_as_scipy_does(shape, size, dtype) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    image = (np.random.default_rng(0).random(shape) * 250).astype(dtype)
    stored = zarr.create_array({}, data=image, chunks=tuple(-(-n // 3) for n in shape))
    how = {"memory": "64MiB", "scheduler": "threads"}
    found = loaded("median_filter").filtered(stored, zarr.storage.MemoryStore(), size, **how).run()
    assert np.array_equal(found, ndimage.median_filter(image, size=size))


@pytest.mark.parametrize(("dtype", "result"), [("f4", "c8"), ("i2", "c8"), ("f8", "c16"), ("c16", "c16")])
def test_an_out_of_core_transform_is_numpys(dtype: str, result: str) -> None:
    image = (np.random.default_rng(0).random((60, 45)) * 99).astype(dtype)
    stored = zarr.create_array({}, data=image, chunks=(7, 20))
    found = loaded("fft2d").fft2(stored, zarr.storage.MemoryStore(), memory="64MiB")
    expected = np.fft.fft2(image)
    assert found.dtype == result
    assert np.abs(found[...] - expected).max() <= np.abs(expected).max() * (1e-5 if result == "c8" else 1e-13)


def test_a_plate_becomes_what_laplaces_equation_says_and_its_residual_falls(tmp_path: Path) -> None:
    jacobi = loaded("jacobi")
    exact = jacobi.solution(size=96, waves=8)
    layout = ooc.Layout.of(exact.shape, "(block, block)", ranks=6)
    plate = ooc.create_array(tmp_path / "0", shape=exact.shape, dtype="f8", layout=layout, placement="local")
    plate[...] = exact
    plate[1:-1, 1:-1] = 0
    found, changes = jacobi.swept(plate, tmp_path, passes=12, sweeps=40, memory="64MiB", scheduler="threads")
    assert np.abs(found[...] - exact).max() < 5e-3
    assert changes == sorted(changes, reverse=True)
    assert np.array_equal(found, ooc.kernels.sweeps(plate[...], 12 * 40))


def test_the_plates_solution_is_harmonic() -> None:
    exact = loaded("jacobi").solution(size=401, waves=2)
    sides = exact[:-2, 1:-1] + exact[2:, 1:-1] + exact[1:-1, :-2] + exact[1:-1, 2:]
    assert np.abs(sides - 4 * exact[1:-1, 1:-1]).max() < 1e-7
    sine = np.sin(2 * np.pi * np.linspace(0, 1, 401))
    for border, expected in ((exact[0], -sine), (exact[-1], -sine), (exact[:, 0], sine), (exact[:, -1], sine)):
        assert np.abs(border - expected).max() < 1e-12
