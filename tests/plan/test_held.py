"""The memory contract of every plan, term by term."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays import Layout, Schedule
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.collective.read_offers import plan_collective
from oocarrays.plan.collective.wanted import requests_of
from oocarrays.plan.collective.write import AHEAD
from oocarrays.plan.collective.write_offers import plan_collective_write
from oocarrays.plan.files.scatter import UNDER_WAY, plan_files
from oocarrays.plan.files.shift import ShiftPlan
from oocarrays.plan.layouts.halos import HaloPlan, Halos
from oocarrays.plan.lazy.blocks import plan_blocks
from oocarrays.plan.lazy.reads import SIEVE_BYTES, plan_lazy_reads
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import PROCESS_BYTES, Memory, Resources, largest
from oocarrays.plan.rechunk.assembled import COUNTER_BYTES, stage_of
from oocarrays.plan.rechunk.counting import TASK_BYTES
from oocarrays.plan.rechunk.group import CopyPlan, GroupPlan
from oocarrays.plan.rechunk.passes import BASE_BYTES, THREAD_BYTES
from oocarrays.plan.rechunk.plan import plan_rechunk
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.iterate import SweepOptions, plan_iterate
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import SLAB_BYTES

pytestmark = pytest.mark.once

ROWS = Stored(grid=ChunkGrid.of((1024, 1024), (64, 1024)), itemsize=4, local=True)
COLUMNS = replace(ROWS, grid=ChunkGrid.of((1024, 1024), (1024, 64)))
CODED = replace(ROWS, codec="zstd", decode_workspace=1000, encode_workspace=3000, index_workspace=70)
CHUNK = 64 * 1024 * 4
MIB = 2**20


def terms(memory: Memory) -> dict[str, int]:
    """What holds anything."""
    return {name: nbytes for name, nbytes in memory.terms if nbytes}


def test_terms_of_one_name_add_up_and_others_stay_apart() -> None:
    both = Memory.of(regions=2, codecs=1) * 3 + Memory.of(codecs=4, stacks=5)
    assert both.terms == (("regions", 6), ("codecs", 7), ("stacks", 5))
    assert both.nbytes == 18
    assert largest(both, Memory.of(regions=17)) == both


@pytest.mark.parametrize("workers", [None, 2])
def test_a_rechunk_holds_its_stacks_its_graph_and_what_each_rank_does(workers: int | None) -> None:
    plan = plan_rechunk(CODED, COLUMNS, Resources(budget=64 * MIB, ranks=2, workers=workers), method="two-phase")
    (step,), here = plan.passes, 2 if workers is None else 1
    region = int(np.prod(step.region)) * CHUNK
    assert plan.memory == step.memory
    assert step.memory["stacks"] == (BASE_BYTES if workers else PROCESS_BYTES + 2 * THREAD_BYTES)
    assert step.memory["graph"] == (step.traffic.tasks * TASK_BYTES if workers is None else 0)
    assert step.memory["index"] == 70
    assert step.memory["regions"] == here * step.depth * region
    assert (step.memory["messages"] > 0) == (workers is not None), "between threads parts are views"
    assert step.memory["chunks"] == (here * step.slab * step.slabs * CHUNK if workers is None else CHUNK)
    assert step.memory["codecs"] >= here * step.slabs * 1000
    assert plan.peak_bytes == sum(terms(plan.memory).values()) <= plan.budget


def test_a_rank_that_assembles_holds_a_box_and_a_stage() -> None:
    (step,) = plan_rechunk(CODED, COLUMNS, Resources(budget=64 * MIB, ranks=2), method="assembled").passes
    box, stage = int(np.prod(step.region)) * CHUNK, stage_of(step)
    assert terms(step.memory) == {
        "stacks": PROCESS_BYTES + 2 * THREAD_BYTES,
        "graph": step.traffic.tasks * TASK_BYTES,
        "index": 70,
        "counters": 16 * COUNTER_BYTES,
        "regions": 2 * box,
        "chunks": 2 * stage,
        "codecs": 2 * (1000 + CHUNK),
    }


def test_a_group_holds_what_its_largest_array_does_or_what_is_copied() -> None:
    plan = plan_rechunk(ROWS, COLUMNS, Resources(budget=64 * MIB))
    members, copies = (("a", plan),), CopyPlan(peak_bytes=plan.peak_bytes + 1)
    group = GroupPlan(members=members, copies=CopyPlan(), budget=2**40, processes=None)
    assert group.memory == plan.memory
    assert terms(replace(group, copies=copies).memory) == {"copies": plan.peak_bytes + 1}


@pytest.mark.parametrize("reuse", [True, False])
def test_slabs_hold_windows_results_and_what_the_kernel_needs(reuse: bool) -> None:
    asked = SlabOptions(depth=1, ranks=2, axis=0, height=64, reuse=reuse, workspace=500, budget=2**40, prefetch=1)
    plan = plan_slabs([ROWS], [CODED], asked)
    window, result = plan.window_bytes(), 66 * 1024 * 4
    assert window == result
    held = plan.memory
    assert held["windows"] == 2 * plan.held * window
    assert held["handed_on"] == 2 * 2 * plan.held * 2 * 1024 * 4
    assert held["results"] == 2 * 2 * result
    assert held["kernel"] == 2 * 500
    assert held["given_last"] == window
    assert held["graph"] == 16 * SLAB_BYTES
    assert held["stacks"] == PROCESS_BYTES
    assert held["codecs"] > 0
    assert replace(plan, workspace=700).memory["kernel"] == 2 * 700
    assert held.nbytes == plan.peak_bytes == plan.bare.nbytes + held["codecs"]


def test_an_iteration_holds_what_its_largest_pass_does() -> None:
    asked = SweepOptions(sweeps=7, depth=1, budget=64 * MIB, fuse=3, watched=True)
    plan = plan_iterate([ROWS], [ROWS], [ROWS], asked, costs=Costs())
    passes = [each.slabs.memory for each in (*plan.passes, plan.copy) if each]
    assert plan.memory in passes
    assert plan.peak_bytes == max(each.nbytes for each in passes)


@pytest.mark.parametrize("mebibytes", [64, 128])
def test_sweeps_in_small_budgets_keep_all_threads_busy_and_hold_no_chunk_to_write(mebibytes: int) -> None:
    squares = replace(ROWS, grid=ChunkGrid.of((8192, 8192), (1024, 1024)), itemsize=8)
    asked = SweepOptions(sweeps=10, depth=1, budget=mebibytes * MIB, ranks=2)
    plan = plan_iterate([squares], [squares], [squares], asked, costs=Costs(), threads=2)
    (step,) = plan.passes
    core = [(0, height) for height in step.slabs.heights]
    assert plan.ranks * min(step.threads, len(list(step.sweeps.tiles(core)))) == 2
    assert plan.memory["codecs"] < squares.chunk_bytes, "results lie as chunks do, and are written from where they are"
    assert plan.memory["kernel"] < squares.chunk_bytes * plan.ranks * 2, "blocks are of slabs, not of the whole array"


def test_a_collective_read_holds_parts_what_reading_needs_and_rounds() -> None:
    wants = requests_of(Layout.of((1024, 1024), "(*, block)", ranks=4))
    part = 1024 * 1024
    own = plan_collective(ROWS, wants, Resources(), method="independent").memory
    assert own["parts"] == 4 * part
    assert set(terms(own)) == {"parts", "reading"}
    here = plan_collective(ROWS, wants, Resources(), method="two-phase", aggregators=4, buffer_bytes=CHUNK)
    assert here.memory["rounds"] == min(4, Costs().cores) * CHUNK
    there = plan_collective(ROWS, wants, Resources(workers=2), method="two-phase", aggregators=4, buffer_bytes=CHUNK)
    assert there.memory["parts"] == 2 * part
    assert there.memory["rounds"] == 2 * 3 * CHUNK, "two of each rank, and one that is still being let go"
    assert there.memory["messages"] > 0
    assert there.price is not None
    assert there.price.peak_bytes == there.memory.nbytes


def test_a_collective_write_holds_chunks_what_codecs_need_and_messages() -> None:
    wants = [(range(1024), range(0, 700)), (range(1024), range(500, 1024))]
    here = plan_collective_write(CODED, wants, Resources())
    assert terms(here.memory) == {"chunks": here.threads * CHUNK, "codecs": here.threads * 4000}
    there = plan_collective_write(CODED, wants, Resources(workers=2))
    sent = there.sent
    messages = min(AHEAD, len(sent)) * int(sent.sum(axis=1).max()) + int(sent.max())
    assert terms(there.memory) == {"chunks": CHUNK, "codecs": 4000, "messages": messages}


def test_files_hold_two_rounds_and_a_chunk_in_hand_on_each_side() -> None:
    layout = Layout.of((1024, 1024), "(block, *)", ranks=2)
    grids = [ChunkGrid.of((512, 1024), (64, 1024))] * 2
    local = replace(CODED, grid=grids[0])
    here = plan_files("scatter", CODED, local, grids, layout, (0, 0), Resources(budget=2**40))
    box = here.rounds[0].size * 4
    assert here.memory["domains"] == here.memory["messages"] == UNDER_WAY * box
    assert here.memory["chunks"] == 2 * (2 * CHUNK + 1000 + 70 + 4000)
    there = plan_files("scatter", CODED, local, grids, layout, (0, 0), Resources(budget=2**40, workers=2))
    assert there.memory["chunks"] == here.memory["chunks"] // 2
    assert there.memory["domains"] == UNDER_WAY * box // 2


@pytest.mark.parametrize("processes", [None, 2])
def test_a_shift_holds_messages_and_what_is_in_hand(processes: int | None) -> None:
    halos = Halos(Layout.of((64, 64), "(block, *)", ranks=2), (1, 0), "none")
    file = Stored(grid=ChunkGrid.of((34, 64), (34, 64)), itemsize=4, local=True)
    plan = ShiftPlan(
        halos=halos, read=(file,) * 2, written=(file,) * 2, schedule=Schedule.of("pex", 2), budget=2**40,
        processes=processes, costs=Costs(),
    )  # fmt: skip
    assert plan.memory["messages"] == 2 * 64 * 4, "a row each, or one that goes and one that comes"
    assert plan.memory["in_hand"] > 0
    assert plan.peak_bytes == sum(terms(plan.memory).values())


def test_a_redistribution_holds_parts_and_all_messages() -> None:
    layouts = (Layout.of((8, 8), layout, ranks=2) for layout in ("(block, *)", "(*, block)"))
    plan = ooc.plan_redistribution(*layouts, dtype="f4")
    assert terms(plan.memory()) == terms(plan.memory(1)) == {"parts": 2 * 32 * 4, "messages": 2 * 16 * 4}
    assert plan.memory(7) == Memory()
    same = Layout.of((8, 8), "(block, *)", ranks=2)
    assert terms(ooc.plan_redistribution(same, same, dtype="f4").memory()) == {"parts": 32 * 4}


def test_halos_hold_a_part_what_is_seen_and_a_message_each_way() -> None:
    halos = Halos(Layout.of((8, 8), "(block, *)", ranks=2), (1, 0), "none")
    here = HaloPlan(halos=halos, itemsize=4, schedule=None)
    assert terms(here.memory) == {"part": 32 * 4, "seen": 40 * 4}
    there = replace(here, schedule=Schedule.of("pex", 2))
    assert terms(there.memory) == terms(here.memory) | {"messages": 2 * 8 * 4}


def test_lazy_reads_hold_blocks_a_tile_and_what_reading_takes() -> None:
    axes, blocks, means = (range(1024), range(1024)), ((1024,), (256,) * 4), Resources(budget=2**40, threads=2)
    alone = plan_lazy_reads(ROWS, axes, ((512,) * 2, (1024,)), means)
    assert (alone.method, terms(alone.memory)) == ("blocks", {"blocks": 3 * 2 * MIB, "reading": 3 * 2 * MIB})
    assert SIEVE_BYTES > 2 * MIB
    together = plan_lazy_reads(CODED, axes, blocks, means)
    assert together.method == "groups"
    held = terms(together.task_memory)
    assert held["blocks"] == together.group_bytes
    assert held["reading"] == CHUNK + 1000
    assert held["tile"] == int(np.prod(together.tile)) * 4
    assert together.memory == together.task_memory * 3


def test_blocks_that_are_written_hold_chunks_or_what_the_rechunk_after_them_does() -> None:
    straight = plan_blocks(((64,) * 16, (1024,)), CODED, Resources(budget=2**30, threads=2))
    assert terms(straight.memory) == {"chunks": 2 * (CHUNK + 3000)}
    across = plan_blocks(((1024,), (64,) * 16), CODED, Resources(budget=2**30, threads=2))
    assert across.memory == across.rechunk.memory
