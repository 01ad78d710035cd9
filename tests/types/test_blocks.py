"""Block rules: where blocks begin and end, and that each set of blocks has one canonical rule."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.errors import LayoutError
from redist.types import BALANCED, CEIL, BlockRule, Offsets
from redist.types.blocks import block_bounds, block_edges, canonical_rule, even


def all_rules(size: int, count: int) -> list[BlockRule]:
    """Every rule that applies to so many blocks of a dimension."""
    starts = itertools.combinations_with_replacement(range(size + 1), count - 1)
    return [CEIL, BALANCED, *(Offsets((0, *rest)) for rest in starts)]


@pytest.mark.parametrize("size", range(8))
@pytest.mark.parametrize("count", range(1, 6))
def test_blocks_of_every_rule(brute: Any, size: int, count: int) -> None:
    """All rules up to 7 elements in 5 blocks, k > g and g = 0 among them, against blocks laid out one by one."""
    for rule in all_rules(size, count):
        expected = brute.edges(size, count, rule)
        starts, stops = block_bounds(size, count, rule)
        assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == expected
        assert block_edges(size, count, rule, np.arange(count + 1)).tolist() == [*(a for a, _ in expected), size]
        if even(size, count, rule):
            assert len({b - a for a, b in expected}) == 1


@pytest.mark.parametrize("size", range(8))
@pytest.mark.parametrize("count", range(1, 6))
def test_the_same_blocks_have_one_rule(brute: Any, size: int, count: int) -> None:
    """Rules are canonical exactly when they give different blocks; ceil is preferred, then balanced."""
    by_blocks: dict[tuple[tuple[int, int], ...], BlockRule] = {}
    for rule in all_rules(size, count):
        canonical = canonical_rule(size, count, rule)
        blocks = tuple(brute.edges(size, count, rule))
        assert tuple(brute.edges(size, count, canonical)) == blocks
        assert by_blocks.setdefault(blocks, canonical) == canonical
    assert len(set(by_blocks.values())) == len(by_blocks)


@given(st.integers(0, 10**12), st.integers(2, 10**6))
def test_large_dimensions(size: int, count: int) -> None:
    """The ends of blocks in 64 bits: the last ends at the end, and balanced blocks differ by at most one."""
    ends = np.asarray([0, 1, count - 1, count])
    for rule in (CEIL, BALANCED):
        edges = block_edges(size, count, rule, ends).tolist()
        assert edges[0] == 0 and edges[-1] == size and edges == sorted(edges)
    first, last = edges[1], edges[3] - edges[2]
    assert 0 <= first - last <= 1


def test_the_ceil_rule_leaves_blocks_empty() -> None:
    """5 over 4 is 2,2,1,0, where balanced is 2,1,1,1; 2 over 4 leaves two devices without."""
    starts, stops = block_bounds(5, 4, CEIL)
    assert (stops - starts).tolist() == [2, 2, 1, 0]
    starts, stops = block_bounds(5, 4, BALANCED)
    assert (stops - starts).tolist() == [2, 1, 1, 1]
    starts, stops = block_bounds(2, 4, CEIL)
    assert (stops - starts).tolist() == [1, 1, 0, 0]


def test_bounds_cannot_be_written_to() -> None:
    """They are shared between callers."""
    starts, stops = block_bounds(5, 4, CEIL)
    assert not starts.flags.writeable and not stops.flags.writeable


def test_offsets_are_plain_integers() -> None:
    """Lists and NumPy arrays of starts are the same rule as a tuple."""
    assert Offsets([0, 2]) == Offsets(np.asarray([0, 2])) == Offsets((0, 2))  # pyright: ignore[reportArgumentType]
    assert str(Offsets(np.asarray([0, 2]))) == "@[0,2]"  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ((0, 2), "offsets [0, 2] state 2 blocks, but the axes make 3; give one start per block"),
        ((), "offsets [] state 0 blocks, but the axes make 3; give one start per block"),
        ((1, 2, 3), "offsets [1, 2, 3] do not cover the dimension: the first block starts at 1; start at 0"),
        ((-1, 2, 3), "offsets [-1, 2, 3] do not cover the dimension: the first block starts at -1; start at 0"),
        ((0, 3, 2), "offsets [0, 3, 2] fall at blocks [2]; blocks follow one another, so starts never decrease"),
        ((0, -1, -2), "offsets [0, -1, -2] fall at blocks [1, 2]; blocks follow one another, so starts never decrease"),
        ((0, 2, 5), "offsets [0, 2, 5] do not fit: block 2 starts at 5, beyond the dimension's 4 elements"),
    ],
)
def test_offsets_that_do_not_cover(starts: tuple[int, ...], message: str) -> None:
    """Every way in which offsets fail to cut a dimension of 4 in 3 blocks."""
    with pytest.raises(LayoutError) as caught:
        canonical_rule(4, 3, Offsets(starts))
    assert str(caught.value) == message
