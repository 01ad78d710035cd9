"""Routes with at most one move. Each is the cheapest of its class.

Let T be the target block, and B the block while data moves. A route whose dimensions nest (one digit
list a prefix of the other, in every dimension) receives T - B without a move and T - B/k with one
all-to-all in a group of k; every route with a permute, two moves, or a slice after communication
receives at least T. So these classes, tried in this order, give the fewest bytes; see docs/design.md.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

from redist.synth.problem import AllToAllMove, Lists, PermuteMove, Problem, Route, appended, grouped_moves
from redist.types.digits import prime_factors

__all__ = ["choose_unused", "local_route", "nests", "one_all_to_all", "one_permute"]


def nests(source: Lists, target: Lists) -> bool:
    """Whether in every dimension one digit list is a prefix of the other."""
    return all(a[: len(b)] == b[: len(a)] for a, b in zip(source, target, strict=True))


def local_route(problem: Problem, slicing: bool = True) -> Route | None:
    """Slices, then gathers. Exists when dimensions nest and what they gain is replicated in the source."""
    if not nests(problem.source, problem.target):
        return None
    free = set(problem.unused(problem.source)) if slicing else set[int]()
    gained = tuple(b[len(a) :] for a, b in zip(problem.source, problem.target, strict=True))
    if any(d not in free for digits in gained for d in digits):
        return None
    lost = tuple(a[len(b) :] for a, b in zip(problem.source, problem.target, strict=True))
    return Route(gained, (), lost)


def one_all_to_all(problem: Problem, slicing: bool = True) -> Route | None:
    """Slices, one all-to-all, gathers, with the smallest (sliced digits) x (moved digits).

    What must move is forced: in a dimension that gains, everything from the first digit on that is not
    replicated in the source; in one that loses, the suffix from the first digit on that is needed
    elsewhere. Only where replicated digits are sliced meanwhile, and where digits that will be gathered
    are parked, is free, as far as sizes divide. Primes divide independently, so first fit decides.
    """
    if not nests(problem.source, problem.target):
        return None
    rank = len(problem.shape)
    free = set(problem.unused(problem.source)) if slicing else set[int]()
    gained = [b[len(a) :] for a, b in zip(problem.source, problem.target, strict=True)]
    lost = [a[len(b) :] for a, b in zip(problem.source, problem.target, strict=True)]
    local = [tuple(itertools.takewhile(free.__contains__, digits)) for digits in gained]
    arriving = [digits[len(here) :] for digits, here in zip(gained, local, strict=True)]
    needed = {d for digits in arriving for d in digits}
    if not needed:
        return None
    kept: list[tuple[int, ...]] = []
    leaving: list[tuple[int, ...]] = []
    for digits in lost:
        stays = tuple(itertools.takewhile(lambda d: d not in needed, digits))
        kept.append(stays)
        leaving.append(digits[len(stays) :])
    if not needed <= free.union(*leaving):
        return None
    sliced = [d for d in sorted(needed) if d in free]
    parked = [d for digits in leaving for d in digits if d not in needed]
    flexible = [i for i in range(rank) if not arriving[i] and not leaving[i]]
    before = [problem.count(problem.source[i]) * problem.count(local[i]) for i in range(rank)]
    after = [
        problem.count(problem.target[i]) * problem.count(kept[i]) if i not in flexible else before[i]
        for i in range(rank)
    ]
    for givers in _subsets(flexible):
        takers = [i for i in range(rank) if (arriving[i] or i in flexible) and i not in givers]
        held_by = _fit(problem, sliced, [i for i in range(rank) if leaving[i] or i in givers], before)
        parked_at = _fit(problem, parked, takers, after)
        if held_by is None or parked_at is None:
            continue
        extra = [tuple(d for d in sliced if held_by[d] == i) for i in range(rank)]
        waits = [tuple(d for d in parked if parked_at[d] == i) for i in range(rank)]
        origin = {d: i for i in range(rank) for d in (*leaving[i], *extra[i])}
        moves = grouped_moves([(*arriving[i], *waits[i]) for i in range(rank)], origin)
        return Route(
            tuple((*local[i], *extra[i]) for i in range(rank)),
            (AllToAllMove(moves),),
            tuple((*kept[i], *waits[i]) for i in range(rank)),
        )
    return None


def _subsets(items: list[int]) -> list[tuple[int, ...]]:
    return [chosen for size in range(len(items) + 1) for chosen in itertools.combinations(items, size)]


def _fit(problem: Problem, digits: list[int], dims: list[int], counts: list[int]) -> dict[int, int] | None:
    """A dimension for every digit such that blocks stay equal, or None."""
    counts = list(counts)
    placed: dict[int, int] = {}
    for d in digits:
        for i in dims:
            if problem.divides(i, counts[i] * problem.sizes[d]):
                counts[i] *= problem.sizes[d]
                placed[d] = i
                break
        else:
            return None
    return placed


def one_permute(problem: Problem, slicing: bool = True) -> Route | None:
    """Slices, one permute, gathers. Exists when the least common refinement of the block counts fits the
    devices; the block that moves is then the largest possible, and the whole receives T."""
    before = [problem.count(digits) for digits in problem.source]
    after = [problem.count(digits) for digits in problem.target]
    counts = [math.lcm(a, b) for a, b in zip(before, after, strict=True)]
    if not slicing and counts != before:
        return None
    added = choose_unused(
        problem, problem.source, [c // a for c, a in zip(counts, before, strict=True)], problem.target
    )
    if added is None:
        return None
    sliced = appended(problem.source, added)
    waiting = choose_unused(problem, problem.target, [c // b for c, b in zip(counts, after, strict=True)], sliced)
    if waiting is None:
        return None
    return Route(added, (PermuteMove(appended(problem.target, waiting)),), waiting)


def choose_unused(problem: Problem, lists: Lists, factors: list[int], wish: Lists) -> Lists | None:
    """Unused digits whose product in each dimension is its factor: those at the same place in `wish`
    first (they keep devices where they are), or None."""
    pool = list(problem.unused(lists))
    wanted = [Counter(prime_factors(factor)) for factor in factors]
    chosen: list[list[int]] = [[] for _ in lists]

    def take(i: int, d: int) -> bool:
        size = problem.sizes[d]
        if d not in pool or not wanted[i][size]:
            return False
        chosen[i].append(d)
        pool.remove(d)
        wanted[i][size] -= 1
        return True

    for i, digits in enumerate(wish):
        for d in digits[len(lists[i]) :]:
            if not take(i, d):
                break
    for i, digits in enumerate(wish):
        for d in digits:
            take(i, d)
    for i in range(len(lists)):
        for d in list(pool):
            take(i, d)
    return None if any(left.total() for left in wanted) else tuple(map(tuple, chosen))
