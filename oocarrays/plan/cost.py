"""What a plan costs: counts that are exact, and seconds that are a model.

The work of a pass is done by ``min(ranks, cores)`` processors beside one storage device. The two run side by side as
far as some rank has work for each; what is not hidden so follows:

    seconds = max(cpu, device) + min(cpu, device) · (1 − hidden)

``hidden`` is nothing in a pass of one unit, and the more the more ranks there are for a core: a rank that waits for the
device leaves its core to another one.

The request counts follow del Rosario, Bordawekar and Choudhary 1993, section 3: what a distribution costs is the
number of its contiguous runs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What this machine takes for each kind of work; the defaults of ``oocarrays.cost.*`` in Dask's configuration."""

    read_bandwidth: float = 1.2e9
    """Bytes a second that the device reads, all ranks together."""
    write_bandwidth: float = 2.0e9
    """Bytes a second that the device writes, all ranks together."""
    copy_bandwidth: float = 4.0e9
    """Bytes a second that one core copies."""
    decode_bandwidth: float = 0.7e9
    """Decoded bytes a second that one core makes of coded ones."""
    encode_bandwidth: float = 0.14e9
    """Decoded bytes a second that one core encodes."""
    request_seconds: float = 4e-6
    """Seconds of one request to a local file; the interpreter makes them one after the other."""
    store_request_seconds: float = 1e-4
    """Seconds of one request to any other store."""
    run_seconds: float = 1e-8
    """Seconds that each contiguous run adds to a copy between layouts."""
    piece_seconds: float = 3e-5
    """Seconds to open a chunk and find the way to its pieces."""
    task_seconds: float = 6e-4
    """Seconds that the scheduler takes for one task."""
    coded_ratio: float = 0.6
    """Coded bytes over decoded bytes: an estimate."""
    cache_bytes: float = 4e9
    """Bytes of files that the operating system can keep in memory."""
    cores: int = 2
    """Processors that ranks can use."""


COST_NAMES = tuple(field.name for field in fields(Costs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What moves in a pass, or in a whole plan. Exact where nothing is coded and no chunk is missing."""

    read_requests: int = 0
    """Calls that read."""
    read_bytes: int = 0
    """Stored bytes read; an estimate where the source is coded."""
    decoded_bytes: int = 0
    """Bytes that come out of codecs."""
    copied_bytes: int = 0
    """Bytes copied from the source's layout to the target's."""
    copied_runs: int = 0
    """Contiguous runs of those copies: an estimate."""
    pieces: int = 0
    """Visits to source chunks."""
    write_requests: int = 0
    """Chunks written."""
    encoded_bytes: int = 0
    """Bytes that go into codecs."""
    written_bytes: int = 0
    """Stored bytes written; an estimate where the target is coded."""
    messages: int = 0
    """Messages between different ranks."""
    exchanged_bytes: int = 0
    """Bytes that those messages can hold at most."""
    tasks: int = 0
    """Tasks in the graph."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Traffic)})


def pass_seconds(
    traffic: Traffic,
    costs: Costs,
    *,
    ranks: int,
    turns: int,
    idle: float,
    local: bool,
    touched: int,
) -> float:
    """Predicted seconds of one pass.

    Parameters
    ----------
    turns : int
        Pieces of work that may overlap: while one rank waits for the device, another has the processor.
    idle : float
        Work of the busiest rank over the mean, at least 1.
    local : bool
        Whether the source is in local files.
    touched : int
        Distinct stored bytes of the source: what comes from the device when the cache keeps it.
    """
    from_device = touched if touched <= costs.cache_bytes else traffic.read_bytes
    device = from_device / costs.read_bandwidth + traffic.written_bytes / costs.write_bandwidth
    request = costs.request_seconds if local else costs.store_request_seconds
    work = (
        (traffic.read_bytes + traffic.copied_bytes + traffic.written_bytes) / costs.copy_bandwidth
        + traffic.copied_runs * costs.run_seconds
        + traffic.pieces * costs.piece_seconds
        + traffic.decoded_bytes / costs.decode_bandwidth
        + traffic.encoded_bytes / costs.encode_bandwidth
    )
    alone = (traffic.read_requests + traffic.write_requests) * request + traffic.tasks * costs.task_seconds
    cpu = work * idle / min(ranks, costs.cores) + alone
    hidden = _hidden(ranks, costs.cores) * (1 - 1 / max(turns, 1))
    return max(cpu, device) + min(cpu, device) * (1 - hidden)


def _hidden(ranks: int, cores: int) -> float:
    """The share of the lesser of processor and device time that is hidden behind the other: measured, roughly."""
    return 0.5 if ranks > cores else 0.3 if ranks > 1 else 0.1
