"""The parts that a run has finished, kept beside its target, so that the next process can go on where it stopped.

    target/  zarr.json  c/ …               the array
             .oocarrays/  plan.json        the run, and all that it was asked to do, with their digest
                          done/0.3.1 …     a small object for each finished part: the same digest, and receipts of
                                           what the part has stored
                          done/kept        what plans before this one have stored, and it does not store again
                          lock             held by every process that works for the run (local folders)
                          ended-c0ffee     what a run has given that has ended, until its client has heard of it

An entry is made whole or not at all, and after what it stands for: both are on their device before it gets its name,
so that it outlives the process that made it, and what can be read after a loss of power is true. Other Zarr readers
look for no such keys.

The digest tells a journal that was cut short or mixed up from a whole one. It does not tell who wrote it: whoever may
write beside the target may write a journal that fits. So what a journal says is taken as data, never trusted with more
than its run needs: nothing is removed but what has the name and the contents of that run's scratch.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

from oocarrays.errors import JournalError, NotFoundError, StoreFailure, TargetError
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.entries import LocalEntries, StoreEntries, entries_of
from oocarrays.storage.journal.lock import Busy, Hold, try_lock
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.stores.refused import write_error

FOLDER = ".oocarrays"
"""Where a journal is, below its target."""
NOTE = ".oocarrays.json"
"""The key of a note below an array that is there, of what is being written to it."""
PLAN, DONE, LOCK, ENDED, KEPT = "plan.json", "done", "lock", "ended-", "kept"
Kept = Mapping[str, Mapping[str, Receipt]]
"""Receipts of chunks, by the name of the place where they are."""
BEGINNING = "again"
"""Where what a run was asked to do has what tells the beginning of its plan from all others of the same run."""
NAME = re.compile(r"-|(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*")


class Journal:
    """A journal: the parts that the run that writes one target has finished.

    It can be pickled where its store can; the hold on the lock stays behind.

    Parameters
    ----------
    store : path or Store
        That of the target array. Nothing is read.
    durable : bool
        Whether what it is told at once is whole, if it can be read, after a loss of power; when to say it is the run's
        business.

    Examples
    --------
    >>> from zarr.storage import MemoryStore
    >>> journal = Journal(MemoryStore())
    >>> journal.begin("c0ffee", {"chunks": [4, 4]})
    >>> journal.record((0, 3))
    >>> journal.read(), journal.parts()
    (('c0ffee', {'chunks': [4, 4]}), {(0, 3)})
    """

    def __init__(self, store: StoreLike, *, durable: bool = True) -> None:
        folder = local_folder(store)
        self.durable = durable
        self.store = store if folder is None else folder
        self._hold = None if folder is None else Hold(os.path.join(folder, FOLDER, LOCK))
        self._digest: str | None = None
        self._folder = DONE
        self._done: set[tuple[int, ...]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Journal, durable=self.durable), (self.store,)

    @cached_property
    def _entries(self) -> LocalEntries | StoreEntries:
        return entries_of(self.store, FOLDER)

    @cached_property
    def _beside(self) -> LocalEntries | StoreEntries:
        return entries_of(self.store)

    def begin(self, run: str, content: dict[str, Any]) -> None:
        """Write down what ``run`` will do; what an earlier journal may have left is cleared first.

        Parameters
        ----------
        content : dict
            Anything that JSON can hold.

        Raises
        ------
        TargetError
            Where there is a journal already.
        """
        digest, data = _digest(run, content), {"run": run, "content": content}
        text = json.dumps(data | {"digest": digest}).encode()
        with self._writing():
            if self._entries.get(PLAN) is None:
                self._entries.clear(DONE)
                self._entries.make_folder(DONE)
                self._entries.create(PLAN, text)
                if self._entries.get(PLAN) == text:
                    self._digest, self._folder, self._done = digest, DONE, set()
                    return
        raise TargetError(f"{self.store} has a journal already: resume its run, or write the target with overwrite")

    def read(self) -> tuple[str, dict[str, Any]]:
        """The run, and what it was asked to do.

        Raises
        ------
        NotFoundError
            Where there is no journal.
        JournalError
            Where it cannot be read, or has been changed.
        """
        with self._reading():
            text = self._entries.get(PLAN)
        if text is None:
            raise NotFoundError(f"{self.store} has no journal: nothing to resume")
        run, content, self._digest, self._folder = self._checked(text)
        return run, content

    def _checked(self, text: bytes, name: str = PLAN) -> tuple[str, dict[str, Any], str, str]:
        try:
            data = json.loads(text)
            run, content, digest = data["run"], data["content"], data["digest"]
            folder = f"{DONE}-{digest[:12]}" if data.get("replaced") else DONE
        except (ValueError, KeyError, TypeError, RecursionError):
            raise JournalError(f"{name} in the journal of {self.store} is cut short, or no journal's") from None
        if not (isinstance(run, str) and isinstance(content, dict) and digest == _digest(run, content)):
            raise JournalError(f"{name} in the journal of {self.store} has been changed: its digest does not fit")
        return run, content, digest, folder

    def _known_digest(self) -> bytes:
        """The digest of the plan, read once."""
        if self._digest is None:
            self.read()
        assert self._digest is not None
        return self._digest.encode()

    def is_there(self) -> bool:
        """Whether there is a journal: from the beginning of a run to its end."""
        with self._reading():
            return self._entries.get(PLAN) is not None

    def replace(self, run: str, content: dict[str, Any], kept: Kept | None = None) -> None:
        """Write down that ``run`` does something else from now on, of which no part is finished; at once.

        Parameters
        ----------
        kept : mapping
            Receipts of chunks that are stored, and stay, by the name of the place where they are.
        """
        digest, data = _digest(run, content), {"run": run, "content": content}
        folder = f"{DONE}-{digest[:12]}"
        entry = f"{digest}\n{json.dumps(kept or {}, separators=(',', ':'))}".encode()
        with self._writing():
            self._entries.clear(folder)
            self._entries.make_folder(folder)
            self._entries.prepare(f"{folder}/{KEPT}", entry, durable=self.durable)()
            self._entries.replace(PLAN, json.dumps(data | {"digest": digest, "replaced": True}).encode())
            self._clear_but(folder)
        self._digest, self._folder, self._done = digest, folder, set()

    def _clear_but(self, folder: str) -> None:
        """Remove what all plans have recorded, but for what is in one folder."""
        for name in self._entries.names(DONE):
            if name != folder:
                self._entries.clear(name)

    def kept(self) -> dict[str, dict[str, Receipt]]:
        """Receipts of what plans before this one have stored, by the name of the place where it is.

        Raises
        ------
        NotFoundError, JournalError
            As `parts`; also where a plan that took the place of another no longer has them.
        """
        digest = self._known_digest()
        if self._folder == DONE:
            return {}
        with self._reading():
            entry = self._entries.get(f"{self._folder}/{KEPT}") or b""
        self._check_entry(KEPT, entry, digest)
        return self._receipts(KEPT, entry) or {}

    def record(self, part: tuple[int, ...], stored: Mapping[str, Mapping[str, Receipt]] | None = None) -> None:
        """Write down that ``part`` is finished; fine where it is written down already.

        Parameters
        ----------
        stored : mapping
            Receipts of the chunks of the part, by the name of the place where they are.

        Raises
        ------
        NotFoundError
            Where there is no journal, or no longer.
        DiskFullError, StoreFailure
            Where it cannot be written.
        """
        self.prepare(part, stored, durable=self.durable)()

    def prepare(
        self,
        part: tuple[int, ...],
        stored: Mapping[str, Mapping[str, Receipt]] | None = None,
        *,
        durable: bool = False,
    ) -> Callable[[], None]:
        """Write down that ``part`` is finished where nobody finds it; what is returned gives that its name.

        Parameters
        ----------
        stored : mapping
            As of `record`, whose errors both may raise.
        durable : bool
            Whether it is on its device at once, and need not be synced before it gets its name.
        """
        entry, key = self._known_digest(), self._key(part)
        if stored:
            entry += b"\n" + json.dumps(stored, separators=(",", ":")).encode()
        with self._writing():
            try:
                publish = self._entries.prepare(key, entry, durable=durable)
            except FileNotFoundError:
                self.read()
                self._entries.make_folder(self._folder)  # copies of folders often leave out the empty ones
                publish = self._entries.prepare(key, entry, durable=durable)
        return partial(self._publish, part, key, entry, publish)

    def _publish(self, part: tuple[int, ...], key: str, entry: bytes, publish: Callable[[], None]) -> None:
        with self._writing():
            try:
                publish()
            except FileNotFoundError:  # it was taken for what a dead process has left
                self.read()
                self._entries.prepare(key, entry, durable=True)()
        self._done.add(part)

    def has(self, part: tuple[int, ...]) -> bool:
        """Whether ``part`` is finished. This process looks in the store until it has seen it there once.

        Raises
        ------
        NotFoundError
            Where there is no journal.
        JournalError
            Where the entry belongs to another plan.
        """
        if part in self._done:
            return True
        digest = self._known_digest()
        with self._reading():
            found = self._entries.get(self._key(part))
        if found is None:
            return False
        self._check_entry(self._key(part), found, digest)
        self._done.add(part)
        return True

    def parts(self) -> set[tuple[int, ...]]:
        """All parts that are finished.

        Raises
        ------
        NotFoundError
            Where there is no journal.
        JournalError
            Where an entry is not named after a part, or belongs to another plan.
        """
        self._done = set(self._found())
        return set(self._done)

    def stored(self) -> dict[tuple[int, ...], dict[str, dict[str, Receipt]] | None]:
        """Read what each finished part has stored; None of those that were written down without receipts.

        Raises
        ------
        NotFoundError, JournalError
            As `parts`.
        """
        return {part: self._receipts(self._key(part), entry) for part, entry in self._found().items()}

    def _receipts(self, name: str, entry: bytes) -> dict[str, dict[str, Receipt]] | None:
        _, _, text = entry.partition(b"\n")
        if not text:
            return None
        try:
            found: dict[str, dict[str, Receipt]] = json.loads(text)
            if all(_is_below(key) and _is_receipt(each) for at in found.values() for key, each in at.items()):
                return found
        except (ValueError, AttributeError, RecursionError):
            pass
        raise JournalError(f"{name} in the journal of {self.store} is cut short, or no journal's")

    def _found(self) -> dict[tuple[int, ...], bytes]:
        """All entries, by their parts."""
        self.read()
        digest = self._known_digest()
        with self._reading():
            entries = self._entries.entries(self._folder)
        if self._folder != DONE:
            entries.pop(KEPT, None)
        for name, found in entries.items():
            if not NAME.fullmatch(name):
                raise JournalError(f"{name!r} in the journal of {self.store} is not the name of a part")
            if found is not None:
                self._check_entry(name, found, digest)
        return {_part(name): found for name, found in entries.items() if found is not None}

    def _check_entry(self, name: str, found: bytes, digest: bytes) -> None:
        if found.partition(b"\n")[0] != digest:
            raise JournalError(f"{name} in the journal of {self.store} was finished by a run of another plan")

    def _key(self, part: tuple[int, ...]) -> str:
        """Where a part is written down, in the folder of the plan that is known."""
        return f"{self._folder}/{_name(part)}"

    def forget(self, parts: Iterable[tuple[int, ...]]) -> None:
        """Take back that ``parts`` are finished. Other processes may have seen them, and go by that."""
        parts = set(parts)
        with self._writing():
            self._entries.delete(map(self._key, parts))
        self._done -= parts

    def remove(self, *, ended: str | None = None) -> None:
        """Remove the journal, its plan first; fine where there is none.

        Parameters
        ----------
        ended : str, optional
            The run that has said that it ended: its word stays.
        """
        with self._writing():
            self._entries.delete([PLAN])
            if ended is None:
                self._entries.clear_all()
            else:
                self._clear_but("")
                self._entries.delete([LOCK])
        self._digest, self._folder, self._done = None, DONE, set()

    def sweep(self) -> None:
        """Remove what a run that has finished its target could not remove; its word that it ended stays.

        Raises
        ------
        TargetError
            Where a run is at work.
        """
        if self.is_there():
            self.claim()
            try:
                self.remove(ended="")
            finally:
                self.release()

    def note(self, run: str, content: dict[str, Any]) -> None:
        """Write down that ``run`` writes to what is there, beside it, in the place of what another has noted."""
        text = json.dumps({"run": run, "content": content, "digest": _digest(run, content)}).encode()
        with self._writing():
            self._beside.delete([NOTE])
            self._beside.create(NOTE, text)

    def noted(self) -> dict[str, Any] | None:
        """Read what a run that was killed has noted that it writes to what is there; None where none has.

        Raises
        ------
        JournalError
            Where it cannot be read, or has been changed.
        """
        text = self._note()
        return None if text is None else self._checked(text, NOTE)[1]

    def take_note(self, run: str) -> None:
        """Take back what ``run`` has noted; what another has noted meanwhile stays."""
        text = self._note()
        if text and self._checked(text, NOTE)[0] == run:
            with self._writing():
                self._beside.delete([NOTE])

    def _note(self) -> bytes | None:
        with self._reading():
            return self._beside.get(NOTE)

    def say_ended(self, run: str, gives: Any = None) -> None:
        """Write down that ``run`` ends, and what it gives: who does its last task again knows that it was done."""
        with self._writing():
            self._entries.make_folder("")
            self._entries.create(f"{ENDED}{run}", json.dumps([gives]).encode())

    def ended(self, run: str) -> list[Any] | None:
        """Read what ``run`` gives, alone in a list, where it has said that it ends and its client has not heard yet."""
        with self._reading():
            text = self._entries.get(f"{ENDED}{run}")
        return None if text is None else list(json.loads(text))

    def was_heard(self, run: str) -> None:
        """Take back what ``run`` said, once nobody can miss it; what another has begun meanwhile stays."""
        with self._writing():
            self._entries.delete([f"{ENDED}{run}"])
            self._entries.clear_if_empty()

    def claim(self, wait: float = 0.0) -> bool:
        """Make sure that no other run is at work on this target, and that none begins while this process lives.

        A folder for the journal is made where there is none. Only local folders have locks: for other stores, and
        file systems without them, this does nothing.

        Parameters
        ----------
        wait : float
            Seconds to wait for another run to end.

        Returns
        -------
        bool
            Whether there is a lock, and this object holds it; also where it did so before.

        Raises
        ------
        TargetError
            Where another run is at work.
        """
        if self._hold is None:
            return False
        with self._writing(), self._refused():
            return self._hold.claim(wait)

    def join(self) -> bool:
        """Hold the lock beside the process that claimed it, as long as this one works for the same run.

        Nothing is made where there is no journal: the run may be over.

        Returns
        -------
        bool
            Whether there is a lock, and this object holds it.
        """
        if self._hold is None:
            return False
        with self._writing(), self._refused():
            return self._hold.share(make=self._entries.get(PLAN) is not None)

    def release(self) -> None:
        """Let go of the lock; a claim with which nothing was begun leaves nothing."""
        if self._hold is not None and self._hold.close():
            with suppress(OSError, Busy):
                self._tidy(self._hold.path)

    def _tidy(self, lock: str) -> None:
        """Remove a lock that nobody holds and that stands beside no plan."""
        file = try_lock(lock, fcntl.LOCK_EX)
        if file is None:
            return
        try:
            if self._entries.get(PLAN) is None:
                os.unlink(lock)
                os.rmdir(os.path.dirname(lock))
        finally:
            os.close(file)

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except Busy:
            raise TargetError(f"another run is at work on {self.store}") from None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreFailure(f"cannot read the journal of {self.store}: {error.strerror or error}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(f"the journal of {self.store}", error) from error


def _is_below(key: str) -> bool:
    """Whether a key leads nowhere but into its array.

    >>> _is_below("c/0/0"), _is_below("../c"), _is_below("/etc/passwd")
    (True, False, False)
    """
    return not {"", ".", ".."}.intersection(key.split("/"))


def _is_receipt(given: Any) -> bool:
    """Whether something in an entry is what a receipt is.

    >>> [_is_receipt(each) for each in (None, [], [8], [8, 77], [8, 77, 1], ["8"], 8)]
    [True, True, True, True, False, False, False]
    """
    return given is None or (
        isinstance(given, list) and len(given) < 3 and all(isinstance(each, int) for each in given)
    )


def _digest(run: str, content: dict[str, Any]) -> str:
    """The same for what goes to JSON as for what comes back from it.

    >>> _digest("1", {"a": (1, 2), 3: 4.0}) == _digest("1", {"3": 4.0, "a": [1, 2]}) != _digest("2", {})
    True
    """
    plain = json.loads(json.dumps({"run": run, "content": content}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _name(part: tuple[int, ...]) -> str:
    """The name of the entry of a part.

    >>> _name((0, 12)), _name(())
    ('0.12', '-')
    """
    return ".".join(map(str, part)) or "-"


def _part(name: str) -> tuple[int, ...]:
    """The part of an entry's name.

    >>> _part("0.12"), _part("-")
    ((0, 12), ())
    """
    return () if name == "-" else tuple(map(int, name.split(".")))
