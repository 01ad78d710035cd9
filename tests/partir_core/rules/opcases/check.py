"""The property that every rule has: tiles, put together by the factors' kinds, are the whole."""

from __future__ import annotations

from random import Random
from typing import Any

import jax
import jax.numpy as jnp

from opcases.operations import Operation, Shaped
from opcases.tiling import Cut, assert_same, like, places, tile_of, to_numpy, together
from redist.partir_core.rules import FactorKind, Rule, Tile, extent, families, rule_of, run_tile

MOVES = {
    "transpose",
    "broadcast",
    "reshape",
    "slice",
    "concatenate",
    "iota",
    "gather",
    "dynamic slice",
    "random",
    "sort",
}
"""Families that compute nothing: a tile has the whole's own bits."""

KINDS = set(FactorKind) - {FactorKind.WHOLE}


def divisors(n: int) -> list[int]:
    return [k for k in range(2, n + 1) if n % k == 0]


def rule_for(operation: Operation | Shaped) -> Rule:
    """The operation's rule, which has to describe its shapes."""
    rule = rule_of(operation.name, operation.params, operation.in_avals, operation.out_avals)
    assert rule is not None, f"{operation.name} has no rule"
    assert_well_formed(rule, operation.in_avals, operation.out_avals)
    return rule


def assert_well_formed(rule: Rule, in_avals: Any, out_avals: Any) -> None:
    """Every dimension's factors multiply to it; reductions are in no result; a parallel factor is in one at least."""
    shapes = [tuple(aval.shape) for aval in in_avals], [tuple(aval.shape) for aval in out_avals]
    dims = rule.operands, rule.results
    for values, rows in zip(shapes, dims, strict=True):
        assert [tuple(extent(rule, factors) for factors in row) for row in rows] == values
        assert all(
            bool(factors) == (n != 1)
            for row, shape in zip(rows, values, strict=True)
            for factors, n in zip(row, shape, strict=True)
        )
    for rows in dims:
        for row in rows:
            seen = [f for factors in row for f in factors]
            assert len(seen) == len(set(seen)), "a factor runs twice through one value"
    in_results = {f for row in rule.results for factors in row for f in factors}
    in_operands = {f for row in rule.operands for factors in row for f in factors}
    for f, factor in enumerate(rule.factors):
        assert factor.size != 1
        if factor.kind is FactorKind.PARALLEL:
            assert f in in_results
        elif factor.kind is not FactorKind.WHOLE:
            assert f not in in_results and f in in_operands


def leads(rule: Rule, f: int) -> set[int]:
    """Factors that have to be cut into all their parts before `f` is: those major to it, and to them."""
    before: set[int] = set()
    for row in (*rule.operands, *rule.results):
        for factors in row:
            if f in factors:
                before |= set(factors[: factors.index(f)])
    return before.union(*(leads(rule, g) for g in before))


def cuts_of(rule: Rule, rng: Random, pairs: int, all_divisors: bool) -> list[dict[int, int]]:
    """Each factor alone, by each or by one of its divisors, and some pairs."""
    found: list[dict[int, int]] = []
    free = [f for f, factor in enumerate(rule.factors) if factor.kind in KINDS]
    for f in free:
        before = leads(rule, f)
        if any(rule.factors[g].kind is FactorKind.WHOLE for g in before):
            continue
        base = {g: rule.factors[g].size for g in before}
        options = divisors(rule.factors[f].size)
        for parts in options if all_divisors else [rng.choice(options)]:
            found.append(base | {f: parts})
    singles = [cut for cut in found if len(cut) == 1]
    for _ in range(pairs):
        if len(singles) > 1:
            one, two = rng.sample(singles, 2)
            if not set(one) & set(two):
                found.append(one | two)
    return found


def check(
    operation: Operation,
    rng: Random,
    pairs: int = 2,
    all_divisors: bool = True,
    most_cuts: int = 100,
    most_tiles: int = 16,
) -> int:
    """Compare cuts with the whole, in random order up to `most_cuts`; gives their number."""
    rule = rule_for(operation)
    whole = operation.run()
    cuts = [cut for cut in cuts_of(rule, rng, pairs, all_divisors) if len(places(cut)) <= most_tiles]
    rng.shuffle(cuts)
    for k, cut in enumerate(cuts[:most_cuts]):
        check_cut(operation, rule, whole, cut, None if k else rng)
    return len(cuts)


def check_cut(operation: Operation, rule: Rule, whole: list[Any], cut: Cut, rng: Random | None) -> None:
    """One cut: all tiles, put together, against the whole.

    They are computed by one jitted function of the traced place; with `rng`, one tile by Python integers too.
    """
    primitive, params = operation.primitive, operation.params

    def local(place: dict[int, int]) -> list[Any]:
        pairs = zip(operation.operands, rule.operands, strict=True)
        return [like(tile_of(rule, value, dims, cut, place), value) for value, dims in pairs]

    @jax.jit
    def traced(index: dict[int, Any], operands: list[Any]) -> Any:
        return run_tile(primitive, params, operands, {f: Tile(cut[f], index[f]) for f in cut}, rule)

    exact = families()[operation.name].family in MOVES
    where = f"{operation.name} {dict(params)} cut {dict(cut)} by {rule}"
    everywhere = places(cut)
    tiles = [(place, traced({f: jnp.int32(c) for f, c in place.items()}, local(place))) for place in everywhere]
    for j, expected in enumerate(whole):
        made = together(rule, j, expected, cut, [(place, results[j]) for place, results in tiles])
        assert_same(made, expected, where, exact)
    if rng is None:
        return
    place, results = tiles[rng.randrange(len(tiles))]
    plain = run_tile(primitive, params, local(place), {f: Tile(cut[f], place[f]) for f in cut}, rule)
    for result, other in zip(plain, results, strict=True):
        assert result.dtype == other.dtype
        assert_same(to_numpy(result), other, where)
