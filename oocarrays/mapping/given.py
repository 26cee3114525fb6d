"""Validation of arguments: a converted value, or an error in one line with the parameter and its accepted values.

    ranks=np.int64(4)    4        shape=7    (7,)       grid=[2, 1]    (2, 1)
    ranks="four"         InputError: ranks='four' must be a whole number, at least 1

Each kind of value has a single function here, at the lowest level, so that all callers validate alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from oocarrays.errors import InputError, OocError

Policy = Literal["fill", "warn", "error"]
"""Policy for chunks that are missing in a source."""
MOST_EXTENT = 2**63 - 1
"""Maximum number of elements of an axis: the largest index in memory."""
Choice = TypeVar("Choice")
Taken = ParamSpec("Taken")
Given = TypeVar("Given")


def whole(given: Any, name: str, least: int | None = None, *, error: type[InputError] = InputError) -> int:
    """Return any integer type as an int; True and False are none."""
    number = index_of(given)
    if number is None or (least is not None and number < least):
        limit = "" if least is None else f", at least {least}"
        raise error(f"{name}={given!r} must be a whole number{limit}")
    return number


def wholes(given: Any, name: str, least: int | None = None, *, error: type[InputError] = InputError) -> tuple[int, ...]:
    """Return integers from a list, a tuple, an array or any ordered iterable."""
    numbers = [index_of(each) for each in listed(given, name, error=error)]
    if any(number is None or (least is not None and number < least) for number in numbers):
        limit = "" if least is None else f", at least {least}"
        raise error(f"{name}={given!r} must be whole numbers{limit}")
    return tuple(number for number in numbers if number is not None)


Names = Sequence[str | None] | None
"""Names of axes; None for an axis, or an array, without names."""


def axis_of(
    given: Any, ndim: int, names: Names = None, word: str = "axis", *, error: type[InputError] = InputError
) -> int:
    known = [each for each in names or () if each is not None]
    if isinstance(given, str) and given in known:
        return list(names or ()).index(given)
    number = index_of(given)
    if number is None or number not in range(-ndim, ndim):
        said = f"{word}: {given!r}" if "=" in word else f"{word}={given!r}"
        more = f", or {', '.join(map(repr, known))}" if known else ""
        raise error(f"{said} is not one of the {ndim} axes, 0 to {ndim - 1}{more}")
    return number % ndim


def axes_of(given: Any, ndim: int, names: Names = None, word: str = "axis") -> tuple[int, ...]:
    """Return the numbers of one or several axes, ascending."""
    found = {axis_of(each, ndim, names, word) for each in (given if is_sequence(given) else [given])}
    if is_sequence(given) and len(found) < len(given):
        raise InputError(f"{word}={given!r} names an axis twice")
    return tuple(sorted(found))


def by_axis(
    given: Any, ndim: int, otherwise: Any, names: Names, word: str, *, error: type[InputError] = InputError
) -> Any:
    """Return one value for each axis from a mapping by axis; return anything else unchanged."""
    if not isinstance(given, Mapping):
        return given
    found = {axis_of(axis, ndim, names, f"{word}={given!r}", error=error): value for axis, value in given.items()}
    if len(found) < len(given):
        raise error(f"{word}={given!r} names an axis twice")
    return tuple(found.get(axis, otherwise) for axis in range(ndim))


def extents(given: Any, name: str = "shape", *, error: type[InputError] = InputError) -> tuple[int, ...]:
    """Return the extent of each axis: one number for one axis."""
    shape = (number,) if (number := index_of(given)) is not None else wholes(given, name, error=error)
    if any(not 0 <= n <= MOST_EXTENT for n in shape):
        raise error(f"{name}={given!r}: every extent must be a whole number, at least 0 and less than 2**63")
    return shape


def listed(given: Any, name: str, *, error: type[InputError] = InputError) -> list[Any]:
    """Return the entries of a list, a tuple, an array or any other iterable; reject text and mappings."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise error(f"{name}={given!r} is not a sequence, such as a list")
    return list(given)


def is_sequence(given: Any) -> bool:
    """Return whether a value is a sequence, or an array with axes; text is neither."""
    array_axes: int = given.ndim if isinstance(given, np.ndarray) else 1
    return isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes) and array_axes > 0


def named(given: Any, name: str, *, error: type[InputError] = InputError) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise error(f"{name}={given!r} is not a mapping from names, such as {{'units': 'K'}}")
    return dict(given)


def chosen(given: Any, name: str, choices: Iterable[Choice], *, error: type[InputError] = InputError) -> Choice:
    """Return the matching choice, of the same type as the choices."""
    choices = tuple(choices)
    for choice in choices:
        if isinstance(given, type(choice) if isinstance(choice, str) else int | np.integer) and given == choice:
            return choice
    words = [repr(choice) for choice in choices]
    raise error(f"{name}={given!r} is not {' or '.join(words) if len(words) < 3 else 'one of ' + ', '.join(words)}")


def flag(given: Any, name: str) -> bool:
    """Return True or False; other values such as ``overwrite="no"`` are rejected."""
    if not isinstance(given, bool | np.bool_) and not (isinstance(given, int) and given in (0, 1)):
        raise InputError(f"{name}={given!r} is neither True nor False")
    return bool(given)


def refuse(why: str, *, error: type[InputError] = InputError, **given: Any) -> None:
    """Raise if any of some options is given, that is, not None."""
    name = next((name for name, value in given.items() if value is not None), None)
    if name is not None:
        raise error(f"{name}={given[name]!r} {why}")


def element_type(given: Any, name: str = "dtype", *, error: type[InputError] = InputError) -> np.dtype:
    known = known_type(given, name, error=error)
    if known.hasobject or known.itemsize == 0:
        raise error(f"{name}={given!r} has elements of no fixed size; take a type such as 'float32'")
    return known


def known_type(given: Any, name: str = "dtype", *, error: type[InputError] = InputError) -> np.dtype:
    """Return a type of elements of any size, including objects."""
    try:
        known: np.dtype = np.dtype(given)  # which evaluates some texts as Python
    except (TypeError, ValueError, SyntaxError, AttributeError, LookupError, OverflowError, RecursionError) as refused:
        raise error(f"{name}={given!r} is no type of numpy's elements, such as 'float32': {refused}") from None
    return known


def names_of_axes(given: Any, ndim: int, name: str = "dimension_names") -> tuple[str | None, ...] | None:
    """Return the names of all axes, None for one without a name; None if no axis has a name."""
    if given is None:
        return None
    names = tuple(listed(given, name))
    if len(names) != ndim or not all(each is None or isinstance(each, str) for each in names):
        raise InputError(f"{name}={given!r} must be one name, or None, for each of {ndim} axes")
    return names


def check_unmasked(given: Any, *, error: type[OocError] = InputError) -> None:
    """Raise if an array has masked elements: they have no value."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise error("a masked array has no mask in Zarr: pass x.filled(value)")


def as_numpy(read: Callable[[], Any], dtype: Any) -> np.ndarray:
    """Read a value for numpy's conversion of an object, checking ``dtype`` first."""
    wanted = None if dtype is None else known_type(dtype)
    return np.asarray(read(), wanted)


def index_of(given: Any) -> int | None:
    """Return a value of any integer type as an int; None for others, True and False included."""
    try:
        return None if given is True or given is False else operator.index(given)
    except TypeError:
        return None
