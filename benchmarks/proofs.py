"""How long proofs take: all obligations of a plan together, by number of devices and kind of plan.

    python -m benchmarks.proofs [--plans 60] [--seed 0] [--json FILE]

Plans are made beforehand; each is verified once, with nothing of it in any cache but its layouts, after one
plan has loaded the solver. Targets: median at most 10 ms and 99th percentile at most 100 ms on 8 to 512
devices; 2^20 devices at most 1 s.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from redist.collectives import Plan
from redist.errors import InfeasibleError
from redist.proofs import verify
from redist.proofs.solver import solver_version
from redist.synth import synthesize
from redist.testing import random_layout
from redist.types import Layout, Mesh

__all__ = ["Row", "main", "measure"]

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
        times: list[float] = []
        cpu: list[float] = []
        statuses: list[str] = []
        parts: dict[str, list[float]] = {}
        for plan in made:
            _ = plan.layouts
            start, started = time.perf_counter(), time.process_time()
            certificate = verify(plan)
            times.append((time.perf_counter() - start) * 1e3)
            cpu.append((time.process_time() - started) * 1e3)
            statuses.append(certificate.status)
            for obligation in certificate.obligations:
                parts.setdefault(obligation.name, []).append(obligation.seconds * 1e3)
        rows.append(
            Row(
                kind,
                devices,
                len(made),
                float(np.mean([len(plan.steps) for plan in made])),
                float(np.median(times)),
                float(np.percentile(times, 99)),
                max(times),
                float(np.median(cpu)),
                float(np.percentile(cpu, 99)),
                *(statuses.count(status) for status in ("proved", "refuted", "unknown")),
                {name: float(np.median(values)) for name, values in parts.items()},
            )
        )
    return rows


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


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description="How long proofs take.")
    parser.add_argument("--plans", type=int, default=60, help="plans of every kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=None, help="file to write the rows to")
    arguments = parser.parse_args(argv)
    rows = measure(arguments.plans, arguments.seed)
    print(f"{solver_version()}, Python {platform.python_version()}, {platform.machine()}")
    print(table(rows))
    if arguments.json is not None:
        about = {"solver": solver_version(), "python": platform.python_version(), "seed": arguments.seed}
        arguments.json.write_text(json.dumps(about | {"rows": [asdict(row) for row in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
