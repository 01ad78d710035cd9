"""Tile-mapping rules, by primitive.

`rule_of(primitive, params, operand shapes, result shapes)` gives the `Rule` of an operation, or None where
there is none; `run_tile(primitive, params, operands, tiles, rule)` computes one tile of it.
"""

from redist.partir_core.rules.build import Entry
from redist.partir_core.rules.registry import families, linear_in, rule_of, run_tile
from redist.partir_core.rules.rule import Factor, FactorKind, Rule, Tile, extent
from redist.partir_core.rules.without import CONTROL, WITHOUT_RULE

__all__ = [
    "CONTROL",
    "WITHOUT_RULE",
    "Entry",
    "Factor",
    "FactorKind",
    "Rule",
    "Tile",
    "extent",
    "families",
    "linear_in",
    "rule_of",
    "run_tile",
]
