"""Filters of other formats as one codec: numcodecs' shuffle, deflate and checksum codecs in sequence.

elements ─► shuffle ─► zlib ─► fletcher32 ─► bytes of a chunk         encoding, as by the other library
elements ◄─ shuffle ◄─ zlib ◄─ fletcher32 ◄─ bytes of a chunk         decoding, the last step into our buffer
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numcodecs
import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ndarray_copy
from zarr.abc.codec import BytesBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer
from zarr.registry import register_codec

from oocarrays.errors import UnsupportedError

FILTERS = "oocarrays.filters"
"""Name in documents of the codec for all filters of a chunk."""
BYTE_FILTERS = (
    "shuffle",
    "fletcher32",
    "adler32",
    "crc32",
    "crc32c",
    "zlib",
    "gzip",
    "zstd",
    "lz4",
    "blosc",
    "lzma",
    "bz2",
)
"""Codecs of numcodecs from bytes to bytes, with no property of elements but their size."""

try:
    from isal.isal_zlib import decompress  # twice as fast as zlib, if installed
except ImportError:
    from zlib import decompress

INFLATED = {"zlib": 15, "gzip": 31}
"""Codecs of deflated bytes, and the argument of `decompress` for their headers."""


SIGN = "fits"
"""Name of the codec of FITS for integers with the opposite sign convention."""


class OppositeSign(Codec):  # type: ignore[misc]
    """Integers stored big-endian, with the opposite sign convention: signed less half of the range of unsigned ones."""

    codec_id = SIGN

    def __init__(self, elementsize: int) -> None:
        self.elementsize = elementsize

    def encode(self, buf: Any) -> Any:
        return self._flipped(buf, "=", ">")

    def decode(self, buf: Any, out: Any = None) -> Any:
        return ndarray_copy(self._flipped(buf, ">", "="), out)

    def _flipped(self, buf: Any, given: str, made: str) -> np.ndarray:
        bits = np.frombuffer(buf, f"{given}u{self.elementsize}") ^ (1 << (8 * self.elementsize - 1))
        return bits.astype(f"{made}u{self.elementsize}").view(np.uint8)


numcodecs.register_codec(OppositeSign)


class Chained(Codec):  # type: ignore[misc]
    """Several byte codecs as one, with decoding into a given buffer."""

    def __init__(self, codecs: Sequence[Codec], name: str | None = None) -> None:
        self.codecs = tuple(codecs)
        self.codec_id = name or "+".join(codec.codec_id for codec in codecs)

    def encode(self, buf: Any) -> Any:
        data = np.ascontiguousarray(buf).reshape(-1).view(np.uint8)
        for codec in self.codecs:
            data = codec.encode(data)
        return data

    def decode(self, buf: Any, out: Any = None) -> Any:
        data, into = buf, None if out is None else out.reshape(-1).view(np.uint8)
        for number, codec in reversed(list(enumerate(self.codecs))):
            last = number == 0 and codec.codec_id == "shuffle" and into is not None
            if last:
                _check_length(len(np.frombuffer(data, np.uint8)), into)
                codec.decode(data, into)
                return out
            data = _decoded(codec, data, None if into is None else len(into))
        if into is None:
            return data
        found = np.frombuffer(data, np.uint8)
        _check_length(len(found), into)
        into[:] = found
        return None

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id, "codecs": [codec.get_config() for codec in self.codecs]}

    def __reduce__(self) -> Any:
        return Chained, (self.codecs, self.codec_id)


def _check_length(found: int, into: Any) -> None:
    if found != len(into):
        raise ValueError(f"{found} bytes, and not {len(into)}")


def _decoded(codec: Codec, data: Any, nbytes: int | None) -> Any:
    """Decode by one codec; use the fastest installed library for deflated bytes."""
    if codec.codec_id not in INFLATED:
        return codec.decode(data)
    try:
        most = (nbytes or 2**16) + 1  # if the buffer is exactly full, libraries expect more data
        return decompress(data, INFLATED[codec.codec_id], most)
    except Exception as error:
        raise ValueError(str(error)) from error


def chained(codecs: Iterable[Codec | None]) -> Codec | None:
    """Return one codec for several byte codecs; None if there are none, or if one depends on the elements."""
    given = [codec for codec in codecs if codec is not None]
    if not given or any(codec.codec_id not in BYTE_FILTERS for codec in given):
        return None
    if len(given) == 1 and given[0].codec_id not in (*INFLATED, "shuffle"):
        return given[0]
    return Chained(given)


@lru_cache(256)
def codec_of(filters: tuple[str, ...], library: str | None) -> Codec | None:
    made = [_made(each) for each in filters]
    if library:
        return Chained(made, library)
    return chained(made) or (Chained(made) if made else None)


def _made(filter: str) -> Codec:
    config = json.loads(filter)
    try:
        return numcodecs.get_codec(config)
    except Exception as error:
        raise UnsupportedError(f"no codec {config.get('id')} is installed: {error}") from error


@dataclass(frozen=True)
class FilterCodec(BytesBytesCodec):
    """All filters of a chunk, as a Zarr codec."""

    is_fixed_size = False
    filters: tuple[str, ...]
    """Filters in order of encoding, each a numcodecs codec as JSON."""
    library: str | None = None
    """Library that has already read the elements; None if the bytes are read directly."""

    @classmethod
    def from_dict(cls, data: Any) -> FilterCodec:
        settings = data["configuration"]
        return cls(tuple(map(json.dumps, settings["filters"])), settings.get("library"))

    def to_dict(self) -> Any:
        settings = {"filters": [json.loads(each) for each in self.filters], "library": self.library}
        return {"name": FILTERS, "configuration": settings}

    @property
    def codec(self) -> Codec:
        found = codec_of(self.filters, self.library)
        assert found is not None, "it is made where there is anything"
        return found

    def compute_encoded_size(self, input_byte_length: int, _: ArraySpec) -> int:
        raise NotImplementedError

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        data = self.codec.decode(chunk_bytes.as_numpy_array().view(np.uint8))
        return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(data, np.uint8))

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        data = self.codec.encode(chunk_bytes.as_numpy_array().view(np.uint8))
        return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(data, np.uint8))


register_codec(FILTERS, FilterCodec)
