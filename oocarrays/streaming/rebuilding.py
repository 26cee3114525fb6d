"""What a person sees of a stream file from outside: its segments, and how it is made whole again."""

from __future__ import annotations

from typing import Any

from oocarrays.errors import OocError
from oocarrays.graphs.defaults import setting
from oocarrays.show.report import bytes_text, shape_text
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.streams.rebuilding import Rebuilt, rebuild
from oocarrays.storage.streams.stream_file import open_file, stream_attribute
from oocarrays.streaming.opening import open_streams


def holds_streams(store: StoreLike) -> bool:
    """Return whether there is a stream file in a store."""
    try:
        return stream_attribute(store) is not None
    except (OSError, ValueError, TypeError, OocError):
        return False


def rebuilt(store: StoreLike) -> Rebuilt:
    """Make a stream file whole that somebody left who died."""
    return rebuild(store, durable=bool(setting("durable")))


class StreamsJob:
    """The rebuilding of a stream file that somebody left who died, or whose directory is damaged.

    Nothing is looked at before it runs but what the file says of itself.
    """

    def __init__(self, store: StoreLike) -> None:
        self.store = store
        self.is_closed = open_file(store).meta.is_closed

    @property
    def left(self) -> float:
        """Of what is to be done, the part that is left: all of it, where the file was not closed."""
        return 0.0 if self.is_closed else 1.0

    def explain(self) -> str:
        """Say what will be done."""
        state = "was closed" if self.is_closed else "was not closed"
        return f"{self.store} {state}: its directory is looked through, linked again, and the file closed"

    def __repr__(self) -> str:
        return f"<StreamsJob {self.store}>"

    def run(self) -> Rebuilt:
        """Make the file whole, with all blocks that are there."""
        done = rebuilt(self.store)
        self.is_closed = True
        return done


def stream_rows(store: StoreLike) -> list[tuple[str, ...]]:
    """Return a stream file as rows of name and value."""
    meta = open_file(store).meta
    with open_streams(store) as streams:
        segments, lengths = streams.segments, streams.lengths
    items = lengths // meta.item.itemsize
    rows: list[tuple[str, ...]] = [
        ("streams", f"{meta.cells.count} cells of shape {shape_text(meta.cells.shape)}, items of {meta.item}"),
        ("items", f"{int(items.sum())}, of a cell {int(items.min(initial=0))} to {int(items.max(initial=0))}"),
        ("written by", f"{meta.cells.ranks} ranks"),
        ("closed", "yes" if meta.is_closed else "no: somebody writes it, or died; what was flushed is valid"),
    ]
    for name, segment in segments.items():
        if segment["bytes"]:
            rows.append((name, f"{bytes_text(segment['bytes'])} in blocks of {segment['block']} B{_fill(name, meta)}"))
    return rows


def _fill(name: str, meta: Any) -> str:
    """Say of IB how many superblocks there are."""
    data, directory = meta.ib.superblocks
    return f", {data} superblocks, {directory} of the directory" if name == "IB" else ""
