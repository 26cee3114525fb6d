"""One all-to-all between worker processes: ours by each schedule, an unordered graph, Dask's p2p and tasks, in turn.

    python benchmarks/exchange.py --rounds 3
    python benchmarks/exchange.py --workers 4 --size 1GiB --peers pex,gen,rex,unordered,p2p,tasks --json out.json
    python benchmarks/exchange.py predict --rounds 3

An array that the workers hold in row slabs, one each, becomes column slabs, one each. Every run has a fresh cluster of
single-thread workers without limits that have done the same once before; only the move is timed; every element is
checked afterwards. `unordered` is what a person would write without schedules: each slab sliced on its
worker, slices concatenated on theirs, all at once. `no-order` is ours without waiting: every message goes as soon as it
is packed. `pex/synchronous` unpacks when all messages have come, the others each as it comes.

`predict` sets the predicted time beside the clock's for several schedules, sizes and numbers of workers, after what
`oocarrays calibrate --scheduler` does on each number of workers.

Memory is what a worker has resident, not backed by files, above what it had before the move. The queue of a worker is
the messages that it has asked for, or is about to ask for, and does not have yet; Dask's p2p has a way of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time

import machine
from cases import MIB
from dask.utils import parse_bytes
from exchange_report import predictions, table
from processes import Session

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEDULES = ("lex", "pex", "rex", "bex", "pex-gen", "pex-gen-shift", "gen", "ipex")
PEERS = (*SCHEDULES, "pex/synchronous", "no-order", "unordered", "p2p", "tasks")
TRIALS = tuple(
    (peer, workers, nbytes * MIB)
    for workers, peers in ((2, ("pex", "gen", "rex")), (3, ("gen", "lex", "pex-gen")), (4, SCHEDULES), (8, SCHEDULES))
    for nbytes in (16, 128, 512)
    for peer in peers
)
"""Peer, workers, bytes of the array: what `predict` tries."""
SAMPLE = 0.005
"""Seconds between two looks at memory."""


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    facts = machine.facts(None)
    print(facts, flush=True)
    if options.what == "predict":
        found = _predicted(options)
        print("", predictions(found), sep="\n")
    else:
        found = [_round(number, options) for number in range(options.rounds)]
        print("", table(found, options.workers, parse_bytes(options.size)), sep="\n")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"machine": facts, "found": found}, file, indent=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("what", nargs="?", choices=("race", "predict"), default="race")
    add("--workers", type=int, default=4)
    add("--size", default="1GiB", help="bytes of the array (default: %(default)s)")
    add("--peers", type=lambda text: text.split(","), default=list(PEERS), help=f"default: {','.join(PEERS)}")
    add("--rounds", type=int, default=3)
    add("--json", metavar="OUT", help="write every run to this file")
    add("--scale", type=int, default=1, metavar="N", help="divide the bytes by N squared")
    add("--timeout", type=float, default=180, help="seconds for one run (default: %(default)s)")
    add("--pause", type=float, default=1, help="seconds between runs; 0 waits for no other process (default: 1)")
    return parser


def _round(number: int, options: argparse.Namespace) -> dict[str, dict]:
    """Every peer once; each round begins with another."""
    nbytes = parse_bytes(options.size)
    first = number % len(options.peers)
    peers = options.peers[first:] + options.peers[:first]
    return {peer: _run({"peers": [peer], "workers": options.workers, "sizes": [nbytes]}, options)[0] for peer in peers}


def _predicted(options: argparse.Namespace) -> list[list[dict]]:
    """Every trial, once a round: those of one number of workers on one cluster, which is measured first."""
    rounds = []
    for _ in range(options.rounds):
        rounds.append([])
        for workers in dict.fromkeys(trial[1] for trial in TRIALS):
            mine = [trial for trial in TRIALS if trial[1] == workers]
            asked = {"peers": [t[0] for t in mine], "workers": workers, "sizes": [t[2] for t in mine]}
            rounds[-1] += _run({**asked, "calibrate": True}, options)
    return rounds


def _run(asked: dict, options: argparse.Namespace) -> list[dict]:
    """Some moves in a fresh process with a fresh cluster, watched."""
    if options.pause:
        time.sleep(options.pause)
        machine.wait_for_rest()
    asked["sizes"] = [nbytes // options.scale**2 for nbytes in asked["sizes"]]
    command = [sys.executable, os.path.join(HERE, "exchange_child.py"), json.dumps(asked)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True)
    session = Session(child.pid)
    try:
        return [_watched(child, session, peer, options.timeout) for peer in asked["peers"]]
    finally:
        child.communicate()


def _watched(child: subprocess.Popen, session: Session, peer: str, timeout: float) -> dict:
    """One move: memory is looked at until it is done, and not while it is checked."""
    ready = child.stdout.readline()
    if not ready:
        raise SystemExit(f"{peer}: the process ended before it was ready")
    session.look()
    session.first.clear()
    session.peaks.clear()
    session.memory()
    child.stdin.write("go\n")
    child.stdin.flush()
    deadline = time.monotonic() + timeout
    while not select.select([child.stdout], [], [], SAMPLE)[0]:
        session.memory()
        if time.monotonic() > deadline:
            child.kill()
            return {"verdict": f"killed after {timeout:.0f} s"}
    answer = json.loads(child.stdout.readline())
    answer |= json.loads(child.stdout.readline() or '{"verdict": "failed"}')
    answer["peak"] = max(session.peaks[pid][1] - session.first[pid] for pid in json.loads(ready)["pids"])
    print(f"{peer}: {answer['seconds']:.2f} s, {answer['verdict']}", file=sys.stderr)
    return answer


if __name__ == "__main__":
    main()
