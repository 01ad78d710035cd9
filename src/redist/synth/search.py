"""Routes with several moves, for problems that no single move solves: best-first search.

With a block of B elements while data moves and a target block T, what remains after a move costs at
least T when some dimension's digit lists part, T - B/2 when digits still have to move, else T - B.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from redist.synth.mixed import permute_and_all_to_all
from redist.synth.problem import AllToAllMove, Lists, Middle, Problem, Route, appended, apply, cost, grouped_moves
from redist.synth.single import local_route, nests, one_all_to_all, one_permute

__all__ = ["several_moves"]

_EXPANSIONS = 400
_SLICINGS = 1024
_MOVED = 4

Node = tuple[int, int, int, Lists, tuple[Middle, ...], Lists, int]


def several_moves(problem: Problem) -> tuple[Route | None, bool]:
    """(the cheapest route of all-to-alls and at most one permute, whether the search was exhaustive)."""
    volume = math.prod(problem.shape)
    target = volume // math.prod(map(problem.count, problem.target))
    best: Route | None = permute_and_all_to_all(problem)
    best_cost = cost(problem, best) if best else (math.inf, math.inf)
    queue: list[Node] = []
    order = itertools.count()
    for added in _slicings(problem):
        lists = appended(problem.source, added)
        block = volume // math.prod(map(problem.count, lists))
        queue.append((target, 1, next(order), lists, (), added, block))
    heapq.heapify(queue)
    seen: dict[Lists, int] = {}
    expansions = 0
    while queue:
        bound, steps, _, lists, moves, added, block = heapq.heappop(queue)
        if (bound, steps) >= best_cost:
            break
        rest = replace(problem, source=lists)
        paid = cost(problem, Route(added, moves, ()))[0]
        if moves:
            if seen.get(lists, paid + 1) <= paid:
                continue
            seen[lists] = paid
            for finish in (local_route, one_all_to_all, one_permute, permute_and_all_to_all):
                tail = finish(rest, slicing=False)
                if tail is None:
                    continue
                route = Route(added, (*moves, *tail.middle), tail.gathers)
                found = cost(problem, route)
                if found < best_cost:
                    best, best_cost = route, found
        expansions += 1
        if expansions > _EXPANSIONS:
            return best, False
        for move in _all_to_alls(problem, lists):
            group = math.prod(problem.count(digits) for digits, _, _ in move.moves)
            after = apply(move, lists)
            price = paid + block - block // group
            ahead = target if not nests(after, problem.target) else target - block
            if (price + ahead, len(moves) + 1) < best_cost:
                heapq.heappush(queue, (price + ahead, len(moves) + 1, next(order), after, (*moves, move), added, block))
    return best, True


def _slicings(problem: Problem) -> Iterator[Lists]:
    """Ways to slice replicated digits, in any order, as far as blocks stay equal."""
    return itertools.islice(_all_slicings(problem), _SLICINGS)


def _all_slicings(problem: Problem) -> Iterator[Lists]:
    free = problem.unused(problem.source)
    rank = len(problem.shape)
    for choice in itertools.product(range(-1, rank), repeat=len(free)):
        added = [[d for d, i in zip(free, choice, strict=True) if i == dim] for dim in range(rank)]
        if all(
            not digits or problem.divides(i, problem.count(problem.source[i]) * problem.count(digits))
            for i, digits in enumerate(added)
        ):
            yield from itertools.product(*(itertools.permutations(digits) for digits in added))


def _all_to_alls(problem: Problem, lists: Lists) -> Iterator[AllToAllMove]:
    """All-to-alls from these lists: suffixes of some dimensions, in any order, to any of the others.
    Small groups first."""
    rank = len(lists)
    cuts = sorted(
        (lengths for lengths in itertools.product(*(range(len(digits) + 1) for digits in lists)) if any(lengths)),
        key=sum,
    )
    for lengths in cuts:
        takers = [j for j in range(rank) if lengths[j] == 0]
        moved = [(d, i) for i in range(rank) for d in lists[i][len(lists[i]) - lengths[i] :]]
        origin = dict(moved)
        if not takers or len(moved) > _MOVED:
            continue
        for order in itertools.permutations([d for d, _ in moved]):
            for places in itertools.product(takers, repeat=len(order)):
                if list(places) != sorted(places):
                    continue  # the same move comes again with its places sorted
                arrivals = [tuple(d for d, j in zip(order, places, strict=True) if j == dim) for dim in range(rank)]
                if all(
                    not digits or problem.divides(j, problem.count(lists[j]) * problem.count(digits))
                    for j, digits in enumerate(arrivals)
                ):
                    yield AllToAllMove(grouped_moves(arrivals, origin))
