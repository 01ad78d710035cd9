"""What a step costs each device: elements received and bytes alive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, assert_never

import numpy as np

from redist.collectives.bijection import senders
from redist.collectives.profile import BackendProfile
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
    op_name,
)
from redist.collectives.typing import after, layouts_of
from redist.types.bounds import max_missing, missing_by_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from redist.types.layout import Layout

__all__ = ["Live", "busiest", "communications", "largest_block", "live", "received", "received_by_device", "varies"]


@lru_cache(maxsize=8192)
def received(step: Step, before: Layout) -> int:
    """Elements that the busiest device receives in a step (design section 3)."""
    match step:
        case Slice():
            return 0
        case AllGather() | AllToAll():
            return max_missing(before, after(step, before))
        case ReduceScatter():
            return (_contributors(step, before) - 1) * after(step, before).block_elements()
        case AllReduce(axes):
            contributors = before.mesh.count(map(before.mesh.resolve, axes))
            return _all_reduced(before.block_elements(), contributors)
        case Permute(layout, _):
            if not _moves_any(step, before):
                return 0
            return layout.block_elements() if before.is_even() else int(received_by_device(step, before).max())
        case Exchange(layout, transfers):
            if isinstance(transfers, Owner) and _same_contribution(before, layout):
                return max_missing(before, layout)
            return int(received_by_device(step, before).max())
        case Chunk(_, _, steps):
            return busiest(steps, layouts_of(steps, before))
        case _:
            assert_never(step)


def busiest(steps: Sequence[Step], layouts: Sequence[Layout]) -> int:
    """Elements that the busiest device receives over all steps, given the layout before and after each.

    Devices are told apart only where it matters: where several steps give them different amounts, or
    run on different devices.
    """
    counts = [received(step, before) for step, before in zip(steps, layouts, strict=False)]
    costly = [n for n, count in enumerate(counts) if count]
    varying = [n for n in costly if varies(steps[n], layouts[n])]
    if all(layouts[n + 1].mesh.same_devices(layouts[costly[0] + 1].mesh) for n in costly[1:]):
        if len(varying) < 2:
            return sum(counts)
    else:
        varying = costly
    total: dict[int, int] = {}
    for n in varying:
        by_position = received_by_device(steps[n], layouts[n])
        for device, count in zip(layouts[n + 1].mesh.device_ids, by_position.tolist(), strict=True):
            total[device] = total.get(device, 0) + count
    return max(total.values()) + sum(counts[n] for n in costly if n not in varying)


def varies(step: Step, before: Layout) -> bool:
    """Whether devices may receive different amounts in a step."""
    match step:
        case Slice():
            return False
        case AllGather() | AllToAll() | ReduceScatter() | AllReduce():
            return not (before.is_even() and after(step, before).is_even())
        case Permute() | Exchange():
            return True
        case Chunk(_, _, steps):
            return any(varies(inner, layout) for inner, layout in zip(steps, layouts_of(steps, before), strict=False))
        case _:
            assert_never(step)


def communications(step: Step, before: Layout) -> int:
    """Steps in which some device receives something: 0 or 1, or those inside a chunk."""
    if not isinstance(step, Chunk):
        return int(received(step, before) > 0)
    layouts = layouts_of(step.steps, before)
    return sum(communications(inner, layout) for inner, layout in zip(step.steps, layouts, strict=False))


def received_by_device(step: Step, before: Layout) -> NDArray[np.int64]:
    """Elements that each device receives in a step, by position of the mesh after it."""
    match step:
        case Slice():
            return np.zeros(before.mesh.size, dtype=np.int64)
        case AllReduce(axes):
            return _all_reduced(_volumes(before), before.mesh.count(map(before.mesh.resolve, axes)))
        case AllGather() | AllToAll():
            return _values(missing_by_device(before, after(step, before)))
        case ReduceScatter():
            return (_contributors(step, before) - 1) * _volumes(after(step, before))
        case Permute(layout, _):
            return np.where(_moved(step, before), _volumes(layout), 0)
        case Exchange(layout, transfers):
            if not isinstance(transfers, Owner):
                totals = dict.fromkeys(layout.mesh.device_ids, 0)
                for t in transfers:
                    if t.sender != t.receiver:
                        totals[t.receiver] += math.prod(b - a for a, b in zip(t.starts, t.stops, strict=True))
                return _values(totals)
            missing = _values(missing_by_device(before, layout))
            if _same_contribution(before, layout):
                return missing
            at = {device: p for p, device in enumerate(before.mesh.device_ids)}
            held = before.mesh.index(before.partial_axes)
            wanted = layout.mesh.index(layout.partial_axes)
            here = np.asarray([at.get(device, -1) for device in layout.mesh.device_ids])
            return np.where((here >= 0) & (held[here] == wanted), missing, _volumes(layout))
        case Chunk(_, _, steps):
            total = np.zeros(before.mesh.size, dtype=np.int64)
            for inner in steps:
                total = total + received_by_device(inner, before)
                before = after(inner, before)
            return total
        case _:
            assert_never(step)


def _contributors(step: ReduceScatter, before: Layout) -> int:
    return before.mesh.count(before.mesh.resolve(axis) for _, axes in step.axes for axis in axes)


_Count = TypeVar("_Count", int, "NDArray[np.int64]")


def _all_reduced(block: _Count, contributors: int) -> _Count:
    """What a reduce-scatter and an all-gather of the block receive, rounded up."""
    return -(-2 * (contributors - 1) * block // contributors)


def _values(by_device: dict[int, int]) -> NDArray[np.int64]:
    return np.fromiter(by_device.values(), dtype=np.int64, count=len(by_device))


def _volumes(layout: Layout) -> NDArray[np.int64]:
    starts, stops = layout.boxes()
    return np.prod(stops - starts, axis=1, dtype=np.int64)


def _moved(step: Permute, before: Layout) -> NDArray[np.bool_]:
    """Whether each device of the target mesh gets another device's block."""
    return before.mesh.id_array()[senders(step, before)] != step.layout.mesh.id_array()


def _moves_any(step: Permute, before: Layout) -> bool:
    """Whether some device gets another's block. Digits that trade places on one mesh move blocks, so there
    devices are looked at only where every digit seems to stay."""
    target = step.layout
    if isinstance(step.source, Free) and before.mesh == target.mesh and before.is_even():
        resolve, count = before.mesh.resolve, before.mesh.count
        paired = [(a.axes, b.axes) for a, b in zip(before.dims, target.dims, strict=True)]
        paired += [(tuple(map(resolve, ours)), tuple(map(resolve, theirs))) for ours, theirs in step.source.groups]
        for ours, theirs in paired:
            wide = [[axis for axis in axes if count([axis]) > 1] for axes in (ours, theirs)]
            if len(wide[0]) == len(wide[1]) and any(
                a != b and count([a]) == count([b]) for a, b in zip(*wide, strict=True)
            ):
                return True
    return bool(_moved(step, before).any())


def _same_contribution(before: Layout, target: Layout) -> bool:
    """Whether every device's partial coordinate is the same before and after."""
    if before.mesh.count(before.partial_axes) == 1:
        return True
    return before.mesh == target.mesh and before.partial_axes == target.partial_axes


def largest_block(steps: Sequence[Step], before: Layout, parts: tuple[tuple[int, int], ...] = ()) -> int:
    """Bytes of the largest block that steps pass through, the one before them among them.

    `parts` are the (dimension, count) of the chunks around the steps; a block counts as its longest part.
    """
    largest = _part_bytes(before, parts)
    for step in steps:
        if isinstance(step, Chunk):
            largest = max(largest, largest_block(step.steps, before, (*parts, (step.dim, step.parts))))
        before = after(step, before)
        largest = max(largest, _part_bytes(before, parts))
    return largest


def _part_bytes(layout: Layout, parts: tuple[tuple[int, int], ...]) -> int:
    lengths = list(layout.block_shape())
    for i, count in parts:
        lengths[i] = -(-lengths[i] // count)
    return math.prod(lengths) * layout.itemsize


@dataclass(frozen=True, slots=True)
class Live:
    """Bytes per device that a step keeps alive: its input and output blocks, and its staging."""

    input_bytes: int
    output_bytes: int
    staging_bytes: int

    @property
    def total(self) -> int:
        """All of them together."""
        return self.input_bytes + self.output_bytes + self.staging_bytes


def live(step: Step, before: Layout, profile: BackendProfile) -> Live:
    """Bytes alive while a step runs, the plan's source aside (design section 4)."""
    following = after(step, before)
    if isinstance(step, Chunk):
        return Live(before.block_bytes(), following.block_bytes(), _chunk_staging(step, before, profile))
    given, made = before.block_bytes(), following.block_bytes()
    return Live(given, made, profile.staging_bytes(op_name(step), given, made))


def _chunk_staging(step: Chunk, before: Layout, profile: BackendProfile) -> int:
    """The largest sum of a part's input, output and staging over the inner steps."""

    def part(size: int, layout: Layout) -> int:
        length = layout.block_shape()[step.dim]
        return 0 if length == 0 else -(-size * -(-length // step.parts) // length)

    largest = 0
    for inner in step.steps:
        following = after(inner, before)
        inside = live(inner, before, profile)
        largest = max(
            largest,
            part(inside.input_bytes, before)
            + part(inside.output_bytes, following)
            + part(inside.staging_bytes, following),
        )
        before = following
    return largest
