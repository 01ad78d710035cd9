"""The command line: tables, JSON, exit statuses, plots; `redist bench` in a checkout and outside one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import redist.cli
from benchmarks.cli import run_suite
from benchmarks.plots import plot_all
from benchmarks.problems import timing_problems
from benchmarks.suites import SUITES, plan_tasks
from benchmarks.tables import plan_rows

ROOT = Path(__file__).resolve().parents[2]


def plan(who: str, verdict: str = "ok", **figures: Any) -> dict[str, Any]:
    base = {"ratio": 1.0, "received": 4, "lower_bound": 4, "steps": 1, "block_peak": 1.0, "live_peak": 1.0}
    record = {"record": "plan", "family": "f", "problem": "p", "who": who, "verdict": verdict, "seconds": 0.002}
    return {**record, **(base if verdict in ("ok", "wrong") else {}), **figures}


def test_rows_against_hand_computed_figures() -> None:
    records = [
        plan("me", ratio=1.0, live_peak=0.5),
        plan("me", ratio=2.0, steps=3, live_peak=1.5, rematerialised=True),
        plan("me", ratio=None, received=2, lower_bound=0, claim_holds=False),
        plan("me", "wrong", ratio=9.0),
        plan("me", "failed"),
        plan("me", "refused"),
    ]
    (row,) = plan_rows(records)
    assert (row["problems"], row["wrong"], row["failed"], row["refused"]) == (6, 1, 1, 1)
    assert (row["ratio_mean"], row["ratio_max"], row["useless"]) == (1.5, 2.0, 1)
    assert (row["steps_mean"], row["steps_max"]) == (pytest.approx(5 / 3), 3)
    assert (row["live_peak_max"], row["over"]) == (1.5, 1)
    assert (row["rematerialised"], row["misstated"], row["milliseconds"]) == (1, 1, 2.0)


def test_distributions_are_drawn(tmp_path: Path) -> None:
    records = [plan(who, ratio=1 + n / 5) for who in ("redist", "shardy", "xla") for n in range(4)]
    made = plot_all(records, tmp_path, "stem", seed=0)
    assert {p.name for p in made} == {f"stem-{what}.{kind}" for what in ("received", "peak") for kind in ("png", "svg")}


def test_suites_are_what_they_say() -> None:
    timed = {part.devices: timing_problems(part.devices, part.count, 0) for part in SUITES["jax"].timings}
    assert {devices: len(problems) for devices, problems in timed.items()} == {8: 64, 16: 200}
    assert {len(p.source.mesh.names) for p in timed[16]} == {2, 3, 4}
    asked = {
        (planner.name, p.family) for planner, problems in plan_tasks(SUITES["plans"], 0, None, 2) for p in problems
    }
    families = {
        f"{mesh} rank {rank}" for mesh, rank in (("2x2x2", 2), ("2x2x2", 3), ("2x4", 2), ("2x3", 2), ("2x3x5", 2))
    }
    assert families <= {name for _, name in asked}
    assert {"redist", "redist-paper", "redist-exchange", "shardy", "xla", "dtensor-greedy", "dtensor-dijkstra"} < {
        who for who, _ in asked
    }


def test_a_run_prints_tables_and_writes_lines_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_suite(suite="plans", planner=("redist",), limit=2, results=tmp_path) == 0
    out = capsys.readouterr().out
    assert "2x3x5 rank 2" in out and "a planner that does nothing is wrong on 2 of 2 pairs (caught)" in out
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".png", ".svg"}


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_suite(suite="plans", planner=("redist",), limit=1, results=tmp_path, plots=False, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["who"] for row in found["plans"]} == {"redist", "control-nothing"}
    assert found["run"]["seed"] == 0 and found["missing"] == []


def test_an_unknown_planner_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_suite(planner=("redits",), results=tmp_path) == 2
    assert capsys.readouterr().err.startswith("unknown planner redits; use some of redist, redist-paper")


def test_a_wrong_plan_of_redists_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.planners import Answer, own

    monkeypatch.setattr(own.RedistPlanner, "answer", lambda *_: Answer("planned", ops=()))
    assert run_suite(suite="plans", planner=("redist",), limit=1, results=tmp_path, plots=False) == 1


def test_redist_bench_runs_the_study(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "redist", "bench", "--suite", "plans", "--limit", "1", "--planner", "redist"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [*command, "--results", str(tmp_path), "--no-plots", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"]["suite"] == "plans"


def test_redist_bench_outside_a_checkout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("redist.cli.bench.checkout", lambda: None)
    assert redist.cli.main(["bench"]) == 1
    assert "the benchmarks are part of the repository, not of the installed package" in capsys.readouterr().err
