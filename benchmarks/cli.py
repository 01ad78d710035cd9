"""`python -m benchmarks`: run a suite, print its tables, draw its plots."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console

from benchmarks.cluster.plots import plot_cluster
from benchmarks.cluster.study import ClusterError, cluster_study, cluster_trusted, shaped
from benchmarks.cluster.tables import cluster_rows, cluster_tables
from benchmarks.executors.jax import AGAIN, BASE, CONTESTANTS, CONTROL
from benchmarks.mpi import mpi_rows, mpi_study, mpi_tables, mpi_trusted
from benchmarks.planners import CONTROL as PLAN_CONTROL
from benchmarks.planners import PLANNERS
from benchmarks.plots import plot_all
from benchmarks.problems import timing_problems
from benchmarks.records import ROOT, Store
from benchmarks.study import plan_study
from benchmarks.suites import SUITES, ClusterPart, Suite, plan_tasks
from benchmarks.tables import missing_lines, plan_rows, plan_tables, show, timing_tables
from benchmarks.timing import summary, timing_study

__all__ = ["main", "run_suite"]

SuiteName = Literal["quick", "plans", "jax", "mpi", "cluster", "full"]


def run_suite(
    *,
    suite: SuiteName = "quick",
    seed: int = 0,
    planner: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    results: Path = ROOT / "benchmarks" / "results",
    fresh: Annotated[bool, Parameter(negative=())] = False,
    plots: bool = True,
    limit: Annotated[int | None, Parameter(validator=Number(gte=1), show_default=False)] = None,
    rate: Annotated[str | None, Parameter(show_default=False)] = None,
    delay: Annotated[str | None, Parameter(show_default=False)] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), show_default=False)] = False,
) -> int:
    """Compare redist with its peers.

    Exit status: 0 done, 1 where a plan or result of redist's is wrong or a control was not caught, 2 bad
    usage. An interrupted run goes on where it stopped.

    Parameters
    ----------
    suite
        quick: under ten minutes. plans: plans only. jax: timings against XLA. mpi: timings
        on ranks against transfers by hand. cluster: timings on several hosts on a slow network
        (as root). full: all of it.
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
    rate
        Of the links in the cluster suite: 100mbit, 1gbit. By default several, one after another.
    delay
        Of the links in the cluster suite: 200us, 5ms.
    as_json
        Print the figures of the tables as JSON.
    """
    unknown = sorted(set(planner) - set(PLANNERS))
    if unknown:
        sys.stderr.write(f"unknown planner {', '.join(unknown)}; use some of {', '.join(PLANNERS)}\n")
        return 2
    try:
        networks = shaped(SUITES[suite].cluster, rate, delay)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    settings = {"planners": list(planner), "limit": limit}
    settings |= {name: value for name, value in (("rate", rate), ("delay", delay)) if value is not None}
    console = Console(stderr=True)
    with Store.open(results, suite, seed, settings, fresh) as store:
        plans, timings = _run(store, SUITES[suite], seed, planner, limit, console)
        races = mpi_study(store, SUITES[suite].mpi, seed, limit, console)
        clusters, failure = _clusters(store, networks, seed, limit, console)
    made = plot_all([*plans, *timings], results, store.path.stem, seed) if plots else []
    made += plot_cluster(clusters, results, store.path.stem, seed) if plots and clusters else []
    absent = store.select("missing")
    if as_json:
        print(json.dumps(_figures(store, plans, timings, seed) | _more(races, clusters, seed), indent=1))
    else:
        out = Console()
        header = store.header
        show(out, f"suite {suite}, seed {seed}, commit {header['commit']}, changes {header['changes']}")
        show(out, f"{header['versions']}", f"{header['machine']}", missing_lines(absent))
        if plans:
            show(out, plan_tables(plans, PLAN_CONTROL.name))
        if timings:
            show(out, timing_tables(timings, seed))
        if races:
            show(out, mpi_tables(races, seed))
        if clusters:
            show(out, cluster_tables(clusters, seed))
        show(out, *(str(path) for path in (store.path, *made)))
    if failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0 if _trusted(plans, timings) and mpi_trusted(races) and cluster_trusted(clusters) else 1


def _run(
    store: Store, suite: Suite, seed: int, names: tuple[str, ...], limit: int | None, console: Console
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    tasks = plan_tasks(suite, seed, names, limit)
    plans = plan_study(store, tasks, console) if tasks else []
    groups = [
        (timing_problems(part.devices, part.count, seed, part.sizes)[:limit], part.rounds) for part in suite.timings
    ]
    return plans, timing_study(store, groups, seed, console) if groups else []


def _clusters(
    store: Store, parts: Sequence[ClusterPart], seed: int, limit: int | None, console: Console
) -> tuple[list[dict[str, Any]], str]:
    """What was measured on several hosts, and why it could not be; what else was measured is shown all the same."""
    try:
        return cluster_study(store, parts, seed, limit, console), ""
    except ClusterError as error:
        return [], str(error)


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


def _more(races: list[dict[str, Any]], clusters: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    rows = [
        {"network": network, "comparison": what, **asdict(found), "less_crossing": less and asdict(less)}
        for network, what, found, less in cluster_rows(clusters, seed)
    ]
    return {"mpi": mpi_rows(races, seed), "cluster": rows}


def main() -> int:
    """The entry point."""
    app = App(name="benchmarks", help="How redist does against its peers.", result_action="return_value")
    app.default(run_suite)
    found = app(sys.argv[1:])
    return found if isinstance(found, int) else 0
