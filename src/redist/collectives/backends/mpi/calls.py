"""Stages as MPI calls. Each is prepared (packed), posted, and finished (unpacked).

Blocks come as bits (see `arena.bits_of`); boxes that are contiguous travel without packing. With datatypes
nothing is packed, except what a stage receives more than once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.mpi.datatypes import Datatypes, address
from redist.collectives.backends.mpi.geometry import Box, Gather, Message, Move, Reduce, Send, box_size, overlapping
from redist.collectives.backends.mpi.reductions import reduction
from redist.collectives.backends.mpi.runtime import mpi

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Posted", "gather", "move", "reduce", "send"]


@dataclass(frozen=True, slots=True)
class Posted:
    """What is under way: wait for the requests, then call `finish`."""

    requests: tuple[Any, ...] = ()
    finish: Callable[[], None] = lambda: None


Prepared = Callable[[], Posted]
"""Posts what has been prepared."""

_NOTHING: Prepared = Posted
_ALIGNMENT = 64


def _flat(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)


def _whole(array: NDArray[Any]) -> Box:
    return tuple(slice(0, length) for length in array.shape)


class _Packing:
    """Boxes one after another in staging memory."""

    def __init__(self, staging: NDArray[np.uint8], like: NDArray[Any], boxes: Iterable[Box]) -> None:
        self._places: list[tuple[Box, NDArray[Any]]] = []
        self.size = 0
        for box in boxes:
            shape = tuple(part.stop - part.start for part in box)
            size = box_size(box) * like.itemsize
            self._places.append((box, staging[self.size : self.size + size].view(like.dtype).reshape(shape)))
            self.size += size
        self.bytes = staging[: self.size]
        self.rest = staging[-(-self.size // _ALIGNMENT) * _ALIGNMENT :]

    def pack(self, source: NDArray[Any]) -> None:
        for box, place in self._places:
            place[...] = source[box]

    def unpack(self, target: NDArray[Any]) -> None:
        for box, place in self._places:
            target[box] = place


def _boxes(messages: Sequence[Message]) -> list[Box]:
    return [box for message in messages for box in message.boxes]


def _direct(array: NDArray[Any], messages: Sequence[Message]) -> bool:
    """Whether every message is one contiguous box of a contiguous block."""
    return array.flags.c_contiguous and all(
        len(message.boxes) == 1 and array[message.boxes[0]].flags.c_contiguous for message in messages
    )


def _offset(array: NDArray[Any], box: Box) -> int:
    return sum(part.start * stride for part, stride in zip(box, array.strides, strict=True))


def _spans(
    messages: Sequence[Message], size: int, itemsize: int, offsets: Iterable[int]
) -> tuple[list[int], list[int]]:
    """(counts, displacements) in bytes, by rank of the group."""
    counts, displacements = [0] * size, [0] * size
    for message, offset in zip(messages, offsets, strict=True):
        counts[message.peer], displacements[message.peer] = message.elements() * itemsize, offset
    return counts, displacements


def _successive(messages: Sequence[Message], itemsize: int) -> list[int]:
    return list(itertools.accumulate((m.elements() * itemsize for m in messages), initial=0))[:-1]


@dataclass(frozen=True, slots=True)
class _Side:
    """What one side of a move hands to Alltoallv, and the staging memory behind it."""

    buffer: NDArray[np.uint8]
    counts: list[int]
    displacements: list[int]
    packing: _Packing | None

    @staticmethod
    def of(array: NDArray[Any] | None, messages: Sequence[Message], size: int, staging: NDArray[np.uint8]) -> _Side:
        if array is None or not messages:
            return _Side(np.empty(0, np.uint8), [0] * size, [0] * size, None)
        if _direct(array, messages):
            offsets = [_offset(array, message.boxes[0]) for message in messages]
            return _Side(_flat(array), *_spans(messages, size, array.itemsize, offsets), None)
        packing = _Packing(staging, array, _boxes(messages))
        spans = _spans(messages, size, array.itemsize, _successive(messages, array.itemsize))
        return _Side(packing.bytes, *spans, packing)

    def spec(self) -> list[Any]:
        return [self.buffer, self.counts, self.displacements, mpi().BYTE]


def move(
    op: Move,
    comm: Any,
    source: NDArray[Any] | None,
    target: NDArray[Any] | None,
    staging: NDArray[np.uint8],
    datatypes: Datatypes | None,
) -> Prepared:
    """Boxes to and from peers by one Alltoallv, or Alltoallw where `datatypes` is given."""

    def keep() -> None:
        if source is not None and target is not None:
            for ours, theirs in op.keeps:
                target[theirs] = source[ours]

    def local() -> Posted:
        keep()
        return Posted()

    if comm is None or comm.size == 1:
        return local
    if datatypes is not None:
        return _move_in_place(op, comm, source, target, staging, datatypes, keep)
    sent = _Side.of(source, op.sends, comm.size, staging)
    rest = sent.packing.rest if sent.packing else staging
    received = _Side.of(target, op.receives, comm.size, rest)
    if sent.packing is not None and source is not None:
        sent.packing.pack(source)

    def post() -> Posted:
        request = comm.Ialltoallv(sent.spec(), received.spec())
        keep()

        def finish() -> None:
            if received.packing is not None and target is not None:
                received.packing.unpack(target)

        return Posted((request,), finish)

    return post


def _move_in_place(
    op: Move,
    comm: Any,
    source: NDArray[Any] | None,
    target: NDArray[Any] | None,
    staging: NDArray[np.uint8],
    datatypes: Datatypes,
    keep: Callable[[], None],
) -> Prepared:
    def post() -> Posted:
        packing = None
        into = target
        receives = op.receives
        if target is not None and overlapping(_boxes(receives)):  # MPI writes no place twice
            packing = _Packing(staging, target, _boxes(receives))
            into = packing.bytes
            edges = _successive(receives, target.itemsize)
            receives = tuple(
                Message(m.peer, ((slice(edge, edge + m.elements() * target.itemsize),),))
                for m, edge in zip(receives, edges, strict=True)
            )
        request = comm.Ialltoallw(
            _typed(source, op.sends, comm.size, datatypes), _typed(into, receives, comm.size, datatypes)
        )
        keep()
        return Posted((request,), lambda: packing.unpack(target) if packing and target is not None else None)

    return post


def _typed(array: NDArray[Any] | None, messages: Sequence[Message], size: int, datatypes: Datatypes) -> list[Any]:
    counts, types = [0] * size, [mpi().BYTE] * size
    if array is None:
        return [np.empty(0, np.uint8), counts, [0] * size, types]
    for message in messages:
        counts[message.peer], types[message.peer] = 1, datatypes.of(array, message.boxes)
    return [address(array), counts, [0] * size, types]


def gather(
    op: Gather,
    comm: Any,
    source: NDArray[Any] | None,
    target: NDArray[Any] | None,
    staging: NDArray[np.uint8],
    datatypes: Datatypes | None,
) -> Prepared:
    """Every member's block to all members by one Allgatherv, or Alltoallw where `datatypes` is given."""
    if comm is None or source is None or target is None:
        return _NOTHING

    def keep() -> None:
        target[op.places[op.here]] = source

    if comm.size == 1:
        return _copying(target, source)
    messages = tuple(Message(m, (box,)) for m, box in enumerate(op.places))
    if datatypes is not None:
        others = tuple(m for m in messages if m.peer != op.here and m.elements())
        sends = tuple(Message(m, (_whole(source),)) for m in range(comm.size) if m != op.here and source.size)
        return _move_in_place(Move(op.grouping, sends, others, ()), comm, source, target, staging, datatypes, keep)
    direct = _direct(target, [m for m in messages if m.elements()])
    packing = None if direct else _Packing(staging, target, op.places)
    offsets = [_offset(target, box) for box in op.places] if direct else _successive(messages, target.itemsize)
    counts, displacements = _spans(messages, comm.size, target.itemsize, offsets)

    def post() -> Posted:
        into = _flat(target) if packing is None else packing.bytes
        start = displacements[op.here]
        into[start : start + counts[op.here]].view(source.dtype).reshape(source.shape)[...] = source
        request = comm.Iallgatherv(mpi().IN_PLACE, [into, counts, displacements, mpi().BYTE])
        return Posted((request,), lambda: None if packing is None else packing.unpack(target))

    return post


def _copying(target: NDArray[Any], source: NDArray[Any]) -> Prepared:
    def post() -> Posted:
        target[...] = source
        return Posted()

    return post


def send(
    op: Send,
    comm: Any,
    source: NDArray[Any] | None,
    target: NDArray[Any] | None,
    staging: NDArray[np.uint8],
    datatypes: Datatypes | None,
    tag: int,
) -> Prepared:
    """A whole block to one device and from one, by a send and a receive."""
    stays = op.sender is not None and op.sender == op.receiver == comm.rank
    if stays and source is not None and target is not None:
        return _copying(target, source)
    outgoing: Any = None
    if source is not None and op.receiver is not None:
        outgoing = _flat(source) if source.flags.c_contiguous else None
        if outgoing is None and datatypes is not None:
            outgoing = [address(source), 1, datatypes.of(source, [_whole(source)])]
        elif outgoing is None:
            packing = _Packing(staging, source, [_whole(source)])
            packing.pack(source)
            outgoing, staging = packing.bytes, packing.rest
    received: _Packing | None = None
    incoming: Any = None
    if target is not None and op.sender is not None:
        incoming = _flat(target) if target.flags.c_contiguous else None
        if incoming is None and datatypes is not None:
            incoming = [address(target), 1, datatypes.of(target, [_whole(target)])]
        elif incoming is None:
            received = _Packing(staging, target, [_whole(target)])
            incoming = received.bytes

    def post() -> Posted:
        requests: list[Any] = []
        if incoming is not None and target is not None and target.size:
            requests.append(comm.Irecv(_as_bytes(incoming), op.sender, tag))
        if outgoing is not None and source is not None and source.size:
            requests.append(comm.Isend(_as_bytes(outgoing), op.receiver, tag))

        def finish() -> None:
            if received is not None and target is not None:
                received.unpack(target)

        return Posted(tuple(requests), finish)

    return post


def _as_bytes(what: Any) -> Any:
    return [what, what.size, mpi().BYTE] if isinstance(what, np.ndarray) else what


def reduce(
    op: Reduce,
    comm: Any,
    source: NDArray[Any] | None,
    target: NDArray[Any] | None,
    staging: NDArray[np.uint8],
    dtype: str,
) -> Prepared:
    """Contributions of the group reduced: by Reduce_scatter, or Allreduce where nothing is scattered."""
    if comm is None or source is None or target is None or not source.size:  # of which all members have as much
        return _NOTHING
    if comm.size == 1:
        return _copying(target, source)
    datatype, operation = reduction(op.reduction, dtype)
    pieces = op.pieces if op.pieces is not None else (_whole(source),)
    if _direct(source, [Message(0, (box,)) for box in pieces]):  # then they follow one another as members do
        given = _flat(source)
    else:
        packing = _Packing(staging, source, pieces)
        packing.pack(source)
        given, staging = packing.bytes, packing.rest
    received = None if target.flags.c_contiguous else _Packing(staging, target, [_whole(target)])
    into = _flat(target) if received is None else received.bytes
    if not into.size:
        into = np.empty(0, np.uint8)  # an empty part of an array lies at its start, where MPI reads

    def post() -> Posted:
        if op.pieces is None:
            request = comm.Iallreduce([given, source.size, datatype], [into, source.size, datatype], op=operation)
        else:
            counts = [box_size(box) for box in op.pieces]
            request = comm.Ireduce_scatter(
                [given, source.size, datatype], [into, target.size, datatype], counts, op=operation
            )
        return Posted((request,), lambda: None if received is None else received.unpack(target))

    return post
