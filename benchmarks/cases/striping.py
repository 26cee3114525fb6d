"""Striping: files and arrays over several disks.

`striping`: simulated disks of 20 ms a block; MB/s of one long write, and that ÷ what exact mean value analysis
predicts. `striping-paper`: the best of Wang and Leiss, 4.53 (read) and 11.84 (write) times one disk, with their times.
`striped-array` is 256 MiB of float32 on simulated disks of 100 MB/s, `striped-folders` the same on one device.
"""

from __future__ import annotations

from case import MIB, Case, way

COMMON = {"measure": "own", "cache": ("warm",), "memory": 256 * MIB}


def on(disks: int, run: str, **given):
    """Return a way over some disks."""
    return way(f"{disks} disk" + "s" * (disks > 1), f"peers.striped:{run}", disks=disks, **given)


CASES = (
    Case(
        name="striping",
        question="Speed over 1 to 8 simulated disks, beside a model",
        params={"items": 40},
        tiny={"items": 2},
        ways=tuple(on(disks, "transfers") for disks in (1, 2, 4, 8)),
        short=True,
        **COMMON,
    ),
    Case(
        name="striping-paper",
        question="8 simulated disks beside one, with the times of Wang and Leiss",
        params={"items": 64},
        tiny={"items": 2},
        ways=(way("ours", "peers.striped:paper"),),
        **COMMON,
    ),
    Case(
        name="striped-array",
        question="256 MiB on 1 to 4 simulated disks of 100 MB/s",
        params={"edge": 8192, "slow": True},
        tiny={"edge": 64},
        ways=tuple(on(disks, "arrays") for disks in (1, 2, 4)),
        short=True,
        **COMMON,
    ),
    Case(
        name="striped-folders",
        question="256 MiB in 1 and 4 folders of one device",
        params={"edge": 8192, "slow": False},
        tiny={"edge": 64},
        ways=tuple(on(disks, "arrays") for disks in (1, 4)),
        **COMMON,
    ),
)
