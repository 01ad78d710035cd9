"""Operations element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive, primitives
from jax.interpreters import mlir

from opcases.draw import EXAMPLES, Draw, Maker, Program, example

FLOATS = """abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv erfc exp
exp2 expm1 floor is_finite lgamma log log1p logistic neg round rsqrt sign sin sinh sqrt square tan tanh stop_gradient"""
BITS = {"not": lax.bitwise_not, "population_count": lax.population_count, "clz": lax.clz}
PAIRS = "add sub mul div max min pow rem atan2 nextafter eq ne ge gt le lt igamma igammac igamma_grad_a zeta polygamma"
BIT_PAIRS = {
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
}


def _unary(function: Callable[..., Any], integers: bool) -> Maker:
    return lambda draw: (function, ((draw.ints if integers else draw.floats)(*draw.shape()),))


def _binary(function: Callable[..., Any], integers: bool) -> Maker:
    """Operands of one shape, of which either may have dimensions of size 1, or be a scalar."""

    def make(draw: Draw) -> Program:
        shape = draw.shape()
        shapes = [shape, shape]
        k = draw.rng.randrange(2)
        how = draw.rng.randrange(3)
        if how == 1:
            shapes[k] = ()
        elif how == 2:
            shapes[k] = tuple(1 if draw.rng.random() < 0.5 else n for n in shape)
        return function, tuple((draw.ints if integers else draw.floats)(*one) for one in shapes)

    return make


for _name in FLOATS.split():
    EXAMPLES.append((_name, _unary(getattr(lax, _name), False)))
for _name, _function in BITS.items():
    EXAMPLES.append((_name, _unary(_function, True)))
for _name in PAIRS.split():
    EXAMPLES.append((_name, _binary(getattr(lax, _name), False)))
for _name, _function in BIT_PAIRS.items():
    EXAMPLES.append((_name, _binary(_function, True)))
EXAMPLES.append(("mulhi", lambda draw: (lax.mulhi, (draw.ints(4, 3, dtype="uint32"), draw.ints(4, 3, dtype="uint32")))))
for _name in ("eq_to", "lt_to", "le_to", "add_any"):
    _primitive = getattr(primitives, {"add_any": "add_jaxvals"}.get(_name, _name) + "_p")
    EXAMPLES.append((_name, lambda draw, p=_primitive: (p.bind, (draw.floats(4, 3), draw.floats(4, 3)))))


@example("complex conj real imag")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape())
    return lambda a, b: lax.real(lax.conj(lax.complex(a, b))) + lax.imag(lax.complex(a, b)), (x, x + 1)


@example("integer_pow")
def _(draw: Draw) -> Program:
    return lambda x: lax.integer_pow(x, 3), (draw.mixed(*draw.shape()),)


@example("convert_element_type reduce_precision copy name")
def _(draw: Draw) -> Program:
    def run(x: Any) -> Any:
        x = lax.convert_element_type(lax.reduce_precision(x, 5, 6), draw.rng.choice(["int8", "bfloat16"]))
        return checkpoint_name(jnp.copy(x), "x")

    return run, (draw.mixed(*draw.shape()) * 10,)


@example("clamp")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    low = draw.floats(*(shape if draw.rng.random() < 0.5 else ()))
    return lax.clamp, (low, draw.mixed(*shape), low + 0.5)


@example("select_n")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    if draw.rng.random() < 0.5:
        which = draw.bools(*(shape if draw.rng.random() < 0.5 else ()))
        return lax.select_n, (which, draw.mixed(*shape), draw.mixed(*shape))
    return lax.select_n, (draw.ints(*shape, high=3), *(draw.mixed(*shape) for _ in range(3)))


@example("regularized_incomplete_beta")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    return lax.betainc, (draw.floats(*shape), draw.floats(*shape), draw.floats(*shape))


@example("optimization_barrier")
def _(draw: Draw) -> Program:
    return lambda *xs: lax.optimization_barrier(xs), (draw.mixed(*draw.shape()), draw.any(*draw.shape()))


@example("device_put")
def _(draw: Draw) -> Program:
    return jax.device_put, (draw.any(*draw.shape()),)


@example("sharding_constraint")
def _(draw: Draw) -> Program:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    return lambda x: lax.with_sharding_constraint(x, sharding), (draw.any(*draw.shape()),)


@example("layout_constraint")
def _(draw: Draw) -> Program:
    from jax.experimental.layout import Layout, with_layout_constraint

    x = draw.any(*draw.shape())
    return lambda x: with_layout_constraint(x, Layout(tuple(range(x.ndim)))), (x,)


@example("platform_index")
def _(draw: Draw) -> Program:
    return lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), (draw.mixed(*draw.shape()),)


@example("empty2")
def _(draw: Draw) -> Program:
    return lambda: primitives.empty2_p.bind(dtype=jnp.dtype("float32"), memory_space=jax.memory.Space.Device), ()


def _stand_in(name: str, function: Callable[..., Any], params: dict[str, Any], *args: Any) -> Program:
    """A primitive of Equinox's, which need not be installed: its name, and what it computes."""
    primitive = Primitive(name)
    primitive.def_impl(lambda *xs, **_: function(*xs))

    @primitive.def_abstract_eval
    def _(*avals: Any, **_: Any) -> Any:
        result = jax.eval_shape(function, *avals)
        return jax.core.ShapedArray(result.shape, result.dtype)

    mlir.register_lowering(primitive, mlir.lower_fun(lambda *xs, **_: function(*xs), multiple_results=False))
    return lambda *xs: primitive.bind(*xs, **params), args


for _name, _function in {"unvmap_any": jnp.any, "unvmap_all": jnp.all}.items():
    EXAMPLES.append((_name, lambda draw, n=_name, f=_function: _stand_in(n, f, {}, draw.bools(*draw.shape()))))
for _name in ("nonbatchable", "nondifferentiable_backward"):
    EXAMPLES.append((_name, lambda draw, n=_name: _stand_in(n, jnp.copy, {"msg": ""}, draw.any(*draw.shape()))))


@example("unvmap_max")
def _(draw: Draw) -> Program:
    return _stand_in("unvmap_max", jnp.max, {}, draw.ints(*draw.shape()))


@example("maybe_set")
def _(draw: Draw) -> Program:
    def put(pred: Any, xs: Any, x: Any, i: Any) -> Any:
        return xs.at[i].set(jnp.where(pred, x, xs[i]))

    shape = draw.shape()
    values = draw.bools(), draw.mixed(5, *shape), draw.mixed(*shape), draw.ints(high=5)
    return _stand_in("maybe_set", put, {}, *values)


@example("select_if_vmap")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    return _stand_in("select_if_vmap", jnp.where, {}, draw.bools(), draw.mixed(*shape), draw.mixed(*shape))


@example("bitcast_convert_type")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape())
    target = draw.rng.choice(["int32", "int8"])
    return lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, target), "float32"), (x,)
