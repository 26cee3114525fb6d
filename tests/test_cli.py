"""The command line: what a person types, and one clear line for everything that they can get wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import CODES, GROUPS, main
from tests.dying import Server

COMMAND = Path(sys.executable).parent / "oocarrays"
DATA = np.arange(60 * 40, dtype="f4").reshape(60, 40)


def oocarrays(*arguments: object, cwd: Path, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [COMMAND, *map(str, arguments)], cwd=cwd, env=os.environ | env, capture_output=True, text=True
    )


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the current one, that holds an array, a group, a format 2 array, a file and a full folder."""
    monkeypatch.chdir(tmp_path)
    zarr.create_array(
        "rows.zarr",
        data=DATA,
        chunks=(10, 40),
        compressors=None,
        dimension_names=("y", "x"),
        attributes={"units": "K", "steps": [1, 2]},
    )
    zarr.create_array("there.zarr", data=DATA[:2, :3], chunks=(1, 3))
    zarr.create_group("group.zarr", attributes={"title": "of days"})
    zarr.create_array("two.zarr", data=DATA, chunks=(10, 40), zarr_format=2)
    Path("empty").mkdir()
    Path("file.txt").write_text("no array")
    Path("folder").mkdir()
    Path("folder", "thesis.txt").write_text("three years of work")
    return tmp_path


# ---------------------------------------------------------------------- what works


@pytest.mark.parametrize("schedule", ["lex", "PEX", "pex-gen"])
def test_rechunk_exchanges_in_the_order_that_is_typed(work: Path, capsys: pytest.CaptureFixture, schedule: str) -> None:
    how = ["--method", "two-phase", "--ranks", "2", "--schedule", schedule, "--memory", "64MiB"]
    assert not main(["rechunk", "rows.zarr", "columns.zarr", "--chunks", "60,8", *how])
    assert f"2 ranks, {schedule.upper()}" in capsys.readouterr().out
    np.testing.assert_array_equal(zarr.open_array("columns.zarr", mode="r")[...], DATA)


def test_rechunk_writes_the_same_array_in_other_chunks(work: Path) -> None:
    done = oocarrays("rechunk", "rows.zarr", "columns.zarr", "--chunks", "60,8", "--memory", "64MiB", cwd=work)
    assert done.returncode == 0, done.stderr
    target = zarr.open_array("columns.zarr", mode="r")
    np.testing.assert_array_equal(target[...], DATA)
    assert (target.chunks, target.dtype, target.metadata.dimension_names) == ((60, 8), np.dtype("f4"), ("y", "x"))
    assert target.attrs.asdict() == {"units": "K", "steps": [1, 2]}
    assert "strategy" in done.stdout
    assert "wrote" in done.stdout
    assert "100 %" in done.stderr


WRITING = {
    "rechunk": ["rechunk", "rows.zarr", "new.zarr", "--chunks", "60,8"],
    "map": ["map", "rows.zarr", "new.zarr", "--kernel", "numpy:negative"],
    "reduce": ["reduce", "rows.zarr", "new.zarr", "--how", "mean", "--axis", "y"],
    "pyramid": ["pyramid", "rows.zarr", "new.zarr", "--levels", "2"],
}
"""Commands that write a new target, and take --resume, --json and --quiet."""


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_quiet_prints_nothing_on_success(work: Path, capsys: pytest.CaptureFixture, words: list[str]) -> None:
    for _ in range(2):
        assert main([*words, "--memory", "64MiB", "--quiet", "--resume"]) == 0
        assert capsys.readouterr() == ("", "")


OTHERS = {
    "update": ["update", "made.zarr"], "resume": ["resume", "left.zarr"], "clean": ["clean", "folder"],
    "stripe": ["stripe", "rows.zarr", "empty", "--name", "s.zarr"], "demo": ["demo", "--size=4MiB", "--memory=64MiB"],
    "info": ["info", "rows.zarr"], "read": ["read", "rows.zarr", "0:2"], "calibrate": ["calibrate", "--store", "empty"],
    "compare": ["compare", "rows.zarr", "two.zarr"], "advise": ["advise", "trace.json", "--memory=1GiB"],
    "plan": ["plan", "rows.zarr", "t.zarr", "--chunks=60,8", "--sweep=workers=2,4", "--worker-memory=1GiB"],
    "schedule": ["schedule", "lex", "--ranks=4"], "requests": ["requests", "--shape=64,64", "--ranks=2"],
    "redistribute": ["redistribute", "--from=block", "--to=cyclic", "--shape=64", "--ranks=2"],
}  # fmt: skip
"""All other commands; those without a target print what they find."""


@pytest.mark.parametrize("name", OTHERS)
def test_quiet_of_every_other_command_prints_nothing(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, runs: Server, name: str
) -> None:
    ooc.rechunk("rows.zarr", "made.zarr", chunks=(60, 8), scheduler="threads").run()
    if name == "resume":
        runs.run("rechunk", work / "rows.zarr", work / "left.zarr", chunks=(60, 8), scheduler="threads", at="begun")
    for each in ("calibrate", "keep"):
        monkeypatch.setattr(f"oocarrays.cli.advice.{each}", lambda *_: {})
    with ooc.advise.trace() as trace:
        ooc.open_array("rows.zarr")[:2]
    trace.save("trace.json")
    capsys.readouterr()
    assert main([*OTHERS[name], "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_what_differs_is_printed_once_wherever_it_is_printed(work: Path) -> None:
    zarr.create_array("other.zarr", data=DATA + 1, chunks=(60, 40))
    with redirect_stdout(StringIO()) as out:
        assert main(["compare", "rows.zarr", "other.zarr"]) == 1
    lines = out.getvalue().splitlines()
    assert len(lines) == len(set(lines)) > 0


def test_every_command_has_quiet() -> None:
    assert {*WRITING, *OTHERS} == {entry.name for group in GROUPS.values() for entry in group}


@pytest.mark.parametrize(("flag", "own"), [("--target-chunks=2,3", "--chunks"), ("--max-mem", "--memory")])
def test_an_option_of_another_library_tells_ours(capsys: pytest.CaptureFixture, flag: str, own: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rechunk", "a.zarr", "b.zarr", flag, "1GB"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"oocarrays rechunk: {flag.partition('=')[0]} is {own} here")


@pytest.mark.parametrize(("flag", "said"), [("--axis=y", "--window AXIS=auto"), ("--height=8", "--window LENGTH")])
def test_an_old_option_tells_the_new_one(capsys: pytest.CaptureFixture, flag: str, said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["map", "a.zarr", "b.zarr", "--kernel=numpy:negative", flag])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"oocarrays map: {flag.partition('=')[0]} is {said}")


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_resume_starts_and_ends_at_once_if_the_target_is_finished(
    work: Path, capsys: pytest.CaptureFixture, words: list[str]
) -> None:
    assert main([*words, "--memory", "64MiB", "--resume"]) == 0
    assert "wrote" in capsys.readouterr().out
    before = tree(work / "new.zarr")
    assert main([*words, "--memory", "64MiB", "--resume"]) == 0
    assert re.fullmatch(r"new\.zarr: \d+ of \d+ chunks?, nothing to do\n", capsys.readouterr().out)
    assert tree(work / "new.zarr") == before
    assert main([*words, "--memory", "64MiB"]) == 2
    assert "new.zarr already exists; pass --overwrite to replace it" in capsys.readouterr().err


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
def test_json_is_one_object_of_plan_and_result(work: Path, capsys: pytest.CaptureFixture, words: list[str]) -> None:
    def told(*more: str) -> dict[str, Any]:
        assert main([*words, "--memory", "64MiB", "--json", *more]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        return document

    plan, done, again = told("--dry-run"), told("--quiet"), told("--resume")
    assert (plan["target"], plan["finished"], plan["left"], plan["run"]) == ("new.zarr", False, 1.0, None)
    assert 0 < plan["plan"]["peak_bytes"] <= plan["plan"]["budget_bytes"] == 64 * 2**20
    assert plan["plan"]["traffic"]["read_requests"] == done["run"]["read_requests"] == 6
    assert [each["reason"] for each in plan["plan"]["alternatives"]].count("taken") == 1
    assert done["run"]["targets"][0].startswith(f"{work}/new.zarr")
    assert done["run"]["seconds"] > 0
    assert (done["finished"], done["left"], done["run"]["share"]) == (True, 0.0, 1.0)
    assert (again["finished"], again["left"], again["run"]) == (True, 0.0, None)


def test_json_of_a_group_has_the_plan_of_each_array(work: Path, capsys: pytest.CaptureFixture) -> None:
    for name in ("air", "sea"):
        zarr.open_group("group.zarr").create_array(name, data=DATA, chunks=(10, 40), dimension_names=("y", "x"))
    assert main(["rechunk", "group.zarr", "new.zarr", "--chunks", "y=-1,x=8", "--json", "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["strategy"] is None
    assert {name: each["strategy"] for name, each in plan["arrays"].items()} == dict.fromkeys(
        ["air", "sea"], "independent"
    )


def test_a_kernel_of_the_current_folder_gets_its_arguments(work: Path, capsys: pytest.CaptureFixture) -> None:
    Path("own_kernels.py").write_text("def scaled(block, other, by=1):\n    return block + by * other\n")
    words = ["map", "rows.zarr", "rows.zarr", "new.zarr", "--kernel", "own_kernels:scaled", "--arg", "by=2"]
    assert main([*words, "--chunks", "60,8", "--quiet"]) == 0
    np.testing.assert_array_equal(ooc.open_array("new.zarr"), 3 * DATA)
    assert ooc.open_array("new.zarr").chunks == (60, 8)


def test_labels_of_a_reduction_are_read_from_a_file(work: Path) -> None:
    labels = np.arange(60) % 7
    np.save("labels.npy", labels)
    Path("labels.txt").write_text("\n".join("abcdefg"[each] for each in labels))
    for name in ("labels.npy", "labels.txt"):
        words = ["reduce", "rows.zarr", "new.zarr", "--how", "max", "--axis", "0", "--by", name]
        assert main([*words, "--overwrite", "--quiet"]) == 0
        np.testing.assert_array_equal(ooc.open_array("new.zarr"), [DATA[labels == each].max(0) for each in range(7)])


def test_verbose_is_taken_before_and_after_the_command(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("logging.basicConfig", lambda **how: asked.append(how))
    for words in (["-v", "info", "rows.zarr"], ["info", "rows.zarr", "-v"], ["info", "--verbose", "rows.zarr"]):
        assert main(words) == 0
    assert len(asked) == 3
    assert main(["info", "rows.zarr"]) == 0
    assert len(asked) == 3


def test_the_bar_and_the_summary_tell_the_same_time(work: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(WRITING["rechunk"]) == 0
    out, err = capsys.readouterr()
    [bar], [summary] = re.findall(r", ([\d.]+ s)$", err, re.MULTILINE)[-1:], re.findall(r"MB/s, ([\d.]+ s), ", out)
    assert bar == summary


def test_exit_codes_are_listed_in_the_help_and_in_the_guide(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    page = (Path(__file__).parents[1] / "examples/guide/batch.md").read_text()
    for code, meaning in CODES.items():
        assert f"\n  {code:<5}{meaning}\n" in out
        assert f"| {code} | {meaning} |" in page.replace("`", "")


def test_output_that_nobody_reads_is_no_error(work: Path) -> None:
    line = f"set -o pipefail; {COMMAND} schedule lex --ranks 1000 | head -1"  # more than a pipe and `head` hold
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_output_is_one_line(work: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([COMMAND, "info", "rows.zarr"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "oocarrays: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("method", ["independent", "two-phase", "staged"])
@pytest.mark.parametrize("codec", ["none", "zstd", "blosc", "gzip"])
def test_method_ranks_and_codec_can_be_chosen(work: Path, method: str, codec: str) -> None:
    options = ["--chunks=60,7", "--memory=128MiB", "--ranks=3", f"--method={method}", f"--codec={codec}"]
    assert main(["rechunk", "rows.zarr", "columns.zarr", *options, "--quiet"]) == 0
    target = zarr.open_array("columns.zarr", mode="r")
    np.testing.assert_array_equal(target[...], DATA)
    assert target.chunks == (60, 7)
    assert [c.to_dict()["name"] for c in target.compressors] == ([] if codec == "none" else [codec])


@pytest.mark.parametrize(
    "typed",
    [["--chunks=-1,8"], ["--chunks", "-1,8"], ["--chunks", "0=-1,1=8"]],
    ids=["with =", "as a word of its own", "by axis"],
)
def test_minus_one_is_a_whole_axis(work: Path, typed: list[str]) -> None:
    assert main(["rechunk", "rows.zarr", "columns.zarr", *typed, "--memory=64MiB", "--quiet"]) == 0
    assert zarr.open_array("columns.zarr", mode="r").chunks == (60, 8)


@pytest.mark.parametrize(
    ("orientation", "chunks"), [("column", (60, 6)), ("1,0", (60, 6)), ("row", (10, 40))], ids=["column", "1,0", "row"]
)
def test_orientation_chooses_the_chunks(work: Path, orientation: str, chunks: tuple[int, int]) -> None:
    assert main(["rechunk", "rows.zarr", "t.zarr", "--orientation", orientation, "--memory", "64MiB", "--quiet"]) == 0
    target = zarr.open_array("t.zarr", mode="r")
    assert target.chunks == chunks
    np.testing.assert_array_equal(target[...], DATA)


def test_overwrite_replaces_an_array_that_is_named(work: Path) -> None:
    options = ["--chunks", "60,8", "--memory", "64MiB", "--quiet"]
    assert main(["rechunk", "rows.zarr", "there.zarr", "--overwrite", *options]) == 0
    np.testing.assert_array_equal(zarr.open_array("there.zarr", mode="r")[...], DATA)


def test_dry_run_shows_every_strategy_and_writes_nothing(work: Path, capsys: pytest.CaptureFixture) -> None:
    before = tree(work)
    assert main(["rechunk", "rows.zarr", "columns.zarr", "--chunks", "60,8", "--memory", "64MiB", "--dry-run"]) == 0
    assert tree(work) == before
    job = ooc.rechunk("rows.zarr", "columns.zarr", chunks=(60, 8), memory="64MiB")
    assert capsys.readouterr().out == f"{job.explain()}\n"


def test_demo_makes_rechunks_checks_and_cleans_up(work: Path, runs: Server) -> None:
    before = tree(work)
    done = runs.run("main", "demo", "--size", "8MiB", "--memory", "34MiB", "--folder", ".")
    assert "checked: every element is right" in done.out
    assert re.search(r"\d+ MB/s, .* MiB held at most of 34 MiB", done.out)
    assert tree(work) == before


def test_info_shows_what_a_store_holds(work: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["info", "rows.zarr"]) == 0
    rows = dict(re.split("  +", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    stored = sum(file.stat().st_size for file in Path("rows.zarr").rglob("*") if file.is_file())
    shown = {"store": str(work / "rows.zarr"), "format": "3", "shape": "60 × 40", "dtype": "float32"}
    cut = {"chunks": "10 × 40", "shards": "none", "codecs": "bytes", "fill value": "0.0", "dimension names": "y, x"}
    sizes = {"bytes": "9.38 kiB (9600)", "bytes stored": f"{stored / 1024:.2f} kiB ({stored})"}
    rest = {"chunks missing": "none of 6", "attribute units": "'K'", "attribute steps": "[1, 2]"}
    assert rows == shown | cut | sizes | rest


@pytest.mark.parametrize("command", [[], ["demo"], ["rechunk"], ["info"]], ids=lambda words: " ".join(words) or "all")
def test_help(command: list[str], capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: {' '.join(['oocarrays', *command])}")
    assert err == ""


def test_version(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.fullmatch(r"oocarrays \d+\.\d+\.\d+\n", out)


# ---------------------------------------------------------------------- what does not


def rechunk(source: str = "rows.zarr", target: str = "new.zarr", chunks: str = "60,8", *more: str) -> list[str]:
    return ["rechunk", source, target, f"--chunks={chunks}", "--memory=64MiB", *more]


WRONG: dict[str, tuple[list[str], str]] = {
    # id: what is typed, what the line must say (a regular expression)
    "no such store": (rechunk("nowhere.zarr"), r"no such store: .*nowhere\.zarr"),
    "a group": (rechunk("group.zarr"), r"group\.zarr is a group, but --chunks=.* names none"),
    "an empty folder": (rechunk("empty"), r"no Zarr array in .*empty"),
    "a folder of other files": (rechunk("folder"), r"no Zarr array in .*folder"),
    "a file": (rechunk("file.txt"), r"file\.txt"),
    "below a file": (rechunk("file.txt/rows.zarr"), r"file\.txt/rows\.zarr"),
    "format 4": (rechunk("rows.zarr", "new.zarr", "60,8", "--zarr-format", "4"), r"invalid choice: 4"),
    "shards of half a chunk": (
        rechunk("rows.zarr", "new.zarr", "60,8", "--shards", "60,12"),
        r"multiples of the chunks \(60, 8\)",
    ),
    "too few chunks": (rechunk(chunks="60"), r"\(60,\) has 1 axis; the array has 2"),
    "too many chunks": (rechunk(chunks="60,8,1"), r"\(60, 8, 1\) has 3 axes; the array has 2"),
    "no chunks": (["rechunk", "rows.zarr", "new.zarr"], r"--chunks is needed"),
    "empty chunks": (rechunk(chunks=""), r"chunks"),
    "chunk of zero": (rechunk(chunks="0,8"), r"\(0, 8\).*at least 1"),
    "negative chunk": (rechunk(chunks="60,-3"), r"\(60, -3\).*at least 1"),
    "chunks not numbers": (rechunk(chunks="a,b"), r"'a,b' is not a list of lengths"),
    "chunks of fractions": (rechunk(chunks="1.5,8"), r"'1\.5,8' is not a list of lengths"),
    "budget too small": ([*rechunk(), "--memory=1MiB"], r"\(1048576 bytes\) is too small.*needs at least .*\d+ bytes"),
    "unparsable budget": ([*rechunk(), "--memory=lots"], r"memory='lots' is not a size.*'1GiB'"),
    "budget of an unknown unit": ([*rechunk(), "--memory=3 apples"], r"memory='3 apples' is not a size"),
    "budget of zero": ([*rechunk(), "--memory=0"], r"memory='0' must be above zero"),
    "negative budget": ([*rechunk(), "--memory=-1GiB"], r"memory='-1GiB' must be above zero"),
    "budget that is not a number": ([*rechunk(), "--memory=nan"], r"memory='nan'"),
    "endless budget": ([*rechunk(), "--memory=inf"], r"memory='inf'"),
    "target exists": (rechunk(target="there.zarr"), r"there\.zarr already exists; pass --overwrite to"),
    "target is the source": (rechunk(target="rows.zarr"), r"rows\.zarr is the source itself"),
    "target is the source, overwrite": ([*rechunk(target="./rows.zarr"), "--overwrite"], r"is the source itself"),
    "target inside the source": ([*rechunk(target="rows.zarr/new"), "--overwrite"], r"one inside the other"),
    "source inside the target": ([*rechunk("folder/rows.zarr", "folder"), "--overwrite"], r"one inside the other"),
    "target is a link to the source": ([*rechunk(target="link.zarr"), "--overwrite"], r"is the source itself"),
    "target is a full folder": (rechunk(target="folder"), r"folder already exists"),
    "target is a full folder, overwrite": ([*rechunk(target="folder"), "--overwrite"], r"already exists and is not a"),
    "target is a group, overwrite": ([*rechunk(target="group.zarr"), "--overwrite"], r"zarr already exists and is not"),
    "target is a file, overwrite": ([*rechunk(target="file.txt"), "--overwrite"], r"txt already exists and is not"),
    "unknown method": ([*rechunk(), "--method=magic"], r"magic.*independent.*two-phase.*staged"),
    "unknown codec": ([*rechunk(), "--codec=magic"], r"magic.*zstd"),
    "no ranks": ([*rechunk(), "--ranks=0"], r"ranks=0 must be a whole number, at least 1"),
    "negative ranks": ([*rechunk(), "--ranks=-2"], r"ranks=-2 must be a whole number, at least 1"),
    "ranks not a number": ([*rechunk(), "--ranks=two"], r"two"),
    "unknown orientation": ([*rechunk(), "--orientation=diagonal"], r"diagonal"),
    "orientation of other axes": ([*rechunk(), "--orientation=0,2"], r"\(0, 2\) is not 'row', 'column' or an order"),
    "no target": (["rechunk", "rows.zarr"], r"TARGET"),
    "no command": ([], r"COMMAND"),
    "unknown command": (["shrink"], r"shrink"),
    "unknown option": ([*rechunk(), "--fast"], r"--fast"),
    "unknown option of another command": ([*rechunk(), "--kernel=a:b"], r"oocarrays rechunk: .*--kernel"),
    "no kernel": (["map", "rows.zarr", "new.zarr"], r"oocarrays map: .*--kernel"),
    "a kernel without a module": (["map", "rows.zarr", "new.zarr", "--kernel=mean"], r"--kernel='mean' must be a func"),
    "a kernel of ours without its module": (
        ["map", "rows.zarr", "new.zarr", "--kernel=median"],
        r"such as 'oocarrays\.kernels:median'",
    ),
    "a kernel of no module": (
        ["map", "rows.zarr", "new.zarr", "--kernel=no.such:f"],
        r"--kernel='no\.such:f' cannot be",
    ),
    "a kernel that is not a function": (
        ["map", "rows.zarr", "new.zarr", "--kernel=math:pi"],
        r"is a float, not a func",
    ),
    "an argument without a name": (
        ["map", "rows.zarr", "new.zarr", "--kernel=numpy:negative", "--arg=3"],
        r"'3' is not NAME=VALUE",
    ),
    "a depth of letters": (
        ["map", "rows.zarr", "new.zarr", "--kernel=numpy:negative", "--depth=a"],
        r"--depth: 'a' is not one value",
    ),
    "no such reduction": (["reduce", "rows.zarr", "new.zarr", "--how=mode"], r"--how: .*'mode'.*'mean'"),
    "no such axis": (["reduce", "rows.zarr", "new.zarr", "--how=sum", "--axis=z"], r"--axis='z' is not one of the 2"),
    "no labels": (
        ["reduce", "rows.zarr", "new.zarr", "--how=sum", "--axis=0", "--by=none.npy"],
        r"--by none\.npy cannot be read: No such file",
    ),
    "info of nothing": (["info", "nowhere.zarr"], r"no such store: .*nowhere\.zarr"),
    "info of an empty folder": (["info", "empty"], r"no Zarr array or group in .*empty"),
    "info of a file": (["info", "file.txt"], r"file\.txt has a format that is not read: text"),
    "a picture of no kind": ([*rechunk(), "--draw=plan.txt"], r"written to plan\.txt: its name must end in .*png"),
    "a picture in no folder": ([*rechunk(), "--draw=nowhere/plan.png"], r"nowhere/plan\.png: no such folder"),
    "demo of no size": (["demo", "--size=big"], r"size='big' is not a size"),
    "demo of a negative size": (["demo", "--size=-3"], r"size='-3' must be above zero"),
    "demo in no folder": (["demo", "--folder=nowhere"], r"nowhere"),
    "demo in too little": (["demo", "--size=1MiB", "--memory=1MiB"], r"\(1048576 bytes\) is too small"),
}


@pytest.fixture
def trap(work: Path) -> Path:
    """As ``work``, with an array inside the full folder and a link to the source."""
    zarr.create_array("folder/rows.zarr", data=DATA, chunks=(10, 40))
    os.symlink("rows.zarr", "link.zarr")
    return work


def check_refusal(code: int, out: str, err: str, says: str) -> None:
    assert code == 2
    assert len(err.splitlines()) == 1, err
    assert re.search(says, err), err
    assert "Traceback" not in err + out


@pytest.mark.parametrize(("typed", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_gets_one_line(
    trap: Path, typed: list[str], says: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(trap))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = tree(trap)
    try:
        code = main(typed)
    except SystemExit as stop:
        code = stop.code
    check_refusal(code, *capsys.readouterr(), says)
    assert tree(trap) == before


SUBPROCESS = ["budget too small", "chunks not numbers"]


@pytest.mark.parametrize("name", SUBPROCESS)
def test_a_wrong_input_gets_one_line_from_the_installed_command(trap: Path, name: str) -> None:
    typed, says = WRONG[name]
    before = tree(trap)
    done = oocarrays(*typed, cwd=trap)
    check_refusal(done.returncode, done.stdout, done.stderr, says)
    assert done.stdout == ""
    assert tree(trap) == before


def test_a_budget_too_small_names_a_budget_that_does(work: Path, capsys: pytest.CaptureFixture) -> None:
    main([*rechunk(), "--memory=1MiB"])
    least = re.findall(r"\((\d+) bytes\)", capsys.readouterr().err)[-1]
    assert main([*rechunk(), f"--memory={least}", "--quiet"]) == 0
    np.testing.assert_array_equal(zarr.open_array("new.zarr", mode="r")[...], DATA)


def test_array_expressions_are_refused_in_one_line(work: Path) -> None:
    before = tree(work)
    done = oocarrays(*rechunk(), cwd=work, DASK_ARRAY__QUERY_PLANNING="True")
    check_refusal(done.returncode, done.stdout, done.stderr, r"array\.query-planning is on.*set it to False")
    assert tree(work) == before


def test_array_expressions_are_refused_where_set_in_dask(work: Path, capsys: pytest.CaptureFixture) -> None:
    with dask.config.set({"array.query-planning": True}):
        code = main(rechunk())
    check_refusal(code, *capsys.readouterr(), r"array\.query-planning is on")


@pytest.mark.parametrize("name", ["oocarrays.memory", "oocarrays.ranks"])
def test_a_wrong_setting_gets_one_line(work: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    typed = [word for word in rechunk() if not word.startswith("--memory")]
    with dask.config.set({name: "some", "oocarrays.memory": "some" if name.endswith("memory") else "64MiB"}):
        code = main(typed)
    check_refusal(code, *capsys.readouterr(), r"some")


def test_a_kernel_that_fails_is_one_line(work: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["map", "rows.zarr", "new.zarr", "--kernel=os:fspath", "--quiet"]) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"oocarrays: the kernel failed on slab .*: TypeError: .*not ndarray.*", error)
    assert main(["map", "rows.zarr", "more.zarr", "--kernel=os:getpid", "--quiet"]) == 2
    assert "getpid() cannot be called with 1 block" in capsys.readouterr().err


def hide_chunk(folder: Path) -> None:
    (folder / "c/0/0").write_bytes(b"short")


def unfinish(folder: Path) -> None:
    zarr.open_array(folder, mode="r+").attrs["oocarrays:unfinished"] = "a1b2"


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [(hide_chunk, 1, r"c/0/0 has 5 bytes"), (unfinish, 2, r"is unfinished: run a1b2")],
    ids=["a corrupt chunk fails the run", "an unfinished source is wrong input"],
)
def test_a_spoilt_source_gets_one_line(
    work: Path, spoil: Callable[[Path], None], code: int, says: str, capsys: pytest.CaptureFixture
) -> None:
    spoil(work / "rows.zarr")
    assert main([*rechunk(), "--quiet", "--method=two-phase"]) == code
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1, err
    assert re.search(says, err)
