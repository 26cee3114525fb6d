"""Metadata of an array, converted for other chunks, shards, or another Zarr format.

format 3        codecs in one chain: transpose, bytes, a compressor     dimension names
format 2        order C or F, byte order in the dtype, a compressor     the attribute _ARRAY_DIMENSIONS
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import numcodecs
import numpy as np
import zarr
from zarr.abc.codec import Codec
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.storage import LocalStore

from oocarrays.errors import ChunksError, UnsupportedError
from oocarrays.mapping.casting import FLOATS, INTEGERS, lost_value, mask_as_text, mask_of_text
from oocarrays.mapping.given import chosen, listed, named, names_of_axes
from oocarrays.mapping.grid import turned
from oocarrays.plan.documents import Settings
from oocarrays.storage.codecs.codec import SHUFFLES, numcodec_of, rebound
from oocarrays.storage.foreign.filters import FilterCodec
from oocarrays.storage.local.fs import DESCRIPTOR
from oocarrays.storage.stores.uneven import as_stored

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute of dimension names that xarray writes in format 2."""
MASKED = "_FillValue"
"""Attribute of the masked value in format 3; in format 2, the fill value is the masked value."""


def target_settings(
    source: zarr.Array,
    chunks: tuple[int, ...],
    *,
    shards: tuple[int, ...] | None = None,
    zarr_format: int | None = None,
    compressors: Any = None,
    filters: Any = None,
    order: tuple[int, ...] | None = None,
) -> Settings:
    """Return the arguments of ``zarr.create_array`` for a copy of ``source`` in other chunks."""
    metadata: Any = source.metadata
    wanted = metadata.zarr_format
    if zarr_format is not None:
        wanted = chosen(zarr_format, "zarr_format", (2, 3), error=UnsupportedError)
    check_shards(chunks, shards, wanted)
    stored = (stored_order(source) if filters is None else None) if order is None else order
    settings = {
        "shape": source.shape,
        "chunks": chunks,
        "compressors": compressors_in(
            wanted, carried_compressors(source) if compressors is None else compressors, source.dtype.itemsize
        ),
        "fill_value": metadata.fill_value,
        "attributes": {name: value for name, value in source.attrs.asdict().items() if name != DESCRIPTOR},
        "zarr_format": wanted,
    }
    if wanted != metadata.zarr_format:
        settings |= _masked_2(source) if wanted == 2 else _masked_3(source)
    made = _format_2 if wanted == 2 else _format_3
    return settings | made(source, settings["attributes"], filters, stored, shards)


def _masked_3(source: zarr.Array) -> Settings:
    """Return format 3 attributes for an array that xarray wrote in format 2: its fill value is the masked value."""
    fill, attributes = source.metadata.fill_value, source.attrs.asdict()
    if fill is None or source.dtype.kind not in "biufcSU" or not _has_dimensions(source):
        return {}
    return {"attributes": attributes | {MASKED: mask_as_text(fill, source.dtype)}}


def _masked_2(source: zarr.Array) -> Settings:
    """Return format 2 attributes and fill value for an array in format 3: its masked value, if any, as fill value.

    Missing chunks hold the source's fill value; if the new fill value differs, they are written.
    """
    attributes, blank = source.attrs.asdict(), _has_dimensions(source) and not source.metadata.fill_value
    if MASKED in attributes:
        with suppress(ValueError, TypeError, struct.error):  # for a user's own attribute of that name, which is kept
            return {"fill_value": mask_of_text(attributes.pop(MASKED), source.dtype), "attributes": attributes}
    return {"fill_value": None} if blank else {}


def carried_compressors(source: zarr.Array) -> Any:
    """Return the compressors of an array for its copy; filters of another format become their Zarr equivalents."""
    if not is_foreign(source):
        in_folder = isinstance(source.store_path.store, LocalStore)
        return (source if in_folder else as_stored(source)).compressors
    return [BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=source.dtype.itemsize)]


def is_foreign(array: zarr.Array) -> bool:
    """Return whether chunks of an array are coded in a format other than Zarr."""
    return any(isinstance(codec, FilterCodec) for codec in getattr(array.metadata, "codecs", ()))


def check_shards(
    chunks: tuple[int, ...], shards: tuple[int, ...] | None, zarr_format: int, word: str = "Target(shards={!r})"
) -> None:
    """Raise if the format has no shards, or if they are not whole multiples of chunks."""
    if shards is None:
        return
    if zarr_format == 2:
        raise UnsupportedError(f"{word.format(shards)}: Zarr format 2 has no shards")
    if len(shards) != len(chunks) or any(s % c for s, c in zip(shards, chunks, strict=True)):
        raise ChunksError(f"{word.format(shards)} must be multiples of the chunks {chunks} along each axis")


def _format_2(
    source: zarr.Array, attributes: Settings, filters: Any, order: tuple[int, ...] | None, shards: Any
) -> Settings:
    metadata: Any = source.metadata
    rows = tuple(range(source.ndim))
    _check_order_2(order, rows)
    names = dimension_names(source)
    if _has_dimensions(source):
        attributes[DIMENSIONS] = list(names or ())
    same = metadata.zarr_format == 2
    separator = metadata.dimension_separator if same else "."
    kept = _kept_filters(source, 2) if filters is None else listed(filters, "filters")
    return {
        "dtype": metadata.dtype if same else metadata.data_type,
        "filters": kept or (None if has_fixed_size(source.dtype) else "auto"),  # texts need one
        "order": "C" if order in (None, rows) else "F",
        "chunk_key_encoding": {"name": "v2", "separator": separator},
    }


def _format_3(
    source: zarr.Array, attributes: Settings, filters: Any, order: tuple[int, ...] | None, shards: Any
) -> Settings:
    metadata: Any = source.metadata
    same = metadata.zarr_format == 3
    names, fixed = dimension_names(source), has_fixed_size(source.dtype)
    if shards is not None and (source.dtype.names or not source.ndim):
        raise UnsupportedError(
            f"Target(shards={shards}): zarr-python cannot read structured elements, or arrays without axes, from shards"
        )
    if not same:
        attributes.pop(DIMENSIONS, None)
    return {
        "dtype": metadata.data_type if same else source.dtype.newbyteorder("=") if fixed else metadata.dtype,
        "filters": _filters_3(source, filters, order),
        "serializer": source.serializer if same else "auto",
        "dimension_names": names,
        "shards": shards,
    }


def _filters_3(source: zarr.Array, filters: Any, order: tuple[int, ...] | None) -> list[Any]:
    """Return the filters of a copy in format 3; a transposition keeps the source's position, or else comes first."""
    if filters is not None:
        return turning(listed(filters, "filters"), order)
    kept = _kept_filters(source, 3)
    if source.metadata.zarr_format == 3 and order == stored_order(source):
        return list(source.filters)
    turns = [isinstance(each, TransposeCodec) for each in source.filters]
    return turning(kept, order, turns.index(True) if any(turns) else 0)


def turning(filters: Sequence[Any], order: tuple[int, ...] | None, place: int | None = None) -> list[Any]:
    """Return filters with a transposition to ``order``, by default after any leading transpositions."""
    if order in (None, tuple(range(len(order or ())))):
        return list(filters)
    begin = (n for n, each in enumerate(filters) if not isinstance(each, TransposeCodec))
    place = next(begin, len(filters)) if place is None else place
    return [*filters[:place], TransposeCodec(order=order), *filters[place:]]


def has_fixed_size(dtype: np.dtype) -> bool:
    """Return whether all elements of a type have the same size; elements of text arrays may not."""
    return dtype.kind not in "OT" and dtype.itemsize > 0


def dimension_names(array: zarr.Array) -> tuple[str | None, ...] | None:
    """Return the names of the axes, or None; in format 2, those that xarray writes."""
    metadata: Any = array.metadata
    if metadata.zarr_format == 3:
        return metadata.dimension_names
    found = array.attrs.get(DIMENSIONS)
    return tuple(map(str, found)) if isinstance(found, Sequence) and len(found) == array.ndim else None


def _has_dimensions(array: zarr.Array) -> bool:
    """Return whether all axes of an array have names, as xarray requires; True for an array without axes."""
    names = dimension_names(array)
    return not array.ndim if names is None else None not in names


def stored_order(array: zarr.Array) -> tuple[int, ...] | None:
    """Return the order in which the axes of a chunk are stored, the fastest last; None for C order."""
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        return tuple(reversed(range(array.ndim))) if metadata.order == "F" else None
    orders = [tuple(f.order) for f in array.filters if isinstance(f, TransposeCodec)]
    return reduce(turned, orders) if orders else None


def in_order(made: Settings, order: tuple[int, ...] | None) -> Settings:
    """Return these arguments of ``zarr.create_array`` with chunks stored in an axis order, the fastest axis last."""
    rows = tuple(range(len(order or ())))
    if order in (None, rows):
        return made
    if made["zarr_format"] == 2:
        _check_order_2(order, rows)
        return made | {"order": "F"}
    given = made["filters"]
    several = () if given in ("auto", None) else given if isinstance(given, Sequence) else (given,)
    return made | {"filters": turning(several, order)}


def as_stated(
    made: Settings, *, fill_value: Any = None, attributes: Any = None, dimension_names: Any = None
) -> Settings:
    """Return these arguments of ``zarr.create_array`` with what is stated in place of what is carried over."""
    in_2, kept = made["zarr_format"] == 2, made["attributes"]
    if attributes is not None:
        names_of_2 = {name: each for name, each in kept.items() if in_2 and name == DIMENSIONS}
        kept = names_of_2 | named(attributes, "attributes")
    made = made | {"attributes": kept} | ({} if fill_value is None else {"fill_value": fill_value})
    names = names_of_axes(dimension_names, len(made["shape"]))
    if names is None:
        return made
    return made | ({"attributes": {**kept, DIMENSIONS: list(names)}} if in_2 else {"dimension_names": names})


def with_axes(made: Settings, axes: Sequence[int | None]) -> Settings:
    """Return these arguments of ``zarr.create_array``, except shape and chunks, for an array with other axes.

    Names stay with their axes, and elements are stored in C order.
    """
    if made["zarr_format"] == 2:
        attributes = dict(made["attributes"])
        names = attributes.pop(DIMENSIONS, None)
        if names and None not in axes:
            attributes[DIMENSIONS] = [names[axis] for axis in axes if axis is not None]
        return made | {"attributes": attributes, "order": "C"}
    known, filters = made["dimension_names"], made["filters"]
    return made | {
        "dimension_names": known and tuple(None if axis is None else known[axis] for axis in axes),
        "filters": [each for each in filters if not isinstance(each, TransposeCodec)],
    }


def _check_order_2(order: tuple[int, ...] | None, rows: tuple[int, ...]) -> None:
    if order not in (None, rows, rows[::-1]):
        raise UnsupportedError(
            f"axes stored in order {order}: Zarr format 2 stores the first or the last axis fastest only"
        )


def _kept_filters(source: zarr.Array, zarr_format: int) -> list[Any]:
    """Return the filters of an array without transpositions; raise if another format cannot hold them."""
    kept = [f for f in source.filters if not isinstance(f, TransposeCodec)]
    if source.metadata.zarr_format != zarr_format:
        kept = [f for f in kept if getattr(f, "codec_id", None) not in ("vlen-utf8", "vlen-bytes")]  # repeat the type
    if kept and source.metadata.zarr_format != zarr_format:
        names = ", ".join(map(str, kept))
        raise UnsupportedError(
            f"filters {names} are not carried over to another Zarr format: pass Target(store, filters=())"
        )
    return kept


NAMED_CODECS: dict[str, tuple[Any, ...]] = {
    "none": (),
    "zstd": (ZstdCodec(),),
    "blosc": (BloscCodec(cname="lz4", shuffle="shuffle"),),
    "gzip": (GzipCodec(),),
}
"""Compressors by the names that parameters and the command line accept."""


def compressors_in(zarr_format: int, compressors: Any, itemsize: int) -> Any:
    """Return compressors of either format, or named ones, as objects of one format; None for none, "auto" unchanged."""
    if isinstance(compressors, str) and compressors == "auto":
        return compressors
    alone = isinstance(compressors, str) or not isinstance(compressors, Sequence)
    several = [codec for each in ([compressors] if alone else compressors) for codec in _named_codec(each)]
    if zarr_format == 3:
        return [_compressor_3(c, itemsize) if isinstance(c, numcodecs.abc.Codec) else c for c in several] or None
    return [_compressor_2(c) if isinstance(c, Codec) else c for c in several] or None


def _named_codec(given: Any) -> tuple[Any, ...]:
    """Return the compressors with a name; return other objects unchanged."""
    if not isinstance(given, str):
        return (given,)
    if given not in NAMED_CODECS:
        raise UnsupportedError(f"compressors={given!r} is not a codec or one of {', '.join(NAMED_CODECS)}, auto")
    return NAMED_CODECS[given]


def _compressor_2(codec: Codec) -> numcodecs.abc.Codec:
    compressor = numcodec_of(codec)
    if compressor is None:
        raise _unknown(codec, 2)
    return compressor


def _compressor_3(codec: Any, itemsize: int) -> Any:
    settings = codec.get_config()
    if codec.codec_id == "zstd":
        return ZstdCodec(level=settings["level"], checksum=settings.get("checksum", False))
    if codec.codec_id in ("gzip", "zlib"):
        return GzipCodec(level=settings["level"])
    if codec.codec_id == "blosc":
        names = {number: name for name, number in SHUFFLES.items()}
        auto = "bitshuffle" if itemsize == 1 else "shuffle"
        shuffle: Any = auto if settings["shuffle"] == -1 else names[settings["shuffle"]]
        return BloscCodec(
            cname=settings["cname"], clevel=settings["clevel"], shuffle=shuffle, blocksize=settings["blocksize"],
            typesize=itemsize,
        )  # fmt: skip
    raise _unknown(codec, 3)


def _unknown(codec: Any, zarr_format: int) -> UnsupportedError:
    return UnsupportedError(
        f"codec {codec} has no counterpart in Zarr format {zarr_format}: pass Target(store, compressors=…)"
    )


# ---------------------------------------------------------------------- computed elements


def retyped(made: Settings, old: np.dtype, new: np.dtype) -> tuple[Settings, tuple[str, ...]]:
    """Return the arguments for computed elements, and a notice of dropped codecs that cannot represent them all."""
    left_out: list[str] = []
    new = new if made["zarr_format"] == 2 else new.newbyteorder("=")  # in format 3 a codec orders bytes
    changed: Settings = {"dtype": new, "fill_value": _fill(made["fill_value"], old, new)}
    for part in ("filters", "compressors"):
        if isinstance(made.get(part), Sequence) and not isinstance(made[part], str):
            kept, names = rebound(made[part], old, new)
            changed[part] = kept or (None if part == "compressors" or made["zarr_format"] == 2 else [])
            left_out += names
    if made.get("serializer", "auto") != "auto":
        changed["serializer"], names = _serializer(made["serializer"], old, new)
        left_out += names
    if MASKED in made["attributes"] and old != new:
        changed["attributes"] = _masked(made["attributes"], old, new)
    several = f"codecs {', '.join(left_out)} are" if len(left_out) > 1 else f"codec {' '.join(left_out)} is"
    said = f"the {several} left out: computed elements of {new} may have values that the source's, of {old}, have not"
    return made | changed, (said,) if left_out else ()


def _fill(fill: Any, old: np.dtype, new: np.dtype) -> Any:
    """Return the fill value of the source if the new type represents it; else 0."""
    if fill is None or old == new:
        return fill
    if not {old.kind, new.kind} <= {*INTEGERS, *FLOATS} and old.kind != new.kind:
        return None
    return fill if lost_value(np.asarray(fill), new) is None else np.zeros((), new)[()]


def _serializer(serializer: Any, old: np.dtype, new: np.dtype) -> tuple[Any, list[str]]:
    """Return the serializer for the new type; one for single bytes had no byte order."""
    if isinstance(serializer, BytesCodec):
        return "auto" if serializer.endian is None and new.itemsize > 1 else serializer, []
    kept, names = rebound([serializer], old, new)
    return kept[0] if kept else "auto", names


def _masked(attributes: Settings, old: np.dtype, new: np.dtype) -> Settings:
    """Return attributes with the masked value converted to the new type, or dropped if it has no equal."""
    kept = {name: value for name, value in attributes.items() if name != MASKED}
    with suppress(ValueError, TypeError, struct.error):
        value = np.asarray(mask_of_text(attributes[MASKED], old))
        if value.dtype.kind in INTEGERS + FLOATS and lost_value(value, new) is None:
            return kept | {MASKED: mask_as_text(value.astype(new)[()], new)}
    return kept
