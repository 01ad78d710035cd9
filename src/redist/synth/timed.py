"""The fastest route under a topology: best-first search over digit lists, by projected seconds.

Nodes are lists in one of the three phases of the normal form (slices, moves, gathers).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from redist.synth.prices import Prices, route_seconds
from redist.synth.problem import (
    AllToAllMove,
    Lists,
    Middle,
    PermuteMove,
    Problem,
    TimedRoute,
    appended,
    apply,
    grouped_moves,
)
from redist.synth.realise import crossing_share, swaps
from redist.synth.remaining import Remaining
from redist.synth.search import arrivals, departures, slicings
from redist.synth.single import one_permute

__all__ = ["Effort", "fastest_route"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many slicings a search starts from, and about how many moves and gathers it looks at."""

    slicings: int = 4096
    moves: int = 100_000


@dataclass(frozen=True, slots=True)
class _Node:
    lists: Lists
    slices: Lists
    middle: tuple[Middle, ...]
    stages: tuple[Lists, ...]


_Cost = tuple[float, int, float, int]
"""Seconds, communication steps, and what makes a route awkward where those are equal. First, how many of the devices
at one place along the slowest links have blocks permuted over these, as a share: they may share the link. Then, how
often devices swap blocks in a permute (over one connection, both ways at once, transports are slower than each way),
and a slice before something that cannot take it in (an all-to-all cuts its pieces from what is sliced in one copy)."""


def fastest_route(
    problem: Problem, prices: Prices, best: TimedRoute | None, to_beat: float = math.inf, effort: Effort = Effort()
) -> tuple[TimedRoute | None, float]:
    """(the fastest route, or `best` where none is faster; a lower bound in seconds on all routes on these digits).

    Without `best`, a route has to take less than `to_beat` seconds. The bound is proven as far as all slicings are
    tried; a search that ends early knows as much as it has seen."""
    search = _Search(problem, prices, Remaining.of(problem, prices))
    order = itertools.count()
    limit: _Cost = (*route_seconds(problem, prices, best), *search.awkward(best)) if best else (to_beat, 0, 0.0, 0)
    queue: list[tuple[_Cost, int, int, float, _Node]] = []
    untried = math.inf
    for n, added in enumerate(slicings(problem)):
        if n == effort.slicings:
            untried = search.least
            break
        lists = appended(problem.source, added)
        paid = prices.slicing(problem, added)
        ahead = (_rounded(paid + search.rest(lists)), 0, 0.0, 0)
        if _before(ahead, limit):
            queue.append((ahead, next(order), 0, paid, _Node(lists, added, (), ())))
    heapq.heapify(queue)
    cheapest: dict[tuple[Lists, bool], _Cost] = {}
    looked_at = 0
    while queue:
        ahead, _, phase, paid, node = heapq.heappop(queue)
        if not _before(ahead, limit):
            break
        _, steps, crossing, awkward = ahead
        if node.lists == problem.target:
            best, limit = TimedRoute(node.slices, node.middle, node.stages), (paid, steps, crossing, awkward)
            continue
        seen = cheapest.get((node.lists, phase == 2))
        if phase and seen is not None and seen < (_rounded(paid), steps, crossing, awkward):
            continue
        sliced = phase == 0 and any(node.slices)
        room = limit[0] * (1 + 1e-9) - paid
        for lists, part, seconds, kind in search.successors(node.lists, phase, room):
            if looked_at >= effort.moves:
                return best, min(ahead[0], untried)
            looked_at += 1
            spent = paid + seconds
            share, swap = search.permuted(node.lists, part)
            after = steps + 1, crossing + share, awkward + int(sliced and not isinstance(part, AllToAllMove)) + swap
            cost = (_rounded(spent), *after)
            key = (lists, kind == 2)
            if seconds > room or (key in cheapest and cheapest[key] <= cost):
                continue
            total = (_rounded(spent + search.rest(lists)), *after)
            if _before(total, limit):
                cheapest[key] = cost
                heapq.heappush(queue, (total, next(order), kind, spent, _extended(node, lists, part)))
    return best, min(limit[0], untried)


def _extended(node: _Node, lists: Lists, part: Middle | Lists) -> _Node:
    match part:
        case AllToAllMove() | PermuteMove():
            return _Node(lists, node.slices, (*node.middle, part), ())
        case _:
            return _Node(lists, node.slices, node.middle, (*node.stages, part))


def _rounded(seconds: float) -> float:
    """Without the last digits, in which sums of the same terms differ."""
    return float(f"{seconds:.11e}")


def _before(a: _Cost, b: _Cost) -> bool:
    """Whether a is cheaper: in seconds beyond rounding, else in what follows."""
    if abs(a[0] - b[0]) > 1e-9 * max(abs(a[0]), abs(b[0])) or math.isinf(b[0]):
        return a[0] < b[0]
    return a[1:] < b[1:]


class _Search:
    """What follows from given lists, and what is left to do from there."""

    def __init__(self, problem: Problem, prices: Prices, remaining: Remaining) -> None:
        self._problem, self._prices, self._remaining = problem, prices, remaining
        self._largest = max(problem.block(problem.source), problem.block(problem.target))
        self._rest: dict[Lists, float] = {}

    @property
    def least(self) -> float:
        """Seconds that any route takes at least, however it slices: it may need no more than one step."""
        return self._remaining.latency

    def permuted(self, lists: Lists, part: Middle | Lists) -> tuple[float, int]:
        """(share of crossing devices, swaps) of a step from these lists, if it is a permute and some links are slow."""
        problem, slow = self._problem, self._remaining.slow
        if not slow or not isinstance(part, PermuteMove):
            return 0.0, 0
        return crossing_share(problem, lists, part.lists, slow), int(swaps(problem, lists, part.lists))

    def awkward(self, route: TimedRoute) -> tuple[float, int]:
        """What makes a route awkward, as in `_Cost`."""
        first = route.middle[0] if route.middle else None
        crossing, count = 0.0, int(any(route.slices) and not isinstance(first, AllToAllMove))
        lists = appended(self._problem.source, route.slices)
        for move in route.middle:
            share, swap = self.permuted(lists, move)
            crossing, count = crossing + share, count + swap
            lists = apply(move, lists)
        return crossing, count

    def rest(self, lists: Lists) -> float:
        """Seconds that moves and gathers from these lists take at least."""
        if lists not in self._rest:
            self._rest[lists] = self._remaining.seconds(lists)
        return self._rest[lists]

    def successors(self, lists: Lists, phase: int, room: float) -> Iterator[tuple[Lists, Middle | Lists, float, int]]:
        """(lists after, move or gathered suffixes, seconds, phase) of every move and gather after which a route
        may still end within `room` seconds."""
        block = self._problem.block(lists)
        if phase < 2:
            least = room - self._remaining.after_a_move(block)
            for move, seconds in self._all_to_alls(lists, block, least):
                yield apply(move, lists), move, seconds, 1
            at_least = self._remaining.of_a_permute(block)
            for move in _permutes(self._problem, lists):
                if at_least + self.rest(move.lists) > room:
                    continue
                yield move.lists, move, self._prices.permute(self._problem, lists, move, block), 1
        yield from self._gathers(lists, block)

    def _all_to_alls(self, lists: Lists, block: int, room: float) -> Iterator[tuple[AllToAllMove, float]]:
        """Digits arrive in every order, which costs nothing."""
        for origin in departures(lists):
            exchanged = self._prices.exchange(origin, block)
            if exchanged > room:
                continue
            for given in arrivals(self._problem, lists, origin):
                seconds = None
                for arrived in itertools.product(*map(itertools.permutations, given)):
                    move = AllToAllMove(grouped_moves(arrived, origin))
                    if seconds is None:
                        seconds = exchanged + self._prices.repacking(self._problem, lists, move)
                    yield move, seconds

    def _gathers(self, lists: Lists, block: int) -> Iterator[tuple[Lists, Lists, float, int]]:
        surplus = (_surplus(a, b) for a, b in zip(lists, self._problem.target, strict=True))
        for lengths in itertools.product(*(range(n + 1) for n in surplus)):
            stage = tuple(digits[len(digits) - n :] for digits, n in zip(lists, lengths, strict=True))
            made = block * math.prod(map(self._problem.count, stage))
            if any(lengths) and made <= self._largest:
                kept = tuple(part[: len(part) - n] for part, n in zip(lists, lengths, strict=True))
                yield kept, stage, self._prices.gather(self._problem, lists, stage, made), 2


def _surplus(digits: tuple[int, ...], wanted: tuple[int, ...]) -> int:
    """How many minor digits may be gathered: those beyond the target's, if it is a prefix."""
    return len(digits) - len(wanted) if digits[: len(wanted)] == wanted else 0


def _permutes(problem: Problem, lists: Lists) -> Iterator[PermuteMove]:
    """Permutes to where gathers, or one all-to-all and gathers, reach the target."""
    rest = replace(problem, source=lists)
    straight = one_permute(rest, slicing=False)
    if straight is not None and isinstance(move := straight.middle[0], PermuteMove) and move.lists != lists:
        yield move
    counts = tuple(map(problem.count, lists))
    for arranged in _arrangements(problem.sizes, problem.held, counts):
        if arranged != lists:
            yield PermuteMove(arranged)


@lru_cache(maxsize=4096)
def _arrangements(sizes: tuple[int, ...], held: frozenset[int], counts: tuple[int, ...]) -> tuple[Lists, ...]:
    """All lists with these block counts, where digits are few."""
    usable = [d for d in range(len(sizes)) if d not in held]
    if len(usable) > 4:
        return ()

    def place(i: int, left: tuple[int, ...]) -> Iterator[Lists]:
        if i == len(counts):
            yield ()
            return
        for length in range(len(left) + 1):
            for digits in itertools.permutations(left, length):
                if math.prod(sizes[d] for d in digits) == counts[i]:
                    for rest in place(i + 1, tuple(d for d in left if d not in digits)):
                        yield (digits, *rest)

    return tuple(place(0, tuple(usable)))
