"""Blocks on ranks against NumPy's slices of the global array; bytes handed to MPI against the plan's."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

BOTH = ["packed", "datatypes"]


def check(found: list[dict[str, Any]]) -> None:
    """Every block is right, and every rank received what the plan states for it: what an all-reduce of
    elements that its group does not divide receives is stated rounded up."""
    for record in found:
        plan = record["plan"]
        assert not record["wrong"], (plan, record["methods"], record["wrong"])
        rounded = kinds([record])["all_reduce"] * record["itemsize"]
        for stated, received in zip(record["stated"], record["received"], strict=True):
            assert stated == received or 0 < stated - received < rounded, (plan, record)


def kinds(found: list[dict[str, Any]]) -> Counter[str]:
    """How often each op occurs, those in chunks too."""

    def each(steps: list[dict[str, Any]]) -> Any:
        for step in steps:
            yield step["op"]
            yield from each(step.get("steps", []))

    return Counter(op for record in found for op in each(json.loads(record["plan"])["steps"]))


@pytest.mark.parametrize(("ranks", "count"), [(2, 60), (3, 60), (4, 80), (6, 80), (8, 80)])
def test_random_problems(on_ranks: Any, ranks: int, count: int) -> None:
    found = on_ranks(ranks, "ranks.py", "problems", seed=ranks, count=count, ranks=ranks, methods=BOTH)
    assert len(found) == count
    check(found)
    assert {tuple(set(record["methods"])) for record in found} >= {("packed",), ("datatypes",)}


@pytest.mark.parametrize(("ranks", "seed"), [(4, 1), (6, 2)])
def test_random_sequences_of_steps(on_ranks: Any, ranks: int, seed: int) -> None:
    found = on_ranks(ranks, "ranks.py", "sequences", seed=seed, count=120, ranks=ranks)
    check(found)
    assert min(kinds(found)[op] for op in OPS) >= 5, kinds(found)


OPS = ("slice", "all_gather", "all_to_all", "permute", "exchange", "reduce_scatter", "all_reduce", "chunk")


@pytest.mark.parametrize(
    ("mesh", "ranks", "shape", "count"),
    [("x=2,y=2,z=2", 8, [16, 24], 60), ("x=2,y=3", 6, [12, 18], 40), ("x=2,y=2", 4, [8, 4, 4], 40)],
)
def test_pairs_of_all_layouts(on_ranks: Any, mesh: str, ranks: int, shape: list[int], count: int) -> None:
    check(on_ranks(ranks, "ranks.py", "pairs", mesh=mesh, shape=shape, seed=0, count=count, steps=None))


def test_exchanges_receive_the_lower_bound(on_ranks: Any) -> None:
    found = on_ranks(8, "ranks.py", "pairs", mesh="x=2,y=2,z=2", shape=[16, 24], seed=7, count=60, steps=["exchange"])
    check(found)
    assert set(kinds(found)) == {"exchange"}
    assert all(max(record["received"]) == record["bound"] for record in found)


def test_plans_within_memory_limits(on_ranks: Any) -> None:
    found = on_ranks(6, "ranks.py", "limited", seed=3, count=24, ranks=6)
    check(found)
    assert kinds(found)["chunk"] >= 8
    assert any("datatypes" in record["methods"] for record in found)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(4))
def test_many_problems(on_ranks: Any, seed: int) -> None:
    for ranks in (2, 3, 4, 6, 8):
        check(on_ranks(ranks, "ranks.py", "problems", seed=100 + seed, count=400, ranks=ranks, methods=BOTH))
        check(on_ranks(ranks, "ranks.py", "sequences", seed=200 + seed, count=300, ranks=ranks))
