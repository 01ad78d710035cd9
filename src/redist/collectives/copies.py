"""What a device rearranges in its own memory around a collective, and what that costs in time.

A collective moves contiguous pieces. An all-to-all or reduce-scatter first packs its block by receiver,
an all-to-all or all-gather afterwards puts the pieces in place; a slice copies what it keeps. Where the
cut dimension is the major one of the block, its pieces are contiguous already and nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.errors import LayoutError

if TYPE_CHECKING:
    from redist.types.layout import Layout
    from redist.types.mesh import SubAxis

__all__ = ["FREE", "Copies", "copy_seconds", "pack_seconds", "place_seconds", "repacking_seconds", "slice_seconds"]


@dataclass(frozen=True, slots=True)
class Copies:
    """`bandwidth` in bytes per second and device, `run_latency` in seconds per contiguous run of bytes.

    By default copies take no time: links are what counts.
    """

    bandwidth: float = math.inf
    run_latency: float = 0.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0 or self.run_latency < 0:
            raise LayoutError(
                "copies have a positive bandwidth and a run latency of at least 0, got "
                f"bandwidth={self.bandwidth}, run_latency={self.run_latency}"
            )

    @property
    def free(self) -> bool:
        """Whether no copy takes time."""
        return math.isinf(self.bandwidth) and self.run_latency == 0

    def seconds(self, size: float, run: float) -> float:
        """Of copying `size` bytes in contiguous runs of `run` bytes."""
        return size / self.bandwidth + (size / run * self.run_latency if run else 0.0)


FREE = Copies()


def slice_seconds(copies: Copies, lengths: Sequence[int], parts: Sequence[int], itemsize: int) -> float:
    """Of keeping one of `parts[d]` parts of each dimension of a block of these lengths (elements)."""
    if copies.free or all(p == 1 for p in parts):
        return 0.0
    kept = [length // p for length, p in zip(lengths, parts, strict=True)]
    return copies.seconds(math.prod(kept) * itemsize, _run(kept, parts) * itemsize)


def pack_seconds(copies: Copies, lengths: Sequence[int], parts: Sequence[int], itemsize: int) -> float:
    """Of cutting a block of these lengths (elements) into `parts[d]` pieces along each dimension, piece by piece."""
    pieces = [length // p for length, p in zip(lengths, parts, strict=True)]
    return place_seconds(copies, pieces, parts, itemsize)


def place_seconds(copies: Copies, pieces: Sequence[int], parts: Sequence[int], itemsize: int) -> float:
    """Of putting pieces of these lengths (elements) side by side, `parts[d]` along each dimension."""
    minor = max((d for d, p in enumerate(parts) if p > 1), default=0)
    if copies.free or math.prod(pieces[:minor]) == 1:
        return 0.0
    return copies.seconds(math.prod(pieces) * math.prod(parts) * itemsize, _run(pieces, parts) * itemsize)


def _run(pieces: Sequence[int], parts: Sequence[int]) -> int:
    """Elements of a piece that are contiguous in the block."""
    minor = max(d for d, p in enumerate(parts) if p > 1)
    return math.prod(pieces[minor:])


def copy_seconds(step: Step, before: Layout, copies: Copies) -> float:
    """What the step rearranges in the block of `before`, in seconds."""
    if copies.free:
        return 0.0
    lengths, item = before.block_shape(), before.itemsize
    match step:
        case Slice(axes, _):
            return slice_seconds(copies, lengths, _parts(axes, before), item)
        case AllGather(axes):
            return place_seconds(copies, lengths, _parts(axes, before), item)
        case ReduceScatter(axes, _):
            return pack_seconds(copies, lengths, _parts(axes, before), item)
        case AllToAll(moves, _):
            gained = _parts([(j, axes) for axes, _, j in moves], before)
            lost = _parts([(i, axes) for axes, i, _ in moves], before)
            return repacking_seconds(copies, lengths, gained, lost, item)
        case AllReduce() | Permute() | Exchange() | Chunk():
            return 0.0
        case _:
            assert_never(step)


def repacking_seconds(
    copies: Copies, lengths: Sequence[int], gained: Sequence[int], lost: Sequence[int], itemsize: int
) -> float:
    """Of an all-to-all of blocks of these lengths: cut in `gained` parts, then joined from `lost` parts."""
    pieces = [length // p for length, p in zip(lengths, gained, strict=True)]
    return place_seconds(copies, pieces, gained, itemsize) + place_seconds(copies, pieces, lost, itemsize)


def _parts(axes: Iterable[tuple[int, Iterable[SubAxis]]], before: Layout) -> list[int]:
    """By how much these axes cut each dimension."""
    parts = [1] * before.rank
    for i, dim_axes in axes:
        parts[i] *= before.mesh.count(map(before.mesh.resolve, dim_axes))
    return parts
