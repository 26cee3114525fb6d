"""The cases: which array, from which chunks into which, in how much memory.

A case says what is asked; a job is one case at one place on disk, as a peer receives it. Only the standard
library is imported here, for a peer may live in an environment of its own.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from math import prod

MIB = 2**20
GIB = 2**30
ITEM = 4
"""Bytes in one element: every array here is float32."""

LEAST_SCALED_MEMORY = 512 * MIB
"""Bytes: a scaled case keeps this much, for peers hold buffers that do not shrink with the array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question of the benchmark."""

    name: str
    """What a person types."""
    shape: tuple[int, ...]
    """Extents, in elements."""
    source_chunks: tuple[int, ...]
    """Chunk shape of the source, in elements."""
    target_chunks: tuple[int, ...]
    """Chunk shape asked for, in elements."""
    source_per_shard: tuple[int, ...] = ()
    """Chunks of one shard of the source in each axis; none where chunks stand alone."""
    target_per_shard: tuple[int, ...] = ()
    """The same of the target."""
    codec: str = "none"
    """`none`, `zstd` (Zarr's default) or `blosc` (lz4 and shuffle), of source and target alike."""
    memory: int = GIB
    """Budget, in bytes; workers share it evenly, and 0 sets them no limit."""
    workers: int = 0
    """Worker processes; 0 where nothing is said of them."""

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded array = product of the extents × item size."""
        return prod(self.shape) * ITEM

    def scaled(self, factor: int) -> Case:
        """Return the same case with every extent and chunk edge divided by `factor`: shape = ⌈shape / factor⌉.

        Workers keep their memory: what they hold when idle does not shrink.
        """
        if factor == 1:
            return self
        shrink = _shrinker(factor)
        memory = max(self.memory // factor ** len(self.shape), LEAST_SCALED_MEMORY)
        return replace(
            self,
            shape=shrink(self.shape),
            source_chunks=shrink(self.source_chunks),
            target_chunks=shrink(self.target_chunks),
            memory=self.memory if self.workers else memory,
        )

    def tiny(self) -> Case:
        """Return a case of the same kind, small enough to warm a process up with."""
        return replace(
            self,
            shape=(8,) * len(self.shape),
            source_chunks=(4,) + (8,) * (len(self.shape) - 1),
            target_chunks=(8,) * (len(self.shape) - 1) + (4,),
        )


def _shrinker(factor: int):
    return lambda lengths: tuple(max(1, -(-length // factor)) for length in lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case at one place on disk: all that a peer is told."""

    source: str
    """Path of the source array."""
    target: str
    """Path of the array to make; nothing is there yet."""
    scratch: str
    """Folder for intermediate stores, empty."""
    shape: tuple[int, ...]
    """Extents, in elements."""
    source_chunks: tuple[int, ...]
    """Chunk shape of the source, in elements."""
    target_chunks: tuple[int, ...]
    """Chunk shape of the target, in elements."""
    codec: str
    """Codec of source and target."""
    source_per_shard: tuple[int, ...]
    """Chunks of one shard of the source in each axis; none where chunks stand alone."""
    target_per_shard: tuple[int, ...]
    """The same of the target."""
    memory: int
    """Budget, in bytes."""
    cores: int
    """Cores that the run may use."""
    variant: str = ""
    """Way of working that the peer knows by this name; empty is its best."""
    workers: int = 0
    """Worker processes of a peer that has a cluster; 0 for as many as cores."""
    fault: str = ""
    """What befalls the run: `kill-50` or `resume-50`, with the percentage that is written by then; empty is nothing."""

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded array = product of the extents × item size."""
        return prod(self.shape) * ITEM

    @property
    def fault_share(self) -> float:
        """Share of the target that is written when the fault comes."""
        return int(self.fault.rpartition("-")[2]) / 100

    def written(self) -> float:
        """Share of the target's chunks that are there, by the files of a Zarr 3 store."""
        chunks = prod(-(-extent // edge) for extent, edge in zip(self.shape, self.target_chunks, strict=True))
        files = (name for _, _, names in os.walk(os.path.join(self.target, "c")) for name in names)
        return sum(name.isdigit() for name in files) / chunks

    def to_json(self) -> str:
        """Return the job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Job:
        """Return the job that `to_json` wrote: from_json(job.to_json()) = job."""
        fields = json.loads(line)
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})


def job_for(case: Case, source: str, folder: str, factor: float = 1, variant: str = "", fault: str = "") -> Job:
    """`case` from `source` into `folder`/target, in `factor` times the case's memory."""
    return Job(
        source=source,
        target=os.path.join(folder, "target"),
        scratch=os.path.join(folder, "scratch"),
        shape=case.shape,
        source_chunks=case.source_chunks,
        target_chunks=case.target_chunks,
        codec=case.codec,
        source_per_shard=case.source_per_shard,
        target_per_shard=case.target_per_shard,
        memory=int(case.memory * factor),
        cores=cores(),
        variant=variant,
        workers=case.workers,
        fault=fault,
    )


def shards(chunks: tuple[int, ...], per_shard: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shard shape in elements: chunks × chunks of one shard; None where chunks stand alone."""
    return tuple(c * n for c, n in zip(chunks, per_shard, strict=True)) if per_shard else None


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def parse_bytes(text: str) -> int:
    """Bytes in a size such as `512MiB` or `1GiB`; a bare number is bytes."""
    match = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]i?)?B?\s*", text)
    if not match:
        raise ValueError(f"cannot read {text!r} as a size; write it as 512MiB or 2GiB")
    prefix = match[2] or ""
    power = " KMGT".index(prefix[:1] or " ")
    return int(float(match[1]) * (1024 if prefix.endswith("i") else 1000) ** power)


ONE_GIB = Case(name="1g", shape=(16384, 16384), source_chunks=(256, 16384), target_chunks=(16384, 256))
FOUR_GIB = Case(name="4g-1g", shape=(32768, 32768), source_chunks=(256, 32768), target_chunks=(32768, 256))
MAPS = Case(
    name="3d",
    shape=(720, 721, 1440),
    source_chunks=(1, 721, 1440),
    target_chunks=(720, 20, 20),
    memory=2 * GIB,
)
SQUARES = Case(name="squares", shape=(32768, 32768), source_chunks=(1024, 1024), target_chunks=(4096, 256))
CUBES = Case(name="cubes", shape=(1024, 1024, 1024), source_chunks=(64, 64, 64), target_chunks=(512, 512, 1))

CASES = {
    case.name: case
    for case in (
        ONE_GIB,
        replace(ONE_GIB, name="1g-zstd", codec="zstd"),
        replace(ONE_GIB, name="1g-blosc", codec="blosc"),
        FOUR_GIB,
        replace(FOUR_GIB, name="4g-512m", memory=512 * MIB),
        replace(FOUR_GIB, name="4g-1g-zstd", codec="zstd"),
        replace(FOUR_GIB, name="4g-512m-zstd", codec="zstd", memory=512 * MIB),
        *(
            replace(case, name=f"{name}-{size}m{codec and '-'}{codec}", memory=size * MIB, codec=codec or "none")
            for name, case in (("1g", ONE_GIB), ("4g", FOUR_GIB))
            for codec in ("", "zstd", "blosc")
            for size in (256, 128)
        ),
        MAPS,
        *(
            replace(MAPS, name=f"3d-256m{codec and '-'}{codec}", memory=256 * MIB, codec=codec or "none")
            for codec in ("", "zstd", "blosc")
        ),
        *(replace(SQUARES, name=f"squares-{size}m", memory=size * MIB) for size in (1024, 128)),
        *(
            replace(
                SQUARES,
                name=f"columns-{size}m",
                source_chunks=(4096, 256),
                target_chunks=(1024, 1024),
                memory=size * MIB,
            )
            for size in (1024, 128)
        ),
        *(replace(CUBES, name=f"cubes-{size}m", memory=size * MIB) for size in (1024, 128)),
        replace(MAPS, name="3d-zstd", codec="zstd"),
    )
}
"""Every measured case by name; `plan` is apart, for it moves no byte."""
