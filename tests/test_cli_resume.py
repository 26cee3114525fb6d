"""The command line where a run is interrupted or killed, gone on with, or sent to a cluster."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import wraps
from pathlib import Path

import pytest
import yaml
import zarr
from distributed import Client, LocalCluster

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import RunError
from tests.dying import Server
from tests.seams import known_workers, replace_step, set_constants, step
from tests.small import each_method
from tests.unfinished import check_finished, check_unfinished, make_field, options_of, words_of

pytestmark = pytest.mark.long

COMMAND = Path(sys.executable).parent / "oocarrays"
NOBODY = "tcp://127.0.0.1:1"
"""An address at which no scheduler answers."""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the current one, that holds a field."""
    monkeypatch.chdir(tmp_path)
    make_field(tmp_path)
    return tmp_path


def oocarrays(*words: object, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([COMMAND, *map(str, words)], env=os.environ | env, capture_output=True, text=True)


def killed(runs: Server, work: Path, method: str = "two-phase", name: str = "target.zarr", after: int = 6) -> Path:
    runs.run("rechunk", work / "source.zarr", work / name, at="entry", after=after, **options_of(method))
    return work / name


def check_refusal(code: object, out: str, err: str, says: str) -> None:
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert re.search(says, err), err


# ---------------------------------------------------------------------- resume


@each_method
def test_resume_says_what_is_left_and_does_it(
    work: Path, runs: Server, method: str, capsys: pytest.CaptureFixture
) -> None:
    target = killed(runs, work, method)
    left = f"{100 * ooc.resume(target).left:.0f}"
    assert main(["resume", "target.zarr"]) == 0
    out, err = capsys.readouterr()
    first, *plan, last = out.splitlines()
    assert first == f"{100 - int(left)} % of target.zarr is done by rechunk; {left} % is left"
    assert any(line.split()[:2] == ["strategy", method] for line in plan)
    assert re.fullmatch(rf"wrote {target}: \d+ MB/s, .* MiB held at most of \d+ MiB", last)
    assert re.search(r" \d+ %  ", err.splitlines()[-1])
    check_finished(target)


def test_a_quiet_resume_prints_nothing(work: Path, runs: Server, capsys: pytest.CaptureFixture) -> None:
    target = killed(runs, work)
    assert main(["resume", "target.zarr", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    check_finished(target)


def test_a_resume_for_programs_tells_what_was_left(work: Path, runs: Server, capsys: pytest.CaptureFixture) -> None:
    target = killed(runs, work)
    left = ooc.resume(target).left
    assert main(["resume", "target.zarr", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["target"], told["finished"], told["left"]) == ("target.zarr", True, 0.0)
    assert (told["run"]["share"], told["run"]["targets"]) == (left, [str(target)])
    check_finished(target)


def test_a_dry_resume_shows_the_plan_and_does_nothing(work: Path, runs: Server, capsys: pytest.CaptureFixture) -> None:
    target = killed(runs, work)
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    assert main(["resume", "target.zarr", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert re.match(r"\d+ % of target\.zarr is done by rechunk; \d+ % is left\n", out)
    for word in ("strategy", "two-phase", "peak memory", "considered", "taken"):
        assert word in out
    assert err == ""
    assert {path: path.read_bytes() for path in work.rglob("*") if path.is_file()} == before
    check_unfinished(target)


@pytest.mark.parametrize("name", ["two words.zarr", "50%.zarr"])
def test_odd_names_are_told_as_they_are(work: Path, runs: Server, name: str, capsys: pytest.CaptureFixture) -> None:
    killed(runs, work, name=name)
    assert main(["resume", name]) == 0
    assert f" % of {name} is done by rechunk; " in capsys.readouterr().out
    check_finished(work / name)


WRONG = {
    "nothing there": (["nowhere.zarr"], r"nothing to resume: no unfinished array in .*/nowhere\.zarr"),
    "a finished array": (["source.zarr"], r"nothing to resume: no unfinished array in .*/source\.zarr"),
    "a file": (["file.txt"], r"nothing to resume: no unfinished array in .*/file\.txt"),
    "no target": ([], r"TARGET"),
    "unknown option": (["source.zarr", "--fast"], r"--fast"),
    "no journal": (["bare.zarr"], r"nothing to resume: no unfinished array in .*/bare\.zarr; .*overwrite=True"),
    "a spoilt journal": (["spoilt.zarr"], r"plan\.json in the journal of .*spoilt\.zarr is truncated"),
    "another source": (["other.zarr"], r"belongs? to"),
    "no address": (["other.zarr", "--scheduler", "nonsense"], r"'nonsense' is no address such as tcp://.*missing port"),
    "an address of no kind": (["other.zarr", "--scheduler", "foo://x:1"], r"'foo://x:1' is no address such as"),
}


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory, runs: Server) -> Path:
    """A folder with what cannot be resumed."""
    folder = tmp_path_factory.mktemp("traps")
    (folder / "file.txt").touch()
    make_field(folder)
    for name in ("bare.zarr", "spoilt.zarr", "other.zarr"):
        killed(runs, folder, name=name)
    shutil.rmtree(folder / "bare.zarr/.oocarrays")
    (folder / "spoilt.zarr/.oocarrays/plan.json").write_text("{")
    zarr.open_array(folder / "source.zarr", mode="r+").attrs["units"] = "K"
    return folder


@pytest.mark.parametrize(("words", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_input_to_resume_gets_one_line(
    traps: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(traps)
    before = set(traps.rglob("*"))
    try:
        code: object = main(["resume", *words])
    except SystemExit as stop:
        code = stop.code
    check_refusal(code, *capsys.readouterr(), says)
    assert set(traps.rglob("*")) == before


def test_a_wrong_input_to_resume_gets_one_line_from_the_installed_command(
    traps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(traps)
    words, says = WRONG["no address"]
    done = oocarrays("resume", *words)
    check_refusal(done.returncode, done.stdout, done.stderr, says)


def test_a_resume_that_fails_gets_one_line_and_can_be_resumed(
    work: Path, runs: Server, capsys: pytest.CaptureFixture
) -> None:
    target, chunk = killed(runs, work), work / "source.zarr/c/9/0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1])
    assert main(["resume", "target.zarr", "--quiet", "--as-is"]) == 1
    err = capsys.readouterr().err
    assert re.fullmatch(r"oocarrays: .*c/9/0 has \d+ bytes; a chunk has \d+\n", err), err
    chunk.write_bytes(data)
    assert main(["resume", "target.zarr", "--quiet", "--as-is"]) == 0
    check_finished(target)


# ---------------------------------------------------------------------- Ctrl-C


@each_method
def test_an_interrupted_command_names_the_one_that_goes_on(
    work: Path, runs: Server, method: str, capsys: pytest.CaptureFixture
) -> None:
    first = interrupt(runs, "rechunk", "source.zarr", "two words.zarr", *words_of(method))
    check_unfinished(work / "two words.zarr")
    second = interrupt(runs, "resume", "two words.zarr", after=1)  # the first may have left no more than that
    for err in (first, second):
        line = r"oocarrays: interrupted at (\d+) %; written chunks stay, continue with: (oocarrays resume '.*')\n"
        typed = re.fullmatch(line, err)
        assert typed, err
    check_unfinished(work / "two words.zarr")
    left = ooc.resume("two words.zarr").left
    assert typed[1] == f"{100 * (1 - left):.0f}", "who resumes is told the same"
    assert main(["info", "two words.zarr"]) == 0
    shown = capsys.readouterr().out
    assert f"done             {typed[1]} % by rechunk" in shown
    assert re.search(r"last written +\S+ \S*s ago\nplan +RechunkPlan ", shown)
    assert main(["info", "two words.zarr", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert (run["by"], run["done"], run["why"]) == ("rechunk", 1 - left, None)
    assert 0 <= run["seconds_ago"] < 1000
    assert main(shlex.split(typed[2])[1:]) == 0
    check_finished(work / "two words.zarr")


def interrupt(runs: Server, *words: str, after: int = 3) -> str:
    """What a command says to Ctrl-C in its middle."""
    child = runs.start("main", *words, "--quiet", at="entry", after=after, wait=True)
    child.until_there()
    child.interrupt()
    assert child.go_on() == 130, child.err
    return child.err


def test_an_interruption_before_anything_was_written_names_nothing(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    for name in ("call rechunk", "call resume", "call clean"):
        replace_step(monkeypatch, name, wraps(step(name))(interrupt))
    for words in (["rechunk", "source.zarr", "t.zarr", "--chunks=64,64"], ["resume", "source.zarr"], ["clean", "."]):
        assert main(words) == 130
        assert capsys.readouterr() == ("", "oocarrays: interrupted\n")


def test_a_batch_system_ends_a_command_as_ctrl_c_does(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def begun_and_terminated(*args: object, **options: object) -> None:
        zarr.create_array(work / "t.zarr", shape=(4,), dtype="i4", attributes={"oocarrays:unfinished": "c0ffee"})
        signal.raise_signal(signal.SIGTERM)

    former = signal.getsignal(signal.SIGTERM)
    replace_step(monkeypatch, "call rechunk", wraps(ooc.rechunk)(begun_and_terminated))
    assert main(["rechunk", "source.zarr", "t.zarr", "--chunks=64,64"]) == 128 + signal.SIGTERM
    said = "oocarrays: terminated; written chunks stay, continue with: oocarrays resume t.zarr\n"
    assert capsys.readouterr() == ("", said)
    assert signal.getsignal(signal.SIGTERM) == former


# ---------------------------------------------------------------------- a cluster


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen]:
    """A command that asks for a scheduler where there is none: it takes its time to give up."""
    folder = tmp_path_factory.mktemp("nobody")
    make_field(folder)
    words = ["rechunk", "source.zarr", "t.zarr", "--chunks=64,64", f"--scheduler={NOBODY}"]
    with subprocess.Popen([COMMAND, *words], cwd=folder, stdout=-1, stderr=-1, text=True) as process:
        yield process


@pytest.fixture(scope="module")
def address(nobody: subprocess.Popen) -> Iterator[str]:
    """Where the scheduler of a cluster of two workers is."""
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, **options) as cluster:
        yield cluster.scheduler_address


def test_rechunk_runs_on_the_workers_of_a_cluster(work: Path, runs: Server, address: str) -> None:
    words = ["source.zarr", "target.zarr", "--chunks=1024,64", f"--scheduler={address}"]
    done = runs.run("main", "rechunk", *words)
    assert re.search(r"workers +2, 2 ranks", done.out)
    assert re.search(r"wrote .*target\.zarr: .* 2 workers of \d+ MiB\n", done.out)
    assert "100 %" in done.err.splitlines()[-1]
    check_finished(work / "target.zarr")


def test_what_a_cluster_left_goes_on_on_a_cluster(
    work: Path, runs: Server, address: str, capsys: pytest.CaptureFixture
) -> None:
    chunk = work / "source.zarr/c/9/0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1])
    words = ["rechunk", "source.zarr", "target.zarr", *words_of("two-phase"), "--quiet", f"--scheduler={address}"]
    done = runs.start("main", *words, "--memory=128MiB")
    assert (done.wait(), len(done.err.splitlines())) == (1, 1), done.err
    check_unfinished(work / "target.zarr")
    chunk.write_bytes(data)
    check_refusal(main(["resume", "target.zarr"]), *capsys.readouterr(), r"chunks of .* have changed since")
    as_is = ["resume", "target.zarr", "--as-is"]
    check_refusal(main(as_is), *capsys.readouterr(), r"planned for 2 workers: pass --scheduler, or")
    assert main(["info", as_is[1]]) == 0
    assert re.search(r"^done +\d+ % by rechunk$", capsys.readouterr().out, re.MULTILINE), "no cluster is needed to look"
    runs.run("main", *as_is, "--scheduler", address, "--quiet")
    check_finished(work / "target.zarr")


def test_a_source_that_workers_do_not_see_costs_no_worker(work: Path, address: str) -> None:
    with Client(address, set_as_default=False) as client:
        job = ooc.rechunk("source.zarr", "target.zarr", chunks=(1024, 64), memory="64MiB", scheduler=client)
        (work / "source.zarr").rename("elsewhere.zarr")
        with pytest.raises(RunError, match=r"source\.zarr is missing, or not visible to this process") as caught:
            job.run()
        assert "\n" not in str(caught.value)
        assert len(known_workers(client)) == 2
    assert not (work / "target.zarr").exists()


def test_a_dry_run_on_a_cluster_does_nothing(work: Path, runs: Server, address: str) -> None:
    before = set(work.rglob("*"))
    words = ["source.zarr", "target.zarr", "--chunks=1024,64", "--memory=64MiB", "--dry-run"]
    done = runs.run("main", "rechunk", *words, f"--scheduler={address}")
    assert done.err == ""
    assert re.search(r"workers +2, 2 ranks", done.out)
    assert re.search(r"peak memory .* of 64\.00 MiB in each worker", done.out)
    assert set(work.rglob("*")) == before


@pytest.mark.usefixtures("settings_of_old", "work")
def test_calibrate_measures_the_workers_too(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "config"))
    set_constants(monkeypatch, calibration_file_bytes=2**21, calibration_message_bytes=(2**18, 2**16, 2**12))
    assert main(["calibrate", "--scheduler", address]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (kept,) = [path for path in (tmp_path / "config").iterdir() if str(path) in out]
    measured = yaml.safe_load(kept.read_text())["oocarrays"]["cost"]
    told = {line.split()[0] for line in out.splitlines()}
    for name in ("message_seconds", "message_bandwidth", "worker_task_seconds", "read_bandwidth"):
        assert name in told
        assert measured[name] >= 0
    assert measured["message_bandwidth"] > 0


def test_where_no_scheduler_answers_it_says_so(nobody: subprocess.Popen) -> None:
    out, err = nobody.communicate(timeout=120)
    check_refusal(nobody.returncode, out, err, rf"oocarrays: no scheduler answers at '{NOBODY}': ")


def test_without_certificates_no_scheduler_is_asked_by_tls(work: Path) -> None:
    """Dask's client would be half made then, and its end a traceback after 16 s."""
    asked = [COMMAND, "rechunk", "source.zarr", "t.zarr", "--chunks", "64,64", "--scheduler", "tls://127.0.0.1:1"]
    run = subprocess.run(asked, cwd=work, text=True, capture_output=True, timeout=120)
    check_refusal(
        run.returncode, run.stdout, run.stderr, r"oocarrays: no scheduler answers at 'tls://127.0.0.1:1': TLS needs"
    )
