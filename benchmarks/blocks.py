"""Who holds what: boxes, coordinates and the lower bound, worked out without redist's own arithmetic."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from redist.types import Ceil, Layout, Mesh, SubAxis
from redist.types.blocks import block_edges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.forms import Axes

__all__ = ["blocks", "boxes_of", "coordinate", "count", "cut_alike", "edge", "lower_bound", "place"]


def digit(mesh: Mesh, axis: SubAxis) -> tuple[int, int]:
    """(stride, size) of a (sub-)axis in row-major positions."""
    n = mesh.names.index(axis.axis)
    size = mesh.sizes[n] if axis.size is None else axis.size
    return math.prod(mesh.sizes[n:]) // (axis.pre * size), size


def coordinate(mesh: Mesh, position: int, axes: Axes) -> int:
    """Mixed-radix index of a position over the axes, major to minor."""
    index = 0
    for axis in axes:
        stride, size = digit(mesh, axis)
        index = index * size + position // stride % size
    return index


def place(mesh: Mesh, axes: Axes, index: int) -> int:
    """What `index` over the axes adds to a position whose digits there are 0."""
    position = 0
    for axis in reversed(axes):
        stride, size = digit(mesh, axis)
        position += index % size * stride
        index //= size
    return position


def count(mesh: Mesh, axes: Axes) -> int:
    """Product of the sizes of axes."""
    return math.prod(digit(mesh, axis)[1] for axis in axes)


def cut_alike(mesh: Mesh, axes: Axes, cutters: Axes) -> Axes | None:
    """The axes, cut wherever one of `cutters` begins or ends inside of them; None where the pieces of an axis are no
    whole numbers."""
    pieces: list[SubAxis] = []
    for axis in axes:
        start, stop = _span(mesh, axis)
        if start == stop:  # an axis of size 1 has no parts
            pieces.append(axis)
            continue
        edges = {edge for cutter in cutters if cutter.axis == axis.axis for edge in _span(mesh, cutter)}
        inside = [start, *sorted(edge for edge in edges if start < edge < stop), stop]
        for pre, following in itertools.pairwise(inside):
            if following % pre:
                return None
            pieces.append(SubAxis(axis.axis, pre, following // pre))
    return tuple(pieces)


def _span(mesh: Mesh, axis: SubAxis) -> tuple[int, int]:
    """(pre, pre times size)."""
    return axis.pre, axis.pre * digit(mesh, axis)[1]


def edge(size: int, parts: int, layout: Layout, i: int, block: int) -> int:
    """Where a block of dimension i starts, of `parts`; block `parts` is the end."""
    rule = layout.dims[i].rule
    if isinstance(rule, Ceil):
        return min(block * -(-size // parts), size)
    return int(block_edges(size, parts, rule, np.asarray([block]))[0])


def boxes_of(layout: Layout) -> dict[int, tuple[slice, ...]]:
    """{device id: its box of the global array}."""
    mesh = layout.mesh
    boxes: dict[int, tuple[slice, ...]] = {}
    for position, device in enumerate(mesh.device_ids):
        box: list[slice] = []
        for i, dim in enumerate(layout.dims):
            parts, block = count(mesh, dim.axes), coordinate(mesh, position, dim.axes)
            box.append(slice(*(edge(dim.size, parts, layout, i, block + end) for end in (0, 1))))
        boxes[device] = tuple(box)
    return boxes


def blocks(layout: Layout) -> dict[int, NDArray[np.int64]]:
    """{device id: the numbers of its elements}, the global array numbered in order."""
    numbers = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    return {device: numbers[box] for device, box in boxes_of(layout).items()}


def lower_bound(source: Layout, target: Layout) -> int:
    """Elements that the busiest device must receive: max over devices of |target minus source|."""
    held, worst = boxes_of(source), 0
    for device, box in boxes_of(target).items():
        need = math.prod(s.stop - s.start for s in box)
        own = held.get(device)
        shared = 0
        if own is not None:
            overlaps = (min(a.stop, b.stop) - max(a.start, b.start) for a, b in zip(box, own, strict=True))
            shared = math.prod(max(0, n) for n in overlaps)
        worst = max(worst, need - shared)
    return worst
