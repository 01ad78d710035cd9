"""Routes with two moves, for problems that no single move solves.

With a block of B elements while data moves, two all-to-alls in groups of k and l receive
T + B(1 - 1/k - 1/l) in all, a permute and an all-to-all T + B(1 - 1/k).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from redist.synth.problem import (
    AllToAllMove,
    Lists,
    Middle,
    PermuteMove,
    Problem,
    Route,
    appended,
    apply,
    cost,
    grouped_moves,
)
from redist.synth.single import one_all_to_all
from redist.types.digits import prime_factors

__all__ = ["permute_and_all_to_all", "two_all_to_alls"]

_WEAK_STATES = 4000
_SUCCESSORS = 3000


def two_all_to_alls(problem: Problem) -> Route | None:
    """The cheapest route with two all-to-alls that a bounded enumeration finds."""
    best: Route | None = None
    best_cost = (math.inf, math.inf)
    budget = _SUCCESSORS
    target = math.prod(problem.shape) // math.prod(map(problem.count, problem.target))
    for added in _slicings(problem):
        lists = appended(problem.source, added)
        block = math.prod(problem.shape) // math.prod(map(problem.count, lists))
        for move in _all_to_alls(problem, lists):
            budget -= 1
            if budget < 0:
                return best
            group = math.prod(problem.count(digits) for digits, _, _ in move.moves)
            if target + block * (1 - 1 / group - 1 / 2) > best_cost[0]:
                continue
            rest = Problem(
                problem.sizes,
                problem.shape,
                apply(move, lists),
                problem.target,
                problem.held,
            )
            tail = one_all_to_all(rest, slicing=False)
            if tail is None:
                continue
            route = Route(added, (move, *tail.middle), tail.gathers)
            found = cost(problem, route)
            if found < best_cost:
                best, best_cost = route, found
    return best


def _slicings(problem: Problem) -> Iterator[Lists]:
    """Ways to slice replicated digits, many digits first (the smaller the block, the cheaper two moves)."""
    free = problem.unused(problem.source)
    rank = len(problem.shape)
    choices = sorted(
        itertools.islice(itertools.product(range(-1, rank), repeat=len(free)), 1024),
        key=lambda c: c.count(-1),
    )
    for choice in choices:
        added = tuple(
            tuple(d for d, i in zip(free, choice, strict=True) if i == dim)
            for dim in range(rank)
        )
        if all(
            not digits
            or problem.divides(
                i, problem.count(problem.source[i]) * problem.count(digits)
            )
            for i, digits in enumerate(added)
        ):
            yield added


def _all_to_alls(problem: Problem, lists: Lists) -> Iterator[AllToAllMove]:
    """All-to-alls from these lists: suffixes of some dimensions, in any order, to any of the others.
    Small groups first."""
    rank = len(lists)
    cuts = sorted(
        (
            lengths
            for lengths in itertools.product(
                *(range(len(digits) + 1) for digits in lists)
            )
            if any(lengths)
        ),
        key=sum,
    )
    for lengths in cuts:
        takers = [j for j in range(rank) if lengths[j] == 0]
        moved = [
            (d, i) for i in range(rank) for d in lists[i][len(lists[i]) - lengths[i] :]
        ]
        origin = dict(moved)
        if not takers or len(moved) > 4:
            continue
        for order in itertools.permutations([d for d, _ in moved]):
            for places in itertools.product(takers, repeat=len(order)):
                if list(places) != sorted(places):
                    continue  # the same move comes again with its places sorted
                arrivals = [
                    tuple(d for d, j in zip(order, places, strict=True) if j == dim)
                    for dim in range(rank)
                ]
                if all(
                    not digits
                    or problem.divides(
                        j, problem.count(lists[j]) * problem.count(digits)
                    )
                    for j, digits in enumerate(arrivals)
                ):
                    yield AllToAllMove(grouped_moves(arrivals, origin))


def permute_and_all_to_all(problem: Problem) -> Route | None:
    """The cheapest route of a permute and an all-to-all, in either order, over the block counts that a
    bounded enumeration reaches."""
    best: Route | None = None
    best_cost = (math.inf, math.inf)
    for counts_before, counts_after in _weak_pairs(problem):
        for build in (_permute_first, _permute_last):
            route = build(problem, counts_before, counts_after)
            if route is not None:
                found = cost(problem, route)
                if found < best_cost:
                    best, best_cost = route, found
    return best


def _weak_pairs(problem: Problem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(counts after slicing, counts before gathering) with one product, where no dimension both loses and
    gains; small blocks first, then small groups."""
    sliced = _extensions(problem, problem.source)
    gathered: dict[int, list[tuple[int, ...]]] = {}
    for counts in _extensions(problem, problem.target):
        gathered.setdefault(math.prod(counts), []).append(counts)
    pairs = [
        (before, after)
        for before in sliced
        for after in gathered.get(math.prod(before), ())
        if before != after
        and all(a % b == 0 or b % a == 0 for a, b in zip(before, after, strict=True))
    ]
    pairs.sort(
        key=lambda pair: (
            -math.prod(pair[0]),
            math.prod(max(1, a // b) for a, b in zip(*pair, strict=True)),
        )
    )
    return iter(pairs[:64])


def _extensions(problem: Problem, lists: Lists) -> list[tuple[int, ...]]:
    """Block counts reachable by slicing unused digits (first those that cut most)."""
    start = tuple(map(problem.count, lists))
    reached = {start}
    for d in problem.unused(lists):
        grown = {
            (*counts[:i], counts[i] * problem.sizes[d], *counts[i + 1 :])
            for counts in reached
            for i in range(len(counts))
            if problem.divides(i, counts[i] * problem.sizes[d])
        }
        if len(reached) + len(grown) > _WEAK_STATES:
            break
        reached |= grown
    return list(reached)


def _take(problem: Problem, pool: list[int], factor: int) -> tuple[int, ...] | None:
    """Digits from the pool (removed there) whose product is `factor`."""
    taken: list[int] = []
    for prime in prime_factors(factor):
        found = next((d for d in pool if problem.sizes[d] == prime), None)
        if found is None:
            return None
        pool.remove(found)
        taken.append(found)
    return tuple(taken)


def _extended(problem: Problem, lists: Lists, counts: Sequence[int]) -> Lists | None:
    pool = list(problem.unused(lists))
    added: list[tuple[int, ...]] = []
    for digits, count in zip(lists, counts, strict=True):
        taken = _take(problem, pool, count // problem.count(digits))
        if taken is None:
            return None
        added.append(taken)
    return tuple(added)


def _split_at(problem: Problem, digits: tuple[int, ...], count: int) -> int | None:
    """Length of the prefix with this product, None where no prefix has it."""
    product = 1
    for n in range(len(digits) + 1):
        if product == count:
            return n
        if n < len(digits):
            product *= problem.sizes[digits[n]]
    return None


def _permute_first(
    problem: Problem, before: Sequence[int], after: Sequence[int]
) -> Route | None:
    """Permute to where one all-to-all ends at the target: gaining dimensions keep the head of what they
    will hold, losing ones carry the tails of the others at their minor end."""
    slices, gathers = (
        _extended(problem, problem.source, before),
        _extended(problem, problem.target, after),
    )
    if slices is None or gathers is None:
        return None
    final = appended(problem.target, gathers)
    arrivals: list[tuple[int, ...]] = []
    heads: list[tuple[int, ...]] = []
    for digits, count in zip(
        final, (min(a, b) for a, b in zip(before, after, strict=True)), strict=True
    ):
        cut = _split_at(problem, digits, count)
        if cut is None:
            return None
        heads.append(digits[:cut])
        arrivals.append(digits[cut:])
    carried = _distribute(
        problem, [d for digits in arrivals for d in digits], before, after
    )
    if carried is None:
        return None
    origin = {d: i for i, digits in enumerate(carried) for d in digits}
    lists = appended(tuple(heads), carried)
    move = AllToAllMove(grouped_moves(arrivals, origin))
    return Route(slices, (PermuteMove(lists), move), gathers)


def _permute_last(
    problem: Problem, before: Sequence[int], after: Sequence[int]
) -> Route | None:
    """All-to-all to the block counts of the target, then permute."""
    slices, gathers = (
        _extended(problem, problem.source, before),
        _extended(problem, problem.target, after),
    )
    if slices is None or gathers is None:
        return None
    lists = appended(problem.source, slices)
    leaving: list[tuple[int, ...]] = []
    for digits, count in zip(
        lists, (min(a, b) for a, b in zip(before, after, strict=True)), strict=True
    ):
        cut = _split_at(problem, digits, count)
        if cut is None:
            return None
        leaving.append(digits[cut:])
    pool = [d for digits in leaving for d in digits]
    arrivals = _distribute(problem, pool, after, before)
    if arrivals is None:
        return None
    origin = {d: i for i, digits in enumerate(leaving) for d in digits}
    move = AllToAllMove(grouped_moves(arrivals, origin))
    final = appended(problem.target, gathers)
    moves: tuple[Middle, ...] = (
        (move,) if apply(move, lists) == final else (move, PermuteMove(final))
    )
    return Route(slices, moves, gathers)


def _distribute(
    problem: Problem, digits: list[int], large: Sequence[int], small: Sequence[int]
) -> Lists | None:
    """Share digits among dimensions so that dimension i gets a product of large[i] / small[i]."""
    pool = list(digits)
    shares: list[tuple[int, ...]] = []
    for a, b in zip(large, small, strict=True):
        taken = _take(problem, pool, max(1, a // b))
        if taken is None:
            return None
        shares.append(taken)
    return tuple(shares) if not pool else None
