"""Everything that oocarrays raises on purpose, in one tree.

OocError
├── InputError (ValueError)          what was asked for cannot be done; nothing has been started
│   ├── ChunksError                  chunks of the wrong length, zero, negative
│   ├── BudgetError                  the memory budget is smaller than the least feasible one
│   ├── NotFoundError                no such store, or no array in it
│   ├── TargetError                  the target exists, or is the source, or lies inside it
│   ├── UnsupportedError             a dtype, grid or setting that this version does not take
│   ├── SelectionError (IndexError)  an index out of range, of too many axes, or values that do not fit it
│   ├── DescriptorError              an array file whose descriptor does not fit what is there
│   ├── LayoutError                  a distribution or a process grid that fits neither array nor ranks
│   ├── ScheduleError                no such exchange schedule, or not for so many ranks
│   ├── PlacementError               ranks cannot be put on the workers of a cluster
│   ├── UnfinishedError              the array was left unfinished by a run that died
│   └── JournalError                 a journal that does not belong to what it stands beside
└── RunError (RuntimeError)          a run stopped; the source is untouched, the target is marked unfinished
    ├── CorruptChunkError            a stored chunk cannot be decoded, or has the wrong length
    ├── DiskFullError                there is no room for the target or the scratch array
    ├── KernelError                  a kernel failed, or gave what does not fit; nothing stays where nothing was written
    └── StoreFailure                 the store refused a read or a write

MissingChunksWarning (UserWarning)   a source lacks chunks, and that is to be told
SkippedArraysWarning (UserWarning)   a file has arrays that Zarr cannot hold: they are left out
"""

from __future__ import annotations

import os
import traceback

GRAPHS = os.path.realpath(os.path.join(os.path.dirname(__file__), "graphs"))
"""Where the modules are that build graphs: a link, where the sources are."""
LONGEST = 2000
"""Characters of a message, at most: of what is longer, the middle is left out."""


class OocError(Exception):
    """Base of all errors raised by oocarrays; what it says is one line, whatever values it names."""

    def __str__(self) -> str:
        line = " ".join(super().__str__().split("\n")).replace("\r", " ").replace("\0", "\\0")
        line = line.encode(errors="backslashreplace").decode()
        half = (LONGEST - 3) // 2
        return line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"

    def _render_traceback_(self) -> list[str]:
        """Return what notebooks show: the lines of whoever called, and not those between them and what is told."""
        mine = os.path.dirname(os.path.realpath(__file__))
        theirs = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if not os.path.realpath(frame.filename).startswith((mine, GRAPHS)) and "site-packages" not in frame.filename
        ]
        return [*"".join(traceback.format_list(theirs)).splitlines(), f"{type(self).__name__}: {self}"]


class InputError(OocError, ValueError):
    """Request that cannot be met; raised before any work starts."""


class ChunksError(InputError):
    """Chunks that do not fit the array: wrong length, zero or negative."""


class BudgetError(InputError):
    """The memory budget is smaller than the least feasible one.

    Parameters
    ----------
    budget : int
        Bytes that were offered.
    least : int
        Bytes that are needed at least.
    what : str
        What needs them.
    """

    def __init__(self, budget: int, least: int, what: str = "this rechunk"):
        self.budget = budget
        self.least = least
        self.what = what
        super().__init__(
            f"memory={_mib(budget)} ({budget} bytes) is too small: {what} needs at least {_mib(least)} ({least} bytes)"
        )

    def __reduce__(self) -> tuple[type[BudgetError], tuple[int, int, str]]:
        return BudgetError, (self.budget, self.least, self.what)


class NotFoundError(InputError):
    """No such store, or no array in it."""


class TargetError(InputError):
    """The target exists, or is the source, or lies inside it."""


class UnsupportedError(InputError):
    """A dtype, grid or setting that this version does not take."""


class SelectionError(InputError, IndexError):
    """An index that is out of range, has too many axes, or is none; or values that do not fit what it takes."""


class DescriptorError(InputError):
    """An array file whose descriptor is missing, cannot be read, or does not fit what is there."""


class LayoutError(InputError):
    """A distribution or a process grid that does not fit the array, or the ranks."""


class ScheduleError(InputError):
    """No such exchange schedule, or one that does not take this number of ranks."""


class PlacementError(InputError):
    """Ranks cannot be put on the workers of a cluster, or do not stay there."""


class UnfinishedError(InputError):
    """The array was left unfinished by a run that died."""


class JournalError(InputError):
    """A journal that does not belong to what it stands beside."""


class RunError(OocError, RuntimeError):
    """A run stopped; the source is untouched and the target stays marked unfinished."""


class CorruptChunkError(RunError):
    """A stored chunk cannot be decoded, or has the wrong length."""


class DiskFullError(RunError):
    """There is no room for the target or for the scratch array."""


class KernelError(RunError):
    """A kernel failed, or gave what does not fit its target; where nothing had been written, no target stays."""


class StoreFailure(RunError):
    """The store refused a read or a write."""


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"


class MissingChunksWarning(UserWarning):
    """A source lacks chunks, and ``missing="warn"`` was asked for."""


class SkippedArraysWarning(UserWarning):
    """A file has arrays that Zarr cannot hold; a group is opened without them."""
