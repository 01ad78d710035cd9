"""`python -m benchmarks.proofs PART ...`: figures of the proofs, printed as tables and written as JSON.

    own       our plans, proved: small meshes exhaustively, random problems of every kind
    peers     audits of Shardy, XLA and DTensor against simulation and against XLA's own memory analysis
    timings   time per plan, by devices and kind
    growth    time against devices and array size; draws docs/proof-time.png and .svg

Exit status 1: a plan of ours is not proved, an audit differs from what it is held against, or a time misses its goal.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.parts import Outcome, run_parts
from benchmarks.proofs import growth, own, peers, timings
from benchmarks.records import ROOT
from benchmarks.study import progress_bar
from redist.cli.on_jax import load_jax
from redist.proofs.solver import solver_version

__all__ = ["main"]


def _own(given: argparse.Namespace, say: Callable[[str], None]) -> Outcome:
    results: list[own.Proofs] = []
    for result in own.prove_families(given.sample, given.seed):
        say(f"{result.family}: {result.proved:,} of {result.asked:,}")
        results.append(result)
    results.append(own.prove_random(given.problems, given.seed))
    return own.table(results), [asdict(r) for r in results], all(r.proved == r.asked for r in results)


def _peers(given: argparse.Namespace, say: Callable[[str], None]) -> Outcome:
    from redist.proofs.audit import dtensor, shardy, xla

    results: list[peers.Comparison] = []

    def add(one: peers.Comparison) -> None:
        results.append(one)
        say(f"{one.peer} {one.family}: {one.asked:,} pairs")

    for name, reason in (("shardy", shardy.missing()), ("xla", xla.missing()), ("dtensor", dtensor.missing())):
        if reason is not None:
            say(f"{name}: {reason}")
    if xla.missing() is None:
        add(peers.compare_xla(given.sample, given.seed))
    if shardy.missing() is None:
        for one in peers.compare_shardy(given.sample, given.seed):
            add(one)
    if dtensor.missing() is None:
        for shortest_path in (False, True):
            for one in peers.compare_dtensor(shortest_path, given.sample or 500, given.seed):
                add(one)
    return peers.table(results), [r.row() for r in results], all(r.agrees for r in results)


def _timings(given: argparse.Namespace, _: Callable[[str], None]) -> Outcome:
    rows = timings.measure(given.plans, given.seed)
    late = timings.missed(rows)
    return "\n".join([timings.table(rows), *late]), [asdict(row) for row in rows], not late


def _growth(given: argparse.Namespace, _: Callable[[str], None]) -> Outcome:
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("time against devices and size", total=growth.POINTS)
        found = growth.growth(given.plans, given.seed, lambda: bar.advance(task))
    made = growth.draw(
        found, given.plot, f"{solver_version()}, {given.plans} plans a point: median, 10th to 90th percentile"
    )
    plain = growth.as_json(found)
    lines = [growth.table(found), *map(str, made)]
    return "\n".join(lines), plain, all(p["proved"] == p["plans"] for points in plain.values() for p in points)


_PARTS = {"own": _own, "peers": _peers, "timings": _timings, "growth": _growth}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts asked for, print their tables, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs", description="Figures of the proofs.")
    parser.add_argument("parts", nargs="+", choices=_PARTS, help="what to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=None, help="pairs of each family of layouts (default: all)")
    parser.add_argument("--problems", type=int, default=2000, help="random problems")
    parser.add_argument("--plans", type=int, default=60, help="plans of every kind, or at every point, that are timed")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "proof-time", help="the plot, without its ending")
    parser.add_argument("--json", type=Path, default=None, help="file to write the figures to")
    given = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA warns of every rematerialisation
    if "peers" in given.parts:
        load_jax(8)
    return run_parts(given, _PARTS, {"solver": solver_version()})


if __name__ == "__main__":
    sys.exit(main())
