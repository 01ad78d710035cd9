"""Plans inside a memory limit: what does not fit is run in chunks along a dimension that no step touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from redist.collectives.cost import live
from redist.collectives.plan import Plan
from redist.collectives.profile import profile_of
from redist.collectives.steps import Chunk, Step
from redist.collectives.typing import after
from redist.errors import TypingError
from redist.types.layout import Layout

__all__ = ["chunkings", "fitting", "within_default"]


def within_default(plan: Plan) -> bool:
    """Whether the live peak is at most source + target + the larger of them + the largest staging.

    Even blocks keep it in normal form: what moves is no larger than the target. Uneven ones may not, such as
    a dimension of size 1 that is cut, whose blocks stay whole until it is joined again.
    """
    profile = profile_of(plan.options.backend)
    pairs = zip(plan.steps, plan.layouts, strict=False)
    staged = max((live(step, before, profile).staging_bytes for step, before in pairs), default=0)
    return plan.peak_bytes <= plan.source.block_bytes() + plan.target.block_bytes() + plan.block_bound_bytes + staged


def fitting(plans: Iterable[Plan], limit: int) -> tuple[list[Plan], int | None]:
    """(each plan that fits the limit in bytes per device, chunked as little as it takes; the smallest
    peak that any of them reaches)."""
    found: list[Plan] = []
    smallest: int | None = None
    for plan in plans:
        for variant in (plan, *chunkings(plan)):
            smallest = variant.peak_bytes if smallest is None else min(smallest, variant.peak_bytes)
            if variant.peak_bytes <= limit:
                found.append(variant)
                break
    return found, smallest


def chunkings(plan: Plan) -> Iterator[Plan]:
    """The plan with all its steps in chunks, few parts first."""
    dims = [i for i in range(plan.source.rank) if _untouched(plan.steps, plan.source, i)]
    longest = {i: plan.source.block_shape()[i] for i in dims}
    parts = 2
    while any(parts // 2 < longest[i] for i in dims):
        for i in dims:
            if longest[i] >= 2 and parts // 2 < longest[i]:
                yield replace(plan, steps=(Chunk(i, min(parts, longest[i]), plan.steps),))
        parts *= 2


def _untouched(steps: tuple[Step, ...], source: Layout, i: int) -> bool:
    if not steps:
        return False
    try:
        after(Chunk(i, 2, steps), source)
    except TypingError:
        return False
    return True
