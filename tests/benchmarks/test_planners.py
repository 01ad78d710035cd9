"""Adapters: a handful of pairs each, with known outcomes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.judge import judge
from benchmarks.planners import CONTROL, PLANNERS
from benchmarks.pool import DevicePool
from benchmarks.problems import Problem, case_problems
from redist.types import Layout, Mesh

jax_here = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
torch_here = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def problem(mesh: str, source: str, target: str) -> Problem:
    over = Mesh.parse(mesh)
    return Problem.of("test", Layout.parse(source, over), Layout.parse(target, over))


def judged(who: str, *pair: str) -> dict[str, Any]:
    asked = problem(*pair)
    return judge(asked, who, PLANNERS[who].answer(asked))


def _judged_apart(who: str, asked: Problem) -> dict[str, Any]:
    return judge(asked, who, PLANNERS[who].answer(asked))


@pytest.fixture(scope="module")
def devices() -> Iterator[DevicePool]:
    """A process with 8 virtual devices."""
    with DevicePool(8) as pool:
        yield pool


# -- redist --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["redist", "redist-paper", "redist-exchange"])
def test_redist_is_right_and_states_what_it_receives(who: str) -> None:
    found = judged(who, "x=2,y=3,z=5", "[30{x}, 30{y}]", "[30{y,z}, 30{x}]")
    assert (found["verdict"], found["claim_holds"]) == ("ok", True)
    assert found["block_peak"] == 1.0


def test_an_exchange_receives_what_is_missing() -> None:
    found = judged("redist-exchange", "x=2,y=3,z=5", "[30{x}, 30{y}]", "[30{y,z}, 30{x}]")
    assert (found["ratio"], found["ops"]) == (1.0, ["exchange"])


@pytest.mark.parametrize("cases", ["reported", "shardy"])
def test_redist_on_every_case(cases: str) -> None:
    for asked in case_problems(cases):
        found = judge(asked, "redist", PLANNERS["redist"].answer(asked))
        assert (found["verdict"], found["claim_holds"]) == ("ok", True), asked.key


def test_the_control_is_caught() -> None:
    asked = problem("x=2", "[4{x}, 4]", "[4, 4{x}]")
    assert judge(asked, CONTROL.name, CONTROL.answer(asked))["verdict"] == "wrong"


# -- Shardy --------------------------------------------------------------------------------------------


@jax_here
def test_shardys_wrong_final_sharding_is_found() -> None:
    found = judged("shardy", "x=2,y=3,z=5", "[30{x}, 30{y}]", "[30{y,z}, 30{x}]")
    assert found["verdict"] == "wrong"
    assert found["note"].startswith("the target is f32[30{y,z}, 30{x}], but device 1 (x=0, y=0, z=1) holds")


@jax_here
def test_shardy_gathers_everything_and_stops() -> None:
    found = judged("shardy", "x=2,y=2,z=2,w=3", "[24{w,y}, 24{z,x}]", "[24{z}, 24{w}]")
    assert (found["verdict"], found["ops"]) == ("wrong", ["all_gather"])


@jax_here
def test_shardys_verifier_failure_is_a_failure() -> None:
    found = judged("shardy", "x=2,y=3,z=4", "[24{y}, 24{z}]", "[24{z}, 24{x}]")
    assert found["verdict"] == "failed"
    assert "'sdy.collective_permute' op sharded size of result doesn't match" in found["note"]


@jax_here
@pytest.mark.parametrize(
    ("mesh", "source", "target", "ops", "received", "bound"),
    [
        ("x=2,y=2,z=2", "[8{y}, 8{x,z}, 8]", "[8, 8, 8{x,y,z}]", ["permute", "all_to_all", "all_to_all"], 0.281, 0.109),
        ("x=2,y=2,z=2", "[8, 8{x,y}]", "[8{y,x}, 8]", ["permute", "all_to_all"], 0.438, 0.188),
        ("x=2,y=4", "[8{x}, 8{y}]", "[8{y}, 8{x}]", ["permute", "all_to_all"], 0.188, 0.125),
        ("x=2,y=3", "[6{x}, 6{y}]", "[6{y,x}, 6]", ["permute", "all_to_all", "permute"], 0.278, 0.167),
        ("x=2,y=4", "[8{x}, 8]", "[8, 8{y}]", ["slice", "permute", "all_gather"], None, None),
    ],
)
def test_shardys_plans_as_measured_before(
    mesh: str, source: str, target: str, ops: list[str], received: float | None, bound: float | None
) -> None:
    asked = problem(mesh, source, target)
    found = judge(asked, "shardy", PLANNERS["shardy"].answer(asked))
    assert found["verdict"] == "ok"
    elements = 1
    for size in asked.source.shape:
        elements *= size
    if received is not None:
        assert found["ops"] == ops
        assert found["received"] / elements == pytest.approx(received, abs=6e-4)
        assert found["lower_bound"] / elements == pytest.approx(bound, abs=6e-4)
    else:
        assert found["received"] == found["lower_bound"]


@jax_here
def test_a_permute_that_moves_nothing_is_no_step() -> None:
    """Shardy's first permute here is to the layout there is; taken for a move, the plan would receive 0.444."""
    found = judged("shardy", "x=2,y=3", "[6{x}, 6{y}]", "[6{y,x}, 6]")
    assert (found["steps"], found["ratio"], found["idle_ratio"]) == (2, pytest.approx(10 / 6), pytest.approx(16 / 6))


@jax_here
def test_shardy_refuses_blocks_it_does_not_have() -> None:
    assert judged("shardy", "x=2,y=2", "[5{x,y}@[0,1,3,4], 3]", "[5, 3]")["verdict"] == "refused"


# -- XLA -----------------------------------------------------------------------------------------------


@jax_here
@pytest.mark.parametrize(
    ("mesh", "source", "target", "expected"),
    [
        ("x=2,y=4", "[64{x}, 64]", "[64, 64]", {"ratio": 1.0, "rematerialised": False, "ops": ["all_gather"]}),
        ("x=2,y=4", "[64{x}, 64]", "[64, 64{x}]", {"ratio": 1.0, "steps": 1, "ops": ["all_to_all"]}),
        (
            "x=2,y=4",
            "[64{x}, 64]",
            "[64, 64{y}]",
            {"ratio": 4.0, "rematerialised": True, "ops": ["all_gather", "slice"]},
        ),
        ("x=2,y=2,z=2", "[64, 64{x,y}]", "[64{y,x}, 64]", {"steps": 2, "ops": ["all_to_all", "permute"]}),
        ("x=8", "[64, 64]", "[64{x}, 64]", {"ratio": 1.0, "received": 0, "ops": ["slice"]}),
    ],
)
def test_xla_as_measured_before(
    devices: DevicePool, mesh: str, source: str, target: str, expected: dict[str, Any]
) -> None:
    found = devices.run(_judged_apart, "xla", problem(mesh, source, target))
    assert found["verdict"] == "ok"
    assert {name: found[name] for name in expected} == expected
    assert found["measured_peak"] >= 1.0


@jax_here
def test_xla_reduces(devices: DevicePool) -> None:
    found = devices.run(_judged_apart, "xla", problem("a=2,b=4", "[16, 16] sum{a,b}", "[16{a}, 16]"))
    assert (found["verdict"], found["ops"]) == ("ok", ["all_reduce", "slice"])


@jax_here
def test_xla_refuses_uneven_blocks(devices: DevicePool) -> None:
    found = devices.run(_judged_apart, "xla", problem("x=8", "[5{x}]", "[5]"))
    assert found["verdict"] == "refused"


# -- DTensor -------------------------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_a_missing_torch_is_named() -> None:
    reason = PLANNERS["dtensor-greedy"].missing()
    assert reason is not None and "torch is not installed" in reason and "pip install torch==2.13.0" in reason


@torch_here
@pytest.mark.parametrize(
    ("who", "source", "target", "ratio", "ops"),
    [
        ("dtensor-greedy", "[8{x}, 8]", "[8, 8{x}]", 1.0, ["all_to_all"]),
        ("dtensor-greedy", "[8{x,y,z}, 8]", "[8, 8]", 1.0, ["all_gather"] * 3),
        ("dtensor-dijkstra", "[8, 8{x,y,z}]", "[8{x,y,z}, 8]", 40 / 7, None),
    ],
)
def test_dtensor_as_measured_before(who: str, source: str, target: str, ratio: float, ops: list[str] | None) -> None:
    found = judged(who, "x=2,y=2,z=2", source, target)
    assert (found["verdict"], found["ratio"]) == ("ok", pytest.approx(ratio))
    assert ops is None or found["ops"] == ops


@torch_here
def test_dtensors_greedy_planner_takes_left_to_right_only() -> None:
    assert judged("dtensor-greedy", "x=2,y=2", "[4{y,x}, 4]", "[4, 4]")["verdict"] == "refused"
    assert judged("dtensor-dijkstra", "x=2,y=2", "[4{y,x}, 4]", "[4, 4]")["verdict"] == "ok"
    assert judged("dtensor-dijkstra", "x=4", "[4{x:(1)2}, 4]", "[4, 4]")["verdict"] == "refused"
