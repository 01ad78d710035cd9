"""`python -m benchmarks`: run a suite, print its tables, draw its plots."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console

from benchmarks.executors.jax import AGAIN, BASE, CONTESTANTS, CONTROL
from benchmarks.planners import CONTROL as PLAN_CONTROL
from benchmarks.planners import PLANNERS
from benchmarks.plots import plot_all
from benchmarks.problems import timing_problems
from benchmarks.records import ROOT, Store
from benchmarks.study import plan_study
from benchmarks.suites import SUITES, Suite, plan_tasks
from benchmarks.tables import missing_lines, plan_rows, plan_tables, show, timing_tables
from benchmarks.timing import summary, timing_study

__all__ = ["main", "run_suite"]

SuiteName = Literal["quick", "plans", "jax", "full"]


def run_suite(
    *,
    suite: SuiteName = "quick",
    seed: int = 0,
    planner: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    results: Path = ROOT / "benchmarks" / "results",
    fresh: Annotated[bool, Parameter(negative=())] = False,
    plots: bool = True,
    limit: Annotated[int | None, Parameter(validator=Number(gte=1), show_default=False)] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), show_default=False)] = False,
) -> int:
    """Compare redist with its peers.

    Exit status: 0 done, 1 where a plan or result of redist's is wrong or a control was not caught, 2 bad
    usage. An interrupted run goes on where it stopped.

    Parameters
    ----------
    suite
        quick: under ten minutes. plans: plans only. jax: timings against XLA. full: all of it.
    seed
        Which problems are sampled, and in which order contestants run.
    planner
        Ask these planners only; may be given several times.
    results
        Where the JSON lines and plots go.
    fresh
        Start over, instead of going on with results of the same code, versions and seed.
    plots
        Draw plots.
    limit
        At most this many problems per family and timed part.
    as_json
        Print the figures of the tables as JSON.
    """
    unknown = sorted(set(planner) - set(PLANNERS))
    if unknown:
        sys.stderr.write(f"unknown planner {', '.join(unknown)}; use some of {', '.join(PLANNERS)}\n")
        return 2
    settings = {"planners": list(planner), "limit": limit}
    console = Console(stderr=True)
    with Store.open(results, suite, seed, settings, fresh) as store:
        plans, timings = _run(store, SUITES[suite], seed, planner, limit, console)
    made = plot_all([*plans, *timings], results, store.path.stem, seed) if plots else []
    absent = store.select("missing")
    if as_json:
        print(json.dumps(_figures(store, plans, timings, seed), indent=1))
    else:
        out = Console()
        header = store.header
        show(out, f"suite {suite}, seed {seed}, commit {header['commit']}, changes {header['changes']}")
        show(out, f"{header['versions']}", f"{header['machine']}", missing_lines(absent))
        if plans:
            show(out, plan_tables(plans, PLAN_CONTROL.name))
        if timings:
            show(out, timing_tables(timings, seed))
        show(out, *(str(path) for path in (store.path, *made)))
    return 0 if _trusted(plans, timings) else 1


def _run(
    store: Store, suite: Suite, seed: int, names: tuple[str, ...], limit: int | None, console: Console
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    tasks = plan_tasks(suite, seed, names, limit)
    plans = plan_study(store, tasks, console) if tasks else []
    groups = [
        (timing_problems(part.devices, part.count, seed, part.sizes)[:limit], part.rounds) for part in suite.timings
    ]
    return plans, timing_study(store, groups, seed, console) if groups else []


def _trusted(plans: list[dict[str, Any]], timings: list[dict[str, Any]]) -> bool:
    """Nothing of redist's is wrong, and every control is."""
    own = all(r["verdict"] in ("ok", "refused") for r in plans if r["who"].startswith("redist"))
    caught = all(r["verdict"] == "wrong" for r in plans if r["who"] == PLAN_CONTROL.name)
    ran = all("redist" not in r["wrong"] and CONTROL in r["wrong"] for r in timings)
    return own and caught and ran


def _figures(store: Store, plans: list[dict[str, Any]], timings: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    found = {who: summary(timings, who, seed) for who in CONTESTANTS if who not in (BASE, CONTROL)}
    return {
        "run": store.header,
        "file": str(store.path),
        "missing": [{"who": r["who"], "why": r["note"]} for r in store.select("missing")],
        "plans": plan_rows(plans),
        "noise": None if found.get(AGAIN) is None else asdict(found[AGAIN]),  # type: ignore[call-overload]
        "timings": {who: asdict(s) for who, s in found.items() if s is not None and who != AGAIN},
    }


def main() -> int:
    """The entry point."""
    app = App(name="benchmarks", help="How redist does against its peers.", result_action="return_value")
    app.default(run_suite)
    found = app(sys.argv[1:])
    return found if isinstance(found, int) else 0
