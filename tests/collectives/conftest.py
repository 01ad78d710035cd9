"""What layouts and steps mean, computed block by block from their public fields: the oracle of these tests."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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
    Step,
)
from redist.collectives.typing import after
from redist.types import Balanced, BlockRule, Layout, Mesh, Offsets, SubAxis

Box = tuple[tuple[int, int], ...]
Array = NDArray[Any]

REDUCE: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class Brute:
    """Loops over devices; of the library it uses the fields of steps and layouts, and `after` inside chunks."""

    def places(self, mesh: Mesh) -> list[dict[str, int]]:
        """Coordinates by position, the last axis running fastest."""
        return [
            dict(zip(mesh.names, place, strict=True)) for place in itertools.product(*(range(n) for n in mesh.sizes))
        ]

    def size(self, mesh: Mesh, axis: SubAxis | str) -> int:
        """Size of a (sub-)axis."""
        axis = SubAxis.parse(axis) if isinstance(axis, str) else axis
        return axis.size if axis.size is not None else dict(mesh.axes)[axis.axis]

    def count(self, mesh: Mesh, axes: Sequence[SubAxis]) -> int:
        """How many values the index over axes takes."""
        return int(np.prod([self.size(mesh, axis) for axis in axes], dtype=int))

    def index(self, mesh: Mesh, place: dict[str, int], axes: Sequence[SubAxis]) -> int:
        """Mixed-radix index over (sub-)axes, the first one major."""
        index = 0
        for axis in axes:
            size = self.size(mesh, axis)
            minor = dict(mesh.axes)[axis.axis] // (axis.pre * size)
            index = index * size + place[axis.axis] // minor % size
        return index

    def edges(self, size: int, count: int, rule: BlockRule) -> list[tuple[int, int]]:
        """(start, stop) of each block of a dimension."""
        if isinstance(rule, Offsets):
            return list(zip(rule.starts, [*rule.starts[1:], size], strict=True))
        blocks: list[tuple[int, int]] = []
        at, longest = 0, size // count + (size % count > 0)
        for b in range(count):
            length = size // count + (b < size % count) if isinstance(rule, Balanced) else min(longest, size - at)
            blocks.append((at, at + length))
            at += length
        return blocks

    def blocks_of(self, layout: Layout) -> list[tuple[int, ...]]:
        """By position: block index per dimension, then which contribution."""
        axes = [*(dim.axes for dim in layout.dims), layout.partial_axes]
        return [tuple(self.index(layout.mesh, place, a) for a in axes) for place in self.places(layout.mesh)]

    def boxes(self, layout: Layout) -> list[Box]:
        """By position, (start, stop) per dimension."""
        cut = [self.edges(dim.size, self.count(layout.mesh, dim.axes), dim.rule) for dim in layout.dims]
        return [tuple(cut[i][b] for i, b in enumerate(held[:-1])) for held in self.blocks_of(layout)]

    # -- data ------------------------------------------------------------------------------------------

    def shares(self, layout: Layout) -> list[Array]:
        """One global array per contribution, all elements of all of them different."""
        count = self.count(layout.mesh, layout.partial_axes)
        size = int(np.prod(layout.shape, dtype=int))
        return [np.arange(c * size + 1, (c + 1) * size + 1).reshape(layout.shape) for c in range(count)]

    def held(self, layout: Layout, shares: Sequence[Array]) -> list[Array]:
        """By position, the block that a device must hold: its box of its contribution."""
        boxes, blocks = self.boxes(layout), self.blocks_of(layout)
        return [
            np.array(shares[held[-1]][tuple(slice(a, b) for a, b in box)])
            for box, held in zip(boxes, blocks, strict=True)
        ]

    def reduced(self, step: Step, before: Layout, following: Layout, shares: Sequence[Array]) -> list[Array]:
        """The contributions after a step: those that a reduction joins, joined."""
        if isinstance(step, Chunk):
            for inner in step.steps:
                between = after(inner, before)
                shares = self.reduced(inner, before, between, shares)
                before = between
            return list(shares)
        if not isinstance(step, (ReduceScatter, AllReduce)):
            return list(shares)
        joins: dict[int, set[int]] = {}
        for one, other in zip(self.blocks_of(before), self.blocks_of(following), strict=True):
            joins.setdefault(other[-1], set()).add(one[-1])
        reduction = before.partial.reduction if before.partial else "sum"
        return [functools.reduce(REDUCE[reduction], (shares[c] for c in sorted(joins[n]))) for n in range(len(joins))]

    # -- costs -----------------------------------------------------------------------------------------

    def senders(self, step: Permute, before: Layout) -> list[int]:
        """By position of the target, the position before whose block it takes: the one device that fits."""
        target = step.layout
        ours, theirs = self.places(before.mesh), self.places(target.mesh)
        blocks_before, blocks_after = self.blocks_of(before), self.blocks_of(target)
        found: list[int] = []
        for r, device in enumerate(target.mesh.device_ids):
            fitting = [s for s in range(before.mesh.size) if blocks_before[s] == blocks_after[r]]
            if isinstance(step.source, Pairs):
                fitting = [s for s in fitting if (list(before.mesh.device_ids)[s], device) in step.source.pairs]
            else:
                assert isinstance(step.source, Free)
                for sender, receiver in step.source.groups:
                    at = self.index(target.mesh, theirs[r], receiver)
                    fitting = [s for s in fitting if self.index(before.mesh, ours[s], sender) == at]
            (one,) = fitting
            found.append(one)
        return found

    def overlap(self, one: Box, other: Box) -> int:
        """Elements in both boxes."""
        sides = (max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in zip(one, other, strict=True))
        return int(np.prod(list(sides), dtype=int))

    def volume(self, box: Box) -> int:
        """Elements in a box."""
        return self.overlap(box, box)

    def received(self, step: Step, before: Layout) -> dict[int, int]:
        """{device id after the step: elements that it receives}."""
        following = after(step, before)
        ids_before, ids = list(before.mesh.device_ids), list(following.mesh.device_ids)
        wanted = self.boxes(following)
        match step:
            case Permute():
                sent = self.senders(step, before)
                return {
                    d: 0 if ids_before[s] == d else self.volume(b) for d, s, b in zip(ids, sent, wanted, strict=True)
                }
            case Slice() | AllGather() | AllToAll() | Exchange(_, Owner()):
                have = dict(zip(ids_before, zip(self.boxes(before), self.blocks_of(before), strict=True), strict=True))
                found: dict[int, int] = {}
                for device, box, blocks in zip(ids, wanted, self.blocks_of(following), strict=True):
                    own = have.get(device)
                    kept = self.overlap(own[0], box) if own and own[1][-1] == blocks[-1] else 0
                    found[device] = self.volume(box) - kept
                return found
            case Exchange(_, transfers):
                assert not isinstance(transfers, Owner)
                found = dict.fromkeys(ids, 0)
                for t in transfers:
                    if t.sender != t.receiver:
                        found[t.receiver] += self.volume(tuple(zip(t.starts, t.stops, strict=True)))
                return found
            case ReduceScatter(axes, _):
                joined = int(np.prod([self.size(before.mesh, a) for _, dim_axes in axes for a in dim_axes], dtype=int))
                return {d: (joined - 1) * self.volume(box) for d, box in zip(ids, wanted, strict=True)}
            case AllReduce(axes):
                joined = self.count(before.mesh, axes)
                return {
                    d: -(-2 * (joined - 1) * self.volume(box) // joined) for d, box in zip(ids, wanted, strict=True)
                }
            case Chunk(_, _, steps):
                return self.received_by_all(steps, before)
        raise AssertionError(step)

    def received_by_all(self, steps: Sequence[Step], source: Layout) -> dict[int, int]:
        """{device id: elements that it receives over all steps}, with 0 for a device that is never in a mesh."""
        total: dict[int, int] = {}
        for step in steps:
            for device, count in self.received(step, source).items():
                total[device] = total.get(device, 0) + count
            source = after(step, source)
        return total


@pytest.fixture(scope="session")
def brute() -> Brute:
    """The oracle."""
    return Brute()
