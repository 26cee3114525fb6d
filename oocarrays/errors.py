"""Errors and warnings of oocarrays, in one tree.

Each message is one line::

    OocError
    ├── InputError (ValueError)          the request cannot be done; nothing has been started
    │   ├── ChunksError                  chunks of the wrong length, zero, negative
    │   ├── BudgetError                  the memory budget is smaller than the least feasible one
    │   ├── NotFoundError                no such store, or no array in it
    │   ├── TargetError                  the target exists, or is the source, or lies inside it
    │   ├── UnsupportedError             a dtype, grid or setting that this version does not support
    │   ├── SelectionError (IndexError)  an index out of range, of too many axes, or values that do not fit it
    │   ├── DescriptorError              the descriptor of an array file does not fit its array
    │   ├── LayoutError                  a distribution or a process grid that fits neither array nor ranks
    │   ├── ScheduleError                no such exchange schedule, or not for this number of ranks
    │   ├── PlacementError               ranks cannot be put on the workers of a cluster
    │   ├── UnfinishedError              the array was left unfinished by a run that died
    │   └── JournalError                 a journal does not belong to its target
    └── RunError (RuntimeError)          a run stopped; the source is untouched, the target is marked unfinished
        ├── CorruptChunkError            a stored chunk cannot be decoded, or has the wrong length
        ├── DiskFullError                there is no room for the target or the scratch array
        ├── KernelError                  a kernel failed, or returned a wrong result; an unwritten target is removed
        └── StoreFailure                 the store refused a read or a write

    MissingChunksWarning (UserWarning)   a source lacks chunks, and missing="warn"
    SkippedArraysWarning (UserWarning)   a file has arrays that Zarr cannot hold: they are left out
"""

from __future__ import annotations

import os
import re
import traceback

LONGEST = 2000
"""Maximum number of characters of a message; the middle of a longer one is left out."""


COUNTED = re.compile(
    r"(there are )?(?<![\w.,*/×-])(?<!× )(?<!axis )(?<!rank )(?<!step )(?<!pass )(?<!level )1 "
    r"(aggregators|arrays|axes|blocks|boxes|bytes|cells|chunks|columns|dimensions|disks|elements|entries|files|groups|images|"
    r"indices|items|links|messages|objects|pairs|partitions|parts|passes|pieces|places|ranks|regions|requests|rounds|rows|runs|"
    r"sections|shards|slabs|sources|steps|streams|superblocks|sweeps|targets|tasks|threads|transfers|units|values|"
    r"workers)\b(?![/.]\w)( are| have| were| lie)?"
)
"""Counted nouns in the plural, of which there is one, and their verb."""
SINGULAR = {"axes": "axis", "boxes": "box", "entries": "entry", "indices": "index", "passes": "pass"}
SINGULAR |= {" are": " is", " have": " has", " were": " was", " lie": " lies"}


def in_number(text: str) -> str:
    """Return a text with singular nouns after 1.

    >>> in_number("1 axes of 2 ranks, 31 axes, 1 × 1 elements; there are 1 targets, 1 chunks are lost in run 1 files/a")
    '1 axis of 2 ranks, 31 axes, 1 × 1 elements; there is 1 target, 1 chunk is lost in run 1 files/a'
    """
    return COUNTED.sub(_singular, text)


def _singular(found: re.Match[str]) -> str:
    there, noun, verb = found.groups()
    return f"{'there is ' if there else ''}1 {SINGULAR.get(noun, noun[:-1])}{SINGULAR.get(verb, '')}"


def plural(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{ending * (number != 1)}"


class OocError(Exception):
    """Base class of all errors of oocarrays; the message is one line, even with odd values in it."""

    def __str__(self) -> str:
        line = " ".join(super().__str__().split("\n")).replace("\r", " ").replace("\0", "\\0")
        line = in_number(line.encode(errors="backslashreplace").decode())
        half = (LONGEST - 3) // 2
        return line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"

    def _render_traceback_(self) -> list[str]:
        """Return the traceback for notebooks: the caller's lines, without those of the library."""
        here = os.path.dirname(__file__)
        mine = tuple(map(os.path.realpath, (here, os.path.join(here, "graphs"))))  # a link, in the source tree
        theirs = [
            frame
            for frame in traceback.extract_tb(self.__traceback__)
            if not os.path.realpath(frame.filename).startswith(mine) and "site-packages" not in frame.filename
        ]
        return [*"".join(traceback.format_list(theirs)).splitlines(), f"{type(self).__name__}: {self}"]


class InputError(OocError, ValueError):
    """Request that cannot be met; raised before any work starts."""


class ChunksError(InputError):
    """Invalid chunks: wrong length, zero or negative."""


class BudgetError(InputError):
    """Memory budget below the least feasible one.

    Parameters
    ----------
    budget : int
        Bytes available.
    least : int
        Minimum that is needed, in bytes.
    what : str
        The consumer of the memory, as a noun phrase.
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
    """Missing store, or missing array in it."""


class TargetError(InputError):
    """Invalid target: it exists, is the source, or lies inside it."""


class UnsupportedError(InputError):
    """Dtype, grid or setting that this version does not support."""


class SelectionError(InputError, IndexError):
    """Invalid index: out of range, or with too many axes; or values that do not fit its shape."""


class DescriptorError(InputError):
    """Descriptor of an array file that is missing, unreadable, or does not fit the stored array."""


class LayoutError(InputError):
    """Distribution or process grid that does not fit the array, or the ranks."""


class ScheduleError(InputError):
    """Unknown exchange schedule, or one that does not support the number of ranks."""


class PlacementError(InputError):
    """Failure to place ranks on the workers of a cluster, or to keep them there."""


class UnfinishedError(InputError):
    """Unfinished array of an interrupted run."""


class JournalError(InputError):
    """Journal that does not belong to its target."""


class RunError(OocError, RuntimeError):
    """Stopped run; the source is untouched and the target stays marked unfinished."""


class CorruptChunkError(RunError):
    """Stored chunk that cannot be decoded, or has the wrong length."""


class DiskFullError(RunError):
    """Device without space for the target or the scratch array."""


class KernelError(RunError):
    """Failure of a kernel, or a result that does not fit its target; a target without any data is removed."""


class StoreFailure(RunError):
    """Refusal of a read or a write by the store."""


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"


class MissingChunksWarning(UserWarning):
    """Source with missing chunks, read with ``missing="warn"``."""


class SkippedArraysWarning(UserWarning):
    """File with arrays that Zarr cannot hold; its group is opened without them."""
