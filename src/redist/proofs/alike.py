"""Which devices are alike: with even blocks, counts depend only on which digits of a position are equal.

Cut so that in every dimension all lists of digits have the same sizes, place by place, two blocks overlap where
the digits at the same places are equal as far as both lists go, and otherwise not at all. Only digits that meet at
some place are ever compared. Of m such digits, m values each show every pattern of equal ones, so that a count
over devices looks at few of them however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from redist.proofs.spaces import Space
from redist.types.mesh import Mesh, SubAxis

__all__ = ["Compared", "with_classes"]

_MOST_ALIKE = 5
"""Digits of a class that are told apart by pattern: m of them have up to m^m entries."""

Compared = Sequence[tuple[Mesh, Sequence[SubAxis]]]
"""Lists of axes whose indices are compared with each other, major to minor."""


def with_classes(space: Space, compared: Iterable[Compared]) -> Space:
    """The space with digits cut finely enough, and classes of digits that are compared; the space as it is where
    lists have no common cuts or too many digits are compared."""
    assert space.cuts is not None
    groups = [list(group) for group in compared]
    cuts = set(space.cuts)
    while True:
        fine = Space(space.mesh, ordered := tuple(sorted(cuts)))
        found = None if any(b % a for a, b in pairwise(ordered)) else _missing(fine, groups)
        if found is None:
            return space
        if not found:
            made = Space(space.mesh, ordered, _classes(fine, groups))
            large = any(made.reduced(digits) and len(digits) > _MOST_ALIKE for digits in made.classes or ())
            return space if large else made
        cuts |= found


def _ends(space: Space, mesh: Mesh, axes: Sequence[SubAxis]) -> list[tuple[int, int, int]]:
    """(digit, product of the sizes before it, the same with its own) of a list, major to minor."""
    found: list[tuple[int, int, int]] = []
    before = 1
    for n in space.digits(mesh, axes):
        found.append((n, before, before * space.size(n)))
        before = found[-1][2]
    return found


def _missing(space: Space, groups: Sequence[Compared]) -> set[int] | None:
    """Strides at which digits have to be cut so that the lists of each group have the same ends; None where these
    are not cuts of one factorisation."""
    assert space.cuts is not None
    found: set[int] = set()
    for group in groups:
        lists = [_ends(space, mesh, axes) for mesh, axes in group]
        ends = sorted({1, *(stop for digits in lists for _, _, stop in digits)})
        if any(b % a for a, b in pairwise(ends)):
            return None
        for digits in lists:
            for n, start, stop in digits:
                found.update(space.cuts[n] * (stop // end) for end in ends if start < end < stop)
    return found


def _classes(space: Space, groups: Sequence[Compared]) -> tuple[tuple[int, ...], ...]:
    """Digits that meet at some place of a group, directly or by way of others."""
    assert space.cuts is not None
    root = list(range(len(space.cuts) - 1))

    def find(n: int) -> int:
        while root[n] != n:
            n = root[n]
        return n

    for group in groups:
        meeting: dict[int, int] = {}
        for mesh, axes in group:
            for n, start, _ in _ends(space, mesh, axes):
                root[find(n)] = find(meeting.setdefault(start, n))
    classes: dict[int, list[int]] = {}
    for n in range(len(root)):
        classes.setdefault(find(n), []).append(n)
    return tuple(map(tuple, classes.values()))
