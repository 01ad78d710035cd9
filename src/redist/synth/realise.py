"""From routes on digits to typed steps on the axes of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from redist.collectives.steps import AllGather, AllToAll, Free, Permute, Slice, Step
from redist.synth.problem import (
    AllToAllMove,
    Lists,
    Middle,
    PermuteMove,
    Problem,
    Route,
    appended,
    apply,
)
from redist.types.blocks import Balanced, BlockRule, Ceil
from redist.types.digits import Alignment
from redist.types.layout import Dim, Layout

__all__ = ["realise"]


def realise(
    route: Route, problem: Problem, alignment: Alignment, source: Layout, target: Layout
) -> tuple[Step, ...]:
    """The steps of a route, each as wide as it can be; axes are those of the source mesh."""
    steps: list[Step] = []
    lists = appended(problem.source, route.slices)
    if any(route.slices):
        rules = {
            i: rule
            for i in _sharded(route.slices)
            if (rule := _rule(problem, target, i, problem.source, lists))
        }
        steps.append(
            Slice(
                {i: alignment.axes(route.slices[i]) for i in _sharded(route.slices)},
                rules,
            )
        )
    for move in route.middle:
        after = apply(move, lists)
        steps.append(_move(move, problem, alignment, source, target, lists, after))
        lists = after
    if any(route.gathers):
        steps.append(
            AllGather(
                {i: alignment.axes(route.gathers[i]) for i in _sharded(route.gathers)}
            )
        )
    return tuple(steps)


def _sharded(lists: Lists) -> list[int]:
    return [i for i, digits in enumerate(lists) if digits]


def _rule(
    problem: Problem, target: Layout, i: int, before: Lists, after: Lists
) -> BlockRule | None:
    """The block rule to state when dimension i is cut for the first time, None for ceil."""
    rule = target.dims[i].rule
    if before[i] or isinstance(rule, Ceil):
        return None
    if isinstance(rule, Balanced) or problem.count(after[i]) == problem.count(
        problem.target[i]
    ):
        return rule
    return None


def _move(
    move: Middle,
    problem: Problem,
    alignment: Alignment,
    source: Layout,
    target: Layout,
    before: Lists,
    after: Lists,
) -> Step:
    match move:
        case AllToAllMove(moves):
            gaining = {j for _, _, j in moves}
            rules = {
                j: rule
                for j in gaining
                if (rule := _rule(problem, target, j, before, after))
            }
            return AllToAll(
                [(alignment.axes(digits), i, j) for digits, i, j in moves], rules
            )
        case PermuteMove(lists):
            dims = [
                Dim(dim.size, alignment.axes(digits), dim.rule)
                for dim, digits in zip(
                    _rules_after(source, before, problem), lists, strict=True
                )
            ]
            return Permute(
                source.with_dims(dims, _held(source, alignment, problem)),
                free_groups(problem, alignment, before, lists),
            )
        case _:
            assert_never(move)


def _rules_after(source: Layout, before: Lists, problem: Problem) -> Sequence[Dim]:
    """The dimensions with the rules that their blocks have when a permute runs: those of the source where
    it was sharded; a permute changes no rule."""
    return source.dims


def _held(source: Layout, alignment: Alignment, problem: Problem) -> tuple[object, ...]:
    return alignment.axes(sorted(problem.held)) if problem.held else ()


def free_groups(
    problem: Problem, alignment: Alignment, before: Lists, after: Lists
) -> Free:
    """Which replica sends: so that as many devices as possible keep their block.

    In dimensions, sender digit before[i][n] is receiver digit after[i][n]: chains of digits. Closing each
    chain into a cycle leaves the devices whose coordinates are equal along all cycles in place.
    """
    ours, theirs = problem.unused(before), problem.unused(after)
    follows = {
        a: b
        for old, new in zip(before, after, strict=True)
        for a, b in zip(old, new, strict=False)
    }
    matched = all(
        len(old) == len(new)
        and all(
            problem.sizes[a] == problem.sizes[b] for a, b in zip(old, new, strict=True)
        )
        for old, new in zip(before, after, strict=True)
    )
    pairs: list[tuple[int, int]] = []
    left = list(theirs)
    if matched:
        for start in theirs:
            end = start
            while end in follows:
                end = follows[end]
            if problem.sizes[end] == problem.sizes[start]:
                pairs.append((end, start))
                left.remove(start)
    taken = {a for a, _ in pairs}
    rest = [a for a in ours if a not in taken]
    pairs += zip(
        sorted(rest, key=lambda d: problem.sizes[d]),
        sorted(left, key=lambda d: problem.sizes[d]),
        strict=True,
    )
    return Free(tuple((alignment.axes([a]), alignment.axes([b])) for a, b in pairs))
