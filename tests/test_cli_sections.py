"""``oocarrays read``: sections on the terminal, and one clear line for what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

from oocarrays.cli.main import main
from tests.seams import parsed_section

VALUES = np.arange(64 * 64).reshape(64, 64)


@pytest.fixture(params=[None, "auto"], ids=["plain", "coded"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(8, 64), compressors=request.param)
    return tmp_path / "a.zarr"


bounds = st.none() | st.integers(-99, 99)
parts = st.integers(-99, 99) | st.builds(slice, bounds, bounds, bounds) | st.just(...) | st.none()
part_lists = st.lists(st.integers(-9, 9) | st.booleans(), min_size=1, max_size=3)


def written(part: object) -> str:
    if isinstance(part, slice):
        return ":".join("" if each is None else str(each) for each in (part.start, part.stop, part.step))
    return "..." if part is ... else str(part)


@given(st.lists(parts | part_lists, min_size=1, max_size=4), st.booleans())
def test_what_is_written_as_in_python_is_read_as_by_python(key: list, brackets: bool) -> None:
    text = ", ".join(map(written, key))
    assert parsed_section(f"[{text}]" if brackets else f" {text}" if len(key) > 1 else f"[{text}]") == (
        key[0] if len(key) == 1 else tuple(key)
    )


def test_a_section_is_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", str(path), "[::32, 5]"]) == 0
    assert capsys.readouterr().out.splitlines() == ["[   5 2053]", "shape (2,), int64, 16 bytes"]


def test_what_was_planned_is_what_was_counted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", str(path), "[::32, ::8]", "--explain", "--method", "sieve"]) == 0
    planned, *_, counted, _, _, _ = capsys.readouterr().out.splitlines()
    assert planned.startswith("2 requests for ")
    assert counted.startswith("counted: 2 requests for ")
    if zarr.open_array(path).compressors == ():  # 57 elements of a row, from the first to the last that is wanted
        assert " 912 bytes" in planned
        assert " 912 bytes" in counted


def test_a_section_is_kept_in_a_file_that_is_new(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = path.parent / "part.npy"
    call = ["read", str(path), "[10:20, [3, 1]]", "--out", str(out)]
    assert main(call) == 0
    np.testing.assert_array_equal(np.load(out), VALUES[10:20][:, [3, 1]])
    assert main(call) == 2
    assert capsys.readouterr().err.splitlines() == [f"oocarrays: {out} exists; name a new file"]


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("[64]", "index 64 is out of range for axis 0 with 64 elements"),
        ("[1, 2, 3]", "too many indices: 3 for an array of 2 axes"),
        ("[3:1", "'[3:1' is not an index: write it as in Python, such as '[::4, 5]'"),
        ("[open('x')]", "is not an index"),
        ("[1] + [2]", "is not an index"),
        ("[1.5]", "1.5 is not an index"),
        ("", "'' is not an index"),
        ("[" * 10_000 + "]" * 10_000, "is not an index"),
    ],
)
def test_what_is_no_section_is_refused(path: Path, capsys: pytest.CaptureFixture[str], section: str, says: str) -> None:
    assert main(["read", str(path), section]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert says in error
