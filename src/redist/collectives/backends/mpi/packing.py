"""Boxes of blocks in memory that MPI can send and receive: as they lie, or one after another in staging memory.

Blocks come as bits (see `arena.bits_of`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.mpi.geometry import Box, Message
from redist.collectives.backends.mpi.runtime import mpi

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Packing", "Side", "boxes_of", "flat", "is_direct", "offset_of", "part_of", "spans", "successive", "whole"]

_ALIGNMENT = 64


def flat(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)


def part_of(array: NDArray[Any], box: Box) -> NDArray[Any]:
    """A box of a block, as a view."""
    return array[(*box, ...)]  # without the ellipsis, the element of an array without dimensions is a copy


def whole(array: NDArray[Any]) -> Box:
    """All of a block."""
    return tuple(slice(0, length) for length in array.shape)


def boxes_of(messages: Sequence[Message]) -> list[Box]:
    """Their boxes, in order."""
    return [box for message in messages for box in message.boxes]


class Packing:
    """Boxes of `array` one after another in staging memory; `rest` is what is left of that."""

    def __init__(self, staging: NDArray[np.uint8], array: NDArray[Any], boxes: Iterable[Box]) -> None:
        self._pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
        size = 0
        for box in boxes:
            part = part_of(array, box)
            place = staging[size : size + part.nbytes].view(array.dtype).reshape(part.shape)
            self._pairs.append((part, place))
            size += part.nbytes
        self.bytes = staging[:size]
        self.rest = staging[-(-size // _ALIGNMENT) * _ALIGNMENT :]

    def pack(self) -> None:
        """Copy the boxes into staging memory."""
        for part, place in self._pairs:
            np.copyto(place, part)

    def unpack(self) -> None:
        """Copy staging memory into the boxes."""
        for part, place in self._pairs:
            np.copyto(part, place)


def is_direct(array: NDArray[Any], messages: Sequence[Message]) -> bool:
    """Whether every message is one contiguous box of a contiguous block."""
    return array.flags.c_contiguous and all(
        len(message.boxes) == 1 and array[message.boxes[0]].flags.c_contiguous for message in messages
    )


def offset_of(array: NDArray[Any], box: Box) -> int:
    """Bytes from the start of the block to the first element of the box."""
    return sum(part.start * stride for part, stride in zip(box, array.strides, strict=True))


def successive(messages: Sequence[Message], itemsize: int) -> list[tuple[int, int]]:
    """(start, stop) of each, in bytes, if they lie one after another."""
    edges = [0, *itertools.accumulate(message.elements() * itemsize for message in messages)]
    return list(itertools.pairwise(edges))


def spans(
    messages: Sequence[Message], size: int, itemsize: int, offsets: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """(counts, displacements) in bytes, by rank of a group of this size. Without offsets, messages lie one
    after another."""
    counts, displacements = [0] * size, [0] * size
    end = 0
    for n, message in enumerate(messages):
        count = message.elements() * itemsize
        counts[message.peer], displacements[message.peer] = count, end if offsets is None else offsets[n]
        end += count
    return counts, displacements


@dataclass(frozen=True, slots=True)
class Side:
    """What one side of a move hands to Alltoallv, and the staging memory behind it, if there is any."""

    spec: list[Any]
    packing: Packing | None

    @staticmethod
    def of(array: NDArray[Any] | None, messages: Sequence[Message], size: int, staging: NDArray[np.uint8]) -> Side:
        """The messages of a block to or from the ranks of a group of this size."""
        if array is None or not messages:
            return Side([np.empty(0, np.uint8), [0] * size, [0] * size, mpi().BYTE], None)
        if is_direct(array, messages):
            offsets = [offset_of(array, message.boxes[0]) for message in messages]
            return Side([flat(array), *spans(messages, size, array.itemsize, offsets), mpi().BYTE], None)
        packing = Packing(staging, array, boxes_of(messages))
        return Side([packing.bytes, *spans(messages, size, array.itemsize, None), mpi().BYTE], packing)
