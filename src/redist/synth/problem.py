"""A redistribution in prime digits of the device positions, and routes through it.

On digits, a layout is a tuple of digit lists, one per dimension, major to minor. A route is in normal
form: slices, then moves (all-to-alls and permutes), then gathers (arXiv 2112.01075 section 4.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

__all__ = [
    "AllToAllMove",
    "Lists",
    "Middle",
    "PermuteMove",
    "Problem",
    "Route",
    "TimedRoute",
    "appended",
    "apply",
    "cost",
    "grouped_moves",
    "shared_prefix",
]

Lists = tuple[tuple[int, ...], ...]
"""Per dimension, digit numbers major to minor."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`sizes[d]` is the (prime) size of digit d, `shape` the global shape. `held` digits are partial on
    both sides: no dimension may use them."""

    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    source: Lists
    target: Lists
    held: frozenset[int] = frozenset()

    def count(self, digits: Iterable[int]) -> int:
        """Product of the sizes of digits."""
        total = 1
        for d in digits:
            total *= self.sizes[d]
        return total

    def unused(self, lists: Lists) -> tuple[int, ...]:
        """Digits that replicate, in order."""
        used = self.held.union(*lists)
        return tuple(d for d in range(len(self.sizes)) if d not in used)

    def block(self, lists: Lists) -> int:
        """Elements of a block, for even blocks."""
        return math.prod(self.shape) // math.prod(map(self.count, lists))

    def divides(self, i: int, count: int) -> bool:
        """Whether dimension i can be cut into `count` equal blocks."""
        return self.shape[i] % count == 0


@dataclass(frozen=True, slots=True)
class AllToAllMove:
    """(digits, from dimension, to dimension): appended to each dimension in this order."""

    moves: tuple[tuple[tuple[int, ...], int, int], ...]


@dataclass(frozen=True, slots=True)
class PermuteMove:
    """Whole blocks move so that these lists hold; block counts stay as they are."""

    lists: Lists


Middle = AllToAllMove | PermuteMove


@dataclass(frozen=True, slots=True)
class Route:
    """Slices per dimension, moves, and gathers per dimension (suffixes that leave)."""

    slices: Lists
    middle: tuple[Middle, ...]
    gathers: Lists

    @property
    def stages(self) -> tuple[Lists, ...]:
        """The gathers as one stage, if there are any."""
        return (self.gathers,) if any(self.gathers) else ()


@dataclass(frozen=True, slots=True)
class TimedRoute:
    """A route whose gathers are done in stages: suffixes per dimension, one all-gather after another."""

    slices: Lists
    middle: tuple[Middle, ...]
    stages: tuple[Lists, ...]


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many digits two lists have in common from the major end."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def appended(lists: Lists, added: Lists) -> Lists:
    """Every dimension with its added digits at the minor end."""
    return tuple((*a, *b) for a, b in zip(lists, added, strict=True))


def apply(move: Middle, lists: Lists) -> Lists:
    """The lists after a move."""
    match move:
        case PermuteMove(after):
            return after
        case AllToAllMove(moves):
            made = [list(digits) for digits in lists]
            for digits, i, _ in moves:
                made[i] = [d for d in made[i] if d not in digits]
            for digits, _, j in moves:
                made[j].extend(digits)
            return tuple(map(tuple, made))


def cost(problem: Problem, route: Route) -> tuple[int, int]:
    """(elements received by the busiest device, communication steps), for even blocks.

    With a block of B elements: an all-to-all in a group of k receives B(k-1)/k, a permute B, a gather
    the difference to the block it makes.
    """
    sliced = appended(problem.source, route.slices)
    block = problem.block(sliced)
    received, steps = 0, 0
    for move in route.middle:
        steps += 1
        match move:
            case PermuteMove():
                received += block
            case AllToAllMove(moves):
                group = math.prod(problem.count(digits) for digits, _, _ in moves)
                received += block - block // group
    gathered = math.prod(problem.count(digits) for digits in route.gathers)
    return received + block * (gathered - 1), steps + (gathered > 1)


def grouped_moves(
    arrivals: Sequence[Sequence[int]], origin: dict[int, int]
) -> tuple[tuple[tuple[int, ...], int, int], ...]:
    """Moves that append `arrivals[j]` to dimension j in this order, each digit coming from `origin`."""
    moves: list[tuple[tuple[int, ...], int, int]] = []
    for j, digits in enumerate(arrivals):
        for d in digits:
            if moves and moves[-1][1:] == (origin[d], j):
                moves[-1] = ((*moves[-1][0], d), origin[d], j)
            else:
                moves.append(((d,), origin[d], j))
    return tuple(moves)
