"""Coding of an array's chunks, and its fastest implementation.

plain       the elements as in memory, in some order of the axes: no codec
numcodecs   codecs over plain bytes: numcodecs decodes directly into our buffer
zarrs       any other codecs that the optional `zarrs` pipeline supports, in local files
zarr        the rest, through zarr-python

A permuted axis order (``transpose``, or format 2's ``order="F"``) does not count as a codec: the stored chunk is that
of a transposed array. The chunks of a shard (Zarr 3, ``sharding_indexed``) are read and encoded one by one if they are
of the first two kinds.

Codecs are adapted to an array of other elements, if they are bound to a data type or a range of values:

delta, shuffle, quantize, blosc                 bound to a type: adapted to the new one, if the meaning is unchanged
fixedscaleoffset, astype, categorize, ...       bound to values: dropped for computed elements, which have other values
zstd, gzip, lz4, bitround of floats, ...        bound to neither: kept

Codecs of both formats are identified by their numcodecs names.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numcodecs
import numpy as np
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

from oocarrays.errors import ChunksError, CorruptChunkError, UnsupportedError
from oocarrays.mapping.grid import turned
from oocarrays.plan.documents import Document, Settings
from oocarrays.storage.codecs.shards import ShardLayout, layout_of
from oocarrays.storage.foreign.filters import BYTE_FILTERS, Chained, FilterCodec, chained

Pipeline = Literal["plain", "numcodecs", "zarrs", "zarr"]
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
DECODE_IN_PLACE = ("zstd", "blosc")
"""Codecs that decode directly into our buffer, without a buffer of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Coding of a chunk's elements as bytes, and the library that performs it."""

    pipeline: Pipeline
    """Library that decodes and encodes."""
    compressor: numcodecs.abc.Codec | None = None
    """Codec of numcodecs that encodes the bytes."""
    shard: ShardLayout | None = None
    """Layout of chunks in a shard; None without shards, or if Zarr handles whole shards."""
    order: tuple[int, ...] | None = None
    """The axes from the slowest to the fastest in a stored chunk; None for C order."""

    @property
    def lying(self) -> Chain:
        """The chain of the same array with its axes in storage order."""
        if self.order is None:
            return self
        return replace(self, shard=self.shard and self.shard.turned(self.order), order=None)

    @property
    def by_zarr(self) -> bool:
        """Whether chunks are read and written through Zarr."""
        return self.pipeline in ("zarr", "zarrs")

    @property
    def name(self) -> str | None:
        """Name of the codec in the cost model; None without a codec."""
        if self.compressor is not None:
            return str(self.compressor.codec_id)
        return None if self.pipeline == "plain" else self.pipeline


def chain_of(array: zarr.Array) -> Chain:
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        return _format_2(metadata)
    codecs = tuple(metadata.codecs)
    if not isinstance(codecs[0], ShardingCodec) or len(codecs) > 1:
        return _format_3(codecs, array.dtype)
    inner = _format_3(tuple(codecs[0].codecs), array.dtype)
    layout = layout_of(codecs[0], tuple(array.shards or array.chunks))
    return replace(inner, shard=layout) if layout and inner.pipeline != "zarr" else Chain(pipeline="zarr")


def _format_2(metadata: Any) -> Chain:
    """Return the chain of an array in format 2, which stores elements in the byte order that they have in memory."""
    filters, columns = tuple(metadata.filters or ()), metadata.order == "F" and len(metadata.shape) > 1
    compressor = chained([*filters, metadata.compressor]) if filters else metadata.compressor
    if filters and compressor is None:
        return Chain(pipeline="zarr")
    return Chain(
        pipeline="plain" if compressor is None else "numcodecs",
        compressor=compressor,
        order=tuple(reversed(range(len(metadata.shape)))) if columns else None,
    )


def _format_3(codecs: Sequence[Any], dtype: np.dtype) -> Chain:
    order = None
    while isinstance(codecs[0], TransposeCodec):
        order, codecs = turned(order or range(len(codecs[0].order)), codecs[0].order), codecs[1:]
    order = None if order == tuple(range(len(order or ()))) else order
    if not _native_bytes(codecs[0], dtype):
        return Chain(pipeline="zarr")
    if len(codecs) == 1:
        return Chain(pipeline="plain", order=order)
    each = [numcodec_of(codec) for codec in codecs[1:]]
    compressor = each[0] if len(each) == 1 else None if None in each else chained(each)
    if isinstance(codecs[1], BloscCodec) and codecs[1].typesize != dtype.itemsize:
        compressor = None  # numcodecs shuffles by the actual element size
    return (
        Chain(pipeline="zarr")
        if compressor is None
        else Chain(pipeline="numcodecs", compressor=compressor, order=order)
    )


def _native_bytes(codec: Any, dtype: np.dtype) -> bool:
    if not isinstance(codec, BytesCodec):
        return False
    endian = getattr(codec.endian, "value", codec.endian)
    return dtype.itemsize == 1 or dtype.kind in "SV" or endian in (None, sys.byteorder)


def numcodec_of(codec: Any) -> numcodecs.abc.Codec | None:
    if isinstance(codec, FilterCodec):
        return codec.codec
    if isinstance(codec, BytesBytesCodec) and getattr(codec, "codec_name", "").startswith("numcodecs."):
        return chained([codec._codec])  # type: ignore[attr-defined]
    settings: Any = codec.to_dict().get("configuration", {})
    if isinstance(codec, ZstdCodec):
        return numcodecs.Zstd(level=settings["level"], checksum=settings["checksum"])
    if isinstance(codec, GzipCodec):
        return numcodecs.GZip(level=settings["level"])
    if isinstance(codec, BloscCodec):
        shuffle = SHUFFLES[settings["shuffle"]]
        return numcodecs.Blosc(settings["cname"], settings["clevel"], shuffle, settings["blocksize"])
    return None


def most_coded_bytes(nbytes: int) -> int:
    """Return the maximum encoded size of ``nbytes`` incompressible bytes, including room for headers."""
    return nbytes + nbytes // 128 + 2**16


def context_bytes(codec: numcodecs.abc.Codec | None, nbytes: int) -> tuple[int, int]:
    """Return the bytes that a codec allocates besides input and output, to decode and to encode a chunk.

    Freed memory that the allocator retains is included.
    """
    name, most = getattr(codec, "codec_id", None), 12 * nbytes
    if name == "blosc":
        return min(2**22, most), min(2**22, most)
    level = getattr(codec, "level", 0) if name == "zstd" else 0
    if level <= 6:  # less than a MiB
        return 0, 0
    return 0, min((1 if level <= 9 else 3 if level <= 12 else 6) * 2**24, most)


def most_shard_bytes(chain: Chain, itemsize: int) -> int:
    assert chain.shard is not None, "only shards have a most"
    inner = math.prod(chain.shard.chunks) * itemsize
    return chain.shard.count * (most_coded_bytes(inner) if chain.compressor else inner) + chain.shard.index_bytes


def check_codecs(array: zarr.Array) -> None:
    """Raise if chunks exceed the maximum size of a codec with 32-bit lengths."""
    maxima = {"blosc": 2**31 - 17, "lz4": 0x7E000000, "numcodecs.lz4": 0x7E000000}
    chunks, nbytes = array.chunks, math.prod(array.chunks) * array.dtype.itemsize
    for codec in (*array.filters, *array.compressors):
        name = codec.codec_id if isinstance(codec, numcodecs.abc.Codec) else codec.to_dict().get("name")
        most = maxima.get(name, nbytes)
        if nbytes > most:
            raise ChunksError(
                f"chunks={chunks} have {nbytes} bytes; {name} takes at most {most}: choose smaller chunks"
            )


def decode_into(codec: numcodecs.abc.Codec, coded: Any, out: np.ndarray, name: object) -> None:
    try:
        length, decoded = decoded_length(codec, coded), None
        if length is None and codec.codec_id not in DECODE_IN_PLACE and not isinstance(codec, Chained):
            decoded = np.frombuffer(codec.decode(coded), np.uint8)
            length = len(decoded)
        elif isinstance(codec, Chained):
            codec.decode(coded, out=out)
            length = out.nbytes
        elif length in (None, out.nbytes):  # zstd itself checks a frame that does not state its length
            codec.decode(coded, out=out.reshape(-1).view(np.uint8))
            length = out.nbytes
    except (RuntimeError, ValueError, OSError, EOFError) as error:
        raise CorruptChunkError(f"{name} cannot be decoded by {codec.codec_id}: {error}") from error
    if length != out.nbytes:
        raise CorruptChunkError(f"{name} decodes to {length} bytes; a chunk has {out.nbytes}")
    if decoded is not None:
        out.reshape(-1).view(np.uint8)[:] = decoded


def decoded_length(codec: numcodecs.abc.Codec, coded: Any) -> int | None:
    """Return the decoded size stated in a coded chunk; None if it is not stated."""
    head = bytes(memoryview(coded)[:18])
    if codec.codec_id == "blosc":
        return _blosc_length(head, len(coded))
    if codec.codec_id == "zstd":
        return _zstd_length(head)
    return None


def _blosc_length(head: bytes, coded_bytes: int) -> int:
    """Return the length in a Blosc header; 0 for a truncated chunk, because Blosc itself would read past its end."""
    complete = len(head) >= 16 and int.from_bytes(head[12:16], "little") == coded_bytes
    return int.from_bytes(head[4:8], "little") if complete else 0


def _zstd_length(head: bytes) -> int | None:
    """Return the content size in a Zstandard frame header (RFC 8878, section 3.1.1.1)."""
    if head[:4] != b"\x28\xb5\x2f\xfd" or len(head) < 6:
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    if not width:
        return None
    start = 5 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(head[start : start + width], "little") + (256 if width == 2 else 0)


def encode(codec: numcodecs.abc.Codec, chunk: np.ndarray) -> memoryview:
    return memoryview(codec.encode(chunk)).cast("B")


# ---------------------------------------------------------------------- codecs for other elements


OF_VALUES = frozenset(("fixedscaleoffset", "astype", "categorize", "cast_value", "scale_offset"))
"""Codecs that represent only some values of a type."""
OF_TEXTS = frozenset(("vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "pickle"))
"""Codecs of variable-length elements."""


def codec_name(codec: Any) -> str:
    if isinstance(codec, numcodecs.abc.Codec):
        return str(codec.codec_id)
    return str(codec.to_dict()["name"]).removeprefix("numcodecs.")


def rebound(codecs: Sequence[Any], old: np.dtype, new: np.dtype) -> tuple[list[Any], list[str]]:
    """Return the codecs for computed elements of another type, or the same, and the names of dropped ones."""
    made = [(codec_name(codec), _rebound(codec, old, new)) for codec in codecs]
    kept = [codec for _, codec in made if codec is not None]
    return kept, [name for name, codec in made if codec is None and name not in OF_TEXTS]


def _rebound(codec: Any, old: np.dtype, new: np.dtype) -> Any | None:
    name = codec_name(codec)
    if name in OF_VALUES or (old != new and name in OF_TEXTS):
        return None
    of_numbers = {"zfpy": "i4 i8 f4 f8", "pcodec": "u2 u4 u8 i2 i4 i8 f2 f4 f8"}
    if name in of_numbers:
        return codec if new.str[1:] in of_numbers[name].split() else None
    rules = {"delta": _delta, "quantize": _quantize, "bitround": _bitround, "shuffle": _shuffle, "blosc": _blosc}
    if name == "packbits":
        return codec if new.kind == "b" else None
    return rules[name](codec, old, new) if name in rules else codec


def _delta(codec: Any, old: np.dtype, new: np.dtype) -> Any | None:
    """Adapt delta to integers, between which differences are exact; drop it with a narrower storage type."""
    if _is_narrow(codec):
        return None
    if old == new:
        return codec
    return _with(codec, dtype=new.str) if new.kind in "iu" else None


def _is_narrow(codec: Any) -> bool:
    """Return whether elements are stored as a separate type, which may not represent them all."""
    settings = _settings(codec)
    return bool(settings.get("astype")) and np.dtype(settings["astype"]) != np.dtype(settings["dtype"])


def _quantize(codec: Any, old: np.dtype, new: np.dtype) -> Any | None:
    if new.kind != "f" or new.itemsize < 4 or _is_narrow(codec):  # it scales numbers up; few fit in two bytes
        return None
    return codec if old == new else _with(codec, dtype=new.str)


def _bitround(codec: Any, old: np.dtype, new: np.dtype) -> Any | None:
    fits = (
        new.kind == "f" and new.itemsize <= 8 and new.isnative and _settings(codec)["keepbits"] <= np.finfo(new).nmant
    )
    return codec if fits else None


def _shuffle(codec: Any, old: np.dtype, new: np.dtype) -> Any:
    return codec if old == new else _with(codec, elementsize=new.itemsize)


def _blosc(codec: Any, old: np.dtype, new: np.dtype) -> Any:
    """Adapt the element size of the shuffle; a codec without one uses the item size of its buffer."""
    return _with(codec, typesize=new.itemsize) if old != new and "typesize" in _settings(codec) else codec


def _settings(codec: Any) -> Document:
    if isinstance(codec, numcodecs.abc.Codec):
        return dict(codec.get_config())
    return dict(codec.to_dict().get("configuration", {}))


def _with(codec: Any, **changed: Any) -> Any:
    """Return a codec with other settings; a separate storage type of differences is replaced by the element type."""
    settings = {key: value for key, value in _settings(codec).items() if key != "astype"} | changed
    if isinstance(codec, numcodecs.abc.Codec):
        return numcodecs.get_codec(settings)
    return type(codec).from_dict({"name": codec.to_dict()["name"], "configuration": settings})


# ---------------------------------------------------------------------- round trip of elements


def check_filters(settings: Settings, array: zarr.Array) -> None:
    """Raise if filters do not restore elements, as tested by Zarr on a few elements in memory."""
    names = [codec_name(codec) for codec in array.filters]
    if array.dtype.kind not in "biufcmM" or {*names} <= {"transpose", *OF_TEXTS, *BYTE_FILTERS}:
        return
    few = tuple(min(n, 3 + axis) if axis < 3 else 1 for axis, n in enumerate(array.chunks))
    apart = {"shards": None} if "shards" in settings else {}
    try:
        kept, why = _come_back(zarr.create_array({}, **settings | {"shape": few, "chunks": few} | apart)), ""
    except Exception as error:  # noqa: BLE001  codecs raise various errors
        kept, why = False, f" ({type(error).__name__}: {error})"
    if not kept:
        raise UnsupportedError(
            f"elements of {array.dtype} do not survive the filters {', '.join(names)}{why}: "
            "pass Target(store, filters=()), or rechunk the source with it first"
        )


def _come_back(array: Any) -> bool:
    """Return whether a few elements written to an empty array are read back unchanged."""
    given = _probe(array.shape, array.dtype, array.filters)
    array[...] = given
    found = array[...]
    return bool(np.allclose(found, given) if array.dtype.kind in "fc" else np.array_equal(found, given))


def _probe(shape: Sequence[int], dtype: np.dtype, filters: Sequence[Any]) -> np.ndarray:
    """Return elements that the filters can represent, unsorted, with differences of both signs if possible."""
    values = np.asarray(_values(dtype, filters), None if dtype.kind in "mM" else dtype)
    places = np.arange(math.prod(shape)) ** 2 % 7 % len(values)
    return values[places].reshape(shape).astype(dtype)


def _values(dtype: np.dtype, filters: Sequence[Any]) -> Sequence[Any]:
    """Return several values that the filters can represent."""
    around_an_offset = ("fixedscaleoffset", "scale_offset")
    scaled = next((_settings(each) for each in filters if codec_name(each) in around_an_offset), None)
    narrow = [_settings(each)["astype"] for each in filters if _is_narrow(each) and scaled is None]
    if scaled is not None:
        return [scaled.get("offset", 0) + each / scaled.get("scale", 1) for each in (0, 1, 0, 1)]
    if any(np.dtype(each).kind == "u" for each in narrow):
        return [1]
    if narrow or dtype.kind == "b" or any(codec_name(each) in OF_VALUES for each in filters):
        return [0, 1, 0, 1]
    return [2, 0, 0.5, 4] if dtype.kind in "fc" else [2, 0, 1, 2 ** (8 * dtype.itemsize - 2)]
