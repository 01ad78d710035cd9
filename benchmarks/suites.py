"""The suites: which problems go to which planners, and what is timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.blocks import boxes_of
from benchmarks.planners import CONTROL, PLANNERS, Planner
from benchmarks.problems import Problem, case_problems, family, sampled, tree_problems

__all__ = ["SUITES", "PlanPart", "Suite", "TimingPart", "plan_tasks"]

SLOW = ("xla", "dtensor-dijkstra")
"""Planners that take 10 to 100 ms a plan."""


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A family of problems; planners that are slow get a sample of `slow_count` of them, None for all."""

    mesh: str
    rank: int
    count: int | None = None
    slow_count: int | None = None


@dataclass(frozen=True, slots=True)
class TimingPart:
    """`count` problems on this many devices, of arrays of these sizes in MiB, `rounds` rounds each."""

    devices: int
    count: int
    rounds: int
    sizes: tuple[int, ...] = (4, 16, 64)


@dataclass(frozen=True, slots=True)
class Suite:
    """Families to plan, whether reported cases and a model's parameters are among them, and what to time."""

    name: str
    about: str
    plans: tuple[PlanPart, ...] = ()
    cases: bool = False
    timings: tuple[TimingPart, ...] = field(default=())


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "quick",
            "under ten minutes: small families, the reported cases, and some timings on 8 virtual devices",
            (PlanPart("2x2x2", 2, 500, 200), PlanPart("2x4", 2), PlanPart("2x3", 2), PlanPart("2x3x5", 2, 300, 60)),
            cases=True,
            timings=(TimingPart(8, 24, 12, (4, 16)),),
        ),
        Suite(
            "plans",
            "plans only: exhaustive families and the reported cases",
            (
                PlanPart("2x2x2", 2),
                PlanPart("2x2x2", 3, slow_count=1000),
                PlanPart("2x4", 2),
                PlanPart("2x3", 2),
                PlanPart("2x3x5", 2, slow_count=1000),
            ),
            cases=True,
        ),
        Suite(
            "jax",
            "timings against XLA on 8 and 16 virtual devices",
            timings=(TimingPart(8, 60, 18), TimingPart(16, 60, 18)),
        ),
        Suite(
            "full",
            "everything, nothing sampled",
            (
                PlanPart("2x2x2", 2),
                PlanPart("2x2x2", 3),
                PlanPart("2x4", 2),
                PlanPart("2x3", 2),
                PlanPart("2x3x5", 2),
                PlanPart("2x3x4", 2),
                PlanPart("2x4x2", 3, 3000, 1000),
                PlanPart("6x4x2", 2),
            ),
            cases=True,
            timings=(TimingPart(8, 120, 24), TimingPart(16, 120, 24)),
        ),
    )
}


def plan_tasks(
    suite: Suite, seed: int, names: Sequence[str] | None = None, limit: int | None = None
) -> list[tuple[Planner, list[Problem]]]:
    """Which planner is asked what, family by family; at most `limit` problems of each.

    The control is asked where source and target differ.
    """
    planners = [PLANNERS[name] for name in names or PLANNERS]
    families: list[tuple[list[Problem], int | None]] = []
    for part in suite.plans:
        families.append((sampled(family(part.mesh, part.rank), part.count, seed), part.slow_count))
    if suite.cases:
        families += [(problems, None) for problems in (case_problems("reported"), case_problems("shardy"))]
        families.append((tree_problems(), None))
    tasks: list[tuple[Planner, list[Problem]]] = []
    for problems, slow_count in families:
        asked = sampled(problems, limit, seed)
        fewer = sampled(asked, slow_count, seed)
        tasks.append((CONTROL, [p for p in asked if boxes_of(p.source) != boxes_of(p.target)]))
        tasks += [(planner, fewer if planner.name in SLOW else asked) for planner in planners]
    return tasks
