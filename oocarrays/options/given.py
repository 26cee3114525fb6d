"""What every verb takes, in the same order: what, from, to, how, and within which means.

rechunk(source, target, chunks=…, memory="1GiB")
                │                 │
                Target(store, shards=…, compressors=…)      how the result is stored
                                  Resources(ranks=4, …)     means beside memory and scheduler

@verb(target=("shards", …), resources=("ranks", …))   ─►  fields that it takes: others are refused by name
rechunk(…, shards=…)                                  ─►  error that names the new form: until version 0.7
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypedDict, TypeVar

from oocarrays.errors import InputError, UnsupportedError
from oocarrays.storage.files.places import StoreLike

if TYPE_CHECKING:
    from distributed import Client

    from oocarrays.options.chunks import ChunksLike
    from oocarrays.plan.slabs.options import WindowLike

Taken = ParamSpec("Taken")
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Target:
    """Location of a result, and how it is stored. A path, URL or store alone is one with defaults.

    What is left out is carried over from the source, or is Zarr's default if there is none.

    Parameters
    ----------
    store : path, URL or Zarr store
        Location of the result.
    chunks : int, str, tuple or dict
        Chunk length in each axis, in elements, as `rechunk` takes it.
    shards : int, str, tuple or dict
        Shard length in each axis, in elements, in the same forms: a multiple of the chunk's; -1 for the whole axis. By
        default the target is not sharded.
    orientation : "row", "column" or tuple of int or str
        Storage order of the axes in a chunk: ``"row"`` has the last axis fastest, ``"column"`` the first; a tuple has
        the axes by number or name, from the slowest to the fastest (Zarr's ``transpose`` codec, or ``order="F"`` of
        format 2).
    dtype : numpy.dtype
        Type of the elements.
    compressors, filters
        Codecs, as ``zarr.create_array`` takes them; ``()`` for none. Compressors also by name: ``"zstd"``,
        ``"blosc"``, ``"gzip"`` or ``"none"``.
    zarr_format : 2 or 3
        Zarr format. Format 2 keeps dimension names in ``_ARRAY_DIMENSIONS`` and the missing value in the fill value,
        format 3 in ``_FillValue``, both as xarray does.
    fill_value : object
        Value of chunks that are not stored.
    attributes : mapping
        User attributes, that JSON can express.
    dimension_names : sequence of str
        Name of each axis.
    folders : str
        Of local array files: location of each rank's file, such as ``"/scratch/u/{rank}.zarr"``, on the own disk of the
        rank's worker; the group then holds only the descriptor. By default files are in the group.

    Examples
    --------
    >>> Target("days.zarr", chunks={"time": 24}, compressors="zstd")
    Target('days.zarr', chunks={'time': 24}, compressors='zstd')
    """

    store: StoreLike
    _: KW_ONLY
    chunks: ChunksLike | Any = None
    shards: ChunksLike | None = None
    orientation: Literal["row", "column"] | Sequence[int | str] | None = None
    dtype: Any = None
    compressors: Any = None
    filters: Any = None
    zarr_format: Literal[2, 3] | None = None
    fill_value: Any = None
    attributes: Mapping[str, Any] | None = None
    dimension_names: Sequence[str | None] | None = None
    folders: str | None = None

    def __repr__(self) -> str:
        return shown(self, repr(self.store))


@dataclass(frozen=True, slots=True)
class Resources:
    """Means of a run: memory, location and number of ranks, and how they work. A verb takes those that it needs.

    In a ``with`` statement they apply to all calls that do not state their own; an argument of a call counts before
    its ``resources``, these before a ``with`` statement, and this before the settings.

    Parameters
    ----------
    memory : int or str
        Budget of this process, or of each worker on a cluster, in bytes above its idle level, such as ``"1GiB"``. By
        default half of the free memory; on a worker, the memory below its spill threshold.
    scheduler : Client, address or "threads"
        Location of the ranks: the workers of a cluster, or threads of this process. By default the workers of the
        active client, if any.
    workers : sequence of str
        Addresses or names of the workers to use; by default all.
    ranks : int
        Number of logical processors; by default the plan chooses.
    schedule : str
        Order of the messages between ranks: ``"lex"``, ``"pex"``, ``"bex"``, ``"pex-gen"``, ``"pex-gen-shift"``,
        ``"gen"``, ``"rex"`` or ``"ipex"`` (the last two forward messages between workers); or ``"coloring"`` or
        ``"unordered"``, as in `oocarrays.ranks.redistribute`. By default, and with ``"auto"``, the setting
        ``oocarrays.schedule``; if that is ``"auto"`` too, the schedule of least predicted time.
    scratch : path or URL, or a list of them
        Folder for intermediate data; by default beside a local target, else in the system's temporary folder.
    missing : str
        Treatment of chunks that a source lacks, as in `open_array`; by default as the source was opened.
    prefetch : int
        Of passes over slabs: number of slabs to read ahead of the one that is computed, by default 1; 0 disables all
        overlap within a rank.
    reuse : bool
        Of passes over slabs: whether to keep rows that the next slab needs, instead of reading them again.
    workspace : float or str
        Of passes over slabs: working memory of the kernel beside its blocks and results: bytes, as ``"64MiB"``, or a
        multiple of its blocks, by default two. The first slab, computed alone, shows whether that is enough.
    window : sequence of int or mapping
        Of iterations: elements of a slab along each axis, as `map_slabs` takes it.
    fuse : int or "auto"
        Of iterations: maximum number of sweeps of one pass; ``"auto"``: the number of least predicted time. More sweeps
        per pass move fewer bytes to and from disk, but ``fuse × depth`` rows between two slabs are computed by both.
    disks : mapping or callable
        Of collective reads and writes: the disk of each chunk by its index, if known: each disk is then served by its
        own aggregators.
    storage_options : mapping
        Options for opening URLs, by their names in fsspec; if its keys are schemes, each scheme has its own.

    Examples
    --------
    >>> with Resources(memory="64MiB", scheduler="threads") as means:
    ...     means
    Resources(memory='64MiB', scheduler='threads')
    """

    _: KW_ONLY
    memory: int | float | str | None = None
    scheduler: Client | str | None = None
    workers: Sequence[str] | None = None
    ranks: int | None = None
    schedule: str | None = None
    scratch: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None
    missing: Literal["fill", "warn", "error"] | None = None
    prefetch: int | None = None
    reuse: bool | None = None
    workspace: float | str | None = None
    window: WindowLike | int | None = None
    fuse: int | Literal["auto"] | None = None
    disks: Mapping[tuple[int, ...], Hashable] | Callable[[tuple[int, ...]], Hashable] | None = None
    storage_options: Mapping[str, Any] | None = None

    def __enter__(self) -> Self:
        NESTED.set((*NESTED.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        entered = NESTED.get()  # generators may leave theirs in another order, or in another context
        last = max((place for place, each in enumerate(entered) if each is self), default=len(entered))
        NESTED.set(entered[:last] + entered[last + 1 :])

    def _over(self, others: Resources) -> Self:
        """Return these resources, and for those that are not stated the others'."""
        if others is NONE:
            return self
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: getattr(others, name) for name, value in said.items() if value is None})

    def _only(self, *names: str) -> Resources:
        return Resources(**{name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        return shown(self)


NESTED: ContextVar[tuple[Resources, ...]] = ContextVar("resources", default=())
"""Resources of the ``with`` statements around, from the outermost on."""
NONE = Resources()
EACH_RUN = ("memory", "scheduler", "storage_options", "missing")
"""Resources that every verb takes, those of all that it opens."""


def around() -> Resources:
    means = NONE
    for each in reversed(NESTED.get()):
        means = means._over(each)
    return means


def memory_of(stated: int | float | str | None) -> int | float | str | None:
    """Return the budget that a call states, or else that of the ``with`` statements around."""
    return around().memory if stated is None else stated


def resources_taken(call: Any) -> tuple[str, ...]:
    """Return the names of the resources that a function takes, those of all verbs included."""
    return (*getattr(call, "run", EACH_RUN), *getattr(call, "resources", ()))


def shown(given: Any, *first: str) -> str:
    """Return a call with the fields that are stated."""
    said = [(each.name, getattr(given, each.name), each.default) for each in fields(given)[len(first) :]]
    told = [*first, *(f"{name}={value!r}" for name, value, default in said if value is not default)]
    return f"{type(given).__name__}({', '.join(told)})"


def stored_as(target: Any, call: Callable[..., Any]) -> Target:
    """Return a target as given to a verb; raise if it states a field that the verb does not take."""
    if not isinstance(target, Target):
        return Target(target)
    _check_taken(target, ("store", *getattr(call, "target", ())), call)
    return target


def means_of(resources: Any, call: Callable[..., Any], **stated: Any) -> Resources:
    """Return the resources of a call: its own arguments, its ``resources``, and those of ``with`` statements."""
    means = Resources(**stated)
    if resources is not None:
        if not isinstance(resources, Resources):
            raise InputError(
                f"resources={resources!r} is not a Resources: pass oocarrays.Resources(ranks=2), for example"
            )
        _check_taken(resources, resources_taken(call), call)
        means = means._over(resources)
    return means._over(around())


def chunked(target: Target, chunks: Any) -> Target:
    """Return a target with the chunks of a call, which may also be stated in the target."""
    if chunks is not None and target.chunks is not None:
        raise InputError(f"chunks={chunks!r} and {target!r}: state the chunks once")
    return target if chunks is None else replace(target, chunks=chunks)


def own_of(target: Target) -> dict[str, Any]:
    """Return the fields of a target that a stored source gives it."""
    return {name: getattr(target, name) for name in ("fill_value", "attributes", "dimension_names")}


def codecs_of(target: Target) -> dict[str, Any]:
    return {name: getattr(target, name) for name in ("compressors", "filters", "zarr_format")}


def stated_in(resources: Resources | None, but: Sequence[str] = ()) -> dict[str, Any]:
    said = {} if resources is None else {each.name: getattr(resources, each.name) for each in fields(resources)}
    return {name: value for name, value in said.items() if value is not None and name not in but}


def nested(call: Callable[..., Any], target: Any, flat: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a target and arguments by name of a verb from fields of `Target` and `Resources` among the arguments."""
    known, rest = signature(call).parameters, dict(flat)
    to, means = (
        {name: rest.pop(name) for name in names if name in rest and name not in known}
        for names in (call.target, resources_taken(call))  # type: ignore[attr-defined]
    )
    said = any(value is not None for value in to.values())
    return Target(target, **to) if said else target, rest | {"resources": Resources(**means)}


def _check_taken(given: Any, taken: Sequence[str], call: Callable[..., Any]) -> None:
    kind, name = type(given).__name__, getattr(call, "__name__", "this")
    for each in fields(given):
        if each.name not in taken and getattr(given, each.name) is not each.default:
            takes = ", ".join(one.name for one in fields(given) if one.name in taken)
            raise UnsupportedError(f"{name} takes no {each.name} of a {kind}: it takes {takes}")


OTHERS = {
    "target_chunks": "chunks", "max_mem": "memory", "allowed_mem": "memory", "temp_store": "scratch",
    "work_dir": "scratch", "executor": "scheduler", "client": "scheduler", "target_options": "compressors",
    "encoding": "compressors", "compressor": "compressors", "dim": "axis",
}  # fmt: skip
"""Keywords of rechunker, Dask, cubed and xarray, and our names for them."""
OTHERWISE = {
    "dtype": ("chunks", "not taken: the type stays; map_slabs to oocarrays.Target(store, dtype=…) converts"),
    "region": ("target", "not taken: oocarrays.open_array(target, mode='r+')[section] = values writes a part"),
    "keepdims": ("how", "not taken: numpy.expand_dims(result, axis) gives back the axes"),
    "trim": ("depth", "not taken: halos are always trimmed"),
}
"""Keywords of others that have no counterpart: the parameter of the verbs that explain them, and what to do."""


def verb(
    *,
    target: Sequence[str] = (),
    resources: Sequence[str] = (),
    old: Mapping[str, str] | None = None,
    run: Sequence[str] = EACH_RUN,
) -> Callable[[Callable[Taken, Given]], Callable[Taken, Given]]:
    """Decorate a public function that takes fields of a `Target` and of `Resources`.

    A keyword of version 0.5 raises an error that names its new place: one of these fields, or as ``old`` says, which
    under an empty name says it of arguments by position. So does one of another library, as `OTHERS` says. ``run`` are
    the resources of all verbs that it takes.
    """

    def now(function: Callable[Taken, Given]) -> Callable[Taken, Given]:
        known = signature(function).parameters
        means = (*run, *resources) if "resources" in known else ()
        most = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in known.values())
        places = {
            **{name: f"resources=oocarrays.Resources({name}=…)" for name in means},
            **{name: f"oocarrays.Target(store, {name}=…)" for name in target},
        }
        ours = places | {name: f"{name}=" for name in known}
        places |= old or {}
        others = {name: f"{ours[own]} here" for name, own in OTHERS.items() if own in ours}
        others |= {name: said for name, (own, said) in OTHERWISE.items() if own in known}

        @wraps(function)
        def checked(*args: Taken.args, **given: Taken.kwargs) -> Given:
            if len(args) > most and "" in places:
                raise InputError(f"{function.__name__}: {places['']}")
            for word in given:
                if word not in known and word in places:
                    raise InputError(f"{function.__name__}: {word}= is {places[word]} now")
                if word not in known and word in others:
                    raise InputError(f"{function.__name__}: {word}= is {others[word]}")
            return function(*args, **given)

        checked.target, checked.resources, checked.run = tuple(target), tuple(resources), tuple(run)  # type: ignore[attr-defined]
        return checked

    return now


OneTarget = Target | StoreLike


class WritingKeywords(TypedDict, total=False):
    """Keywords of all functions that plan to write a target."""

    memory: int | float | str | None
    overwrite: bool
    resume: bool | Literal["verify", "as-is"]
    scheduler: Client | str | None
    resources: Resources | None


class RechunkKeywords(WritingKeywords, total=False):
    """Keywords of `oocarrays.rechunk` beside source, target and chunks."""

    method: Literal["auto", "independent", "two-phase", "assembled", "staged"]
    storage_options: Mapping[str, Any] | None


class ChunkedKeywords(RechunkKeywords, total=False):
    """The same, and chunks of any form."""

    chunks: ChunksLike | None
