"""Derivatives, batching and loops around `reshard`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redist.resharding import reshard

jax: Any = pytest.importorskip("jax")
P: Any = jax.sharding.PartitionSpec
NamedSharding: Any = jax.sharding.NamedSharding
VALUE = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture(params=["auto", "explicit"])
def mesh(request: pytest.FixtureRequest, plane: Any, explicit_plane: Any) -> Any:
    """x=2, y=4 of either kind."""
    return plane if request.param == "auto" else explicit_plane


def test_the_gradient_is_the_resharding_back(mesh: Any, placed: Any) -> None:
    given, wanted = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", "x"))
    x = jax.device_put(VALUE, given)

    def square(a: Any, source: Any = None) -> Any:
        return (reshard(a, wanted, source=source) ** 2).sum()

    with jax.set_mesh(mesh):
        placed(jax.grad(square)(x), 2 * VALUE, given)
        placed(jax.jit(jax.grad(lambda a: square(a, given)))(x), 2 * VALUE, given)
        assert jax.grad(square)(x).sharding.spec == given.spec
        back = jax.linear_transpose(lambda a: reshard(a, wanted, source=given), x)
        placed(back(jax.device_put(VALUE, wanted))[0], VALUE, given)


def test_without_a_source_the_gradient_is_right_where_the_partitioner_leaves_it(plane: Any) -> None:
    x = jax.device_put(VALUE, NamedSharding(plane, P("x")))
    made = jax.jit(jax.grad(lambda a: (reshard(a, NamedSharding(plane, P("y"))) ** 2).sum()))(x)
    assert np.array_equal(made, 2 * VALUE)


def test_gradients_outside_jit_find_the_source(plane: Any, placed: Any) -> None:
    given = NamedSharding(plane, P("x"))
    x = jax.device_put(VALUE, given)
    placed(jax.grad(lambda a: (reshard(a, NamedSharding(plane, P("y"))) ** 2).sum())(x), 2 * VALUE, given)
    batched = jax.device_put(VALUE, NamedSharding(plane, P(None, "x")))
    made = jax.vmap(jax.grad(lambda a: (reshard(a, NamedSharding(plane, P("y"))) ** 2).sum()))(batched)
    placed(made, 2 * VALUE, batched.sharding)
    elsewhere = jax.device_put(VALUE, jax.devices()[3])
    made = jax.grad(lambda a: (reshard(a, NamedSharding(plane, P("y"))) ** 2).sum())(elsewhere)
    assert (made.sharding, made.tolist()) == (elsewhere.sharding, (2 * VALUE).tolist())


def test_forward_derivatives(mesh: Any, placed: Any) -> None:
    given, wanted = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", "x"))
    x = jax.device_put(VALUE, given)
    primal, tangent = jax.jvp(lambda a: reshard(a, wanted), (x,), (2 * x,))
    placed(primal, VALUE, wanted)
    placed(tangent, 2 * VALUE, wanted)
    primal, tangent = jax.jit(lambda a: jax.jvp(lambda b: reshard(b, wanted, source=given), (a,), (a,)))(x)
    placed(tangent, VALUE, wanted)


def test_second_derivatives_and_checkpoints(plane: Any) -> None:
    x = jax.device_put(VALUE[:4, :4], NamedSharding(plane, P("x")))

    def cube(a: Any) -> Any:
        return (reshard(a, NamedSharding(plane, P("y")), source=x.sharding) ** 3).sum()

    assert np.allclose(jax.hessian(cube)(x).reshape(16, 16), np.diag(6 * VALUE[:4, :4].ravel()))
    assert np.allclose(jax.jit(jax.grad(jax.checkpoint(cube)))(x), 3 * VALUE[:4, :4] ** 2)


def test_integers_have_no_gradient(plane: Any) -> None:
    x = jax.device_put(VALUE.astype(np.int32), NamedSharding(plane, P("x")))
    made = jax.grad(lambda a: (reshard(a, NamedSharding(plane, P("y"))) * 1.5).sum(), allow_int=True)(x)
    assert made.dtype == jax.dtypes.float0


@pytest.mark.parametrize("dim", [0, 1])
def test_a_batch_dimension_stays_where_it_is(dim: int, mesh: Any, placed: Any) -> None:
    def at(*spec: Any) -> Any:
        parts = list(spec)
        return NamedSharding(mesh, P(*(parts if dim == 0 else parts[::-1])))

    def move(a: Any) -> Any:
        return reshard(a, NamedSharding(mesh, P("y")))

    mapped = jax.vmap(move, in_axes=dim, out_axes=dim)
    for given, wanted in ((at(None, "x"), at(None, "y")), (at("x", None), at("x", "y"))):
        x = jax.device_put(VALUE, given)
        placed(mapped(x), VALUE, wanted)
    x = jax.device_put(VALUE, at(None, "x"))
    placed(jax.jit(mapped)(x), VALUE, at(None, "y"))


def test_batches_inside_jit(plane: Any, placed: Any) -> None:
    rows, columns = NamedSharding(plane, P("x")), NamedSharding(plane, P("y"))
    x = jax.device_put(VALUE, NamedSharding(plane, P(None, "x")))
    both = jax.jit(jax.vmap(lambda a: reshard(a, columns, source=rows)))
    placed(both(x), VALUE, NamedSharding(plane, P(None, "y")))
    spread = jax.jit(jax.vmap(lambda a: reshard(a, columns, source=NamedSharding(plane, P())), spmd_axis_name="x"))
    placed(spread(jax.device_put(VALUE, rows)), VALUE, NamedSharding(plane, P("x", "y")))
    late = jax.jit(jax.vmap(lambda a: reshard(a * 2, columns)))
    text = late.lower(jax.device_put(VALUE, rows)).compile().as_text()
    assert "all-gather" not in text and "all-to-all" not in text
    nested = jax.vmap(jax.vmap(lambda a: reshard(a, columns)))
    cube = jax.device_put(np.ones((2, 4, 8), np.float32), rows)
    placed(nested(cube), np.ones((2, 4, 8), np.float32), NamedSharding(plane, P("x", None, "y")))


def test_loops_and_branches(mesh: Any, placed: Any) -> None:
    given, wanted = NamedSharding(mesh, P("x", "y")), NamedSharding(mesh, P("y", "x"))
    x = jax.device_put(VALUE, given)

    def body(carry: Any, _: Any) -> Any:
        there = reshard(carry, wanted, source=given) + 1
        return reshard(there, given, source=wanted), None

    loop = jax.jit(lambda a: jax.lax.scan(body, a, None, length=3)[0])
    assert np.array_equal(loop(x), VALUE + 3)
    branch = jax.jit(
        lambda a: jax.lax.cond(
            a.sum() > 0, lambda b: reshard(b, wanted, source=given) * 2, lambda b: reshard(b, wanted, source=given), a
        )
    )
    assert np.array_equal(branch(x), 2 * VALUE)


def test_the_partitioner_is_asked_inside_loops(plane: Any) -> None:
    x = jax.device_put(VALUE, NamedSharding(plane, P("x")))
    wanted = NamedSharding(plane, P(None, "y"))
    loop = jax.jit(lambda a: jax.lax.scan(lambda c, _: (reshard(c * 2, wanted), None), a, None, length=3)[0])
    assert np.array_equal(loop(x), 8 * VALUE)
    made = jax.jit(jax.grad(lambda a: loop(a).sum()))(x)
    assert np.array_equal(made, np.full((8, 8), 8.0))


def test_the_operand_may_be_anything_inside_jit(plane: Any, placed: Any) -> None:
    wanted = NamedSharding(plane, P("y", "x"))
    constant = jax.device_put(VALUE, NamedSharding(plane, P("x")))
    placed(jax.jit(lambda: reshard(constant, wanted) * 1)(), VALUE, wanted)
    alone = jax.device_put(VALUE, jax.devices()[0])
    placed(jax.jit(lambda a: reshard(a, wanted, source=constant.sharding))(VALUE), VALUE, wanted)
    made = jax.jit(lambda a: reshard(alone, jax.devices()[0]) + a)(1.0)
    assert np.array_equal(made, VALUE + 1)


def test_the_plan_inside_jit_is_the_one_explained(plane: Any) -> None:
    x = jax.device_put(VALUE, NamedSharding(plane, P("x")))
    wanted = NamedSharding(plane, P(None, "x"))
    for move in (lambda a: reshard(a, wanted, source=x.sharding), lambda a: reshard(a, wanted)):
        text = jax.jit(move).lower(x).compile().as_text()
        assert text.count(" all-to-all(") == 1
        assert "all-gather" not in text
