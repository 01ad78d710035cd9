"""Timings as a study: races in processes with virtual devices, and what their intervals say.

Every problem is raced in two processes, each fresh for a batch of problems, which come in another order in the
second; and in a third where the two do not say that both are as fast. Wins and losses are treated alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID

from benchmarks.executors import jax as jax_executor
from benchmarks.pool import DevicePool
from benchmarks.problems import Problem
from benchmarks.records import Store
from benchmarks.repeats import found_in, merged, place, together
from benchmarks.stats import Interval, Verdict, geometric_mean_interval, paired_speedup, verdict
from benchmarks.study import progress_bar

__all__ = ["Outcome", "Summary", "outcomes", "summary", "timing_study"]

_BATCH = 24
"""Problems that share a process."""


def timing_study(
    store: Store, groups: Sequence[tuple[Sequence[Problem], int]], seed: int, console: Console
) -> list[dict[str, Any]]:
    """Race the contestants on every problem; each group is (problems on as many devices, rounds in a process).

    Nothing else runs meanwhile. A race is stored when it is done. Returns one record per problem of all groups, with
    the rounds of all its processes.
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
    with progress_bar(console) as progress:
        bar = progress.add_task("timings", total=2 * sum(len(problems) for problems, _ in groups))
        for problems, rounds in groups:
            for first in range(0, len(problems), _BATCH):
                batch = problems[first : first + _BATCH]
                step = partial(_one, progress, bar)
                _raced(store, batch, 1, names, rounds, seed, step)
                _raced(store, batch[::-1], 2, names, rounds, seed, step)
                open_ones = [p for p in batch if not _settled(store, p, seed)]
                progress.update(bar, total=(progress.tasks[bar].total or 0) + len(open_ones))
                _raced(store, open_ones, 3, names, rounds, seed, step)
    wanted = {(p.family, p.key) for problems, _ in groups for p in problems}
    return [r for r in merged(store.select, "timing") if (r["family"], r["problem"]) in wanted]


_ONCE = (jax_executor.PUT, jax_executor.CONTROL)
"""Contestants of the first process only: no claim rests on their intervals."""


def _one(progress: Progress, bar: TaskID, problem: Problem | None) -> None:
    """Say what runs, or that it is done."""
    if problem is None:
        progress.advance(bar)
    else:
        progress.update(bar, description=f"timings, {problem.family}")


def _raced(
    store: Store,
    problems: Sequence[Problem],
    process: int,
    names: Sequence[str],
    rounds: int,
    seed: int,
    step: Callable[[Problem | None], None],
) -> None:
    """Race the problems that have not been raced in this process, if any, in a fresh one."""
    kind, who = place("timing", process)
    here = [name for name in names if process == 1 or name not in _ONCE]
    todo = [p for p in problems if store.found(kind, p.family, p.key, who) is None]
    for _ in range(len(problems) - len(todo)):
        step(None)
    if not todo:
        return
    with DevicePool(todo[0].source.mesh.size) as pool:
        for problem in todo:
            step(problem)
            found = _race(pool, problem, here, rounds, seed + process - 1)
            store.add(found | {"record": kind, "who": who})
            step(None)


def _settled(store: Store, problem: Problem, seed: int) -> bool:
    """Whether two processes leave both a tie: redist with XLA, and XLA with itself."""
    both = together(found_in(store, "timing", problem))
    found = [outcome for who in (jax_executor.OWN, jax_executor.AGAIN) for outcome in outcomes([both], who, seed)]
    return all(outcome.verdict == "tie" for outcome in found)


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
    same_program: bool = False
    """XLA compiled the same program for both."""


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
    """How `who` did against the base, problem by problem, slowest first; of one record per problem."""
    found: list[Outcome] = []
    for record in records:
        base, mine = (record["seconds"].get(name) for name in (jax_executor.BASE, who))
        if base and mine:
            sizes = record.get("processes", {}).get(who)
            speedup = paired_speedup(base[: len(mine)], mine, seed, sizes)
            alike = who == jax_executor.OWN and record.get("same_program", False)
            says, times = verdict(speedup), (median(base), median(mine))
            found.append(Outcome(record["problem"], record["family"], speedup, says, *times, alike))
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
