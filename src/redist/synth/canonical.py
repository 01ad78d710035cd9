"""One problem for all that differ in the names of axes and the order of dimensions, so that routes are shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from redist.synth.problem import AllToAllMove, Lists, Middle, PermuteMove, Problem, Route

__all__ = ["Canonical", "canonical"]


@dataclass(frozen=True, slots=True)
class Canonical:
    """The renamed problem, and the way back: its digit d was `digits[d]`, its dimension i was `dims[i]`."""

    problem: Problem
    digits: tuple[int, ...]
    dims: tuple[int, ...]

    def restored(self, route: Route) -> Route:
        """The route in the names of the original problem."""
        return Route(
            self._lists(route.slices), tuple(self._move(move) for move in route.middle), self._lists(route.gathers)
        )

    def _lists(self, lists: Lists) -> Lists:
        found: list[tuple[int, ...]] = [()] * len(lists)
        for i, digits in zip(self.dims, lists, strict=True):
            found[i] = tuple(self.digits[d] for d in digits)
        return tuple(found)

    def _move(self, move: Middle) -> Middle:
        match move:
            case PermuteMove(lists):
                return PermuteMove(self._lists(lists))
            case AllToAllMove(moves):
                return AllToAllMove(
                    tuple((tuple(self.digits[d] for d in part), self.dims[i], self.dims[j]) for part, i, j in moves)
                )
            case _:
                assert_never(move)


def canonical(problem: Problem) -> Canonical:
    """Dimensions sorted by their sizes and those of their digits; digits numbered as they appear.

    Dimensions that look alike keep their order, so that a few renamings are not recognised.
    """

    def looks(i: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        return (
            tuple(problem.sizes[d] for d in problem.source[i]),
            tuple(problem.sizes[d] for d in problem.target[i]),
            problem.shape[i],
        )

    dims = tuple(sorted(range(len(problem.shape)), key=looks))
    seen: dict[int, int] = {}
    for lists in (problem.source, problem.target):
        for i in dims:
            for d in lists[i]:
                seen.setdefault(d, len(seen))
    for d in sorted(range(len(problem.sizes)), key=lambda d: (d in problem.held, problem.sizes[d])):
        seen.setdefault(d, len(seen))
    digits = tuple(seen)

    def renamed(lists: Lists) -> Lists:
        return tuple(tuple(seen[d] for d in lists[i]) for i in dims)

    return Canonical(
        Problem(
            tuple(problem.sizes[d] for d in digits),
            tuple(problem.shape[i] for i in dims),
            renamed(problem.source),
            renamed(problem.target),
            frozenset(seen[d] for d in problem.held),
        ),
        digits,
        dims,
    )
