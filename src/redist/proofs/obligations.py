"""`verify`: all obligations of a plan, decided one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from redist.collectives.plan import Plan
from redist.collectives.steps import Permute, op_name
from redist.errors import RedistError, TypingError
from redist.proofs import explain
from redist.proofs.certificate import Certificate, Counterexample, Obligation, Proved, Refuted, Unknown, Verdict
from redist.proofs.counts import dropped, exceptions, totals
from redist.proofs.disjoint import movements
from redist.proofs.memory import measure
from redist.proofs.order import out_of_order
from redist.proofs.premises import chunk_problem, problem
from redist.proofs.refinement import Refinement
from redist.proofs.solver import Deadline, decide, solver_version
from redist.proofs.spaces import TooManyDevicesError
from redist.proofs.terms import Query
from redist.proofs.trace import Leaf, flatten
from redist.types.bounds import lower_bound
from redist.types.layout import Layout

__all__ = ["verify"]

_TITLES = {
    "R": "refinement",
    "T": "typing",
    "M": "memory",
    "N1": "order of steps",
    "N2": "nothing held is received",
    "N3": "received is what is missing",
}


class _Decided(NamedTuple):
    verdict: Verdict
    method: Any = "syntactic"
    figures: Mapping[str, Any] = MappingProxyType({})
    queries: tuple[tuple[Query, str], ...] = ()


def verify(plan: Plan, *, timeout_s: float = 10.0) -> Certificate:
    """Prove or refute a plan; `timeout_s` bounds each obligation.

    Right or wrong, whoever made it: nothing is taken from the planner. The certificate is proved when every
    device ends with exactly its block (R), every step's premises hold (T), memory stays within its bounds
    (M), steps are in order (N1), and what is received beyond need is known exactly (N2, N3).

    Raises ProofError where Z3 is not installed.
    """
    solver_version()  # imports Z3, which is no obligation's time
    typed, leaves = _timed("T", lambda: _typing(plan))
    if leaves is None:
        why = "the plan is ill-typed, so that there is no layout to speak of after its steps"
        others = [Obligation(name, _TITLES[name], Unknown(why), "syntactic", 0.0) for name in _TITLES if name != "T"]
        return Certificate(plan, (others[0], typed, *others[1:]))
    decisions: dict[str, Callable[[], _Decided]] = {
        "R": lambda: _refinement(plan, leaves, Deadline.after(timeout_s)),
        "M": lambda: _memory(plan),
        "N1": lambda: _order(leaves),
        "N2": lambda: _disjoint(leaves, Deadline.after(timeout_s)),
        "N3": lambda: _needed(plan, leaves),
    }
    made = {name: _timed(name, lambda run=run: (run(), None))[0] for name, run in decisions.items()}
    return Certificate(plan, tuple(typed if name == "T" else made[name] for name in _TITLES))


def _timed(name: str, run: Callable[[], tuple[_Decided, Any]]) -> tuple[Obligation, Any]:
    start = time.perf_counter()
    found, extra = run()
    seconds = time.perf_counter() - start
    return Obligation(name, _TITLES[name], found.verdict, found.method, seconds, found.figures, found.queries), extra


def _refuted(name: str, text: str) -> _Decided:
    return _Decided(Refuted(explain.plain(_TITLES[name], text)))


def _typing(plan: Plan) -> tuple[_Decided, list[Leaf] | None]:
    try:
        layouts = plan.layouts
        leaves = list(flatten(plan.steps, layouts))
    except TypingError as error:
        return _refuted("T", str(error)), None
    for n, (step, before) in enumerate(zip(plan.steps, layouts, strict=False), 1):
        found = chunk_problem(step, before)
        if found:
            return _refuted("T", f"step {n}: {found}"), None
    for leaf in leaves:
        found = problem(leaf)
        if found:
            return _refuted("T", f"step {leaf.label}, {op_name(leaf.step)} on {leaf.before}: {found}"), None
    return _Decided(Proved(), figures={"steps": len(leaves)}), leaves


def _refinement(plan: Plan, leaves: Sequence[Leaf], deadline: Deadline) -> _Decided:
    run = Refinement(plan, leaves, deadline)
    verdict = run.decide()
    method = "+".join(sorted(run.methods, reverse=True)) or "syntactic"
    return _Decided(verdict, method, queries=tuple(run.queries))


def _memory(plan: Plan) -> _Decided:
    try:
        found = measure(plan)
    except RedistError as error:  # a backend that does not exist
        return _Decided(Unknown(str(error)))
    figures = {
        "largest block": found.largest_block,
        "of": found.block_bound,
        "peak": found.peak,
        "limit" if found.limited else "bound": found.peak_bound,
    }
    wrong = found.problem()
    if wrong:
        return _Decided(Refuted(explain.plain(_TITLES["M"], wrong)), figures=figures)
    return _Decided(Proved(), figures=figures)


def _order(leaves: Sequence[Leaf]) -> _Decided:
    wrong = out_of_order(leaves)
    return _refuted("N1", wrong) if wrong else _Decided(Proved())


def _disjoint(leaves: Sequence[Leaf], deadline: Deadline) -> _Decided:
    claim = movements(leaves)
    queries: list[tuple[Query, str]] = []
    counted = list(claim.tables)
    if claim.query is not None:
        answer = decide(claim.query, deadline)
        queries.append((claim.query, answer.status))
        if answer.status == "unknown":
            return _Decided(Unknown(answer.reason), "smt", queries=tuple(queries))
        if answer.status == "sat":
            counted += [leaf for leaf in claim.symbolic if isinstance(leaf.step, Permute)]
            if not any(isinstance(leaf.step, Permute) for leaf in claim.symbolic):
                return _Decided(Unknown("a step keeps what the device does not hold"), "smt", queries=tuple(queries))
    try:
        by_step = {leaf.label: exceptions(leaf) for leaf in counted}
    except TooManyDevicesError as error:
        return _Decided(Unknown(str(error)), "smt", queries=tuple(queries))
    total = sum(by_step.values())
    methods = [*(["smt"] if claim.query else []), *(["enumerated"] if counted else [])]
    method = "+".join(methods) or "syntactic"
    figures: dict[str, Any] = {"elements": total}
    if total:
        labels = [label for label, count in by_step.items() if count]
        text = (
            f"EXCEPTION {_TITLES['N2']}: {total} elements, over all devices, are received in steps {', '.join(labels)} "
            "by devices that hold them"
        )
        return _Decided(Refuted(Counterexample(text)), method, figures, tuple(queries))
    return _Decided(Proved(), method, figures, tuple(queries))


def _needed(plan: Plan, leaves: Sequence[Leaf]) -> _Decided:
    source, target = plan.source, plan.target
    if not source.same_array(target):
        return _Decided(Unknown("source and target are different arrays"))
    try:
        found = totals(leaves, source, target)
        reduced = source.mesh.count(source.partial_axes) // max(1, target.mesh.count(target.partial_axes))
        if reduced > 1:
            return _with_reduction(source, target, int(found.received.max()))
    except (TooManyDevicesError, RedistError) as error:
        return _Decided(Unknown(str(error)))
    got, gap = found.received, found.missing
    busiest, need = int(got.max()), int(gap.max())
    figures: dict[str, Any] = {"received": busiest, "missing": need}
    method = "syntactic" if found.alike else "enumerated"
    if np.array_equal(got, gap):
        return _Decided(Proved(), method, figures)
    if need:
        figures["ratio of the maxima"] = busiest / need
    needing = gap > 0
    if needing.any():
        figures["worst device's ratio"] = float((got[needing] / gap[needing]).max())
    figures["devices that received though nothing was missing"] = found.over_devices((got > 0) & ~needing)
    figures["elements beyond need"] = found.over_devices(got - gap)
    lost = dropped(leaves, target, found.space)
    if lost is not None:
        figures["elements received and dropped"] = lost
    n = int(np.argmax(got - gap))
    device = found.device(n)
    text = (
        f"EXCEPTION {_TITLES['N3']}: device {device} receives {int(got.ravel()[n])} elements, "
        f"{int(gap.ravel()[n])} are missing"
    )
    return _Decided(Refuted(Counterexample(text, device)), method, figures)


def _with_reduction(source: Layout, target: Layout, busiest: int) -> _Decided:
    """Where contributions are reduced, what one device misses is not defined: the busiest device against
    the lower bound."""
    need = lower_bound(source, target)
    figures: dict[str, Any] = {"received": busiest, "lower bound": need}
    if busiest <= need:
        return _Decided(Proved(), "syntactic", figures)
    if need:
        figures["ratio of the maxima"] = busiest / need
    text = f"EXCEPTION {_TITLES['N3']}: the busiest device receives {busiest} elements, the lower bound is {need}"
    return _Decided(Refuted(Counterexample(text)), "syntactic", figures)
