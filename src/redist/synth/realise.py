"""From routes on digits to typed steps on the axes of a mesh."""

from __future__ import annotations

from typing import assert_never

from redist.collectives.steps import AllGather, AllToAll, Free, Permute, Slice, Step
from redist.collectives.typing import after
from redist.synth.problem import AllToAllMove, Lists, PermuteMove, Problem, Route, appended, apply
from redist.types.blocks import Balanced, BlockRule, Offsets
from redist.types.digits import Alignment
from redist.types.layout import Dim, Layout
from redist.types.mesh import SubAxis

__all__ = ["realise"]


def realise(route: Route, problem: Problem, alignment: Alignment, source: Layout, target: Layout) -> tuple[Step, ...]:
    """The steps of a route, each as wide as it can be; axes are those of the source mesh.

    Raises TypingError or LayoutError where uneven blocks or explicit offsets do not allow the route.
    """
    steps: list[Step] = []
    layout, lists = source, problem.source

    def take(step: Step) -> None:
        nonlocal layout
        steps.append(step)
        layout = after(step, layout)

    if any(route.slices):
        sliced = appended(lists, route.slices)
        take(Slice(_axes(alignment, route.slices), _rules(problem, target, lists, sliced)))
        lists = sliced
    for move in route.middle:
        moved = apply(move, lists)
        match move:
            case AllToAllMove(moves):
                rules = _rules(problem, target, lists, moved)
                take(AllToAll([(alignment.axes(digits), i, j) for digits, i, j in moves], rules))
            case PermuteMove():
                dims = [
                    Dim(dim.size, alignment.axes(digits), dim.rule)
                    for dim, digits in zip(layout.dims, moved, strict=True)
                ]
                take(Permute(layout.with_dims(dims), free_groups(problem, alignment, lists, moved)))
            case _:
                assert_never(move)
        lists = moved
    if any(route.gathers):
        take(AllGather(_axes(alignment, route.gathers)))
    return tuple(steps)


def _axes(alignment: Alignment, lists: Lists) -> dict[int, tuple[SubAxis, ...]]:
    return {i: alignment.axes(digits) for i, digits in enumerate(lists) if digits}


def _rules(problem: Problem, target: Layout, before: Lists, after: Lists) -> dict[int, BlockRule]:
    """The block rules to state for dimensions that are cut for the first time, where not ceil."""
    rules: dict[int, BlockRule] = {}
    for i, dim in enumerate(target.dims):
        whole = problem.count(after[i]) == problem.count(problem.target[i])
        if after[i] and not before[i] and (isinstance(dim.rule, Balanced) or (isinstance(dim.rule, Offsets) and whole)):
            rules[i] = dim.rule
    return rules


def free_groups(problem: Problem, alignment: Alignment, before: Lists, after: Lists) -> Free:
    """Which replica sends: so that as many devices as possible keep their block.

    In dimensions, sender digit before[i][n] is receiver digit after[i][n]: chains of digits. Closing each
    chain into a cycle leaves the devices whose coordinates are equal along all cycles in place.
    """
    ours, theirs = problem.unused(before), problem.unused(after)
    follows = {a: b for old, new in zip(before, after, strict=True) for a, b in zip(old, new, strict=False)}
    matched = all(
        len(old) == len(new) and all(problem.sizes[a] == problem.sizes[b] for a, b in zip(old, new, strict=True))
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
        sorted(rest, key=lambda d: problem.sizes[d]), sorted(left, key=lambda d: problem.sizes[d]), strict=True
    )
    return Free(tuple((alignment.axes([a]), alignment.axes([b])) for a, b in pairs))
