"""Device positions in mixed-radix digits, one per cut of a mesh: where symbolic coordinates live."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from redist.proofs.terms import Formula, Sheet, Term, constant, either, eq, le, lt, negation
from redist.types.mesh import Mesh, SubAxis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.layout import Layout

__all__ = [
    "Digits",
    "Position",
    "UnsupportedError",
    "axes_of",
    "chain",
    "differs",
    "index",
    "positions_by_id",
    "receiver",
    "refit",
    "regroup",
    "translate",
]

Digits = tuple[tuple[Term, int], ...]
"""(digit, size), major to minor; no size is 1."""


class UnsupportedError(Exception):
    """What has no linear encoding here; it is enumerated instead."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position of a mesh: digit n has stride cuts[n] and size cuts[n+1] / cuts[n] (minor to major)."""

    cuts: tuple[int, ...]
    digits: tuple[Term, ...]

    def over(self, mesh: Mesh, axes: Iterable[SubAxis]) -> Digits:
        """The digits of these (sub-)axes, each of which begins and ends at a cut."""
        return tuple((self.digits[n], self.cuts[n + 1] // self.cuts[n]) for n in self.numbers(mesh, axes))

    def numbers(self, mesh: Mesh, axes: Iterable[SubAxis]) -> list[int]:
        """Which digits these axes are, major to minor."""
        found: list[int] = []
        for axis in axes:
            stride, size = mesh.digit(axis)
            if size > 1:
                found += reversed(range(self.cuts.index(stride), self.cuts.index(stride * size)))
        return found

    def put(self, numbers: Sequence[int], digits: Digits) -> Position:
        """The position with these digits replaced."""
        made = list(self.digits)
        for n, (term, _) in zip(numbers, digits, strict=True):
            made[n] = term
        return Position(self.cuts, tuple(made))

    def number(self) -> Term:
        """The position itself, as one term."""
        return index(self.all())

    def all(self) -> Digits:
        """All digits, major to minor."""
        sizes = [b // a for a, b in pairwise(self.cuts)]
        return tuple(zip(self.digits, sizes, strict=True))[::-1]


def axes_of(layout: Layout) -> list[SubAxis]:
    """All (sub-)axes that a layout names."""
    return [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]


def chain(mesh: Mesh, axes: Iterable[SubAxis]) -> tuple[int, ...] | None:
    """Where the digits of a mesh are cut so that these axes are digits: ascending, from 1 to its size.

    An axis is cut only where one of `axes` begins or ends. None where the cuts do not divide one another.
    """
    cuts = {1, mesh.size}
    for axis in axes:
        stride, size = mesh.digit(axis)
        cuts.update((stride, stride * size))
    ordered = sorted(cuts)
    if any(b % a for a, b in pairwise(ordered)):
        return None
    return tuple(ordered)


def receiver(sheet: Sheet, stem: str, cuts: tuple[int, ...]) -> Position:
    """Any device: a new variable per digit."""
    sizes = [b // a for a, b in pairwise(cuts)]
    return Position(cuts, tuple(sheet.bounded(stem, size, domain=True) for size in sizes))


def index(digits: Digits) -> Term:
    """Mixed-radix value."""
    total = constant(0)
    for term, size in digits:
        total = total * size + term
    return total


def regroup(sheet: Sheet, digits: Digits, sizes: Sequence[int], stem: str, flaws: list[Formula]) -> Digits:
    """The same number in digits of other sizes (major to minor, of the same product).

    Digits are shared between cuts that both have. Where they differ the new ones are defined by the sum;
    the top one is left unbounded, so that the definition holds whatever the number is, and a value out of
    range is a flaw.
    """
    wanted = [size for size in sizes if size > 1]
    if [size for _, size in digits] == wanted:
        return digits
    if math.prod(wanted) != math.prod(size for _, size in digits):
        raise UnsupportedError("digits of another total")
    old, new = list(digits), list(wanted)
    made: list[tuple[Term, int]] = []  # minor to major
    while old:
        taken, given = [old.pop()], [new.pop()]
        ours, theirs = taken[0][1], given[0]
        while ours != theirs:
            if ours < theirs:
                taken.append(old.pop())
                ours *= taken[-1][1]
            else:
                given.append(new.pop())
                theirs *= given[-1]
        value = index(tuple(reversed(taken)))
        if len(given) == 1:
            made.append((value, given[0]))
            continue
        parts = [sheet.fresh(stem) for _ in given]
        total, stride = constant(0), 1
        for term, size in zip(parts, given, strict=True):
            total, stride = total + term * stride, stride * size
            if term is not parts[-1]:
                sheet.facts += [le(0, term), lt(term, size)]
        sheet.facts.append(eq(total, value))
        flaws.append(out_of_range(parts[-1], given[-1]))
        made += zip(parts, given, strict=True)
    return tuple(reversed(made))


def out_of_range(term: Term, size: int) -> Formula:
    """Whether a digit is none."""
    return either([lt(term, 0), negation(lt(term, size))])


def refit(sheet: Sheet, position: Position, cuts: tuple[int, ...], stem: str, flaws: list[Formula]) -> Position:
    """The same position in other cuts of the same mesh."""
    if position.cuts == cuts:
        return position
    sizes = [b // a for a, b in pairwise(cuts)][::-1]
    digits = regroup(sheet, position.all(), sizes, stem, flaws)
    return Position(cuts, tuple(term for term, _ in reversed(digits)))


def differs(one: Position, other: Position) -> Formula:
    """Whether two positions in the same cuts are different."""
    return either(negation(eq(a, b)) for a, b in zip(one.digits, other.digits, strict=True))


# -- the same device in another mesh -------------------------------------------------------------------


def translate(sheet: Sheet, position: Position, mesh: Mesh, other: Mesh, stem: str, flaws: list[Formula]) -> Position:
    """The position in `other` of the device at a position of `mesh`.

    Raises UnsupportedError unless both hold the same devices, in orders that are permutations of digits.
    """
    pieces = _pieces(mesh, other)
    if pieces is None:
        raise UnsupportedError("device orders that differ by more than a permutation of digits")
    if not pieces:
        return position
    cuts = [1]
    for _, size, _ in pieces:
        cuts.append(cuts[-1] * size)
    here = refit(sheet, position, tuple(cuts), stem, flaws)
    there = sorted((stride, size, here.digits[n]) for n, (_, size, stride) in enumerate(pieces) if size > 1)
    return Position((*(stride for stride, _, _ in there), other.size), tuple(term for _, _, term in there))


@lru_cache(maxsize=256)
def _pieces(mesh: Mesh, other: Mesh) -> tuple[tuple[int, int, int], ...] | None:
    """(stride here, size, stride there), minor to major; empty where the orders agree, None where no digits do."""
    if mesh.size != other.size:
        return None
    if mesh.has_default_ids and other.has_default_ids:
        return ()
    where = positions_by_id(mesh, other)
    if (where < 0).any() or where[0] != 0:
        return None
    count = mesh.size
    if np.array_equal(where, np.arange(count)):
        return ()
    pieces: list[tuple[int, int, int]] = []
    stride = 1
    rebuilt = np.zeros(1, dtype=np.int64)
    while stride < count:
        step = int(where[stride])
        along = where[::stride]
        size = _run_length(along, step)
        while size > 1 and (count // stride) % size:
            size -= 1
        if size == 1:
            return None
        pieces.append((stride, size, step))
        rebuilt = (np.arange(size)[:, None] * step + rebuilt).ravel()
        stride *= size
    return tuple(pieces) if np.array_equal(rebuilt, where) else None


def _run_length(values: NDArray[np.int64], step: int) -> int:
    off = np.flatnonzero(values != np.arange(len(values)) * step)
    return int(off[0]) if len(off) else len(values)


def positions_by_id(mesh: Mesh, other: Mesh) -> NDArray[np.int64]:
    """Per position of `mesh`, the position in `other` of the same device; -1 where it has none."""
    ids, wanted = other.id_array(), mesh.id_array()
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    found = order[at]
    return np.where(ids[found] == wanted, found, -1)
