"""The thesis's contention in closed form: messages on the busiest link in step i, counted from 1.

    step of PEX on a 2 × 4 mesh     1  2  3  4  5  6  7
    MOD(i, 4), i / 4                1  2  3  0  1  2  3   and   0  0  0  1  1  1  1
    messages on the busiest link    1  2  2  1  1  2  2          2^⌊lg of the larger⌋

They were found by looking at many meshes (its words: obtained empirically). `network` counts instead, for any schedule
on any network; tests hold the two beside each other. Thakur 1995, chapter 4; each function names its section.
"""

from __future__ import annotations


def pex_on_mesh(step: int, columns: int) -> int:
    """PEX on a mesh of powers of two: exact (section 4.3.1).

    >>> [pex_on_mesh(step, columns=4) for step in range(1, 8)]
    [1, 2, 2, 1, 1, 2, 2]
    """
    return _power_below(max(step % columns, step // columns))


def ipex_on_mesh(turn: int) -> int:
    """IPEX, in exchange ``turn`` along a row or a column: exact with a floor where the print has a ceiling (4.3.5).

    >>> [ipex_on_mesh(turn) for turn in range(1, 8)]
    [1, 2, 2, 4, 4, 4, 4]
    """
    return _power_below(turn)


def rex_on_mesh(step: int, rows: int, columns: int) -> int:
    """REX on a mesh of powers of two, which halves rows by their columns first: exact (section 4.3.6).

    >>> [rex_on_mesh(step, rows=4, columns=8) for step in range(1, 6)]
    [4, 2, 1, 2, 1]
    """
    across = columns.bit_length() - 1
    return columns >> step if step <= across else rows >> (step - across)


def gen_on_mesh(step: int, rows: int, columns: int) -> int:
    """GEN on any mesh: what is counted is never more, and often less (section 4.3.4).

    >>> [gen_on_mesh(step, rows=2, columns=4) for step in range(1, 8)]
    [1, 2, 1, 1, 1, 2, 1]
    """
    ranks, along = rows * columns, step % columns
    return min(along, columns - along) + min(step // columns, (ranks - step) // columns)


def lex_on_fat_tree(ranks: int) -> int:
    """LEX, in which one rank's two links take what all others send (section 4.2.1).

    >>> lex_on_fat_tree(32)
    16
    """
    return ranks // 2


def pex_on_fat_tree(step: int) -> int:
    """PEX, which meets within clusters of 16 ranks first (section 4.2.2).

    >>> pex_on_fat_tree(15), pex_on_fat_tree(16)
    (1, 2)
    """
    return 1 if step < 16 else 2


def rex_on_fat_tree(step: int, ranks: int) -> int:
    """REX, which meets within clusters of 16 ranks last (section 4.2.3).

    >>> [rex_on_fat_tree(step, ranks=64) for step in range(1, 7)]
    [2, 2, 1, 1, 1, 1]
    """
    return 2 if step <= ranks.bit_length() - 5 else 1


def bex_on_fat_tree(step: int) -> float:
    """BEX, on an average over links and over the steps from one power of two to the next (section 4.2.4).

    The print's ⌈lg i⌉ is taken as ⌊lg i⌋ + 1: so it is what is counted on 64 ranks, to a hundredth. What the busiest
    link has there is 2, as in PEX.

    >>> bex_on_fat_tree(15), bex_on_fat_tree(16), bex_on_fat_tree(63)
    (1.0, 1.875, 1.9375)
    """
    return 1.0 if step < 16 else 2 - 2 / _power_below(step)


def _power_below(number: int) -> int:
    """The largest power of two that is no more than ``number``, at least 1."""
    return 1 << number.bit_length() - 1
