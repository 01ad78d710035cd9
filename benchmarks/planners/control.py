"""Controls of the study itself: a planner that must be caught."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.planners.base import Answer
from benchmarks.problems import Problem

__all__ = ["NothingPlanner"]


@dataclass(frozen=True, slots=True)
class NothingPlanner:
    """Answers every problem with a plan of no steps, which is wrong wherever source and target differ."""

    name: str = "control-nothing"
    devices: bool = False

    def missing(self) -> str | None:
        """Never."""
        return None

    def answer(self, problem: Problem) -> Answer:
        """No steps."""
        return Answer("planned", ops=())
