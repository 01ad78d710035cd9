"""What has no digits, checked device by device in NumPy: tables of pairs and transfers, arbitrary device lists.

A step is right when, if every device holds its block before it, every device holds its block after it. Each
check returns None, or what is wrong and where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

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
from redist.proofs.positions import positions_by_id
from redist.types.blocks import block_edges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from redist.proofs.trace import Leaf
    from redist.types.layout import Layout

__all__ = ["Fault", "check_ending", "check_step"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A device whose block is wrong, the local index of one wrong element, and the reason."""

    device: int
    local: tuple[int, ...]
    reason: str


def check_step(leaf: Leaf) -> Fault | None:
    """Whether a step leaves every device with its block, by enumeration."""
    match leaf.step:
        case Permute(_, source):
            match source:
                case Pairs(pairs):
                    return _check_pairs(leaf, pairs)
                case Free():
                    return _check_edges(leaf)
                case _:
                    assert_never(source)
        case Exchange(_, transfers):
            return _check_edges(leaf) if isinstance(transfers, Owner) else _check_transfers(leaf, transfers)
        case Slice() | AllGather() | AllToAll() | ReduceScatter() | AllReduce():
            return _check_edges(leaf)
        case Chunk():
            raise AssertionError("chunks are flattened")
        case _:
            assert_never(leaf.step)


def _fault(layout: Layout, position: int, reason: str, local: Sequence[int] | None = None) -> Fault:
    return Fault(layout.mesh.device_ids[position], tuple(local or (0,) * layout.rank), reason)


def _check_edges(leaf: Leaf) -> Fault | None:
    """Steps whose digits are right by typing: blocks start where the blocks they are cut from or joined to do."""
    for i, (a, b) in enumerate(zip(leaf.before.dims, leaf.following.dims, strict=True)):
        counts = leaf.before.mesh.count(a.axes), leaf.following.mesh.count(b.axes)
        edges = [
            block_edges(dim.size, count, dim.rule, np.arange(count + 1))
            for dim, count in zip((a, b), counts, strict=True)
        ]
        if isinstance(leaf.step, Exchange):  # the owner exists: blocks before cover the dimension
            nested = edges[0][0] == 0 and edges[0][-1] == a.size and bool((np.diff(edges[0]) >= 0).all())
        elif max(counts) % min(counts) == 0:
            few, many = sorted(edges, key=len)
            nested = np.array_equal(few, many[:: max(counts) // min(counts)])
        else:
            nested = False
        if not nested:
            return _fault(leaf.following, 0, f"blocks of dimension {i}, {a} and {b}, do not nest")
    return None


def _contribution(layout: Layout) -> NDArray[np.int64]:
    return layout.mesh.index(layout.partial_axes)


def _check_pairs(leaf: Leaf, pairs: tuple[tuple[int, int], ...]) -> Fault | None:
    """Every receiver has one sender, whose block and contribution are the ones the receiver should hold."""
    before, following = leaf.before, leaf.following
    at = dict(zip(before.mesh.device_ids, range(before.mesh.size), strict=True))
    by_receiver = {receiver: at.get(sender, -1) for sender, receiver in pairs}
    sender = np.asarray([by_receiver.get(device, -1) for device in following.mesh.device_ids])
    if len(pairs) != following.mesh.size or (sender < 0).any() or len(set(sender.tolist())) != len(sender):
        position = int(np.argmax(sender < 0))
        return _fault(following, position, "no device of the mesh sends to it, or one sends twice")
    if before.shape and 0 in before.shape:
        return None
    (held, held_stops), (wanted, wanted_stops) = before.boxes(), following.boxes()
    wrong = np.any((held[sender] != wanted) | (held_stops[sender] != wanted_stops), axis=1)
    wrong |= _contribution(before)[sender] != _contribution(following)
    if not wrong.any():
        return None
    position = int(np.argmax(wrong))
    origin = tuple(held[sender[position]].tolist())
    due = tuple(wanted[position].tolist())
    return _fault(following, position, f"the block that it gets starts at {origin}, not {due}")


def _check_transfers(leaf: Leaf, transfers: tuple[Transfer, ...]) -> Fault | None:
    """Boxes lie in the blocks of both ends, agree in contribution, and cover every receiver's block."""
    before, following = leaf.before, leaf.following
    held, wanted = before.boxes(), following.boxes()
    ours, theirs = _contribution(before), _contribution(following)
    source_at = dict(zip(before.mesh.device_ids, range(before.mesh.size), strict=True))
    target_at = dict(zip(following.mesh.device_ids, range(following.mesh.size), strict=True))
    boxes: dict[int, list[Transfer]] = {position: [] for position in range(following.mesh.size)}
    for t in transfers:
        if t.sender not in source_at or t.receiver not in target_at:
            return _fault(following, 0, f"{t} is between devices that are not in the meshes")
        s, r = source_at[t.sender], target_at[t.receiver]
        outside = (
            (np.asarray(t.starts) < np.maximum(held[0][s], wanted[0][r]))
            | (np.asarray(t.stops) > np.minimum(held[1][s], wanted[1][r]))
        ).any()
        if outside or ours[s] != theirs[r]:
            local = (np.maximum(t.starts, wanted[0][r]) - wanted[0][r]).tolist()
            what = "lies outside a block" if outside else "is of another contribution"
            return _fault(following, r, f"the box {t.starts} to {t.stops} from device {t.sender} {what}", local)
        boxes[r].append(t)
    for r, received in boxes.items():
        lower, upper = wanted[0][r].tolist(), wanted[1][r].tolist()
        gap = first_gap(lower, upper, [(t.starts, t.stops) for t in received])
        if gap is not None:
            local = [g - a for g, a in zip(gap, lower, strict=True)]
            return _fault(following, r, "no transfer brings this element", local)
    return None


def first_gap(
    lower: Sequence[int], upper: Sequence[int], boxes: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> tuple[int, ...] | None:
    """The first element of a box that no other box covers; None where all are."""
    covered = coverage(lower, upper, boxes)
    if covered is None:
        return None
    counts, edges = covered
    if (counts > 0).all():
        return None
    cell = np.argwhere(counts == 0)[0]
    return tuple(e[int(n)] for e, n in zip(edges, cell, strict=True))


def coverage(
    lower: Sequence[int], upper: Sequence[int], boxes: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> tuple[NDArray[np.int64], list[list[int]]] | None:
    """How often each cell of the grid that all edges make is covered; None for a box without elements."""
    if any(a >= b for a, b in zip(lower, upper, strict=True)):
        return None
    edges: list[list[int]] = []
    for i, (a, b) in enumerate(zip(lower, upper, strict=True)):
        inner = {e for box in boxes for e in (box[0][i], box[1][i]) if a <= e <= b}
        edges.append(sorted(inner | {a, b}))
    counts = np.zeros([len(e) - 1 for e in edges], dtype=np.int64)
    for starts, stops in boxes:
        cells = tuple(
            slice(int(np.searchsorted(e, max(p, e[0]))), int(np.searchsorted(e, min(q, e[-1]))))
            for e, p, q in zip(edges, starts, stops, strict=True)
        )
        counts[cells] += 1
    return counts, edges


def check_ending(last: Layout, goal: Layout) -> Fault | None:
    """Whether every device of `goal`, by id, holds the same box and the same contribution in `last`."""
    where = positions_by_id(goal.mesh, last.mesh)
    if (where < 0).any() or goal.mesh.size != last.mesh.size:
        return _fault(goal, int(np.argmax(where < 0)), "the plan does not end on this device, or ends on others too")
    held, wanted = (np.stack(layout.boxes(), axis=1) for layout in (last, goal))
    held = held[where]
    shapes = held[:, 1] - held[:, 0], wanted[:, 1] - wanted[:, 0]
    wrong = np.any(shapes[0] != shapes[1], axis=1)
    wrong |= np.any(held[:, 0] != wanted[:, 0], axis=1) & np.all(shapes[1] > 0, axis=1)
    if wrong.any():
        position = int(np.argmax(wrong))
        origin = tuple(held[position, 0].tolist()), tuple(held[position, 1].tolist())
        return _fault(goal, position, f"its block is {origin[0]} to {origin[1]}")
    ours, theirs = _contribution(last)[where], _contribution(goal)
    pairs = set(zip(ours.tolist(), theirs.tolist(), strict=True))
    if len(pairs) != len(set(ours.tolist())) or len(pairs) != len(set(theirs.tolist())):
        return _fault(goal, 0, f"the value is unreduced over other devices in {last} than in {goal}")
    return None
