"""The kernel's figures of a set of processes: memory now, bytes and CPU seconds so far."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

TICK = os.sysconf("SC_CLK_TCK")
COUNTERS = ("rchar", "wchar", "read_bytes", "write_bytes")


@dataclass(slots=True)
class Session:
    """The processes of one session: a child that was started in a new one, and all that it started."""

    leader: int
    """Process id of the child."""
    members: list[int] = field(default_factory=list)
    """Process ids at the last look."""
    seen: dict[int, dict[str, float]] = field(default_factory=dict)
    """Last counters of every process that ever was a member, the dead included."""
    first: dict[int, int] = field(default_factory=dict)
    """Own resident bytes of each process when `memory` first looked at it."""
    peaks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Most resident bytes of each process that `memory` has seen: (all, own)."""

    def look(self) -> None:
        """Find the members anew and read their counters."""
        found = (int(name) for name in os.listdir("/proc") if name.isdigit())
        self.members = [pid for pid in found if self._counted(pid)]

    def _counted(self, pid: int) -> bool:
        try:
            fields = _read(pid, "stat").rpartition(")")[2].split()
            if int(fields[3]) != self.leader:
                return False
            counters = dict(line.split(": ") for line in _read(pid, "io").splitlines())
        except OSError:
            return False
        self.seen[pid] = {name: float(counters[name]) for name in COUNTERS}
        self.seen[pid]["cpu"] = (int(fields[11]) + int(fields[12])) / TICK
        return True

    def totals(self) -> dict[str, float]:
        """Bytes by kind and CPU seconds, summed over members, dead or alive, up to the last look."""
        return {name: sum(counters[name] for counters in self.seen.values()) for name in (*COUNTERS, "cpu")}

    def memory(self) -> tuple[int, int]:
        """Resident bytes now, summed over members: (not backed by files, mapped from files)."""
        own = mapped = 0
        for pid in self.members:
            try:
                pages = _resident(_read(pid, "status"))
            except OSError:
                continue
            here, files = pages.get("RssAnon", 0) + pages.get("RssShmem", 0), pages.get("RssFile", 0)
            self._keep(pid, (here + files) * 1024, here * 1024)
            own, mapped = own + here, mapped + files
        return own * 1024, mapped * 1024

    def _keep(self, pid: int, resident: int, own: int) -> None:
        self.first.setdefault(pid, own)
        most, most_own = self.peaks.get(pid, (0, 0))
        self.peaks[pid] = max(most, resident), max(most_own, own)


def _resident(status: str) -> dict[str, int]:
    """KiB by kind, from the lines `RssAnon:   1234 kB`."""
    lines = (line.split() for line in status.splitlines() if line.startswith("Rss"))
    return {line[0].rstrip(":"): int(line[1]) for line in lines}


def _read(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}") as file:
        return file.read()
