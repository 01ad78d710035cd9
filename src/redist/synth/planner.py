"""`synthesize`: the plan from one layout to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from redist.collectives.plan import Options, Plan
from redist.collectives.profile import profile_of
from redist.collectives.steps import Exchange, Step, op_name
from redist.collectives.topology import UNIFORM, Topology
from redist.collectives.typing import after
from redist.errors import InfeasibleError, LayoutError, TypingError
from redist.synth.memory import within_limit
from redist.synth.mixed import permute_and_all_to_all
from redist.synth.problem import Problem, Route
from redist.synth.realise import realise
from redist.synth.reduction import reductions
from redist.synth.relabel import relabelled
from redist.synth.search import several_moves
from redist.synth.single import local_route, one_all_to_all, one_permute
from redist.types.bounds import require_same_array
from redist.types.digits import Alignment, align
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
        return within_limit(Plan(src, dst, (), Options(backend, donate, memory_limit, topology, True, 1.0)))
    uniform = allowed or UNIFORM_STEPS
    found = [
        plan
        for steps in _candidates(src, dst)
        if all(op_name(step) in uniform for step in steps) and (plan := _checked(src, dst, steps, options)) is not None
    ]
    if "exchange" in uniform or (not found and allowed is None):
        found += [plan for steps in _exchanges(src, dst) if (plan := _checked(src, dst, steps, options)) is not None]
    if not found:
        raise InfeasibleError(
            f"no plan from {src} to {dst} uses only {', '.join(sorted(uniform))} and keeps every block within "
            f"{max(src.block_bytes(), dst.block_bytes())} bytes; allow 'exchange'"
        )
    return within_limit(min(found, key=_price))


def _price(plan: Plan) -> tuple[float, int, int, int]:
    """Seconds, then communication steps, then all steps, then peak."""
    return plan.seconds, plan.communication_steps, len(plan.steps), plan.peak_bytes


def _checked(src: Layout, dst: Layout, steps: tuple[Step, ...], options: Options) -> Plan | None:
    """The plan, if its steps type, reach the target and keep the block bound (uneven blocks may not nest)."""
    plan = Plan(src, dst, steps, options)
    try:
        reached = plan.layouts[-1].equivalent(dst)
    except TypingError:
        return None
    return plan if reached and plan.largest_block_bytes <= plan.block_bound_bytes else None


def _candidates(src: Layout, dst: Layout) -> Iterator[tuple[Step, ...]]:
    """Step sequences of uniform collectives; the cheapest is among them, wrong ones may be too."""
    for prefix in reductions(src, dst):
        middle = _after_all(prefix, src)
        if middle is None:
            continue
        if middle.equivalent(dst):
            yield prefix
            continue
        yield from ((*prefix, *rest) for rest in _uniform(middle, dst))


def _after_all(steps: Iterable[Step], layout: Layout) -> Layout | None:
    try:
        for step in steps:
            layout = after(step, layout)
    except TypingError:
        return None
    return layout


def _uniform(src: Layout, dst: Layout) -> Iterator[tuple[Step, ...]]:
    """The cheapest route of the first class that has one: a later class is never cheaper. Where blocks
    are uneven a route may not type, and all classes are tried."""
    alignment = align((src, dst), primes=True)
    if alignment is None:
        yield from relabelled(src, dst)
        return
    fine = _problem(alignment, src)
    even = src.is_even() and dst.is_even()
    for make in (local_route, one_all_to_all, one_permute, permute_and_all_to_all):
        route = make(fine)
        if route is None:
            continue
        try:
            steps = realise(route, fine, alignment, src, dst)
        except (TypingError, LayoutError):  # uneven blocks need not nest, explicit offsets need not extend
            assert not even, f"route {route} of {fine} does not type"
            continue
        yield steps
        if even and make is not permute_and_all_to_all:
            return
    best = permute_and_all_to_all(fine)
    yield from _searched(src, dst, fine, alignment, best)


_FEW_DIGITS = 5


def _searched(
    src: Layout, dst: Layout, fine: Problem, alignment: Alignment, best: Route | None
) -> Iterator[tuple[Step, ...]]:
    """Routes of several moves, on primes where they are few, else on axes as they are cut."""
    if len(fine.sizes) > _FEW_DIGITS:
        whole = align((src, dst))
        assert whole is not None, "what is aligned in primes is aligned"
        alignment, problem, best = whole, _problem(whole, src), None
    else:
        problem = fine
    route, _ = several_moves(problem, best)
    if route is not None and route is not best:
        try:
            yield realise(route, problem, alignment, src, dst)
        except (TypingError, LayoutError):
            assert not (src.is_even() and dst.is_even()), f"route {route} of {problem} does not type"


def _problem(alignment: Alignment, src: Layout) -> Problem:
    first, second = alignment.forms
    return Problem(alignment.sizes, src.shape, first.dims, second.dims, frozenset(second.partial))


def _exchanges(src: Layout, dst: Layout) -> Iterator[tuple[Step, ...]]:
    for prefix in reductions(src, dst):
        yield (*prefix, Exchange(dst))
