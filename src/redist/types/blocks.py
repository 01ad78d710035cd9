"""How one dimension is cut into blocks: the block rules and the bounds they give."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    "longest",
    "straight_run",
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
    _array: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = tuple(map(int, self.starts))
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "_array", np.asarray(starts, dtype=np.int64))
        object.__setattr__(self, "_hash", hash(starts))

    def __hash__(self) -> int:
        return self._hash

    def edges(self, size: int, index: NDArray[np.signedinteger]) -> NDArray[np.int64]:
        """Where the blocks with these indices start in a dimension of `size`; the index after the last is its end."""
        return np.append(self._array, size)[index]

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


def longest(size: int, count: int, rule: BlockRule) -> int:
    """Length of the longest block."""
    if isinstance(rule, Offsets):
        starts, stops = block_bounds(size, count, rule)
        return int((stops - starts).max())
    return -(-size // count)


@lru_cache(maxsize=4096)
def block_bounds(size: int, count: int, rule: BlockRule) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read-only (starts, stops) of the `count` blocks of a dimension of `size` elements."""
    index = np.arange(count + 1, dtype=np.int64)
    edges = block_edges(size, count, rule, index)
    starts, stops = edges[:-1], edges[1:]
    starts.flags.writeable = stops.flags.writeable = False
    return starts, stops


def block_edges(size: int, count: int, rule: BlockRule, index: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    """Where the blocks with these indices start; index `count` is the end of the dimension. The integers
    of `index` must be able to hold size + count."""
    match rule:
        case Ceil():
            return np.minimum(index * -(-size // count), size)
        case Balanced():
            short, longer = divmod(size, count)
            return index * short + np.minimum(index, longer)
        case Offsets():
            return rule.edges(size, index)
        case _:
            assert_never(rule)


def straight_run(size: int, count: int, rule: BlockRule, first: int, last: int) -> tuple[int, int, int] | None:
    """(slope, intercept, length) where blocks first..last start at `slope * index + intercept` and all have
    this length; None where the run has a bend in it."""
    match rule:
        case Ceil():
            length = -(-size // count)
            full = size // length if length else 0
            if last < full:
                return length, 0, length
            return (0, size, 0) if first >= full + bool(length and size % length) else None
        case Balanced():
            short, longer = divmod(size, count)
            if last < longer:
                return short + 1, 0, short + 1
            return (short, longer, short) if first >= longer else None
        case Offsets():
            return None
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
    # Balanced blocks are q+1 long, then q: the ceil rule's where only the last one is short, or q is 0.
    q, longer = divmod(size, count)
    return CEIL if q == 0 or count - longer == 1 else rule


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
