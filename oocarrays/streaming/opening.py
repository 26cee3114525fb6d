"""Opening of streams: stream files, and any Zarr array as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from oocarrays.errors import InputError, NotFoundError, OocError, UnsupportedError, in_number
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import client_of, workers_of
from oocarrays.graphs.settings import setting
from oocarrays.mapping.given import chosen, element_type, extents, flag, whole
from oocarrays.options.given import memory_of, verb
from oocarrays.plan.documents import Settings
from oocarrays.plan.streams.meta import Cells, Meta, check_budget, described
from oocarrays.show.report import bytes_text, shape_text
from oocarrays.storage.files.array_file import open_array
from oocarrays.storage.files.formats import dimension_names
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.streams.directories import Rebuilt, rebuild
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.plain import PlainLayout, PlainStreams, plain_file
from oocarrays.storage.streams.stream_file import ArrayStreams, StreamFile, create_file, open_file, stream_attribute
from oocarrays.stored.array import placer
from oocarrays.streaming.lazy import given_blocks, is_dask
from oocarrays.streaming.on_workers import RankStreams
from oocarrays.streaming.opened import close_when_dropped
from oocarrays.streaming.ragged import Ragged, check_view
from oocarrays.streaming.streams import Streams

if TYPE_CHECKING:
    from distributed import Client

S = TypeVar("S", Streams, RankStreams)


def holds_streams(store: StoreLike) -> bool:
    try:
        return stream_attribute(store) is not None
    except (OSError, ValueError, TypeError, OocError):
        return False


class StreamsJob:
    """Job that rebuilds a stream file after an interrupted run, or with a damaged directory.

    Before it runs, only the metadata of the file is read.
    """

    def __init__(self, store: StoreLike) -> None:
        self.store = store
        self.is_closed = open_file(store).meta.is_closed

    @property
    def left(self) -> float:
        """Share of the work that is left: all of it, unless the file was closed."""
        return 0.0 if self.is_closed else 1.0

    def explain(self) -> str:
        """Describe the work."""
        state = "was closed" if self.is_closed else "was not closed"
        return f"{self.store} {state}: its directory is looked through, linked again, and the file closed"

    def __repr__(self) -> str:
        return f"<StreamsJob {self.store}>"

    def run(self) -> Rebuilt:
        """Rebuild the file with all its blocks."""
        done = rebuild(self.store, durable=bool(setting("durable")))
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
            data, directory = meta.ib.superblocks
            more = f", {data} superblocks, {directory} of the directory" if name == "IB" else ""
            rows.append((name, f"{bytes_text(segment['bytes'])} in blocks of {segment['block']} B{more}"))
    return [(name, in_number(text)) for name, text in rows]


@verb(old={"layout": "always (block, *, …), so that it is left out"})
def open_streams(
    store: StoreLike,
    mode: Literal["r", "w", "a", "r+"] = "r",
    *,
    shape: Any = None,
    dtype: Any = None,
    ranks: int | None = None,
    offset: int | None = None,
    order: Literal["C", "F"] | None = None,
    blocks: dict[str, int] | None = None,
    memory: int | float | str | None = None,
    overwrite: bool = False,
    scheduler: Client | str | None = None,
    storage_options: Settings | None = None,
) -> Any:
    """Open a file with one stream for each cell of a shape.

    Parameters
    ----------
    store : path, URL or Zarr store
        The file: a Zarr group. For reading also any Zarr array, ``.npy`` file, or dataset such as ``file.h5/a``: the
        streams run along the axis named "stream", or the first. Or a plain binary file, if ``shape`` and ``dtype`` are
        given and the file exists, or with ``offset`` or ``order``.
    mode : str
        ``"r"`` to read, ``"w"`` to create, ``"a"`` to append, ``"r+"`` to read and write.
    shape : int or tuple of int
        Extent of each axis of the cells; it must match that of an existing file.
    dtype : dtype
        Type of an item. Streams of bytes accept items of any type. For an existing file it must be its own type; in
        mode ``"r"`` bytes are read as any type, and items of any type as bytes.
    ranks : int, optional
        Number of ranks, with cells in blocks along the first axis: threads, each with its own buffers and superblocks
        (default: the setting, or one).
    offset : int, optional
        For a plain binary file: the bytes before the first step; ``"w"`` writes zeros there.
    order : str, optional
        For a plain binary file: ``"C"`` (default) or ``"F"``, the order of the cells in a step. A step has one item of
        each cell; all cells write together.
    blocks : dict, optional
        Block sizes in bytes that override the defaults: ``cb_block``, ``ib_block``, ``superblock``; and
        ``ib_pointers``.
    memory : int or str, optional
        Budget in bytes, including the buffers of all cells.
    overwrite : bool
        Whether ``"w"`` replaces an existing stream file, or a plain one.
    scheduler : Client or address, optional
        The cluster to run on, by default with one rank on each worker.
    storage_options : mapping
        Options for opening a URL, by their names in fsspec.

    Returns
    -------
    Streams or RankStreams
        `RankStreams` if ranks are on workers.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    InputError
        If ``shape`` or ``dtype`` differ from those of an existing file.
    TargetError
        If the file to be created exists already, or another writer has it open.
    BudgetError
        If the buffers of all cells do not fit the memory.

    Examples
    --------
    >>> import tempfile
    >>> with open_streams(tempfile.mkdtemp() + "/s.zarr", "w", shape=3, dtype="i4") as s:
    ...     s.write([1, 2, 3])
    ...     s.write([4, 5, 6], where=[True, False, True])
    ...     s.to_ragged().to_list()
    [[1, 4], [2], [3, 6]]
    """
    chosen(mode, "mode", ("r", "w", "a", "r+"))
    place = placer(storage_options, store)(store)
    client = None if scheduler is None else client_of(scheduler)
    ranks = len(workers_of(client)) if client is not None and ranks is None else ranks
    count = 1 if (given := setting("ranks") if ranks is None else ranks) is None else whole(given, "ranks", 1)
    budget = settings.budget(memory_of(memory))
    durable = bool(setting("durable"))
    is_file = isinstance(place, str | os.PathLike) and os.path.isfile(place)
    is_described = shape is not None and dtype is not None
    if offset is not None or order is not None or (is_file and is_described and mode != "w"):
        file: StreamFile = _plain(place, mode, (shape, dtype, offset, order), overwrite=overwrite, durable=durable)
    elif mode == "w":
        if not is_described:
            raise InputError("mode='w' makes a new file: give shape= and dtype=")
        item, cells = element_type(dtype), extents(shape)
        meta = Meta(cells=Cells.of(cells, count, item.itemsize), dtype=described(item))
        check_budget(meta, meta.cells.count, count, budget, writes=True)
        file = create_file(place, meta, overwrite=flag(overwrite, "overwrite"), durable=durable)
    else:
        file = _found(place, mode, durable=durable)
        _check_same(file, mode, shape, dtype)
    if client is not None:
        return _on_workers(file, client, mode, count, budget, _sizes(blocks))
    return _begun(file, mode, count, partial(_here, file, mode, count, budget, dtype, _sizes(blocks)))


def _on_workers(
    file: StreamFile, client: Client, mode: str, ranks: int, budget: int, blocks: dict[str, int]
) -> RankStreams:
    """Open the streams of a file on the workers of a cluster; readers divide cells among the present ranks."""
    if isinstance(file, PlainStreams):
        file.release()
        raise UnsupportedError(f"{file.name} is a plain binary file: open it here; its to_dask() is read by workers")
    if isinstance(file, ArrayStreams):
        raise UnsupportedError(f"{file.name} is a plain Zarr array: open it here; its to_dask() is read by workers")
    if file.folder is None:
        raise UnsupportedError(f"{file.name} is not in a folder that all workers see: streams on workers need one")
    if mode == "r":
        file.meta = replace(file.meta, cells=file.meta.cells.redealt(ranks))
    return _begun(file, mode, ranks, partial(RankStreams, file, client, mode, budget, blocks))


def _begun(file: StreamFile, mode: str, ranks: int, make: Callable[[], S]) -> S:
    if mode != "r":
        file.hold()
    try:
        if mode in ("a", "r+"):
            file.begin_again(ranks)
        return make()
    except BaseException:
        file.release()
        raise


def _sizes(blocks: dict[str, int] | None) -> dict[str, int]:
    if blocks is not None and not isinstance(blocks, Mapping):
        raise InputError(f"blocks={blocks!r} is no mapping such as {{'superblock': 2**20}}")
    for name in blocks or {}:
        chosen(name, "blocks", ("cb_block", "ib_block", "ib_pointers", "superblock"))
    return {name: whole(size, f"blocks[{name!r}]", 1) for name, size in (blocks or {}).items()}


def _plain(place: Any, mode: str, asked: tuple[Any, Any, Any, Any], *, overwrite: bool, durable: bool) -> PlainStreams:
    shape, dtype, offset, order = asked
    if not isinstance(place, str | os.PathLike) or "://" in os.fspath(place):
        raise InputError(f"offset= and order= apply to a plain binary file at a local path; {place} is not one")
    if shape is None or dtype is None:
        raise InputError(f"{place} as a plain binary file has no metadata: give shape= and dtype=")
    layout = PlainLayout(
        shape=extents(shape), item=element_type(dtype), offset=0 if offset is None else whole(offset, "offset", 0),
        order="C" if order is None else chosen(order, "order", ("C", "F")),
    )  # fmt: skip
    if layout.offset >= 2**63:
        raise InputError(f"offset={offset!r} is larger than any file")
    if not layout.step_bytes:
        raise InputError(f"shape={shape!r}: a plain binary file has at least one cell")
    return plain_file(os.fspath(place), mode, layout, overwrite=flag(overwrite, "overwrite"), durable=durable)


def _found(place: StoreLike, mode: str, *, durable: bool) -> StreamFile:
    """Open a stream file, or any array as one: its streams run along the axis named "stream", or the first."""
    try:
        return open_file(place, durable=durable)
    except NotFoundError as no_streams:
        try:
            array = open_array(place)
        except NotFoundError:
            formats = "no Zarr group or array, .npy file or dataset such as 'file.h5/a' is there"
            if isinstance(place, str | os.PathLike) and os.path.isfile(place):
                formats += "; to read a plain binary file, give shape= and dtype="
            raise NotFoundError(f"no streams in {place}: {formats}") from no_streams
    if mode != "r":
        raise UnsupportedError(f"{place} is a plain Zarr array: its streams are read, not written; take mode='r'")
    names = dimension_names(array) or ()
    if not array.ndim:
        raise UnsupportedError(f"{place} has no axes; streams need one")
    return ArrayStreams(array, names.index("stream") if "stream" in names else 0)


def _check_same(file: StreamFile, mode: str, shape: Any, dtype: Any) -> None:
    """Raise if shape or item type differ from those of an existing file; reading may view bytes."""
    if shape is not None and extents(shape) != file.meta.cells.shape:
        raise InputError(f"shape={shape!r} does not match: {file.name} has streams of shape {file.meta.cells.shape}")
    wanted = file.meta.item if dtype is None else element_type(dtype)
    check_view(file.meta.item, wanted, file.name)
    if wanted != file.meta.item and mode != "r":
        raise InputError(f"dtype={wanted}: {file.name} is written as items of dtype {file.meta.item}; leave out dtype=")


def _here(file: StreamFile, mode: str, ranks: int, budget: int, dtype: Any, blocks: dict[str, int]) -> Streams:
    writes, count = mode != "r", file.meta.cells.ranks
    if not writes and dtype is not None:
        file.meta = replace(file.meta, dtype=described(element_type(dtype)))
    threads = min(ranks, count, settings.local_cores()) if writes else 1
    part = RanksPart(file, range(count), budget, writes=writes, asked=blocks, threads=threads)
    if mode == "r+":
        part.position = 0
    streams = Streams(file, part, mode)
    close_when_dropped(streams, file, streams._open.close, "they are closed now")
    return streams


def streams_from_ragged(
    store: StoreLike, counts: Any, values: Any = None, *, mode: Literal["w", "a"] = "w", **options: Any
) -> None:
    """Write ragged items as streams, with a separate number of items for each cell.

    Parameters
    ----------
    store : path, URL or Zarr store
        The file to create.
    mode : str
        ``"w"`` to create the file, ``"a"`` to append to it.
    counts : Ragged, DaskRagged, or array of int
        Items of each cell.
    values : array, optional
        All items, one cell after the other, if counts are given. Chunks of a Dask array are computed and written one
        after the other, in the given memory.
    options
        As in `open_streams`.

    Raises
    ------
    InputError
        If counts and values do not fit each other, or chunks have unknown sizes: before the file is created.
    BudgetError
        If a chunk of values is larger than a quarter of the memory.

    Examples
    --------
    >>> import tempfile
    >>> place = tempfile.mkdtemp() + "/s.zarr"
    >>> streams_from_ragged(place, [2, 0, 1], [1.5, 2.5, 3.5])
    >>> open_streams(place).to_ragged().to_list()
    [[1.5, 2.5], [], [3.5]]
    """
    chosen(mode, "mode", ("w", "a"))
    ragged: Any = counts if values is None else (counts, values)
    if is_dask(ragged):  # in the given memory: streams use three quarters of it, and blocks the rest
        options["memory"] = settings.budget(options.get("memory")) // 4 * 3
        blocks = given_blocks(ragged, None, options["memory"])
        ragged = blocks if isinstance(blocks, Ragged) else (blocks.counts, blocks.values)
        shape, dtype = blocks.counts.shape, blocks.values.dtype
    else:
        whole_values = counts if isinstance(counts, Ragged) else Ragged(counts, values)
        shape, dtype = whole_values.shape, whole_values.dtype
    made: Settings = {"shape": shape, "dtype": dtype} if mode == "w" else {}
    with open_streams(store, mode, **(made | options)) as streams, streams._open.failing():
        streams.write(ragged)
