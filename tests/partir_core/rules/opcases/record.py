"""Operations as JSON: written by the corpus's collector, read by the tests."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax import lax

from opcases.operations import Operation

Core: Any = jax.extend.core

NUMBERS = (
    lax.GatherDimensionNumbers,
    lax.ScatterDimensionNumbers,
    lax.ConvDimensionNumbers,
    lax.RaggedDotDimensionNumbers,
)
ENUMS = (lax.GatherScatterMode, lax.Precision, lax.AccuracyMode, lax.RandomAlgorithm, lax.FftType, lax.RoundingMethod)
SIZES = """shape new_sizes slice_sizes limit_indices start_indices reps sizes padding_config padding fft_lengths k
bit_width window_dimensions fill_value name"""
"""Parameters of which every value asks for the same rule."""

COMBINERS = {
    "scatter-add": lax.add,
    "scatter-sub": lax.sub,
    "scatter-mul": lax.mul,
    "scatter-min": lax.min,
    "scatter-max": lax.max,
}


class OpaqueError(Exception):
    """A parameter that was not written down, such as a function."""


def encode(equation: Any) -> dict[str, Any]:
    """An equation of a jaxpr."""
    return {
        "primitive": equation.primitive.name,
        "params": {name: _encode(value) for name, value in equation.params.items()},
        "in": [_type(v.aval) for v in equation.invars],
        "out": [_type(v.aval) for v in equation.outvars],
    }


def kind_of(equation: Any) -> str:
    """What tells operations apart: all but sizes."""
    encoded = encode(equation)
    params = {name: value for name, value in encoded["params"].items() if name not in SIZES.split()}
    looks = [re.sub(r"(?<=[\[,])\d\d+|(?<=[\[,])[02-9]", "n", one) for one in encoded["in"] + encoded["out"]]
    return json.dumps([encoded["primitive"], params, looks])


def _type(aval: Any) -> str:
    """Such as `float32[4,6]`."""
    return f"{getattr(aval, 'dtype', aval)}[{','.join(str(n) for n in getattr(aval, 'shape', ()))}]"


def _encode(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return {"enum": f"{type(value).__name__}.{value.name}"}
    if isinstance(value, jax.sharding.Sharding):  # rules leave it to the schedule
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, NUMBERS):
        return {"numbers": type(value).__name__, "fields": {k: _encode(getattr(value, k)) for k in _fields(value)}}
    if isinstance(value, (tuple, list, range)):
        return {"tuple": [_encode(part) for part in value]}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {"dtype": np.dtype(value).name}
    if hasattr(value, "tag") and hasattr(value, "key_shape"):
        return {"generator": value.name}
    return {"opaque": type(value).__name__}


def _fields(value: Any) -> list[str]:
    return list(getattr(value, "_fields", None) or value.__dataclass_fields__)


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    match value:
        case {"enum": text}:
            name, _, member = text.partition(".")
            kinds = {kind.__name__: kind for kind in ENUMS}
            if name not in kinds:
                raise OpaqueError(f"{text} was written down by name")
            return kinds[name][member]
        case {"numbers": name, "fields": fields}:
            return {kind.__name__: kind for kind in NUMBERS}[name](**{k: _decode(v) for k, v in fields.items()})
        case {"tuple": parts}:
            return tuple(_decode(part) for part in parts)
        case {"dtype": name}:
            return jnp.dtype(name)
        case _:
            raise OpaqueError(f"{value} was not written down")


def avals(encoded: Mapping[str, Any], which: str) -> list[Any]:
    """Shapes and types of the recorded operands ("in") or results ("out")."""
    found: list[Any] = []
    for text in encoded[which]:
        dtype, _, shape = text[:-1].partition("[")
        found.append(SimpleNamespace(shape=tuple(int(n) for n in shape.split(",") if n), dtype=_dtype(dtype)))
    return found


def params_of(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters. Raises `OpaqueError` where a function or another object would be needed."""
    params = {}
    for name, value in encoded["params"].items():
        combiner = COMBINERS.get(encoded["primitive"])
        if name == "update_jaxpr" and combiner:
            scalar = jnp.zeros((), avals(encoded, "in")[0].dtype)
            params[name] = jax.make_jaxpr(combiner)(scalar, scalar).jaxpr
        elif name == "update_jaxpr" and encoded["primitive"] == "scatter":
            params[name] = None
        elif isinstance(value, dict) and "generator" in value:
            params[name] = jax.random.key(0, impl=value["generator"]).dtype._impl
        else:
            params[name] = _decode(value)
    return params


def _dtype(name: str) -> Any:
    if name.startswith("key<"):
        return jax.random.key(0, impl={"fry": "threefry2x32"}.get(name[4:-1], name[4:-1])).dtype
    return jnp.dtype(name)


def operation_of(encoded: Mapping[str, Any], primitive: Any, rng: np.random.Generator) -> Operation:
    """The recorded operation on random values of the recorded shapes."""
    values = [_value(encoded, k, aval, rng) for k, aval in enumerate(avals(encoded, "in"))]
    return Operation(primitive, params_of(encoded), tuple(values))


def _value(encoded: Mapping[str, Any], k: int, aval: Any, rng: np.random.Generator) -> Any:
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        first = jax.random.key(int(rng.integers(1000)), impl=aval.dtype._impl)
        return jax.random.split(first, aval.shape) if aval.shape else first
    if aval.dtype == np.dtype(bool):
        return jnp.asarray(rng.random(aval.shape) < 0.5)
    if jnp.issubdtype(aval.dtype, jnp.integer):
        return jnp.asarray(rng.integers(0, 4, aval.shape)).astype(aval.dtype)
    data = rng.uniform(0.1, 0.9, aval.shape)
    if encoded["primitive"] in {"cholesky", "eigh"}:
        data = data @ np.swapaxes(data, -1, -2) + 3 * np.eye(data.shape[-1])
    if jnp.issubdtype(aval.dtype, jnp.complexfloating):
        data = data + 1j * rng.uniform(0.1, 0.9, aval.shape)
    return jnp.asarray(data).astype(aval.dtype)
