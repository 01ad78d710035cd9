"""Our own plans, proved: small meshes exhaustively, and random problems of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import Problem, family, sampled
from benchmarks.proofs.timings import verified
from redist.errors import InfeasibleError
from redist.synth import synthesize
from redist.testing import random_problems
from redist.types import Layout
from redist.types.blocks import CEIL

__all__ = ["FAMILIES", "Proofs", "features", "prove_families", "prove_random", "table"]

FAMILIES = (("2x2x2", 2), ("2x4", 2), ("2x3", 2), ("2x3x5", 2), ("2x2x2", 3))
"""(mesh, rank), all ordered pairs of layouts of whole axes."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """How the plans of one family fared: `asked` of the `problems` that there are. Times in milliseconds, all
    obligations together. `unproved` holds the certificates that are not proved."""

    family: str
    problems: int
    asked: int
    proved: int
    without_plan: int
    methods: dict[str, int]
    median: float
    p99: float
    unproved: tuple[str, ...]
    features: dict[str, int]


def prove_families(sample: int | None = None, seed: int = 0) -> Iterator[Proofs]:
    """One result per family; of each at most `sample` pairs."""
    for mesh, rank in FAMILIES:
        pairs = family(mesh, rank)
        yield _prove(pairs[0].family, len(pairs), sampled(pairs, sample, seed))


def prove_random(count: int = 2000, seed: int = 0) -> Proofs:
    """Random problems: any meshes, devices, sizes, block rules, sub-axes, unreduced sources."""
    drawn = random_problems(seed, count, reduction="sum", max_devices=16)
    problems = [Problem.of("random problems", source, target) for source, target in drawn]
    return _prove("random problems", count, problems)


def _prove(name: str, problems: int, asked: Sequence[Problem]) -> Proofs:
    times: list[float] = []
    methods: Counter[str] = Counter()
    found: Counter[str] = Counter()
    unproved: list[str] = []
    without = 0
    for problem in asked:
        found.update(features(problem.source, problem.target))
        try:
            plan = synthesize(problem.source, problem.target)
        except InfeasibleError as error:
            without += 1
            unproved.append(f"{problem.key}: {error}")
            continue
        check = verified(plan)
        times.append(check.wall)
        methods[check.certificate.obligation("R").method] += 1
        if check.certificate.status != "proved":
            unproved.append(f"{problem.key}\n{check.certificate}")
    return Proofs(
        family=name,
        problems=problems,
        asked=len(asked),
        proved=len(asked) - len(unproved),
        without_plan=without,
        methods=dict(methods),
        median=float(np.median(times)),
        p99=float(np.percentile(times, 99)),
        unproved=tuple(unproved),
        features=dict(found),
    )


def features(source: Layout, target: Layout) -> Iterator[str]:
    """What is out of the ordinary about a problem."""
    ends = (source, target)
    if not all(layout.is_even() for layout in ends):
        yield "uneven blocks"
    if any(dim.rule != CEIL for layout in ends for dim in layout.dims):
        yield "block rules"
    if any(axis.size is not None for layout in ends for dim in layout.dims for axis in dim.axes):
        yield "sub-axes"
    if source.mesh.count(source.partial_axes) > 1:
        yield "unreduced source"
    if not source.mesh.same_devices(target.mesh):
        yield "other devices"
    elif source.mesh.device_ids != target.mesh.device_ids:
        yield "permuted devices"
    if 0 in source.shape:
        yield "no elements"


def table(results: Sequence[Proofs]) -> str:
    """Aligned text, what is not proved below it."""
    head = ("family", "problems", "asked", "proved", "by solver", "device by device", "both", "median", "p99")
    cells = [
        (
            r.family,
            f"{r.problems:,}",
            f"{r.asked:,}",
            f"{r.proved:,}",
            *(f"{r.methods.get(name, 0):,}" for name in ("smt", "enumerated", "smt+enumerated")),
            f"{r.median:.1f} ms",
            f"{r.p99:.1f} ms",
        )
        for r in results
    ]
    widths = [max(len(row[n]) for row in (head, *cells)) for n in range(len(head))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in (head, *cells)
    ]
    for r in results:
        if r.features:
            lines.append(f"{r.family}: " + ", ".join(f"{count:,} {name}" for name, count in sorted(r.features.items())))
        lines += r.unproved
    return "\n".join(lines)
