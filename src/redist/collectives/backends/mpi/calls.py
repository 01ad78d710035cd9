"""Stages as MPI calls, each made once for the blocks that it works on, and run as often as is asked.

Boxes that are contiguous travel as they lie. With datatypes nothing is packed, except what a stage
receives more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.mpi.datatypes import Datatypes, address
from redist.collectives.backends.mpi.geometry import (
    Box,
    Cut,
    Gather,
    Message,
    Move,
    Reduce,
    Send,
    box_size,
    overlapping,
)
from redist.collectives.backends.mpi.packing import (
    Packing,
    Side,
    boxes_of,
    flat,
    is_direct,
    offset_of,
    part_of,
    spans,
    successive,
    whole,
)
from redist.collectives.backends.mpi.reductions import reduction
from redist.collectives.backends.mpi.runtime import mpi

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Call", "Requests", "Wire", "cut", "gather", "move", "reduce", "send"]

Requests = tuple[Any, ...]
"""What has to complete."""


def _nothing() -> None:
    pass


def _none_posted() -> Requests:
    return ()


@dataclass(frozen=True, slots=True)
class Call:
    """Call `post`, wait for the requests that it returns, then call `finish`; and so on, any number of times. Or call
    `run`, which does all of it and waits in MPI, whose blocking collectives are faster than those that are posted."""

    post: Callable[[], Requests] = _none_posted
    finish: Callable[[], None] = _nothing
    blocking: Callable[[], None] | None = None
    """What `post` does and waiting for it, where MPI has it in one call."""

    def run(self) -> None:
        """Do all of it."""
        if self.blocking is not None:
            self.blocking()
        else:
            for request in self.post():
                request.Wait()
        self.finish()


@dataclass(frozen=True, slots=True)
class Wire:
    """What a stage works on: the communicator of the group (None on ranks that are in none), the blocks before
    and after it as bits (None: there is none), staging memory, and the datatypes where nothing is packed."""

    comm: Any
    source: NDArray[Any] | None
    target: NDArray[Any] | None
    staging: NDArray[np.uint8]
    datatypes: Datatypes | None

    @property
    def alone(self) -> bool:
        """Whether there is nobody to send to."""
        return self.comm is None or self.comm.size == 1


def _copies(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Callable[[], None]:
    """Copies each first array into the second."""

    def copy() -> None:
        for given, made in pairs:
            np.copyto(made, given)

    return copy


def _copying(*pairs: tuple[NDArray[Any], NDArray[Any]]) -> Call:
    return Call(finish=_copies(pairs))


def cut(op: Cut, wire: Wire) -> Call:
    """A box of the block is kept; nobody else is needed."""
    if wire.source is None or wire.target is None:
        return Call()
    return _copying((part_of(wire.source, op.box), wire.target))


def move(op: Move, wire: Wire) -> Call:
    """Boxes to and from peers by one Alltoallv, or Alltoallw with datatypes; what is kept is copied meanwhile."""
    kept: list[tuple[NDArray[Any], NDArray[Any]]] = []
    if wire.source is not None and wire.target is not None:
        kept = [(part_of(wire.source, ours), part_of(wire.target, theirs)) for ours, theirs in op.keeps]
    if wire.alone:
        return _copying(*kept)
    if wire.datatypes is not None:
        return _in_place(op, wire, wire.datatypes, _copies(kept))
    comm = wire.comm
    sent = Side.of(wire.source, op.sends, comm.size, wire.staging)
    received = Side.of(wire.target, op.receives, comm.size, sent.packing.rest if sent.packing else wire.staging)
    pack = sent.packing.pack if sent.packing else _nothing
    keep = _copies(kept)

    def post() -> Requests:
        pack()
        request = comm.Ialltoallv(sent.spec, received.spec)
        keep()
        return (request,)

    def blocking() -> None:
        pack()
        comm.Alltoallv(sent.spec, received.spec)
        keep()

    return Call(post, received.packing.unpack if received.packing else _nothing, blocking)


def _in_place(op: Move, wire: Wire, datatypes: Datatypes, keep: Callable[[], None]) -> Call:
    comm, into, receives = wire.comm, wire.target, op.receives
    packing = None
    if into is not None and overlapping(boxes_of(receives)):  # MPI writes no place twice
        packing = Packing(wire.staging, into, boxes_of(receives))
        edges = successive(receives, into.itemsize)
        receives = tuple(Message(m.peer, ((slice(*edge),),)) for m, edge in zip(receives, edges, strict=True))
        into = packing.bytes
    sent = _typed(wire.source, op.sends, comm.size, datatypes)
    received = _typed(into, receives, comm.size, datatypes)

    def post() -> Requests:
        request = comm.Ialltoallw(sent, received)
        keep()
        return (request,)

    def blocking() -> None:
        comm.Alltoallw(sent, received)
        keep()

    return Call(post, packing.unpack if packing else _nothing, blocking)


def _typed(array: NDArray[Any] | None, messages: Sequence[Message], size: int, datatypes: Datatypes) -> list[Any]:
    counts, types = [0] * size, [mpi().BYTE] * size
    if array is None:
        return [np.empty(0, np.uint8), counts, [0] * size, types]
    for message in messages:
        counts[message.peer], types[message.peer] = 1, datatypes.of(array, message.boxes)
    return [address(array), counts, [0] * size, types]


def gather(op: Gather, wire: Wire) -> Call:
    """Every member's block to all members by one Allgatherv, or Alltoallw with datatypes."""
    comm, source, target = wire.comm, wire.source, wire.target
    if comm is None or source is None or target is None:
        return Call()
    if comm.size == 1:
        return _copying((source, target))
    messages = tuple(Message(m, (box,)) for m, box in enumerate(op.places))
    if wire.datatypes is not None:
        others = tuple(m for m in messages if m.peer != op.here and m.elements())
        sends = tuple(Message(m, (whole(source),)) for m in range(comm.size) if m != op.here and source.size)
        keep = _copies([(source, part_of(target, op.places[op.here]))])
        return _in_place(Move(op.grouping, sends, others, ()), wire, wire.datatypes, keep)
    direct = is_direct(target, [m for m in messages if m.elements()])
    packing = None if direct else Packing(wire.staging, target, op.places)
    offsets = [offset_of(target, box) for box in op.places] if direct else None
    counts, displacements = spans(messages, comm.size, target.itemsize, offsets)
    into = flat(target) if packing is None else packing.bytes
    start = displacements[op.here]
    here = into[start : start + counts[op.here]].view(source.dtype).reshape(source.shape)
    received = [into, counts, displacements, mpi().BYTE]

    def post() -> Requests:
        np.copyto(here, source)
        return (comm.Iallgatherv(mpi().IN_PLACE, received),)

    return Call(post, packing.unpack if packing else _nothing)  # MPICH's Allgatherv is slower, of MiBs 2.5 times


def send(op: Send, wire: Wire, tag: int) -> Call:
    """A whole block to one device and from one, by a send and a receive."""
    comm, source, target = wire.comm, wire.source, wire.target
    if op.sender is not None and op.sender == op.receiver == comm.rank and source is not None and target is not None:
        return _copying((source, target))
    outgoing = incoming = None
    pack, unpack = _nothing, _nothing
    staging = wire.staging
    if source is not None and op.receiver is not None and source.size:
        outgoing, packing = _block(source, staging, wire.datatypes)
        if packing is not None:
            pack, staging = packing.pack, packing.rest
    if target is not None and op.sender is not None and target.size:
        incoming, packing = _block(target, staging, wire.datatypes)
        if packing is not None:
            unpack = packing.unpack

    def post() -> Requests:
        pack()
        requests: list[Any] = []
        if incoming is not None:
            requests.append(comm.Irecv(incoming, op.sender, tag))
        if outgoing is not None:
            requests.append(comm.Isend(outgoing, op.receiver, tag))
        return tuple(requests)

    return Call(post, unpack)


def _block(
    array: NDArray[Any], staging: NDArray[np.uint8], datatypes: Datatypes | None
) -> tuple[list[Any], Packing | None]:
    """A whole block as MPI takes it, and what packs it where that is needed."""
    if not array.flags.c_contiguous and datatypes is not None:
        return [address(array), 1, datatypes.of(array, [whole(array)])], None
    packing = None if array.flags.c_contiguous else Packing(staging, array, [whole(array)])
    content = flat(array) if packing is None else packing.bytes
    return [content, content.size, mpi().BYTE], packing


def reduce(op: Reduce, wire: Wire, dtype: str) -> Call:
    """Contributions of the group reduced: by Reduce_scatter, or Allreduce where nothing is scattered."""
    comm, source, target, staging = wire.comm, wire.source, wire.target, wire.staging
    if comm is None or source is None or target is None or not source.size:  # of which all members have as much
        return Call()
    if comm.size == 1:
        return _copying((source, target))
    datatype, operation = reduction(op.reduction, dtype)
    pieces: Sequence[Box] = op.pieces if op.pieces is not None else (whole(source),)
    given: Packing | None = None
    if not is_direct(source, [Message(0, (box,)) for box in pieces]):  # else they follow one another as members do
        given = Packing(staging, source, pieces)
        staging = given.rest
    made = None if target.flags.c_contiguous else Packing(staging, target, [whole(target)])
    into = flat(target) if made is None else made.bytes
    if not into.size:
        into = np.empty(0, np.uint8)  # an empty part of an array lies at its start, where MPI reads
    pack = given.pack if given else _nothing
    sent = [flat(source) if given is None else given.bytes, source.size, datatype]
    received = [into, target.size, datatype]
    counts = None if op.pieces is None else [box_size(box) for box in op.pieces]

    def post() -> Requests:
        pack()
        if counts is None:
            return (comm.Iallreduce(sent, received, op=operation),)
        return (comm.Ireduce_scatter(sent, received, counts, op=operation),)

    def blocking() -> None:
        pack()
        if counts is None:
            comm.Allreduce(sent, received, op=operation)
        else:
            comm.Reduce_scatter(sent, received, counts, op=operation)

    return Call(post, made.unpack if made else _nothing, blocking)
