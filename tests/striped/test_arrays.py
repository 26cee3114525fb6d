"""Arrays in striped stores: everything that takes a folder takes several disks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, NotFoundError, RunError, TargetError
from oocarrays.testing import SlowDisk
from tests.flat import flat
from tests.seams import is_local, is_striped, replace_step, step

pytestmark = pytest.mark.long

DATA = np.arange(96 * 80, dtype="f4").reshape(96, 80)


def url(disks: list[str], name: str = "x.zarr") -> str:
    return f"striped://{','.join(disks)}!{name}"


@pytest.fixture
def rows(disks: list[str]) -> str:
    array = ooc.create_array(ooc.Target(url(disks), compressors=()), shape=DATA.shape, chunks=(8, 80), dtype="f4")
    array[...] = DATA
    return url(disks)


def names(disks: list[str], name: str = "x.zarr") -> list[int]:
    return [sum(file.is_file() for file in (Path(disk) / name / "c").rglob("*")) for disk in disks]


def test_chunks_of_folders_are_plain_files(disks: list[str], rows: str) -> None:
    opened = ooc.open_array(rows).zarr
    assert is_striped(opened)
    assert is_local(opened)
    assert names(disks) == [4, 4, 4]
    assert np.fromfile(f"{disks[1]}/x.zarr/c/1/0", "f4").reshape(8, 80).tolist() == DATA[8:16].tolist()


@pytest.mark.parametrize("codec", ["plain", "zstd", "shards"])
@pytest.mark.parametrize("kind", ["folders", "slow", "blocks"])
def test_sections_are_those_of_numpy(disks: list[str], kind: str, codec: str) -> None:
    given: list[Any] = [SlowDisk(disk) for disk in disks] if kind == "slow" else [f"{disk}/x.zarr" for disk in disks]
    store = ooc.disks.StripedStore(given, block=500 if kind == "blocks" else None)
    how: dict[str, Any] = {"compressors": "auto" if codec == "zstd" else None}
    how |= {"shards": (24, 80)} if codec == "shards" else {}
    zarr.create_array(store, shape=DATA.shape, chunks=(8, 20), dtype="f4", **how)
    array, data = ooc.open_array(store, mode="r+"), np.zeros_like(DATA)
    for key in (np.s_[...], np.s_[3:50:4, 7:70:3], np.s_[5], np.s_[:, 5], np.s_[90:, 30:]):
        array[key] = DATA[key]
        data[key] = DATA[key]
        assert (array[...] == data).all()
        assert (array[key] == data[key]).all()
        assert (zarr.open_array(store)[key] == data[key]).all()
    assert (da.from_zarr(zarr.open_array(store)).sum().compute() == data.sum()).all()
    array[0:8] = 0
    assert not array[0:8].any()


@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled", "staged"])
def test_rechunk_by_every_method_with_scratch_on_all_disks(disks: list[str], rows: str, method: str) -> None:
    job = ooc.rechunk(
        rows,
        url(disks, "y.zarr"),
        chunks=(96, 5),
        method=method,
        memory="64MiB",
        scheduler="threads",
        resources=ooc.Resources(scratch=disks),
    )
    assert (job.run()[...] == DATA).all()
    assert names(disks, "y.zarr") == [6, 5, 5]
    assert sorted({name for disk in disks for name in os.listdir(disk)}) == ["x.zarr", "y.zarr"]
    with pytest.raises(TargetError, match="exists"):
        ooc.rechunk(rows, url(disks, "y.zarr"), chunks=(96, 5), scheduler="threads").run()
    again = ooc.rechunk(rows, url(disks, "y.zarr"), chunks=(16, 16), overwrite=True, scheduler="threads").run()
    assert (again[...] == DATA).all()


def test_the_command_line_takes_several_scratch_disks(disks: list[str], rows: str, tmp_path: Path) -> None:
    scratch = [tmp_path / name for name in "st"]
    for each in scratch:
        each.mkdir()
        os.utime(each, (0, 0))
    asked = ["rechunk", rows, url(disks, "y.zarr"), "--chunks", "96,5", "--method", "staged", "--memory", "64MiB"]
    assert main([*asked, *(word for each in scratch for word in ("--scratch", str(each))), "--quiet"]) == 0
    assert (ooc.open_array(url(disks, "y.zarr"))[...] == DATA).all()
    for each in scratch:  # something was there, and has gone
        assert each.stat().st_mtime > 0
        assert os.listdir(each) == []


def test_a_target_inside_a_disk_of_the_source_is_refused(disks: list[str], rows: str) -> None:
    for target in (rows, f"{disks[1]}/x.zarr", f"{disks[2]}/x.zarr/inside"):
        with pytest.raises(TargetError):
            ooc.rechunk(rows, target, chunks=(96, 5), overwrite=True, scheduler="threads").run()


def test_slabs_and_iterations_take_it(disks: list[str], rows: str) -> None:
    done = ooc.map_slabs(np.negative, rows, url(disks, "n.zarr"), scheduler="threads").run()
    assert (done[...] == -DATA).all()
    assert len(set(names(disks, "n.zarr"))) <= 2
    assert len(list(ooc.open_array(rows).slabs())) == 12


def test_each_disk_has_aggregators_of_its_own(disks: list[str], rows: str) -> None:
    array, half = ooc.open_array(rows, mode="r+"), DATA.shape[0] // 2
    job = ooc.ranks.write_sections(
        array, [np.s_[:half], np.s_[half:], np.s_[:0]], [DATA[:half] + 1, DATA[half:] + 1, DATA[:0]],
        method="two-phase", aggregators=3, scheduler="threads",
    )  # fmt: skip
    served = []
    for domain in job.plan.domains:
        indices = [index for box in domain.boxes for index in domain.grid.indices(box)]
        served.append({sum(index) % 3 for index in indices})
    assert sorted(map(sorted, served)) == [[0], [1], [2]]
    assert (job.run()[...] == DATA + 1).all()


def test_a_chunk_is_missing_only_while_all_disks_are_there(disks: list[str]) -> None:
    array = ooc.create_array(ooc.Target(url(disks), compressors=()), shape=DATA.shape, chunks=(8, 80), dtype="f4")
    array[:16] = DATA[:16]
    assert not ooc.open_array(url(disks))[40:].any()
    held = ooc.open_array(url(disks))
    os.rename(f"{disks[1]}/x.zarr", f"{disks[1]}/away")
    for read in (lambda: held[40:], lambda: held[9]):
        with pytest.raises((RunError, InputError), match="number 1 is missing"):
            read()


def test_resume_goes_on_with_a_striped_target(disks: list[str], rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put, count = step("put striped"), [0]

    def fails(self: Any, *args: Any) -> None:
        count[0] += 1
        if count[0] == 6:
            raise ooc.errors.StoreFailure("the disk fails")
        put(self, *args)

    replace_step(monkeypatch, "put striped", fails)
    job = ooc.rechunk(
        rows, url(disks, "y.zarr"), chunks=(96, 5), method="independent", memory="28MiB", scheduler="threads"
    )
    with pytest.raises(RunError, match="the disk fails"):
        job.run()
    monkeypatch.undo()
    with pytest.raises(ooc.errors.UnfinishedError):
        ooc.open_array(url(disks, "y.zarr"))
    assert (ooc.resume(url(disks, "y.zarr"), scheduler="threads").run()[...] == DATA).all()


def test_disks_that_are_not_there_are_named_before_a_run(disks: list[str], tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=DATA, chunks=(8, 80))
    gone = [*disks[:1], str(tmp_path / "not mounted")]
    with pytest.raises(NotFoundError, match=r"no such disk: .*not mounted is not a folder"):
        ooc.rechunk(tmp_path / "x.zarr", url(gone, "y.zarr"), chunks=(96, 5))


@pytest.fixture
def laid_out(disks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """An array that a command has laid out on two of three disks."""
    zarr.create_array(tmp_path / "x.zarr", data=DATA, chunks=(8, 80), compressors=None)
    assert main(["stripe", str(tmp_path / "x.zarr"), *disks[:2]]) == 0
    assert "laid out 13 objects" in capsys.readouterr().out
    return url(disks[:2])


def test_the_command_line_lays_out_adds_empties_and_verifies(
    laid_out: str, disks: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    last = url(disks[1:])
    for words, says in (
        (["stripe", laid_out, "--add", disks[2]], "moved 4 objects"),
        (["stripe", url(disks), "--empty", disks[0]], "moved"),
        (["stripe", last, "--verify"], "no faults"),
    ):
        assert main(words) == 0
        assert says in capsys.readouterr().out, words
        assert words[2] != "--add" or names(disks) == [4, 4, 4]
    assert (ooc.open_array(last)[...] == DATA).all()


def test_a_layout_that_was_interrupted_is_continued(
    laid_out: str, disks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stripe", str(tmp_path / "x.zarr"), *disks[:2], "--resume"]
    for disk in disks[:2]:
        (Path(disk) / "x.zarr/zarr.json").unlink(missing_ok=True)
    lost = next(Path(disks[0]).rglob("c/*/0"))
    lost.unlink()
    assert main(words) == 0
    assert "laid out 2 objects" in capsys.readouterr().out
    assert main(words) == 0
    assert "laid out already, nothing to do" in capsys.readouterr().out
    assert (ooc.open_array(laid_out)[...] == DATA).all()
    zarr.create_array(tmp_path / "x.zarr", data=DATA + 1, chunks=(8, 80), compressors=None, overwrite=True)
    assert main(words) == 2
    assert "already exists, with another c/" in capsys.readouterr().err
    assert (ooc.open_array(laid_out)[...] == DATA).all()


def test_other_commands_take_what_is_laid_out(laid_out: str, disks: list[str], capsys: pytest.CaptureFixture) -> None:
    made = url(disks[:2], "y.zarr")
    assert main(["rechunk", laid_out, made, "--chunks", "96,5", "--quiet"]) == 0
    assert main(["info", made]) == 0
    assert "chunks missing   none of 16" in capsys.readouterr().out
    assert (ooc.open_array(made)[...] == DATA).all()


def test_what_cannot_be_laid_out_is_refused(
    laid_out: str, disks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = str(tmp_path / "x.zarr")
    for words, says in (
        (["stripe", plain, *disks[:2]], "exists"),
        (["stripe", laid_out, "--add", disks[1]], ""),
        (["stripe", plain, "--verify"], ""),
        (["stripe", plain], ""),
    ):
        assert main(words) == 2
        err = capsys.readouterr().err
        assert says in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("fails_after", [6, 9, 14])
def test_a_disk_that_fails_in_a_run_ends_it_in_one_line_and_the_run_goes_on_when_it_is_well(
    disks: list[str], rows: str, fails_after: int
) -> None:
    slow = [SlowDisk(disk, fails_after=fails_after if number == 1 else None) for number, disk in enumerate(disks)]
    target, how = ooc.disks.StripedStore(slow).below("y.zarr"), {"method": "independent", "scheduler": "threads"}
    with pytest.raises(ooc.OocError) as failed:
        flat(ooc.rechunk, rows, target, chunks=(96, 5), **how).run()
    assert "Input/output error" in str(failed.value)
    assert "\n" not in str(failed.value)
    with pytest.raises((ooc.errors.UnfinishedError, ooc.errors.NotFoundError)):
        ooc.open_array(url(disks, "y.zarr"))
    again = flat(ooc.rechunk, rows, url(disks, "y.zarr"), chunks=(96, 5), overwrite=True, **how).run()
    assert (again[...] == DATA).all()
    assert (ooc.open_array(rows)[...] == DATA).all()


def test_a_slow_disk_changes_nothing_but_seconds(disks: list[str], rows: str) -> None:
    slow = [
        SlowDisk(disk, seconds=0.01 if number == 2 else 0.0, jitter="exponential") for number, disk in enumerate(disks)
    ]
    made = ooc.rechunk(rows, ooc.disks.StripedStore(slow).below("z.zarr"), chunks=(96, 5), scheduler="threads").run()
    assert (made[...] == DATA).all()
    assert (ooc.open_array(url(disks, "z.zarr"))[...] == DATA).all()
