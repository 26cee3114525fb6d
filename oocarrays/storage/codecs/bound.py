"""Codecs bound to a data type or a range of values, adapted to an array of other elements.

delta, shuffle, quantize, blosc                 bound to a type: adapted to the new one, if the meaning is unchanged
fixedscaleoffset, astype, categorize, ...       bound to values: dropped for computed elements, which have other values
zstd, gzip, lz4, bitround of floats, ...        bound to neither: kept

Codecs of both formats are identified by their numcodecs names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numcodecs
import numpy as np
import zarr

from oocarrays.errors import UnsupportedError
from oocarrays.plan.documents import Document, Settings
from oocarrays.storage.foreign.filters import BYTE_FILTERS

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
