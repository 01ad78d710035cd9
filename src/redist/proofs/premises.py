"""T, typing: the premises of every step, looked at once more on digits, and the layout after it re-derived.

`redist.collectives.typing` says what layout follows a step; this module derives it independently from the
step's docstring and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import assert_never

import numpy as np

from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.typing import after
from redist.proofs.cuts import cuts_of
from redist.proofs.positions import Position, axes_of
from redist.proofs.terms import constant
from redist.proofs.trace import Leaf, step_chain
from redist.types.blocks import CEIL, BlockRule, Offsets, block_edges, canonical_rule
from redist.types.layout import Layout
from redist.types.mesh import Mesh, SubAxis

__all__ = ["chunk_problem", "problem"]

Lists = list[list[int]]


def problem(leaf: Leaf) -> str | None:
    """The premise that a step fails, or how the layout after it is not what the step makes; None if fine."""
    match leaf.step:
        case Permute():
            return _same_contents(leaf) or _permute(leaf, leaf.step)
        case Exchange(layout, _):
            return _same_contents(leaf) or (None if layout == leaf.following else "the layout after is another one")
        case Slice(axes, rules):
            return _on_axes(leaf, gained=axes, rules=dict(rules))
        case AllGather(axes):
            return _on_axes(leaf, lost=axes)
        case AllToAll(moves, rules):
            both = {i for _, i, _ in moves} & {j for _, _, j in moves}
            if both:
                return f"dimensions {sorted(both)} both lose and gain"
            gained, lost = [(j, axes) for axes, _, j in moves], [(i, axes) for axes, i, _ in moves]
            return _on_axes(leaf, gained, lost, rules=dict(rules))
        case ReduceScatter(axes, rules):
            reduced = [axis for _, dim_axes in axes for axis in dim_axes]
            return _on_axes(leaf, gained=axes, reduced=reduced, rules=dict(rules))
        case AllReduce(axes):
            return _on_axes(leaf, reduced=axes)
        case Chunk():
            raise AssertionError("chunks are flattened")
        case _:
            assert_never(leaf.step)


def _same_contents(leaf: Leaf) -> str | None:
    a, b = leaf.before, leaf.following
    if a.shape != b.shape or a.dtype != b.dtype:
        return "the layout after is of another array"
    counts = a.mesh.count(a.partial_axes), b.mesh.count(b.partial_axes)
    if counts[0] != counts[1]:
        return f"{counts[0]} contributions before and {counts[1]} after"
    if counts[0] > 1 and a.partial and b.partial and a.partial.reduction != b.partial.reduction:
        return "the reduction changes"
    return None


def _permute(leaf: Leaf, step: Permute) -> str | None:
    """Equal block counts and rules, as many devices; free axes are all that is unused, once on each side."""
    if step.layout != leaf.following:
        return "the layout after is another one"
    if leaf.before.mesh.size != leaf.following.mesh.size:
        return "the numbers of devices differ"
    for i, (a, b) in enumerate(zip(cuts_of(leaf.before), cuts_of(leaf.following), strict=True)):
        if a != b:
            return f"dimension {i} is cut in {a.count} blocks before and {b.count} after, or by another rule"
    if isinstance(step.source, Free):
        for layout, lists in (
            (leaf.before, [axes for axes, _ in step.source.groups]),
            (leaf.following, [axes for _, axes in step.source.groups]),
        ):
            free = [layout.mesh.resolve(axis) for axes in lists for axis in axes]
            if not _partition(layout.mesh, [*axes_of(layout), *free]):
                return "the free axes are not those that the layout leaves unused"
        for ours, theirs in step.source.groups:
            sent = leaf.before.mesh.count(map(leaf.before.mesh.resolve, ours))
            if sent != leaf.following.mesh.count(map(leaf.following.mesh.resolve, theirs)):
                return "free axes are paired with others of another size"
    return None


def _partition(mesh: Mesh, axes: Iterable[SubAxis]) -> bool:
    """Whether these axes are all of the mesh, each part once."""
    reached = 1
    for stride, size in sorted(map(mesh.digit, axes)):
        if size > 1:
            if stride != reached:
                return False
            reached *= size
    return reached == mesh.size


def _on_axes(
    leaf: Leaf,
    gained: Iterable[tuple[int, tuple[SubAxis, ...]]] = (),
    lost: Iterable[tuple[int, tuple[SubAxis, ...]]] = (),
    reduced: Iterable[SubAxis] = (),
    rules: Mapping[int, BlockRule] = MappingProxyType({}),
) -> str | None:
    """Lost axes are the minor end of their dimension, gained ones unused (or given up by the same step) and
    appended in the order stated; reduced ones were partial. Blocks nest; a dimension that was not sharded is
    cut by the rule stated, ceil by default."""
    before, mesh = leaf.before, leaf.before.mesh
    cuts = step_chain(leaf, "before")
    if cuts is None:
        return "its axes are not cuts of one factorisation"
    digits = Position(cuts, tuple(constant(0) for _ in cuts[1:]))

    def numbers(axes: Iterable[SubAxis]) -> list[int]:
        return digits.numbers(mesh, map(mesh.resolve, axes))

    dims: Lists = [numbers(dim.axes) for dim in before.dims]
    partial = numbers(before.partial_axes)
    dropped: dict[int, list[int]] = {}
    for i, axes in lost:
        dropped[i] = dropped.get(i, []) + numbers(axes)
    for i, leaving in dropped.items():
        kept = len(dims[i]) - len(leaving)
        if kept < 0 or set(dims[i][kept:]) != set(leaving) or len(set(leaving)) != len(leaving):
            return f"the axes that leave dimension {i} are not its minor end"
        dims[i] = dims[i][:kept]
    for n in (given := numbers(reduced)):
        if n not in partial:
            return "axes are reduced over which the value is not unreduced, or twice"
        partial.remove(n)
    growing: set[int] = set()
    for j, axes in gained:
        growing.add(j)
        for n in numbers(axes):
            if n in partial or any(n in used for used in dims):
                return f"dimension {j} gains axes that are in use"
            dims[j].append(n)
    following = leaf.following
    if given and before.partial and following.partial and before.partial.reduction != following.partial.reduction:
        return "the reduction changes"
    if following.mesh != mesh or [numbers(dim.axes) for dim in following.dims] != dims:
        return f"the layout after is not {following}"
    if sorted(numbers(following.partial_axes)) != sorted(partial):
        return f"the layout after is unreduced over other axes than {following}"
    for j in growing:
        size, count, rule = before.dims[j].size, mesh.count(following.dims[j].axes), before.dims[j].rule
        stated = rules.get(j, CEIL) if mesh.count(before.dims[j].axes) == 1 else rule
        if isinstance(stated, Offsets) and stated == rule and mesh.count(before.dims[j].axes) != count:
            return f"dimension {j} ({before.dims[j]}) has explicit offsets, which do not say how a block splits"
        if following.dims[j].rule != canonical_rule(size, count, stated):
            return f"dimension {j} is cut by another rule than {before.dims[j]} and the step say"
    return _nesting(before, following)


def _nesting(before: Layout, following: Layout) -> str | None:
    """Blocks that are split or joined start where the blocks they become or come from do."""
    for i, (a, b) in enumerate(zip(cuts_of(before), cuts_of(following), strict=True)):
        if a.count == b.count and a.rule == b.rule:
            continue
        if a.even and b.even:
            continue
        few, many = sorted((a, b), key=lambda cut: cut.count)
        blocks = np.arange(few.count + 1, dtype=np.int64)
        edges = block_edges(few.size, few.count, few.rule, blocks)
        finer = block_edges(many.size, many.count, many.rule, blocks * (many.count // few.count))
        if many.count % few.count or not np.array_equal(edges, finer):
            return f"blocks of dimension {i} do not nest: {before.dims[i]} and {following.dims[i]}"
    return None


def chunk_problem(step: Step, before: Layout) -> str | None:
    """Inside a chunk: 2 parts or more, no step touches the dimension or leaves the mesh."""
    if not isinstance(step, Chunk):
        return None
    if step.parts < 2 or not step.steps or not 0 <= step.dim < before.rank:
        return "a chunk has at least 2 parts and a step, and a dimension of the array"
    for inner in step.steps:
        following = after(inner, before)
        if following.mesh != before.mesh or following.dims[step.dim] != before.dims[step.dim]:
            return f"dimension {step.dim} is cut into parts, and a step inside touches it"
        found = chunk_problem(inner, before)
        if found:
            return found
        before = following
    return None
