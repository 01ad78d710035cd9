"""What the moves of a route on digits cost in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from redist.collectives.copies import FREE, Copies, place_seconds, repacking_seconds, slice_seconds
from redist.collectives.topology import Group, Link, Rate, exchange_rate, gather_rate, move_rate
from redist.synth.problem import AllToAllMove, Lists, PermuteMove, Problem, TimedRoute, appended, apply
from redist.synth.realise import moved_digits

__all__ = ["Prices", "route_seconds"]


@dataclass(frozen=True, slots=True)
class Prices:
    """The size and mesh axis of every digit, the link along it, and the bytes of an element."""

    sizes: tuple[int, ...]
    axes: tuple[str, ...]
    links: tuple[Link, ...]
    itemsize: int
    copies: Copies = FREE
    _rates: dict[tuple[Callable[[Group], Rate], frozenset[int]], Rate] = field(
        default_factory=dict[tuple[Callable[[Group], Rate], frozenset[int]], Rate],
        init=False,
        compare=False,
        repr=False,
    )

    def exchange(self, digits: Iterable[int], block: int) -> float:
        """Seconds of an all-to-all over these digits of blocks of so many elements, less its copies."""
        return self._linked(exchange_rate, digits, block)

    def repacking(self, problem: Problem, lists: Lists, move: AllToAllMove) -> float:
        """Seconds of cutting blocks into what each receiver gets, and of joining what comes."""
        if self.copies.free:
            return 0.0
        gained, lost = [1] * len(lists), [1] * len(lists)
        for digits, i, j in move.moves:
            lost[i] *= problem.count(digits)
            gained[j] *= problem.count(digits)
        return repacking_seconds(self.copies, _lengths(problem, lists), gained, lost, self.itemsize)

    def permute(self, problem: Problem, lists: Lists, move: PermuteMove, block: int) -> float:
        """Seconds of a permute of blocks of so many elements."""
        digits = moved_digits(problem, lists, move.lists)
        return self._linked(move_rate, digits, block) if digits else 0.0

    def gather(self, problem: Problem, lists: Lists, stage: Lists, gathered: int) -> float:
        """Seconds of an all-gather of these digits that makes blocks of so many elements."""
        moved = self._linked(gather_rate, (d for part in stage for d in part), gathered)
        if self.copies.free:
            return moved
        return moved + place_seconds(
            self.copies, _lengths(problem, lists), list(map(problem.count, stage)), self.itemsize
        )

    def slicing(self, problem: Problem, added: Lists) -> float:
        """Seconds of keeping a part of the source's blocks."""
        if self.copies.free:
            return 0.0
        lengths = _lengths(problem, problem.source)
        return slice_seconds(self.copies, lengths, list(map(problem.count, added)), self.itemsize)

    def _linked(self, rate_of: Callable[[Group], Rate], digits: Iterable[int], block: int) -> float:
        key = rate_of, frozenset(digits)
        if key not in self._rates:
            self._rates[key] = rate_of(self._group(key[1]))
        latency, per_byte = self._rates[key]
        return latency + per_byte * (block * self.itemsize)

    def _group(self, digits: Iterable[int]) -> Group:
        """What a group over these digits spans along each axis."""
        counts: dict[str, tuple[Link, int]] = {}
        for d in sorted(digits):
            link, count = counts.get(self.axes[d], (self.links[d], 1))
            counts[self.axes[d]] = (link, count * self.sizes[d])
        return tuple(counts.values())


def _lengths(problem: Problem, lists: Lists) -> list[int]:
    """Elements of a block along each dimension."""
    return [size // problem.count(digits) for size, digits in zip(problem.shape, lists, strict=True)]


def route_seconds(problem: Problem, prices: Prices, route: TimedRoute) -> tuple[float, int]:
    """(projected seconds, communication steps) of a route."""
    lists = appended(problem.source, route.slices)
    block = problem.block(lists)
    seconds = prices.slicing(problem, route.slices)
    for move in route.middle:
        match move:
            case AllToAllMove(moves):
                seconds += prices.exchange((d for digits, _, _ in moves for d in digits), block)
                seconds += prices.repacking(problem, lists, move)
            case PermuteMove():
                seconds += prices.permute(problem, lists, move, block)
        lists = apply(move, lists)
    for stage in route.stages:
        block *= math.prod(map(problem.count, stage))
        seconds += prices.gather(problem, lists, stage, block)
        lists = tuple(part[: len(part) - len(gone)] for part, gone in zip(lists, stage, strict=True))
    return seconds, len(route.middle) + len(route.stages)
