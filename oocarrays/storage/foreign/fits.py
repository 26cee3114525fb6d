"""FITS files: image data located by the headers; a file is a group of images, by EXTNAME.

header   SIMPLE, BITPIX, NAXIS, NAXIS1 (the fastest axis), …, END     cards of 80 bytes, in blocks of 2880
data     big-endian elements in one piece, padded to a block
header   XTENSION= 'IMAGE   ', …                                      the next part

Format: FITS Standard 4.0. The headers are read here, without astropy. Unsigned integers are stored as signed ones less
half of their range: a filter converts them.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from oocarrays.errors import NotFoundError
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import FORMATS, Facts, Headed, Manifest, Readable, file_name, opened_file, rows_of
from oocarrays.storage.foreign.filters import SIGN
from oocarrays.storage.foreign.packing import as_json

TYPES = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
"""Element types by BITPIX."""
SIGNS = {8: (-128, "i1"), 16: (2**15, "u2"), 32: (2**31, "u4"), 64: (2**63, "u8")}
"""BZERO and type of integers with the opposite sign convention, by BITPIX."""
CARD, BLOCK = 80, 2880
"""Bytes of a card, and of a block of a header or of data."""
STRUCTURE = re.compile(
    r"SIMPLE|XTENSION|BITPIX|NAXIS\d*|EXTEND|PCOUNT|GCOUNT|GROUPS|BSCALE|BZERO|BLANK|CHECKSUM|DATASUM|CONTINUE|"
)
"""Keywords that describe the storage of data; other cards are attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderDataUnit:
    """A header and its data (HDU)."""

    number: int
    """Number in the file; 0 is the primary one."""
    cards: Document
    """Values by keyword; comments and history as one text each."""
    begin: int
    """Offset of the data in bytes."""
    nbytes: int
    """Bytes of the data, without padding."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis in elements, slowest first."""
        return tuple(self.cards[f"NAXIS{axis}"] for axis in range(self.cards["NAXIS"], 0, -1))

    @property
    def sign(self) -> str | None:
        """Type of integers stored with the opposite sign convention; None for any other."""
        offset, dtype = SIGNS.get(self.cards["BITPIX"], (None, None))
        return dtype if self.cards.get("BZERO") == offset and self.cards.get("BSCALE", 1) == 1 else None

    @property
    def why_not(self) -> str | None:
        """Reason why it cannot be an array, as the end of a sentence; None for an image."""
        if self.cards.get("ZIMAGE") is True:
            return "holds a tile-compressed image (funpack decompresses it)"
        kind = self.cards.get("XTENSION") if self.number else "IMAGE"
        if kind != "IMAGE":
            return "holds a table" if "TABLE" in str(kind) else f"is an extension of type {kind!r}"
        return "holds random groups" if self.cards.get("GROUPS") is True else None

    @property
    def attributes(self) -> Document:
        return {name: value for name, value in self.cards.items() if not STRUCTURE.fullmatch(name)}

    @property
    def packing(self) -> dict[str, Any]:
        stored, found = np.dtype(TYPES[self.cards["BITPIX"]]).newbyteorder("="), dict[str, Any]()
        if self.sign is None:
            said = {"scale_factor": self.cards.get("BSCALE", 1), "add_offset": self.cards.get("BZERO", 0)}
            usual = {"scale_factor": 1, "add_offset": 0}
            found = {name: np.float64(value) for name, value in said.items() if value != usual[name]}
        if stored.kind in "iu" and isinstance(blank := self.cards.get("BLANK"), int):
            moved, dtype = (blank, stored) if self.sign is None else (blank + int(self.cards["BZERO"]), self.sign)
            if np.iinfo(dtype).min <= moved <= np.iinfo(dtype).max:
                found["_FillValue"] = np.array(moved, dtype)[()]
        return found


def _manifest(file: Readable) -> Manifest:
    """Return the images, headers without data as groups, and the tables and compressed images left out, by name."""
    found = _read(file)
    parts = _named(found)
    whole = {name: part for name, part in parts.items() if part.why_not is None}
    shapes = [part.shape[::-1] for part in whole.values()]
    groups = {name: part.attributes for name, part in whole.items() if not part.shape and part.number}
    return Manifest(
        {name: _facts(part, _axes(shapes, name, part.shape)) for name, part in whole.items() if part.shape},
        {"": found[0].attributes} | groups,
        {name: part.why_not for name, part in parts.items() if part.why_not is not None},
    )


FORMATS["fits"] = Headed(_manifest)


def _facts(part: HeaderDataUnit, names: tuple[str, ...]) -> Facts:
    dtype, packing = part.sign or TYPES[part.cards["BITPIX"]], part.packing
    return Facts(
        shape=part.shape,
        chunks=rows_of(part.shape, np.dtype(dtype).itemsize),
        dtype=np.dtype(dtype).str,
        filters=() if part.sign is None else (json.dumps({"id": SIGN, "elementsize": np.dtype(dtype).itemsize}),),
        attributes=part.attributes | as_json(packing),
        native=packing,
        names=names,
        offset=part.begin,
    )


def _axes(shapes: list[tuple[int, ...]], name: str, own: tuple[int, ...]) -> tuple[str, ...]:
    """Return the axis names of an image; an axis of unequal length in another image gets the image's name as suffix."""
    found = list[str]()
    for axis, length in enumerate(own[::-1]):
        usual = "xyzw"[axis] if axis < 4 else f"axis{axis + 1}"
        same = all(shape[axis] == length for shape in shapes if axis < len(shape))
        found.append(usual if same else f"{usual}_{name}")
    return tuple(reversed(found))


def _read(file: Readable) -> list[HeaderDataUnit]:
    found, at = list[HeaderDataUnit](), 0
    with opened_file(file, "FITS") as opened:
        size = opened.seek(0, os.SEEK_END)
        while at < size:
            opened.seek(at)
            if found and opened.read(8) != b"XTENSION":
                break  # data after the last HDU follow no standard
            opened.seek(at)
            try:
                part = _header(opened, len(found), size)
            except (ValueError, KeyError, TypeError) as error:
                said = f"it has no card {error}" if isinstance(error, KeyError) else error
                raise NotFoundError(f"{file_name(file)} is a damaged FITS file: header {len(found)}: {said}") from None
            found.append(part)
            at = part.begin + -(-part.nbytes // BLOCK) * BLOCK
    return found


def _header(opened: BinaryIO, number: int, size: int) -> HeaderDataUnit:
    cards: Document = {}
    for card in _cards(opened):
        _enter(cards, card)
    lengths = _checked(cards)
    in_groups = cards.get("GROUPS") is True and lengths[:1] == [0]
    elements = math.prod(lengths[1:] if in_groups else lengths) if lengths else 0
    count = cards.get("GCOUNT", 1) * (cards.get("PCOUNT", 0) + elements)
    part = HeaderDataUnit(number=number, cards=cards, begin=opened.tell(), nbytes=abs(cards["BITPIX"]) // 8 * count)
    if part.begin + part.nbytes > size:
        raise ValueError(f"its data end at byte {part.begin + part.nbytes}, and the file at byte {size}")
    return part


def _checked(cards: Document) -> list[int]:
    """Return the lengths of the axes of a header, NAXIS1 first."""
    axes = range(1, cards["NAXIS"] + 1) if _is_count(cards["NAXIS"]) else ()
    counts = {name: cards[name] for name in ("NAXIS", *(f"NAXIS{axis}" for axis in axes))}
    counts |= {name: cards[name] for name in ("PCOUNT", "GCOUNT") if name in cards}
    wrong = [name for name, value in counts.items() if not _is_count(value)]
    wrong += [name for name in ("BSCALE", "BZERO") if type(cards.get(name, 0)) not in (int, float)]
    wrong += [name for name in ("BITPIX",) if type(cards[name]) is not int or cards[name] not in TYPES]
    wrong += [name for name in ("SIMPLE",) if cards.get(name, True) is not True]
    for name in wrong:
        raise ValueError(f"{name} is {cards[name]!r}")
    return [counts[f"NAXIS{axis}"] for axis in axes]


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _cards(opened: BinaryIO) -> Iterator[str]:
    """Yield the cards of a header, leaving the file after its last block."""
    while True:
        block = opened.read(BLOCK)
        if len(block) < BLOCK:
            raise ValueError("the file ends within it")
        for start in range(0, BLOCK, CARD):
            card = block[start : start + CARD].decode("ascii")
            if card.rstrip() == "END":
                return
            yield card


def _enter(cards: Document, card: str) -> None:
    """Add a card; the first value of a repeated keyword applies."""
    name, last = card[:8].rstrip(), next(reversed(cards), "")
    if name in ("COMMENT", "HISTORY"):
        cards[name] = f"{cards[name]}\n{card[8:].rstrip()}" if name in cards else card[8:].rstrip()
    elif name == "CONTINUE" and str(cards.get(last, "")).endswith("&"):
        cards[last] = cards[last][:-1] + str(_value(card[8:]))
    elif name == "HIERARCH" and "=" in card:
        long, _, text = card[8:].partition("=")
        cards.setdefault(long.strip(), _value(text))
    elif name and card[8:10] == "= ":
        cards.setdefault(name, _value(card[10:]))


def _value(text: str) -> Any:
    quoted = re.match(r"\s*'((?:[^']|'')*)'", text)
    if quoted:
        return quoted[1].replace("''", "'").rstrip()
    token = text.partition("/")[0].strip()
    if token in ("", "T", "F"):
        return {"T": True, "F": False}.get(token)
    with suppress(ValueError):
        return int(token)
    with suppress(ValueError):
        value = float(token.upper().replace("D", "E"))
        return value if math.isfinite(value) else token
    return token


def _named(parts: list[HeaderDataUnit]) -> dict[str, HeaderDataUnit]:
    """Name parts by EXTNAME, with EXTVER for duplicates, else by number."""
    said = [str(part.cards.get("EXTNAME") or ("" if part.number else "PRIMARY")).strip() for part in parts]
    counts = Counter(said)
    names = [f"{n}_{p.cards.get('EXTVER', 1)}" if counts[n] > 1 else n for n, p in zip(said, parts, strict=True)]
    counts = Counter(names)
    numbered = [str(n) if counts[name] > 1 or not _is_name(name) else name for n, name in enumerate(names)]
    return dict(zip(numbered, parts, strict=True))


def _is_name(name: str) -> bool:
    reserved = name.startswith("__") or name.isdigit() or not name.strip(".")
    return name.isprintable() and "/" not in name and not reserved
