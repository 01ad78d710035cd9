"""One foreign plan against the obligations: does it end at its target, within the memory bound, at what cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from redist.collectives.explain import describe
from redist.errors import BackendError, LayoutError, ProofError
from redist.proofs.audit.foreign import ForeignPlan, WrongBlockError
from redist.proofs.certificate import Certificate, Counterexample, Refuted, Unknown
from redist.proofs.obligations import verify
from redist.types.bounds import lower_bound
from redist.types.layout import Layout

__all__ = ["VERDICTS", "Finding", "ForeignPlanner", "Verdict", "examine", "examine_pair"]

Verdict = Literal["right", "wrong", "failed", "refused", "undecided"]

VERDICTS: dict[Verdict, str] = {
    "right": "every device ends with its block",
    "wrong": "some device ends with something else",
    "failed": "the planner gave up",
    "refused": "the planner does not take such layouts",
    "undecided": "neither shown right nor wrong",
}

ForeignPlanner = Callable[[Layout, Layout], ForeignPlan]
"""A planner behind its importer. LayoutError and BackendError refuse a pair."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one planner's plan for source -> target.

    `reason` says why it is not right. `steps` are the operations for people. In elements: `received` by the
    busiest device over all steps, `needed` is the lower bound of that, `largest` the largest block on the way;
    None where there is no plan, or it could not be counted. `over` says what exceeds the memory bound of the
    design (the larger of source and target for a block; source + target + the larger of them + staging alive),
    and is empty where nothing does.
    """

    source: Layout
    target: Layout
    verdict: Verdict
    reason: str = ""
    steps: tuple[str, ...] = ()
    counterexample: Counterexample | None = None
    received: int | None = None
    needed: int | None = None
    largest: int | None = None
    over: str = ""

    @property
    def clean(self) -> bool:
        """Whether there is nothing to object to, cost aside."""
        return self.verdict in ("right", "refused") and not self.over

    @property
    def gathers_all(self) -> bool:
        """Whether a device holds the whole array on the way, though neither before nor after."""
        ends = max(self.source.block_elements(), self.target.block_elements())
        return self.largest is not None and ends < math.prod(self.source.shape) <= self.largest

    @property
    def simplicity(self) -> tuple[int, int, str]:
        """Sorts findings of one mesh, the simplest first: by axes in the layouts, then by operations."""
        axes = sum(len(dim.axes) for layout in (self.source, self.target) for dim in layout.dims)
        return axes, len(self.steps), f"{self.source} -> {self.target}"


def examine_pair(plan: ForeignPlanner, source: Layout, target: Layout, timeout_s: float = 10.0) -> Finding:
    """Ask a planner for one plan and examine it. `timeout_s` bounds each obligation, in seconds."""
    try:
        return examine(plan(source, target), timeout_s)
    except (LayoutError, BackendError) as error:
        return Finding(source, target, "refused", str(error))
    except WrongBlockError as error:
        return Finding(source, target, "wrong", str(error), counterexample=error.counterexample)
    except ProofError as error:
        return Finding(source, target, "undecided", str(error))


def examine(plan: ForeignPlan, timeout_s: float = 10.0) -> Finding:
    """Prove or refute a foreign plan.

    Wrong is a plan whose steps do not type, end elsewhere, or do not lead where the planner states. A
    program without typed steps that was run on the numbers of the elements is right by that. A plan with
    an operation that has no typed step, and was not run, is undecided.
    """
    source, target = plan.source, plan.target
    names = tuple(op.name for op in plan.ops)
    if plan.failed:
        return Finding(source, target, "failed", plan.note)
    made = plan.plan
    if made is None:
        if not plan.checked:
            return Finding(source, target, "undecided", plan.note, names)
        received = [sum(counts) for counts in zip(*(op.received for op in plan.ops), strict=True)]
        largest = plan.measures["largest_elements"]
        over = _larger(plan, largest)
        needed = lower_bound(source, target)
        return Finding(source, target, "right", "", names, None, max(received, default=0), needed, largest, over)
    certificate = verify(made, timeout_s=timeout_s)
    verdict, reason, found = _judged(plan, certificate)
    memory, needs = certificate.obligation("M"), certificate.obligation("N3").figures
    over, largest = "", plan.measures.get("largest_elements", 0)
    if isinstance(memory.verdict, Refuted):
        over = memory.verdict.counterexample.text
    if "largest block" in memory.figures:
        largest = max(largest, memory.figures["largest block"] // source.itemsize)
        over = over or _larger(plan, largest)
    return Finding(
        source,
        target,
        verdict,
        reason,
        tuple(map(describe, made.steps)),
        found,
        needs.get("received"),
        needs.get("missing", needs.get("lower bound")),
        largest or None,
        over,
    )


def _judged(plan: ForeignPlan, certificate: Certificate) -> tuple[Verdict, str, Counterexample | None]:
    for name in ("T", "R"):
        match certificate.obligation(name).verdict:
            case Refuted(found):
                return "wrong", found.text, found
            case Unknown(reason) if not plan.checked:
                return "undecided", reason, None
            case _:
                pass
    layouts = certificate.plan.layouts[1:]
    for n, (stated, typed) in enumerate(zip(plan.stated or layouts, layouts, strict=True), 1):
        if not stated.equivalent(typed):
            return "wrong", f"after step {n} the planner states {stated}, but its step leads to {typed}", None
    return "right", "", None


def _larger(plan: ForeignPlan, largest: int) -> str:
    """Where a value of the program is larger than source and target, though no layout on the way is."""
    bound = max(plan.source.block_elements(), plan.target.block_elements())
    if largest <= bound:
        return ""
    return f"a device holds a value of {largest} elements, more than the larger of source and target, {bound}"
