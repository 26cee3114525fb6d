"""The folder that a run makes for itself: known by its name, and by what is in it.

    data/  .oocarrays-0123456789ab/  lock           held by those who use it
                                     0/  1/         a scratch array of each pass
                                     copy/ blocks/  of lazy arrays

What says where one is may be wrong, or written by others. So a folder is a run's scratch only where both fit, and
symbolic links are not followed out of it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from oocarrays.errors import InputError, JournalError
from oocarrays.storage.stores.remote import RemoteStore, place_below

ID = re.compile(r"[0-9a-f]{12}")
"""Of a run."""
NAME = re.compile(r"\.oocarrays-[0-9a-f]{12}")
INSIDE = re.compile(r"lock|[0-9]+|kept|copy|blocks(\.partial)?|\.nfs[0-9a-f]+")
"""What runs put there, and the remains of open files that network file systems leave."""


def scratch_below(place: str | RemoteStore, id: str) -> str | RemoteStore:
    """The scratch of a run, in a folder or below a prefix.

    >>> scratch_below("/tmp", "0123456789ab")
    '/tmp/.oocarrays-0123456789ab'
    """
    return place_below(place, f".oocarrays-{id}")


def is_scratch_folder(folder: str) -> bool:
    """Whether a folder has the name of a run's scratch, and nothing in it but what runs put there."""
    if not NAME.fullmatch(os.path.basename(folder)) or os.path.islink(folder):
        return False
    with suppress(OSError), os.scandir(folder) as entries:
        return all(INSIDE.fullmatch(entry.name) and not entry.is_symlink() for entry in entries)
    return False


def trusted_scratch(named: str | RemoteStore, id: str, otherwise: str | RemoteStore) -> str | RemoteStore:
    """Where a run that goes on has its scratch: where its journal says, if that is there; else where one would be now."""
    if isinstance(named, RemoteStore):
        same = isinstance(otherwise, RemoteStore) and otherwise.name == named.name
        return named if same or isinstance(otherwise, str) else otherwise
    folder = str(scratch_below(named, id))
    if not os.path.lexists(folder):
        return otherwise
    if not is_scratch_folder(folder):
        raise JournalError(f"the journal names {folder} as scratch, which holds what no run has put there")
    return named


def check_scratch_place(scratch: str | RemoteStore, **arrays: str | None) -> None:
    """Refuse scratch in an array: whoever reads, copies or removes the array would meet it there."""
    there = scratch.name if isinstance(scratch, RemoteStore) else os.path.realpath(scratch)
    for what, array in arrays.items():
        if array and f"{there}/".startswith(f"{array.rstrip('/')}/"):
            raise InputError(f"scratch={there} lies in the {what} {array}: name a folder outside of it")
