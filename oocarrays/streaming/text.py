"""Text of streams: C's formats, for what is written and what is read.

printf("%d %.2f\\n", number, value)     every cell its own values
scanf("%d %f")                          every cell as far as its text matches
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oocarrays.errors import InputError

CONVERSION = re.compile(r"%(?P<skip>\*)?(?P<width>\d+)?(?:hh|h|ll|l|L|q|j|z|t)?(?P<kind>[diuxXofFeEgGsc%])")
"""A conversion of scanf."""
NUMBER = {
    "d": (r"[+-]?\d", lambda text: int(text)),
    "i": (r"[+-]?(?:0[xX][0-9a-fA-F]|\d)", lambda text: int(text, 0)),
    "u": (r"\d", lambda text: int(text)),
    "x": (r"(?:0[xX])?[0-9a-fA-F]", lambda text: int(text, 16)),
    "o": (r"[0-7]", lambda text: int(text, 8)),
}
FLOAT = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A part of a format for reading."""

    pattern: re.Pattern[str]
    """The text that it takes."""
    convert: Any
    """Makes a value of it; None where no value is wanted."""


def tokens_of(format: str) -> list[Token]:
    """Read a format of scanf.

    >>> [token.pattern.pattern for token in tokens_of("%d,%3s")]
    ['\\\\s*([+-]?\\\\d+)', ',', '\\\\s*(\\\\S{1,3})']

    Raises
    ------
    InputError
        Where it has a conversion that there is not.
    """
    found, place = [], 0
    while place < len(format):
        match = CONVERSION.match(format, place)
        if match:
            found.append(_token(match))
        elif format[place] == "%":
            raise InputError(
                f"format {format!r} has a conversion at {place} that is none of %d %i %u %x %o %f %s %c %%"
            )
        else:
            match = re.compile(r"\s+|[^\s%]+").match(format, place)
            assert match is not None
            text = match.group()
            found.append(Token(pattern=re.compile(r"\s*" if text.isspace() else re.escape(text)), convert=None))
        place = match.end()
    return found


def _token(match: re.Match[str]) -> Token:
    kind, width = match["kind"].lower(), match["width"]
    if kind == "%":
        return Token(pattern=re.compile("%"), convert=None)
    if kind == "c":
        return Token(pattern=re.compile(f"(.{{{width or 1}}})", re.DOTALL), convert=None if match["skip"] else str)
    many = f"{{1,{width}}}" if width else "+"
    if kind == "s":
        return Token(pattern=re.compile(rf"\s*(\S{many})"), convert=None if match["skip"] else str)
    if kind in NUMBER:
        digit, convert = NUMBER[kind]
        many = "+" if width is None else f"{{1,{width}}}"
        head, _, last = digit.rpartition("[") if digit.endswith("]") else (digit[:-2], "", "")
        unit = f"[{last}" if digit.endswith("]") else r"\d"
        text = (
            rf"\s*({head}{unit}{many})"
            if digit != r"[+-]?(?:0[xX][0-9a-fA-F]|\d)"
            else r"\s*([+-]?(?:0[xX][0-9a-fA-F]+|\d+))"
        )
        return Token(pattern=re.compile(text), convert=None if match["skip"] else convert)
    return Token(pattern=re.compile(rf"\s*({FLOAT})", re.IGNORECASE), convert=None if match["skip"] else float)


def scanned(tokens: list[Token], text: str) -> tuple[list[Any], int, bool]:
    """Match text from its beginning: the values, the characters that are taken, and whether all tokens matched.

    >>> scanned(tokens_of("%d %f"), "7  2.5 x"), scanned(tokens_of("%d,%d"), "7;8")
    (([7, 2.5], 6, True), ([7], 1, False))
    """
    values: list[Any] = []
    place = 0
    for token in tokens:
        match = token.pattern.match(text, place)
        if not match:
            return values, place, False
        if token.convert is not None:
            values.append(token.convert(match[1]))
        place = match.end()
    return values, place, True


def printed(format: str, values: tuple[Any, ...]) -> bytes:
    """Write values in a format of printf.

    >>> printed("%d %.1f", (3, 2.25))
    b'3 2.2'

    Raises
    ------
    InputError
        Where the format does not fit the values.
    """
    try:
        return (format % values).encode()
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise InputError(
            f"format {format!r} does not fit {len(values)} values such as {values!r:.80}: {error}"
        ) from None
