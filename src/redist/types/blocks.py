"""How one dimension is cut into blocks: the block rules and the bounds they give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never

import numpy as np

from redist.errors import LayoutError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BALANCED",
    "CEIL",
    "Balanced",
    "BlockRule",
    "Ceil",
    "Offsets",
    "block_bounds",
    "block_edges",
    "canonical_rule",
    "even",
]


@dataclass(frozen=True, slots=True)
class Ceil:
    """Blocks of ceil(size/count); the trailing ones short or empty. XLA's rule."""

    def __str__(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Balanced:
    """Block sizes differ by at most one, the longer first. Usual in MPI codes."""

    def __str__(self) -> str:
        return ":balanced"


@dataclass(frozen=True, slots=True)
class Offsets:
    """Block b starts at `starts[b]` and ends where the next one starts, the last at the end."""

    starts: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", tuple(map(int, self.starts)))

    def __str__(self) -> str:
        return f"@[{','.join(map(str, self.starts))}]"


BlockRule = Ceil | Balanced | Offsets
CEIL = Ceil()
BALANCED = Balanced()


def even(size: int, count: int, rule: BlockRule) -> bool:
    """Whether all `count` blocks have the same length."""
    if isinstance(rule, Offsets):
        return count == 1
    return size % count == 0


@lru_cache(maxsize=4096)
def block_bounds(size: int, count: int, rule: BlockRule) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read-only (starts, stops) of the `count` blocks of a dimension of `size` elements."""
    index = np.arange(count + 1, dtype=np.int64)
    edges = block_edges(size, count, rule, index)
    starts, stops = edges[:-1], edges[1:]
    starts.flags.writeable = stops.flags.writeable = False
    return starts, stops


def block_edges(size: int, count: int, rule: BlockRule, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the blocks with these indices start; index `count` is the end of the dimension."""
    match rule:
        case Ceil():
            return np.minimum(index * -(-size // count), size)
        case Balanced():
            short, longer = divmod(size, count)
            return index * short + np.minimum(index, longer)
        case Offsets(starts):
            return np.asarray((*starts, size), dtype=np.int64)[index]
        case _:
            assert_never(rule)


def canonical_rule(size: int, count: int, rule: BlockRule) -> BlockRule:
    """The same blocks by the plainest rule: `ceil` where it gives them, else `balanced`, else offsets.

    Raises LayoutError for offsets that do not cover the dimension.
    """
    if isinstance(rule, Ceil) or even(size, count, rule):
        if isinstance(rule, Offsets):
            _check_offsets(size, count, rule.starts)
        return CEIL
    if isinstance(rule, Offsets):
        _check_offsets(size, count, rule.starts)
    starts = block_bounds(size, count, rule)[0]
    for plainer in (CEIL, BALANCED):
        if np.array_equal(starts, block_bounds(size, count, plainer)[0]):
            return plainer
    return rule


def _check_offsets(size: int, count: int, starts: tuple[int, ...]) -> None:
    if len(starts) != count:
        raise LayoutError(
            f"offsets {list(starts)} state {len(starts)} blocks, but the axes make {count}; give one start per block"
        )
    if starts[0] != 0:
        raise LayoutError(
            f"offsets {list(starts)} do not cover the dimension: the first block starts at {starts[0]}; start at 0"
        )
    falling = [b for b in range(1, count) if starts[b] < starts[b - 1]]
    if falling:
        raise LayoutError(
            f"offsets {list(starts)} fall at blocks {falling}; blocks follow one another, so starts never decrease"
        )
    if starts[-1] > size:
        raise LayoutError(
            f"offsets {list(starts)} do not fit: block {count - 1} starts at {starts[-1]}, beyond the dimension's "
            f"{size} elements"
        )
