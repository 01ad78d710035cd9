"""Random numbers: a tile holds the numbers that the whole would hold there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from redist.partir_core.rules.build import Aval, Builder, Entry
from redist.partir_core.rules.elementwise import elementwise
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import Rule

__all__ = ["ENTRIES"]

_Params = Mapping[str, Any]


def _drawn(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    """Drawn dimensions are the result's alone.

    Keys' dimensions pass for threefry only: other generators, batched over keys, do not draw what they
    draw for single keys.
    """
    build = Builder(operands, results)
    keys = build.operands[0]
    for d, n in enumerate(build.results[0]):
        if d >= len(keys):
            build.parallel(n, [], [(0, d)])
        elif str(operands[0].dtype) == "key<fry>":
            build.parallel(n, [(0, d)], [(0, d)])
    return build.rule()


def _run_bits(local: Local) -> tuple[Any, ...]:
    from redist.collectives.backends.jax.modules import lax

    shape = local.result_shape(0)
    if not _counts_elements(local):
        return _run_and_cut(local)
    high, low = _threefry(local, shape)
    width = local.params["bit_width"]
    dtype = f"uint{width}"
    if width == 64:
        wide = lax.convert_element_type(high, dtype)
        return (lax.shift_left(wide, wide.dtype.type(32)) | lax.convert_element_type(low, dtype),)
    return (lax.convert_element_type(high ^ low, dtype),)


def _run_split(local: Local) -> tuple[Any, ...]:
    from redist.collectives.backends.jax.modules import jax, jnp

    if not _counts_elements(local):
        return _run_and_cut(local)
    pairs = jnp.stack(_threefry(local, local.result_shape(0)), axis=-1)
    return (jax.random.wrap_key_data(pairs, impl="threefry2x32"),)


def _counts_elements(local: Local) -> bool:
    """Whether element i of what is drawn depends on the key and on i alone."""
    from redist.collectives.backends.jax.modules import jax

    return str(local.operands[0].dtype) == "key<fry>" and jax.config.jax_threefry_partitionable


def _run_and_cut(local: Local) -> tuple[Any, ...]:
    """Draw everything for the keys at hand, and keep the tile."""
    from redist.collectives.backends.jax.modules import lax

    (keys,) = local.operands
    (drawn,) = local.bind(keys, shape=local.whole_result_shape(0)[keys.ndim :])
    for d, dims in enumerate(local.rule.results[0]):
        if d >= keys.ndim and local.cut(dims):
            drawn = lax.dynamic_slice_in_dim(drawn, local.start(dims), local.size(dims), d)
    return (drawn,)


def _threefry(local: Local, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The generator at the positions of the tile, for every key: arrays of `shape`."""
    from redist.collectives.backends.jax.modules import core, jax, jnp, lax

    (keys,) = local.operands
    drawn = local.rule.results[0][keys.ndim :]
    words = jax.random.key_data(keys)
    first, second = (lax.broadcast_in_dim(words[..., w], shape, range(keys.ndim)) for w in (0, 1))
    counts = _positions(local, drawn, local.whole_result_shape(0)[keys.ndim :])
    high, low = (jnp.broadcast_to(count, shape) for count in counts)
    bits = core.primitives.threefry2x32_p.bind(first, second, high, low)
    return bits[0], bits[1]


def _positions(local: Local, dims: Sequence[tuple[int, ...]], whole: Sequence[int]) -> tuple[Any, Any]:
    """The row-major numbers that the tile's elements have in the whole array, as two 32-bit words."""
    from redist.collectives.backends.jax.modules import jnp, lax

    shape = tuple(local.size(factors) for factors in dims)
    high = low = jnp.zeros(shape, "uint32")
    for d, factors in enumerate(dims):
        step = prod(whole[d + 1 :])
        start = jnp.asarray(local.start(factors)).astype("uint32")
        index = lax.broadcasted_iota("uint32", shape, d) + start
        step_high, step_low = (jnp.uint32(word) for word in divmod(step, 2**32))
        added = low + index * step_low
        carry = (added < low).astype("uint32")
        high = high + _high_word(index, step_low) + index * step_high + carry
        low = added
    return high, low


def _high_word(a: Any, b: Any) -> Any:
    """The upper 32 bits of products of 32-bit words, by halves: XLA's `mulhi` does not lower in a `shard_map`."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + (a_low * b_low >> 16)
    return a_high * b_high + (middle >> 16) + (a_low * b_high + (middle & 0xFFFF) >> 16)


def _wrap(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    """The keys' dimensions; a last one holds a key's words."""
    build = Builder(operands, results)
    for d in range(min(len(build.operands[0]), len(build.results[0]))):
        build.parallel(build.results[0][d], [(0, d)], [(0, d)])
    return build.rule()


def _gamma(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, n in enumerate(build.operands[0]):
        build.parallel(n, [(0, d), (1, d)], [(0, d)])
    return build.rule()


def _generator(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, n in enumerate(build.results[1]):
        build.parallel(n, [], [(1, d)])
    return build.rule()


def _run_generator(local: Local) -> tuple[Any, ...]:
    state, bits = local.bind(*local.operands, shape=local.whole_result_shape(1))
    return state, local.tile_of_result(1, bits)


_DRAWN = "keys' dimensions parallel (threefry); drawn ones parallel in the result alone, the numbers the whole's own"
_WHOLE_DRAW = "generators other than partitionable threefry draw the whole, and keep a tile"

ENTRIES: dict[str, Entry] = {
    "random_bits": Entry("random", _DRAWN, _drawn, _run_bits, missing=_WHOLE_DRAW),
    "random_split": Entry("random", _DRAWN, _drawn, _run_split, missing=_WHOLE_DRAW),
    **dict.fromkeys(
        ["random_seed", "random_fold_in", "random_clone"],
        Entry("random", "every dimension parallel", elementwise),
    ),
    **dict.fromkeys(
        ["random_wrap", "random_unwrap"], Entry("random", "keys' dimensions parallel; a key's words whole", _wrap)
    ),
    "random_gamma": Entry(
        "random", "keys' dimensions parallel; others whole", _gamma, missing="dimensions drawn from one key"
    ),
    "rng_bit_generator": Entry(
        "random",
        "state whole; drawn dimensions parallel in the result alone",
        _generator,
        _run_generator,
        missing="drawing less than the whole",
    ),
}
