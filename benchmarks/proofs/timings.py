"""How long proofs take: all obligations of a plan together, by number of devices and kind of plan.

Plans are made beforehand; each is verified once, with nothing of it in any cache but its layouts, after one
plan has loaded the solver. Goals: median at most 10 ms and 99th percentile at most 100 ms on 8 to 512
devices; 2^20 devices at most 1 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from redist.collectives import Plan
from redist.errors import InfeasibleError
from redist.proofs import Certificate, verify
from redist.synth import synthesize
from redist.testing import random_layout
from redist.types import Layout, Mesh

__all__ = ["GOALS", "Row", "measure", "missed", "table", "verified"]

MESHES = (
    "x=2,y=2,z=2",
    "x=4,y=4",
    "x=8,y=4",
    "x=4,y=4,z=4",
    "x=16,y=8",
    "x=8,y=8,z=4",
    "x=6,y=5,z=2,w=7",
    "x=8,y=8,z=8",
)
LARGE = ("x=1024,y=1024", "x=64,y=64,z=16,w=16", ",".join(f"a{n}=2" for n in range(20)))


@dataclass(frozen=True, slots=True)
class Row:
    """Times of one kind of plan, in milliseconds; `proved` of `plans` certificates are proved. CPU time beside
    wall-clock time shows what of it was waiting for a core."""

    kind: str
    devices: str
    plans: int
    steps: float
    median: float
    p99: float
    largest: float
    cpu_median: float
    cpu_p99: float
    proved: int
    refuted: int
    unknown: int
    by_obligation: dict[str, float]


def _planned(rng: Random, mesh: Mesh, shape: Sequence[int], **options: Any) -> Plan:
    """Our plan between two random layouts."""
    while True:
        source = random_layout(rng, mesh, shape, dtypes=["f32"], reduction="sum", **options)
        kept = [axis for axis in source.partial_axes if rng.randint(0, 2) == 0]
        target = random_layout(
            rng, mesh, shape, dtypes=["f32"], reduction="sum", keep_partial=kept, **{**options, "partial": False}
        )
        try:
            return synthesize(source, target)
        except InfeasibleError:
            continue


def _kinds(rng: Random) -> Iterator[tuple[str, str, int, Callable[[], Plan]]]:
    """(kind, devices, share of the plans, maker)."""
    even = {"uneven": False, "partial": False}
    for text in MESHES:
        mesh = Mesh.parse(text)
        shape = (mesh.size, 4 * mesh.size, 24)
        yield "even", str(mesh.size), 1, lambda mesh=mesh, shape=shape: _planned(rng, mesh, shape, **even)
    small = [Mesh.parse(text) for text in MESHES]
    yield "uneven", "8..512", 2, lambda: _planned(rng, rng.choice(small), (1000, 77, 24), partial=False, rules=False)
    yield "block rules", "8..512", 2, lambda: _planned(rng, rng.choice(small[:3]), (100, 77, 24), partial=False)
    yield "unreduced", "8..512", 2, lambda: _planned(rng, rng.choice(small), (840, 512), uneven=False)
    yield "other devices", "8..512", 1, lambda: _elsewhere(rng, rng.choice(small))
    for text in LARGE:
        mesh = Mesh.parse(text)
        yield "even", "2^20", 1, lambda mesh=mesh: _planned(rng, mesh, (2**20, 2**20, 2**10), **even)


def _elsewhere(rng: Random, mesh: Mesh) -> Plan:
    """To the same devices in another order, or to others."""
    ids = rng.sample(range(2 * mesh.size), mesh.size)
    source = random_layout(rng, mesh, (mesh.size, 48), uneven=False, partial=False, dtypes=["f32"])
    target = random_layout(rng, Mesh(mesh.axes, ids), (mesh.size, 48), uneven=False, partial=False, dtypes=["f32"])
    return synthesize(source, target)


def measure(plans: int = 60, seed: int = 0) -> list[Row]:
    """Verify `plans` plans of every kind (of some, twice as many)."""
    rng = Random(seed)
    mesh = Mesh.parse("x=2")
    verify(synthesize(Layout.parse("[4{x}, 4]", mesh), Layout.parse("[4, 4{x}]", mesh)))
    rows: list[Row] = []
    for kind, devices, share, make in _kinds(rng):
        made = [make() for _ in range(share * plans if devices != "2^20" else max(1, plans // 6))]
        checks = [verified(plan) for plan in made]
        times, cpu = [check.wall for check in checks], [check.cpu for check in checks]
        statuses = [check.certificate.status for check in checks]
        parts: dict[str, list[float]] = {}
        for check in checks:
            for obligation in check.certificate.obligations:
                parts.setdefault(obligation.name, []).append(obligation.seconds * 1e3)
        rows.append(
            Row(
                kind=kind,
                devices=devices,
                plans=len(made),
                steps=float(np.mean([len(plan.steps) for plan in made])),
                median=float(np.median(times)),
                p99=float(np.percentile(times, 99)),
                largest=max(times),
                cpu_median=float(np.median(cpu)),
                cpu_p99=float(np.percentile(cpu, 99)),
                proved=statuses.count("proved"),
                refuted=statuses.count("refuted"),
                unknown=statuses.count("unknown"),
                by_obligation={name: float(np.median(values)) for name, values in parts.items()},
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class Check:
    """A certificate, and the milliseconds that it took."""

    certificate: Certificate
    wall: float
    cpu: float


def verified(plan: Plan) -> Check:
    """Verify a plan whose layouts are known."""
    _ = plan.layouts
    start, started = time.perf_counter(), time.process_time()
    certificate = verify(plan)
    return Check(certificate, (time.perf_counter() - start) * 1e3, (time.process_time() - started) * 1e3)


GOALS = {"8..512": (10.0, 100.0), "2^20": (1000.0, 1000.0)}
"""Milliseconds for the median and the 99th percentile."""


def missed(rows: Sequence[Row]) -> list[str]:
    """What is slower than its goal, or not proved."""
    found: list[str] = []
    for row in rows:
        median, p99 = GOALS["2^20" if row.devices == "2^20" else "8..512"]
        if row.median > median or row.p99 > p99:
            goal = f"{median:g} and {p99:g} ms"
            found.append(f"{row.kind}, {row.devices} devices: median {row.median:.1f}, p99 {row.p99:.1f}; goal {goal}")
        if row.proved < row.plans:
            found.append(f"{row.kind}, {row.devices} devices: {row.plans - row.proved} of {row.plans} not proved")
    return found


def table(rows: Sequence[Row]) -> str:
    """Aligned text."""
    names = list(rows[0].by_obligation)
    head = [
        "kind",
        "devices",
        "plans",
        "steps",
        "median",
        "p99",
        "max",
        "cpu",
        "cpu p99",
        "proved",
        "refuted",
        "unknown",
        *names,
    ]
    cells = [
        [
            row.kind,
            row.devices,
            str(row.plans),
            f"{row.steps:.1f}",
            *(f"{value:.1f}" for value in (row.median, row.p99, row.largest, row.cpu_median, row.cpu_p99)),
            *(str(count) for count in (row.proved, row.refuted, row.unknown)),
            *(f"{row.by_obligation[name]:.1f}" for name in names),
        ]
        for row in rows
    ]
    widths = [max(len(line[n]) for line in [head, *cells]) for n in range(len(head))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in [head, *cells]]
    return "\n".join([*lines, "times in ms, all obligations together; R, T, M, N1, N2, N3: median of each"])
