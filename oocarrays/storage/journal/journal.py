"""Journal of a run's finished parts, kept beside its target so that another process can resume it.

    target/  c/ …                          the array
             .oocarrays/  plan.json        the run and its request, with their digest
                          draft.zarr.json  the draft of the array's metadata, until the array is complete
                          done/0.3.1 …     a small object for each finished part: the same digest, and receipts of
                                           the chunks that the part stored
                          done-states/0.3  bytes of a part that is not in the target: a partial result
                          done/kept        receipts of chunks from earlier plans, which this one does not store again
                          lock             held by every process that works for the run (local folders)
                          ended-c0ffee     the result of an ended run, until its client acknowledges it

An entry is created atomically, after the data that it records. Both are on their device before the entry gets its name.
So an entry outlives its process, and the entries that survive a loss of power are true. Other Zarr readers look for no
such keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any

from oocarrays.errors import InputError, JournalError, NotFoundError, OocError, TargetError
from oocarrays.plan.documents import Document
from oocarrays.storage.files.documents import documents, holds_group, is_finished, unfinished_run
from oocarrays.storage.files.entries import LocalEntries, StoreEntries, entries_of, reading, writing
from oocarrays.storage.files.making_room import is_empty, remove_drafts
from oocarrays.storage.files.places import StoreLike, local_folder, name_of
from oocarrays.storage.journal import texts
from oocarrays.storage.journal.lock import Busy, Hold, alone
from oocarrays.storage.journal.sources import can_keep, kept_source
from oocarrays.storage.local.fs import NODES, SAYING


class Journal:
    """Journal of the finished parts of the run that writes one target.

    It can be pickled if its store can; a copy does not hold the lock.
    """

    def __init__(self, store: StoreLike, *, durable: bool = True) -> None:
        folder = local_folder(store)
        self.durable = durable
        self.store = store if folder is None else folder
        self._hold = None if folder is None else Hold(os.path.join(folder, texts.FOLDER, texts.LOCK))
        self._digest: str | None = None
        self._folder = texts.DONE
        self._done: set[tuple[int, ...]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Journal, durable=self.durable), (self.store,)

    @cached_property
    def _entries(self) -> LocalEntries | StoreEntries:
        return entries_of(self.store, texts.FOLDER)

    @property
    def notes(self) -> texts.Notes:
        return texts.Notes(self.store)

    def _get(self, key: str) -> bytes | None:
        with reading(self.store):
            return self._entries.get(key)

    def begin(self, run: str, content: Document, *, instead: bool = False) -> None:
        """Record the plan of ``run`` before the run writes anything else; sync it if `durable`."""
        plan, text = texts.plan_text(run, content)
        with writing(self.store):
            if instead or self._entries.get(texts.PLAN) is None:
                self._entries.make_folder("")
                put = self._entries.replace if instead else self._entries.create
                put(texts.PLAN, text, durable=self.durable)
                if self._entries.get(texts.PLAN) == text:  # else another run was faster
                    self._clear_but("")
                    self._entries.make_folder(texts.DONE)
                    self._digest, self._folder, self._done = plan.digest, texts.DONE, set()
                    return
        raise TargetError(f"{self.store} already has a journal: resume its run, or pass overwrite=True (--overwrite)")

    def read(self) -> tuple[str, Document]:
        text = self._get(texts.PLAN)
        if text is None:
            raise NotFoundError(f"{self.store} has no journal: nothing to resume")
        run, content, self._digest, self._folder = texts.plan_in(text, self.store)
        return run, content

    def _known_digest(self) -> str:
        if self._digest is None:
            self.read()
        assert self._digest is not None
        return self._digest

    def is_there(self) -> bool:
        """Return whether a journal exists: it does from the start of a run to its end."""
        return self._get(texts.PLAN) is not None

    def replace(self, run: str, content: Document, kept: texts.Kept | None = None) -> None:
        """Replace the plan of ``run`` atomically by one without finished parts."""
        (_, _, digest, folder), text = texts.plan_text(run, content, replaced=True)
        with writing(self.store):
            self._entries.clear(folder)
            self._entries.make_folder(folder)
            self._entries.prepare(
                f"{folder}/{texts.KEPT}", texts.entry_text(digest, kept or {}), durable=self.durable
            )()
            self._entries.replace(texts.PLAN, text)
            self._clear_but(folder)
        self._digest, self._folder, self._done = digest, folder, set()

    def _clear_but(self, folder: str) -> None:
        """Delete the entries of all plans except those in ``folder``."""
        for name in self._entries.names(texts.DONE):
            if name != folder:
                self._entries.clear(name)

    def kept(self) -> dict[str, dict[str, texts.Receipt]]:
        """Return receipts of chunks stored by earlier plans, by location name."""
        digest = self._known_digest()
        if self._folder == texts.DONE:
            return {}
        entry = self._get(f"{self._folder}/{texts.KEPT}") or b""
        texts.check_entry(entry, digest, texts.KEPT, self.store)
        return texts.receipts_in(entry, texts.KEPT, self.store) or {}

    def record(self, part: tuple[int, ...], stored: texts.Kept | None = None) -> None:
        """Record that ``part`` is finished, unless it is recorded already."""
        self.prepare(part, stored, durable=self.durable)()

    def prepare(
        self, part: tuple[int, ...], stored: texts.Kept | None = None, *, durable: bool = False
    ) -> Callable[[], None]:
        """Write the entry of ``part`` to a temporary name; return a function that publishes it."""
        entry, key = texts.entry_text(self._known_digest(), stored or None), self._key(part)
        with writing(self.store):
            try:
                publish = self._entries.prepare(key, entry, durable=durable)
            except FileNotFoundError:
                self.read()
                self._entries.make_folder(self._folder)  # copies of folders often omit empty ones
                publish = self._entries.prepare(key, entry, durable=durable)
        return partial(self._publish, part, key, entry, publish)

    def _publish(self, part: tuple[int, ...], key: str, entry: bytes, publish: Callable[[], None]) -> None:
        with writing(self.store):
            try:
                publish()
            except FileNotFoundError:  # it was removed as the leftover of a dead process
                self.read()
                self._entries.prepare(key, entry, durable=True)()
        self._done.add(part)

    def keep(self, part: tuple[int, ...], data: bytes) -> None:
        """Store bytes of a part that is not written to the target, for a resumed run; call it before `record`."""
        with writing(self.store):
            self._entries.make_folder(texts.STATES)
            self._entries.create(
                f"{texts.STATES}/{texts.name_of_part(part)}",
                texts.entry_text(self._known_digest(), None) + b"\n" + data,
            )

    def kept_bytes(self, part: tuple[int, ...]) -> bytes | None:
        entry = self._get(f"{texts.STATES}/{texts.name_of_part(part)}") or b""
        digest, _, data = entry.partition(b"\n")
        return data if digest == self._known_digest().encode() else None

    def has(self, part: tuple[int, ...]) -> bool:
        """Return whether ``part`` is finished; once found in the store, it is cached."""
        if part in self._done:
            return True
        digest, found = self._known_digest(), self._get(self._key(part))
        if found is None:
            return False
        texts.check_entry(found, digest, self._key(part), self.store)
        self._done.add(part)
        return True

    def parts(self) -> set[tuple[int, ...]]:
        self._done = set(self._found())
        return set(self._done)

    def stored(self) -> dict[tuple[int, ...], dict[str, dict[str, texts.Receipt]] | None]:
        """Return the receipts of each finished part; None for a part recorded without receipts."""
        return {part: texts.receipts_in(entry, self._key(part), self.store) for part, entry in self._found().items()}

    def _found(self) -> dict[tuple[int, ...], bytes]:
        self.read()
        digest = self._known_digest()
        with reading(self.store):
            entries = self._entries.entries(self._folder)
        if self._folder != texts.DONE:
            entries.pop(texts.KEPT, None)
        parts = {texts.part_named(name, self.store): name for name in entries}
        found = {part: entry for part, name in parts.items() if (entry := entries[name]) is not None}
        for part, entry in found.items():
            texts.check_entry(entry, digest, parts[part], self.store)
        return found

    def _key(self, part: tuple[int, ...]) -> str:
        return f"{self._folder}/{texts.name_of_part(part)}"

    def forget(self, parts: Iterable[tuple[int, ...]]) -> None:
        """Delete the entries of ``parts``; other processes may have read and cached them already."""
        parts = set(parts)
        with writing(self.store):
            self._entries.delete(map(self._key, parts))
        self._done -= parts

    def remove(self, *, ended: str | None = None) -> None:
        """Delete the journal, its plan first, if it exists; keep end markers if ``ended`` is passed."""
        with writing(self.store):
            self._entries.delete([texts.PLAN])
            if ended is None:
                self._entries.clear_all()
            else:
                self._clear_but("")
                self._entries.delete([texts.LOCK])
        self._digest, self._folder, self._done = None, texts.DONE, set()

    def withdraw(self, run: str) -> None:
        """Delete the journal of a run that could not create its target, and the empty folders created for it."""
        with suppress(OSError, OocError):
            text = self._entries.get(texts.PLAN)
            if text is not None and texts.plan_in(text, self.store).run == run:
                self.remove()
        self.release()
        self._clear_if_empty()

    def _clear_if_empty(self) -> None:
        """Delete the journal's folder and the target's folder if they are empty."""
        self._entries.clear_if_empty()
        entries_of(self.store).clear_if_empty()

    def sweep(self) -> None:
        """Delete the remains of a run that finished its target; keep its end marker."""
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
        """Whether this object holds the lock, which excludes other runs."""
        return self._hold is not None and self._hold.is_held

    def claim(self, wait: float = 0.0) -> bool:
        """Claim the lock: raise if another run is writing to this target, and exclude others while this process lives.

        Create the journal's folder if it does not exist. Only local folders have locks: for other stores, and file
        systems without locks, do nothing.
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
        """Share the lock with the process that claimed it, while this process works for the same run.

        Without a journal, create nothing: the run may have ended.
        """
        if self._hold is None:
            return False
        with writing(self.store), self._refused():
            return self._hold.share(make=self._entries.get(texts.PLAN) is not None)

    def release(self) -> None:
        """Release the lock; if nothing was started under it, delete the lock file and its folder."""
        if self._hold is not None and self._hold.close():
            with suppress(OSError, Busy):
                self._tidy(self._hold.path)

    def _tidy(self, lock: str) -> None:
        """Delete a lock file that no process holds and that has no plan beside it."""
        with alone(lock) as is_there:
            if is_there and self._entries.get(texts.PLAN) is None:
                os.unlink(lock)
                os.rmdir(os.path.dirname(lock))

    @contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except Busy:
            raise TargetError(f"another run is writing to {self.store}") from None


# ---------------------------------------------------------------------- journals of unfinished targets


def journal_of(target: StoreLike) -> tuple[Journal, str, Document]:
    """Return the journal of an unfinished array or group, its run id and its content; raise if it is unusable."""
    mark, there = unfinished_run(target), Journal(target)
    if mark is None:
        there.sweep()
        begun = not (is_finished(target) or is_empty(target))
        what = f"no unfinished {_kind(target)} in {target}" + (f"; {way_out(target)}" if begun else "")
        raise NotFoundError(f"nothing to resume: {what}")
    try:
        id, content = there.read()
    except InputError as error:
        raise type(error)(f"{error}; {way_out(target)}") from None
    if not texts.ID.fullmatch(id):
        raise JournalError(f"the journal in {target} names an invalid run id {id!r}; {way_out(target)}")
    if id != mark:
        other = f"the {_kind(target)} of run {mark}; {way_out(target)}"
        raise JournalError(f"the journal in {target} is of run {id}, {other}")
    return there, id, content


def _kind(target: StoreLike) -> str:
    return "group" if holds_group(target) else "array"


def way_out(target: StoreLike) -> str:
    """Return advice for a target with an unusable journal: the target that has it, or how to start over."""
    if (first := texts.Notes(target).first()) is not None:
        return f"its run began with the target {first}: resume that, oocarrays.resume({first!r})"
    if can_update(target):
        return f"bring it up to date again: update({name_of(target)!r}) (oocarrays update)"
    return "start over: make the same call with overwrite=True (--overwrite)"


def can_update(target: StoreLike) -> bool:
    """Return whether an array was complete before a run changed it, and keeps its source.

    Its data remain usable even if the journal is lost.
    """
    marked = any(found is not None for found in documents(target, NODES))
    with suppress(OocError):
        return marked and can_keep(target) and kept_source(target) is not None
    return False
