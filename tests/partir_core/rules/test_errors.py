"""What cannot be cut is refused, by messages that say all of what is wrong."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

jax: Any = pytest.importorskip("jax")

from redist.errors import TypingError  # noqa: E402
from redist.partir_core.rules import FactorKind, Rule, Tile, linear_in, rule_of, run_tile  # noqa: E402

jnp = jax.numpy


def first(function: Any, *args: Any) -> tuple[Any, Rule]:
    """The first operation of a program, and its rule."""
    equation = jax.make_jaxpr(function)(*args).eqns[0]
    ins, outs = ([v.aval for v in some] for some in (equation.invars, equation.outvars))
    rule = rule_of(equation.primitive.name, equation.params, ins, outs)
    assert rule is not None
    return equation, rule


def refused(equation: Any, rule: Rule | None, tiles: dict[int, Tile], *operands: Any) -> str:
    with pytest.raises(TypingError) as caught:
        run_tile(equation.primitive, equation.params, operands, tiles, rule)
    return str(caught.value)


def test_whole_factors_are_not_cut() -> None:
    equation, rule = first(lambda x: jax.lax.cumsum(x, 1), jnp.ones((2, 6)))
    assert [factor.kind for factor in rule.factors] == [FactorKind.PARALLEL, FactorKind.WHOLE]
    message = refused(equation, rule, {1: Tile(2, 0)}, jnp.ones((2, 3)))
    assert message == "cumsum cannot be cut so: factor 1 of size 6 is whole: it cannot be cut"


def test_everything_wrong_is_named() -> None:
    equation, rule = first(jnp.add, jnp.ones((4, 6)), jnp.ones((4, 6)))
    message = refused(equation, rule, {0: Tile(3, 0), 1: Tile(2, 2), 5: Tile(2, 0)}, jnp.ones((4, 6)), jnp.ones((4, 6)))
    assert message == (
        "add cannot be cut so: factor 0 of size 4 does not divide into 3 parts; "
        "factor 1 has parts 0..1, not 2; factor 5 does not exist: there are 2"
    )


def test_tiles_are_blocks() -> None:
    equation, rule = first(lambda x: jax.lax.reshape(x, (24,)), jnp.ones((4, 6)))
    message = refused(equation, rule, {1: Tile(2, 0)}, jnp.ones((4, 3)))
    assert message == (
        "reshape cannot be cut so: in dimension 0 of result 0, factor 1 is cut although factor 0, major to it, "
        "is cut into 1 of 4 parts: cut that into all first"
    )
    (made,) = run_tile(equation.primitive, equation.params, [jnp.ones((1, 3))], {0: Tile(4, 1), 1: Tile(2, 0)}, rule)
    assert made.shape == (3,)


def test_operands_are_tiles() -> None:
    equation, rule = first(jnp.add, jnp.ones((4, 6)), jnp.ones((4, 6)))
    message = refused(equation, rule, {0: Tile(2, 0)}, jnp.ones((2, 6)), jnp.ones((4, 6)))
    assert message == "add cannot be cut so: operand 1 has shape (4, 6), its tile (2, 6)"
    message = refused(equation, rule, {0: Tile(2, 0)}, jnp.ones((2, 6)))
    assert message == "add cannot be cut so: 1 operands were given, 2 are needed"


def test_without_a_rule_nothing_is_cut_but_everything_runs() -> None:
    equation, _ = first(jnp.add, jnp.ones((4, 6)), jnp.ones((4, 6)))
    message = refused(equation, None, {0: Tile(2, 0)}, jnp.ones((2, 6)), jnp.ones((2, 6)))
    assert message == "add has no rule: it cannot be cut; run it whole"
    (made,) = run_tile(equation.primitive, equation.params, [jnp.ones((4, 6))] * 2, {}, None)
    assert (made == 2).all()


def test_unknown_primitives_have_no_rule() -> None:
    aval = SimpleNamespace(shape=(4,), dtype="float32")
    assert rule_of("no such primitive", {}, [aval], [aval]) is None
    assert linear_in("no such primitive", {}) == ()


def test_empty_arrays_are_whole() -> None:
    _, rule = first(jnp.add, jnp.ones((0, 6)), jnp.ones((0, 6)))
    assert {factor.kind for factor in rule.factors} == {FactorKind.WHOLE}
    assert re.match(r"\(\(\d,\), \(\d,\)\)", str(rule.results[0]))
