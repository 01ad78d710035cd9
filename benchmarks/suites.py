"""The suites: which problems go to which planners, and what is timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.blocks import boxes_of
from benchmarks.planners import CONTROL, PLANNERS, Planner
from benchmarks.problems import Problem, case_problems, family, sampled, tree_problems

__all__ = ["SUITES", "ClusterPart", "MpiPart", "PlanPart", "Suite", "TimingPart", "plan_tasks"]

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
    """`count` problems on this many devices, of arrays of these sizes in MiB, `rounds` rounds in each process."""

    devices: int
    count: int
    rounds: int
    sizes: tuple[int, ...] = (4, 16, 64)


@dataclass(frozen=True, slots=True)
class MpiPart:
    """Transpositions in slabs and pencils, and `general` problems of any kind, on so many ranks, of arrays of
    these sizes in MiB, `rounds` rounds each."""

    ranks: int
    rounds: int
    sizes: tuple[int, ...] = (4, 16, 64)
    general: int = 0


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """`count` problems on `hosts` hosts of `each` devices, of arrays of these sizes in MiB, `rounds` rounds each.
    Every link has this rate and delay, as `tc` writes them. The axes of the meshes lie between hosts or inside
    one; the hosts are the major ones."""

    rate: str
    count: int
    rounds: int = 24
    delay: str | None = None
    hosts: int = 4
    each: int = 2
    sizes: tuple[int, ...] = (1, 4, 8)
    meshes: tuple[str, ...] = ("4x2", "2x2x2")


@dataclass(frozen=True, slots=True)
class Suite:
    """Families to plan, whether reported cases and a model's parameters are among them, and what to time."""

    name: str
    about: str
    plans: tuple[PlanPart, ...] = ()
    cases: bool = False
    timings: tuple[TimingPart, ...] = field(default=())
    mpi: tuple[MpiPart, ...] = field(default=())
    cluster: tuple[ClusterPart, ...] = field(default=())


_CLUSTER = (ClusterPart("400mbit", 60), ClusterPart("100mbit", 24, 12), ClusterPart("1gbit", 24))

SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "quick",
            "under ten minutes: small families, the reported cases, and some timings on 8 virtual devices",
            (PlanPart("2x2x2", 2, 500, 200), PlanPart("2x4", 2), PlanPart("2x3", 2), PlanPart("2x3x5", 2, 300, 60)),
            cases=True,
            timings=(TimingPart(8, 24, 8, (4, 16)),),
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
            timings=(TimingPart(8, 64, 8), TimingPart(16, 200, 8)),
        ),
        Suite(
            "mpi",
            "timings on MPI against transfers by hand on 2, 4 and 8 ranks",
            mpi=(MpiPart(2, 36), MpiPart(4, 36), MpiPart(8, 36, general=24)),
        ),
        Suite(
            "cluster",
            "timings on several hosts on a slow network against XLA and Shardy's plans",
            cluster=_CLUSTER,
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
            timings=(TimingPart(8, 120, 16), TimingPart(16, 240, 16)),
            mpi=(MpiPart(2, 72), MpiPart(4, 72), MpiPart(8, 72, general=60)),
            cluster=_CLUSTER,
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
