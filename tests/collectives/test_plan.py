"""Plans: sums over their steps against an independent count, bounds, and that they are only data."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings

from redist.collectives import Options, Plan
from redist.collectives.profile import JAX
from redist.collectives.steps import AllGather, AllToAll, Chunk, Exchange, Slice, Step
from redist.collectives.topology import Link, Topology
from redist.errors import TypingError
from redist.testing import layouts, valid_steps
from redist.types import Layout, Mesh

Sequence = tuple[Layout, tuple[Step, ...]]
MESH = Mesh({"x": 2, "y": 2, "z": 2})


def plan_of(source: str, target: str, *steps: Step, mesh: Mesh = MESH, **options: Any) -> Plan:
    return Plan(Layout.parse(source, mesh), Layout.parse(target, mesh), steps, Options(**options))


@given(valid_steps(layouts(max_elements=100), max_steps=6))
def test_bytes_are_those_of_a_count(brute: Any, sequence: Sequence) -> None:
    """Received by the busiest device, largest block, live bytes and peak, against loops over devices."""
    source, steps = sequence
    plan = Plan(source, source, steps)
    items = source.itemsize
    assert plan.received_bytes == items * max(brute.received_by_all(steps, source).values(), default=0)
    blocks = [items * max(map(brute.volume, brute.boxes(layout))) for layout in plan.layouts]
    assert plan.largest_block_bytes == max(blocks)
    for n, step in enumerate(steps):
        assert plan.step_received_bytes[n] == items * max(brute.received(step, plan.layouts[n]).values())
        if not isinstance(step, Chunk):
            assert plan.live_bytes[n] == blocks[n] + blocks[n + 1] + (blocks[0] if n else 0)
    assert plan.peak_bytes == max(*plan.live_bytes, blocks[0], 0)


@settings(max_examples=200)
@given(valid_steps(layouts(max_elements=100), max_steps=6))
def test_no_plan_beats_the_lower_bound(sequence: Sequence) -> None:
    """Whatever steps lead from one layout to another, the busiest device receives at least the bound."""
    source, steps = sequence
    target = Plan(source, source, steps).layouts[-1]
    plan = Plan(source, target, steps)
    assert plan.received_bytes >= plan.lower_bound_bytes
    assert plan.excess >= 1


def test_numbers_by_hand() -> None:
    """A gather after an all-to-all: blocks of 128 bytes, of 128 and of 256."""
    plan = plan_of("f32[8{x}, 8]", "f32[8, 8]", AllToAll([(["x"], 0, 1)]), AllGather({1: ["x"]}))
    assert [str(layout) for layout in plan.layouts] == ["f32[8{x}, 8]", "f32[8, 8{x}]", "f32[8, 8]"]
    assert plan.step_received_bytes == (64, 128) and plan.received_bytes == 192
    assert plan.lower_bound_bytes == 128 and plan.excess == 1.5
    assert plan.live_bytes == (128 + 128, 128 + 128 + 256) and plan.peak_bytes == 512
    assert plan.largest_block_bytes == 256 == plan.block_bound_bytes
    assert plan.communication_steps == 2
    assert plan.seconds == pytest.approx(192 / 1e10)
    assert not plan.optimal


def test_options_count() -> None:
    """Donating drops the source after the first step; a backend adds staging; a topology sets the time."""
    steps = (AllToAll([(["x"], 0, 1)]), AllGather({1: ["x"]}))
    donated = plan_of("f32[8{x}, 8]", "f32[8, 8]", *steps, donate=True)
    assert donated.live_bytes == (256, 384) and donated.peak_bytes == 384
    staged = plan_of("f32[8{x}, 8]", "f32[8, 8]", *steps, backend="jax")
    staging = [JAX.staging_bytes("all_to_all", 128, 128), JAX.staging_bytes("all_gather", 128, 256)]
    assert staged.live_bytes == (256 + staging[0], 512 + staging[1])
    slow = Topology("slow", default=Link(latency=1.0, bandwidth=64.0))
    assert plan_of("f32[8{x}, 8]", "f32[8, 8]", *steps, topology=slow).seconds == 1 + 1 + 1 + 2
    assert plan_of("f32[8]", "f32[8]", optimal=True).optimal


def test_nothing_to_do() -> None:
    """No steps: nothing received, excess 1, the peak is the larger of the two blocks."""
    plan = plan_of("f32[8{x}]", "f32[8{x}]")
    assert plan.layouts == (plan.source,) and plan.step_received_bytes == () and plan.live_bytes == ()
    assert plan.received_bytes == plan.lower_bound_bytes == 0 and plan.excess == 1.0
    assert plan.peak_bytes == 16 and plan.communication_steps == 0 and plan.seconds == 0
    assert plan_of("f32[8{x}]", "f32[8]").peak_bytes == 32


def test_excess_where_nothing_is_missing() -> None:
    """Infinite when bytes move although none need to."""
    plan = plan_of("f32[8{x}]", "f32[8{x}]", AllGather({0: ["x"]}), Slice({0: ["x"]}))
    assert plan.lower_bound_bytes == 0 and plan.received_bytes == 16 and plan.excess == float("inf")


def test_sums_are_over_devices_not_over_steps() -> None:
    """A gather on one mesh and an exchange to another are received by different devices."""
    away = Layout.parse("f32[8]", Mesh({"a": 2}, [20, 21]))
    plan = Plan(Layout.parse("f32[8{x}]", MESH), away, (AllGather({0: ["x"]}), Exchange(away)))
    assert plan.step_received_bytes == (16, 32) and plan.received_bytes == 32


def test_communications_are_steps_that_receive() -> None:
    """Slices do not count, nor does an exchange in which everyone holds what it wants."""
    plan = plan_of("f32[8, 8]", "f32[8, 8{x}]", Exchange(Layout.parse("f32[8{y}, 8]", MESH)), Slice({1: ["x"]}))
    assert plan.communication_steps == 0
    chunked = Chunk(0, 2, [AllGather({1: ["y"]}), Slice({1: ["z"]}), AllGather({1: ["z", "x"]})])
    assert plan_of("f32[8, 8{x,y}]", "f32[8, 8]", chunked).communication_steps == 2


def test_plans_are_data() -> None:
    """Equal by their fields, whatever has been computed; hashable; they pickle."""
    one, other = (plan_of("f32[8{x}]", "f32[8]", AllGather({0: ["x"]}), notes=("a",)) for _ in range(2))
    assert one.received_bytes == 16
    assert one == other and hash(one) == hash(other) and len({one, other}) == 1
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != plan_of("f32[8{x}]", "f32[8]", AllGather({0: ["x"]}))
    assert str(one) == one.explain()


def test_wrong_plans_can_be_built() -> None:
    """The steps need not apply or reach the target; where they do not apply, `layouts` says so."""
    stray = plan_of("f32[8{x}]", "f32[8{y}]", AllGather({0: ["x"]}))
    assert not stray.layouts[-1].equivalent(stray.target)
    broken = plan_of("f32[8{x}]", "f32[8]", AllGather({0: ["y"]}))
    assert Plan.from_json(broken.to_json()) == broken
    with pytest.raises(TypingError) as caught:
        broken.layouts  # noqa: B018
    assert str(caught.value) == (
        "all_gather on f32[8{x}]: axes {y} are not the minor suffix of dimension 0 (8{x}); only the last axes of a "
        "dimension can leave it"
    )


def test_a_million_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of a plan of even axis steps come without listing devices."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("devices are enumerated")

    for owner, name in [(Layout, "boxes"), (Layout, "dim_bounds"), (Mesh, "index"), (Mesh, "id_array")]:
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr("redist.collectives.cost.received_by_device", refuse)
    n = 2**20
    wide, long = Mesh({"a": 32, "b": 32, "c": 32, "d": 32}), Mesh({"x": n})
    steps: tuple[Step, ...] = (
        Slice({1: ["d:(1)4"]}),
        AllToAll([(["b"], 0, 1), (["c"], 2, 1)]),
        Chunk(1, 4, [AllGather({0: ["a"]})]),
        AllGather({1: ["c"]}),
    )
    plan = plan_of(f"f32[{n}{{a,b}}, {n}, 32{{c}}]", f"f32[{n}, {n}{{d:(1)4,b}}, 32]", *steps, mesh=wide)
    assert plan.layouts[-1].equivalent(plan.target)
    assert plan.step_received_bytes == (0, 2**30 - 2**20, 2**35 - 2**30, 31 * 2**35)
    assert plan.received_bytes == sum(plan.step_received_bytes)
    assert plan.lower_bound_bytes == 2**40 - 2**25 and plan.largest_block_bytes == 2**40
    assert plan.peak_bytes > plan.largest_block_bytes
    turned = plan_of(f"f32[{n}{{x}}, {n}]", f"f32[{n}, {n}{{x}}]", AllToAll([(["x"], 0, 1)]), mesh=long)
    assert turned.received_bytes == turned.lower_bound_bytes == 4 * (n - 1)
