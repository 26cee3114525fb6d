"""The field that cases read, computable from its index, and the check of what ways made of it.

A smooth field that falls into small steps, plus noise of a few bits, as a measured field has: zstd and blosc then find
some redundancy and not all. Any section is computed from its indices alone, so that source and check need no copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from math import prod

import numpy as np
import zarr
from case import ITEM, MIB, Job, cores

NOISE_BITS = 8
"""Bits of noise in one element."""
STEP = np.float32(2.0**-5)
"""One step of the quantised field."""
BLOCK_BYTES = 64 * MIB
"""Most bytes of one block while making and checking; every thread holds one."""
CACHED = 2**18
"""Elements computed at a time, so that the passes over them stay in a core's cache."""


def values(section: tuple[slice, ...]) -> np.ndarray:
    """Return the field's elements in `section`, float32: shape = extents of the section, which may have strides."""
    taken = [range(part.start, part.stop, part.step or 1) for part in section]
    result = np.empty(list(map(len, taken)), np.float32)
    rows = max(1, CACHED // max(1, prod(result.shape[1:])))
    for low in range(0, len(taken[0]), rows):
        _fill(result[low : low + rows], (taken[0][low : low + rows], *taken[1:]))
    return result


def _fill(out: np.ndarray, section: tuple[range, ...]) -> None:
    """Write the elements of `section` to `out`: a sum of waves, one an axis, plus hashed noise."""
    noise, field = np.uint32(0), np.int32(0)
    for axis, part in enumerate(section):
        index = np.arange(part.start, part.stop, part.step).reshape(
            [-1 if a == axis else 1 for a in range(len(section))]
        )
        noise = noise ^ (index.astype(np.uint32) * np.uint32(2654435761) + np.uint32(axis * 97)) * np.uint32(
            40503 + 2 * axis
        )
        field = field + np.rint(600 * np.sin(index / (311.0 + 40 * axis))).astype(np.int32)
    noise *= np.uint32(2246822519)
    noise >>= np.uint32(32 - NOISE_BITS)
    field += noise.view(np.int32)
    np.multiply(field, STEP, out=out, casting="unsafe")


def blocks(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Sections of whole chunks, each at most BLOCK_BYTES where chunks allow, that cover `shape` once."""
    edges = list(chunks)
    for axis in reversed(range(len(shape))):
        room = max(1, BLOCK_BYTES // (prod(edges) * ITEM))
        edges[axis] = min(shape[axis], edges[axis] * room)
    starts = product(*(range(0, extent, edge) for extent, edge in zip(shape, edges, strict=True)))
    for start in starts:
        yield tuple(slice(s, min(s + e, n)) for s, e, n in zip(start, edges, shape, strict=True))


def shards(chunks: tuple[int, ...], per_shard: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shard shape in elements: chunks × chunks of one shard; None where chunks stand alone."""
    return tuple(c * n for c, n in zip(chunks, per_shard, strict=True)) if per_shard else None


def codecs(codec: str, zarr_format: int = 3, itemsize: int = ITEM):
    """Return what zarr-python calls `compressors` for one of our codec names."""
    if codec == "none":
        return None
    if zarr_format == 2:
        import numcodecs

        return {"zstd": numcodecs.Zstd(level=0), "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE)}[codec]
    from zarr.codecs import BloscCodec, ZstdCodec

    return {"zstd": ZstdCodec(), "blosc": BloscCodec(typesize=itemsize, cname="lz4", shuffle="shuffle")}[codec]


def create(store, shape, chunks, codec: str = "none", zarr_format: int = 3, per_shard=()) -> zarr.Array:
    """Return an empty float32 array."""
    return zarr.create_array(
        store,
        shape=shape,
        chunks=chunks,
        shards=shards(chunks, per_shard),
        dtype="float32",
        compressors=codecs(codec, zarr_format),
        zarr_format=zarr_format,
        fill_value=0,
    )


def target(job: Job, store=None) -> zarr.Array:
    """Return the empty array that a job asks for."""
    return create(store or job.target, job.shape, job.target_chunks, job.codec)


def field(store, shape, chunks, codec: str = "none", zarr_format: int = 3, per_shard=()) -> None:
    """Write the field."""
    array = create(store, tuple(shape), tuple(chunks), codec, zarr_format, per_shard)
    with ThreadPoolExecutor(cores()) as pool:
        whole = blocks(array.shape, array.shards or array.chunks)
        list(pool.map(lambda section: array.__setitem__(section, values(section)), whole))


def rechunked(job: Job, store=None) -> str:
    """`ok`, or what is wrong with a target that holds the field in other chunks: layout first, then every element."""
    array = zarr.open_array(store or job.target, mode="r")
    asked = (job.shape, job.target_chunks, shards(job.target_chunks, job.params.get("target_per_shard", ())))
    if (array.shape, array.chunks, array.shards) != asked or array.dtype != np.float32:
        return f"WRONG LAYOUT {array.shape} {array.chunks} {array.shards} {array.dtype}"
    coded = codecs(job.codec, array.metadata.zarr_format)
    if [type(each) for each in array.compressors] != ([] if coded is None else [type(coded)]):
        return f"WRONG CODEC {array.compressors}"
    with ThreadPoolExecutor(cores()) as pool:
        same = pool.map(lambda s: np.array_equal(array[s], values(s)), blocks(job.shape, job.target_chunks))
        return "ok" if all(same) else "WRONG VALUES"
