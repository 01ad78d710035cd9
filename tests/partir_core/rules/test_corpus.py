"""The corpus: what popular libraries' programs and gradients do, operation by operation.

`corpus/collect.py` wrote `operations.json`; the libraries are not needed here.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from jax.extend.core import primitives
from opcases.check import assert_well_formed, check
from opcases.examples import EXAMPLES, Draw
from opcases.operations import operations_of
from opcases.record import OpaqueError, avals, operation_of, params_of

from redist.partir_core.rules import CONTROL, WITHOUT_RULE, FactorKind, families, rule_of

CORPUS = json.loads((Path(__file__).parent / "corpus/operations.json").read_text(encoding="utf-8"))
OPERATIONS: list[dict[str, Any]] = CORPUS["operations"]
RULED = [one for one in OPERATIONS if one["primitive"] in families()]


def params_or_names(encoded: dict[str, Any]) -> dict[str, Any]:
    """The parameters, those that were not written down left out: no rule looks at functions."""
    params: dict[str, Any] = {}
    for name, value in encoded["params"].items():
        try:
            params |= params_of({**encoded, "params": {name: value}})
        except OpaqueError:
            params[name] = None
    return params


def test_every_primitive_has_a_rule_or_a_reason() -> None:
    used = set(CORPUS["programs"])
    assert len(used) > 150
    assert used - set(families()) - set(CONTROL) - set(WITHOUT_RULE) == set()
    assert set(families()) & (set(CONTROL) | set(WITHOUT_RULE)) == set()
    for library in (
        "flax_nnx",
        "flax_linen",
        "optax_updates",
        "equinox_nn",
        "haiku_nn",
        "solvers",
        "jax_nn",
        "jax_scipy",
    ):
        assert any(where.startswith(library) for programs in CORPUS["programs"].values() for where in programs)


def test_every_operation_has_a_rule_that_describes_its_shapes() -> None:
    for encoded in RULED:
        ins, outs = avals(encoded, "in"), avals(encoded, "out")
        rule = rule_of(encoded["primitive"], params_or_names(encoded), ins, outs)
        assert rule is not None, encoded
        assert_well_formed(rule, ins, outs)


def test_most_dimensions_can_be_cut() -> None:
    """A registry of whole factors alone would pass every other test."""
    cuttable = whole = 0
    for encoded in RULED:
        rule = rule_of(encoded["primitive"], params_or_names(encoded), avals(encoded, "in"), avals(encoded, "out"))
        assert rule is not None
        kinds = [factor.kind for factor in rule.factors]
        whole += kinds.count(FactorKind.WHOLE)
        cuttable += len(kinds) - kinds.count(FactorKind.WHOLE)
    assert cuttable > 3 * whole


@cache
def primitive_of(name: str) -> Any:
    """JAX's primitive of a name: the public ones, or as an example's program performs it."""
    public = {value.name: value for key, value in vars(primitives).items() if key.endswith("_p")}
    if name in public:
        return public[name]
    maker = next(maker for names, maker in EXAMPLES if name in names.split())
    function, args = maker(Draw(Random(0)))
    return next(operation.primitive for operation in operations_of(function, *args) if operation.name == name)


def replayed(per_primitive: int) -> list[dict[str, Any]]:
    """Recorded operations that can be run again, the first few of every primitive."""
    chosen: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for encoded in RULED:
        name = encoded["primitive"]
        try:
            params_of(encoded)
        except OpaqueError:
            continue
        if counts.get(name, 0) < per_primitive:
            counts[name] = counts.get(name, 0) + 1
            chosen.append(encoded)
    return chosen


ELEMENTWISE = {name for name, entry in families().items() if entry.family == "elementwise"}
# What is elementwise is one rule, and random_gamma compiles long: `test_tiles` tries them.
SOME = [one for one in replayed(2) if one["primitive"] not in ELEMENTWISE | {"random_gamma"}]


@pytest.mark.parametrize("name", sorted({one["primitive"] for one in SOME}))
def test_recorded_operations_in_tiles(name: str) -> None:
    """Two operations of every primitive but the elementwise ones, one cut each."""
    for n, encoded in enumerate(one for one in SOME if one["primitive"] == name):
        operation = operation_of(encoded, primitive_of(name), np.random.default_rng(n))
        check(operation, Random(n), pairs=1, all_divisors=False, most_cuts=1)


@pytest.mark.heavy
@pytest.mark.parametrize("name", sorted({one["primitive"] for one in RULED}))
def test_all_recorded_operations_in_tiles(name: str) -> None:
    """Every operation that was written down in full, three cuts each."""
    for n, encoded in enumerate(one for one in replayed(10**6) if one["primitive"] == name):
        operation = operation_of(encoded, primitive_of(name), np.random.default_rng(n))
        check(operation, Random(n), pairs=1, all_divisors=False, most_cuts=3)
