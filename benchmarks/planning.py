"""`python -m benchmarks.planning [--count N]`: how long `synthesize` takes, by devices and topology.

Problems are random pairs of even layouts of a mesh and shape, each planned once; cold means that no cache of the
library holds anything of any problem. Goals, uniform topology: 8 devices median 0.5 ms; 8x8x8, rank 3, median
2 ms and 99th percentile 20 ms; 16x16x16, rank 4, 99th percentile 100 ms; 32x32x32x32, rank 4, each 1 s; other
topologies ten times that; cached 20 microseconds. Exit status 1 where one is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import _lru_cache_wrapper, partial
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks.records import environment
from redist.collectives import Link, Topology
from redist.synth import synthesize
from redist.testing import random_layout
from redist.types import Layout, Mesh

__all__ = ["Row", "main", "rows"]

_SLOW = Topology("slow outer axis", {"a": Link(2e-5, 1.25e9, peer_latency=1e-6)}, Link(2e-6, 5e10))
TOPOLOGIES = (Topology(), _SLOW)
MESHES: tuple[tuple[str, int, dict[str, float]], ...] = (
    ("a=2,b=2,c=2", 2, {"median": 0.5}),
    ("a=2,b=2,c=2", 3, {"median": 0.5}),
    ("a=2,b=4", 2, {"median": 0.5}),
    ("a=8,b=8,c=8", 3, {"median": 2, "p99": 20}),
    ("a=16,b=16,c=16", 4, {"p99": 100}),
    ("a=32,b=32,c=32,d=32", 4, {"largest": 1000}),
)
"""Mesh, rank, and goals in milliseconds under the uniform topology."""


@dataclass(frozen=True, slots=True)
class Row:
    """Wall-clock milliseconds of cold plans, CPU milliseconds beside them, microseconds of cached ones; `optimal`
    of `plans` are proved cheapest. `missed` names the goals that are not kept."""

    mesh: str
    rank: int
    topology: str
    plans: int
    median: float
    p99: float
    largest: float
    cpu_median: float
    cpu_p99: float
    cached_microseconds: float
    optimal: int
    missed: tuple[str, ...]


def rows(count: int, seed: int) -> Iterator[Row]:
    """One per mesh, rank and topology, of `count` problems each."""
    caches = [one for one in gc.get_objects() if isinstance(one, _lru_cache_wrapper) and _ours(one)]
    for text, rank, goals in MESHES:
        mesh = Mesh.parse(text)
        for n, topology in enumerate(TOPOLOGIES):
            problems = list(_problems(mesh, rank, count, Random(f"{seed}/{text}/{rank}")))
            wall: list[float] = []
            cpu: list[float] = []
            again: list[float] = []
            optimal = 0
            for source, target in problems:
                for cache in caches:
                    cache.cache_clear()
                started, used = perf_counter(), process_time()
                plan = synthesize(source, target, topology=topology)
                wall.append((perf_counter() - started) * 1e3)
                cpu.append((process_time() - used) * 1e3)
                again.append(_shortest(partial(synthesize, source, target, topology=topology)) * 1e6)
                optimal += plan.optimal
            found = {"median": median(wall), "p99": _percentile(wall), "largest": max(wall)}
            missed = tuple(
                f"{name} <= {goal * 10**n:g} ms" for name, goal in goals.items() if found[name] > goal * 10**n
            )
            yield Row(
                text,
                rank,
                topology.name,
                len(problems),
                *found.values(),
                median(cpu),
                _percentile(cpu),
                max(again),
                optimal,
                (*missed, *(("cached <= 20 us",) if max(again) > 20 else ())),
            )


def _ours(cached: Any) -> bool:
    return str(getattr(cached, "__module__", "")).startswith("redist")


def _problems(mesh: Mesh, rank: int, count: int, rng: Random) -> Iterator[tuple[Layout, Layout]]:
    shape = (mesh.size,) * rank if mesh.size < 2**12 else (2**12 if mesh.size == 2**12 else 2**20,) * rank
    while count:
        source, target = (
            random_layout(rng, mesh, shape, uneven=False, rules=False, partial=False, dtypes=("f32",)) for _ in range(2)
        )
        if not source.equivalent(target):
            count -= 1
            yield source, target


def _shortest(call: Callable[[], Any]) -> float:
    times: list[float] = []
    for _ in range(5):
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return min(times)


def _percentile(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table (or JSON); returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    synthesize(Layout.parse("[8{x}]", Mesh({"x": 2})), Layout.parse("[8]", Mesh({"x": 2})))  # imports
    head = f"{'mesh':<22}{'rank':>5}  {'topology':<16}{'plans':>6}{'median':>9}{'p99':>9}{'largest':>9}"
    head += f"{'cpu median':>12}{'cpu p99':>9}{'cached us':>11}{'optimal':>9}  missed"
    done: list[Row] = []
    if not given.json:
        print(head, flush=True)
    for row in rows(given.count, given.seed):
        done.append(row)
        if not given.json:
            print(
                f"{row.mesh:<22}{row.rank:>5}  {row.topology:<16}{row.plans:>6}{row.median:>9.2f}{row.p99:>9.2f}"
                f"{row.largest:>9.2f}{row.cpu_median:>12.2f}{row.cpu_p99:>9.2f}{row.cached_microseconds:>11.2f}"
                f"{row.optimal:>9}  {', '.join(row.missed) or '-'}",
                flush=True,
            )
    if given.json:
        print(json.dumps({"run": environment(), "seed": given.seed, "rows": [asdict(row) for row in done]}, indent=1))
    else:
        print(f"milliseconds; seed {given.seed}; {environment()}")
    return int(any(row.missed for row in done))


if __name__ == "__main__":
    sys.exit(main())
