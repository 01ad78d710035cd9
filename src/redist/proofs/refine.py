"""R, refinement, in digits: every device ends with exactly its block, every contribution counted once.

A claim is refuted by a receiver, traced back through the steps, whose element does not come from where it
should: unsat means that there is none. Three claims where values are unreduced, all of them needed: right
element for all contributions; no contribution twice; as many as there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redist.proofs.cuts import cuts_of, same_length
from redist.proofs.positions import differs, index, receiver, refit, translate
from redist.proofs.terms import FALSE, Formula, Query, Sheet, Term, both, either, eq, negation
from redist.proofs.trace import Leaf, Place, Trace, back, chains, start
from redist.types.layout import Layout
from redist.types.mesh import Mesh

__all__ = ["Claim", "Level", "contributions", "refinement"]


@dataclass(frozen=True, slots=True)
class Level:
    """Where the element is before a step (`label`), or after the last one (`""`)."""

    label: str
    mesh: Mesh
    place: Place


@dataclass(frozen=True, slots=True)
class Claim:
    """A query together with what its variables mean: the terms to read off a counterexample.

    `summed` is how many contributions one device's element is the sum of, by the reductions passed.
    """

    query: Query
    order: tuple[str, ...]
    goal: Layout
    source: Layout
    levels: tuple[Level, ...]
    wanted: tuple[Term, ...]
    got: tuple[Term, ...]
    receiver: Place
    summed: int


@dataclass(frozen=True, slots=True)
class _Run:
    """One receiver and its trace."""

    place: Place
    inside: Formula
    shapes: tuple[Formula, ...]
    flaws: tuple[Formula, ...]
    summed: tuple[tuple[Term, int], ...]
    levels: tuple[Level, ...]
    origin: Place


def _run(
    sheet: Sheet, leaves: Sequence[Leaf], goal: Layout, last: Layout, stem: str, given: Place | None = None
) -> _Run:
    """A receiver, any or `given`, and its trace back to before the first leaf."""
    trace = Trace(sheet, chains(leaves, [goal, last]))
    cuts = trace.chains.get(goal.mesh)
    if cuts is None:
        cuts = trace.cuts(leaves[-1], "following") if leaves and goal == last else chains((), [goal])[goal.mesh]
    place = given or Place(receiver(sheet, f"{stem}d", cuts), tuple(sheet.natural(f"{stem}i") for _ in goal.dims))
    inside, shapes, here = list[Formula](), list[Formula](), place.position
    goal_blocks = [index(here.over(goal.mesh, dim.axes)) for dim in goal.dims]
    goal_cuts = cuts_of(goal)
    for cut, block, local in zip(goal_cuts, goal_blocks, place.local, strict=True):
        inside.append(cut.inside(sheet, block, local))
    levels: list[Level] = []
    current = place
    if last != goal:
        moved = translate(sheet, here, goal.mesh, last.mesh, f"{stem}t", trace.flaws)
        target_cuts = trace.chains.get(last.mesh) or chains((), [last])[last.mesh]
        moved = refit(sheet, moved, target_cuts, f"{stem}t", trace.flaws)
        for n, (dim, cut) in enumerate(zip(last.dims, cuts_of(last), strict=True)):
            block = index(moved.over(last.mesh, dim.axes))
            same = same_length(sheet, goal_cuts[n], goal_blocks[n], cut, block, place.local[n])
            shapes.append(negation(same))
        trace.flaws += shapes
        current = Place(moved, place.local)
    levels.append(Level("", last.mesh, current))
    for leaf in reversed(leaves):
        current = back(trace, leaf, current)
        levels.append(Level(leaf.label, leaf.before.mesh, current))
    return _Run(
        place, both(inside), tuple(f for f in shapes if f != FALSE), tuple(trace.flaws), tuple(trace.summed),
        tuple(levels), current,
    )  # fmt: skip


def refinement(leaves: Sequence[Leaf], goal: Layout, last: Layout, name: str) -> Claim:
    """Every element of every block of `goal` comes from its own global index in the layout before the
    first leaf, and blocks have the shapes that `goal` says. Raises UnsupportedError."""
    sheet = Sheet()
    run = _run(sheet, leaves, goal, last, "")
    source = leaves[0].before if leaves else last
    wanted, got = start(sheet, goal, run.place), start(sheet, source, run.origin)
    blocks = [index(run.origin.position.over(source.mesh, dim.axes)) for dim in source.dims]
    outside = [
        negation(cut.inside(sheet, block, local))
        for cut, block, local in zip(cuts_of(source), blocks, run.origin.local, strict=True)
    ]
    wrong = either([*run.flaws, *outside, *(negation(eq(a, b)) for a, b in zip(got, wanted, strict=True))])
    if run.shapes:
        violation = either([both([run.inside, wrong]), *run.shapes])
    else:
        sheet.domain.append(run.inside)
        violation = wrong
    order = [*reversed(run.place.position.digits), *run.place.local, *(term for term, _ in run.summed)]
    names = tuple(dict.fromkeys(name for term in order for name in term.coefs))
    return Claim(sheet.query(name, violation), names, goal, source, run.levels, wanted, got, run.place, _size(run))


def _size(run: _Run) -> int:
    return math.prod(size for _, size in run.summed)


def contributions(leaves: Sequence[Leaf], goal: Layout, last: Layout, name: str) -> Claim:
    """No contribution of the layout before the first leaf is counted twice: neither within the sum that a
    device holds, nor in two sums that are still to be added. Raises UnsupportedError."""
    sheet = Sheet()
    source = leaves[0].before if leaves else last
    one = _run(sheet, leaves, goal, last, "a")
    apart = goal.mesh.count(goal.partial_axes) > 1
    other = _run(sheet, leaves, goal, last, "b", None if apart else one.place)
    sheet.domain += [one.inside, other.inside]
    first, second = (index(run.origin.position.over(source.mesh, source.partial_axes)) for run in (one, other))
    terms_differ = either(negation(eq(a, b)) for (a, _), (b, _) in zip(one.summed, other.summed, strict=True))
    wanted = start(sheet, goal, one.place)
    if apart:
        same_element = both(eq(a, b) for a, b in zip(wanted, start(sheet, goal, other.place), strict=True))
        kept = [index(run.place.position.over(goal.mesh, goal.partial_axes)) for run in (one, other)]
        same_device = negation(differs(one.place.position, other.place.position))
        twice = both([same_element, either([negation(eq(kept[0], kept[1])), both([same_device, terms_differ])])])
    else:
        twice = terms_differ
    violation = both([eq(first, second), twice])
    order = [*reversed(one.place.position.digits), *one.place.local]
    names = tuple(dict.fromkeys(name for term in order for name in term.coefs))
    got = start(sheet, source, one.origin)
    return Claim(sheet.query(name, violation), names, goal, source, one.levels, wanted, got, one.place, _size(one))
