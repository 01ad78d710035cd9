"""The study: nothing is done twice, missing planners are reported, crashes cost one answer, wrong plans are caught."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.planners import CONTROL, PLANNERS, Answer
from benchmarks.problems import Problem, family
from benchmarks.records import Store
from benchmarks.study import plan_study
from benchmarks.tables import missing_lines, plan_rows

CONSOLE = Console(file=io.StringIO())
PROBLEMS = family("2x2", 1)


@dataclass
class Counting:
    """redist's planner, counting its calls; `stop_after` interrupts it."""

    name: str = "counting"
    devices: bool = False
    stop_after: int | None = None
    asked: list[str] = field(default_factory=list)

    def missing(self) -> str | None:
        return None

    def answer(self, problem: Problem) -> Answer:
        if len(self.asked) == self.stop_after:
            raise KeyboardInterrupt
        self.asked.append(problem.key)
        return PLANNERS["redist"].answer(problem)


@dataclass(frozen=True)
class Absent:
    name: str = "absent"
    devices: bool = False

    def missing(self) -> str | None:
        return "it was never written; write it"

    def answer(self, problem: Problem) -> Answer:
        raise AssertionError("a missing planner is not asked")


@dataclass(frozen=True)
class Swapped:
    """A planner that solves the problem backwards."""

    name: str = "swapped"
    devices: bool = False

    def missing(self) -> str | None:
        return None

    def answer(self, problem: Problem) -> Answer:
        return PLANNERS["redist"].answer(Problem.of("other", problem.target, problem.source))


@dataclass(frozen=True)
class Crashing:
    """Takes its process down on one problem."""

    deadly: str
    name: str = "crashing"
    devices: bool = True

    def missing(self) -> str | None:
        return None

    def answer(self, problem: Problem) -> Answer:
        if problem.key == self.deadly:
            os._exit(3)
        return PLANNERS["redist"].answer(problem)


def store(folder: Path) -> Store:
    return Store.open(folder, "plans", 0, {})


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    first = Counting(stop_after=1)
    with pytest.raises(KeyboardInterrupt), store(tmp_path) as interrupted:
        plan_study(interrupted, [(first, PROBLEMS)], CONSOLE)
    second = Counting()
    with store(tmp_path) as resumed:
        found = plan_study(resumed, [(second, PROBLEMS)], CONSOLE)
    assert len(first.asked) == 1
    assert [*first.asked, *second.asked] == [p.key for p in PROBLEMS]
    assert len(found) == len(PROBLEMS)
    third = Counting()
    with store(tmp_path) as finished:
        assert len(plan_study(finished, [(third, PROBLEMS)], CONSOLE)) == len(PROBLEMS)
    assert third.asked == []


def test_a_missing_planner_is_reported_and_the_others_run(tmp_path: Path) -> None:
    with store(tmp_path) as opened:
        found = plan_study(opened, [(Absent(), PROBLEMS), (Counting(), PROBLEMS)], CONSOLE)
    assert {r["who"] for r in found} == {"counting"}
    (missing,) = opened.select("missing")
    assert (missing["who"], missing["note"]) == ("absent", "it was never written; write it")
    out = io.StringIO()
    Console(file=out, width=120).print(missing_lines([missing]))
    assert out.getvalue().strip() == "missing: absent: it was never written; write it"


def test_wrong_planners_are_caught(tmp_path: Path) -> None:
    with store(tmp_path) as opened:
        found = plan_study(opened, [(Swapped(), PROBLEMS), (CONTROL, PROBLEMS)], CONSOLE)
    rows = {row["who"]: row for row in plan_rows(found)}
    assert rows[CONTROL.name]["wrong"] == len(PROBLEMS)
    assert rows["swapped"]["wrong"] > 0
    right = {r["problem"] for r in found if r["who"] == "swapped" and r["verdict"] == "ok"}
    by_key = {p.key: p for p in PROBLEMS}
    for key in right:  # a permute of equal blocks may be its own inverse
        assert by_key[key].source.block_counts() == by_key[key].target.block_counts()


def test_a_planner_that_takes_its_process_down_fails_on_that_problem_alone(tmp_path: Path) -> None:
    crashing = Crashing(PROBLEMS[2].key)
    with store(tmp_path) as opened:
        found = plan_study(opened, [(crashing, PROBLEMS[:7])], CONSOLE)
    verdicts = {r["problem"]: r["verdict"] for r in found}
    assert verdicts.pop(PROBLEMS[2].key) == "failed"
    assert set(verdicts) == {p.key for p in PROBLEMS[:7]} - {PROBLEMS[2].key}
    assert set(verdicts.values()) == {"ok"}
