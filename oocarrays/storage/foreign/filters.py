"""Filters of other formats, as one codec: shuffled, deflated and checked bytes go through numcodecs in turn.

elements ─► shuffle ─► zlib ─► fletcher32 ─► bytes of a chunk         writing, as the other library did it
elements ◄─ shuffle ◄─ zlib ◄─ fletcher32 ◄─ bytes of a chunk         reading, the last one into our buffer
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
from zarr.abc.codec import BytesBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer
from zarr.registry import register_codec

from oocarrays.errors import UnsupportedError
from oocarrays.storage.foreign.facts import FILTERS

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
"""Codecs of numcodecs that make bytes of bytes, and know nothing of elements but their size."""

try:
    from isal.isal_zlib import decompress  # twice as fast as zlib, where it is installed
except ImportError:
    from zlib import decompress

INFLATED = {"zlib": 15, "gzip": 31}
"""Codecs whose bytes are deflated, and how `decompress` is told of what is around them."""
SPARE = 1
"""Bytes that a buffer to inflate into has beyond what comes: in a full one, libraries take it that more is to come."""


class Chained(Codec):  # type: ignore[misc]
    """Several codecs of bytes as one, which decodes into a buffer of its caller's."""

    def __init__(self, codecs: Sequence[Codec], name: str | None = None) -> None:
        self.codecs = tuple(codecs)
        self.codec_id = name or "+".join(codec.codec_id for codec in codecs)

    def encode(self, buf: Any) -> Any:
        """Encode bytes by one codec after the other."""
        data = np.ascontiguousarray(buf).reshape(-1).view(np.uint8)
        for codec in self.codecs:
            data = codec.encode(data)
        return data

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode bytes, into ``out`` where it is given."""
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
        """Return what makes it again."""
        return {"id": self.codec_id, "codecs": [codec.get_config() for codec in self.codecs]}

    def __reduce__(self) -> Any:
        return Chained, (self.codecs, self.codec_id)


def _check_length(found: int, into: Any) -> None:
    if found != len(into):
        raise ValueError(f"{found} bytes, and not {len(into)}")


def _decoded(codec: Codec, data: Any, nbytes: int | None) -> Any:
    """Decode by one codec; bytes that are deflated by the fastest library that there is."""
    if codec.codec_id not in INFLATED:
        return codec.decode(data)
    try:
        return decompress(data, INFLATED[codec.codec_id], (nbytes or 2**16) + SPARE)
    except Exception as error:
        raise ValueError(str(error)) from error


def chained(codecs: Iterable[Codec | None]) -> Codec | None:
    """Return one codec for several of bytes; None where one of them needs to know of elements, or there is none."""
    given = [codec for codec in codecs if codec is not None]
    if not given or any(codec.codec_id not in BYTE_FILTERS for codec in given):
        return None
    if len(given) == 1 and given[0].codec_id not in (*INFLATED, "shuffle"):
        return given[0]
    return Chained(given)


@lru_cache(256)
def codec_of(filters: tuple[str, ...], library: str | None) -> Codec | None:
    """Return the codec of some filters; None of none."""
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
    """All filters of a chunk, as Zarr asks for them; it decodes only."""

    is_fixed_size = False
    filters: tuple[str, ...]
    """Each a codec of numcodecs, as JSON."""
    library: str | None = None
    """What has read the elements already, if not we."""

    @classmethod
    def from_dict(cls, data: Any) -> FilterCodec:
        """Make it of a document."""
        settings = data["configuration"]
        return cls(tuple(map(json.dumps, settings["filters"])), settings.get("library"))

    def to_dict(self) -> Any:
        settings = {"filters": [json.loads(each) for each in self.filters], "library": self.library}
        return {"name": FILTERS, "configuration": settings}

    @property
    def codec(self) -> Codec:
        """The same for numcodecs."""
        found = codec_of(self.filters, self.library)
        assert found is not None, "it is made where there is anything"
        return found

    def compute_encoded_size(self, input_byte_length: int, _: ArraySpec) -> int:
        """Raise: nobody knows."""
        raise NotImplementedError

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        data = self.codec.decode(chunk_bytes.as_numpy_array().view(np.uint8))
        return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(data, np.uint8))

    async def _encode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer | None:
        data = self.codec.encode(chunk_bytes.as_numpy_array().view(np.uint8))
        return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(data, np.uint8))


register_codec(FILTERS, FilterCodec)
