"""redist's own planner, by the steps it may use."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from benchmarks.forms import from_steps
from benchmarks.planners.base import Answer
from benchmarks.problems import Problem
from redist.errors import InfeasibleError, RedistError
from redist.synth import synthesize

__all__ = ["PAPER", "RedistPlanner"]

PAPER = frozenset({"slice", "all_gather", "all_to_all", "permute"})
"""The paper's step set (arXiv 2112.01075)."""


@dataclass(frozen=True, slots=True)
class RedistPlanner:
    """`steps=None` is redist's default: all uniform collectives, and an exchange where nothing else serves.

    With fewer steps, some problems (uneven, other devices) have no plan; these are refused.
    """

    name: str
    steps: frozenset[str] | None = None
    devices: bool = False

    def missing(self) -> str | None:
        """Never."""
        return None

    def answer(self, problem: Problem) -> Answer:
        """Plan, and state what the plan claims of itself."""
        steps = self.steps
        if steps is not None and problem.source.partial is not None:
            steps |= {"reduce_scatter", "all_reduce"}
        started = perf_counter()
        try:
            plan = synthesize(problem.source, problem.target, steps=steps)
        except RedistError as error:
            narrowed = steps is not None and isinstance(error, InfeasibleError)
            return Answer("refused" if narrowed else "failed", perf_counter() - started, str(error))
        seconds = perf_counter() - started
        claims = {
            "received_bytes": plan.received_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "peak_bytes": plan.peak_bytes,
        }
        return Answer("planned", seconds, ops=from_steps(plan.source, plan.steps, plan.layouts[1:]), claims=claims)
