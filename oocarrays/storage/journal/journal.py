"""The parts that a run has finished, kept beside its target, so that the next process can go on where it stopped.

    target/  c/ …                          the array
             .oocarrays/  plan.json        the run, and all that it was asked to do, with their digest
                          draft.zarr.json  the draft of the array's metadata, until all of it is written
                          done/0.3.1 …     a small object for each finished part: the same digest, and receipts of
                                           what the part has stored
                          done-states/0.3  bytes of a part that is not in the target: a partial result
                          done/kept        what plans before this one have stored, and it does not store again
                          lock             held by every process that works for the run (local folders)
                          ended-c0ffee     what a run has given that has ended, until its client has heard of it

An entry is made whole or not at all, and after what it stands for: both are on their device before it gets its name,
so that it outlives the process that made it, and what can be read after a loss of power is true. Other Zarr readers
look for no such keys.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

from oocarrays.errors import NotFoundError, OocError, TargetError
from oocarrays.plan.documents import Document
from oocarrays.storage.files.making_room import remove_drafts
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.entries import LocalEntries, StoreEntries, entries_of, reading, writing
from oocarrays.storage.journal.lock import Busy, Hold, try_lock
from oocarrays.storage.journal.notes import Notes
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.journal.texts import (
    DONE,
    FOLDER,
    KEPT,
    LOCK,
    PLAN,
    STATES,
    Kept,
    check_entry,
    entry_text,
    name_of_part,
    part_named,
    plan_in,
    plan_text,
    receipts_in,
)
from oocarrays.storage.local.names import SAYING


class Journal:
    """A journal: the parts that the run that writes one target has finished.

    It can be pickled where its store can; the hold on the lock stays behind.
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

    @property
    def notes(self) -> Notes:
        """The notes of runs beside the target."""
        return Notes(self.store)

    def begin(self, run: str, content: Document, *, instead: bool = False) -> None:
        """Write down what ``run`` will do, on its device: before anything is written that is to be found by it."""
        plan, text = plan_text(run, content)
        with writing(self.store):
            there = not instead and self._entries.get(PLAN) is not None
            if not there:
                self._entries.make_folder("")
                put = self._entries.replace if instead else self._entries.create
                put(PLAN, text, durable=self.durable)
            if not there and self._entries.get(PLAN) == text:
                self._clear_but("")
                self._entries.make_folder(DONE)
                self._digest, self._folder, self._done = plan.digest, DONE, set()
                return
        raise TargetError(f"{self.store} has a journal already: resume its run, or write the target with overwrite")

    def read(self) -> tuple[str, Document]:
        with reading(self.store):
            text = self._entries.get(PLAN)
        if text is None:
            raise NotFoundError(f"{self.store} has no journal: nothing to resume")
        run, content, self._digest, self._folder = plan_in(text, self.store)
        return run, content

    def _known_digest(self) -> str:
        """The digest of the plan, read once."""
        if self._digest is None:
            self.read()
        assert self._digest is not None
        return self._digest

    def is_there(self) -> bool:
        """Whether there is a journal: from the beginning of a run to its end."""
        with reading(self.store):
            return self._entries.get(PLAN) is not None

    def replace(self, run: str, content: Document, kept: Kept | None = None) -> None:
        """Write down that ``run`` does something else from now on, of which no part is finished; at once."""
        (_, _, digest, folder), text = plan_text(run, content, replaced=True)
        with writing(self.store):
            self._entries.clear(folder)
            self._entries.make_folder(folder)
            self._entries.prepare(f"{folder}/{KEPT}", entry_text(digest, kept or {}), durable=self.durable)()
            self._entries.replace(PLAN, text)
            self._clear_but(folder)
        self._digest, self._folder, self._done = digest, folder, set()

    def _clear_but(self, folder: str) -> None:
        """Remove what all plans have recorded, but for what is in one folder."""
        for name in self._entries.names(DONE):
            if name != folder:
                self._entries.clear(name)

    def kept(self) -> dict[str, dict[str, Receipt]]:
        """Receipts of what plans before this one have stored, by the name of the place where it is."""
        digest = self._known_digest()
        if self._folder == DONE:
            return {}
        with reading(self.store):
            entry = self._entries.get(f"{self._folder}/{KEPT}") or b""
        check_entry(entry, digest, KEPT, self.store)
        return receipts_in(entry, KEPT, self.store) or {}

    def record(self, part: tuple[int, ...], stored: Kept | None = None) -> None:
        """Write down that ``part`` is finished; fine where it is written down already."""
        self.prepare(part, stored, durable=self.durable)()

    def prepare(
        self, part: tuple[int, ...], stored: Kept | None = None, *, durable: bool = False
    ) -> Callable[[], None]:
        """Write down that ``part`` is finished where nobody finds it; what is returned gives that its name."""
        entry, key = entry_text(self._known_digest(), stored or None), self._key(part)
        with writing(self.store):
            try:
                publish = self._entries.prepare(key, entry, durable=durable)
            except FileNotFoundError:
                self.read()
                self._entries.make_folder(self._folder)  # copies of folders often leave out the empty ones
                publish = self._entries.prepare(key, entry, durable=durable)
        return partial(self._publish, part, key, entry, publish)

    def _publish(self, part: tuple[int, ...], key: str, entry: bytes, publish: Callable[[], None]) -> None:
        with writing(self.store):
            try:
                publish()
            except FileNotFoundError:  # it was taken for what a dead process has left
                self.read()
                self._entries.prepare(key, entry, durable=True)()
        self._done.add(part)

    def keep(self, part: tuple[int, ...], data: bytes) -> None:
        """Keep bytes of a part that is not written to the target, for who goes on; before it is recorded."""
        with writing(self.store):
            self._entries.make_folder(STATES)
            self._entries.create(
                f"{STATES}/{name_of_part(part)}", entry_text(self._known_digest(), None) + b"\n" + data
            )

    def kept_bytes(self, part: tuple[int, ...]) -> bytes | None:
        """Return what was kept of a part, by this plan; None where nothing was."""
        with reading(self.store):
            entry = self._entries.get(f"{STATES}/{name_of_part(part)}")
        digest, _, data = (entry or b"").partition(b"\n")
        return data if digest == self._known_digest().encode() else None

    def has(self, part: tuple[int, ...]) -> bool:
        """Whether ``part`` is finished. This process looks in the store until it has seen it there once."""
        if part in self._done:
            return True
        digest = self._known_digest()
        with reading(self.store):
            found = self._entries.get(self._key(part))
        if found is None:
            return False
        check_entry(found, digest, self._key(part), self.store)
        self._done.add(part)
        return True

    def parts(self) -> set[tuple[int, ...]]:
        self._done = set(self._found())
        return set(self._done)

    def stored(self) -> dict[tuple[int, ...], dict[str, dict[str, Receipt]] | None]:
        """Read what each finished part has stored; None of those that were written down without receipts."""
        return {part: receipts_in(entry, self._key(part), self.store) for part, entry in self._found().items()}

    def _found(self) -> dict[tuple[int, ...], bytes]:
        self.read()
        digest = self._known_digest()
        with reading(self.store):
            entries = self._entries.entries(self._folder)
        if self._folder != DONE:
            entries.pop(KEPT, None)
        parts = {part_named(name, self.store): name for name in entries}
        found = {part: entry for part, name in parts.items() if (entry := entries[name]) is not None}
        for part, entry in found.items():
            check_entry(entry, digest, parts[part], self.store)
        return found

    def _key(self, part: tuple[int, ...]) -> str:
        """Where a part is written down, in the folder of the plan that is known."""
        return f"{self._folder}/{name_of_part(part)}"

    def forget(self, parts: Iterable[tuple[int, ...]]) -> None:
        """Take back that ``parts`` are finished. Other processes may have seen them, and go by that."""
        parts = set(parts)
        with writing(self.store):
            self._entries.delete(map(self._key, parts))
        self._done -= parts

    def remove(self, *, ended: str | None = None) -> None:
        """Remove the journal, its plan first; fine where there is none."""
        with writing(self.store):
            self._entries.delete([PLAN])
            if ended is None:
                self._entries.clear_all()
            else:
                self._clear_but("")
                self._entries.delete([LOCK])
        self._digest, self._folder, self._done = None, DONE, set()

    def withdraw(self, run: str) -> None:
        """Remove the journal of a run that could not make its target, and the folders that were made for it."""
        with suppress(OSError, OocError):
            text = self._entries.get(PLAN)
            if text is not None and plan_in(text, self.store).run == run:
                self.remove()
        self.release()
        self._clear_if_empty()

    def _clear_if_empty(self) -> None:
        """Remove the folder of the journal, and that of the target, where nothing is in them."""
        self._entries.clear_if_empty()
        entries_of(self.store).clear_if_empty()

    def sweep(self) -> None:
        """Remove what a run that has finished its target could not remove; its word that it ended stays."""
        if self.is_there():
            self.claim()
            try:
                remove_drafts(self.store, SAYING)
                self.remove(ended="")
            finally:
                self.release()
                self._entries.clear_if_empty()

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the lock, so that no other run is at work."""
        return self._hold is not None and self._hold.is_held

    def claim(self, wait: float = 0.0) -> bool:
        """Make sure that no other run is at work on this target, and that none begins while this process lives.

        A folder for the journal is made where there is none. Only local folders have locks: for other stores, and
        file systems without them, this does nothing.
        """
        if self._hold is None:
            return False
        with writing(self.store), self._refused():
            try:
                return self._hold.claim(wait)
            except OSError:
                self._clear_if_empty()
                raise

    def join(self) -> bool:
        """Hold the lock beside the process that claimed it, as long as this one works for the same run.

        Nothing is made where there is no journal: the run may be over.
        """
        if self._hold is None:
            return False
        with writing(self.store), self._refused():
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
