"""The fastest route under a topology: best-first search over digit lists, by projected seconds.

Nodes are lists in one of the three phases of the normal form (slices, moves, gathers). What remains is
bounded below by what must still be received, over the fastest link, of it what no device at the same
place on the slowest axis holds over the slowest.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from redist.collectives.copies import FREE, Copies, place_seconds, repacking_seconds, slice_seconds
from redist.collectives.topology import Group, Link, exchange_seconds, gather_seconds, move_seconds
from redist.synth.problem import AllToAllMove, Lists, Middle, PermuteMove, Problem, TimedRoute, appended, apply
from redist.synth.realise import digit_bijection
from redist.synth.search import all_to_alls, slicings, still_to_move
from redist.synth.single import one_permute

__all__ = ["Prices", "fastest_route", "route_seconds"]

_SLICINGS = 4096


@dataclass(frozen=True, slots=True)
class Prices:
    """The mesh axis of every digit, the link along it, and the bytes of an element."""

    axes: tuple[str, ...]
    links: tuple[Link, ...]
    itemsize: int
    copies: Copies = FREE

    def group(self, problem: Problem, digits: Sequence[int]) -> Group:
        """What a group over these digits spans along each axis."""
        counts: dict[str, tuple[Link, int]] = {}
        for d in digits:
            link, count = counts.get(self.axes[d], (self.links[d], 1))
            counts[self.axes[d]] = (link, count * problem.sizes[d])
        return tuple(counts.values())

    def move(self, problem: Problem, lists: Lists, move: Middle, block: int) -> float:
        """Seconds of an all-to-all or permute of blocks of so many elements."""
        match move:
            case AllToAllMove(moves):
                digits = [d for part, _, _ in moves for d in part]
                return exchange_seconds(self.group(problem, digits), block * self.itemsize) + self._repacking(
                    problem, lists, move
                )
            case PermuteMove(after):
                changed = digit_bijection(problem, lists, after)
                digits = [d for a, b in changed if a != b for d in a]
                return move_seconds(self.group(problem, digits), block * self.itemsize) if digits else 0.0

    def gather(self, problem: Problem, lists: Lists, stage: Lists, gathered: int) -> float:
        """Seconds of an all-gather of these digits that makes blocks of so many elements."""
        digits = [d for part in stage for d in part]
        moved = gather_seconds(self.group(problem, digits), gathered * self.itemsize)
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

    def _repacking(self, problem: Problem, lists: Lists, move: AllToAllMove) -> float:
        """Seconds of cutting blocks into what each receiver gets, and of joining what comes."""
        if self.copies.free:
            return 0.0
        gained, lost = [1] * len(lists), [1] * len(lists)
        for digits, i, j in move.moves:
            lost[i] *= problem.count(digits)
            gained[j] *= problem.count(digits)
        return repacking_seconds(self.copies, _lengths(problem, lists), gained, lost, self.itemsize)


def _lengths(problem: Problem, lists: Lists) -> list[int]:
    """Elements of a block along each dimension."""
    return [size // problem.count(digits) for size, digits in zip(problem.shape, lists, strict=True)]


def route_seconds(problem: Problem, prices: Prices, route: TimedRoute) -> tuple[float, int]:
    """(projected seconds, communication steps) of a route."""
    lists = appended(problem.source, route.slices)
    block = problem.block(lists)
    seconds = prices.slicing(problem, route.slices)
    for move in route.middle:
        seconds += prices.move(problem, lists, move, block)
        lists = apply(move, lists)
    for stage in route.stages:
        block *= math.prod(map(problem.count, stage))
        seconds += prices.gather(problem, lists, stage, block)
        lists = tuple(part[: len(part) - len(gone)] for part, gone in zip(lists, stage, strict=True))
    return seconds, len(route.middle) + len(route.stages)


@dataclass(frozen=True, slots=True)
class _Node:
    lists: Lists
    slices: Lists
    middle: tuple[Middle, ...]
    stages: tuple[Lists, ...]


_Cost = tuple[float, int, int]
"""Seconds, communication steps, and how often a slice comes before something that cannot take it in: where all
else is equal, an all-to-all that follows a slice cuts its pieces from what is sliced in one copy."""


def fastest_route(
    problem: Problem, prices: Prices, best: TimedRoute | None, most_moves: int = 100_000
) -> tuple[TimedRoute | None, float]:
    """(the fastest route, or `best` where none is faster; a proven lower bound in seconds). The search ends when
    it has looked at about `most_moves` moves and gathers."""
    bound = _Bound.of(problem, prices)
    target_block = problem.block(problem.target)
    largest = max(problem.block(problem.source), target_block)
    order = itertools.count()
    limit: _Cost = (*route_seconds(problem, prices, best), _awkward(best)) if best else (math.inf, 0, 0)
    queue: list[tuple[_Cost, int, int, float, _Node]] = []
    for added in itertools.islice(slicings(problem), _SLICINGS):
        lists = appended(problem.source, added)
        paid = prices.slicing(problem, added)
        ahead = (_rounded(paid + bound.remaining(lists)), 0, 0)
        if _before(ahead, limit):
            queue.append((ahead, next(order), 0, paid, _Node(lists, added, (), ())))
    heapq.heapify(queue)
    cheapest: dict[tuple[Lists, bool], _Cost] = {}
    rest: dict[Lists, float] = {}
    looked_at = 0
    while queue:
        ahead, _, phase, paid, node = heapq.heappop(queue)
        if not _before(ahead, limit):
            break
        _, steps, awkward = ahead
        if node.lists == problem.target:
            best, limit = TimedRoute(node.slices, node.middle, node.stages), (paid, steps, awkward)
            continue
        seen = cheapest.get((node.lists, phase == 2))
        if phase and seen is not None and seen < (_rounded(paid), steps, awkward):
            continue
        if looked_at > most_moves:
            return best, ahead[0]
        sliced = phase == 0 and any(node.slices)
        for following, seconds, kind in _successors(problem, prices, node, phase, largest):
            looked_at += 1
            spent = paid + seconds
            worse = awkward + int(sliced and (kind == 2 or not isinstance(following.middle[0], AllToAllMove)))
            cost = (_rounded(spent), steps + 1, worse)
            key = (following.lists, kind == 2)
            if (key in cheapest and cheapest[key] <= cost) or spent > limit[0] * (1 + 1e-9):
                continue
            if following.lists not in rest:
                rest[following.lists] = bound.remaining(following.lists)
            total = (_rounded(spent + rest[following.lists]), steps + 1, worse)
            if _before(total, limit):
                cheapest[key] = cost
                heapq.heappush(queue, (total, next(order), kind, spent, following))
    return best, limit[0]


def _awkward(route: TimedRoute) -> int:
    first = route.middle[0] if route.middle else None
    return int(any(route.slices) and not isinstance(first, AllToAllMove))


def _rounded(seconds: float) -> float:
    """Without the last digits, in which sums of the same terms differ."""
    return float(f"{seconds:.11e}")


def _before(a: _Cost, b: _Cost) -> bool:
    """Whether a is cheaper: in seconds beyond rounding, else in what follows."""
    if abs(a[0] - b[0]) > 1e-9 * max(abs(a[0]), abs(b[0])) or math.isinf(b[0]):
        return a[0] < b[0]
    return a[1:] < b[1:]


def _successors(
    problem: Problem, prices: Prices, node: _Node, phase: int, largest: int
) -> Iterator[tuple[_Node, float, int]]:
    """(node after, seconds, phase) of every move and gather from a node."""
    lists, block = node.lists, problem.block(node.lists)
    if phase < 2:
        same, seconds = frozenset[tuple[int, int, int]](), 0.0
        for move in all_to_alls(problem, lists, orders=True):
            moved = frozenset((d, i, j) for digits, i, j in move.moves for d in digits)
            if moved != same:  # the order in which digits arrive, which comes next, costs nothing
                same, seconds = moved, prices.move(problem, lists, move, block)
            yield _Node(apply(move, lists), node.slices, (*node.middle, move), ()), seconds, 1
        for move in _permutes(problem, lists):
            seconds = prices.move(problem, lists, move, block)
            yield _Node(move.lists, node.slices, (*node.middle, move), ()), seconds, 1
    for lengths in itertools.product(*(range(_surplus(a, b) + 1) for a, b in zip(lists, problem.target, strict=True))):
        stage = tuple(digits[len(digits) - n :] if n else () for digits, n in zip(lists, lengths, strict=True))
        digits = [d for part in stage for d in part]
        if digits and (made := block * problem.count(digits)) <= largest:
            kept = tuple(part[: len(part) - n] for part, n in zip(lists, lengths, strict=True))
            gathered = _Node(kept, node.slices, node.middle, (*node.stages, stage))
            yield gathered, prices.gather(problem, lists, stage, made), 2


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


@dataclass(frozen=True, slots=True)
class _Bound:
    """Lower bound in seconds on what remains from given lists."""

    problem: Problem
    target_block: int
    slow: frozenset[int]
    beside: int
    slow_pace: float
    fast_pace: float
    exchange_pace: float
    latency: float
    shared: bool

    @staticmethod
    def of(problem: Problem, prices: Prices) -> _Bound:
        used = [d for d in range(len(prices.links)) if d not in problem.held]
        links = [prices.links[d] for d in used] or [Link()]
        slowest, fastest = min(link.bandwidth for link in links), max(link.bandwidth for link in links)
        slow = frozenset(d for d, link in enumerate(prices.links) if link.bandwidth == slowest < fastest)
        shared = all(link.kind == "memory" for link in links)
        item = prices.itemsize
        per_item = (
            exchange_seconds(((replace(prices.links[d], latency=0.0, peer_latency=0.0), problem.sizes[d]),), item)
            for d in used
        )
        # Of the two dimensions between which an all-to-all moves, one is not the first, and is packed or unpacked.
        copied = (
            item / prices.copies.bandwidth if problem.shape and problem.shape[0] > math.prod(problem.sizes) else 0.0
        )
        return _Bound(
            problem,
            problem.block(problem.target),
            slow,
            problem.count(d for d in range(len(prices.links)) if d not in slow),
            item / slowest,
            item / fastest,
            min(per_item, default=0.0) + copied,
            min(link.latency + link.peer_latency for link in links),
            shared,
        )

    def remaining(self, lists: Lists) -> float:
        """Seconds that moves and gathers still take at least."""
        problem = self.problem
        if lists == problem.target:
            return 0.0
        block = problem.block(lists)
        moves = still_to_move(problem, lists, block)
        gathered = max(0, self.target_block - block)
        slow = min(max(0, moves + gathered), self._from_outside(lists)) if self.slow else 0
        seconds = slow * self.slow_pace + max(0, moves + gathered - slow) * self.fast_pace
        if any(problem.count(a) % problem.count(b) for a, b in zip(lists, problem.target, strict=True)):
            # Neither a permute nor a gather changes which dimensions are cut: an all-to-all has to.
            seconds = max(seconds, block * self.exchange_pace + gathered * self.fast_pace)
        if gathered and self.shared:
            seconds += block * self.fast_pace
        return seconds + self.latency * max(1, (moves > 0) + (gathered > 0))

    def _from_outside(self, lists: Lists) -> int:
        """Elements that enter the devices at one place on the slow axes, per device: of what these devices
        need together, a slow digit that shards elsewhere in the target (or no more) leaves them 1/size."""
        ours, theirs = self._slow_places(lists), self._slow_places(self.problem.target)
        needed = math.prod(self.problem.shape) // self.problem.count(theirs)
        share = 1
        for d, (i, before) in ours.items():
            if d not in theirs or theirs[d][0] != i:
                share *= self.problem.sizes[d]
            elif theirs[d][1] != before and before % theirs[d][1] and theirs[d][1] % before:
                return 0  # digits of one dimension that do not nest may depend on each other
            elif theirs[d][1] != before:
                share *= self.problem.sizes[d]
        missing = needed - -(-needed // share)
        return missing // self.beside

    def _slow_places(self, lists: Lists) -> dict[int, tuple[int, int]]:
        """(dimension, blocks before it) of every slow digit that shards."""
        places: dict[int, tuple[int, int]] = {}
        for i, digits in enumerate(lists):
            before = 1
            for d in digits:
                if d in self.slow:
                    places[d] = (i, before)
                before *= self.problem.sizes[d]
        return places
