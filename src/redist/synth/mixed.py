"""Routes of a permute and an all-to-all, in either order: T + B(1 - 1/k) elements in a group of k.

Half the block always pays more than a smaller group: B/2 (1 - 1/k') < B (1 - 1/2). So everything that is
replicated is sliced first. Then, prime by prime, let A be the exponents of the least common refinement of
the block counts, summed over dimensions, and M those of the sliced block count. The permute goes
as far as it can when k has exponent A - M, and no smaller group can do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

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

Counts = tuple[int, ...]


def permute_and_all_to_all(problem: Problem, slicing: bool = True) -> Route | None:
    """The cheapest route of this class.

    With several primes a digit list may have no prefix of the product that the smallest group asks for;
    then larger groups are tried.
    """
    best = _cheapest(problem, _counts(problem, slicing))
    if best is None and slicing and len(set(problem.sizes)) > 1:
        best = _cheapest(problem, _all_counts(problem))
    return best


def _cheapest(problem: Problem, pairs: Iterable[tuple[Counts, Counts]]) -> Route | None:
    """The cheaper route of the first pair that has one (pairs come cheapest first)."""
    for before, after in pairs:
        found = [r for build in (_permute_first, _permute_last) if (r := build(problem, before, after)) is not None]
        if found:
            return min(found, key=lambda route: cost(problem, route))
    return None


def _counts(problem: Problem, slicing: bool) -> list[tuple[Counts, Counts]]:
    """(block counts after slicing, before gathering) with the smallest group, one pair for each order in
    which dimensions are filled; no dimension both loses and gains."""
    source, target = [tuple(map(problem.count, lists)) for lists in (problem.source, problem.target)]
    primes = sorted(set(problem.sizes))
    found: dict[tuple[Counts, Counts], None] = {}
    for order in itertools.islice(itertools.permutations(range(len(source))), 24):
        before, after = list(source), list(target)
        for prime in primes:
            _fill(problem, prime, order, before, after, slicing)
        pair = (tuple(before), tuple(after))
        if math.prod(before) == math.prod(after) and before != after and _one_way(*pair):
            found[pair] = None
    return sorted(found, key=lambda pair: (-math.prod(pair[0]), _group(*pair)))


def _one_way(before: Counts, after: Counts) -> bool:
    """Whether no dimension both loses and gains."""
    return all(a % b == 0 or b % a == 0 for a, b in zip(before, after, strict=True))


def _group(before: Counts, after: Counts) -> int:
    return math.prod(max(1, a // b) for a, b in zip(before, after, strict=True))


_MOST_COUNTS = 300


def _all_counts(problem: Problem) -> list[tuple[Counts, Counts]]:
    """All pairs at the finest slicing that both sides reach, small groups first, as far as they are few."""
    sliced, gathered = _extensions(problem, problem.source), _extensions(problem, problem.target)
    common = set(map(math.prod, sliced)) & set(map(math.prod, gathered))
    if not common or len(sliced) * len(gathered) > _MOST_COUNTS**2:
        return []
    finest = max(common)
    pairs = [
        (before, after)
        for before in sliced
        for after in gathered
        if math.prod(before) == math.prod(after) == finest and before != after and _one_way(before, after)
    ]
    return sorted(pairs, key=lambda pair: _group(*pair))[:_MOST_COUNTS]


def _extensions(problem: Problem, lists: Lists) -> set[Counts]:
    """Block counts that appending unused digits reaches."""
    reached = {tuple(map(problem.count, lists))}
    for d in problem.unused(lists):
        reached |= {
            (*counts[:i], counts[i] * problem.sizes[d], *counts[i + 1 :])
            for counts in reached
            for i in range(len(counts))
            if problem.divides(i, counts[i] * problem.sizes[d])
        }
        if len(reached) > _MOST_COUNTS:
            return set()
    return reached


def _fill(
    problem: Problem, prime: int, order: Sequence[int], before: list[int], after: list[int], slicing: bool
) -> None:
    """Spend the unused digits of one prime on both sides: first where the other side is ahead, then
    together, dimension by dimension as far as sizes divide."""
    ours = sum(problem.sizes[d] == prime for d in problem.unused(problem.source)) if slicing else 0
    theirs = sum(problem.sizes[d] == prime for d in problem.unused(problem.target))
    for i in order:
        while ours and _exponent(after[i], prime) > _exponent(before[i], prime):
            before[i] *= prime
            ours -= 1
    for i in order:
        while theirs and _exponent(before[i], prime) > _exponent(after[i], prime):
            after[i] *= prime
            theirs -= 1
    for i in order:
        while (
            ours
            and theirs
            and problem.divides(i, math.lcm(before[i], after[i]) * prime)
            and _exponent(before[i], prime) == _exponent(after[i], prime)
        ):
            before[i] *= prime
            after[i] *= prime
            ours, theirs = ours - 1, theirs - 1
    if not slicing:  # gathers must then end at the block count of the source
        return
    ahead = sum(_exponent(count, prime) for count in before) - sum(_exponent(count, prime) for count in after)
    shorter = after if ahead > 0 else before
    missing = abs(ahead)
    for i in order:
        while missing and problem.divides(i, shorter[i] * prime):
            shorter[i] *= prime
            missing -= 1


def _exponent(number: int, prime: int) -> int:
    exponent = 0
    while number % prime == 0:
        number //= prime
        exponent += 1
    return exponent


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


def _share(problem: Problem, pool: list[int], factors: Sequence[int]) -> Lists | None:
    """Digits from the pool whose product in each dimension is its factor, or None."""
    shares: list[tuple[int, ...]] = []
    for factor in factors:
        taken = _take(problem, pool, factor)
        if taken is None:
            return None
        shares.append(taken)
    return tuple(shares)


def _extended(problem: Problem, lists: Lists, counts: Counts) -> Lists | None:
    have = map(problem.count, lists)
    return _share(problem, list(problem.unused(lists)), [c // h for c, h in zip(counts, have, strict=True)])


def _split_at(problem: Problem, digits: tuple[int, ...], count: int) -> int | None:
    """Length of the prefix with this product, None where no prefix has it."""
    product = 1
    for n in range(len(digits) + 1):
        if product == count:
            return n
        if n < len(digits):
            product *= problem.sizes[digits[n]]
    return None


def _cut(problem: Problem, lists: Lists, counts: Sequence[int]) -> tuple[Lists, Lists] | None:
    """(heads with these products, the tails), or None where no prefix has the product."""
    heads: list[tuple[int, ...]] = []
    tails: list[tuple[int, ...]] = []
    for digits, count in zip(lists, counts, strict=True):
        cut = _split_at(problem, digits, count)
        if cut is None:
            return None
        heads.append(digits[:cut])
        tails.append(digits[cut:])
    return tuple(heads), tuple(tails)


def _ends(problem: Problem, before: Counts, after: Counts) -> tuple[Lists, Lists] | None:
    slices, gathers = _extended(problem, problem.source, before), _extended(problem, problem.target, after)
    return None if slices is None or gathers is None else (slices, gathers)


def _permute_first(problem: Problem, before: Counts, after: Counts) -> Route | None:
    """Permute to where one all-to-all ends at the target: gaining dimensions keep the head of what they
    will hold, losing ones carry the tails of the others at their minor end."""
    ends = _ends(problem, before, after)
    if ends is None:
        return None
    slices, gathers = ends
    parts = _cut(problem, appended(problem.target, gathers), [min(p) for p in zip(before, after, strict=True)])
    if parts is None:
        return None
    heads, arrivals = parts
    pool = [d for digits in arrivals for d in digits]
    carried = _share(problem, pool, [max(1, a // b) for a, b in zip(before, after, strict=True)])
    if carried is None or pool:
        return None
    origin = {d: i for i, digits in enumerate(carried) for d in digits}
    move = AllToAllMove(grouped_moves(arrivals, origin))
    return Route(slices, (PermuteMove(appended(heads, carried)), move), gathers)


def _permute_last(problem: Problem, before: Counts, after: Counts) -> Route | None:
    """All-to-all to the block counts of the target, then permute."""
    ends = _ends(problem, before, after)
    if ends is None:
        return None
    slices, gathers = ends
    lists = appended(problem.source, slices)
    parts = _cut(problem, lists, [min(p) for p in zip(before, after, strict=True)])
    if parts is None:
        return None
    leaving = parts[1]
    pool = [d for digits in leaving for d in digits]
    arrivals = _share(problem, pool, [max(1, b // a) for a, b in zip(before, after, strict=True)])
    if arrivals is None or pool:
        return None
    origin = {d: i for i, digits in enumerate(leaving) for d in digits}
    move = AllToAllMove(grouped_moves(arrivals, origin))
    final = appended(problem.target, gathers)
    moves: tuple[Middle, ...] = (move,) if apply(move, lists) == final else (move, PermuteMove(final))
    return Route(slices, moves, gathers)
