"""Peers, through redist's importers of foreign plans: Shardy's pass, XLA's compiled HLO, DTensor's planners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter

from benchmarks.forms import from_steps
from benchmarks.planners.base import Answer
from benchmarks.problems import Problem
from redist.errors import BackendError, LayoutError, ProofError
from redist.proofs.audit.foreign import ForeignPlan

__all__ = ["DTensorPlanner", "ShardyPlanner", "XlaPlanner"]

_COST_ELEMENTS = 2**24


def _answer(plan: ForeignPlan, seconds: float) -> Answer:
    """A foreign plan with typed steps in common form; one without has failed.

    Neither holds where blocks are uneven: Shardy and DTensor pad them, so that they are other
    blocks than the layouts of the same axes have.
    """
    uneven = [layout for layout in (plan.source, *plan.stated, plan.target) if not layout.is_even()]
    if uneven or (plan.steps is None and any(size % plan.source.mesh.size for size in plan.source.shape)):
        what = str(uneven[0]) if uneven else plan.note
        return Answer("refused", seconds, f"some blocks are uneven, and padded there: {what}")
    if plan.steps is None:
        return Answer("failed", seconds, plan.note)
    return Answer("planned", seconds, ops=from_steps(plan.source, plan.steps, plan.stated))


@dataclass(frozen=True, slots=True)
class ShardyPlanner:
    """Shardy's pass `sdy-reshard-to-collectives`, through jaxlib. The seconds include parsing and printing."""

    name: str = "shardy"
    devices: bool = False

    def missing(self) -> str | None:
        """Whether jaxlib has the pass."""
        from redist.proofs.audit import shardy

        return shardy.missing()

    def answer(self, problem: Problem) -> Answer:
        """Run the pass."""
        from redist.proofs.audit import shardy

        started = perf_counter()
        try:
            plan = shardy.plan_of_shardy(problem.source, problem.target)
        except LayoutError as error:
            return Answer("refused", perf_counter() - started, str(error))
        return _answer(plan, perf_counter() - started)


@dataclass(frozen=True, slots=True)
class DTensorPlanner:
    """DTensor's greedy planner, or with `shortest_path` its Dijkstra planner, planning for 64 MiB or more.

    The greedy planner takes shard orders from left to right only.
    """

    name: str
    shortest_path: bool
    devices: bool = False

    def missing(self) -> str | None:
        """Whether torch has the planner."""
        from redist.proofs.audit import dtensor

        return dtensor.missing()

    def answer(self, problem: Problem) -> Answer:
        """Ask torch for its transform infos."""
        from redist.proofs.audit import dtensor

        source, target = problem.source, problem.target
        if not self.shortest_path and not (dtensor.left_to_right(source) and dtensor.left_to_right(target)):
            return Answer("refused", note="the greedy planner takes shard orders from left to right only")
        started = perf_counter()
        try:
            plan = dtensor.plan_of_dtensor(source, target, self.shortest_path, _enlarged(source.shape))
        except LayoutError as error:
            return Answer("refused", perf_counter() - started, str(error))
        except (AssertionError, RuntimeError, ValueError) as error:
            return Answer("failed", perf_counter() - started, f"{type(error).__name__}: {error}")
        return _answer(plan, perf_counter() - started)


def _enlarged(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, multiplied in every dimension, for 2^24 elements or more: costs depend on the size."""
    factor = math.ceil((_COST_ELEMENTS / max(1, math.prod(shape))) ** (1 / max(1, len(shape))))
    return tuple(size * max(1, factor) for size in shape)


@dataclass(frozen=True, slots=True)
class XlaPlanner:
    """XLA's SPMD partitioner, through a compiled `jax.jit`; the seconds are those of compiling."""

    name: str = "xla"
    devices: bool = True

    def missing(self) -> str | None:
        """Whether JAX is installed."""
        from redist.proofs.audit import xla

        return xla.missing()

    def answer(self, problem: Problem) -> Answer:
        """Compile, and read the program. Needs a process with as many devices as the mesh."""
        import jax

        try:
            return self._answer(problem)
        finally:
            jax.clear_caches()  # it keeps every executable, about 1.5 MB each

    def _answer(self, problem: Problem) -> Answer:
        from redist.proofs.audit import xla

        source, target = problem.source, problem.target
        started = perf_counter()
        try:
            compiled = xla.compile_reshard(source, target)
        except (LayoutError, BackendError) as error:
            return Answer("refused", perf_counter() - started, str(error))
        seconds = perf_counter() - started
        try:
            plan = xla.read_compiled(compiled, source, target)
        except LayoutError as error:
            return Answer("refused", seconds, str(error))
        except ProofError as error:
            return Answer("failed", seconds, str(error))
        claims = {
            "temp_bytes": plan.measures["temp_bytes"],
            "measured_bytes": sum(plan.measures[f"{name}_bytes"] for name in ("argument", "output", "temp")),
        }
        if plan.steps is not None:
            return Answer("planned", seconds, ops=from_steps(source, plan.steps, plan.stated), claims=claims)
        received = [sum(counts) for counts in zip(*(op.received for op in plan.ops), strict=True)]
        counts = {
            "received": max(received, default=0),
            "steps": sum(any(op.received) for op in plan.ops),
            "largest_block": plan.measures["largest_elements"],
        }
        return Answer("planned", seconds, plan.note, counts=counts, claims=claims)
