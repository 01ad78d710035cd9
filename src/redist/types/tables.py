"""Block edges tabulated over digits, in pieces that stay in cache: what is uneven varies with the device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from redist.types.blocks import block_edges, longest, straight_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from redist.types.digits import Alignment
    from redist.types.layout import Layout

__all__ = ["Values", "digits_of", "dim_edges", "dim_groups", "overlap", "overlap_limits", "pieces", "straight_line"]

Values = Mapping[int, "NDArray[np.signedinteger]"]
"""Digit -> the values it runs through; a table has one axis per digit, in ascending order."""

_PIECE = 1 << 15
"""Entries of a table: a handful of them, of 8 bytes each, fit in a core's own cache."""


def digits_of(alignment: Alignment, dims: Iterable[int]) -> list[int]:
    """The digits that these dimensions use in any of the layouts, ascending."""
    group = list(dims)
    return sorted({d for form in alignment.forms for i in group for d in form.dims[i]})


def dim_groups(alignment: Alignment, dims: Iterable[int]) -> list[list[int]]:
    """These dimensions, grouped by shared digits."""
    groups: list[tuple[set[int], list[int]]] = []
    for i in dims:
        digits, members = set(digits_of(alignment, [i])), [i]
        apart: list[tuple[set[int], list[int]]] = []
        for other_digits, other_members in groups:
            if digits & other_digits:
                digits |= other_digits
                members = other_members + members
            else:
                apart.append((other_digits, other_members))
        groups = [*apart, (digits, members)]
    return [members for _, members in groups]


def pieces(alignment: Alignment, digits: Iterable[int]) -> Iterator[Values]:
    """All values of these digits, in products of ranges with at most `_PIECE` combinations each."""
    wanted = list(digits)
    sizes = [alignment.sizes[d] for d in wanted]
    widths, room = list[int](), _PIECE
    for size in reversed(sizes):
        widths.insert(0, min(size, room))
        room = max(1, room // size)
    starts = (range(0, size, width) for size, width in zip(sizes, widths, strict=True))
    for lower in itertools.product(*starts):
        yield {
            d: np.arange(a, min(a + width, size), dtype=np.int32)
            for d, a, width, size in zip(wanted, lower, widths, sizes, strict=True)
        }


def dim_edges(
    layout: Layout, alignment: Alignment, form: int, i: int, values: Values
) -> tuple[NDArray[np.signedinteger], NDArray[np.signedinteger]]:
    """(start, stop) of dimension i's block of `layout`, written as `alignment.forms[form]`: broadcastable
    tables with an axis for each digit in `values`."""
    order = {d: n for n, d in enumerate(sorted(values))}
    dim, digits = layout.dims[i], alignment.forms[form].dims[i]
    count = alignment.count(digits)
    wide = dim.size + count >= 2**31  # half the width is twice the speed
    block = np.zeros([1] * len(order), dtype=np.int64 if wide else np.int32)
    for n, d in enumerate(digits):
        shape = [1] * len(order)
        shape[order[d]] = len(values[d])
        coordinate = values[d].reshape(shape).astype(block.dtype, copy=False)
        block = block * alignment.sizes[d] + coordinate if n else coordinate
    return block_edges(dim.size, count, dim.rule, block), block_edges(dim.size, count, dim.rule, block + 1)


def overlap(
    src: Layout, dst: Layout, alignment: Alignment, i: int, values: Values
) -> tuple[NDArray[np.signedinteger], NDArray[np.signedinteger]]:
    """(target length, its overlap with the source block) of dimension i, tabulated over `values`."""
    src_lower, src_upper = dim_edges(src, alignment, 0, i, values)
    lower, upper = dim_edges(dst, alignment, 1, i, values)
    return upper - lower, np.maximum(np.minimum(src_upper, upper) - np.maximum(src_lower, lower), 0)


def straight_line(
    layout: Layout, alignment: Alignment, form: int, i: int, values: Values
) -> tuple[dict[int, int], int, int] | None:
    """(slope by digit, intercept, length) of dimension i's blocks over `values`, which are ranges: a block
    starts at `intercept + sum of slope * digit`. None where they are not all on one line."""
    dim, weight, weights = layout.dims[i], 1, dict[int, int]()
    for d in reversed(alignment.forms[form].dims[i]):
        weights[d] = weight
        weight *= alignment.sizes[d]
    first, last = (sum(w * int(values[d][end]) for d, w in weights.items()) for end in (0, -1))
    run = straight_run(dim.size, weight, dim.rule, first, last)
    return run and ({d: run[0] * w for d, w in weights.items()}, run[1], run[2])


def overlap_limits(src: Layout, dst: Layout, alignment: Alignment, i: int, values: Values) -> tuple[int, int]:
    """(longest target block, least overlap) that dimension i can have over `values`, which are ranges.

    Both are reached where the blocks are on straight lines; elsewhere they are only limits.
    """
    ours, theirs = straight_line(src, alignment, 0, i, values), straight_line(dst, alignment, 1, i, values)
    if ours is None or theirs is None:
        return longest(dst.dims[i].size, alignment.count(alignment.forms[1].dims[i]), dst.dims[i].rule), 0
    (src_slopes, src_start, src_length), (slopes, start, length) = ours, theirs

    def least(sign: int, constant: int) -> int:
        """Of `sign * (source start - target start) + constant`, over the ranges."""
        total = constant + sign * (src_start - start)
        for d in {*src_slopes, *slopes}:
            slope = sign * (src_slopes.get(d, 0) - slopes.get(d, 0))
            total += slope * int(values[d][0 if slope > 0 else -1])
        return total

    return length, max(0, min(src_length, length, least(1, src_length), least(-1, length)))
