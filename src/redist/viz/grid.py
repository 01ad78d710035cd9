"""What each device holds before and after every step, as cells that no cut of the plan divides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.collectives.plan import Plan
    from redist.types.layout import Layout

__all__ = ["Cell", "Grid", "grid_of"]

_MOST_DEVICES, _MOST_CELLS = 64, 10_000


@dataclass(frozen=True, slots=True)
class Cell:
    """A box of the global array, `starts <= index < stops`, and the number of the source block that it was in
    (row-major over the dimensions)."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    origin: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The cuts of all dimensions, ends included, and how many devices are drawn: the first of every mesh."""

    source: Layout
    cuts: tuple[tuple[int, ...], ...]
    devices: int

    def shown(self, layout: Layout) -> Sequence[int]:
        """Ids of the devices that are drawn, by position of the layout's mesh."""
        return layout.mesh.device_ids[: self.devices]

    def cells(self, layout: Layout, device: int) -> tuple[Cell, ...]:
        """What a device holds, cut wherever anything on the way cuts; none for a device without a block."""
        box = _box(layout, device)
        if box is None:
            return ()
        per_dim = [
            [(a, b) for a, b in itertools.pairwise(cuts) if low <= a and b <= high]
            for cuts, (low, high) in zip(self.cuts, box, strict=True)
        ]
        return tuple(
            Cell(tuple(a for a, _ in spans), tuple(b for _, b in spans), self._origin([a for a, _ in spans]))
            for spans in itertools.product(*per_dim)
        )

    def _origin(self, starts: Sequence[int]) -> int:
        number = 0
        bounds = _bounds(self.source)
        for start, count, (_, stops) in zip(starts, self.source.block_counts(), bounds, strict=True):
            number = number * count + int(np.searchsorted(stops, start, side="right"))
        return number


@lru_cache(maxsize=64)
def _bounds(layout: Layout) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
    return tuple(layout.dim_bounds(i) for i in range(layout.rank))


def _box(layout: Layout, device: int) -> list[tuple[int, int]] | None:
    position = layout.mesh.positions_of(np.asarray([device]))
    if position[0] < 0:
        return None
    found: list[tuple[int, int]] = []
    for dim, (lower, upper) in zip(layout.dims, _bounds(layout), strict=True):
        block = int(layout.mesh.index(dim.axes, position)[0])
        found.append((int(lower[block]), int(upper[block])))
    return found


def grid_of(plan: Plan) -> Grid | None:
    """The grid of a plan, with as many devices as make a page that a browser shows without delay; None where
    not even one device can be drawn so."""
    devices = min(_MOST_DEVICES, max(layout.mesh.size for layout in plan.layouts))
    always = [{0, size} for size in plan.source.shape]
    for places, bounds in zip(always, _bounds(plan.source), strict=True):
        places |= set(np.unique(np.concatenate(bounds))[: _MOST_CELLS + 2].tolist())
    if math.prod(len(places) - 1 for places in always) > _MOST_CELLS:
        return None
    while devices:
        cuts = _cuts(plan, always, devices)
        if math.prod(map(len, cuts)) <= _MOST_CELLS:
            grid = Grid(plan.source, cuts, devices)
            if sum(_count(grid, layout) for layout in plan.layouts) <= _MOST_CELLS:
                return grid
        devices //= 2
    return None


def _count(grid: Grid, layout: Layout) -> int:
    total = 0
    for device in grid.shown(layout):
        box = _box(layout, device) or []
        total += math.prod(
            sum(low <= a and b <= high for a, b in itertools.pairwise(cuts))
            for cuts, (low, high) in zip(grid.cuts, box, strict=True)
        )
    return total


def _cuts(plan: Plan, always: Sequence[set[int]], devices: int) -> tuple[tuple[int, ...], ...]:
    """The cuts that there are `always`, and where a drawn device's box ends."""
    per_dim: list[tuple[int, ...]] = []
    for i, cuts in enumerate(always):
        places = set(cuts)
        for layout in plan.layouts:
            blocks = layout.mesh.index(layout.dims[i].axes, np.arange(min(devices, layout.mesh.size)))
            for bounds in _bounds(layout)[i]:
                places.update(bounds[blocks].tolist())
        per_dim.append(tuple(sorted(places)))
    return tuple(per_dim)
