"""How the chunks of one array are coded, and the shortest way through it.

plain       the elements in C order, in this machine's byte order: no codec at all
numcodecs   one compressor over plain bytes: numcodecs decodes straight into our buffer
zarrs       anything else that the optional `zarrs` pipeline takes, in local files
zarr        the rest, through zarr-python
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ZstdCodec

from oocarrays.errors import CorruptChunkError

Pipeline = Literal["plain", "numcodecs", "zarrs", "zarr"]
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
DECODE_IN_PLACE = ("zstd", "blosc")
"""Codecs that decode into a buffer of ours, and need none of their own."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def is_plain(array: zarr.Array) -> bool:
    """Whether a chunk of ``array`` is its elements in C order, in this machine's byte order."""
    codecs = _codecs(array)
    return len(codecs) == 1 and _native_bytes(codecs[0], array.dtype)


def _codecs(array: zarr.Array) -> tuple[Any, ...]:
    metadata: Any = array.metadata
    return tuple(metadata.codecs)


def _native_bytes(codec: Any, dtype: np.dtype) -> bool:
    if not isinstance(codec, BytesCodec):
        return False
    endian = getattr(codec.endian, "value", codec.endian)
    return dtype.itemsize == 1 or dtype.kind in "SV" or endian in (None, sys.byteorder)


def compressor_of(array: zarr.Array) -> numcodecs.abc.Codec | None:
    """The numcodecs codec that makes a stored chunk of plain bytes, or None where the chain is another."""
    codecs = _codecs(array)
    if len(codecs) != 2 or not _native_bytes(codecs[0], array.dtype):
        return None
    codec = codecs[1]
    settings: Any = codec.to_dict().get("configuration", {})
    if isinstance(codec, ZstdCodec):
        return numcodecs.Zstd(level=settings["level"], checksum=settings["checksum"])
    if isinstance(codec, GzipCodec):
        return numcodecs.GZip(level=settings["level"])
    if isinstance(codec, BloscCodec) and settings.get("typesize") == array.dtype.itemsize:
        shuffle = SHUFFLES[settings["shuffle"]]
        return numcodecs.Blosc(settings["cname"], settings["clevel"], shuffle, settings["blocksize"])
    return None


def codec_name(array: zarr.Array, pipeline: Pipeline) -> str | None:
    """The codec's name in the cost model, or None where there is none."""
    compressor = compressor_of(array) if pipeline == "numcodecs" else None
    return compressor.codec_id if compressor else None if pipeline == "plain" else pipeline


def most_coded_bytes(nbytes: int) -> int:
    """The most bytes that a compressor makes of ``nbytes`` that do not compress, with room for its headers."""
    return nbytes + nbytes // 128 + 2**16


def decode_into(codec: numcodecs.abc.Codec, coded: Any, out: np.ndarray, name: str) -> None:
    """Decode one chunk into ``out``.

    Raises
    ------
    CorruptChunkError
        Where it cannot be decoded, or holds another number of bytes; it names ``name``.
    """
    try:
        length, decoded = decoded_length(codec, coded), None
        if length is None and codec.codec_id not in DECODE_IN_PLACE:
            decoded = np.frombuffer(codec.decode(coded), np.uint8)
            length = len(decoded)
        elif length in (None, out.nbytes):  # a frame that does not say its length is checked by zstd itself
            codec.decode(coded, out=out.reshape(-1).view(np.uint8))
            length = out.nbytes
    except (RuntimeError, ValueError, OSError, EOFError) as error:
        raise CorruptChunkError(f"{name} cannot be decoded by {codec.codec_id}: {error}") from error
    if length != out.nbytes:
        raise CorruptChunkError(f"{name} decodes to {length} bytes; a chunk has {out.nbytes}")
    if decoded is not None:
        out.reshape(-1).view(np.uint8)[:] = decoded


def decoded_length(codec: numcodecs.abc.Codec, coded: Any) -> int | None:
    """Bytes that a coded chunk says it holds, or None where it does not say."""
    head = bytes(memoryview(coded)[:18])
    if codec.codec_id == "blosc":
        return _blosc_length(head, len(coded))
    if codec.codec_id == "zstd":
        return _zstd_length(head)
    return None


def _blosc_length(head: bytes, coded_bytes: int) -> int:
    """The length in a Blosc header; 0 where the chunk was cut, for Blosc itself would read past its end."""
    complete = len(head) >= 16 and int.from_bytes(head[12:16], "little") == coded_bytes
    return int.from_bytes(head[4:8], "little") if complete else 0


def _zstd_length(head: bytes) -> int | None:
    """The content size in a Zstandard frame header (RFC 8878, section 3.1.1.1)."""
    if head[:4] != ZSTD_MAGIC or len(head) < 6:
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    if not width:
        return None
    start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(head[start : start + width], "little") + (256 if width == 2 else 0)


def encode(codec: numcodecs.abc.Codec, chunk: np.ndarray) -> memoryview:
    """The stored bytes of one chunk."""
    return memoryview(codec.encode(chunk)).cast("B")
