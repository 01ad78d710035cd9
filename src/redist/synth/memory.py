"""Plans inside a memory limit: what does not fit is run in chunks along a dimension that no step touches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from redist.collectives.plan import Plan
from redist.collectives.steps import Chunk, Step
from redist.collectives.typing import after
from redist.errors import InfeasibleError, TypingError
from redist.types.layout import Layout

__all__ = ["within_limit"]


def within_limit(plan: Plan) -> Plan:
    """The plan, chunked as little as its memory limit asks. Raises InfeasibleError with the smallest
    limit that chunking reaches."""
    limit = plan.options.memory_limit
    if limit is None or plan.peak_bytes <= limit:
        return plan
    smallest = plan.peak_bytes
    for chunked in _chunkings(plan):
        if chunked.peak_bytes <= limit:
            return chunked
        smallest = min(smallest, chunked.peak_bytes)
    raise InfeasibleError(
        f"no plan from {plan.source} to {plan.target} keeps the live peak within {limit} bytes per device; the smallest "
        f"feasible limit is {smallest} bytes" + ("" if plan.options.donate else " (donating the source may lower it)"),
        smallest,
    )


def _chunkings(plan: Plan) -> Iterator[Plan]:
    """All steps in chunks, few parts first."""
    dims = [i for i in range(plan.source.rank) if _untouched(plan.steps, plan.source, i)]
    longest = {i: plan.source.block_shape()[i] for i in dims}
    parts = 2
    while any(parts // 2 < longest[i] for i in dims):
        for i in dims:
            if longest[i] >= 2:
                yield replace(plan, steps=(Chunk(i, min(parts, longest[i]), plan.steps),))
        parts *= 2


def _untouched(steps: tuple[Step, ...], source: Layout, i: int) -> bool:
    try:
        after(Chunk(i, 2, steps), source)
    except TypingError:
        return False
    return True
