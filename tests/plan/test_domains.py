"""File domains against every chunk that any rank wants, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import axis_order
from oocarrays.plan.collective.domains import Dealing, Domain, file_domains
from tests.strategies import chunks_for, requests_of, shapes
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.once


@st.composite
def cases(draw: st.DrawFn) -> tuple[ChunkGrid, list, list[int]]:
    shape = draw(shapes(3, most=2000))
    ranks = draw(st.permutations(range(7)))
    return ChunkGrid.of(shape, draw(chunks_for(shape))), draw(requests_of(shape)), ranks[: draw(st.integers(1, 7))]


def wanted_of(grid: ChunkGrid, requests: list) -> list[tuple[int, ...]]:
    """The chunks that some rank wants any element of, by a mask of all elements."""
    mask = np.zeros(grid.shape, bool)
    for axes in requests:
        mask[np.ix_(*axes) if axes else ...] = True
    return [index for index in np.ndindex(grid.counts) if mask[grid.section(index).slices].any()]


def chunks_of(domain: Domain) -> list[tuple[int, ...]]:
    return [index for box in domain.boxes for index in domain.grid.indices(box)]


@given(cases(), st.sampled_from(["dynamic", "static"]), st.sampled_from(["block", "cyclic"]), st.integers(1, 3))
def test_every_chunk_is_in_one_domain_and_domains_are_even(case: tuple, partition: str, deal: str, run: int) -> None:
    grid, requests, aggregators = case
    domains = file_domains(grid, requests, aggregators, Dealing(partition=partition, deal=deal, run=run))
    dealt = wanted_of(grid, requests) if partition == "dynamic" else list(np.ndindex(grid.counts))
    assert [domain.rank for domain in domains] == aggregators
    assert sorted(index for domain in domains for index in chunks_of(domain)) == dealt
    assert all(domain.count == len(chunks_of(domain)) for domain in domains)
    counts = [domain.count for domain in domains]
    if deal == "block":
        assert max(counts) == -(-len(dealt) // len(aggregators))
    elif len(aggregators) > 1:
        assert max(counts) - min(counts) <= run


@given(cases(), st.sampled_from(["row", "column"]))
def test_a_static_domain_knows_what_of_it_is_wanted(case: tuple, orientation: str) -> None:
    grid, requests, aggregators = case
    wanted = set(wanted_of(grid, requests))
    for domain in file_domains(grid, requests, aggregators, Dealing(partition="static", orientation=orientation)):
        assert sorted(chunks_of(domain.wanted_by(requests))) == sorted(wanted.intersection(chunks_of(domain)))


@given(cases(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_a_block_is_contiguous_in_the_file_and_read_in_its_order(case: tuple, chance, each: int) -> None:
    grid, requests, aggregators = case
    order = chance.choice(["row", "column", tuple(chance.sample(range(len(grid.shape)), len(grid.shape)))])
    axes = axis_order(order, len(grid.shape))
    in_file = sorted(wanted_of(grid, requests), key=lambda index: [index[axis] for axis in axes])
    place = 0
    for domain in file_domains(grid, requests, aggregators, Dealing(orientation=order)):
        for boxes in domain.rounds(each):
            chunks = {index for box in boxes for index in grid.indices(box)}
            assert chunks == set(in_file[place : place + len(chunks)])
            assert len(chunks) == min(each, domain.count) or boxes == list(domain.rounds(each))[-1]
            place += len(chunks)
    assert place == len(in_file)


@given(cases(), st.integers(1, 9), st.integers(0, 2**20))
def test_a_disk_has_aggregators_of_its_own(case: tuple, disks: int, seed: int) -> None:
    grid, requests, aggregators = case
    disk_of = dict(
        zip(np.ndindex(grid.counts), np.random.default_rng(seed).integers(0, disks, grid.count), strict=True)
    )
    domains = file_domains(grid, requests, aggregators, Dealing(disk_of=disk_of.get))
    wanted = wanted_of(grid, requests)
    assert sorted(index for domain in domains for index in chunks_of(domain)) == wanted
    serving = {disk: set() for disk in {disk_of[index] for index in wanted}}
    for domain in domains:
        for index in chunks_of(domain):
            serving[disk_of[index]].add(domain.rank)
    if len(serving) <= len(aggregators):
        assert sum(map(len, serving.values())) == len(set().union(*serving.values()))
    else:
        assert all(len(ranks) == 1 for ranks in serving.values())


@pytest.mark.parametrize("deal", ["block", "cyclic"])
def test_a_million_chunks_are_dealt_to_thousands_of_ranks_at_once(deal: str) -> None:
    grid = ChunkGrid.of((16000, 16000), (16, 16))
    blocks = [(range(r // 64 * 250, r // 64 * 250 + 250), range(r % 64 * 250, r % 64 * 250 + 250)) for r in range(4096)]
    with counted() as work:
        domains = file_domains(grid, blocks, range(4096), Dealing(deal=deal))
    assert work.calls < CALLS_A_SECOND
    assert sum(domain.count for domain in domains) == 10**6
