"""M, memory: the block bound, the live peak, and the limit that the plan was made for. All bytes per device.

Computed from the layouts and the backend's table of staging; the plan's own projection is not consulted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from redist.collectives.plan import Plan
from redist.collectives.profile import BackendProfile, profile_of
from redist.collectives.steps import Chunk, Step, op_name
from redist.collectives.typing import after
from redist.types.blocks import Offsets, block_bounds
from redist.types.layout import Layout

__all__ = ["Memory", "measure"]


@dataclass(frozen=True, slots=True)
class Memory:
    """The largest block and the live peak of a plan, where they are reached, and what they may be."""

    largest_block: int
    block_step: str
    block_bound: int
    peak: int
    peak_step: str
    peak_bound: int
    limited: bool

    def problem(self) -> str | None:
        """What exceeds its bound."""
        if self.largest_block > self.block_bound:
            return (
                f"after step {self.block_step} a device holds a block of {self.largest_block} bytes, more than the "
                f"larger of source and target, {self.block_bound}"
            )
        if self.peak > self.peak_bound:
            whose = "the limit stated" if self.limited else "source + target + the larger of them + staging"
            return (
                f"in step {self.peak_step} a device keeps {self.peak} bytes alive, more than {whose}, {self.peak_bound}"
            )
        return None


def _lengths(layout: Layout, parts: tuple[tuple[int, int], ...]) -> list[int]:
    """Length of the longest block per dimension, in chunks the longest part of it."""
    lengths: list[int] = []
    for dim, count in zip(layout.dims, layout.block_counts(), strict=True):
        if isinstance(dim.rule, Offsets):
            starts, stops = block_bounds(dim.size, count, dim.rule)
            lengths.append(int((stops - starts).max()))
        else:
            lengths.append(-(-dim.size // count))
    for i, count in parts:
        lengths[i] = -(-lengths[i] // count)
    return lengths


def _bytes(layout: Layout, parts: tuple[tuple[int, int], ...] = ()) -> int:
    return math.prod(_lengths(layout, parts)) * layout.itemsize


@dataclass(frozen=True, slots=True)
class _Moment:
    """A step while it runs: what it keeps alive, and the block that it leaves behind."""

    label: str
    alive: int
    staging: int
    left: int


def _moments(
    steps: Sequence[Step],
    before: Layout,
    profile: BackendProfile,
    prefix: str = "",
    parts: tuple[tuple[int, int], ...] = (),
    around: int = 0,
) -> list[_Moment]:
    """`around` is what is alive beside a step's input and output: the blocks of the chunk it is in."""
    found: list[_Moment] = []
    for n, step in enumerate(steps, 1):
        following = after(step, before)
        given, made = _bytes(before, parts), _bytes(following, parts)
        label = f"{prefix}{n}"
        if isinstance(step, Chunk):
            inner = _moments(
                step.steps, before, profile, f"{label}.", (*parts, (step.dim, step.parts)), around + given + made
            )
            alive = around + given + made  # what a part needs beside them is the chunk's staging
            found += [replace(m, staging=m.alive - alive) for m in inner]
            found.append(_Moment(label, alive, 0, made))
        else:
            staging = profile.staging_bytes(op_name(step), given, made)
            found.append(_Moment(label, around + given + made + staging, staging, made))
        before = following
    return found


def measure(plan: Plan) -> Memory:
    """The block bound always; the live peak against the plan's limit, by default against the design's."""
    profile = profile_of(plan.options.backend)
    source, target = _bytes(plan.source), _bytes(plan.target)
    largest, block_step = source, "0"
    peak, peak_step, staged = max(source, target), "0", 0
    kept = 0 if plan.options.donate else source
    before = plan.source
    for n, step in enumerate(plan.steps, 1):
        for moment in _moments((step,), before, profile):
            label = ".".join([str(n), *moment.label.split(".")[1:]])
            if moment.left > largest:
                largest, block_step = moment.left, label
            alive = moment.alive + (kept if n > 1 else 0)
            staged = max(staged, moment.staging)
            if alive > peak:
                peak, peak_step = alive, label
        before = after(step, before)
    limit = plan.options.memory_limit
    bound = source + target + max(source, target) + staged if limit is None else limit
    return Memory(largest, block_step, max(source, target), peak, peak_step, bound, limit is not None)
