"""Races: results are checked, XLA ties with itself, losses are listed; tables and plots are made of the records."""

from __future__ import annotations

import importlib.util
import io
import itertools
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from rich.console import Console

from benchmarks.executors.jax import AGAIN, BASE, CONTROL, OWN, PUT, balanced_orders, race
from benchmarks.plots import plot_all
from benchmarks.pool import DevicePool
from benchmarks.problems import Problem, all_layouts, named_mesh
from benchmarks.records import Store
from benchmarks.repeats import merged, place
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


def repeated(problem: str, process: int, **ratios: float) -> dict[str, Any]:
    made = raced(problem, **ratios)
    kind, who = place("timing", process)
    return made | {"record": kind, "who": who, "wrong": {}, "stated": {}}


def merged_of(*records: dict[str, Any]) -> list[dict[str, Any]]:
    return merged(lambda kind: [record for record in records if record["record"] == kind], "timing")


def test_processes_of_a_problem_are_one_record() -> None:
    first = raced("p", redist=1.25)
    first["seconds"][PUT] = [5.0] * 9
    (made,) = merged_of(first, repeated("p", 2, redist=0.8), repeated("q", 2, redist=0.1))
    assert made["processes"] == {BASE: [9, 9], AGAIN: [9, 9], OWN: [9, 9], PUT: [9]}
    assert [len(made["seconds"][name]) for name in (BASE, OWN, PUT)] == [18, 18, 9]
    assert made["stated"] == first["stated"] and CONTROL in made["wrong"]
    (found,) = outcomes([made], OWN, seed=0)
    assert found.verdict == "tie" and found.speedup.point == pytest.approx(1.0)
    assert (found.speedup.low, found.speedup.high) == pytest.approx((0.8, 1.25))
    (put,) = outcomes([made], PUT, seed=0)
    assert put.speedup == outcomes([first], PUT, seed=0)[0].speedup


def test_who_is_wrong_in_one_process_is_wrong() -> None:
    second = repeated("p", 2, redist=0.5) | {"wrong": {OWN: "device 3 holds a wrong block"}}
    (made,) = merged_of(raced("p", redist=0.5), second)
    assert made["wrong"][OWN] == "device 3 holds a wrong block" and OWN not in made["seconds"]
    assert outcomes([made], OWN, seed=0) == []


class FakePool:
    """In place of processes with devices: the ratio that each process is to see, by problem."""

    ratios: ClassVar[dict[str, list[float]]] = {}
    raced: ClassVar[list[tuple[int, str, tuple[str, ...]]]] = []
    pools: ClassVar[int] = 0
    stop_after: ClassVar[int | None] = None

    def __init__(self, devices: int) -> None:
        FakePool.pools += 1
        self.number = FakePool.pools

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def run(self, _: Any, problem: Problem, names: list[str], rounds: int, seed: int) -> dict[str, Any]:
        if FakePool.stop_after is not None and len(self.raced) >= FakePool.stop_after:
            raise KeyboardInterrupt
        seen = sum(key == problem.key for _, key, _ in self.raced)
        self.raced.append((self.number, problem.key, tuple(names)))
        made = raced(problem.key, redist=1 / self.ratios[problem.key][seen]) | {"family": problem.family}
        return made if CONTROL in names else made | {"wrong": {}}


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> type[FakePool]:
    monkeypatch.setattr("benchmarks.timing.DevicePool", FakePool)
    FakePool.raced, FakePool.pools, FakePool.stop_after = [], 0, None
    return FakePool


def three_problems() -> list[Problem]:
    layouts = all_layouts(named_mesh("2x2"), [8, 8])
    return [Problem.of("4 devices", layouts[n], layouts[-1]) for n in range(3)]


@jax_here
def test_every_problem_meets_two_processes_and_a_third_where_it_is_no_tie(tmp_path: Path, pool: type[FakePool]) -> None:
    tie, fast, torn = (p.key for p in three_problems())
    pool.ratios = {tie: [1.0, 1.0], fast: [2.0, 2.0, 2.0], torn: [0.8, 1.25]}
    with Store.open(tmp_path, "jax", 0, {}) as store:
        made = timing_study(store, [(three_problems(), 9)], 0, Console(file=io.StringIO()))
    assert [(n, key) for n, key, _ in pool.raced] == [
        (1, tie), (1, fast), (1, torn), (2, torn), (2, fast), (2, tie), (3, fast)
    ]  # fmt: skip
    assert {CONTROL, PUT} <= set(pool.raced[0][2]) and all({CONTROL, PUT}.isdisjoint(who) for *_, who in pool.raced[3:])
    assert [o.verdict for o in outcomes(made, OWN, 0)] == ["tie", "tie", "win"]
    assert {r["problem"]: len(r["processes"][OWN]) for r in made} == {tie: 2, fast: 3, torn: 2}


@jax_here
@pytest.mark.parametrize("done", range(8))
def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path: Path, pool: type[FakePool], done: int) -> None:
    keys = [p.key for p in three_problems()]
    pool.ratios = {keys[0]: [1.0] * 3, keys[1]: [2.0] * 3, keys[2]: [1.0] * 3}
    pool.stop_after = done
    with Store.open(tmp_path, "jax", 0, {}) as store:
        try:
            timing_study(store, [(three_problems(), 9)], 0, Console(file=io.StringIO()))
        except KeyboardInterrupt:
            assert done < 7
    pool.stop_after = None
    with Store.open(tmp_path, "jax", 0, {}) as store:
        made = timing_study(store, [(three_problems(), 9)], 0, Console(file=io.StringIO()))
    assert Counter(key for _, key, _ in pool.raced) == {keys[0]: 2, keys[1]: 3, keys[2]: 2}
    assert {r["problem"]: len(r["processes"][OWN]) for r in made} == {keys[0]: 2, keys[1]: 3, keys[2]: 2}


@jax_here
def test_a_race_says_where_both_are_the_same_program() -> None:
    """A slice is one instruction for both; of several moves XLA makes a program of its own."""
    layouts = {str(layout): layout for layout in all_layouts(named_mesh("2x4"), [64, 64])}
    whole, rows, turned = (layouts[f"f32[{dims}]"] for dims in ("64, 64", "64{x}, 64", "64{y}, 64{x}"))
    with DevicePool(8) as pool:
        same = pool.run(race, Problem.of("8 devices", whole, rows), [BASE, OWN], 6, 0)
        other = pool.run(race, Problem.of("8 devices", rows, turned), [BASE, OWN], 6, 0)
    assert same["wrong"] == other["wrong"] == {}
    assert (same["same_program"], other["same_program"]) == (True, False)
    text = text_of([raced("slow", redist=1.25) | {"same_program": True}])
    assert "slow (same program)" in text
    assert "XLA compiles the same program for both on 1 of 1 problems (0 win, 0 tie, 0 behind, 1 loss)" in text


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
