"""Arguments of ``zarr.create_array`` for computed elements, in the source's data type or another."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from zarr.codecs import BytesCodec

from oocarrays.mapping.casting import FLOATS, INTEGERS, lost_value
from oocarrays.plan.documents import Settings
from oocarrays.storage.codecs.bound import rebound
from oocarrays.storage.files.formats import MASKED, mask_as_text, mask_of_text


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
