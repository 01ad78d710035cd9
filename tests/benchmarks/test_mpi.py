"""Races on ranks: results are checked, the faster one by hand is the base, controls are caught."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.executors.mpi import AGREEING, BY_HAND, CONTESTANTS, CONTROL, GATHERING, OWN
from benchmarks.mpi import mpi_problems, mpi_rows, mpi_study, mpi_tables, mpi_trusted
from benchmarks.records import Store
from benchmarks.repeats import together
from benchmarks.suites import SUITES, MpiPart


def raced(**ratios: float) -> dict[str, Any]:
    """A record in which every contestant takes `ratio` times a load that changes from round to round."""
    load = [1.0, 1.4, 1.1, 3.0, 1.0, 1.2, 0.9, 1.05, 2.0]
    return {
        "record": "mpi",
        "family": "4 ranks",
        "problem": "slab",
        "who": "race",
        "bytes": 2**22,
        "seconds": {name.replace("_", "-"): [x * ratio for x in load] for name, ratio in ratios.items()},
        "wrong": {CONTROL: "rank 0 holds a wrong block"},
        "stated": {OWN: 100, GATHERING: 450},
    }


def test_rows_against_hand_computed_figures() -> None:
    record = raced(redist=1.0, redist_agreeing=1.2, alltoallw=3.0, pack_alltoall=1.5, allgather_slice=4.0)
    (row,) = mpi_rows([record], seed=0)
    assert row["best_by_hand"] == "pack-alltoall"
    assert row["speedup"] == pytest.approx((1.5, 1.5, 1.5))
    assert row["speedup_agreeing"] == pytest.approx((1.25, 1.25, 1.25))
    assert row["over_gathering"] == pytest.approx((4.0, 4.0, 4.0))
    assert row["memory_ratio"] == 4.5 and row["over_fft"] is None
    out = io.StringIO()
    Console(file=out, width=200).print(mpi_tables([record], seed=0))
    assert "1.500 [1.500, 1.500]" in out.getvalue() and "0 of 1 problems below 2" in out.getvalue()


def test_the_library_is_a_peer_of_its_own() -> None:
    (row,) = mpi_rows([raced(redist=1.0, mpi4py_fft=2.5, pack_alltoall=1.5, allgather_slice=4.0)], seed=0)
    assert row["best_by_hand"] == "pack-alltoall" and row["over_fft"] == pytest.approx((2.5, 2.5, 2.5))


def test_launches_of_a_problem_are_one_row() -> None:
    """A loss is one only if every launch says so."""
    first = raced(redist=1.25, alltoallw=1.0, allgather_slice=4.0)
    again = raced(redist=0.8, alltoallw=1.0, allgather_slice=4.0)
    (row,) = mpi_rows([together([first, again])], seed=0)
    assert row["speedup"] == pytest.approx((1.0, 0.8, 1.25))


def test_what_is_trusted() -> None:
    assert mpi_trusted([raced(redist=1.0)])
    assert not mpi_trusted([raced(redist=1.0) | {"wrong": {}}])
    assert not mpi_trusted([raced(redist=1.0) | {"wrong": {CONTROL: "", OWN: "rank 1 holds a wrong block"}}])


def test_the_suite_has_transpositions_of_slabs_and_pencils() -> None:
    for part in SUITES["mpi"].mpi:
        problems = mpi_problems(part, 0)
        assert len(problems) == 4 * len(part.sizes) + part.general
        assert all(p.source.is_even() and p.target.is_even() for p in problems)
        assert all(p.source.mesh.size == part.ranks for p in problems)


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_a_race_is_stored_and_not_repeated(tmp_path: Path) -> None:
    part, console = MpiPart(4, 4, (1,)), Console(file=io.StringIO())
    with Store.open(tmp_path, "mpi", 0, {}) as store:
        first = mpi_study(store, [part], 0, None, console)
    with Store.open(tmp_path, "mpi", 0, {}) as store:
        again = mpi_study(store, [part], 0, None, console)
    assert len(first) == 4 and first == again and mpi_trusted(first)
    ran = {OWN, AGREEING, GATHERING, "alltoallw", "pack-alltoall"}
    assert all(ran <= set(record["seconds"]) for record in first)  # all of them apply, and are right
    assert all(set(record["wrong"]) <= {CONTROL, "mpi4py-fft"} for record in first)
    assert {*BY_HAND, OWN, AGREEING, GATHERING, CONTROL} == set(CONTESTANTS)
