"""Predictions: seconds and memory of plans beside those measured.

After `oocarrays calibrate`, cold; each row is a problem of its own, in its own memory.
"""

from __future__ import annotations

from case import GIB, MIB, Case, Way, data, way

SHAPES = {
    "rows to columns": ((16384, 16384), (256, 16384), (16384, 256)),
    "maps to series": ((720, 361, 720), (1, 361, 720), (720, 20, 20)),
    "squares to columns": ((16384, 16384), (1024, 1024), (4096, 256)),
    "cubes to planes": ((1024, 512, 512), (64, 64, 64), (512, 512, 1)),
}
"""Name: shape, source chunks, target chunks."""
PROBLEMS = (
    *((name, codec, budget) for name in SHAPES for codec, budget in (("none", 1024), ("zstd", 256), ("blosc", 64))),
    ("rows to columns", "none", 64),
    ("rows to columns", "zstd", 1024),
    ("maps to series", "none", 256),
)


def problem(name: str, codec: str, budget: int) -> Way:
    """Return a way of ours that solves one problem."""
    label = f"{name} {codec} {budget} MiB"
    memory = budget * MIB / GIB
    return way(label, "peers.ours:rechunk", source=f"{name}, {codec}", memory=memory, target_chunks=SHAPES[name][2])


CASES = (
    Case(
        name="prediction",
        question="Predicted and measured seconds of rechunks of 0.7 to 1 GiB",
        data={
            f"{name}, {codec}": data("data:field", shape=shape, chunks=chunks, codec=codec)
            for name, (shape, chunks, _) in SHAPES.items()
            for codec in ("none", "zstd", "blosc")
        },
        tiny={"shape": (8, 8, 8), "chunks": (4, 8, 8), "target_chunks": (8, 8, 4)},
        ways=tuple(problem(*each) for each in PROBLEMS),
        check="data:rechunked",
        around="peers.calibrated:calibrated",
        measure="each",
    ),
)
