"""Arrays of any shape that Zarr can name: their plans are made at once, and what cannot be done is said in one line."""

from __future__ import annotations

from pathlib import Path

import dask
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError
from tests.dying import Server
from tests.seams import replace_step, step

N = 10**15


def made(tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Path:
    path = tmp_path / "source.zarr"
    zarr.create_array(path, shape=shape, chunks=chunks, dtype="f4", compressors=None)
    return path


def test_a_graph_is_built_once_a_run_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = step("build graph")
    replace_step(monkeypatch, "build graph", lambda *args: built.append(1) or build(*args))
    source = made(tmp_path, (8, 8), (2, 8))
    job = ooc.rechunk(source, tmp_path / "target.zarr", chunks=(8, 2), scheduler="threads")
    job.explain(), repr(job)
    assert not built
    job.run()
    assert len(built) == 1
    again = ooc.rechunk(source, tmp_path / "again.zarr", chunks=(8, 2), scheduler="threads")
    assert len(again.__dask_graph__()) == again.plan.tasks
    assert dask.compute(again)[0].chunks == (8, 2)
    assert len(built) == 2


def test_a_graph_of_too_many_tasks_is_refused_and_its_plan_is_not(tmp_path: Path) -> None:
    source = made(tmp_path, (2**40, 256), (1, 256))
    job = ooc.map_slabs(abs, source, tmp_path / "target.zarr", memory="1TB", scheduler="threads", window=2**16)
    assert job.plan.count == 2**24
    assert "16777216 of height 65536" in job.explain()
    for refused in (job.run, job.__dask_graph__):
        with pytest.raises(InputError, match="tasks, more than the 4000000 that can run"):
            refused()
    assert not (tmp_path / "target.zarr").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("requests --shape 1024x1024 --ranks 99999999999999999999", "ranks=99999999999999999999"),
        ("requests --shape 2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2x2 --ranks 2", "31 axes"),
        ("schedule lex --ranks 99999999999999999999 --json", "ranks=99999999999999999999"),
        ("schedule lex --ranks 60000 --json", "--ranks 60000"),
        ("demo --size 9223372036854775807", "--size 9223372036854775807"),
    ],
)
def test_numbers_that_nobody_could_go_through_are_refused_in_one_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) != 0
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_ranks_that_there_cannot_be_are_refused(tmp_path: Path) -> None:
    source = made(tmp_path, (8, 8), (2, 8))
    with pytest.raises(InputError, match="ranks=100000000000000000000"):
        ooc.ranks.scatter_files(source, "(block, *)", tmp_path / "files", ranks=10**20)


def test_requests_of_huge_layouts_are_exact() -> None:
    counted = ooc.ranks.count_requests((N,), "(cyclic(7))", ranks=4, chunk=(10,))
    blocks, edges = -(-N // 7), (N - 1) // 10 - (N - 1) // 70  # edges of chunks that are not those of a block, too
    assert counted.distribution_requests == blocks
    assert counted.transaction_requests == blocks + edges


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, runs: Server) -> dict[str, str]:
    """What a process with little memory and processor time says of each case of `tests/huge.py`."""
    said: dict[str, str] = runs.run("tests.huge:told", tmp_path_factory.mktemp("huge")).told
    return said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lazy", "InputError: a lazy array in blocks of 1000 has 1000000000000 tasks, more than the 4000000"),
        ("lazy square", "InputError: a lazy array in blocks of 4096 × 4096 has 274877906944 tasks"),
        ("scatter", "InputError: this scatter has "),
        ("scatter square", "InputError: this scatter has "),
        ("scatter hourly", f"(10950, {2 * 4 * 262800 * 721 * 1440}, True)"),
        ("shift", "(1,)"),
        ("gather", "InputError: this gather has "),
        ("write rows", "InputError: a collective write of 1048576 chunks has "),
        ("read strided", "InputError: a collective read or write has 1000000000 "),
        ("read all", "BudgetError: memory="),
        ("partition", "("),
        ("everything", "BudgetError: memory="),
        ("element", "0.0"),
        ("rechunk", "InputError: "),
        ("auto", "(33554000,)"),
        ("info", "0"),
        ("dry run", "0"),
    ],
)
def test_huge_arrays_are_planned_or_refused_in_one_line(told: dict[str, str], name: str, said: str) -> None:
    assert told[name].startswith(said)
