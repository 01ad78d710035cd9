"""From routes on digits to typed steps on the axes of a mesh."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import assert_never

from redist.collectives.steps import AllGather, AllToAll, Free, Permute, Slice, Step
from redist.collectives.typing import after
from redist.synth.problem import AllToAllMove, Lists, PermuteMove, Problem, Route, TimedRoute, appended, apply
from redist.types.blocks import Balanced, BlockRule, Offsets
from redist.types.digits import Alignment
from redist.types.layout import Dim, Layout

__all__ = ["crossing_share", "digit_bijection", "moved_digits", "realise", "swaps"]


def realise(
    route: Route | TimedRoute, problem: Problem, alignment: Alignment, source: Layout, target: Layout
) -> tuple[Step, ...]:
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
        take(Slice(alignment.axes_by_dim(route.slices), _rules(problem, target, lists, sliced)))
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
    for stage in route.stages:
        take(AllGather(alignment.axes_by_dim(stage)))
    return tuple(steps)


def _rules(problem: Problem, target: Layout, before: Lists, after: Lists) -> dict[int, BlockRule]:
    """The block rules to state for dimensions that are cut for the first time, where not ceil."""
    rules: dict[int, BlockRule] = {}
    for i, dim in enumerate(target.dims):
        whole = problem.count(after[i]) == problem.count(problem.target[i])
        if after[i] and not before[i] and (isinstance(dim.rule, Balanced) or (isinstance(dim.rule, Offsets) and whole)):
            rules[i] = dim.rule
    return rules


Pair = tuple[tuple[int, ...], tuple[int, ...]]


def digit_bijection(problem: Problem, before: Lists, after: Lists) -> list[Pair]:
    """(sender digits, receiver digits) of a permute, so that as many devices as possible keep their block.

    In dimensions, sender digit before[i][n] is receiver digit after[i][n]: chains of digits. Closing each
    chain into a cycle leaves the devices whose coordinates are equal along all cycles in place.
    """
    pairs: list[Pair] = []
    follows: dict[int, int] = {}
    for old, new in zip(before, after, strict=True):
        for a, b in _segments(problem, old, new):
            pairs.append((a, b))
            if len(a) == len(b) == 1:
                follows[a[0]] = b[0]
    return pairs + _free_pairs(problem, before, after, follows)


def moved_digits(problem: Problem, before: Lists, after: Lists) -> Iterable[int]:
    """The digits along which some block changes its device in a permute."""
    if len(set(problem.sizes)) > 1:
        return [d for a, b in digit_bijection(problem, before, after) if a != b for d in a]
    # Digits of one size pair up one to one, and chains close: a digit stays where its place stays.
    return {d for d, _, _ in set(_places(before)) ^ set(_places(after))}


def swaps(problem: Problem, before: Lists, after: Lists) -> bool:
    """Whether in a permute all devices that send a block get one from the device that they send theirs to. Told where
    digits go to digits only, not where an index over several is split anew."""
    goes = _digit_goes(problem, before, after)
    return goes is not None and all(goes.get(b, a) == a for a, b in goes.items())  # a chain that ends is closed


def crossing_share(problem: Problem, before: Lists, after: Lists, slow: frozenset[int]) -> float:
    """Of the devices at one place along the slow digits, which share a permute has fetch blocks from another place,
    where it is largest. 1 where it is not told (see `swaps`)."""
    goes = _digit_goes(problem, before, after)
    if goes is None:
        return 1.0
    ends = {b: a for a, b in goes.items()}

    def closed(d: int) -> int:
        """Where a free digit goes: to the start of the chain that ends in it."""
        while d in ends:
            d = ends[d]
        return d

    moved = [(d, goes[d] if d in goes else closed(d)) for d in slow]
    moved = [(d, to) for d, to in moved if d != to]
    if any(to in slow for _, to in moved):
        return 1.0
    return 1 - 1 / problem.count(d for d, _ in moved)


def _digit_goes(problem: Problem, before: Lists, after: Lists) -> dict[int, int] | None:
    """Where the digits that shard go, if digits go to digits."""
    if len(set(problem.sizes)) == 1:
        return dict(zip(itertools.chain(*before), itertools.chain(*after), strict=True))
    pairs = digit_bijection(problem, before, after)
    return {a[0]: b[0] for a, b in pairs} if all(len(a) == len(b) == 1 for a, b in pairs) else None


def _places(lists: Lists) -> Iterator[tuple[int, int, int]]:
    return ((d, i, n) for i, digits in enumerate(lists) for n, d in enumerate(digits))


def _segments(problem: Problem, old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[Pair]:
    """Two digit lists of one product, cut wherever both have a cut: where primes come in different orders
    an index over several digits is split anew."""
    while old:
        n = m = 1
        while (ours := problem.count(old[:n])) != (theirs := problem.count(new[:m])):
            n, m = (n + 1, m) if ours < theirs else (n, m + 1)
        yield old[:n], new[:m]
        old, new = old[n:], new[m:]


def _free_pairs(problem: Problem, before: Lists, after: Lists, follows: dict[int, int]) -> list[Pair]:
    ours, theirs = list(problem.unused(before)), list(problem.unused(after))
    pairs: list[Pair] = []
    for start in list(theirs):
        end = start
        while end in follows:
            end = follows[end]
        if end in ours and problem.sizes[end] == problem.sizes[start]:
            pairs.append(((end,), (start,)))
            ours.remove(end)
            theirs.remove(start)
    for start in list(theirs):
        alike = next((d for d in ours if problem.sizes[d] == problem.sizes[start]), None)
        if alike is not None:
            pairs.append(((alike,), (start,)))
            ours.remove(alike)
            theirs.remove(start)
    # What is left has one product on both sides, but is cut differently, where digits are whole axes.
    return [*pairs, (tuple(ours), tuple(theirs))] if ours else pairs


def free_groups(problem: Problem, alignment: Alignment, before: Lists, after: Lists) -> Free:
    """Which replica sends, on axes."""
    free = set(problem.unused(before))
    pairs = [(a, b) for a, b in digit_bijection(problem, before, after) if free.issuperset(a)]
    return Free(tuple((alignment.axes(a), alignment.axes(b)) for a, b in pairs))
