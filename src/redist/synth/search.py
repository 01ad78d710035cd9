"""Routes with several moves, for problems that no single move solves: best-first search.

With a block of B elements while data moves and a target block T, a route of moves that receive m blocks
in all receives T - B + m B. Bounds on m for what remains of a route: 0 when only gathers remain; 1 - 1/k
when dimensions nest and k is what must move; and when digit lists part in some dimensions, which then
have to lose tails of L in all before they gain tails of R, the least of 2 - 1/L - 1/R (two all-to-alls),
3/2 (three, or a permute and an all-to-all), and 1 (a permute, if block counts allow it).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from redist.synth.mixed import permute_and_all_to_all
from redist.synth.problem import (
    AllToAllMove,
    Lists,
    Middle,
    Problem,
    Route,
    appended,
    apply,
    cost,
    grouped_moves,
    shared_prefix,
)
from redist.synth.single import local_route, one_all_to_all, one_permute

__all__ = ["arrivals", "departures", "several_moves", "slicings", "still_to_move"]

_EXPANSIONS = 300
_SLICINGS = 2048
_FINISHES = (local_route, one_all_to_all, one_permute, permute_and_all_to_all)

Node = tuple[int, int, int, Lists, tuple[Middle, ...], Lists]


def several_moves(
    problem: Problem, best: Route | None, permutes: bool = True, most_moves: int = 100_000
) -> tuple[Route | None, float]:
    """(the cheapest route of all-to-alls and permutes, or `best` where nothing is cheaper; a proven lower
    bound on what such routes receive). The search ends when it has looked at `most_moves` moves."""
    target = problem.block(problem.target)
    best_cost = cost(problem, best) if best else (math.inf, math.inf)
    order = itertools.count()
    queue: list[Node] = []
    for added in itertools.islice(slicings(problem), _SLICINGS):
        lists = appended(problem.source, added)
        block = problem.block(lists)
        bound = target - block + still_to_move(problem, lists, block)
        if (bound, 2) < best_cost:
            queue.append((bound, 2, next(order), lists, (), added))
    heapq.heapify(queue)
    seen: dict[tuple[Lists, int], int] = {}
    expansions = looked_at = 0
    while queue:
        bound, steps, _, lists, moves, added = heapq.heappop(queue)
        if (bound, steps) >= best_cost:
            break
        expansions += 1
        if expansions > _EXPANSIONS or looked_at > most_moves:
            return best, bound
        paid = cost(problem, Route(added, moves, ((),) * len(lists)))[0]
        if moves:
            rest = replace(problem, source=lists)
            for finish in _FINISHES if permutes else _FINISHES[:2]:
                tail = finish(rest, slicing=False)
                if tail is not None:
                    route = Route(added, (*moves, *tail.middle), tail.gathers)
                    if (found := cost(problem, route)) < best_cost:
                        best, best_cost = route, found
                    break
        block = problem.block(lists)
        for move in all_to_alls(problem, lists):
            looked_at += 1
            if looked_at > most_moves:
                break
            after = apply(move, lists)
            group = math.prod(problem.count(digits) for digits, _, _ in move.moves)
            price = paid + block - block // group
            ahead = price + target - block + still_to_move(problem, after, block)
            if (ahead, len(moves) + 2) >= best_cost or seen.get((after, len(moves)), price + 1) <= price:
                continue
            seen[after, len(moves)] = price
            heapq.heappush(queue, (ahead, len(moves) + 2, next(order), after, (*moves, move), added))
    return best, best_cost[0]


def still_to_move(problem: Problem, lists: Lists, block: int) -> int:
    """A lower bound on the elements that moves still receive before gathers alone reach the target."""
    losing, gaining, moving, fits = 1, 1, 1, True
    for digits, wanted in zip(lists, problem.target, strict=True):
        common = shared_prefix(digits, wanted)
        lost, gained = problem.count(digits[common:]), problem.count(wanted[common:])
        fits &= (lost % gained) == 0
        if lost > 1 and gained > 1:
            losing, gaining = losing * lost, gaining * gained
        moving *= gained
    if losing > 1:
        two = 2 * block - -(-block // losing) - -(-block // gaining)
        return min(block if fits else 3 * block // 2, two)
    return block - -(-block // moving)


def slicings(problem: Problem) -> Iterator[Lists]:
    """Ways to slice replicated digits, in any order, as far as blocks stay equal; many digits first."""
    free = problem.unused(problem.source)
    rank = len(problem.shape)
    for choice in itertools.product((*range(rank), -1), repeat=len(free)):
        added = [[d for d, i in zip(free, choice, strict=True) if i == dim] for dim in range(rank)]
        if all(
            not digits or problem.divides(i, problem.count(problem.source[i]) * problem.count(digits))
            for i, digits in enumerate(added)
        ):
            yield from itertools.product(*(itertools.permutations(digits) for digits in added))


def all_to_alls(problem: Problem, lists: Lists) -> Iterator[AllToAllMove]:
    """All-to-alls from these lists: suffixes of some dimensions to any of the others.

    Where digits arrive, those that the target wants next come first, in its order, then those to be
    gathered, then those that will leave again.
    """
    kept = frozenset(problem.unused(problem.target))
    for origin in departures(lists):
        for given in arrivals(problem, lists, origin):
            arrived = [_arranged(lists[j], problem.target[j], part, kept) for j, part in enumerate(given)]
            yield AllToAllMove(grouped_moves(arrived, origin))


def departures(lists: Lists) -> Iterator[dict[int, int]]:
    """The digits that an all-to-all may move, each with the dimension it leaves: suffixes of some dimensions,
    of which one at least keeps what it has."""
    for lengths in itertools.product(*(range(len(digits) + 1) for digits in lists)):
        if any(lengths) and not all(lengths):
            yield {d: i for i, digits in enumerate(lists) for d in digits[len(digits) - lengths[i] :]}


def arrivals(problem: Problem, lists: Lists, origin: dict[int, int]) -> Iterator[Lists]:
    """Which of these digits each dimension that loses none may gain, so that blocks stay equal."""
    losing = set(origin.values())
    takers = [j for j in range(len(lists)) if j not in losing]
    digits = tuple(origin)

    def place(n: int, counts: dict[int, int], given: Lists) -> Iterator[Lists]:
        if n == len(digits):
            yield given
            return
        for j in takers:
            finer = counts[j] * problem.sizes[digits[n]]
            if problem.divides(j, finer):
                yield from place(n + 1, {**counts, j: finer}, (*given[:j], (*given[j], digits[n]), *given[j + 1 :]))

    yield from place(0, {j: problem.count(lists[j]) for j in takers}, ((),) * len(lists))


def _arranged(
    held: tuple[int, ...], wanted: tuple[int, ...], given: tuple[int, ...], kept: frozenset[int]
) -> tuple[int, ...]:
    first: list[int] = []
    if wanted[: len(held)] == held:
        first = list(itertools.takewhile(given.__contains__, wanted[len(held) :]))
    rest = [d for d in given if d not in first]
    return (*first, *(d for d in rest if d in kept), *(d for d in rest if d not in kept))
