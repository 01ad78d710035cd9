"""`python -m benchmarks.partir PART ...`: figures of partitioning, printed as tables and written as JSON.

    growth    time from function to report, 4 to 64 layers of T32; draws docs/partir-time.png and .svg
    gspmd     against XLA's partitioner, compiled against compiled: collectives, bytes, peak, step time
    memory    estimated peak against XLA's memory analysis, for every program

Exit status 1: a result or count is wrong, the time misses its goal, or the peer receives fewer bytes or is faster.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.parts import Outcome, run_parts
from benchmarks.records import ROOT
from redist.cli.on_jax import load_jax

__all__ = ["main"]


def _growth(given: argparse.Namespace, say: Callable[[str], None]) -> Outcome:
    from benchmarks import partir_growth as growth

    points = growth.growth(given.rounds, lambda: say("growth: one more"))
    about = f"trace, three tactics, lowering and report of T32: {given.rounds} rounds, the fastest"
    made = growth.draw(points, given.plot, about)
    late = next(p.total for p in points if p.layers == 32) > growth.GOAL_SECONDS
    return "\n".join([growth.table(points), *map(str, made)]), growth.as_json(points), not late


def _gspmd(given: argparse.Namespace, say: Callable[[str], None]) -> Outcome:
    from benchmarks import partir_gspmd as gspmd
    from benchmarks.models import gpt
    from benchmarks.partir_cases import GPT_SCHEDULES

    width = given.width
    config = gpt.Config(layers=2, width=width, heads=8, vocabulary=4 * width, batch=16, length=64)
    rows = gspmd.compare(config, list(GPT_SCHEDULES), given.turns, given.seed, say)
    return gspmd.table(rows), gspmd.as_json(rows), not gspmd.losses(rows)


def _memory(_: argparse.Namespace, say: Callable[[str], None]) -> Outcome:
    from benchmarks import partir_programs as programs
    from benchmarks.partir_cases import models, third_party

    outcomes = list(programs.run_cases({**third_party(), **models()}, say))
    return programs.memory_table(outcomes), [asdict(o) for o in outcomes], all(o.good for o in outcomes)


_PARTS = {"growth": _growth, "gspmd": _gspmd, "memory": _memory}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts asked for, print their tables, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partir", description="Figures of partitioning.")
    parser.add_argument("parts", nargs="+", choices=_PARTS, help="what to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3, help="rounds over all numbers of layers")
    parser.add_argument("--turns", type=int, default=24, help="steps of every contestant")
    parser.add_argument("--width", type=int, default=128, help="width of the model that runs against GSPMD")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "partir-time", help="the plot, without its ending")
    parser.add_argument("--json", type=Path, default=None, help="file to write the figures to")
    given = parser.parse_args(argv)
    jax = load_jax(8)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    return run_parts(given, _PARTS, {"jax": jax.__version__})


if __name__ == "__main__":
    sys.exit(main())
