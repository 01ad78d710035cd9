"""What one device cuts, sends, receives and reduces in each step, in coordinates of its own blocks.

Pure NumPy. Steps on axes move boxes inside groups of devices, which differ in the digits that the step
moves; permutes and exchanges move what their data says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import numpy as np

from redist.collectives.backends.numpy import each_transfer
from redist.collectives.bijection import senders
from redist.collectives.steps import AllGather, AllReduce, AllToAll, Exchange, Permute, ReduceScatter, Slice
from redist.collectives.typing import chunk_parts
from redist.types.digits import align

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.layout import Layout, Reduction

__all__ = [
    "Box",
    "Cut",
    "Gather",
    "Grouping",
    "Message",
    "Move",
    "Op",
    "Reduce",
    "Send",
    "Window",
    "box_size",
    "is_contiguous",
    "op_of",
    "overlapping",
]

Box = tuple[slice, ...]
"""Part of a block: one slice with known ends per dimension."""

Grouping = tuple[tuple[int, ...], ...]
"""Disjoint groups of device ids, the same on all ranks; each group has a communicator, in this order."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of every block, along one dimension, that a chunk is working on."""

    dim: int
    part: int
    parts: int

    def of(self, length: int) -> tuple[int, int]:
        """(start, stop) inside a block of this length."""
        return chunk_parts(length, self.parts)[self.part]


@dataclass(frozen=True, slots=True)
class Message:
    """Boxes of one's own block that go to, or come from, a peer (place in the group), in this order."""

    peer: int
    boxes: tuple[Box, ...]

    def elements(self) -> int:
        """How many elements it has."""
        return sum(map(box_size, self.boxes))


@dataclass(frozen=True, slots=True)
class Cut:
    """The target block is a box of the source block."""

    box: Box


@dataclass(frozen=True, slots=True)
class Move:
    """Boxes go to and come from peers of the group; `keeps` are (box of the source, box of the target)."""

    grouping: Grouping
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    keeps: tuple[tuple[Box, Box], ...]


@dataclass(frozen=True, slots=True)
class Send:
    """A whole block goes to `receiver` and one comes from `sender` (device ids); None: there is none.

    Both are this device where it keeps its block.
    """

    receiver: int | None
    sender: int | None


@dataclass(frozen=True, slots=True)
class Gather:
    """Every member of the group contributes its block; `places` are their boxes in the target block."""

    grouping: Grouping
    here: int
    places: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """Blocks of the group are reduced. Member m is left with the box `pieces[m]` of the result, or every
    member with all of it where `pieces` is None."""

    grouping: Grouping
    here: int
    reduction: Reduction
    pieces: tuple[Box, ...] | None


Op = Cut | Move | Send | Gather | Reduce
Uniform = AllGather | AllToAll | ReduceScatter | AllReduce
Boxes = tuple["NDArray[np.int64]", "NDArray[np.int64]"]


def box_size(box: Box) -> int:
    """Elements of a box."""
    return math.prod(part.stop - part.start for part in box)


def is_contiguous(box: Box, shape: Sequence[int]) -> bool:
    """Whether the elements of a box lie side by side in a C-ordered block of this shape."""
    lengths = [part.stop - part.start for part in box]
    partial = [i for i, (length, full) in enumerate(zip(lengths, shape, strict=True)) if length != full]
    return 0 in lengths or not partial or all(length == 1 for length in lengths[: partial[-1]])


def op_of(
    step: Slice | Uniform | Permute | Exchange,
    before: Layout,
    following: Layout,
    windows: Sequence[Window],
    device: int,
) -> Op:
    """What the device does in a step, on the windows of the blocks before and after it.

    Devices without a block before and after take part in nothing; their op says so by being empty.
    """
    held, wanted = _windowed(before, windows), _windowed(following, windows)
    match step:
        case Slice():
            p = _position(before, device)
            return Cut(() if p is None else _inside(wanted[0][p], wanted[1][p], held[0][p]))
        case AllGather():
            grouping, here, members = _group(step, before, following, device)
            if here is None:
                return Gather(grouping, 0, ())
            p = members[here]
            places = tuple(_inside(held[0][m], held[1][m], wanted[0][p]) for m in members)
            return Gather(grouping, here, places)
        case AllToAll():
            return _all_to_all(step, before, following, held, wanted, device)
        case ReduceScatter() | AllReduce():
            grouping, here, members = _group(step, before, following, device)
            reduction: Reduction = before.partial.reduction if before.partial else "sum"
            if here is None or isinstance(step, AllReduce):
                return Reduce(grouping, here or 0, reduction, None)
            p = members[here]
            return Reduce(
                grouping, here, reduction, tuple(_inside(wanted[0][m], wanted[1][m], held[0][p]) for m in members)
            )
        case Permute():
            return _send(step, before, device)
        case Exchange():
            return _exchange(step, before, held, wanted, device)
        case _:
            assert_never(step)


def _windowed(layout: Layout, windows: Iterable[Window]) -> Boxes:
    """Global boxes of all devices, cut to the windows."""
    starts, stops = layout.boxes()
    for window in windows:
        length = stops[:, window.dim] - starts[:, window.dim]
        size = -(-length // window.parts)
        first = starts[:, window.dim].copy()
        starts[:, window.dim] = first + np.minimum(window.part * size, length)
        stops[:, window.dim] = first + np.minimum((window.part + 1) * size, length)
    return starts, stops


def _position(layout: Layout, device: int) -> int | None:
    try:
        return layout.mesh.device_ids.index(device)
    except ValueError:
        return None


def _inside(starts: NDArray[np.int64], stops: NDArray[np.int64], origin: NDArray[np.int64]) -> Box:
    return tuple(slice(a - o, b - o) for a, b, o in zip(starts.tolist(), stops.tolist(), origin.tolist(), strict=True))


def _group(
    step: Uniform, before: Layout, following: Layout, device: int
) -> tuple[Grouping, int | None, tuple[int, ...]]:
    """(all groups, this device's place in its own, positions of its members). Members are in the order in
    which the step joins or splits blocks."""
    alignment = align((before, following))
    assert alignment is not None, f"{before} and {following} are layouts of one mesh"
    first, second = alignment.forms
    lost = [d for a, b in zip(first.dims, second.dims, strict=True) for d in a[len(b) :]]
    gained = [d for a, b in zip(first.dims, second.dims, strict=True) for d in b[len(a) :]]
    match step:
        case AllGather():
            digits = lost
        case AllToAll() | ReduceScatter():
            digits = gained
        case AllReduce():
            digits = [d for d in first.partial if d not in second.partial]
        case _:
            assert_never(step)
    position = np.arange(before.mesh.size)
    base, index = position.copy(), np.zeros_like(position)
    for d in digits:
        stride, size = alignment.strides[d], alignment.sizes[d]
        coordinate = position // stride % size
        base -= coordinate * stride
        index = index * size + coordinate
    rows = np.lexsort((index, base)).reshape(-1, alignment.count(digits))
    ids = before.mesh.device_ids
    grouping = tuple(tuple(ids[p] for p in row) for row in rows.tolist())
    here = _position(before, device)
    if here is None:
        return grouping, None, ()
    row, place = (int(n[0]) for n in np.nonzero(rows == here))
    return grouping, place, tuple(rows[row].tolist())


def _all_to_all(step: AllToAll, before: Layout, following: Layout, held: Boxes, wanted: Boxes, device: int) -> Move:
    grouping, here, members = _group(step, before, following, device)
    if here is None:
        return Move(grouping, (), (), ())
    me, at = members[here], np.asarray(members)
    out = np.maximum(wanted[0][at], held[0][me]), np.minimum(wanted[1][at], held[1][me])
    into = np.maximum(held[0][at], wanted[0][me]), np.minimum(held[1][at], wanted[1][me])
    sends = [
        Message(m, (_inside(out[0][m], out[1][m], held[0][me]),))
        for m in np.flatnonzero((out[0] < out[1]).all(axis=1)).tolist()
    ]
    receives = [
        Message(m, (_inside(into[0][m], into[1][m], wanted[0][me]),))
        for m in np.flatnonzero((into[0] < into[1]).all(axis=1)).tolist()
    ]
    return _without_self(grouping, here, sends, receives)


def _without_self(grouping: Grouping, here: int, sends: list[Message], receives: list[Message]) -> Move:
    kept_from = [box for message in sends if message.peer == here for box in message.boxes]
    kept_to = [box for message in receives if message.peer == here for box in message.boxes]
    return Move(
        grouping,
        tuple(message for message in sends if message.peer != here),
        tuple(message for message in receives if message.peer != here),
        tuple(zip(kept_from, kept_to, strict=True)),
    )


def _send(step: Permute, before: Layout, device: int) -> Send:
    order = senders(step, before)
    ids = before.mesh.id_array()
    here, target = _position(before, device), _position(step.layout, device)
    receiver = None
    if here is not None:
        receiver = int(step.layout.mesh.id_array()[int(np.flatnonzero(order == here)[0])])
    return Send(receiver, None if target is None else int(ids[order[target]]))


def _exchange(step: Exchange, before: Layout, held: Boxes, wanted: Boxes, device: int) -> Move:
    ids = tuple(sorted({*before.mesh.device_ids, *step.layout.mesh.device_ids}))
    here, target = _position(before, device), _position(step.layout, device)
    place = {device_id: n for n, device_id in enumerate(ids)}
    sends: dict[int, list[Box]] = {}
    receives: dict[int, list[Box]] = {}
    target_ids, source_ids = step.layout.mesh.device_ids, before.mesh.device_ids

    def emit(sender: int, receiver: int, starts: Sequence[int], stops: Sequence[int]) -> None:
        lower, upper = np.asarray(starts), np.asarray(stops)
        if sender == here:
            sends.setdefault(place[target_ids[receiver]], []).append(_inside(lower, upper, held[0][sender]))
        if receiver == target:
            receives.setdefault(place[source_ids[sender]], []).append(_inside(lower, upper, wanted[0][receiver]))

    each_transfer(step, before, held, _concerning(held, wanted, here, target), emit)
    return _without_self(
        (ids,),
        place.get(device, -1),
        [Message(peer, tuple(boxes)) for peer, boxes in sorted(sends.items())],
        [Message(peer, tuple(boxes)) for peer, boxes in sorted(receives.items())],
    )


def _concerning(held: Boxes, wanted: Boxes, here: int | None, target: int | None) -> Boxes:
    """The wanted boxes, emptied where nothing can come from or go to this device."""
    kept = np.zeros(len(wanted[0]), dtype=bool)
    if here is not None:
        kept |= (np.maximum(wanted[0], held[0][here]) < np.minimum(wanted[1], held[1][here])).all(axis=1)
    if target is not None:
        kept[target] = True
    return wanted[0], np.where(kept[:, None], wanted[1], wanted[0])


def overlapping(boxes: Sequence[Box]) -> bool:
    """Whether two of the boxes share an element."""
    return any(
        all(a.start < b.stop and b.start < a.stop for a, b in zip(one, other, strict=True))
        for one, other in itertools.combinations(boxes, 2)
    )
