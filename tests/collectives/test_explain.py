"""A plan as text: the table, the totals, and the words for each step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.collectives import Options, Plan
from redist.collectives.explain import bytes_text, describe
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
)
from redist.testing import layouts, valid_steps
from redist.types import Layout, Mesh

MESH = Mesh({"x": 2, "y": 2, "z": 2})
LAYOUT = Layout.parse("f32[8{x}]", MESH)


def plan_of(source: str, target: str, *steps: Step, mesh: Mesh = MESH, to: Mesh | None = None, **options: Any) -> Plan:
    return Plan(Layout.parse(source, mesh), Layout.parse(target, to or mesh), steps, Options(**options))


def test_a_table_of_steps() -> None:
    """Every step with the layout after it, what it receives, and what is alive; then the totals and notes."""
    plan = plan_of(
        "f32[1024{x,y}, 512] sum{z}",
        "f32[1024, 512{z,y}]",
        ReduceScatter({1: ["z"]}),
        AllToAll([(["y"], 0, 1)]),
        Chunk(1, 2, [AllGather({0: ["x"]})]),
        memory_limit=2**20,
        notes=("one note", "another"),
    )
    assert plan.explain() == (
        "f32[1024{x,y}, 512] sum{z} on x=2,y=2,z=2  ->  f32[1024, 512{z,y}]   (bytes are per device)\n"
        "step                                           layout after                received      live      peak\n"
        "source                                         f32[1024{x,y}, 512] sum{z}                       512 KiB\n"
        "1. reduce-scatter dim 1 by z                   f32[1024{x,y}, 512{z}]       256 KiB   768 KiB   768 KiB\n"
        "2. all-to-all y: 0 -> 1                        f32[1024{x}, 512{z,y}]       128 KiB     1 MiB     1 MiB\n"
        "3. in 2 parts of dim 1: all-gather dim 0 by x  f32[1024, 512{z,y}]          256 KiB  1.62 MiB  1.62 MiB\n"
        "received 640 KiB in 3 communication steps: exactly what is missing\n"
        "largest block 512 KiB, within the bound of 512 KiB; live peak 1.62 MiB of a limit of 1 MiB\n"
        "one note\n"
        "another"
    )


def test_another_mesh_is_shown() -> None:
    """Where the mesh changes, in the headline and in the row."""
    far = Mesh({"a": 2}, [8, 9])
    plan = plan_of("f32[5{x}, 3]", "f32[5, 3]", Exchange(Layout.parse("f32[5, 3]", far)), to=far)
    assert plan.explain() == (
        "f32[5{x}, 3] on x=2,y=2,z=2  ->  f32[5, 3] on a=2@[8,9]   (bytes are per device)\n"
        "step         layout after            received  live  peak\n"
        "source       f32[5{x}, 3]                            36 B\n"
        "1. exchange  f32[5, 3] on a=2@[8,9]      60 B  96 B  96 B\n"
        "received 60 B in 1 communication step: exactly what is missing\n"
        "largest block 60 B, within the bound of 60 B; live peak 96 B"
    )


def test_bad_plans_show_it() -> None:
    """More bytes than are missing, bytes although nothing is missing, and a block over the bound."""
    text = plan_of("f32[8{x}, 8]", "f32[8, 8]", AllToAll([(["x"], 0, 1)]), AllGather({1: ["x"]})).explain()
    assert text.splitlines()[-2] == "received 192 B in 2 communication steps: 1.5x the lower bound of 128 B"
    text = plan_of("f32[8{x}]", "f32[8{x}]", AllGather({0: ["x"]}), Slice({0: ["x"]})).explain()
    assert text.splitlines()[-2:] == [
        "received 16 B in 1 communication step: although nothing is missing",
        "largest block 32 B, OVER the bound of 16 B; live peak 64 B",
    ]


def test_nothing_to_do_on_one_device() -> None:
    """A mesh without axes has a name too."""
    text = plan_of("f32[8]", "f32[8]", mesh=Mesh({})).explain()
    assert text.splitlines()[0] == "f32[8] on one device  ->  f32[8]   (bytes are per device)"
    assert text.splitlines()[3] == "received 0 B in 0 communication steps: exactly what is missing"
    moved = plan_of("f32[4{x}]", "f32[4]", Exchange(Layout.parse("f32[4]", Mesh({}))), to=Mesh({}))
    assert "->  f32[4] on one device " in moved.explain() and "  f32[4] on one device  " in moved.explain()


@given(valid_steps(layouts(max_elements=60)))
def test_every_plan_can_be_explained(sequence: tuple[Layout, tuple[Step, ...]]) -> None:
    """One row per step between the headline and the totals, the columns aligned, no trailing blanks."""
    source, steps = sequence
    lines = Plan(source, source, steps).explain().splitlines()
    assert len(lines) == 1 + 2 + len(steps) + 2
    rows = lines[1 : 3 + len(steps)]
    assert len({len(row) for row in rows}) == 1 and all(line == line.rstrip() for line in lines)
    assert [row.split(".")[0] for row in rows[2:]] == [str(n + 1) for n in range(len(steps))]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Slice({1: ["y"], 0: ["x:(1)2", "z"]}), "slice dim 0 by x:(1)2,z; dim 1 by y"),
        (AllGather({0: ["x"]}), "all-gather dim 0 by x"),
        (AllToAll([(["x", "y"], 0, 1), (["z"], 2, 1)]), "all-to-all x,y: 0 -> 1; z: 2 -> 1"),
        (Permute(LAYOUT, Free()), "permute"),
        (Exchange(LAYOUT), "exchange"),
        (Exchange(LAYOUT, (Transfer(0, 1, (0,), (1,)),)), "exchange (1 transfers)"),
        (ReduceScatter({0: ["x"]}), "reduce-scatter dim 0 by x"),
        (AllReduce(["x", "y"]), "all-reduce x,y"),
        (
            Chunk(1, 4, [AllReduce(["x"]), Slice({0: ["y"]})]),
            "in 4 parts of dim 1: all-reduce x, then slice dim 0 by y",
        ),
    ],
)
def test_steps_in_words(step: Step, text: str) -> None:
    """What each step is called."""
    assert describe(step) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1023385, "999 KiB"),
        (1023693, "1000 KiB"),
        (1024**2 - 1024, "1023 KiB"),
        (1024**2, "1 MiB"),
        (5 * 2**29, "2.5 GiB"),
        (2**40, "1 TiB"),
        (2**51, "2048 TiB"),
    ],
)
def test_bytes_in_words(count: int, text: str) -> None:
    """Three digits, never in powers of ten."""
    assert bytes_text(count) == text


@given(st.integers(0, 10**17))
def test_bytes_read_back(count: int) -> None:
    """The text is within its digits of the number."""
    number, unit = bytes_text(count).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert "e" not in number
    assert float(number) * factor == pytest.approx(count, rel=0.006)
