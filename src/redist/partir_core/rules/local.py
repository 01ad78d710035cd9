"""One tile of an operation, from the inside: local sizes, and where the tile lies in the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from redist.partir_core.rules.rule import Rule, Tile, extent

if TYPE_CHECKING:
    import jax

__all__ = ["Local", "bind"]


def bind(primitive: Any, params: Mapping[str, Any], operands: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """The results of `primitive`, always as a tuple."""
    results = primitive.bind(*operands, **primitive.get_bind_params(dict(params)))
    return tuple(results) if primitive.multiple_results else (results,)


@dataclass(frozen=True, slots=True)
class Local:
    """An operation with rule `rule`, seen from the tile `tiles`, on the tiles `operands` of its operands."""

    primitive: Any
    params: Mapping[str, Any]
    rule: Rule
    tiles: Mapping[int, Tile]
    operands: tuple[jax.Array, ...]

    def parts(self, dims: tuple[int, ...]) -> int:
        """Into how many tiles the factors `dims` are cut."""
        return prod(self.tiles[f].parts for f in dims if f in self.tiles)

    def size(self, dims: tuple[int, ...]) -> int:
        """The local extent of a dimension that runs through the factors `dims`."""
        return extent(self.rule, dims) // self.parts(dims)

    def start(self, dims: tuple[int, ...]) -> Any:
        """The index in the whole of the first element of a dimension that runs through the factors `dims`."""
        first: Any = 0
        for f in dims:
            block = self.size((f,))
            first = first * self.rule.factors[f].size
            if f in self.tiles:
                first = first + self.tiles[f].index * block
        return first

    def result_shape(self, j: int) -> tuple[int, ...]:
        """The local shape of result `j`."""
        return tuple(self.size(dims) for dims in self.rule.results[j])

    def whole_result_shape(self, j: int) -> tuple[int, ...]:
        """The shape of result `j` of the whole operation."""
        return tuple(extent(self.rule, dims) for dims in self.rule.results[j])

    def whole_operand_shape(self, k: int) -> tuple[int, ...]:
        """The shape of operand `k` of the whole operation."""
        return tuple(extent(self.rule, dims) for dims in self.rule.operands[k])

    def cut(self, dims: tuple[int, ...]) -> bool:
        """Whether any of the factors `dims` is cut."""
        return any(f in self.tiles for f in dims)

    def is_first(self, factors: Sequence[int]) -> Any:
        """Whether this tile is number 0 along every one of `factors`: a traced or Python bool."""
        first: Any = True
        for f in factors:
            if f in self.tiles:
                here = self.tiles[f].index == 0
                first = here if first is True else first & here
        return first

    def bind(self, *operands: jax.Array, **changes: Any) -> tuple[jax.Array, ...]:
        """The same primitive on other operands, with some parameters changed."""
        return bind(self.primitive, {**self.params, **changes}, operands)

    def tile_of_result(self, j: int, whole: jax.Array) -> jax.Array:
        """The tile of result `j`, out of the whole result."""
        from redist.collectives.backends.jax.modules import lax

        for d, dims in enumerate(self.rule.results[j]):
            if self.cut(dims):
                whole = lax.dynamic_slice_in_dim(whole, self.start(dims), self.size(dims), d)
        return whole
