"""What steps cost: elements received per device as counted element by element, and bytes alive."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings

from redist.collectives.cost import Live, busiest, communications, live, received, received_by_device, varies
from redist.collectives.profile import NUMPY, PROFILES, BackendProfile, Staging, profile_of
from redist.collectives.steps import (
    OWNER,
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
)
from redist.collectives.typing import after, layouts_of
from redist.errors import BackendError
from redist.testing import layouts, valid_steps
from redist.types import Layout, Mesh

Sequence = tuple[Layout, tuple[Step, ...]]
MESH = Mesh({"x": 2, "y": 2, "z": 2})
SIX = Mesh({"x": 2, "y": 3})


@settings(max_examples=300)
@given(valid_steps(layouts(max_elements=120)))
def test_received_is_that_of_a_count(brute: Any, sequence: Sequence) -> None:
    """Per step and device: what of the new block the device did not hold; whole blocks where a permute
    brings another's; stated transfers from others; (k-1) blocks reduced; the busiest device's by `received`."""
    source, steps = sequence
    for step in steps:
        following = after(step, source)
        expected = brute.received(step, source)
        found = received_by_device(step, source).tolist()
        assert dict(zip(following.mesh.device_ids, found, strict=True)) == expected, (step, source)
        assert received(step, source) == max(expected.values())
        if not varies(step, source):
            assert len(set(expected.values())) == 1
        source = following


@given(valid_steps(layouts(max_elements=100), max_steps=6))
def test_the_busiest_device_over_all_steps(brute: Any, sequence: Sequence) -> None:
    """The maximum over devices of their sums, on whatever meshes the steps run."""
    source, steps = sequence
    total = brute.received_by_all(steps, source)
    assert busiest(steps, layouts_of(steps, source)) == max(total.values(), default=0)


@given(valid_steps(layouts(max_elements=150), max_steps=2, kinds=("chunk",)))
def test_a_chunk_receives_what_its_steps_do(brute: Any, sequence: Sequence) -> None:
    """In all, and by device."""
    source, steps = sequence
    for step in steps:
        assert isinstance(step, Chunk)
        assert received(step, source) == busiest(step.steps, layouts_of(step.steps, source))
        assert received(step, source) == received_by_device(step, source).max()
        source = after(step, source)


@pytest.mark.parametrize(
    ("before", "step", "expected"),
    [
        ("[8{x}, 8]", Slice({1: ["y"]}), 0),
        ("[8{x,y}]", AllGather({0: ["y"]}), 2),
        ("[8{x,y,z}]", AllGather({0: ["x", "y", "z"]}), 7),
        # a fused all-to-all over 2x2x2 receives 7/8 of a block of 64, one by one 3/2
        ("[8{x,y,z}, 64]", AllToAll([(["x", "y", "z"], 0, 1)]), 56),
        ("[8{x}, 8]", AllToAll([(["x"], 0, 1)]), 16),
        ("[8{x}, 8{y}, 8]", AllToAll([(["x"], 0, 2), (["y"], 1, 2)]), 96),
        ("[8] sum{x,y}", ReduceScatter({0: ["x", "y"]}), 6),
        ("[8] sum{x,y}", AllReduce(["x", "y"]), 12),
        ("[8{z}] sum{x,y}", AllReduce(["x"]), 4),
        ("[3] sum{x,y}", AllReduce(["x", "y"]), 5),
        ("[] sum{x}", AllReduce(["x"]), 1),
        ("[8{x}]", Permute(Layout.parse("[8{x}]", MESH), Free.of((["y", "z"], ["y", "z"]))), 0),
        ("[8{x}]", Permute(Layout.parse("[8{x}]", MESH), Free.of((["y", "z"], ["z", "y"]))), 4),
        ("[8{x}]", Exchange(Layout.parse("[8{y}]", MESH)), 4),
        ("[8{x}] sum{y}", Exchange(Layout.parse("[8{x}] sum{y}", MESH)), 0),
        ("[8{x}] sum{y}", Exchange(Layout.parse("[8{x}] sum{z}", MESH)), 4),
        ("[8{x}]", Exchange(Layout.parse("[8{x}]", Mesh({"x": 2}, [11, 12])), OWNER), 4),
        ("[8{x}]", Exchange(Layout.parse("[8]", MESH), (Transfer(0, 1, (0,), (3,)), Transfer(0, 1, (0,), (3,)))), 6),
        ("[8{x}]", Exchange(Layout.parse("[8]", MESH), (Transfer(1, 1, (0,), (3,)),)), 0),
        ("[8{x}]", Exchange(Layout.parse("[8]", MESH), ()), 0),
        ("[8, 8{x,y}]", Chunk(0, 3, [AllGather({1: ["y"]}), AllGather({1: ["x"]})]), 48),
        ("[0{x}]", AllGather({0: ["x"]}), 0),
    ],
)
def test_known_costs(before: str, step: Step, expected: int) -> None:
    """The formulas of the design by hand: (k-1)B, B(k-1)/k, 2B(k-1)/k, B or 0, what is stated."""
    assert received(step, Layout.parse(before, MESH)) == expected


def test_uneven_blocks_receive_by_their_own_size() -> None:
    """A device with an empty block receives nothing when it is reduced, and most where it is gathered."""
    layout = Layout.parse("[4{y}] sum{x}", SIX)
    assert received_by_device(AllReduce(["x"]), layout).tolist() == [2, 2, 0, 2, 2, 0]
    assert received_by_device(ReduceScatter({0: ["x"]}), Layout.parse("[3] sum{x}", SIX)).tolist() == [2, 2, 2, 1, 1, 1]
    assert received_by_device(AllGather({0: ["y"]}), Layout.parse("[4{y}]", SIX)).tolist() == [2, 2, 4, 2, 2, 4]
    pairs = Pairs(((0, 0), (1, 4), (2, 5), (3, 3), (4, 1), (5, 2)))
    moved = Permute(Layout.parse("[4{y}]", SIX), pairs)
    assert received_by_device(moved, Layout.parse("[4{y}]", SIX)).tolist() == [0, 2, 0, 0, 2, 0]


def test_what_varies() -> None:
    """Even axes steps treat all devices alike; uneven ones, permutes and exchanges may not."""
    even, uneven = Layout.parse("[12{x}, 12] sum{y}", SIX), Layout.parse("[12, 5{y}, 3]", SIX)
    assert not varies(AllGather({0: ["x"]}), even) and not varies(AllReduce(["y"]), even)
    assert not varies(Slice({2: ["x"]}), uneven)
    assert varies(AllGather({1: ["y"]}), uneven) and varies(AllToAll([(["y"], 1, 0)]), uneven)
    assert varies(Permute(Layout.parse("[12{x}, 12] sum{y}", SIX)), even)
    assert varies(Exchange(even), even)
    assert not varies(Chunk(1, 2, [AllGather({0: ["x"]}), AllReduce(["y"])]), even)
    assert varies(Chunk(0, 2, [AllGather({1: ["y"]})]), uneven)
    assert varies(AllReduce(["x"]), Layout.parse("[5{y}] sum{x}", SIX))


def test_communications() -> None:
    """Steps in which something is received; a chunk's inner ones count one by one."""
    layout = Layout.parse("[8, 8{x,y}]", MESH)
    gathers = [AllGather({1: ["y"]}), Slice({1: ["z"]}), AllGather({1: ["z"]}), AllGather({1: ["x"]})]
    assert communications(Slice({1: ["z"]}), layout) == 0
    assert communications(gathers[0], layout) == 1
    assert communications(Chunk(0, 2, gathers), layout) == 3
    nested = Chunk(0, 2, [Chunk(2, 2, [AllGather({1: ["y"]})]), AllGather({1: ["x"]})])
    assert communications(nested, Layout.parse("[8, 8{x,y}, 4]", MESH)) == 2
    assert communications(Permute(Layout.parse("[8, 8{x,y}]", MESH), Free.of((["z"], ["z"]))), layout) == 0


def test_sums_over_devices_that_differ() -> None:
    """Where one device is busy in one step and another in the next, the sums count, not the maxima; and
    devices of different meshes are different devices."""
    layout = Layout.parse("[4{y}]", SIX)
    first = Exchange(layout, (Transfer(0, 3, (0,), (2,)),))
    second = Exchange(layout, (Transfer(3, 0, (0,), (2,)),))
    assert received(first, layout) == received(second, layout) == 2
    assert busiest((first, second), layouts_of((first, second), layout)) == 2
    even = Layout.parse("[6{y}]", SIX)
    away = Exchange(Layout.parse("[6]", Mesh({"a": 2}, [8, 9])))
    steps = (AllGather({0: ["y"]}), away)
    assert [received(step, before) for step, before in zip(steps, layouts_of(steps, even), strict=False)] == [4, 6]
    assert busiest(steps, layouts_of(steps, even)) == 6


# -- bytes alive ---------------------------------------------------------------------------------------


@given(valid_steps(layouts(max_elements=100)))
def test_live_bytes_of_a_step(brute: Any, sequence: Sequence) -> None:
    """Input and output are the largest blocks before and after; NumPy stages nothing but a chunk's part."""
    source, steps = sequence
    for step in steps:
        following = after(step, source)
        volumes = [max(map(brute.volume, brute.boxes(layout))) * layout.itemsize for layout in (source, following)]
        found = live(step, source, NUMPY)
        assert [found.input_bytes, found.output_bytes] == volumes
        assert found.total == sum(volumes) + found.staging_bytes
        assert isinstance(step, Chunk) or found.staging_bytes == 0
        source = following


def test_staging_by_profile() -> None:
    """Multiples of the input and output blocks, rounded up; none for a step that is not listed."""
    layout = Layout.parse("f32[8{x}, 8]", MESH)
    profile = BackendProfile("odd", {"slice": Staging(of_input=1 / 3), "all_to_all": Staging(2.0, 0.5)})
    assert live(AllToAll([(["x"], 0, 1)]), layout, profile) == Live(128, 128, 2 * 128 + 64)
    assert live(Slice({1: ["y"]}), layout, profile) == Live(128, 64, 43)
    assert (
        live(AllGather({0: ["x"]}), layout, profile) == live(AllGather({0: ["x"]}), layout, NUMPY) == Live(128, 256, 0)
    )
    assert profile.staging_bytes("slice", 0, 5) == 0


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_profiles_pickle(profile: BackendProfile) -> None:
    """And are found by name."""
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert profile_of(profile.name) is profile


def test_a_chunk_stages_one_part() -> None:
    """The largest part's input, output and staging of the hungriest inner step, instead of whole blocks."""
    layout = Layout.parse("f32[10, 8{x,y}]", MESH)
    gather = AllGather({1: ["x", "y"]})
    # blocks of 10x2 and 10x8 elements of 4 bytes; the longest of 4 parts of 10 has 3 rows
    assert live(Chunk(0, 4, [gather]), layout, NUMPY) == Live(80, 320, 3 * 2 * 4 + 3 * 8 * 4)
    staged = Chunk(0, 4, [gather, Slice({1: ["z"]})])
    assert live(staged, layout, NUMPY) == Live(80, 160, max(3 * (2 + 8) * 4, 3 * (8 + 4) * 4))
    double = BackendProfile("double", {"all_gather": Staging(of_output=2.0)})
    assert live(Chunk(0, 4, [gather]), layout, double).staging_bytes == 3 * 2 * 4 + 3 * 8 * 4 + 2 * 3 * 8 * 4
    third = BackendProfile("third", {"all_gather": Staging(of_input=1 / 3)})
    assert live(Chunk(0, 4, [gather]), layout, third).staging_bytes == 120 + -(-27 * 3 // 10), "rounded up, not down"
    empty = Layout.parse("f32[0, 8{x}]", MESH)
    assert live(Chunk(0, 2, [AllGather({1: ["x"]})]), empty, NUMPY) == Live(0, 0, 0)


def test_unknown_backends() -> None:
    """Profiles go by name."""
    with pytest.raises(BackendError) as caught:
        profile_of("cuda")
    assert str(caught.value) == f"unknown backend 'cuda'; use one of {', '.join(PROFILES)}"
