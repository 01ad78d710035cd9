"""Timings on several hosts as a study: a launch per network, and the bytes that have to cross it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.cluster.network import Network, missing, wrapped
from benchmarks.executors.cluster import CALIBRATED, CONTROL, OWN
from benchmarks.problems import Problem, timing_problems
from benchmarks.records import ROOT, Store
from benchmarks.study import progress_bar
from benchmarks.suites import ClusterPart
from redist.types import Layout, lower_bound

__all__ = ["ClusterError", "cluster_problems", "cluster_study", "cluster_trusted", "least_crossing_bytes", "shaped"]

_SILENCE_SECONDS = 900
"""A launch that has no result for so long is ended."""


class ClusterError(Exception):
    """No network can be made here, or a launch failed; the message says why."""


def shaped(parts: Sequence[ClusterPart], rate: str | None, delay: str | None) -> tuple[ClusterPart, ...]:
    """The parts with another rate and delay; with a rate, the first part alone. Raises ValueError for what is
    not a rate or a delay."""
    if rate is not None:
        parts = [replace(part, rate=rate) for part in parts[:1]]
    if delay is not None:
        parts = [replace(part, delay=delay) for part in parts]
    for part in parts:
        Network(part.hosts, part.rate, part.delay)
    return tuple(parts)


def cluster_problems(part: ClusterPart, seed: int) -> list[Problem]:
    """Random pairs of layouts on all devices of which some device has to receive something; consecutive devices
    share a host."""
    delay = f", delay {part.delay}" if part.delay else ""
    family = f"{part.hosts} hosts x {part.each} devices, {part.rate}{delay}"
    found = timing_problems(part.hosts * part.each, 2 * part.count, seed, part.sizes, part.meshes)
    moving = [p for p in found if lower_bound(p.source, p.target) > 0]
    return [Problem(family, p.key, p.source, p.target) for p in moving[: part.count]]


def least_crossing_bytes(source: Layout, target: Layout, each: int) -> int:
    """Bytes that the busiest host must receive, whatever the plan: what its `each` devices want together, and
    none of them holds."""
    most = 0
    for first in range(0, source.mesh.size, each):
        wanted = np.zeros(source.shape, dtype=bool)
        for device in range(first, first + each):
            wanted[target.box(device)] = True
        for device in range(first, first + each):
            wanted[source.box(device)] = False
        most = max(most, int(wanted.sum()) * source.itemsize)
    return most


def cluster_study(
    store: Store, parts: Iterable[ClusterPart], seed: int, limit: int | None, console: Console
) -> list[dict[str, Any]]:
    """Race the contestants on every problem of the parts; returns the records. Raises ClusterError."""
    groups = [(part, cluster_problems(part, seed)[:limit]) for part in parts]
    if not groups:
        return []
    reason = missing()
    if reason is not None:
        raise ClusterError(reason)
    wanted = [(p.family, p.key) for _, problems in groups for p in problems]
    with progress_bar(console) as progress:
        bar = progress.add_task("cluster", total=sum(store.found("cluster", *key, "race") is None for key in wanted))
        for part, problems in groups:
            todo = {p.key: p for p in problems if store.found("cluster", p.family, p.key, "race") is None}
            if not todo:
                continue
            progress.update(bar, description=part.rate)
            with closing(_launched(part, list(todo.values()), seed)) as records:
                for record in records:
                    problem = todo[record["problem"]]
                    least = least_crossing_bytes(problem.source, problem.target, part.each)
                    shape = {"rate": part.rate, "delay": part.delay, "least_crossing_bytes": least}
                    store.add({"record": "cluster", "who": "race", **shape, **record})
                    progress.advance(bar)
    return [r for r in store.select("cluster") if (r["family"], r["problem"]) in set(wanted)]


def _launched(part: ClusterPart, problems: Sequence[Problem], seed: int) -> Generator[dict[str, Any]]:
    """Records as they come. Raises ClusterError with what was said where a launch fails."""
    rows = [
        {"family": p.family, "key": p.key, "mesh": str(p.source.mesh), "source": str(p.source), "target": str(p.target)}
        for p in problems
    ]
    job = {"hosts": part.hosts, "each": part.each, "rate": part.rate, "delay": part.delay, "rounds": part.rounds}
    with TemporaryDirectory() as folder:
        file, noise = Path(folder) / "job.json", Path(folder) / "noise"
        file.write_text(json.dumps({**job, "seed": seed, "problems": rows}), encoding="utf-8")
        command = wrapped([sys.executable, "-m", "benchmarks.cluster.inside", str(file)])
        with (
            noise.open("wb") as said,
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said) as hosts,
        ):
            assert hosts.stdout is not None
            while True:
                watch = threading.Timer(_SILENCE_SECONDS, hosts.kill)
                watch.start()
                try:
                    line = hosts.stdout.readline()
                finally:
                    watch.cancel()
                if not line:
                    break
                if line.startswith(b"{"):  # libraries print here too
                    yield json.loads(line)
        if hosts.returncode:
            text = noise.read_text(encoding="utf-8", errors="replace").strip()
            raise ClusterError(f"the launch at {part.rate} ended with status {hosts.returncode}: {text}")


def cluster_trusted(records: Iterable[dict[str, Any]]) -> bool:
    """Nothing of redist's is wrong, and every control is."""
    return all(not {OWN, CALIBRATED} & set(r["wrong"]) and CONTROL in r["wrong"] for r in records)
