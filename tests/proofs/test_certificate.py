"""Certificates: status, table, JSON, time limits; memory, order of steps and premises one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from redist.collectives import AllGather, AllReduce, AllToAll, Chunk, Exchange, Permute, Plan, ReduceScatter, Slice
from redist.collectives.plan import Options
from redist.collectives.steps import Free
from redist.errors import ProofError
from redist.proofs import Certificate, Obligation, Proved, Refuted, Unknown, verify
from redist.proofs.memory import measure
from redist.proofs.order import out_of_order
from redist.proofs.positions import UnsupportedError
from redist.proofs.premises import chunk_problem, problem
from redist.proofs.refine import contributions, refinement
from redist.proofs.solver import Deadline, decide
from redist.proofs.terms import Query
from redist.proofs.trace import Leaf, flatten
from redist.synth import synthesize
from redist.testing import random_layout
from redist.types import Layout, Mesh

MESH = Mesh.parse("x=2,y=2")


def layout(text: str) -> Layout:
    """A layout over 2x2."""
    return Layout.parse(text, MESH)


def plan_of(source: str, target: str) -> Plan:
    """Our plan over 2x2."""
    return synthesize(layout(source), layout(target))


# -- status ----------------------------------------------------------------------------------------------


def _with(certificate: Certificate, name: str, verdict: Any) -> str:
    obligations = [replace(o, verdict=verdict) if o.name == name else o for o in certificate.obligations]
    return Certificate(certificate.plan, tuple(obligations)).status


def test_status() -> None:
    """Unknown never counts as proved; exceptions of N2 and N3 are no refutation."""
    certificate = verify(plan_of("[4{x}, 4]", "[4, 4{y}]"))
    assert certificate.status == "proved"
    assert certificate.counterexample is None
    refuted = Refuted(verify(Plan(layout("[4{x}]"), layout("[4]"), ())).counterexample)  # type: ignore[arg-type]
    for name in ("R", "T", "M", "N1", "N2", "N3"):
        assert _with(certificate, name, Unknown("tired")) == "unknown"
        assert _with(certificate, name, refuted) == ("proved" if name in ("N2", "N3") else "refuted")


def test_obligations_in_order() -> None:
    """Six, each with its time and method."""
    certificate = verify(plan_of("[4{x}, 4]", "[4, 4{x}]"))
    assert [o.name for o in certificate.obligations] == ["R", "T", "M", "N1", "N2", "N3"]
    assert [o.method for o in certificate.obligations] == ["smt", *["syntactic"] * 3, "smt", "syntactic"]
    assert all(isinstance(o, Obligation) and isinstance(o.verdict, Proved) for o in certificate.obligations)
    assert all(o.seconds >= 0 for o in certificate.obligations)
    assert certificate.obligation("N3").figures == {"received": 4, "missing": 4}


def test_json() -> None:
    """Plan hash, solver, verdicts, counterexample; the hash is of the plan's JSON."""
    right = json.loads(verify(plan_of("[4{x}, 4]", "[4, 4{x}]")).to_json())
    assert right["schema"] == 1
    assert right["status"] == "proved"
    assert right["solver"].startswith("z3 ")
    assert right["counterexample"] is None
    assert [o["verdict"] for o in right["obligations"]] == ["proved"] * 6
    wrong = json.loads(verify(Plan(layout("[4{x}]"), layout("[4{y}]"), ())).to_json())
    assert wrong["status"] == "refuted"
    assert wrong["plan"] != right["plan"]
    assert wrong["counterexample"]["device"] == 1
    assert wrong["counterexample"]["coordinates"] == {"x": 0, "y": 1}
    assert wrong["counterexample"]["wanted"] == [2]
    assert wrong["counterexample"]["got"] == [0]
    assert wrong["counterexample"]["confirmed"] is True


def test_table() -> None:
    """One line per obligation, the counterexample below."""
    text = str(verify(Plan(layout("[4{x}]"), layout("[4{y}]"), ())))
    lines = text.splitlines()
    assert lines[0] == "REFUTED  f32[4{x}] -> f32[4{y}]"
    assert [line.split()[0] for line in lines[2:8]] == ["R", "T", "M", "N1", "N2", "N3"]
    assert "REFUTED" in lines[2]
    assert lines[9].startswith("REFUTED refinement: device 1 (x=0, y=1), local index (0,): wants global (2,)")


def test_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that may not think says unknown, and so does the certificate."""
    rng = Random(0)
    names = [f"k.{n}" for n in range(60)]
    weights = [rng.randrange(10**9, 10**10) for _ in names]
    hidden = sum(w for w in weights if rng.randint(0, 1)) + 1
    total = " ".join(f"(* {w} {name})" for w, name in zip(weights, names, strict=True))
    bounds = [f"(and (<= 0 {name}) (<= {name} 1))" for name in names]
    answer = decide(Query("knapsack", names, bounds, (), f"(= (+ {total}) {hidden})"), Deadline.after(0.05))
    assert answer.status == "unknown"
    assert answer.reason
    monkeypatch.setattr("redist.proofs.refinement.decide", lambda *_: answer)
    certificate = verify(plan_of("[4{x}, 4]", "[4, 4{x}]"), timeout_s=0.05)
    assert certificate.status == "unknown"
    assert isinstance(certificate.obligation("R").verdict, Unknown)
    assert "unknown" in str(certificate)
    assert json.loads(certificate.to_json())["obligations"][0]["reason"].endswith(answer.reason)


def test_importing_loads_no_solver() -> None:
    """Z3 is loaded when something is verified."""
    code = "import sys, redist.proofs; print('z3' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_without_z3(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install."""
    from redist.proofs import solver

    monkeypatch.setitem(sys.modules, "z3", None)
    solver._z3.cache_clear()
    with pytest.raises(ProofError, match=r"pip install 'redist\[proofs\]'"):
        verify(plan_of("[4{x}]", "[4]"))
    monkeypatch.undo()
    solver._z3.cache_clear()


def test_different_arrays() -> None:
    """Shape, dtype and reduction must be the same."""
    for source, target in (("[4]", "[5]"), ("[4]", "bf16[4]"), ("[4]", "[4, 1]"), ("[4] sum{x}", "[4] max{x}")):
        certificate = verify(Plan(layout(source), layout(target), ()))
        assert certificate.status == "refuted", (source, target)
        assert isinstance(certificate.obligation("R").verdict, Refuted)


def test_empty_arrays() -> None:
    """Nothing moves, shapes matter."""
    assert verify(plan_of("[0{x}, 4]", "[0, 4{y}]")).status == "proved"
    assert verify(Plan(layout("[0, 4{x}]"), layout("[0, 4]"), ())).status == "refuted"


# -- memory and order ------------------------------------------------------------------------------------


def test_memory_is_what_plans_project(plans: Any) -> None:
    """Computed on its own, the same numbers as the plan's."""
    rng = Random(0)
    for _ in range(300):
        plan = plans.planned(rng) if rng.randint(0, 1) else plans.assembled(rng)
        plan = replace(plan, options=Options(backend=rng.choice(("numpy", "mpi")), donate=bool(rng.randint(0, 1))))
        found = measure(plan)
        assert found.peak == plan.peak_bytes, plan.to_json()
        assert found.block_bound == plan.block_bound_bytes
        if not any(isinstance(step, Chunk) for step in plan.steps):
            assert found.largest_block == plan.largest_block_bytes, plan.to_json()


def test_memory_limit_replaces_the_default() -> None:
    """A generous limit allows a higher peak, never a larger block."""
    source, target = layout("[8{x}, 8]"), layout("[8, 8{y}]")
    plan = Plan(source, target, (AllGather({0: ["x"]}), Slice({1: ["y"]})), Options(memory_limit=10**6))
    assert "larger of source and target" in str(verify(plan).obligation("M").verdict)
    swap = Plan(source, source, (Permute(source, Free.of((["y"], ["y"]))),) * 3)
    assert verify(swap).obligation("M").holds
    assert not verify(replace(swap, options=Options(memory_limit=1))).obligation("M").holds


def test_unknown_backend() -> None:
    """No table of staging, no verdict."""
    plan = replace(plan_of("[4{x}]", "[4]"), options=Options(backend="abacus"))
    certificate = verify(plan)
    assert isinstance(certificate.obligation("M").verdict, Unknown)
    assert certificate.status == "unknown"


def test_order() -> None:
    """Slices before communications, inside chunks too; gathers last."""
    target = layout("[8{y}, 8{x}]")
    first = Plan(layout("[8{x}, 8]"), target, (AllToAll([(["x"], 0, 1)]), Slice({0: ["y"]})))
    certificate = verify(first)
    assert certificate.status == "refuted"
    assert certificate.obligation("R").holds
    assert isinstance(certificate.obligation("N1").verdict, Refuted)
    gathers = Plan(layout("[8{x,y}, 8]"), layout("[8, 8{x}]"), (AllGather({0: ["y"]}), AllToAll([(["x"], 0, 1)])))
    assert "gather last" in str(verify(gathers).obligation("N1").verdict)
    inside = Chunk(1, 2, [AllGather({0: ["x"]}), Slice({0: ["y"]})])
    chunked = Plan(layout("[8{x}, 8]"), layout("[8{y}, 8]"), (inside,))
    leaves = list(flatten(chunked.steps, chunked.layouts))
    assert [leaf.label for leaf in leaves] == ["1.1", "1.2"]
    assert "step 1.2 is a slice after step 1.1" in (out_of_order(leaves) or "")


# -- premises --------------------------------------------------------------------------------------------


def test_premises_agree_with_typing(plans: Any) -> None:
    """Every step that typing accepts passes; with another layout after it, it does not, and is not proved."""
    rng = Random(1)
    other = 0
    for _ in range(200):
        plan = plans.assembled(rng)
        for step, before in zip(plan.steps, plan.layouts, strict=False):
            assert chunk_problem(step, before) is None
        for leaf in flatten(plan.steps, plan.layouts):
            assert problem(leaf) is None, (leaf, plan.to_json())
            wrong = random_layout(
                rng, leaf.following.mesh, leaf.following.shape, dtypes=["i64"], reduction="sum", max_elements=300
            )
            if wrong.equivalent(leaf.following) or isinstance(leaf.step, Permute | Exchange):
                continue
            bogus = replace(leaf, following=wrong)
            other += 1
            assert problem(bogus) is not None, bogus
    assert other > 100


@pytest.mark.parametrize(
    ("step", "before", "following"),
    [
        (Slice({0: ["x"]}), "[4]", "[4{y}]"),
        (Slice({0: ["x"]}), "[4{x}]", "[4{x}]"),
        (AllGather({0: ["x"]}), "[4{x,y}]", "[4{y}]"),
        (AllGather({0: ["y"]}), "[5{x,y}]", "[5{x}]"),
        (AllToAll([(["x"], 0, 1)]), "[4{x}, 4]", "[4, 4{y}]"),
        (AllToAll([(["x"], 0, 0)]), "[4{x}, 4]", "[4{x}, 4]"),
        (ReduceScatter({0: ["x"]}), "[4] sum{y}", "[4{x}] sum{y}"),
        (ReduceScatter({0: ["x"]}), "[4] sum{x}", "[4]"),
        (AllReduce(["x"]), "[4] sum{x,y}", "[4] sum{x}"),
        (AllReduce(["x"]), "[4]", "[4]"),
        (Permute(Layout.parse("[4{x}]", MESH), Free.of((["y"], ["x"]))), "[4{x}]", "[4{x}]"),
        (Permute(Layout.parse("[4{x}]", MESH), Free.of((["y"], ["y"]))), "[4{x,y}]", "[4{x}]"),
        (Permute(Layout.parse("[4{x}]", MESH), Free()), "[4{x}]", "[4{x}]"),
        (Permute(Layout.parse("[5{x}@[0,2]]", MESH)), "[5{x}]", "[5{x}@[0,2]]"),
        (Exchange(Layout.parse("[4{x}]", MESH)), "[4] sum{x}", "[4{x}]"),
        (Exchange(Layout.parse("[4{x}]", MESH)), "[4]", "[4{y}]"),
    ],
)
def test_premises_that_fail(step: Any, before: str, following: str) -> None:
    """Steps that claim a layout they do not make."""
    assert problem(Leaf("1", step, layout(before), layout(following))) is not None


def test_chunks_leave_their_dimension_alone() -> None:
    """Inside a chunk no step touches the dimension that is cut."""
    assert chunk_problem(Chunk(0, 2, [AllGather({0: ["x"]})]), layout("[4{x}, 4]")) is not None
    assert chunk_problem(Chunk(1, 1, [AllGather({0: ["x"]})]), layout("[4{x}, 4]")) is not None
    assert chunk_problem(Chunk(1, 2, [AllGather({0: ["x"]})]), layout("[4{x}, 4]")) is None


@pytest.mark.parametrize(
    ("step", "before", "following"),
    [
        (AllReduce(["x"]), "[4] sum{x}", "[4] sum{x}"),  # both devices hold the whole sum, and are to be added
        (AllReduce(["x"]), "[4] sum{x,y}", "[4] sum{x}"),
    ],
)
def test_contributions_that_count_twice(step: Any, before: str, following: str) -> None:
    """The second claim of unreduced values refutes what the first does not see."""
    leaf = Leaf("1", step, layout(before), layout(following))
    claim = refinement([leaf], leaf.following, leaf.following, "right element")
    assert decide(claim.query, Deadline.after(10)).status == "unsat"
    twice = contributions([leaf], leaf.following, leaf.following, "no contribution twice")
    assert decide(twice.query, Deadline.after(10)).status == "sat"


def test_wrong_layouts_are_not_proved(plans: Any) -> None:
    """R itself, without T: a step and a layout that it does not make; none is proved."""
    rng = Random(3)
    refuted = 0
    for _ in range(150):
        plan = plans.assembled(rng, partial=False, uneven=False)
        for leaf in flatten(plan.steps, plan.layouts):
            if isinstance(leaf.step, Permute | Exchange) or 0 in leaf.before.shape:
                continue
            wrong = random_layout(
                rng, leaf.following.mesh, leaf.following.shape, dtypes=["i64"], partial=False, uneven=False
            )
            if wrong.equivalent(leaf.following):
                continue
            try:
                claim = refinement([leaf], wrong, leaf.following, "wrong")
            except UnsupportedError:
                continue
            assert decide(claim.query, Deadline.after(10)).status == "sat", (leaf, wrong)
            refuted += 1
    assert refuted > 50
