"""Rounds of runs: the peers in turn, each in a fresh process, from a clean state, its output checked."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

import machine
import report
from cases import Case, Job, job_for
from data import answer
from measure import Run, interrupted, measure
from peers import MODULES, Entry, entry


def parser(description: str, cache: tuple[str, ...], timeout: float) -> argparse.ArgumentParser:
    """Return the options that every benchmark of rounds has, with its defaults."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = result.add_argument
    add("--rounds", type=int, default=3)
    add("--discard", type=int, default=1, metavar="N", help="runs thrown away before each table (default: 1)")
    add(
        "--cache",
        type=lambda text: text.split(","),
        default=list(cache),
        help=f"default: {','.join(cache)} (cold, warm)",
    )
    add("--workdir", help="kept afterwards, sources included (default: a temporary folder here or in $TMPDIR)")
    add("--json", metavar="OUT", help="write every run to this file")
    add("--scale", type=int, default=1, metavar="N", help="divide every edge by N")
    add("--timeout", type=float, default=timeout, help=f"seconds for one run (default: {timeout})")
    add("--pause", type=float, default=2, help="seconds between runs; 0 waits for no other process (default: 2)")
    return result


def in_turn(ways: Sequence[str], turn: int) -> list[str]:
    """Return all ways, each time another one first."""
    first = turn % len(ways)
    return [*ways[first:], *ways[:first]]


def answered(script: str, asked: dict, timeout: float) -> dict:
    """Return what a script answers as a child in a fresh process; of one that does not, the verdict says why."""
    command = [sys.executable, "-W", "ignore", script, "child", json.dumps(asked)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"verdict": f"not done in {timeout:g} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    last = (done.stderr.strip().splitlines() or [f"ended by {done.returncode}"])[-1]
    return {"verdict": last[-200:]}


def entries(modules: dict[str, str] = MODULES) -> Callable[[str], list[Entry]]:
    """Return a function that parses `peer,peer` from the command line."""

    def read(text: str) -> list[Entry]:
        try:
            return [entry(label, modules) for label in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


@contextmanager
def working_folder(options: argparse.Namespace) -> Iterator[None]:
    """Makes `options.workdir` a folder that is there; a temporary one where none was named."""
    os.makedirs(options.workdir or ".", exist_ok=True)
    folder = tempfile.mkdtemp(prefix="oocarrays-bench-", dir=None if os.environ.get("TMPDIR") else ".")
    try:
        options.workdir = os.path.abspath(options.workdir or folder)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def save(options: argparse.Namespace, facts: dict) -> None:
    """Write `facts` where `--json` asks for it."""
    if options.json:
        with open(options.json, "w") as file:
            json.dump(facts, file, indent=1)


def plain(case: Case, cache: str, rounds: report.Rounds) -> dict:
    """Return the rounds of one table as plain data."""
    runs = [{label: asdict(run) for label, run in found.items()} for found in rounds]
    return {"case": asdict(case), "cache": cache, "rounds": runs}


def play(case: Case, peers: list[Entry], cache: str, options: argparse.Namespace) -> report.Rounds:
    """Rounds of one case with one state of the cache; each round begins with another peer.

    The first run is thrown away: on a machine that was idle it can take twice as long, whoever it is.
    """
    rounds: report.Rounds = []
    given_up: set[str] = set()
    for _ in range(options.discard):
        run_once(case, peers[0], cache, options)
    for number in range(options.rounds):
        rounds.append({})
        first = number % len(peers)
        for peer in peers[first:] + peers[:first]:
            if peer.label not in given_up:
                run = rounds[-1][peer.label] = run_once(case, peer, cache, options)
                print(f"{case.name} {cache} {peer.label}: {run.seconds:.2f} s, {run.verdict}", file=sys.stderr)
                given_up |= {peer.label} if run.verdict != "ok" else set()
    return rounds


def run_once(case: Case, peer: Entry, cache: str, options: argparse.Namespace) -> Run:
    """One run of one peer from a clean state, its output checked."""
    python = options.rechunker_python if peer.zarr_format == 2 else sys.executable
    if python is None:
        return Run("not installed (see --rechunker-python)")
    folder = clean(os.path.join(options.workdir, "run"), options.pause)
    tiny, job = tiny_job(case, peer, folder, options), job_of(case, peer, folder, options)
    how = {"cold": machine.make_cold, "warm": machine.make_warm}[cache](job.source)
    if job.fault.startswith("resume"):
        interrupted(python, peer, replace(job, fault=""), tiny, job.fault_share)
        shutil.rmtree(os.path.join(folder, "tiny"))
        os.makedirs(tiny.scratch)
    run = measure(python, peer, job, tiny, options.timeout)
    run.told["cache"] = how
    if run.verdict == "ok":
        run.verdict = data("check", job.target, job)
    shutil.rmtree(folder)
    return run


def clean(folder: str, pause: float) -> str:
    """Return an empty folder on a disk at rest."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("scratch", "tiny/scratch"):
        os.makedirs(os.path.join(folder, name))
    os.sync()
    if pause:
        time.sleep(pause)
        machine.wait_for_rest()
    return folder


def job_of(case: Case, peer: Entry, folder: str, options: argparse.Namespace) -> Job:
    """Return the case as a job of this peer; its source is made where it is not there yet."""
    sizes = "-".join(
        "x".join(map(str, lengths)) for lengths in (case.shape, case.source_chunks, case.source_per_shard) if lengths
    )
    source = os.path.join(options.workdir, "sources", f"{sizes}-{case.codec}-v{peer.zarr_format}")
    job = job_for(case, source, folder, peer.factor, peer.variant, peer.fault)
    if not os.path.exists(source):
        os.makedirs(os.path.dirname(source), exist_ok=True)
        data("make", source, job, peer.zarr_format)
    return job


def tiny_job(case: Case, peer: Entry, folder: str, options: argparse.Namespace) -> Job:
    """Return a job of the same kind to warm up with, which no fault befalls."""
    return job_of(case.tiny(), replace(peer, fault=""), os.path.join(folder, "tiny"), options)


def data(verb: str, store: str, job: Job, *more: int) -> str:
    """Ask `data.py` in a process of its own, forked from one that has imported everything, and return the answer."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["zarr", "oocarrays"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(theirs, verb, store, job, *more))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return f"could not {verb} the array"
    finally:
        process.join()
