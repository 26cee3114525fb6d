"""Text of streams in the formats of C: directives of fprintf and fscanf, on bytes.

printf("%d %.2f\\n", number, value)     d i u o x X, f F e E g G, c s %, with flags, width, precision and length
scanf("%d %f %9[^,]")                   the same and %[…], with * and width; others are refused by name

Integers keep their value where C's ``int`` is too short; h and hh cut them, unsigned conversions wrap negative ones.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from oocarrays.errors import InputError

LENGTH = "(?P<length>hh|h|ll|l|L|q|j|z|t)?"
PRINTED = re.compile(
    r"(?P<text>[^%]+)|%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?P<precision>\.(?:\*|\d*))?"
    rf"{LENGTH}(?P<kind>[diuoxXfFeEgGsc%])"
)
"""A conversion of printf, or text."""
SCANNED = re.compile(
    rf"(?P<text>\s+|[^\s%]+)|%(?P<skip>\*)?(?P<width>\d+)?{LENGTH}(?P<kind>[diuoxXfFeEgGsc%]|\[\^?\]?[^\]]*\])"
)
"""A conversion of scanf, white space, or text."""
LETTERS = r"[iI](?:[nN](?:[fF](?:[iI](?:[nN](?:[iI](?:[tT][yY]?)?)?)?)?)?)?|[nN](?:[aA][nN]?)?"
READ = {
    "d": rb"[+-]?[0-9]*",
    "i": rb"[+-]?(?:0[xX][0-9a-fA-F]*|0[0-7]*|[1-9][0-9]*)?",
    "o": rb"[+-]?[0-7]*",
    "x": rb"[+-]?(?:0[xX])?[0-9a-fA-F]*",
    "f": rf"[+-]?(?:{LETTERS}|0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*(?:[pP][+-]?\d*)?"
    rf"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]*)?|\.)?".encode(),
    "s": rb"[^ \t-\r]+",
    "c": rb"(?s:.+)",
}
"""Longest text that a conversion reads, before it is known to be a value."""
SPACE = re.compile(rb"[ \t-\r]*")


def _directives(format: str, kind: re.Pattern[str]) -> list[re.Match[str]]:
    found, place = list[re.Match[str]](), 0
    while place < len(format):
        match = kind.match(format, place)
        if match is None or (match["length"] and match["kind"][0] in "sc[%"):
            name = re.findall(r"%[^a-zA-Z%\s]*(?:hh|h|ll|l|L|q|j|z|t)?.?", format[place:])[0]
            raise ValueError(f"conversion at {place}, {name!r}, is not supported")
        found.append(match)
        place = match.end()
    return found


def _text(format: Any) -> str:
    if not isinstance(format, str):
        raise InputError(f"format={format!r:.80} must be text such as '%d'")
    return format


def wrapped(value: int, length: str | None, *, signed: bool) -> int:
    """Return an integer as C converts it to the type of a conversion."""
    bits = {"hh": 8, "h": 16, None: 32}.get(length, 64)
    if bits >= 32:
        return value if signed or value >= 0 else value % 2 ** (bits if value >= -(2**31) else 64)
    value %= 2**bits
    return value - 2**bits if signed and value >= 2 ** (bits - 1) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A directive of a format for reading."""

    skips: bool = False
    """Whether it skips white space first."""
    text: bytes = b""
    """Text that must follow."""
    pattern: re.Pattern[bytes] | None = None
    """The text that a conversion reads."""
    width: int | None = None
    """Bytes that it reads, at most."""
    value: Callable[[bytes], Any] | None = None
    """Conversion to a value; returns None if there is none."""
    type: Any = None
    """Type of the values; None if they are not assigned."""


def tokens_of(format: str) -> list[Token]:
    text = _text(format)
    try:
        return list(map(_token, _directives(text, SCANNED)))
    except ValueError as error:
        raise InputError(f"format {format!r}: {error}; take one of %d %i %u %x %o %f %e %g %s %c %[…] %%") from None


def _token(match: re.Match[str]) -> Token:
    if text := match["text"]:
        return Token(skips=text.isspace(), text=text.strip().encode())
    kind, width, length = match["kind"], int(match["width"] or 0) or None, match["length"]
    if kind == "%":
        return Token(skips=True, text=b"%")
    value: Callable[[bytes], Any]
    type_of: type
    if kind[0] in "cs[":
        pattern = _among(kind[1:-1]) if kind[0] == "[" else READ[kind]
        value, type_of, width = _text_of, str, width or (1 if kind == "c" else None)
    elif kind in "fFeEgG":
        pattern, value, type_of = READ["f"], _float_of, float
    else:
        plain = {"u": "d", "X": "x"}.get(kind, kind)
        pattern, type_of = READ[plain], int
        value = partial(_integer_of, base={"d": 10, "o": 8, "x": 16}.get(plain), length=length, signed=kind in "di")
    kept = None if match["skip"] else type_of
    return Token(skips=kind[0] not in "c[", pattern=re.compile(pattern), width=width, value=value, type=kept)


def _among(said: str) -> bytes:
    """Return the pattern of bytes of a set: ``a-z``, ``^,``, ``]x``."""
    inverted, data = said.startswith("^"), said.removeprefix("^").encode()
    cut = re.sub(rb"(?s)(.)-(.)", lambda m: bytes(range(m[1][0], m[2][0] + 1)), data)
    return b"[" + b"^" * inverted + b"".join(b"\\x%02x" % byte for byte in cut) + b"]*"


def _text_of(data: bytes) -> str | None:
    return data.decode("utf-8", "surrogateescape") if data else None


def _integer_of(data: bytes, base: int | None, length: str | None, signed: bool) -> int | None:
    sign, digits = (data[:1], data[1:]) if data[:1] in (b"+", b"-") else (b"", data)
    if not digits:
        return None
    is_hex = digits[:2].lower() == b"0x"
    base = base or (16 if is_hex else 8 if digits[:1] == b"0" else 10)
    number = int(digits[2 * is_hex :] or b"0", base)
    return wrapped(-number if sign == b"-" else number, length, signed=signed)


def _float_of(data: bytes) -> float | None:
    text = data.decode().lower()
    is_hex = "x" in text
    text = re.sub(r"p[+-]?$" if is_hex else r"e[+-]?$", "", text)
    try:
        return float.fromhex(text) if is_hex else float(text)
    except ValueError:
        return None


def scanned(tokens: list[Token], text: bytes) -> tuple[list[Any], int, bool]:
    values: list[Any] = []
    place = 0
    for token in tokens:
        if token.skips:
            place = SPACE.match(text, place).end()  # type: ignore[union-attr]
        if token.text:
            there = text[place : place + len(token.text)]
            place += next((k for k, byte in enumerate(there) if byte != token.text[k]), len(there))
            if there != token.text:
                return values, place, place == len(text)
        if token.pattern is None or token.value is None:
            continue
        if place == len(text):
            return values, place, True
        match = token.pattern.match(text, place, place + token.width if token.width else len(text))
        value = None if match is None else token.value(match[0])
        place = place if match is None else match.end()
        if value is None:
            return values, place, False
        if token.type is not None:
            values.append(value)
    return values, place, False


def columns_of(tokens: list[Token], found: list[list[Any]]) -> list[np.ndarray]:
    """Return the values of each conversion from those of each cell: 0, nan or empty for cells without a match."""
    kinds = [token.type for token in tokens if token.type is not None]
    return [_column(found, number, kind) for number, kind in enumerate(kinds)]


def _column(found: list[list[Any]], number: int, kind: type) -> np.ndarray:
    """Return the values of one conversion; integers are objects if some are too large."""
    empty: Any = "" if kind is str else math.nan if kind is float else 0
    values = [each[number] if number < len(each) else empty for each in found]
    if kind is not int:
        return np.array(values, kind)
    limits = [(dtype, np.iinfo(dtype)) for dtype in (np.int64, np.uint64)]
    least, most = min(values, default=0), max(values, default=0)
    return np.array(values, next((dtype for dtype, it in limits if it.min <= least and most <= it.max), object))


def printed(format: str, values: tuple[Any, ...]) -> bytes:
    left = list(values)
    try:
        out = b"".join(each if isinstance(each, bytes) else _print(each, left) for each in _printing(_text(format)))
        if left:
            raise TypeError(f"{len(left)} more than it has conversions")
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        said = f"does not fit {len(values)} values such as {values!r:.80}"
        raise InputError(f"format {format!r} {said}: {error}") from None
    return out


@lru_cache(maxsize=64)
def _printing(format: str) -> list[bytes | re.Match[str]]:
    each = ((match, match["text"] or "%") for match in _directives(format, PRINTED))
    return [text.encode() if match["text"] or match["kind"] == "%" else match for match, text in each]


def _print(conversion: re.Match[str], left: list[Any]) -> bytes:
    """Return the next of the remaining values as text: by a format of Python, with flags for which it does as C."""
    flags, wide, said, length, kind = conversion.group("flags", "width", "precision", "length", "kind")
    width = _size(wide, left) or 0
    precision = None if said is None else _size(said[1:] or "0", left)
    precision = None if precision is None or precision < 0 else precision
    if not left:
        raise TypeError("values are missing")
    value = left.pop(0)
    if kind in "diuoxX":
        value = wrapped(operator.index(value), length, signed=kind in "di")
        if flags:
            gone = ("" if precision is None else "0") + ("" if kind in "di" else "+ ")
            if kind == "o" and "#" in flags:
                precision = max(precision or 0, len(f"{value:o}") + (value != 0))
            gone += "#" if kind == "o" or not value else ""
            flags = "".join(flag for flag in flags if flag not in gone)
        if not value and precision == 0:
            value, kind, precision = _sign(0, flags), "s", None
    elif kind == "c":
        value, kind, precision = _character(value), "s", None
    elif kind == "s":
        value = value if isinstance(value, bytes) else str(value).encode()
    elif not math.isfinite(value):
        value, kind, precision = _sign(value, flags) + f"%{kind}".encode() % abs(value), "s", None
    return _spec(flags, width, precision, kind) % (value,)


@lru_cache(maxsize=256)
def _spec(flags: str, width: int, precision: int | None, kind: str) -> bytes:
    flags = (flags.replace("0", "") if kind == "s" else flags) + "-" * (width < 0)
    return f"%{flags}{abs(width) or ''}{'' if precision is None else f'.{precision}'}{kind}".encode()


def _size(said: str | None, left: list[Any]) -> int | None:
    if said == "*":
        if not left:
            raise TypeError("values are missing")
        return operator.index(left.pop(0))
    return None if said is None else int(said)


def _character(value: Any) -> bytes:
    if not isinstance(value, str | bytes):
        return bytes([operator.index(value) % 256])
    if len(value) != 1:
        raise ValueError(f"%c takes one character or its number, not {value!r:.40}")
    return value.encode() if isinstance(value, str) else value


def _sign(value: float, flags: str) -> bytes:
    return b"-" if math.copysign(1, value) < 0 else b"+" if "+" in flags else b" " if " " in flags else b""
