"""`synthesize`: the plan from one layout to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from redist.collectives.exchange_cost import MOST_DEVICES
from redist.collectives.explain import seconds_text
from redist.collectives.plan import Options, Plan
from redist.collectives.profile import profile_of
from redist.collectives.steps import op_name
from redist.collectives.topology import UNIFORM, Topology
from redist.errors import InfeasibleError, LayoutError, TypingError
from redist.synth.candidates import Candidate, exchanges, in_normal_form, uniform_candidates
from redist.synth.memory import chunkings, fitting, within_default
from redist.types.bounds import require_same_array
from redist.types.layout import Layout

__all__ = ["ALL_STEPS", "UNIFORM_STEPS", "pareto", "synthesize"]

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
    """The cheapest plan that turns `src` into `dst`, inside the block bound and, without a `memory_limit`,
    the default bound of the live peak.

    Cheapest by projected seconds under `topology` (by default bytes received by the busiest device),
    then by communication steps; `plan.optimal` says whether no plan of such steps in normal form (slices,
    then moves, then gathers) is cheaper, `plan.options.gap` how much cheaper one could be.
    `memory_limit` bounds the live peak in bytes per device; `steps` names the ops that may be used (by
    default all but the exchange, which then serves where no uniform plan exists or fits); `donate` says
    that the source's memory may be reused.

    Raises LayoutError when both lay out different arrays or a step is unknown, InfeasibleError (with the
    smallest feasible limit) when no plan fits, BackendError for an unknown backend.
    Source: arXiv 2112.01075 section 4 for the calculus and its normal form.
    """
    allowed = None if steps is None else frozenset(steps)
    if allowed is not None and not allowed <= ALL_STEPS:
        raise LayoutError(f"unknown steps {sorted(allowed - ALL_STEPS)}; use some of {', '.join(sorted(ALL_STEPS))}")
    profile_of(backend)
    return _synthesize(src, dst, memory_limit, topology or UNIFORM, allowed, backend, donate)


def pareto(
    src: Layout,
    dst: Layout,
    topology: Topology | None = None,
    steps: Iterable[str] | None = None,
    backend: str = "numpy",
    donate: bool = False,
) -> tuple[Plan, ...]:
    """Plans of which none is both faster and smaller than another: the fastest first, the one with the
    lowest live peak last. Raises as `synthesize` does."""
    allowed = None if steps is None else frozenset(steps)
    fastest = synthesize(src, dst, None, topology, steps, backend, donate)
    plans = [] if not fastest.steps else _plans(src, dst, topology or UNIFORM, allowed, fastest.options)
    if allowed is None and fastest.steps:
        plans += _exchange_plans(src, dst, fastest.options)
    front: list[Plan] = [fastest]
    variants = [variant for plan in plans for variant in (plan, *chunkings(plan))]
    for plan in sorted(variants, key=_price):
        if plan.peak_bytes < front[-1].peak_bytes:
            front.append(plan)
    return tuple(front)


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
        plans = [Plan(src, dst, (), replace(options, optimal=True, gap=1.0))]
    else:
        plans = _plans(src, dst, topology, allowed, options)
    if allowed is None and plans and _exchange_competes(src, dst, topology):
        plans = [*plans, *_faster_exchanges(src, dst, options, min(plans, key=_price))]
    smallest: int | None = None
    if memory_limit is not None:
        plans, smallest = fitting(plans, memory_limit)
    if not plans and allowed is None:
        plans = _exchange_plans(src, dst, options)
        if memory_limit is not None:
            plans, other = fitting(plans, memory_limit)
            smallest = other if smallest is None or other is None else min(smallest, other)
    if not plans:
        raise _infeasible(src, dst, options, allowed, smallest)
    return min(plans, key=_price)


def _faster_exchanges(src: Layout, dst: Layout, options: Options, uniform: Plan) -> list[Plan]:
    """Exchanges that take less time than the best plan of uniform collectives; a tie goes to the latter."""
    note = f"an exchange, because uniform collectives would take {seconds_text(uniform.seconds)}"
    return [
        replace(plan, options=replace(plan.options, notes=(note,)))
        for plan in _exchange_plans(src, dst, options)
        if plan.seconds < uniform.seconds * (1 - 1e-9)
    ]


def _exchange_competes(src: Layout, dst: Layout, topology: Topology) -> bool:
    """Whether an exchange may be faster than uniform collectives: where more than bytes counts, on links
    that are a network, and its messages are few enough to be priced one by one."""
    return (
        not topology.bytes_only(src.mesh)
        and all(topology.link(name).kind != "memory" for name in src.mesh.names)
        and max(src.mesh.size, dst.mesh.size) <= MOST_DEVICES
    )


def _infeasible(
    src: Layout, dst: Layout, options: Options, allowed: frozenset[str] | None, smallest: int | None
) -> InfeasibleError:
    if smallest is not None:
        advice = "" if options.donate else " (donating the source may lower it)"
        return InfeasibleError(
            f"no plan from {src} to {dst} keeps the live peak within {options.memory_limit} bytes per device; the "
            f"smallest feasible limit is {smallest} bytes{advice}",
            smallest,
        )
    return InfeasibleError(
        f"no plan from {src} to {dst} uses only {', '.join(sorted(allowed or UNIFORM_STEPS))} and keeps every block "
        f"within {max(src.block_bytes(), dst.block_bytes())} bytes; allow 'exchange'"
    )


def _plans(
    src: Layout, dst: Layout, topology: Topology, allowed: frozenset[str] | None, options: Options
) -> list[Plan]:
    """Plans of the allowed steps that reach the target, each with what is known of its quality."""
    uniform = UNIFORM_STEPS if allowed is None else allowed
    candidates = [
        one
        for one in uniform_candidates(src, dst, topology, uniform)
        if all(op_name(step) in uniform for step in one.steps) and _reaches(one, src, dst)
    ]
    candidates = [one for one in candidates if in_normal_form(one.steps)] or (candidates if allowed else [])
    bounds = [one.bound for one in candidates if one.bound is not None]
    bound = max(bounds, default=None)
    plans = [_rated(Plan(src, dst, one.steps, options), bound) for one in candidates]
    plans = _within(plans, options) or (plans if allowed else [])
    return plans + _exchange_plans(src, dst, options) if "exchange" in uniform else plans


def _exchange_plans(src: Layout, dst: Layout, options: Options) -> list[Plan]:
    found = [one.steps for one in exchanges(src, dst) if _reaches(one, src, dst)]
    plans = [_rated(Plan(src, dst, steps, options), None) for steps in found]
    return _within(plans, options) or plans


def _within(plans: list[Plan], options: Options) -> list[Plan]:
    """Those whose live peak keeps its default bound, where the caller states no limit."""
    return [plan for plan in plans if options.memory_limit is not None or within_default(plan)]


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


def _rated(plan: Plan, bound: float | None) -> Plan:
    return replace(plan, options=replace(plan.options, **_quality(plan, bound)))


def _quality(plan: Plan, bound: float | None) -> dict[str, Any]:
    """Whether the plan is the cheapest of its step set, and how far from it at most; `bound` is in
    elements, or in seconds where the topology counts more than bytes."""
    bytes_only = plan.options.topology.bytes_only(plan.source.mesh)
    if bytes_only and plan.received_bytes == plan.lower_bound_bytes:
        return {"optimal": True, "gap": 1.0}
    if bound is None:
        return {"optimal": False, "gap": plan.excess if bytes_only else None}
    spent = plan.received_bytes / plan.source.itemsize if bytes_only else plan.seconds
    gap = max(1.0, spent / bound) if bound else (1.0 if spent == 0 else None)
    return {"optimal": gap is not None and gap <= 1 + 1e-9, "gap": gap}
