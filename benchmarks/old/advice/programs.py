"""The eight code blocks of Memik, Kandemir and Choudhary 2000, as small out-of-core programs, and their eight setups.

Each block reads the part of each rank by its access pattern, and computes something of the kind of the code whose
name it has. The paper gives no pattern of a block: these are those of the published codes, with the number of loop
nests that have each as its count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from oocarrays.plan.advice.graph import CommunicationGraph, Reference
from oocarrays.plan.advice.paper import representative

LAYOUTS = {"row": "(block, *)", "column": "(*, block)", "block": "(block, block)"}
"""Access patterns, as `read_sections` takes them."""


def chunks_for(pattern: str, edge: int) -> tuple[int, int]:
    """Return the chunks that stand for a storage pattern: 64 of an array."""
    return {"row": (edge // 64, edge), "column": (edge, edge // 64), "block": (edge // 8, edge // 8)}[pattern]


# ---------------------------------------------------------------------- what each block computes


def tomcatv(x: np.ndarray) -> float:
    """Residuals of a mesh (SPEC 047): five nests run down columns, J outermost; two nests sweep along rows."""
    inner = x[1:-1, 1:-1]
    return float(np.abs(x[:-2, 1:-1] + x[2:, 1:-1] - 2 * inner).max(initial=0))


def vpenta(x: np.ndarray) -> float:
    """Three pentadiagonals inverted at one time (NAS kernel 7): the recurrence runs along J, all I at one time."""
    return float((x[:, 2:] - 0.1 * x[:, 1:-1] - 0.05 * x[:, :-2]).sum())


def btrix(x: np.ndarray) -> float:
    """Block tridiagonal systems (NAS kernel 4): swept along J for each L, which is the last axis."""
    return float((x[1:] - 0.25 * x[:-1]).sum())


def mxm(x: np.ndarray) -> float:
    """Matrix product (NAS kernel 1): rows of A and of C, columns of B."""
    return float((x @ x[:1].T if x.size else x).sum())


def tis(x: np.ndarray) -> float:
    """Two-electron integrals transformed (Perfect Club): each of four passes sums over columns."""
    return float(x.sum(axis=0).max(initial=0))


def eflux(x: np.ndarray) -> float:
    """Euler fluxes (Perfect Club, FLO52): differences along both axes of a mesh, so tiles."""
    return float(np.diff(x, axis=0).sum() + np.diff(x, axis=1).sum())


def transpose(x: np.ndarray) -> float:
    """Out-of-core transposition (NWChem): rows are read, columns are written."""
    return float(np.ascontiguousarray(x.T)[:1].sum())


def cholesky(x: np.ndarray) -> float:
    """Left-looking factorisation: each panel is some columns."""
    return float((x * x).sum(axis=0).max(initial=0))


@dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """One of the programs."""

    compute: Callable[[np.ndarray], float]
    """What it does with the part of a rank."""
    counts: Mapping[str, int]
    """How often each pattern occurs in it."""

    def pattern(self, name: str) -> str:
        """Return its representative access pattern, by the paper's conflict resolution."""
        found = representative(
            [Reference(block=name, dataset="x", pattern=pattern, count=n) for pattern, n in self.counts.items()]
        )
        return str(found.pattern) if found else "row"


BLOCKS = {
    "tomcatv": CodeBlock(compute=tomcatv, counts={"column": 5, "row": 2}),
    "vpenta": CodeBlock(compute=vpenta, counts={"row": 3, "column": 1}),
    "btrix": CodeBlock(compute=btrix, counts={"column": 4, "row": 1}),
    "mxm": CodeBlock(compute=mxm, counts={"row": 2, "column": 1}),
    "tis": CodeBlock(compute=tis, counts={"column": 4}),
    "eflux": CodeBlock(compute=eflux, counts={"block": 2, "row": 1}),
    "transpose": CodeBlock(compute=transpose, counts={"row": 1}),
    "cholesky": CodeBlock(compute=cholesky, counts={"column": 3, "row": 1}),
}


# ---------------------------------------------------------------------- setups


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A communication graph: who reads what whom makes, and how often. Figure 3 of the paper is not readable."""

    edges: Mapping[tuple[str, str], int]
    """Weights, by producer and consumer; each producer makes one array."""
    patterns: Mapping[str, str] = field(default_factory=dict)
    """Access patterns of blocks in this setup, where they are not their own: setups 2 and 8 differ so from 1 and 7."""

    def pattern(self, block: str) -> str:
        """Return how a block reads in this setup."""
        return self.patterns.get(block) or BLOCKS[block].pattern(block)

    def graph(self) -> CommunicationGraph:
        """Return the weighted communication graph."""
        producers = dict.fromkeys(producer for producer, _ in self.edges)
        uses = [Reference(block=name, dataset=f"of {name}", pattern="row", writes=True) for name in producers]
        uses += [
            Reference(block=consumer, dataset=f"of {producer}", pattern=self.pattern(consumer))
            for producer, consumer in self.edges
        ]
        return CommunicationGraph.of(uses, self.edges)


def _fan(producer: str, **weights: int) -> dict[tuple[str, str], int]:
    return {(producer, consumer): weight for consumer, weight in weights.items()}


SETUPS = {
    1: Setup(edges=_fan("tomcatv", vpenta=2, btrix=3, eflux=3, cholesky=2)),
    2: Setup(
        edges=_fan("tomcatv", vpenta=2, btrix=3, eflux=3, cholesky=2),
        patterns={"vpenta": "column", "eflux": "row", "cholesky": "block"},
    ),
    3: Setup(edges=_fan("vpenta", tomcatv=3, mxm=2, tis=3, transpose=3)),
    4: Setup(edges=_fan("btrix", tomcatv=4, vpenta=2, eflux=2) | _fan("mxm", tis=3, cholesky=3, transpose=4)),
    5: Setup(edges=_fan("tis", tomcatv=3, btrix=3, vpenta=2, mxm=2)),
    6: Setup(edges=_fan("eflux", cholesky=6, transpose=2, vpenta=2)),
    7: Setup(edges=_fan("transpose", btrix=3, tomcatv=2, eflux=3, mxm=2)),
    8: Setup(
        edges=_fan("transpose", btrix=3, tomcatv=2, eflux=3, mxm=2), patterns={"btrix": "block", "eflux": "column"}
    ),
}
"""The weights that favour the storage pattern which is chosen are 50 % of all in setup 1 and 60 % in setup 6, as the
paper says (4.3); in the others they are 50 to 60 %."""
