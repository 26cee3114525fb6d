"""The methods by which a layout changes, each as transfers one after the other, by the thesis's names.

    general   cyclic(11) ─────────────────► cyclic(3)          one transfer
    gcd       cyclic(11) ──► cyclic(1)  ──► cyclic(3)          by way of the block that divides both
    lcm       cyclic(11) ──► cyclic(33) ──► cyclic(3)          by way of the block that both divide
    indirect  one axis after the other; indirect-lcm by way of such a block in each (Figure 3.21)

Thakur 1995, sections 3.3 to 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from oocarrays.mapping.layouts.axis import Axis, BlockCyclicAxis
from oocarrays.mapping.layouts.distribution import Cyclic, Distribution
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.layouts.runs import formula
from oocarrays.plan.layouts.transfer import Transfer

ONE_AXIS = ("block-to-cyclic", "cyclic-to-block", "ky-to-y", "x-to-kx", "general")
BY_WAY_OF = {"gcd": math.gcd, "lcm": math.lcm}
"""The block by way of which two others are reached, both by closed formulas."""
METHODS = (*ONE_AXIS, *BY_WAY_OF, "direct", "indirect", *(f"indirect-{name}" for name in BY_WAY_OF))
"""Every way to redistribute, by the thesis's names: of one axis those before "direct", of several those from "gcd"."""


@lru_cache(maxsize=256)
def ways_between(source: Layout, target: Layout) -> dict[str, list[tuple[Transfer, ...]]]:
    """Every method that applies, its transfers; the thesis's formula before cutting, which finds the same runs.

    A method that goes by way of another block may do so on the ranks that are there before, or on those afterwards.
    """
    whole: tuple[Transfer, ...] = (Transfer(source, target),)
    changed = [axis for axis, (s, t) in enumerate(zip(source.axes, target.axes, strict=True)) if s != t]
    between = {name: _between(source, target, changed, rule) for name, rule in BY_WAY_OF.items()}
    ways = {name: [_by_way_of(source, target, [each]) for each in found] for name, found in between.items() if found}
    if len(changed) > 1:
        ways = {"direct": [whole]} | ways
        if source.grid == target.grid:
            ways["indirect"] = [_axis_after_axis(source, target, changed)]
            for name, rule in BY_WAY_OF.items():
                if name in ways:
                    ways[f"indirect-{name}"] = [_axis_after_axis(source, target, changed, rule)]
        return ways
    names = [formula(source.axes[axis], target.axes[axis]) for axis in changed]
    first = {name: [whole] for name in names if name}
    return first | {"general": [whole if changed else ()]} | ways


def _between(source: Layout, target: Layout, axes: list[int], rule: Callable[[int, int], int]) -> list[Layout]:
    """Return the layouts by way of which axes change that no closed formula changes; none where there are no such."""
    blocks = {axis: _block_between(source.axes[axis], target.axes[axis], rule) for axis in axes}
    known = {axis: block for axis, block in blocks.items() if block is not None}
    found = []
    for side in dict.fromkeys([source, target] if source.grid != target.grid else [source]):
        layout = side
        for axis, block in known.items():
            layout = _with(layout, axis, Cyclic(block))
        found += [layout] if known and layout not in (source, target) else []
    return found


def _block_between(s: Axis, t: Axis, rule: Callable[[int, int], int]) -> int | None:
    """Return the block between two block-cyclic axes over several ranks each, if it is neither of theirs."""
    if not (isinstance(s, BlockCyclicAxis) and isinstance(t, BlockCyclicAxis)) or 1 in (s.ranks, t.ranks):
        return None
    block = rule(s.block, t.block)
    direct = s.ranks == t.ranks and formula(s, t) is not None
    return None if direct or block in (s.block, t.block) else block


def _axis_after_axis(
    source: Layout, target: Layout, changed: list[int], rule: Callable[[int, int], int] | None = None
) -> tuple[Transfer, ...]:
    """The first axis first: the order makes no difference to what it costs (Thakur 1995, 3.6.1)."""
    between = [source]
    for axis in changed:
        block = rule and _block_between(source.axes[axis], target.axes[axis], rule)
        if block:
            between.append(_with(between[-1], axis, Cyclic(block)))
        between.append(_with(between[-1], axis, target.distributions[axis]))
    return _by_way_of(source, target, between[1:-1])


def _by_way_of(source: Layout, target: Layout, between: list[Layout]) -> tuple[Transfer, ...]:
    return tuple(Transfer(*pair) for pair in pairwise([source, *between, target]))


def _with(layout: Layout, axis: int, distribution: Distribution) -> Layout:
    distributions = (*layout.distributions[:axis], distribution, *layout.distributions[axis + 1 :])
    return replace(layout, distributions=distributions)
