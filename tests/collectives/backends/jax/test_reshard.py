"""`reshard` outside and inside jit against NumPy slicing, on Auto and Explicit meshes."""

from __future__ import annotations

from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from redist.resharding import explain, reshard

jax: Any = pytest.importorskip("jax")
P: Any = jax.sharding.PartitionSpec
NamedSharding: Any = jax.sharding.NamedSharding
AUTO, EXPLICIT = jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit
MESHES = {"2x2x2": {"x": 2, "y": 2, "z": 2}, "2x4": {"x": 2, "y": 4}, "2x3": {"x": 2, "y": 3}}
SHAPES = {"2x2x2": (16, 8, 8), "2x4": (16, 8), "2x3": (12, 6)}


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("name", MESHES)
def test_sampled_pairs(name: str, kind: Any, mesh_of: Any, placed: Any, spec_of: Any) -> None:
    mesh, shape = mesh_of(MESHES[name], kind), SHAPES[name]
    rng = Random(name)
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for number in range(40):
        given, wanted = (NamedSharding(mesh, spec_of(rng, mesh, len(shape))) for _ in range(2))
        x = jax.device_put(value, given)
        placed(reshard(x, wanted), value, wanted)
        if number % 8 == 0:
            placed(jax.jit(lambda a, w=wanted, g=given: reshard(a, w, source=g))(x), value, wanted)
        if number % 8 == 4:
            placed(jax.jit(lambda a, w=wanted: reshard(a + 1, w))(x), value + 1, wanted)


@pytest.mark.parametrize("number", range(6))
def test_between_meshes_of_the_same_devices(number: int, mesh_of: Any, placed: Any, spec_of: Any) -> None:
    rng = Random(number)
    ids = rng.sample(range(8), 8)
    first, second = mesh_of({"x": 2, "y": 4}), mesh_of({"a": 4, "b": 2}, ids=ids if number % 2 else None)
    value = np.arange(256, dtype=np.float32).reshape(16, 16)
    for _ in range(5):
        x = jax.device_put(value, NamedSharding(first, spec_of(rng, first, 2)))
        wanted = NamedSharding(second, spec_of(rng, second, 2))
        placed(reshard(x, wanted), value, wanted)
        if not number % 2:
            # JAX reads the sharding of a result over one of two meshes only where it is told
            inside = jax.jit(lambda a, w=wanted, g=x.sharding: reshard(a, w, source=g), out_shardings=wanted)
            placed(inside(x), value, wanted)


DTYPES = ["bool", "int8", "uint16", "int32", "uint32", "float16", "float32", "complex64"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4", "int2", "float4_e2m1fn"]


@pytest.mark.parametrize("dtype", [*map(np.dtype, DTYPES), *(np.dtype(getattr(ml_dtypes, n)) for n in NARROW)], ids=str)
def test_dtypes_travel_bit_by_bit(dtype: Any, plane: Any, placed: Any) -> None:
    value = np.arange(128).reshape(16, 8).astype(dtype)
    x = jax.device_put(value, NamedSharding(plane, P("x", "y")))
    for spec in (P("y", "x"), P(None, ("y", "x")), P()):
        wanted = NamedSharding(plane, spec)
        placed(reshard(x, wanted), value, wanted)
        placed(jax.jit(lambda a, w=wanted: reshard(a, w, source=x.sharding))(x), value, wanted)


def test_nan_payloads_survive(plane: Any) -> None:
    bits = (np.uint16(0x7F81) + np.arange(64, dtype=np.uint16)).reshape(8, 8)
    x = jax.device_put(bits.view(ml_dtypes.bfloat16), NamedSharding(plane, P("x", "y")))
    made = reshard(x, NamedSharding(plane, P("y", "x")))
    assert np.array_equal(np.asarray(made).view(np.uint16), bits)


def test_wide_dtypes(plane: Any, placed: Any) -> None:
    with jax.enable_x64(True):
        for dtype in ("int64", "uint64", "float64", "complex128"):
            value = np.arange(64).reshape(8, 8).astype(dtype)
            x = jax.device_put(value, NamedSharding(plane, P("x", "y")))
            for spec in (P("y", "x"), P(None, "y"), P("x")):
                placed(reshard(x, NamedSharding(plane, spec)), value, NamedSharding(plane, spec))


def test_random_keys(plane: Any) -> None:
    keys = jax.random.split(jax.random.key(3), 8)
    wanted = NamedSharding(plane, P("y"))
    x = jax.device_put(keys, NamedSharding(plane, P("x")))
    for made in (reshard(x, wanted), jax.jit(lambda k: reshard(k, wanted))(x), reshard(keys, wanted)):
        assert made.dtype == keys.dtype
        assert made.sharding.is_equivalent_to(wanted, 1)
        assert np.array_equal(jax.random.key_data(made), jax.random.key_data(keys))


@pytest.mark.parametrize(("shape", "given", "spec"), [((0, 8), ("x", "y"), ("y", "x")), ((8, 0), ("x",), (None, "y"))])
def test_arrays_without_elements(shape: Any, given: Any, spec: Any, plane: Any, placed: Any) -> None:
    value = np.zeros(shape, dtype=np.float32)
    x = jax.device_put(value, NamedSharding(plane, P(*given)))
    wanted = NamedSharding(plane, P(*spec))
    placed(reshard(x, wanted), value, wanted)
    placed(jax.jit(lambda a: reshard(a, wanted), out_shardings=wanted)(x), value, wanted)


def test_scalars_and_host_data(plane: Any, placed: Any) -> None:
    everywhere, rows = NamedSharding(plane, P()), NamedSharding(plane, P("x"))
    value = np.arange(8, dtype=np.float32)
    placed(reshard(jax.device_put(np.float32(3), everywhere), everywhere), np.float32(3), everywhere)
    placed(jax.jit(lambda a: reshard(a, everywhere))(np.float32(3)), np.float32(3), everywhere)
    placed(reshard(np.float32(3), everywhere), np.float32(3), everywhere)
    placed(reshard(value, rows), value, rows)
    placed(jax.jit(lambda: reshard(value, rows))(), value, rows)
    assert reshard(1.5, everywhere).sharding == everywhere


def test_the_same_sharding_is_the_same_array(plane: Any, placed: Any) -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(value, NamedSharding(plane, P("x")))
    assert reshard(x, x.sharding) is x
    longer = NamedSharding(plane, P("x", None))
    made = reshard(x, longer)
    placed(made, value, longer)
    assert {s.data.unsafe_buffer_pointer() for s in made.addressable_shards} == {
        s.data.unsafe_buffer_pointer() for s in x.addressable_shards
    }


def test_the_result_has_the_callers_mesh_and_spec(plane: Any, explicit_plane: Any) -> None:
    for mesh in (plane, explicit_plane):
        x = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(mesh, P("x", "y")))
        wanted = NamedSharding(mesh, P(("y", "x")))
        assert reshard(x, wanted).sharding == wanted
        made = jax.jit(lambda a, w=wanted, g=x.sharding: reshard(a, w, source=g))(x)
        assert made.sharding.mesh == mesh
        assert made.sharding.spec[0] == ("y", "x")


def test_under_set_mesh_a_spec_is_enough(plane: Any, explicit_plane: Any, placed: Any) -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    for mesh in (plane, explicit_plane):
        x = jax.device_put(value, NamedSharding(mesh, P("x", "y")))
        wanted = NamedSharding(mesh, P("y"))
        with jax.set_mesh(mesh):
            placed(reshard(x, P("y")), value, wanted)
            placed(jax.jit(lambda a: reshard(a, P("y")))(x), value, wanted)
            placed(jax.jit(lambda a: reshard(a, P("y"), source=P("x", "y")))(x), value, wanted)


def test_pytrees_with_prefix_shardings(plane: Any, placed: Any) -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    rows, columns = NamedSharding(plane, P("x")), NamedSharding(plane, P(None, "y"))
    x = jax.device_put(value, NamedSharding(plane, P("y", "x")))
    tree = {"layer": {"w": x, "b": jax.device_put(value[0], rows)}, "rest": [x, None, value]}
    one = reshard(tree, rows)
    assert jax.tree.structure(one) == jax.tree.structure(tree)
    assert all(leaf.sharding.is_equivalent_to(rows, leaf.ndim) for leaf in jax.tree.leaves(one))
    several = reshard(tree, {"layer": rows, "rest": columns})
    placed(several["layer"]["b"], value[0], rows)
    placed(several["rest"][0], value, columns)
    placed(several["rest"][2], value, columns)
    inside = jax.jit(lambda t: reshard(t, {"layer": rows, "rest": columns}))(tree)
    placed(inside["layer"]["w"], value, rows)


def test_donated_arrays_are_gone(plane: Any, placed: Any) -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    for given, spec in ((P("x", "y"), P("y", "x")), (P("x"), P("x", "y")), (P("y"), P()), (P(), P("y"))):
        x = jax.device_put(value, NamedSharding(plane, given))
        wanted = NamedSharding(plane, spec)
        made = reshard(x, wanted, donate=True)
        assert x.is_deleted()
        placed(made, value, wanted)


def test_a_memory_limit_makes_chunks(plane: Any, placed: Any) -> None:
    value = np.arange(64 * 64, dtype=np.float32).reshape(16, 16, 16)
    x = jax.device_put(value, NamedSharding(plane, P("y")))
    wanted = NamedSharding(plane, P(None, "y"))
    block = value.nbytes // 4
    made = reshard(x, wanted, memory_limit=2 * block + block // 2)
    placed(made, value, wanted)


def test_explain_is_the_plans_table(plane: Any) -> None:
    x = jax.device_put(np.zeros((8, 8), np.float32), NamedSharding(plane, P("x")))
    wanted = NamedSharding(plane, P(None, "x"))
    text = explain(x, wanted)
    assert "all-to-all x: 0 -> 1" in text
    shape = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=x.sharding)
    assert (
        explain(shape, wanted) == text == explain(jax.ShapeDtypeStruct((8, 8), np.float32), wanted, source=x.sharding)
    )


def test_results_are_compiled_once(plane: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from redist.collectives.backends.jax import execute

    made: list[Any] = []
    original = execute.spmd
    monkeypatch.setattr(execute, "spmd", lambda *given: made.append(given) or original(*given))
    for _ in range(3):
        x = jax.device_put(np.zeros((24, 8), np.float32), NamedSharding(plane, P("x")))
        reshard(x, NamedSharding(plane, P(None, "x")))
    assert len(made) == 1
