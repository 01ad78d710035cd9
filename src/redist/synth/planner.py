"""`synthesize`: the plan from one layout to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from redist.collectives.plan import Options, Plan
from redist.collectives.profile import profile_of
from redist.collectives.steps import op_name
from redist.collectives.topology import UNIFORM, Topology
from redist.errors import InfeasibleError, LayoutError, TypingError
from redist.synth.candidates import Candidate, exchanges, uniform_candidates
from redist.synth.memory import within_limit
from redist.types.bounds import require_same_array
from redist.types.layout import Layout

__all__ = ["ALL_STEPS", "UNIFORM_STEPS", "synthesize"]

UNIFORM_STEPS = frozenset({"slice", "all_gather", "all_to_all", "permute", "reduce_scatter", "all_reduce", "chunk"})
ALL_STEPS = UNIFORM_STEPS | {"exchange"}


def synthesize(
    src: Layout,
    dst: Layout,
    memory_limit: int | None = None,
    topology: Topology | None = None,
    steps: Iterable[str] | None = None,
    backend: str = "numpy",
    donate: bool = False,
) -> Plan:
    """The cheapest plan found that turns `src` into `dst`, inside the block bound.

    `memory_limit` bounds the live peak in bytes per device; `steps` names the ops that may be used (by
    default all but the exchange, which then serves where no uniform plan exists); `donate` says that the
    source's memory may be reused.

    Raises LayoutError when both lay out different arrays, InfeasibleError (with the smallest feasible
    limit) when no plan fits, BackendError for an unknown backend.
    """
    allowed = None if steps is None else frozenset(steps)
    if allowed is not None and not allowed <= ALL_STEPS:
        raise LayoutError(f"unknown steps {sorted(allowed - ALL_STEPS)}; use some of {', '.join(sorted(ALL_STEPS))}")
    profile_of(backend)
    return _synthesize(src, dst, memory_limit, topology or UNIFORM, allowed, backend, donate)


@lru_cache(maxsize=4096)
def _synthesize(
    src: Layout,
    dst: Layout,
    memory_limit: int | None,
    topology: Topology,
    allowed: frozenset[str] | None,
    backend: str,
    donate: bool,
) -> Plan:
    require_same_array(src, dst)
    options = Options(backend, donate, memory_limit, topology)
    if src.equivalent(dst):
        return within_limit(Plan(src, dst, (), replace(options, optimal=True, gap=1.0)))
    uniform = allowed or UNIFORM_STEPS
    candidates = [
        one
        for one in uniform_candidates(src, dst, topology)
        if all(op_name(step) in uniform for step in one.steps) and _reaches(one, src, dst)
    ]
    if "exchange" in uniform or (not candidates and allowed is None):
        candidates += [one for one in exchanges(src, dst) if _reaches(one, src, dst)]
    if not candidates:
        raise InfeasibleError(
            f"no plan from {src} to {dst} uses only {', '.join(sorted(uniform))} and keeps every block within "
            f"{max(src.block_bytes(), dst.block_bytes())} bytes; allow 'exchange'"
        )
    plan = min((Plan(src, dst, one.steps, options) for one in candidates), key=_price)
    bounds = [one.bound for one in candidates if one.bound is not None]
    return within_limit(replace(plan, options=replace(options, **_quality(plan, max(bounds, default=None)))))


def _price(plan: Plan) -> tuple[float, int, int, int]:
    """Seconds, then communication steps, then all steps, then peak."""
    return round(plan.seconds, 15), plan.communication_steps, len(plan.steps), plan.peak_bytes


def _reaches(candidate: Candidate, src: Layout, dst: Layout) -> bool:
    """Whether the steps type, reach the target and keep the block bound (uneven blocks may not nest)."""
    plan = Plan(src, dst, candidate.steps)
    try:
        return plan.layouts[-1].equivalent(dst) and plan.largest_block_bytes <= plan.block_bound_bytes
    except TypingError:
        return False


def _quality(plan: Plan, bound: float | None) -> dict[str, Any]:
    """Whether the plan is the cheapest of its step set, and how far from it at most; `bound` is in
    elements, or in seconds where the topology counts more than bytes."""
    bytes_only = plan.options.topology.bytes_only(plan.source.mesh)
    if bytes_only and plan.received_bytes == plan.lower_bound_bytes:
        return {"optimal": True, "gap": 1.0}
    if bound is None:
        return {"optimal": False, "gap": plan.excess if bytes_only else None}
    spent = plan.received_bytes / plan.source.itemsize if bytes_only else plan.seconds
    gap = max(1.0, spent / bound) if bound else 1.0
    return {"optimal": gap <= 1 + 1e-9, "gap": gap}
