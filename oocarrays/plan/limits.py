"""The most tasks that a graph can have: plans of more are arithmetic, and are refused where one would be listed."""

from __future__ import annotations

from oocarrays.errors import InputError

MOST_TASKS = 4_000_000
"""Tasks of a graph, at most: Dask keeps and orders them in some 10 GB."""


def check_count(tasks: int, what: str = "this job", advice: str = "give more memory, larger chunks") -> None:
    """Refuse a graph that could not be built, or not be run if it were.

    Parameters
    ----------
    what : str
        Names in the message what has the tasks.
    advice : str
        Says there how it would have fewer.

    Raises
    ------
    InputError
        Where it has more than `MOST_TASKS`.

    >>> check_count(4_000_000)
    """
    if tasks > MOST_TASKS:
        raise InputError(
            f"{what} has {tasks} tasks, more than the {MOST_TASKS} that can be run: {advice}, or do the array in parts"
        )
