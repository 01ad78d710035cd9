"""Every step traced backwards: which device held an element of a receiver's block before the step, and where.

Encoded from the step's own data (axes, groups, rules) and the blocks of the layouts around it; the steps'
docstrings say what they mean, and nothing is shared with the code that runs or plans them. What a
definition cannot express (a digit out of range, an index outside a block) is collected as a flaw.

An all-to-all is undone by first putting back what a dimension gained, then splitting what one lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import assert_never

from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Owner,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.typing import after
from redist.proofs.cuts import LARGEST_TABLE, cuts_of, join, split
from redist.proofs.positions import (
    Digits,
    Position,
    UnsupportedError,
    axes_of,
    chain,
    index,
    refit,
    regroup,
    translate,
)
from redist.proofs.terms import Formula, Sheet, Term
from redist.types.blocks import Offsets
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["Leaf", "Place", "Trace", "back", "chains", "flatten", "start", "step_chain", "symbolic"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A step outside any chunk or inside one: a part of a chunk runs the same trace as the whole, because the
    dimension that is cut is one that no step inside touches (a premise of typing).

    `label` numbers it as a reader would: `2`, or `2.1` inside a chunk.
    """

    label: str
    step: Step
    before: Layout
    following: Layout


def flatten(steps: Iterable[Step], layouts: Sequence[Layout], prefix: str = "") -> Iterator[Leaf]:
    """The leaves of a plan in order; `layouts` are those before each step."""
    for n, (step, before) in enumerate(zip(steps, layouts, strict=False), 1):
        if isinstance(step, Chunk):
            inner = [before]
            for part in step.steps:
                inner.append(after(part, inner[-1]))
            yield from flatten(step.steps, inner, f"{prefix}{n}.")
        else:
            yield Leaf(f"{prefix}{n}", step, before, after(step, before))


@dataclass(frozen=True, slots=True)
class Place:
    """A device of a layout's mesh and a local index in its block."""

    position: Position
    local: tuple[Term, ...]


@dataclass(slots=True)
class Trace:
    """What is known of an element on its way back: flaws, and the digits that a reduction summed over.

    `chains` are the digits of meshes whose layouts all have common ones; elsewhere every step has its own.
    `own` is where the receiver itself stood before the step last traced, None where that is no matter of digits.
    """

    sheet: Sheet
    chains: Mapping[Mesh, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    flaws: list[Formula] = field(default_factory=list[Formula])
    summed: list[tuple[Term, int]] = field(default_factory=list[tuple[Term, int]])
    own: Position | None = None

    def cuts(self, leaf: Leaf, side: str) -> tuple[int, ...]:
        """The digits in which positions are written on one side of a step."""
        mesh = (leaf.before if side == "before" else leaf.following).mesh
        cuts = self.chains.get(mesh) or step_chain(leaf, side)
        if cuts is None:
            raise UnsupportedError(f"axes of step {leaf.label} that are not cuts of one factorisation")
        return cuts


def symbolic(leaf: Leaf) -> bool:
    """Whether a step is encoded in digits rather than enumerated."""
    match leaf.step:
        case Permute(_, source):
            if not isinstance(source, Free):
                return False
        case Exchange(_, transfers):
            if not isinstance(transfers, Owner):
                return False
        case _:
            pass
    tables = (dim.rule for layout in (leaf.before, leaf.following) for dim in layout.dims)
    if any(isinstance(rule, Offsets) and len(rule.starts) > LARGEST_TABLE for rule in tables):
        return False
    return all(step_chain(leaf, side) is not None for side in ("before", "following"))


def stated_axes(step: Step, side: str) -> list[SubAxis]:
    """The (sub-)axes that a step names, on the mesh of one side."""
    match step:
        case Slice(axes, _) | AllGather(axes) | ReduceScatter(axes, _):
            return [axis for _, dim_axes in axes for axis in dim_axes]
        case AllToAll(moves, _):
            return [axis for axes, _, _ in moves for axis in axes]
        case AllReduce(axes):
            return list(axes)
        case Permute(_, source):
            groups = source.groups if isinstance(source, Free) else ()
            return [axis for group in groups for axis in group[side == "following"]]
        case Exchange():
            return []
        case Chunk():
            raise AssertionError("chunks are flattened")
        case _:
            assert_never(step)


def step_chain(leaf: Leaf, side: str) -> tuple[int, ...] | None:
    """The digits in which a step is written, on one side of it; steps on axes have one chain for both."""
    own = leaf.before if side == "before" else leaf.following
    axes = [own.mesh.resolve(axis) for axis in stated_axes(leaf.step, side)]
    if not isinstance(leaf.step, Permute | Exchange):
        axes += axes_of(leaf.before) + axes_of(leaf.following)
    return chain(own.mesh, [*axes, *axes_of(own)])


def chains(leaves: Sequence[Leaf], others: Iterable[Layout] = ()) -> dict[Mesh, tuple[int, ...]]:
    """The common digits of all layouts and steps on a mesh, for the meshes where there are any."""
    axes: dict[Mesh, list[SubAxis]] = {}
    for layout in [*others, *(layout for leaf in leaves for layout in (leaf.before, leaf.following))]:
        axes.setdefault(layout.mesh, []).extend(axes_of(layout))
    for leaf in leaves:
        for side, layout in (("before", leaf.before), ("following", leaf.following)):
            axes[layout.mesh] += map(layout.mesh.resolve, stated_axes(leaf.step, side))
    found = {mesh: chain(mesh, used) for mesh, used in axes.items()}
    return {mesh: cuts for mesh, cuts in found.items() if cuts is not None}


def start(sheet: Sheet, layout: Layout, place: Place) -> tuple[Term, ...]:
    """The global index of an element, from where its device's block starts."""
    cuts = cuts_of(layout)
    return tuple(
        cut.start(sheet, index(place.position.over(layout.mesh, dim.axes))) + local
        for cut, dim, local in zip(cuts, layout.dims, place.local, strict=True)
    )


def back(trace: Trace, leaf: Leaf, place: Place) -> Place:
    """Where an element of the layout after a step was before it. Raises UnsupportedError."""
    match leaf.step:
        case Slice(axes, _):
            return _back_axes(trace, leaf, place, gained=axes)
        case AllGather(axes):
            return _back_axes(trace, leaf, place, lost=tuple(i for i, _ in axes))
        case AllToAll(moves, _):
            gained: dict[int, tuple[SubAxis, ...]] = {}
            for axes, _, j in moves:
                gained[j] = gained.get(j, ()) + axes
            lost = tuple(dict.fromkeys(i for _, i, _ in moves))
            return _back_axes(trace, leaf, place, gained=tuple(gained.items()), lost=lost)
        case ReduceScatter(axes, _):
            reduced = [axis for _, dim_axes in axes for axis in dim_axes]
            return _back_axes(trace, leaf, place, gained=axes, reduced=reduced)
        case AllReduce(axes):
            return _back_axes(trace, leaf, place, reduced=axes)
        case Permute(_, source):
            assert isinstance(source, Free), "tables are enumerated"
            return _back_free(trace, leaf, source, place)
        case Exchange():
            return _back_owner(trace, leaf, place)
        case Chunk():
            raise AssertionError("chunks are flattened")
        case _:
            assert_never(leaf.step)


def _refit(trace: Trace, leaf: Leaf, side: str, position: Position) -> Position:
    return refit(trace.sheet, position, trace.cuts(leaf, side), f"d{leaf.label}", trace.flaws)


def _back_axes(
    trace: Trace,
    leaf: Leaf,
    place: Place,
    gained: Iterable[tuple[int, tuple[SubAxis, ...]]] = (),
    lost: Iterable[int] = (),
    reduced: Iterable[SubAxis] = (),
) -> Place:
    """`gained` in the order of appending; what dimensions of `lost` lose is the end of their axes before."""
    sheet, flaws, mesh = trace.sheet, trace.flaws, leaf.before.mesh
    here = _refit(trace, leaf, "before", place.position)
    old, new = cuts_of(leaf.before), cuts_of(leaf.following)
    local, sender = list(place.local), here
    trace.own = here
    for j, axes in gained:
        part = index(here.over(mesh, map(mesh.resolve, axes)))
        block = index(here.over(mesh, leaf.before.dims[j].axes))
        local[j] = split(sheet, old[j], new[j], block, part, local[j], flaws)
    for i in lost:
        dropped = here.numbers(mesh, leaf.before.dims[i].axes)[len(here.over(mesh, leaf.following.dims[i].axes)) :]
        sizes = [here.cuts[n + 1] // here.cuts[n] for n in dropped]
        block = index(here.over(mesh, leaf.following.dims[i].axes))
        digits, local[i] = join(sheet, new[i], old[i], block, sizes, local[i], flaws, f"q{leaf.label}")
        sender = sender.put(dropped, digits)
    for n in here.numbers(mesh, map(mesh.resolve, reduced)):
        size = here.cuts[n + 1] // here.cuts[n]
        term = sheet.bounded(f"sum{leaf.label}", size, domain=True)
        trace.summed.append((term, size))
        sender = sender.put([n], ((term, size),))
    return Place(sender, tuple(local))


def _back_free(trace: Trace, leaf: Leaf, source: Free, place: Place) -> Place:
    """The sender's index over each list of its axes is the receiver's over the paired list."""
    ours, theirs = leaf.before.mesh, leaf.following.mesh
    here = _refit(trace, leaf, "following", place.position)
    cuts = trace.cuts(leaf, "before")
    blank = Position(cuts, tuple(Term({}) for _ in cuts[1:]))
    sender = blank
    trace.own = _own_position(trace, leaf, here)
    for sending, receiving in [
        (leaf.before.partial_axes, leaf.following.partial_axes),
        *((a.axes, b.axes) for a, b in zip(leaf.before.dims, leaf.following.dims, strict=True)),
        *((tuple(map(ours.resolve, a)), tuple(map(theirs.resolve, b))) for a, b in source.groups),
    ]:
        numbers = blank.numbers(ours, sending)
        sizes = [cuts[n + 1] // cuts[n] for n in numbers]
        sender = sender.put(
            numbers, regroup(trace.sheet, here.over(theirs, receiving), sizes, f"p{leaf.label}", trace.flaws)
        )
    return Place(sender, place.local)


def _back_owner(trace: Trace, leaf: Leaf, place: Place) -> Place:
    """The owner holds the global index in its block; partial coordinates agree by index; on its other axes
    it has the receiver's own coordinates. Where those are no digits of the receiver's position (devices in
    another order, or outside the mesh before), any replica will do: all of them are ranged over."""
    sheet, before, following = trace.sheet, leaf.before, leaf.following
    here = _refit(trace, leaf, "following", place.position)
    wanted = start(sheet, following, Place(here, place.local))
    cuts = trace.cuts(leaf, "before")
    sender = _own_position(trace, leaf, here)
    if sender is None:
        sizes = [b // a for a, b in pairwise(cuts)]
        sender = Position(cuts, tuple(sheet.bounded(f"any{leaf.label}", n, domain=True) for n in sizes))
    trace.own = sender
    local: list[Term] = []
    for i, (dim, cut) in enumerate(zip(before.dims, cuts_of(before), strict=True)):
        numbers = sender.numbers(before.mesh, dim.axes)
        sizes = [cuts[n + 1] // cuts[n] for n in numbers]
        digits, rest = cut.locate(sheet, wanted[i], sizes, trace.flaws, f"o{leaf.label}")
        sender = sender.put(numbers, digits)
        local.append(rest)
    numbers = sender.numbers(before.mesh, before.partial_axes)
    sizes = [cuts[n + 1] // cuts[n] for n in numbers]
    contribution: Digits = here.over(following.mesh, following.partial_axes)
    sender = sender.put(numbers, regroup(sheet, contribution, sizes, f"c{leaf.label}", trace.flaws))
    return Place(sender, tuple(local))


def _own_position(trace: Trace, leaf: Leaf, here: Position) -> Position | None:
    """Where the receiver itself stood before a step, in the chain of that side; None where that is no
    matter of digits."""
    try:
        moved = translate(trace.sheet, here, leaf.following.mesh, leaf.before.mesh, f"t{leaf.label}", trace.flaws)
        return _refit(trace, leaf, "before", moved)
    except UnsupportedError:
        return None
