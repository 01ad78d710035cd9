"""Each rule's index maps, decided by Z3 for all tiles and all elements of an operation at once.

For every read of an operation (a result's element, and the operands' elements that it is made of):

- no read straddles tiles: all dimensions that a cut factor runs through show the same tile;
- a tile is the operation again: elements of one tile are related as the same elements of the tile's own
  operation are.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

jax: Any = pytest.importorskip("jax")
z3: Any = pytest.importorskip("z3")

from opcases.check import cuts_of, rule_for  # noqa: E402
from opcases.examples import EXAMPLES, Draw  # noqa: E402
from opcases.operations import Shaped, shapes_in  # noqa: E402
from opcases.relations import reads_of  # noqa: E402

from redist.partir_core.rules import Factor, FactorKind, Rule, families  # noqa: E402

jnp, lax = jax.numpy, jax.lax


class Symbols:
    """Indices of elements within a tile, and of tiles, as unknowns with their bounds."""

    def __init__(self, rule: Rule, cut: dict[int, int]) -> None:
        self.rule, self.cut = rule, cut
        self.bounds: list[Any] = []

    def unknown(self, name: str, size: int) -> Any:
        value = z3.FreshInt(name)
        self.bounds += [value >= 0, value < size]
        return value

    def block(self, dims: Sequence[int]) -> tuple[int, int]:
        """How many elements and tiles a dimension has."""
        size = parts = 1
        for f in dims:
            size *= self.rule.factors[f].size
            parts *= self.cut.get(f, 1)
        return size // parts, parts

    def tile_number(self, dims: Sequence[int], where: dict[int, Any]) -> Any:
        """The number of a dimension's block, out of the tiles along its cut factors, major to minor."""
        number: Any = 0
        for f in dims:
            if f in self.cut:
                number = number * self.cut[f] + where[f]
        return number

    def element(self, row: Sequence[Sequence[int]]) -> tuple[list[Any], list[dict[int, Any]]]:
        """An element anywhere: its index, and for each dimension the tiles along its cut factors."""
        index, tiles = [], []
        for dims in row:
            size, _ = self.block(dims)
            where = {f: self.unknown(f"tile{f}_", self.cut[f]) for f in dims if f in self.cut}
            index.append(self.tile_number(dims, where) * size + self.unknown("i", size))
            tiles.append(where)
        return index, tiles


def shapes_of(avals: Sequence[Any]) -> list[tuple[int, ...]]:
    return [tuple(aval.shape) for aval in avals]


def refutation(operation: Shaped, rule: Rule, cut: dict[int, int]) -> str | None:
    """What is wrong with the rule, by an example; None if nothing is."""
    ins, outs = shapes_of(operation.in_avals), shapes_of(operation.out_avals)
    family = families()[operation.name].family
    for read in reads_of(operation.name, operation.params, ins, outs, family):
        rows = [rule.results[read.result], *(rule.operands[k] for k in read.operands)]
        symbols = Symbols(rule, cut)
        elements = [symbols.element(row) for row in rows]
        related = read.related(elements[0][0], [index for index, _ in elements[1:]])
        seen: dict[int, list[Any]] = {}
        for _, tiles in elements:
            for where in tiles:
                for f, tile in where.items():
                    seen.setdefault(f, []).append(tile)
        apart = [one != group[0] for group in seen.values() for one in group[1:]]
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        solver.add(*symbols.bounds, related, z3.Or(apart))
        verdict = solver.check()
        assert verdict != z3.unknown
        if verdict == z3.sat:
            return f"a read straddles tiles: {solver.model()}"
        if read.local and (problem := _not_again(operation, rule, cut, read)):
            return problem
    return None


def _not_again(operation: Shaped, rule: Rule, cut: dict[int, int], read: Any) -> str | None:
    """Whether elements of one tile are related otherwise than in the tile's own operation."""
    symbols = Symbols(rule, cut)
    where = {f: symbols.unknown(f"tile{f}_", parts) for f, parts in cut.items()}
    local = [[tuple(symbols.block(dims)[0] for dims in row) for row in rows] for rows in (rule.operands, rule.results)]
    family = families()[operation.name].family
    found = reads_of(operation.name, operation.params, *local, family)
    same = next(one for one in found if (one.result, one.operands) == (read.result, read.operands))
    rows = [rule.results[read.result], *(rule.operands[k] for k in read.operands)]
    inner = [[symbols.unknown("i", symbols.block(dims)[0]) for dims in row] for row in rows]
    outer = [
        [symbols.tile_number(dims, where) * symbols.block(dims)[0] + i for dims, i in zip(row, index, strict=True)]
        for row, index in zip(rows, inner, strict=True)
    ]
    alone, whole = same.related(inner[0], inner[1:]), read.related(outer[0], outer[1:])
    for one, other, what in ((alone, whole, "only in the tile"), (whole, alone, "only in the whole")):
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        # Unknowns that a relation brings with it (positions in windows) are there for some value: on the
        # right side of an implication they are quantified.
        solver.add(
            *symbols.bounds, one, z3.Not(_exists(other, symbols, [*where.values(), *(i for row in inner for i in row)]))
        )
        verdict = solver.check()
        assert verdict != z3.unknown
        if verdict == z3.sat:
            return f"elements are related {what}: {solver.model()}"
    return None


def _exists(formula: Any, symbols: Symbols, known: list[Any]) -> Any:
    names = {one.decl().name() for one in known}
    others: dict[str, Any] = {}
    stack = [formula]
    while stack:
        part = stack.pop()
        if z3.is_const(part) and part.decl().kind() == z3.Z3_OP_UNINTERPRETED and part.decl().name() not in names:
            others[part.decl().name()] = part
        stack += part.children()
    return z3.Exists(list(others.values()), formula) if others else formula


@pytest.mark.parametrize(
    "n", range(len(EXAMPLES)), ids=[f"{sum(o == x for o, _ in EXAMPLES[:n])}-{x}" for n, (x, _) in enumerate(EXAMPLES)]
)
def test_index_maps(n: int) -> None:
    """Two random shapes of every example whose reads are known."""
    names, maker = EXAMPLES[n]
    for seed in range(2):
        function, args = maker(Draw(Random(zlib.crc32(names.encode()) + 100 * n + seed)))
        for operation in shapes_in(function, *args):
            if operation.name in names.split():
                rule = rule_for(operation)
                for cut in cuts_of(rule, Random(seed), 1, all_divisors=False)[:4]:
                    assert refutation(operation, rule, cut) is None, (operation.name, operation.params, rule, cut)


def operation_of(function: Any, *args: Any) -> Shaped:
    return list(shapes_in(function, *args))[-1]


PARALLEL = FactorKind.PARALLEL
TWO = (Factor(4, PARALLEL), Factor(4, PARALLEL))
X = jnp.ones((4, 4))
BROKEN = {
    "a transposition forgotten": (operation_of(jnp.transpose, X), Rule(TWO, (((0,), (1,)),), (((0,), (1,)),)), {0: 2}),
    "dimensions exchanged": (operation_of(jnp.sin, X), Rule(TWO, (((0,), (1,)),), (((1,), (0,)),)), {0: 2}),
    "a broadcast to the other dimension": (
        operation_of(lambda x: lax.broadcast_in_dim(x, (4, 4), (0,)), X[0]),
        Rule(TWO, (((0,),),), (((1,), (0,)),)),
        {0: 2},
    ),
    "a reshape by its minor factors": (
        operation_of(lambda x: lax.reshape(x, (4, 6)), jnp.ones((6, 4))),
        Rule((Factor(6, PARALLEL), Factor(4, PARALLEL)), (((0,), (1,)),), (((1,), (0,)),)),
        {1: 2},
    ),
    "a slice tiled from its start": (
        operation_of(lambda x: lax.slice(x, (2,), (6,)), jnp.ones(8)),
        Rule((Factor(4, PARALLEL), Factor(2, PARALLEL)), (((0, 1),),), (((0,),),)),
        {0: 2},
    ),
    "a padded dimension": (
        operation_of(lambda x: lax.pad(x, 0.0, [(1, -1, 0)]), jnp.ones(4)),
        Rule((Factor(4, PARALLEL),), (((0,),), ()), (((0,),),)),
        {0: 2},
    ),
    "a mirrored dimension": (
        operation_of(lambda x: lax.rev(x, (0,)), jnp.ones(4)),
        Rule((Factor(4, PARALLEL),), (((0,),),), (((0,),),)),
        {0: 2},
    ),
    "a cumulative sum along its dimension": (
        operation_of(lambda x: lax.cumsum(x, 0), jnp.ones(4)),
        Rule((Factor(4, PARALLEL),), (((0,),),), (((0,),),)),
        {0: 2},
    ),
    "a window wider than one": (
        operation_of(lambda x: lax.reduce_window(x, 0.0, lax.add, (3,), (1,), ((1, 1),)), jnp.ones(4)),
        Rule((Factor(4, PARALLEL),), (((0,),), ()), (((0,),),)),
        {0: 2},
    ),
    "a contraction with its batch": (
        operation_of(lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((0,), (0,)))), X, X),
        Rule((Factor(4, PARALLEL), Factor(4, FactorKind.SUM)), (((0,), (1,)), ((1,), (0,))), (((0,),),)),
        {1: 2},
    ),
    "features before groups": (
        operation_of(
            lambda x, w: lax.conv_general_dilated(x, w, (1,), "VALID", feature_group_count=2),
            jnp.ones((1, 4, 3)),
            jnp.ones((4, 2, 1)),
        ),
        Rule(
            (Factor(2, PARALLEL), Factor(2, PARALLEL), Factor(2, FactorKind.SUM), Factor(3, PARALLEL)),
            (((), (2, 0), (3,)), ((1, 0), (2,), ())),
            (((), (1, 0), (3,)),),
        ),
        {2: 2},
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_rules_are_refuted(what: str) -> None:
    """The statements can fail: each of these rules is wrong."""
    operation, rule, cut = BROKEN[what]
    assert refutation(operation, rule, cut) is not None
    right = rule_for(operation)
    assert all(refutation(operation, right, one) is None for one in cuts_of(right, Random(0), 2, True))
