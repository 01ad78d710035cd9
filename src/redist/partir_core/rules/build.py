"""What a family's rules are written with: shapes in, factors tied to dimensions, a `Rule` out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from redist.partir_core.rules.rule import Factor, FactorKind, Rule

if TYPE_CHECKING:
    import jax

    from redist.partir_core.rules.local import Local

__all__ = ["Aval", "Builder", "Entry", "Linear", "RuleMaker", "Spots"]

Spots: TypeAlias = Iterable[tuple[int, int]]
"""Pairs (operand or result, dimension)."""


class Aval(Protocol):
    """The shape and element type of an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class Builder:
    """Collects the factors of one operation.

    Dimensions that no factor was tied to get a `WHOLE` factor of their own, so that a rule forgets none.
    """

    def __init__(self, operands: Sequence[Aval], results: Sequence[Aval]) -> None:
        self.operands = [tuple(int(n) for n in aval.shape) for aval in operands]
        self.results = [tuple(int(n) for n in aval.shape) for aval in results]
        self._factors: list[Factor] = []
        self._operand_dims: list[list[tuple[int, ...]]] = [[() for _ in shape] for shape in self.operands]
        self._result_dims: list[list[tuple[int, ...]]] = [[() for _ in shape] for shape in self.results]

    def tie(self, kind: FactorKind, size: int, operands: Spots = (), results: Spots = ()) -> None:
        """A factor of `size` iterations through the given dimensions, minor to the factors they have.

        A factor of one iteration is no factor.
        """
        if size == 1:
            return
        name = len(self._factors)
        self._factors.append(Factor(size, kind))
        for k, d in operands:
            self._operand_dims[k][d] += (name,)
        for j, d in results:
            self._result_dims[j][d] += (name,)

    def parallel(self, size: int, operands: Spots = (), results: Spots = ()) -> None:
        """A factor that can be cut freely."""
        self.tie(FactorKind.PARALLEL, size, operands, results)

    def rule(self) -> Rule:
        """The rule, every dimension that is still without factor kept whole."""
        for shapes, dims in ((self.operands, self._operand_dims), (self.results, self._result_dims)):
            for shape, row in zip(shapes, dims, strict=True):
                for d, n in enumerate(shape):
                    if not row[d] and n != 1:
                        row[d] = (len(self._factors),)
                        self._factors.append(Factor(n, FactorKind.WHOLE))
        return Rule(
            tuple(self._factors),
            tuple(tuple(row) for row in self._operand_dims),
            tuple(tuple(row) for row in self._result_dims),
        )


RuleMaker: TypeAlias = Callable[[Mapping[str, Any], Sequence[Aval], Sequence[Aval]], Rule | None]
Linear: TypeAlias = tuple[frozenset[int], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A family of primitives with one tile mapping.

    `rule` makes the rule of an operation; `run`, where a tile is more than the same primitive with the
    same parameters on tiles, computes a tile; `linear` are the sets of operands in which the operation is
    jointly linear, -1 standing for all operands from the last named one on. `factors` and `missing` say
    the rule in words.
    """

    family: str
    factors: str
    rule: RuleMaker
    run: Callable[[Local], Sequence[jax.Array]] | None = None
    linear: Linear | Callable[[Mapping[str, Any]], Linear] = ()
    missing: str = ""
