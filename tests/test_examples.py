"""Every example runs, from any directory, and says what numpy says of the same data."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import zarr

import oocarrays as ooc

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
WARMING = "+3.59 K"


def run(program: Path, folder: Path) -> subprocess.CompletedProcess:
    env = os.environ | {"TMPDIR": str(folder), "PYTHONWARNINGS": "error"}
    return subprocess.run([sys.executable, program], cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """What an example prints; it runs once, and leaves nothing but a picture."""

    @cache
    def of(name: str) -> str:
        folder = tmp_path_factory.mktemp(name)
        done = run(EXAMPLES / f"{name}.py", folder)
        assert done.returncode == 0, done.stderr
        assert [file.name for file in folder.iterdir()] in ([], [f"{name}.png"])
        return done.stdout

    return of


@pytest.mark.parametrize("name", [program.stem for program in PROGRAMS])
def test_example_runs_and_leaves_nothing_but_a_picture(printed: Callable[[str], str], name: str) -> None:
    assert printed(name)


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


def test_time_series_prints_the_warming_that_numpy_finds(printed: Callable[[str], str]) -> None:
    told = printed("time_series")
    data = np.load(EXAMPLES / "data" / "air_temperature.npz")
    nearest = tuple(int(np.argmin(np.abs(data[name] - x))) for name, x in (("latitude", 43.7), ("longitude", 280.6)))
    series = data["air_temperature"][(slice(None), *nearest)].astype("f8")
    warming = re.search(r"Toronto: ([+-]\d+\.\d\d) K from 1860–1889 to 2070–2099", told)
    assert warming, told
    assert warming[1] in WARMING
    assert float(warming[1]) == pytest.approx(series[-30:].mean() - series[:30].mean(), abs=0.006)
    assert "predicted" in told
    assert "240 × 37 × 49" in told
    assert re.search(r"Toronto from ([\d.]+) ms to ([\d.]+) ms; the same: True", told), told


def test_filtered_elevation_is_nearer_to_the_true_one(printed: Callable[[str], str]) -> None:
    found = re.findall(r"before: ([\d.]+)% off; after: ([\d.]+)% off", printed("median_filter"))
    assert len(found) == 2
    assert all(float(after) < 0.2 * float(before) for before, after in found)


def test_the_plate_is_solved_from_the_solution_on_fewer_points(printed: Callable[[str], str]) -> None:
    cold, near = map(float, re.findall(r"off by ([\d.]+) °C", printed("jacobi")))
    assert near < 1 < cold


def test_the_flow_round_islands_is_numpys(printed: Callable[[str], str]) -> None:
    told = printed("poisson")
    assert "0 on land: True" in told
    assert "as numpy's: True" in told


def test_normals_of_thirty_years_are_those_of_numpy(printed: Callable[[str], str]) -> None:
    told = printed("climatology")
    assert told.count(" K, years apart by ") == 8
    assert "as numpy's: True" in told


def test_the_transforms_that_are_drawn_are_numpys(printed: Callable[[str], str]) -> None:
    assert printed("fft2d").count("as numpy's: True") == 2


def test_four_folders_are_one_array_whose_speed_is_predicted(printed: Callable[[str], str]) -> None:
    told = printed("striped")
    found = re.findall(r"(\d) of 4 folders: ([\d.]+) times one, ([\d.]+) predicted", told)
    assert [int(count) for count, *_ in found] == [1, 2, 3, 4]
    assert all(float(rate) > 0 for each in found for rate in each[1:])
    assert "[2, 2, 2, 2] chunks; the same: True" in told


def test_xarray_finds_the_same_warming(printed: Callable[[str], str]) -> None:
    told = printed("xarray_series")
    assert f"Toronto: {WARMING} in 240 years" in told
    assert "<xarray.Dataset>" in told


def test_a_mosaic_has_no_seams(printed: Callable[[str], str]) -> None:
    told = printed("mosaic")
    assert "100 chunks written, 0 of them read first; tile after tile it would be 196" in told
    assert "9 tiles, and no seam between them: True" in told


@pytest.mark.parametrize("name", ["climate_chunks", "sample_chunks"])
def test_fewer_chunks_are_read_in_those_that_are_advised(printed: Callable[[str], str], name: str) -> None:
    found = re.search(r"chunks read: (\d+) before, (\d+) after; the same is found: True", printed(name))
    assert found, printed(name)
    assert int(found[2]) * 5 < int(found[1])


def test_every_level_of_a_pyramid_is_the_same_in_the_chunks_that_are_advised(printed: Callable[[str], str]) -> None:
    told = printed("pyramid_chunks")
    assert re.findall(r"(\d+) pixels: \S+ times as fast; the same: (\w+)", told) == [
        ("4096", "True"),
        ("2048", "True"),
        ("1024", "True"),
    ]


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
    how = {"memory": "64MiB", "scheduler": "threads", "ranks": 2}
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
