"""Audits of peers against something that shares no code with them.

Shardy's and DTensor's steps are run by the simulator of this study: the audit has to find the pairs that are wrong
there, and no others, and count what is received alike. XLA's programs state their buffers: the audit has to find
the pairs in whose buffers the full array is, though neither source nor target is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.forms import from_steps
from benchmarks.problems import Problem, family, sampled
from benchmarks.proofs.buffers import largest_buffer
from benchmarks.simulate import simulate
from redist.errors import LayoutError
from redist.proofs.audit.examine import examine
from redist.proofs.audit.foreign import ForeignPlan

__all__ = ["SHARDY", "Comparison", "compare_dtensor", "compare_shardy", "compare_xla", "table"]

SHARDY = (("2x3x5", 2), ("3x4x5", 2), ("2x3x4", 2), ("2x2x2x3", 2))
XLA = ("2x2x2", 2)
DTENSOR = (("2x2x2", 2), ("2x3x5", 2), ("2x3x4", 2))


@dataclass(slots=True)
class Comparison:
    """One peer on `asked` of the `pairs` of a family.

    `audit` and `other` are the pairs that the audit, and the independent way, find wrong (for XLA: with the full
    array on the way). `failed` are pairs where the peer gave up, `refused` those that it does not take.
    `counted` of the right plans receive as many elements in both. `ratios`: received over lower bound.
    """

    peer: str
    family: str
    pairs: int
    asked: int = 0
    audit: set[str] = field(default_factory=set)
    other: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    undecided: set[str] = field(default_factory=set)
    refused: int = 0
    over: int = 0
    right: int = 0
    counted: int = 0
    ratios: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether both find the same pairs, and everything was decided."""
        return self.audit == self.other and not self.undecided and self.counted == self.right

    def row(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "peer": self.peer,
            "family": self.family,
            "pairs": self.pairs,
            "asked": self.asked,
            "audit": sorted(self.audit),
            "independent": sorted(self.other),
            "failed": len(self.failed),
            "undecided": sorted(self.undecided),
            "refused": self.refused,
            "over the bound": self.over,
            "right": self.right,
            "received alike": self.counted,
            "excess mean": float(np.mean(self.ratios)) if self.ratios else None,
            "excess max": max(self.ratios, default=None),
            "agrees": self.agrees,
            "notes": self.notes,
        }


def compare_shardy(sample: int | None = None, seed: int = 0) -> Iterator[Comparison]:
    """Shardy's pass, one comparison per family; of each at most `sample` pairs."""
    from redist.proofs.audit.shardy import plan_of_shardy

    for mesh, rank in SHARDY:
        yield _simulated("shardy", plan_of_shardy, family(mesh, rank, 1), sample, seed)


def compare_dtensor(shortest_path: bool, sample: int | None = None, seed: int = 0) -> Iterator[Comparison]:
    """DTensor's planner, as `compare_shardy`; planned for arrays of 2^24 elements, as its costs depend on that."""
    from redist.proofs.audit.dtensor import plan_of_dtensor

    def plan(source: Any, target: Any) -> ForeignPlan:
        side = source.mesh.size
        return plan_of_dtensor(source, target, shortest_path, [side * -(-4096 // side)] * source.rank)

    name = "dtensor-dijkstra" if shortest_path else "dtensor"
    for mesh, rank in DTENSOR:
        yield _simulated(name, plan, family(mesh, rank, 1), sample, seed)


def _simulated(
    peer: str, planner: Callable[[Any, Any], ForeignPlan], pairs: list[Problem], sample: int | None, seed: int
) -> Comparison:
    made = Comparison(peer, pairs[0].family, len(pairs))
    for problem in sampled(pairs, sample, seed):
        made.asked += 1
        try:
            plan = planner(problem.source, problem.target)
        except LayoutError:
            made.refused += 1
            continue
        if plan.failed:
            made.failed.add(problem.key)
            continue
        found = examine(plan)
        _enter(made, problem, found)
        if plan.steps is None:
            made.undecided.add(problem.key)
            continue
        run = simulate(problem.source, problem.target, from_steps(plan.source, plan.steps, plan.stated))
        if run.wrong is not None:
            made.other.add(problem.key)
        elif found.verdict == "right":
            made.counted += run.received == found.received
        if found.verdict == "wrong":
            made.audit.add(problem.key)
    return made


def _enter(made: Comparison, problem: Problem, found: Any) -> None:
    made.over += bool(found.over)
    if found.verdict == "undecided":
        made.undecided.add(problem.key)
    if found.verdict == "right":
        made.right += 1
        if found.needed:
            made.ratios.append(found.received / found.needed)


def compare_xla(sample: int | None = None, seed: int = 0) -> Comparison:
    """XLA's partitioner on 2x2x2, rank 2. Needs 8 devices."""
    import jax

    from redist.proofs.audit.xla import compile_reshard, read_compiled

    pairs = family(*XLA)
    made = Comparison("xla", pairs[0].family, len(pairs))
    temporaries: set[str] = set()
    for problem in sampled(pairs, sample, seed):
        made.asked += 1
        compiled = compile_reshard(problem.source, problem.target)
        plan = read_compiled(compiled, problem.source, problem.target)
        found = examine(plan)
        _enter(made, problem, found)
        full = int(np.prod(problem.source.shape)) * problem.source.itemsize
        if max(problem.source.block_bytes(), problem.target.block_bytes()) < full:
            if found.gathers_all:
                made.audit.add(problem.key)
            if largest_buffer(compiled) >= full:
                made.other.add(problem.key)
            if plan.measures["temp_bytes"] >= full:
                temporaries.add(problem.key)
        if found.verdict == "right":
            received = [sum(counts) for counts in zip(*(op.received for op in plan.ops), strict=True)]
            made.counted += max(received, default=0) == found.received
        jax.clear_caches()  # it keeps every executable, about 1.5 MB each
    made.notes.append(
        f"temporaries together reach the size of the full array in {len(temporaries)} pairs, "
        f"{len(temporaries - made.other)} of them without a buffer of that size"
    )
    return made


def table(results: list[Comparison]) -> str:
    """Aligned text, what differs below it."""
    head = (
        "peer", "family", "pairs", "asked", "audit", "independent", "both", "failed", "over",
        "right", "received alike", "excess mean", "max",
    )  # fmt: skip
    cells = [
        (
            r.peer,
            r.family,
            f"{r.pairs:,}",
            f"{r.asked:,}",
            *(f"{len(found):,}" for found in (r.audit, r.other, r.audit & r.other, r.failed)),
            *(f"{count:,}" for count in (r.over, r.right, r.counted)),
            f"{np.mean(r.ratios):.2f}" if r.ratios else "-",
            f"{max(r.ratios):.2f}" if r.ratios else "-",
        )
        for r in results
    ]
    widths = [max(len(row[n]) for row in (head, *cells)) for n in range(len(head))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in (head, *cells)]
    for r in results:
        lines += [f"{r.peer} {r.family}: {note}" for note in r.notes]
        lines += [f"{r.peer} {r.family}: only one of both finds {key}" for key in sorted(r.audit ^ r.other)]
        lines += [f"{r.peer} {r.family}: undecided {key}" for key in sorted(r.undecided)[:5]]
    lines.append(
        "audit, independent, both: wrong pairs (shardy, dtensor), pairs with the full array on the way only (xla)"
    )
    return "\n".join(lines)
