"""Timings as a study: races in processes with virtual devices, and what their intervals say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks.executors import jax as jax_executor
from benchmarks.pool import DevicePool
from benchmarks.problems import Problem
from benchmarks.records import Store
from benchmarks.stats import Interval, Verdict, geometric_mean_interval, paired_speedup, verdict
from benchmarks.study import progress_bar

__all__ = ["Outcome", "Summary", "outcomes", "summary", "timing_study"]


def timing_study(
    store: Store, groups: Sequence[tuple[Sequence[Problem], int]], seed: int, console: Console
) -> list[dict[str, Any]]:
    """Race the contestants on every problem; each group is (problems on as many devices, rounds).

    Nothing else runs meanwhile. Returns the records of all groups.
    """
    names: list[str] = []
    for name in jax_executor.CONTESTANTS:
        reason = jax_executor.missing(name)
        if reason is None:
            names.append(name)
        elif store.found("missing", "", "", f"{name} on jax") is None:
            store.add({"record": "missing", "family": "", "problem": "", "who": f"{name} on jax", "note": reason})
    if jax_executor.BASE not in names:
        return []
    wanted = [(p.family, p.key) for problems, _ in groups for p in problems]
    with progress_bar(console) as progress:
        done = {key for key in wanted if store.found("timing", *key, "race")}
        bar = progress.add_task("timings", total=len(wanted) - len(done))
        for problems, rounds in groups:
            todo = [p for p in problems if (p.family, p.key) not in done]
            if not todo:
                continue
            with DevicePool(todo[0].source.mesh.size) as pool:
                for problem in todo:
                    progress.update(bar, description=f"timings, {problem.family}")
                    store.add(_race(pool, problem, names, rounds, seed))
                    progress.advance(bar)
    return [r for r in store.select("timing") if (r["family"], r["problem"]) in set(wanted)]


def _race(pool: DevicePool, problem: Problem, names: Sequence[str], rounds: int, seed: int) -> dict[str, Any]:
    try:
        return pool.run(jax_executor.race, problem, list(names), rounds, seed)
    except BrokenProcessPool:
        note = "the process ended during the race"
        made = {"record": "timing", "family": problem.family, "problem": problem.key, "who": "race"}
        return {**made, "seconds": {}, "wrong": {name: note for name in names}, "stated": {}}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One contestant against XLA on one problem: its speedup, and both medians in seconds."""

    problem: str
    family: str
    speedup: Interval
    verdict: Verdict
    base_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A contestant over all its problems. For XLA against itself this is the noise of the machine."""

    who: str
    problems: int
    mean: Interval
    smallest: float
    largest: float
    verdicts: dict[Verdict, int]
    wrong: int

    @property
    def tie(self) -> bool:
        """Whether the interval of the geometric mean holds 1."""
        return self.mean.low <= 1 <= self.mean.high


def outcomes(records: Iterable[dict[str, Any]], who: str, seed: int) -> list[Outcome]:
    """How `who` did against the base, problem by problem, slowest first."""
    found: list[Outcome] = []
    for record in records:
        base, mine = (record["seconds"].get(name) for name in (jax_executor.BASE, who))
        if base and mine:
            speedup = paired_speedup(base, mine, seed)
            found.append(
                Outcome(record["problem"], record["family"], speedup, verdict(speedup), median(base), median(mine))
            )
    return sorted(found, key=lambda outcome: outcome.speedup.point)


def summary(records: Sequence[dict[str, Any]], who: str, seed: int) -> Summary | None:
    """All problems together; None where `who` has not run."""
    found = outcomes(records, who, seed)
    wrong = sum(who in record["wrong"] for record in records)
    if not found:
        return None
    points = [outcome.speedup.point for outcome in found]
    verdicts: dict[Verdict, int] = {"win": 0, "tie": 0, "behind": 0, "loss": 0}
    for outcome in found:
        verdicts[outcome.verdict] += 1
    return Summary(who, len(found), geometric_mean_interval(points, seed), min(points), max(points), verdicts, wrong)
