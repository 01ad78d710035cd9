"""What a rule says about one operation: its factors, and which dimension each of them indexes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax


class FactorKind(StrEnum):
    """What becomes of an operation when one of its factors is cut.

    Cut along a `PARALLEL` factor, tiles of the operands give tiles of the results. Along `SUM`, `MAX`,
    `MIN` or `PROD` they give contributions to the whole result, to be combined by that reduction. A
    `WHOLE` factor cannot be cut.
    """

    PARALLEL = "parallel"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"
    WHOLE = "whole"


def combined(kind: FactorKind, dtype: Any) -> FactorKind:
    """What becomes of contributions of a dtype: of complex numbers no collective makes a max or min."""
    unordered = kind in (FactorKind.MAX, FactorKind.MIN) and dtype.kind == "c"
    return FactorKind.WHOLE if unordered else kind


@dataclass(frozen=True, slots=True)
class Factor:
    """One loop of the operation's index space, of `size` iterations."""

    size: int
    kind: FactorKind


@dataclass(frozen=True, slots=True)
class Rule:
    """The tile mapping of one operation (PartIR's registry entry, arXiv 2401.11202).

    `operands[k][d]` are the indices into `factors` that dimension `d` of operand `k` runs through, major
    to minor; their sizes multiply to the dimension's. A dimension of size 1 has none. `results` likewise.
    A dimension is cut by cutting the first of its factors, the next ones once those before it are
    consumed whole.
    """

    factors: tuple[Factor, ...]
    operands: tuple[tuple[tuple[int, ...], ...], ...]
    results: tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """One part of a factor: it is cut into `parts` equal parts and `index` (a traced scalar in 0..parts-1) is ours."""

    parts: int
    index: jax.Array | int


def extent(rule: Rule, dims: tuple[int, ...]) -> int:
    """The size of a dimension that runs through the factors `dims`."""
    return prod(rule.factors[f].size for f in dims)
