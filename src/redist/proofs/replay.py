"""The NumPy reference run on numbered elements: confirms counterexamples, and decides small plans exhaustively.

Steps move and add, whatever the numbers are; so a run on numbered elements shows where every element of
every block comes from. Of an unreduced source each contribution runs on its own, the others being 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.numpy import run_steps, stacked
from redist.collectives.plan import Plan
from redist.collectives.steps import Chunk, Exchange, Permute, Step
from redist.types.layout import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Replay", "Wrong", "affordable", "replay"]

LARGEST = 2**22
"""Elements over all devices and contributions that are run at most."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong element: where it is, what belongs there, and what is there (None: nothing, or not one element)."""

    device: int
    local: tuple[int, ...]
    wanted: tuple[int, ...] | None
    got: tuple[int, ...] | None
    reason: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What the devices end with: per contribution and device id, hashed numbers and how many were added."""

    target: Layout
    final: Layout
    hashes: NDArray[np.uint64]
    numbers: tuple[Mapping[int, NDArray[np.uint64]], ...]
    counts: tuple[Mapping[int, NDArray[np.uint64]], ...]

    def got(self, device: int, local: tuple[int, ...]) -> tuple[int, ...] | None:
        """The global index of the element there, where it is one element of the source."""
        blocks = [numbers.get(device) for numbers in self.numbers]
        for block in blocks:
            if block is None or any(not 0 <= n < extent for n, extent in zip(local, block.shape, strict=True)):
                return None
            found = np.flatnonzero(self.hashes == block[local])
            if len(found):
                return tuple(int(n) for n in np.unravel_index(int(found[0]), self.target.shape))
        return None

    def first_wrong(self) -> Wrong | None:
        """The first element that is not the target's, by position; None where there is none."""
        target = self.target
        if set(self.numbers[0]) != set(target.mesh.device_ids):
            stray = sorted(set(self.numbers[0]) ^ set(target.mesh.device_ids))
            return Wrong(stray[0], (0,) * target.rank, None, None, "the plan does not end on the target's devices")
        return self._first_moved() or self._first_miscounted()

    def _boxes(self) -> list[tuple[int, Any, list[int]]]:
        """(device id, index of its box, where that starts); an ellipsis keeps arrays of rank 0 arrays."""
        starts, stops = self.target.boxes()
        rows = zip(self.target.mesh.device_ids, starts.tolist(), stops.tolist(), strict=True)
        return [(device, (..., *map(slice, lower, upper)), lower) for device, lower, upper in rows]

    def _first_moved(self) -> Wrong | None:
        expected = self.hashes.reshape(self.target.shape)
        single = len(self.numbers) == 1
        for device, box, lower in self._boxes():
            want = expected[box]
            for numbers, counts in zip(self.numbers, self.counts, strict=True):
                block = numbers[device]
                if block.shape != want.shape:
                    return self._misshaped(device, want.shape, block.shape, lower)
                off = np.argwhere(block != (want if single else want * counts[device]))
                if len(off):
                    local = tuple(int(n) for n in off[0])
                    wanted, got = tuple(n + a for n, a in zip(local, lower, strict=True)), self.got(device, local)
                    reason = "no element arrives there" if got is None else "another element is there"
                    return Wrong(device, local, wanted, got, reason)
        return None

    def _misshaped(self, device: int, want: tuple[int, ...], block: tuple[int, ...], lower: list[int]) -> Wrong:
        axis = next(i for i, (a, b) in enumerate(zip(want, block, strict=True)) if a != b)
        local = tuple(min(want[i], block[i]) if i == axis else 0 for i in range(len(want)))
        inside = all(n < extent for n, extent in zip(local, want, strict=True))
        wanted = tuple(n + a for n, a in zip(local, lower, strict=True)) if inside else None
        reason = f"its block has shape {block}, the target's {want}"
        return Wrong(device, local, wanted, self.got(device, local), reason)

    def _first_miscounted(self) -> Wrong | None:
        """Over the sums that are still to be added, every contribution once, and replicas alike."""
        target = self.target
        which = target.mesh.index(target.partial_axes).tolist()
        kept = target.mesh.count(target.partial_axes)
        for counts in self.counts:
            sums = np.zeros((kept, *target.shape), dtype=np.uint64)
            seen = np.zeros(sums.shape, dtype=bool)
            for (device, box, lower), k in zip(self._boxes(), which, strict=True):
                block = counts[device]
                mine = (k, *box)
                off = np.argwhere(seen[mine] & (sums[mine] != block))
                if len(off):
                    local = tuple(int(n) for n in off[0])
                    wanted = tuple(n + a for n, a in zip(local, lower, strict=True))
                    return Wrong(device, local, wanted, wanted, "replicas hold different sums")
                sums[mine], seen[mine] = block, True
            total = sums.sum(axis=0)
            off = np.argwhere(total != 1)
            if len(off):
                place = tuple(int(n) for n in off[0])
                return self._miscounted(place, int(total[place]))
        return None

    def _miscounted(self, place: tuple[int, ...], times: int) -> Wrong:
        device, _, lower = next(
            row for row in self._boxes() if all(s.start <= n < s.stop for n, s in zip(place, row[1][1:], strict=True))
        )
        local = tuple(n - a for n, a in zip(place, lower, strict=True))
        return Wrong(device, local, place, place, f"a contribution is counted {times} times")


def affordable(plan: Plan) -> bool:
    """Whether a plan is small enough to run."""
    each = max(layout.mesh.size * layout.block_elements() for layout in (*plan.layouts, plan.target))
    return each * plan.source.mesh.count(plan.source.partial_axes) <= LARGEST


def replay(plan: Plan, seed: int = 0) -> Replay | None:
    """Run a well-typed plan; None where it is too large."""
    if not affordable(plan) or not plan.source.same_array(plan.target):
        return None
    source = _added(plan.source)
    steps = tuple(map(_adding, plan.steps))
    rng = np.random.default_rng(seed)
    hashes = rng.integers(1, 2**64, size=math.prod(source.shape), dtype=np.uint64)
    numbers: list[dict[int, Any]] = []
    counts: list[dict[int, Any]] = []
    final = source
    for contribution in range(source.mesh.count(source.partial_axes)):
        for values, found in ((hashes, numbers), (np.ones_like(hashes), counts)):
            blocks = _scattered(source, values.reshape(source.shape), contribution)
            made, final = run_steps(blocks, steps, source)
            found.append({device: np.asarray(made[p]) for p, device in enumerate(final.mesh.device_ids)})
    return Replay(plan.target, final, hashes, tuple(numbers), tuple(counts))


def _scattered(layout: Layout, array: NDArray[np.uint64], contribution: int) -> Any:
    starts, stops = layout.boxes()
    which = layout.mesh.index(layout.partial_axes).tolist()
    blocks: list[NDArray[np.uint64]] = []
    for lower, upper, k in zip(starts.tolist(), stops.tolist(), which, strict=True):
        block = array[tuple(map(slice, lower, upper))]
        blocks.append(block.copy() if k == contribution else np.zeros_like(block))
    return stacked(blocks, layout)


def _added(layout: Layout) -> Layout:
    """The same layout, its contributions being added whatever the reduction."""
    if layout.partial is None or layout.partial.reduction == "sum":
        return layout
    return Layout(
        layout.mesh,
        layout.shape,
        [dim.axes for dim in layout.dims],
        layout.dtype,
        rules=[dim.rule for dim in layout.dims],
        partial=layout.partial.axes,
    )


def _adding(step: Step) -> Step:
    match step:
        case Permute() | Exchange():
            return replace(step, layout=_added(step.layout))
        case Chunk(dim, parts, steps):
            return Chunk(dim, parts, map(_adding, steps))
        case _:
            return step
