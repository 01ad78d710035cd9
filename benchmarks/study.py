"""Runs the study: every problem to every planner or executor, what is done already left out, with time left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from benchmarks.judge import judge
from benchmarks.planners import Answer, Planner
from benchmarks.pool import DevicePool
from benchmarks.problems import Problem
from benchmarks.records import Store

__all__ = ["plan_study", "progress_bar"]

_AHEAD = 4
"""Calls that wait in the process with devices, beside the one that runs."""


def progress_bar(console: Console) -> Progress:
    """A bar with what runs now, how far it is, and the time left."""
    return Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def report_missing(store: Store, planners: Iterable[Planner]) -> list[Planner]:
    """The planners that are here; for each of the others, a record that says why it is not."""
    present: list[Planner] = []
    for planner in planners:
        reason = planner.missing()
        if reason is None:
            present.append(planner)
        elif store.found("missing", "", "", planner.name) is None:
            store.add({"record": "missing", "family": "", "problem": "", "who": planner.name, "note": reason})
    return present


def plan_study(
    store: Store, tasks: Sequence[tuple[Planner, Sequence[Problem]]], console: Console
) -> list[dict[str, Any]]:
    """Ask each planner its problems, judge the answers, and store them. Returns the records of all tasks.

    Planners that need devices run in a process of their own beside the others.
    """
    here = {planner.name for planner in report_missing(store, {p.name: p for p, _ in tasks}.values())}
    todo: list[tuple[Planner, list[Problem]]] = []
    for planner, problems in tasks:
        if planner.name in here:
            open_ones = [p for p in problems if store.found("plan", p.family, p.key, planner.name) is None]
            todo.append((planner, open_ones))
    with progress_bar(console) as progress, ExitStack() as stack:
        bar = progress.add_task("plans", total=sum(len(problems) for _, problems in todo))
        apart = _Apart(store, progress, bar, stack)
        for planner, problems in todo:
            if planner.devices:
                apart.ask(planner, problems)
        for planner, problems in todo:
            if not planner.devices:
                for problem in problems:
                    progress.update(bar, description=f"{planner.name}, {problem.family}")
                    store.add(judge(problem, planner.name, planner.answer(problem)))
                    progress.advance(bar)
                    apart.collect(wait=False)
        apart.collect(wait=True)
    wanted = {(planner.name, p.family, p.key) for planner, problems in tasks for p in problems}
    return [r for r in store.select("plan") if (r["who"], r["family"], r["problem"]) in wanted]


def _answer_apart(planner: Planner, problem: Problem) -> dict[str, Any]:
    """Runs in the process with devices."""
    return judge(problem, planner.name, planner.answer(problem))


def _devices(problem: Problem) -> int:
    """How many devices a process needs to have all of the problem's."""
    return 1 + max((*problem.source.mesh.device_ids, *problem.target.mesh.device_ids))


class _Apart:
    """Problems on their way through processes with devices, a few at a time."""

    def __init__(self, store: Store, progress: Progress, bar: TaskID, stack: ExitStack) -> None:
        self._store, self._progress, self._bar, self._stack = store, progress, bar, stack
        self._waiting: list[tuple[Planner, Problem]] = []
        self._running: list[tuple[Planner, Problem, Future[dict[str, Any]]]] = []
        self._pool: DevicePool | None = None

    def ask(self, planner: Planner, problems: Iterable[Problem]) -> None:
        """Queue problems, those of one number of devices together: a process has a fixed number."""
        self._waiting += [(planner, problem) for problem in sorted(problems, key=_devices)]
        self._feed()

    def _feed(self) -> None:
        while self._waiting and len(self._running) <= _AHEAD:
            planner, problem = self._waiting[0]
            devices = _devices(problem)
            if self._pool is not None and self._pool.devices != devices:
                if self._running:
                    return
                self._pool.close()
                self._pool = None
            if self._pool is None:
                self._pool = self._stack.enter_context(DevicePool(devices))
            self._waiting.pop(0)
            self._running.append((planner, problem, self._pool.submit(_answer_apart, planner, problem)))

    def collect(self, wait: bool) -> None:
        """Store what is done; with `wait`, until all is."""
        while self._running and (wait or self._running[0][2].done()):
            planner, problem, future = self._running.pop(0)
            if wait:
                self._progress.update(self._bar, description=f"{planner.name}, {problem.family}")
            try:
                record = future.result()
            except BrokenProcessPool:
                record = self._after_crash(planner, problem)
            self._store.add(record)
            self._progress.advance(self._bar)
            self._feed()

    def _after_crash(self, planner: Planner, problem: Problem) -> dict[str, Any]:
        """A process has died; this problem and those queued behind it are asked anew, one by one."""
        queued = [(p, q) for p, q, _ in self._running]
        self._running = []
        self._waiting = [*queued, *self._waiting]
        assert self._pool is not None
        self._pool.close()
        try:
            return self._pool.run(_answer_apart, planner, problem)
        except BrokenProcessPool:
            return judge(problem, planner.name, Answer("failed", note="the process ended while it planned"))
