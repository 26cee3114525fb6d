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
    rf"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?P<precision>\.(?:\*|\d*))?{LENGTH}(?P<kind>[diuoxXfFeEgGsc%])"
)
"""A conversion of printf."""
SCANNED = re.compile(rf"%(?P<skip>\*)?(?P<width>\d+)?{LENGTH}(?P<kind>[diuoxXfFeEgGsc%]|\[\^?\]?[^\]]*\])")
"""Conversion of scanf."""
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


def name_of(format: str, place: int) -> str:
    match = re.compile(r"%[^a-zA-Z%\s]*(?:hh|h|ll|l|L|q|j|z|t)?.?").match(format, place)
    assert match is not None, "a conversion begins here"
    return match.group()


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
    found, place = [], 0
    while place < len(_text(format)):
        match = SCANNED.match(format, place)
        if match and not (match["length"] and match["kind"][0] in "sc[%"):
            found.append(_conversion(match))
        elif format[place] == "%":
            raise InputError(
                f"format {format!r}: conversion at {place}, {name_of(format, place)!r}, is not supported; "
                "take one of %d %i %u %x %o %f %e %g %s %c %[…] %%"
            )
        else:
            match = re.compile(r"\s+|[^\s%]+").match(format, place)
            assert match is not None, "text or space follows"
            is_space = match.group().isspace()
            found.append(Token(skips=is_space, text=b"" if is_space else match.group().encode()))
        place = match.end()
    return found


def _conversion(match: re.Match[str]) -> Token:
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
        out = b"".join(part if isinstance(part, bytes) else _print(part, left) for part in _parts(_text(format)))
        if left:
            raise TypeError(f"{len(left)} more than it has conversions")
    except InputError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        said = f"does not fit {len(values)} values such as {values!r:.80}"
        raise InputError(f"format {format!r} {said}: {error}") from None
    return out


@lru_cache(maxsize=64)
def _parts(format: str) -> list[bytes | re.Match[str]]:
    found: list[bytes | re.Match[str]] = []
    place = 0
    while place < len(format):
        match = re.compile("[^%]+").match(format, place)
        if match is None:
            match = PRINTED.match(format, place)
            if match is None or (match["length"] and match["kind"] in "sc%"):
                raise ValueError(f"conversion {name_of(format, place)!r} is not supported")
            found.append(match)
        else:
            found.append(match.group().encode())
        place = match.end()
    return found


def _print(conversion: re.Match[str], left: list[Any]) -> bytes:
    """Return the next of the remaining values as text."""
    flags, kind = conversion["flags"], conversion["kind"]
    if kind == "%":
        return b"%"
    width = _size(conversion["width"], left) or 0
    said = conversion["precision"]
    precision = None if said is None else _size(said[1:] or "0", left)
    precision = None if precision is None or precision < 0 else precision
    flags, width = (flags + "-", -width) if width < 0 else (flags, width)
    if not left:
        raise TypeError("values are missing")
    value, has_zeros = left.pop(0), "0" in flags
    if kind in "sc":
        text = value if isinstance(value, bytes) else str(value).encode()
        sign, body = b"", _character(value) if kind == "c" else text[:precision]
        has_zeros = False
    elif kind in "fFeEgG":
        sign, body = _float(value, kind, precision, flags)
        has_zeros = has_zeros and math.isfinite(value)
    else:
        sign, body = _integer(value, kind, precision, flags, conversion["length"])
        has_zeros = has_zeros and precision is None
    room = width - len(sign)
    if "-" in flags:
        return sign + body.ljust(room)
    return sign + body.rjust(room, b"0") if has_zeros else (sign + body).rjust(width)


def _size(said: str | None, left: list[Any]) -> int | None:
    if said == "*":
        if not left:
            raise TypeError("values are missing")
        return operator.index(left.pop(0))
    return None if said is None else int(said)


def _character(value: Any) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    if isinstance(data, bytes):
        if len(value) != 1:
            raise ValueError(f"%c takes one character or its number, not {value!r:.40}")
        return data
    return bytes([operator.index(data) % 256])


def _float(value: Any, kind: str, precision: int | None, flags: str) -> tuple[bytes, bytes]:
    if not isinstance(value, int | float):
        raise TypeError(f"%{kind} takes numbers, not {value!r:.40}")
    body = f"%{'#' * ('#' in flags)}.{6 if precision is None else precision}{kind}" % abs(float(value))
    return _sign(math.copysign(1, value) < 0, flags), body.encode()


def _integer(value: Any, kind: str, precision: int | None, flags: str, length: str | None) -> tuple[bytes, bytes]:
    signed = kind in "di"
    number = wrapped(operator.index(value), length, signed=signed)
    base = "d" if kind in "diu" else kind
    body = format(abs(number), base) if number or precision != 0 else ""
    body = body.rjust(precision or 0, "0")
    if "#" in flags and kind == "o" and not body.startswith("0"):
        body = f"0{body}"
    head = f"0{kind}".encode() if "#" in flags and kind in "xX" and number else b""
    return (_sign(number < 0, flags) if signed else head), body.encode()


def _sign(negative: bool, flags: str) -> bytes:
    return b"-" if negative else b"+" if "+" in flags else b" " if " " in flags else b""
