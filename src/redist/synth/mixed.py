"""Routes of a permute and an all-to-all, in either order: T + B(1 - 1/k) elements in a group of k."""

from __future__ import annotations

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
from redist.types.digits import prime_factors

__all__ = ["permute_and_all_to_all"]

_WEAK_STATES = 4000


def permute_and_all_to_all(problem: Problem, slicing: bool = True) -> Route | None:
    """The cheapest route of a permute and an all-to-all, in either order, over the block counts that a
    bounded enumeration reaches."""
    best: Route | None = None
    best_cost = (math.inf, math.inf)
    for counts_before, counts_after in _weak_pairs(problem, slicing):
        for build in (_permute_first, _permute_last):
            route = build(problem, counts_before, counts_after)
            if route is not None:
                found = cost(problem, route)
                if found < best_cost:
                    best, best_cost = route, found
    return best


def _weak_pairs(problem: Problem, slicing: bool) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(counts after slicing, counts before gathering) with one product, where no dimension both loses and
    gains; small blocks first, then small groups."""
    sliced = _extensions(problem, problem.source) if slicing else [tuple(map(problem.count, problem.source))]
    gathered: dict[int, list[tuple[int, ...]]] = {}
    for counts in _extensions(problem, problem.target):
        gathered.setdefault(math.prod(counts), []).append(counts)
    pairs = [
        (before, after)
        for before in sliced
        for after in gathered.get(math.prod(before), ())
        if before != after and all(a % b == 0 or b % a == 0 for a, b in zip(before, after, strict=True))
    ]
    pairs.sort(key=lambda pair: (-math.prod(pair[0]), math.prod(max(1, a // b) for a, b in zip(*pair, strict=True))))
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


def _permute_first(problem: Problem, before: Sequence[int], after: Sequence[int]) -> Route | None:
    """Permute to where one all-to-all ends at the target: gaining dimensions keep the head of what they
    will hold, losing ones carry the tails of the others at their minor end."""
    slices, gathers = (_extended(problem, problem.source, before), _extended(problem, problem.target, after))
    if slices is None or gathers is None:
        return None
    final = appended(problem.target, gathers)
    arrivals: list[tuple[int, ...]] = []
    heads: list[tuple[int, ...]] = []
    for digits, count in zip(final, (min(a, b) for a, b in zip(before, after, strict=True)), strict=True):
        cut = _split_at(problem, digits, count)
        if cut is None:
            return None
        heads.append(digits[:cut])
        arrivals.append(digits[cut:])
    carried = _distribute(problem, [d for digits in arrivals for d in digits], before, after)
    if carried is None:
        return None
    origin = {d: i for i, digits in enumerate(carried) for d in digits}
    lists = appended(tuple(heads), carried)
    move = AllToAllMove(grouped_moves(arrivals, origin))
    return Route(slices, (PermuteMove(lists), move), gathers)


def _permute_last(problem: Problem, before: Sequence[int], after: Sequence[int]) -> Route | None:
    """All-to-all to the block counts of the target, then permute."""
    slices, gathers = (_extended(problem, problem.source, before), _extended(problem, problem.target, after))
    if slices is None or gathers is None:
        return None
    lists = appended(problem.source, slices)
    leaving: list[tuple[int, ...]] = []
    for digits, count in zip(lists, (min(a, b) for a, b in zip(before, after, strict=True)), strict=True):
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
    moves: tuple[Middle, ...] = (move,) if apply(move, lists) == final else (move, PermuteMove(final))
    return Route(slices, moves, gathers)


def _distribute(problem: Problem, digits: list[int], large: Sequence[int], small: Sequence[int]) -> Lists | None:
    """Share digits among dimensions so that dimension i gets a product of large[i] / small[i]."""
    pool = list(digits)
    shares: list[tuple[int, ...]] = []
    for a, b in zip(large, small, strict=True):
        taken = _take(problem, pool, max(1, a // b))
        if taken is None:
            return None
        shares.append(taken)
    return tuple(shares) if not pool else None
