"""Exact counts of what devices receive and miss, in elements."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Owner,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Transfer,
)
from redist.proofs.alike import Compared, with_classes
from redist.proofs.positions import axes_of, positions_by_id
from redist.proofs.spaces import Space, common_space, product, same_order, total
from redist.proofs.tables import coverage
from redist.proofs.trace import stated_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.proofs.trace import Leaf
    from redist.types.layout import Layout
    from redist.types.mesh import SubAxis

__all__ = ["Totals", "dropped", "exceptions", "received", "totals"]


def space_of(leaves: Sequence[Leaf], layouts: Sequence[Layout] = ()) -> Space | None:
    """Digits in which all layouts and steps are written; None where there are none."""
    axes = [(layout.mesh, axes_of(layout)) for layout in layouts]
    for leaf in leaves:
        for side, layout in (("before", leaf.before), ("following", leaf.following)):
            stated = map(layout.mesh.resolve, stated_axes(leaf.step, side))
            axes.append((layout.mesh, [*axes_of(layout), *stated]))
    meshes = [mesh for mesh, _ in axes]
    space = common_space(meshes[0], meshes, axes)
    every = [*layouts, *(layout for leaf in leaves for layout in (leaf.before, leaf.following))]
    if space is None or any(_listed(leaf) for leaf in leaves) or not all(layout.is_even() for layout in every):
        return space
    return with_classes(space, _compared(leaves, every))


def _listed(leaf: Leaf) -> bool:
    """Whether a step names devices one by one."""
    step = leaf.step
    return (isinstance(step, Permute) and isinstance(step.source, Pairs)) or (
        isinstance(step, Exchange) and not isinstance(step.transfers, Owner)
    )


def _compared(leaves: Sequence[Leaf], layouts: Sequence[Layout]) -> list[Compared]:
    """What the counts below compare: blocks by dimension, contributions, and the lists of permutes."""
    groups: list[Compared] = [
        [(layout.mesh, layout.dims[i].axes) for layout in layouts] for i in range(layouts[0].rank)
    ]
    groups.append([(layout.mesh, layout.partial_axes) for layout in layouts])
    for leaf in leaves:
        if isinstance(leaf.step, Permute) and isinstance(leaf.step.source, Free):
            pairs = _lists(leaf, leaf.step.source)
            groups += [[(leaf.before.mesh, ours), (leaf.following.mesh, theirs)] for ours, theirs in pairs]
    return groups


def _volumes(layout: Layout, space: Space | None) -> NDArray[np.int64]:
    if layout.is_even():
        return np.asarray(layout.block_elements(), dtype=np.int64)
    return product([upper - lower for lower, upper in (space or Space(layout.mesh)).edges(layout)])


def _overlap(held: Layout, wanted: Layout, space: Space | None, *, contribution: bool = False) -> NDArray[np.int64]:
    """Elements of a device's block in `wanted` that it has in `held`, by position of `wanted`'s mesh. With
    `contribution`, only where it is the same contribution."""
    partial = contribution and held.mesh.count(held.partial_axes) > 1
    here: NDArray[np.int64] | None = None
    factors: list[NDArray[np.int64]] = []
    if space is None and not same_order(wanted.mesh, held.mesh):
        where = positions_by_id(wanted.mesh, held.mesh)
        here = np.maximum(where, 0)
        factors.append((where >= 0).astype(np.int64))
    edges = (space or Space(wanted.mesh)).edges(wanted)
    for (lower, upper), (start, stop) in zip(edges, (space or Space(held.mesh)).edges(held), strict=True):
        first, last = (start, stop) if here is None else (start[here], stop[here])
        factors.append(np.maximum(np.minimum(upper, last) - np.maximum(lower, first), 0))
    if partial:
        ours = (space or Space(held.mesh)).index(held.mesh, held.partial_axes)
        theirs = (space or Space(wanted.mesh)).index(wanted.mesh, wanted.partial_axes)
        factors.append(((ours if here is None else ours[here]) == theirs).astype(np.int64))
    return product(factors)


# -- steps ---------------------------------------------------------------------------------------------


def _lists(leaf: Leaf, source: Free) -> list[tuple[Sequence[SubAxis], Sequence[SubAxis]]]:
    """Paired lists of a permute's axes, the sender's and the receiver's."""
    before, following = leaf.before.mesh, leaf.following.mesh
    return [
        (leaf.before.partial_axes, leaf.following.partial_axes),
        *((a.axes, b.axes) for a, b in zip(leaf.before.dims, leaf.following.dims, strict=True)),
        *((tuple(map(before.resolve, a)), tuple(map(following.resolve, b))) for a, b in source.groups),
    ]


def _moved(leaf: Leaf, step: Permute, space: Space | None) -> NDArray[np.int64]:
    """1 for each device that gets another device's block, 0 for the others."""
    before, following = leaf.before.mesh, leaf.following.mesh
    match step.source:
        case Pairs(pairs):
            taken = {receiver: sender for sender, receiver in pairs}
            senders = np.asarray([taken[device] for device in following.device_ids], dtype=np.int64)
            return _in_digits((senders != following.id_array()).astype(np.int64), space)
        case Free():
            if space is not None:
                differing: list[NDArray[np.bool_]] = []
                for ours, theirs in _lists(leaf, step.source):
                    value = space.index(following, theirs)
                    for n in reversed(space.digits(before, ours)):
                        differing.append(value % space.size(n) != space.coordinate(n))
                        value = value // space.size(n)
                equal = product([(~d).astype(np.int64) for d in differing]) if differing else np.asarray(1)
                return 1 - equal
            flat = Space(following)
            found = np.zeros(following.size, dtype=np.int64)
            for ours, theirs in _lists(leaf, step.source):
                value = flat.index(following, theirs)
                for stride, size in reversed([before.digit(axis) for axis in ours]):
                    found += value % size * stride
                    value = value // size
            return (before.id_array()[found] != following.id_array()).astype(np.int64)
        case _:
            assert_never(step.source)


def _in_digits(by_position: NDArray[np.int64], space: Space | None) -> NDArray[np.int64]:
    if space is None or space.cuts is None:
        return by_position
    return by_position.reshape([space.size(n) for n in reversed(range(len(space.cuts) - 1))])


def received(leaf: Leaf, space: Space | None) -> NDArray[np.int64]:
    """Elements that each device receives in a step: over the digits of a space, else by position after it."""
    before, following = leaf.before, leaf.following
    match leaf.step:
        case Slice():
            return np.asarray(0, dtype=np.int64)
        case AllGather() | AllToAll():
            return total([_volumes(following, space), -_overlap(before, following, space)])
        case ReduceScatter(axes, _):
            joined = before.mesh.count(before.mesh.resolve(a) for _, dim_axes in axes for a in dim_axes)
            return (joined - 1) * _volumes(following, space)
        case AllReduce(axes):
            joined = before.mesh.count(map(before.mesh.resolve, axes))
            return -(-2 * (joined - 1) * _volumes(before, space) // joined)
        case Permute():
            return product([_moved(leaf, leaf.step, space), _volumes(following, space)])
        case Exchange(_, transfers):
            if isinstance(transfers, Owner):
                kept = _overlap(before, following, space, contribution=True)
                return total([_volumes(following, space), -kept])
            return _incoming(leaf, transfers, space)
        case Chunk():
            raise AssertionError("chunks are flattened")
        case _:
            assert_never(leaf.step)


def _incoming(leaf: Leaf, transfers: Sequence[Transfer], space: Space | None) -> NDArray[np.int64]:
    mesh = leaf.following.mesh
    at = dict(zip(mesh.device_ids, range(mesh.size), strict=True))
    sums = np.zeros(mesh.size, dtype=np.int64)
    for t in transfers:
        if t.sender != t.receiver:
            sums[at[t.receiver]] += math.prod(b - a for a, b in zip(t.starts, t.stops, strict=True))
    return _in_digits(sums, space)


def exceptions(leaf: Leaf) -> int:
    """Elements, over all devices, that a device receives in a step though it holds them, or receives again."""
    match leaf.step:
        case Permute():
            space = space_of([leaf])
            held = _overlap(leaf.before, leaf.following, space, contribution=True)
            twice = product([_moved(leaf, leaf.step, space), held])
            return (space or Space(leaf.following.mesh)).over_devices(twice)
        case Exchange(_, transfers) if not isinstance(transfers, Owner):
            return _repeated(leaf, transfers)
        case _:
            return 0


def _repeated(leaf: Leaf, transfers: Sequence[Transfer]) -> int:
    before, following = leaf.before, leaf.following
    lower, upper = (edges.tolist() for edges in following.boxes())
    held_lower, held_upper = (edges.tolist() for edges in before.boxes())
    where = positions_by_id(following.mesh, before.mesh).tolist()
    ours, theirs = before.mesh.index(before.partial_axes), following.mesh.index(following.partial_axes)
    incoming: dict[int, list[Transfer]] = {}
    for t in transfers:
        if t.sender != t.receiver:
            incoming.setdefault(t.receiver, []).append(t)
    found = 0
    for r, device in enumerate(following.mesh.device_ids):
        boxes = [(t.starts, t.stops) for t in incoming.get(device, [])]
        own = where[r] >= 0 and ours[where[r]] == theirs[r]
        if own and boxes:
            boxes.append((held_lower[where[r]], held_upper[where[r]]))
        covered = coverage(lower[r], upper[r], boxes)
        if covered is None or not boxes:
            continue
        counts, edges = covered
        for cell in np.argwhere(counts > 1):
            volume = math.prod(e[int(n) + 1] - e[int(n)] for e, n in zip(edges, cell, strict=True))
            found += volume * (int(counts[tuple(cell)]) - 1)
    return found


# -- plans ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Totals:
    """What devices receive and what they miss. An entry stands for one of them or more, the first of which
    `device` names; `alike` says that there is but one entry."""

    received: NDArray[np.int64]
    missing: NDArray[np.int64]
    ids: NDArray[np.int64] | None
    space: Space | None

    @property
    def alike(self) -> bool:
        """Whether all devices receive and miss the same."""
        return self.received.size == 1

    def over_devices(self, counts: NDArray[Any]) -> int:
        """The sum of a count over all devices."""
        return int(counts.sum()) if self.space is None else self.space.over_devices(counts)

    def device(self, entry: int) -> int:
        """Id of the first device of an entry, counted row-major."""
        if self.ids is not None:
            return int(self.ids[entry])
        assert self.space is not None
        return int(self.space.mesh.device_ids[self.space.position(self.received.shape, entry)])


def totals(leaves: Sequence[Leaf], source: Layout, target: Layout) -> Totals:
    """Add up all steps, over all devices that are in any mesh of the plan; what is missing is counted with
    partial axes aside. Raises TooManyDevicesError."""
    space = space_of(leaves, (source, target))
    parts = [(leaf.following.mesh, received(leaf, space)) for leaf in leaves]
    gap = total([_volumes(target, space), -_overlap(source, target, space)])
    if space is not None:
        got, lacking = np.broadcast_arrays(total([count for _, count in parts]), gap)
        return Totals(got, lacking, None, space)
    meshes = [source.mesh, target.mesh, *(mesh for mesh, _ in parts)]
    ids = np.unique(np.concatenate([mesh.id_array() for mesh in meshes]))
    sums = np.zeros((2, len(ids)), dtype=np.int64)
    for row, mesh, count in [*((0, mesh, count) for mesh, count in parts), (1, target.mesh, gap)]:
        sums[row, np.searchsorted(ids, mesh.id_array())] += count
    return Totals(sums[0], sums[1], ids, None)


def dropped(leaves: Sequence[Leaf], target: Layout, space: Space | None) -> int | None:
    """Elements, over all devices and steps, that a device receives and that its target block does not have;
    None where the plan's layouts have no common digits, values are unreduced, or transfers are listed."""
    if space is None or any(leaf.before.mesh.count(leaf.before.partial_axes) > 1 for leaf in leaves):
        return None
    if any(isinstance(leaf.step, Exchange) and not isinstance(leaf.step.transfers, Owner) for leaf in leaves):
        return None
    found = 0
    for leaf in leaves:
        match leaf.step:
            case Slice():
                continue
            case Permute():
                arrived = [leaf.following]
                times = _moved(leaf, leaf.step, space)
            case _:
                arrived = [leaf.following, leaf.before]
                times = np.asarray(1, dtype=np.int64)
        kept = _shared([leaf.following, target], space)
        if len(arrived) > 1:
            kept = total([kept, -_shared([*arrived, target], space)])
        gone = product([times, total([received(leaf, space), -kept])])
        found += space.over_devices(gone)
    return found


def _shared(layouts: Sequence[Layout], space: Space) -> NDArray[np.int64]:
    """Elements in the boxes of all layouts."""
    factors: list[NDArray[np.int64]] = []
    for edges in zip(*(space.edges(layout) for layout in layouts), strict=True):
        lower = functools.reduce(np.maximum, [start for start, _ in edges])
        upper = functools.reduce(np.minimum, [stop for _, stop in edges])
        factors.append(np.maximum(upper - lower, 0))
    return product(factors)
