"""Functions of the tasks of a pass over slabs; `oocarrays.graphs.slabs.program` draws their graph."""

from __future__ import annotations

from collections.abc import Container, Sequence
from operator import add
from typing import Any

import numpy as np

from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.slabs.kernel import results_of, state_of
from oocarrays.graphs.slabs.scratch import Sweep
from oocarrays.graphs.slabs.sweeps import as_bits, as_residual, largest
from oocarrays.kernels.levels import Levels
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes
from oocarrays.plan.slabs.geometry import Slab, all_of, gathered, written
from oocarrays.plan.slabs.plan import SlabPlan, rank_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch, finish_target, remove_scratch
from oocarrays.storage.files.local_files import RankFiles, placed
from oocarrays.storage.files.target import LocalTarget
from oocarrays.storage.journal.texts import Receipt, Receipts
from oocarrays.storage.local.pages import empty, give_back
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.windows import Blocks, Windows
from oocarrays.storage.sections.write import write_section

Parts = list[tuple[tuple[int, ...], np.ndarray]]
"""Lower corner and values of a part of each gathered target."""


def read(live: Live[Any], number: int, rank: int) -> Blocks | None:
    """Read a band of each source into the middle of a window; return None if no slab needs it."""
    slab, state = Slab(number, rank), state_of(live)
    if _is_done(live, slab) and all(_is_done(live, taker) for taker in live.program.plan.takers(slab)):
        return None
    with state.memory.taking():
        return state.thread("read", rank).submit(_windows(live).read, slab).result()


def give(
    live: Live[Any], taker: int, taker_rank: int, number: int, rank: int, blocks: Blocks | None
) -> list[Blocks] | None:
    """Return copies of the band's share in the window of another slab."""
    return _windows(live).given(Slab(taker, taker_rank), Slab(number, rank), blocks) if blocks else None


def fetch(live: Live[Any], taker: int, taker_rank: int, rank: int) -> list[Blocks]:
    """Read again the elements that the window of another rank lacks."""
    return _windows(live).fetched(Slab(taker, taker_rank), rank)


def compute(
    live: Live[Any], number: int, rank: int, blocks: Blocks | None, *given: list[Blocks] | None
) -> Blocks | None:
    """Call the kernel on a completed window; return results without halo, or None if they have been written."""
    slab = Slab(number, rank)
    if blocks is None or _is_done(live, slab):
        return None
    _windows(live).fill(slab, blocks, [came for came in given if came is not None])
    return results_of(live, slab, blocks)


def write(live: Live[Any], number: int, rank: int, results: Blocks | None) -> Parts | float | None:
    """Write the whole chunks of a slab; return its parts of gathered targets, or in an iteration its residual."""
    program, slab = live.program, Slab(number, rank)
    part, sweep = program.part(slab), program.sweep
    if results is None and program.plan.coarser:
        return regain(live, number, rank)
    if results is None:  # without a residual, and after the run's end, none is recorded
        recorded = live.journal.parts() if sweep and live.journal.is_there() else ()
        return next((as_residual(each[3]) for each in recorded if len(each) == 4 and each[:3] == part), None)
    stored = _stored(live, slab, results)
    if sweep is not None and sweep.residual is not None:
        live.record((*part, as_bits(float(results[-1]))))
    live.record(part, stored)
    if sweep is not None:
        return float(results[-1])
    return _parts(program.plan, slab, results) if program.plan.coarser else None


def _stored(live: Live[Any], slab: Slab, results: Blocks) -> dict[str, dict[str, Receipt]]:
    """Write the results of a slab; return the receipts of its chunks by location."""
    program, kept, memory = live.program, live.state.recovered.kept, state_of(live).memory
    stored, targets = {}, _targets(live)
    for each in written(program.plan):
        file, axes = placed(targets[each], slab.rank, program.plan.made(slab, each).axes)
        name = program.place_name(each, slab.rank)
        with memory.taking():
            stored[name] = _put(live, slab.rank, file, axes, results[each], kept.get(name, {}))
    return stored


def _put(
    live: Live[Any], rank: int, file: ArrayFile, axes: Axes, values: np.ndarray, kept: Container[str] = ()
) -> dict[str, Receipt]:
    """Write some elements, except for kept chunks, and return the receipts of their chunks."""
    receipts = Receipts(kept)
    how: Any = {"meter": live.meter, "past_cache": live.program.plan.past_cache, "receipts": receipts}
    state_of(live).thread("write", rank).submit(write_section, file, axes, values, **how).result()
    return receipts.kept


def _parts(plan: SlabPlan, slab: Slab, results: Blocks) -> Parts:
    """Return a slab's parts of gathered targets; views are copied, as they would keep the whole array in memory."""
    kept = ((each, results[each]) for each in gathered(plan))
    return [(plan.made(slab, n).lower, made if made.base is None else made.copy()) for n, made in kept]


def regain(live: Live[Any], number: int, rank: int) -> Parts:
    """Recompute a finished slab's parts of gathered targets."""
    plan, kernel, slab = live.program.plan, live.program.kernel, Slab(number, rank)
    if not gathered(plan):
        return []
    base = max(written(plan), default=None) if isinstance(kernel, Levels) else None
    if base is None:
        alone = Windows(plan.alone, live.program.reads, live.meter, state_of(live).pool)
        blocks = state_of(live).thread("read", rank).submit(alone.read, slab).result()
        alone.fill(slab, blocks, [])
        return _parts(plan, slab, results_of(live, slab, blocks))
    block = read_section(_targets(live)[base], plan.made(slab, base).axes, meter=live.meter, threads=1)
    above = kernel.above(block, base)
    return [(plan.made(slab, each).lower, made) for each, made in zip(gathered(plan), above, strict=True)]


def gather(live: Live[Any], *given: Parts) -> None:
    """Join and write the gathered targets, one after the other."""
    plan = live.program.plan
    state_of(live).release()
    give_back()
    for place, number in enumerate(gathered(plan)):
        file = _targets(live)[number]
        whole = empty(file.zarr.shape, np.dtype(live.program.arrays[number].settings["dtype"]))
        for parts in given:
            lower, values = parts[place]
            whole[Section(lower, tuple(map(add, lower, values.shape))).slices] = values
        _put(live, 0, file, all_of(plan.targets[number]).axes, whole)


def make(live: Live[Any], rank: int) -> None:
    """Make the files of a rank unless this run has made them, and perhaps closed them; and the scratch of the rank."""
    live.look()
    program, state = live.program, live.state
    made, sweep = live.is_done((rank,)), program.sweep
    for target in () if made else program.writes:
        assert isinstance(target, LocalTarget), "ranks make files of their own"
        target.make(rank, live.id, durable=state.durable)
    if not made or (state.recovered.anew and live.journal.is_there()):
        live.record((rank,))
    if sweep is None or recording.has_ended(live):
        return
    if not sweep.last:
        make_scratch(live, rank)
    elif sweep.number:
        live.use(sweep.scratch.folders[rank], rank)


def over(live: Live[Any]) -> None:
    """Mark all slabs as written."""
    live.syncer.wait()


def close(live: Live[Any], rank: int) -> None:
    """Remove the unfinished marks of a rank's files, which are complete, and the scratch that the pass has read."""
    live.look()
    sweep = live.program.sweep
    if sweep is None or sweep.last:
        live.syncer.wait()
        for files in _targets(live):
            finish_target(files.file(rank), durable=live.state.durable)
    if sweep:
        live.give_up(sweep.scratch.folders[rank], rank)
        _remove_read(sweep, rank)


def finish(live: Live[Any], *residuals: float | None) -> Any:
    """End the run, and return the name of the target; of an iteration, end a pass and return the largest residual."""
    program, sweep = live.program, live.program.sweep
    if sweep is None:
        recording.end(live)
        state_of(live).release()
        return str(program.destination.store)
    most = largest([sweep.before, *(each for each in residuals if each is not None)])
    if sweep.last:
        most = recording.end(live, most)
    else:
        live.look()
        recording.check_read(live)
        live.syncer.wait()  # a resumed run needs either the input of this pass or its completed output
        if not program.in_ranks:
            _remove_read(sweep)
    live.journal.release()
    program.settle(live, resumable=not sweep.last)
    return most


def _remove_read(sweep: Sweep, rank: int = 0) -> None:
    """Remove the scratch that a pass has read; after the last pass all scratch, of a rank if each has its own."""
    folder = sweep.scratch.folders[rank]
    for place in [folder] if sweep.last else sweep.scratch.of_rank(sweep.number - 1, rank) if sweep.number else ():
        remove_scratch(place)


def _is_done(live: Live[Any], slab: Slab) -> bool:
    return live.is_done(live.program.part(slab))


def _windows(live: Live[Any]) -> Windows:
    return Windows(live.program.plan, _sources(live), live.meter, state_of(live).pool)


def _sources(live: Live[Any]) -> Sequence[Any]:
    """Return the arrays that a pass reads: the sources, or copies of them; later swept ones are the pass before's."""
    sweep, reads = live.program.sweep, live.program.reads
    if sweep is None or not sweep.number:
        return live.copies or reads
    return live.once("sources", lambda: (*_scratch(live, sweep, sweep.number - 1), *reads))


def _targets(live: Live[Any]) -> Sequence[Any]:
    program, sweep = live.program, live.program.sweep

    def opened() -> Sequence[Any]:
        if sweep is not None and not sweep.last:
            live.journal.join()
            return _scratch(live, sweep, sweep.number)
        each = [live.target(number) for number in range(len(program.writes))]
        return each[0] if program.writes[0].members else each

    return live.once("targets", opened)


def _scratch(live: Live[Any], sweep: Sweep, number: int) -> list[Any]:
    if not live.program.in_ranks:
        live.use(sweep.scratch.folders[0])
    return sweep.scratch.opened(number, live.program.writes)


def make_scratch(live: Live[Any], rank: int = 0) -> None:
    """Make the scratch that a pass writes, of a rank if each has its own."""
    plan, sweep = live.program.plan, live.program.sweep
    live.use(sweep.scratch.folders[rank], rank)
    for field, place in enumerate(sweep.scratch.of_rank(sweep.number, rank)):
        target, stored = live.target(field), rank_file(plan, plan.targets[field], rank)
        like = target.file(rank) if isinstance(target, RankFiles) else target
        create_scratch(place, like, stored, durable=live.state.durable)
