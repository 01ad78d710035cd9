"""Transfers over time: begun and awaited, used again, their communicators, their memory, large counts."""

from __future__ import annotations

from typing import Any

import pytest

from redist.collectives.plan import Options, Plan
from redist.collectives.steps import Exchange, Permute
from redist.synth import synthesize
from redist.types import Layout, Mesh

MIB = 2**20
CONSTANT = 4 * MIB
"""What a process has resident beyond what is projected: MPI's own buffers, and rounding to huge pages."""


def test_two_transfers_at_once(on_ranks: Any) -> None:
    assert on_ranks(3, "lasting.py", "started", rounds=24) == {"faults": 0, "seen": [[1, 1]] * 24}


def test_ranks_that_are_not_equally_far(on_ranks: Any) -> None:
    assert on_ranks(3, "lasting.py", "entangled", rounds=12) == 0


def test_bound_blocks_wait_for_their_group_alone(on_ranks: Any) -> None:
    assert on_ranks(4, "lasting.py", "apart") == [True] * 4


def test_reductions_are_numpys(on_ranks: Any) -> None:
    found = on_ranks(4, "lasting.py", "not_numbers")
    assert found == {name: [True] * 6 for name in ("f32", "f64", "f16", "bf16", "c64")}


def test_communicators_are_cached_and_freed(on_ranks: Any) -> None:
    assert on_ranks(6, "lasting.py", "cached", plans=90) == {"most": 64, "same": True, "users": 0}


def test_calibration(on_ranks: Any) -> None:
    found = on_ranks(4, "lasting.py", "calibrated")
    assert len(set(found["from"])) == 1
    assert found["methods"] == [["packed"], ["datatypes"], ["packed"]]


def plan(mesh: str, source: str, target: str, **options: Any) -> Plan:
    axes = Mesh.parse(mesh)
    return synthesize(Layout.parse(source, axes), Layout.parse(target, axes), backend="mpi", **options)


def there_and_back() -> Plan:
    """Three steps: handing back what the first packed makes room for the block after the second."""
    rows = Layout.parse("f32[8192{x}, 8192]", Mesh.parse("x=4"))
    columns = Layout.parse("f32[8192, 8192{x}]", Mesh.parse("x=4"))
    turned = Layout.parse("f32[8192, 8192{x}]", Mesh.parse("x=4@[3,2,1,0]"))
    return Plan(rows, rows, (Exchange(columns), Permute(turned), Exchange(rows)), Options(backend="mpi"))


def plans() -> list[Plan]:
    """Every kind of step, on arrays of 64 to 512 MiB."""
    return [
        plan("x=4", "f32[8192{x}, 8192]", "f32[8192, 8192{x}]"),
        there_and_back(),
        plan("x=2,y=2", "f32[8192{x}, 8192{y}]", "f32[8192{y}, 8192{x}]"),
        plan("x=2,y=2", "f32[4096{x,y}, 8192]", "f32[4096, 8192{x}]"),
        plan("x=4", "f32[4096, 4096{x}]", "f32[4096, 4096]"),
        plan("x=4", "f32[4097{x}, 8192]", "f32[4097{x}:balanced, 8192]"),
        plan("x=4", "f32[4097{x}, 8192]", "f32[4097, 8192{x}@[0, 9, 999, 4999]]"),
        plan("x=4", "f32[4096, 4096] sum{x}", "f32[4096, 4096{x}]"),
        plan("x=4", "f32[4096, 4096] sum{x}", "f32[4096, 4096]"),
        plan("x=4", "bf16[4096, 8192] sum{x}", "bf16[4096, 8192]"),
        plan("x=2,y=2", "f32[256{x,y}, 64, 4096]", "f32[256, 64{y}, 4096{x}]"),
        plan("x=4", "f32[512{x}, 64, 4096]", "f32[512, 64, 4096{x}]", memory_limit=300 * MIB),
    ]


@pytest.mark.parametrize("kept", [False, True], ids=["handed back", "kept"])
def test_resident_memory_is_what_is_projected(on_ranks: Any, kept: bool) -> None:
    found = on_ranks(4, "lasting.py", "memory", plans=[one.to_json() for one in plans()], kept=kept)
    for one, record in zip(plans(), found, strict=True):
        worst = max(record["peak"])
        assert record["right"], one.explain()
        assert worst <= one.peak_bytes + CONSTANT, (one.explain(), record)
        assert all(p <= s + CONSTANT for p, s in zip(record["peak"], record["stated"], strict=True)), (
            one.explain(),
            record,
        )
        assert max(record["stated"]) <= one.peak_bytes
        assert worst >= one.source.block_bytes()  # it is the blocks that are measured


def test_resident_memory_with_blocks_in_fortran_order(on_ranks: Any) -> None:
    chosen = [one.to_json() for one in plans()[::3]]
    for record in on_ranks(4, "lasting.py", "memory", plans=chosen, kept=False, fortran=True):
        assert record["right"]
        for peak, stated in zip(record["peak"], record["stated"], strict=True):
            assert peak <= stated + CONSTANT, record


@pytest.mark.heavy
def test_messages_above_two_gib(on_ranks: Any) -> None:
    found = on_ranks(2, "lasting.py", "large", row=2**30 + 2**26)
    assert [(record["step"], record["method"], record["bound"]) for record in found] == [
        ("permute", "packed", False),
        ("exchange", "packed", False),
        ("exchange", "datatypes", False),
        ("exchange", "packed", True),
        ("exchange", "datatypes", True),
    ]
    assert all(record["right"] for record in found)
