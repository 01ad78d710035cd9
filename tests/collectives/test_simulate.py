"""Simulation: right plans pass on arrays of every dtype, wrong ones are caught at the element, bad input is named."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.collectives import Plan, simulate
from redist.collectives.simulate import assemble, scatter
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Free,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
)
from redist.errors import BackendError, ProofError, TypingError
from redist.testing import DTYPES, REDUCTIONS, layouts, random_layout, random_mesh, valid_steps
from redist.types import Layout, Mesh
from redist.types.dtypes import numpy_dtype

Sequence = tuple[Layout, tuple[Step, ...]]
MESH = Mesh({"x": 2, "y": 2})


def plan_of(source: str, target: str, *steps: Step, mesh: Mesh = MESH) -> Plan:
    return Plan(Layout.parse(source, mesh), Layout.parse(target, mesh), steps)


def array_of(layout: Layout, seed: int = 0) -> Any:
    """Values in the whole range of small types, among them the least and the greatest."""
    dtype, rng = numpy_dtype(layout.dtype), np.random.default_rng(seed)
    if layout.dtype == "bool" or np.issubdtype(dtype, np.integer):
        bounds = (0, 1) if layout.dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        values = rng.integers(
            bounds[0], bounds[1], size=layout.shape, dtype=np.int64 if dtype != np.uint64 else np.uint64, endpoint=True
        )
        edge = rng.integers(0, 4, size=layout.shape)
        values = np.where(edge == 0, bounds[0], np.where(edge == 1, bounds[1], values))
    else:
        values = rng.integers(-8, 8, size=layout.shape)
    return np.asarray(values).astype(dtype)


@settings(max_examples=200)
@given(valid_steps(layouts(max_elements=80), max_steps=4), st.integers(0, 9))
def test_right_plans_pass(brute: Any, sequence: Sequence, seed: int) -> None:
    """From a global array of the layout's dtype: the check passes, and blocks are those of the array."""
    source, steps = sequence
    plan = Plan(source, Plan(source, source, steps).layouts[-1], steps)
    array = array_of(source, seed)
    result = simulate(plan, array)
    assert list(result) == list(plan.target.mesh.device_ids)
    exact = source.partial is None or np.issubdtype(array.dtype, np.integer)
    if exact and plan.target.partial is None:
        for block, want in zip(result.values(), brute.held(plan.target, [array]), strict=True):
            assert block.dtype == want.dtype and block.shape == want.shape
            np.testing.assert_array_equal(block, want)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [*DTYPES, "f16", "i32", "u8", "u64", "c128", "f8e4m3fn", "f8e5m2", "i4", "u4"])
def test_reductions_of_every_dtype(dtype: str, reduction: str) -> None:
    """Scattered over all contributions, kept in part, in every dtype: what is reduced is the array, also at
    the ends of small integer types, and no step changes the dtype."""
    name = f"'{dtype}'" if dtype.startswith(">") else dtype
    for target, steps in [
        ("[3, 5]", [AllReduce(["x", "y"])]),
        ("[3{y}, 5{x}]", [ReduceScatter({0: ["y"], 1: ["x"]})]),
        (f"[3, 5{{x}}] {reduction}{{y}}", [ReduceScatter({1: ["x"]})]),
    ]:
        plan = plan_of(f"{name}[3, 5] {reduction}{{x,y}}", f"{name}{target}", *steps)
        array = array_of(plan.source)
        result = simulate(plan, array)
        assert all(block.dtype == array.dtype for block in result.values())


MOVED = ["|V4", "<U3", "|S5", "<M8[ns]", ">c16", np.dtype(np.longdouble).str, "f8e8m0fnu", "f4e2m1fn", "u2", "bf16"]


@pytest.mark.parametrize("dtype", MOVED)
def test_data_of_every_dtype_moves(dtype: str) -> None:
    """Gathered, exchanged among dimensions and by owners, sliced: the same bits and the same dtype."""
    name = dtype if dtype.isalnum() and dtype[0] != "|" else f"'{dtype}'"
    kind = numpy_dtype(dtype)
    numbers = (np.arange(20, dtype=np.int32) % 3 + 1).reshape(4, 5)
    array = numbers.view(kind) if dtype == "|V4" else numbers.astype(kind)
    plan = plan_of(
        f"{name}[4{{x}}, 5]",
        f"{name}[4{{y}}, 5{{x}}]",
        AllToAll([(["x"], 0, 1)]),
        AllGather({1: ["x"]}),
        Slice({0: ["x", "y"]}),
        Exchange(Layout.parse(f"{name}[4{{y}}, 5{{x}}]", MESH)),
    )
    result = simulate(plan, array)
    assert all(block.dtype == kind for block in result.values())
    assert [result[0].tobytes(), result[2].tobytes()] == [array[:2, :3].tobytes(), array[:2, 3:].tobytes()]


@given(layouts(max_elements=60), st.integers(0, 9))
def test_contributions_reduce_to_the_array(layout: Layout, seed: int) -> None:
    """`scatter` gives every device a block of its box; `assemble` puts the array together again."""
    array = array_of(layout, seed)
    blocks = scatter(layout, array, seed)
    assert {device: block.shape for device, block in blocks.items()} == {
        device: tuple(s.stop - s.start for s in layout.box(device)) for device in layout.mesh.device_ids
    }
    again = assemble(layout, blocks)
    if layout.partial is None or np.issubdtype(array.dtype, np.integer) or array.dtype == bool:
        np.testing.assert_array_equal(again, array)
    else:
        np.testing.assert_allclose(again.astype(complex), array.astype(complex), rtol=0.1, atol=0.5)


def test_contributions_differ() -> None:
    """A plan that takes one contribution for all is not right by luck."""
    for reduction in REDUCTIONS:
        layout = Layout.parse(f"i32[50] {reduction}{{x}}", MESH)
        blocks = scatter(layout, np.arange(50, dtype=np.int32) + 1)
        assert not np.array_equal(blocks[0], blocks[2])
        assert np.array_equal(blocks[0], blocks[1]), "y replicates"


def test_blocks_may_be_given() -> None:
    """{device id: block} instead of the array, unreduced contributions too; then they are the truth."""
    plan = plan_of("i32[4{x}] sum{y}", "i32[4]", AllReduce(["y"]), AllGather({0: ["x"]}))
    blocks = {device: np.asarray([device, 10 * device], dtype=np.int32) for device in range(4)}
    result = simulate(plan, blocks)
    assert [result[d].tolist() for d in range(4)] == [[1, 10, 5, 50]] * 4
    assert blocks[1].tolist() == [1, 10]


def test_results_belong_to_the_caller() -> None:
    """Blocks can be written to, and are neither each other's memory nor the input's."""
    gathered = simulate(plan_of("f32[4{x}]", "f32[4]", AllGather({0: ["x"]})), np.arange(4, dtype=np.float32))
    gathered[0][:] = 7
    assert gathered[1].tolist() == [0, 1, 2, 3]
    given_blocks = {d: np.ones(2, np.float32) for d in range(4)}
    result = simulate(plan_of("f32[4{x}]", "f32[4{x}]"), given_blocks)
    result[0][:] = 7
    uneven = {
        0: np.ones(3, np.float32),
        1: np.ones(3, np.float32),
        2: np.ones(2, np.float32),
        3: np.ones(2, np.float32),
    }
    simulate(plan_of("f32[5{x}]", "f32[5{x}]"), uneven)[0][:] = 7
    assert given_blocks[0].tolist() == [1, 1] and uneven[0].tolist() == [1, 1, 1]


def test_scalars() -> None:
    """Rank 0: reduced, permuted, exchanged to other devices; blocks are arrays of rank 0."""
    far = Layout.parse("f32[]", Mesh({"a": 3}, [7, 0, 9]))
    plan = Plan(Layout.parse("f32[] sum{x}", MESH), far, (AllReduce(["x"]), Exchange(far)))
    result = simulate(plan, np.float32(3))
    assert {device: (block.shape, float(block)) for device, block in result.items()} == {
        7: ((), 3),
        0: ((), 3),
        9: ((), 3),
    }
    kept = simulate(
        plan_of("f32[] sum{x}", "f32[] sum{x}", Permute(Layout.parse("f32[] sum{x}", MESH), Free.of((["y"], ["y"])))),
        np.float32(3),
    )
    assert float(kept[0] + kept[2]) == 3


@pytest.mark.parametrize("dtype", MOVED)
def test_scalars_of_every_dtype(dtype: str) -> None:
    name = dtype if dtype.isalnum() and dtype[0] != "|" else f"'{dtype}'"
    far = Layout.parse(f"{name}[]", Mesh({"a": 3}, [7, 0, 9]))
    number = np.asarray(1, np.int32)
    array = number.view(dtype) if dtype == "|V4" else number.astype(numpy_dtype(dtype))
    result = simulate(Plan(Layout.parse(f"{name}[]", MESH), far, (Exchange(far),)), array)
    assert set(result) == {7, 0, 9}
    assert all(block.dtype == array.dtype and block == array for block in result.values())


def test_not_a_number_is_itself() -> None:
    """Moved NaNs compare equal, and infinities survive a sum."""
    array = np.asarray([np.nan, np.inf, -np.inf, 1], dtype=np.float32)
    simulate(plan_of("f32[4{x}]", "f32[4]", AllGather({0: ["x"]})), array)
    simulate(plan_of("f32[4] max{x}", "f32[4]", AllReduce(["x"])), array)
    result = simulate(plan_of("f32[4] sum{x}", "f32[4{x}]", ReduceScatter({0: ["x"]})), array)
    assert np.isnan(result[0][0]) and result[0][1] == np.inf


# -- wrong plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            plan_of(
                "i32[4, 2{x}]", "i32[4{x}, 2]", AllToAll([(["x"], 1, 0)]), AllGather({0: ["x"]}), Slice({0: ["y"]})
            ),
            "the plan from i32[4, 2{x}] to i32[4{x}, 2] is wrong: device 1 (x=0, y=1), local index (0, 0), wants 0 "
            "(global "
            "index (0, 0)) and gets 4; 4 elements of its block differ",
        ),
        (
            plan_of(
                "i32[4{x}, 2]",
                "i32[4{y}, 2]",
                Exchange(Layout.parse("i32[4{y}, 2]", MESH), (Transfer(0, 0, (0, 0), (2, 2)),)),
            ),
            "the plan from i32[4{x}, 2] to i32[4{y}, 2] is wrong: device 1 (x=0, y=1), local index (0, 0), wants 4 "
            "(global "
            "index (2, 0)) and gets 0; 4 elements of its block differ",
        ),
        (
            plan_of("i32[4, 2]", "i32[4, 2{y}]"),
            "device 0 (x=0, y=0) ends with a block of shape (4, 2), the target's is (4, 1)",
        ),
        (
            Plan(Layout.parse("i32[4, 2]", MESH), Layout.parse("i32[4, 2]", Mesh({"a": 2})), ()),
            "the plan ends on devices [0, 1, 2, 3], the target is on [0, 1]",
        ),
        (
            plan_of("i32[4, 2] sum{x}", "i32[4, 2] sum{y}"),
            None,
        ),
    ],
)
def test_wrong_plans_are_refuted(plan: Plan, message: str | None) -> None:
    """With the device, the local and the global index, and the values; or by shapes and devices."""
    with pytest.raises((ProofError, BackendError)) as caught:
        simulate(plan, np.arange(8, dtype=np.int32).reshape(4, 2))
    if message is not None:
        assert str(caught.value) == message


def test_unchecked_plans_just_run() -> None:
    """With check=False the blocks come back, right or wrong."""
    plan = plan_of("i32[4]", "i32[4{x}]")
    assert [block.tolist() for block in simulate(plan, np.arange(4, dtype=np.int32), check=False).values()] == [
        [0, 1, 2, 3]
    ] * 4


def test_random_wrong_plans_are_refuted() -> None:
    """The blocks of a plan that ends elsewhere never pass for the target's, unless the layouts are equivalent."""
    rng, refuted = Random(3), 0
    for _ in range(200):
        mesh = random_mesh(rng, max_devices=8)
        source = random_layout(rng, mesh, max_elements=40, partial=False, dtypes=["i64"])
        target = random_layout(rng, mesh, source.shape, partial=False, dtypes=["i64"])
        array = np.arange(int(np.prod(source.shape)), dtype=np.int64).reshape(source.shape)
        try:
            simulate(Plan(source, target, ()), array)
            assert source.equivalent(target)
        except ProofError:
            refuted += 1
            assert not source.equivalent(target)
    assert refuted > 50


# -- bad input -----------------------------------------------------------------------------------------


def test_arrays_of_another_shape_or_dtype() -> None:
    """The plan says what it starts from."""
    plan = plan_of("f32[4{x}, 2]", "f32[4{x}, 2]")
    for array, found in [
        (np.zeros((4, 3), np.float32), "f32[4, 3]"),
        (np.zeros((4, 2)), "f64[4, 2]"),
        (np.zeros(8, np.float32), "f32[8]"),
    ]:
        with pytest.raises(BackendError) as caught:
            simulate(plan, array)
        assert str(caught.value) == (
            f"the plan starts from f32[4{{x}}, 2], and the array is {found}; give an array of the global shape and "
            "dtype, or "
            "{device id: block}"
        )


def test_blocks_that_do_not_fit() -> None:
    """Missing and stray devices, and blocks of another shape or dtype, all of them named."""
    plan = plan_of("f32[5{x}]", "f32[5{x}]")
    right = {
        0: np.zeros(3, np.float32),
        1: np.zeros(3, np.float32),
        2: np.zeros(2, np.float32),
        3: np.zeros(2, np.float32),
    }
    simulate(plan, right)
    with pytest.raises(BackendError) as caught:
        simulate(plan, {0: right[0], 1: right[1], 3: right[3], 9: right[3]})
    assert str(caught.value) == "blocks are missing for devices [2] and given for [9], which are not in mesh x=2,y=2"
    with pytest.raises(BackendError) as caught:
        simulate(plan, right | {1: np.zeros(2, np.float32), 3: np.zeros(2)})
    assert (
        str(caught.value)
        == "blocks do not fit f32[5{x}]: device 1 has f32[2], not f32[3]; device 3 has f64[2], not f32[2]"
    )


def test_replicas_that_disagree() -> None:
    """Given blocks that are no array."""
    plan = plan_of("f32[4]", "f32[4]")
    blocks = {device: np.asarray([0, 1, 2, device == 3], np.float32) for device in range(4)}
    with pytest.raises(BackendError) as caught:
        simulate(plan, blocks)
    assert str(caught.value) == "device 3 (x=1, y=1) holds a block that differs from its replicas in 1 elements"


def test_ill_typed_plans() -> None:
    """The step that does not apply raises."""
    with pytest.raises(TypingError, match=r"all_gather on f32\[4\]: axes {x} are not the minor suffix"):
        simulate(plan_of("f32[4]", "f32[4]", AllGather({0: ["x"]})), np.zeros(4, np.float32))
