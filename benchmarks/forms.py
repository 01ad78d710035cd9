"""The common form of plans: one small record per operation, whoever planned it.

An `Op` says what moves where in terms of devices and axes. What it does to data is defined by the
simulator next door and nowhere else, so that no planner is judged by its own idea of its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

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
from redist.types import Layout, SubAxis

__all__ = ["Axes", "Box", "Kind", "Op", "from_steps"]

Kind = Literal["slice", "all_gather", "all_to_all", "permute", "exchange", "reduce_scatter", "all_reduce"]

Axes = tuple[SubAxis, ...]

Box = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""(sender, receiver, starts, stops): a box of the global array goes from one device id to another."""


@dataclass(frozen=True, slots=True)
class Op:
    """One operation on all devices.

    `lost` and `gained` hold (dimension, axes): a gather loses axes, a slice gains them, an all-to-all
    does both, in the order in which the axes are listed. `reduced` axes are summed over. `pairs` is the
    bijection of a permute, (sender id, receiver id). `boxes` are the transfers of an exchange; None means
    that every device takes what it lacks from whoever has it. `stated` is the layout that the planner
    says holds afterwards.
    """

    kind: Kind
    stated: Layout
    lost: tuple[tuple[int, Axes], ...] = ()
    gained: tuple[tuple[int, Axes], ...] = ()
    reduced: Axes = ()
    pairs: tuple[tuple[int, int], ...] = ()
    boxes: tuple[Box, ...] | None = None


def from_steps(source: Layout, steps: Iterable[Step], stated: Sequence[Layout]) -> tuple[Op, ...]:
    """Typed steps, whoever they come from, and the layout that is said to hold after each of them.

    The steps inside a chunk become operations on the whole array, which receive the same elements.
    """
    ops: list[Op] = []
    before = source
    for step, following in zip(steps, stated, strict=True):
        if isinstance(step, Chunk):
            from redist.collectives.typing import layouts_of

            ops += from_steps(before, step.steps, layouts_of(step.steps, before)[1:])
        else:
            ops.append(_op(step, before, following))
        before = following
    return tuple(ops)


def _op(step: Step, before: Layout, following: Layout) -> Op:
    match step:
        case Slice(axes, _):
            return Op("slice", following, gained=axes)
        case AllGather(axes):
            return Op("all_gather", following, lost=axes)
        case AllToAll(moves, _):
            lost, gained = _joined((i, axes) for axes, i, _ in moves), _joined((j, axes) for axes, _, j in moves)
            return Op("all_to_all", following, lost=lost, gained=gained)
        case Permute(_, source):
            pairs = _free_pairs(source, before, following) if isinstance(source, Free) else source.pairs
            return Op("permute", following, pairs=pairs)
        case Exchange(_, transfers):
            if isinstance(transfers, Owner):
                return Op("exchange", following)
            boxes = tuple((t.sender, t.receiver, t.starts, t.stops) for t in transfers)
            return Op("exchange", following, boxes=boxes)
        case ReduceScatter(axes, _):
            return Op("reduce_scatter", following, gained=axes, reduced=tuple(a for _, some in axes for a in some))
        case AllReduce(axes):
            return Op("all_reduce", following, reduced=axes)
        case Chunk():
            raise AssertionError("chunks are taken apart before")
        case _:
            assert_never(step)


def _joined(pairs: Iterable[tuple[int, Axes]]) -> tuple[tuple[int, Axes], ...]:
    """Axes by dimension, in the order listed."""
    by_dim: dict[int, list[SubAxis]] = {}
    for i, axes in pairs:
        by_dim.setdefault(i, []).extend(axes)
    return tuple((i, tuple(axes)) for i, axes in by_dim.items())


def _free_pairs(source: Free, before: Layout, following: Layout) -> tuple[tuple[int, int], ...]:
    """The bijection that a permute's rule names: sender and receiver agree on the index of their block in
    every dimension, on their partial coordinate, and on the paired replica axes."""
    ours = [dim.axes for dim in before.dims] + [before.partial_axes] + [sender for sender, _ in source.groups]
    theirs = [dim.axes for dim in following.dims] + [following.partial_axes] + [to for _, to in source.groups]
    senders = {key: device for device, key in _keys(before, ours)}
    return tuple((senders[key], device) for device, key in _keys(following, theirs))


def _keys(layout: Layout, lists: Sequence[Axes]) -> list[tuple[int, tuple[int, ...]]]:
    mesh = layout.mesh
    columns = [mesh.index(list(map(mesh.resolve, axes))).tolist() for axes in lists]
    return list(zip(mesh.device_ids, zip(*columns, strict=True), strict=True))
