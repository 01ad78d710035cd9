"""Races: results are checked, XLA ties with itself, losses are listed; tables and plots are made of the records."""

from __future__ import annotations

import importlib.util
import io
import itertools
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from benchmarks.executors.jax import AGAIN, BASE, CONTROL, balanced_orders, race
from benchmarks.plots import plot_all
from benchmarks.pool import DevicePool
from benchmarks.problems import Problem, all_layouts, named_mesh
from benchmarks.records import Store
from benchmarks.tables import timing_tables
from benchmarks.timing import outcomes, summary, timing_study

jax_here = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")


def raced(problem: str, **ratios: float) -> dict[str, Any]:
    """A record in which every contestant takes `ratio` times XLA's time, 9 rounds under changing load."""
    load = [1.0, 1.4, 1.1, 3.0, 1.0, 1.2, 0.9, 1.05, 2.0]
    wobble = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0]
    seconds = {BASE: load, AGAIN: [x * w for x, w in zip(load, wobble, strict=True)]}
    seconds |= {name: [x * ratio for x in load] for name, ratio in ratios.items()}
    stated = {name: {"measured_bytes": 3 * 2**20} for name in seconds}
    return {
        "record": "timing",
        "family": "8 devices",
        "problem": problem,
        "who": "race",
        "bytes": 2**22,
        "bound_bytes": 2**21,
        "seconds": seconds,
        "wrong": {CONTROL: "device 1 holds a wrong block"},
        "stated": stated,
    }


RECORDS = [raced("fast", redist=0.5), raced("same", redist=1.0), raced("slow", redist=1.25), raced("late", redist=1.02)]


def text_of(records: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(timing_tables(records, seed=0))
    return out.getvalue()


def test_outcomes_are_sorted_and_judged() -> None:
    found = outcomes(RECORDS, "redist", seed=0)
    assert [(o.problem, o.verdict) for o in found] == [
        ("slow", "loss"),
        ("late", "behind"),
        ("same", "tie"),
        ("fast", "win"),
    ]
    assert found[0].speedup.point == pytest.approx(0.8)


def test_summary_against_hand_computed_values() -> None:
    found = summary(RECORDS, "redist", seed=0)
    assert found is not None
    assert found.mean.point == pytest.approx((2.0 * 1.0 * 0.8 * (1 / 1.02)) ** (1 / 4))
    assert (found.smallest, found.largest) == (pytest.approx(0.8), pytest.approx(2.0))
    assert found.verdicts == {"win": 1, "tie": 1, "behind": 1, "loss": 1}
    assert summary(RECORDS, "nobody", seed=0) is None


def test_xla_ties_with_itself() -> None:
    found = summary(RECORDS, AGAIN, seed=0)
    assert found is not None and found.tie
    assert (found.verdicts["tie"], found.verdicts["loss"]) == (4, 0)


def test_tables_list_losses_and_noise() -> None:
    text = text_of(RECORDS)
    assert "xla against itself" in text and "redist: losses to XLA" in text
    assert "0.800 [0.800, 0.800]" in text and text.count("slow") == 1
    assert "wrong on 4 of 4 problems (caught)" in text


def test_a_control_that_was_not_caught_is_shouted() -> None:
    assert "NOT CAUGHT: do not trust this table" in text_of([{**RECORDS[0], "wrong": {}}])


def test_plots_are_drawn(tmp_path: Path) -> None:
    made = plot_all(RECORDS, tmp_path, "stem", seed=0)
    names = {path.name for path in made}
    assert names == {f"stem-{what}.{kind}" for what in ("speedup-redist", "memory") for kind in ("png", "svg")}
    assert all(path.stat().st_size > 1000 for path in made)


@jax_here
def test_a_race_checks_every_result_and_times_in_turns() -> None:
    layouts = all_layouts(named_mesh("2x4"), [64, 64])
    problem = Problem.of("8 devices", layouts[1], layouts[-1])
    with DevicePool(8) as pool:
        found = pool.run(race, problem, [BASE, AGAIN, CONTROL], 6, 0)
    assert found["wrong"] == {CONTROL: found["wrong"][CONTROL]} and "laid out as" in found["wrong"][CONTROL]
    assert set(found["seconds"]) == {BASE, AGAIN}
    assert all(len(rounds) == 6 and min(rounds) > 0 for rounds in found["seconds"].values())
    assert found["stated"][BASE]["measured_bytes"] >= found["bound_bytes"]


@jax_here
def test_a_timing_study_is_stored_and_not_repeated(tmp_path: Path) -> None:
    layouts = all_layouts(named_mesh("2x2"), [8, 8])
    problems = [Problem.of("4 devices", layouts[1], layouts[-1])]
    console = Console(file=io.StringIO())
    with Store.open(tmp_path, "jax", 0, {}) as store:
        first = timing_study(store, [(problems, 5)], 0, console)
    with Store.open(tmp_path, "jax", 0, {}) as store:
        again = timing_study(store, [(problems, 5)], 0, console)
    assert len(first) == 1 and first == again
    assert CONTROL in first[0]["wrong"] and BASE in first[0]["seconds"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_orders_are_balanced(count: int) -> None:
    """Everyone is at every place equally often, and right behind every other one equally often."""
    names = [f"c{n}" for n in range(count)]
    orders = balanced_orders(list(names), Random(1))
    assert all(sorted(order) == names for order in orders)
    places = Counter((n, name) for order in orders for n, name in enumerate(order))
    assert len(places) == count**2 and len(set(places.values())) == 1
    behind = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert len(behind) == count * (count - 1) and len(set(behind.values())) <= 1
