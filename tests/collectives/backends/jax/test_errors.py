"""Every refusal in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redist.errors import BackendError, InfeasibleError, LayoutError
from redist.resharding import explain, reshard

jax: Any = pytest.importorskip("jax")
P: Any = jax.sharding.PartitionSpec
NamedSharding: Any = jax.sharding.NamedSharding


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


@pytest.fixture
def x(plane: Any) -> Any:
    """f32[8{x}, 8]."""
    return jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(plane, P("x")))


def test_dimensions_that_do_not_divide(plane: Any) -> None:
    odd = np.zeros((7, 8, 12), np.float32)
    text = (
        "sharding P('x', None, ('y', 'z')) does not divide shape [7, 8, 12], and JAX holds blocks of equal size only: "
        "dimension 0 has 7 elements over x=2 (pad it to 8); dimension 2 has 12 elements over y=4*z=2 = 8 (pad it to "
        "16). Or shard over axes whose product divides the dimension"
    )
    mesh = jax.sharding.Mesh(np.asarray(jax.devices())[:16].reshape(2, 4, 2), ("x", "y", "z"))
    wanted = NamedSharding(mesh, P("x", None, ("y", "z")))
    assert message(BackendError, lambda: reshard(odd, wanted)) == text
    assert message(BackendError, lambda: reshard(jax.numpy.asarray(odd), wanted)) == text
    assert message(BackendError, lambda: jax.jit(lambda a: reshard(a, wanted))(odd)) == text
    given = NamedSharding(plane, P("y"))
    assert message(
        BackendError, lambda: jax.jit(lambda a: reshard(a, NamedSharding(plane, P()), source=given))(odd)
    ) == (
        "source P('y',) does not divide shape [7, 8, 12], and JAX holds blocks of equal size only: dimension 0 has 7 "
        "elements over y=4 (pad it to 8). Or shard over axes whose product divides the dimension"
    )


def test_all_leaves_of_a_tree(plane: Any) -> None:
    tree = {"a": np.zeros(3), "b": [np.zeros(8), np.zeros(5)]}
    assert message(BackendError, lambda: reshard(tree, NamedSharding(plane, P("x")))) == (
        "['a']: sharding P('x',) does not divide shape [3], and JAX holds blocks of equal size only: dimension 0 has "
        "3 elements over x=2 (pad it to 4). Or shard over axes whose product divides the dimension\n"
        "['b'][1]: sharding P('x',) does not divide shape [5], and JAX holds blocks of equal size only: dimension 0 "
        "has 5 elements over x=2 (pad it to 6). Or shard over axes whose product divides the dimension"
    )


def test_ranks(x: Any, plane: Any) -> None:
    assert message(LayoutError, lambda: reshard(x, NamedSharding(plane, P("x", None, "y")))) == (
        "sharding P('x', None, 'y') names 3 dimensions, but the array has 2 (shape [8, 8]); drop the last 1"
    )


@pytest.mark.parametrize("bad", ["x", None, 3, (1, 2)], ids=str)
def test_what_is_no_sharding(bad: Any, x: Any) -> None:
    if isinstance(bad, tuple):
        assert message(LayoutError, lambda: reshard(x, bad)).startswith(
            "sharding is not a prefix of the arrays' tree: "
        )
        return
    assert message(LayoutError, lambda: reshard(x, bad)) == (
        f"sharding {bad!r} is not a sharding; pass a jax.sharding.NamedSharding, a PartitionSpec under jax.set_mesh, "
        "or a SingleDeviceSharding"
    )


def test_a_spec_without_a_mesh(x: Any) -> None:
    assert message(LayoutError, lambda: reshard(x, P("x"))) == (
        "sharding P('x',) is a PartitionSpec, but no mesh is set; call within jax.set_mesh(mesh), or pass "
        "NamedSharding(mesh, spec)"
    )


def test_free_dimensions(x: Any, plane: Any) -> None:
    assert message(LayoutError, lambda: reshard(x, NamedSharding(plane, P("x", P.UNCONSTRAINED)))) == (
        "sharding P('x', UNCONSTRAINED) leaves dimensions [1] UNCONSTRAINED, which names no layout; name axes, or None "
        "to replicate"
    )


def test_what_is_no_array(plane: Any) -> None:
    assert message(LayoutError, lambda: reshard({"a": "text"}, NamedSharding(plane, P()))) == (
        "['a']: 'text' is not an array; reshard takes arrays and pytrees of arrays"
    )


def test_a_source_that_is_not_so(x: Any, plane: Any, explicit_plane: Any) -> None:
    text = (
        "source P('y',) over mesh x=2,y=4 is not where the array is, P('x',) over mesh x=2,y=4; leave source out: it "
        "is known here"
    )
    assert message(LayoutError, lambda: reshard(x, x.sharding, source=NamedSharding(plane, P("y")))) == text
    typed = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(explicit_plane, P("x")))
    wrong = NamedSharding(explicit_plane, P("y"))
    assert message(LayoutError, lambda: jax.jit(lambda a: reshard(a, wrong, source=wrong))(typed)) == text.replace(
        "P('x',) over", "P('x', None) over"
    )


def test_other_devices_inside_jit(x: Any, plane: Any, explicit_plane: Any, mesh_of: Any) -> None:
    text = (
        "inside jit all arrays live on the same devices in the same order, but the source is on devices [0, 1, 2, 3, "
        "4, 5, 6, 7] and the target on devices [{}]; call reshard outside jit, or build both meshes from one list of "
        "devices"
    )
    typed = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(explicit_plane, P("x")))
    for ids in ((2, 3), (1, 0, 2, 3, 4, 5, 6, 7)):
        wanted = NamedSharding(mesh_of({"q": len(ids)}, ids=ids), P("q"))
        expected = text.format(", ".join(map(str, ids)))
        assert (
            message(BackendError, lambda w=wanted: jax.jit(lambda a: reshard(a, w, source=x.sharding))(x)) == expected
        )
        assert message(BackendError, lambda w=wanted: jax.jit(lambda a: reshard(a, w))(typed)) == expected


def test_another_explicit_mesh_inside_jit(explicit_plane: Any, mesh_of: Any) -> None:
    typed = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(explicit_plane, P("x")))
    wanted = NamedSharding(mesh_of({"q": 8}), P("q"))
    assert message(BackendError, lambda: jax.jit(lambda a: reshard(a, wanted))(typed)) == (
        "inside jit the array's type is over the Explicit axes x, y, and the target names the axes q of another mesh; "
        "call reshard outside jit, or name the axes of the mesh that is set"
    )


def test_inside_shard_map(x: Any, plane: Any) -> None:
    def body(a: Any) -> Any:
        return reshard(a, NamedSharding(plane, P("x")))

    mapped = jax.shard_map(body, mesh=plane, in_specs=P("x"), out_specs=P("x"))
    assert message(BackendError, lambda: mapped(x)) == (
        "reshard is called inside shard_map, where an array is one device's block along x, y and has no layout to "
        "change; call it on the array outside"
    )


def test_a_finished_value_does_not_become_partial(explicit_plane: Any) -> None:
    typed = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(explicit_plane, P("x")))
    assert message(BackendError, lambda: reshard(typed, NamedSharding(explicit_plane, P(unreduced={"y"})))) == (
        "sharding P(unreduced={'y'}) is unreduced over y, but the array is not: a finished value does not become a "
        "partial one; leave unreduced out"
    )


def test_limits_that_are_too_small(x: Any, plane: Any) -> None:
    wanted = NamedSharding(plane, P("y"))
    with pytest.raises(InfeasibleError, match="the smallest feasible limit is") as caught:
        reshard(x, wanted, memory_limit=10)
    assert caught.value.smallest_limit is not None
    reshard(x, wanted, memory_limit=caught.value.smallest_limit)


def test_explaining_needs_a_source(plane: Any) -> None:
    shape = jax.ShapeDtypeStruct((8,), np.float32)
    assert message(LayoutError, lambda: explain(shape, NamedSharding(plane, P("x")))) == (
        "the source of ShapeDtypeStruct(shape=(8,), dtype=float32) is not known; pass source=, the sharding it has"
    )
