"""All rules, by primitive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.errors import TypingError
from redist.partir_core.rules import contract, dynamic, elementwise, gather, linalg, random, reduce, scatter, shapes
from redist.partir_core.rules.build import Aval, Builder, Entry
from redist.partir_core.rules.elementwise import IDENTITIES
from redist.partir_core.rules.local import Local, bind
from redist.partir_core.rules.rule import FactorKind, Rule, Tile

if TYPE_CHECKING:
    import jax

__all__ = ["families", "linear_in", "rule_of", "run_tile"]

_LAYOUTS = frozenset({"sharding", "out_sharding"})
_MODULES = (contract, dynamic, elementwise, gather, linalg, random, reduce, scatter, shapes)
_ENTRIES: dict[str, Entry] = {name: entry for module in _MODULES for name, entry in module.ENTRIES.items()}


def families() -> Mapping[str, Entry]:
    """The entry of every primitive that has a rule, by name."""
    return dict(sorted(_ENTRIES.items()))


def rule_of(
    eqn_name: str, params: Mapping[str, Any], in_avals: Sequence[Aval], out_avals: Sequence[Aval]
) -> Rule | None:
    """The rule of an operation; None where there is none, and the operation is to be kept whole.

    `eqn_name` is the primitive's name, `in_avals` and `out_avals` have the shapes of the whole operation.
    An operation on empty arrays has nothing to cut: all its dimensions are whole.
    """
    entry = _ENTRIES.get(eqn_name)
    if entry is None:
        return None
    if any(0 in aval.shape for aval in (*in_avals, *out_avals)):
        return Builder(in_avals, out_avals).rule()
    return entry.rule(params, in_avals, out_avals)


def linear_in(eqn_name: str, params: Mapping[str, Any], operands: int | None = None) -> tuple[frozenset[int], ...]:
    """The sets of operand positions in which an operation is jointly linear.

    With partial sums on all positions of one set, and replicated values on all others, the operation
    gives a partial sum. `operands` is how many the operation has; without it, operations on any number
    of operands (concatenate, select_n) report nothing.
    """
    entry = _ENTRIES.get(eqn_name)
    if entry is None:
        return ()
    sets = entry.linear(params) if callable(entry.linear) else entry.linear
    if all(-1 not in one for one in sets):
        return sets
    if operands is None:
        return ()
    return tuple(frozenset(range(max(min(one - {-1}), 0), operands)) if -1 in one else one for one in sets)


def run_tile(
    primitive: Any,
    params: Mapping[str, Any],
    operands: Sequence[jax.Array],
    tiles: Mapping[int, Tile],
    rule: Rule | None,
) -> tuple[jax.Array, ...]:
    """One tile of an operation.

    `operands` are the tiles of the operands, `tiles` the cut factors of `rule`, which is what `rule_of`
    says of the whole operation (sizes of the whole cannot be read off tiles). Along a factor that is a
    reduction the results are contributions. Without tiles this is the operation itself.

    Raises `TypingError` for a factor that cannot be cut so, and for operands of other shapes.
    """
    # Layouts that the program asks for are left to the schedule; inside a tile they would mean nothing.
    params = {name: None if name in _LAYOUTS else value for name, value in params.items()}
    if not tiles:
        return bind(primitive, params, operands) if primitive.name not in IDENTITIES else tuple(operands)
    if rule is None:
        raise TypingError(f"{primitive.name} has no rule: it cannot be cut; run it whole")
    _check(primitive.name, rule, tiles, operands)
    local = Local(primitive, params, rule, dict(tiles), tuple(operands))
    run = _ENTRIES[primitive.name].run
    return tuple(run(local)) if run else local.bind(*operands)


def _check(name: str, rule: Rule, tiles: Mapping[int, Tile], operands: Sequence[jax.Array]) -> None:
    """Raise what is wrong with a cut, all of it at once."""
    wrong: list[str] = []
    for f, tile in tiles.items():
        if not 0 <= f < len(rule.factors):
            wrong.append(f"factor {f} does not exist: there are {len(rule.factors)}")
            continue
        factor = rule.factors[f]
        if factor.kind is FactorKind.WHOLE:
            wrong.append(f"factor {f} of size {factor.size} is whole: it cannot be cut")
        elif tile.parts < 1 or factor.size % tile.parts:
            wrong.append(f"factor {f} of size {factor.size} does not divide into {tile.parts} parts")
        if isinstance(tile.index, int) and not 0 <= tile.index < tile.parts:
            wrong.append(f"factor {f} has parts 0..{tile.parts - 1}, not {tile.index}")
    if not wrong:
        wrong += _not_blocks(rule, tiles)
    if not wrong:
        wrong += _other_shapes(Local(None, {}, rule, tiles, ()), operands)
    if wrong:
        raise TypingError(f"{name} cannot be cut so: " + "; ".join(wrong))


def _not_blocks(rule: Rule, tiles: Mapping[int, Tile]) -> list[str]:
    """Dimensions of which a tile would not be one block: a minor factor is cut, a major one is not consumed."""
    wrong: list[str] = []
    for what, values in (("operand", rule.operands), ("result", rule.results)):
        for k, value in enumerate(values):
            for d, dims in enumerate(value):
                for major, minor in pairwise(dims):
                    parts = tiles[major].parts if major in tiles else 1
                    if minor in tiles and tiles[minor].parts > 1 and parts != rule.factors[major].size:
                        wrong.append(
                            f"in dimension {d} of {what} {k}, factor {minor} is cut although factor {major}, major "
                            f"to it, is cut into {parts} of {rule.factors[major].size} parts: cut that into all first"
                        )
    return wrong


def _other_shapes(local: Local, operands: Sequence[jax.Array]) -> list[str]:
    """Operands that are not of the tiles' shapes."""
    if len(operands) != len(local.rule.operands):
        return [f"{len(operands)} operands were given, {len(local.rule.operands)} are needed"]
    wrong: list[str] = []
    for k, operand in enumerate(operands):
        shape = tuple(local.size(dims) for dims in local.rule.operands[k])
        if np.shape(operand) != shape:
            wrong.append(f"operand {k} has shape {np.shape(operand)}, its tile {shape}")
    return wrong
