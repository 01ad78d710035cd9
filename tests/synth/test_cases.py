"""Public reports and Shardy's own test cases: target reached, bound held, never worse than the stated figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redist.collectives import Plan, simulate
from redist.collectives.steps import op_name
from redist.synth import synthesize
from redist.types import Layout, Mesh
from redist.types.dtypes import numpy_dtype

Reader = Callable[[str], list[dict[str, Any]]]
_SMALL = 2**22


def _plan(source: str, source_mesh: str, target: str, target_mesh: str) -> Plan:
    return synthesize(Layout.parse(source, Mesh.parse(source_mesh)), Layout.parse(target, Mesh.parse(target_mesh)))


def _check(plan: Plan) -> None:
    """The plan reaches the target within the block bound; small arrays are simulated too."""
    assert plan.layouts[-1].equivalent(plan.target)
    assert plan.largest_block_bytes <= max(plan.source.block_bytes(), plan.target.block_bytes())
    elements = math.prod(plan.source.shape)
    if elements <= _SMALL and plan.source.mesh.size <= 64:
        simulate(plan, np.arange(elements).reshape(plan.source.shape).astype(numpy_dtype(plan.source.dtype)))


def test_shardy_cases(read_cases: Reader) -> None:
    """All 90 rows; the figures count where all sizes divide."""
    rows = read_cases("shardy_cases.json")
    assert len(rows) == 90
    compared = 0
    for row in rows:
        plan = _plan(row["source"], row["source_mesh"], row["target"], row["target_mesh"])
        _check(plan)
        if "received" in row and plan.source.is_even() and plan.target.is_even():
            compared += 1
            assert plan.lower_bound_bytes == 4 * row["lower_bound"], row["name"]
            ours = (plan.received_bytes, plan.communication_steps)
            assert ours <= (4 * row["received"], row["steps"]), row["name"]
    assert compared >= 60


def test_reported_cases(read_cases: Reader) -> None:
    """Problems that people reported against other tools."""
    for row in read_cases("reported_cases.json"):
        plan = _plan(row["source"], row["mesh"], row["target"], row["mesh"])
        _check(plan)
        size = math.prod(plan.source.shape) * plan.source.itemsize
        if row["lower_bound_of_array"] is not None:
            assert plan.received_bytes == plan.lower_bound_bytes == row["lower_bound_of_array"] * size, row["name"]
        if row["steps"] is not None and row["name"] != "xla-40034":
            assert [op_name(step) for step in plan.steps] == row["steps"], row["name"]


def test_unreduced_source_loses_no_reduction(read_cases: Reader) -> None:
    """sum{a,b} -> (a,-): both axes are reduced, at the lower bound (one of them is dropped elsewhere)."""
    (row,) = (row for row in read_cases("reported_cases.json") if row["name"] == "xla-40034")
    plan = _plan(row["source"], row["mesh"], row["target"], row["mesh"])
    assert plan.received_bytes == plan.lower_bound_bytes == 8 * 8 * 4
    reducing = [op_name(step) for step in plan.steps if op_name(step) in ("reduce_scatter", "all_reduce")]
    assert reducing


def test_expert_weights_receive_only_their_own(read_cases: Reader) -> None:
    """256 experts over ep=64, tp=4: one expert a device, not 256."""
    (row,) = (row for row in read_cases("reported_cases.json") if row["name"] == "verl-2802")
    plan = _plan(row["source"], row["mesh"], row["target"], row["mesh"])
    expert = 2048 * 1408 * 2
    assert plan.target.block_bytes() == expert
    assert plan.received_bytes == expert * 3 // 4
    assert plan.peak_bytes < 256 * expert


@pytest.mark.parametrize(
    ("mesh", "source", "target", "received", "bound"),
    [
        ("x=2,y=2,z=2", "[8{y}, 8{x,z}, 8]", "[8, 8, 8{x,y,z}]", 0.281, 0.109),
        ("x=2,y=2,z=2", "[8, 8, 8{x,y}]", "[8{x,z}, 8{y}, 8]", 0.250, 0.094),
        ("x=2,y=2,z=2", "[8, 8{x,y}]", "[8{y,x}, 8]", 0.438, 0.188),
        ("x=2,y=4", "[8{x}, 8{y}]", "[8{y}, 8{x}]", 0.188, 0.125),
        ("x=2,y=3", "[12{x}, 12{y}]", "[12{y,x}, 12]", 0.444, 0.167),
        ("x=2,y=4", "[8{x}, 8]", "[8, 8{y}]", 0.5, 0.125),
        ("x=4,y=2", "[8{y}, 8, 8{x}]", "[8, 8{x,y}, 8]", 0.156, 0.109),
        ("x=64,y=4", "[256{x,y}, 256]", "[256, 256{x}]", 0.0157, 0.0156),
        ("x=2,y=2,z=2", "[8, 8{x,y,z}]", "[8{x,y,z}, 8]", 0.625, 0.109),
    ],
)
def test_pairs_where_peers_were_beaten(mesh: str, source: str, target: str, received: float, bound: float) -> None:
    """Received bytes as a fraction of the array: the bound as stated, and no more than the best peer's plan."""
    plan = _plan(source, mesh, target, mesh)
    _check(plan)
    size = math.prod(plan.source.shape) * 4
    assert plan.lower_bound_bytes / size == pytest.approx(bound, abs=0.0006)
    assert plan.received_bytes / size <= received + 0.0005
