"""Draw the README's picture: chunks before and after, the memory of a real run, and times of the newest benchmarks.

    python examples/guide/picture.py

A test compares the picture's result with the newest one.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import oocarrays as ooc

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
CASE = "rechunk-1g"
BUDGET = 256
"""MiB of the run."""
NAMES = {"limit": "limit of the disk", "zarr by hand": "a loop over zarr", "ours": "oocarrays"}


def held() -> float:
    """Return the MiB of this process that no file backs."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(line[1]) for line in lines if line[0] in ("RssAnon:", "RssShmem:")) / 1024


def watched(run) -> tuple[list[float], list[float]]:
    """Call ``run``; return seconds, and MiB above the level before."""
    idle, begun, samples, ended = held(), time.perf_counter(), [(0.0, 0.0)], threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            samples.append((time.perf_counter() - begun, max(held() - idle, 0)))

    thread = threading.Thread(target=look)
    thread.start()
    run()
    ended.set()
    thread.join()
    return tuple(zip(*samples, strict=True))


def measured(case: str) -> tuple[str, dict[str, float]]:
    """Return the commit of a case's newest result, and seconds by library; of killed ones infinity."""
    found = json.loads(max(RESULTS.glob(f"????-??/{case}.json")).read_text())
    runs = [pair for each in found["rounds"] for pair in each["runs"].items()]
    took = {
        name: [run["seconds"] for other, run in runs if other == name and run["verdict"] == "ok"] for name, _ in runs
    }
    return found["commit"], {NAMES.get(name, name): median(each or [float("inf")]) for name, each in took.items()}


def draw(picture: Path, edge: int = 16384) -> None:
    """Rechunk an array of `edge` × `edge` elements of four bytes, and draw the picture."""
    from matplotlib.figure import Figure

    with tempfile.TemporaryDirectory() as folder:
        stored = ooc.Target(f"{folder}/rows", chunks=(edge // 64, -1), compressors="none")
        rows = ooc.create_array(stored, shape=(edge, edge), dtype="f4")
        rows[...] = 1
        job = ooc.rechunk(rows, f"{folder}/columns", chunks=(-1, edge // 64), memory=f"{BUDGET}MiB")
        seconds, mib = watched(job.run)
    print(f"at most {max(mib):.0f} MiB above idle of {BUDGET} MiB, {seconds[-1]:.2f} s")
    figure = Figure(figsize=(11, 2.8), layout="constrained", facecolor="white")
    before, after, memory, times = figure.subplots(1, 4, width_ratios=(1, 1, 2, 2.4))
    for axes, title, chunks in (
        (before, "chunks before …", [[n] for n in range(8)]),
        (after, "… and after", [range(8)]),
    ):
        axes.pcolormesh(chunks, cmap="viridis", edgecolors="white", linewidth=2)
        axes.set(xticks=[], yticks=[], title=title)
    memory.fill_between(seconds, mib, color="#56B4E9")
    memory.axhline(BUDGET, color="#D55E00")
    memory.text(0, BUDGET, f" budget: {BUDGET} MiB", color="#D55E00", va="bottom")
    title = f"memory while {edge * edge // 2**18} MiB are rewritten"
    memory.set(title=title, xlabel="seconds", ylabel="MiB", xlim=(0, seconds[-1]), ylim=(0, 1.25 * BUDGET))
    commit, took = measured(CASE)
    for place, (name, each) in enumerate(sorted(took.items(), key=lambda item: item[1])):
        times.barh(place, each if each < 1e9 else 0, color="#0072B2" if name == "oocarrays" else "#BBBBBB")
        times.text(each if each < 1e9 else 0, place, f" {each:.1f} s" if each < 1e9 else " killed", va="center")
    times.set(
        title="seconds for 1 GiB, in 1 GiB of memory", yticks=range(len(took)), xticks=[], ylim=(len(took) - 0.5, -0.5)
    )
    times.set_yticklabels(sorted(took, key=took.get))
    times.margins(x=0.2)
    for axes in (memory, times):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=150, metadata={"Source": f"{CASE} of commit {commit}", "Software": None})


if __name__ == "__main__":
    draw(HERE / "readme_picture.png")
