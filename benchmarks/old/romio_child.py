"""Requests of several processes on a raw file, by ROMIO: one program of `collective.py romio`, started by mpiexec.

    mpiexec -n 4 python romio_child.py JSON

Its environment has mpi4py, mpich and numpy. The file is an array in C order of any number of axes; each rank asks for
a range along each. A line of JSON for each time: seconds of the slowest rank, from a barrier on. What was read is
checked against the file as it is mapped into memory.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

HINTS = {
    "collective": {},
    "collective, an aggregator a rank": {"cb_nodes": "{ranks}", "cb_config_list": "*:{ranks}"},
    "collective, and 64 MiB a round": {
        "cb_nodes": "{ranks}",
        "cb_config_list": "*:{ranks}",
        "cb_buffer_size": str(2**26),
    },
    "independent": {},
    "independent, without sieving": {"romio_ds_read": "disable"},
}
"""What ROMIO is told, by the way of reading. Of itself it takes one aggregator a machine, and 16 MiB a round."""


def main(line: str) -> None:
    """Every way once; those on a warm file once before, unmeasured."""
    asked = json.loads(line)
    comm = MPI.COMM_WORLD
    dims, ranges = tuple(asked["dims"]), [range(*axis) for axis in asked["requests"][comm.rank]]
    view, start = file_view(dims, ranges)
    wanted = np.memmap(asked["file"], np.float32, "r", shape=dims)[
        tuple(slice(r.start, r.stop, r.step) for r in ranges)
    ]
    data = np.zeros(math.prod(map(len, ranges)), np.float32)
    for way in HINTS:
        if asked["drop"]:
            _made_cold(comm, asked["drop"])
        else:
            timed(comm, asked["file"], way, view, start, data)
        seconds = timed(comm, asked["file"], way, view, start, data)
        same = comm.allreduce(bool(np.array_equal(data, wanted.ravel())), MPI.LAND)
        if comm.rank == 0:
            print(json.dumps({"way": way, "seconds": seconds, "verdict": "ok" if same else "wrong"}), flush=True)
    view.Free()


def timed(comm: MPI.Comm, name: str, way: str, view: MPI.Datatype, start: int, data: np.ndarray) -> float:
    """Seconds from a barrier until the slowest rank has what it wants: the file is opened, viewed, read and closed."""
    hints = {name: value.format(ranks=comm.size) for name, value in HINTS[way].items()}
    info = MPI.Info.Create(hints)
    data[...] = 0  # memory that was never used is slow to come
    comm.Barrier()
    begin = MPI.Wtime()
    file = MPI.File.Open(comm, name, MPI.MODE_RDONLY, info)
    file.Set_view(start, MPI.FLOAT, view, "native")
    (file.Read_all if way.startswith("collective") else file.Read)(data)
    file.Close()
    seconds = MPI.Wtime() - begin
    info.Free()
    return comm.allreduce(seconds, MPI.MAX)


def file_view(dims: Sequence[int], ranges: Sequence[range]) -> tuple[MPI.Datatype, int]:
    """Return a rank's view of the file: its type, and the byte at which it begins.

    A box is a subarray; where there are strides it is a vector of vectors, an axis each.
    """
    if all(axis.step == 1 for axis in ranges):
        kind = MPI.FLOAT.Create_subarray(dims, [len(axis) for axis in ranges], [axis.start for axis in ranges])
        return kind.Commit(), 0
    kind, step, start = MPI.FLOAT, MPI.FLOAT.Get_size(), 0
    for extent, axis in zip(reversed(dims), reversed(ranges), strict=True):
        kind = kind.Create_hvector(len(axis), 1, axis.step * step)
        start += axis.start * step
        step *= extent
    return kind.Commit(), start


def _made_cold(comm: MPI.Comm, drop: str) -> None:
    if comm.rank == 0:
        with open(drop, "w") as file:
            file.write("3")
    comm.Barrier()


if __name__ == "__main__":
    main(sys.argv[1])
