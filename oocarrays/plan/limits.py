"""The most tasks that a graph can have: plans of more are arithmetic, and are refused where one would be listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import Stored

T = TypeVar("T")
MOST_TASKS = 4_000_000
"""Tasks of a graph, at most: Dask keeps and orders them in some 10 GB."""

MOST_ROUNDS = 100_000
"""Rounds of a collective write, at most: what is written in each is found out when it is planned."""
MOST_BITS = 512
"""Bits of the bytes of an array, at most: predicted seconds are floats, of 1024, and are made of products of these."""


def check_count(tasks: int, what: str = "this job", advice: str = "give more memory, larger chunks") -> None:
    """Refuse a graph that could not be built, or not be run if it were.

    >>> check_count(4_000_000)
    """
    if tasks > MOST_TASKS:
        raise InputError(
            f"{what} has {tasks} tasks, more than the {MOST_TASKS} that can be run: {advice}, or do the array in parts"
        )


def within_budget(plans: Iterable[Callable[[], T]]) -> list[T]:
    """Make several plans for one budget; where it is too small for some, the error's minimum is enough for all."""
    made: list[T] = []
    refused: list[BudgetError] = []
    for plan in plans:
        try:
            made.append(plan())
        except BudgetError as error:
            refused.append(error)
    check_budgets(refused)
    return made


def check_budgets(refused: Sequence[BudgetError]) -> None:
    """Raise the error with the largest minimum, if there is any."""
    if refused:
        raise max(refused, key=lambda error: error.least)


def check_rounds(chunks: int, at_once: int) -> None:
    """Refuse a collective write of more rounds than could be gone through in planning it."""
    rounds = -(-chunks // at_once)
    if rounds > MOST_ROUNDS:
        raise InputError(
            f"a collective write of {chunks} chunks has {rounds} rounds, more than the {MOST_ROUNDS} that can be "
            "planned: give fewer at a time, or sections that share no chunk with method='independent'"
        )


def check_priced(stored: Stored, name: str) -> None:
    """Refuse an array of which nobody can say what it takes to go through it."""
    if (bits := stored.padded_bytes.bit_length()) > MOST_BITS:
        raise InputError(f"{name} of shape {stored.grid.shape} has 2**{bits - 1} bytes, more than 2**{MOST_BITS}")
