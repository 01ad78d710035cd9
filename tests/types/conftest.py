"""What meshes and layouts mean, computed element by element from their public fields: the oracle of these tests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from redist.types import Balanced, BlockRule, Layout, Mesh, Offsets, SubAxis

Box = tuple[tuple[int, int], ...]


class Brute:
    """Loops over devices and elements; calls nothing of the library that computes."""

    def coordinates(self, mesh: Mesh) -> dict[int, dict[str, int]]:
        """{device id: {axis: coordinate}}, the last axis running fastest."""
        places = itertools.product(*(range(size) for size in mesh.sizes))
        return {
            device: dict(zip(mesh.names, place, strict=True))
            for device, place in zip(mesh.device_ids, places, strict=True)
        }

    def index(self, mesh: Mesh, coordinates: dict[str, int], axes: Sequence[SubAxis]) -> int:
        """Mixed-radix index over (sub-)axes, the first one major."""
        index = 0
        for axis in axes:
            total = dict(mesh.axes)[axis.axis]
            size = total if axis.size is None else axis.size
            minor = total // (axis.pre * size)
            index = index * size + coordinates[axis.axis] // minor % size
        return index

    def count(self, mesh: Mesh, axes: Sequence[SubAxis]) -> int:
        """How many values the index takes."""
        found = 1
        for axis in axes:
            found *= dict(mesh.axes)[axis.axis] if axis.size is None else axis.size
        return found

    def edges(self, size: int, count: int, rule: BlockRule) -> list[tuple[int, int]]:
        """(start, stop) of each block of a dimension."""
        if isinstance(rule, Offsets):
            return list(zip(rule.starts, [*rule.starts[1:], size], strict=True))
        left, at, blocks = size, 0, []
        longest = size // count + (size % count > 0)
        for b in range(count):
            length = size // count + (b < size % count) if isinstance(rule, Balanced) else min(longest, left)
            blocks.append((at, at + length))
            at, left = at + length, left - length
        assert left == 0
        return blocks

    def boxes(self, layout: Layout) -> dict[int, Box]:
        """{device id: (start, stop) per dimension}."""
        mesh = layout.mesh
        cut = [self.edges(dim.size, self.count(mesh, dim.axes), dim.rule) for dim in layout.dims]
        return {
            device: tuple(cut[i][self.index(mesh, place, dim.axes)] for i, dim in enumerate(layout.dims))
            for device, place in self.coordinates(mesh).items()
        }

    def elements(self, layout: Layout) -> dict[int, frozenset[tuple[int, ...]]]:
        """{device id: global indices of the elements that it holds}."""
        return {
            device: frozenset(itertools.product(*(range(a, b) for a, b in box)))
            for device, box in self.boxes(layout).items()
        }

    def contributions(self, layout: Layout) -> dict[int, tuple[int, ...]]:
        """{device id: which of the unreduced contributions it holds}, as its coordinates on the partial axes."""
        places = self.coordinates(layout.mesh)
        return {
            device: tuple(self.index(layout.mesh, place, [axis]) for axis in layout.partial_axes)
            for device, place in places.items()
        }

    def equivalent(self, a: Layout, b: Layout) -> bool:
        """Same array; per device the same elements in a block of the same shape; the same devices hold
        the same contributions, reduced alike."""
        if a.shape != b.shape or a.dtype != b.dtype or set(a.mesh.device_ids) != set(b.mesh.device_ids):
            return False
        elements_a, elements_b, boxes_a, boxes_b = self.elements(a), self.elements(b), self.boxes(a), self.boxes(b)
        for device in a.mesh.device_ids:
            shapes = [[stop - start for start, stop in boxes[device]] for boxes in (boxes_a, boxes_b)]
            if elements_a[device] != elements_b[device] or shapes[0] != shapes[1]:
                return False
        held_a, held_b = self.contributions(a), self.contributions(b)
        for d, e in itertools.combinations(a.mesh.device_ids, 2):
            if (held_a[d] == held_a[e]) != (held_b[d] == held_b[e]):
                return False
        several = len(set(held_a.values())) > 1
        return not several or (
            a.partial is not None and b.partial is not None and a.partial.reduction == b.partial.reduction
        )

    def missing(self, src: Layout, dst: Layout) -> dict[int, int]:
        """{device id of dst: elements of its block that it does not hold in src}."""
        held = self.elements(src)
        return {device: len(wanted - held.get(device, frozenset())) for device, wanted in self.elements(dst).items()}

    def lower_bound(self, src: Layout, dst: Layout) -> int:
        """Per element and kept contribution: one receive fewer than there are contributors to bring
        them together, one fewer than there are destinations to spread the result, and one more if no
        destination is a contributor. Spread over all devices; and no device can do with fewer than
        what its own block needs."""
        held, wanted = self.elements(src), self.elements(dst)
        source, target = self.contributions(src), self.contributions(dst)
        kept = len(set(target.values())) > 1
        contributors: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for device, contribution in source.items():
            contributors.setdefault(target[device] if kept else (), set()).add(contribution)
        reduced = max(map(len, contributors.values()))
        if reduced == 1:
            return max(self.missing(src, dst).values())
        total = 0
        for element in itertools.product(*map(range, src.shape)):
            for contribution, several in contributors.items():
                there = [d for d in wanted if element in wanted[d] and (not kept or target[d] == contribution)]
                found = any(element in held.get(d, frozenset()) for d in there)
                total += len(several) - 1 + len(there) - 1 + (not found)
        devices = len({*held, *wanted})
        return max(*map(len, wanted.values()), -(-total // devices))


@pytest.fixture(scope="session")
def brute() -> Brute:
    """The oracle."""
    return Brute()
