"""The questions of `slabs.py` that peers answer: which array, what is computed of it, and what comes out.

An array is smooth or noisy. What is right is computed once, apart from the peers: OpenCV's median of the whole image
(scipy's, where there is no OpenCV), numpy's sweeps of the whole grid.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

import numpy as np
import slab_kernels
import zarr
from cases import MIB, cores
from data import codecs

LAYOUTS = {"rows": (128, 8192), "tall": (1024, 8192), "tiles": (2048, 2048), "squares": (1024, 1024)}
"""Chunk shapes of arrays of 8192², from which each peer has what serves it best."""
EDGE = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case: an operation, on an array of some size, within some memory."""

    operation: str
    """`median`, `jacobi`, or `poisson`: sweeps with a right-hand side and a mask of land beside them."""
    times: int
    """The window's edge, in elements, or how many sweeps."""
    dtype: str
    """Of the elements, as numpy writes it."""
    kind: str
    """`smooth` or `noisy`."""
    edge: int = EDGE
    """Rows, and columns, in elements."""
    codec: str = "none"
    """`none`, `zstd` or `blosc`, of source and target alike."""
    memory: int = 256 * MIB
    """What ours may hold, in bytes; to the others nothing is said of it."""

    @property
    def name(self) -> str:
        """Such as `median 3 × 3, float32, noisy`."""
        what = f"{self.times} × {self.times}" if self.operation == "median" else f"{self.times} sweeps"
        return f"{self.operation} {what}, {np.dtype(self.dtype)}, {self.kind}"

    @property
    def nbytes(self) -> int:
        """Bytes of the array, decoded."""
        return self.edge**2 * np.dtype(self.dtype).itemsize

    def chunks(self, layout: str) -> tuple[int, ...]:
        """Return a layout's chunk shape: of a smaller array as small a part as it is of one of 8192²."""
        return tuple(max(length * min(self.edge, EDGE) // EDGE, 1) for length in LAYOUTS[layout])

    def tiny(self) -> Case:
        """One of the same kind, small enough to warm a process up with."""
        return replace(self, edge=64, times=min(self.times, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case at one place on disk: all that a peer is told."""

    case: Case
    """What is asked."""
    source: str
    """Path of the source array."""
    target: str
    """Path of the array to make; nothing is there yet."""
    scratch: str
    """Folder for intermediate stores, empty."""
    chunks: tuple[int, ...]
    """Chunk shape of source and target, in elements."""
    variant: str
    """Way of working that the peer knows by this name."""
    memory: int
    """What ours may hold, in bytes; 0 sets the workers of a cluster no limit."""
    cores: int
    """Cores that the run may use."""
    workers: int = 0
    """Worker processes of a peer that has a cluster; 0 for as many as cores."""

    def to_json(self) -> str:
        """Return the job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Job:
        """Return the job that `to_json` wrote: from_json(job.to_json()) = job."""
        fields = json.loads(line)
        return cls(**fields | {"case": Case(**fields["case"]), "chunks": tuple(fields["chunks"])})


def job_for(case: Case, layout: str, sources: str, folder: str, variant: str) -> Job:
    """Return a case from a source that is made where it is not there yet, into ``folder``/target."""
    chunks = case.chunks(layout)
    return Job(
        case=case,
        source=source(case, chunks, sources),
        target=os.path.join(folder, "target"),
        scratch=os.path.join(folder, "scratch"),
        chunks=chunks,
        variant=variant,
        memory=case.memory,
        cores=cores(),
    )


# ---------------------------------------------------------------------- data, and what is right


def values(case: Case) -> np.ndarray:
    """Return the array: waves, or one random number an element; of integers all that there are."""
    shape, dtype = (case.edge,) * 2, np.dtype(case.dtype)
    if case.kind == "noisy":
        random = np.random.default_rng(case.edge)
        return random.integers(0, 256, shape, dtype) if dtype.kind == "u" else random.random(shape, dtype)
    along = np.sin(np.arange(case.edge, dtype="f4") / 97)
    return (127 + 120 * np.multiply.outer(along, along[::-1])).astype(dtype)


def source(case: Case, chunks: tuple[int, ...], folder: str) -> str:
    """Return the path of the array in some chunks."""
    cut = "x".join(map(str, chunks))
    store = os.path.join(folder, f"{case.kind}-{case.edge}-{np.dtype(case.dtype)}-{cut}-{case.codec}.zarr")
    if not os.path.exists(store):
        unfinished = store + ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        create(unfinished, case, chunks)[...] = values(case)
        os.rename(unfinished, store)
    return store


def beside(job: Job) -> list[str]:
    """Return the paths of the right-hand side and the mask of a case that has them, beside its source."""
    if job.case.operation != "poisson":
        return []
    paths = []
    for name, made in (("right", right_side), ("land", land)):
        store = job.source.removesuffix(".zarr") + f"-{name}.zarr"
        if not os.path.exists(store):
            data = made(job.case)
            unfinished = store + ".unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            coded = codecs(job.case.codec, 3)
            zarr.create_array(unfinished, data=data, chunks=job.chunks, compressors=coded)
            os.rename(unfinished, store)
        paths.append(store)
    return paths


def right_side(case: Case) -> np.ndarray:
    """Return a vorticity of waves."""
    along = np.sin(np.arange(case.edge) / 211)
    return np.multiply.outer(along, along[::-1]).astype(case.dtype)


def land(case: Case) -> np.ndarray:
    """Return a mask of islands: a tenth of all."""
    along = np.sin(np.arange(case.edge, dtype="f4") / 301)
    return np.multiply.outer(along, along) > 0.72


def create(store, case: Case, chunks: tuple[int, ...], **how) -> zarr.Array:
    """Return an empty array of the case."""
    shape, coded = (case.edge,) * 2, codecs(case.codec, 3)
    return zarr.create_array(store, shape=shape, chunks=chunks, dtype=case.dtype, compressors=coded, **how)


def expected(case: Case, folder: str) -> str:
    """Return the path of what is right, in numpy's format."""
    path = os.path.join(folder, f"{case.name}-{case.edge}.npy".replace(" ", "_"))
    if not os.path.exists(path):
        data = values(case)
        median = case.operation == "median"
        if case.operation == "poisson":
            right = slab_kernels.solved(data, right_side(case), land(case), case.times)
        else:
            right = slab_kernels.medians(data, case.times) if median else slab_kernels.swept(data, case.times)
        with open(path + ".unfinished", "wb") as file:
            np.save(file, right)
        os.rename(path + ".unfinished", path)
    return path


def verdict(job: Job, right: str) -> str:
    """`ok`, or what is wrong with the target: layout first, then every element."""
    case, array, wanted = job.case, zarr.open_array(job.target, mode="r"), np.load(right, mmap_mode="r")
    if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
        return f"WRONG LAYOUT {array.shape} {array.dtype}"
    rows = max(64 * MIB // math.prod((case.edge, array.dtype.itemsize)) // array.chunks[0], 1) * array.chunks[0]
    with ThreadPoolExecutor(cores()) as pool:
        starts = range(0, case.edge, rows)
        same = pool.map(lambda low: np.array_equal(array[low : low + rows], wanted[low : low + rows]), starts)
        return "ok" if all(same) else "WRONG VALUES"
