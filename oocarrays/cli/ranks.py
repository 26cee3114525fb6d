"""Sections and exchanges: ``oocarrays read``, and previews by ``schedule``, ``redistribute`` and ``requests``."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from oocarrays.arrays.array import open_array
from oocarrays.cli.options import sources_of
from oocarrays.cli.reports import print_json
from oocarrays.cli.signatures import command
from oocarrays.errors import InputError, ScheduleError, SelectionError, TargetError, in_number
from oocarrays.graphs.settings import costs, size_in_bytes
from oocarrays.mapping.selection import Selection
from oocarrays.options.networks import NETWORKS, carrier_of
from oocarrays.plan.exchange.network import Mesh
from oocarrays.plan.exchange.prediction import Carrier
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.redistribution import plan_redistribution
from oocarrays.show import report
from oocarrays.show.exchanges import count_requests, distributions_of, parsed_chunk, requests_table, schedule_text
from oocarrays.show.pictures import load_picture
from oocarrays.show.redistributions import Outlook, itemsize, layouts, shape as parsed_shape
from oocarrays.storage.local.fs import translated
from oocarrays.storage.meter import Meter, metered
from oocarrays.storage.stores.urls import check_path
from oocarrays.stored.reading import plan


@command()
def requests_command(
    *,
    shape: str,
    ranks: int,
    layout: str | None = None,
    orientation: str = "row",
    chunk: str | None = None,
    dtype: str = "float32",
    json: bool = False,
) -> None:
    """Count the requests of ranks that read their parts of an array.

    shape: elements in each axis, such as 4096,4096
    ranks: number of logical processors
    layout: layout of the array over the ranks, such as '(block, *)' (default: all of block and cyclic axes)
    orientation: storage order of the axes: row, column, or from the slowest to the fastest, such as 1,0
    chunk: stripe in elements, or in bytes such as 128KiB; or chunks such as 256,4096 (default: one request a run)
    """
    sides = parsed_shape(shape)
    itemsize(dtype)
    how: Any = {"orientation": orientation, "chunk": None if chunk is None else parsed_chunk(chunk), "dtype": dtype}
    each = [layout] if layout else distributions_of(len(sides))
    counts = [count_requests(sides, asked, ranks=ranks, **how) for asked in each]
    names = ("distribution_requests", "distribution_elements", "transaction_requests", "rank_requests")
    rows = [{"layout": str(each.layout)} | {name: getattr(each, name) for name in names} for each in counts]
    print_json({"layouts": rows}) if json else print(requests_table(counts))


@command()
def schedule_command(
    name: str,
    *,
    ranks: int,
    columns: int | None = None,
    network: str | None = None,
    constants: str | None = None,
    bytes: str | None = None,
    draw: str | None = None,
    json: bool = False,
) -> None:
    """Show who sends to whom in each step of an exchange.

    name: schedule: lex, pex, rex, bex, pex-gen, pex-gen-shift, gen or ipex
    ranks: number of logical processors
    columns: columns of the mesh for ipex and rex (default: those of --network)
    network: network whose busiest link in each step is shown: mesh:4x8, torus:4x8, hypercube, fat-tree, dragonfly:9x4x2
        for 2 ranks on each of 4 routers of 9 groups, flat, or flat:2x4 for 4 ranks on each of 2 hosts
    bytes SIZE: bytes that every pair exchanges, such as 16KiB: show predicted seconds on --network
    draw: draw the steps to a .png, .svg or .pdf file, or one after another to a .gif file
    json: print one JSON object to standard output: steps, each a list of [source, destination]
    """
    carrier = None if network is None else carrier_of(network, ranks, constants)
    there = carrier.network if carrier else None
    if columns is None and isinstance(there, Mesh):
        columns = there.columns
    schedule = Schedule.of(name, ranks, columns=columns)
    most = 2**20
    if len(schedule) * ranks > most:
        raise ScheduleError(
            f"--ranks {ranks}: {len(schedule)} steps of up to {ranks} messages are more than the {most} that are shown"
        )
    if draw:
        load_picture("schedules").check(schedule, draw)
    if json:
        print_json({"steps": [list(map(list, step.pairs)) for step in schedule]})
    else:
        _print_schedule(schedule, carrier, bytes)
    if draw:
        load_picture("schedules").save(schedule, draw)
        if not json:
            print(f"drew {draw}")


def _print_schedule(schedule: Schedule, carrier: Carrier | None, size: str | None) -> None:
    network = carrier.network if carrier else None
    if size is not None and network is None:
        raise ScheduleError(f"--bytes {size} needs --network to predict seconds: {NETWORKS}")
    nbytes = None if size is None else size_in_bytes(size, "bytes")
    constants = carrier.constants if carrier else ()
    print(schedule_text(schedule, network=network, nbytes=nbytes, constants=constants))
    if nbytes and carrier:
        print(f"predicted by {carrier.whose}")


@command()
def redistribute_command(
    *,
    from_: str,
    to: str,
    shape: str,
    ranks: int | None = None,
    to_ranks: int | None = None,
    grid: str | None = None,
    to_grid: str | None = None,
    dtype: str = "float32",
    method: str = "auto",
    schedule: str | None = None,
    network: str = "flat",
    constants: str | None = None,
    draw: str | None = None,
    json: bool = False,
) -> None:
    """Show the cost of a change of an array's layout over ranks.

    from_ LAYOUT: layout before, such as 'cyclic(11)'
    to LAYOUT: layout after, such as '(*, block)'
    shape: elements in each axis, such as 1024x1024, or 1M for one axis
    ranks: number of logical processors
    to_ranks: number of logical processors afterwards (default: as before)
    grid: ranks along each axis, such as 2x2 (default: as even as possible)
    to_grid: ranks along each axis afterwards (default: as even as possible)
    method: method: block-to-cyclic, cyclic-to-block, ky-to-y, x-to-kx, general, gcd, lcm, direct, indirect,
        indirect-gcd or indirect-lcm (default: the cheapest that applies)
    schedule: schedule: lex, pex, rex, bex, pex-gen, pex-gen-shift, gen, ipex or coloring (default: all, the cheapest
        first)
    network: network: see schedule --help
    draw: draw the messages of each step, and the load of the links, to a .png, .svg or .pdf file
    """
    if draw:
        load_picture().check_file(draw)
    grids = _grid("--grid", grid), _grid("--to-grid", to_grid)
    before, after = layouts(parsed_shape(shape), from_, to, ranks=(ranks, to_ranks), grids=grids)
    carrier = carrier_of(network, max(before.ranks, after.ranks), constants)
    plan = plan_redistribution(
        before, after, itemsize(dtype), method, costs=costs(), carrier=carrier, schedule=schedule
    )
    outlook = Outlook.of(plan, carrier, schedule)
    print_json(outlook.as_json()) if json else print(outlook.text())
    if draw:
        load_picture("exchanges").draw(outlook).savefig(draw)
        if not json:
            print(f"drew {draw}")


def _grid(flag: str, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(map(int, text.replace("×", "x").split("x")))
    except ValueError:
        raise InputError(f"{flag} {text!r} is no grid such as 2x2") from None


def parsed_section(text: str) -> Any:
    """Parse an index in Python's syntax, with or without brackets."""
    for written in (f"_{text.strip()}", f"_[{text.strip()}]"):
        try:
            index = ast.parse(written, mode="eval").body
            if isinstance(index, ast.Subscript) and isinstance(index.value, ast.Name) and index.value.id == "_":
                return _index(index.slice)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    raise SelectionError(
        f"{report.shortened(text)} is not an index: write it as in Python, such as '[::4, 5]' or '[10:20, ..., [1, 4]]'"
    )


def _index(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_index, node.elts))
    if isinstance(node, ast.Slice):
        return slice(
            *(None if part is None else ast.literal_eval(part) for part in (node.lower, node.upper, node.step))
        )
    return ast.literal_eval(node)


@command()
def read_command(
    store: str,
    section: str,
    *,
    method: Literal["auto", "direct", "sieve"] = "auto",
    explain: bool = False,
    out: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    concat_dim: str | None = None,
    missing: Literal["fill", "warn", "error"] | None = None,
) -> None:
    """Read a section of an array, and print it or write it to a file.

    store: array: a path or a URL
    section: index as in Python: '[::4, 5]', '[10:20, ..., [1, 4]]'
    method: how elements between those of the section are skipped
    explain: print the planned and the counted requests and bytes
    out FILE.npy: new .npy file for the section
    """
    if out is not None:
        out = check_path(out, "--out")
        if os.path.lexists(out):
            raise TargetError(f"{out} exists; name a new file")
        if not os.path.isdir(os.path.dirname(os.path.abspath(out))):
            raise TargetError(f"--out {out}: there is no such folder")
    (source,) = sources_of(concat_dim, storage_options, store)
    array = open_array(source, storage_options=storage_options, missing=missing)
    taken = Selection.of(parsed_section(section), array.shape)
    if explain:
        print(plan(array.zarr, taken, method=method).explain())
    with metered() as meter:
        data = np.asarray(array.read(taken, method=method))
    if explain:
        print(_counted(meter))
    if out:
        _save(out, data)
    else:
        print(np.array2string(data, threshold=1000))
    place = f"; wrote {out}" if out else ""
    print(in_number(f"shape {data.shape}, {data.dtype}, {data.nbytes} bytes{place}"))


def _counted(meter: Meter) -> str:
    more = f", {meter.index_requests} of indices of shards" if meter.index_requests else ""
    decoded = f", {meter.decoded_bytes} bytes decoded" if meter.decoded_bytes else ""
    missing = f", {meter.missing_chunks} chunks missing" if meter.missing_chunks else ""
    return in_number(f"counted: {meter.read_requests} requests for {meter.read_bytes} bytes{more}{decoded}{missing}")


def _save(path: str, data: np.ndarray) -> None:
    try:
        with translated("write", path, but=(FileExistsError,)), open(path, "xb") as file:
            np.save(file, data)
    except FileExistsError:
        raise TargetError(f"{path} exists; name a new file") from None
